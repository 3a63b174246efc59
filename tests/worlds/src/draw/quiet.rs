//! Quiet cases: events that look like a fault and must not page.

use super::{
    jobs::{LONG_AFTER_S, draw_stage_work},
    limits::healthy_past_s,
    machines::new_chore,
    places::is_steady,
};
use crate::{
    cluster_plan::{LinkLayer, PortRole},
    job_plan::{JobKind, JobPlan, PausePlan},
    random::RandomKey,
    world::World,
};

/// Changes a world at an instant.
type QuietChange = fn(&mut World, RandomKey, f64);

/// One quiet case.
struct QuietCase {
    name: &'static str,
    change: QuietChange,
}

const fn case(name: &'static str, change: QuietChange) -> QuietCase {
    QuietCase { name, change }
}

const CASES: [QuietCase; 38] = [
    case("nothing", |_, _, _| {}),
    case("chore_one_host", chore_one_host),
    case("chore_all_hosts", chore_all_hosts),
    case("evaluation", evaluation),
    case("checkpoint_all_ranks", |world, key, at_s| checkpoint(world, key, at_s, false)),
    case("checkpoint_one_rank", |world, key, at_s| checkpoint(world, key, at_s, true)),
    case("curriculum", |world, key, _| {
        main_job(world).work_drift = key.child("drift").uniform(0.1, 0.4);
    }),
    case("batch_mix", batch_mix),
    case("job_start", |world, key, at_s| {
        main_job(world).runs_s.start = at_s - key.child("before").uniform(0.0, 60.0);
    }),
    case("job_end", |world, _, at_s| main_job(world).runs_s.end = at_s),
    case("job_crash", |world, _, at_s| {
        let job = main_job(world);
        (job.runs_s.end, job.ends_in_crash) = (at_s, true);
    }),
    case("job_restart", job_restart),
    case("elastic_job", elastic_job),
    case("label_flip", label_flip),
    case("late_labels", late_labels),
    case("loud_marks", loud_marks),
    case("chatty_port", chatty_port),
    case("adaptive_routing", adaptive_routing),
    case("inlet_wave", inlet_wave),
    case("inference_burst", |world, key, at_s| inference(world, key, at_s, (0.3, 1.0))),
    case("inference_night", |world, key, at_s| inference(world, key, at_s, (-0.9, -0.5))),
    case("power_cap_later", |world, key, at_s| {
        world.cluster.power_cap = Some((at_s, key.child("cap").uniform(0.55, 0.9)));
    }),
    case("power_cap_always", power_cap_always),
    case("weak_silicon", weak_silicon),
    case("mixed_limits", mixed_limits),
    case("application_xid", application_xid),
    case("old_xid", old_xid),
    case("corrected_errors", corrected_errors),
    case("counter_resets", counter_resets),
    case("saturated_counters", saturated_counters),
    case("lost_scrapes", lost_scrapes),
    case("exporter_restart", exporter_restart),
    case("exporter_stalls", exporter_stalls),
    case("clock_skew", clock_skew),
    case("storage_traffic", storage_traffic),
    case("expert_skew", |world, key, _| {
        main_job(world).step.work_spread = key.child("spread").uniform(0.06, 0.2);
    }),
    case("uneven_stages", uneven_stages),
    case("accumulation_silence", accumulation_silence),
];

/// Names of all quiet cases.
pub fn quiet_cases() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Turns a world without a fault into a quiet case: one of this name, or a drawn one.
pub(super) fn apply_quiet_case(
    world: &mut World,
    key: RandomKey,
    name: Option<&str>,
) -> Result<(), String> {
    let key = key.child("quiet");
    let case = match name {
        None => CASES.get(key.child("case").index(CASES.len())),
        Some(name) => CASES.iter().find(|case| case.name == name),
    };
    let case = case.ok_or_else(|| {
        let names: Vec<&str> = quiet_cases().collect();
        format!("{name:?} is no quiet case; they are {}", names.join(", "))
    })?;
    let key = key.child(case.name);
    let at_s =
        healthy_past_s(&world.cluster, &world.exporters) + key.child("at").uniform(5.0, 60.0);
    (case.change)(world, key, at_s);
    world.quiet_case = Some(case.name);
    let afterwards_s =
        300.0_f64.max(20.0 * world.exporters.scrape_s.max(world.exporters.collect_s));
    world.duration_s = at_s + afterwards_s;
    Ok(())
}

/// The first job that trains all the time, or the first job at all: every world has one.
fn main_job(world: &mut World) -> &mut JobPlan {
    let index = main_index(world);
    &mut world.cluster.jobs[index]
}

