//! Tests of congestion that switches hardly mark, on ports that PCI addresses name, below switches that only a
//! scheduler names.

use gaunt_schema::{
    Delivery, Device, Dialect, FindingKind, NodeLocation, Report, Severity, SourceTopology,
    TopologyOrigin, UnixMs,
    catalogue::{ethernet, gpu, port},
};

use super::telemetry_tests::TargetFixture;

const NODES: usize = 8;
const DEVICES: [&str; 3] = ["rocep9s0", "rocep75s0", "rocep155s0"];

/// Packets that a port receives in a second.
const PACKETS: f64 = 1e6;

/// A page on which each port received packets with this share of marks since the start.
fn page_of_marks(second: i64, node: usize, share: impl Fn(&str, i64) -> f64) -> Report {
    page_of_ports(second, node, &DEVICES, share)
}

/// The same with these ports.
fn page_of_ports(
    second: i64,
    node: usize,
    devices: &[&str],
    share: impl Fn(&str, i64) -> f64,
) -> Report {
    let mut report = Report {
        node: Some(format!("gpu{node:03}").as_str().into()),
        node_time: Some(UnixMs(second * 1_000)),
        ..Report::default()
    };
    for name in devices {
        let device = report.ensure_device(Device::new_port(name, "1"));
        report.push(device, port::STATE, 4.0);
        report.push(device, port::RATE, 50e9);
        let packets = second as f64 * PACKETS;
        report.push(device, port::RECEIVE_PACKETS, packets);
        report.push(device, port::RECEIVE_BYTES, packets * 4_096.0);
        report.push(device, port::TRANSMIT_BYTES, packets * 4_096.0);
        let marked: f64 = (0..second).map(|second| share(name, second) * PACKETS).sum();
        report.push(device, port::ECN_MARKED, marked.round());
    }
    report
}

/// A page of one InfiniBand port that has sent so many bytes a second and waited so many ticks per kilobyte since the start;
/// its counter may stand at its maximum.
fn page_of_waits(
    second: i64,
    node: usize,
    job: &str,
    ticks: Option<impl Fn(i64) -> f64>,
    sent: impl Fn(i64) -> f64,
) -> Report {
    let mut report = Report {
        node: Some(format!("gpu{node:03}").as_str().into()),
        node_time: Some(UnixMs(second * 1_000)),
        ..Report::default()
    };
    let device = report.ensure_device(Device::new_gpu(0));
    report.add_info(device, gpu::JOB_INFO, &[("job", job)]);
    let device = report.ensure_device(Device::new_port("mlx5_0", "1"));
    report.push(device, port::STATE, 4.0);
    report.push(device, port::RATE, 50e9);
    let bytes: f64 = (0..second).map(&sent).sum();
    report.push(device, port::RECEIVE_BYTES, bytes);
    report.push(device, port::TRANSMIT_BYTES, bytes);
    let waited = ticks.map(|ticks| (0..second).map(|at| ticks(at) * sent(at) / 1e3).sum::<f64>());
    report.push(device, port::TRANSMIT_WAIT, waited.map_or(f64::from(u32::MAX), f64::round));
    report
}

/// Runs eight nodes, four below each of two switches of a Slurm tree, for two minutes with few marks and then half a
/// minute with marks as given.
fn findings_with(marks: impl Fn(usize, &str) -> f64) -> Vec<(FindingKind, String, Severity)> {
    findings_of(|second, node| {
        page_of_marks(
            second,
            node,
            |name, second| if second < 120 { 2e-4 } else { marks(node, name) },
        )
    })
}

/// The same with these ticks of waiting, of one job on all nodes.
fn findings_with_waits(ticks: impl Fn(usize) -> Option<f64>) -> Vec<String> {
    findings_of_jobs(|_| "8812", ticks)
}

/// The same with the job of each node.
fn findings_of_jobs(
    job: impl Fn(usize) -> &'static str,
    ticks: impl Fn(usize) -> Option<f64>,
) -> Vec<String> {
    let found = findings_of(|second, node| {
        let ticks = ticks(node);
        let of_second = move |second| if second < 120 { 1e-4 } else { ticks.unwrap_or_default() };
        page_of_waits(second, node, job(node), ticks.map(|_| of_second), |_| 5e9)
    });
    found.into_iter().map(|(_, id, _)| id).collect()
}

/// Returns what is found on the eight nodes after two and a half minutes of these pages.
fn findings_of(page: impl Fn(i64, usize) -> Report) -> Vec<(FindingKind, String, Severity)> {
    findings_after(150, page)
}

