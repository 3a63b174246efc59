//! What a node's exporter would say: identities that stay, and samples written from the meters.

use gaunt_schema::{
    Device, Info, MetricId, Report, Safe, UnixMs,
    catalogue::{exporter, gpu, host},
};

use self::{
    identity::introduce,
    network::{write_bond, write_netdev, write_port},
};
use crate::{
    GPUS_PER_NODE,
    gpu::{CLOCK_MAX_HERTZ, MEMORY_BYTES, POWER_LIMIT_WATTS, Phase},
    host::{CPUS, Host, MEMORY_BYTES as HOST_MEMORY_BYTES},
    machine::{Gpu, Machine, Role},
    noise::Noise,
};

mod identity;
mod network;

/// The collectors of a node's exporter, and the usual time that each takes in seconds.
const COLLECTORS: [(&str, f64); 6] = [
    ("nvml", 0.0031),
    ("ports", 0.0009),
    ("netdev", 0.0004),
    ("pressure", 0.0001),
    ("cpu", 0.0003),
    ("memory", 0.0001),
];

/// What the kernel says about a network device with a link, and about one without.
const OPERSTATE_UP: (&str, &str) = ("operstate", "up");
const OPERSTATE_DOWN: (&str, &str) = ("operstate", "down");

/// Where the devices of each class begin in a report: node, GPUs, ports, bond, the ports' network devices, collectors.
const GPUS: usize = 1;
const PORTS: usize = GPUS + GPUS_PER_NODE;
const BOND: usize = PORTS + GPUS_PER_NODE;
const NETDEVS: usize = BOND + 1;
const COLLECTORS_AT: usize = NETDEVS + GPUS_PER_NODE;

/// Room for the samples of one node, so that a report is allocated once.
const SAMPLES: usize = 760;

/// The instant of a look, and how long ago the look before was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) noise: Noise,
    /// Seconds since the origin.
    pub(crate) now: f64,
    /// Seconds since the look before.
    pub(crate) span: f64,
}

/// The job that holds a node.
#[derive(Debug)]
pub(crate) struct Job {
    id: String,
    name: &'static str,
    user: &'static str,
    /// The rank of the node's first GPU.
    rank: usize,
    /// Memory that its processes take on each GPU.
    memory_bytes: f64,
}

impl Job {
    pub(crate) fn of(role: Role, node: usize) -> Option<Self> {
        const NAMES: [(&str, &str); 5] = [
            ("pretrain-70b", "mira"),
            ("moe-8x22b", "jonas"),
            ("vision-sft", "aiko"),
            ("ablation-13", "tomas"),
            ("speech-base", "lena"),
        ];
        const GIB: f64 = 1_073_741_824.0;
        match role {
            Role::Free => None,
            Role::Held => Some(Self {
                id: (48_900 + node).to_string(),
                name: "notebook",
                user: "sam",
                rank: 0,
                memory_bytes: 11.3 * GIB,
            }),
            Role::Member { gang, member } => {
                let (name, user) = NAMES[gang % NAMES.len()];
                Some(Self {
                    id: (48_211 + 7 * gang).to_string(),
                    name,
                    user,
                    rank: member * GPUS_PER_NODE,
                    memory_bytes: 68.5 * GIB,
                })
            }
        }
    }
}

/// The parts of a node's reports that stay, and the job that runs.
#[derive(Debug)]
pub(crate) struct Page {
    name: Safe,
    noise: u64,
    job: Option<Job>,
    devices: Vec<Device>,
    infos: Vec<Info>,
}

