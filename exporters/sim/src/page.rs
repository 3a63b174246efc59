//! What a node's exporter would say: identities that stay, and samples written from the meters.

use gaunt_schema::{
    Absent, Device, Info, MetricId, Reading, Report, Safe, UnixMs,
    catalogue::{exporter, gpu, host, port},
    unit::{Kind, Width},
};

use crate::{
    GPUS_PER_NODE, NODES_PER_LEAF,
    fabric::{PACKET_BYTES, Port, RATE_BYTES_PER_S, RATE_DOWN_BYTES_PER_S},
    gpu::{CLOCK_MAX_HERTZ, MEMORY_BYTES, POWER_LIMIT_WATTS, Phase},
    host::{BOND_BYTES_PER_S, CPUS, Host, MEMORY_BYTES as HOST_MEMORY_BYTES},
    machine::{Gpu, Machine, Role},
    noise::Noise,
};

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

/// Shares of packets: marked for congestion, notifications per packet, out of order.
const MARKED: f64 = 1.5e-5;
const NOTIFIED: f64 = 4e-6;
const REORDERED: f64 = 6e-7;

/// Ticks of waiting per byte sent: a port that carries its share waits now and then.
const WAIT_TICKS_PER_BYTE: f64 = 1.2e-6;

/// Packets that a port gives up on when its link, or that of the port that it talks to, goes down.
const LOST_WITH_A_LINK: f64 = 9.0;

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
            let share = if window.span > 0.0 { (now - before) / window.span } else { 0.0 };
            (share.clamp(0.0, 1.0) * 1e4).round() / 1e4
        };
        let mut activity = |ratio, seconds, now: f64, before: f64, step: f64| {
            out.put(at, ratio, (share(now, before) / step).round() * step);
            out.put(at, seconds, micros(now));
        };
        // The driver tells its two utilizations in whole per cent, the profiling counters finer.
        activity(
            gpu::UTILIZATION,
            gpu::UTILIZATION_SECONDS,
            now.utilization_s,
            before.utilization_s,
            0.01,
        );
        activity(
            gpu::MEMORY_ACTIVITY,
            gpu::MEMORY_ACTIVITY_SECONDS,
            now.memory_s,
            before.memory_s,
            0.01,
        );
        activity(gpu::SM_ACTIVE, gpu::SM_ACTIVE_SECONDS, now.sm_s, before.sm_s, 1e-4);
        activity(
            gpu::TENSOR_ACTIVE,
            gpu::TENSOR_ACTIVE_SECONDS,
            now.tensor_s,
            before.tensor_s,
            1e-4,
        );
        activity(gpu::DRAM_ACTIVE, gpu::DRAM_ACTIVE_SECONDS, now.dram_s, before.dram_s, 1e-4);
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

    /// A counter of a port, ended as its width ends.
    fn count(&mut self, device: usize, metric: MetricId, total: f64) {
        let reading = match metric.row().kind {
            Kind::Counter(Width::Wrapping32) => Reading::of(total % 4_294_967_296.0),
            Kind::Counter(width @ Width::Saturating(_))
                if width.max().is_some_and(|max| total >= max) =>
            {
                Reading::absent(Absent::Saturated)
            }
            _ => Reading::of(total),
        };
        self.report.push(device as u32, metric, reading);
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

fn write_port(out: &mut Writer, at: usize, port: &Port, now: f64) {
    let up = port.is_up(now);
    let (downs, _) = port.downs_and_ups(now);
    let bytes = port.shown;
    let sent = (bytes.transmit / PACKET_BYTES).floor();
    let received = (bytes.receive / PACKET_BYTES).floor();
    let peer_downs = port.peer_outages.iter().filter(|&&from| from <= now).count();
    let lost = LOST_WITH_A_LINK * (downs + peer_downs) as f64;
    out.put(at, port::STATE, if up { 4.0 } else { 1.0 });
    out.put(at, port::PHYSICAL_STATE, if up { 5.0 } else { 3.0 });
    out.put(at, port::RATE, if up { RATE_BYTES_PER_S } else { RATE_DOWN_BYTES_PER_S });
    // The device counts words of four bytes.
    out.count(at, port::RECEIVE_BYTES, (bytes.receive / 4.0).floor() * 4.0);
    out.count(at, port::TRANSMIT_BYTES, (bytes.transmit / 4.0).floor() * 4.0);
    out.count(at, port::RECEIVE_PACKETS, received);
    out.count(at, port::TRANSMIT_PACKETS, sent);
    // Ticks are counted from the beginning of the run: the counter is cleared when it is full.
    let ticks = (bytes.transmit - port.booted.transmit) * WAIT_TICKS_PER_BYTE;
    out.count(at, port::TRANSMIT_WAIT, ticks.floor());
    out.count(at, port::SYMBOL_ERRORS, port.symbol_errors);
    out.count(at, port::LINK_DOWNED, port.link_downed + downs as f64);
    out.count(at, port::TRANSMIT_DISCARDS, LOST_WITH_A_LINK * downs as f64);
    out.count(at, port::ECN_MARKED, (received * MARKED).floor());
    out.count(at, port::CNP_SENT, (received * NOTIFIED).floor());
    out.count(at, port::CNP_HANDLED, (sent * NOTIFIED).floor());
    out.count(at, port::OUT_OF_SEQUENCE, (received * REORDERED).floor());
    out.count(at, port::LOCAL_ACK_TIMEOUTS, lost);
    for calm in [
        port::LINK_ERROR_RECOVERY,
        port::RECEIVE_ERRORS,
        port::REMOTE_PHYSICAL_ERRORS,
        port::LOCAL_LINK_INTEGRITY_ERRORS,
        port::BUFFER_OVERRUN_ERRORS,
        port::VL15_DROPPED,
        port::PACKET_SEQUENCE_ERRORS,
        port::RNR_NAK_RETRIES,
        port::OUT_OF_BUFFER,
        port::ADAPTIVE_RETRANSMITS,
        port::SLOW_RESTARTS,
    ] {
        out.count(at, calm, 0.0);
    }
}

fn write_bond(out: &mut Writer, host: &Host) {
    let (receive, transmit) = (host.shown.bond_receive_bytes, host.shown.bond_transmit_bytes);
    out.put(BOND, host::NETDEV_CARRIER, 1.0);
    out.put(BOND, host::NETDEV_SPEED, BOND_BYTES_PER_S);
    out.put(BOND, host::NETDEV_CARRIER_CHANGES, 2.0);
    write_traffic(out, BOND, receive, transmit);
}

/// The network device of a rail: RDMA passes the kernel by, so that it counts next to nothing.
fn write_netdev(out: &mut Writer, at: usize, port: &Port, now: f64) {
    let up = port.is_up(now);
    let (downs, ups) = port.downs_and_ups(now);
    out.put(at, host::NETDEV_CARRIER, f64::from(up));
    // The kernel knows no speed while there is no link.
    let speed = if up { Reading::of(RATE_BYTES_PER_S) } else { Absent::Unsupported.into() };
    out.report.push(at as u32, host::NETDEV_SPEED, speed);
    out.put(at, host::NETDEV_CARRIER_CHANGES, 2.0 + (downs + ups) as f64);
    // Neighbour discovery and the like.
    write_traffic(out, at, 81_000.0, 83_000.0);
}

fn write_traffic(out: &mut Writer, at: usize, receive: f64, transmit: f64) {
    // Jumbo frames, mostly filled.
    const FRAME_BYTES: f64 = 8_600.0;
    out.put(at, host::NETDEV_RECEIVE_BYTES, receive.floor());
    out.put(at, host::NETDEV_TRANSMIT_BYTES, transmit.floor());
    out.put(at, host::NETDEV_RECEIVE_PACKETS, (receive / FRAME_BYTES).floor());
    out.put(at, host::NETDEV_TRANSMIT_PACKETS, (transmit / FRAME_BYTES).floor());
    for calm in [
        host::NETDEV_RECEIVE_ERRORS,
        host::NETDEV_TRANSMIT_ERRORS,
        host::NETDEV_RECEIVE_DROPS,
        host::NETDEV_TRANSMIT_DROPS,
    ] {
        out.put(at, calm, 0.0);
    }
}

/// Writes who everything is.
fn introduce(page: &mut Report, name: &str, node: usize, job: Option<&Job>) {
    let version = env!("CARGO_PKG_VERSION");
    page.info(
        0,
        host::NODE_INFO,
        &[
            ("node", name),
            ("version", version),
            ("kernel", "6.12.48-simulated"),
            ("cluster", "sim"),
        ],
    );
    for index in 0..GPUS_PER_NODE {
        let device = (GPUS + index) as u32;
        page.info(
            device,
            gpu::INFO,
            &[
                ("uuid", &format!("GPU-51a0{node:04x}-{index:04x}-4000-8000-00005e551024")),
                ("model", "NVIDIA H100 80GB HBM3"),
                ("pci_bus_id", &format!("00000000:{:02X}:00.0", 0x1b + 0x10 * index)),
                (
                    "serial",
                    &(1_650_000_000_000 + (node * GPUS_PER_NODE + index) as u64).to_string(),
                ),
                ("driver", "580.95.05"),
            ],
        );
        if let Some(job) = job {
            page.info(
                device,
                gpu::JOB_INFO,
                &[
                    ("job", &job.id),
                    ("name", job.name),
                    ("user", job.user),
                    ("rank", &(job.rank + index).to_string()),
                ],
            );
        }
    }
    introduce_network(page, node);
}

fn introduce_network(page: &mut Report, node: usize) {
    for netdev in 0..=GPUS_PER_NODE {
        let (high, low) = (node >> 8, node & 0xff);
        page.info(
            (BOND + netdev) as u32,
            host::NETDEV_INFO,
            &[("address", &format!("02:51:a0:{high:02x}:{low:02x}:{netdev:02x}")), OPERSTATE_UP],
        );
    }
    let leaf = node / NODES_PER_LEAF;
    for rail in 0..GPUS_PER_NODE {
        page.info(
            (PORTS + rail) as u32,
            port::INFO,
            &[
                ("netdev", &format!("rail{rail}")),
                ("link_layer", "Ethernet"),
                ("firmware", "28.43.2566"),
                ("hca_type", "MT4129"),
                ("rail", &rail.to_string()),
                ("leaf", &format!("leaf-{leaf:02}-r{rail}")),
            ],
        );
    }
}