/// Returns what is found on the eight nodes after so many seconds of these pages.
fn findings_after(
    seconds: i64,
    page: impl Fn(i64, usize) -> Report,
) -> Vec<(FindingKind, String, Severity)> {
    let addresses: Vec<String> = (0..NODES).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        addresses.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    let location = |node: usize| NodeLocation {
        node: format!("gpu{node:03}").as_str().into(),
        leaf: Some(format!("s{}", node / 4).as_str().into()),
        ..NodeLocation::default()
    };
    fixture.cluster.ingest_delivery(Delivery::Topology(SourceTopology {
        source: "topology.conf".into(),
        origin: TopologyOrigin::Scheduler,
        nodes: (0..NODES).map(location).collect(),
        ports: vec![],
        rails: vec![],
        switches: vec![],
        cables: vec![],
    }));
    fixture.run(seconds, page);
    let findings = fixture.judge.open_findings().into_iter();
    findings.map(|found| (found.kind, found.id.clone(), found.severity)).collect()
}

#[test]
fn quiet_marks_below_one_switch_and_rail_are_a_congested_leaf() {
    let found =
        findings_with(|node, name| if node < 4 && name == "rocep75s0" { 3e-3 } else { 2e-4 });
    let expected = (FindingKind::LeafCongested, "leaf_congested/s0/1".to_owned(), Severity::Info);
    assert_eq!(found, [expected], "no job is slower: information");
}

#[test]
fn quiet_marks_on_several_rails_below_one_switch_are_the_whole_switch() {
    let found =
        findings_with(|node, name| if node < 4 && name != "rocep155s0" { 3e-3 } else { 2e-4 });
    let expected = (FindingKind::LeafCongested, "leaf_congested/s0".to_owned(), Severity::Info);
    assert_eq!(found, [expected]);
}

#[test]
fn few_marks_beside_many_are_of_the_same_traffic() {
    let found = findings_with(|node, name| match (node < 4, name) {
        (true, "rocep75s0") => 0.08,
        (true, "rocep155s0") => 3e-3,
        _ => 2e-4,
    });
    let expected = (FindingKind::LeafCongested, "leaf_congested/s0/1".to_owned(), Severity::Info);
    assert_eq!(found, [expected], "the other rail alone would be a finding");
}

#[test]
fn quiet_marks_on_one_rail_everywhere_are_a_slow_rail() {
    let found = findings_with(|_, name| if name == "rocep155s0" { 3e-3 } else { 2e-4 });
    let expected = (FindingKind::RailSlow, "rail_slow/2".to_owned(), Severity::Info);
    assert_eq!(found, [expected]);
}

#[test]
fn marks_that_rise_everywhere_are_another_load() {
    assert_eq!(findings_with(|_, _| 3e-3), []);
}

#[test]
fn ports_whose_wait_counter_is_saturated_clear_no_switch() {
    let waits = |of_others: Option<f64>| {
        findings_with_waits(move |node| match node {
            0 | 1 => Some(0.5),
            2 | 3 => of_others,
            _ => Some(1e-4),
        })
    };
    assert_eq!(waits(None), ["leaf_congested/s0"], "two of two that are known");
    assert_eq!(waits(Some(1e-4)), [""; 0], "two of four");
}

#[test]
fn ports_that_wait_little_beside_others_wait_for_their_turn() {
    let waits = |node: usize| Some(if node < 4 { 1.0 } else { 0.15 });
    assert_eq!(findings_with_waits(waits), ["leaf_congested/s0"]);
}

#[test]
fn ports_that_wait_far_longer_than_others_of_their_job_are_where_the_queue_is() {
    let waits = |of_others: f64| {
        findings_with_waits(move |node| Some(if node < 4 { 1.0 } else { of_others }))
    };
    assert_eq!(waits(0.45), ["leaf_congested/s0"]);
    assert_eq!(waits(0.8), ["rail_slow/0"], "below both switches");
}

#[test]
fn ports_that_are_paused_little_beside_others_wait_for_their_turn() {
    let paused_for = |share: f64| {
        findings_of(move |second, node| {
            let mut page = page_of_waits(second, node, "8812", Some(|_| 1e-4), |_| 5e9);
            let port = page.ensure_device(Device::new_port("mlx5_0", "1"));
            page.add_info(port, port::INFO, &[("netdev", "ens1")]);
            let share = if node < 4 { 0.5 } else { share };
            let netdev = page.ensure_device(Device::new_netdev("ens1"));
            page.push(netdev, ethernet::RECEIVE_PAUSED_3, share * (second - 120).max(0) as f64);
            page
        })
        .into_iter()
        .map(|(_, id, _)| id)
        .collect::<Vec<_>>()
    };
    assert_eq!(paused_for(0.1), ["leaf_congested/s0"]);
    assert_eq!(paused_for(0.4), ["rail_slow/0"], "below both switches");
}