impl Page {
    pub(crate) fn new(name: Safe, node: usize, job: Option<Job>) -> Self {
        let mut page = Report { node: Some(name.clone()), ..Report::default() };
        page.devices.push(Device::node());
        page.devices.extend((0..GPUS_PER_NODE).map(|index| Device::gpu(index as u32)));
        page.devices
            .extend((0..GPUS_PER_NODE).map(|rail| Device::port(&format!("mlx5_{rail}"), "1")));
        page.devices.push(Device::netdev("bond0"));
        page.devices.extend((0..GPUS_PER_NODE).map(|rail| Device::netdev(&format!("rail{rail}"))));
        page.devices.extend(COLLECTORS.map(|(collector, _)| Device::collector(collector)));
        introduce(&mut page, &name, node, job.as_ref());
        Self { name, noise: node as u64, job, devices: page.devices, infos: page.infos }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn report(&self, machine: &Machine, window: &Window, now: UnixMs) -> Report {
        let mut samples = Writer {
            report: Report {
                node_time: Some(now),
                node: Some(self.name.clone()),
                devices: self.devices.clone(),
                infos: self.infos.clone(),
                samples: Vec::with_capacity(SAMPLES),
                ..Report::default()
            },
        };
        let noise = window.noise.child(self.noise).child((window.now * 1e3) as u64);
        write_host(&mut samples, &machine.host);
        for (index, gpu) in machine.gpus.iter().enumerate() {
            self.write_gpu(&mut samples, GPUS + index, gpu, window, noise.child(index as u64));
        }
        for (rail, port) in machine.ports.iter().enumerate() {
            write_port(&mut samples, PORTS + rail, port, window.now);
        }
        write_bond(&mut samples, &machine.host);
        for (rail, port) in machine.ports.iter().enumerate() {
            write_netdev(&mut samples, NETDEVS + rail, port, window.now);
        }
        for (at, (_, usual)) in COLLECTORS.into_iter().enumerate() {
            let device = COLLECTORS_AT + at;
            samples.put(device, exporter::COLLECTOR_SUCCESS, 1.0);
            let took = usual * noise.child(100 + at as u64).factor(0.3);
            samples.put(device, exporter::COLLECTOR_DURATION, (took * 1e6).round() / 1e6);
            samples.put(device, exporter::COLLECTOR_LAST_SUCCESS, now.seconds());
        }
        Self::mark_downs(&mut samples.report, machine, window.now);
        samples.report
    }

    /// Corrects the operational state of network devices whose link is down.
    fn mark_downs(report: &mut Report, machine: &Machine, now: f64) {
        for (rail, port) in machine.ports.iter().enumerate() {
            if port.is_up(now) {
                continue;
            }
            let at = (NETDEVS + rail) as u32;
            let infos = report.infos.iter_mut().filter(|info| info.device == at);
            for (name, value) in infos.flat_map(|info| &mut info.labels) {
                if name.as_str() == OPERSTATE_DOWN.0 {
                    *value = OPERSTATE_DOWN.1.into();
                }
            }
        }
    }

    fn write_gpu(&self, out: &mut Writer, at: usize, gpu: &Gpu, window: &Window, noise: Noise) {
        let used = self.job.as_ref().map_or(0.6e9, |job| job.memory_bytes).floor();
        let (now, before) = (&gpu.shown, &gpu.before);
        let share = |now: f64, before: f64| {
            if window.span > 0.0 { ((now - before) / window.span).clamp(0.0, 1.0) } else { 0.0 }
        };
        let mut activity = |ratio, seconds, now: f64, before: f64, steps: f64| {
            out.put(at, ratio, (share(now, before) * steps).round() / steps);
            out.put(at, seconds, micros(now));
        };
        // The driver tells its two utilizations in whole per cent, the profiling counters finer.
        activity(
            gpu::UTILIZATION,
            gpu::UTILIZATION_SECONDS,
            now.utilization_s,
            before.utilization_s,
            100.0,
        );
        activity(
            gpu::MEMORY_ACTIVITY,
            gpu::MEMORY_ACTIVITY_SECONDS,
            now.memory_s,
            before.memory_s,
            100.0,
        );
        activity(gpu::SM_ACTIVE, gpu::SM_ACTIVE_SECONDS, now.sm_s, before.sm_s, 1e4);
        activity(
            gpu::TENSOR_ACTIVE,
            gpu::TENSOR_ACTIVE_SECONDS,
            now.tensor_s,
            before.tensor_s,
            1e4,
        );
        activity(gpu::DRAM_ACTIVE, gpu::DRAM_ACTIVE_SECONDS, now.dram_s, before.dram_s, 1e4);
        out.put(at, gpu::PRESENT, 1.0);
        out.put(at, gpu::MEMORY_USED, used);
        out.put(at, gpu::MEMORY_FREE, MEMORY_BYTES - used);
        out.put(at, gpu::MEMORY_TOTAL, MEMORY_BYTES);
        let watts = now.power_watts + noise.between(-1.5, 1.5);
        out.put(at, gpu::POWER, (watts * 1e3).round() / 1e3);
        out.put(at, gpu::POWER_LIMIT, POWER_LIMIT_WATTS);
        out.put(at, gpu::ENERGY, (now.energy_joules * 1e3).floor() / 1e3);
        out.put(at, gpu::TEMPERATURE, now.temperature_celsius.round());
        out.put(at, gpu::SM_CLOCK, gpu.phase.clock_hertz());
        out.put(at, gpu::SM_CLOCK_MAX, CLOCK_MAX_HERTZ);
        out.put(at, gpu::PROCESSES, f64::from(self.job.is_some()));
        for &(_, event) in gpu::CLOCK_EVENTS {
            let holds = match event {
                gpu::CLOCK_EVENT_IDLE => matches!(gpu.phase, Phase::Free | Phase::Held),
                gpu::CLOCK_EVENT_SW_POWER_CAP => gpu.phase == Phase::Compute,
                _ => false,
            };
            out.put(at, event, f64::from(holds));
        }
        out.put(at, gpu::PCIE_RECEIVE, now.pcie_receive_bytes.floor());
        out.put(at, gpu::PCIE_TRANSMIT, now.pcie_transmit_bytes.floor());
        out.put(at, gpu::NVLINK_RECEIVE, now.nvlink_bytes.floor());
        out.put(at, gpu::NVLINK_TRANSMIT, now.nvlink_bytes.floor());
    }
}

/// A report that is being written.
struct Writer {
    report: Report,
}

impl Writer {
    fn put(&mut self, device: usize, metric: MetricId, value: f64) {
        self.report.push(device as u32, metric, value);
    }
}

/// Seconds to the microsecond, downward, so that a counter never falls.
fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).floor() / 1e6
}

fn write_host(out: &mut Writer, host: &Host) {
    let now = &host.shown;
    out.put(0, host::CPUS, CPUS);
    out.put(0, host::CPU_BUSY, (now.busy_s * 1e2).floor() / 1e2);
    out.put(0, host::CPU_IOWAIT, (now.iowait_s * 1e2).floor() / 1e2);
    out.put(0, host::CPU_BUSIEST, (host.busiest_ratio * 1e3).round() / 1e3);
    out.put(0, host::CPU_PRESSURE, micros(now.cpu_some_s));
    out.put(0, host::IO_PRESSURE, micros(now.io_some_s));
    out.put(0, host::IO_PRESSURE_FULL, micros(now.io_full_s));
    out.put(0, host::MEMORY_PRESSURE, 0.0);
    out.put(0, host::MEMORY_PRESSURE_FULL, 0.0);
    out.put(0, host::MEMORY_TOTAL, HOST_MEMORY_BYTES);
    out.put(0, host::MEMORY_AVAILABLE, (host.available_bytes / 4_096.0).floor() * 4_096.0);
}
