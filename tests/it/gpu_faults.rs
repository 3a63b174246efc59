//! Every driver call in turn hangs or reports that the GPU is lost. No call changes any state.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use gaunt_schema::{Device, Reading, catalogue::gpu};

use crate::{
    gpu_sampling::{FakeDriverSampler, read_scenario},
    node_program::{collector_message, collector_success, expect_reading, is_running, wait_until},
};

/// The subject of a call.
#[derive(Clone, Copy, PartialEq)]
enum CallSubject {
    /// The driver, which is unavailable without it.
    Driver,
    /// An optional value.
    Optional,
    /// One GPU, which is lost if the call reports so.
    Gpu,
    /// Every GPU alike.
    AllGpus,
    /// What is released at the end.
    Release,
}

use CallSubject::{AllGpus, Driver, Gpu, Optional, Release};

/// Every NVML function that may be called. All of them only read; no other function is called.
const ALLOWED: &[(&str, CallSubject)] = &[
    ("nvmlInit_v2", Driver),
    ("nvmlShutdown", Release),
    ("nvmlSystemGetDriverVersion", Optional),
    ("nvmlDeviceGetCount_v2", Driver),
    ("nvmlDeviceGetHandleByIndex_v2", Gpu),
    ("nvmlDeviceGetUUID", Gpu),
    ("nvmlDeviceGetName", Gpu),
    ("nvmlDeviceGetPciInfo_v3", Optional),
    ("nvmlDeviceGetSerial", Optional),
    ("nvmlDeviceGetVbiosVersion", Optional),
    ("nvmlDeviceGetUtilizationRates", Gpu),
    ("nvmlDeviceGetMemoryInfo_v2", Gpu),
    ("nvmlDeviceGetBAR1MemoryInfo", Gpu),
    ("nvmlDeviceGetPowerUsage", Gpu),
    ("nvmlDeviceGetEnforcedPowerLimit", Gpu),
    ("nvmlDeviceGetTotalEnergyConsumption", Gpu),
    ("nvmlDeviceGetTemperature", Gpu),
    ("nvmlDeviceGetTemperatureThreshold", Gpu),
    ("nvmlDeviceGetMarginTemperature", Gpu),
    ("nvmlDeviceGetClockInfo", Gpu),
    ("nvmlDeviceGetMaxClockInfo", Gpu),
    ("nvmlDeviceGetPerformanceState", Gpu),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", Gpu),
    ("nvmlDeviceGetComputeRunningProcesses_v3", Gpu),
    ("nvmlDeviceGetProcessUtilization", Gpu),
    ("nvmlDeviceGetFieldValues", Gpu),
    ("nvmlDeviceGetEncoderUtilization", Gpu),
    ("nvmlDeviceGetDecoderUtilization", Gpu),
    ("nvmlDeviceGetJpgUtilization", Gpu),
    ("nvmlDeviceGetOfaUtilization", Gpu),
    ("nvmlDeviceGetCurrPcieLinkGeneration", Gpu),
    ("nvmlDeviceGetMaxPcieLinkGeneration", Gpu),
    ("nvmlDeviceGetCurrPcieLinkWidth", Gpu),
    ("nvmlDeviceGetMaxPcieLinkWidth", Gpu),
    ("nvmlDeviceGetComputeMode", Gpu),
    ("nvmlDeviceGetPersistenceMode", Gpu),
    ("nvmlDeviceGetGpuFabricInfoV", Gpu),
    ("nvmlGpmQueryDeviceSupport", Gpu),
    ("nvmlGpmSampleAlloc", AllGpus),
    ("nvmlGpmSampleGet", Gpu),
    ("nvmlGpmMigSampleGet", Gpu),
    ("nvmlGpmMetricsGet", Gpu),
    ("nvmlGpmSampleFree", Release),
    ("nvmlEventSetCreate", Optional),
    ("nvmlDeviceRegisterEvents", Optional),
    ("nvmlEventSetWait_v2", Optional),
    ("nvmlEventSetFree", Release),
    ("nvmlDeviceGetNvLinkState", Gpu),
    ("nvmlDeviceGetNvLinkErrorCounter", Gpu),
    ("nvmlDeviceGetNvLinkRemotePciInfo_v2", Gpu),
    ("nvmlDeviceGetMigMode", Gpu),
    ("nvmlDeviceGetMaxMigDeviceCount", Gpu),
    ("nvmlDeviceGetMigDeviceHandleByIndex", Gpu),
    ("nvmlDeviceGetGpuInstanceId", Gpu),
    ("nvmlDeviceGetComputeInstanceId", Gpu),
];

