//! Soak run: days of a fleet in which faults of every kind begin and heal at random, several at a time, while its jobs
//! write checkpoints.

use gaunt_schema::{Dialect, UnixMs};

use super::{FaultLevel, SCENARIOS, SuiteCase, SuiteSplit, timeline};
use crate::{
    FaultEffect, Scenario, SimFault, SimFleet,
    fleet_shape::{FleetShape, GpuModelMix, JobShape, JobWorkload},
    job_workload::JobPace,
    noise_key::NoiseKey,
    report_template::ReportedContent,
    sim_fleet::FleetPlan,
};

/// Nodes of the jobs that get faults; the last one has pipeline stages. All nodes under one leaf work for one job.
const JOBS: [usize; 6] = [32, 16, 16, 16, 16, 8];

/// Nodes of the whole fleet: some serve inference, some are allocated to an idle job from the start, the rest is free.
const NODES: usize = 128;

/// Time without faults at the start, for baselines to settle.
const FIRST_S: f64 = 1_800.0;

/// Minimum healthy time between two faults of one job.
const CALM_S: f64 = 2_400.0;

/// A fault lasts from `SHORTEST_S` to `LONGEST_S`, log-uniformly distributed. One with a detection limit of ten minutes
/// lasts at least `QUIET_S`.
const SHORTEST_S: f64 = 600.0;
const QUIET_S: f64 = 3_600.0;
const LONGEST_S: f64 = 36_000.0;

/// Average interval between checkpoints of a job.
const CHECKPOINT_EVERY_S: f64 = 3_600.0;

/// Suite faults that apply to a fleet of eight-GPU nodes.
fn fault_scenarios() -> impl Iterator<Item = &'static str> {
    SCENARIOS.iter().map(|(name, _)| *name).filter(|name| name.starts_with('F'))
}

/// A fleet of 128 nodes for so many days from `start` on, with the ground truth of its faults.
pub fn soak_fleet(days: f64, seed: u64, start: UnixMs) -> SimFleet {
    let noise = NoiseKey::new(seed).child_key(77);
    let shape = soak_shape();
    let paces: Vec<JobPace> = (0..)
        .zip(&shape.jobs)
        .map(|(index, job)| {
            let pace = JobPace::new_random(noise.child_key(0).child_key(index), false);
            JobPace { work: job.work, stages: job.stages, ..pace }
        })
        .collect();
    let mut faults = draw(days * 86_400.0, noise.child_key(1), &shape, &paces);
    faults.extend(checkpoint_faults(days * 86_400.0, noise.child_key(2)));
    let scenario = Scenario {
        name: "soak".to_owned(),
        summary: "faults of every kind begin and heal at random".to_owned(),
        faults,
    };
    let content = ReportedContent { dialect: Dialect::Gaunt, ..ReportedContent::ALL };
    SimFleet::of(
        FleetPlan { scenario, shape, paces, content, has_saturated_counters: false },
        seed,
        start,
    )
}

fn soak_shape() -> FleetShape {
    let mut jobs = Vec::new();
    let mut next = 0;
    for (index, nodes) in JOBS.into_iter().enumerate() {
        let stages = if index + 1 == JOBS.len() { 4 } else { 1 };
        jobs.push(JobShape {
            nodes: next..next + nodes,
            work: JobWorkload::Train,
            stages,
            experts: false,
        });
        next += nodes;
    }
    let serving = next..next + 8;
    jobs.push(JobShape {
        nodes: serving.clone(),
        work: JobWorkload::Serve,
        stages: 1,
        experts: false,
    });
    FleetShape {
        gpu_models: GpuModelMix::Usual,
        held: serving.end..serving.end + 2,
        jobs,
        ..FleetShape::new_usual(NODES)
    }
}