fn main_index(world: &World) -> usize {
    world.cluster.jobs.iter().position(is_steady).unwrap_or(0)
}

fn any_node(world: &World, key: RandomKey) -> usize {
    key.child("node").index(world.cluster.nodes.len())
}

fn chore_one_host(world: &mut World, key: RandomKey, at_s: f64) {
    let node = any_node(world, key);
    let mut chore = new_chore(key, at_s);
    chore.span_s.end = at_s + key.child("long").log_uniform(10.0, 200.0);
    chore.slows_host_part = 0.0;
    world.cluster.nodes[node].host.chores.push(chore);
}

fn chore_all_hosts(world: &mut World, key: RandomKey, at_s: f64) {
    let lasts_s = key.child("long").log_uniform(10.0, 200.0);
    for (node, plan) in world.cluster.nodes.iter_mut().enumerate() {
        let key = key.child_index(node);
        let from_s = at_s + key.child("late").uniform(0.0, 3.0);
        let mut chore = new_chore(key, from_s);
        chore.span_s.end = from_s + lasts_s * key.child("share").uniform(0.6, 1.4);
        chore.slows_host_part = 0.0;
        plan.host.chores.push(chore);
    }
}

/// A pause at this instant, and again and again.
fn new_pause(key: RandomKey, at_s: f64, (shortest_s, longest_s): (f64, f64)) -> PausePlan {
    let lasts_s = key.child("lasts").log_uniform(shortest_s, longest_s);
    let every_s = (lasts_s * 3.0).max(key.child("every").log_uniform(150.0, 900.0));
    PausePlan { first_s: at_s, every_s, lasts_s, is_by_one_rank: false }
}

fn evaluation(world: &mut World, key: RandomKey, at_s: f64) {
    main_job(world).evaluation = Some(new_pause(key, at_s, (15.0, 180.0)));
}

fn checkpoint(world: &mut World, key: RandomKey, at_s: f64, is_by_one_rank: bool) {
    let pause = new_pause(key, at_s, (5.0, 120.0));
    main_job(world).checkpoint = Some(PausePlan { is_by_one_rank, ..pause });
}

fn batch_mix(world: &mut World, key: RandomKey, at_s: f64) {
    let sign = if key.child("grows").chance(0.5) { 1.0 } else { -1.0 };
    main_job(world).work_change = Some((at_s, sign * key.child("change").uniform(0.04, 0.12)));
}

/// The job ends, and another one begins on its nodes.
fn follow_job(world: &mut World, at_s: f64, pause_s: f64) -> &mut JobPlan {
    let job = main_job(world);
    let follower = JobPlan { runs_s: at_s + pause_s..LONG_AFTER_S, ..job.clone() };
    job.runs_s.end = at_s;
    world.cluster.jobs.push(follower);
    let last = world.cluster.jobs.len() - 1;
    &mut world.cluster.jobs[last]
}

fn job_restart(world: &mut World, key: RandomKey, at_s: f64) {
    main_job(world).ends_in_crash = true;
    follow_job(world, at_s, key.child("pause").uniform(10.0, 60.0)).ends_in_crash = false;
}

/// The job goes on with fewer nodes.
fn elastic_job(world: &mut World, key: RandomKey, at_s: f64) {
    let follower = follow_job(world, at_s, 0.2);
    if follower.nodes.len() > 1 {
        let gone = key.child("gone").index(follower.nodes.len());
        follower.nodes.remove(gone);
    }
    follower.step.pipeline_stages = 1;
    follower.step.stage_work = vec![1.0];
    if follower.nodes.len() == 1 {
        follower.step.network_collective = 0.0;
    }
}

fn label_flip(world: &mut World, _: RandomKey, at_s: f64) {
    follow_job(world, at_s, 0.2);
}

fn late_labels(world: &mut World, key: RandomKey, at_s: f64) {
    world.exporters.label_lag_s = key.child("lag").uniform(30.0, 120.0);
    follow_job(world, at_s, 5.0);
}

/// Many marks that cost nothing; on InfiniBand there are none.
fn loud_marks(world: &mut World, key: RandomKey, _: f64) {
    let level = key.child("level").log_uniform(0.003, 0.1);
    if world.cluster.fabric.link_layer == LinkLayer::Ethernet {
        world.cluster.fabric.has_ecn = true;
    }
    let has_ecn = world.cluster.fabric.has_ecn;
    let ports = world.cluster.nodes.iter_mut().flat_map(|node| &mut node.ports);
    for (index, port) in ports.enumerate() {
        if has_ecn && port.role != PortRole::Unused {
            let factor = key.child("port").child_index(index).log_uniform(0.3, 3.0);
            port.background_mark_share = (level * factor).min(0.3);
        }
    }
}

