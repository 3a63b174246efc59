//! Commands: each connects senders, engine, server and console, and ends with an exit code.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{ClockFn, Delivery};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    alert,
    answer_source::{AnswerSource, AnswerSourceError, PastSources},
};
use gaunt_engine::{
    Engine, EngineHandle,
    record::{Recorder, RecorderFollowHandle, spawn_recording_inbox},
};
use gaunt_scrape::{RasRequestFn, ScrapeManagerHandle, ScrapePlan};
use gaunt_series::{SeriesReaderHandle, WriteReceiver};

pub mod ack_command;
mod aggregator_address;
pub mod bundle_command;
pub mod certs_command;
pub mod check_command;
pub mod console_command;
mod demo_alerts;
pub mod demo_command;
mod demo_probes;
mod demo_processes;
pub mod doctor_command;
pub mod engine_preamble;
pub mod explain_command;
pub mod flight_recorder_command;
pub mod installation_command;
pub mod judge_command;
mod local_sampling;
mod log_filter;
pub mod metrics_command;
mod own_certificates;
mod past_deliveries;
pub mod peer_connection;
pub mod persist_task;
mod progress_line;
pub mod record_command;
mod recording_health;
pub mod replay_command;
mod replay_instants;
pub mod report_command;
mod series_setup;
pub mod serve_command;
pub mod snapshot_command;
mod stored_history;

pub use aggregator_address::{
    AGGREGATOR_VARIABLE, AUTHORITIES_VARIABLE, AggregatorAddress, AggregatorNamedBy,
};
pub use log_filter::init_logging;
pub use past_deliveries::PastOptions;
pub use series_setup::{RECENT, SeriesSetup};

/// Exit code for a wrong command line, an unreachable aggregator, partial data, or any other failure of gaunt itself; 1
/// and 2 are reserved for `snapshot --check`, and 1 for
/// `doctor` and `check-config`.
pub const FAILED: u8 = 3;

/// Where a console or a snapshot gets its answers from.
#[derive(Debug)]
pub enum ViewSource {
    /// The aggregator at this address, with its token for acknowledging findings.
    Aggregator(AggregatorAddress, Option<String>),
    /// These targets, scraped by this process.
    Targets(Box<ScrapingSetup>),
    /// This machine, sampled by this process.
    ThisBox {
        /// Engine options.
        options: Box<gaunt_engine::EngineOptions>,
        /// Sampler options.
        node: Box<gaunt_node::SamplerOptions>,
        /// The aggregator on this machine with its token: used instead if it answers.
        aggregator: Option<(AggregatorAddress, Option<String>)>,
    },
}

/// What this process scrapes.
#[derive(Debug)]
pub struct ScrapingSetup {
    /// Engine options.
    pub engine: gaunt_engine::EngineOptions,
    /// What is scraped, and how.
    pub plan: ScrapePlan,
    /// Files of topology and running jobs.
    pub site: gaunt_site::SiteOptions,
    /// The recording, if enabled.
    pub recording: Option<gaunt_engine::record::RecordOptions>,
    /// Alerting, if enabled.
    pub alerting: Option<alert::AlertOptions>,
    /// A Prometheus that is read instead of targets, if one is named.
    pub series: Option<Box<SeriesSetup>>,
    /// A Prometheus with the time before what the engine keeps, if one is named.
    pub past: Option<gaunt_series::SeriesOptions>,
    /// Whether pages are received by remote write instead.
    pub is_receiving: bool,
}

/// An open view: the source, and what feeds it while this value exists.
pub(crate) struct OpenView {
    /// The source of answers.
    pub(crate) source: AnswerSource,
    /// Whether this process has to sample for a while before an answer is meaningful.
    pub(crate) needs_warmup: bool,
    _feed: ViewFeed,
}

/// What feeds an engine. Dropping it stops the feed.
enum ViewFeed {
    Nothing,
    Gatherer { _feeding: EngineFeed },
    ThisBox { _sampling: local_sampling::LocalSampling },
}

