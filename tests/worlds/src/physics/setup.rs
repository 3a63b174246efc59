//! A cluster before its run: models, sized faults, first states.

use super::{
    GRID_S, RatePhysics,
    activity::{GpuSetting, JobHabits, RankStep, capped_clock},
    gang::{Conditions, GangModel, Scratch},
    gang_run::GangRun,
    gpus::GpuRun,
    hosts::HostRun,
    impairment::{Impairment, SizedFault},
    ports::PortBank,
    sizing::Sizer,
    wiring::Wiring,
};
use crate::{
    cluster_plan::ClusterPlan,
    fault_plan::{FaultKind, FaultPlan},
    job_plan::JobPlan,
    node_state::{NodeState, PortState},
    random::RandomKey,
};

/// Seconds before the run in which the physics settle.
const SETTLING_S: f64 = 150.0;
/// The same at most, for faults that begin before the run.
const LONGEST_SETTLING_S: f64 = 600.0;

/// How a job is, beyond its plan.
fn draw_habits(job: &JobPlan, key: RandomKey) -> JobHabits {
    let polls = key.child("polls").chance(0.12);
    JobHabits {
        compute_sm: key.child("compute").uniform(0.72, 0.95),
        collective_sm: key.child("collective").uniform(0.06, 0.22),
        spin_power: key.child("spin").uniform(0.1, 0.24),
        spins: job.spins_while_waiting,
        thread_busy: if polls { 0.985 } else { key.child("thread").uniform(0.25, 0.7) },
        loader_cpus: key.child("loaders").log_uniform(0.03, 0.3),
        memory_share: key.child("memory").uniform(0.55, 0.94),
        startup_s: key.child("startup").uniform(20.0, 70.0),
        loader_headroom: key.child("headroom").uniform(1.25, 2.5),
        storage_headroom: if job.step.read_bytes_per_s > 0.0 {
            key.child("storage").uniform(1.4, 4.0)
        } else {
            f64::INFINITY
        },
        turn_s: key.child("turn").uniform(40.0, 140.0).max(12.0 * job.step_s),
    }
}

/// The cluster of [`RatePhysics::new`].
pub(super) fn new_physics(
    plan: &ClusterPlan,
    faults: &[FaultPlan],
    key: RandomKey,
) -> Result<RatePhysics, String> {
    let wiring = Wiring::new(plan);
    let soundness = Impairment::new(plan, &wiring);
    let habits: Vec<JobHabits> = (0..plan.jobs.len())
        .map(|job| draw_habits(&plan.jobs[job], key.child("habits").child_index(job)))
        .collect();
    let (mut gpus, mut nodes) = draw_gpus(plan, &wiring, &soundness, key);
    let clocks: Vec<f64> = gpus.iter().map(|gpu| gpu.cap_clock).collect();
    let slow_hosts = vec![0.0; plan.nodes.len()];
    let conditions =
        Conditions { clocks: &clocks, impairment: &soundness, work: 1.0, slow_hosts: &slow_hosts };
    let models: Vec<GangModel> = wiring
        .gangs
        .iter()
        .map(|gang| GangModel::new(gang, &plan.jobs[gang.job], plan, &wiring, conditions))
        .collect();
    let sizer = Sizer { plan, wiring: &wiring, models: &models, gpus: &gpus, habits: &habits };
    let faults = size_faults(faults, &sizer, key)?;
    settle_heat(&mut gpus);
    let mut ports = PortBank::new(plan, key.child("ports"));
    find_incasts(&faults, &mut ports, plan, &wiring);
    let (hosts, storage_ports) = draw_hosts(plan, &wiring, &ports, &mut nodes, key);
    let gangs = models.into_iter().enumerate().map(|(index, model)| {
        let job = &plan.jobs[model.gang.job];
        GangRun::new(model, job, key.child("gang").child_index(index))
    });
    let gangs = gangs.collect();
    let earliest_s = faults.iter().map(|fault| fault.plan.onset_s).fold(0.0, f64::min);
    let settling_s = (SETTLING_S - earliest_s).min(LONGEST_SETTLING_S);
    let first_refresh = (-settling_s / GRID_S).floor() as i64;
    let mut physics = RatePhysics {
        impairment: soundness.clone(),
        soundness,
        clocks,
        slow_hosts,
        scratch: Scratch::default(),
        power_share: 1.0,
        duration_s: 3_600.0,
        now_s: first_refresh as f64 * GRID_S,
        next_refresh: first_refresh,
        last_refresh_s: f64::NAN,
        plan: plan.clone(),
        wiring,
        habits,
        faults,
        gangs,
        gpus,
        hosts,
        ports,
        storage_ports,
        nodes,
    };
    physics.advance_to(0.0);
    Ok(physics)
}

