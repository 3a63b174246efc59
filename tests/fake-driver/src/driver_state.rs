//! The state of the fake driver: time since initialisation, faults, values.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Write},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::driver_scenario::{CallFault, DriverScenario, GpuScenario, ScenarioValue};

/// The environment variable that names the scenario file.
const VARIABLE: &str = "GAUNT_FAKE_DRIVER";

/// NVML's code of success, and the codes that the driver itself returns.
pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_ARGUMENT: u32 = 2;
pub(crate) const NOT_SUPPORTED: u32 = 3;
pub(crate) const INSUFFICIENT_SIZE: u32 = 7;
const DRIVER_NOT_LOADED: u32 = 9;
const GPU_IS_LOST: u32 = 15;
pub(crate) const NOT_FOUND: u32 = 6;
pub(crate) const TIMEOUT: u32 = 10;
pub(crate) const VERSION_MISMATCH: u32 = 25;

/// The driver of this process.
pub(crate) struct FakeDriver {
    scenario: DriverScenario,
    started: Instant,
    /// For each fault, the number of matching calls.
    match_counts: Vec<AtomicU64>,
    /// The calls that were made, each once.
    recorded_calls: Mutex<BTreeSet<String>>,
}

/// The driver, read from the scenario file at the first call.
pub(crate) fn shared_driver() -> Result<&'static FakeDriver, u32> {
    static DRIVER: OnceLock<Option<FakeDriver>> = OnceLock::new();
    let driver = DRIVER.get_or_init(|| match load_scenario() {
        Ok(scenario) => {
            let match_counts = scenario.faults.iter().map(|_| AtomicU64::new(0)).collect();
            let recorded_calls = Mutex::default();
            Some(FakeDriver { scenario, started: Instant::now(), match_counts, recorded_calls })
        }
        Err(why) => {
            _ = writeln!(io::stderr().lock(), "gaunt-fake-driver: {why}");
            None
        }
    });
    driver.as_ref().ok_or(DRIVER_NOT_LOADED)
}

/// Lets this process read the scenario of the tests that call the exported functions.
#[cfg(test)]
#[expect(unsafe_code, reason = "the environment is shared by all threads")]
pub(crate) fn use_called_scenario() {
    static SET: std::sync::Once = std::sync::Once::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/called_scenario.toml");
    // SAFETY: no C code runs in these tests, and the standard library reads the environment under a lock.
    SET.call_once(|| unsafe { env::set_var(VARIABLE, file) });
}

fn load_scenario() -> Result<DriverScenario, String> {
    let path = env::var_os(VARIABLE).ok_or(format!("set {VARIABLE} to a scenario file"))?;
    let path = std::path::Path::new(&path);
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut scenario =
        DriverScenario::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    for file in scenario.faults.iter_mut().filter_map(|fault| fault.trigger.as_mut()) {
        *file = path.with_file_name(&*file);
    }
    Ok(scenario)
}

impl FakeDriver {
    /// Applies latency and faults to a call: it may fail or never return.
    pub(crate) fn begin_call(&self, call: &str, gpu: Option<u32>) -> Result<(), u32> {
        self.record_call(call);
        sleep_millis(self.scenario.latency_ms);
        let seconds = self.elapsed_seconds();
        for (fault, match_count) in self.scenario.faults.iter().zip(&self.match_counts) {
            if !fault_matches(fault, call, gpu, seconds) {
                continue;
            }
            let count = match_count.fetch_add(1, Ordering::Relaxed) + 1;
            if fault.nth.is_some_and(|nth| nth != count) {
                continue;
            }
            // Of several calls that find the file, only one can remove it.
            if fault.trigger.as_ref().is_some_and(|file| fs::remove_file(file).is_err()) {
                continue;
            }
            if fault.hang {
                loop {
                    thread::park();
                }
            }
            sleep_millis(fault.latency_ms);
            return fault.error_code().map_or(Ok(()), Err);
        }
        let is_lost = gpu.and_then(|gpu| self.gpu_at(gpu).ok()).is_some_and(|gpu| {
            gpu.lost_from.is_some_and(|from| seconds >= from)
                && gpu.lost_until.is_none_or(|until| seconds < until)
        });
        if is_lost { Err(GPU_IS_LOST) } else { Ok(()) }
    }

    /// Records a call that is made for the first time.
    fn record_call(&self, call: &str) {
        let Some(path) = &self.scenario.calls else { return };
        let mut recorded = self.recorded_calls.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.insert(call.to_owned()) {
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            _ = file.and_then(|mut file| writeln!(file, "{call}"));
        }
    }

    /// The driver's version.
    pub(crate) fn driver_version(&self) -> &str {
        &self.scenario.driver
    }

    /// The CUDA part of the scenario.
    pub(crate) fn cuda_scenario(
        &'static self,
    ) -> Option<&'static crate::fake_cuda::cuda_scenario::CudaScenario> {
        self.scenario.cuda.as_ref()
    }

    /// The number of GPUs.
    pub(crate) fn gpu_count(&self) -> u32 {
        let total = self.scenario.gpus.len() as u32;
        self.value_now(self.scenario.count.as_ref()).map_or(total, |count| total.min(count as u32))
    }

    /// One of them.
    pub(crate) fn gpu_at(&self, index: u32) -> Result<&GpuScenario, u32> {
        self.scenario.gpus.get(index as usize).ok_or(INVALID_ARGUMENT)
    }

    /// A value now.
    pub(crate) fn value_now(&self, value: Option<&ScenarioValue>) -> Result<u64, u32> {
        value.and_then(|value| value.value_at(self.elapsed_seconds())).ok_or(NOT_SUPPORTED)
    }

    /// Seconds since the driver was first called.
    pub(crate) fn elapsed_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

fn fault_matches(fault: &CallFault, call: &str, gpu: Option<u32>, seconds: f64) -> bool {
    fault.call.as_deref().is_none_or(|wanted| wanted == call)
        && fault.gpu.is_none_or(|wanted| gpu == Some(wanted))
        && seconds >= fault.from
        && fault.until.is_none_or(|until| seconds < until)
}

fn sleep_millis(millis: u64) {
    if millis > 0 {
        thread::sleep(Duration::from_millis(millis));
    }
}
