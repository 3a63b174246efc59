//! Faults that stand: one finding of each kind, open from its first word to the end, at a steady cost.

use std::time::Duration;

use gaunt_schema::{Delivery, FindingKind, Turn, UnixMs};
use gaunt_sim::suite::Standing;

use super::Witness;
use crate::{
    answer::{Act, Answer, Deed, Finding, Question, Refusal},
    owner,
};

const START: UnixMs = UnixMs(1_760_017_311_000);

/// A fault that stands is found within its limit and this.
const FOUND: Duration = Duration::from_mins(3);

/// A cost is steady while it stays within this share of its middle, or within half a GPU.
const STEADY: f64 = 0.25;

/// A standing fault and the owner that reads it.
struct Run {
    standing: Standing,
    witness: Witness,
    now: UnixMs,
    period: Duration,
}

impl Run {
    fn new(standing: Standing, period: Duration, accepted_seconds: f64) -> Self {
        let mut options = owner::Options { period, ..owner::Options::default() };
        options.thresholds.usual_accepted_seconds = accepted_seconds;
        let mut witness = Witness::new(options);
        witness.accept(Delivery::Targets(standing.targets()));
        Self { standing, witness, now: START, period }
    }

    /// Lets time pass until `end`, and looks at what is open after each period.
    fn until(&mut self, end: UnixMs, mut look: impl FnMut(UnixMs, &[Finding])) {
        while self.now < end {
            self.now = self.now + self.period;
            for batch in self.standing.advance(self.now) {
                self.witness.accept(Delivery::Batch(batch));
            }
            self.witness.tick(self.now);
            if let Answer::Findings(list) = self.witness.ask(&Question::Findings) {
                look(self.now, &list.findings);
            }
        }
    }
}

impl Run {
    /// Lets time pass until the fault is found; the finding's id.
    fn found(&mut self) -> String {
        let (kind, truths) = (self.standing.kind(), self.standing.fleet().truths());
        let limit = truths.first().map_or(Duration::ZERO, |truth| truth.limit);
        let found_by = self.standing.onset() + limit + FOUND;
        let mut found = None;
        self.until(found_by, |_, open| {
            let named = open.iter().find(|finding| finding.kind == kind);
            found = named.map(|finding| finding.id.clone());
        });
        found.unwrap_or_else(|| panic!("{kind} is not found by {found_by:?}"))
    }

