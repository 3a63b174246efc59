//! The idle check: queries NVML for processes on the GPUs before a measurement, and repeatedly during it.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use gaunt_schema::SanitizedText;
use nvml_wrapper::{Nvml, enum_wrappers::device::ComputeMode, error::NvmlError};

use crate::{
    cuda::gpu_context::short_bus_id,
    exit_code::{ExitKind, ProbeExit, SkipReason},
};

/// Above this utilisation in the driver's window, a process that NVML does not list uses the GPU.
const USED_PERCENT: u32 = 5;

/// More memory in use than this belongs to a process; the driver's own share is not counted, a display's is smaller.
const USED_BYTES: u64 = 1 << 30;

/// Growth of used memory that is tolerated during a probe: another context takes several times as much.
const GROWN_BYTES: u64 = 128 << 20;

/// The GPUs as NVML lists them.
pub(crate) struct GpuIdleCheck {
    nvml: Nvml,
    /// By index, with their PCI addresses in CUDA's form.
    gpus: Vec<(u32, String)>,
    job_paths: Vec<PathBuf>,
    /// How other processes are told apart from ours; none before our contexts exist.
    own_use: Option<OwnGpuUse>,
}

/// Our own use of the GPUs.
enum OwnGpuUse {
    /// Our process id, as NVML reports it.
    Process(u32),
    /// NVML does not list our process, and perhaps none: memory in use on each GPU after all our allocations.
    Memory(Vec<u64>),
}

impl GpuIdleCheck {
    /// Opens NVML and finds all GPUs.
    pub(crate) fn open_nvml(
        library: Option<&Path>,
        job_paths: &[PathBuf],
    ) -> Result<Self, ProbeExit> {
        let mut builder = Nvml::builder();
        if let Some(library) = library {
            builder.lib_path(library.as_os_str());
        }
        let nvml = builder.init().map_err(|error| nvml_missing(&error))?;
        let count = nvml.device_count().map_err(|error| nvml_missing(&error))?;
        let mut gpus = Vec::new();
        for index in 0..count {
            let pci = nvml.device_by_index(index).and_then(|device| device.pci_info());
            let pci = pci.map_err(|error| gpu_query_failed(index, &error))?;
            gpus.push((index, short_bus_id(&pci.bus_id)));
        }
        Ok(Self { nvml, gpus, job_paths: job_paths.to_vec(), own_use: None })
    }

    /// The index of the GPU at a PCI address.
    pub(crate) fn gpu_index(&self, bus_id: &str) -> Option<u32> {
        self.gpus.iter().find(|(_, address)| address == bus_id).map(|(index, _)| *index)
    }

    /// Restricts the checks to these GPUs.
    pub(crate) fn retain_gpus(&mut self, indices: &[u32]) {
        self.gpus.retain(|(index, _)| indices.contains(index));
    }

    /// Whether the GPUs are idle, before the probe uses them.
    pub(crate) fn check_idle(&self) -> Result<(), ProbeExit> {
        self.check_no_job()?;
        for (index, _) in &self.gpus {
            let device = self
                .nvml
                .device_by_index(*index)
                .map_err(|error| gpu_query_failed(*index, &error))?;
            if device.mig_mode().is_ok_and(|mode| mode.current == 1) {
                let why = format!("GPU {index} is in MIG mode; MIG instances have no links");
                return Err(ProbeExit::new_refused(SkipReason::Mode, why));
            }
            if device.compute_mode().is_ok_and(|mode| mode != ComputeMode::Default) {
                let why = format!(
                    "GPU {index} is in exclusive compute mode; a probe would block a job that starts"
                );
                return Err(ProbeExit::new_refused(SkipReason::Mode, why));
            }
            if let Some(pid) = self.list_processes(*index)?.first() {
                return Err(ProbeExit::new_refused(
                    SkipReason::Process,
                    render_process(*index, *pid),
                ));
            }
            let busy_percent =
                device.utilization_rates().map_or(0, |busy_percent| busy_percent.gpu);
            if busy_percent > USED_PERCENT {
                let why =
                    format!("GPU {index} is {busy_percent} % busy, but NVML lists no process");
                return Err(ProbeExit::new_refused(SkipReason::InUse, why));
            }
            let bytes = self.used_memory(*index)?;
            if bytes > USED_BYTES {
                let why =
                    format!("{bytes} bytes of GPU {index} are in use, but NVML lists no process");
                return Err(ProbeExit::new_refused(SkipReason::InUse, why));
            }
        }
        Ok(())
    }

