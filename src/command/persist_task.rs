//! State persistence: writes the state that outlives a restart every few seconds, at each action, and at the end.

use std::{path::Path, sync::Arc, time::Duration};

use gaunt_schema::{SanitizedText, plain_error};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval, timeout},
};

use gaunt_engine::{
    BaselineSnapshot, EngineHandle, FlushRequest, PersistedState, UsageWindow,
    state_store::{LoadedPart, StatePart, StateStore, StateStoreError},
};

#[cfg(test)]
mod tests;

/// Time between two writes. Counters are exposed only once they are written, so that no counter decreases when the
/// process is killed; they lag by this much.
const EVERY: Duration = Duration::from_secs(5);

/// Time limit of the last write.
const LAST: Duration = Duration::from_secs(5);

/// The task that persists the engine's state.
pub(super) struct PersistTask {
    flush_sender: mpsc::Sender<FlushRequest>,
    task: JoinHandle<()>,
}

/// Opens the directory and loads the state. What cannot be read is logged and set aside.
pub(super) fn load_state(folder: &Path) -> Result<(StateStore, PersistedState), StateStoreError> {
    let memory = StateStore::open_folder(folder)?;
    let remembered: PersistedState = load_part(&memory, StatePart::Findings)?;
    let (open, closed) = remembered.finding_counts();
    tracing::info!(open, closed, folder = %folder.display(), "restored persisted state");
    let usual: BaselineSnapshot = load_part(&memory, StatePart::Baselines)?;
    let recent: UsageWindow = load_part(&memory, StatePart::Usage)?;
    Ok((memory, remembered.with_baselines(usual).with_usage_window(recent)))
}

/// Loads one part of the state, or its default.
fn load_part<T: DeserializeOwned + Default>(
    memory: &StateStore,
    part: StatePart,
) -> Result<T, StateStoreError> {
    let found = match memory.load_part(part)? {
        LoadedPart::Stored(bytes) => match serde_json::from_slice(&bytes) {
            Ok(known) => return Ok(known),
            Err(error) => memory.set_aside(part, &plain_error::json(&error))?,
        },
        found => found,
    };
    if let LoadedPart::Damaged { why, aside } = found {
        let why = SanitizedText::new(&why);
        tracing::error!(
            %why,
            aside = %aside.display(),
            "cannot read persisted state; it is set aside and starts empty"
        );
    }
    Ok(T::default())
}

impl PersistTask {
    /// Starts to persist the engine's state; actions sent by the returned handle are persisted before they are
    /// answered.
    pub(super) fn start_persisting(
        memory: StateStore,
        owner: &EngineHandle,
    ) -> (Self, EngineHandle) {
        let (flush, asked) = mpsc::channel(16);
        let kept = owner.with_flush_sender(flush.clone());
        let writing = tokio::spawn(run_persist_loop(memory, owner.clone(), asked));
        (Self { flush_sender: flush, task: writing }, kept)
    }

    /// Writes a last time, and ends.
    pub(super) async fn finish_persisting(self) {
        let (back, done) = oneshot::channel();
        let written = async {
            let asked = self.flush_sender.send(back).await;
            asked.is_ok() && done.await.is_ok()
        };
        if timeout(LAST, written).await != Ok(true) {
            tracing::warn!("the last seconds of findings and counters were not saved");
        }
        self.task.abort();
    }
}

async fn run_persist_loop(
    memory: StateStore,
    owner: EngineHandle,
    mut asked: mpsc::Receiver<FlushRequest>,
) {
    let mut book = Some(PersistWriter::new(memory));
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        let waiting = tokio::select! {
            flush = asked.recv() => match flush {
                Some(flush) => Some(flush),
                None => return,
            },
            _ = ticks.tick() => None,
        };
        let Ok(remembered) = owner.persisted_state().await else { return };
        let remembered = Arc::new(remembered);
        let (Some(mut written), same) = (book.take(), remembered.clone()) else { return };
        let all = waiting.is_some();
        let wrote = spawn_blocking(move || {
            let wrote = written.write_changes(&same, all);
            (written, wrote)
        });
        let Ok((back, wrote)) = wrote.await else { return };
        book = Some(back);
        if wrote.findings.is_ok() {
            owner.confirm_persisted(&remembered).await;
            if let Some(waiting) = waiting {
                // The receiver may have been dropped.
                let _gone = waiting.send(());
            }
        }
        let (what, why) = match (wrote.findings, wrote.other_parts) {
            (Err(why), _) => ("findings and counters", why),
            (_, Err(why)) => ("baselines or the usage of the last hour", why),
            (Ok(()), Ok(())) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("findings and counters are saved again");
                }
                continue;
            }
        };
        if !std::mem::replace(&mut failing, true) {
            tracing::error!("cannot save {what}, a restart would lose them: {why}");
        }
    }
}

/// The store, and what was last written to it: large parts are serialized only when they changed.
struct PersistWriter {
    store: StateStore,
    baselines: Option<Arc<BaselineSnapshot>>,
    /// The newest minute of usage.
    minute: Option<i64>,
}

/// Result of a write: a part that cannot be written does not prevent the others.
struct PersistOutcome {
    /// Result for findings and counters.
    findings: Result<(), String>,
    /// Result for the other parts.
    other_parts: Result<(), String>,
}

impl PersistWriter {
    fn new(memory: StateStore) -> Self {
        Self { store: memory, baselines: None, minute: None }
    }

    /// Writes what changed; of usage only whole minutes, unless `all`.
    fn write_changes(&mut self, what: &PersistedState, all: bool) -> PersistOutcome {
        let findings = self.write_part(StatePart::Findings, what);
        let other = |usual: &&Arc<BaselineSnapshot>| {
            self.baselines.as_ref().is_none_or(|last| !Arc::ptr_eq(last, usual))
        };
        let usual = what.learned_baselines().filter(other).map_or(Ok(()), |usual| {
            self.write_part(StatePart::Baselines, &**usual)?;
            self.baselines = Some(usual.clone());
            Ok(())
        });
        let minute = what.usage_window().newest_minute();
        let due = minute.is_some() && (all || minute != self.minute);
        let usage =
            if due { self.write_part(StatePart::Usage, what.usage_window()) } else { Ok(()) };
        if due && usage.is_ok() {
            self.minute = minute;
        }
        PersistOutcome { findings, other_parts: usual.and(usage) }
    }

    fn write_part<T: Serialize>(&mut self, part: StatePart, what: &T) -> Result<(), String> {
        let bytes = serde_json::to_vec(what).map_err(|error| error.to_string())?;
        self.store.save_part(part, &bytes).map(drop).map_err(|error| error.to_string())
    }
}
