//! Two aggregators under random kills, and partitions between them, in virtual time: no acknowledgement is lost, and no
//! fault pages twice.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_api::{
    Answer, FindingAction, FindingCommand, FindingList, PeerReply, peer_exchange::posted_alerts,
};
use gaunt_engine::{Engine, EngineOptions, PeerSnapshot, PersistedState, RecordedPast};
use gaunt_schema::{
    Batch, Delivery, Dialect, RejectionCounts, Report, ScrapeFailure, ScrapeTarget, ScrapedPage,
    TargetId,
};

use super::*;
use crate::peers::action_queue::ActionQueue;

/// Kills in all.
const KILLS: usize = 1_000;

/// Time between two looks of Alertmanager at a group, as in the shipped configuration.
const GROUP_INTERVAL: i64 = 60;

/// Time after which an open alert is posted again, and the multiple of it after which Alertmanager resolves it.
const REPEAT: i64 = 60;
const PATIENCE: i64 = 4;

/// Time between two requests for the status of the peer.
const STATUS_EVERY: i64 = 5;

/// The longest time for which the two cannot reach each other, while both reach Alertmanager.
const APART: u64 = 300;

/// Seconds of a fault, and of the time after it in which all findings close.
const FAULT: i64 = 500;
const CALM: i64 = 400;

/// Seconds without kills and actions before both are compared: an action that waits is repeated within them.
const QUIET: i64 = 40;

/// Seconds for which one of the two still sees a fault that the other sees ended.
const LATE_SIGHT: i64 = 200;

/// Targets that fail in turn, so that each fault is a finding of its own.
const TARGETS: i64 = 16;

/// Random numbers from a seed (Knuth's MMIX).
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// An aggregator that runs.
struct Running {
    engine: Engine,
    queue: ActionQueue,
    snapshot: AlertSnapshot,
    started: UnixMs,
    post_at: i64,
}

/// One of the two: what is on its disk, and what runs.
#[derive(Default)]
struct Aggregator {
    disk: Option<PersistedState>,
    running: Option<Running>,
    back_at: i64,
}

/// What Alertmanager knows of each alert: until when it is open, and whether it has notified of it.
#[derive(Default)]
struct Alertmanager {
    open_until: BTreeMap<String, i64>,
    notified: BTreeSet<String>,
    pages: BTreeMap<String, usize>,
}

impl Alertmanager {
    /// Takes a post: the newest one holds, be the alert open or resolved in it.
    fn take_post(&mut self, id: &str, ends: i64) {
        self.open_until.insert(id.to_owned(), ends);
    }

    /// Notifies of what opened or ended since the last time.
    fn flush(&mut self, now: i64) {
        for (id, ends) in &self.open_until {
            if *ends <= now {
                self.notified.remove(id);
            } else if self.notified.insert(id.clone()) {
                *self.pages.entry(id.clone()).or_default() += 1;
            }
        }
    }
}

fn at(second: i64) -> UnixMs {
    UnixMs(1_700_000_000_000 + second * 1_000)
}

fn finding_id(target: i64) -> String {
    format!("target_down/10.0.0.{target}")
}

fn alert_options() -> AlertOptions {
    AlertOptions {
        servers: Vec::new(),
        repeat_interval: Duration::from_secs(REPEAT as u64),
        min_severity: Severity::Info,
        cluster: SanitizedText::default(),
        access: ServerAccess::default(),
    }
}

impl Running {
    /// Starts with what is on disk and what the peer knows.
    fn start(disk: Option<PersistedState>, peer: Option<&Self>, second: i64) -> Self {
        let mut state = disk.unwrap_or_default();
        if let Some(peer) = peer {
            let theirs = peer.engine.persisted_state().unwrap();
            let packed =
                PeerSnapshot::pack_state(&theirs, &RecordedPast::default(), at(second)).unwrap();
            let unpacked = PeerSnapshot::unpack(&packed).unwrap();
            (state, _) = state.join_peer(unpacked, at(second)).unwrap();
        }
        let mut engine = Engine::from_persisted(EngineOptions::default(), state);
        engine.run_tick(at(second));
        let target = |number: i64| ScrapeTarget {
            id: TargetId(number as u32),
            address: SanitizedText::new(&format!("10.0.0.{number}:9770")),
            node: None,
            origin: "test".into(),
        };
        engine.ingest_delivery(Delivery::Targets((0..TARGETS).map(target).collect()));
        let (queue, snapshot) = (ActionQueue::default(), AlertSnapshot::default());
        let (started, post_at) = (at(second), second);
        Self { engine, queue, snapshot, started, post_at }
    }

    fn findings(&self) -> std::sync::Arc<FindingList> {
        match self.engine.answer_question(&Question::Findings) {
            Answer::Findings(list) => list,
            other => panic!("not findings: {other:?}"),
        }
    }

