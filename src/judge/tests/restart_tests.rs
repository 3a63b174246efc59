//! Tests of judges that continue after a restart, and of first samples of devices that were down before.

use super::*;
use gaunt_judge::{BaselineSnapshot, FindingSnapshot};

impl JobFixture {
    /// Continues after so many seconds in a new judge with the saved state, and reads all targets anew.
    pub(super) fn restart_judge(&mut self, gap: i64) -> &mut Self {
        let past = serde_json::to_string(&self.judge.snapshot_findings()).unwrap();
        let baseline =
            serde_json::to_string(&self.judge.snapshot_baselines(&self.cluster)).unwrap();
        self.restart_from(gap, &past, &baseline)
    }

    fn restart_from(&mut self, gap: i64, past: &str, baseline: &str) -> &mut Self {
        let targets = self.cluster.tracked_targets().iter().map(|scraped| scraped.target.clone());
        let targets = targets.collect();
        self.cluster = Cluster::new(Duration::from_secs(1), 10);
        self.cluster.ingest_delivery(Delivery::Targets(targets));
        self.second += gap;
        self.cluster.advance_to(UnixMs(self.second * 1_000));
        let (past, baseline): (FindingSnapshot, BaselineSnapshot) =
            (serde_json::from_str(past).unwrap(), serde_json::from_str(baseline).unwrap());
        self.judge = Judge::new(Thresholds::default()).with_findings(past).with_baselines(baseline);
        self.judge.evaluate_cluster(&self.cluster);
        self
    }
}

const DISABLED: [f64; 3] = [1.0, 3.0, 1.0];

#[test]
fn port_down_stays_open_long_after_a_restart() {
    for state in [DOWN, DISABLED, [2.0, 5.0, 0.0]] {
        let mut fixture = JobFixture::new();
        fixture.run(60, with_port(UP)).run(30, with_port(state));
        let before = fixture.judge.open_records()[0].clone();
        fixture.restart_judge(20);
        assert_eq!(fixture.open_ids(), [PORT], "nobody looked yet");
        for second in 0..1_500 {
            assert_eq!(
                fixture.run(1, with_port(state)).open_ids(),
                [PORT],
                "{state:?}, {second} s"
            );
        }
        let after = &fixture.judge.open_records()[0];
        assert_eq!(
            (after.finding.life.opened, after.finding.since),
            (before.finding.life.opened, UnixMs(61_000))
        );
        assert_eq!(after.finding.confidence.to_string(), "0.99", "it was active before");
        assert_eq!(fixture.judge.opened_counts()[&FindingKind::PortDown], 1);
        assert_eq!(fixture.run(20, with_port(UP)).open_ids(), [""; 0]);
    }
}

#[test]
fn port_that_went_down_between_two_runs_is_found_at_the_first_samples() {
    let mut fixture = JobFixture::new();
    fixture.run(60, with_port(UP)).restart_judge(300);
    // It was active before: no sibling is needed as evidence.
    assert_eq!(fixture.run(2, with_port([1.0, 3.0, 0.0])).open_ids(), [PORT]);
    assert_eq!(fixture.finding_by_id(PORT).severity, Severity::Critical);
    let mut counted = JobFixture::new();
    counted.run(60, with_port(UP)).restart_judge(300);
    assert_eq!(counted.run(1, with_port(DISABLED)).open_ids(), [PORT], "the link counted its fall");
}

#[test]
fn port_down_before_the_first_sample_has_less_confidence() {
    let mut fixture = JobFixture::of(4);
    let shown =
        |port| [Some(NodeShown { port: Some(port), ..BUSY }), Some(BUSY), Some(BUSY), Some(BUSY)];
    assert_eq!(fixture.run(10, shown(DOWN)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(5, shown(DOWN)).open_ids(), [PORT]);
    let finding = fixture.finding_by_id(PORT);
    assert_eq!(finding.severity, Severity::Warning, "only others speak against it");
    assert_eq!(finding.confidence.to_string(), "0.8");
    assert_eq!(
        finding.summary,
        "mlx5_0/1 on gpu001 is down since before the first sample: 2 of its 2 sibling ports are active, and the same port on 3 of 3 other nodes."
    );
    let mut disabled = JobFixture::of(4);
    assert_eq!(disabled.run(20, shown(DISABLED)).open_ids(), [PORT]);
    let finding = disabled.finding_by_id(PORT);
    assert_eq!(
        finding.severity,
        Severity::Warning,
        "it may be out of use, though its link was up once"
    );
    assert!(finding.summary.contains("is disabled since before"), "{}", finding.summary);
}

#[test]
fn port_down_on_every_node_since_before_the_first_sample_is_unused() {
    for state in [DOWN, DISABLED, [1.0, 3.0, 0.0], [1.0, 2.0, 4.0]] {
        let unused = Some(NodeShown { port: Some(state), ..BUSY });
        assert_eq!(JobFixture::of(4).run(120, [unused; 4]).open_ids(), [""; 0], "{state:?}");
        let shown = [unused, unused, Some(BUSY), unused];
        assert_eq!(JobFixture::of(4).run(120, shown).open_ids(), [""; 0], "{state:?} on most");
    }
}

#[test]
fn port_unused_on_all_nodes_is_not_missed_when_the_others_go_away() {
    let unused = Some(NodeShown { port: Some(DOWN), ..BUSY });
    let mut fixture = JobFixture::of(2);
    assert_eq!(fixture.run(60, [unused; 2]).open_ids(), [""; 0]);
    let ids = fixture.run(300, [unused, None]).open_ids();
    assert!(!ids.contains(&PORT), "{ids:?}");
}

/// The reason with which a finding was closed; none while it is open.
fn closed_because(fixture: &JobFixture, id: &str) -> Option<String> {
    let closed = fixture.judge.closed_records();
    let record = closed.into_iter().find(|record| record.finding.id == id)?;
    record.finding.life.changes.last().map(|change| change.to.to_string())
}

impl JobFixture {
    /// Keeps only these nodes as targets from now on.
    fn keep_targets(&mut self, nodes: &[usize]) -> &mut Self {
        let targets = self.cluster.tracked_targets().iter().map(|scraped| scraped.target.clone());
        let targets: Vec<_> = targets.collect();
        let remaining = nodes.iter().map(|node| targets[*node].clone()).collect();
        self.cluster.ingest_delivery(Delivery::Targets(remaining));
        self
    }
}

const REMOVED: &str = "its node is no longer a target";

#[test]
fn finding_of_a_node_that_is_no_target_any_more_ends_and_says_so() {
    let mut fixture = JobFixture::new();
    fixture.run(60, with_port(UP)).run(30, with_port(DOWN)).keep_targets(&[1]);
    assert_eq!(fixture.run(15, [None, Some(BUSY)]).open_ids(), [""; 0]);
    assert_eq!(closed_because(&fixture, PORT).unwrap(), REMOVED);
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]).run(30, [None, Some(BUSY)]);
    assert_eq!(fixture.open_ids(), ["target_down/gpu001"]);
    assert_eq!(fixture.keep_targets(&[1]).run(15, [None, Some(BUSY)]).open_ids(), [""; 0]);
    assert_eq!(closed_because(&fixture, "target_down/gpu001").unwrap(), REMOVED);
}

