//! State persistence: writes the state that outlives a restart every few seconds, at each action, and at the end.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{SanitizedText, UnixMs, plain_error};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval, timeout},
};

use gaunt_engine::{
    BaselineSnapshot, EngineHandle, FindingJournal, FlushRequest, JournalDay, JournalEntry,
    KEPT_DAYS, PersistedState, UsageWindow, day_number,
    state_store::{LoadedPart, StatePart, StateStore, StateStoreError},
};

#[cfg(test)]
mod tests;

/// Time between two writes. Counters are exposed only once they are written, so that no counter decreases when the
/// process is killed; they lag by this much.
const EVERY: Duration = Duration::from_secs(5);

/// Days whose journal is removed at a start, if gaunt did not run when they became too old.
const REMOVED_DAYS: i64 = 400;

/// Time limit of the last write.
const LAST: Duration = Duration::from_secs(5);

/// The longest that a write takes without a word: a disk or network file system that hangs may never answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The task that persists the engine's state.
pub struct PersistTask {
    flush_sender: mpsc::Sender<FlushRequest>,
    task: JoinHandle<()>,
}

/// Opens the directory and loads the state. What cannot be read is logged, and set aside if it is damaged.
pub(super) fn load_state(folder: &Path) -> Result<(StateStore, PersistedState), StateStoreError> {
    let mut store = StateStore::open_folder(folder)?;
    let state = load_from_store(&mut store, wall_clock_now())?;
    Ok((store, state))
}

/// Loads the state of a store at this time.
pub fn load_from_store(
    store: &mut StateStore,
    now: UnixMs,
) -> Result<PersistedState, StateStoreError> {
    let state: PersistedState = load_part(store, StatePart::Findings)?;
    let (open, closed) = state.finding_counts();
    tracing::info!(open, closed, folder = %store.folder().display(), "restored persisted state");
    let baselines: BaselineSnapshot = load_part(store, StatePart::Baselines)?;
    let usage: UsageWindow = load_part(store, StatePart::Usage)?;
    let journal = load_journal(store, now)?;
    let state = state.with_baselines(baselines).with_usage_window(usage);
    Ok(state.with_finding_journal(journal))
}

/// Loads the closed findings of the days that are kept, and removes those of older days.
fn load_journal(store: &mut StateStore, now: UnixMs) -> Result<FindingJournal, StateStoreError> {
    let (mut journal, today) = (FindingJournal::default(), day_number(now));
    for day in today - REMOVED_DAYS..today - KEPT_DAYS {
        store.remove_part(StatePart::Journal(day))?;
    }
    // A clock that was ahead may have written a day of the future.
    for day in today - KEPT_DAYS..=today + 1 {
        journal.add_entries(load_part(store, StatePart::Journal(day))?);
    }
    tracing::debug!(findings = journal.len(), "restored the finding journal");
    Ok(journal)
}

/// The time of the system's clock.
pub(super) fn wall_clock_now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Loads one part of the state, or its default.
fn load_part<T: DeserializeOwned + Default>(
    store: &mut StateStore,
    part: StatePart,
) -> Result<T, StateStoreError> {
    let found = match store.load_part(part)? {
        LoadedPart::Stored(bytes) => match serde_json::from_slice(&bytes) {
            Ok(value) => return Ok(value),
            Err(error) => store.set_aside(part, &plain_error::json(&error))?,
        },
        found => found,
    };
    match found {
        LoadedPart::Damaged { why, aside } => {
            let why = SanitizedText::new(&why);
            tracing::error!(
                %why,
                aside = %aside.display(),
                "cannot read persisted state; it is set aside and starts empty"
            );
        }
        LoadedPart::OtherVersion { version, path, own } => tracing::warn!(
            version,
            file = %path.display(),
            own = %own.display(),
            "persisted state is of another version of gaunt and is left as it is; this one starts \
             empty and writes its own"
        ),
        LoadedPart::Nothing | LoadedPart::Stored(_) => {}
    }
    Ok(T::default())
}

