//! An aggregator in simulated time: scraping, engine, judge and state store are those of the program.

use std::{path::Path, sync::Arc, time::Duration};

use gaunt::command::persist_task::{PersistWriter, load_from_store};
use gaunt_api::{Answer, FindingAction, FindingList, Overview, PeerAction, PeerOutcome, Question};
use gaunt_engine::{
    Engine, EngineOptions, PeerSnapshot, PersistedState, RecordedPast,
    record::spawn_recording_inbox, state_store::StateStore,
};
use gaunt_schema::{Batch, ClockFn, Delivery, Reading, SanitizedText, UnixMs, catalogue::port};
use gaunt_scrape::{
    DiscoverySource, Network, ScrapeManagerHandle, ScrapeOptions, ScrapePlan, ScrapeQuotas,
    ServerAccess, TargetGroup, spawn_manager_on_network,
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    STATE,
    deliberate_bug::DeliberateBug,
    seeded_random::SeededRandom,
    simulated_disk::SimulatedDisk,
    simulated_fleet::SimulatedNode,
    simulated_network::SimulatedNetwork,
    simulated_recording::{RecordingModel, SimulatedRecorder},
    simulated_site::SimulatedSite,
    simulated_sources::insecure,
    simulated_store::{SimulatedStore, SimulatedStoreWriter, StoreModel},
};

/// The time between two scrapes of a target.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);

/// Deliveries that wait for the next tick: a tick brings a few.
const INBOX: usize = 256;

/// The time after which screens say that a disk hangs: of the recording, and of the store, which has a step every 5 s.
const RECORDER_SHOWS_WITHIN: Duration = Duration::from_secs(20);
const STORE_SHOWS_WITHIN: Duration = Duration::from_secs(25);

/// What an aggregator runs on, and what it reaches.
pub(crate) struct AggregatorSurroundings {
    pub(crate) disk: SimulatedDisk,
    pub(crate) network: SimulatedNetwork,
    pub(crate) store: SimulatedStore,
    pub(crate) bug: Option<DeliberateBug>,
}

/// A running aggregator.
pub(crate) struct SimulatedAggregator {
    engine: Engine,
    recorder: SimulatedRecorder,
    store: SimulatedStoreWriter,
    writer: PersistWriter,
    disk: SimulatedDisk,
    clock: ClockFn,
    bug: Option<DeliberateBug>,
    manager: ScrapeManagerHandle,
    deliveries: mpsc::Receiver<Delivery>,
    inbox: mpsc::Sender<Delivery>,
    site: SimulatedSite,
    /// What a bug keeps.
    kept: Vec<Delivery>,
    /// When it started, by its clock: peers recognise it by that.
    pub(crate) started: UnixMs,
    /// The same if it had no state before.
    new_since: Option<UnixMs>,
    /// Batches that the engine got.
    pub(crate) batches: u64,
    /// Attempts that the engine had counted before this start.
    pub(crate) attempts_before: u64,
}

/// The largest page in bytes, and the most samples of one: some times those of a node.
pub(crate) const MAX_BODY: usize = 256 << 10;
pub(crate) const MAX_SAMPLES: u64 = 2_000;

/// How targets are scraped.
pub(crate) fn scrape_options() -> ScrapeOptions {
    let limits = ScrapeQuotas { samples: MAX_SAMPLES, ..ScrapeQuotas::default() };
    ScrapeOptions { max_body: MAX_BODY, limits, ..ScrapeOptions::with_period(PERIOD) }
}

/// All nodes from one list, as text.
pub(crate) fn scrape_plan(nodes: usize) -> ScrapePlan {
    let addresses: Vec<String> = (0..nodes).map(SimulatedNode::address).collect();
    let list = DiscoverySource::List(addresses.join(","), SanitizedText::new("simulation"));
    let access = ServerAccess { tls: insecure(), ..ServerAccess::default() };
    let group =
        TargetGroup { sources: vec![list], access, frames: false, ..TargetGroup::default() };
    ScrapePlan { options: scrape_options(), groups: vec![group] }
}

/// What was saved, joined with the state of a peer as it is sent.
fn join_peer(
    saved: PersistedState,
    peer: Option<&SimulatedAggregator>,
    now: UnixMs,
) -> Result<PersistedState, String> {
    let Some(theirs) = peer.and_then(|peer| peer.engine.persisted_state()) else {
        return Ok(saved);
    };
    let packed = PeerSnapshot::pack_state(&theirs, &RecordedPast::default(), now)?;
    let snapshot = PeerSnapshot::unpack(&packed)?;
    saved.join_peer(snapshot, now).map(|(joined, _)| joined)
}

