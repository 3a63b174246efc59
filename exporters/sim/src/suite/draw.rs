//! The machines and jobs of a case, drawn from its seed.

use super::{CALM, Split};
use crate::{
    noise::Noise,
    shape::{JobShape, Shape, Work},
    work::Pace,
};

/// The shape of a case. Numbers from 18 on are large fleets.
pub(super) fn shape(noise: Noise, split: Split, scenario: &str, number: u64) -> Shape {
    let noise = noise.child(0);
    let pick =
        |child: u64, low: u64, high: u64| (low + noise.child(child).below(high - low + 1)) as usize;
    let gpus = if pick(0, 0, 4) == 0 { 4 } else { 8 };
    let rails = [gpus, gpus, 4, 2][pick(1, 0, 3)];
    let (mut first, leaf_nodes) = match split {
        Split::Tune => (pick(2, 4, 12), [8, 16][pick(3, 0, 1)]),
        Split::Test => (pick(2, 5, 16), [12, 32][pick(3, 0, 1)]),
    };
    let mut leaf_nodes = leaf_nodes;
    match scenario {
        // A leaf or a rail can only be told from its ports where there are several leaves.
        "F11" | "F12" => (first, leaf_nodes) = (first.max(8) + 8, 8),
        "F17" | "H5" => first = first.div_ceil(4) * 4,
        CALM => first = 4,
        _ => {}
    }
    let large = matches!(scenario, "F1" | "F3" | "F8" | "F11" | "F12" | "F14" | "H1" | "H11");
    match number {
        18 if large => first = 64,
        19 if large => first = 128,
        _ => {}
    }
    let serves = matches!(scenario, "H6" | "H7");
    let work = match scenario {
        "H6" => Work::Serve,
        "H7" => Work::Slices,
        _ => Work::Train,
    };
    let stages = if matches!(scenario, "F17" | "H5") { 4 } else { [1, 1, 2][pick(4, 0, 2)] };
    let mut jobs = vec![JobShape { nodes: 0..first, work, stages }];
    let mut next = first;
    let mut add = |size: usize, work: Work| {
        jobs.push(JobShape { nodes: next..next + size, work, stages: 1 });
        next += size;
    };
    add(pick(5, 2, 5), if serves { work } else { Work::Train });
    if pick(6, 0, 1) == 0 {
        add(pick(7, 1, 2), Work::Serve);
    }
    let held = next..next;
    let nodes = next + pick(8, 1, 2);
    Shape { nodes, gpus, rails, leaf_nodes, mixed: scenario == "H14", jobs, held }
}

/// How each job of a case works.
pub(super) fn paces(noise: Noise, test: bool, scenario: &str, shape: &Shape) -> Vec<Pace> {
    let pace = |(at, job): (usize, &JobShape)| {
        let mut pace = Pace::drawn(noise.child(1).child(at as u64), test);
        pace.work = job.work;
        pace.stages = job.stages;
        if job.stages > 1 {
            pace.bubble_s = pace.step_s() * noise.child(2).between(0.04, 0.12);
        }
        if scenario == "H13" && at == 1 {
            // A probe moves data and computes next to nothing.
            pace.communicate_s += pace.compute_s * 0.9;
            pace.compute_s *= 0.1;
        }
        pace
    };
    shape.jobs.iter().enumerate().map(pace).collect()
}
