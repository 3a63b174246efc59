//! The door to NVML: every driver call stands here, each one degrades alone.

use std::{collections::BTreeSet, ffi::OsStr};

use gaunt_schema::{Absent, MetricId, Reading, Safe, catalogue::gpu};
use nvml_wrapper::{
    Device, Nvml,
    bitmasks::device::ThrottleReasons,
    enum_wrappers::device::{Clock, TemperatureSensor},
    error::NvmlError,
};

use super::{
    call::{Call, Note},
    pipe::{Identity, Readings},
};

/// The library that the loader is asked for when none is named.
pub(super) const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// The driver, initialised, and the note of its calls.
pub(super) struct Driver<'a> {
    nvml: Nvml,
    note: &'a Note,
}

/// Why there is no driver to talk to.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoDriver {
    /// The loader does not know the library: there is no NVIDIA driver on this machine.
    #[error("no GPU: {0} not found; install the NVIDIA driver or pass --nvml-library")]
    NotInstalled(String),
    /// The library that was named cannot be loaded.
    #[error("cannot load the NVML library {path}: {why}; check --nvml-library")]
    NotLoadable {
        /// Which library.
        path: String,
        /// What the loader said.
        why: NvmlError,
    },
    /// The library is there and the kernel's part of the driver is not.
    #[error("the NVIDIA driver is not loaded; load it with `modprobe nvidia` and see `dmesg`")]
    NotLoaded,
    /// Initialisation failed in another way.
    #[error("NVML cannot be initialised: {0}; try `nvidia-smi`, and see `dmesg`")]
    Failed(NvmlError),
}

impl NoDriver {
    /// Whether there is simply no GPU here.
    pub(super) fn is_nothing_here(&self) -> bool {
        matches!(self, Self::NotInstalled(_))
    }
}

impl<'a> Driver<'a> {
    /// Loads the library and initialises the driver.
    pub(super) fn init(library: Option<&OsStr>, note: &'a Note) -> Result<Self, NoDriver> {
        let name = library.unwrap_or(DEFAULT_LIBRARY.as_ref());
        let nvml = note.during(Call::Init, None, || Nvml::builder().lib_path(name).init());
        let text = || name.to_string_lossy().into_owned();
        match nvml {
            Ok(nvml) => Ok(Self { nvml, note }),
            // A path must lead to a library; a bare name is a question to the loader.
            Err(NvmlError::LibloadingError(_)) if !text().contains('/') => {
                Err(NoDriver::NotInstalled(text()))
            }
            Err(why @ (NvmlError::LibloadingError(_) | NvmlError::FailedToLoadSymbol(_))) => {
                Err(NoDriver::NotLoadable { path: text(), why })
            }
            Err(NvmlError::DriverNotLoaded) => Err(NoDriver::NotLoaded),
            Err(why) => Err(NoDriver::Failed(why)),
        }
    }

    /// The driver's version, as far as it tells.
    pub(super) fn version(&self) -> Safe {
        let version =
            self.note.during(Call::DriverVersion, None, || self.nvml.sys_driver_version());
        version.map_or_else(|_| "unknown".into(), Safe::from)
    }

    /// Who the GPUs are.
    pub(super) fn inventory(&self) -> Result<Vec<Identity>, NvmlError> {
        let count = self.note.during(Call::Count, None, || self.nvml.device_count())?;
        Ok((0..count).map(|index| self.identity(index)).collect())
    }

    fn identity(&self, index: u32) -> Identity {
        let unknown = Identity { index, ..Identity::default() };
        let Ok(device) = self.device(index) else { return unknown };
        let ask = |call, make: &dyn Fn() -> Result<String, NvmlError>| {
            self.note.during(call, Some(index), make).ok().map(Safe::from)
        };
        Identity {
            uuid: ask(Call::Uuid, &|| device.uuid()),
            model: ask(Call::Name, &|| device.name()),
            pci_bus_id: ask(Call::PciInfo, &|| device.pci_info().map(|pci| pci.bus_id)),
            serial: ask(Call::Serial, &|| device.serial()),
            ..unknown
        }
    }

    fn device(&self, index: u32) -> Result<Device<'_>, NvmlError> {
        self.note.during(Call::Handle, Some(index), || self.nvml.device_by_index(index))
    }

    /// Everything that one GPU measures now. Failures that are not absences of support are added to `failures`.
    pub(super) fn sample(&self, index: u32, failures: &mut BTreeSet<String>) -> Readings {
        let mut round = Round { note: self.note, index, failures, sampled: Readings::default() };
        match self.device(index) {
            Ok(device) => round.all(&device),
            Err(error) => {
                let reason = round.reason(Call::Handle, &error);
                // A GPU that is not found does not answer, whatever the driver calls it.
                round.sampled.lost |= reason == Absent::Error;
                let all = METRICS.iter().map(|metric| (*metric, reason.into()));
                round.sampled.readings.extend(all);
                round.events(&Err(reason));
            }
        }
        round.sampled
    }

    /// Gives the driver back. The wrapper's own way panics if the library has no such function.
    pub(super) fn shutdown(self) {
        if self.nvml.lib().nvmlShutdown.is_ok() {
            _ = self.note.during(Call::Shutdown, None, || self.nvml.shutdown());
        } else {
            std::mem::forget(self.nvml);
        }
    }
}

