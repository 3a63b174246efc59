//! Timeline of a case: its fault at the severity of its level, or the harmless look-alike.

use super::{CALM, FaultLevel, SuiteCase, SuiteSplit};
use crate::{
    FaultEffect, SimFault, gpu_activity::TRADED, job_workload::JobPace, noise_key::NoiseKey,
};

/// The events of a case with these jobs; at least one.
pub(super) fn draw(case: &SuiteCase, noise: NoiseKey, paces: &[JobPace]) -> Vec<SimFault> {
    let mut faults = match case.scenario {
        CALM => calm_faults(noise),
        scenario if scenario.starts_with('F') => {
            let onset_s = noise.child_key(0).random_between(90.0, 180.0);
            let member = noise.child_key(1).random_below(1 << 20) as usize;
            let effect = case_effect(case, noise, &paces[0]);
            vec![SimFault { onset_s, lasts_s: None, gang: 0, member, effect }]
        }
        _ => harmless_faults(case, noise),
    };
    // While one job has a fault, another writes a checkpoint at intervals.
    if case.scenario.starts_with('F') && noise.child_key(8).random_below(3) == 0 {
        let onset = noise.child_key(9).random_between(30.0, 240.0);
        let duration = noise.child_key(10).random_between(20.0, 40.0);
        faults.push(job_fault(
            1,
            onset,
            duration,
            FaultEffect::Checkpoint { spin: noise.child_key(11).random_below(2) == 0 },
        ));
    }
    faults
}

/// An event that concerns a whole job for a while.
fn job_fault(job_index: usize, onset_s: f64, lasts_s: f64, effect: FaultEffect) -> SimFault {
    SimFault { onset_s, lasts_s: Some(lasts_s), gang: job_index, member: 0, effect }
}

/// The share of throughput that a fault costs.
fn throughput_loss(case: &SuiteCase, noise: NoiseKey) -> f64 {
    let (low, high) = match (case.split, case.level) {
        (SuiteSplit::Tune, FaultLevel::Mild) => (0.13, 0.155),
        (SuiteSplit::Tune, FaultLevel::Medium) => (0.27, 0.32),
        (SuiteSplit::Tune, FaultLevel::Hard) => (0.55, 0.62),
        (SuiteSplit::Test, FaultLevel::Mild) => (0.155, 0.18),
        (SuiteSplit::Test, FaultLevel::Medium) => (0.32, 0.36),
        (SuiteSplit::Test, FaultLevel::Hard) => (0.62, 0.68),
    };
    noise.child_key(2).random_between(low, high)
}

/// The fault of a case in a job with this step timing: as severe as the target step time requires.
pub(super) fn case_effect(case: &SuiteCase, noise: NoiseKey, pace: &JobPace) -> FaultEffect {
    let level = case.level as usize;
    let step = pace.step_s();
    let batch_s = step / (1.0 - throughput_loss(case, noise));
    let extra = batch_s - step;
    let clock = pace.compute_s / (pace.compute_s + extra);
    let network = 1.0 + extra / pace.communicate_s;
    let rail = noise.child_key(3).random_below(case.shape.rails as u64) as usize;
    let gpu = noise.child_key(4).random_below(case.shape.gpus as u64) as usize;
    let variant = noise.child_key(5).random_below(2) == 0;
    match case.scenario {
        "F1" => FaultEffect::DataStarved { batch_s, by_cpu: variant },
        "F2" => FaultEffect::StorageSlow { batch_s },
        "F3" => FaultEffect::SlowGpu { gpu, clock },
        "F4" => FaultEffect::Throttled { gpu, clock },
        "F5" => FaultEffect::LaunchBound { duty: clock, gpu: variant.then_some(gpu) },
        "F6" => FaultEffect::PcieSlow { gpu, factor: 1.0 + extra / pace.copy_s, replays: variant },
        "F7" => FaultEffect::NvlinkSlow { gpu, factor: 1.0 + extra / (pace.compute_s * TRADED) },
        "F8" => FaultEffect::PortDown { rail },
        "F9" => FaultEffect::RateLow { rail, factor: [2.0, 2.0, 4.0][level] },
        "F10" => {
            let errors = [3.0, 30.0, 200.0][level] * noise.child_key(6).random_between(0.7, 1.4);
            FaultEffect::LinkErrors { rail, factor: 1.0 + 0.5 * (network - 1.0), errors }
        }
        "F11" => FaultEffect::LeafCongested { rail, factor: network },
        "F12" => FaultEffect::RailSlow { rail, factor: network },
        "F13" => FaultEffect::HostBlocks { factor: network },
        "F14" => FaultEffect::Hang { odd: variant },
        "F15" => FaultEffect::GpuLost { gpu, ecc: variant },
        "F16" => FaultEffect::Idle,
        "F17" => {
            let stage = noise.child_key(6).random_below(case.shape.jobs[0].stages as u64) as usize;
            FaultEffect::StageImbalance { stage, factor: 1.0 / clock }
        }
        "F19" => {
            let every_s = noise.child_key(6).random_between(80.0, 160.0);
            FaultEffect::CrashLoop { every_s, lost_share: [0.14, 0.295, 0.585][level] }
        }
        _ => FaultEffect::Skew { factor: 1.0 / clock },
    }
}

