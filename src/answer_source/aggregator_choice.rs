//! Aggregator choice: which of several equal aggregators is asked, and the move to another when it does not answer.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::watch;

/// The most aggregators in one address.
pub(super) const MAX_AGGREGATORS: usize = 8;

/// An answer that takes longer is a reason to ask whether the aggregator is alive.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The time in which an aggregator that is alive says so. Together with the patience it is less than two seconds.
pub(super) const ALIVE_WITHIN: Duration = Duration::from_millis(700);

/// The time between two such questions while streams are followed: a host that is gone ends no stream.
pub(super) const ALIVE_EVERY: Duration = Duration::from_millis(500);

/// Reports a move in one line.
pub type AggregatorReportFn = Arc<dyn Fn(&str) + Send + Sync>;

/// The chosen one; it stays until it fails.
#[derive(Clone, Debug, Default)]
struct ChosenAggregator {
    /// Its position in the address.
    position: usize,
    /// Number of moves so far.
    moves: u64,
    /// The last move in words.
    notice: Arc<str>,
}

/// The choice, shared by all copies of a client.
#[derive(Clone)]
pub(super) struct AggregatorChoice {
    chosen: Arc<watch::Sender<ChosenAggregator>>,
    report: Option<AggregatorReportFn>,
}

impl fmt::Debug for AggregatorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AggregatorChoice").field(&*self.chosen.borrow()).finish()
    }
}

impl Default for AggregatorChoice {
    fn default() -> Self {
        Self { chosen: Arc::new(watch::Sender::default()), report: None }
    }
}

impl AggregatorChoice {
    /// The same choice with a report of each move.
    pub(super) fn with_report(self, report: Option<AggregatorReportFn>) -> Self {
        Self { report, ..self }
    }

    /// Position of the chosen one.
    pub(super) fn position(&self) -> usize {
        self.chosen.borrow().position
    }

    /// Number of moves, and the last one in words; none before the first.
    pub(super) fn last_move(&self) -> Option<(u64, Arc<str>)> {
        let chosen = self.chosen.borrow();
        (chosen.moves > 0).then(|| (chosen.moves, chosen.notice.clone()))
    }

    /// Moves from one position to another, unless that happened already.
    pub(super) fn move_to(&self, from: usize, to: usize, notice: &str) {
        let is_moved = self.chosen.send_if_modified(|chosen| {
            let is_current = chosen.position == from;
            if is_current {
                let moves = chosen.moves + 1;
                *chosen = ChosenAggregator { position: to, moves, notice: notice.into() };
            }
            is_current
        });
        if let Some(report) = self.report.as_ref().filter(|_| is_moved) {
            report(notice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_of_two_failures_moves_and_is_reported_once() {
        let (sender, reports) = std::sync::mpsc::channel();
        let report: AggregatorReportFn =
            Arc::new(move |notice| sender.send(notice.to_owned()).unwrap());
        let choice = AggregatorChoice::default().with_report(Some(report));
        assert_eq!((choice.position(), choice.last_move()), (0, None));
        choice.move_to(0, 1, "a is gone");
        choice.clone().move_to(0, 1, "a is gone, too");
        assert_eq!((choice.position(), choice.last_move()), (1, Some((1, "a is gone".into()))));
        choice.move_to(1, 0, "b is gone");
        assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["a is gone", "b is gone"]);
    }

    #[test]
    fn move_takes_less_than_two_seconds() {
        assert!(PATIENCE + ALIVE_WITHIN < Duration::from_secs(2));
        assert!(ALIVE_EVERY + ALIVE_WITHIN + ALIVE_WITHIN < Duration::from_secs(2));
    }
}
