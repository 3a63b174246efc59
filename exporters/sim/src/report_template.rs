//! Report of a node's exporter: constant identities, and samples written from the counters.

use gaunt_schema::{
    CowList, Device, InfoSeries, MetricId, Report, SanitizedText, UnixMs,
    catalogue::{exporter, gpu, host},
};

pub(crate) use self::reported::ReportedContent;
use self::{
    gpu_health_samples::{nvlink_devices, write_health, write_parts},
    gpu_samples::{mark_gpu_lost, write_gpu},
    identity_infos::write_infos,
    port_samples::{write_bond, write_netdev, write_port},
};
use crate::{
    fleet_shape::FleetShape,
    gpu_activity::GpuModel,
    job_workload::JobWorkload,
    noise_key::NoiseKey,
    sim_host::{CPUS, MEMORY_BYTES as HOST_MEMORY_BYTES, SimHost},
    sim_job::SimJob,
    sim_machine::SimMachine,
};

mod gpu_health_samples;
mod gpu_samples;
mod identity_infos;
mod mig_samples;
mod port_samples;
mod reported;

/// The collectors of a node's exporter, and the typical duration of each in seconds.
const COLLECTORS: [(&str, f64); 6] = [
    ("nvml", 0.0031),
    ("ports", 0.0009),
    ("netdev", 0.0004),
    ("pressure", 0.0001),
    ("cpu", 0.0003),
    ("memory", 0.0001),
];

/// Operational state that the kernel reports for a network device with a link, and for one without.
const OPERSTATE_UP: (&str, &str) = ("operstate", "up");
const OPERSTATE_DOWN: (&str, &str) = ("operstate", "down");

/// Index of the first device of each class in a report: node, GPUs, ports, bond, the ports' network devices,
/// collectors, NVLinks.
#[derive(Clone, Copy, Debug)]
struct DeviceLayout {
    gpus: usize,
    rails: usize,
    nvlinks: usize,
    /// MIG instances of each GPU.
    slices: usize,
}

impl DeviceLayout {
    const GPUS: usize = 1;

    const fn first_port(self) -> usize {
        Self::GPUS + self.gpus
    }

    const fn bond_index(self) -> usize {
        self.first_port() + self.rails
    }

    const fn first_netdev(self) -> usize {
        self.bond_index() + 1
    }

    const fn first_collector(self) -> usize {
        self.first_netdev() + self.rails
    }

    const fn first_nvlink(self) -> usize {
        self.first_collector() + COLLECTORS.len()
    }

    const fn first_slice(self) -> usize {
        self.first_nvlink() + self.gpus * self.nvlinks
    }
}

/// Capacity for the samples of one node, so that a report is allocated once.
const SAMPLES: usize = 1_024;

/// The instant of a sample, and the time since the sample before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportWindow {
    pub(crate) noise: NoiseKey,
    /// Seconds since the origin.
    pub(crate) now: f64,
    /// Seconds since the sample before.
    pub(crate) span: f64,
}

/// The constant parts of a node's reports, and the current job.
#[derive(Debug)]
pub(crate) struct NodeReportTemplate {
    name: SanitizedText,
    noise: u64,
    layout: DeviceLayout,
    job: Option<SimJob>,
    devices: CowList<Device>,
    infos: CowList<InfoSeries>,
}

