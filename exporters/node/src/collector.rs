//! The collector seam: one method per source of readings, and what is said about each run of it.

use std::{collections::BTreeMap, io, path::PathBuf, time::Instant};

use gaunt_schema::{Absent, Device, Report, UnixMs, catalogue::exporter};

use crate::{Options, nvml::collector::Gpus};

mod cpu;
mod memory;
mod netdev;
mod ports;
mod pressure;

/// A source of readings. A collector that fails is a metric and a log line; the others go on.
pub(crate) trait Collector: Send {
    /// Its name in metrics and logs.
    fn name(&self) -> &'static str;

    /// Adds what there is now to the report.
    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError>;
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
    /// The driver, or the worker that talks to it, is in trouble.
    #[error("{0}")]
    Driver(String),
}

/// What is remembered of one collector between runs.
#[derive(Default)]
struct Past {
    last_success: Option<UnixMs>,
    /// The last message that was logged: a failure is logged when it begins, not once a second.
    logged: Option<String>,
}

/// All collectors of a node, run one after the other.
pub(crate) struct Collectors {
    all: Vec<Box<dyn Collector>>,
    past: BTreeMap<&'static str, Past>,
}

impl Collectors {
    /// The collectors of a node, in the order of the page.
    pub(crate) fn new(options: &Options) -> Self {
        Self::of(vec![
            Box::new(cpu::Cpu::new(&options.proc_root)),
            Box::new(memory::Memory::new(&options.proc_root)),
            Box::new(pressure::Pressure::new(&options.proc_root)),
            Box::new(netdev::Netdevs::new(&options.sys_root)),
            Box::new(ports::Ports::new(&options.sys_root)),
            Box::new(Gpus::new(options)),
        ])
    }

    fn of(all: Vec<Box<dyn Collector>>) -> Self {
        Self { all, past: BTreeMap::new() }
    }

    /// Runs every collector, and adds to the report what it brought and how it went.
    pub(crate) fn run(&mut self, now: UnixMs, report: &mut Report) {
        for collector in &mut self.all {
            let name = collector.name();
            let started = Instant::now();
            let outcome = collector.collect(report);
            let seconds = started.elapsed().as_secs_f64();
            let past = self.past.entry(name).or_default();
            say(name, now, seconds, &outcome, past, report);
        }
    }
}

/// Adds the collector's own series to the report, and logs a failure when it begins and when it ends.
fn say(
    name: &'static str,
    now: UnixMs,
    seconds: f64,
    outcome: &Result<Outcome, CollectError>,
    past: &mut Past,
    report: &mut Report,
) {
    let device = report.device(Device::collector(name));
    let (message, success) = match outcome {
        Ok(Outcome::Found) => (None, Some(Ok(now))),
        Ok(Outcome::FoundThat { message, at }) => {
            (Some(message.clone()), Some(Ok(at.unwrap_or(now))))
        }
        Ok(Outcome::Nothing(message)) => (Some(message.clone()), Some(Ok(now))),
        Ok(Outcome::Pending(message)) => (Some(message.clone()), None),
        Err(error) => (Some(error.to_string()), Some(Err(()))),
    };
    if let Some(message) = &message {
        report.info(device, exporter::COLLECTOR_INFO, &[("message", message)]);
    }
    match success {
        Some(Ok(at)) => {
            past.last_success = Some(at);
            report.push(device, exporter::COLLECTOR_SUCCESS, 1.0);
            if past.logged.take().is_some() {
                tracing::info!(collector = name, "collector works again");
            }
        }
        Some(Err(())) => {
            report.push(device, exporter::COLLECTOR_SUCCESS, 0.0);
            if past.logged != message {
                let reason = message.as_deref().unwrap_or_default();
                tracing::warn!(collector = name, reason, "collector failed");
                past.logged = message;
            }
        }
        None => {}
    }
    report.push(device, exporter::COLLECTOR_DURATION, seconds);
    if let Some(at) = past.last_success {
        report.push(device, exporter::COLLECTOR_LAST_SUCCESS, at.seconds());
    }
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

#[cfg(test)]
mod tests;