impl ViewSource {
    /// The same without the token of an aggregator: who uses the console then cannot act on findings.
    #[must_use]
    pub fn without_token(self) -> Self {
        match self {
            Self::Aggregator(address, _) => Self::Aggregator(address, None),
            Self::ThisBox { options, node, aggregator } => {
                let aggregator = aggregator.map(|(address, _)| (address, None));
                Self::ThisBox { options, node, aggregator }
            }
            targets @ Self::Targets(_) => targets,
        }
    }

    /// Resolves a default view: the aggregator on this machine if it answers, else this machine itself. Reports the
    /// choice on standard error unless the console covers it.
    pub(crate) async fn resolve_default(self, reports: bool) -> Self {
        let Self::ThisBox { options, node, aggregator: Some((address, token)) } = self else {
            return self;
        };
        let report = |text: String| {
            // A closed standard error does not affect the result.
            drop(reports.then(|| writeln!(io::stderr(), "gaunt: {text}")));
        };
        let hint =
            format!("--aggregator URL, {AGGREGATOR_VARIABLE} or --targets LIST selects another");
        if address.is_answering().await {
            report(format!("no source given: using the aggregator at {}; {hint}", address.url));
            return Self::Aggregator(address, token);
        }
        report(format!(
            "no source given and no aggregator at {}: sampling this host; {hint}",
            address.url
        ));
        Self::ThisBox { options, node, aggregator: None }
    }

    /// The aggregator of this view, if it uses one.
    pub(crate) fn aggregator_address(&self) -> Option<AggregatorAddress> {
        match self {
            Self::Aggregator(address, _) => Some(address.clone()),
            Self::Targets(_) | Self::ThisBox { .. } => None,
        }
    }

    /// Connects, or starts the engine of this process and its feed.
    pub(crate) async fn open_view(self) -> anyhow::Result<OpenView> {
        Ok(match self {
            Self::Aggregator(address, token) => {
                let source = address.open_source(token)?;
                OpenView { source, needs_warmup: false, _feed: ViewFeed::Nothing }
            }
            Self::Targets(scraping) => {
                // The recent past of a server is played first.
                let needs_warmup = scraping.series.is_none();
                let (series, engine) = (scraping.past.clone(), scraping.engine.clone());
                let past = PastSources { stored: None, series, engine };
                let (engine, engine_feed) = Box::pin(scraping.start_engine()).await?;
                let feed = ViewFeed::Gatherer { _feeding: engine_feed };
                let source = AnswerSource::of_engine(engine, past);
                OpenView { source, needs_warmup, _feed: feed }
            }
            Self::ThisBox { options, node, .. } => {
                let clock = gaunt_engine::monotonic_clock();
                let engine = gaunt_engine::spawn_new(*options, clock.clone());
                let sampling =
                    local_sampling::start_sampling(*node, engine.delivery_sender(), clock).await?;
                let feed = ViewFeed::ThisBox { _sampling: sampling };
                OpenView { source: AnswerSource::Engine(engine), needs_warmup: true, _feed: feed }
            }
        })
    }
}

/// Adds the origin of the aggregator's address to an error.
fn explain_error(aggregator: Option<&AggregatorAddress>, error: anyhow::Error) -> anyhow::Error {
    match (aggregator, error.downcast::<AnswerSourceError>()) {
        (Some(address), Ok(AnswerSourceError::Aggregator(error))) => address.explain_error(error),
        (_, Ok(error)) => error.into(),
        (_, Err(error)) => error,
    }
}

/// Where batches come from. Dropping it ends that.
pub(crate) enum TargetFeed {
    /// Targets that this process scrapes.
    Scraped(ScrapeManagerHandle),
    /// A Prometheus.
    Series { _reading: SeriesReaderHandle },
    /// A sender of remote write.
    Received(WriteReceiver),
}

