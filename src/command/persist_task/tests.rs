//! Tests: engines killed at any time in the lifecycle of a finding, in virtual time; state is written and read as in
//! production.

use std::collections::BTreeMap;

use gaunt_schema::{Batch, Delivery, FindingEvent, FindingKind, Severity, UnixMs};
use gaunt_sim::suite::SingleFaultFleet;

use super::*;
use gaunt_api::{Answer, Finding, Question};
use gaunt_engine::Engine;

mod files;
mod impostors;
mod journal;
mod last_release;
mod moments;

const START: UnixMs = UnixMs(1_760_017_311_000);

/// A permanent fault, and the engine that observes it and is killed repeatedly.
struct KilledEngineRun {
    fleet: SingleFaultFleet,
    engine: Engine,
    writer: Option<PersistWriter>,
    folder: tempfile::TempDir,
    options: gaunt_engine::EngineOptions,
    now: UnixMs,
    /// Milliseconds by which the engine clock is ahead of the fleet's clock.
    ahead_ms: i64,
    period: Duration,
    written: UnixMs,
    /// The open findings as last written: a kill takes what changed since.
    written_findings: Vec<Finding>,
}

impl KilledEngineRun {
    fn new(kind: FindingKind, period: Duration) -> Self {
        Self::of(SingleFaultFleet::of(kind, 0, START), period)
    }

    /// The same with an engine that is never killed: nothing is written.
    fn new_unkilled(kind: FindingKind, period: Duration) -> Self {
        Self { writer: None, ..Self::new(kind, period) }
    }

    fn of(fleet: SingleFaultFleet, period: Duration) -> Self {
        let options =
            gaunt_engine::EngineOptions { period, ..gaunt_engine::EngineOptions::default() };
        let folder = tempfile::tempdir().unwrap();
        let (store, state) = load_state(folder.path()).unwrap();
        let mut engine = Engine::from_persisted(options.clone(), state);
        engine.ingest_delivery(Delivery::Targets(fleet.scrape_targets()));
        let writer = Some(PersistWriter::new(store));
        Self {
            fleet,
            engine,
            writer,
            folder,
            options,
            now: START,
            ahead_ms: 0,
            period,
            written: START,
            written_findings: Vec::new(),
        }
    }

    /// One period, and a write if one is due.
    fn step_period(&mut self) {
        self.now = self.now + self.period;
        let at = self.clock();
        for batch in self.fleet.scrape_at(self.now) {
            self.engine.ingest_delivery(Delivery::Batch(Batch { at, ..batch }));
        }
        self.engine.run_tick(at);
        if let Some(writer) = &mut self.writer
            && self.now.duration_since(self.written) >= EVERY
        {
            self.written = self.now;
            let state = self.engine.persisted_state().unwrap();
            let outcome = writer.write_changes(&state, false);
            assert_eq!((outcome.findings, outcome.other_parts), (Ok(()), Ok(())));
            self.written_findings = self.open_findings();
        }
    }

    fn run_until(&mut self, end: UnixMs, mut observe: impl FnMut(&Self)) {
        while self.now < end {
            self.step_period();
            observe(self);
        }
    }

    /// Kills the engine, and after this many periods starts another one from the files on disk.
    fn kill_and_resume(&mut self, gap: u32) {
        self.writer = None;
        for _ in 0..gap {
            self.now = self.now + self.period;
            drop(self.fleet.scrape_at(self.now));
        }
        self.begin();
    }

    /// Starts an engine from the files on disk.
    fn begin(&mut self) {
        let (store, state) = load_state(self.folder.path()).unwrap();
        self.engine = Engine::from_persisted(self.options.clone(), state);
        self.engine.ingest_delivery(Delivery::Targets(self.fleet.scrape_targets()));
        (self.writer, self.written) = (Some(PersistWriter::new(store)), self.now);
        self.engine.run_tick(self.clock());
    }