    /// What became of a finding, as an explanation of it says.
    fn explained(&mut self, id: &str) -> Finding {
        match self.witness.ask(&Question::Finding(id.to_owned())) {
            Answer::Finding(explained) => explained.finding.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// A fault of this kind is found, and for `lasts` from then on its finding stays open, under one id, at one cost.
fn stands(kind: FindingKind, period: Duration, accepted_seconds: f64, lasts: Duration) {
    let mut run = Run::new(Standing::of(kind, 0, START), period, accepted_seconds);
    let id = run.found();
    let end = run.now + lasts;
    let (mut costs, mut gone) = (Vec::new(), None);
    run.until(end, |at, open| match open.iter().find(|finding| finding.id == id) {
        Some(finding) => costs.push(finding.cost_gpu_hours_per_hour),
        None => gone = gone.or(Some(at)),
    });
    let episodes = run.witness.chronicle().episodes().iter();
    let said: Vec<_> = episodes
        .map(|e| {
            let after = |at: UnixMs| at.since(run.standing.onset()).as_secs();
            (e.finding.id.clone(), after(e.opened), e.closed.map(after))
        })
        .collect();
    assert_eq!(gone, None, "{id} closed {said:?}");
    let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    let part = (costs.len() / 8).max(1);
    let (early, late) = (mean(&costs[..part]), mean(&costs[costs.len() - part..]));
    let steady = (early * STEADY).max(0.5);
    assert!((early - late).abs() <= steady, "{id} costs {early:.2} and then {late:.2}: {said:?}");
}

const SECOND: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(10);

/// What the settings say of a level that is accepted with time, and a test that has less of it.
const HALF_AN_HOUR: f64 = 1_800.0;
const MINUTES: f64 = 240.0;

/// Longer than a level would have to last to be accepted as usual, either way.
const LONG: Duration = Duration::from_mins(36);
const SHORT: Duration = Duration::from_mins(9);
const HOURS: Duration = Duration::from_hours(3);

macro_rules! stand {
    ($($test:ident: $kind:ident, $period:expr, $accepted:expr, $lasts:expr;)*) => {
        $(
            #[test]
            fn $test() {
                stands(FindingKind::$kind, $period, $accepted, $lasts);
            }
        )*
    };
}

stand! {
    data_starved_stands: DataStarved, SECOND, HALF_AN_HOUR, LONG;
    storage_slow_stands: StorageSlow, SECOND, MINUTES, SHORT;
    compute_straggler_stands: ComputeStraggler, SECOND, MINUTES, SHORT;
    throttled_stands: Throttled, SLOW, HALF_AN_HOUR, HOURS;
    host_bound_stands: HostBound, SECOND, MINUTES, SHORT;
    pcie_degraded_stands: PcieDegraded, SECOND, MINUTES, SHORT;
    nvlink_degraded_stands: NvlinkDegraded, SECOND, MINUTES, SHORT;
    port_down_stands: PortDown, SLOW, HALF_AN_HOUR, HOURS;
    port_rate_low_stands: PortRateLow, SLOW, HALF_AN_HOUR, HOURS;
    link_errors_stands: LinkErrors, SLOW, HALF_AN_HOUR, HOURS;
    leaf_congested_stands: LeafCongested, SECOND, MINUTES, SHORT;
    rail_slow_stands: RailSlow, SECOND, MINUTES, SHORT;
    host_blocks_network_stands: HostBlocksNetwork, SECOND, MINUTES, SHORT;
    collective_hang_stands: CollectiveHang, SECOND, MINUTES, SHORT;
    gpu_failed_stands: GpuFailed, SECOND, MINUTES, SHORT * 2;
    idle_allocated_stands: IdleAllocated, SLOW, HALF_AN_HOUR, HOURS;
    stage_imbalance_stands: StageImbalance, SECOND, MINUTES, SHORT;
    data_skew_stands: DataSkew, SECOND, MINUTES, SHORT;
    target_down_stands: TargetDown, SLOW, HALF_AN_HOUR, HOURS;
    driver_hung_stands: DriverHung, SLOW, HALF_AN_HOUR, HOURS;
    data_stale_stands: DataStale, SLOW, HALF_AN_HOUR, HOURS;
}

/// A fault of this kind stays open, under one id and without a second opening, while its job writes checkpoints.
fn outlasts_checkpoints(kind: FindingKind, period: Duration) {
    let mut run = Run::new(Standing::with_checkpoints(kind, 0, START), period, HALF_AN_HOUR);
    let id = run.found();
    let (end, mut gone) = (run.now + Duration::from_mins(25), Vec::new());
    run.until(end, |at, open| {
        if !open.iter().any(|finding| finding.id == id) {
            gone.push(at);
        }
    });
    let after: Vec<_> = gone.iter().map(|at| at.since(run.standing.onset()).as_secs()).collect();
    assert!(gone.is_empty(), "{id} was away {after:?} seconds after its onset");
    let openings = run.explained(&id).life.openings;
    assert_eq!(openings, 1, "{id} came back");
}

macro_rules! outlast {
    ($($test:ident: $kind:ident, $period:expr;)*) => {
        $(
            #[test]
            fn $test() {
                outlasts_checkpoints(FindingKind::$kind, $period);
            }
        )*
    };
}

outlast! {
    data_starved_outlasts_checkpoints: DataStarved, SECOND;
    compute_straggler_outlasts_checkpoints: ComputeStraggler, SLOW;
    throttled_outlasts_checkpoints: Throttled, SLOW;
    host_bound_outlasts_checkpoints: HostBound, SLOW;
    nvlink_degraded_outlasts_checkpoints: NvlinkDegraded, SECOND;
    leaf_congested_outlasts_checkpoints: LeafCongested, SLOW;
    stage_imbalance_outlasts_checkpoints: StageImbalance, SLOW;
    data_skew_outlasts_checkpoints: DataSkew, SLOW;
}

#[test]
fn finding_that_closes_names_the_signal_that_recovered() {
    for (kind, said) in [
        (FindingKind::DataStarved, "utilization of these GPUs "),
        (FindingKind::PortDown, "logical state 4 ≥ limit 4"),
        (FindingKind::TargetDown, "the target answers again"),
    ] {
        let mut run = Run::new(Standing::ending(kind, 0, START, 240.0), SECOND, HALF_AN_HOUR);
        let id = run.found();
        run.until(run.standing.onset() + Duration::from_mins(6), |_, _| {});
        let life = run.explained(&id).life;
        let last = life.changes.last().map(|change| (change.what, change.to.to_string()));
        let (what, signal) = last.unwrap_or_else(|| panic!("{kind} has no changes"));
        assert_eq!(what, Turn::Closed, "{kind}: {life:?}");
        assert!(signal.starts_with(said), "{kind}: {signal:?}");
    }
}

#[test]
fn accepted_level_is_usual_and_its_finding_stays_closed() {
    let mut run = Run::new(Standing::of(FindingKind::DataStarved, 0, START), SECOND, HALF_AN_HOUR);
    let id = run.found();
    let deed = Deed::Accept { note: "smaller batches".into() };
    let act = Act { finding: id.clone(), by: "alice".into(), deed };
    let Answer::Finding(told) = run.witness.act(&act) else { panic!("refused") };
    let last = told.finding.life.changes.last().cloned().unwrap_or_else(|| panic!("no change"));
    assert_eq!((last.what, &*last.to), (Turn::Accepted, "alice: smaller batches"));
    assert!(told.finding.life.closed.is_some());
    let mut open = Vec::new();
    let end = run.now + Duration::from_mins(5);
    run.until(end, |_, findings| {
        open.extend(findings.iter().map(|finding| finding.id.clone()));
    });
    assert_eq!(open, [""; 0], "what is accepted is no fault");
}

#[test]
fn level_of_what_is_a_fault_at_every_level_is_not_accepted() {
    let mut run = Run::new(Standing::of(FindingKind::PortDown, 0, START), SLOW, HALF_AN_HOUR);
    let id = run.found();
    let deed = Deed::Accept { note: "".into() };
    let act = Act { finding: id, by: "alice".into(), deed };
    let Answer::Refused(refusal) = run.witness.act(&act) else { panic!("accepted") };
    assert!(matches!(refusal, Refusal::NotAcceptable { .. }), "{refusal}");
}
