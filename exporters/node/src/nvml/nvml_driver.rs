//! The driver as the worker uses it: this module makes every call, and each one fails independently.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::Path,
    time::{Duration, Instant},
};

use gaunt_schema::{AbsenceReason, SanitizedText};
use nvml_wrapper::{Device, Nvml, error::NvmlError};
use serde::{Deserialize, Serialize};

use super::{
    driver_call::{Call, CurrentCall},
    nvml_ffi::{GpuFabricInfo, NvmlDeviceHandle, NvmlFunctions},
    worker_pipe::{GpuIdentity, GpuRoundReadings},
};

mod call_result;
mod fast_sampling;
mod gpm_sampler;
mod gpu_part_sampler;
mod gpu_sampler;
mod nvlink_sampler;
mod nvml_fields;
mod xid_wait;

pub(super) use xid_wait::{XidWait, XidWaitOutcome};

use call_result::GpuSamplingRound;
use gpu_sampler::GpuSampler;

/// The library that the loader resolves by default.
pub(super) const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// The initialised driver, and the record of its calls.
pub(super) struct NvmlDriver<'a> {
    nvml: Nvml,
    current_call: &'a CurrentCall,
    features: NvmlFeatures,
    /// The state of each GPU between rounds, by its index.
    gpus: Vec<GpuSampler>,
    rounds: u64,
}

/// Optional features, because they need more calls than the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each enables one feature, independently of the others"
)]
pub(super) struct NvmlFeatures {
    /// Activity from the GPU's own counters.
    pub(super) gpm: bool,
    /// Fast sampling between two rounds, and the extremes that it finds.
    pub(super) fast_sampling: bool,
    /// XIDs by driver events.
    pub(super) xid: bool,
    /// The processes on the GPU.
    pub(super) processes: bool,
}

/// Why the driver is not available.
#[derive(Debug, thiserror::Error)]
pub(super) enum NvmlInitError {
    /// The loader does not find the library: there is no NVIDIA driver on this machine.
    #[error("no GPU: {0} not found; install the NVIDIA driver or pass --nvml-library")]
    NotInstalled(String),
    /// This program is linked statically, and such a program loads no library.
    #[error(
        "this gaunt-node is linked statically and cannot load {0}; on nodes with NVIDIA GPUs install its deb, rpm or other tarball"
    )]
    LinkedStatically(String),
    /// The configured library cannot be loaded.
    #[error("cannot load the NVML library {path}: {why}; check --nvml-library")]
    NotLoadable {
        /// Which library.
        path: String,
        /// The loader's error.
        why: NvmlError,
    },
    /// The library exists and the kernel module is not loaded.
    #[error("the NVIDIA driver is not loaded; load it with `modprobe nvidia` and see `dmesg`")]
    NotLoaded,
    /// Initialisation failed in another way.
    #[error("NVML cannot be initialised: {0}; try `nvidia-smi`, and see `dmesg`")]
    Failed(NvmlError),
}

impl NvmlInitError {
    /// Whether there is simply no GPU driver here.
    pub(super) fn is_not_installed(&self) -> bool {
        match self {
            Self::NotInstalled(_) => true,
            // A kernel module whose GPUs cannot be read is no node without GPUs; nor is a configured library.
            Self::LinkedStatically(library) => {
                !library.contains('/') && !Path::new("/proc/driver/nvidia").exists()
            }
            _ => false,
        }
    }
}

impl<'a> NvmlDriver<'a> {
    /// Loads the library and initialises the driver.
    pub(super) fn init_driver(
        library: Option<&OsStr>,
        current_call: &'a CurrentCall,
        features: NvmlFeatures,
    ) -> Result<Self, NvmlInitError> {
        let name = library.unwrap_or(DEFAULT_LIBRARY.as_ref());
        let nvml =
            current_call.run_call(Call::Init, None, || Nvml::builder().lib_path(name).init());
        let text = || name.to_string_lossy().into_owned();
        match nvml {
            Ok(nvml) => Ok(Self { nvml, current_call, features, gpus: Vec::new(), rounds: 0 }),
            Err(NvmlError::LibloadingError(_)) if cfg!(target_feature = "crt-static") => {
                Err(NvmlInitError::LinkedStatically(text()))
            }
            // A path must be a library; a bare name is searched by the loader.
            Err(NvmlError::LibloadingError(_)) if !text().contains('/') => {
                Err(NvmlInitError::NotInstalled(text()))
            }
            Err(why @ (NvmlError::LibloadingError(_) | NvmlError::FailedToLoadSymbol(_))) => {
                Err(NvmlInitError::NotLoadable { path: text(), why })
            }
            Err(NvmlError::DriverNotLoaded) => Err(NvmlInitError::NotLoaded),
            Err(why) => Err(NvmlInitError::Failed(why)),
        }
    }

    /// The driver's version, if it reports one.
    pub(super) fn driver_version(&self) -> SanitizedText {
        let version = self
            .current_call
            .run_call(Call::DriverVersion, None, || self.nvml.sys_driver_version());
        version.map_or_else(|_| "unknown".into(), SanitizedText::from)
    }

