//! Totals of the scores of many runs: the published figures.

use std::time::Duration;

use gaunt_sim::suite::FaultLevel;
use serde_json::{Value, json};

use super::run_score::{FaultAnswer, RunScore};

/// Faults that are found by their effect over time: their detection time is reported together.
const SOFT: [&str; 12] =
    ["F1", "F2", "F3", "F4", "F5", "F6", "F7", "F9", "F10", "F11", "F12", "F13"];

/// Faults that the hardware reports itself: they are detected at once.
const HARD: [&str; 2] = ["F8", "F15"];

/// One scored run with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct ScoredRun {
    /// `F1` to `F19`, `H1` to `H16`.
    pub(crate) scenario: &'static str,
    /// Severity level of the fault.
    pub(crate) level: FaultLevel,
    /// Observed GPU-days.
    pub(crate) gpu_days: f64,
    /// Its score.
    pub(crate) score: RunScore,
}

impl ScoredRun {
    /// Whether nothing was wrong in this run.
    pub(crate) fn is_negative(&self) -> bool {
        self.score.answers.is_empty()
    }

    /// Whether a fault is strong enough to count for the main figures.
    fn is_strong(&self) -> bool {
        self.level > FaultLevel::Mild
    }
}

/// Counts of flags and faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlagCounts {
    /// Faults.
    pub(crate) faults: usize,
    /// Faults that were found in time.
    pub(crate) found: usize,
    /// Of these, those whose first flag blamed the right entity.
    pub(crate) blamed: usize,
    /// False flags.
    pub(crate) false_flags: usize,
}

impl FlagCounts {
    /// The counts of these runs.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = &'a ScoredRun>) -> Self {
        let mut counts = Self::default();
        for run in runs {
            let found = || run.score.answers.iter().filter_map(FaultAnswer::in_time);
            counts.faults += run.score.answers.len();
            counts.found += found().count();
            counts.blamed += found().filter(|found| found.is_blame_right).count();
            counts.false_flags += run.score.false_flags.len();
        }
        counts
    }

    /// The share of flags that answer a fault; none without a flag.
    pub(crate) fn precision(self) -> Option<f64> {
        share_of(self.found, self.found + self.false_flags)
    }

    /// The share of faults that were found; none without a fault.
    pub(crate) fn recall(self) -> Option<f64> {
        share_of(self.found, self.faults)
    }

    /// The harmonic mean of both: every miss and every false flag weighs half of a hit.
    pub(crate) fn f1_score(self) -> Option<f64> {
        share_of(2 * self.found, self.found + self.false_flags + self.faults)
    }

    /// The share of found faults whose first flag blamed the right entity.
    pub(crate) fn blame_accuracy(self) -> Option<f64> {
        share_of(self.blamed, self.found)
    }
}

fn share_of(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Seconds from onset to the first right flag of these runs, late ones included, shortest first.
pub(crate) fn detection_delays<'a>(runs: impl IntoIterator<Item = &'a ScoredRun>) -> Vec<f64> {
    let answers = runs.into_iter().flat_map(|run| &run.score.answers);
    let mut delays: Vec<f64> =
        answers.filter_map(|answer| Some(answer.flag?.delay.as_secs_f64())).collect();
    delays.sort_by(f64::total_cmp);
    delays
}

/// Detection time minus limit of each fault in seconds, negative if earlier; smallest first.
fn over_limits<'a>(runs: impl IntoIterator<Item = &'a ScoredRun>) -> Vec<f64> {
    let answers = runs.into_iter().flat_map(|run| &run.score.answers);
    let seconds = Duration::as_secs_f64;
    let mut over: Vec<f64> = answers
        .filter_map(|answer| Some(seconds(&answer.flag?.delay) - seconds(&answer.limit)))
        .collect();
    over.sort_by(f64::total_cmp);
    over
}

/// The value below which this share of sorted values lies (nearest rank); none without values.
pub(crate) fn quantile_of(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The published figures of these runs; null where there is no data.
pub(crate) fn compute_figures(runs: &[ScoredRun]) -> Value {
    let faults = || runs.iter().filter(|run| !run.is_negative());
    let delays_of = |scenarios: &'static [&str]| {
        detection_delays(faults().filter(|run| scenarios.contains(&run.scenario)))
    };
    let strong = FlagCounts::of(faults().filter(|run| run.is_strong()));
    let mild = FlagCounts::of(faults().filter(|run| !run.is_strong()));
    let (soft, hard, over) = (delays_of(&SOFT), delays_of(&HARD), over_limits(faults()));
    let unanswered =
        faults().flat_map(|run| &run.score.answers).filter(|answer| answer.flag.is_none());
    json!({
        "precision": round_figure(strong.precision()),
        "recall": round_figure(strong.recall()),
        "f1": round_figure(strong.f1_score()),
        "f1_mild": round_figure(mild.f1_score()),
        "blame_top1": round_figure(strong.blame_accuracy()),
        "ttd_median_s": round_figure(quantile_of(&soft, 0.5)),
        "ttd_p95_s": round_figure(quantile_of(&soft, 0.95)),
        "ttd_hard_median_s": round_figure(quantile_of(&hard, 0.5)),
        "ttd_over_limit_p95": round_figure(quantile_of(&over, 0.95)),
        "faults": strong.faults + mild.faults,
        "never_found": unanswered.count(),
    })
}

