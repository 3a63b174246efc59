//! Owners that are killed at any moment of a finding's life, in virtual time: what they know is written as the running
//! program writes it, and read as it reads it.

use std::collections::BTreeMap;

use gaunt_schema::{Batch, Delivery, FindingKind, Severity, Turn, UnixMs};
use gaunt_sim::suite::Standing;

use super::*;
use crate::{
    answer::{Answer, Finding, Question},
    owner::{self, Owner},
};

mod files;
mod moments;

const START: UnixMs = UnixMs(1_760_017_311_000);

/// A fault that stands, and the owner that reads it and is killed now and then.
struct Killed {
    standing: Standing,
    owner: Owner,
    book: Option<Book>,
    folder: tempfile::TempDir,
    options: owner::Options,
    now: UnixMs,
    /// Milliseconds by which the owner's clock is before that of the fleet.
    ahead_ms: i64,
    period: Duration,
    written: UnixMs,
}

impl Killed {
    fn new(kind: FindingKind, period: Duration) -> Self {
        Self::of(Standing::of(kind, 0, START), period)
    }

    fn of(standing: Standing, period: Duration) -> Self {
        let options = owner::Options { period, ..owner::Options::default() };
        let folder = tempfile::tempdir().unwrap();
        let (memory, known) = open(folder.path()).unwrap();
        let mut owner = Owner::resuming(options.clone(), known);
        owner.accept(Delivery::Targets(standing.targets()));
        let book = Some(Book::new(memory));
        Self {
            standing,
            owner,
            book,
            folder,
            options,
            now: START,
            ahead_ms: 0,
            period,
            written: START,
        }
    }

    /// One period, and a write where one is due.
    fn step(&mut self) {
        self.now = self.now + self.period;
        let at = self.clock();
        for batch in self.standing.advance(self.now) {
            self.owner.accept(Delivery::Batch(Batch { at, ..batch }));
        }
        self.owner.tick(at);
        if self.now.since(self.written) >= EVERY {
            self.written = self.now;
            let known = self.owner.remember().unwrap();
            let wrote = self.book.as_mut().unwrap().write(&known, false);
            assert_eq!((wrote.findings, wrote.beside), (Ok(()), Ok(())));
        }
    }

    fn until(&mut self, end: UnixMs, mut look: impl FnMut(&Self)) {
        while self.now < end {
            self.step();
            look(self);
        }
    }

    /// It is killed, and after so many periods another one begins with what is on the disk.
    fn kill(&mut self, gap: u32) {
        self.book = None;
        for _ in 0..gap {
            self.now = self.now + self.period;
            drop(self.standing.advance(self.now));
        }
        self.begin();
    }

    /// Another one begins with what is on the disk.
    fn begin(&mut self) {
        let (memory, known) = open(self.folder.path()).unwrap();
        self.owner = Owner::resuming(self.options.clone(), known);
        self.owner.accept(Delivery::Targets(self.standing.targets()));
        (self.book, self.written) = (Some(Book::new(memory)), self.now);
        self.owner.tick(self.clock());
    }

    /// What the owner's clock says.
    fn clock(&self) -> UnixMs {
        UnixMs(self.now.0 + self.ahead_ms)
    }

