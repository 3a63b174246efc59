//! Sample answers for tests: small hand-made fleets that cover everything a screen can show.

use std::{collections::BTreeMap, sync::Arc};

use gaunt_schema::{
    AbsenceReason, Device, DeviceClass, Dialect, FindingKind, GpuState, MetricId, Reading,
    SanitizedText, UnixMs,
    catalogue::{exporter, gpu, gpu_parts, host, port, probe_results as probed},
};

use super::{ConsoleSource, PendingAnswer, SourceError};
use gaunt_api::{
    DeviceDetail, FindingAction, LostGpuTime, MetricSeries, NodeCounts, NodeDetail, NodeLine,
    NodeState, Overview, Question, StateCount, TargetLine, TargetState, overview::HeatMap,
};

mod sample_findings;
mod sample_tables;

pub(super) use sample_findings::{
    alert_list, device_history, explanation_of, finding_contexts, job_start, port_down_finding,
    starved_finding,
};
pub(super) use sample_tables::{
    build_table, cable_table, closed_table, domain_table, gpu_table, job_detail, job_table,
    leaf_rail_fabric, number_cells, port_table, probe_matrix, process_table, target_table,
    text_cells,
};

/// A source that nobody answers for.
pub(super) struct UnreachableSource;

impl ConsoleSource for UnreachableSource {
    fn ask_question(self: Arc<Self>, _question: Question) -> PendingAnswer {
        Box::pin(async { Err(SourceError::Unanswered("unreachable".into())) })
    }

    fn send_action(self: Arc<Self>, _action: FindingAction) -> PendingAnswer {
        Box::pin(async { Err(SourceError::Unanswered("unreachable".into())) })
    }

    fn display_address(&self) -> Option<&str> {
        None
    }
}

/// Instant of all samples: 12:03:41 UTC.
pub(super) const AT: UnixMs = UnixMs(43_421_000);

/// Builds a fleet of `nodes` nodes with `gpus` GPUs each, whose states `state` returns.
pub(super) fn fleet_overview(
    nodes: usize,
    gpus: usize,
    state: impl Fn(usize, usize) -> GpuState,
) -> Overview {
    let names: Vec<SanitizedText> =
        (1..=nodes).map(|n| SanitizedText::new(&format!("gpu{n:03}"))).collect();
    let mut heat = HeatMap { nodes: names, gpus: vec![gpus as u16; nodes], states: String::new() };
    let mut counts: BTreeMap<GpuState, u32> = BTreeMap::new();
    for node in 0..nodes {
        for index in 0..gpus {
            let state = state(node, index);
            heat.states.push(state.letter_code());
            *counts.entry(state).or_default() += 1;
        }
    }
    let lost =
        counts.iter().filter(|(state, _)| state.is_lost_time()).map(|(_, n)| *n).sum::<u32>();
    Overview {
        cluster: "prod-a".into(),
        silent_clusters: Vec::new(),
        at: AT,
        period_ms: 1_000,
        nodes: NodeCounts { live: nodes as u32, ..NodeCounts::default() },
        states: counts.into_iter().map(|(state, gpus)| StateCount { state, gpus }).collect(),
        lost: LostGpuTime {
            gpus: f64::from(lost),
            findings_gpus: f64::from(lost),
            ..LostGpuTime::default()
        },
        heat,
        ..Overview::default()
    }
}

/// Builds a healthy fleet: two jobs compute and communicate, some nodes are idle.
pub(super) fn healthy_overview(nodes: usize) -> Overview {
    fleet_overview(nodes, 8, |node, index| match (node % 8, (node * 5 + index * 3) % 11) {
        (7, _) => GpuState::Idle,
        (_, 0) => GpuState::Communicating,
        _ => GpuState::Computing,
    })
}

