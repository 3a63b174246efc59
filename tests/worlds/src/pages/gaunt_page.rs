//! The page of gaunt-node: a report of GPUs, ports and host, as text.

use gaunt_schema::{
    AbsenceReason, Device, MetricId, Reading, Report, SanitizedText, UnixMs,
    catalogue::{exporter, gpu, gpu_health as health, gpu_parts as parts},
    text::write_text,
    unit::{CounterWidth, MetricKind},
};

use super::{
    gaunt_host::{self, HostReport},
    gpu_board::{GpuIdentity, MIB, MigInstance},
    gpu_sampler::{GpuCollection, GpuProfile, GpuSample},
    gpu_view::GpuView,
    host_page::HostSettings,
    host_values::HostView,
    job_labels::JobLabelValues,
};
use crate::{
    exporter_plan::GpuMetricSet,
    node_state::{GpuState, NodeState},
    random::RandomKey,
};

/// How a site runs gaunt-node on one node.
#[derive(Clone, Debug)]
pub(super) struct GauntSettings {
    /// Which GPU metrics it serves.
    pub(super) set: GpuMetricSet,
    /// Whether it serves profiling values.
    pub(super) has_profiling: bool,
    /// Share of GPU values that are blank.
    pub(super) blank_share: f64,
    /// Key of the blank values.
    pub(super) key: RandomKey,
}

/// Writes pages of one node's gaunt-node.
#[derive(Clone, Debug)]
pub(super) struct GauntPage {
    settings: GauntSettings,
    /// The GPUs when it started: its own counters count from there.
    start: Vec<GpuState>,
    host: HostReport,
    jobs: Vec<JobLabelValues>,
}

/// One collection of everything that a page shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct GauntCollection<'a> {
    /// The GPUs that it has.
    pub(super) gpus: &'a [GpuIdentity],
    /// Old XIDs of the GPUs, by their position in the plan.
    pub(super) sticky_xid: &'a [u32],
    /// The newest values of the driver.
    pub(super) collection: &'a GpuCollection,
    /// Whether the driver does not answer any more.
    pub(super) is_driver_hung: bool,
    /// The state of ports and host.
    pub(super) state: &'a NodeState,
    /// The host.
    pub(super) host: &'a HostView<'a>,
    /// Names of ports and host.
    pub(super) names: &'a HostSettings,
}

impl GauntPage {
    pub(super) fn new(settings: GauntSettings) -> Self {
        Self { settings, start: Vec::new(), host: HostReport::default(), jobs: Vec::new() }
    }

    /// Sets who holds the GPUs, by their position in the plan.
    pub(super) fn set_job_labels(&mut self, jobs: &[JobLabelValues]) {
        self.jobs = jobs.to_vec();
    }

    /// Begins its own counters anew.
    pub(super) fn restart(&mut self) {
        self.start.clear();
        self.host = HostReport::default();
    }

    /// Takes note of a sample, whether or not its page is ever asked for.
    pub(super) fn note_sample(&mut self, uptime_s: f64, state: &NodeState) {
        self.host.note_sample(uptime_s, &state.host.cpu_busy_s);
        if self.start.is_empty() {
            self.start.clone_from(&state.gpus);
        }
    }

    /// Appends the page of a sample.
    pub(super) fn write_page(&self, page: &GauntCollection<'_>, out: &mut String) {
        let mut report = Report {
            node_time: Some(UnixMs::from_seconds(page.host.clock_s)),
            node: Some(SanitizedText::new(&page.names.node)),
            ..Report::default()
        };
        self.host.add_host(page, &mut report);
        for identity in page.gpus {
            self.add_gpu(identity, page, &mut report);
        }
        gaunt_host::add_ports(page, &mut report);
        let nvml = report.ensure_device(Device::new_collector("nvml"));
        let is_answering = f64::from(u8::from(!page.is_driver_hung));
        report.push(nvml, exporter::COLLECTOR_SUCCESS, is_answering);
        report.push(nvml, exporter::HUNG_WORKERS, 1.0 - is_answering);
        if page.is_driver_hung {
            let message = "driver call nvmlDeviceGetFieldValues does not return; GPU values are stale; see `dmesg` for an Xid";
            report.add_info(nvml, exporter::COLLECTOR_INFO, &[("message", message)]);
        }
        write_text(&report, out);
    }

