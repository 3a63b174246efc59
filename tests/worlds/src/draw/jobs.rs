//! Draws jobs: where they run, how their steps are spent, and when they pause.

use std::ops::Range;

use super::{
    family::{Forced, JobStyle},
    machines::GpuDraw,
};
use crate::{
    cluster_plan::NodePlan,
    job_plan::{JobKind, JobPlan, PausePlan, StepPlan},
    random::RandomKey,
};

/// The end of jobs that outlive every run, in seconds since its start.
pub(super) const LONG_AFTER_S: f64 = 1e7;

/// Nodes and GPUs of a job, and what it does.
struct JobPlace {
    nodes: Vec<usize>,
    gpus: Range<usize>,
    kind: JobKind,
}

/// Draws all jobs of a cluster.
pub(super) fn draw_jobs(
    key: RandomKey,
    forced: &Forced,
    nodes: &[NodePlan],
    gpu_draw: &GpuDraw,
) -> Vec<JobPlan> {
    let key = key.child("jobs");
    let places = draw_places(key, forced, nodes, gpu_draw);
    let new_job = |(index, place): (usize, JobPlace)| {
        let is_first = index == 0;
        draw_job(key.child_index(index), forced, nodes, place, is_first)
    };
    places.into_iter().enumerate().map(new_job).collect()
}

fn draw_places(
    key: RandomKey,
    forced: &Forced,
    nodes: &[NodePlan],
    gpu_draw: &GpuDraw,
) -> Vec<JobPlace> {
    let gpus = nodes[0].gpus.len();
    let usable = gpu_draw.first_mig_gpu().unwrap_or(gpus);
    let whole = gpu_draw.first_mig_node().unwrap_or(nodes.len());
    let mut free: Vec<usize> = (0..whole).collect();
    if key.child("scattered").chance(0.25) {
        free.sort_by_key(|node| key.child("scatter").child_index(*node).bits());
    }
    let kind = match draw_style(key.child_index(0), forced) {
        JobStyle::Alternate if whole >= 2 => JobKind::Alternate,
        _ => JobKind::Train,
    };
    let mut places = Vec::new();
    let serves = forced.has_serving.unwrap_or_else(|| key.child("serves").chance(0.15));
    if serves && whole >= 4 {
        let count = 1 + key.child("servers").index(whole / 3);
        let nodes = free.split_off(free.len() - count);
        places.push(JobPlace { nodes, gpus: 0..usable, kind: JobKind::Serve });
    }
    let main_count = match free.len() {
        few @ 0..=4 => few,
        many => many - key.child("others").index(many / 2),
    };
    let rest = free.split_off(main_count);
    let halves =
        forced.shares_nodes.unwrap_or_else(|| key.child("shares").chance(0.03)) && usable >= 4;
    let main_gpus = if halves { 0..usable / 2 } else { 0..usable };
    if halves {
        let gpus = usable / 2..usable;
        places.push(JobPlace { nodes: free.clone(), gpus, kind: JobKind::Train });
    }
    places.insert(0, JobPlace { nodes: free, gpus: main_gpus, kind });
    if !rest.is_empty() {
        let kind = match key.child("rest").index(10) {
            0 => Some(JobKind::Idle),
            1 => None,
            _ => Some(JobKind::Train),
        };
        // Nodes without a job are idle.
        let place = |kind| JobPlace { nodes: rest, gpus: 0..usable, kind };
        places.extend(kind.map(place));
    }
    if whole < nodes.len() {
        let divided = (whole..nodes.len()).collect();
        places.push(JobPlace { nodes: divided, gpus: 0..gpus, kind: JobKind::Serve });
    } else if usable < gpus {
        let all = (0..nodes.len()).collect();
        places.push(JobPlace { nodes: all, gpus: usable..gpus, kind: JobKind::Serve });
    }
    places
}

