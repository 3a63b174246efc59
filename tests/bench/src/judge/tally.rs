//! The tally: scores of many runs put together into the figures that are published.

use std::time::Duration;

use gaunt_sim::suite::Level;
use serde_json::{Value, json};

use super::score::{Answered, Score};

/// Faults that are found by their effect over time: their time to detect is reported together.
const SOFT: [&str; 12] =
    ["F1", "F2", "F3", "F4", "F5", "F6", "F7", "F9", "F10", "F11", "F12", "F13"];

/// Faults that the hardware states itself: they are to be seen at once.
const HARD: [&str; 2] = ["F8", "F15"];

/// One scored run with what it was.
#[derive(Clone, Debug)]
pub(crate) struct Scored {
    /// `F1` to `F18`, `H1` to `H16`.
    pub(crate) scenario: &'static str,
    /// How strong the fault was.
    pub(crate) level: Level,
    /// Days of GPUs that were watched.
    pub(crate) gpu_days: f64,
    /// What was made of it.
    pub(crate) score: Score,
}

impl Scored {
    /// Whether nothing was wrong in this run.
    pub(crate) fn is_negative(&self) -> bool {
        self.score.answers.is_empty()
    }

    /// Whether a fault is so strong that it counts for the main figures.
    fn is_strong(&self) -> bool {
        self.level > Level::Mild
    }
}

/// Counts of flags and faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Faults.
    pub(crate) faults: usize,
    /// Faults that were found in time.
    pub(crate) found: usize,
    /// Of these, those for which the first word blamed rightly.
    pub(crate) blamed: usize,
    /// False flags.
    pub(crate) false_flags: usize,
}

impl Counts {
    /// The counts of these runs.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = &'a Scored>) -> Self {
        let mut counts = Self::default();
        for run in runs {
            let found = || run.score.answers.iter().filter_map(Answered::in_time);
            counts.faults += run.score.answers.len();
            counts.found += found().count();
            counts.blamed += found().filter(|found| found.blamed).count();
            counts.false_flags += run.score.false_flags.len();
        }
        counts
    }

    /// The share of flags that answer a fault; none without a flag.
    pub(crate) fn precision(self) -> Option<f64> {
        share(self.found, self.found + self.false_flags)
    }

    /// The share of faults that were found; none without a fault.
    pub(crate) fn recall(self) -> Option<f64> {
        share(self.found, self.faults)
    }

    /// The harmonic mean of both: every miss and every false flag weighs half of a hit.
    pub(crate) fn f1(self) -> Option<f64> {
        share(2 * self.found, self.found + self.false_flags + self.faults)
    }

    /// The share of found faults whose first flag blamed rightly.
    pub(crate) fn blame(self) -> Option<f64> {
        share(self.blamed, self.found)
    }
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Seconds from onset to the first right flag of these runs, late ones as well, shortest first.
pub(crate) fn delays<'a>(runs: impl IntoIterator<Item = &'a Scored>) -> Vec<f64> {
    let answers = runs.into_iter().flat_map(|run| &run.score.answers);
    let mut delays: Vec<f64> =
        answers.filter_map(|answer| Some(answer.found?.after.as_secs_f64())).collect();
    delays.sort_by(f64::total_cmp);
    delays
}

/// How much later than its limit each fault was found, in seconds, negative if earlier; smallest first.
fn over_limits<'a>(runs: impl IntoIterator<Item = &'a Scored>) -> Vec<f64> {
    let answers = runs.into_iter().flat_map(|run| &run.score.answers);
    let seconds = Duration::as_secs_f64;
    let mut over: Vec<f64> = answers
        .filter_map(|answer| Some(seconds(&answer.found?.after) - seconds(&answer.limit)))
        .collect();
    over.sort_by(f64::total_cmp);
    over
}