/// Number of nodes tested concurrently, besides those of what is released at the end.
const AT_A_TIME: usize = 6;

/// Runs a check for every call, a few at a time. Those of what is released at the end run beside the others: a worker
/// that hangs there is waited for, for the five seconds that it has.
fn each_call(check: impl Fn(&'static str, CallSubject) + Sync) {
    let (releases, others): (Vec<_>, Vec<_>) =
        ALLOWED.iter().partition(|(_, subject)| *subject == Release);
    let (check, next) = (&check, AtomicUsize::new(0));
    thread::scope(|scope| {
        for &(call, subject) in releases {
            scope.spawn(move || check(call, subject));
        }
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(&&(call, subject)) = others.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    check(call, subject);
                }
            });
        }
    });
}

/// A node with one fault and deadlines of 50 ms.
fn start_faulty(fault: &str) -> FakeDriverSampler {
    let text = format!("{}\n[[fault]]\n{fault}\n", read_scenario("full.toml"));
    FakeDriverSampler::start_scenario(&text, |options, _| {
        options.period = Duration::from_millis(100);
        options.call_deadline = Duration::from_millis(50);
        options.init_deadline = Duration::from_millis(500);
    })
}

/// The workers that were started in a folder.
fn worker_pids(folder: &Path) -> Vec<String> {
    let pids = fs::read_to_string(folder.join("pids")).unwrap();
    pids.lines().map(str::to_owned).collect()
}

#[test]
fn hang_at_any_call_is_named_while_reports_keep_coming() {
    each_call(|call, subject| {
        let node = start_faulty(&format!("call = '{call}'\nhang = true"));
        if subject == Release {
            node.wait_for_report("a tick", |report| collector_success(report, "nvml") == Some(1.0));
            let folder = node.stop_sampler();
            // A worker that cannot finish is killed: nothing reads from it any more.
            let ended = || worker_pids(folder.path()).iter().all(|pid| !is_running(pid));
            wait_until(&format!("the end of the worker that hangs in {call}"), ended);
            return;
        }
        // The wrapper queries the driver version during initialization.
        let reported_call = if call == "nvmlSystemGetDriverVersion" { "nvmlInit_v2" } else { call };
        let named = format!("driver call {reported_call}");
        let flagged = node.wait_for_report(&format!("the flag of {call}"), |report| {
            collector_message(report, "nvml").contains(&named)
                && collector_success(report, "nvml") == Some(0.0)
        });
        node.wait_for_report("the next report", |report| report.node_time > flagged.node_time);
        let started = worker_pids(node.folder.path()).len();
        assert!(started <= 2, "{started} workers while {call} hangs");
    });
}

#[test]
fn gpu_lost_at_any_call_costs_that_gpu_alone() {
    each_call(|call, subject| {
        let gpu = if matches!(subject, Gpu) { "gpu = 1\n" } else { "" };
        let node = start_faulty(&format!("call = '{call}'\n{gpu}error = 'GPU_IS_LOST'"));
        let present = |number: u32, expected: f64| {
            move |report: &gaunt_schema::Report| {
                report.find_reading(&Device::new_gpu(number), gpu::PRESENT)
                    == Some(Reading::of(expected))
            }
        };
        match subject {
            Driver => {
                node.wait_for_report(call, |report| collector_success(report, "nvml") == Some(0.0));
            }
            Gpu | AllGpus => {
                let report = node.wait_for_report(call, present(1, 0.0));
                if subject == AllGpus {
                    node.wait_for_report(call, present(0, 0.0));
                } else {
                    let is_unaffected = |report: &gaunt_schema::Report| {
                        present(0, 1.0)(report)
                            && report.find_reading(&Device::new_gpu(0), gpu::POWER)
                                == Some(Reading::of(300.0))
                    };
                    node.wait_for_report(&format!("the other GPU beside {call}"), is_unaffected);
                }

                expect_reading(&report, &Device::new_gpu(1), gpu::UTILIZATION);
            }
            Optional | Release => {
                let both_present = |report: &gaunt_schema::Report| {
                    present(0, 1.0)(report) && present(1, 1.0)(report)
                };
                node.wait_for_report(&format!("both GPUs beside {call}"), both_present);
                let folder = node.stop_sampler();
                let ended = || worker_pids(folder.path()).iter().all(|pid| !is_running(pid));
                wait_until(&format!("the end after {call}"), ended);
            }
        }
    });
}