impl PersistTask {
    /// Starts to persist the engine's state; actions sent by the returned handle are persisted before they are
    /// answered.
    pub fn start_persisting(store: StateStore, engine: &EngineHandle) -> (Self, EngineHandle) {
        let (flush_sender, requests) = mpsc::channel(16);
        let handle = engine.with_flush_sender(flush_sender.clone());
        let task = tokio::spawn(run_persist_loop(store, engine.clone(), requests));
        (Self { flush_sender, task }, handle)
    }

    /// Writes a last time, and ends.
    pub async fn finish_persisting(self) {
        let (reply, done) = oneshot::channel();
        let final_write = async {
            let sent = self.flush_sender.send(reply).await;
            sent.is_ok() && done.await.is_ok()
        };
        if timeout(LAST, final_write).await != Ok(true) {
            tracing::warn!("the last seconds of findings and counters were not saved");
        }
        self.task.abort();
    }
}

async fn run_persist_loop(
    store: StateStore,
    engine: EngineHandle,
    mut requests: mpsc::Receiver<FlushRequest>,
) {
    let folder = SanitizedText::new(&store.folder().to_string_lossy());
    let mut writer = Some(PersistWriter::new(store));
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut report = SaveReport { engine: engine.clone(), failure: None };
    loop {
        let reply = tokio::select! {
            flush = requests.recv() => match flush {
                Some(flush) => Some(flush),
                None => return,
            },
            _ = ticks.tick() => None,
        };
        let Ok(state) = engine.persisted_state().await else { return };
        let state = Arc::new(state);
        let (Some(mut taken_writer), state_to_write) = (writer.take(), state.clone()) else {
            return;
        };
        let is_flush = reply.is_some();
        let mut writing = spawn_blocking(move || {
            let outcome = taken_writer.write_changes(&state_to_write, is_flush);
            (taken_writer, outcome)
        });
        let in_time = timeout(ANSWERS_WITHIN, &mut writing).await;
        if in_time.is_err() {
            let limit = ANSWERS_WITHIN.as_secs();
            let why =
                format!("{folder} does not answer within {limit} s; check its disk or file system");
            report.note_failure("findings and counters", &why).await;
        }
        let outcome = match in_time {
            Ok(outcome) => outcome,
            Err(_) => writing.await,
        };
        let Ok((returned, outcome)) = outcome else { return };
        writer = Some(returned);
        if outcome.findings.is_ok() {
            engine.confirm_persisted(&state).await;
            if let Some(reply) = reply {
                // The receiver may have been dropped.
                let _gone = reply.send(());
            }
        }
        match (outcome.findings, outcome.other_parts) {
            (Err(why), _) => report.note_failure("findings and counters", &why).await,
            (_, Err(why)) => {
                report.note_failure("baselines or the usage of the last hour", &why).await;
            }
            (Ok(()), Ok(())) => report.note_success().await,
        }
    }
}

/// Says on the screens why state is not saved, and logs when that begins and ends.
struct SaveReport {
    engine: EngineHandle,
    failure: Option<SanitizedText>,
}

impl SaveReport {
    async fn note_failure(&mut self, what: &str, why: &str) {
        let shown =
            SanitizedText::new(&format!("cannot save {what}, a restart would lose them: {why}"));
        if self.failure.is_none() {
            tracing::error!("{shown}");
        }
        if self.failure.as_ref() != Some(&shown) {
            self.failure = Some(shown.clone());
            self.engine.report_save_failure(Some(shown)).await;
        }
    }

    async fn note_success(&mut self) {
        if self.failure.take().is_some() {
            tracing::info!("findings and counters are saved again");
            self.engine.report_save_failure(None).await;
        }
    }
}