/// All faults with their severities.
fn size_faults(
    faults: &[FaultPlan],
    sizer: &Sizer<'_>,
    key: RandomKey,
) -> Result<Vec<SizedFault>, String> {
    let size = |(index, fault): (usize, &FaultPlan)| {
        let form = key.child("form").child_index(index).uniform(0.0, 1.0);
        let mut fault = sizer.size(fault, form)?;
        if fault.plan.kind == FaultKind::GpuThermal {
            break_cooler(&mut fault, sizer);
        }
        Ok(fault)
    };
    faults.iter().enumerate().map(size).collect()
}

/// All hosts, and the port through which each reaches its storage; their first states go to the nodes.
fn draw_hosts(
    plan: &ClusterPlan,
    wiring: &Wiring,
    ports: &PortBank,
    nodes: &mut [NodeState],
    key: RandomKey,
) -> (Vec<HostRun>, Vec<Option<usize>>) {
    let (mut hosts, mut storage_ports) = (Vec::new(), Vec::new());
    for (node, machine) in plan.nodes.iter().enumerate() {
        let key = key.child("host").child_index(node);
        let (mut host, state) = HostRun::new(&machine.host, machine.gpus.len(), key);
        let storage_port = ports.storage_port(wiring, node);
        host.reads_by_management = storage_port.is_none();
        hosts.push(host);
        storage_ports.push(storage_port);
        nodes[node].host = state;
        let port_key = |port| key.child("port").child_index(port);
        nodes[node].ports = (0..machine.ports.len()).map(|port| new_port(port_key(port))).collect();
    }
    (hosts, storage_ports)
}

/// All GPUs with the power that their jobs ask for, and states without hosts and ports.
fn draw_gpus(
    plan: &ClusterPlan,
    wiring: &Wiring,
    soundness: &Impairment,
    key: RandomKey,
) -> (Vec<GpuRun>, Vec<NodeState>) {
    let (mut gpus, mut nodes) = (Vec::new(), Vec::new());
    for (node, machine) in plan.nodes.iter().enumerate() {
        let mut state = NodeState::default();
        for (gpu, board) in machine.gpus.iter().enumerate() {
            let key = key.child("gpu").child_index(node).child_index(gpu);
            let sound = soundness.gpus[gpus.len()];
            let (run, first) = GpuRun::new(board, &machine.host, sound, key);
            gpus.push(run);
            state.gpus.push(first);
        }
        nodes.push(state);
    }
    for gang in &wiring.gangs {
        let share = plan.jobs[gang.job].step.compute_power;
        for rank in &gang.ranks {
            let gpu = &mut gpus[rank.gpu];
            gpu.demand_w = share * gpu.board.power_w;
            gpu.cap_clock = capped_clock(gpu.board, gpu.demand_w, gpu.limit_w);
        }
    }
    (gpus, nodes)
}

/// Chips begin as warm as their job makes them.
fn settle_heat(gpus: &mut [GpuRun]) {
    for gpu in gpus {
        let power_w = 0.6 * gpu.demand_w.min(gpu.limit_w);
        gpu.heat.settle(power_w.max(gpu.board.idle_w));
    }
}

/// Finds who sends to the ports that will be overloaded.
fn find_incasts(faults: &[SizedFault], ports: &mut PortBank, plan: &ClusterPlan, wiring: &Wiring) {
    for fault in faults {
        let count = plan.nodes.get(fault.plan.node).map_or(0, |node| node.ports.len());
        if fault.plan.kind == FaultKind::Incast && fault.plan.port < count {
            ports.find_senders(wiring.first_port[fault.plan.node] + fault.plan.port, wiring);
        }
    }
}

