//! What a node's exporter would say: identities that stay, and samples written from the meters.

use gaunt_schema::{
    Device, Info, MetricId, Report, Safe, Shared, UnixMs,
    catalogue::{exporter, gpu, host},
};

pub(crate) use self::told::Told;
use self::{
    boards::{lose, write_gpu},
    health::{links, write_health, write_parts},
    identity::introduce,
    network::{write_bond, write_netdev, write_port},
};
use crate::{
    gpu::Model,
    host::{CPUS, Host, MEMORY_BYTES as HOST_MEMORY_BYTES},
    job::Job,
    machine::Machine,
    noise::Noise,
    shape::Shape,
    work::Work,
};

mod boards;
mod health;
mod identity;
mod network;
mod slices;
mod told;

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

/// Where the devices of each class begin in a report: node, GPUs, ports, bond, the ports' network devices, collectors, NVLinks.
#[derive(Clone, Copy, Debug)]
struct Layout {
    gpus: usize,
    rails: usize,
    nvlinks: usize,
    /// Slices of each GPU.
    slices: usize,
}

impl Layout {
    const GPUS: usize = 1;

    const fn ports(self) -> usize {
        Self::GPUS + self.gpus
    }

    const fn bond(self) -> usize {
        self.ports() + self.rails
    }

    const fn netdevs(self) -> usize {
        self.bond() + 1
    }

    const fn collectors(self) -> usize {
        self.netdevs() + self.rails
    }

    const fn links(self) -> usize {
        self.collectors() + COLLECTORS.len()
    }

    const fn slices(self) -> usize {
        self.links() + self.gpus * self.nvlinks
    }
}

/// Room for the samples of one node, so that a report is allocated once.
const SAMPLES: usize = 1_024;

/// The instant of a look, and how long ago the look before was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) noise: Noise,
    /// Seconds since the origin.
    pub(crate) now: f64,
    /// Seconds since the look before.
    pub(crate) span: f64,
}

/// The parts of a node's reports that stay, and the job that runs.
#[derive(Debug)]
pub(crate) struct Page {
    name: Safe,
    noise: u64,
    layout: Layout,
    job: Option<Job>,
    devices: Shared<Device>,
    infos: Shared<Info>,
}

impl Page {
    pub(crate) fn new(
        name: Safe,
        node: usize,
        job: Option<Job>,
        shape: &Shape,
        model: &Model,
    ) -> Self {
        let is_cut = job.as_ref().is_some_and(|job| job.work == Work::Slices);
        let slices = if is_cut { slices::SLICES.len() } else { 0 };
        let layout =
            Layout { gpus: shape.gpus, rails: shape.rails, nvlinks: model.nvlinks, slices };
        let mut page = Report { node: Some(name.clone()), ..Report::default() };
        page.devices.push(Device::node());
        page.devices.extend((0..layout.gpus).map(|index| Device::gpu(index as u32)));
        page.devices
            .extend((0..layout.rails).map(|rail| Device::port(&format!("mlx5_{rail}"), "1")));
        page.devices.push(Device::netdev("bond0"));
        page.devices.extend((0..layout.rails).map(|rail| Device::netdev(&format!("rail{rail}"))));
        page.devices.extend(COLLECTORS.map(|(collector, _)| Device::collector(collector)));
        page.devices.extend(links(layout));
        page.devices.extend(slices::devices(layout));
        introduce(&mut page, layout, shape, node, job.as_ref(), model);
        Self { name, noise: node as u64, layout, job, devices: page.devices, infos: page.infos }
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
        let layout = self.layout;
        write_host(&mut samples, &machine.host);
        let job = self.job.as_ref().filter(|_| machine.working);
        for (index, gpu) in machine.gpus.iter().enumerate() {
            let at = Layout::GPUS + index;
            write_gpu(&mut samples, at, gpu, job, window.span, noise.child(index as u64));
            write_health(&mut samples, at, gpu, window.now);
            if gpu.is_gone(window.now) {
                lose(&mut samples, at);
            }
        }
        for (rail, port) in machine.ports.iter().enumerate() {
            write_port(&mut samples, layout.ports() + rail, port, window.now);
        }
        write_bond(&mut samples, layout.bond(), &machine.host);
        for (rail, port) in machine.ports.iter().enumerate() {
            write_netdev(&mut samples, layout.netdevs() + rail, port, window.now);
        }
        for (at, (_, usual)) in COLLECTORS.into_iter().enumerate() {
            let device = layout.collectors() + at;
            samples.put(device, exporter::COLLECTOR_SUCCESS, 1.0);
            let took = usual * noise.child(100 + at as u64).factor(0.3);
            samples.put(device, exporter::COLLECTOR_DURATION, (took * 1e6).round() / 1e6);
            samples.put(device, exporter::COLLECTOR_LAST_SUCCESS, now.seconds());
        }
        write_parts(&mut samples, layout, machine, window.now);
        slices::write(&mut samples, layout, machine, window);
        self.mark_downs(&mut samples.report, machine, window.now);
        if machine.maintained {
            identity::maintain(&mut samples.report);
        } else if job.is_none() {
            samples.report.infos.retain(|info| info.metric != gpu::JOB_INFO);
        }
        samples.report
    }

    /// Corrects the operational state of network devices whose link is down.
    fn mark_downs(&self, report: &mut Report, machine: &Machine, now: f64) {
        for (rail, port) in machine.ports.iter().enumerate() {
            if port.is_up(now) {
                continue;
            }
            let at = (self.layout.netdevs() + rail) as u32;
            let infos = report.infos.iter_mut().filter(|info| info.device == at);
            for (name, value) in infos.flat_map(|info| &mut info.labels) {
                if name.as_str() == OPERSTATE_DOWN.0 {
                    *value = OPERSTATE_DOWN.1.into();
                }
            }
        }
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
