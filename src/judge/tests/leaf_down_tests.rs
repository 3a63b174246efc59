//! Tests of leaf switches that are down, with and without a topology.

use gaunt_schema::{
    Delivery, Device, Dialect, NodeLocation, Report, Severity, SourceTopology, TopologyOrigin,
    catalogue::{gpu, port},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

mod link_error_tests;

const NODES: usize = 6;

/// The page of a node with two rails whose ports are down by number; every node but the last is of one job.
fn page_of_ports(node: usize, down: &[&str]) -> Report {
    let mut page = node_report(&format!("gpu{node:03}"));
    for number in 0..2 {
        let row = page.ensure_device(Device::new_gpu(number));
        if node + 1 < NODES {
            page.add_info(row, gpu::JOB_INFO, &[("job", "8812")]);
        }
        push_reading(&mut page, Device::new_gpu(number), gpu::UTILIZATION, 1.0);
    }
    for name in ["mlx5_0", "mlx5_1"] {
        let is_down = down.contains(&name);
        let card = || Device::new_port(name, "1");
        push_reading(&mut page, card(), port::STATE, if is_down { 1.0 } else { 4.0 });
        push_reading(&mut page, card(), port::PHYSICAL_STATE, if is_down { 2.0 } else { 5.0 });
        push_reading(&mut page, card(), port::RATE, 5e10);
    }
    page
}

/// Six nodes of which the first four are below leaf `s0` and the last two below `s1`, if the leaves are known.
fn fixture(are_known: bool) -> TargetFixture {
    let addresses: Vec<String> = (0..NODES).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        addresses.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    if are_known {
        let mut topology = SourceTopology::new("topology.conf".into(), TopologyOrigin::Scheduler);
        let location = |node: usize| NodeLocation {
            node: format!("gpu{node:03}").as_str().into(),
            leaf: Some(if node < 4 { "s0" } else { "s1" }.into()),
            ..NodeLocation::default()
        };
        topology.nodes = (0..NODES).map(location).collect();
        fixture.cluster.ingest_delivery(Delivery::Topology(topology));
    }
    fixture
}

/// Runs a minute with all ports active, and then this many seconds in which each node has these ports down, by the second
/// since that minute.
fn run_down<'a>(
    fixture: &mut TargetFixture,
    seconds: i64,
    down: impl Fn(i64, usize) -> &'a [&'a str],
) -> Vec<String> {
    if fixture.second == 0 {
        fixture.run(60, |_, node| page_of_ports(node, &[]));
    }
    fixture.run(seconds, |second, node| page_of_ports(node, down(second - 60, node)));
    fixture.open_ids().into_iter().map(str::to_owned).collect()
}

#[test]
fn ports_of_a_dead_leaf_are_one_finding_from_the_first_page_on() {
    let mut fixture = fixture(true);
    // One after the other, as their links time out.
    let below = |second: i64, node: usize| -> &[&str] {
        if node < 4 && second > node as i64 / 2 { &["mlx5_0"] } else { &[] }
    };
    for _ in 0..6 {
        let open = run_down(&mut fixture, 1, below);
        assert!(open.iter().all(|id| id == "port_down/s0/0"), "{open:?}");
    }
    let open = run_down(&mut fixture, 20, |_, node| if node < 4 { &["mlx5_0"] } else { &[] });
    assert_eq!(open, ["port_down/s0/0"]);
    let finding = fixture.judge.open_findings()[0].clone();
    assert_eq!(finding.severity, Severity::Critical);
    assert!(finding.summary.starts_with("All 4 ports below s0 on rail 0 are down since "));
    assert!(finding.summary.ends_with("those of gpu000, gpu001, gpu002, gpu003."), "{finding:?}");
    let victims: Vec<String> = finding.victims.iter().map(ToString::to_string).collect();
    assert!(victims.len() == 5 && victims[0].contains("8812"), "{victims:?}");
    let notes: Vec<&str> = finding.evidence.iter().map(|value| value.note.as_str()).collect();
    let of_port = |node: usize| format!("gpu00{node} · mlx5_0/1; down; limit: active");
    assert_eq!(notes, [of_port(0), of_port(1), of_port(2), of_port(3)]);
    // Three come back, one after the other; the last one does not, and is told once the switch is not.
    let back = |second: i64, node: usize| -> &[&str] {
        if node < 4 && (second < 40 + node as i64 || node == 3) { &["mlx5_0"] } else { &[] }
    };
    let mut told = Vec::new();
    for _ in 0..90 {
        for id in run_down(&mut fixture, 1, back) {
            if !told.contains(&id) {
                told.push(id);
            }
        }
    }
    assert_eq!(told, ["port_down/s0/0", "port_down/gpu003/mlx5_0/1"]);
    assert_eq!(fixture.open_ids(), ["port_down/gpu003/mlx5_0/1"]);
}

#[test]
fn leaf_of_which_all_rails_are_down_is_one_finding_without_a_rail() {
    let both: &[&str] = &["mlx5_0", "mlx5_1"];
    let open = run_down(&mut fixture(true), 20, |_, node| if node < 4 { both } else { &[] });
    assert_eq!(open, ["port_down/s0"]);
}

