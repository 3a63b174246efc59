//! The scenario file: the GPUs, their values over time, and the calls that fail or hang.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;

/// A whole scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriverScenario {
    /// The driver's version.
    pub(crate) driver: String,
    /// The number of GPUs that the driver lists, if not all.
    pub(crate) count: Option<ScenarioValue>,
    /// A file to which the name of each call is appended when it is first made.
    pub(crate) calls: Option<PathBuf>,
    /// The duration of every call.
    #[serde(default)]
    pub(crate) latency_ms: u64,
    /// The GPUs, by index.
    #[serde(default, rename = "gpu")]
    pub(crate) gpus: Vec<GpuScenario>,
    /// The CUDA part; without it there is no CUDA.
    pub(crate) cuda: Option<crate::fake_cuda::cuda_scenario::CudaScenario>,
    /// The faults; of several that match a call the first one applies.
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<CallFault>,
}

/// One GPU. Values are in NVML's units; missing values are not supported.
#[derive(Debug, Deserialize)]
pub(crate) struct GpuScenario {
    pub(crate) uuid: String,
    pub(crate) model: String,
    pub(crate) pci_bus_id: String,
    pub(crate) serial: Option<String>,
    pub(crate) vbios: Option<String>,
    /// The NVLink domain: 32 hexadecimal digits.
    pub(crate) cluster: Option<String>,
    /// Seconds after initialisation from which on every call about it returns that it is lost.
    pub(crate) lost_from: Option<f64>,
    /// Seconds after initialisation from which on it answers again.
    pub(crate) lost_until: Option<f64>,
    /// Its errors: the second, and the XID.
    #[serde(default)]
    pub(crate) xids: Vec<(f64, u64)>,
    #[serde(default, rename = "link")]
    pub(crate) links: Vec<NvlinkScenario>,
    #[serde(default, rename = "process")]
    pub(crate) processes: Vec<ProcessScenario>,
    #[serde(default, rename = "mig")]
    pub(crate) instances: Vec<MigScenario>,
    /// All numeric values, by the keys of [`VALUES`].
    #[serde(flatten)]
    values: BTreeMap<String, ScenarioValue>,
}

/// An NVLink of a GPU.
#[derive(Debug, Deserialize)]
pub(crate) struct NvlinkScenario {
    /// The PCI address at its other end.
    pub(crate) peer: Option<String>,
    /// All numeric values, by the keys of [`LINK_FIELDS`] and [`LINK_VALUES`].
    #[serde(flatten)]
    pub(crate) values: BTreeMap<String, ScenarioValue>,
}

/// A process on a GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessScenario {
    pub(crate) pid: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) sm_percent: u32,
}

/// A MIG instance of a GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigScenario {
    pub(crate) uuid: String,
    pub(crate) model: String,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
    pub(crate) memory_total_bytes: u64,
    pub(crate) memory_used_bytes: u64,
    pub(crate) sm_active_percent: ScenarioValue,
    pub(crate) tensor_active_percent: ScenarioValue,
    pub(crate) dram_active_percent: ScenarioValue,
}

impl GpuScenario {
    /// The value of a key, if the scenario gives one.
    pub(crate) fn value_of_key(&self, key: &str) -> Option<&ScenarioValue> {
        debug_assert!(is_value_key(key), "{key} is not a known key");
        self.values.get(key)
    }
}

fn is_value_key(key: &str) -> bool {
    let fields = FIELDS.iter().chain(GPM).map(|(_, key)| *key);
    fields.chain(VALUES.iter().copied()).any(|other| other == key)
}

/// A constant value, or one that changes at certain seconds after initialisation.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum ScenarioValue {
    /// The same at all times.
    Always(u64),
    /// Pairs of a second and the value from then on, in order; before the first one the first value applies.
    Steps(Vec<(f64, u64)>),
}

impl ScenarioValue {
    /// The exact mean between two instants.
    pub(crate) fn mean_between(&self, from: f64, to: f64) -> Option<f64> {
        let Self::Steps(steps) = self else { return self.value_at(from).map(|value| value as f64) };
        let inside =
            steps.iter().map(|(second, _)| *second).filter(|second| *second > from && *second < to);
        let edges: Vec<f64> = [from].into_iter().chain(inside).chain([to]).collect();
        let mut sum = 0.0;
        for edge in edges.windows(2) {
            sum += self.value_at(edge[0])? as f64 * (edge[1] - edge[0]);
        }
        Some(if to > from { sum / (to - from) } else { self.value_at(to)? as f64 })
    }

    /// The value at an instant.
    pub(crate) fn value_at(&self, seconds: f64) -> Option<u64> {
        match self {
            Self::Always(value) => Some(*value),
            Self::Steps(steps) => {
                let reached = steps.iter().take_while(|(from, _)| *from <= seconds).last();
                reached.or(steps.first()).map(|(_, value)| *value)
            }
        }
    }
}

