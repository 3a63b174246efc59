//! Tests of permanent faults: one finding of each kind, open from its first report to the end, at a steady cost.

use std::time::Duration;

use gaunt_schema::{Delivery, FindingEvent, FindingKind, UnixMs};
use gaunt_sim::suite::SingleFaultFleet;

use super::VirtualRun;
use gaunt_api::{Answer, Finding, FindingAction, FindingCommand, Question, Refusal};

const START: UnixMs = UnixMs(1_760_017_311_000);

/// Additional time in which a permanent fault is found, beyond its limit.
const FOUND: Duration = Duration::from_mins(3);

/// A cost is steady while it stays within this share of its median, or within half a GPU.
const STEADY: f64 = 0.25;

/// A permanent fault and the engine that observes it.
struct StandingFaultRun {
    fleet: SingleFaultFleet,
    engine: VirtualRun,
    now: UnixMs,
    period: Duration,
}

impl StandingFaultRun {
    fn new(fleet: SingleFaultFleet, period: Duration, accepted_seconds: f64) -> Self {
        let mut options =
            gaunt_engine::EngineOptions { period, ..gaunt_engine::EngineOptions::default() };
        options.thresholds.usual_accepted_seconds = accepted_seconds;
        let mut engine = VirtualRun::new(options);
        engine.ingest_delivery(Delivery::Targets(fleet.scrape_targets()));
        Self { fleet, engine, now: START, period }
    }

    /// Advances time to `end`, and inspects the open findings after each period.
    fn run_until(&mut self, end: UnixMs, mut observe: impl FnMut(UnixMs, &[Finding])) {
        while self.now < end {
            self.now = self.now + self.period;
            for batch in self.fleet.scrape_at(self.now) {
                self.engine.ingest_delivery(Delivery::Batch(batch));
            }
            self.engine.run_tick(self.now);
            if let Answer::Findings(list) = self.engine.answer_question(&Question::Findings) {
                observe(self.now, &list.findings);
            }
        }
    }
}

impl StandingFaultRun {
    /// Advances time until the fault is found; returns the finding's id.
    fn run_until_found(&mut self) -> String {
        self.run_until_found_as(self.fleet.kind())
    }

    /// Advances time until the fault is found as this kind; returns the finding's id.
    fn run_until_found_as(&mut self, kind: FindingKind) -> String {
        let truths = self.fleet.fleet().ground_truths();
        let limit = truths.first().map_or(Duration::ZERO, |truth| truth.limit);
        let found_by = self.fleet.onset_time() + limit + FOUND;
        let mut found = None;
        self.run_until(found_by, |_, open| {
            let matching = open.iter().find(|finding| finding.kind == kind);
            found = matching.map(|finding| finding.id.clone());
        });
        found.unwrap_or_else(|| panic!("{kind} is not found by {found_by:?}"))
    }