/// Builds the demo fleet with both faults: a port that is down stops one node and its job waits; a data loader starves
/// another node.
pub(super) fn two_faults_overview(nodes: usize) -> Overview {
    let mut overview = fleet_overview(nodes, 8, |node, _| match node {
        2 => GpuState::Communicating,
        5 => GpuState::DataStarved,
        0..16 => GpuState::Waiting,
        node if node % 8 == 7 => GpuState::Idle,
        _ => GpuState::Computing,
    });
    overview.lost.cost_per_hour = Some(overview.lost.gpus * 2.5);
    overview.lost.currency = "USD".into();
    overview.lost.findings_gpus = 119.4;
    overview.lost.unexplained_gpus = overview.lost.gpus - 119.4;
    let steps = (0_u8..90).map(|at| Some(f32::from(at.saturating_sub(60).min(16)) * 8.0));
    overview.lost.history = steps.collect();
    overview.lost.history[3] = None;
    overview.lost.history_step_ms = 10_000;
    overview.lost.price_per_gpu_hour = Some(2.5);
    overview.findings = vec![port_down_finding(), starved_finding()];
    overview.contexts = finding_contexts();
    overview.changes = vec![job_start()];
    overview.findings_open = 2;
    overview.worst = vec![
        node_line("gpu006", "dddddddd", 8.0, Some(FindingKind::DataStarved), (8, 8)),
        node_line("gpu001", "wwwwwwww", 8.0, None, (8, 8)),
        node_line("gpu002", "wwwwwwww", 8.0, None, (8, 8)),
        node_line("gpu003", "NNNNNNNN", 0.0, Some(FindingKind::PortDown), (7, 8)),
    ];
    overview
}

/// Builds one node without GPUs.
pub(super) fn single_node() -> (Overview, NodeDetail) {
    let mut overview = fleet_overview(0, 0, |_, _| GpuState::Unknown);
    overview.cluster = SanitizedText::default();
    overview.nodes.live = 1;
    let mut line = node_line("workbench", "", 0.0, None, (0, 0));
    line.utilization_ratio = None;
    line.power_watts = None;
    line.jobs.clear();
    overview.worst = vec![line.clone()];
    let nvml = "libnvidia-ml.so.1 is not on this machine: no NVIDIA driver is installed";
    let mut collector = device_detail(&Device::new_collector("nvml"));
    set_info(&mut collector, exporter::COLLECTOR_INFO, &[("message", nvml)]);
    let mut detail = node_detail("workbench");
    detail.line = line;
    detail.devices.retain(|device| !matches!(device.class, DeviceClass::Gpu | DeviceClass::Port));
    detail.devices.push(collector);
    (overview, detail)
}

pub(super) fn node_line(
    name: &str,
    states: &str,
    lost: f64,
    finding: Option<FindingKind>,
    ports: (u32, u32),
) -> NodeLine {
    NodeLine {
        node: name.into(),
        state: NodeState::Live,
        age_ms: Some(400),
        gpu_states: states.into(),
        lost_gpus: lost,
        utilization_ratio: Some(0.98),
        power_watts: Some(3_412.0),
        ports,
        jobs: vec!["8812".into()],
        finding,
    }
}

/// Builds a node with eight GPUs and eight ports, one of them down.
pub(super) fn node_detail(name: &str) -> NodeDetail {
    let mut devices = vec![host_device()];
    devices.extend((0..8).map(gpu_device));
    devices.extend((0..8).map(port_device));
    devices.push(netdev_device());
    devices.push(xid_device());
    devices.extend((0..2).map(process_device));
    devices.extend(probe_devices());
    NodeDetail {
        at: AT,
        line: node_line(name, "NNNNNNNN", 0.0, Some(FindingKind::PortDown), (7, 8)),
        clock_skew_ms: Some(2),
        devices,
        history_step_ms: 2_000,
        findings: vec![port_down_finding()],
        targets: vec![target_line("127.1.0.3:9770", name)],
    }
}

fn target_line(address: &str, node: &str) -> TargetLine {
    TargetLine {
        address: address.into(),
        node: Some(node.into()),
        origin: "demo".into(),
        state: TargetState::Live,
        dialect: Some(Dialect::Gaunt),
        last_attempt: Some(AT),
        last_success: Some(AT),
        failure: None,
        message: None,
        duration_ms: Some(1.25),
        samples: 960,
        bytes: 60_000,
        rejected: gaunt_schema::RejectionCounts::default(),
        missed: 0,
        dropped_batches: 0,
    }
}

