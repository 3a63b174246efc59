//! Stored history: an aggregator that starts reads back what its store keeps of the last minutes, while it runs already.

use std::time::Duration;

use gaunt_engine::{EngineHandle, EngineOptions, EngineStopped, MAX_PEER_PAST, RecordedPast};
use gaunt_schema::UnixMs;
use gaunt_scrape::MAX_TARGETS;
use gaunt_series::{QueryError, QueryErrorSteps, SeriesOptions, StoredSeries};
use gaunt_store::StoreOptions;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep},
};

use super::persist_task::wall_clock_now;
use crate::answer_source::StoredPastOptions;

/// The verdict with the lost GPUs of the whole cluster.
const LOST_GPUS: &str = "gaunt_lost_gpus";

/// Nodes that are read at once: some ten megabytes of a quarter of an hour.
const NODES_AT_ONCE: usize = 64;

/// The longest past that is read.
const LONGEST: Duration = Duration::from_hours(1);

/// The deadline of one query.
const QUERY_WITHIN: Duration = Duration::from_secs(10);

/// The time for all: what is read later is no longer recent.
const ALL_WITHIN: Duration = Duration::from_mins(5);

/// The pause before a store that does not answer is asked again.
const PAUSE: Duration = Duration::from_secs(15);

/// Starts to read the history of the engine's nodes out of the store, unless it has no address for queries. The engine
/// waits for nothing.
pub(super) fn start_restoring(
    store: &StoreOptions,
    options: EngineOptions,
    engine: &EngineHandle,
    tasks: &mut JoinSet<()>,
) {
    let Some(series) = store_series(store) else { return };
    let (engine, replica_label) = (engine.clone(), store.replica_label.clone());
    tasks.spawn(async move {
        let opened = StoredSeries::open(&series, &options.cluster, replica_label).await;
        let stored = match opened {
            Ok(stored) => stored,
            Err(error) => {
                return tracing::warn!(%error, "no history from the store; correct store.query_url");
            }
        };
        let span = options.period.saturating_mul(options.slots.try_into().unwrap_or(u32::MAX));
        HistoryRestore {
            stored,
            engine,
            span: span.min(LONGEST),
            options,
            nodes: None,
            series: 0,
            bytes: 0,
        }
        .run()
        .await;
    });
}

/// How the store is queried; none if it has no address for queries.
fn store_series(store: &StoreOptions) -> Option<SeriesOptions> {
    Some(SeriesOptions {
        tenant: store.tenant.clone(),
        access: store.access.clone(),
        timeout: QUERY_WITHIN,
        next_steps: QueryErrorSteps::STORE,
        ..SeriesOptions::with_url(store.query_url.clone()?)
    })
}

/// How verdicts of the past are read back from the store.
pub(super) fn stored_past(store: &StoreOptions) -> Option<StoredPastOptions> {
    Some(StoredPastOptions {
        series: store_series(store)?,
        replica_label: store.replica_label.clone(),
        interval: store.interval,
    })
}

/// What was read so far.
struct HistoryRestore {
    stored: StoredSeries,
    engine: EngineHandle,
    options: EngineOptions,
    span: Duration,
    /// The nodes that are left, in reverse order; none before they are known.
    nodes: Option<Vec<String>>,
    series: usize,
    bytes: usize,
}

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Stopped(#[from] EngineStopped),
}

impl HistoryRestore {
    /// Reads until all is read; a store that does not answer is asked again for some minutes.
    async fn run(mut self) {
        let (begun, mut is_reported) = (Instant::now(), false);
        let until = wall_clock_now();
        loop {
            match self.read_rest(until, begun).await {
                Ok(()) => {
                    let (series, bytes) = (self.series, self.bytes);
                    let store = self.stored.server();
                    let elapsed = begun.elapsed();
                    return tracing::info!(%store, series, bytes, ?elapsed, "read the history from the store");
                }
                Err(RestoreError::Stopped(_)) => return,
                Err(RestoreError::Query(error)) => {
                    let is_last = begun.elapsed() + PAUSE > ALL_WITHIN || !error.may_pass();
                    if is_last || !is_reported {
                        let next = if is_last { "history begins now" } else { "asking again" };
                        tracing::warn!(%error, next, "no history from the store; its address is store.query_url");
                        is_reported = true;
                    }
                    if is_last {
                        return;
                    }
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Reads what is left of the time before `until`.
    async fn read_rest(&mut self, until: UnixMs, begun: Instant) -> Result<(), RestoreError> {
        let from = until - self.span;
        if self.nodes.is_none() {
            let lost = self.stored.read_verdict(LOST_GPUS, from, until).await?;
            let mut nodes = self.stored.list_nodes(from, until).await?;
            nodes.truncate(MAX_TARGETS);
            nodes.reverse();
            self.engine.recall_past(RecordedPast::from_losses(lost)).await?;
            self.nodes = Some(nodes);
        }
        while let Some(nodes) = &mut self.nodes
            && !nodes.is_empty()
        {
            let room = MAX_PEER_PAST.saturating_sub(self.bytes);
            if room == 0 || begun.elapsed() > ALL_WITHIN {
                let nodes = nodes.len();
                tracing::warn!(
                    nodes,
                    "these nodes have no history from the store: it is too large"
                );
                return Ok(());
            }
            let rest = nodes.len().saturating_sub(NODES_AT_ONCE);
            let window = self.stored.read_nodes(&nodes[rest..], from, until).await?;
            nodes.truncate(rest);
            let options = self.options.clone();
            let packed = spawn_blocking(move || {
                RecordedPast::from_pages(&options, window.targets, window.batches, room)
            });
            // It can only fail by a panic, which is logged.
            let Ok(past) = packed.await else { continue };
            self.series += past.series();
            self.bytes += past.estimated_bytes();
            self.engine.recall_past(past).await?;
        }
        Ok(())
    }
}
