//! `gaunt judge`: the owner lives through a recording in virtual time, and what it finds is printed.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use gaunt_schema::{Delivery, UnixMs};
use serde::Serialize;

use super::{preamble, snapshot};
use crate::{answer::Totals, owner, record, site};

mod chronicle;
mod recording;
#[cfg(test)]
mod standing;

pub use chronicle::{Chronicle, Episode, MAX_EPISODES, Witness};
pub(super) use recording::Recording;
pub use recording::RecordingError;

/// An owner never waits longer than this from one tick to the next; nor does it here.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// What is judged, and how it is told.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The folder of the recording.
    pub from: PathBuf,
    /// Files that say how the cluster is wired, and which jobs run.
    pub site: site::Options,
    /// The time between two pages of a target; worked out from the recording if it is not said.
    pub period: Option<Duration>,
    /// One JSON object instead of text.
    pub json: bool,
}

/// What the owner said of a recording.
#[derive(Debug, Serialize)]
struct Verdict<'a> {
    from: UnixMs,
    until: UnixMs,
    period_ms: u64,
    targets: usize,
    totals: Totals,
    findings: &'a [Episode],
    unlisted: u64,
}

/// Lives through a recording, and says who saw it.
pub(super) fn witness(wanted: &Wanted, owner: owner::Options) -> anyhow::Result<Witness> {
    Ok(play(wanted, owner)?.witness)
}

fn play(wanted: &Wanted, owner: owner::Options) -> anyhow::Result<Played> {
    let told = told(&wanted.site)?;
    let live = if record::Recording::is_in(&wanted.from) { segments } else { pages };
    live(wanted, owner, told)
}

/// Judges a recording and prints what was found.
pub fn run(wanted: &Wanted, owner: owner::Options) -> anyhow::Result<ExitCode> {
    let Played { mut witness, span: (from, until), period, targets } = play(wanted, owner)?;
    let totals = witness.totals();
    let verdict = Verdict {
        from,
        until,
        period_ms: period.as_millis() as u64,
        targets,
        totals,
        findings: witness.chronicle().episodes(),
        unlisted: witness.chronicle().unlisted(),
    };
    let page = if wanted.json { serde_json::to_string(&verdict)? + "\n" } else { verdict.text() };
    snapshot::print(&page)?;
    Ok(ExitCode::SUCCESS)
}

/// What an owner saw of a recording.
struct Played {
    witness: Witness,
    span: (UnixMs, UnixMs),
    period: Duration,
    targets: usize,
}

/// What the files of the site say.
fn told(files: &site::Options) -> Result<Vec<Delivery>, site::SiteError> {
    let topology = files.topology.iter().map(|file| site::topology(file).map(Delivery::Topology));
    let jobs = files.jobs.iter().map(|file| site::jobs(file).map(Delivery::Jobs));
    topology.chain(jobs).collect()
}

/// Lives through a folder of pages.
fn pages(wanted: &Wanted, owner: owner::Options, told: Vec<Delivery>) -> anyhow::Result<Played> {
    let recording = Recording::open(&wanted.from)?;
    let period = wanted.period.unwrap_or_else(|| recording.period());
    let mut witness = Witness::new(owner::Options { period, ..owner });
    for delivery in told {
        witness.accept(delivery);
    }
    witness.accept(Delivery::Targets(recording.targets()));
    let batches = recording.batches().map(|batch| batch.map(|b| (b.at, Delivery::Batch(b))));
    let span = recording.span();
    live_through(batches, &mut witness, span.0, period.min(SLOWEST_TICK))?;
    Ok(Played { witness, span, period, targets: recording.targets().len() })
}