fn device_detail(of: &Device) -> DeviceDetail {
    DeviceDetail {
        class: of.class,
        name: SanitizedText::new(&of.to_string()),
        labels: of.key_labels().map(|(name, value)| (name.to_owned(), value.clone())).collect(),
        info: BTreeMap::new(),
        state: None,
        values: BTreeMap::new(),
        rates: BTreeMap::new(),
        history: Vec::new(),
    }
}

fn set_reading(device: &mut DeviceDetail, metric: MetricId, reading: impl Into<Reading>) {
    device.values.insert(metric.series_key(), reading.into());
}

fn set_rate(device: &mut DeviceDetail, metric: MetricId, rate: f64) {
    device.rates.insert(metric.series_key(), rate);
}

fn set_info(device: &mut DeviceDetail, metric: MetricId, labels: &[(&str, &str)]) {
    let labels =
        labels.iter().map(|(name, value)| (SanitizedText::new(name), SanitizedText::new(value)));
    device.info.insert(metric.series_key(), labels.collect());
}

fn set_history(device: &mut DeviceDetail, metric: MetricId, value: impl Fn(u8) -> Option<f32>) {
    device
        .history
        .push(MetricSeries { metric: metric.series_key(), points: (0..60).map(value).collect() });
}

fn host_device() -> DeviceDetail {
    let mut node = device_detail(&Device::new_node());
    set_info(&mut node, host::NODE_INFO, &[("version", "0.1.0"), ("kernel", "6.1.0-18-amd64")]);
    set_reading(&mut node, host::CPUS, 64.0);
    set_reading(&mut node, host::CPU_BUSIEST, 1.0);
    set_reading(&mut node, probed::RUNS, 12.0);
    set_reading(&mut node, probed::LAST_CODE, 5.0);
    set_reading(&mut node, probed::LAST_RUN, (AT.0 / 1_000 - 240) as f64);
    set_reading(&mut node, probed::DURATION, 2.14);
    set_reading(&mut node, probed::SKIPPED_USE, 3.0);
    set_reading(&mut node, probed::SKIPPED_JOB, 1.0);
    set_reading(&mut node, host::MEMORY_TOTAL, 1_024.0 * f64::from(1 << 30));
    set_reading(&mut node, host::MEMORY_AVAILABLE, 612.0 * f64::from(1 << 30));
    set_rate(&mut node, host::CPU_BUSY, 12.3);
    set_rate(&mut node, host::IO_PRESSURE, 0.34);
    set_rate(&mut node, host::CPU_PRESSURE, 0.03);
    set_history(&mut node, host::CPU_BUSY, |at| Some(f32::from(at) / 2.0));
    set_history(&mut node, host::IO_PRESSURE, |at| Some(if at > 40 { 0.34 } else { 0.0 }));
    node
}

fn gpu_device(index: u32) -> DeviceDetail {
    let mut device = device_detail(&Device::new_gpu(index));
    device.state = Some(GpuState::Communicating);
    set_info(&mut device, gpu::JOB_INFO, &[("job", "8812"), ("name", "llama-pt")]);
    set_reading(&mut device, gpu::UTILIZATION, 1.0);
    set_reading(&mut device, gpu::MEMORY_USED, 61.2 * f64::from(1 << 30));
    set_reading(&mut device, gpu::MEMORY_TOTAL, 80.0 * f64::from(1 << 30));
    set_reading(&mut device, gpu::POWER, 180.0);
    set_reading(&mut device, gpu::POWER_LIMIT, 700.0);
    set_reading(&mut device, gpu::SM_CLOCK, 1.98e9);
    set_reading(&mut device, gpu::SM_ACTIVE, AbsenceReason::NoPermission);
    set_reading(&mut device, gpu::TENSOR_ACTIVE, AbsenceReason::Unsupported);
    if index != 6 {
        set_reading(&mut device, gpu::TEMPERATURE, 52.0);
    }
    if index == 5 {
        set_reading(&mut device, gpu::CLOCK_EVENT_HW_THERMAL, 1.0);
    }
    set_history(&mut device, gpu::UTILIZATION, |at| (at != 30).then_some(f32::from(at) / 60.0));
    device
}

