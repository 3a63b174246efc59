//! Figures of many worlds: shares of right findings, pages of quiet worlds, calibration of the confidences.

use std::{collections::BTreeMap, io::Write};

use gaunt_schema::FindingKind;

use super::played_world::{PlayedWorld, StatedConfidence, count_kinds};
use crate::judge_bench::{FaultAnswer, round_figure};

/// Bins of confidence in the reliability table.
const BINS: usize = 10;

/// Counts of a group of worlds.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorldFigures {
    runs: usize,
    /// Faults of at least 10 % loss, or that devices state themselves, and of less.
    faults: [usize; 2],
    /// Of these, those that were found in time.
    found: [usize; 2],
    /// Of those found, those whose first finding blames the right entity.
    blamed: usize,
    /// Found faults, late ones included.
    answered: usize,
    false_flags: Vec<gaunt_schema::FindingKind>,
    quiet_pages: u32,
    /// Observed GPU-days without a fault.
    pub(crate) quiet_gpu_days: f64,
    /// Sum of squared errors of confidences, and their number.
    squared_errors: (f64, usize),
}

impl WorldFigures {
    /// The counts of these worlds.
    pub(crate) fn of<'a>(worlds: impl IntoIterator<Item = &'a PlayedWorld>) -> Self {
        let mut figures = Self::default();
        for world in worlds {
            figures.runs += 1;
            let class = usize::from(!world.is_strong());
            let answers = &world.score.answers;
            let in_time = || answers.iter().filter_map(FaultAnswer::in_time);
            figures.faults[class] += answers.len();
            figures.found[class] += in_time().count();
            figures.blamed += in_time().filter(|found| found.is_blame_right).count();
            figures.answered += answers.iter().filter(|answer| answer.flag.is_some()).count();
            figures.false_flags.extend(&world.score.false_flags);
            if answers.is_empty() {
                figures.quiet_pages += world.score.false_pages;
                figures.quiet_gpu_days += world.gpu_days;
            }
            for stated in &world.confidences {
                let error = stated.confidence - f64::from(u8::from(stated.is_right));
                figures.squared_errors.0 += error * error;
                figures.squared_errors.1 += 1;
            }
        }
        figures
    }

    fn all_faults(&self) -> usize {
        self.faults.iter().sum()
    }

    fn all_found(&self) -> usize {
        self.found.iter().sum()
    }

    /// The share of warnings that answer a fault.
    pub(crate) fn precision(&self) -> Option<f64> {
        share_of(self.all_found(), self.all_found() + self.false_flags.len())
    }

    /// The share of faults of at least 10 % that were found in time.
    pub(crate) fn strong_recall(&self) -> Option<f64> {
        share_of(self.found[0], self.faults[0])
    }

    /// The same of milder faults.
    pub(crate) fn mild_recall(&self) -> Option<f64> {
        share_of(self.found[1], self.faults[1])
    }

    /// Harmonic mean of precision and recall of all faults of at least 10 %.
    pub(crate) fn f1_score(&self) -> Option<f64> {
        let found = self.found[0];
        if self.faults[0] == 0 {
            return None;
        }
        share_of(2 * found, found + self.false_flags.len() + self.faults[0])
    }

    /// The share of found faults whose first finding blames the right entity.
    pub(crate) fn blame_accuracy(&self) -> Option<f64> {
        share_of(self.blamed, self.all_found())
    }

    /// The share of found faults that were found within their limit.
    pub(crate) fn delay_ok_share(&self) -> Option<f64> {
        share_of(self.all_found(), self.answered)
    }

    /// Pages in quiet worlds per 1,000 GPU-days.
    pub(crate) fn quiet_pages_per_1000_gpu_days(&self) -> Option<f64> {
        let pages = f64::from(self.quiet_pages) * 1e3;
        round_figure((self.quiet_gpu_days > 0.0).then(|| pages / self.quiet_gpu_days))
    }

    /// Mean squared difference of confidence and truth.
    pub(crate) fn brier_score(&self) -> Option<f64> {
        let (sum, count) = self.squared_errors;
        round_figure((count > 0).then(|| sum / count as f64))
    }

    /// Writes one line of a table.
    pub(crate) fn write_row(&self, out: &mut dyn Write, name: &str) -> std::io::Result<()> {
        let share =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let all_recall = share_of(self.all_found(), self.all_faults());
        writeln!(
            out,
            "{name:26} {:>5} {:>6} {:>5} {:>5} {:>6} {:>5} {:>5} {:>5} {:>6.1} {:>6}  {}",
            self.runs,
            self.all_faults(),
            self.all_found(),
            share(self.blame_accuracy()),
            self.false_flags.len(),
            share(self.precision()),
            share(all_recall),
            share(self.f1_score()),
            self.quiet_gpu_days,
            self.quiet_pages,
            count_kinds(self.false_flags.iter().copied()),
        )
    }
}

/// Writes confidences in ten bins, with the share of findings that are right.
pub(crate) fn write_reliability(
    out: &mut dyn Write,
    worlds: &[PlayedWorld],
) -> std::io::Result<()> {
    let all: Vec<StatedConfidence> =
        worlds.iter().flat_map(|world| world.confidences.iter().copied()).collect();
    writeln!(out, "{:26} {:>8} {:>6}", "confidence", "findings", "right")?;
    for bin in 0..BINS {
        let (low, high) = (bin as f64 / BINS as f64, (bin + 1) as f64 / BINS as f64);
        let is_in = |confidence: f64| {
            confidence >= low && (confidence < high || (bin + 1 == BINS && confidence <= high))
        };
        let inside: Vec<bool> = all
            .iter()
            .filter(|stated| is_in(stated.confidence))
            .map(|stated| stated.is_right)
            .collect();
        if let Some(right) = share_of(inside.iter().filter(|right| **right).count(), inside.len()) {
            writeln!(
                out,
                "{:26} {:>8} {right:>6.2}",
                format!("{low:.1} to {high:.1}"),
                inside.len()
            )?;
        }
    }
    writeln!(out)?;
    write_reliability_by_kind(out, &all)
}

/// Writes what each kind of finding states, with the share of findings that are right.
fn write_reliability_by_kind(out: &mut dyn Write, all: &[StatedConfidence]) -> std::io::Result<()> {
    let per_cent = |stated: &StatedConfidence| (stated.confidence * 100.0).round() as u32;
    let mut groups: BTreeMap<(FindingKind, u32), Vec<bool>> = BTreeMap::new();
    for stated in all {
        groups.entry((stated.kind, per_cent(stated))).or_default().push(stated.is_right);
    }
    writeln!(out, "{:26} {:>8} {:>6}", "confidence of a kind", "findings", "right")?;
    for ((kind, confidence), rights) in groups {
        let right = rights.iter().filter(|right| **right).count() as f64 / rights.len() as f64;
        let name = format!("{kind} .{confidence}");
        writeln!(out, "{name:26} {:>8} {right:>6.2}", rights.len())?;
    }
    writeln!(out)
}

fn share_of(part: usize, whole: usize) -> Option<f64> {
    round_figure((whole > 0).then(|| part as f64 / whole as f64))
}
