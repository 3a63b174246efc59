//! A state that is entered only when samples agree for a while, and left only when they disagree for longer.

use gaunt_schema::{GpuState, UnixMs};

use super::{Thresholds, average::Stamp};

/// The state of one GPU with what speaks for another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    state: GpuState,
    candidate: GpuState,
    candidate_since: Stamp,
    candidate_samples: u8,
    /// When samples began to disagree with the state.
    disagreed: Stamp,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            state: GpuState::Unknown,
            candidate: GpuState::Unknown,
            candidate_since: Stamp::NEVER,
            candidate_samples: 0,
            disagreed: Stamp::NEVER,
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
        let at = Stamp::of(at);
        if verdict == self.state {
            self.disagreed = Stamp::NEVER;
            self.candidate_samples = 0;
            return;
        }
        if verdict != self.candidate || self.candidate_samples == 0 {
            (self.candidate, self.candidate_since, self.candidate_samples) = (verdict, at, 0);
        }
        self.candidate_samples = self.candidate_samples.saturating_add(1);
        if !self.disagreed.is_set() {
            self.disagreed = at;
        }
        let disagreed = self.disagreed;
        let lasted = |since: Stamp, seconds: f64| at.seconds_since(since) >= seconds;
        // What is no judgement need not be disproved.
        let leaves = matches!(self.state, GpuState::Unknown | GpuState::Stale | GpuState::Lost)
            || lasted(disagreed, limits.leave_seconds);
        let enters = u32::from(self.candidate_samples) >= limits.enter_samples.min(u8::MAX.into())
            && lasted(self.candidate_since, limits.enter_seconds);
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
