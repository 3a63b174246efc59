//! Recording preambles: the engine's state is written to every recording of its targets, and restored from there.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{ClockFn, PREAMBLE_VERSION, RecordingPreamble, UnixMs};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

use gaunt_engine::{
    BaselineSnapshot, Engine, EngineHandle, PersistedState, RecordedPast,
    record::{Earlier, RecorderFollowHandle, Recording},
};

/// Time between two preambles: a segment begins with the last one.
const EVERY: Duration = Duration::from_secs(10);

/// A segment waits this long for its preamble before it begins with the last one: on a large fleet a judgement and the
/// packing of history precede the answer. A kill meanwhile loses the entries that wait.
pub const WAIT: Duration = Duration::from_secs(10);

/// A preamble older than this at the requested time misses state: within a segment one is written each minute.
const OLD: Duration = Duration::from_secs(75);

/// An engine that started this shortly before the first page had no state then.
const BEGINNING: Duration = Duration::from_secs(10);

/// Starts to send the engine's state to its recorder, immediately, and with the retained history when the recorder asks
/// for it. `since` is the start of the engine, if it had no state before; segments wait at most `wait` for it. Dropping
/// the task ends that.
pub(super) fn spawn_preamble_task(
    engine: EngineHandle,
    follow: RecorderFollowHandle,
    clock: ClockFn,
    since: Option<UnixMs>,
    wait: Duration,
) -> JoinSet<()> {
    follow.announce_preambles(wait);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = SerializedBaselines::default();
        loop {
            let is_requested = tokio::select! {
                biased;
                () = follow.asked() => true,
                _ = ticks.tick() => false,
            };
            if !follow.is_preamble_wanted() {
                continue;
            }
            let Ok(state) = engine.persisted_state().await else { return };
            let at = clock();
            let written = spawn_blocking(move || {
                let preamble = last.build_preamble(&state, since);
                (last, preamble)
            });
            // It can only fail by a panic, which is logged.
            let Ok((updated, preamble)) = written.await else { return };
            last = updated;
            let preamble = match preamble {
                Ok(preamble) => Some(preamble),
                Err(error) => {
                    tracing::error!(%error, "recordings start without earlier state");
                    None
                }
            };
            match preamble {
                Some(preamble) if is_requested => {
                    let Some(preamble) = with_past(preamble, &engine, &follow).await else {
                        return;
                    };
                    follow.answer_preamble(at, Some(preamble));
                }
                None if is_requested => follow.answer_preamble(at, None),
                Some(preamble) => follow.send_preamble(at, preamble),
                None => {}
            }
        }
    });
    tasks
}

/// A preamble with as much history as fits; none if the engine has stopped.
async fn with_past(
    preamble: RecordingPreamble,
    engine: &EngineHandle,
    follow: &RecorderFollowHandle,
) -> Option<RecordingPreamble> {
    let max_bytes = follow.preamble_room().saturating_sub(preamble.len());
    let past = engine.recorded_past(max_bytes.min(gaunt_engine::MAX_PAST)).await.ok()?;
    let past = spawn_blocking(move || past.to_bytes()).await.ok()?;
    // The size is an estimate: what does not fit is left out when it is written.
    Some(RecordingPreamble { past: past.into(), ..preamble })
}

/// The baselines as last serialized: they are large and change slowly.
#[derive(Debug, Default)]
pub struct SerializedBaselines(Option<(Arc<BaselineSnapshot>, Arc<str>)>);

impl SerializedBaselines {
    /// The preamble of this state, without history; `since` is the start of an engine that had no state before.
    pub fn build_preamble(
        &mut self,
        state: &PersistedState,
        since: Option<UnixMs>,
    ) -> serde_json::Result<RecordingPreamble> {
        let baselines = match (state.learned_baselines(), &self.0) {
            (None, _) => Arc::default(),
            (Some(baselines), Some((last, text))) if Arc::ptr_eq(baselines, last) => text.clone(),
            (Some(baselines), _) => {
                let text = to_json(&**baselines)?;
                self.0 = Some((baselines.clone(), text.clone()));
                text
            }
        };
        let (findings, past) = (to_json(state)?, Arc::default());
        Ok(RecordingPreamble { version: PREAMBLE_VERSION, since, findings, usual: baselines, past })
    }
}