    fn add_gpu(&self, identity: &GpuIdentity, page: &GauntCollection<'_>, report: &mut Report) {
        let Some(sample) = page.collection.gpus.get(identity.position) else { return };
        let device = add_device(report, Device::new_gpu(identity.number as u32));
        let uuid = format!("GPU-{}", identity.uuid);
        report.add_info(
            device,
            gpu::INFO,
            &[
                ("uuid", &uuid),
                ("model", identity.board.name),
                ("pci_bus_id", &identity.pci_bus_id),
                ("serial", &identity.serial),
                ("driver", "570.86.15"),
            ],
        );
        self.add_job(device, identity, report);
        report.push(device, gpu::PRESENT, f64::from(u8::from(sample.state.is_present)));
        let sticky_xid = page.sticky_xid.get(identity.position).copied().unwrap_or(0);
        let view = GpuView {
            identity,
            sample,
            instance: None,
            sticky_xid,
            has_profiling: self.settings.has_profiling,
        };
        let absence = match (sample.state.is_present, page.is_driver_hung) {
            (false, _) => Some(AbsenceReason::Lost),
            (true, true) => Some(AbsenceReason::Stale),
            (true, false) => None,
        };
        let values = self.gpu_values(&view);
        for (metric, value) in values {
            let absence = absence.or_else(|| {
                let number = page.collection.number << 20 | identity.position << 12;
                let key = || self.settings.key.child_index(number | usize::from(metric.0));
                let is_blank =
                    self.settings.blank_share > 0.0 && key().chance(self.settings.blank_share);
                is_blank.then_some(AbsenceReason::Error)
            });
            report.push(device, metric, absence.map_or(Reading::of(value), Reading::new_absent));
        }
        if absence.is_none() {
            add_links(&view, report);
            add_instances(&view, report);
        }
        if view.xid() != 0 {
            let part = Device::new_gpu_part(
                gaunt_schema::DeviceClass::Xid,
                identity.number as u32,
                view.xid(),
            );
            let xid = add_device(report, part);
            report.push(xid, parts::XID_ERRORS, 1.0);
        }
    }

    fn add_job(&self, device: u32, identity: &GpuIdentity, report: &mut Report) {
        let Some(labels) = self.jobs.get(identity.position) else { return };
        if let Some([pod, namespace, container]) = &labels.pod {
            let job = format!("{namespace}/{}", labels.owner);
            report.add_info(
                device,
                gpu::JOB_INFO,
                &[
                    ("job", &job),
                    ("name", pod),
                    ("namespace", namespace),
                    ("pod", pod),
                    ("container", container),
                ],
            );
        } else if !labels.job.is_empty() {
            report.add_info(device, gpu::JOB_INFO, &[("job", &labels.job), ("source", "slurm")]);
        }
    }

