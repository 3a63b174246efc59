//! The driver calls by name, and the record of the current one.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use serde::{Deserialize, Serialize};

/// Declares the calls with their NVML names, which are the terms that people search for.
macro_rules! calls {
    ($($variant:ident = $name:literal,)*) => {
        /// A driver call that the worker makes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(super) enum Call { $(#[serde(rename = $name)] $variant,)* }

        impl Call {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name of the C function.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

calls! {
    Init = "nvmlInit_v2",
    Shutdown = "nvmlShutdown",
    DriverVersion = "nvmlSystemGetDriverVersion",
    Count = "nvmlDeviceGetCount_v2",
    Handle = "nvmlDeviceGetHandleByIndex_v2",
    Uuid = "nvmlDeviceGetUUID",
    Name = "nvmlDeviceGetName",
    PciInfo = "nvmlDeviceGetPciInfo_v3",
    Serial = "nvmlDeviceGetSerial",
    Utilization = "nvmlDeviceGetUtilizationRates",
    MemoryInfo = "nvmlDeviceGetMemoryInfo_v2",
    PowerUsage = "nvmlDeviceGetPowerUsage",
    PowerLimit = "nvmlDeviceGetEnforcedPowerLimit",
    Energy = "nvmlDeviceGetTotalEnergyConsumption",
    Temperature = "nvmlDeviceGetTemperature",
    Clock = "nvmlDeviceGetClockInfo",
    MaxClock = "nvmlDeviceGetMaxClockInfo",
    ClockEvents = "nvmlDeviceGetCurrentClocksThrottleReasons",
    Processes = "nvmlDeviceGetComputeRunningProcesses_v3",
    Vbios = "nvmlDeviceGetVbiosVersion",
    Fields = "nvmlDeviceGetFieldValues",
    Bar1 = "nvmlDeviceGetBAR1MemoryInfo",
    Encoder = "nvmlDeviceGetEncoderUtilization",
    Decoder = "nvmlDeviceGetDecoderUtilization",
    Jpeg = "nvmlDeviceGetJpgUtilization",
    Ofa = "nvmlDeviceGetOfaUtilization",
    TemperatureThreshold = "nvmlDeviceGetTemperatureThreshold",
    Margin = "nvmlDeviceGetMarginTemperature",
    PerformanceState = "nvmlDeviceGetPerformanceState",
    PcieGeneration = "nvmlDeviceGetCurrPcieLinkGeneration",
    PcieGenerationMax = "nvmlDeviceGetMaxPcieLinkGeneration",
    PcieWidth = "nvmlDeviceGetCurrPcieLinkWidth",
    PcieWidthMax = "nvmlDeviceGetMaxPcieLinkWidth",
    ComputeMode = "nvmlDeviceGetComputeMode",
    Persistence = "nvmlDeviceGetPersistenceMode",
    Fabric = "nvmlDeviceGetGpuFabricInfoV",
    GpmSupport = "nvmlGpmQueryDeviceSupport",
    GpmAllocate = "nvmlGpmSampleAlloc",
    GpmTake = "nvmlGpmSampleGet",
    GpmTakeMig = "nvmlGpmMigSampleGet",
    GpmMetrics = "nvmlGpmMetricsGet",
    GpmFree = "nvmlGpmSampleFree",
    EventSet = "nvmlEventSetCreate",
    EventRegister = "nvmlDeviceRegisterEvents",
    EventWait = "nvmlEventSetWait_v2",
    EventFree = "nvmlEventSetFree",
    ProcessUtilization = "nvmlDeviceGetProcessUtilization",
    LinkState = "nvmlDeviceGetNvLinkState",
    LinkErrors = "nvmlDeviceGetNvLinkErrorCounter",
    LinkPeer = "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    MigMode = "nvmlDeviceGetMigMode",
    MigCount = "nvmlDeviceGetMaxMigDeviceCount",
    MigHandle = "nvmlDeviceGetMigDeviceHandleByIndex",
    GpuInstance = "nvmlDeviceGetGpuInstanceId",
    ComputeInstance = "nvmlDeviceGetComputeInstanceId",
}

/// A call in progress, as reported to the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OngoingCall {
    /// Which call.
    pub(super) call: Call,
    /// The NVML index of its GPU, if it concerns one.
    pub(super) gpu: Option<u32>,
    /// Its duration so far, in milliseconds.
    pub(super) millis: u64,
}

/// The call for display: `nvmlDeviceGetPowerUsage of GPU 3`.
impl fmt::Display for OngoingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.name())?;
        self.gpu.map_or(Ok(()), |gpu| write!(f, " of GPU {gpu}"))
    }
}

/// The record of the current call, written by the calling thread and read by the watching thread.
///
/// One word of memory instead of a message, because it is written two hundred times a second. From high to low:
/// 48 bits of milliseconds since the worker's start plus one, 8 bits of call, 8 bits of GPU. Zero is no call.
pub(super) struct CurrentCall {
    started: Instant,
    packed: AtomicU64,
}

/// The code for no GPU in the record. NVML drives at most 64.
const NO_GPU: u64 = 0xff;

impl CurrentCall {
    /// A record of no call; `started` is the worker's start.
    pub(super) fn new(started: Instant) -> Self {
        Self { started, packed: AtomicU64::new(0) }
    }

    /// Makes a call and records it while it runs.
    pub(super) fn run_call<T>(
        &self,
        call: Call,
        gpu: Option<u32>,
        function: impl FnOnce() -> T,
    ) -> T {
        let gpu = gpu.map_or(NO_GPU, |gpu| u64::from(gpu).min(NO_GPU));
        let packed = ((self.elapsed_millis() + 1) << 16) | ((call as u64) << 8) | gpu;
        self.packed.store(packed, Ordering::Relaxed);
        let answer = function();
        self.packed.store(0, Ordering::Relaxed);
        answer
    }

    /// The call in progress, if there is one.
    pub(super) fn ongoing_call(&self) -> Option<OngoingCall> {
        let packed = self.packed.load(Ordering::Relaxed);
        let started = (packed >> 16).checked_sub(1)?;
        let call = *Call::ALL.get((packed >> 8) as usize & 0xff)?;
        let gpu = packed & 0xff;
        let millis = self.elapsed_millis().saturating_sub(started);
        Some(OngoingCall { call, gpu: (gpu != NO_GPU).then_some(gpu as u32), millis })
    }

    fn elapsed_millis(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn current_call_is_set_only_during_the_call() {
        let current_call = CurrentCall::new(Instant::now());
        assert_eq!(current_call.ongoing_call(), None);
        let ongoing = current_call
            .run_call(Call::PowerUsage, Some(3), || current_call.ongoing_call())
            .unwrap();
        assert_eq!((ongoing.call, ongoing.gpu), (Call::PowerUsage, Some(3)));
        assert_eq!(ongoing.to_string(), "nvmlDeviceGetPowerUsage of GPU 3");
        let init = current_call.run_call(Call::Init, None, || current_call.ongoing_call()).unwrap();
        assert_eq!(init.to_string(), "nvmlInit_v2");
        assert_eq!(current_call.ongoing_call(), None);
    }
}
