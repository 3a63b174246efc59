//! The logs of NCCL's and RCCL's inspector (its JSON output): the collectives of each rank, averaged over half a minute. A
//! log names a process and no GPU; the GPU is the one on which the process runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use gaunt_schema::{Device, DeviceClass, Report, SanitizedText, catalogue::collective};
use tokio::sync::watch;

use super::{CollectError, CollectOutcome, Collector, inspector_file};
use crate::{
    SamplerOptions,
    kernel_files::{list_names, read_once},
    process_gpus::ProcessGpus,
};

mod collective_window;
mod log_file;
mod log_record;
#[cfg(test)]
mod tests;

use collective_window::{CollectiveMeans, CollectiveWindow, LoggedCollective};
use log_file::LogFile;
use log_record::LogContext;

/// The name of a log: `HOST-pid4711.log`.
const LOG: (&str, &str) = ("-pid", ".log");

/// The folder of a Slurm job, which the inspector creates where it is told no other.
const JOB_FOLDER: &str = "nccl-inspector-";
const NO_JOB: &str = "unknown-jobid";

/// The most logs that are read, the newest first, and the most folders of jobs that are searched.
const MAX_LOGS: usize = 64;
const MAX_FOLDERS: usize = 64;

/// The time between two searches for logs.
const SEARCH_EVERY: Duration = Duration::from_secs(10);

/// Reads `FOLDER/HOST-pid*.log` and `FOLDER/*/HOST-pid*.log`.
pub(super) struct InspectorLogCollector {
    folder: PathBuf,
    proc_root: PathBuf,
    processes: watch::Receiver<Arc<ProcessGpus>>,
    searched: Option<Instant>,
    logs: BTreeMap<PathBuf, InspectorLog>,
    /// Logs of other hosts in the folder.
    foreign: usize,
    /// The first folder of a job that cannot be read, and why.
    folder_error: Option<String>,
    window: CollectiveWindow,
    /// Operations for which the last window had no space.
    left_out: usize,
}

/// One log.
#[derive(Default)]
struct InspectorLog {
    job: String,
    file: LogFile,
    context: LogContext,
    /// The first line that was not understood, and why.
    error: Option<String>,
}

impl InspectorLogCollector {
    pub(super) fn new(
        folder: &Path,
        options: &SamplerOptions,
        processes: watch::Receiver<Arc<ProcessGpus>>,
    ) -> Self {
        Self {
            folder: folder.to_path_buf(),
            proc_root: options.proc_root.clone(),
            processes,
            searched: None,
            logs: BTreeMap::new(),
            foreign: 0,
            folder_error: None,
            window: CollectiveWindow::default(),
            left_out: 0,
        }
    }

    /// Finds the logs of this host that are still written.
    fn search_logs(&mut self) -> io::Result<()> {
        let host = read_once(&self.proc_root.join("sys/kernel/hostname")).unwrap_or_default();
        let (mut found, mut folders) = (Vec::new(), Vec::new());
        (self.foreign, self.folder_error) = (0, None);
        for name in list_names(&self.folder)? {
            let path = self.folder.join(&name);
            match host_of_log(&name) {
                Some(named) if is_same_host(named, &host) => found.push((path, String::new())),
                Some(_) => self.foreign += 1,
                None if path.is_dir() => folders.push((modified_time(&path), name)),
                None => {}
            }
        }
        folders.sort_unstable_by(|one, other| other.cmp(one));
        for (_, folder) in folders.into_iter().take(MAX_FOLDERS) {
            let path = self.folder.join(&folder);
            let job = folder.strip_prefix(JOB_FOLDER).filter(|job| *job != NO_JOB);
            let names = list_names(&path).unwrap_or_else(|error| {
                // The folder of a job may be removed meanwhile.
                if error.kind() != io::ErrorKind::NotFound {
                    let describe = || format!("cannot read {}: {error}", path.display());
                    self.folder_error.get_or_insert_with(describe);
                }
                Vec::new()
            });
            for name in names {
                match host_of_log(&name) {
                    Some(named) if is_same_host(named, &host) => {
                        found.push((path.join(&name), job.unwrap_or_default().to_owned()));
                    }
                    Some(_) => self.foreign += 1,
                    None => {}
                }
            }
        }
        let oldest = SystemTime::now() - inspector_file::VALID;
        let dated = found.into_iter().map(|(path, job)| (modified_time(&path), path, job));
        let mut dated: Vec<_> = dated.filter(|(modified, ..)| *modified >= oldest).collect();
        dated.sort_unstable_by(|one, other| other.cmp(one));
        dated.truncate(MAX_LOGS);
        let mut before = std::mem::take(&mut self.logs);
        let kept = dated.into_iter().map(|(_, path, job)| {
            let log = before.remove(&path).unwrap_or_default();
            (path, InspectorLog { job, ..log })
        });
        self.logs = kept.collect();
        Ok(())
    }

    fn collect_at(
        &mut self,
        now: Instant,
        report: &mut Report,
    ) -> Result<CollectOutcome, CollectError> {
        if self.searched.is_none_or(|at| now.duration_since(at) >= SEARCH_EVERY) {
            self.search_logs()
                .map_err(|source| CollectError::Read { path: self.folder.clone(), source })?;
            self.searched = Some(now);
        }
        for (path, log) in &mut self.logs {
            log.read_operations(path, &mut self.window);
        }
        if let Some(left_out) = self.window.end_when_over(now) {
            self.left_out = left_out;
        }
        let unassigned = self.report_collectives(report);
        self.outcome(&unassigned)
    }