/// The value below which this share of sorted values lies (nearest rank); none without values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// The published figures of these runs; what cannot be said without data is null.
pub(crate) fn figures(runs: &[Scored]) -> Value {
    let faults = || runs.iter().filter(|run| !run.is_negative());
    let of = |scenarios: &'static [&str]| {
        delays(faults().filter(|run| scenarios.contains(&run.scenario)))
    };
    let strong = Counts::of(faults().filter(|run| run.is_strong()));
    let mild = Counts::of(faults().filter(|run| !run.is_strong()));
    let (soft, hard, over) = (of(&SOFT), of(&HARD), over_limits(faults()));
    let never = faults().flat_map(|run| &run.score.answers).filter(|answer| answer.found.is_none());
    json!({
        "precision": rounded(strong.precision()),
        "recall": rounded(strong.recall()),
        "f1": rounded(strong.f1()),
        "f1_mild": rounded(mild.f1()),
        "blame_top1": rounded(strong.blame()),
        "ttd_median_s": rounded(quantile(&soft, 0.5)),
        "ttd_p95_s": rounded(quantile(&soft, 0.95)),
        "ttd_hard_median_s": rounded(quantile(&hard, 0.5)),
        "ttd_over_limit_p95": rounded(quantile(&over, 0.95)),
        "faults": strong.faults + mild.faults,
        "never_found": never.count(),
    })
}

/// What was said where nothing was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Peace {
    /// Runs.
    pub(crate) runs: usize,
    /// Runs in which a flag was raised.
    pub(crate) flagged: usize,
    /// Critical findings.
    pub(crate) pages: u32,
    /// Days of GPUs.
    pub(crate) gpu_days: f64,
}

impl Peace {
    /// The counts of these runs.
    pub(crate) fn of<'a>(runs: impl IntoIterator<Item = &'a Scored>) -> Self {
        let mut peace = Self::default();
        for run in runs.into_iter().filter(|run| run.is_negative()) {
            peace.runs += 1;
            peace.flagged += usize::from(!run.score.false_flags.is_empty());
            peace.pages += run.score.false_pages;
            peace.gpu_days += run.gpu_days;
        }
        peace
    }

    /// The share of runs in which a flag was raised; none without a run.
    pub(crate) fn rate(&self) -> Option<f64> {
        share(self.flagged, self.runs)
    }

    /// Critical findings in a thousand days of a GPU; none without a day.
    pub(crate) fn pages_per_1000_gpu_days(&self) -> Option<f64> {
        (self.gpu_days > 0.0).then(|| f64::from(self.pages) * 1e3 / self.gpu_days)
    }
}

/// Four digits after the point say more than any sample of runs can.
pub(crate) fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use gaunt_schema::FindingKind;

    use super::*;
    use crate::judge::score::Found;

    fn run(scenario: &'static str, level: Level, after: Option<u64>, false_flags: usize) -> Scored {
        let kind = FindingKind::DataStarved;
        let found = after.map(Duration::from_secs).map(|after| Found { after, blamed: true, kind });
        let limit = Duration::from_secs(30);
        let answer = Answered { kind, limit, found, misnamed: None };
        let answers = if scenario.starts_with('F') { vec![answer] } else { Vec::new() };
        let pages = false_flags as u32;
        let score = Score { answers, false_flags: vec![kind; false_flags], false_pages: pages };
        Scored { scenario, level, gpu_days: 250.0, score }
    }

    #[test]
    fn the_figures_are_those_of_the_counts() {
        use Level::{Hard, Medium, Mild};
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
        let figures = figures(&runs);
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
        let peace = Peace::of(&runs);
        assert_eq!((peace.rate(), peace.pages_per_1000_gpu_days()), (Some(0.5), Some(4.0)));
    }

    #[test]
    fn what_cannot_be_said_is_null() {
        let figures = figures(&[]);
        for name in ["precision", "recall", "f1", "ttd_median_s", "ttd_over_limit_p95"] {
            assert_eq!(figures[name], Value::Null, "{name}");
        }
        assert_eq!(Peace::of(&[]).rate(), None);
    }

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let at = |share| quantile(&values, share).unwrap();
        assert_eq!((at(0.0), at(0.5), at(0.95), at(1.0)), (1.0, 10.0, 19.0, 20.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