fn chatty_port(world: &mut World, key: RandomKey, _: f64) {
    let node = any_node(world, key);
    let has_ecn = world.cluster.fabric.has_ecn;
    let ports = &mut world.cluster.nodes[node].ports;
    let used: Vec<usize> =
        (0..ports.len()).filter(|port| ports[*port].role != PortRole::Unused).collect();
    let Some(slot) = used.get(key.child("port").index(used.len())) else { return };
    let port = &mut ports[*slot];
    port.background_mark_share =
        if has_ecn { key.child("marks").log_uniform(0.003, 0.05) } else { 0.0 };
    port.background_out_of_sequence_ppm = key.child("disorder").log_uniform(10.0, 2_000.0);
    port.background_bytes_per_s = key.child("bytes").log_uniform(1e5, 1e8);
}

fn adaptive_routing(world: &mut World, key: RandomKey, _: f64) {
    world.cluster.fabric.has_adaptive_routing = true;
    let level = key.child("level").log_uniform(500.0, 30_000.0);
    let ports = world.cluster.nodes.iter_mut().flat_map(|node| &mut node.ports);
    for (index, port) in ports.enumerate().filter(|(_, port)| port.role != PortRole::Unused) {
        let factor = key.child("port").child_index(index).log_uniform(0.3, 3.0);
        port.background_out_of_sequence_ppm = level * factor;
    }
}

fn inlet_wave(world: &mut World, key: RandomKey, _: f64) {
    let wave =
        (key.child("height").uniform(3.0, 7.0), key.child("period").log_uniform(200.0, 1_500.0));
    for node in &mut world.cluster.nodes {
        node.host.inlet_wave = wave;
    }
}

/// Servers instead of the training: their load changes at an instant by a share between two.
fn inference(world: &mut World, key: RandomKey, at_s: f64, (low, high): (f64, f64)) {
    let job = main_job(world);
    job.kind = JobKind::Serve;
    (job.checkpoint, job.evaluation, job.work_drift) = (None, None, 0.0);
    job.step_s = key.child("step").log_uniform(0.05, 0.8);
    job.step.network_collective = 0.0;
    job.step.pipeline_stages = 1;
    job.step.stage_work = vec![1.0];
    job.step.accumulation_steps = 0;
    job.work_change = Some((at_s, key.child("change").uniform(low, high)));
}

fn power_cap_always(world: &mut World, key: RandomKey, _: f64) {
    let share = key.child("cap").uniform(0.5, 0.85);
    for gpu in world.cluster.nodes.iter_mut().flat_map(|node| &mut node.gpus) {
        gpu.power_limit_w = (gpu.power_limit_w * share / 5.0).round() * 5.0;
    }
}

fn weak_silicon(world: &mut World, key: RandomKey, _: f64) {
    let node = any_node(world, key);
    let gpus = &mut world.cluster.nodes[node].gpus;
    let gpu = key.child("gpu").index(gpus.len());
    gpus[gpu].silicon_speed = key.child("speed").uniform(0.94, 0.955);
    gpus[gpu].hotter_c += key.child("hotter").uniform(2.0, 8.0);
}

/// Some machines are set to a lower limit for ever, and their GPUs to another one each.
fn mixed_limits(world: &mut World, key: RandomKey, _: f64) {
    for (node, plan) in world.cluster.nodes.iter_mut().enumerate() {
        let key = key.child_index(node);
        let share = if key.chance(0.35) { key.child("share").uniform(0.75, 0.95) } else { 1.0 };
        for gpu in &mut plan.gpus {
            gpu.power_limit_w = (gpu.power_limit_w * share / 5.0).round() * 5.0;
        }
    }
}

fn application_xid(world: &mut World, key: RandomKey, at_s: f64) {
    let node = any_node(world, key);
    let gpus = &mut world.cluster.nodes[node].gpus;
    let gpu = key.child("gpu").index(gpus.len());
    gpus[gpu].application_xid = Some((at_s, key.child("code").pick(&[13, 31, 43, 45])));
}

fn old_xid(world: &mut World, key: RandomKey, _: f64) {
    for (node, plan) in world.exporters.nodes.iter_mut().enumerate() {
        let key = key.child_index(node);
        for (gpu, xid) in plan.sticky_xid.iter_mut().enumerate() {
            let key = key.child_index(gpu);
            if key.chance(0.2) {
                *xid = key.child("code").pick(&[13, 31, 43, 45, 94]);
            }
        }
    }
}

