//! Tests of constant power: a job under power smoothing or a workload power profile looks like one that hangs, except for
//! the traffic of its NVLinks or its network.

use gaunt_schema::{
    Device, Dialect, FindingKind, GpuState, Report, Severity,
    catalogue::{gpu, host, port},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const GPUS: u32 = 4;

/// When power becomes constant, in seconds.
const FLAT_FROM: i64 = 180;

/// What carries the data of the job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DataPath {
    NvLinks,
    /// The ports; nothing is known of NVLinks.
    Network,
    /// The network device of a node without ports.
    Ethernet,
    /// Nothing is known of either, nor of what the hosts read and write.
    Unknown,
}

/// A node of a job without profiling counters: its power varies, and is constant at `flat_watts` from `FLAT_FROM` on.
/// `bytes` is what has gone over each GPU's NVLinks, or over the node's port.
fn job_page(path: DataPath, second: i64, node: usize, bytes: f64, flat_watts: f64) -> Report {
    let mut page = node_report(["gpu001", "gpu002"][node]);
    if path != DataPath::Unknown {
        push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e6);
    }
    push_reading(&mut page, Device::new_node(), host::CPU_BUSIEST, 0.3);
    for index in 0..GPUS {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        let varied = 850.0 + 100.0 * ((second + i64::from(index)) % 3) as f64;
        let power = if second >= FLAT_FROM { flat_watts } else { varied };
        for (metric, value) in
            [(gpu::UTILIZATION, 1.0), (gpu::POWER, power), (gpu::POWER_LIMIT, 1_200.0)]
        {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
        if path == DataPath::NvLinks {
            for metric in [gpu::NVLINK_RECEIVE, gpu::NVLINK_TRANSMIT] {
                push_reading(&mut page, Device::new_gpu(index), metric, bytes);
            }
        }
    }
    if path == DataPath::Ethernet {
        let sent = [host::NETDEV_RECEIVE_BYTES, host::NETDEV_TRANSMIT_BYTES];
        for (metric, value) in
            sent.map(|metric| (metric, bytes)).into_iter().chain([(host::NETDEV_SPEED, 5e10)])
        {
            push_reading(&mut page, Device::new_netdev("eth0"), metric, value);
        }
    }
    if path == DataPath::Network {
        let values = [(port::STATE, 4.0), (port::RATE, 5e10)];
        let sent = [(port::RECEIVE_BYTES, bytes), (port::TRANSMIT_BYTES, bytes)];
        for (metric, value) in values.into_iter().chain(sent) {
            push_reading(&mut page, Device::new_port("mlx5_0", "1"), metric, value);
        }
    }
    page
}

/// Runs the job for so many seconds; data is carried until `silent_from`.
fn run_job(path: DataPath, seconds: i64, silent_from: i64, flat_watts: f64) -> TargetFixture {
    let targets = [("gpu001:9770", Dialect::Gaunt), ("gpu002:9770", Dialect::Gaunt)];
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(seconds, |second, node| {
        job_page(path, second, node, second.min(silent_from) as f64 * 20e9, flat_watts)
    });
    fixture
}

fn hang_ids(fixture: &TargetFixture) -> Vec<&str> {
    fixture.open_ids().into_iter().filter(|id| id.starts_with("collective_hang")).collect()
}

#[test]
fn flat_power_of_a_job_that_sends_is_no_hang() {
    for path in [DataPath::NvLinks, DataPath::Network, DataPath::Ethernet] {
        let fixture = run_job(path, FLAT_FROM + 400, i64::MAX, 400.0);
        assert_eq!(hang_ids(&fixture), [""; 0]);
        assert_ne!(fixture.judge.gpu_state(0), GpuState::Hung);
        let silent = run_job(path, FLAT_FROM + 400, FLAT_FROM, 400.0);
        assert_eq!(hang_ids(&silent), ["collective_hang/8812"], "the same job without traffic");
    }
}

