//! What happens in a case: its fault as strong as its level says, or what only looks like one.

use super::{CALM, Case, Level, Split};
use crate::{Effect, Fault, gpu::TRADED, noise::Noise, work::Pace};

/// What happens, at least one thing, in a case with these jobs.
pub(super) fn draw(case: &Case, noise: Noise, paces: &[Pace]) -> Vec<Fault> {
    let mut faults = match case.scenario {
        CALM => calm(noise),
        scenario if scenario.starts_with('F') => {
            let onset_s = noise.child(0).between(90.0, 180.0);
            let member = noise.child(1).below(1 << 20) as usize;
            let effect = fault(case, noise, &paces[0]);
            vec![Fault { onset_s, lasts_s: None, gang: 0, member, effect }]
        }
        _ => harmless(case, noise),
    };
    // While one job has its trouble, another writes a checkpoint now and then.
    if case.scenario.starts_with('F') && noise.child(8).below(3) == 0 {
        let onset = noise.child(9).between(30.0, 240.0);
        let lasts = noise.child(10).between(20.0, 40.0);
        faults.push(job(
            1,
            onset,
            lasts,
            Effect::Checkpoint { spin: noise.child(11).below(2) == 0 },
        ));
    }
    faults
}

/// Something that a whole job does for a while.
fn job(gang: usize, onset_s: f64, lasts_s: f64, effect: Effect) -> Fault {
    Fault { onset_s, lasts_s: Some(lasts_s), gang, member: 0, effect }
}

/// The share of throughput that a fault costs.
fn lost(case: &Case, noise: Noise) -> f64 {
    let (low, high) = match (case.split, case.level) {
        (Split::Tune, Level::Mild) => (0.13, 0.155),
        (Split::Tune, Level::Medium) => (0.27, 0.32),
        (Split::Tune, Level::Hard) => (0.55, 0.62),
        (Split::Test, Level::Mild) => (0.155, 0.18),
        (Split::Test, Level::Medium) => (0.32, 0.36),
        (Split::Test, Level::Hard) => (0.62, 0.68),
    };
    noise.child(2).between(low, high)
}

/// The fault of a case in a job with this pace: as slow as its step must become.
pub(super) fn fault(case: &Case, noise: Noise, pace: &Pace) -> Effect {
    let level = case.level as usize;
    let step = pace.step_s();
    let batch_s = step / (1.0 - lost(case, noise));
    let extra = batch_s - step;
    let clock = pace.compute_s / (pace.compute_s + extra);
    let network = 1.0 + extra / pace.communicate_s;
    let rail = noise.child(3).below(case.shape.rails as u64) as usize;
    let gpu = noise.child(4).below(case.shape.gpus as u64) as usize;
    let coin = noise.child(5).below(2) == 0;
    match case.scenario {
        "F1" => Effect::DataStarved { batch_s, by_cpu: coin },
        "F2" => Effect::StorageSlow { batch_s },
        "F3" => Effect::SlowGpu { gpu, clock },
        "F4" => Effect::Throttled { gpu, clock },
        "F5" => Effect::LaunchBound { duty: clock, gpu: coin.then_some(gpu) },
        "F6" => Effect::PcieSlow { gpu, factor: 1.0 + extra / pace.copy_s, replays: coin },
        "F7" => Effect::NvlinkSlow { gpu, factor: 1.0 + extra / (pace.compute_s * TRADED) },
        "F8" => Effect::PortDown { rail },
        "F9" => Effect::RateLow { rail, factor: [2.0, 2.0, 4.0][level] },
        "F10" => {
            let errors = [3.0, 30.0, 200.0][level] * noise.child(6).between(0.7, 1.4);
            Effect::LinkErrors { rail, factor: 1.0 + 0.5 * (network - 1.0), errors }
        }
        "F11" => Effect::LeafCongested { rail, factor: network },
        "F12" => Effect::RailSlow { rail, factor: network },
        "F13" => Effect::HostBlocks { factor: network },
        "F14" => Effect::Hang { odd: coin },
        "F15" => Effect::GpuLost { gpu, ecc: coin },
        "F16" => Effect::Idle,
        "F17" => {
            let stage = noise.child(6).below(case.shape.jobs[0].stages as u64) as usize;
            Effect::StageImbalance { stage, factor: 1.0 / clock }
        }
        _ => Effect::Skew { factor: 1.0 / clock },
    }
}

