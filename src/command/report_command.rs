//! `gaunt report`: GPU time and energy, their cost, and the lost part by cause.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use gaunt_schema::{Delivery, UnixMs};

use super::{
    ViewSource, engine_preamble,
    judge_command::{PageRecording, format_date_time, site_deliveries},
    recording_health::report_recording_health,
    replay_instants::ReplayInstants,
    snapshot_command::{self, FleetSnapshot},
};
use gaunt_api::{Answer, Question, UsageReport};
use gaunt_engine::{Engine, record};

mod cost_report;
mod gpu_prices;
mod html_report;
mod report_output;

pub use cost_report::{CostReport, CostReportSum, CurrencyCost};
pub use gpu_prices::GpuPrices;

/// The longest time between two ticks, as in a running engine.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// The time range of a report.
#[derive(Debug)]
pub enum ReportScope {
    /// The recent past, from an aggregator or this process.
    Recent(Box<ViewSource>, Duration),
    /// A whole recording, with the files of its topology and jobs.
    Recording(PathBuf, Box<(gaunt_site::SiteOptions, gaunt_engine::EngineOptions)>),
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
    /// Comma-separated values.
    Csv,
    /// One page of HTML.
    Html,
}

/// Options of a report.
#[derive(Debug)]
pub struct ReportOptions {
    /// Time range.
    pub of: ReportScope,
    /// Output format.
    pub form: ReportFormat,
    /// Sampling time if no aggregator is used.
    pub watch: Duration,
    /// GPU prices.
    pub prices: GpuPrices,
    /// Kilograms of CO2 per kilowatt-hour, if known.
    pub co2_kg_per_kwh: Option<f64>,
}

/// Computes and prints the report.
pub async fn run(report_options: ReportOptions) -> anyhow::Result<ExitCode> {
    let (usage, exit_code) = match report_options.of {
        ReportScope::Recent(view, span) => {
            Box::pin(recent_usage(*view, span, report_options.watch)).await?
        }
        ReportScope::Recording(folder, options) => {
            let (site, engine_options) = *options;
            recorded_usage(&folder, &site, engine_options)?
        }
    };
    let report = CostReport::of(&usage, &report_options.prices, report_options.co2_kg_per_kwh);
    let page = match report_options.form {
        ReportFormat::Text => report_output::render_text(&report),
        ReportFormat::Json => serde_json::to_string_pretty(&report)? + "\n",
        ReportFormat::Csv => report_output::render_csv(&report),
        ReportFormat::Html => html_report::render_html(&report),
    };
    snapshot_command::print_page(&page)?;
    Ok(exit_code)
}

/// The usage of the last `span`, and the exit code for its completeness.
async fn recent_usage(
    view: ViewSource,
    span: Duration,
    watch: Duration,
) -> anyhow::Result<(UsageReport, ExitCode)> {
    let view = view.resolve_default(true).await;
    let aggregator = view.aggregator_address();
    let usage = query_usage(view, span, watch).await;
    usage.map_err(|error| super::explain_error(aggregator.as_ref(), error))
}

async fn query_usage(
    view: ViewSource,
    span: Duration,
    watch: Duration,
) -> anyhow::Result<(UsageReport, ExitCode)> {
    let open = view.open_view().await?;
    if open.needs_warmup {
        snapshot_command::wait_for_samples(&open.source, watch).await?;
    }
    match open.source.ask_question(Question::Usage(span)).await? {
        Answer::Usage(usage) => {
            let health = FleetSnapshot::fetch_health(&open.source).await?;
            Ok((usage.as_ref().clone(), health.exit_code(false)))
        }
        Answer::Refused(refusal) => anyhow::bail!("{refusal}"),
        _ => anyhow::bail!("unexpected answer; is the aggregator of this version?"),
    }
}

/// Replays a recording in virtual time and counts all of it; with the exit code for its completeness.
fn recorded_usage(
    folder: &Path,
    site: &gaunt_site::SiteOptions,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<(UsageReport, ExitCode)> {
    let site = site_deliveries(site)?;
    if record::Recording::has_segments(folder) {
        let recording = record::Recording::open_folder(folder)?;
        let (span, period) = (recording.time_span(), recording.scrape_period());
        let options =
            gaunt_engine::EngineOptions { usage: recording_length(span), period, ..options };
        let engine = engine_preamble::resume_engine(&recording, span.0, options)?;
        let usage = count_usage(site, recording.deliveries_from(span.0), span, engine)?;
        return Ok((usage, report_recording_health(&recording)));
    }
    let recording = PageRecording::open_folder(folder)?;
    let (span, period) = (recording.time_span(), recording.scrape_period());
    let targets = std::iter::once(Ok((span.0, Delivery::Targets(recording.recorded_targets()))));
    let batches = recording.read_batches().map(|batch| batch.map(|b| (b.at, Delivery::Batch(b))));
    let options = gaunt_engine::EngineOptions { usage: recording_length(span), period, ..options };
    let usage = count_usage(site, targets.chain(batches), span, Engine::new(options))?;
    Ok((usage, ExitCode::SUCCESS))
}

/// Length of a recording, its last tick included.
fn recording_length((first, last): (UnixMs, UnixMs)) -> Duration {
    last.duration_since(first) + SLOWEST_TICK
}

fn count_usage<E: std::error::Error + Send + Sync + 'static>(
    site: Vec<Delivery>,
    deliveries: impl Iterator<Item = Result<(UnixMs, Delivery), E>>,
    (first, last): (UnixMs, UnixMs),
    mut engine: Engine,
) -> anyhow::Result<UsageReport> {
    let span = recording_length((first, last));
    let step = engine.scrape_period().min(SLOWEST_TICK);
    let mut instants = ReplayInstants::new(first, step).with_end(last);
    for delivery in site {
        engine.ingest_delivery(delivery);
    }
    for delivery in deliveries {
        let (at, delivery) = delivery?;
        while let Some(instant) = instants.next_before(at) {
            engine.run_tick(instant);
        }
        engine.ingest_delivery(delivery);
    }
    engine.run_tick(instants.last());
    match engine.answer_question(&Question::Usage(span)) {
        Answer::Usage(usage) => Ok(usage.as_ref().clone()),
        _ => anyhow::bail!("the engine returned no usage"),
    }
}

/// Formats a time range for people.
fn format_span(from: UnixMs, until: UnixMs) -> String {
    format!("{} to {}", format_date_time(from), format_date_time(until))
}