#[test]
fn flat_power_of_a_job_without_nvlink_traffic_is_a_hang() {
    // Little of its limit, and little of what it usually draws: some models draw much while they wait.
    for flat_watts in [400.0, 550.0] {
        let fixture = run_job(DataPath::NvLinks, FLAT_FROM + 400, FLAT_FROM, flat_watts);
        assert_eq!(hang_ids(&fixture), ["collective_hang/8812"], "{flat_watts} W");
        assert_eq!(fixture.judge.gpu_state(0), GpuState::Hung);
    }
    let fixture = run_job(DataPath::NvLinks, FLAT_FROM + 400, FLAT_FROM, 750.0);
    assert_eq!(hang_ids(&fixture), [""; 0], "it still draws most of its usual power");
}

/// Some models draw well over half of their usual power while they wait.
#[test]
fn flat_power_above_that_of_most_that_wait_is_a_hang_once_the_nodes_send_nothing() {
    let severity = |path: DataPath, seconds: i64, silent_from: i64, watts: f64| {
        let fixture = run_job(path, FLAT_FROM + seconds, silent_from, watts);
        let open = fixture.judge.open_findings();
        let hang = open.iter().find(|finding| finding.kind == FindingKind::CollectiveHang);
        hang.map(|hang| hang.severity)
    };
    let network = DataPath::Network;
    for seconds in [80, 170] {
        let found = severity(network, seconds, FLAT_FROM, 600.0);
        assert_eq!(found, Some(Severity::Warning), "after {seconds} s");
    }
    // They may do other work for a while, for which they exchange nothing.
    assert_eq!(severity(network, 400, FLAT_FROM, 600.0), Some(Severity::Critical));
    assert_eq!(severity(network, 400, i64::MAX, 600.0), None, "they send");
    assert_eq!(severity(network, 400, FLAT_FROM, 750.0), None, "most of its usual power");
    assert_eq!(severity(DataPath::Unknown, 400, FLAT_FROM, 600.0), None);
}

/// Runs the job, silent and at this power from `FLAT_FROM` on, with the memory activity that its GPUs have then, and the
/// seconds of IO pressure that its first host has had.
fn run_silent_job(
    seconds: i64,
    flat_watts: f64,
    memory: f64,
    io_seconds: fn(i64) -> f64,
) -> TargetFixture {
    let targets = [("gpu001:9770", Dialect::Gaunt), ("gpu002:9770", Dialect::Gaunt)];
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(FLAT_FROM + seconds, |second, node| {
        let bytes = second.min(FLAT_FROM) as f64 * 20e9;
        let waited = if node == 0 { io_seconds(second) } else { 0.0 };
        let mut page = job_page(DataPath::Network, second, node, bytes, flat_watts);
        page.samples.retain(|sample| sample.metric != host::IO_PRESSURE);
        push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e6 + waited);
        for index in 0..GPUS {
            let activity = if second < FLAT_FROM { 0.3 } else { memory };
            push_reading(&mut page, Device::new_gpu(index), gpu::MEMORY_ACTIVITY, activity);
        }
        page
    });
    fixture
}

#[test]
fn gpus_that_no_longer_use_their_memory_stand_still_at_half_their_power() {
    let none = |_| 0.0;
    let waits = run_silent_job(200, 750.0, 0.0, none);
    assert_eq!(hang_ids(&waits), ["collective_hang/8812"]);
    let severity = |fixture: &TargetFixture| fixture.judge.open_findings()[0].severity;
    assert_eq!(severity(&run_silent_job(120, 750.0, 0.0, none)), Severity::Critical);
    assert_eq!(hang_ids(&run_silent_job(200, 750.0, 0.2, none)), [""; 0], "they still compute");
    assert_eq!(hang_ids(&run_silent_job(200, 950.0, 0.0, none)), [""; 0], "at their usual power");
}