    /// The identities of the GPUs.
    pub(super) fn list_gpus(&mut self) -> Result<Vec<GpuIdentity>, NvmlError> {
        let count = self.current_call.run_call(Call::Count, None, || self.nvml.device_count())?;
        self.gpus = (0..count).map(|_| GpuSampler::default()).collect();
        Ok((0..count).map(|index| self.query_identity(index)).collect())
    }

    fn query_identity(&self, index: u32) -> GpuIdentity {
        let unknown = GpuIdentity { index, ..GpuIdentity::default() };
        let Ok(device) = self.device_by_index(index) else { return unknown };
        let query = |call, function: &dyn Fn() -> Result<String, NvmlError>| {
            self.current_call.run_call(call, Some(index), function).ok().map(SanitizedText::from)
        };
        GpuIdentity {
            uuid: query(Call::Uuid, &|| device.uuid()),
            model: query(Call::Name, &|| device.name()),
            pci_bus_id: query(Call::PciInfo, &|| device.pci_info().map(|pci| pci.bus_id)),
            serial: query(Call::Serial, &|| device.serial()),
            vbios: query(Call::Vbios, &|| device.vbios_version()),
            ..unknown
        }
    }

    fn device_by_index(&self, index: u32) -> Result<Device<'_>, NvmlError> {
        self.current_call.run_call(Call::Handle, Some(index), || self.nvml.device_by_index(index))
    }

    /// All current measurements of one GPU. Failures other than missing support are added to `failures`.
    pub(super) fn sample_gpu(
        &mut self,
        index: u32,
        failures: &mut BTreeSet<String>,
    ) -> GpuRoundReadings {
        // A tenth of the GPUs each round, so that all ticks take equally long; all of them in the first.
        let slow_due = (self.rounds + u64::from(index)).is_multiple_of(gpu_sampler::SLOW_EVERY);
        if index as usize + 1 == self.gpus.len() {
            self.rounds += 1;
        }
        let Some(board) = self.gpus.get_mut(index as usize) else {
            return GpuRoundReadings::default();
        };
        let functions = NvmlFunctions::new(&self.nvml);
        let device = self
            .current_call
            .run_call(Call::Handle, Some(index), || self.nvml.device_by_index(index));
        let mut round = GpuSamplingRound::new(self.current_call, index, failures);
        match device {
            Ok(device) => {
                board.handle = Some(NvmlFunctions::device_handle(&device));
                board.sample_round(&mut round, functions, &device, self.features, slow_due);
                if round.sampled.lost {
                    board.handle = None;
                }
            }
            Err(error) => {
                board.handle = None;
                let reason = round.absent_reason(Call::Handle, &error);
                // A GPU whose handle cannot be found counts as lost, whatever the error is.
                round.sampled.lost |= reason == AbsenceReason::Error;
                board.record_all_absent(&mut round, self.features, reason);
            }
        }
        round.sampled
    }

    /// Whether the driver is still the one that was initialised, checked periodically: it may have been reloaded, or
    /// list other GPUs. Only a new worker can read the change.
    pub(super) fn is_unchanged(&self) -> bool {
        if !self.rounds.is_multiple_of(gpu_sampler::SLOW_EVERY) {
            return true;
        }
        let count = self.current_call.run_call(Call::Count, None, || self.nvml.device_count());
        count.is_ok_and(|count| count as usize == self.gpus.len())
    }

    /// Samples every GPU quickly between two rounds.
    pub(super) fn sample_fast(&mut self) {
        let functions = NvmlFunctions::new(&self.nvml);
        for (index, board) in self.gpus.iter_mut().enumerate() {
            board.sample_fast(self.current_call, functions, index as u32, Instant::now());
        }
    }

    /// Begins to wait for XIDs, if enabled: after the first round, which found the GPUs, and periodically after a
    /// failure.
    pub(super) fn begin_xid_wait(&self) -> Option<XidWait> {
        if self.rounds % gpu_sampler::SLOW_EVERY != 1 {
            return None;
        }
        let handles = self.gpus.iter().map(|board| board.handle).collect();
        let functions = NvmlFunctions::new(&self.nvml);
        self.features.xid.then(|| XidWait::begin_wait(self.current_call, functions, handles))?
    }

    /// Waits for an XID for at most this long.
    pub(super) fn wait_for_xid(&self, waiting: &XidWait, time: Duration) -> XidWaitOutcome {
        waiting.wait_for_xid(self.current_call, NvmlFunctions::new(&self.nvml), time)
    }

    /// Ends the wait.
    pub(super) fn end_xid_wait(&self, waiting: XidWait) {
        waiting.end_wait(self.current_call, NvmlFunctions::new(&self.nvml));
    }

    /// Shuts the driver down. The wrapper's own method panics if the library has no such function.
    pub(super) fn shutdown_driver(mut self) {
        for (index, board) in self.gpus.iter_mut().enumerate() {
            board.free_buffers(self.current_call, NvmlFunctions::new(&self.nvml), index as u32);
        }
        if self.nvml.lib().nvmlShutdown.is_ok() {
            _ = self.current_call.run_call(Call::Shutdown, None, || self.nvml.shutdown());
        } else {
            std::mem::forget(self.nvml);
        }
    }
}