/// What only looks like a fault, as strong as the level says.
fn harmless(case: &Case, noise: Noise) -> Vec<Fault> {
    let level = case.level as usize;
    let at = noise.child(0).between(100.0, 200.0);
    let luck = noise.child(1).unit();
    let spin = noise.child(2).below(2) == 0;
    let ever = f64::INFINITY;
    let always = |effect| vec![job(0, 0.0, ever, effect)];
    match case.scenario {
        "H1" => {
            let lasts = [20.0, 50.0, 90.0][level] + 30.0 * luck;
            let pause = Effect::Checkpoint { spin };
            vec![
                job(0, at, lasts, pause),
                job(0, at + 310.0, lasts * 0.95, pause),
                job(1, at * 0.6, lasts * 0.5, Effect::Checkpoint { spin: !spin }),
            ]
        }
        "H2" => vec![job(0, at, [60.0, 150.0, 300.0][level] + 30.0 * luck, Effect::Evaluate)],
        "H3" => vec![
            job(0, 0.0, at, Effect::Absent),
            job(0, at, [60.0, 120.0, 180.0][level] + 30.0 * luck, Effect::Start),
        ],
        "H4" => vec![job(0, at, ever, Effect::End)],
        "H5" => {
            let stage = noise.child(3).below(4) as usize;
            always(Effect::StageImbalance { stage, factor: [1.08, 1.15, 1.25][level] })
        }
        "H8" => drained(at, level),
        "H9" => {
            let cap = Effect::PowerCap { clock: [0.9, 0.8, 0.65][level] };
            vec![job(0, if spin { 0.0 } else { at }, ever, cap)]
        }
        "H10" => (0..=level).map(|count| node(noise, count, at, Effect::CounterReset)).collect(),
        "H11" => (0..1 << level)
            .flat_map(|count| {
                let trouble = node(noise, count, at, Effect::ScrapeTrouble);
                let again = node(noise, count, at + 20.0, Effect::CounterReset);
                [Fault { lasts_s: Some(240.0), ..trouble }, again]
            })
            .collect(),
        "H12" => always(Effect::AdaptiveRouting),
        "H13" => probes(at, [180.0, 90.0, 45.0][level]),
        "H15" => always(Effect::LongTail { factor: [1.5, 2.0, 2.6][level] }),
        "H16" => vec![job(0, at, ever, Effect::Absent), job(0, at - 40.0, 40.0, Effect::Crash)],
        // Inference, slices and mixed boards are what they are all the time.
        _ => Vec::new(),
    }
}

/// Something that happens to one node of the first job, the `count`th of several.
fn node(noise: Noise, count: usize, at: f64, effect: Effect) -> Fault {
    let member = noise.child(7).child(count as u64).below(1 << 20) as usize;
    Fault { onset_s: at + 17.0 * count as f64, lasts_s: None, gang: 0, member, effect }
}

/// Nodes are drained: their jobs end. Then they are tested, started anew, and held for maintenance.
fn drained(at: f64, level: usize) -> Vec<Fault> {
    let ever = f64::INFINITY;
    let mut faults = vec![job(1, at, ever, Effect::End), job(0, at + 60.0, ever, Effect::End)];
    match level {
        0 => {}
        1 => faults.push(job(1, at + 20.0, ever, Effect::Maintain)),
        // Nobody holds a node that is started anew; afterwards it is held until somebody has looked at it.
        _ => faults.extend([
            job(1, at + 80.0, 70.0, Effect::Diagnose),
            job(1, at + 180.0, 90.0, Effect::Reboot),
            job(1, at + 275.0, ever, Effect::Maintain),
            job(0, at + 110.0, ever, Effect::Maintain),
        ]),
    }
    faults
}

/// A second job that is there for five seconds now and then.
fn probes(first: f64, every: f64) -> Vec<Fault> {
    const LASTS_S: f64 = 5.0;
    let mut faults = vec![job(1, 0.0, first, Effect::Absent)];
    let mut at = first + LASTS_S;
    while at < 3_600.0 {
        faults.push(job(1, at, every - LASTS_S, Effect::Absent));
        at += every;
    }
    faults
}

/// Three days in the life of two jobs: checkpoints, evaluations, ends and starts, scrapes that fail, reloads.
fn calm(noise: Noise) -> Vec<Fault> {
    let mut faults = Vec::new();
    for gang in 0..2 {
        let noise = noise.child(gang as u64);
        let mut at = noise.child(0).between(300.0, 1_200.0);
        let mut number = 0;
        while at < 72.0 * 3_600.0 {
            let noise = noise.child(1).child(number);
            let lasts = noise.child(0).between(20.0, 120.0);
            number += 1;
            match noise.child(1).below(40) {
                0 => {
                    let away = noise.child(2).between(120.0, 900.0);
                    faults.push(job(gang, at, away, Effect::End));
                    faults.push(job(gang, at + away, 150.0, Effect::Start));
                    at += away + 150.0;
                }
                1..4 => faults.push(job(gang, at, lasts * 3.0, Effect::Evaluate)),
                4 => faults.push(Fault { gang, ..node(noise, 0, at, Effect::CounterReset) }),
                5..8 => faults.push(Fault {
                    gang,
                    lasts_s: Some(lasts * 2.0),
                    ..node(noise, 0, at, Effect::ScrapeTrouble)
                }),
                _ => {
                    faults.push(job(gang, at, lasts, Effect::Checkpoint { spin: number % 2 == 0 }));
                }
            }
            at += noise.child(3).between(600.0, 1_800.0);
        }
    }
    faults
}
