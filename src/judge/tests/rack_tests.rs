//! Tests of nodes that cannot be reached: a rack that is cut off, gaunt's own network, a target that refuses its name.

use gaunt_schema::{
    Batch, Delivery, Device, Dialect, Reading, RejectionCounts, Report, ScrapedPage, Severity,
    SourceTopology, TargetId, TopologyOrigin, UnixMs, catalogue::gpu,
};

use super::telemetry_tests::TargetFixture;

/// Nodes of a rack of four, and two more nodes in another rack.
const RACK_NODES: [&str; 6] = ["n1", "n2", "n3", "n4", "far", "near"];

fn rack_fixture() -> TargetFixture {
    let nodes = RACK_NODES;
    let targets: Vec<_> = nodes.iter().map(|name| (*name, Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    let mut topology = SourceTopology::new("site.toml".into(), TopologyOrigin::Declared);
    topology.nodes = nodes
        .into_iter()
        .map(|name| gaunt_schema::NodeLocation {
            node: name.into(),
            rack: Some(if name.starts_with('n') && name != "near" { "r1" } else { "r2" }.into()),
            ..gaunt_schema::NodeLocation::default()
        })
        .collect();
    fixture.cluster.ingest_delivery(Delivery::Topology(topology));
    fixture
}

/// Runs a second in which the nodes with these indices are cut off; returns the ids of the open findings.
fn run_cut_off(fixture: &mut TargetFixture, cut: &[u32]) -> Vec<String> {
    fixture.second += 1;
    let at = UnixMs(fixture.second * 1_000);
    for (node, name) in (0..).zip(RACK_NODES) {
        let mut report = Report { node: Some(name.into()), ..Report::default() };
        let device = report.ensure_device(Device::new_gpu(0));
        report.push(device, gpu::UTILIZATION, Reading::of(1.0));
        report.push(device, gpu::POWER, Reading::of(fixture.second as f64));
        let page = ScrapedPage {
            report,
            dialect: Dialect::Gaunt,
            bytes: 1,
            rejected: RejectionCounts::default(),
        };
        let refused = gaunt_schema::ScrapeFailure::Connect("host unreachable".into());
        let outcome = if cut.contains(&node) { Err(refused) } else { Ok(page) };
        let batch = Batch { target: TargetId(node), at, duration_ms: 1.0, outcome };
        fixture.cluster.ingest_delivery(Delivery::Batch(batch));
    }
    fixture.cluster.advance_to(at);
    fixture.judge.evaluate_cluster(&fixture.cluster);
    fixture.judge.open_findings().iter().map(|finding| finding.id.clone()).collect()
}

#[test]
fn rack_that_is_cut_off_is_one_finding() {
    let mut fixture = rack_fixture();
    for _ in 0..10 {
        assert_eq!(run_cut_off(&mut fixture, &[]), [""; 0]);
    }
    // Their attempts fail one after the other.
    for cut in [&[0][..], &[0, 1, 2, 3], &[0, 1, 2, 3]] {
        let open = run_cut_off(&mut fixture, cut);
        assert!(open.iter().all(|id| id == "target_down/r1"), "{open:?}");
    }
    let open = fixture.judge.open_findings();
    assert_eq!(open.len(), 1);
    assert!(open[0].summary.starts_with("4 of 4 nodes of rack r1 do not answer since "));
    let nodes: Vec<_> = open[0].victims.iter().filter_map(|it| it.node.as_deref()).collect();
    assert_eq!(nodes, ["n1", "n2", "n3", "n4"]);
    // They come back one after the other: it stays one finding until half of them are back.
    for _ in 0..3 {
        assert_eq!(run_cut_off(&mut fixture, &[1, 2, 3]), ["target_down/r1"]);
    }
    for _ in 0..10 {
        run_cut_off(&mut fixture, &[]);
    }
    assert_eq!(run_cut_off(&mut fixture, &[]), [""; 0]);
}

#[test]
fn gaunt_that_reaches_no_node_is_one_warning_about_itself() {
    let mut fixture = rack_fixture();
    for _ in 0..10 {
        run_cut_off(&mut fixture, &[]);
    }
    // Their attempts fail one after the other.
    for cut in [&[0, 1][..], &[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]] {
        let open = run_cut_off(&mut fixture, cut);
        assert!(open.iter().all(|id| id == "target_down"), "{open:?}");
    }
    let open = fixture.judge.open_findings();
    assert_eq!((open.len(), open[0].severity), (1, Severity::Warning));
    assert!(open[0].summary.starts_with("gaunt is cut off: 6 of 6 nodes do not answer since "));
    for _ in 0..300 {
        assert_eq!(run_cut_off(&mut fixture, &[0, 1, 2, 3, 4, 5]), ["target_down"]);
    }
    assert_eq!(fixture.judge.open_findings()[0].severity, Severity::Warning, "it pages nobody");
    // Three nodes are back, and the others come back soon: nothing else is told.
    for _ in 0..20 {
        let open = run_cut_off(&mut fixture, &[3, 4, 5]);
        assert!(open.iter().all(|id| id == "target_down"), "{open:?}");
    }
    // They do not: these are findings of their own.
    for _ in 0..20 {
        run_cut_off(&mut fixture, &[3, 4, 5]);
    }
    let expected = ["target_down/far", "target_down/n4", "target_down/near"];
    let mut open = run_cut_off(&mut fixture, &[3, 4, 5]);
    open.sort();
    assert_eq!(open, expected);
    for _ in 0..10 {
        run_cut_off(&mut fixture, &[]);
    }
    assert_eq!(run_cut_off(&mut fixture, &[]), [""; 0]);
}

#[test]
fn nodes_of_a_rack_that_others_answer_from_are_findings_of_their_own() {
    let mut fixture = rack_fixture();
    for _ in 0..10 {
        run_cut_off(&mut fixture, &[]);
    }
    let mut open = Vec::new();
    for _ in 0..4 {
        open = run_cut_off(&mut fixture, &[0, 1, 2, 4]);
    }
    open.sort();
    let expected = ["target_down/far", "target_down/n1", "target_down/n2", "target_down/n3"];
    assert_eq!(open, expected);
    // The last one fails later: then it is the rack, and the nodes are explained by it.
    for _ in 0..4 {
        open = run_cut_off(&mut fixture, &[0, 1, 2, 3, 4]);
    }
    open.sort();
    assert_eq!(open, ["target_down/far", "target_down/r1"]);
}

#[test]
fn refused_host_name_names_the_setting() {
    let mut fixture = rack_fixture();
    for at in [UnixMs(1_000), UnixMs(2_000), UnixMs(3_000)] {
        let outcome = Err(gaunt_schema::ScrapeFailure::Status(421));
        let batch = Batch { target: TargetId(0), at, duration_ms: 1.0, outcome };
        fixture.cluster.ingest_delivery(Delivery::Batch(batch));
    }
    let problem =
        gaunt_judge::target_problem(&fixture.cluster, &fixture.cluster.tracked_targets()[0]);
    assert!(problem.is_some_and(|text| text.contains("add it to `names`")));
}
