//! The collector interface: one method per source of readings. Each runs on its own thread ([`collector_runner`]).

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{AbsenceReason, Report, UnixMs};
use tokio::sync::watch;

use crate::{SamplerOptions, kubelet::DeviceHolders, process_gpus::ProcessGpus};

mod amd_collector;
pub(crate) mod collector_runner;
mod cpu_collector;
mod disk_collector;
mod ethernet_collector;
mod filesystem_collector;
mod inspector_file;
mod inspector_log_collector;
mod kubelet_collector;
mod memory_collector;
mod mount_collector;
mod netdev_collector;
mod port_collector;
mod pressure_collector;
mod probe_collector;
mod ras_collector;
mod sensor_collector;
mod task_collector;
mod textfile_collector;

/// A source of readings. A failing collector yields a metric and a log line; the others continue.
pub(crate) trait Collector: Send {
    /// Its name in metrics and logs.
    fn name(&self) -> &str;

    /// Adds the current readings to the report.
    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError>;

    /// The maximum age at which its readings still count as current, when a run takes longer than a tick. For counters
    /// it is zero: an old count with a new time is a wrong rate.
    fn max_age(&self) -> Duration {
        Duration::ZERO
    }
}

/// The outcome of a successful run. Messages are constant while the situation is, because they become labels.
#[derive(Debug)]
pub(crate) enum CollectOutcome {
    /// Readings were added.
    Found,
    /// Readings were added, with a message.
    FoundThat {
        /// The message.
        message: String,
        /// When the readings were taken, if that was not now.
        at: Option<UnixMs>,
    },
    /// There is nothing to collect here; the text is the reason.
    Nothing(String),
    /// The outcome is not known yet.
    Pending(String),
}

/// Why a collector failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    /// A file of the kernel could not be read.
    #[error("cannot read {path}: {source}; check that it exists and that this user may read it")]
    Read {
        /// Which file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file of the kernel has an unexpected format.
    #[error("cannot parse {path}: {what}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// None of so many readings has a value.
    #[error("none of its {0} readings can be parsed or read; gaunt_absent has the reason of each")]
    Unreadable(usize),
    /// Some devices could not be read; the others were read.
    #[error("{0}")]
    Devices(String),
    /// A run exceeded its deadline.
    #[error("{}", render_late_run(*.0, .1))]
    Late(Duration, PathBuf),
    /// The thread of the collector ended.
    #[error("the collector's thread ended; see the log, and restart gaunt-node")]
    Broken,
    /// The driver, or the worker that calls it, failed.
    #[error("{0}")]
    Driver(String),
}

/// The collectors of kernel and kubelet data, in page order; the kubelet's collector passes its results on. NCCL's RAS is
/// queried for each change of `ras_requests`, and what processes log is joined with their GPUs.
pub(crate) fn host_collectors(
    options: &SamplerOptions,
    holder_sender: watch::Sender<Arc<DeviceHolders>>,
    ras_requests: watch::Receiver<u64>,
    processes: watch::Receiver<Arc<ProcessGpus>>,
) -> Vec<Box<dyn Collector>> {
    let mut collectors: Vec<Box<dyn Collector>> = vec![
        Box::new(cpu_collector::CpuCollector::new(&options.proc_root)),
        Box::new(memory_collector::MemoryCollector::new(&options.proc_root)),
        Box::new(pressure_collector::PressureCollector::new(&options.proc_root)),
        Box::new(task_collector::TaskCollector::new(&options.proc_root)),
        Box::new(disk_collector::DiskCollector::new(options)),
        Box::new(mount_collector::MountCollector::new(options)),
        Box::new(filesystem_collector::FilesystemCollector::new(options)),
        Box::new(sensor_collector::SensorCollector::new(&options.sys_root)),
        Box::new(sensor_collector::energy_collector::EnergyCollector::new(&options.sys_root)),
        Box::new(netdev_collector::NetdevCollector::new(options)),
        Box::new(ethernet_collector::EthernetCollector::new(options)),
        Box::new(port_collector::PortCollector::new(options)),
        Box::new(amd_collector::AmdCollector::new(options)),
        Box::new(kubelet_collector::KubeletCollector::new(options, holder_sender)),
    ];
    if let Some(folder) = &options.textfiles {
        collectors.push(Box::new(textfile_collector::TextfileCollector::new(folder)));
    }
    if let Some(folder) = &options.inspector_logs {
        let collector =
            inspector_log_collector::InspectorLogCollector::new(folder, options, processes);
        collectors.push(Box::new(collector));
    }
    if let Some(schedule) = &options.probe {
        let name = options.node_name.clone().or_else(|| {
            crate::kernel_files::read_once(&options.proc_root.join("sys/kernel/hostname"))
        });
        let library = options.nvml_library.clone();
        collectors.push(Box::new(probe_collector::ProbeCollector::new(
            schedule,
            library,
            &name.unwrap_or_default(),
        )));
    }
    if let Some(service) = options.ras {
        let collector = ras_collector::RasCollector::new(service, options, ras_requests);
        collectors.push(Box::new(collector));
    }
    collectors
}

/// The reason for a missing reading after this error of the kernel.
pub(crate) fn absent_reason(error: &io::Error) -> AbsenceReason {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {
            AbsenceReason::Unsupported
        }
        io::ErrorKind::PermissionDenied => AbsenceReason::NoPermission,
        _ if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
            AbsenceReason::Lost
        }
        _ => AbsenceReason::Error,
    }
}

/// The message of a run past its deadline, with the file that it was reading when that was noticed.
fn render_late_run(deadline: Duration, reading: &Path) -> String {
    let limit = deadline.as_secs_f64();
    if reading.as_os_str().is_empty() {
        return format!("the run takes longer than {limit} s; its values are stale");
    }
    let path = reading.display();
    format!("reading {path} takes longer than {limit} s; its values are stale; see `dmesg`")
}
