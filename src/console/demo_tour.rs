//! Tour of the demo: presses keys and says what they show, for two minutes or until the user presses one.

use std::time::Duration;

use gaunt_schema::UnixMs;

use super::key_press::KeyPress;

/// One step of the tour.
struct TourStep {
    /// Seconds after the console opened.
    at: u64,
    /// The keys that it presses.
    keys: &'static [KeyPress],
    /// What is seen then, in at most 78 columns.
    text: &'static str,
}

/// The steps: the faults of the demo have begun before the first one.
const STEPS: [TourStep; 13] = [
    step(1, &[], "tour of 2 minutes; any key ends it. LOST: GPUs lost now, and their price"),
    step(12, &[], "FINDINGS: who is to blame, why, whose job it is, its cost, what to do next"),
    step(24, &[], "TIME: GPUs lost over time, a mark where each finding and each job began"),
    step(42, &[], "GPU TIME and HEAT: what every GPU does now; marked nodes have a finding"),
    step(
        58,
        &[KeyPress::Enter],
        "Enter: since when, what to do next, each number beside its limit",
    ),
    step(
        68,
        &[KeyPress::Char('e')],
        "e: every signal beside its baseline and its peers; what it is not",
    ),
    step(
        78,
        &[KeyPress::Escape, KeyPress::Char('w')],
        "w: the GPUs that wait for this; their state says what for",
    ),
    step(85, &[KeyPress::Char('3')], "3: jobs by GPUs lost, with owner, useful share and power"),
    step(92, &[KeyPress::Enter], "Enter: the job that loses most, and its GPUs that differ"),
    step(
        99,
        &[KeyPress::Char('4')],
        "4: the network, worst leaf first; ✖ ▲ a finding, x a port that is down",
    ),
    step(
        106,
        &[KeyPress::Char('1'), KeyPress::Char('[')],
        "[: back to the previous mark; the whole screen is of that time",
    ),
    step(
        113,
        &[KeyPress::Char('.')],
        ".: now again; ; searches anything by name, : takes commands",
    ),
    step(120, &[], "end of the tour: ? lists the keys of each screen, q quits"),
];

const fn step(at: u64, keys: &'static [KeyPress], text: &'static str) -> TourStep {
    TourStep { at, keys, text }
}

/// A tour in progress.
#[derive(Debug)]
pub(crate) struct DemoTour {
    started: UnixMs,
    /// The next step.
    next: usize,
}

impl DemoTour {
    /// Starts the tour.
    pub(crate) const fn new(started: UnixMs) -> Self {
        Self { started, next: 0 }
    }

    /// Returns the keys and the text of the next step once it is due, and how long the text is shown.
    pub(crate) fn take_due_step(
        &mut self,
        now: UnixMs,
    ) -> Option<(&'static [KeyPress], &'static str, Duration)> {
        let step = STEPS.get(self.next)?;
        if now.duration_since(self.started) < Duration::from_secs(step.at) {
            return None;
        }
        self.next += 1;
        let until = STEPS.get(self.next).map_or(step.at + 10, |next| next.at);
        Some((step.keys, step.text, Duration::from_secs(until - step.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display_text::text_width;

    #[test]
    fn steps_are_in_order_fit_a_line_and_end_after_two_minutes() {
        let mut tour = DemoTour::new(UnixMs(0));
        let mut shown = Vec::new();
        for second in 0..=130 {
            while let Some((_, text, lasts)) = tour.take_due_step(UnixMs(second * 1_000)) {
                assert!(text_width(text) <= 78 && lasts >= Duration::from_secs(7), "{text}");
                shown.push(second);
            }
        }
        assert_eq!((shown.len(), shown.last()), (STEPS.len(), Some(&120)));
    }
}
