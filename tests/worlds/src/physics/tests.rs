//! Tests of the physics as a whole.

use std::time::Instant;

use super::{RatePhysics, sizing::is_of_network};
use crate::{
    cluster_plan::{
        ClusterPlan, FabricPlan, GpuModel, GpuPlan, HostPlan, LeafLayout, LinkLayer, NodePlan,
        PortPlan, PortRole,
    },
    fault_plan::{FaultCourse, FaultKind, FaultPlan},
    job_plan::{JobKind, JobPlan, PausePlan, StepPlan},
    node_state::NodeState,
    random::RandomKey,
};

/// All kinds whose severity is chosen for a loss.
const SIZED: [FaultKind; 18] = [
    FaultKind::LoaderSlowLoud,
    FaultKind::LoaderSlowSilent,
    FaultKind::StorageSlowForJob,
    FaultKind::StorageSlowForAll,
    FaultKind::GpuClockLow,
    FaultKind::GpuThermal,
    FaultKind::PowerBrake,
    FaultKind::LaunchBound,
    FaultKind::PcieDegraded,
    FaultKind::NvlinkErrors,
    FaultKind::NvswitchSlow,
    FaultKind::LeafCongested,
    FaultKind::RailSlow,
    FaultKind::Incast,
    FaultKind::SlowReceiver,
    FaultKind::LinkErrors,
    FaultKind::StageImbalance,
    FaultKind::DataSkew,
];

/// Kinds with one severity that the physics show.
const UNSIZED: [FaultKind; 7] = [
    FaultKind::PortDown,
    FaultKind::PortFlap,
    FaultKind::PortRateLow,
    FaultKind::Hang,
    FaultKind::GpuLost,
    FaultKind::GpuMemoryErrors,
    FaultKind::IdleAllocated,
];

fn new_port(node: usize, rail: usize) -> PortPlan {
    PortPlan {
        role: PortRole::Collective { rail },
        rate_gbps: 400.0,
        is_never_up: false,
        leaf: Some(node / 2 * 4 + rail),
        background_bytes_per_s: 1e5,
        background_mark_share: 1e-5,
        background_out_of_sequence_ppm: 1.0,
    }
}

fn new_node(node: usize) -> NodePlan {
    let new_gpu = |gpu: usize| GpuPlan {
        model: GpuModel::H100,
        silicon_speed: 0.99 + 0.002 * (node + gpu) as f64,
        power_limit_w: 700.0,
        hotter_c: gpu as f64,
        has_mig: false,
        corrected_errors_per_hour: 0.0,
        application_xid: None,
    };
    NodePlan {
        gpus: (0..8).map(new_gpu).collect(),
        ports: (0..4).map(|rail| new_port(node, rail)).collect(),
        has_nvlink: true,
        host: HostPlan {
            cpus: 128,
            base_busy_cpus: 2.0,
            base_cpu_pressure: 0.003,
            base_io_pressure: 0.001,
            has_spinning_daemon: node == 1,
            chores: vec![],
            inlet_c: 24.0,
            inlet_wave: (0.0, 900.0),
            clock_offset_s: 0.0,
        },
        rack: node / 2,
    }
}

fn new_job(nodes: Vec<usize>) -> JobPlan {
    JobPlan {
        nodes,
        gpus: 0..8,
        kind: JobKind::Train,
        runs_s: -1e6..1e6,
        step_s: 2.5,
        step: StepPlan {
            compute: 0.55,
            host_copy: 0.05,
            host: 0.08,
            node_collective: 0.12,
            network_collective: 0.3,
            overlap: 0.4,
            network_intensity: 0.6,
            accumulation_steps: 0,
            pipeline_stages: 2,
            stage_work: vec![1.02, 0.98],
            tensor_group: 4,
            prefetch_s: 20.0,
            read_bytes_per_s: 4e8,
            work_spread: 0.01,
            tensor_share: 0.5,
            memory_share: 0.4,
            compute_power: 0.9,
        },
        spins_while_waiting: true,
        checkpoint: None,
        evaluation: None,
        work_drift: 0.0,
        work_change: None,
        ends_in_crash: false,
    }
}

