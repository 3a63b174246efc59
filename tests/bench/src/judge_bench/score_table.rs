//! Score table: a line for each scenario, with the findings that replaced the right one.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use gaunt_sim::suite::FaultLevel;

use super::{
    run_score::FaultAnswer,
    score_totals::{FaultFreeCounts, FlagCounts, ScoredRun, detection_delays, quantile_of},
};

/// Placeholder for a missing value.
const NONE: &str = "-";

/// Writes a line for each scenario, in the order of their numbers.
pub(crate) fn write_table(out: &mut dyn Write, runs: &[ScoredRun]) -> io::Result<()> {
    let mut scenarios: BTreeMap<(char, u32), Vec<&ScoredRun>> = BTreeMap::new();
    for run in runs {
        let number = run.scenario.get(1..).and_then(|number| number.parse().ok());
        let letter = run.scenario.chars().next().unwrap_or('?');
        scenarios.entry((letter, number.unwrap_or(0))).or_default().push(run);
    }
    writeln!(
        out,
        "{:4} {:>4} {:>7} {:>7} {:>7} {:>7} {:>6} {:>7} {:>7} {:>6}  found as | false flags",
        "", "runs", "mild", "medium", "hard", "blamed", "false", "median", "p95", "limit"
    )?;
    for runs in scenarios.values() {
        let fault_free = runs.iter().all(|run| run.is_negative());
        if fault_free { write_negative_row(out, runs)? } else { write_fault_row(out, runs)? }
    }
    Ok(())
}

/// `F1  12  1/4  3/4  4/4  7/8  2  14.2  22.0  30  data_starved 8, late 1, nothing 3 | port_down 2`
fn write_fault_row(out: &mut dyn Write, runs: &[&ScoredRun]) -> io::Result<()> {
    let level = |level| FlagCounts::of(runs.iter().copied().filter(|run| run.level == level));
    let ratio = |counts: FlagCounts| format!("{}/{}", counts.found, counts.faults);
    let totals = FlagCounts::of(runs.iter().copied());
    let delays = detection_delays(runs.iter().copied());
    let answers = || runs.iter().flat_map(|run| &run.score.answers);
    let limits: Vec<_> = answers().map(|answer| answer.limit.as_secs()).collect();
    let (least, most) = (limits.iter().min(), limits.iter().max());
    let limit = match (least, most) {
        (Some(least), Some(most)) if least < most => format!("{least}-{most}"),
        (Some(least), _) => least.to_string(),
        _ => NONE.to_owned(),
    };
    writeln!(
        out,
        "{:4} {:>4} {:>7} {:>7} {:>7} {:>7} {:>6} {:>7} {:>7} {:>6}  {} | {}",
        runs[0].scenario,
        runs.len(),
        ratio(level(FaultLevel::Mild)),
        ratio(level(FaultLevel::Medium)),
        ratio(level(FaultLevel::Hard)),
        format!("{}/{}", totals.blamed, totals.found),
        totals.false_flags,
        format_seconds(quantile_of(&delays, 0.5)),
        format_seconds(quantile_of(&delays, 0.95)),
        limit,
        format_counts(answers().map(answer_label)),
        false_flags(runs),
    )
}

/// `H1  12  flagged 1/12  pages 3 in 250.0 GPU-days | data_starved 2`
fn write_negative_row(out: &mut dyn Write, runs: &[&ScoredRun]) -> io::Result<()> {
    let counts = FaultFreeCounts::of(runs.iter().copied());
    writeln!(
        out,
        "{:4} {:>4} {:>7} flagged, {} pages in {:.1} GPU-days | {}",
        runs[0].scenario,
        runs.len(),
        counts.flagged,
        counts.pages,
        counts.gpu_days,
        false_flags(runs),
    )
}

/// The finding that a fault received, as a short label.
fn answer_label(answer: &FaultAnswer) -> &'static str {
    match (answer.in_time(), answer.misnamed, answer.flag) {
        (Some(found), ..) => found.kind.as_str(),
        (None, Some(kind), _) => kind.as_str(),
        (None, None, Some(_)) => "late",
        (None, None, None) => "nothing",
    }
}

fn false_flags(runs: &[&ScoredRun]) -> String {
    format_counts(runs.iter().flat_map(|run| &run.score.false_flags).map(|kind| kind.as_str()))
}

/// Labels with their counts, the most frequent first.
fn format_counts(labels: impl Iterator<Item = &'static str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for label in labels {
        *counts.entry(label).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let texts: Vec<_> = counts.iter().map(|(label, count)| format!("{label} {count}")).collect();
    if texts.is_empty() { NONE.to_owned() } else { texts.join(", ") }
}

fn format_seconds(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.1}"))
}
