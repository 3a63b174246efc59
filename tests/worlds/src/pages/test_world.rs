//! A small world made by hand, and a state of its nodes that follows from the time alone.

use crate::{
    cluster_plan::{
        ClusterPlan, FabricPlan, GpuModel, GpuPlan, HostPlan, LeafLayout, LinkLayer, NodePlan,
        PortPlan, PortRole,
    },
    exporter_plan::{
        ExporterPlan, GpuExporter, GpuMetricSet, HostMetricSet, JobLabels, NodeExporterPlan,
        PortNames, TopologyPlan,
    },
    fault_plan::{FaultCourse, FaultKind, FaultPlan},
    job_plan::{JobKind, JobPlan, StepPlan},
    node_state::{GpuState, HostState, NodeState, PortState},
    world::World,
};

/// Nodes of the world.
pub(super) const NODES: usize = 3;

/// GPUs of a node.
pub(super) const GPUS: usize = 8;

/// Ports of a node.
pub(super) const PORTS: usize = 4;

/// Processors of a node.
pub(super) const CPUS: usize = 96;

/// When the job begins and ends, in seconds.
pub(super) const JOB_S: (f64, f64) = (120.0, 900.0);

/// A world of three nodes without a fault, with one job on two of them.
pub(super) fn plain_world(gpu_exporter: GpuExporter, gpu_metrics: GpuMetricSet) -> World {
    World {
        family: "by hand",
        seed: 7,
        cluster: ClusterPlan {
            nodes: vec![plain_node(gpu_exporter); NODES],
            jobs: vec![plain_job()],
            fabric: FabricPlan {
                link_layer: LinkLayer::Ethernet,
                leaves: 4,
                leaf_layout: LeafLayout::PerRail,
                nodes_per_leaf: NODES,
                has_pfc: true,
                has_ecn: true,
                mark_gain: 0.01,
                has_adaptive_routing: false,
                wait_tick_s: 4e-9,
            },
            power_cap: None,
        },
        exporters: ExporterPlan {
            gpu_exporter,
            gpu_metrics,
            host_metrics: HostMetricSet {
                has_pressure: true,
                has_nfs: true,
                has_ethtool: true,
                has_device_info: true,
                has_rdma_counters: true,
                has_processors: true,
            },
            labels: JobLabels::HpcJob,
            label_lag_s: 0.0,
            scrape_s: 15.0,
            collect_s: 10.0,
            gauge_window_s: 0.0,
            jitter_s: 0.4,
            lost_scrapes: 0.0,
            topology: TopologyPlan::None,
            has_job_list: false,
            nodes: (0..NODES).map(plain_exporters).collect(),
        },
        faults: Vec::new(),
        quiet_case: None,
        duration_s: 3_600.0,
    }
}

/// A fault of node 0 from an instant on.
pub(super) fn node_fault(kind: FaultKind, onset_s: f64) -> FaultPlan {
    FaultPlan {
        kind,
        job: None,
        node: 0,
        gpu: 0,
        port: 0,
        leaf: 0,
        rail: 0,
        loss: 0.0,
        onset_s,
        course: FaultCourse::Steady,
    }
}

fn plain_node(gpu_exporter: GpuExporter) -> NodePlan {
    let model = if gpu_exporter == GpuExporter::Amd { GpuModel::Mi300x } else { GpuModel::H100 };
    let gpu = GpuPlan {
        model,
        silicon_speed: 1.0,
        power_limit_w: 700.0,
        hotter_c: 0.0,
        has_mig: false,
        application_xid: None,
        corrected_errors_per_hour: 0.0,
    };
    let port = |rail| PortPlan {
        role: PortRole::Collective { rail },
        rate_gbps: 400.0,
        is_never_up: false,
        leaf: Some(rail),
        background_bytes_per_s: 1e4,
        background_mark_share: 0.0,
        background_out_of_sequence_ppm: 0.0,
    };
    NodePlan {
        gpus: vec![gpu; GPUS],
        ports: (0..PORTS).map(port).collect(),
        has_nvlink: true,
        host: HostPlan {
            cpus: CPUS,
            base_busy_cpus: 1.0,
            base_cpu_pressure: 0.01,
            base_io_pressure: 0.01,
            has_spinning_daemon: false,
            chores: Vec::new(),
            inlet_c: 24.0,
            inlet_wave: (1.0, 3_600.0),
            clock_offset_s: 0.25,
        },
        rack: 0,
    }
}

