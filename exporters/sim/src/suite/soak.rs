//! The soak: days of a fleet on which faults of every kind begin and heal at random, several at a time, while its jobs
//! write checkpoints.

use gaunt_schema::{Dialect, UnixMs};

use super::{Case, Level, SCENARIOS, Split, happenings};
use crate::{
    Effect, Fault, Fleet, Scenario,
    fleet::Plan,
    noise::Noise,
    page::Told,
    shape::{Boards, JobShape, Shape, Work},
    work::Pace,
};

/// Nodes of the jobs that faults strike; the last has pipeline stages. A node under one leaf works for one job.
const JOBS: [usize; 6] = [32, 16, 16, 16, 16, 8];

/// Nodes of the whole fleet: some serve, some are held idle by a job from the start, the rest is free.
const NODES: usize = 128;

/// Nothing breaks before so much was seen of what is usual.
const FIRST_S: f64 = 1_800.0;

/// Between two faults of one job so much time is healthy at least.
const CALM_S: f64 = 2_400.0;

/// A fault lasts from `SHORTEST_S` to `LONGEST_S`, spread evenly over its logarithm. One that is to be seen within ten
/// minutes lasts at least `QUIET_S`.
const SHORTEST_S: f64 = 600.0;
const QUIET_S: f64 = 3_600.0;
const LONGEST_S: f64 = 36_000.0;

/// A job writes a checkpoint about so often.
const CHECKPOINT_EVERY_S: f64 = 3_600.0;

/// Faults of the suite that a fleet of eight-GPU boxes can have.
fn scenarios() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name).filter(|name| name.starts_with('F'))
}

/// A fleet of 128 nodes for so many days from `start` on; its truths say what is wrong when.
pub fn soak(days: f64, seed: u64, start: UnixMs) -> Fleet {
    let noise = Noise::new(seed).child(77);
    let shape = shape();
    let paces: Vec<Pace> = (0..)
        .zip(&shape.jobs)
        .map(|(at, job)| {
            let drawn = Pace::drawn(noise.child(0).child(at), false);
            Pace { work: job.work, stages: job.stages, ..drawn }
        })
        .collect();
    let mut faults = draw(days * 86_400.0, noise.child(1), &shape, &paces);
    faults.extend(checkpoints(days * 86_400.0, noise.child(2)));
    let scenario = Scenario {
        name: "soak".to_owned(),
        summary: "faults of every kind begin and heal at random".to_owned(),
        faults,
    };
    let told = Told { dialect: Dialect::Gaunt, ..Told::ALL };
    Fleet::of(Plan { scenario, shape, paces, told, worn: false }, seed, start)
}

fn shape() -> Shape {
    let mut jobs = Vec::new();
    let mut next = 0;
    for (at, nodes) in JOBS.into_iter().enumerate() {
        let stages = if at + 1 == JOBS.len() { 4 } else { 1 };
        jobs.push(JobShape {
            nodes: next..next + nodes,
            work: Work::Train,
            stages,
            experts: false,
        });
        next += nodes;
    }
    let serving = next..next + 8;
    jobs.push(JobShape { nodes: serving.clone(), work: Work::Serve, stages: 1, experts: false });
    Shape { boards: Boards::Usual, held: serving.end..serving.end + 2, jobs, ..Shape::usual(NODES) }
}

/// Faults one after the other on each job, every kind in turn; what strikes all jobs waits until nothing else is wrong.
fn draw(seconds: f64, noise: Noise, shape: &Shape, paces: &[Pace]) -> Vec<Fault> {
    let mut faults = Vec::new();
    // When each job is healthy for long enough.
    let mut free = [FIRST_S; JOBS.len()];
    for number in 0.. {
        let noise = noise.child(number);
        let kinds = scenarios().count();
        let scenario = scenarios().nth(number as usize * 7 % kinds).unwrap_or("F1");
        let staged = scenario == "F17";
        let first = |free: &[f64]| (0..free.len()).min_by(|a, b| free[*a].total_cmp(&free[*b]));
        let gang =
            if staged { JOBS.len() - 1 } else { first(&free[..JOBS.len() - 1]).unwrap_or(0) };
        let (effect, lasts) = (effect(scenario, gang, noise, shape, paces), lasts(scenario, noise));
        let everywhere = effect.is_everywhere();
        let ready = if everywhere { free.iter().copied().fold(0.0, f64::max) } else { free[gang] };
        let onset_s = ready + noise.child(3).between(0.0, 1_200.0);
        if onset_s + lasts > seconds {
            return faults;
        }
        let member = noise.child(4).below(1 << 20) as usize;
        faults.push(Fault { onset_s, lasts_s: Some(lasts), gang, member, effect });
        let over = onset_s + lasts + CALM_S;
        if everywhere {
            free = [over; JOBS.len()];
        } else {
            free[gang] = over;
        }
    }
    faults
}

fn effect(
    scenario: &'static str,
    gang: usize,
    noise: Noise,
    shape: &Shape,
    paces: &[Pace],
) -> Effect {
    let level = [Level::Medium, Level::Hard][noise.child(1).below(2) as usize];
    let case = Case {
        scenario,
        level,
        seed: 0,
        // The kind of fault is drawn for the first job of a shape.
        shape: Shape { jobs: vec![shape.jobs[gang].clone()], ..shape.clone() },
        gpm: true,
        labels: true,
        dialect: Dialect::Gaunt,
        seconds: 0,
        split: Split::Tune,
    };
    happenings::fault(&case, noise.child(2), &paces[gang])
}

/// How long a fault lasts.
fn lasts(scenario: &str, noise: Noise) -> f64 {
    let shortest = if scenario == "F16" { QUIET_S } else { SHORTEST_S };
    shortest * (LONGEST_S / shortest).powf(noise.child(5).unit())
}

/// What every training job does now and then.
fn checkpoints(seconds: f64, noise: Noise) -> Vec<Fault> {
    let mut all = Vec::new();
    for gang in 0..JOBS.len() {
        let noise = noise.child(gang as u64);
        let mut onset_s = 600.0 * gang as f64 + 900.0;
        for number in 0.. {
            let noise = noise.child(number);
            onset_s += CHECKPOINT_EVERY_S * noise.child(0).between(0.7, 1.3);
            if onset_s > seconds {
                break;
            }
            let lasts_s = Some(noise.child(1).between(20.0, 90.0));
            let effect = Effect::Checkpoint { spin: noise.child(2).below(2) == 0 };
            all.push(Fault { onset_s, lasts_s, gang, member: 0, effect });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_soak_has_every_kind_of_fault_several_times_and_no_two_on_one_job_at_once() {
        let fleet = soak(7.0, 1, UnixMs(0));
        let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
        for truth in fleet.truths() {
            assert!(truth.ends.is_some(), "it heals: {truth:?}");
            *kinds.entry(truth.kind).or_default() += 1;
        }
        assert!(kinds.len() >= 17 && kinds.values().all(|times| *times >= 4), "{kinds:?}");
        let faults = fleet.scenario().faults.iter();
        let faults: Vec<_> =
            faults.filter(|fault| !matches!(fault.effect, Effect::Checkpoint { .. })).collect();
        for (at, fault) in faults.iter().enumerate() {
            for other in &faults[..at] {
                let shared = fault.gang == other.gang
                    || fault.effect.is_everywhere()
                    || other.effect.is_everywhere();
                let over = other.onset_s + other.lasts_s.unwrap();
                let apart =
                    over < fault.onset_s || fault.onset_s + fault.lasts_s.unwrap() < other.onset_s;
                assert!(!shared || apart, "{other:?} {fault:?}");
            }
        }
    }
}
