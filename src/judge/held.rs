//! A state that is entered only when samples agree for a while, and left only when they disagree for longer.

use gaunt_schema::{GpuState, UnixMs};

use super::Thresholds;

/// Samples that must agree, however far they are apart.
const SAMPLES: u32 = 2;

/// The state of one GPU with what speaks for another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    state: GpuState,
    candidate: GpuState,
    candidate_since: UnixMs,
    candidate_samples: u32,
    /// When samples began to disagree with the state.
    disagreed: Option<UnixMs>,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            state: GpuState::Unknown,
            candidate: GpuState::Unknown,
            candidate_since: UnixMs::default(),
            candidate_samples: 0,
            disagreed: None,
        }
    }
}

impl Held {
    /// The state that holds.
    pub(super) fn state(&self) -> GpuState {
        self.state
    }

    /// Sets a state that is a fact and needs no agreement.
    pub(super) fn set(&mut self, state: GpuState) {
        if self.state != state {
            *self = Self { state, ..Self::default() };
        }
    }

    /// Takes the verdict on one sample.
    pub(super) fn see(&mut self, verdict: GpuState, at: UnixMs, limits: &Thresholds) {
        if verdict == self.state {
            self.disagreed = None;
            self.candidate_samples = 0;
            return;
        }
        if verdict != self.candidate || self.candidate_samples == 0 {
            (self.candidate, self.candidate_since, self.candidate_samples) = (verdict, at, 0);
        }
        self.candidate_samples += 1;
        let disagreed = *self.disagreed.get_or_insert(at);
        let lasted = |since: UnixMs, seconds: f64| at.since(since).as_secs_f64() >= seconds;
        // What is no judgement need not be disproved.
        let leaves = matches!(self.state, GpuState::Unknown | GpuState::Stale | GpuState::Lost)
            || lasted(disagreed, limits.leave_seconds);
        let enters =
            self.candidate_samples >= SAMPLES && lasted(self.candidate_since, limits.enter_seconds);
        if leaves && enters {
            self.set(verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use GpuState::{Computing, Stale, Unknown, Waiting};

    use super::*;

    /// The state after each verdict, one a second.
    fn states(verdicts: impl IntoIterator<Item = GpuState>) -> Vec<GpuState> {
        let (mut held, limits) = (Held::default(), Thresholds::default());
        let see = |(second, verdict)| {
            held.see(verdict, UnixMs(second * 1_000), &limits);
            held.state()
        };
        (0_i64..).zip(verdicts).map(see).collect()
    }

    #[test]
    fn the_first_verdict_needs_five_seconds_of_agreement() {
        let states = states([Computing; 7]);
        assert_eq!(states, [Unknown, Unknown, Unknown, Unknown, Unknown, Computing, Computing]);
    }

    #[test]
    fn leaving_takes_ten_seconds() {
        let (mut held, limits) = (Held::default(), Thresholds::default());
        for second in 0..30 {
            let verdict = if second < 10 { Computing } else { Waiting };
            held.see(verdict, UnixMs(second * 1_000), &limits);
            assert_eq!(held.state() == Waiting, second >= 20, "second {second}");
        }
    }

    #[test]
    fn one_odd_sample_changes_nothing() {
        let mut verdicts = vec![Computing; 40];
        for odd in (7..40).step_by(5) {
            verdicts[odd] = Waiting;
        }
        assert!(states(verdicts)[5..].iter().all(|state| *state == Computing));
    }

    #[test]
    fn two_samples_are_enough_at_a_long_period() {
        let (mut held, limits) = (Held::default(), Thresholds::default());
        held.see(Computing, UnixMs(0), &limits);
        assert_eq!(held.state(), Unknown);
        held.see(Computing, UnixMs(10_000), &limits);
        assert_eq!(held.state(), Computing);
    }

    #[test]
    fn facts_hold_at_once() {
        let (mut held, limits) = (Held::default(), Thresholds::default());
        held.set(Stale);
        assert_eq!(held.state(), Stale);
        for second in 1..=6 {
            held.see(Computing, UnixMs(second * 1_000), &limits);
        }
        assert_eq!(held.state(), Computing);
    }
}