#[test]
fn ports_of_another_job_wait_for_themselves() {
    let waits = |node: usize| Some(if node < 4 { 1.0 } else { 0.15 });
    let found = findings_of_jobs(|node| if node < 4 { "8812" } else { "8813" }, waits);
    assert_eq!(found, ["rail_slow/0"], "below both switches");
}

#[test]
fn ports_that_congestion_leaves_little_traffic_still_count() {
    let found = findings_of(|second, node| {
        let is_congested = node < 4;
        let ticks = move |second| if second < 120 || !is_congested { 1e-4 } else { 2.0 };
        // A hundredth of the line rate, and less than a two hundredth later.
        let sent = |second| if second < 120 { 5e8 } else { 1e8 };
        page_of_waits(second, node, "8812", Some(ticks), sent)
    });
    let found: Vec<&str> = found.iter().map(|(_, id, _)| id.as_str()).collect();
    assert_eq!(found, ["leaf_congested/s0"]);
}

/// Runs nodes with three ports that their addresses name, in no order, with marks by node and rail as given.
fn findings_of_addresses(marks: impl Fn(usize, usize) -> f64) -> Vec<String> {
    let names = |node: usize| {
        let address = |rail: u64| (node as u64 * 3 + rail).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [0, 1, 2].map(|rail| format!("ibx{:016x}", address(rail)))
    };
    let found = findings_of(|second, node| {
        let names = names(node);
        let devices = names.each_ref().map(String::as_str);
        page_of_ports(second, node, &devices, |name, second| {
            let rail = devices.iter().position(|other| *other == name).unwrap();
            if second < 120 { 2e-4 } else { marks(node, rail) }
        })
    });
    found.into_iter().map(|(_, id, _)| id).collect()
}

#[test]
fn names_by_address_tell_no_rail_and_hide_no_congestion() {
    let of_leaf = |node: usize, _| if node < 4 { 3e-3 } else { 2e-4 };
    assert_eq!(findings_of_addresses(of_leaf), ["leaf_congested/s0"]);
    let of_rail = |_, rail: usize| if rail == 1 { 3e-3 } else { 2e-4 };
    assert_eq!(findings_of_addresses(of_rail), ["rail_slow/unnamed"]);
    let of_one_node = |node: usize, _| if node == 2 { 3e-3 } else { 2e-4 };
    assert_eq!(findings_of_addresses(of_one_node), [""; 0], "no job is slower for it");
}

#[test]
fn few_marks_of_sibling_ports_are_those_of_the_same_traffic() {
    let found = findings_with(|node, name| match (node < 4, name) {
        (true, "rocep9s0") => 0.008,
        (true, _) => 0.0016,
        (false, _) => 2e-4,
    });
    let found: Vec<_> = found.iter().map(|(_, id, _)| id.as_str()).collect();
    assert_eq!(found, ["leaf_congested/s0/0"]);
}

#[test]
fn congestion_from_before_the_first_look_beside_which_jobs_ran_as_usual_never_pages() {
    let severity = |since: i64| {
        let found = findings_after(500, |second, node| {
            let mut page = page_of_waits(second, node, "8812", Some(|_| 1e-4), |at| {
                if at < 340 { 5e9 } else { 3e9 }
            });
            let port = page.ensure_device(Device::new_port("mlx5_0", "1"));
            page.add_info(port, port::INFO, &[("netdev", "ens1")]);
            let paused = if node < 4 { 0.3 * (second - since).max(0) as f64 } else { 0.0 };
            let netdev = page.ensure_device(Device::new_netdev("ens1"));
            page.push(netdev, ethernet::RECEIVE_PAUSED_3, paused);
            for index in 0..4 {
                let device = page.ensure_device(Device::new_gpu(index));
                page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
                page.push(device, gpu::UTILIZATION, 0.99);
                page.push(device, gpu::TENSOR_ACTIVE, if second < 340 { 0.4 } else { 0.25 });
            }
            page
        });
        found
            .into_iter()
            .find(|(_, id, _)| id == "leaf_congested/s0")
            .map(|(.., severity)| severity)
    };
    assert_eq!(severity(10), Some(Severity::Warning));
    assert_eq!(severity(340), Some(Severity::Critical));
}