/// What feeds an engine. Dropping it stops the feed.
pub(crate) struct EngineFeed {
    /// Scrapes the targets, or reads a server that does.
    pub(crate) targets: TargetFeed,
    /// Watches the site files.
    pub(crate) watch: gaunt_site::SiteWatch,
    /// Handle to follow deliveries.
    pub(crate) follow: RecorderFollowHandle,
    /// The engine clock.
    pub(crate) clock: ClockFn,
    /// The task that writes preambles to the recording.
    _preambles: JoinSet<()>,
}

impl ScrapingSetup {
    /// Starts an engine and its feed, with a recorder in between if configured.
    pub(crate) async fn start_engine(self) -> anyhow::Result<(EngineHandle, EngineFeed)> {
        let engine = Engine::new(self.engine.clone());
        Box::pin(self.feed_engine(engine)).await
    }

    /// Starts the feed of this engine.
    pub(crate) async fn feed_engine(
        mut self,
        mut engine: Engine,
    ) -> anyhow::Result<(EngineHandle, EngineFeed)> {
        let is_new = engine.is_new();
        let series = match self.series.take() {
            Some(setup) => Some(Box::pin(setup.play_recent(&mut engine)).await?),
            None => None,
        };
        let recorder = match self.recording.clone() {
            Some(options) => Recorder::start_recording(options)?,
            None => Recorder::forward_only(self.plan.options.period)?,
        };
        let follow = recorder.follow_handle();
        let received = self.is_receiving.then(series_setup::start_receive_clock);
        let clock: ClockFn = match (&series, &received) {
            (Some(series), _) => series.clock(),
            (None, Some(clock)) => clock.to_clock_fn(),
            (None, None) => gaunt_engine::monotonic_clock(),
        };
        engine.run_tick(clock());
        let since = is_new.then(|| clock());
        let engine = gaunt_engine::spawn_existing(engine, clock.clone());
        let preambles = engine_preamble::spawn_preamble_task(
            engine.clone(),
            follow.clone(),
            clock.clone(),
            since,
            engine_preamble::WAIT,
        );
        let inbox = spawn_recording_inbox(recorder, engine.delivery_sender(), clock.clone());
        let wants_ras_status = Arc::new(engine.ras_request_check());
        let watch = gaunt_site::start_watching(self.site.clone(), inbox.clone()).await;
        let targets = match (series, received) {
            (Some(series), _) => TargetFeed::Series { _reading: series.start_reading(inbox) },
            (None, Some(clock)) => TargetFeed::Received(WriteReceiver::start_thread(inbox, clock)?),
            (None, None) => TargetFeed::Scraped(self.spawn_scrape_manager(
                inbox,
                clock.clone(),
                wants_ras_status,
            )),
        };
        Ok((engine, EngineFeed { targets, watch, follow, clock, _preambles: preambles }))
    }

    /// Starts the scrape manager only.
    pub(crate) fn spawn_scrape_manager(
        self,
        inbox: mpsc::Sender<Delivery>,
        clock: ClockFn,
        wants_ras_status: RasRequestFn,
    ) -> ScrapeManagerHandle {
        // Sources may add targets later; a high limit costs nothing.
        raise_file_limit(gaunt_scrape::MAX_TARGETS);
        gaunt_scrape::spawn_manager_with_requests(self.plan, inbox, clock, wants_ras_status)
    }
}

/// Makes a write beyond the file size limit fail instead of ending the process.
fn catch_file_size_signal() -> std::io::Result<()> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // Once a handler is registered the signal no longer ends the process; no receiver is needed.
    signal(kind).map(drop)
}

/// Raises the limit of open files of this process as far as allowed: each target keeps a connection.
fn raise_file_limit(targets: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// Files in addition to target connections: clients, the terminal, libraries.
    const OTHERS: u64 = 1024;

    let limit = getrlimit(Resource::Nofile);
    let needed = targets as u64 + OTHERS;
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let current = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < needed {
        tracing::info!(
            allowed = current,
            "the limit of open files also limits the number of targets; `ulimit -n {needed}`, or \
             LimitNOFILE={needed} in gaunt's unit, is enough for every fleet"
        );
    }
}

/// Waits for `span` in tokio time.
async fn sleep_for(span: Duration) {
    tokio::time::sleep(span).await;
}