/// Lives through the segments of a recorder.
fn segments(wanted: &Wanted, owner: owner::Options, told: Vec<Delivery>) -> anyhow::Result<Played> {
    let recording = record::Recording::open(&wanted.from)?;
    let period = wanted.period.unwrap_or_else(|| recording.period());
    let options = owner::Options { period, ..owner };
    let mut witness = Witness::of(preamble::resume(&recording, recording.span().0, options)?);
    for delivery in told {
        witness.accept(delivery);
    }
    let (mut targets, span) = (0, recording.span());
    let deliveries = recording.deliveries(span.0).inspect(|delivery| {
        if let Ok((_, Delivery::Targets(named))) = delivery {
            targets = named.len();
        }
    });
    live_through(deliveries, &mut witness, span.0, period.min(SLOWEST_TICK))?;
    if recording.lost() > 0 {
        tracing::warn!(bytes = recording.lost(), "unfinished or damaged parts are passed over");
    }
    Ok(Played { witness, span, period, targets })
}

/// Delivers everything at its instant, and ticks from the first to the last of them as a running owner would.
fn live_through<E>(
    deliveries: impl Iterator<Item = Result<(UnixMs, Delivery), E>>,
    witness: &mut Witness,
    from: UnixMs,
    step: Duration,
) -> Result<(), E> {
    let mut tick = from;
    for delivery in deliveries {
        let (at, delivery) = delivery?;
        // What comes at the very instant of a tick was there before it.
        while tick < at {
            witness.tick(tick);
            tick = tick + step;
        }
        witness.accept(delivery);
    }
    witness.tick(tick);
    Ok(())
}

impl Verdict<'_> {
    /// The findings in the order in which they were opened, each with its numbers' sentence.
    fn text(&self) -> String {
        let mut page = String::new();
        let pages = self.totals.scrapes.values().sum();
        let seconds = self.until.since(self.from).as_secs_f64();
        line(
            &mut page,
            format_args!(
                "gaunt judge  {} · {} every {} s · {} to {} ({seconds:.0} s)",
                count(self.targets as u64, "target"),
                count(pages, "page"),
                self.period_ms as f64 / 1e3,
                date_and_time(self.from),
                date_and_time(self.until),
            ),
        );
        for (outcome, attempts) in &self.totals.scrapes {
            if outcome.as_str() != "ok" {
                let pages = count(*attempts, "page");
                line(&mut page, format_args!("not taken    {pages}: {outcome}"));
            }
        }
        for (reason, lines) in &self.totals.rejected {
            let lines = count(*lines, "line");
            line(&mut page, format_args!("not taken    {lines}: {reason}"));
        }
        line(&mut page, format_args!("FINDINGS     {}", self.findings.len()));
        for episode in self.findings {
            self.episode(&mut page, episode);
        }
        if self.unlisted > 0 {
            let limit = format_args!("and more: at most {MAX_EPISODES} are kept");
            line(&mut page, limit);
        }
        page
    }

    fn episode(&self, page: &mut String, episode: &Episode) {
        let finding = &episode.finding;
        let after = |at: UnixMs| format!("+{:.1} s", at.since(self.from).as_secs_f64());
        line(
            page,
            format_args!(
                "{:>10} to {:>10}  {:<8}  {:<18}  {}  sure {:.2}",
                after(episode.opened),
                episode.closed.map_or_else(|| "the end".to_owned(), after),
                episode.worst.as_str(),
                finding.kind.as_str(),
                finding.entity,
                finding.confidence,
            ),
        );
        line(page, format_args!("             {}", finding.summary));
    }
}

fn line(page: &mut String, words: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    _ = writeln!(page, "{words}");
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// An instant as `2026-11-21 03:24:05 UTC`.
pub(super) fn date_and_time(at: UnixMs) -> String {
    let (year, month, day) = at.date();
    let second = at.0.div_euclid(1_000).rem_euclid(86_400);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_that_of_the_calendar() {
        let table = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000_999, "2023-11-14 22:13:20 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ];
        for (ms, text) in table {
            assert_eq!(date_and_time(UnixMs(ms)), text);
        }
    }
}