/// Every metric that is asked of a GPU, without the clock events.
const METRICS: [MetricId; 12] = [
    gpu::UTILIZATION,
    gpu::MEMORY_ACTIVITY,
    gpu::MEMORY_USED,
    gpu::MEMORY_FREE,
    gpu::MEMORY_TOTAL,
    gpu::POWER,
    gpu::POWER_LIMIT,
    gpu::ENERGY,
    gpu::TEMPERATURE,
    gpu::SM_CLOCK,
    gpu::SM_CLOCK_MAX,
    gpu::PROCESSES,
];

/// One round of calls about one GPU.
struct Round<'a> {
    note: &'a Note,
    index: u32,
    failures: &'a mut BTreeSet<String>,
    sampled: Readings,
}

impl Round<'_> {
    fn all(&mut self, device: &Device<'_>) {
        use Call::{Energy, MaxClock, MemoryInfo, PowerLimit, PowerUsage, Processes, Temperature};
        let used = self.ask(Call::Utilization, || device.utilization_rates());
        self.put(gpu::UTILIZATION, used.as_ref().map(|used| f64::from(used.gpu) / 100.0));
        self.put(gpu::MEMORY_ACTIVITY, used.as_ref().map(|used| f64::from(used.memory) / 100.0));
        let memory = self.ask(MemoryInfo, || device.memory_info());
        self.put(gpu::MEMORY_USED, memory.as_ref().map(|memory| memory.used as f64));
        self.put(gpu::MEMORY_FREE, memory.as_ref().map(|memory| memory.free as f64));
        self.put(gpu::MEMORY_TOTAL, memory.as_ref().map(|memory| memory.total as f64));
        let power = self.ask(PowerUsage, || device.power_usage());
        self.put(gpu::POWER, power.as_ref().map(|milliwatts| f64::from(*milliwatts) / 1e3));
        let limit = self.ask(PowerLimit, || device.enforced_power_limit());
        self.put(gpu::POWER_LIMIT, limit.as_ref().map(|milliwatts| f64::from(*milliwatts) / 1e3));
        let energy = self.ask(Energy, || device.total_energy_consumption());
        self.put(gpu::ENERGY, energy.as_ref().map(|millijoules| *millijoules as f64 / 1e3));
        let celsius = self.ask(Temperature, || device.temperature(TemperatureSensor::Gpu));
        self.put(gpu::TEMPERATURE, celsius.as_ref().map(|celsius| f64::from(*celsius)));
        let clock = self.ask(Call::Clock, || device.clock_info(Clock::SM));
        self.put(gpu::SM_CLOCK, clock.as_ref().map(|megahertz| f64::from(*megahertz) * 1e6));
        let highest = self.ask(MaxClock, || device.max_clock_info(Clock::SM));
        self.put(gpu::SM_CLOCK_MAX, highest.as_ref().map(|megahertz| f64::from(*megahertz) * 1e6));
        let processes = self.ask(Processes, || device.running_compute_processes_count());
        self.put(gpu::PROCESSES, processes.as_ref().map(|count| f64::from(*count)));
        let events = self.ask(Call::ClockEvents, || device.current_throttle_reasons());
        self.events(&events);
    }

    /// Makes one call; its failure becomes the reason why its readings are absent.
    fn ask<T>(
        &mut self,
        call: Call,
        make: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Result<T, Absent> {
        let answer = self.note.during(call, Some(self.index), make);
        answer.map_err(|error| self.reason(call, &error))
    }

    fn put(&mut self, metric: MetricId, value: Result<f64, &Absent>) {
        let reading = value.map_or_else(|reason| (*reason).into(), Reading::of);
        self.sampled.readings.push((metric, reading));
    }

    fn events(&mut self, events: &Result<ThrottleReasons, Absent>) {
        for &(bit, metric) in gpu::CLOCK_EVENTS {
            let set = |events: &ThrottleReasons| f64::from(u8::from(events.bits() & bit != 0));
            self.put(metric, events.as_ref().map(set));
        }
    }

    /// Why a reading is missing when the driver answered so.
    fn reason(&mut self, call: Call, error: &NvmlError) -> Absent {
        match error {
            // A function that is not in the library belongs to a newer driver.
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_) => Absent::Unsupported,
            NvmlError::NoPermission => Absent::NoPermission,
            NvmlError::GpuLost => {
                self.sampled.lost = true;
                Absent::Lost
            }
            other => {
                self.failures.insert(format!("{} of GPU {}: {other}", call.name(), self.index));
                Absent::Error
            }
        }
    }
}