fn new_plan(link_layer: LinkLayer) -> ClusterPlan {
    ClusterPlan {
        nodes: (0..6).map(new_node).collect(),
        jobs: vec![new_job(vec![0, 1, 2, 3])],
        fabric: FabricPlan {
            link_layer,
            leaves: 12,
            leaf_layout: LeafLayout::PerRail,
            nodes_per_leaf: 2,
            has_pfc: true,
            has_ecn: true,
            mark_gain: 0.01,
            has_adaptive_routing: false,
            wait_tick_s: 1e-8,
        },
        power_cap: None,
    }
}

fn new_fault(kind: FaultKind, loss: f64) -> FaultPlan {
    FaultPlan {
        kind,
        job: Some(0),
        node: 2,
        gpu: 3,
        port: 1,
        leaf: 5,
        rail: 1,
        loss,
        onset_s: 60.0,
        course: FaultCourse::Steady,
    }
}

fn start(plan: &ClusterPlan, faults: &[FaultPlan], seed: u64) -> RatePhysics {
    RatePhysics::new(plan, faults, RandomKey::new(seed)).expect("a cluster for these faults")
}

fn mean_pace(physics: &mut RatePhysics, from_s: f64, to_s: f64) -> f64 {
    physics.advance_to(from_s);
    let mut sum = 0.0;
    let count = (to_s - from_s) as usize;
    for second in 0..count {
        physics.advance_to(from_s + second as f64 + 1.0);
        sum += physics.job_pace(0);
    }
    sum / count as f64
}

/// Everything that only grows.
fn counters(state: &NodeState) -> Vec<f64> {
    let mut all = Vec::new();
    for gpu in &state.gpus {
        all.extend([
            gpu.busy_s,
            gpu.engine_active_s,
            gpu.sm_active_s,
            gpu.tensor_active_s,
            gpu.dram_active_s,
            gpu.energy_j,
            gpu.power_violation_s,
            gpu.thermal_violation_s,
            gpu.pcie_receive_bytes,
            gpu.pcie_transmit_bytes,
            gpu.pcie_replays,
            gpu.nvlink_receive_bytes,
            gpu.nvlink_crc_errors,
            gpu.nvlink_replays,
            gpu.ecc_corrected,
            gpu.ecc_uncorrected,
            gpu.remapped_rows,
        ]);
    }
    for port in &state.ports {
        all.extend([
            port.receive_bytes,
            port.transmit_bytes,
            port.receive_packets,
            port.transmit_packets,
            port.transmit_wait_ticks,
            port.ecn_marked_packets,
            port.cnp_sent,
            port.cnp_handled,
            port.out_of_sequence,
            port.packet_sequence_errors,
            port.ack_timeouts,
            port.rnr_naks,
            port.out_of_buffer,
            port.adaptive_retransmits,
            port.symbol_errors,
            port.receive_errors,
            port.transmit_discards,
            port.link_downed,
            port.link_error_recoveries,
            port.pause_received_s,
            port.pause_sent_s,
            port.corrected_bits,
        ]);
    }
    let host = &state.host;
    all.extend(&host.cpu_busy_s);
    all.extend([
        host.cpu_iowait_s,
        host.cpu_pressure_some_s,
        host.io_pressure_some_s,
        host.io_pressure_full_s,
        host.memory_pressure_some_s,
        host.nfs_read_operations,
        host.nfs_read_response_s,
        host.nfs_read_bytes,
        host.disk_reads,
        host.disk_write_s,
        host.disk_busy_s,
        host.netdev_receive_bytes,
        host.netdev_transmit_bytes,
    ]);
    all
}

/// How much every counter of all nodes grows between two instants.
fn growth(physics: &mut RatePhysics, from_s: f64, to_s: f64) -> Vec<f64> {
    let count = physics.nodes.len();
    let all = |physics: &RatePhysics| -> Vec<f64> {
        (0..count).flat_map(|node| counters(physics.node_state(node))).collect()
    };
    physics.advance_to(from_s);
    let before = all(physics);
    physics.advance_to(to_s);
    all(physics).iter().zip(before).map(|(after, before)| after - before).collect()
}