/// Consecutive faults on each job, every kind in turn; a fault that affects all jobs waits until no other is active.
fn draw(seconds: f64, noise: NoiseKey, shape: &FleetShape, paces: &[JobPace]) -> Vec<SimFault> {
    let mut faults = Vec::new();
    // When each job has been healthy for long enough.
    let mut healthy_since = [FIRST_S; JOBS.len()];
    for number in 0.. {
        let noise = noise.child_key(number);
        let kinds = fault_scenarios().count();
        let scenario = fault_scenarios().nth(number as usize * 7 % kinds).unwrap_or("F1");
        let needs_stages = scenario == "F17";
        let earliest = |healthy_since: &[f64]| {
            (0..healthy_since.len())
                .min_by(|first, second| healthy_since[*first].total_cmp(&healthy_since[*second]))
        };
        let job_index = if needs_stages {
            JOBS.len() - 1
        } else {
            earliest(&healthy_since[..JOBS.len() - 1]).unwrap_or(0)
        };
        let (effect, duration) = (
            random_effect(scenario, job_index, noise, shape, paces),
            random_duration(scenario, noise),
        );
        let is_fleet_wide = effect.is_fleet_effect();
        let free_from = if is_fleet_wide {
            healthy_since.iter().copied().fold(0.0, f64::max)
        } else {
            healthy_since[job_index]
        };
        let onset_s = free_from + noise.child_key(3).random_between(0.0, 1_200.0);
        if onset_s + duration > seconds {
            return faults;
        }
        let member = noise.child_key(4).random_below(1 << 20) as usize;
        faults.push(SimFault { onset_s, lasts_s: Some(duration), gang: job_index, member, effect });
        let healthy_from = onset_s + duration + CALM_S;
        if is_fleet_wide {
            healthy_since = [healthy_from; JOBS.len()];
        } else {
            healthy_since[job_index] = healthy_from;
        }
    }
    faults
}

fn random_effect(
    scenario: &'static str,
    job_index: usize,
    noise: NoiseKey,
    shape: &FleetShape,
    paces: &[JobPace],
) -> FaultEffect {
    let level = [FaultLevel::Medium, FaultLevel::Hard][noise.child_key(1).random_below(2) as usize];
    let case = SuiteCase {
        scenario,
        level,
        seed: 0,
        // The kind of fault is drawn for the first job of a shape.
        shape: FleetShape { jobs: vec![shape.jobs[job_index].clone()], ..shape.clone() },
        gpm: true,
        labels: true,
        dialect: Dialect::Gaunt,
        seconds: 0,
        split: SuiteSplit::Tune,
    };
    timeline::case_effect(&case, noise.child_key(2), &paces[job_index])
}

/// The duration of a fault.
fn random_duration(scenario: &str, noise: NoiseKey) -> f64 {
    let shortest = if scenario == "F16" { QUIET_S } else { SHORTEST_S };
    shortest * (LONGEST_S / shortest).powf(noise.child_key(5).random_unit())
}

/// The checkpoints that every training job writes.
fn checkpoint_faults(seconds: f64, noise: NoiseKey) -> Vec<SimFault> {
    let mut faults = Vec::new();
    for job_index in 0..JOBS.len() {
        let noise = noise.child_key(job_index as u64);
        let mut onset_s = 600.0 * job_index as f64 + 900.0;
        for number in 0.. {
            let noise = noise.child_key(number);
            onset_s += CHECKPOINT_EVERY_S * noise.child_key(0).random_between(0.7, 1.3);
            if onset_s > seconds {
                break;
            }
            let lasts_s = Some(noise.child_key(1).random_between(20.0, 90.0));
            let effect = FaultEffect::Checkpoint { spin: noise.child_key(2).random_below(2) == 0 };
            faults.push(SimFault { onset_s, lasts_s, gang: job_index, member: 0, effect });
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn soak_repeats_every_fault_kind_and_never_two_on_one_job() {
        let fleet = soak_fleet(7.0, 1, UnixMs(0));
        let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
        for truth in fleet.ground_truths() {
            assert!(truth.ends.is_some(), "it heals: {truth:?}");
            *kinds.entry(truth.kind).or_default() += 1;
        }
        assert!(kinds.len() >= 17 && kinds.values().all(|times| *times >= 4), "{kinds:?}");
        let faults = fleet.scenario().faults.iter();
        let faults: Vec<_> = faults
            .filter(|fault| !matches!(fault.effect, FaultEffect::Checkpoint { .. }))
            .collect();
        for (index, fault) in faults.iter().enumerate() {
            for other in &faults[..index] {
                let shared = fault.gang == other.gang
                    || fault.effect.is_fleet_effect()
                    || other.effect.is_fleet_effect();
                let other_end = other.onset_s + other.lasts_s.unwrap();
                let apart = other_end < fault.onset_s
                    || fault.onset_s + fault.lasts_s.unwrap() < other.onset_s;
                assert!(!shared || apart, "{other:?} {fault:?}");
            }
        }
    }
}
