//! Tests of inferred facts: leaves from ports that are congested together, roles from baselines, clock drift, and
//! missing telemetry.

use gaunt_schema::{
    Delivery, Device, Dialect, Entity, EntityKind, Finding, NodeLocation, Report, Severity,
    SourceTopology, TopologyOrigin,
    catalogue::{gpu, host, port},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

/// Nodes of one job, with names that do not contain their location.
const NODES: [(&str, Dialect); 8] = [
    ("ash", Dialect::Gaunt),
    ("birch", Dialect::Gaunt),
    ("cedar", Dialect::Gaunt),
    ("elm", Dialect::Gaunt),
    ("fir", Dialect::Gaunt),
    ("hazel", Dialect::Gaunt),
    ("larch", Dialect::Gaunt),
    ("oak", Dialect::Gaunt),
];

const DEVICES: [&str; 2] = ["bond0", "bond1"];

/// A node whose two ports carry half of their rate; `marked` is the share of ECN-marked packets.
fn network_report(node_index: usize, second: i64, marked: [f64; 2], leaf: Option<&str>) -> Report {
    let marked = marked.map(|share| 6e6 * share * (second as f64 - 60.0).max(0.0));
    port_report(node_index, second as f64, marked, leaf)
}

/// A node whose two ports have carried half of their rate for so many seconds, and this number of marked packets.
fn port_report(node_index: usize, seconds: f64, marked: [f64; 2], leaf: Option<&str>) -> Report {
    let mut page = node_report(NODES[node_index].0);
    for (name, marked) in DEVICES.into_iter().zip(marked) {
        let device = page.ensure_device(Device::new_port(name, "1"));
        if let Some(leaf) = leaf {
            page.add_info(device, port::INFO, &[("leaf", leaf), ("rail", &name[4..])]);
        }
        for (metric, value) in [
            (port::STATE, 4.0),
            (port::RATE, 5e10),
            (port::RECEIVE_BYTES, 1e12 + 2.5e10 * seconds),
            (port::TRANSMIT_BYTES, 1e12 + 2.5e10 * seconds),
            (port::RECEIVE_PACKETS, 1e9 + 6e6 * seconds),
            (port::ECN_MARKED, 1e6 + marked),
        ] {
            push_reading(&mut page, Device::new_port(name, "1"), metric, value);
        }
    }
    page
}

fn finding_by_id<'a>(fixture: &'a TargetFixture, id: &str) -> &'a Finding {
    fixture.judge.open_findings().into_iter().find(|finding| finding.id == id).unwrap()
}

fn missing_telemetry<'a>(fixture: &'a TargetFixture, id: &str) -> &'a [String] {
    let record =
        fixture.judge.open_records().into_iter().find(|record| record.finding.id == id).unwrap();
    &record.finding.missing
}

#[test]
fn ports_that_are_congested_together_are_an_inferred_leaf() {
    // Three of eight nodes are congested on one rail.
    let page = |second: i64, node_index: usize| {
        network_report(
            node_index,
            second,
            [if node_index % 3 == 1 { 0.05 } else { 0.0 }, 0.0],
            None,
        )
    };
    let mut fixture = TargetFixture::new(&NODES);
    assert_eq!(fixture.run(65, page).open_ids(), [""; 0]);
    assert_eq!(fixture.run(30, page).open_ids(), ["leaf_congested/0"]);
    let learned = finding_by_id(&fixture, "leaf_congested/0");
    assert_eq!(learned.severity, Severity::Info, "no job is slower for it");
    assert!((learned.confidence - 0.75).abs() < 1e-9, "an inferred leaf is one kind of evidence");
    let rail = Entity { rail: Some("0".into()), ..Entity::new(EntityKind::Rail) };
    assert_eq!(learned.entity, rail, "no switch is invented");
    assert_eq!(
        learned.summary,
        "3 ports of 8 on rail 0 are congested together, those of birch, fir, oak: likely one leaf switch (no topology configured)."
    );
    let missing = missing_telemetry(&fixture, "leaf_congested/0");
    assert!(missing.iter().any(|lack| lack.starts_with("no topology")), "{missing:?}");
}