    /// The values of a whole GPU.
    fn gpu_values(&self, view: &GpuView<'_>) -> Vec<(MetricId, f64)> {
        let GpuSample { state, .. } = view.sample;
        let (total, reserved, used) = view.memory_mib();
        let mut values = vec![
            (gpu::UTILIZATION, percent(view.sample.utilization)),
            (gpu::MEMORY_USED, used * MIB),
            (gpu::POWER, (view.sample.power_w * 1e3).round() / 1e3),
            (gpu::TEMPERATURE, view.sample.temperature_c.round()),
            (gpu::SM_CLOCK, view.sample.sm_clock_mhz.round() * 1e6),
        ];
        if self.settings.set == GpuMetricSet::Minimal {
            return values;
        }
        values.extend([
            (gpu::MEMORY_ACTIVITY, percent(view.sample.memory_utilization)),
            (gpu::MEMORY_FREE, (total - reserved - used) * MIB),
            (gpu::MEMORY_TOTAL, total * MIB),
            (gpu::POWER_LIMIT, view.identity.power_limit_w),
            (gpu::ENERGY, (state.energy_j * 1e3).floor() / 1e3),
            (gpu::SM_CLOCK_MAX, view.identity.board.max_sm_clock_mhz * 1e6),
            (health::POWER_DEFAULT_LIMIT, view.identity.board.default_limit_w),
            (health::MEMORY_RESERVED, reserved * MIB),
            (health::MEMORY_CLOCK, state.memory_clock_mhz.round() * 1e6),
            (health::MEMORY_CLOCK_MAX, view.identity.board.max_memory_clock_mhz * 1e6),
            (health::SLOWDOWN_TEMPERATURE, view.identity.board.slowdown_c),
            (health::PCIE_GENERATION, f64::from(state.pcie_generation)),
            (health::PCIE_GENERATION_MAX, f64::from(view.identity.board.pcie_generation)),
            (health::PCIE_WIDTH, f64::from(state.pcie_lanes)),
            (health::PCIE_WIDTH_MAX, 16.0),
            (health::PCIE_REPLAYS, state.pcie_replays.floor()),
            (health::ECC_CORRECTED_VOLATILE, state.ecc_corrected.floor()),
            (health::ECC_UNCORRECTED_VOLATILE, state.ecc_uncorrected.floor()),
            (health::REMAPPED_UNCORRECTED, state.remapped_rows.floor()),
            (health::REMAP_FAILED, 0.0),
            (health::MIG_MODE, f64::from(u8::from(!view.identity.instances.is_empty()))),
        ]);
        if view.identity.board.has_memory_sensor {
            values.push((health::MEMORY_TEMPERATURE, view.sample.memory_temperature_c.round()));
        }
        let bits = gpu::CLOCK_EVENTS.iter();
        values.extend(bits.map(|(bit, metric)| {
            (*metric, f64::from(u8::from(state.clock_event_bits & bit != 0)))
        }));
        if self.settings.set == GpuMetricSet::Full {
            values.push((health::VIOLATION_POWER, floor_to_ns(state.power_violation_s)));
            values.push((health::VIOLATION_THERMAL, floor_to_ns(state.thermal_violation_s)));
        }
        self.add_activity(view, &mut values);
        values
    }

    /// Adds what gaunt-node integrates itself, and the profiling values.
    fn add_activity(&self, view: &GpuView<'_>, values: &mut Vec<(MetricId, f64)>) {
        let state = &view.sample.state;
        let Some(start) = self.start.get(view.identity.position) else { return };
        let since = |value: fn(&GpuState) -> f64| (value(state) - value(start)).max(0.0);
        values.push((gpu::UTILIZATION_SECONDS, floor_to_ns(since(|gpu| gpu.busy_s))));
        let Some(profile) = view.profile() else { return };
        let GpuProfile { engine_active, sm_active, tensor_active, dram_active, .. } = *profile;
        values.extend([
            (gpu::GRAPHICS_ACTIVE, four_digits(engine_active)),
            (gpu::GRAPHICS_ACTIVE_SECONDS, floor_to_ns(since(|gpu| gpu.engine_active_s))),
            (gpu::SM_ACTIVE, four_digits(sm_active)),
            (gpu::SM_ACTIVE_SECONDS, floor_to_ns(since(|gpu| gpu.sm_active_s))),
            (gpu::TENSOR_ACTIVE, four_digits(tensor_active)),
            (gpu::TENSOR_ACTIVE_SECONDS, floor_to_ns(since(|gpu| gpu.tensor_active_s))),
            (gpu::DRAM_ACTIVE, four_digits(dram_active)),
            (gpu::DRAM_ACTIVE_SECONDS, floor_to_ns(since(|gpu| gpu.dram_active_s))),
            (gpu::PCIE_RECEIVE_RATE, profile.pcie_receive.round()),
            (gpu::PCIE_RECEIVE, since(|gpu| gpu.pcie_receive_bytes).floor()),
            (gpu::PCIE_TRANSMIT_RATE, profile.pcie_transmit.round()),
            (gpu::PCIE_TRANSMIT, since(|gpu| gpu.pcie_transmit_bytes).floor()),
        ]);
        if view.identity.has_nvlink {
            values.extend([
                (gpu::NVLINK_RECEIVE_RATE, profile.nvlink_receive.round()),
                (gpu::NVLINK_RECEIVE, since(|gpu| gpu.nvlink_receive_bytes).floor()),
                (gpu::NVLINK_TRANSMIT_RATE, profile.nvlink_transmit.round()),
                (gpu::NVLINK_TRANSMIT, since(|gpu| gpu.nvlink_transmit_bytes).floor()),
            ]);
        }
    }
}

