//! What a gang is doing at an instant.

use super::{
    activity::JobHabits,
    gang::{GangModel, StepTimes},
    impairment::{JobImpairment, Standstill},
    loader::LoaderQueue,
    noise::Noise,
};
use crate::{
    job_plan::{JobKind, JobPlan, PausePlan},
    random::RandomKey,
};

/// Seconds in which the ranks of a job leave.
pub(super) const ENDING_S: f64 = 4.0;

/// What a gang does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// It has not begun or has ended.
    Absent,
    /// Its ranks leave one after the other: seconds since its end.
    Ending(f64),
    /// It loads its program and data: the share of that which is done.
    Starting(f64),
    /// It trains.
    Training,
    /// It evaluates.
    Evaluating,
    /// It writes a checkpoint.
    Saving {
        /// Whether one rank writes and all others wait.
        is_by_one_rank: bool,
        /// Share of the pause that has passed.
        done: f64,
    },
    /// All ranks wait in a collective.
    Hanging,
    /// Nothing runs.
    Idling,
    /// The other half's turn.
    Resting,
    /// It answers requests.
    Serving,
}

/// A gang.
#[derive(Clone, Debug)]
pub(super) struct GangRun {
    /// The parts of its steps.
    pub(super) model: GangModel,
    /// What it does.
    pub(super) mode: Mode,
    /// The prefetch queue of each of its nodes.
    pub(super) queues: Vec<LoaderQueue>,
    /// Cycles of steps since the start: the fraction is the place in the cycle.
    pub(super) place: f64,
    /// Cycles per second.
    pub(super) cycles_per_s: f64,
    /// Steps of a cycle: those from one network exchange to the next.
    pub(super) cycle_steps: f64,
    /// Steps per second of training.
    pub(super) pace: f64,
    /// The step without waiting for input.
    pub(super) step: StepTimes,
    /// Duration of the step.
    pub(super) total_s: f64,
    /// Noise of the whole gang.
    pub(super) noise: Noise,
}

impl GangRun {
    /// A gang that has not begun.
    pub(super) fn new(model: GangModel, job: &JobPlan, key: RandomKey) -> Self {
        let queue = LoaderQueue::new(job.step.prefetch_s / job.step_s);
        Self {
            queues: vec![queue; model.gang.nodes.len()],
            model,
            mode: Mode::Absent,
            place: key.child("place").uniform(0.0, 1_000.0),
            cycles_per_s: 0.0,
            cycle_steps: job.step.accumulation_steps as f64 + 1.0,
            pace: 0.0,
            step: StepTimes::default(),
            total_s: job.step_s,
            noise: Noise::new(key.child("noise")),
        }
    }

    /// What it does at an instant.
    pub(super) fn mode_at(
        &self,
        t_s: f64,
        job: &JobPlan,
        habits: &JobHabits,
        impairment: &JobImpairment,
    ) -> Mode {
        if !job.runs_s.contains(&t_s) {
            let since_s = t_s - job.runs_s.end;
            let is_ending = (0.0..ENDING_S).contains(&since_s) && job.kind != JobKind::Serve;
            return if is_ending { Mode::Ending(since_s) } else { Mode::Absent };
        }
        match impairment.standstill {
            Some(Standstill::Idle) => return Mode::Idling,
            Some(Standstill::Hang) if job.kind == JobKind::Serve => {}
            Some(Standstill::Hang) => return Mode::Hanging,
            None => {}
        }
        let since_s = t_s - job.runs_s.start;
        if job.kind == JobKind::Idle {
            return Mode::Idling;
        }
        if since_s < habits.startup_s {
            return Mode::Starting(since_s / habits.startup_s);
        }
        if job.kind == JobKind::Serve {
            return Mode::Serving;
        }
        if let Some(pause) = &job.checkpoint
            && let Some(done) = share_of_pause(pause, t_s)
        {
            return Mode::Saving { is_by_one_rank: pause.is_by_one_rank, done };
        }
        if job.evaluation.as_ref().is_some_and(|pause| share_of_pause(pause, t_s).is_some()) {
            return Mode::Evaluating;
        }
        let turn = (t_s / habits.turn_s).floor().rem_euclid(2.0) as usize;
        let alternates = job.kind == JobKind::Alternate && job.nodes.len() > 1;
        if alternates && turn != self.model.gang.half { Mode::Resting } else { Mode::Training }
    }
}

/// The share of a pause that has passed, if there is one at an instant.
fn share_of_pause(pause: &PausePlan, t_s: f64) -> Option<f64> {
    let since_s = t_s - pause.first_s;
    if since_s < 0.0 || pause.lasts_s <= 0.0 {
        return None;
    }
    let since_s = since_s % pause.every_s.max(pause.lasts_s);
    (since_s < pause.lasts_s).then(|| since_s / pause.lasts_s)
}

/// The work of a step relative to the plan.
pub(super) fn work_at(job: &JobPlan, t_s: f64, duration_s: f64) -> f64 {
    let drift = job.work_drift * (t_s / duration_s.max(1.0)).max(0.0);
    let change = job.work_change.filter(|(at_s, _)| t_s >= *at_s).map_or(0.0, |(_, share)| share);
    ((1.0 + drift) * (1.0 + change)).max(0.05)
}