/// The harmless look-alikes, with the severity of the level.
fn harmless_faults(case: &SuiteCase, noise: NoiseKey) -> Vec<SimFault> {
    let level = case.level as usize;
    let onset_s = noise.child_key(0).random_between(100.0, 200.0);
    let random = noise.child_key(1).random_unit();
    let spin = noise.child_key(2).random_below(2) == 0;
    let forever = f64::INFINITY;
    let permanent_fault = |effect| vec![job_fault(0, 0.0, forever, effect)];
    match case.scenario {
        "H1" => {
            let duration = [20.0, 50.0, 90.0][level] + 30.0 * random;
            let pause = FaultEffect::Checkpoint { spin };
            vec![
                job_fault(0, onset_s, duration, pause),
                job_fault(0, onset_s + 310.0, duration * 0.95, pause),
                job_fault(
                    1,
                    onset_s * 0.6,
                    duration * 0.5,
                    FaultEffect::Checkpoint { spin: !spin },
                ),
            ]
        }
        "H2" => {
            vec![job_fault(
                0,
                onset_s,
                [60.0, 150.0, 300.0][level] + 30.0 * random,
                FaultEffect::Evaluate,
            )]
        }
        "H3" => vec![
            job_fault(0, 0.0, onset_s, FaultEffect::Absent),
            job_fault(0, onset_s, [60.0, 120.0, 180.0][level] + 30.0 * random, FaultEffect::Start),
        ],
        "H4" => vec![job_fault(0, onset_s, forever, FaultEffect::End)],
        "H5" => {
            let stage = noise.child_key(3).random_below(4) as usize;
            permanent_fault(FaultEffect::StageImbalance {
                stage,
                factor: [1.08, 1.15, 1.25][level],
            })
        }
        "H8" => drained_faults(onset_s, level),
        "H9" => {
            let cap = FaultEffect::PowerCap { clock: [0.9, 0.8, 0.65][level] };
            vec![job_fault(0, if spin { 0.0 } else { onset_s }, forever, cap)]
        }
        "H10" => (0..=level)
            .map(|count| node_fault(noise, count, onset_s, FaultEffect::CounterReset))
            .collect(),
        "H11" => (0..1 << level)
            .flat_map(|count| {
                let failed_scrapes = node_fault(noise, count, onset_s, FaultEffect::ScrapeTrouble);
                let restart = node_fault(noise, count, onset_s + 20.0, FaultEffect::CounterReset);
                [SimFault { lasts_s: Some(240.0), ..failed_scrapes }, restart]
            })
            .collect(),
        "H12" => permanent_fault(FaultEffect::AdaptiveRouting),
        "H13" => probe_faults(onset_s, [180.0, 90.0, 45.0][level]),
        "H15" => permanent_fault(FaultEffect::LongTail { factor: [1.5, 2.0, 2.6][level] }),
        "H16" => vec![
            job_fault(0, onset_s, forever, FaultEffect::Absent),
            job_fault(0, onset_s - 40.0, 40.0, FaultEffect::Crash),
        ],
        // Inference, MIG and mixed GPU models are permanent conditions, not events.
        _ => Vec::new(),
    }
}