fn draw_style(key: RandomKey, forced: &Forced) -> JobStyle {
    forced.job_style.unwrap_or_else(|| match key.child("style").index(10) {
        0..=6 => JobStyle::Plain,
        7 | 8 => JobStyle::Deep,
        _ => JobStyle::InputBound,
    })
}

fn draw_job(
    key: RandomKey,
    forced: &Forced,
    nodes: &[NodePlan],
    place: JobPlace,
    is_first: bool,
) -> JobPlan {
    let style = draw_style(key, forced);
    let step_s = match (place.kind, key.child("step").index(20)) {
        (JobKind::Serve, _) => key.child("serve step").log_uniform(0.05, 0.8),
        (JobKind::Alternate, _) => key.child("turn").log_uniform(8.0, 60.0),
        (_, 0..=2) => key.child("short step").log_uniform(0.05, 0.3),
        (_, 3 | 4) => key.child("long step").log_uniform(8.0, 60.0),
        _ => key.child("usual step").log_uniform(0.3, 8.0),
    };
    let has_nvlink = place.nodes.iter().all(|node| nodes[*node].has_nvlink);
    let step = draw_step(key, style, &place, step_s, has_nvlink);
    // Jobs beside the first may begin or end in the run.
    let begins_late = !is_first && key.child("late").chance(0.08);
    let ends_early = !is_first && !begins_late && key.child("early").chance(0.08);
    let start_s = if begins_late {
        key.child("begin").uniform(60.0, 500.0)
    } else {
        -key.child("age").log_uniform(900.0, 200_000.0)
    };
    let end_s = if ends_early { key.child("end").uniform(200.0, 700.0) } else { LONG_AFTER_S };
    let trains = matches!(place.kind, JobKind::Train | JobKind::Alternate);
    let drift = forced.drift.unwrap_or(0.12);
    let drift_size = if forced.drift.is_some() { 0.3 } else { 0.08 };
    JobPlan {
        nodes: place.nodes,
        gpus: place.gpus,
        kind: place.kind,
        runs_s: start_s..end_s,
        step_s,
        step,
        spins_while_waiting: key.child("spins").chance(0.85),
        checkpoint: (trains && key.child("saves").chance(0.5)).then(|| draw_checkpoint(key)),
        evaluation: (trains && key.child("evaluates").chance(0.15)).then(|| draw_evaluation(key)),
        work_drift: if trains && key.child("drifts").chance(drift) {
            key.child("drift").uniform(0.02, drift_size)
        } else {
            0.0
        },
        work_change: (trains && key.child("changes").chance(0.6 * drift)).then(|| {
            let sign = if key.child("grows").chance(0.5) { 1.0 } else { -1.0 };
            (
                key.child("changes at").uniform(100.0, 600.0),
                sign * key.child("change").uniform(0.03, 0.1),
            )
        }),
        ends_in_crash: ends_early && key.child("crashes").chance(0.3),
    }
}

fn draw_checkpoint(key: RandomKey) -> PausePlan {
    let key = key.child("checkpoint");
    let every_s = key.child("every").log_uniform(150.0, 1_200.0);
    PausePlan {
        first_s: key.child("first").uniform(0.1, 1.0) * every_s,
        every_s,
        lasts_s: key.child("lasts").log_uniform(3.0, 30.0),
        is_by_one_rank: key.child("one rank").chance(0.25),
    }
}

fn draw_evaluation(key: RandomKey) -> PausePlan {
    let key = key.child("evaluation");
    let every_s = key.child("every").log_uniform(250.0, 1_500.0);
    PausePlan {
        first_s: key.child("first").uniform(0.1, 1.0) * every_s,
        every_s,
        lasts_s: key.child("lasts").log_uniform(8.0, 45.0),
        is_by_one_rank: false,
    }
}