#[test]
fn ports_below_a_leaf_with_an_active_one_are_told_each_for_itself() {
    let open = run_down(&mut fixture(true), 20, |_, node| if node < 3 { &["mlx5_0"] } else { &[] });
    let each = [0, 1, 2].map(|node| format!("port_down/gpu00{node}/mlx5_0/1"));
    assert_eq!(open, each);
    // Two ports are no switch either.
    let open = run_down(&mut fixture(true), 20, |_, node| if node > 3 { &["mlx5_0"] } else { &[] });
    assert_eq!(open.len(), 2, "{open:?}");
}

#[test]
fn ports_that_go_down_together_share_a_switch_that_no_source_names() {
    let open =
        run_down(&mut fixture(false), 20, |_, node| if node < 3 { &["mlx5_1"] } else { &[] });
    assert_eq!(open, ["port_down/unnamed/1"]);
    let apart = |second: i64, node: usize| -> &[&str] {
        if node < 3 && second > 90 * node as i64 { &["mlx5_1"] } else { &[] }
    };
    assert_eq!(run_down(&mut fixture(false), 240, apart).len(), 3);
}

#[test]
fn ports_that_come_back_last_below_a_switch_without_a_name_wait() {
    let mut fixture = fixture(false);
    run_down(&mut fixture, 20, |_, node| if node < 3 { &["mlx5_1"] } else { &[] });
    let mut told = Vec::new();
    for _ in 0..120 {
        // Those of the first two nodes are back at once; that of the third stays down.
        for id in run_down(&mut fixture, 1, |_, node| if node == 2 { &["mlx5_1"] } else { &[] }) {
            if told.last() != Some(&id) {
                told.push(id);
            }
        }
    }
    assert_eq!(told, ["port_down/unnamed/1", "port_down/gpu002/mlx5_1/1"]);
}

#[test]
fn ports_of_a_node_none_of_which_is_active_are_one_finding() {
    let both: &[&str] = &["mlx5_0", "mlx5_1"];
    let mut fixture = fixture(true);
    // The second port is known to be down a little later.
    let open = run_down(&mut fixture, 20, |second, node| match (node, second) {
        (2, ..5) => &["mlx5_0"],
        (2, _) => both,
        _ => &[],
    });
    assert_eq!(open, ["port_down/gpu002"]);
    let finding = fixture.judge.open_findings()[0].clone();
    assert_eq!(finding.severity, Severity::Critical, "its job needs them");
    assert!(finding.summary.starts_with("Both ports of gpu002 are down since "));
    let notes: Vec<&str> = finding.evidence.iter().map(|value| value.note.as_str()).collect();
    assert_eq!(
        notes,
        ["gpu002 · mlx5_0/1; down; limit: active", "gpu002 · mlx5_1/1; down; limit: active"]
    );
    // The one that stays down is told once the node is not.
    let mut told = Vec::new();
    for _ in 0..60 {
        let back = |_, node| if node == 2 { &["mlx5_1"][..] } else { &[] };
        for id in run_down(&mut fixture, 1, back) {
            if !told.contains(&id) {
                told.push(id);
            }
        }
    }
    assert_eq!(told, ["port_down/gpu002", "port_down/gpu002/mlx5_1/1"]);
    assert_eq!(fixture.open_ids(), ["port_down/gpu002/mlx5_1/1"]);
}

#[test]
fn port_that_carried_nothing_pages_for_no_job() {
    let severity = |sent_per_second: f64| {
        let mut fixture = fixture(true);
        fixture.run(80, |second, node| {
            let down: &[&str] = if second > 60 && node == 1 { &["mlx5_1"] } else { &[] };
            let mut page = page_of_ports(node, down);
            let bytes = 1e12 + sent_per_second * second.min(60) as f64;
            for metric in [port::TRANSMIT_BYTES, port::RECEIVE_BYTES] {
                push_reading(&mut page, Device::new_port("mlx5_1", "1"), metric, bytes);
            }
            page
        });
        let open = fixture.judge.open_findings();
        let [finding] = open[..] else { panic!("{open:?}") };
        assert_eq!(finding.id, "port_down/gpu001/mlx5_1/1");
        finding.severity
    };
    assert_eq!(severity(5e9), Severity::Critical);
    assert_eq!(severity(2e3), Severity::Warning, "such as one for management");
}

#[test]
fn ports_that_were_down_at_the_first_look_did_not_go_down_together() {
    let addresses: Vec<String> = (0..20).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        addresses.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(60, |_, node| {
        let mut page = page_of_ports(node, if node < 3 { &["mlx5_1"] } else { &[] });
        // They were up some time before.
        push_reading(&mut page, Device::new_port("mlx5_1", "1"), port::LINK_DOWNED, 2.0);
        page
    });
    let each = [0, 1, 2].map(|node| format!("port_down/gpu00{node}/mlx5_1/1"));
    assert_eq!(fixture.open_ids(), each);
}