impl NodeReportTemplate {
    pub(crate) fn new(
        name: SanitizedText,
        node: usize,
        job: Option<SimJob>,
        shape: &FleetShape,
        model: &GpuModel,
    ) -> Self {
        let is_cut = job.as_ref().is_some_and(|job| job.work == JobWorkload::Slices);
        let slices = if is_cut { mig_samples::SLICES.len() } else { 0 };
        let layout =
            DeviceLayout { gpus: shape.gpus, rails: shape.rails, nvlinks: model.nvlinks, slices };
        let mut page = Report { node: Some(name.clone()), ..Report::default() };
        page.devices.push(Device::new_node());
        page.devices.extend((0..layout.gpus).map(|index| Device::new_gpu(index as u32)));
        page.devices
            .extend((0..layout.rails).map(|rail| Device::new_port(&format!("mlx5_{rail}"), "1")));
        page.devices.push(Device::new_netdev("bond0"));
        page.devices
            .extend((0..layout.rails).map(|rail| Device::new_netdev(&format!("rail{rail}"))));
        page.devices.extend(COLLECTORS.map(|(collector, _)| Device::new_collector(collector)));
        page.devices.extend(nvlink_devices(layout));
        page.devices.extend(mig_samples::mig_devices(layout));
        write_infos(&mut page, layout, shape, node, job.as_ref(), model);
        Self { name, noise: node as u64, layout, job, devices: page.devices, infos: page.infos }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn build_report(
        &self,
        machine: &SimMachine,
        window: &ReportWindow,
        now: UnixMs,
    ) -> Report {
        let mut samples = SampleWriter {
            report: Report {
                node_time: Some(now),
                node: Some(self.name.clone()),
                devices: self.devices.clone(),
                infos: self.infos.clone(),
                samples: Vec::with_capacity(SAMPLES),
                ..Report::default()
            },
        };
        let noise = window.noise.child_key(self.noise).child_key((window.now * 1e3) as u64);
        let layout = self.layout;
        write_host(&mut samples, &machine.host);
        let job = self.job.as_ref().filter(|_| machine.working);
        for (index, gpu) in machine.gpus.iter().enumerate() {
            let device = DeviceLayout::GPUS + index;
            write_gpu(&mut samples, device, gpu, job, window.span, noise.child_key(index as u64));
            write_health(&mut samples, device, gpu, window.now);
            if gpu.is_gone(window.now) {
                mark_gpu_lost(&mut samples, device);
            }
        }
        for (rail, port) in machine.ports.iter().enumerate() {
            write_port(&mut samples, layout.first_port() + rail, port, window.now);
        }
        write_bond(&mut samples, layout.bond_index(), &machine.host);
        for (rail, port) in machine.ports.iter().enumerate() {
            write_netdev(&mut samples, layout.first_netdev() + rail, port, window.now);
        }
        for (index, (_, typical)) in COLLECTORS.into_iter().enumerate() {
            let device = layout.first_collector() + index;
            samples.add_sample(device, exporter::COLLECTOR_SUCCESS, 1.0);
            let duration = typical * noise.child_key(100 + index as u64).random_factor(0.3);
            samples.add_sample(
                device,
                exporter::COLLECTOR_DURATION,
                (duration * 1e6).round() / 1e6,
            );
            samples.add_sample(device, exporter::COLLECTOR_LAST_SUCCESS, now.to_seconds());
        }
        write_parts(&mut samples, layout, machine, window.now);
        mig_samples::write_mig_samples(&mut samples, layout, machine, window);
        self.mark_down_netdevs(&mut samples.report, machine, window.now);
        if machine.maintained {
            identity_infos::set_maintenance_job(&mut samples.report);
        } else if job.is_none() {
            samples.report.infos.retain(|info| info.metric != gpu::JOB_INFO);
        }
        samples.report
    }

    /// Corrects the operational state of network devices whose link is down.
    fn mark_down_netdevs(&self, report: &mut Report, machine: &SimMachine, now: f64) {
        for (rail, port) in machine.ports.iter().enumerate() {
            if port.is_up(now) {
                continue;
            }
            let device = (self.layout.first_netdev() + rail) as u32;
            let infos = report.infos.iter_mut().filter(|info| info.device == device);
            for (name, value) in infos.flat_map(|info| &mut info.labels) {
                if name.as_str() == OPERSTATE_DOWN.0 {
                    *value = OPERSTATE_DOWN.1.into();
                }
            }
        }
    }
}

/// A report that is being written.
struct SampleWriter {
    report: Report,
}

impl SampleWriter {
    fn add_sample(&mut self, device: usize, metric: MetricId, value: f64) {
        self.report.push(device as u32, metric, value);
    }
}

/// Seconds rounded down to the microsecond, so that a counter never falls.
fn floor_micros(seconds: f64) -> f64 {
    (seconds * 1e6).floor() / 1e6
}

/// The share of the busy time of CPUs that they run the kernel.
const KERNEL_SHARE: f64 = 0.125;

fn write_host(writer: &mut SampleWriter, host: &SimHost) {
    let now = &host.shown;
    writer.add_sample(0, host::CPUS, CPUS);
    writer.add_sample(0, host::CPU_BUSY, (now.busy_s * 1e2).floor() / 1e2);
    writer.add_sample(0, host::CPU_KERNEL, (now.busy_s * KERNEL_SHARE * 1e2).floor() / 1e2);
    writer.add_sample(0, host::CPU_IOWAIT, (now.iowait_s * 1e2).floor() / 1e2);
    writer.add_sample(0, host::CPU_BUSIEST, (host.busiest_ratio * 1e3).round() / 1e3);
    writer.add_sample(0, host::CPU_PRESSURE, floor_micros(now.cpu_some_s));
    writer.add_sample(0, host::IO_PRESSURE, floor_micros(now.io_some_s));
    writer.add_sample(0, host::IO_PRESSURE_FULL, floor_micros(now.io_full_s));
    writer.add_sample(0, host::MEMORY_PRESSURE, 0.0);
    writer.add_sample(0, host::MEMORY_PRESSURE_FULL, 0.0);
    writer.add_sample(0, host::MEMORY_TOTAL, HOST_MEMORY_BYTES);
    writer.add_sample(
        0,
        host::MEMORY_AVAILABLE,
        (host.available_bytes / 4_096.0).floor() * 4_096.0,
    );
}
