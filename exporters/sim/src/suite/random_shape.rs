//! Fleet shape and jobs of a case, drawn from its seed.

use super::{CALM, FaultLevel, SuiteSplit};
use crate::{
    fleet_shape::{FleetShape, GpuModelMix, JobShape, JobWorkload},
    job_workload::JobPace,
    noise_key::NoiseKey,
};

/// Trays of four GPUs in one NVLink domain: half a rack, and a whole one.
const TRAYS: [usize; 2] = [9, 18];

/// The fleet shape of a case. Numbers from 18 on are large fleets.
pub(super) fn random_shape(
    noise: NoiseKey,
    split: SuiteSplit,
    scenario: &str,
    number: u64,
    level: FaultLevel,
) -> FleetShape {
    let noise = noise.child_key(0);
    let random_size = |child: u64, low: u64, high: u64| {
        (low + noise.child_key(child).random_below(high - low + 1)) as usize
    };
    let test = usize::from(split == SuiteSplit::Test);
    let trays = random_size(9, 0, 6) == 0 && scenario != "H14" && scenario != "H7";
    let gpus = if trays || random_size(0, 0, 4) == 0 { 4 } else { 8 };
    let many_rails = matches!(scenario, "F11" | "F12");
    let rails = [gpus, gpus, 4, 2, if many_rails { 2 } else { 1 }][random_size(1, 0, 4)];
    let (first, leaf_nodes) = first_job_size(random_size, test, scenario, number, level);
    let kind = match scenario {
        "H6" => JobWorkload::Serve,
        "H7" => [JobWorkload::Slices, JobWorkload::Shared][random_size(10, 0, 1)],
        _ => JobWorkload::Train,
    };
    let in_stages = matches!(scenario, "F17" | "H5");
    let stages = if in_stages { 4 } else { [1, 1, 2][random_size(4, 0, 2)].min(first) };
    let experts = kind == JobWorkload::Train && !in_stages && random_size(11, 0, 4) == 0;
    let mut jobs = vec![JobShape { nodes: 0..first, work: kind, stages, experts }];
    let mut next = first;
    let mut add_job = |size: usize, work: JobWorkload| {
        jobs.push(JobShape { nodes: next..next + size, work, stages: 1, experts: false });
        next += size;
    };
    add_job(random_size(5, 2, 5), kind);
    if random_size(6, 0, 1) == 0 {
        add_job(random_size(7, 1, 2), JobWorkload::Serve);
    }
    let held = next..next + [0, 0, 1, 2][random_size(12, 0, 3)];
    let nodes = held.end + random_size(8, 1, 2);
    let mixed = [GpuModelMix::OthersOlder, GpuModelMix::OthersLarger][test];
    let boards = match scenario {
        _ if trays => GpuModelMix::Tray,
        "H14" => [GpuModelMix::HalfOlder, GpuModelMix::HalfNewer][test],
        _ => [[GpuModelMix::Usual, GpuModelMix::Larger][test], mixed]
            [usize::from(random_size(13, 0, 3) == 0)],
    };
    let domain_nodes = if trays { TRAYS[test] } else { 1 };
    FleetShape { nodes, gpus, rails, leaf_nodes, gpu_models: boards, domain_nodes, jobs, held }
}

/// Number of nodes of the first job, and of nodes under a leaf switch.
fn first_job_size(
    random_size: impl Fn(u64, u64, u64) -> usize,
    test: usize,
    scenario: &str,
    number: u64,
    level: FaultLevel,
) -> (usize, usize) {
    let leaf_nodes = [[8, 16, 24], [12, 20, 32]][test][random_size(3, 0, 2)];
    let small = random_size(14, 0, 5) == 0;
    let first = match (test, small) {
        (0, true) => 2,
        (_, true) => random_size(15, 2, 3),
        (0, false) => random_size(2, 4, 12),
        (_, false) => random_size(2, 5, 16),
    };
    let large = matches!(scenario, "F1" | "F3" | "F8" | "F11" | "F12" | "F14" | "H1" | "H11");
    match (scenario, number) {
        (_, 18) if large => (64, leaf_nodes),
        (_, 19) if large && level == FaultLevel::Medium => (512, 32),
        (_, 19) if large => (128, leaf_nodes),
        // A leaf can be told from a rail only if the job spans several leaves.
        ("F11" | "F12", _) => [(random_size(2, 13, 18), 8), (random_size(2, 18, 22), 12)][test],
        ("F17" | "H5", _) => (first.div_ceil(4) * 4, leaf_nodes),
        (CALM, _) => (4, leaf_nodes),
        _ => (first, leaf_nodes),
    }
}

/// The step timing of each job of a case.
pub(super) fn random_paces(
    noise: NoiseKey,
    test: bool,
    scenario: &str,
    shape: &FleetShape,
) -> Vec<JobPace> {
    let job_pace = |(index, job): (usize, &JobShape)| {
        let mut pace = JobPace::new_random(noise.child_key(1).child_key(index as u64), test);
        pace.work = job.work;
        pace.stages = job.stages;
        if job.experts {
            pace = pace.with_experts(noise.child_key(4));
        }
        if job.stages > 1 {
            pace.bubble_s = pace.step_s() * noise.child_key(2).random_between(0.04, 0.12);
        }
        if scenario == "H13" && index == 1 {
            // A probe moves data and computes almost nothing.
            pace.communicate_s += pace.compute_s * 0.9;
            pace.compute_s *= 0.1;
        }
        pace
    };
    shape.jobs.iter().enumerate().map(job_pace).collect()
}