    fn open(&self) -> Vec<Finding> {
        match self.owner.answer(&Question::Findings) {
            Answer::Findings(list) => list.findings.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The one that stands for the fault, if it is open.
    fn found(&self) -> Option<Finding> {
        self.open().into_iter().find(|finding| finding.kind == self.standing.kind())
    }

    /// What became of a finding that is open or remembered.
    fn explained(&self, id: &str) -> Option<Finding> {
        match self.owner.answer(&Question::Finding(id.to_owned())) {
            Answer::Finding(explained) => Some(explained.finding.clone()),
            _ => None,
        }
    }

    fn opened(&self) -> BTreeMap<FindingKind, u64> {
        match self.owner.answer(&Question::Targets) {
            Answer::Targets(list) => list.totals.findings_opened.clone(),
            other => panic!("{other:?}"),
        }
    }
}

/// Seconds within which a fault is found although the owner is killed before and while it is suspected.
fn found_within(kind: FindingKind) -> u64 {
    match kind {
        FindingKind::IdleAllocated => 900,
        FindingKind::DataStale => 400,
        _ => 240,
    }
}

/// Periods for which nobody is there, one kill after the other, and for which the next one then lives.
const GAPS: [(u32, u32); 8] =
    [(2, 3), (5, 7), (20, 4), (1, 30), (90, 11), (3, 1), (40, 20), (2, 160)];

/// Killed before its onset, while it is suspected, at its opening and again and again while it is open, a fault is one
/// finding, and nothing else is said.
fn outlives(kind: FindingKind, period: Duration) {
    let mut run = Killed::new(kind, period);
    let onset = run.standing.onset();
    run.until(UnixMs(onset.0 - 15_000), |_| {});
    run.kill(2);
    run.until(onset + Duration::from_secs(4).max(period), |_| {});
    run.kill(3);
    let end = onset + Duration::from_secs(found_within(kind)).max(period * 12);
    while run.found().is_none() {
        assert!(run.now < end, "{kind} is not found; unkilled: {:?}", unkilled(kind, period));
        run.step();
    }
    // Killed before it was written it opens anew; from the write on it is the same one.
    run.kill(2);
    let end = run.now + Duration::from_secs(found_within(kind)).max(period * 12);
    while run.found().is_none() {
        assert!(run.now < end, "{kind} is not found again");
        run.step();
    }
    for _ in 0..6 {
        run.step();
    }
    let first = run.found().unwrap_or_else(|| panic!("{kind} closed at once"));
    let (counted, loud) = (run.opened(), loud(&run.open()));
    let mut before = first.clone();
    for (at, (gap, lives)) in GAPS.into_iter().enumerate() {
        run.kill(gap);
        let end = run.now + period * lives;
        run.until(end, |run| {
            let context = || format!("{kind}, kill {at}, {:?}: {:?}", run.now, ids(&run.open()));
            let found = run.open().into_iter().find(|finding| finding.id == first.id);
            let found = found.unwrap_or_else(|| panic!("closed: {}", context()));
            assert_eq!(found.life.opened, first.life.opened, "{}", context());
            assert!(found.severity >= before.severity, "less urgent: {}", context());
            // It may become more urgent, and then says so.
            let turns = |finding: &Finding| severity_turns(finding);
            let rose = u32::from(found.severity > before.severity);
            assert_eq!(turns(&found), turns(&before) + rose, "{}", context());
            before = found;
            let said = self::loud(&run.open());
            let others: Vec<_> = said.iter().filter(|id| !loud.contains(id)).collect();
            assert!(others.is_empty(), "said too: {others:?}: {}", context());
        });
    }
    let after = run.opened();
    assert_eq!(after.get(&kind), counted.get(&kind), "opened twice: {counted:?}, {after:?}");
    let mut alive = Killed::new(kind, period);
    alive.until(run.now, |_| {});
    let alive =
        alive.found().unwrap_or_else(|| panic!("{kind} is not open where nobody is killed"));
    assert_eq!(before.severity, alive.severity, "{kind}: as urgent as where nobody is killed");
}

/// How often it became more or less urgent.
fn severity_turns(finding: &Finding) -> u32 {
    let turns = finding.life.changes.iter().filter(|change| change.what == Turn::Severity);
    turns.count() as u32
}

/// Seconds after its onset within which a fault is found where nobody is killed; none within half an hour.
fn unkilled(kind: FindingKind, period: Duration) -> Option<u64> {
    let mut run = Killed::new(kind, period);
    let onset = run.standing.onset();
    while run.found().is_none() {
        if run.now >= onset + Duration::from_mins(30) {
            return None;
        }
        run.step();
    }
    Some(run.now.since(onset).as_secs())
}

fn ids(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.id.as_str()).collect()
}

/// What somebody would have to look at.
fn loud(findings: &[Finding]) -> Vec<String> {
    let loud = findings.iter().filter(|finding| finding.severity > Severity::Info);
    loud.map(|finding| finding.id.clone()).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_secs(10);

macro_rules! outlive {
    ($($test:ident: $kind:ident, $period:expr;)*) => {
        $(
            #[test]
            fn $test() {
                outlives(FindingKind::$kind, $period);
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
    pcie_degraded_outlives_kills: PcieDegraded, SECOND;
    nvlink_degraded_outlives_kills: NvlinkDegraded, SECOND;
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
    target_down_outlives_kills: TargetDown, SLOW;
    driver_hung_outlives_kills: DriverHung, SLOW;
    data_stale_outlives_kills: DataStale, SLOW;
}