/// The state as it is saved, with an empty list of acknowledgements.
fn without_acknowledgements(state: &PersistedState) -> Result<PersistedState, String> {
    let mut saved = serde_json::to_value(state).map_err(|error| error.to_string())?;
    let empty =
        serde_json::to_value(PersistedState::default()).map_err(|error| error.to_string())?;
    saved["acknowledgements"] = empty["acknowledgements"].clone();
    serde_json::from_value(saved).map_err(|error| error.to_string())
}

impl SimulatedAggregator {
    /// Starts with what is on the disk, and what a peer knows. Its clock is ahead of the true time by `ahead_ms`, and monotonic from then on.
    pub(crate) fn start(
        around: &AggregatorSurroundings,
        recording: &RecordingModel,
        plan: ScrapePlan,
        ahead_ms: i64,
        peer: Option<&Self>,
    ) -> Result<Self, String> {
        let AggregatorSurroundings { disk, network, store: to_store, bug } = around;
        let bug = *bug;
        plan.check_lists().map_err(|error| error.to_string())?;
        let (anchor, begun) = (UnixMs((network.now().0 + ahead_ms).max(0)), Instant::now());
        let clock: ClockFn = Arc::new(move || anchor + begun.elapsed());
        let mut store = StateStore::open_on_disk(Arc::new(disk.clone()), Path::new(STATE))
            .map_err(|error| error.to_string())?;
        let state = match bug {
            Some(DeliberateBug::ForgetsState) => PersistedState::default(),
            _ => load_from_store(&mut store, anchor).map_err(|error| error.to_string())?,
        };
        let state = match bug {
            Some(DeliberateBug::LosesAcknowledgements) => without_acknowledgements(&state)?,
            _ => state,
        };
        let state = join_peer(state, peer, anchor)?;
        let random = SeededRandom::new(network.now().0 as u64 ^ ahead_ms as u64);
        let (recorder, simulated) =
            recording.start_recorder(disk, random).map_err(|error| error.to_string())?;
        let steps =
            SimulatedStoreWriter::start(disk, to_store).map_err(|error| error.to_string())?;
        let options =
            EngineOptions { period: PERIOD, says_usual: true, ..EngineOptions::default() };
        let mut engine = Engine::from_persisted(options, state);
        let new_since = engine.is_new().then_some(anchor);
        engine.run_tick(anchor);
        let (inbox, deliveries) = mpsc::channel(INBOX);
        let inbox = spawn_recording_inbox(recorder, inbox, clock.clone());
        let on: Arc<dyn Network> = Arc::new(network.clone());
        let manager = spawn_manager_on_network(
            plan,
            inbox.clone(),
            clock.clone(),
            Arc::new(|_| false),
            Some(on),
        );
        let writer = PersistWriter::new(store);
        let mut started = Self {
            engine,
            recorder: simulated,
            store: steps,
            writer,
            disk: disk.clone(),
            clock,
            bug,
            manager,
            deliveries,
            inbox,
            site: SimulatedSite::default(),
            kept: Vec::new(),
            started: anchor,
            new_since,
            batches: 0,
            attempts_before: 0,
        };
        started.attempts_before = started.attempts();
        Ok(started)
    }

    /// Takes the deliveries of the time since the last tick, ticks, and lets the recorder write; returns what does not hold
    /// of the recording.
    pub(crate) fn tick(
        &mut self,
        disk: &SimulatedDisk,
        recording: &mut RecordingModel,
        steps: &mut StoreModel,
    ) -> Vec<String> {
        while let Ok(mut delivery) = self.deliveries.try_recv() {
            recording.note_given(&mut self.recorder, &delivery);
            self.batches += u64::from(matches!(delivery, Delivery::Batch(_)));
            match self.bug {
                Some(DeliberateBug::LosesResults)
                    if self.batches.is_multiple_of(10)
                        && matches!(delivery, Delivery::Batch(_)) =>
                {
                    continue;
                }
                Some(DeliberateBug::KeepsDeliveries) => self.kept.push(delivery.clone()),
                Some(DeliberateBug::DoublesPages) => self.double_page(&delivery),
                Some(DeliberateBug::RateOffByOne) => self.add_a_sample(&mut delivery),
                _ => {}
            }
            self.engine.ingest_delivery(delivery);
        }
        let late =
            if self.bug == Some(DeliberateBug::StaleAnswers) { PERIOD } else { Duration::ZERO };
        self.engine.run_tick((self.clock)() - late);
        let mut broken = self.site.tick(&mut self.engine, &self.inbox);
        broken.extend(self.store.write_step((self.clock)(), steps));
        // The recorder's thread waits for an operation that has not returned.
        if disk.hung_for().is_none() {
            broken.extend(recording.write(&mut self.recorder, disk));
        }
        self.recorder.step_engine(&self.engine, disk, self.new_since, (self.clock)());
        broken
    }