/// The store, and what was last written to it: large parts are serialized only when they changed.
#[derive(Debug)]
pub struct PersistWriter {
    store: StateStore,
    baselines: Option<Arc<BaselineSnapshot>>,
    /// The newest minute of usage.
    minute: Option<i64>,
    /// The days of the journal.
    journal: BTreeMap<i64, Arc<JournalDay>>,
    /// What is stored of days that the start did not load, as its clock was far from theirs: no more days than have files.
    unloaded: BTreeMap<i64, JournalDay>,
}

/// Result of a write: a part that cannot be written does not prevent the others.
#[derive(Debug)]
pub struct PersistOutcome {
    /// Result for findings and counters.
    pub findings: Result<(), String>,
    /// Result for the other parts.
    pub other_parts: Result<(), String>,
}

impl PersistWriter {
    /// A writer that wrote nothing yet.
    pub fn new(store: StateStore) -> Self {
        Self {
            store,
            baselines: None,
            minute: None,
            journal: BTreeMap::new(),
            unloaded: BTreeMap::new(),
        }
    }

    /// Writes what changed; of usage only whole minutes, unless `all_minutes`.
    pub fn write_changes(&mut self, state: &PersistedState, all_minutes: bool) -> PersistOutcome {
        let findings = self.write_part(StatePart::Findings, state);
        let is_changed = |baselines: &&Arc<BaselineSnapshot>| {
            self.baselines.as_ref().is_none_or(|last| !Arc::ptr_eq(last, baselines))
        };
        let baselines = state.learned_baselines().filter(is_changed).map_or(Ok(()), |baselines| {
            self.write_part(StatePart::Baselines, &**baselines)?;
            self.baselines = Some(baselines.clone());
            Ok(())
        });
        let minute = state.usage_window().newest_minute();
        let due = minute.is_some() && (all_minutes || minute != self.minute);
        let usage =
            if due { self.write_part(StatePart::Usage, state.usage_window()) } else { Ok(()) };
        if due && usage.is_ok() {
            self.minute = minute;
        }
        let journal = self.write_journal(state.finding_journal());
        PersistOutcome { findings, other_parts: baselines.and(usage).and(journal) }
    }

    /// Writes the days of the journal that changed, and removes those that are dropped.
    fn write_journal(&mut self, journal: &FindingJournal) -> Result<(), String> {
        for (day, entries) in journal.days() {
            if self.journal.get(&day).is_some_and(|written| Arc::ptr_eq(written, entries)) {
                continue;
            }
            self.write_day(day, (**entries).clone())?;
            self.journal.insert(day, entries.clone());
        }
        let kept: Vec<i64> = journal.days().map(|(day, _)| day).collect();
        let dropped = self.journal.keys().filter(|day| !kept.contains(day)).copied();
        for day in dropped.collect::<Vec<_>>() {
            if self.unloaded.contains_key(&day) {
                // A start at a time that is near it says whether it is too old.
                self.write_day(day, JournalDay::default())?;
            } else {
                let removed = self.store.remove_part(StatePart::Journal(day));
                removed.map_err(|error| error.to_string())?;
            }
            self.journal.remove(&day);
        }
        Ok(())
    }

    /// Writes a day of the journal, with what is stored of it and was not loaded.
    fn write_day(&mut self, day: i64, mut entries: JournalDay) -> Result<(), String> {
        let part = StatePart::Journal(day);
        if !self.store.has_seen(part) {
            let stored: Vec<JournalEntry> =
                load_part(&mut self.store, part).map_err(|error| error.to_string())?;
            if !stored.is_empty() {
                self.unloaded.insert(day, stored.into_iter().collect());
            }
        }
        if let Some(stored) = self.unloaded.get(&day) {
            entries.add_stored(stored);
        }
        self.write_part(part, &entries.entries())
    }

    fn write_part<T: Serialize>(&mut self, part: StatePart, what: &T) -> Result<(), String> {
        let bytes = serde_json::to_vec(what).map_err(|error| error.to_string())?;
        self.store.save_part(part, &bytes).map(drop).map_err(|error| error.to_string())
    }
}