/// Adds a device that the report does not have yet: a search among all of them would take most of the time.
pub(super) fn add_device(report: &mut Report, device: Device) -> u32 {
    report.devices.push(device);
    report.devices.len() as u32 - 1
}

/// Adds a counter of a port or network device as wide as it is: at its end it is absent.
pub(super) fn push_counter(report: &mut Report, device: u32, metric: MetricId, value: f64) {
    let value = value.max(0.0).floor();
    let reading = match metric.catalogue_row().kind {
        MetricKind::Counter(CounterWidth::Saturating(bits))
            if value >= 2_f64.powi(i32::from(bits)) - 1.0 =>
        {
            AbsenceReason::Saturated.into()
        }
        MetricKind::Counter(CounterWidth::Wrapping32) => {
            Reading::of(f64::from(value as u64 as u32))
        }
        _ => Reading::of(value),
    };
    report.push(device, metric, reading);
}

/// The link of a GPU that has its errors.
fn link_with_errors(identity: &GpuIdentity) -> u32 {
    identity.position as u32 * 5 % identity.board.nvlinks.max(1)
}

fn add_links(view: &GpuView<'_>, report: &mut Report) {
    if !view.identity.has_nvlink {
        return;
    }
    let state = &view.sample.state;
    for link in 0..view.identity.board.nvlinks {
        let part = Device::new_gpu_part(
            gaunt_schema::DeviceClass::Nvlink,
            view.identity.number as u32,
            link,
        );
        let device = add_device(report, part);
        let has_errors = f64::from(u8::from(link == link_with_errors(view.identity)));
        report.push(device, parts::NVLINK_UP, 1.0);
        push_counter(report, device, parts::NVLINK_REPLAY, state.nvlink_replays * has_errors);
        push_counter(report, device, parts::NVLINK_CRC, state.nvlink_crc_errors * has_errors);
    }
}

fn add_instances(view: &GpuView<'_>, report: &mut Report) {
    for instance in &view.identity.instances {
        let MigInstance { profile, number, .. } = *instance;
        let class = gaunt_schema::DeviceClass::Mig;
        let part = Device::new_gpu_part(class, view.identity.number as u32, number);
        let device = add_device(report, part);
        let instance_number = number.to_string();
        report.add_info(
            device,
            parts::MIG_INFO,
            &[("name", profile), ("gpu_instance", &instance_number)],
        );
        let view = GpuView { instance: Some(*instance), ..*view };
        let (total, _, used) = view.memory_mib();
        report.push(device, parts::MIG_MEMORY_USED, used * MIB);
        report.push(device, parts::MIG_MEMORY_TOTAL, total * MIB);
        if let Some(profile) = view.profile() {
            report.push(device, parts::MIG_SM_ACTIVE, four_digits(profile.sm_active));
            report.push(device, parts::MIG_TENSOR_ACTIVE, four_digits(profile.tensor_active));
            report.push(device, parts::MIG_DRAM_ACTIVE, four_digits(profile.dram_active));
        }
    }
}

/// A ratio that the driver gives in whole per cent.
fn percent(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

fn four_digits(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}

fn floor_to_ns(seconds: f64) -> f64 {
    (seconds * 1e6).floor() / 1e6
}