    /// The finding as its explanation reports it.
    fn explain_finding(&mut self, id: &str) -> Finding {
        match self.engine.answer_question(&Question::Finding(id.to_owned())) {
            Answer::Finding(explained) => explained.finding.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// A fault of this kind is found, and its finding stays open for `duration`, with one id and one cost.
fn check_standing(kind: FindingKind, period: Duration, accepted_seconds: f64, duration: Duration) {
    let mut run =
        StandingFaultRun::new(SingleFaultFleet::of(kind, 0, START), period, accepted_seconds);
    let id = run.run_until_found();
    let end = run.now + duration;
    let (mut costs, mut closed_at) = (Vec::new(), None);
    run.run_until(end, |at, open| match open.iter().find(|finding| finding.id == id) {
        Some(finding) => costs.push(finding.cost_gpu_hours_per_hour),
        None => closed_at = closed_at.or(Some(at)),
    });
    let episodes = run.engine.finding_log().all_episodes().iter();
    let timeline: Vec<_> = episodes
        .map(|e| {
            let after = |at: UnixMs| at.duration_since(run.fleet.onset_time()).as_secs();
            (e.finding.id.clone(), after(e.opened), e.closed.map(after))
        })
        .collect();
    assert_eq!(closed_at, None, "{id} closed {timeline:?}");
    let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    let part = (costs.len() / 8).max(1);
    let (early, late) = (mean(&costs[..part]), mean(&costs[costs.len() - part..]));
    let steady = (early * STEADY).max(0.5);
    assert!(
        (early - late).abs() <= steady,
        "{id} costs {early:.2} and then {late:.2}: {timeline:?}"
    );
}

const SECOND: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(10);

/// Default time after which a level is accepted as baseline, which tests shorten.
const HALF_AN_HOUR: f64 = 1_800.0;
const MINUTES: f64 = 240.0;

/// Longer than a level has to last to be accepted as baseline, in either direction.
const LONG: Duration = Duration::from_mins(36);
const SHORT: Duration = Duration::from_mins(9);
const HOURS: Duration = Duration::from_hours(3);

macro_rules! stand {
    ($($test:ident: $kind:ident, $period:expr, $accepted:expr, $lasts:expr;)*) => {
        $(
            #[test]
            fn $test() {
                check_standing(FindingKind::$kind, $period, $accepted, $lasts);
            }
        )*
    };
}

stand! {
    data_starved_stays_open: DataStarved, SECOND, HALF_AN_HOUR, LONG;
    storage_slow_stays_open: StorageSlow, SECOND, MINUTES, SHORT;
    compute_straggler_stays_open: ComputeStraggler, SECOND, MINUTES, SHORT;
    throttled_stays_open: Throttled, SLOW, HALF_AN_HOUR, HOURS;
    host_bound_stays_open: HostBound, SECOND, MINUTES, SHORT;
    pcie_degraded_stays_open: PcieDegraded, SECOND, MINUTES, SHORT;
    nvlink_degraded_stays_open: NvlinkDegraded, SECOND, MINUTES, SHORT;
    fabric_degraded_stays_open: FabricDegraded, SECOND, MINUTES, SHORT;
    port_down_stays_open: PortDown, SLOW, HALF_AN_HOUR, HOURS;
    port_rate_low_stays_open: PortRateLow, SLOW, HALF_AN_HOUR, HOURS;
    link_errors_stays_open: LinkErrors, SLOW, HALF_AN_HOUR, HOURS;
    leaf_congested_stays_open: LeafCongested, SECOND, MINUTES, SHORT;
    rail_slow_stays_open: RailSlow, SECOND, MINUTES, SHORT;
    host_blocks_network_stays_open: HostBlocksNetwork, SECOND, MINUTES, SHORT;
    collective_hang_stays_open: CollectiveHang, SECOND, MINUTES, SHORT;
    gpu_failed_stays_open: GpuFailed, SECOND, MINUTES, SHORT * 2;
    idle_allocated_stays_open: IdleAllocated, SLOW, HALF_AN_HOUR, HOURS;
    stage_imbalance_stays_open: StageImbalance, SECOND, MINUTES, SHORT;
    data_skew_stays_open: DataSkew, SECOND, MINUTES, SHORT;
    crash_loop_stays_open: CrashLoop, SECOND, HALF_AN_HOUR, LONG * 2;
    filesystem_full_stays_open: FilesystemFull, SLOW, HALF_AN_HOUR, HOURS;
    target_down_stays_open: TargetDown, SLOW, HALF_AN_HOUR, HOURS;
    driver_hung_stays_open: DriverHung, SLOW, HALF_AN_HOUR, HOURS;
    data_stale_stays_open: DataStale, SLOW, HALF_AN_HOUR, HOURS;
}

/// The finding of a fault stays open, with one id and one opening, while its job writes checkpoints.
fn outlasts_checkpoints(kind: FindingKind, found_as: FindingKind, period: Duration) {
    let mut run = StandingFaultRun::new(
        SingleFaultFleet::with_checkpoints(kind, 0, START),
        period,
        HALF_AN_HOUR,
    );
    let id = run.run_until_found_as(found_as);
    let (end, mut absent_at) = (run.now + Duration::from_mins(25), Vec::new());
    run.run_until(end, |at, open| {
        if !open.iter().any(|finding| finding.id == id) {
            absent_at.push(at);
        }
    });
    let after: Vec<_> =
        absent_at.iter().map(|at| at.duration_since(run.fleet.onset_time()).as_secs()).collect();
    assert!(absent_at.is_empty(), "{id} was away {after:?} seconds after its onset");
    let openings = run.explain_finding(&id).life.openings;
    assert_eq!(openings, 1, "{id} came back");
}

macro_rules! outlast {
    ($($test:ident: $kind:ident, $period:expr;)*) => {
        $(
            #[test]
            fn $test() {
                outlasts_checkpoints(FindingKind::$kind, FindingKind::$kind, $period);
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
}

/// Samples every 10 s do not show that the slowest rank changes.
#[test]
fn unexplained_slowdown_outlasts_checkpoints() {
    outlasts_checkpoints(FindingKind::DataSkew, FindingKind::UnexplainedSlowdown, SLOW);
}

#[test]
fn finding_that_closes_names_the_signal_that_recovered() {
    for (kind, expected) in [
        (FindingKind::DataStarved, "utilization of the starved GPUs "),
        (FindingKind::PortDown, "logical state 4 ≥ limit 4"),
        (FindingKind::TargetDown, "the target answers again"),
    ] {
        let mut run = StandingFaultRun::new(
            SingleFaultFleet::with_end(kind, 0, START, 240.0),
            SECOND,
            HALF_AN_HOUR,
        );
        let id = run.run_until_found();
        run.run_until(run.fleet.onset_time() + Duration::from_mins(6), |_, _| {});
        let life = run.explain_finding(&id).life;
        let last = life.changes.last().map(|change| (change.what, change.to.to_string()));
        let (what, signal) = last.unwrap_or_else(|| panic!("{kind} has no changes"));
        assert_eq!(what, FindingEvent::Closed, "{kind}: {life:?}");
        assert!(signal.starts_with(expected), "{kind}: {signal:?}");
    }
}

#[test]
fn accepted_level_is_the_baseline_and_its_finding_stays_closed() {
    let mut run = StandingFaultRun::new(
        SingleFaultFleet::of(FindingKind::DataStarved, 0, START),
        SECOND,
        HALF_AN_HOUR,
    );
    let id = run.run_until_found();
    let command = FindingCommand::Accept { note: "smaller batches".into() };
    let action = FindingAction { finding: id.clone(), by: "alice".into(), command, seen: None };
    let Answer::Finding(explanation) = run.engine.apply_action(&action) else { panic!("refused") };
    let last =
        explanation.finding.life.changes.last().cloned().unwrap_or_else(|| panic!("no change"));
    assert_eq!((last.what, &*last.to), (FindingEvent::Accepted, "alice: smaller batches"));
    assert!(explanation.finding.life.closed.is_some());
    let mut open = Vec::new();
    let end = run.now + Duration::from_mins(5);
    run.run_until(end, |_, findings| {
        open.extend(findings.iter().map(|finding| finding.id.clone()));
    });
    assert_eq!(open, [""; 0], "what is accepted is no fault");
}

#[test]
fn level_of_a_fault_at_every_level_is_not_accepted() {
    let mut run = StandingFaultRun::new(
        SingleFaultFleet::of(FindingKind::PortDown, 0, START),
        SLOW,
        HALF_AN_HOUR,
    );
    let id = run.run_until_found();
    let command = FindingCommand::Accept { note: "".into() };
    let action = FindingAction { finding: id, by: "alice".into(), command, seen: None };
    let Answer::Refused(refusal) = run.engine.apply_action(&action) else { panic!("accepted") };
    assert!(matches!(refusal, Refusal::NotAcceptable { .. }), "{refusal}");
}