#[test]
fn leaf_that_a_scheduler_states_for_a_node_is_no_unknown_one() {
    let page = |second: i64, node_index: usize| {
        let marked = if node_index % 3 == 1 { 0.05 } else { 0.0 };
        network_report(node_index, second, [marked, 0.0], None)
    };
    let mut fixture = TargetFixture::new(&NODES);
    let mut topology = SourceTopology::new("topology.conf".into(), TopologyOrigin::Scheduler);
    let location = |(name, _): &(&str, Dialect)| NodeLocation {
        node: name.split(':').next().unwrap().into(),
        leaf: Some("s0".into()),
        ..NodeLocation::default()
    };
    topology.nodes = NODES.iter().map(location).collect();
    fixture.cluster.ingest_delivery(Delivery::Topology(topology));
    fixture.run(95, page);
    let told = fixture.judge.open_findings();
    let missing = missing_telemetry(&fixture, &told[0].id);
    assert!(
        missing.iter().any(|lack| lack.starts_with("no source states the rails")),
        "{missing:?}"
    );
    assert!(missing.iter().all(|lack| !lack.contains("leaf")), "{missing:?}");
}

#[test]
fn leaf_that_is_configured_is_never_inferred() {
    let page = |second: i64, node_index: usize| {
        let marked = if node_index % 3 == 1 { 0.05 } else { 0.0 };
        let leaf = if node_index % 3 == 1 { "north" } else { "south" };
        network_report(node_index, second, [marked, 0.0], Some(leaf))
    };
    let mut fixture = TargetFixture::new(&NODES);
    assert_eq!(fixture.run(95, page).open_ids(), ["leaf_congested/north"]);
    let missing = missing_telemetry(&fixture, "leaf_congested/north");
    assert!(missing.iter().all(|lack| !lack.starts_with("no topology")), "{missing:?}");
    assert!(missing.iter().any(|lack| lack.starts_with("switch not scraped")), "{missing:?}");
}

#[test]
fn ports_congested_on_all_rails_are_no_inferred_leaf() {
    let page = |second: i64, node_index: usize| {
        let marked = if node_index < 3 { 0.05 } else { 0.0 };
        network_report(node_index, second, [marked, marked], None)
    };
    assert_eq!(TargetFixture::new(&NODES).run(120, page).open_ids(), [""; 0]);
}

/// A node of a job that is slower from second 200 on, while these first nodes receive marked packets on their first ports, and
/// drop so many packets a second there.
fn slower_job_page(
    second: i64,
    node_index: usize,
    (nodes, ports): (usize, usize),
    dropped: f64,
) -> Report {
    let slow = (second as f64 - 200.0).max(0.0);
    let is_congested = |port: usize| node_index < nodes && port < ports;
    let marked = [0, 1].map(|port| if is_congested(port) { 2e5 * slow } else { 0.0 });
    let mut page = port_report(node_index, second as f64 - 0.4 * slow, marked, None);
    for (name, port) in DEVICES.into_iter().zip(0..) {
        let drops = if is_congested(port) { dropped * slow } else { 0.0 };
        push_reading(&mut page, Device::new_port(name, "1"), port::OUT_OF_BUFFER, drops);
    }
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "train")]);
        let tensor = if slow > 0.0 { 0.25 } else { 0.4 };
        for (metric, value) in [(gpu::UTILIZATION, 0.99), (gpu::TENSOR_ACTIVE, tensor)] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    page
}

#[test]
fn marked_port_that_drops_for_want_of_buffers_is_a_slow_receiver() {
    let page = |dropped: f64| move |second, node| slower_job_page(second, node, (1, 1), dropped);
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(300, page(0.7));
    let finding = finding_by_id(&fixture, "host_blocks_network/ash");
    assert_eq!(
        finding.summary,
        "1 port of ash receives ECN-marked packets and has 0.7 out_of_buffer drops per second, and no other port of its rail does: slow receiver."
    );
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(300, page(0.0));
    let ids = fixture.open_ids();
    assert!(ids.contains(&"leaf_congested/ash/bond0/1"), "without drops it is incast: {ids:?}");
}