fn corrected_errors(world: &mut World, key: RandomKey, _: f64) {
    let node = any_node(world, key);
    let gpus = &mut world.cluster.nodes[node].gpus;
    let gpu = key.child("gpu").index(gpus.len());
    gpus[gpu].corrected_errors_per_hour = key.child("rate").log_uniform(20.0, 500.0);
}

/// The exporters of all nodes begin anew, one after the other: an update.
fn counter_resets(world: &mut World, key: RandomKey, at_s: f64) {
    let gap_s = key.child("gap").uniform(0.0, 15.0);
    for (node, plan) in world.exporters.nodes.iter_mut().enumerate() {
        plan.restarts_s.push(at_s + gap_s * node as f64);
    }
}

fn saturated_counters(world: &mut World, key: RandomKey, _: f64) {
    for (node, plan) in world.exporters.nodes.iter_mut().enumerate() {
        for (port, is_saturated) in plan.is_wait_saturated.iter_mut().enumerate() {
            *is_saturated |= key.child_index(node).child_index(port).chance(0.5);
        }
    }
}

fn lost_scrapes(world: &mut World, key: RandomKey, _: f64) {
    world.exporters.lost_scrapes = key.child("lost").uniform(0.02, 0.08);
    world.exporters.jitter_s = 0.1 * world.exporters.scrape_s;
}

fn exporter_restart(world: &mut World, key: RandomKey, at_s: f64) {
    let node = any_node(world, key);
    world.exporters.nodes[node].restarts_s.push(at_s);
}

fn exporter_stalls(world: &mut World, key: RandomKey, at_s: f64) {
    let node = any_node(world, key);
    world.exporters.nodes[node].stalls = Some(PausePlan {
        first_s: at_s,
        every_s: key.child("every").uniform(60.0, 200.0),
        lasts_s: key.child("lasts").uniform(3.0, 15.0),
        is_by_one_rank: false,
    });
}

fn clock_skew(world: &mut World, key: RandomKey, _: f64) {
    let spread_s = key.child("spread").log_uniform(0.5, 120.0);
    for (node, plan) in world.cluster.nodes.iter_mut().enumerate() {
        plan.host.clock_offset_s = spread_s * key.child_index(node).normal();
    }
}

/// Much traffic of storage, through ports of its own if there are any, else through those of the collectives.
fn storage_traffic(world: &mut World, key: RandomKey, _: f64) {
    let has_storage = world
        .cluster
        .nodes
        .iter()
        .any(|node| node.ports.iter().any(|port| port.role == PortRole::Storage));
    let share = key.child("share").log_uniform(0.01, if has_storage { 0.5 } else { 0.03 });
    for (node, plan) in world.cluster.nodes.iter_mut().enumerate() {
        for (slot, port) in plan.ports.iter_mut().enumerate() {
            let is_meant = match port.role {
                PortRole::Storage => true,
                PortRole::Collective { rail } => !has_storage && rail == 0,
                _ => false,
            };
            if is_meant {
                let factor = key.child_index(node).child_index(slot).uniform(0.5, 1.5);
                port.background_bytes_per_s = share * factor * port.rate_gbps * 1e9 / 8.0;
            }
        }
    }
}

/// A pipeline whose stages differ by design; a job that cannot have stages has more spread.
fn uneven_stages(world: &mut World, key: RandomKey, _: f64) {
    let job = main_job(world);
    let nodes = job.nodes.len();
    let fitting: Vec<usize> =
        (2..=nodes.min(8)).filter(|stages| nodes.is_multiple_of(*stages)).collect();
    let Some(stages) = fitting.get(key.child("stages").index(fitting.len())) else {
        job.step.work_spread = 0.05;
        return;
    };
    job.step.pipeline_stages = *stages;
    job.step.accumulation_steps = 0;
    job.step.stage_work = draw_stage_work(key, *stages);
    // The stage with the vocabulary has the most to do.
    let more = key.child("more").uniform(0.05, 0.2);
    job.step.stage_work[stages - 1] += more;
    for work in &mut job.step.stage_work {
        *work /= 1.0 + more / *stages as f64;
    }
}

fn accumulation_silence(world: &mut World, key: RandomKey, _: f64) {
    let job = main_job(world);
    if job.nodes.len() > 1 {
        let most = ((40.0 / job.step_s) as usize).clamp(1, 32);
        job.step.accumulation_steps = 1 + key.child("steps").index(most);
        job.step.pipeline_stages = 1;
        job.step.stage_work = vec![1.0];
    }
}