#[test]
fn driver_calls_are_exactly_the_allowed_ones_and_only_read() {
    let calls_folder = tempfile::tempdir().unwrap();
    let file = calls_folder.path().join("calls");
    let text = format!("calls = '{}'\n{}", file.display(), read_scenario("full.toml"));
    let node = FakeDriverSampler::start_scenario(&text, |_, _| {});
    let mig = Device::new_gpu_part(gaunt_schema::DeviceClass::Mig, 1, 1);
    let active = gaunt_schema::catalogue::gpu_parts::MIG_SM_ACTIVE;
    node.wait_for_report("two rounds", |report| report.find_reading(&mig, active).is_some());
    let folder = node.stop_sampler();
    wait_until("the end", || worker_pids(folder.path()).iter().all(|pid| !is_running(pid)));
    let made = fs::read_to_string(&file).unwrap();
    let made: BTreeSet<&str> = made.lines().collect();
    let allowed: BTreeSet<&str> = ALLOWED.iter().map(|(call, _)| *call).collect();
    assert_eq!(made, allowed);
    let prefixes =
        ["nvmlDeviceGet", "nvmlSystemGet", "nvmlGpm", "nvmlEventSet", "nvmlDeviceRegister"];
    for call in &allowed {
        let reads = prefixes.iter().any(|prefix| call.starts_with(prefix));
        assert!(reads || ["nvmlInit_v2", "nvmlShutdown"].contains(call), "{call} may write");
    }
}

#[test]
fn nvml_sources_name_no_function_that_writes() {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("exporters/node/src/nvml")];
    let mut files_with_device = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            files_with_device += usize::from(text.contains("device."));
            for word in [
                "nvmlDeviceSet",
                "nvmlDeviceReset",
                "nvmlDeviceClear",
                "nvmlDeviceModify",
                "nvmlDeviceRemove",
                "nvmlGpmSet",
                "nvmlVgpu",
                "nvmlDeviceCreate",
                "device.set_",
                "device.reset_",
                "device.clear_",
                "Destroy",
            ] {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
    }
    assert!(files_with_device >= 3, "the walk found almost nothing");
}

#[test]
fn stopped_worker_is_flagged_and_replaced() {
    let node = FakeDriverSampler::start_scenario(&read_scenario("full.toml"), |options, _| {
        options.period = Duration::from_millis(100);
        options.call_deadline = Duration::from_millis(300);
        // A busy machine stops a worker for less.
        options.spare_after = Duration::from_secs(2);
    });
    let is_up = |report: &gaunt_schema::Report| collector_success(report, "nvml") == Some(1.0);
    node.wait_for_report("a tick", is_up);
    let pid = worker_pids(node.folder.path())[0].clone();
    let signal = |name: &str| {
        let kill = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(kill.success());
    };
    signal("STOP");
    // A busy machine may read a file too slowly before.
    let flagged = node.wait_for_report("the flag", |report| {
        collector_success(report, "nvml") == Some(0.0)
            && collector_message(report, "nvml")
                .starts_with("the driver answers too slowly; GPU values are stale")
    });
    let power = flagged.find_reading(&Device::new_gpu(0), gpu::POWER);
    assert_eq!(power, Some(gaunt_schema::AbsenceReason::Stale.into()));
    node.wait_for_report("the spare", is_up);
    assert!(is_running(&pid), "a worker that does not answer is left alone");
    signal("CONT");
    wait_until("the end of the worker that is not needed any more", || !is_running(&pid));
    assert_eq!(worker_pids(node.folder.path()).len(), 2);
}