fn to_json(what: &impl Serialize) -> serde_json::Result<Arc<str>> {
    serde_json::to_string(what).map(Into::into)
}

/// Creates an engine that replays a recording from this time on, with the recorded state of that time. Missing state is
/// logged.
pub fn resume_engine(
    recording: &Recording,
    from: UnixMs,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<Engine> {
    let (at, preamble) = match recording.earlier(from)? {
        Earlier::Known(at, preamble) => (at, preamble),
        Earlier::Unsaid => {
            tracing::warn!(
                "the recording has no state from before its first page: findings, baselines and \
                 history start there; an older gaunt recorded it, or the recorder was overloaded"
            );
            return Ok(Engine::new(options));
        }
        Earlier::Damaged(path, bytes) => {
            tracing::warn!(
                segment = %path.display(),
                bytes,
                "the state from before the first page is damaged and skipped: findings, baselines \
                 and history start there; the rest is read"
            );
            return Ok(Engine::new(options));
        }
    };
    let state = match parse_preamble(&preamble) {
        Ok(state) => state,
        Err(why) => {
            tracing::error!("cannot read the state from before the recording: {why}");
            return Ok(Engine::new(options));
        }
    };
    let past = past(&preamble);
    say(recording, from, at, &preamble, &state, &past);
    let began = preamble
        .since
        .is_some_and(|since| from.duration_since(since) <= BEGINNING + recording.scrape_period());
    if began && state.finding_counts() == (0, 0) {
        tracing::warn!(
            "the recording has no earlier state: gaunt started with the recording; findings open \
             after their minimum time from the first page on"
        );
    }
    Ok(Engine::from_recording(options, state).recalling_past(&past))
}

/// The history points of a preamble; none if they cannot be read.
fn past(preamble: &RecordingPreamble) -> RecordedPast {
    if preamble.past.is_empty() {
        return RecordedPast::default();
    }
    RecordedPast::from_bytes(&preamble.past).unwrap_or_else(|why| {
        tracing::warn!("no history from before the first page: it {why}");
        RecordedPast::default()
    })
}

/// Logs the restored state, and warns if it is old.
fn say(
    recording: &Recording,
    from: UnixMs,
    at: UnixMs,
    preamble: &RecordingPreamble,
    state: &PersistedState,
    past: &RecordedPast,
) {
    let (open, closed) = state.finding_counts();
    let age = from.duration_since(at);
    tracing::info!(
        open,
        closed,
        usual = !preamble.usual.is_empty(),
        series = past.series(),
        history_seconds = past.begins().map(|begins| from.duration_since(begins).as_secs()),
        "restored the state from before the first page"
    );
    if age > OLD + recording.scrape_period() {
        tracing::warn!(
            seconds = age.as_secs(),
            "the restored state is older than the first page: a finding that opened in between may \
             be missing"
        );
    }
}

/// Parses a preamble.
fn parse_preamble(preamble: &RecordingPreamble) -> Result<PersistedState, String> {
    if preamble.version != PREAMBLE_VERSION {
        return Err(format!(
            "its preamble has version {}, this gaunt reads {PREAMBLE_VERSION}; use the gaunt that \
             recorded it",
            preamble.version
        ));
    }
    let findings: PersistedState = parse_part(&preamble.findings, "findings")?;
    if preamble.usual.is_empty() {
        return Ok(findings);
    }
    Ok(findings.with_baselines(parse_part(&preamble.usual, "baselines")?))
}

/// Parses one part of a preamble.
fn parse_part<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, String> {
    serde_json::from_str(text)
        .map_err(|_| format!("its {what} have an unknown format; use the gaunt that recorded it"))
}

#[cfg(test)]
mod tests;