    /// Adds the means of the last window. Returns the processes without a GPU.
    fn report_collectives(&self, report: &mut Report) -> BTreeSet<u32> {
        let (processes, mut unassigned) = (self.processes.borrow().clone(), BTreeSet::new());
        for (collective, means) in self.window.last_means() {
            match processes.gpu_of(collective.pid) {
                Some(gpu) => report_collective(gpu, collective, *means, report),
                None => _ = unassigned.insert(collective.pid),
            }
        }
        unassigned
    }

    fn outcome(&self, unassigned: &BTreeSet<u32>) -> Result<CollectOutcome, CollectError> {
        let errors: Vec<&str> = self.logs.values().filter_map(|log| log.error.as_deref()).collect();
        if !errors.is_empty() {
            return Err(CollectError::Devices(errors.join("; ")));
        }
        if self.logs.is_empty() {
            let mut why =
                "no log of NCCL's inspector in inspector_logs is of this host and still written"
                    .to_owned();
            if self.foreign > 0 {
                why += "; logs of other host names are not read (containers: NCCL_INSPECTOR_PROM_DUMP=1 and textfiles)";
            }
            return Ok(CollectOutcome::Nothing(why));
        }
        let mut messages = Vec::new();
        if let Some(first) = unassigned.first() {
            messages.push(format!(
                "collectives are left out of {} that run on no known GPU or on several (process {first})",
                count_processes(unassigned.len())
            ));
        }
        if self.left_out > 0 {
            let most = inspector_file::MAX_COLLECTIVES;
            messages.push(format!("more than {most} collectives: the rest is left out"));
        }
        if self.logs.values().any(|log| log.context.dropped > 0) {
            messages.push(
                "the inspector lost operations; raise NCCL_INSPECTOR_DUMP_COLL_RING_SIZE"
                    .to_owned(),
            );
        }
        if messages.is_empty() {
            return Ok(CollectOutcome::Found);
        }
        Ok(CollectOutcome::FoundThat { message: messages.join("; "), at: None })
    }
}

impl InspectorLog {
    /// Adds the operations that were logged since the last read.
    fn read_operations(&mut self, path: &Path, window: &mut CollectiveWindow) {
        let body = match self.file.read_lines(path) {
            Ok(body) => body,
            Err(error) => {
                self.error = Some(format!("cannot read {}: {error}", path.display()));
                return;
            }
        };
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match self.context.decode_line(line) {
                Ok(Some(operation)) => window.add_operation(&operation, &self.job),
                Ok(None) => {}
                Err(error) => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let describe = || SanitizedText::new(&format!("{name}: {error}")).to_string();
                    self.error.get_or_insert_with(describe);
                }
            }
        }
    }
}

impl Collector for InspectorLogCollector {
    fn name(&self) -> &'static str {
        "inspector"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        self.collect_at(Instant::now(), report)
    }
}

fn report_collective(
    gpu: &SanitizedText,
    collective: &LoggedCollective,
    means: CollectiveMeans,
    report: &mut Report,
) {
    let LoggedCollective { communicator, operation, message_size, algorithm, job, .. } = collective;
    let (ranks, nodes) = (collective.ranks.to_string(), collective.nodes.to_string());
    let parts = [communicator, operation, message_size, algorithm, &ranks];
    let parts: Vec<&str> =
        parts.map(String::as_str).into_iter().filter(|it| !it.is_empty()).collect();
    let key = [gpu.clone(), SanitizedText::new(&parts.join(" "))];
    let device = Device { class: DeviceClass::Collective, key: key.into() };
    if report.devices.contains(&device) {
        // Two processes of one GPU have a rank each in a communicator that they call the same.
        return;
    }
    let device = report.ensure_device(device);
    let rank = collective.rank.to_string();
    let labels = [
        ("communicator", communicator.as_str()),
        ("operation", operation),
        ("message_size", message_size),
        ("algorithm", algorithm),
        ("ranks", &ranks),
        ("nodes", &nodes),
        ("job", job),
        ("rank", &rank),
    ];
    let labels: Vec<(&str, &str)> =
        labels.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    report.add_info(device, collective::INFO, &labels);
    report.push(device, collective::DURATION, means.seconds);
    for (metric, bandwidth) in [
        (collective::ALGORITHM_BANDWIDTH, means.algorithm_bandwidth),
        (collective::BUS_BANDWIDTH, means.bus_bandwidth),
    ] {
        if let Some(bandwidth) = bandwidth {
            report.push(device, metric, bandwidth);
        }
    }
}

/// The host in the name of a log.
fn host_of_log(name: &str) -> Option<&str> {
    let (host, pid) = name.strip_suffix(LOG.1)?.rsplit_once(LOG.0)?;
    pid.parse::<u32>().ok().map(|_| host)
}

/// Whether two names are of one host: with or without its domain.
fn is_same_host(one: &str, other: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    !one.is_empty() && short(one) == short(other)
}

fn modified_time(path: &Path) -> SystemTime {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn count_processes(count: usize) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}