    /// Identifies our own use, after all our allocations. No other process may have started since the last check.
    pub(crate) fn learn_own_use(&mut self) -> Result<(), ProbeExit> {
        let mut listed = Vec::new();
        for (index, _) in &self.gpus {
            listed.push((*index, self.list_processes(*index)?));
        }
        let own_pid = process::id();
        let first_pid = listed.first().and_then(|(_, pids)| pids.first()).copied();
        self.own_use = Some(match first_pid {
            _ if listed.iter().any(|(_, pids)| pids.contains(&own_pid)) => {
                OwnGpuUse::Process(own_pid)
            }
            // In a container NVML may report another process id: a single process on all our GPUs is ours.
            Some(pid) if listed.iter().all(|(_, pids)| pids.as_slice() == [pid]) => {
                OwnGpuUse::Process(pid)
            }
            Some(pid) => return Err(stopped_by_process(listed[0].0, pid)),
            None => {
                let used = self.gpus.iter().map(|(index, _)| self.used_memory(*index));
                OwnGpuUse::Memory(used.collect::<Result<_, _>>()?)
            }
        });
        self.check_exclusive()
    }

    /// Whether the probe is still the only user.
    pub(crate) fn check_exclusive(&self) -> Result<(), ProbeExit> {
        self.check_no_job().map_err(|refused| ProbeExit { kind: ExitKind::Stopped, ..refused })?;
        for (position, (index, _)) in self.gpus.iter().enumerate() {
            match &self.own_use {
                Some(OwnGpuUse::Process(own_pid)) => {
                    if let Some(pid) =
                        self.list_processes(*index)?.iter().find(|pid| *pid != own_pid)
                    {
                        return Err(stopped_by_process(*index, *pid));
                    }
                }
                Some(OwnGpuUse::Memory(before)) => {
                    let grown = self.used_memory(*index)?.saturating_sub(before[position]);
                    if grown > GROWN_BYTES {
                        let why = format!(
                            "stopped: another process allocated {grown} bytes of GPU {index}"
                        );
                        return Err(ProbeExit {
                            kind: ExitKind::Stopped,
                            ..ProbeExit::new_refused(SkipReason::InUse, why)
                        });
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    fn list_processes(&self, index: u32) -> Result<Vec<u32>, ProbeExit> {
        let device = self.nvml.device_by_index(index);
        let processes = device.and_then(|device| device.running_compute_processes());
        let processes = processes.map_err(|error| gpu_query_failed(index, &error))?;
        Ok(processes.iter().map(|process| process.pid).collect())
    }

    fn used_memory(&self, index: u32) -> Result<u64, ProbeExit> {
        let device = self.nvml.device_by_index(index);
        let memory = device.and_then(|device| device.memory_info());
        memory.map(|memory| memory.used).map_err(|error| gpu_query_failed(index, &error))
    }

    /// Checks that no path exists that marks a job.
    fn check_no_job(&self) -> Result<(), ProbeExit> {
        match self.job_paths.iter().find_map(|pattern| find_matching_path(pattern)) {
            None => Ok(()),
            Some(path) => {
                let why =
                    format!("a job is running or starting on this node: {} exists", path.display());
                Err(ProbeExit::new_refused(SkipReason::Job, why))
            }
        }
    }
}

/// The first path that matches a pattern, whose last part may end in `*`.
fn find_matching_path(pattern: &Path) -> Option<PathBuf> {
    let name = pattern.file_name()?.to_str()?;
    let Some(start) = name.strip_suffix('*') else {
        return pattern.exists().then(|| pattern.to_path_buf());
    };
    let entries = fs::read_dir(pattern.parent()?).ok()?;
    let mut names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let name = names.find(|name| name.to_str().is_some_and(|name| name.starts_with(start)))?;
    Some(pattern.with_file_name(name))
}

fn stopped_by_process(index: u32, pid: u32) -> ProbeExit {
    let why = format!("stopped: {}", render_process(index, pid));
    ProbeExit { kind: ExitKind::Stopped, ..ProbeExit::new_refused(SkipReason::Process, why) }
}

fn render_process(index: u32, pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = SanitizedText::new(name.trim());
    let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
    format!("process {pid}{name} is on GPU {index}")
}

fn nvml_missing(error: &NvmlError) -> ProbeExit {
    let why = format!(
        "cannot list the processes on the GPUs: NVML: {error}; install the NVIDIA driver, or set the library's path \
         with --nvml-library"
    );
    ProbeExit { kind: ExitKind::NoGpu, ..ProbeExit::new_refused(SkipReason::NoGpu, why) }
}

fn gpu_query_failed(index: u32, error: &NvmlError) -> ProbeExit {
    let why = format!("NVML cannot list the processes on GPU {index}: {error}");
    if matches!(error, NvmlError::GpuLost) {
        return ProbeExit::new(ExitKind::Lost, why);
    }
    ProbeExit::new_refused(SkipReason::Blind, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_the_rest_of_the_last_path_part() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("job_17"), "").unwrap();
        let matches = |pattern: &str| find_matching_path(&folder.path().join(pattern));
        assert_eq!(matches("job_*"), Some(folder.path().join("job_17")));
        assert_eq!(matches("job_17"), Some(folder.path().join("job_17")));
        assert_eq!(matches("pod_*"), None);
        assert_eq!(matches("nowhere/job_*"), None);
    }
}
