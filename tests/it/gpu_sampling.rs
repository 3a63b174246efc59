//! GPU metrics of gaunt-node beyond plain driver values: activity, errors, processes, MIG instances, the fabric.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};

use gaunt_node::{NodeSampler, ReadingSource, SamplerOptions};
use gaunt_schema::{
    AbsenceReason, Device, DeviceClass, MetricId, Reading, Report,
    catalogue::{gpu, gpu_health as health, gpu_parts as parts},
};

use crate::{
    binaries::{fake_driver, program_path},
    node_program::{collector_success, expect_reading, fixture_path, wait_until},
};

/// A sampler in this process whose worker loads its own fake driver.
pub(crate) struct FakeDriverSampler {
    pub(crate) folder: tempfile::TempDir,
    sampler: NodeSampler,
}

impl FakeDriverSampler {
    /// Starts it with a scenario's text and changes to the options.
    pub(crate) fn start_scenario(
        scenario: &str,
        change: impl FnOnce(&mut SamplerOptions, &Path),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scenario.toml");
        fs::write(&file, scenario).unwrap();
        let mut options = SamplerOptions {
            sys_root: fixture_path("sysroot/sys"),
            nvml_library: Some(fake_driver()),
            node_name: Some("here".to_owned()),
            period: Duration::from_millis(200),
            kernel_log: None,
            worker_program: Some(write_worker(folder.path(), &file)),
            ..SamplerOptions::default()
        };
        change(&mut options, folder.path());
        Self { sampler: NodeSampler::start_sampling(options), folder }
    }

    pub(crate) fn latest_report(&self) -> Arc<Report> {
        Arc::clone(&self.sampler.watch_reports().borrow())
    }

    /// Polls reports until one fits.
    pub(crate) fn wait_for_report(
        &self,
        what: &str,
        fits: impl Fn(&Report) -> bool,
    ) -> Arc<Report> {
        let mut report = self.latest_report();
        wait_until(what, || {
            report = self.latest_report();
            fits(&report)
        });
        report
    }

    /// Ends the sampling, and returns the folder.
    pub(crate) fn stop_sampler(self) -> tempfile::TempDir {
        drop(self.sampler);
        self.folder
    }
}

