//! The scenario file: which GPUs there are, what they say over time, and which calls fail or hang.

use serde::Deserialize;

/// A whole scenario.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The driver's version.
    pub(crate) driver: String,
    /// How long every call takes.
    #[serde(default)]
    pub(crate) latency_ms: u64,
    /// The GPUs, by index.
    #[serde(default, rename = "gpu")]
    pub(crate) gpus: Vec<Gpu>,
    /// What goes wrong; of several faults that fit a call the first one counts.
    #[serde(default, rename = "fault")]
    pub(crate) faults: Vec<Fault>,
}

/// One GPU. Values are in NVML's units; what is not given is not supported.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) model: String,
    pub(crate) pci_bus_id: String,
    pub(crate) serial: Option<String>,
    /// Seconds after initialisation from which on every call about it says that it is lost.
    pub(crate) lost_from: Option<f64>,
    pub(crate) utilization_percent: Option<Value>,
    pub(crate) memory_activity_percent: Option<Value>,
    pub(crate) memory_total_bytes: Option<Value>,
    pub(crate) memory_used_bytes: Option<Value>,
    /// What the driver keeps for itself: neither used nor free.
    pub(crate) memory_reserved_bytes: Option<Value>,
    pub(crate) power_milliwatts: Option<Value>,
    pub(crate) power_limit_milliwatts: Option<Value>,
    pub(crate) energy_millijoules: Option<Value>,
    pub(crate) temperature_celsius: Option<Value>,
    pub(crate) sm_clock_megahertz: Option<Value>,
    pub(crate) sm_clock_max_megahertz: Option<Value>,
    pub(crate) clock_events: Option<Value>,
    pub(crate) processes: Option<Value>,
}

/// A value that stands, or that changes at certain seconds after initialisation.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// The same at all times.
    Always(u64),
    /// Pairs of a second and the value from then on, in order; before the first one the first value holds.
    Steps(Vec<(f64, u64)>),
}

impl Value {
    /// The value at an instant.
    pub(crate) fn at(&self, seconds: f64) -> Option<u64> {
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
pub(crate) struct Fault {
    /// The C function; without it every one.
    pub(crate) call: Option<String>,
    /// The GPU's index; without it every one, and calls about none.
    pub(crate) gpu: Option<u32>,
    /// The seconds after initialisation from which on it holds.
    #[serde(default)]
    pub(crate) from: f64,
    /// The seconds at which it ends, if it does.
    pub(crate) until: Option<f64>,
    /// Only the n-th call that fits, counted from one.
    pub(crate) nth: Option<u64>,
    /// The error that the call answers with, by its name in NVML's header: `NOT_SUPPORTED`.
    pub(crate) error: Option<String>,
    /// Whether the call never returns.
    #[serde(default)]
    pub(crate) hang: bool,
    /// How much longer the call takes.
    #[serde(default)]
    pub(crate) latency_ms: u64,
}

/// NVML's error codes by name, as far as scenarios use them.
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

impl Fault {
    /// The code that the call answers with, if it is an error that the fault brings.
    pub(crate) fn code(&self) -> Option<u32> {
        let wanted = self.error.as_deref()?;
        ERRORS.iter().find(|(name, _)| *name == wanted).map(|(_, code)| *code)
    }
}

impl Scenario {
    /// The scenario of a file's text, or what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for (at, fault) in scenario.faults.iter().enumerate() {
            let number = at + 1;
            if let Some(call) = &fault.call
                && !CALLS.contains(&call.as_str())
            {
                return Err(format!("fault {number}: no call {call}; known are {CALLS:?}"));
            }
            if let Some(error) = &fault.error
                && fault.code().is_none()
            {
                let known = ERRORS.map(|(name, _)| name);
                return Err(format!("fault {number}: no error {error}; known are {known:?}"));
            }
            if fault.error.is_none() && !fault.hang && fault.latency_ms == 0 {
                return Err(format!("fault {number} does nothing: give error, hang or latency_ms"));
            }
        }
        Ok(scenario)
    }
}

/// Every call that can be given a fault.
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
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_hold_until_the_next_one() {
        let value = Value::Steps(vec![(0.0, 90), (5.0, 0), (9.0, 40)]);
        let at = |seconds| value.at(seconds);
        assert_eq!([at(0.0), at(4.9), at(5.0), at(100.0)].map(Option::unwrap), [90, 90, 0, 40]);
        assert_eq!(Value::Always(7).at(3.0), Some(7));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let gpu = "[[gpu]]\nuuid = 'a'\nmodel = 'b'\npci_bus_id = 'c'\n";
        for (text, why) in [
            ("", "driver"),
            ("driver = '1'\nspeed = 3", "speed"),
            (&format!("driver = '1'\n{gpu}powr = 3"), "powr"),
            ("driver = '1'\n[[fault]]\ncall = 'nvmlBoom'\nhang = true", "no call nvmlBoom"),
            ("driver = '1'\n[[fault]]\nerror = 'OOPS'", "no error OOPS"),
            ("driver = '1'\n[[fault]]\ngpu = 1", "does nothing"),
        ] {
            let refused = Scenario::parse(text).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
