//! Details of failed runs: how to reproduce the run, its ground truth, and its findings.

use std::io::{self, Write};

use gaunt::command::judge_command::FindingEpisode;
use gaunt_schema::{Dialect, Severity, UnixMs};

use super::{RunOutcome, played_run::START, run_score::FaultAnswer, run_selection::LabelledRun};

/// Maximum number of findings printed for a run: one that flaps for days has thousands.
const MAX_FINDINGS: usize = 12;

/// Prints a run in which a fault was missed or a false flag was raised; no other.
pub(super) fn write_if_failed(
    out: &mut dyn Write,
    run: &LabelledRun,
    outcome: &RunOutcome,
) -> io::Result<()> {
    let score = &outcome.scored.score;
    let missed = score.answers.iter().any(|answer| answer.in_time().is_none());
    let misplaced =
        score.answers.iter().filter_map(FaultAnswer::in_time).any(|f| !f.is_blame_right);
    if !missed && !misplaced && score.false_flags.is_empty() {
        return Ok(());
    }
    let dialect = if run.dialect == Dialect::Gaunt { "gaunt" } else { "dcgm" };
    writeln!(
        out,
        "{} {} · {dialect} · {} · {} · {} GPUs · repeat with --only {} --seed {}",
        run.scenario,
        run.level.as_str(),
        if run.gpm { "gpm" } else { "no gpm" },
        if run.labels { "labels" } else { "no labels" },
        run.gpus,
        run.scenario,
        run.seed,
    )?;
    for (truth, answer) in outcome.truths.iter().zip(&score.answers) {
        let onset = seconds_since_start(truth.onset);
        let limit = answer.limit.as_secs();
        writeln!(
            out,
            "  fault from {onset:.1} s: {} {}, limit {limit} s",
            truth.kind, truth.blamed
        )?;
        let also = truth.also.iter().map(|entity| format!("{} {entity}", entity.kind));
        let also: Vec<_> = also.chain(truth.kinds.iter().map(ToString::to_string)).collect();
        if !also.is_empty() {
            writeln!(out, "    also accepted: {}", also.join(", "))?;
        }
        let outcome_text = match (answer.in_time(), answer.flag, answer.misnamed) {
            (Some(found), ..) if found.is_blame_right => "found",
            (Some(_), ..) => "found, but a wrong entity was blamed first",
            (None, Some(_), _) => "late",
            (None, None, Some(_)) => "found as another kind",
            (None, None, None) => "not found",
        };
        writeln!(out, "    {outcome_text}")?;
    }
    // Critical findings come first: there may be one among thousands.
    let is_critical = |episode: &&FindingEpisode| episode.worst == Severity::Critical;
    let others = outcome.episodes.iter().filter(|episode| !is_critical(episode));
    for episode in outcome.episodes.iter().filter(is_critical).chain(others).take(MAX_FINDINGS) {
        write_episode(out, episode)?;
    }
    if outcome.episodes.len() > MAX_FINDINGS {
        writeln!(out, "  and {} more", outcome.episodes.len() - MAX_FINDINGS)?;
    }
    if outcome.episodes.is_empty() {
        writeln!(out, "  no finding")?;
    }
    Ok(())
}

fn write_episode(out: &mut dyn Write, episode: &FindingEpisode) -> io::Result<()> {
    let finding = &episode.finding;
    let opened = seconds_since_start(episode.opened);
    let closed = episode
        .closed
        .map_or("the end".to_owned(), |at| format!("{:.1} s", seconds_since_start(at)));
    let (worst, kind, entity) = (episode.worst, finding.kind, &finding.entity);
    let since = |at: Option<UnixMs>, what| {
        at.map_or(String::new(), |at| format!(", {what} from {:.1} s", seconds_since_start(at)))
    };
    let (warned, paged) = (since(episode.warned, "warning"), since(episode.paged, "critical"));
    writeln!(
        out,
        "  finding {opened:.1} s to {closed}{warned}{paged}: {worst} {kind} {} {entity}: {}",
        entity.kind, finding.summary
    )?;
    if worst < Severity::Critical {
        return Ok(());
    }
    let numbers = finding.evidence.iter().map(|number| {
        let value = number.value.unwrap_or(f64::NAN);
        format!("{} {value:.3} ({:.3})", number.what, number.limit.unwrap_or(f64::NAN))
    });
    writeln!(out, "    evidence: {}", numbers.collect::<Vec<_>>().join(", "))
}

/// Seconds since the run began.
fn seconds_since_start(at: UnixMs) -> f64 {
    at.duration_since(START).as_secs_f64()
}
