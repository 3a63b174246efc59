//! The GPU collector: results of the workers become readings, missing results become absence.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use gaunt_schema::{
    Device, Report, SanitizedText, UnixMs,
    catalogue::{exporter, gpu_health},
    xid::describe_xid,
};
use tokio::sync::watch;

use super::{
    gpu_inventory::{GpuInventory, GpuOwnership},
    imex_daemon::ImexDaemon,
    kernel_log::{self, KernelLog},
    process_owners::ProcessOwners,
    worker_pipe::{self, WorkerMessage, XidCount},
    worker_supervisor::{WorkerEvent, WorkerHealth, WorkerSupervisor},
    xid_tracker::{XidSource, XidTracker},
};
use crate::{
    SamplerOptions,
    collector::{CollectError, CollectOutcome, Collector},
    device_exclusions::DeviceExclusions,
    kubelet::DeviceHolders,
    pci_location, wall_clock,
};

/// After this many ticks the neighbours of the GPUs are discovered again.
const TICKS_BETWEEN_LOOKS: u32 = 60;

/// Reads GPUs through the workers of a [`WorkerSupervisor`].
pub(crate) struct NvmlCollector {
    supervisor: WorkerSupervisor,
    inventory: GpuInventory,
    driver: SanitizedText,
    /// When the last round began.
    last_tick: Option<UnixMs>,
    /// The maximum age of a round whose values still count as current.
    longest_age: Duration,
    /// The failures of the last round.
    failures: Vec<SanitizedText>,
    owners: ProcessOwners,
    /// The last answer of the kubelet.
    holders: watch::Receiver<Arc<DeviceHolders>>,
    sys_root: PathBuf,
    exclude: DeviceExclusions,
    ticks_to_look: u32,
    xids: XidTracker,
    log: KernelLogSource,
    /// Queried while a GPU is in an NVLink domain, if enabled.
    imex: Option<ImexDaemon>,
}

/// The kernel log as the second source of XIDs.
struct KernelLogSource {
    /// Its path, if enabled.
    path: Option<PathBuf>,
    proc_root: PathBuf,
    open: Option<Result<KernelLog, String>>,
}

impl NvmlCollector {
    pub(crate) fn new(options: &SamplerOptions, pods: watch::Receiver<Arc<DeviceHolders>>) -> Self {
        let logs = options.is_enabled(crate::ReadingSource::Xid)
            && options.is_enabled(crate::ReadingSource::KernelLog);
        Self {
            supervisor: WorkerSupervisor::new(options),
            inventory: GpuInventory::default(),
            driver: SanitizedText::default(),
            last_tick: None,
            longest_age: options.period + options.call_deadline,
            failures: Vec::new(),
            sys_root: options.sys_root.clone(),
            exclude: DeviceExclusions::new(&options.exclude),
            ticks_to_look: 0,
            owners: ProcessOwners::new(&options.proc_root),
            holders: pods,
            xids: XidTracker::default(),
            log: KernelLogSource {
                path: options.kernel_log.clone().filter(|_| logs),
                proc_root: options.proc_root.clone(),
                open: None,
            },
            imex: options
                .is_enabled(crate::ReadingSource::Imex)
                .then(|| ImexDaemon::new(options.imex_program.as_deref())),
        }
    }

