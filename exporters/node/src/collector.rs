//! The collector seam: one method per source of readings. Each runs on a thread of its own ([`round`]).

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{Absent, Report, UnixMs};
use tokio::sync::watch;

use crate::{Options, kubelet::Pods};

mod amd;
mod cpu;
mod disk;
mod ethernet;
mod kubelet;
mod memory;
mod mount;
mod netdev;
mod ports;
mod pressure;
mod probe;
pub(crate) mod round;
mod sensor;
mod task;
mod textfile;

/// A source of readings. A collector that fails is a metric and a log line; the others go on.
pub(crate) trait Collector: Send {
    /// Its name in metrics and logs.
    fn name(&self) -> &str;

    /// Adds what there is now to the report.
    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError>;

    /// How old its readings may be and still stand for now, when a run of it takes longer than a tick. Counters have
    /// no patience: an old count under a new time is a wrong rate.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

/// How a run that did not fail ended. Messages stay the same while the situation does: they become labels.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Readings were added.
    Found,
    /// Readings were added, of which something is to be said.
    FoundThat {
        /// What was found.
        message: String,
        /// When the readings were taken, if that was not now.
        at: Option<UnixMs>,
    },
    /// There is nothing here to collect, and this is why.
    Nothing(String),
    /// It is too early to say.
    Pending(String),
}

/// Why a collector could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    /// A file of the kernel could not be read.
    #[error("cannot read {path}: {source}; check that it exists and that this user may read it")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file of the kernel does not look as it should.
    #[error("cannot understand {path}: {what}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Some devices could not be read; the others were.
    #[error("{0}")]
    Devices(String),
    /// A run takes longer than it may.
    #[error("{}", late(*.0, .1))]
    Late(Duration, PathBuf),
    /// The thread of the collector ended.
    #[error("the collector broke and is left alone; see the log, and restart gaunt-node")]
    Broken,
    /// The driver, or the worker that talks to it, is in trouble.
    #[error("{0}")]
    Driver(String),
}

/// The collectors of what the kernel and the kubelet tell, in the order of the page; the kubelet's passes on what it
/// hears.
pub(crate) fn of_host(
    options: &Options,
    tell: watch::Sender<Arc<Pods>>,
) -> Vec<Box<dyn Collector>> {
    let mut all: Vec<Box<dyn Collector>> = vec![
        Box::new(cpu::Cpu::new(&options.proc_root)),
        Box::new(memory::Memory::new(&options.proc_root)),
        Box::new(pressure::Pressure::new(&options.proc_root)),
        Box::new(task::Tasks::new(&options.proc_root)),
        Box::new(disk::Disks::new(options)),
        Box::new(mount::Mounts::new(options)),
        Box::new(sensor::Sensors::new(&options.sys_root)),
        Box::new(sensor::energy::Energy::new(&options.sys_root)),
        Box::new(netdev::Netdevs::new(options)),
        Box::new(ethernet::Ethernet::new(options)),
        Box::new(ports::Ports::new(options)),
        Box::new(amd::Gpus::new(options)),
        Box::new(kubelet::Kubelet::new(options, tell)),
    ];
    if let Some(folder) = &options.textfiles {
        all.push(Box::new(textfile::Textfiles::new(folder)));
    }
    if let Some(asked) = &options.probe {
        let name = options
            .node_name
            .clone()
            .or_else(|| crate::files::read_once(&options.proc_root.join("sys/kernel/hostname")));
        let library = options.nvml_library.clone();
        all.push(Box::new(probe::Probes::new(asked, library, &name.unwrap_or_default())));
    }
    all
}

/// Why a reading is missing when the kernel answered so.
pub(crate) fn absence(error: &io::Error) -> Absent {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {
            Absent::Unsupported
        }
        io::ErrorKind::PermissionDenied => Absent::NoPermission,
        _ if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Absent::Lost,
        _ => Absent::Error,
    }
}

/// What is said of a run that does not end, and where it was when that was noticed.
fn late(deadline: Duration, reading: &Path) -> String {
    let limit = deadline.as_secs_f64();
    if reading.as_os_str().is_empty() {
        return format!("it takes longer than {limit} s; its values are stale");
    }
    let path = reading.display();
    format!("reading {path} takes longer than {limit} s; its values are stale; see `dmesg`")
}