/// A fault of calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallFault {
    /// The C function; without it all of them.
    pub(crate) call: Option<String>,
    /// The GPU's index; without it all GPUs, and calls about none.
    pub(crate) gpu: Option<u32>,
    /// The seconds after initialisation from which on it applies.
    #[serde(default)]
    pub(crate) from: f64,
    /// The seconds at which it ends, if it does.
    pub(crate) until: Option<f64>,
    /// Only the n-th matching call, counted from one.
    pub(crate) nth: Option<u64>,
    /// A file beside the scenario file that triggers it: of all workers the next matching call removes the file, and
    /// only that call has the fault.
    pub(crate) trigger: Option<PathBuf>,
    /// The error that the call returns, by its name in NVML's header: `NOT_SUPPORTED`.
    pub(crate) error: Option<String>,
    /// Whether the call never returns.
    #[serde(default)]
    pub(crate) hang: bool,
    /// The additional duration of the call.
    #[serde(default)]
    pub(crate) latency_ms: u64,
}

/// The NVML error codes that scenarios use, by name.
const ERRORS: [(&str, u32); 15] = [
    ("UNINITIALIZED", 1),
    ("INVALID_ARGUMENT", 2),
    ("NOT_SUPPORTED", 3),
    ("NO_PERMISSION", 4),
    ("NOT_FOUND", 6),
    ("DRIVER_NOT_LOADED", 9),
    ("TIMEOUT", 10),
    ("FUNCTION_NOT_FOUND", 13),
    ("CORRUPTED_INFOROM", 14),
    ("GPU_IS_LOST", 15),
    ("RESET_REQUIRED", 16),
    ("OPERATING_SYSTEM", 17),
    ("LIB_RM_VERSION_MISMATCH", 18),
    ("NO_DATA", 21),
    ("UNKNOWN", 999),
];

impl CallFault {
    /// The code that the call returns, if the fault is an error.
    pub(crate) fn error_code(&self) -> Option<u32> {
        let wanted = self.error.as_deref()?;
        ERRORS.iter().find(|(name, _)| *name == wanted).map(|(_, code)| *code)
    }
}

impl DriverScenario {
    /// Parses a scenario file's text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for (index, gpu) in scenario.gpus.iter().enumerate() {
            if let Some(key) = gpu.values.keys().find(|key| !is_value_key(key)) {
                return Err(format!("gpu {index}: unknown value {key}"));
            }
            let keys = gpu.links.iter().flat_map(|link| link.values.keys());
            let mut unknown = keys.filter(|key| {
                let fields = LINK_FIELDS.iter().map(|(_, name)| *name);
                let counters = LINK_VALUES.iter().chain(&LINK_GPM.1).copied();
                !fields.chain(counters).any(|name| name == *key)
            });
            if let Some(key) = unknown.next() {
                return Err(format!("gpu {index}: unknown link value {key}"));
            }
        }
        if let Some(message) = scenario
            .cuda
            .as_ref()
            .and_then(crate::fake_cuda::cuda_scenario::CudaScenario::invalid_fault)
        {
            return Err(message);
        }
        for (index, fault) in scenario.faults.iter().enumerate() {
            let number = index + 1;
            if let Some(call) = &fault.call
                && !CALLS.contains(&call.as_str())
            {
                return Err(format!("fault {number}: unknown call {call}; known: {CALLS:?}"));
            }
            if let Some(error) = &fault.error
                && fault.error_code().is_none()
            {
                let names = ERRORS.map(|(name, _)| name);
                return Err(format!("fault {number}: unknown error {error}; known: {names:?}"));
            }
            if fault.error.is_none() && !fault.hang && fault.latency_ms == 0 {
                return Err(format!("fault {number} has no effect: set error, hang or latency_ms"));
            }
        }
        Ok(scenario)
    }
}

/// Values with their own call.
const VALUES: &[&str] = &[
    "utilization_percent",
    "memory_activity_percent",
    "memory_total_bytes",
    "memory_used_bytes",
    // Reserved by the driver: neither used nor free.
    "memory_reserved_bytes",
    "bar1_total_bytes",
    "bar1_used_bytes",
    "power_milliwatts",
    "power_limit_milliwatts",
    "energy_millijoules",
    "temperature_celsius",
    "slowdown_celsius",
    "shutdown_celsius",
    "margin_celsius",
    "sm_clock_megahertz",
    "sm_clock_max_megahertz",
    "memory_clock_megahertz",
    "memory_clock_max_megahertz",
    "performance_state",
    "clock_events",
    "processes",
    "encoder_percent",
    "decoder_percent",
    "jpeg_percent",
    "ofa_percent",
    "pcie_generation",
    "pcie_generation_max",
    "pcie_width",
    "pcie_width_max",
    "compute_mode",
    "persistence",
    "fabric_state",
    "fabric_clique",
    // The error with which the registration ended.
    "fabric_status",
    "fabric_health_mask",
    "fabric_health_summary",
    // The newest version of the fabric structure that this driver supports.
    "fabric_version",
    "mig_mode",
];