    fn handle_worker_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Gone(worker) => self.inventory.forget_worker(worker),
            WorkerEvent::Said(worker, WorkerMessage::Hello { version, pid, driver }) => {
                tracing::info!(worker, pid, %driver, "the NVML worker is ready");
                if version != worker_pipe::VERSION {
                    tracing::error!(
                        version,
                        "the NVML worker has another version; reinstall gaunt-node"
                    );
                }
                self.driver = driver;
            }
            WorkerEvent::Said(worker, WorkerMessage::Inventory { gpus }) => {
                self.inventory.update_inventory(worker, &self.driver, gpus);
                self.ticks_to_look = 0;
            }
            // A round that hung half-way and completed later is older than the rounds of its spare.
            WorkerEvent::Said(_, WorkerMessage::Tick { at, .. }) if self.last_tick >= Some(at) => {}
            WorkerEvent::Said(worker, WorkerMessage::Tick { at, seconds, gpus, failures }) => {
                self.inventory.apply_tick(worker, seconds, gpus);
                self.last_tick = Some(at);
                if failures != self.failures {
                    for failure in &failures {
                        tracing::warn!(%failure, "driver call failed");
                    }
                    self.failures = failures;
                }
            }
            WorkerEvent::Said(worker, WorkerMessage::Xids { counts }) => {
                for XidCount { gpu, code, count, at } in counts {
                    if let Some(number) = self.inventory.gpu_number(worker, gpu) {
                        self.record_xid((number, code), count, XidSource::Driver, at);
                    }
                }
            }
            // The supervisor has handled these.
            WorkerEvent::Said(_, WorkerMessage::Calling(_) | WorkerMessage::Trouble { .. }) => {}
        }
    }

    fn record_xid(&mut self, (gpu, code): (u32, u32), count: u64, source: XidSource, at: UnixMs) {
        if self.xids.record_xids((gpu, code), count, source, at) {
            let row = describe_xid(code);
            tracing::warn!(gpu, xid = code, meaning = row.meaning, action = row.action, "XID");
        }
    }

    /// Refreshes PCI locations and neighbours periodically: cards may appear later.
    fn refresh_topology(&mut self) {
        if self.ticks_to_look > 0 {
            self.ticks_to_look -= 1;
            return;
        }
        self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        let cards =
            pci_location::list_rdma_devices(&self.sys_root, |name| self.exclude.is_excluded(name));
        self.inventory.refresh_topology(&self.sys_root, &cards);
    }

    /// Reads new records of the kernel log, and reports the status.
    fn read_log(&mut self, report: &mut Report) {
        let Some(path) = &self.log.path else { return };
        let message = |error: io::Error| {
            format!(
                "cannot read {}: {error}; XIDs come from the driver only; allow this user to read it",
                path.display()
            )
        };
        let open = || KernelLog::open_log(path).map_err(message);
        let result = match self.log.open.get_or_insert_with(open) {
            Ok(log) => log.read_new_xids().map_err(message),
            Err(message) => Err(message.clone()),
        };
        let device = report.ensure_device(Device::new_collector("kernel_log"));
        report.push(device, exporter::COLLECTOR_SUCCESS, f64::from(u8::from(result.is_ok())));
        if let Err(message) = &result {
            report.add_info(device, exporter::COLLECTOR_INFO, &[("message", message)]);
            self.log.open = Some(Err(message.clone()));
        }
        let lines = result.unwrap_or_default();
        if lines.is_empty() {
            return;
        }
        let boot = kernel_log::read_boot_time(&self.log.proc_root);
        for line in lines {
            let Some(gpu) = self.inventory.gpu_number_at(&line.pci) else { continue };
            let time = boot
                .map_or_else(wall_clock::now, |boot| UnixMs(boot.0 + (line.micros / 1000) as i64));
            self.record_xid((gpu, line.code), 1, XidSource::KernelLog, time);
        }
    }

    /// Reports the state of the IMEX daemon for the GPUs of an NVLink domain, and the status.
    fn report_imex(&mut self, now: Instant, report: &mut Report) {
        let gpus = self.inventory.gpus_in_nvlink_domain();
        let Some(imex) = self.imex.as_mut().filter(|_| !gpus.is_empty()) else { return };
        let Some(status) = imex.poll_state(now) else { return };
        for number in gpus {
            let device = report.ensure_device(Device::new_gpu(number));
            report.push(device, gpu_health::IMEX_STATE, status.reading);
        }
        let device = report.ensure_device(Device::new_collector("imex"));
        report.push(device, exporter::COLLECTOR_SUCCESS, f64::from(u8::from(!status.has_failed)));
        if let Some(message) = &status.message {
            report.add_info(device, exporter::COLLECTOR_INFO, &[("message", message)]);
        }
    }

    /// The status message of GPUs that answer.
    fn render_summary(&self) -> String {
        let (count, lost) = self.inventory.count_gpus();
        let plural = if count == 1 { "" } else { "s" };
        let mut parts = vec![format!("NVIDIA driver {}, {count} GPU{plural}", self.driver)];
        if !lost.is_empty() {
            let names: Vec<_> = lost.iter().map(ToString::to_string).collect();
            parts.push(format!("lost: GPU {}", names.join(", ")));
        }
        parts.extend(self.failures.first().map(ToString::to_string));
        if self.failures.len() > 1 {
            parts.push(format!("and {} more, see the log", self.failures.len() - 1));
        }
        parts.join("; ")
    }
}

impl Collector for NvmlCollector {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let now = Instant::now();
        for event in self.supervisor.poll_workers(now) {
            self.handle_worker_event(event);
        }
        let mut health = self.supervisor.worker_health(now);
        let time = report.node_time.or(self.last_tick).unwrap_or_default();
        if health == WorkerHealth::Working
            && self
                .last_tick
                .is_some_and(|last_tick| time.duration_since(last_tick) > self.longest_age)
        {
            health = WorkerHealth::Slow;
        }
        self.refresh_topology();
        self.owners.update_processes(&self.inventory.process_ids());
        let pods = Arc::clone(&self.holders.borrow());
        let ownership = GpuOwnership { owners: &self.owners, holders: &pods };
        self.inventory.report_gpus(health == WorkerHealth::Working, ownership, report);
        self.report_imex(now, report);
        // A node that had GPUs and now has none has a problem, whatever the worker reports.
        let had_gpus = self.inventory.count_gpus().0 > 0;
        if had_gpus {
            self.read_log(report);
            self.xids.report_xids(time, report);
        }
        // A node without a driver has no worker that could hang.
        let hung = self.supervisor.count_hung();
        if had_gpus || hung > 0 {
            let device = report.ensure_device(Device::new_collector(self.name()));
            report.push(device, exporter::HUNG_WORKERS, hung as f64);
        }
        match health {
            WorkerHealth::Working => {
                Ok(CollectOutcome::FoundThat { message: self.render_summary(), at: self.last_tick })
            }
            WorkerHealth::Starting => Ok(CollectOutcome::Pending(
                "waiting for the NVIDIA driver to initialise".to_owned(),
            )),
            WorkerHealth::Blocked(_) | WorkerHealth::Slow
                if self.supervisor.is_hung_limit_reached() =>
            {
                Err(CollectError::Driver(format!(
                    "{hung} NVML workers hang in driver calls, and no more are started; GPU values are stale; \
                     see `dmesg` for an Xid, reset the GPU or reboot the node"
                )))
            }
            WorkerHealth::Blocked(call) => Err(CollectError::Driver(format!(
                "driver call {call} does not return; GPU values are stale; see `dmesg` for an Xid"
            ))),
            WorkerHealth::Slow => Err(CollectError::Driver(
                "the driver answers too slowly; GPU values are stale; see `dmesg` for an Xid"
                    .to_owned(),
            )),
            WorkerHealth::NothingHere(message) if !had_gpus => {
                Ok(CollectOutcome::Nothing(message.to_string()))
            }
            WorkerHealth::NothingHere(message) | WorkerHealth::Down(message) => {
                Err(CollectError::Driver(message.to_string()))
            }
        }
    }
}