#[test]
fn sized_faults_cost_their_loss() {
    for link_layer in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
        let mut plan = new_plan(link_layer);
        plan.nodes.truncate(4);
        let sound = mean_pace(&mut start(&plan, &[], 5), 500.0, 650.0);
        let is_tried = |kind: &FaultKind| link_layer == LinkLayer::Ethernet || is_of_network(*kind);
        for kind in SIZED.into_iter().filter(is_tried) {
            for loss in [0.06, 0.3, 0.7] {
                let mut physics = start(&plan, &[new_fault(kind, loss)], 5);
                let pace = mean_pace(&mut physics, 500.0, 650.0);
                let found = 1.0 - pace / sound;
                assert!((found - loss).abs() < 0.01, "{kind:?}: {found:.3} instead of {loss}");
                let shown_s = physics.shown_from_s(0).unwrap_or(f64::NAN);
                assert!((60.0..480.0).contains(&shown_s), "{kind:?} {loss}: {shown_s}");
            }
        }
    }
}

#[test]
fn an_impossible_fault_says_why() {
    let mut plan = new_plan(LinkLayer::Ethernet);
    plan.jobs[0].nodes = vec![2];
    plan.jobs[0].step.read_bytes_per_s = 0.0;
    for kind in [
        FaultKind::LeafCongested,
        FaultKind::Incast,
        FaultKind::StorageSlowForJob,
        FaultKind::StorageSlowForAll,
    ] {
        let answer = RatePhysics::new(&plan, &[new_fault(kind, 0.2)], RandomKey::new(1));
        assert!(answer.is_err_and(|reason| !reason.is_empty()), "{kind:?}");
    }
    let mut fault = new_fault(FaultKind::Hang, 0.0);
    fault.job = None;
    assert!(RatePhysics::new(&plan, &[fault], RandomKey::new(1)).is_err());
}

#[test]
fn every_fault_changes_what_can_be_seen() {
    for link_layer in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
        let plan = new_plan(link_layer);
        let mut physics = start(&plan, &[], 5);
        let sound = growth(&mut physics, 300.0, 500.0);
        for kind in SIZED.into_iter().chain(UNSIZED) {
            let mut faulty = start(&plan, &[new_fault(kind, 0.2)], 5);
            let found = growth(&mut faulty, 300.0, 500.0);
            let changed = sound
                .iter()
                .zip(&found)
                .filter(|(sound, found)| (*sound - *found).abs() > 0.1 * sound.abs().max(1e-3));
            let is_rate = kind == FaultKind::PortRateLow
                && faulty.node_state(2).ports[1].rate_gbps < plan.nodes[2].ports[1].rate_gbps;
            assert!(changed.count() > 0 || is_rate, "{kind:?}");
        }
    }
}

#[test]
fn counters_never_fall() {
    let mut plan = new_plan(LinkLayer::Ethernet);
    plan.jobs[0].checkpoint =
        Some(PausePlan { first_s: 100.0, every_s: 150.0, lasts_s: 20.0, is_by_one_rank: true });
    plan.jobs.push(JobPlan { kind: JobKind::Serve, ..new_job(vec![4]) });
    plan.jobs.push(JobPlan { kind: JobKind::Idle, ..new_job(vec![5]) });
    for kind in SIZED.into_iter().chain(UNSIZED) {
        let mut fault = new_fault(kind, 0.3);
        fault.course = FaultCourse::Intermittent { on_s: 17.0, every_s: 40.0 };
        let mut physics = start(&plan, &[fault], 9);
        let mut t_s = 0.0;
        while t_s < 200.0 {
            let seconds = 0.07 + 1.3 * (t_s * 7.0_f64).sin().abs();
            for (index, grown) in growth(&mut physics, t_s, t_s + seconds).iter().enumerate() {
                assert!(*grown >= 0.0 && grown.is_finite(), "{kind:?} {index}: {grown} at {t_s}");
            }
            t_s += seconds;
        }
    }
}

#[test]
fn seeds_repeat_at_any_cadence() {
    let mut plan = new_plan(LinkLayer::Ethernet);
    plan.jobs.push(JobPlan { kind: JobKind::Alternate, ..new_job(vec![4, 5]) });
    let faults = [new_fault(FaultKind::GpuThermal, 0.2)];
    let mut often = start(&plan, &faults, 3);
    let mut seldom = start(&plan, &faults, 3);
    let mut other = start(&plan, &faults, 4);
    for tick in 0..2_000 {
        often.advance_to(f64::from(tick) * 0.1);
    }
    seldom.advance_to(199.9);
    other.advance_to(199.9);
    for node in 0..6 {
        let one = counters(often.node_state(node));
        for (often, seldom) in one.iter().zip(counters(seldom.node_state(node))) {
            assert!((often - seldom).abs() <= 1e-6 * often.abs().max(1.0), "{often} {seldom}");
        }
        assert_ne!(one, counters(other.node_state(node)));
    }
}