/// Draws how a step is spent. The shares of what nothing hides sum to one.
fn draw_step(
    key: RandomKey,
    style: JobStyle,
    place: &JobPlace,
    step_s: f64,
    has_nvlink: bool,
) -> StepPlan {
    let key = key.child("shares");
    let is_serving = place.kind == JobKind::Serve;
    let is_deep = style == JobStyle::Deep && !is_serving;
    let spans_nodes = place.nodes.len() > 1 && !is_serving;
    let ranks = place.gpus.len();
    let host = match style {
        JobStyle::InputBound => key.child("input").uniform(0.22, 0.5),
        _ => key.child("host").log_uniform(0.015, 0.12),
    };
    let host_copy = key.child("copy").log_uniform(0.006, 0.05);
    let is_sharded = is_deep && key.child("sharded").chance(0.5);
    let network_collective = match (spans_nodes, is_sharded) {
        (false, _) => 0.0,
        (true, true) => key.child("network").uniform(0.3, 0.5),
        (true, false) => key.child("network").uniform(0.08, 0.33),
    };
    let overlap = if is_sharded {
        key.child("overlap").uniform(0.55, 0.85)
    } else {
        key.child("overlap").uniform(0.0, 0.75)
    };
    let node_share = if is_deep { 0.25 } else { 0.12 } * if has_nvlink { 1.0 } else { 1.4 };
    let node_collective = if ranks > 1 { key.child("node").uniform(0.02, node_share) } else { 0.0 };
    let exposed = network_collective * (1.0 - overlap);
    let stages = draw_stages(key, place.nodes.len(), is_deep);
    let has_accumulation = is_deep && stages == 1 && key.child("accumulates").chance(0.5);
    let most_steps = (35.0 / step_s) as usize;
    StepPlan {
        compute: (1.0 - host - host_copy - node_collective - exposed).max(0.1),
        host_copy,
        host,
        node_collective,
        network_collective,
        overlap,
        network_intensity: key.child("intensity").uniform(0.25, 0.95),
        accumulation_steps: if has_accumulation && !is_sharded {
            key.child("steps").index(most_steps.min(15) + 1)
        } else {
            0
        },
        pipeline_stages: stages,
        stage_work: draw_stage_work(key, stages),
        tensor_group: if is_deep {
            [1, 2, 4, 8][key.child("tensor").index(4)].min(ranks).max(1)
        } else {
            1
        },
        prefetch_s: key.child("prefetch").log_uniform(0.2, 12.0).max(step_s),
        read_bytes_per_s: key.child("reads").log_uniform(2e6, 1.5e9),
        work_spread: if is_deep && key.child("experts").chance(0.4) {
            key.child("spread").uniform(0.04, 0.15)
        } else {
            key.child("spread").uniform(0.002, 0.03)
        },
        tensor_share: if key.child("no tensor").chance(0.06) {
            0.0
        } else {
            key.child("tensor share").uniform(0.25, 0.75)
        },
        memory_share: key.child("memory").uniform(0.15, 0.65),
        compute_power: key.child("power").uniform(0.65, 1.0),
    }
}

/// Pipeline stages, each of the same number of nodes.
fn draw_stages(key: RandomKey, nodes: usize, is_deep: bool) -> usize {
    if !is_deep || nodes < 2 || !key.child("pipeline").chance(0.7) {
        return 1;
    }
    let fitting: Vec<usize> =
        (2..=nodes.min(16)).filter(|stages| nodes.is_multiple_of(*stages)).collect();
    if fitting.is_empty() {
        // 17 nodes, for example, have no equal stages.
        return 1;
    }
    key.child("stages").pick(&fitting)
}

/// Work of the stages, uneven by design, with a mean of one.
pub(super) fn draw_stage_work(key: RandomKey, stages: usize) -> Vec<f64> {
    let key = key.child("stage work");
    if stages == 1 {
        return vec![1.0];
    }
    let spread = key.child("spread").uniform(0.0, 0.09);
    let work = |stage: usize| 1.0 + spread * key.child_index(stage).uniform(-1.0, 1.0);
    let works: Vec<f64> = (0..stages).map(work).collect();
    let mean = works.iter().sum::<f64>() / stages as f64;
    works.into_iter().map(|work| work / mean).collect()
}