    /// Whether the finding is acknowledged; none if it is not open.
    fn is_acknowledged(&self, id: &str) -> Option<bool> {
        let list = self.findings();
        list.findings.iter().find(|open| open.id == id).map(|open| open.acknowledged.is_some())
    }

    /// Reads all targets; the one that fails refuses the connection.
    fn step(&mut self, second: i64, failing: Option<i64>) {
        for number in 0..TARGETS {
            let page = || ScrapedPage {
                report: Report::default(),
                dialect: Dialect::Gaunt,
                bytes: 0,
                rejected: RejectionCounts::default(),
            };
            let outcome = if failing == Some(number) {
                Err(ScrapeFailure::Connect("refused".into()))
            } else {
                Ok(page())
            };
            self.engine.ingest_delivery(Delivery::Batch(Batch {
                target: TargetId(number as u32),
                at: at(second),
                duration_ms: 1.0,
                outcome,
            }));
        }
        self.engine.run_tick(at(second));
    }

    /// Updates its alerts, and posts them if there is a change or it is time; the next time is after `pause`.
    fn post_alerts(&mut self, second: i64, pause: i64, manager: &mut Alertmanager) {
        let open = build_alerts(&self.findings().findings, &alert_options());
        if self.snapshot.update_open(at(second), open) || second >= self.post_at {
            self.post_at = second + pause;
            for alert in self.snapshot.open.values() {
                manager.take_post(alert.finding_id(), second + REPEAT * PATIENCE);
            }
            for (alert, _) in self.snapshot.resolved_alerts() {
                manager.take_post(alert.finding_id(), second);
            }
        }
    }
}

/// Both, their Alertmanager, and what users did.
struct PairSimulation {
    random: Lcg,
    pair: [Aggregator; 2],
    manager: Alertmanager,
    second: i64,
    kills: usize,
    /// Until when the two cannot reach each other.
    apart_until: i64,
    /// Whether the fault is acknowledged, by the last action that was answered.
    acknowledged: bool,
    withdrawals: usize,
    /// What happened in this fault, for a failure.
    log: Vec<String>,
    /// Pages and acknowledgements of all faults.
    totals: (usize, usize),
}

impl PairSimulation {
    fn new(seed: u64) -> Self {
        Self {
            random: Lcg(seed),
            pair: Default::default(),
            manager: Alertmanager::default(),
            second: 0,
            kills: 0,
            apart_until: 0,
            log: Vec::new(),
            acknowledged: false,
            withdrawals: 0,
            totals: (0, 0),
        }
    }

    /// Kills one of them at this point, if the other one runs and chance says so.
    fn maybe_kill(&mut self, kills: bool) {
        let (which, chance) = (self.random.below(2) as usize, self.random.below(15));
        let both_run = self.pair.iter().all(|one| one.running.is_some());
        if kills && chance == 0 && both_run && self.kills < KILLS {
            self.kills += 1;
            self.pair[which].running = None;
            self.log.push(format!("{} s: {which} is killed", self.second));
            self.pair[which].back_at = self.second + 1 + self.random.below(20) as i64;
        }
    }

    fn restart(&mut self) {
        for which in 0..2 {
            let [first, other] = &mut self.pair;
            let (own, peer) = if which == 0 { (first, other) } else { (other, first) };
            if own.running.is_none() && self.second >= own.back_at {
                let disk = own.disk.clone();
                let reached = peer.running.as_ref().filter(|_| self.second >= self.apart_until);
                own.running = Some(Running::start(disk, reached, self.second));
                self.log.push(format!("{} s: {which} starts", self.second));
            }
        }
    }

    /// Parts the two for a while, in a third of the time.
    fn maybe_part(&mut self) {
        if self.second >= self.apart_until && self.random.below(300) == 0 {
            self.apart_until = self.second + self.random.below(APART) as i64;
            self.log.push(format!("{} s: apart until {}", self.second, self.apart_until));
        }
    }

    /// A user acts at one of them; an action is answered once it is on disk.
    fn maybe_act(&mut self, id: &str) {
        let (which, chance) = (self.random.below(2) as usize, self.random.below(400));
        let own = &mut self.pair[which];
        let Some(running) = own.running.as_mut().filter(|_| chance < 2) else { return };
        let withdraws = chance == 1 && self.random.below(3) == 0;
        let command = if withdraws {
            FindingCommand::Withdraw
        } else {
            FindingCommand::Acknowledge { note: "x".into() }
        };
        let action =
            FindingAction { finding: id.to_owned(), by: "sam".into(), command, seen: None };
        if !matches!(running.engine.handle_action(&action), Answer::Refused(_)) {
            own.disk = running.engine.persisted_state();
            self.acknowledged = !withdraws;
            self.log.push(format!("{} s: {which} acknowledged: {}", self.second, !withdraws));
            self.withdrawals += usize::from(withdraws);
        }
    }