/// An event on one node of the first job, the `count`th of several.
fn node_fault(noise: NoiseKey, count: usize, time: f64, effect: FaultEffect) -> SimFault {
    let member = noise.child_key(7).child_key(count as u64).random_below(1 << 20) as usize;
    SimFault { onset_s: time + 17.0 * count as f64, lasts_s: None, gang: 0, member, effect }
}

/// Nodes are drained: their jobs end. Then they are tested, restarted, and held for maintenance.
fn drained_faults(time: f64, level: usize) -> Vec<SimFault> {
    let forever = f64::INFINITY;
    let mut faults = vec![
        job_fault(1, time, forever, FaultEffect::End),
        job_fault(0, time + 60.0, forever, FaultEffect::End),
    ];
    match level {
        0 => {}
        1 => faults.push(job_fault(1, time + 20.0, forever, FaultEffect::Maintain)),
        // A node that restarts is in no job; afterwards it is reserved until an operator has checked it.
        _ => faults.extend([
            job_fault(1, time + 80.0, 70.0, FaultEffect::Diagnose),
            job_fault(1, time + 180.0, 90.0, FaultEffect::Reboot),
            job_fault(1, time + 275.0, forever, FaultEffect::Maintain),
            job_fault(0, time + 110.0, forever, FaultEffect::Maintain),
        ]),
    }
    faults
}

/// A second job that runs for five seconds at intervals.
fn probe_faults(first: f64, interval: f64) -> Vec<SimFault> {
    const LASTS_S: f64 = 5.0;
    let mut faults = vec![job_fault(1, 0.0, first, FaultEffect::Absent)];
    let mut time = first + LASTS_S;
    while time < 3_600.0 {
        faults.push(job_fault(1, time, interval - LASTS_S, FaultEffect::Absent));
        time += interval;
    }
    faults
}

/// Three days of two jobs: checkpoints, evaluations, job ends and starts, failed scrapes, exporter restarts.
fn calm_faults(noise: NoiseKey) -> Vec<SimFault> {
    let mut faults = Vec::new();
    for job_index in 0..2 {
        let noise = noise.child_key(job_index as u64);
        let mut time = noise.child_key(0).random_between(300.0, 1_200.0);
        let mut number = 0;
        while time < 72.0 * 3_600.0 {
            let noise = noise.child_key(1).child_key(number);
            let duration = noise.child_key(0).random_between(20.0, 120.0);
            number += 1;
            match noise.child_key(1).random_below(40) {
                0 => {
                    let absence = noise.child_key(2).random_between(120.0, 900.0);
                    faults.push(job_fault(job_index, time, absence, FaultEffect::End));
                    faults.push(job_fault(job_index, time + absence, 150.0, FaultEffect::Start));
                    time += absence + 150.0;
                }
                1..4 => {
                    faults.push(job_fault(job_index, time, duration * 3.0, FaultEffect::Evaluate));
                }
                4 => faults.push(SimFault {
                    gang: job_index,
                    ..node_fault(noise, 0, time, FaultEffect::CounterReset)
                }),
                5..8 => faults.push(SimFault {
                    gang: job_index,
                    lasts_s: Some(duration * 2.0),
                    ..node_fault(noise, 0, time, FaultEffect::ScrapeTrouble)
                }),
                _ => {
                    faults.push(job_fault(
                        job_index,
                        time,
                        duration,
                        FaultEffect::Checkpoint { spin: number % 2 == 0 },
                    ));
                }
            }
            time += noise.child_key(3).random_between(600.0, 1_800.0);
        }
    }
    faults
}
