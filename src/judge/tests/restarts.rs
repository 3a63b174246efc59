//! Judges that go on where another one ended, and first looks at what was down before.

use super::*;
use crate::judge::{Past, Usual};

impl Bench {
    /// Another judge goes on after so many seconds with what was written down of this one, and reads all anew.
    pub(super) fn restart(&mut self, gap: i64) -> &mut Self {
        let past = serde_json::to_string(&self.judge.past()).unwrap();
        let usual = serde_json::to_string(&self.judge.usual(&self.cluster)).unwrap();
        self.restart_from(gap, &past, &usual)
    }

    fn restart_from(&mut self, gap: i64, past: &str, usual: &str) -> &mut Self {
        let targets = self.cluster.targets().iter().map(|scraped| scraped.target.clone());
        let targets = targets.collect();
        self.cluster = Cluster::new(Duration::from_secs(1), 10);
        self.cluster.accept(Delivery::Targets(targets));
        self.second += gap;
        self.cluster.advance(UnixMs(self.second * 1_000));
        let (past, usual): (Past, Usual) =
            (serde_json::from_str(past).unwrap(), serde_json::from_str(usual).unwrap());
        self.judge = Judge::new(Thresholds::default()).resume(past).recalling(usual);
        self.judge.step(&self.cluster);
        self
    }
}

const DISABLED: [f64; 3] = [1.0, 3.0, 1.0];

#[test]
fn port_down_stays_open_long_after_a_restart() {
    for state in [DOWN, DISABLED, [2.0, 5.0, 0.0]] {
        let mut bench = Bench::new();
        bench.run(60, with_port(UP)).run(30, with_port(state));
        let before = bench.judge.open()[0].clone();
        bench.restart(20);
        assert_eq!(bench.open(), [PORT], "nobody looked yet");
        for second in 0..1_500 {
            assert_eq!(bench.run(1, with_port(state)).open(), [PORT], "{state:?}, {second} s");
        }
        let after = &bench.judge.open()[0];
        assert_eq!((after.life.opened, after.finding.since), (before.life.opened, UnixMs(61_000)));
        assert_eq!(after.finding.confidence.to_string(), "0.99", "it was active before");
        assert_eq!(bench.judge.opened()[&FindingKind::PortDown], 1);
        assert_eq!(bench.run(20, with_port(UP)).open(), [""; 0]);
    }
}

#[test]
fn port_that_went_down_while_nobody_looked_is_found_at_the_first_looks() {
    let mut bench = Bench::new();
    bench.run(60, with_port(UP)).restart(300);
    // It was active before: no sibling needs to say that it should be.
    assert_eq!(bench.run(2, with_port([1.0, 3.0, 0.0])).open(), [PORT]);
    assert_eq!(bench.finding(PORT).severity, Severity::Critical);
    let mut counted = Bench::new();
    counted.run(60, with_port(UP)).restart(300);
    assert_eq!(counted.run(1, with_port(DISABLED)).open(), [PORT], "the link counted its fall");
}

#[test]
fn port_down_before_the_first_look_is_told_with_less_confidence() {
    let mut bench = Bench::of(4);
    let shown =
        |port| [Some(Shown { port: Some(port), ..BUSY }), Some(BUSY), Some(BUSY), Some(BUSY)];
    assert_eq!(bench.run(10, shown(DOWN)).open(), [""; 0]);
    assert_eq!(bench.run(5, shown(DOWN)).open(), [PORT]);
    let finding = bench.finding(PORT);
    assert_eq!(finding.severity, Severity::Warning, "only others speak against it");
    assert_eq!(finding.confidence.to_string(), "0.7");
    assert_eq!(
        finding.summary,
        "mlx5_0/1 on gpu001 is down since before the first look: 2 of its 2 sibling ports are active, and the same port on 3 of 3 other nodes."
    );
    let mut disabled = Bench::of(4);
    assert_eq!(disabled.run(20, shown(DISABLED)).open(), [PORT]);
    let finding = disabled.finding(PORT);
    assert_eq!(finding.severity, Severity::Critical, "its link was up once");
    assert!(finding.summary.contains("is disabled since before"), "{}", finding.summary);
}

#[test]
fn port_down_on_every_node_since_before_the_first_look_is_unused() {
    for state in [DOWN, DISABLED, [1.0, 3.0, 0.0], [1.0, 2.0, 4.0]] {
        let unused = Some(Shown { port: Some(state), ..BUSY });
        assert_eq!(Bench::of(4).run(120, [unused; 4]).open(), [""; 0], "{state:?}");
        let mostly = [unused, unused, Some(BUSY), unused];
        assert_eq!(Bench::of(4).run(120, mostly).open(), [""; 0], "{state:?} on most");
    }
}
