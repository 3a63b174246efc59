//! `gaunt judge`: replays a recording through the engine in virtual time and prints the findings.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use gaunt_schema::{Delivery, UnixMs};
use serde::Serialize;

use super::{
    engine_preamble,
    past_deliveries::{PastDeliveries, PastOptions},
    recording_health::report_recording_health,
    replay_instants::ReplayInstants,
    snapshot_command,
};
use gaunt_api::CumulativeTotals;
use gaunt_engine::record;

mod finding_log;
mod page_recording;
#[cfg(test)]
mod standing_fault_tests;

pub use finding_log::{FindingEpisode, FindingLog, MAX_EPISODES, VirtualRun};
pub(super) use page_recording::PageRecording;
pub use page_recording::PageRecordingError;

/// The longest time between two ticks, as in a running engine.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// Source of what is judged.
#[derive(Clone, Debug)]
pub enum JudgeSource {
    /// Directory of a recording or of pages.
    Folder(PathBuf),
    /// The past of a Prometheus.
    Past(Box<PastOptions>),
}

/// What is judged, and the output format.
#[derive(Clone, Debug)]
pub struct JudgeOptions {
    /// Source of the pages.
    pub from: JudgeSource,
    /// Files of topology and running jobs.
    pub site: gaunt_site::SiteOptions,
    /// Time between two pages of a target; derived from the recording by default.
    pub period: Option<Duration>,
    /// Print one JSON object instead of text.
    pub json: bool,
}

/// Result of judging a recording.
#[derive(Debug, Serialize)]
struct JudgeReport<'a> {
    from: UnixMs,
    until: UnixMs,
    period_ms: u64,
    targets: usize,
    totals: CumulativeTotals,
    findings: &'a [FindingEpisode],
    unlisted: u64,
}

/// Replays a recording and returns the run.
pub(super) fn judge_recording(
    options: &JudgeOptions,
    engine_options: gaunt_engine::EngineOptions,
) -> anyhow::Result<VirtualRun> {
    Ok(play_recording(options, engine_options)?.run)
}

fn play_recording(
    options: &JudgeOptions,
    engine_options: gaunt_engine::EngineOptions,
) -> anyhow::Result<PlayedRecording> {
    let (deliveries, period) = (site_deliveries(&options.site)?, options.period);
    match &options.from {
        JudgeSource::Past(past) => {
            let until = past.until;
            let past = PastDeliveries::open((**past).clone())?;
            play_past(past, until, period, engine_options, deliveries)
        }
        JudgeSource::Folder(folder) if record::Recording::has_segments(folder) => {
            play_segments(folder, period, engine_options, deliveries)
        }
        JudgeSource::Folder(folder) => play_pages(folder, period, engine_options, deliveries),
    }
}

/// Judges a recording and prints the findings.
pub fn run(
    options: &JudgeOptions,
    engine_options: gaunt_engine::EngineOptions,
) -> anyhow::Result<ExitCode> {
    let PlayedRecording { mut run, span: (from, until), period, targets, exit_code } =
        play_recording(options, engine_options)?;
    let totals = run.cumulative_totals();
    let report = JudgeReport {
        from,
        until,
        period_ms: period.as_millis() as u64,
        targets,
        totals,
        findings: run.finding_log().all_episodes(),
        unlisted: run.finding_log().unlisted_count(),
    };
    let page =
        if options.json { serde_json::to_string(&report)? + "\n" } else { report.render_text() };
    snapshot_command::print_page(&page)?;
    Ok(exit_code)
}

/// A replayed recording.
struct PlayedRecording {
    run: VirtualRun,
    span: (UnixMs, UnixMs),
    period: Duration,
    targets: usize,
    /// The exit code for its completeness.
    exit_code: ExitCode,
}

/// Deliveries of the site files.
pub(super) fn site_deliveries(
    files: &gaunt_site::SiteOptions,
) -> Result<Vec<Delivery>, gaunt_site::SiteError> {
    let topology = files.topology.iter().map(|file| {
        let gaunt_site::SiteFileData { content, skipped } = gaunt_site::read_topology(file)?;
        if let Some(skipped) = skipped {
            tracing::error!("{skipped}");
        }
        Ok(Delivery::Topology(content))
    });
    let jobs =
        files.jobs.iter().map(|file| Ok(Delivery::Jobs(gaunt_site::read_jobs(file)?.content)));
    topology.chain(jobs).collect()
}