    /// Each passes its actions to the other, which has them on disk before it replies.
    fn exchange(&mut self) {
        let since = Duration::from_secs(self.second as u64);
        for sender in 0..2 {
            let [first, other] = &mut self.pair;
            let (own, peer) = if sender == 0 { (first, other) } else { (other, first) };
            let Some(own) = &mut own.running else { continue };
            let is_apart = self.second < self.apart_until;
            let Some(theirs) = peer.running.as_mut().filter(|_| !is_apart) else {
                let names = own.snapshot.at_peers.names.clone();
                own.snapshot.update_peers(PeerAlertSet { names, ..PeerAlertSet::default() });
                continue;
            };
            own.queue.update_actions(&own.engine.actions_to_pass());
            if self.second % STATUS_EVERY == 0 || own.queue.next_action(since).is_some() {
                own.queue.note_start(theirs.started);
            }
            let mut has_passed = false;
            while let Some(action) = own.queue.next_action(since) {
                let outcome = theirs.engine.handle_peer_action(action.clone());
                peer.disk = theirs.engine.persisted_state();
                let reply = PeerReply { outcome, started: theirs.started };
                own.queue.record_reply(&action, reply, since);
                has_passed = true;
            }
            if has_passed || self.second % STATUS_EVERY == 0 {
                let posted = posted_alerts(&theirs.findings().findings);
                let names = Arc::new(posted.into_iter().collect());
                own.snapshot.update_peers(PeerAlertSet { names, asked_at: at(self.second) });
            }
        }
    }

    fn step(&mut self, failing: [Option<i64>; 2], kills: bool, id: Option<&str>) {
        self.restart();
        if let Some(id) = id {
            self.maybe_act(id);
        }
        self.maybe_kill(kills);
        self.exchange();
        self.maybe_kill(kills);
        for (own, failing) in self.pair.iter_mut().zip(failing) {
            let Some(running) = &mut own.running else { continue };
            running.step(self.second, failing);
            // Clocks drift and posts fail, so that any order of the two occurs.
            let pause = 1 + self.random.below(REPEAT as u64) as i64;
            running.post_alerts(self.second, pause, &mut self.manager);
            if self.second % 5 == 0 {
                own.disk = running.engine.persisted_state();
            }
        }
        self.maybe_kill(kills);
        if self.second % GROUP_INTERVAL == 0 {
            let before = self.manager.notified.clone();
            self.manager.flush(self.second);
            for id in before.symmetric_difference(&self.manager.notified) {
                let is_open = self.manager.notified.contains(id);
                self.log.push(format!("{} s: notified of {id}: {is_open}", self.second));
            }
        }
        self.second += 1;
    }

    /// One fault with kills and actions, a quiet end of it, and the calm after it.
    fn run_fault(&mut self, number: i64) {
        let (target, id) = (number % TARGETS, finding_id(number % TARGETS));
        (self.acknowledged, self.withdrawals) = (false, 0);
        self.manager.pages.clear();
        self.log.clear();
        for _ in 0..FAULT {
            self.maybe_part();
            self.step([Some(target); 2], true, Some(&id));
        }
        self.apart_until = 0;
        for _ in 0..QUIET {
            self.step([Some(target); 2], false, None);
        }
        for own in &self.pair {
            let held = own.running.as_ref().unwrap().is_acknowledged(&id);
            let held = held.unwrap_or_else(|| panic!("fault {number}: {id} is not open"));
            assert_eq!(held, self.acknowledged, "fault {number} at {} s", self.second);
        }
        // One of them reaches the target again before the other does.
        let late = self.random.below(2) as usize;
        for second in 0..CALM {
            self.maybe_part();
            let mut failing = [None; 2];
            failing[late] = (second < LATE_SIGHT).then_some(target);
            self.step(failing, true, None);
        }
        let pages = self.manager.pages.get(&id).copied().unwrap_or(0);
        let log = self.log.join("\n");
        assert!(pages <= 1 + self.withdrawals, "fault {number}: {pages} pages\n{log}");
        self.totals.0 += pages;
        self.totals.1 += usize::from(self.acknowledged);
    }
}

#[test]
fn no_acknowledgement_is_lost_and_no_fault_pages_twice_in_a_thousand_kills() {
    let mut simulation = PairSimulation::new(20_261_125);
    let mut faults = 0;
    while simulation.kills < KILLS {
        simulation.run_fault(faults);
        faults += 1;
        assert!(faults < 1_000, "{} kills", simulation.kills);
    }
    assert_eq!(simulation.kills, KILLS);
    let (pages, acknowledged) = simulation.totals;
    assert!(pages > faults as usize / 2, "{pages} pages of {faults} faults");
    assert!(acknowledged > faults as usize / 8, "{acknowledged} of {faults} acknowledged");
}