#[test]
fn finding_of_a_node_that_is_no_target_since_a_restart_ends_and_says_so() {
    let mut fixture = JobFixture::new();
    fixture.run(60, with_port(UP)).run(30, with_port(DOWN)).keep_targets(&[1]).restart_judge(20);
    for second in 0..590 {
        assert_eq!(
            fixture.run(1, [None, Some(BUSY)]).open_ids(),
            [PORT],
            "{second} s: it may come yet"
        );
    }
    assert_eq!(fixture.run(20, [None, Some(BUSY)]).open_ids(), [""; 0]);
    assert_eq!(closed_because(&fixture, PORT).unwrap(), REMOVED);
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]).run(30, [None, Some(BUSY)]);
    fixture.keep_targets(&[1]).restart_judge(20).run(700, [None, Some(BUSY)]);
    assert_eq!(closed_because(&fixture, "target_down/gpu001").unwrap(), REMOVED);
}

#[test]
fn finding_of_a_node_that_is_not_read_since_a_restart_stays_while_it_is_a_target() {
    let mut fixture = JobFixture::new();
    fixture.run(60, with_port(UP)).run(30, with_port(DOWN)).restart_judge(20);
    fixture.run(1_500, [None, Some(BUSY)]);
    assert_eq!(fixture.open_ids(), ["port_down/gpu001/mlx5_0/1", "target_down/gpu001"]);
}

#[test]
fn finding_of_a_node_with_another_name_ends_and_names_it() {
    const RENAMED: &str = "its target now reports as node gpu901";
    const OTHER: &str = "port_down/gpu901/mlx5_0/1";
    let mut fixture = JobFixture::new();
    fixture.run(60, with_port(UP)).run(30, with_port(DOWN));
    fixture.names[0] = "gpu901";
    // Its siblings are evidence that the port of the new node should be active.
    assert_eq!(fixture.run(15, with_port(DOWN)).open_ids(), [OTHER]);
    assert_eq!(closed_because(&fixture, PORT).unwrap(), RENAMED);
    let mut fixture = JobFixture::new();
    fixture.run(60, with_port(UP)).run(30, with_port(DOWN)).restart_judge(20);
    fixture.names[0] = "gpu901";
    assert_eq!(fixture.run(15, with_port(DOWN)).open_ids(), [OTHER]);
    assert_eq!(closed_because(&fixture, PORT).unwrap(), RENAMED);
}

#[test]
fn board_that_is_missing_since_a_restart_is_found() {
    const BOARD: &str = "gpu_failed/gpu001/0";
    let mut fixture = JobFixture::new();
    fixture.run(120, [Some(BUSY), Some(BUSY)]).restart_judge(60);
    fixture.unlisted = 1;
    assert_eq!(fixture.run(30, [Some(BUSY), Some(BUSY)]).open_ids(), [BOARD]);
    let finding = fixture.finding_by_id(BOARD);
    assert!(finding.summary.contains("is missing since the restart"), "{}", finding.summary);
    assert_eq!(fixture.restart_judge(60).run(900, [Some(BUSY), Some(BUSY)]).open_ids(), [BOARD]);
    assert_eq!(fixture.judge.opened_counts()[&FindingKind::GpuFailed], 1);
    fixture.unlisted = 0;
    assert_eq!(fixture.run(200, [Some(BUSY), Some(BUSY)]).open_ids(), [""; 0]);
    // A GPU at another index, under another name, is not a missing one.
    let mut fixture = JobFixture::new();
    fixture.run(120, [Some(BUSY), Some(BUSY)]).restart_judge(60);
    (fixture.unlisted, fixture.boards) = (1, 3);
    assert_eq!(fixture.run(30, [Some(BUSY), Some(BUSY)]).open_ids(), [""; 0]);
}