/// Replays a directory of pages.
fn play_pages(
    folder: &Path,
    period: Option<Duration>,
    engine_options: gaunt_engine::EngineOptions,
    site_deliveries: Vec<Delivery>,
) -> anyhow::Result<PlayedRecording> {
    let recording = PageRecording::open_folder(folder)?;
    let period = period.unwrap_or_else(|| recording.scrape_period());
    let mut run = VirtualRun::new(gaunt_engine::EngineOptions { period, ..engine_options });
    for delivery in site_deliveries {
        run.ingest_delivery(delivery);
    }
    run.ingest_delivery(Delivery::Targets(recording.recorded_targets()));
    let batches = recording.read_batches().map(|batch| batch.map(|b| (b.at, Delivery::Batch(b))));
    let span = recording.time_span();
    let instants = ReplayInstants::new(span.0, period.min(SLOWEST_TICK)).with_end(span.1);
    run_deliveries(batches, &mut run, instants)?;
    let targets = recording.recorded_targets().len();
    Ok(PlayedRecording { run, span, period, targets, exit_code: ExitCode::SUCCESS })
}

/// Replays the segments of a recorder.
fn play_segments(
    folder: &Path,
    period: Option<Duration>,
    engine_options: gaunt_engine::EngineOptions,
    site_deliveries: Vec<Delivery>,
) -> anyhow::Result<PlayedRecording> {
    let recording = record::Recording::open_folder(folder)?;
    let period = period.unwrap_or_else(|| recording.scrape_period());
    let options = gaunt_engine::EngineOptions { period, ..engine_options };
    let mut run = VirtualRun::of(engine_preamble::resume_engine(
        &recording,
        recording.time_span().0,
        options,
    )?);
    for delivery in site_deliveries {
        run.ingest_delivery(delivery);
    }
    let (mut targets, span) = (0, recording.time_span());
    let deliveries = recording.deliveries_from(span.0).inspect(|delivery| {
        if let Ok((_, Delivery::Targets(list))) = delivery {
            targets = list.len();
        }
    });
    let instants = ReplayInstants::new(span.0, period.min(SLOWEST_TICK)).with_end(span.1);
    run_deliveries(deliveries, &mut run, instants)?;
    let exit_code = report_recording_health(&recording);
    Ok(PlayedRecording { run, span, period, targets, exit_code })
}

/// Plays what a server scraped in a span of its past.
fn play_past(
    past: PastDeliveries,
    until: UnixMs,
    period: Option<Duration>,
    engine_options: gaunt_engine::EngineOptions,
    site_deliveries: Vec<Delivery>,
) -> anyhow::Result<PlayedRecording> {
    let (period, first) = (period.unwrap_or(past.period), past.first);
    let mut run = VirtualRun::new(gaunt_engine::EngineOptions { period, ..engine_options });
    for delivery in site_deliveries {
        run.ingest_delivery(delivery);
    }
    let (mut target_count, mut last) = (0, first);
    let deliveries = past.inspect(|delivery| match delivery {
        Ok((_, Delivery::Targets(targets))) => target_count = targets.len(),
        Ok((at, _)) => last = *at,
        Err(_) => {}
    });
    let instants = ReplayInstants::new(first, period.min(SLOWEST_TICK)).with_end(until);
    run_deliveries(deliveries, &mut run, instants)?;
    let (span, exit_code) = ((first, last), ExitCode::SUCCESS);
    Ok(PlayedRecording { run, span, period, targets: target_count, exit_code })
}

/// Delivers everything at its time, and ticks from the first to the last delivery as a running engine would.
fn run_deliveries<E>(
    deliveries: impl Iterator<Item = Result<(UnixMs, Delivery), E>>,
    run: &mut VirtualRun,
    mut instants: ReplayInstants,
) -> Result<(), E> {
    for delivery in deliveries {
        let (at, delivery) = delivery?;
        // A delivery at the time of a tick precedes the tick.
        while let Some(instant) = instants.next_before(at) {
            run.run_tick(instant);
        }
        run.ingest_delivery(delivery);
    }
    run.run_tick(instants.last());
    Ok(())
}