/// Values that are fields, with their numbers in NVML.
pub(crate) const FIELDS: &[(u32, &str)] = &[
    (3, "ecc_corrected_volatile"),
    (4, "ecc_uncorrected_volatile"),
    (5, "ecc_corrected_aggregate"),
    (6, "ecc_uncorrected_aggregate"),
    (38, "nvlink_crc_flit"),
    (45, "nvlink_crc_data"),
    (29, "retired_corrected"),
    (30, "retired_uncorrected"),
    (31, "retired_pending"),
    (74, "violation_power_nanoseconds"),
    (75, "violation_thermal_nanoseconds"),
    (76, "violation_sync_boost_nanoseconds"),
    (77, "violation_board_limit_nanoseconds"),
    (78, "violation_low_utilization_nanoseconds"),
    (79, "violation_reliability_nanoseconds"),
    (82, "memory_temperature_celsius"),
    (94, "pcie_replays"),
    (142, "remapped_corrected"),
    (143, "remapped_uncorrected"),
    (144, "remap_pending"),
    (145, "remap_failed"),
    (186, "power_instant_milliwatts"),
    (189, "power_default_limit_milliwatts"),
    (230, "recovery_action"),
];

/// Fields of one link, by the link's number as their scope.
pub(crate) const LINK_FIELDS: &[(u32, &str)] = &[
    (138, "transmit_kibibytes"),
    (139, "receive_kibibytes"),
    (161, "replay"),
    (162, "recovery"),
    (163, "crc"),
    (165, "up"),
    (202, "transmit_bytes"),
    (204, "receive_bytes"),
];

/// Counters of each link: from the first number on, two for each link.
pub(crate) const LINK_GPM: (u32, [&str; 2]) =
    (62, ["receive_mebibytes_per_second", "transmit_mebibytes_per_second"]);

/// Values of a link with their own call: its state, and its errors in NVML's order of kinds.
pub(crate) const LINK_VALUES: &[&str] =
    &["state", "dl_replay", "dl_recovery", "dl_crc_flit", "dl_crc_data"];

/// The field with the number of links.
pub(crate) const LINK_COUNT: u32 = 91;

/// Values of GPM, with their numbers in GPM.
pub(crate) const GPM: &[(u32, &str)] = &[
    (1, "graphics_active_percent"),
    (2, "sm_active_percent"),
    (3, "sm_occupancy_percent"),
    (5, "tensor_active_percent"),
    (10, "dram_active_percent"),
    (11, "fp64_active_percent"),
    (12, "fp32_active_percent"),
    (13, "fp16_active_percent"),
    (20, "pcie_transmit_mebibytes_per_second"),
    (21, "pcie_receive_mebibytes_per_second"),
    (60, "nvlink_receive_mebibytes_per_second"),
    (61, "nvlink_transmit_mebibytes_per_second"),
];

/// All calls that can have a fault.
pub(crate) const CALLS: &[&str] = &[
    "nvmlInit_v2",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetVbiosVersion",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetBAR1MemoryInfo",
    "nvmlDeviceGetEncoderUtilization",
    "nvmlDeviceGetDecoderUtilization",
    "nvmlDeviceGetJpgUtilization",
    "nvmlDeviceGetOfaUtilization",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetMaxPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetMaxPcieLinkWidth",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMigSampleGet",
    "nvmlGpmMetricsGet",
    "nvmlGpmSampleFree",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
    "nvmlEventSetFree",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkErrorCounter",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_applies_until_the_next_one() {
        let value = ScenarioValue::Steps(vec![(0.0, 90), (5.0, 0), (9.0, 40)]);
        let value_at = |seconds| value.value_at(seconds);
        assert_eq!(
            [value_at(0.0), value_at(4.9), value_at(5.0), value_at(100.0)].map(Option::unwrap),
            [90, 90, 0, 40]
        );
        assert_eq!(ScenarioValue::Always(7).value_at(3.0), Some(7));
        let mean = |from, to| value.mean_between(from, to).unwrap().to_string();
        assert_eq!(
            [mean(1.0, 2.0), mean(4.0, 6.0), mean(4.0, 10.0)],
            ["90", "45", "21.666666666666668"]
        );
    }

    #[test]
    fn invalid_scenario_is_rejected() {
        let gpu = "[[gpu]]\nuuid = 'a'\nmodel = 'b'\npci_bus_id = 'c'\n";
        for (text, expected) in [
            ("", "driver"),
            ("driver = '1'\nspeed = 3", "speed"),
            (&format!("driver = '1'\n{gpu}powr = 3"), "powr"),
            ("driver = '1'\n[[fault]]\ncall = 'nvmlBoom'\nhang = true", "unknown call nvmlBoom"),
            ("driver = '1'\n[[fault]]\nerror = 'OOPS'", "unknown error OOPS"),
            ("driver = '1'\n[[fault]]\ngpu = 1", "has no effect"),
        ] {
            let error = DriverScenario::parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