fn plain_job() -> JobPlan {
    JobPlan {
        nodes: vec![0, 2],
        gpus: 0..GPUS,
        kind: JobKind::Train,
        runs_s: JOB_S.0..JOB_S.1,
        step_s: 1.0,
        step: StepPlan {
            compute: 0.7,
            host_copy: 0.02,
            host: 0.03,
            node_collective: 0.1,
            network_collective: 0.15,
            overlap: 0.5,
            network_intensity: 0.8,
            accumulation_steps: 0,
            pipeline_stages: 1,
            stage_work: vec![1.0],
            tensor_group: 1,
            prefetch_s: 2.0,
            read_bytes_per_s: 1e9,
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

fn plain_exporters(node: usize) -> NodeExporterPlan {
    let port = |port: usize| PortNames {
        device: format!("mlx5_{port}"),
        netdev: Some(format!("eth{port}")),
        has_info: true,
    };
    NodeExporterPlan {
        name: format!("gpu{node:03}"),
        gpu_page_name: Some(format!("gpu{node:03}")),
        host_page_name: format!("gpu{node:03}.example.org"),
        address: format!("10.0.0.{node}"),
        scrape_offset_s: 1.5 * node as f64,
        collect_offset_s: 0.7 * node as f64,
        has_profiling: true,
        ports: (0..PORTS).map(port).collect(),
        gpu_numbers: vec![3, 2, 1, 0, 7, 6, 5, 4],
        restarts_s: Vec::new(),
        sticky_xid: vec![0; GPUS],
        is_wait_saturated: vec![false; PORTS],
        blank_share: 0.0,
        stalls: None,
    }
}

/// The state of any node at an instant; every counter grows, and narrow ones pass their ends.
pub(super) fn state_at(t_s: f64) -> NodeState {
    let gpu = |index: usize| gpu_at(t_s + 1e5, index as f64);
    let port = |index: usize| port_at(t_s + 1e5, 1.0 + index as f64);
    NodeState {
        gpus: (0..GPUS).map(gpu).collect(),
        ports: (0..PORTS).map(port).collect(),
        host: host_at(t_s + 1e5),
    }
}

fn gpu_at(time: f64, index: f64) -> GpuState {
    GpuState {
        is_present: true,
        busy_s: 0.95 * time,
        engine_active_s: 0.9 * time,
        sm_active_s: 0.6 * time,
        tensor_active_s: 0.3 * time,
        dram_active_s: 0.4 * time,
        energy_j: (500.0 + index) * time,
        temperature_c: 60.0 + index,
        memory_temperature_c: 70.0 + index,
        sm_clock_mhz: 1_755.0,
        memory_clock_mhz: 2_619.0,
        clock_event_bits: 4,
        power_violation_s: 0.2 * time,
        thermal_violation_s: 0.001 * time,
        memory_used_bytes: 6e10,
        pcie_receive_bytes: 1e9 * time,
        pcie_transmit_bytes: 5e8 * time,
        pcie_replays: 1e-3 * time,
        pcie_generation: 5,
        pcie_lanes: 16,
        nvlink_receive_bytes: 9e10 * time,
        nvlink_transmit_bytes: 9e10 * time,
        nvlink_crc_errors: 1e-3 * time,
        nvlink_replays: 1e-3 * time,
        ecc_corrected: 1e-3 * time,
        ecc_uncorrected: 0.0,
        remapped_rows: 1.0,
        last_xid: 0,
    }
}

fn port_at(time: f64, factor: f64) -> PortState {
    PortState {
        state: 4,
        physical_state: 5,
        rate_gbps: 400.0,
        receive_bytes: 2e10 * factor * time,
        transmit_bytes: 2e10 * factor * time,
        receive_packets: 5e6 * time,
        transmit_packets: 5e6 * time,
        transmit_wait_ticks: 1e7 * time,
        ecn_marked_packets: 1e3 * time,
        cnp_sent: 5e2 * time,
        cnp_handled: 4e2 * time,
        // Beyond 32 bits.
        out_of_sequence: 5e4 * time,
        packet_sequence_errors: 1e-2 * time,
        ack_timeouts: 1e-3 * time,
        rnr_naks: 1e-3 * time,
        out_of_buffer: 1e-2 * time,
        adaptive_retransmits: 1e-2 * time,
        // Beyond 16 bits from some instant of the run on.
        symbol_errors: 0.655 * time,
        receive_errors: 1e-3 * time,
        transmit_discards: 1e-3 * time,
        link_downed: 2.0,
        link_error_recoveries: 1.0,
        pause_received: 1e2 * time,
        pause_received_s: 1e-3 * time,
        pause_sent: 1e2 * time,
        pause_sent_s: 1e-3 * time,
        corrected_bits: 1e6 * time,
    }
}

fn host_at(time: f64) -> HostState {
    HostState {
        cpu_busy_s: (0..CPUS).map(|cpu| (0.1 + 0.005 * cpu as f64) * time).collect(),
        cpu_iowait_s: 0.5 * time,
        cpu_pressure_some_s: 0.02 * time,
        io_pressure_some_s: 0.03 * time,
        io_pressure_full_s: 0.01 * time,
        memory_pressure_some_s: 0.001 * time,
        memory_pressure_full_s: 0.0,
        load1: 12.346,
        runnable_tasks: 14.0,
        blocked_tasks: 1.0,
        memory_total_bytes: 2_164_000_000_000.0,
        memory_available_bytes: 1_800_000_000_000.0,
        nfs_read_operations: 1e3 * time,
        nfs_read_response_s: 4.0 * time,
        nfs_read_bytes: 1e9 * time,
        nfs_retransmits: 1e-3 * time,
        disk_reads: 50.0 * time,
        disk_read_s: 0.05 * time,
        disk_writes: 30.0 * time,
        disk_write_s: 0.06 * time,
        disk_busy_s: 0.04 * time,
        netdev_receive_bytes: 1e6 * time,
        netdev_transmit_bytes: 4e5 * time,
    }
}