#[test]
fn gpus_that_use_their_memory_as_before_evaluate_though_they_send_nothing_at_low_power() {
    let none = |_| 0.0;
    assert_eq!(hang_ids(&run_silent_job(400, 500.0, 0.25, none)), [""; 0]);
    assert_eq!(hang_ids(&run_silent_job(400, 500.0, 0.05, none)), ["collective_hang/8812"]);
}

#[test]
fn hang_beside_a_host_that_waits_for_io_must_outlast_a_checkpoint() {
    let writes = |second: i64| (second - FLAT_FROM).max(0) as f64 * 0.5;
    assert_eq!(hang_ids(&run_silent_job(150, 400.0, 0.0, writes)), [""; 0]);
    let lasts = run_silent_job(330, 400.0, 0.0, writes);
    assert_eq!(hang_ids(&lasts), ["collective_hang/8812"]);
}

/// A node of a job that sends something else besides, and computes until `still_from`.
fn sending_page(second: i64, name: &str, still_from: i64) -> Report {
    let mut page = node_report(name);
    for index in 0..GPUS {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        let tensor = if second < still_from { 0.4 } else { 0.0 };
        for (metric, value) in [(gpu::UTILIZATION, 1.0), (gpu::TENSOR_ACTIVE, tensor)] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    let bytes = second as f64 * 5e9;
    let sent = [(port::RECEIVE_BYTES, bytes), (port::TRANSMIT_BYTES, bytes)];
    for (metric, value) in [(port::STATE, 4.0), (port::RATE, 5e10)].into_iter().chain(sent) {
        push_reading(&mut page, Device::new_port("mlx5_0", "1"), metric, value);
    }
    page
}

#[test]
fn job_on_one_node_hangs_though_its_node_sends_as_ever() {
    let targets = [("gpu001:9770", Dialect::Gaunt), ("gpu002:9770", Dialect::Gaunt)];
    let hung_among = |nodes: usize| {
        let mut fixture = TargetFixture::new(&targets[..nodes]);
        fixture
            .run(400, |second, node| sending_page(second, ["gpu001", "gpu002"][node], FLAT_FROM));
        hang_ids(&fixture).len()
    };
    assert_eq!(hung_among(1), 1, "ranks of one node send nothing over the network");
    assert_eq!(hung_among(2), 0, "ranks of two nodes that send make progress");
}

/// From pages that show GPUs only, ranks that wait for one that writes a checkpoint look like a hang: they do not for
/// minutes.
#[test]
fn hang_of_which_only_gpus_are_known_is_information_first_and_a_warning_later() {
    let severity = |lasts: i64| {
        let fixture = run_job(DataPath::Unknown, FLAT_FROM + lasts, FLAT_FROM, 400.0);
        let open = fixture.judge.open_findings();
        let hang: Vec<_> =
            open.iter().filter(|it| it.kind == FindingKind::CollectiveHang).collect();
        assert_eq!(hang.len(), 1, "after {lasts} s");
        hang[0].severity
    };
    assert_eq!(severity(150), Severity::Info);
    assert_eq!(severity(360), Severity::Warning);
}

#[test]
fn one_of_two_ranks_that_draws_little_does_not_make_their_job_hang() {
    let open_with = |both: bool| {
        let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
        fixture.run(FLAT_FROM + 400, |second, _| {
            let mut page = node_report("gpu001");
            push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e6);
            for index in 0..2 {
                let device = page.ensure_device(Device::new_gpu(index));
                page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
                let varied = 850.0 + 100.0 * (second % 3) as f64;
                let is_flat = second >= FLAT_FROM && (both || index == 0);
                for (metric, value) in [
                    (gpu::UTILIZATION, 1.0),
                    (gpu::POWER, if is_flat { 400.0 } else { varied }),
                    (gpu::POWER_LIMIT, 1_200.0),
                ] {
                    push_reading(&mut page, Device::new_gpu(index), metric, value);
                }
            }
            page
        });
        hang_ids(&fixture).len()
    };
    assert_eq!((open_with(false), open_with(true)), (0, 1));
}