#[test]
fn quiet_clusters_are_stationary() {
    for (step_s, accumulation_steps) in [(0.08, 0), (2.5, 0), (12.0, 3)] {
        let mut plan = new_plan(LinkLayer::InfiniBand);
        plan.jobs[0].step_s = step_s;
        plan.jobs[0].step.accumulation_steps = accumulation_steps;
        let mut physics = start(&plan, &[], 8);
        let pace = mean_pace(&mut physics, 0.0, 400.0);
        assert!((pace * step_s - 1.0).abs() < 0.005, "{}", pace * step_s);
        let first = growth(&mut physics, 400.0, 1_000.0);
        let second = growth(&mut physics, 1_000.0, 1_600.0);
        for (index, (first, second)) in first.iter().zip(&second).enumerate() {
            let difference = (first - second).abs();
            assert!(difference <= 0.6 * first.abs() + 2.0, "{index}: {first} {second}");
        }
        for gpu in &physics.node_state(0).gpus {
            assert!((40.0..84.0).contains(&gpu.temperature_c), "{}", gpu.temperature_c);
        }
    }
}

#[test]
fn long_steps_alternate_at_an_instant() {
    let mut plan = new_plan(LinkLayer::Ethernet);
    plan.jobs[0].step_s = 20.0;
    let mut physics = start(&plan, &[], 8);
    let (mut lowest, mut highest) = (f64::INFINITY, 0.0_f64);
    for tick in 0..1_000 {
        let t_s = f64::from(tick) * 0.1;
        physics.advance_to(t_s);
        let before = physics.node_state(0).gpus[0].tensor_active_s;
        physics.advance_to(t_s + 0.05);
        let rate = (physics.node_state(0).gpus[0].tensor_active_s - before) / 0.05;
        lowest = lowest.min(rate);
        highest = highest.max(rate);
    }
    assert!(lowest < 0.01 && highest > 0.3, "{lowest} {highest}");
}

#[test]
fn victims_wait_and_the_culprit_works() {
    let plan = new_plan(LinkLayer::Ethernet);
    let mut physics = start(&plan, &[new_fault(FaultKind::GpuClockLow, 0.4)], 5);
    physics.advance_to(300.0);
    let read = |physics: &RatePhysics, node: usize| {
        let gpu = &physics.node_state(node).gpus[3];
        (gpu.tensor_active_s, gpu.sm_active_s, gpu.energy_j, gpu.busy_s)
    };
    let before = [read(&physics, 0), read(&physics, 2)];
    physics.advance_to(500.0);
    let after = [read(&physics, 0), read(&physics, 2)];
    let tensor = |at: usize| (after[at].0 - before[at].0) / 200.0;
    let sm = |at: usize| (after[at].1 - before[at].1) / 200.0;
    assert!(tensor(0) < 0.8 * tensor(1), "{} {}", tensor(0), tensor(1));
    assert!(sm(0) < sm(1));
    assert!((after[0].3 - before[0].3) / 200.0 > 0.85);
    assert!(physics.node_state(2).gpus[3].sm_clock_mhz < 1_500.0);
}

#[test]
fn a_lost_gpu_stops_its_job() {
    let plan = new_plan(LinkLayer::Ethernet);
    let mut physics = start(&plan, &[new_fault(FaultKind::GpuLost, 0.0)], 5);
    physics.advance_to(59.0);
    assert!(physics.node_state(2).gpus[3].is_present && physics.is_job_training(0));
    physics.advance_to(70.0);
    assert!(!physics.node_state(2).gpus[3].is_present && !physics.is_job_training(0));
    assert_eq!(physics.node_state(2).gpus[3].last_xid, 79);
    assert!(physics.job_pace(0).abs() < 1e-12);
}

#[test]
fn long_runs_are_cheap() {
    let plan = new_plan(LinkLayer::Ethernet);
    let mut physics = start(&plan, &[new_fault(FaultKind::RailSlow, 0.3)], 5);
    let begun = Instant::now();
    physics.advance_to(600.0);
    let micros = begun.elapsed().as_secs_f64() * 1e6 / (600.0 * 48.0);
    println!("{micros:.2} µs per GPU and second");
    assert!(micros < 500.0, "{micros}");
}