/// A worker program with its own scenario, because all tests share one environment.
fn write_worker(folder: &Path, scenario: &Path) -> PathBuf {
    let path = folder.join("worker");
    let text = format!(
        "#!/bin/sh\necho $$ >> '{}'\nGAUNT_FAKE_DRIVER='{}' exec '{}' \"$@\"\n",
        folder.join("pids").display(),
        scenario.display(),
        program_path("gaunt-node").display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The text of a scenario file.
pub(crate) fn read_scenario(name: &str) -> String {
    fs::read_to_string(fixture_path("scenarios").join(name)).unwrap()
}

pub(crate) fn reading_value(report: &Report, device: &Device, metric: MetricId) -> Option<f64> {
    report.find_reading(device, metric)?.value()
}

pub(crate) fn info_labels(report: &Report, device: &Device, metric: MetricId) -> Vec<String> {
    let index = report.devices.iter().position(|other| other == device).unwrap() as u32;
    let info =
        report.infos.iter().find(|info| info.device == index && info.metric == metric).unwrap();
    info.labels.iter().map(|(label, text)| format!("{label}={text}")).collect()
}

/// A report with every value of `full.toml`; some need two rounds of the driver.
static FULL_REPORT: LazyLock<Arc<Report>> = LazyLock::new(|| {
    let node = FakeDriverSampler::start_scenario(&read_scenario("full.toml"), |_, _| {});
    let part = Device::new_gpu_part;
    node.wait_for_report("activity, traffic and rates", |report| {
        [
            (part(DeviceClass::Mig, 1, 1), parts::MIG_SM_ACTIVE),
            (part(DeviceClass::Nvlink, 1, 1), parts::NVLINK_RECEIVE),
            (part(DeviceClass::Nvlink, 0, 0), parts::NVLINK_RECEIVE_RATE),
        ]
        .iter()
        .all(|(device, metric)| reading_value(report, device, *metric).is_some())
    })
});

/// One GPU with activity counters of its own.
pub(crate) fn gpu_scenario(values: &str) -> String {
    format!(
        "driver = '1'\n[[gpu]]\nuuid = 'GPU-a0'\nmodel = 'H100'\npci_bus_id = '00000000:01:00.0'\n{values}"
    )
}

#[test]
fn samples_cover_the_whole_period_and_their_integral_loses_nothing() {
    // One second of full activity, wherever the ticks fall.
    let node = FakeDriverSampler::start_scenario(
        &gpu_scenario(
            "sm_active_percent = [[0.0, 0], [2.05, 100], [3.05, 0]]\n\
             pcie_receive_mebibytes_per_second = [[0.0, 0], [2.05, 512], [3.05, 0]]\n",
        ),
        |options, _| options.period = Duration::from_millis(700),
    );
    let device = Device::new_gpu(0);
    node.wait_for_report("the work", |report| {
        reading_value(report, &device, gpu::SM_ACTIVE) > Some(0.0)
    });
    let end = node.wait_for_report("the calm", |report| {
        reading_value(report, &device, gpu::SM_ACTIVE) == Some(0.0)
    });
    let seconds = reading_value(&end, &device, gpu::SM_ACTIVE_SECONDS).unwrap();
    // The driver's clock and the test's are read at slightly different times.
    assert!((seconds - 1.0).abs() < 0.1, "{seconds} s of one second");
    let bytes = reading_value(&end, &device, gpu::PCIE_RECEIVE).unwrap() / (512.0 * 1_048_576.0);
    assert!((bytes - seconds).abs() < 1e-9, "traffic and activity had the same second: {bytes}");
    let idle = reading_value(&end, &device, gpu::SM_BELOW_5).unwrap();
    assert!(idle > 1.0, "the first two seconds were idle: {idle}");
    let silent = end.find_reading(&device, gpu::NVLINK_RECEIVE).unwrap();
    assert_eq!(silent, Reading::new_absent(gaunt_schema::AbsenceReason::Unsupported));
}

#[test]
fn stall_hidden_by_the_mean_shows_in_the_extremes() {
    let node = FakeDriverSampler::start_scenario(
        &gpu_scenario(
            "sm_active_percent = [[0.0, 80], [2.0, 0], [2.5, 80]]\n\
             power_instant_milliwatts = [[0.0, 690000], [2.0, 120000], [2.5, 690000]]\n",
        ),
        |options, _| options.period = Duration::from_secs(1),
    );
    let device = Device::new_gpu(0);
    let before = node.wait_for_report("a look", |report| {
        reading_value(report, &device, gpu::SM_ACTIVE_MIN) > Some(0.79)
    });
    assert_eq!(reading_value(&before, &device, gpu::SM_BELOW_5), Some(0.0));
    let after = node.wait_for_report("the stall", |report| {
        reading_value(report, &device, gpu::SM_ACTIVE_MIN) == Some(0.0)
    });
    let highest = reading_value(&after, &device, gpu::SM_ACTIVE_MAX).unwrap();
    assert!((highest - 0.8).abs() < 1e-9, "{highest}");
    assert!(
        reading_value(&after, &device, gpu::SM_ACTIVE).unwrap() > 0.25,
        "the mean shows no stall"
    );
    let below = reading_value(&after, &device, gpu::SM_BELOW_5).unwrap();
    assert!(below > 0.0 && below < 1.0, "{below}");
    // Not from the energy counter, which is renewed in steps.
    let after = node.wait_for_report("the power of the stall", |report| {
        reading_value(report, &device, gpu::POWER_MIN) == Some(120.0)
    });
    assert_eq!(reading_value(&after, &device, gpu::POWER_MAX), Some(690.0));
}

#[test]
fn disabled_source_is_neither_queried_nor_shown() {
    let calls = |folder: &Path| fs::read_to_string(folder.join("calls")).unwrap_or_default();
    let calls_folder = tempfile::tempdir().unwrap();
    let text = format!(
        "calls = '{}'\n{}",
        calls_folder.path().join("calls").display(),
        read_scenario("full.toml")
    );
    let node = FakeDriverSampler::start_scenario(&text, |options, _| {
        options.without = [ReadingSource::Gpm, ReadingSource::Xid, ReadingSource::Processes].into();
    });
    let device = Device::new_gpu(0);
    let report = node
        .wait_for_report("a tick", |report| reading_value(report, &device, gpu::POWER).is_some());
    let later = node.wait_for_report("another", |later| later.node_time > report.node_time);
    assert_eq!(later.find_reading(&device, gpu::SM_ACTIVE), None);
    assert!(!later.devices.iter().any(|device| device.class == DeviceClass::Process));
    // Without link counters the links' bytes are those of the GPU.
    assert_eq!(reading_value(&later, &device, gpu::NVLINK_RECEIVE), Some(2_000_003.0));
    drop(node.stop_sampler());
    let called = calls(calls_folder.path());
    assert!(called.contains("nvmlDeviceGetFieldValues"), "{called}");
    for call in ["nvmlGpm", "nvmlEvent", "ProcessUtilization"] {
        assert!(!called.contains(call), "{call} in {called}");
    }
}

#[test]
fn errors_come_from_the_driver_and_from_the_kernel_log_and_count_once() {
    let text = read_scenario("full.toml")
        .replacen("vbios", "xids = [[0.5, 31], [0.6, 31]]\nvbios", 1)
        .replace("pci_bus_id = \"00000000:1A", "xids = [[0.7, 79]]\npci_bus_id = \"00000000:1A");
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let micros = (seconds * 1e6) as u64;
    let line = |pci: &str, code: u32| {
        format!("4,812,{micros},-;NVRM: Xid (PCI:0000:{pci}:00): {code}, pid=1, name=x\n")
    };
    let node = FakeDriverSampler::start_scenario(&text, |options, folder| {
        let log = folder.join("kmsg");
        let lines = [line("19", 63), line("77", 48), "6,1,2,-;usb 1-1: new device\n".to_owned()];
        fs::write(&log, lines.concat()).unwrap();
        options.kernel_log = Some(log);
    });
    let [first, second] = [0, 1];
    let errors = |report: &Report, gpu, code| {
        reading_value(report, &Device::new_gpu_part(DeviceClass::Xid, gpu, code), parts::XID_ERRORS)
    };
    node.wait_for_report("the driver's word", |report| errors(report, second, 79) == Some(1.0));
    let log = node.folder.path().join("kmsg");
    let mut log = fs::File::options().append(true).open(log).unwrap();
    log.write_all([line("1a", 79), line("1a", 48)].concat().as_bytes()).unwrap();
    let report =
        node.wait_for_report("the log's end", |report| errors(report, second, 48) == Some(1.0));
    assert_eq!(errors(&report, second, 79), Some(1.0), "both told of the same error");
    assert_eq!((errors(&report, first, 31), errors(&report, first, 63)), (Some(2.0), Some(1.0)));
    assert_eq!(errors(&report, first, 48), None, "a line of a board that is not here");
    let lost = Device::new_gpu_part(DeviceClass::Xid, second, 79);
    let last_seen = reading_value(&report, &lost, parts::XID_LAST_SEEN).unwrap();
    assert!((report.node_time.unwrap().to_seconds() - last_seen).abs() < 60.0, "{last_seen}");
    let labels = info_labels(&report, &lost, parts::XID_INFO);
    let row = gaunt_schema::xid::describe_xid(79);
    let expected = ["severity=critical".to_owned(), format!("meaning={}", row.meaning)];
    assert_eq!(labels[..2], expected);
    assert_eq!(labels[2], format!("action={}", row.action));
    assert_eq!(collector_success(&report, "kernel_log"), Some(1.0));
}

#[test]
fn unreadable_kernel_log_is_reported_and_costs_nothing_else() {
    let node = FakeDriverSampler::start_scenario(&read_scenario("full.toml"), |options, folder| {
        options.kernel_log = Some(folder.join("nothing"));
    });
    let report =
        node.wait_for_report("a tick", |report| collector_success(report, "kernel_log").is_some());
    assert_eq!(collector_success(&report, "kernel_log"), Some(0.0));
    assert_eq!(collector_success(&report, "nvml"), Some(1.0));
}

#[test]
fn processes_are_attributed_to_jobs_pods_and_containers() {
    let pod = "8b1e2f6c_0d3a_4c55_9e0b_7a6f5d4c3b2a";
    let id = "4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aabbcc";
    let node = FakeDriverSampler::start_scenario(&read_scenario("full.toml"), |options, folder| {
        let kube = "kubepods-burstable";
        let slice =
            format!("/kubepods.slice/{kube}.slice/{kube}-pod{pod}.slice/cri-containerd-{id}.scope");
        for (pid, name, uid, group) in [
            (4711, "python3", 0, "/system.slice/slurmstepd.scope/job_815/step_0/user/task_1"),
            (4712, "trainer", 987_654, slice.as_str()),
        ] {
            let process = folder.join("proc").join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
            fs::write(process.join("cgroup"), format!("0::{group}\n")).unwrap();
            fs::write(process.join("status"), format!("Name:\t{name}\nUid:\t{uid}\t{uid}\n"))
                .unwrap();
        }
        options.proc_root = folder.join("proc");
    });
    let (one, two) = (
        Device::new_gpu_part(DeviceClass::Process, 0, 4711),
        Device::new_gpu_part(DeviceClass::Process, 1, 4712),
    );
    let report = node.wait_for_report("the processes", |report| {
        reading_value(report, &two, parts::PROCESS_SM).is_some()
    });
    assert_eq!(expect_reading(&report, &one, parts::PROCESS_MEMORY), Reading::of(2_147_483_648.0));
    assert_eq!(expect_reading(&report, &one, parts::PROCESS_SM), Reading::of(0.7));
    assert_eq!(expect_reading(&report, &two, parts::PROCESS_MEMORY), Reading::of(2_147_483_649.0));
    let slurm = ["name=python3", "user=root", "job=815", "step=0", "source=slurm"];
    assert_eq!(info_labels(&report, &one, parts::PROCESS_INFO), slurm);
    let job = ["job=815", "step=0", "user=root", "source=slurm"];
    assert_eq!(info_labels(&report, &Device::new_gpu(0), gpu::JOB_INFO), job);
    let pod = format!("pod={}", pod.replace('_', "-"));
    let found = info_labels(&report, &two, parts::PROCESS_INFO);
    let short = "container=4f5a1c9e2b7d";
    assert_eq!(found, ["name=trainer", "user=987654", &pod, short, "source=kubernetes"]);
    let job = info_labels(&report, &Device::new_gpu(1), gpu::JOB_INFO);
    assert_eq!(job[0], pod.replace("pod=", "job="));
}

#[test]
fn mig_instances_have_their_own_activity_and_memory() {
    let report = &**FULL_REPORT;
    let mig = |number| Device::new_gpu_part(DeviceClass::Mig, 1, number);
    for (number, sm, tensor, dram) in [(0, 0.5, 0.25, 0.12), (1, 0.75, 0.26, 0.13)] {
        assert_eq!(expect_reading(report, &mig(number), parts::MIG_SM_ACTIVE), Reading::of(sm));
        assert_eq!(
            expect_reading(report, &mig(number), parts::MIG_TENSOR_ACTIVE),
            Reading::of(tensor)
        );
        assert_eq!(expect_reading(report, &mig(number), parts::MIG_DRAM_ACTIVE), Reading::of(dram));
        let total = 42_949_672_960.0 + f64::from(number);
        assert_eq!(
            expect_reading(report, &mig(number), parts::MIG_MEMORY_TOTAL),
            Reading::of(total)
        );
    }
    let expected = [
        "uuid=MIG-c1",
        "name=NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "gpu_instance=5",
        "compute_instance=0",
    ];
    assert_eq!(info_labels(report, &mig(1), parts::MIG_INFO), expected);
    assert_eq!(expect_reading(report, &Device::new_gpu(1), health::MIG_MODE), Reading::of(1.0));
    assert_eq!(expect_reading(report, &Device::new_gpu(0), health::MIG_MODE), Reading::of(0.0));
}

#[test]
fn fabric_and_modes_are_labels_with_old_drivers_too() {
    let node = FakeDriverSampler::start_scenario(&read_scenario("full.toml"), |options, folder| {
        for (device, numa) in [("0000:19:00.0", "1\n"), ("0000:1a:00.0", "-1\n")] {
            let device = folder.join("sys/bus/pci/devices").join(device);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("numa_node"), numa).unwrap();
        }
        options.sys_root = folder.join("sys");
        options.imex_program = Some(fixture_path("nvidia-imex-ctl"));
    });
    let (old, new) = (Device::new_gpu(0), Device::new_gpu(1));
    let waits = |report: &Report| reading_value(report, &new, health::IMEX_STATE) == Some(2.0);
    let report = node.wait_for_report("the IMEX daemon", waits);
    assert_eq!(collector_success(&report, "imex"), Some(1.0));
    for device in [&old, &new] {
        let labels = info_labels(&report, device, gpu::INFO);
        for label in [
            "compute_mode=default",
            "persistence=on",
            "cluster_uuid=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
            "clique=4",
            "vbios=96.00.74.00.01",
        ] {
            assert!(labels.iter().any(|other| other == label), "{label} of {device}: {labels:?}");
        }
        assert_eq!(expect_reading(&report, device, health::FABRIC_STATE), Reading::of(3.0));
        let mask = expect_reading(&report, device, health::FABRIC_HEALTH_MASK);
        assert_eq!(mask, Reading::of(426.0), "{device}");
    }
    let summary = |device| expect_reading(&report, device, health::FABRIC_HEALTH_SUMMARY);
    assert_eq!(summary(&new), Reading::of(1.0));
    assert_eq!(summary(&old), AbsenceReason::Unsupported.into(), "the older structure has none");
    let numa = |device| info_labels(&report, device, gpu::INFO).contains(&"numa_node=1".to_owned());
    assert!(numa(&old) && !numa(&new));
}

#[test]
fn reloaded_driver_or_changed_gpu_count_is_read_again() {
    let fault =
        "[[fault]]\ncall = 'nvmlDeviceGetCount_v2'\nfrom = 1.0\nerror = 'DRIVER_NOT_LOADED'\n";
    let reloaded = format!("{}\n{fault}", read_scenario("full.toml"));
    let fewer = format!("count = [[0.0, 2], [1.0, 1]]\n{}", read_scenario("full.toml"));
    thread::scope(|scope| {
        for text in [&reloaded, &fewer] {
            scope.spawn(move || check_read_again(text));
        }
    });
}

/// The values of both GPUs return after the change that the worker finds.
fn check_read_again(text: &str) {
    let node = FakeDriverSampler::start_scenario(text, |options, _| {
        options.period = Duration::from_millis(100);
    });
    let both_up = |report: &Report| {
        collector_success(report, "nvml") == Some(1.0)
            && reading_value(report, &Device::new_gpu(1), gpu::POWER) == Some(300.0)
    };
    node.wait_for_report("both GPUs", both_up);
    let down =
        node.wait_for_report("the flag", |report| collector_success(report, "nvml") == Some(0.0));
    let message = crate::node_program::collector_message(&down, "nvml");
    assert!(message.starts_with("the NVIDIA driver was reloaded or lists other GPUs"), "{message}");
    node.wait_for_report("the return", both_up);
}

#[test]
fn links_of_every_generation_have_state_errors_traffic_and_peer() {
    let report = &**FULL_REPORT;
    let link = |gpu, link| Device::new_gpu_part(DeviceClass::Nvlink, gpu, link);
    // Newer drivers have fields for all of it, and count bytes.
    assert_eq!(
        expect_reading(report, &link(0, 1), parts::NVLINK_TRANSMIT),
        Reading::of(2_000_002.0)
    );
    assert_eq!(expect_reading(report, &link(0, 1), parts::NVLINK_UP), Reading::of(1.0));
    assert_eq!(
        info_labels(report, &link(0, 0), parts::NVLINK_INFO),
        ["peer=00000000:1A:00.0", "peer_gpu=1"]
    );
    assert_eq!(info_labels(report, &link(0, 1), parts::NVLINK_INFO), ["peer=00000000:C4:00.0"]);
    // Besides its counters a GPU counts the traffic of each link.
    for (metric, wanted) in [
        (parts::NVLINK_RECEIVE_RATE, 500.0 * 1_048_576.0),
        (parts::NVLINK_TRANSMIT_RATE, 600.0 * 1_048_576.0),
        (parts::NVLINK_RECEIVE, 1_000_001.0),
    ] {
        assert_eq!(
            expect_reading(report, &link(0, 0), metric),
            Reading::of(wanted),
            "{}",
            metric.series_key()
        );
    }
    assert_eq!(report.find_reading(&link(0, 1), parts::NVLINK_RECEIVE_RATE), None);
    for (metric, wanted) in [(health::NVLINK_CRC_FLIT, 7.0), (health::NVLINK_CRC_DATA, 8.0)] {
        assert_eq!(expect_reading(report, &Device::new_gpu(0), metric), Reading::of(wanted));
    }
    // Older drivers are queried call by call, and count kibibytes.
    for (metric, wanted) in [
        (parts::NVLINK_UP, 1.0),
        (parts::NVLINK_REPLAY, 3.0),
        (parts::NVLINK_RECOVERY, 4.0),
        (parts::NVLINK_CRC, 11.0),
        (parts::NVLINK_RECEIVE, 11_264.0),
        (parts::NVLINK_TRANSMIT, 12_288.0),
    ] {
        assert_eq!(
            expect_reading(report, &link(1, 0), metric),
            Reading::of(wanted),
            "{}",
            metric.series_key()
        );
    }
}

#[test]
fn rates_without_a_counter_are_integrated() {
    let link = "[[gpu.link]]\nup = 1\nreceive_mebibytes_per_second = 100\n";
    let mut text = gpu_scenario(&format!("sm_active_percent = 10\nencoder_percent = 50\n{link}"));
    let partitioned = read_scenario("full.toml");
    let (_, second) = partitioned.rsplit_once("[[gpu]]").unwrap();
    text.extend(["[[gpu]]", second]);
    let node = FakeDriverSampler::start_scenario(&text, |_, _| {});
    let (link, mig) = (
        Device::new_gpu_part(DeviceClass::Nvlink, 0, 0),
        Device::new_gpu_part(DeviceClass::Mig, 1, 0),
    );
    let wanted = [
        (&link, parts::NVLINK_RECEIVE),
        (&mig, parts::MIG_SM_ACTIVE_SECONDS),
        (&Device::new_gpu(0), health::ENCODER_SECONDS),
    ];
    let values =
        |report: &Report| wanted.map(|(device, metric)| reading_value(report, device, metric));
    let first =
        node.wait_for_report("integrals", |report| values(report).iter().all(Option::is_some));
    let is_second_later = |report: &Report| {
        report.node_time.unwrap().duration_since(first.node_time.unwrap()).as_secs() >= 1
    };
    let later = node.wait_for_report("a second", is_second_later);
    let seconds = later.node_time.unwrap().duration_since(first.node_time.unwrap()).as_secs_f64();
    let (before, after) = (values(&first), values(&later));
    for (index, per_second) in [100.0 * 1_048_576.0, 0.5, 0.5].into_iter().enumerate() {
        let growth = after[index].unwrap() - before[index].unwrap();
        let ratio = growth / (per_second * seconds);
        // There may be one tick more or less than the five between the two.
        assert!(
            (0.5..=1.5).contains(&ratio),
            "{} grew by {growth} in {seconds} s",
            wanted[index].1.series_key()
        );
    }
    let silent = expect_reading(&later, &Device::new_gpu(0), health::OFA_SECONDS);
    assert_eq!(silent, gaunt_schema::AbsenceReason::Unsupported.into());
}