fn port_device(index: u32) -> DeviceDetail {
    let mut device = device_detail(&Device::new_port(&format!("mlx5_{index}"), "1"));
    let up = index != 1;
    set_info(&mut device, port::INFO, &[("rail", &index.to_string()), ("leaf", "leaf-07")]);
    set_reading(&mut device, port::STATE, if up { 4.0 } else { 1.0 });
    set_reading(&mut device, port::RATE, if up { 50e9 } else { 5e9 });
    set_history(&mut device, port::RATE, move |at| Some(if up || at < 20 { 50e9 } else { 5e9 }));
    if up {
        set_rate(&mut device, port::RECEIVE_BYTES, 20e9);
        set_rate(&mut device, port::TRANSMIT_BYTES, 19e9);
        set_rate(&mut device, port::SYMBOL_ERRORS, if index == 4 { 2.5 } else { 0.0 });
    }
    set_history(&mut device, port::STATE, move |at| Some(if up || at < 20 { 4.0 } else { 1.0 }));
    let rate = move |at: u8| if up || at < 20 { Some(20e9) } else { Some(0.0) };
    set_history(&mut device, port::RECEIVE_BYTES, rate);
    set_history(&mut device, port::TRANSMIT_BYTES, rate);
    device
}

fn netdev_device() -> DeviceDetail {
    let mut device = device_detail(&Device::new_netdev("eth0"));
    set_reading(&mut device, host::NETDEV_CARRIER, 1.0);
    set_reading(&mut device, host::NETDEV_SPEED, 25e9 / 8.0);
    set_rate(&mut device, host::NETDEV_RECEIVE_BYTES, 150_000.0);
    set_rate(&mut device, host::NETDEV_TRANSMIT_BYTES, 40_000.0);
    set_rate(&mut device, host::NETDEV_RECEIVE_ERRORS, 0.0);
    set_history(&mut device, host::NETDEV_RECEIVE_BYTES, |at| Some(f32::from(at % 7)));
    device
}

fn xid_device() -> DeviceDetail {
    let mut device = device_detail(&Device::new_gpu_part(DeviceClass::Xid, 5, 79));
    set_reading(&mut device, gpu_parts::XID_ERRORS, 2.0);
    set_reading(&mut device, gpu_parts::XID_LAST_SEEN, (AT.0 / 1_000 - 30) as f64);
    device
}

/// Builds the results of the node's own probe, one of them below its baseline.
fn probe_devices() -> Vec<DeviceDetail> {
    let one = |collective: &str, between: &str, busbw: f64, baseline: f64| {
        let mut device = device_detail(&Device::new_probe(collective, between));
        set_reading(&mut device, probed::BUS_BANDWIDTH, busbw);
        set_reading(&mut device, probed::BASELINE_RATIO, baseline);
        set_reading(&mut device, probed::WRONG, 0.0);
        device
    };
    let mut slow = one("copy", "gpu0-gpu5", 21e9, 0.52);
    set_reading(&mut slow, probed::REFERENCE_RATIO, 0.55);
    vec![one("all_reduce", "gpu0..7", 412e9, 0.99), slow]
}

fn process_device(gpu: u32) -> DeviceDetail {
    let mut device = device_detail(&Device::new_gpu_part(DeviceClass::Process, gpu, 40_213 + gpu));
    let who = [("name", "python3"), ("user", "alice"), ("job", "8812")];
    set_info(&mut device, gpu_parts::PROCESS_INFO, &who);
    set_reading(&mut device, gpu_parts::PROCESS_MEMORY, f64::from(1 << 30) * f64::from(20 + gpu));
    set_reading(&mut device, gpu_parts::PROCESS_SM, AbsenceReason::NoPermission);
    device
}