impl JudgeReport<'_> {
    /// The findings by opening time, each with its evidence.
    fn render_text(&self) -> String {
        let mut page = String::new();
        let pages = self.totals.scrapes.values().sum();
        let seconds = self.until.duration_since(self.from).as_secs_f64();
        push_line(
            &mut page,
            format_args!(
                "gaunt judge  {} · {} every {} s · {} to {} ({seconds:.0} s)",
                format_count(self.targets as u64, "target"),
                format_count(pages, "page"),
                self.period_ms as f64 / 1e3,
                format_date_time(self.from),
                format_date_time(self.until),
            ),
        );
        for (outcome, attempts) in &self.totals.scrapes {
            if outcome.as_str() != "ok" {
                let pages = format_count(*attempts, "page");
                push_line(&mut page, format_args!("failed       {pages}: {outcome}"));
            }
        }
        for (reason, lines) in &self.totals.rejected {
            let lines = format_count(*lines, "line");
            push_line(&mut page, format_args!("rejected     {lines}: {reason}"));
        }
        push_line(&mut page, format_args!("FINDINGS     {}", self.findings.len()));
        for episode in self.findings {
            self.render_episode(&mut page, episode);
        }
        if self.unlisted > 0 {
            let limit = format_args!("and more; the limit is {MAX_EPISODES}");
            push_line(&mut page, limit);
        }
        page
    }

    fn render_episode(&self, page: &mut String, episode: &FindingEpisode) {
        let finding = &episode.finding;
        let after = |at: UnixMs| format!("+{:.1} s", at.duration_since(self.from).as_secs_f64());
        let is_open = episode.closed.is_none();
        let lost =
            if is_open { format!("  {:.1} GPUs lost", finding.lost_gpus) } else { String::new() };
        push_line(
            page,
            format_args!(
                "{:>10} to {:>10}  {:<8}  {:<18}  {}  confidence {:.0} %{lost}",
                after(episode.opened),
                episode.closed.map_or_else(|| "the end".to_owned(), after),
                episode.worst.as_str(),
                finding.kind.as_str(),
                finding.entity,
                finding.confidence * 100.0,
            ),
        );
        push_line(page, format_args!("             {}", finding.summary));
        if is_open && !finding.next.is_empty() {
            push_line(page, format_args!("             next: {}", finding.next));
        }
    }
}

fn push_line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    _ = writeln!(page, "{text}");
}

fn format_count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Formats a time as `2026-11-21 03:24:05 UTC`.
pub(super) fn format_date_time(at: UnixMs) -> String {
    let (year, month, day) = at.to_date();
    format!("{year:04}-{month:02}-{day:02} {} UTC", at.to_time_of_day())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two attempts a year apart, recorded.
    fn record_a_year(folder: &Path) {
        let options = record::RecordOptions {
            folder: folder.to_owned(),
            max_size: 64 << 20,
            max_age: Duration::from_hours(24 * 1_000),
            period: Duration::from_secs(1),
        };
        let recorder = record::Recorder::start_recording(options).unwrap();
        let (first, year) = (UnixMs(1_700_000_000_000), Duration::from_hours(24 * 365));
        let target = gaunt_schema::ScrapeTarget {
            id: gaunt_schema::TargetId(0),
            address: "10.0.0.1:9770".into(),
            node: None,
            origin: "test".into(),
        };
        recorder.record_delivery(first, &Delivery::Targets(vec![target]));
        for at in [first, first + year] {
            let refused = gaunt_schema::ScrapeFailure::Connect("connection refused".into());
            let batch = gaunt_schema::Batch {
                target: gaunt_schema::TargetId(0),
                at,
                duration_ms: 1.0,
                outcome: Err(refused),
            };
            recorder.record_delivery(at, &Delivery::Batch(batch));
        }
    }

    #[test]
    fn recording_with_a_gap_of_a_year_is_judged_at_once_and_damage_has_an_exit_code() {
        let folder = tempfile::tempdir().unwrap();
        record_a_year(folder.path());
        let play = || {
            play_segments(folder.path(), None, gaunt_engine::EngineOptions::default(), Vec::new())
                .unwrap()
        };
        let played = play();
        assert_eq!(played.span.1.duration_since(played.span.0).as_secs(), 365 * 86_400);
        let code = |code: ExitCode| format!("{code:?}");
        assert_eq!(code(played.exit_code), code(ExitCode::SUCCESS));
        let segment = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&segment).unwrap();
        // A second copy of the only block, damaged.
        let header = bytes.len() - 28;
        bytes.extend_from_within(28..28 + header);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        assert_eq!(code(play().exit_code), code(ExitCode::from(super::super::FAILED)));
    }

    #[test]
    fn date_time_follows_the_calendar() {
        let table = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000_999, "2023-11-14 22:13:20 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ];
        for (ms, text) in table {
            assert_eq!(format_date_time(UnixMs(ms)), text);
        }
    }
}