    /// The engine clock.
    fn clock(&self) -> UnixMs {
        UnixMs(self.now.0 + self.ahead_ms)
    }

    fn open_findings(&self) -> Vec<Finding> {
        match self.engine.answer_question(&Question::Findings) {
            Answer::Findings(list) => list.findings.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The finding of the fault, if it is open.
    fn fault_finding(&self) -> Option<Finding> {
        self.open_findings().into_iter().find(|finding| finding.kind == self.fleet.kind())
    }

    /// An open finding as last written.
    fn written_finding(&self, id: &str) -> Option<Finding> {
        self.written_findings.iter().find(|finding| finding.id == id).cloned()
    }

    /// A finding that is open or retained.
    fn explained(&self, id: &str) -> Option<Finding> {
        match self.engine.answer_question(&Question::Finding(id.to_owned())) {
            Answer::Finding(explained) => Some(explained.finding.clone()),
            _ => None,
        }
    }

    fn opened_counts(&self) -> BTreeMap<FindingKind, u64> {
        match self.engine.answer_question(&Question::Targets) {
            Answer::Targets(list) => list.totals.findings_opened.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// Seconds within which a fault is found although the engine is killed before and during its pending phase.
fn detection_limit(kind: FindingKind) -> u64 {
    match kind {
        FindingKind::IdleAllocated => 900,
        FindingKind::DataStale | FindingKind::CrashLoop => 400,
        _ => 240,
    }
}

/// Periods of downtime, and periods for which the next engine then runs, one kill after the other.
const GAPS: [(u32, u32); 8] =
    [(2, 3), (5, 7), (20, 4), (1, 30), (90, 11), (3, 1), (40, 20), (2, 160)];

/// With kills before its onset, while it is pending, at its opening and repeatedly while it is open, a fault is one
/// finding, and there are no others.
fn check_survival(kind: FindingKind, period: Duration) {
    let mut run = KilledEngineRun::new(kind, period);
    let onset = run.fleet.onset_time();
    run.run_until(UnixMs(onset.0 - 15_000), |_| {});
    run.kill_and_resume(2);
    run.run_until(onset + Duration::from_secs(4).max(period), |_| {});
    run.kill_and_resume(3);
    let end = onset + Duration::from_secs(detection_limit(kind)).max(period * 12);
    while run.fault_finding().is_none() {
        assert!(
            run.now < end,
            "{kind} is not found; unkilled: {:?}",
            seconds_until_found(kind, period)
        );
        run.step_period();
    }
    // If killed before the write it opens again; from the write on it is the same finding.
    run.kill_and_resume(2);
    let end = run.now + Duration::from_secs(detection_limit(kind)).max(period * 12);
    while run.fault_finding().is_none() {
        assert!(run.now < end, "{kind} is not found again");
        run.step_period();
    }
    for _ in 0..6 {
        run.step_period();
    }
    let first = run.fault_finding().unwrap_or_else(|| panic!("{kind} closed at once"));
    let (opened_before, above_info) = (run.opened_counts(), ids_above_info(&run.open_findings()));
    let mut before = first.clone();
    for (kill_index, (gap, run_periods)) in GAPS.into_iter().enumerate() {
        run.kill_and_resume(gap);
        before = run.written_finding(&first.id).unwrap_or(before);
        let end = run.now + period * run_periods;
        run.run_until(end, |run| {
            let context = || {
                format!(
                    "{kind}, kill {kill_index}, {:?}: {:?}",
                    run.now,
                    finding_ids(&run.open_findings())
                )
            };
            let found = run.open_findings().into_iter().find(|finding| finding.id == first.id);
            let found = found.unwrap_or_else(|| panic!("closed: {}", context()));
            assert_eq!(found.life.opened, first.life.opened, "{}", context());
            assert!(found.severity >= before.severity, "less urgent: {}", context());
            // It may become more severe and report that.
            let severity_changes = |finding: &Finding| severity_turns(finding);
            let severity_rises = u32::from(found.severity > before.severity);
            assert_eq!(
                severity_changes(&found),
                severity_changes(&before) + severity_rises,
                "{}",
                context()
            );
            before = found;
            let ids = self::ids_above_info(&run.open_findings());
            let is_other = |id: &&String| **id != first.id && !above_info.contains(id);
            let others: Vec<_> = ids.iter().filter(is_other).collect();
            assert!(others.is_empty(), "said too: {others:?}: {}", context());
        });
    }
    let after = run.opened_counts();
    assert_eq!(
        after.get(&kind),
        opened_before.get(&kind),
        "opened twice: {opened_before:?}, {after:?}"
    );
    let mut unkilled = KilledEngineRun::new_unkilled(kind, period);
    unkilled.run_until(run.now, |_| {});
    let unkilled = unkilled
        .fault_finding()
        .unwrap_or_else(|| panic!("{kind} is not open where nobody is killed"));
    assert_eq!(before.severity, unkilled.severity, "{kind}: as urgent as where nobody is killed");
}

/// Number of severity changes.
fn severity_turns(finding: &Finding) -> u32 {
    let changes =
        finding.life.changes.iter().filter(|change| change.what == FindingEvent::Severity);
    changes.count() as u32
}

/// Seconds from its onset until a fault is found without kills; none within half an hour.
fn seconds_until_found(kind: FindingKind, period: Duration) -> Option<u64> {
    let mut run = KilledEngineRun::new_unkilled(kind, period);
    let onset = run.fleet.onset_time();
    while run.fault_finding().is_none() {
        if run.now >= onset + Duration::from_mins(30) {
            return None;
        }
        run.step_period();
    }
    Some(run.now.duration_since(onset).as_secs())
}

fn finding_ids(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.id.as_str()).collect()
}

/// Ids of findings above info severity.
fn ids_above_info(findings: &[Finding]) -> Vec<String> {
    let above_info = findings.iter().filter(|finding| finding.severity > Severity::Info);
    above_info.map(|finding| finding.id.clone()).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(10);

macro_rules! outlive {
    ($($test:ident: $kind:ident, $period:expr;)*) => {
        $(
            #[test]
            fn $test() {
                check_survival(FindingKind::$kind, $period);
            }
        )*
    };
}

outlive! {
    data_starved_outlives_kills: DataStarved, SECOND;
    storage_slow_outlives_kills: StorageSlow, SECOND;
    compute_straggler_outlives_kills: ComputeStraggler, SECOND;
    throttled_outlives_kills: Throttled, SECOND;
    host_bound_outlives_kills: HostBound, SECOND;
    host_bound_outlives_kills_slowly: HostBound, SLOW;
    pcie_degraded_outlives_kills: PcieDegraded, SECOND;
    nvlink_degraded_outlives_kills: NvlinkDegraded, SECOND;
    fabric_degraded_outlives_kills: FabricDegraded, SECOND;
    port_down_outlives_kills: PortDown, SECOND;
    port_rate_low_outlives_kills: PortRateLow, SECOND;
    link_errors_outlives_kills: LinkErrors, SECOND;
    leaf_congested_outlives_kills: LeafCongested, SECOND;
    rail_slow_outlives_kills: RailSlow, SECOND;
    host_blocks_network_outlives_kills: HostBlocksNetwork, SECOND;
    collective_hang_outlives_kills: CollectiveHang, SECOND;
    gpu_failed_outlives_kills: GpuFailed, SECOND;
    idle_allocated_outlives_kills: IdleAllocated, SLOW;
    stage_imbalance_outlives_kills: StageImbalance, SECOND;
    data_skew_outlives_kills: DataSkew, SECOND;
    crash_loop_outlives_kills: CrashLoop, SECOND;
    filesystem_full_outlives_kills: FilesystemFull, SECOND;
    target_down_outlives_kills: TargetDown, SLOW;
    driver_hung_outlives_kills: DriverHung, SLOW;
    data_stale_outlives_kills: DataStale, SLOW;
}