/// Findings in runs without faults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FaultFreeCounts {
    /// Runs.
    pub(crate) runs: usize,
    /// Runs in which a flag was raised.
    pub(crate) flagged: usize,
    /// Critical findings.
    pub(crate) pages: u32,
    /// GPU-days.
    pub(crate) gpu_days: f64,
}

impl FaultFreeCounts {
    /// The counts of these runs.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = &'a ScoredRun>) -> Self {
        let mut counts = Self::default();
        for run in runs.into_iter().filter(|run| run.is_negative()) {
            counts.runs += 1;
            counts.flagged += usize::from(!run.score.false_flags.is_empty());
            counts.pages += run.score.false_pages;
            counts.gpu_days += run.gpu_days;
        }
        counts
    }

    /// The share of runs in which a flag was raised; none without a run.
    pub(crate) fn flag_rate(&self) -> Option<f64> {
        share_of(self.flagged, self.runs)
    }

    /// Critical findings per 1,000 GPU-days; none without a day.
    pub(crate) fn pages_per_1000_gpu_days(&self) -> Option<f64> {
        (self.gpu_days > 0.0).then(|| f64::from(self.pages) * 1e3 / self.gpu_days)
    }
}

/// Rounds to four decimals, which exceeds the precision of any sample of runs.
pub(crate) fn round_figure(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use gaunt_schema::FindingKind;

    use super::*;
    use crate::judge_bench::run_score::AnsweringFlag;

    fn run(
        scenario: &'static str,
        level: FaultLevel,
        after: Option<u64>,
        false_flags: usize,
    ) -> ScoredRun {
        let kind = FindingKind::DataStarved;
        let found = after.map(Duration::from_secs).map(|after| AnsweringFlag {
            delay: after,
            is_blame_right: true,
            kind,
        });
        let limit = Duration::from_secs(30);
        let answer = FaultAnswer { kind, limit, flag: found, misnamed: None };
        let answers = if scenario.starts_with('F') { vec![answer] } else { Vec::new() };
        let pages = false_flags as u32;
        let score = RunScore { answers, false_flags: vec![kind; false_flags], false_pages: pages };
        ScoredRun { scenario, level, gpu_days: 250.0, score }
    }

    #[test]
    fn figures_equal_those_of_the_counts() {
        use FaultLevel::{Hard, Medium, Mild};
        let runs = [
            run("F1", Hard, Some(10), 0),
            run("F1", Medium, Some(40), 1),
            run("F2", Medium, Some(20), 0),
            run("F3", Medium, None, 0),
            run("F8", Hard, Some(2), 0),
            run("F1", Mild, None, 2),
            run("H1", Hard, None, 0),
            run("H2", Hard, None, 2),
        ];
        let figures = compute_figures(&runs);
        // Five strong faults, three found in time, one false flag.
        let expected = [
            ("precision", 0.75),
            ("recall", 0.6),
            ("f1", 0.6667),
            ("f1_mild", 0.0),
            ("blame_top1", 1.0),
            ("ttd_median_s", 20.0),
            ("ttd_p95_s", 40.0),
            ("ttd_hard_median_s", 2.0),
            ("ttd_over_limit_p95", 10.0),
        ];
        for (name, value) in expected {
            assert_eq!(figures[name], value, "{name}");
        }
        assert_eq!((&figures["faults"], &figures["never_found"]), (&json!(6), &json!(2)));
        let counts = FaultFreeCounts::of(&runs);
        assert_eq!((counts.flag_rate(), counts.pages_per_1000_gpu_days()), (Some(0.5), Some(4.0)));
    }

    #[test]
    fn figures_without_data_are_null() {
        let figures = compute_figures(&[]);
        for name in ["precision", "recall", "f1", "ttd_median_s", "ttd_over_limit_p95"] {
            assert_eq!(figures[name], Value::Null, "{name}");
        }
        assert_eq!(FaultFreeCounts::of(&[]).flag_rate(), None);
    }

    #[test]
    fn quantile_is_the_nearest_rank() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let quantile = |share| quantile_of(&values, share).unwrap();
        assert_eq!(
            (quantile(0.0), quantile(0.5), quantile(0.95), quantile(1.0)),
            (1.0, 10.0, 19.0, 20.0)
        );
        assert_eq!(quantile_of(&[], 0.5), None);
    }
}