#[test]
fn nodes_of_a_slower_job_that_are_congested_on_all_rails_share_a_switch() {
    let page = |nodes: usize| move |second, node| slower_job_page(second, node, (nodes, 2), 0.0);
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(300, page(3));
    let finding = finding_by_id(&fixture, "leaf_congested/unnamed");
    assert_eq!(
        finding.summary,
        "6 ports on 2 rails are congested at the same time, those of ash, birch, cedar: they share a leaf switch or the links above it (no topology configured)."
    );
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(300, page(1));
    let ids = fixture.open_ids();
    assert!(ids.contains(&"host_blocks_network/ash"), "one node is a slow receiver: {ids:?}");
    // Most nodes are congested on both rails that there are: two rails do not fail at once.
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(300, page(NODES.len() - 1));
    let ids = fixture.open_ids();
    assert!(ids.contains(&"leaf_congested/unnamed"), "{ids:?}");
    assert!(!ids.iter().any(|id| id.starts_with("rail_slow")), "{ids:?}");
}

/// A node with four GPUs of one job: power over 700 W and clock in GHz of each.
fn power_report(node_index: usize, gpus: [(f64, f64); 4]) -> Report {
    let mut page = node_report(NODES[node_index].0);
    for (index, (power, clock)) in (0..).zip(gpus) {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "train")]);
        page.add_info(device, gpu::INFO, &[("model", "a board")]);
        for (metric, value) in [
            (gpu::UTILIZATION, 1.0),
            (gpu::TENSOR_ACTIVE, 0.4),
            (gpu::POWER, power * 700.0),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::SM_CLOCK, clock * 1e9),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    page
}

#[test]
fn gpu_is_compared_with_its_role() {
    // Half of the job's nodes compute more, at a lower clock, and always did.
    let page = |slow_from: i64| {
        move |second: i64, node_index: usize| {
            let baseline = if node_index.is_multiple_of(2) { (0.9, 1.3) } else { (0.5, 1.9) };
            let mut gpus = [baseline; 4];
            if node_index == 3 && second >= slow_from {
                gpus[2].1 = 1.45;
            }
            power_report(node_index, gpus)
        }
    };
    let mut fixture = TargetFixture::new(&NODES[..4]);
    assert_eq!(fixture.run(90, page(91)).open_ids(), [""; 0], "stages that differ are no fault");
    assert_eq!(fixture.run(30, page(91)).open_ids(), ["compute_straggler/elm/2"]);
    let slow = finding_by_id(&fixture, "compute_straggler/elm/2");
    assert!(slow.summary.contains("SM clock 0.76 × peer median"), "{}", slow.summary);
    let record = fixture.judge.open_records()[0].chain.as_ref().unwrap();
    assert!(record.peers.contains("within 2 roles"), "{}", record.peers);
}

#[test]
fn gpu_that_drifts_slower_is_found_and_drift_of_all_is_not() {
    // A hundredth in three minutes, of one or of all.
    let page = |all: bool| {
        move |second: i64, node_index: usize| {
            let lost = (second - 600).max(0) as f64 / 18_000.0;
            let mut gpus = [(0.8, 1.6); 4];
            for (at, gpu) in gpus.iter_mut().enumerate() {
                if all || (node_index == 1 && at == 3) {
                    gpu.1 *= 1.0 - lost.min(0.12);
                }
            }
            power_report(node_index, gpus)
        }
    };
    let mut fixture = TargetFixture::new(&NODES[..2]);
    assert_eq!(fixture.run(1_200, page(false)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(1_800, page(false)).open_ids(), ["compute_straggler/birch/3"]);
    let slow = finding_by_id(&fixture, "compute_straggler/birch/3");
    assert_eq!(slow.severity, Severity::Warning);
    assert!(slow.summary.contains("is a straggler: SM clock fell to"), "{}", slow.summary);
    assert_eq!(TargetFixture::new(&NODES[..2]).run(3_000, page(true)).open_ids(), [""; 0]);
}

#[test]
fn gpu_whose_peers_become_faster_has_not_declined() {
    // Without job labels the GPUs that it is compared with are others after a while.
    let page = |second: i64, node_index: usize| {
        let gained = ((second - 600).max(0) as f64 / 18_000.0).min(0.12);
        let mut gpus = [(0.8, 1.5 * (1.0 + gained)); 4];
        if node_index == 1 {
            gpus[3].1 = 1.5;
        }
        power_report(node_index, gpus)
    };
    assert_eq!(TargetFixture::new(&NODES[..2]).run(3_000, page).open_ids(), [""; 0]);
}

#[test]
fn hang_of_an_unnamed_job_is_a_warning_first_and_critical_later() {
    let page = |second: i64, node_index: usize| {
        let mut page = node_report(NODES[node_index].0);
        for index in 0..4 {
            let hangs = second > 90;
            push_reading(&mut page, Device::new_gpu(index), gpu::UTILIZATION, 1.0);
            push_reading(
                &mut page,
                Device::new_gpu(index),
                gpu::TENSOR_ACTIVE,
                if hangs { 0.0 } else { 0.4 },
            );
            push_reading(
                &mut page,
                Device::new_gpu(index),
                gpu::POWER,
                if hangs { 200.0 } else { 600.0 },
            );
            push_reading(&mut page, Device::new_gpu(index), gpu::POWER_LIMIT, 700.0);
            push_reading(&mut page, Device::new_gpu(index), gpu::PROCESSES, 1.0);
        }
        let waited = 1e3 + 0.001 * second as f64;
        push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, waited);
        page
    };
    let mut fixture = TargetFixture::new(&NODES[..2]);
    assert_eq!(fixture.run(150, page).open_ids(), [""; 0]);
    assert_eq!(fixture.run(60, page).open_ids(), ["collective_hang/ash"]);
    assert_eq!(finding_by_id(&fixture, "collective_hang/ash").severity, Severity::Warning);
    assert_eq!(fixture.run(120, page).open_ids(), ["collective_hang/ash"]);
    assert_eq!(finding_by_id(&fixture, "collective_hang/ash").severity, Severity::Critical);
}

