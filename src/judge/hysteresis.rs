//! State hysteresis: a state is entered only when samples agree for a while, and left only when they disagree for
//! longer.

use gaunt_schema::{GpuState, UnixMs};

use super::{Thresholds, moving_average::CompactTimestamp};

/// The state of one GPU, with the candidate for the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateHysteresis {
    state: GpuState,
    candidate: GpuState,
    candidate_since: CompactTimestamp,
    candidate_samples: u8,
    /// When samples began to disagree with the state.
    disagreed: CompactTimestamp,
}

impl Default for StateHysteresis {
    fn default() -> Self {
        Self {
            state: GpuState::Unknown,
            candidate: GpuState::Unknown,
            candidate_since: CompactTimestamp::NEVER,
            candidate_samples: 0,
            disagreed: CompactTimestamp::NEVER,
        }
    }
}

impl StateHysteresis {
    /// Returns the present state.
    pub(super) fn current_state(&self) -> GpuState {
        self.state
    }

    /// Sets a reported state, which needs no agreement of samples.
    pub(super) fn force_state(&mut self, state: GpuState) {
        if self.state != state {
            *self = Self { state, ..Self::default() };
        }
    }

    /// Applies the verdict of one sample.
    pub(super) fn observe_verdict(&mut self, verdict: GpuState, at: UnixMs, limits: &Thresholds) {
        let at = CompactTimestamp::of(at);
        if verdict == self.state {
            self.disagreed = CompactTimestamp::NEVER;
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
        let lasted = |since: CompactTimestamp, seconds: f64| at.seconds_since(since) >= seconds;
        // States without a verdict need no disagreement to be left.
        let leaves = matches!(self.state, GpuState::Unknown | GpuState::Stale | GpuState::Lost)
            || lasted(disagreed, limits.leave_seconds);
        let enters = u32::from(self.candidate_samples)
            >= limits.confirming_samples.min(u8::MAX.into())
            && lasted(self.candidate_since, limits.enter_seconds);
        if leaves && enters {
            self.force_state(verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use GpuState::{Computing, Stale, Unknown, Waiting};

    use super::*;

    /// The state after each verdict, one a second.
    fn states_after(verdicts: impl IntoIterator<Item = GpuState>) -> Vec<GpuState> {
        let (mut hysteresis, limits) = (StateHysteresis::default(), Thresholds::default());
        let see = |(second, verdict)| {
            hysteresis.observe_verdict(verdict, UnixMs(second * 1_000), &limits);
            hysteresis.current_state()
        };
        (0_i64..).zip(verdicts).map(see).collect()
    }

    #[test]
    fn first_verdict_needs_five_seconds_of_agreement() {
        let states = states_after([Computing; 7]);
        assert_eq!(states, [Unknown, Unknown, Unknown, Unknown, Unknown, Computing, Computing]);
    }

    #[test]
    fn state_is_left_after_ten_seconds() {
        let (mut hysteresis, limits) = (StateHysteresis::default(), Thresholds::default());
        for second in 0..30 {
            let verdict = if second < 10 { Computing } else { Waiting };
            hysteresis.observe_verdict(verdict, UnixMs(second * 1_000), &limits);
            assert_eq!(hysteresis.current_state() == Waiting, second >= 20, "second {second}");
        }
    }

    #[test]
    fn state_ignores_one_outlier() {
        let mut verdicts = vec![Computing; 40];
        for odd in (7..40).step_by(5) {
            verdicts[odd] = Waiting;
        }
        assert!(states_after(verdicts)[5..].iter().all(|state| *state == Computing));
    }

    #[test]
    fn state_changes_after_two_samples_at_a_long_period() {
        let (mut hysteresis, limits) = (StateHysteresis::default(), Thresholds::default());
        hysteresis.observe_verdict(Computing, UnixMs(0), &limits);
        assert_eq!(hysteresis.current_state(), Unknown);
        hysteresis.observe_verdict(Computing, UnixMs(10_000), &limits);
        assert_eq!(hysteresis.current_state(), Computing);
    }

    #[test]
    fn state_of_a_fact_holds_at_once() {
        let (mut hysteresis, limits) = (StateHysteresis::default(), Thresholds::default());
        hysteresis.force_state(Stale);
        assert_eq!(hysteresis.current_state(), Stale);
        for second in 1..=6 {
            hysteresis.observe_verdict(Computing, UnixMs(second * 1_000), &limits);
        }
        assert_eq!(hysteresis.current_state(), Computing);
    }
}