/// Chooses the thermal resistance with which a chip settles at the clock that costs the loss.
fn break_cooler(fault: &mut SizedFault, sizer: &Sizer<'_>) {
    let clock = 1.0 / (1.0 + fault.severity);
    let at = sizer.wiring.first_gpu[fault.plan.node] + fault.plan.gpu;
    let gpu = &sizer.gpus[at];
    let mut impairment = Impairment::new(sizer.plan, sizer.wiring);
    impairment.add(fault, (1.0, 0.0), sizer.plan, sizer.wiring);
    let clocks: Vec<f64> = sizer
        .gpus
        .iter()
        .zip(&impairment.gpus)
        .map(|(gpu, impairment)| gpu.compute_clock(impairment))
        .collect();
    let slow_hosts = vec![0.0; sizer.plan.nodes.len()];
    let mut power_w = gpu.board.power_w;
    for (index, model) in sizer.models.iter().enumerate() {
        let place = model.gang.ranks.iter().position(|rank| rank.gpu == at);
        let Some(place) = place.filter(|_| fault.plan.job == Some(model.gang.job)) else {
            continue;
        };
        let conditions = Conditions {
            clocks: &clocks,
            impairment: &impairment,
            work: 1.0,
            slow_hosts: &slow_hosts,
        };
        let step = model.solve(conditions, sizer.wiring, &mut Scratch::default());
        let setting: GpuSetting =
            gpu.setting(sizer.plan.nodes[fault.plan.node].has_nvlink, &impairment.gpus[at]);
        let rank_step = RankStep {
            gang: index,
            model,
            plan: &sizer.plan.jobs[model.gang.job].step,
            habits: &sizer.habits[model.gang.job],
            step: &step,
            total_s: step.total_s,
            starved_s: 0.0,
            rolls_out: false,
        };
        power_w = rank_step.activity(&step.ranks[place], &setting).mean.power_w;
    }
    fault.resistance = Some(gpu.heat.resistance_for(clock, power_w));
}

/// A port with what it has counted since its machine started.
fn new_port(key: RandomKey) -> PortState {
    let count = |purpose: &str, low: f64, high: f64| key.child(purpose).log_uniform(low, high);
    let seldom = |purpose: &str, most: f64| {
        let key = key.child(purpose);
        if key.child("any").chance(0.3) { key.uniform(1.0, most).floor() } else { 0.0 }
    };
    let bytes = count("bytes", 1e12, 1e17);
    PortState {
        receive_bytes: bytes * key.child("balance").uniform(0.8, 1.2),
        transmit_bytes: bytes,
        receive_packets: bytes / 3_000.0,
        transmit_packets: bytes / 3_000.0,
        transmit_wait_ticks: count("wait", 1e6, 1e12),
        ecn_marked_packets: count("marks", 1.0, 1e9),
        cnp_sent: count("sent", 1.0, 1e8),
        cnp_handled: count("handled", 1.0, 1e8),
        out_of_sequence: count("sequence", 1.0, 1e6),
        packet_sequence_errors: seldom("errors", 1e4),
        ack_timeouts: seldom("timeouts", 500.0),
        rnr_naks: seldom("naks", 500.0),
        out_of_buffer: seldom("buffers", 1e4),
        adaptive_retransmits: seldom("retransmits", 1e4),
        symbol_errors: seldom("symbols", 60.0),
        receive_errors: seldom("receive", 20.0),
        transmit_discards: seldom("discards", 200.0),
        link_downed: seldom("downs", 9.0),
        link_error_recoveries: seldom("recoveries", 5.0),
        pause_received: count("pauses", 1.0, 1e8),
        pause_received_s: count("paused", 1e-3, 2e3),
        pause_sent: count("pauses sent", 1.0, 1e7),
        pause_sent_s: count("pausing", 1e-3, 2e2),
        corrected_bits: count("corrected", 1e3, 1e12),
        ..PortState::default()
    }
}