#[test]
fn finding_lists_missing_telemetry() {
    // No profiling counters, ports or job label; only one node reports PSI.
    let page = |second: i64, node_index: usize| {
        let mut page = node_report(NODES[node_index].0);
        let starves = node_index == 0 && second > 90;
        for index in 0..4 {
            let busy = if starves { 0.4 } else { 1.0 };
            push_reading(&mut page, Device::new_gpu(index), gpu::UTILIZATION, busy);
            push_reading(&mut page, Device::new_gpu(index), gpu::POWER, 600.0 * busy);
            push_reading(&mut page, Device::new_gpu(index), gpu::POWER_LIMIT, 700.0);
            push_reading(&mut page, Device::new_gpu(index), gpu::PROCESSES, 1.0);
        }
        let waited = 1e3 + 0.5 * (second - 90).max(0) as f64;
        push_reading(
            &mut page,
            Device::new_node(),
            host::IO_PRESSURE,
            if node_index == 0 { waited } else { 1e3 },
        );
        page
    };
    let mut fixture = TargetFixture::new(&NODES[..2]);
    assert_eq!(fixture.run(130, page).open_ids(), ["data_starved/ash"]);
    let missing = missing_telemetry(&fixture, "data_starved/ash");
    for lack in ["no profiling counters", "no job labels", "no PCIe throughput", "no port metrics"]
    {
        assert!(missing.iter().any(|said| said.starts_with(lack)), "{lack} is not in {missing:?}");
    }
    assert!(!missing.iter().any(|said| said.starts_with("no PSI")), "{missing:?}");
}

#[test]
fn peers_of_a_port_are_ports_only() {
    let page = |second: i64, node_index: usize| {
        let mut page = network_report(node_index, second, [0.0; 2], None);
        push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 0.0);
        let state = if node_index == 0 && second > 60 { 1.0 } else { 4.0 };
        push_reading(&mut page, Device::new_port(DEVICES[0], "1"), port::STATE, state);
        page
    };
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(90, page);
    let records = fixture.judge.open_records();
    let record = records.iter().find(|record| record.finding.id.starts_with("port_down")).unwrap();
    let chain = record.chain.as_ref().unwrap();
    assert_eq!(chain.peers, "1 other port of its node");
    for signal in chain.signals.iter().filter(|signal| signal.what.contains("node: ")) {
        assert_eq!((signal.peers, signal.quartiles), (None, None), "{signal:?}");
    }
    let of = |what: &str| chain.signals.iter().any(|signal| signal.what == what);
    assert!(of("node: port traffic / line rate") && of("port utilization (busier direction)"));
}