    /// Ingests a page a second time.
    fn double_page(&mut self, delivery: &Delivery) {
        if let Delivery::Batch(batch) = delivery {
            self.engine.ingest_delivery(Delivery::Batch(batch.clone()));
        }
    }

    /// Adds to the counters of a page what one more sample would have brought for each before it.
    fn add_a_sample(&self, delivery: &mut Delivery) {
        let Delivery::Batch(Batch { outcome: Ok(page), .. }) = delivery else { return };
        let growth = 1.0 + 0.05 * self.batches as f64;
        for sample in &mut page.report.samples {
            if sample.metric == port::TRANSMIT_BYTES
                && let Some(value) = sample.reading.value()
            {
                sample.reading = Reading::of(value + 1e9 * growth);
            }
        }
    }

    /// Its clock.
    pub(crate) fn now(&self) -> UnixMs {
        (self.clock)()
    }

    /// Applies other settings, as on SIGHUP.
    pub(crate) async fn reload(&self, plan: ScrapePlan) {
        if self.bug != Some(DeliberateBug::IgnoresReloads) {
            self.manager.reload_plan(plan).await;
        }
    }

    /// Saves the state; whether findings and counters are on the disk. While an operation hangs nothing is written.
    pub(crate) fn save(&mut self, all: bool) -> bool {
        let Some(state) = self.engine.persisted_state() else { return false };
        let is_hung = || self.disk.hung_for().is_some();
        !is_hung() && self.writer.write_changes(&state, all).findings.is_ok() && !is_hung()
    }

    /// Checks that the screens say that the disk has not answered for so long; returns what does not hold.
    pub(crate) fn check_hang_is_shown(&self, lasts: Duration) -> Option<String> {
        let is_due = |within| lasts >= within;
        let trouble = &self.overview().trouble;
        if is_due(RECORDER_SHOWS_WITHIN)
            && !trouble.iter().any(|it| it.starts_with("recording waits"))
        {
            return Some(format!(
                "the disk hangs for {lasts:?}, and the overview says {trouble:?}"
            ));
        }
        let store = self.store.shown_failure();
        if is_due(STORE_SHOWS_WITHIN) && !store.contains("does not answer") {
            return Some(format!("the disk hangs for {lasts:?}, and the store says {store:?}"));
        }
        None
    }

    /// Applies an action; whether it was accepted and is on the disk, so that the user gets an answer.
    pub(crate) fn act(&mut self, action: &FindingAction) -> bool {
        let answer = self.engine.handle_action(action);
        let is_saved = self.bug == Some(DeliberateBug::AnswersBeforeSaving) || self.save(true);
        !matches!(answer, Answer::Refused(_)) && is_saved
    }

    /// The actions to pass on to a peer.
    pub(crate) fn actions_to_pass(&self) -> Vec<PeerAction> {
        self.engine.actions_to_pass()
    }

    /// Applies an action of a peer; the outcome once it is on the disk.
    pub(crate) fn handle_peer_action(&mut self, action: &PeerAction) -> Option<PeerOutcome> {
        if self.bug == Some(DeliberateBug::IgnoresPeerActions) {
            return Some(PeerOutcome::Taken);
        }
        let outcome = self.engine.handle_peer_action(action.clone());
        (outcome != PeerOutcome::Taken || self.save(true)).then_some(outcome)
    }

    pub(crate) fn ask(&self, question: &Question) -> Answer {
        self.engine.answer_question(question)
    }

    pub(crate) fn findings(&self) -> Arc<FindingList> {
        match self.ask(&Question::Findings) {
            Answer::Findings(list) => list,
            _ => Arc::default(),
        }
    }

    pub(crate) fn overview(&self) -> Arc<Overview> {
        match self.ask(&Question::Overview) {
            Answer::Overview(overview) => overview,
            _ => Arc::default(),
        }
    }

    /// Attempts that the engine counts.
    fn attempts(&self) -> u64 {
        match self.ask(&Question::Targets) {
            Answer::Targets(list) => list.totals.scrapes.values().sum(),
            _ => 0,
        }
    }
}
