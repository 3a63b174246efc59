//! Host metrics of gaunt-node: tasks, disks, mounted file systems, sensors, bonds and virtual functions.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    fs,
    process::Command,
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use gaunt_schema::{
    AbsenceReason, Device, DeviceClass, MetricId, Reading, Report,
    catalogue::{gpu, hardware, host},
};
use tempfile::TempDir;

use crate::{
    binaries::program_path,
    module_boundaries::repository_root,
    node_network::build_tree,
    node_program::{
        collector_message, collector_success, decode_report, expect_reading, success_stdout,
    },
    test_process::RunToEnd,
};

/// The report of a run over the busy host.
static BUSY_HOST: LazyLock<Report> =
    LazyLock::new(|| run_over_tree(&build_tree("hosts/busy.tree")));

/// The report of a run over a host tree.
fn run_over_tree(tree: &TempDir) -> Report {
    decode_report(&success_stdout(node_command(tree).run_to_end()))
}

/// The command for a run over a host tree. A period as long as the deadline of a collector is the shortest that leaves
/// this deadline as it is.
fn node_command(tree: &TempDir) -> Command {
    let mut command = Command::new(program_path("gaunt-node"));
    command.arg("--sys-root").arg(tree.path().join("sys"));
    command.arg("--proc-root").arg(tree.path().join("proc"));
    command.args(["--nvml-library", "libgaunt-absent.so.1", "--once", "--period", "500ms"]);
    command
}

fn info_labels(report: &Report, device: &Device, metric: MetricId) -> Vec<String> {
    let is_wanted = |info: &&gaunt_schema::InfoSeries| {
        info.metric == metric && report.devices[info.device as usize] == *device
    };
    let labels = &report.infos.iter().find(is_wanted).unwrap().labels;
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn busy_host_is_read_to_the_last_number() {
    let report = &*BUSY_HOST;
    let (nvme, sda) = (Device::new_disk("nvme0n1"), Device::new_disk("sda"));
    let (nfs, lustre) = (Device::new_mount("/data"), Device::new_mount("scratch"));
    let node = Device::new_node();
    for (device, metric, value) in [
        (&node, host::LOAD, 96.5),
        (&node, host::TASKS_RUNNABLE, 33.0),
        (&node, host::TASKS_BLOCKED, 2.0),
        (&node, host::TASKS_UNINTERRUPTIBLE, 2.0),
        (&node, host::NODE_POWER, 6543.21),
        (&nvme, hardware::DISK_READS, 100.0),
        (&nvme, hardware::DISK_READ_BYTES, 1_024_000.0),
        (&nvme, hardware::DISK_READ_TIME, 0.3),
        (&nvme, hardware::DISK_WRITES, 400.0),
        (&nvme, hardware::DISK_WRITE_BYTES, 3_072_000.0),
        (&nvme, hardware::DISK_WRITE_TIME, 0.7),
        (&nvme, hardware::DISK_IN_FLIGHT, 8.0),
        (&nvme, hardware::DISK_BUSY, 0.9),
        (&sda, hardware::DISK_WRITE_BYTES, 8192.0),
        (&nfs, hardware::MOUNT_READ_BYTES, 5000.0),
        (&nfs, hardware::MOUNT_READS, 10.0),
        (&nfs, hardware::MOUNT_READ_TIME, 1.5),
        (&nfs, hardware::MOUNT_WRITE_TIME, 2.5),
        (&nfs, hardware::MOUNT_RETRANSMITS, 2.0),
        (&nfs, hardware::MOUNT_TIMEOUTS, 1.0),
        (&lustre, hardware::MOUNT_READ_BYTES, 4096.0),
        (&lustre, hardware::MOUNT_READ_TIME, 0.75),
    ] {
        assert_eq!(
            expect_reading(report, device, metric),
            Reading::of(value),
            "{device} {}",
            metric.series_key()
        );
    }
    let is_excluded =
        |device: &&Device| ["nvme0n1p1", "loop0", "sdb"].contains(&&*device.to_string());
    assert_eq!(report.devices.iter().find(is_excluded), None, "partitions, files and garbage");
    assert_eq!(info_labels(report, &nfs, hardware::MOUNT_INFO), ["kind=nfs4", "source=nas:/data"]);
    assert_eq!(
        info_labels(report, &lustre, hardware::MOUNT_INFO),
        ["kind=lustre", "source=scratch"]
    );
}

#[test]
fn sensors_are_distinct_and_a_failed_one_costs_only_itself() {
    let report = &*BUSY_HOST;
    let sensor = Device::new_sensor;
    for (device, metric, reading) in [
        (sensor("coretemp@coretemp.0", "temp1"), hardware::SENSOR_TEMPERATURE, 61.0.into()),
        (
            sensor("coretemp@coretemp.0", "temp2"),
            hardware::SENSOR_TEMPERATURE,
            AbsenceReason::Error.into(),
        ),
        (sensor("power_meter", "power1"), hardware::SENSOR_POWER, 6543.21.into()),
        (sensor("thermal", "thermal_zone0"), hardware::SENSOR_TEMPERATURE, (-5.5).into()),
        (sensor("rapl", "intel-rapl:0"), hardware::SENSOR_ENERGY, Reading::of(123.456_789)),
    ] {
        assert_eq!(expect_reading(report, &device, metric), reading, "{device}");
    }
    let package = sensor("coretemp@coretemp.0", "temp1");
    assert_eq!(info_labels(report, &package, hardware::SENSOR_INFO), ["label=Package id 0"]);
}

#[test]
fn network_devices_are_labelled_with_their_function() {
    let report = &*BUSY_HOST;
    let labels = |name| info_labels(report, &Device::new_netdev(name), host::NETDEV_INFO);
    assert_eq!(labels("bond0"), ["function=bond"]);
    let card = ["function=physical", "pci_bus_id=00000000:17:00.0", "master=bond0"];
    assert_eq!(labels("ens1"), card);
    assert_eq!(labels("ens1v0"), ["function=virtual", "pci_bus_id=00000000:17:00.2"]);
    assert_eq!(labels("veth1"), ["function=software"]);
}

#[test]
fn amd_gpus_are_read_like_others() {
    let report = run_over_tree(&build_tree("hosts/amd.tree"));
    // NVIDIA's card is number 0.
    let (good, bad) = (Device::new_gpu(1), Device::new_gpu(2));
    for (device, metric, reading) in [
        (&good, gpu::PRESENT, 1.0.into()),
        (&good, gpu::UTILIZATION, 0.57.into()),
        (&good, gpu::MEMORY_ACTIVITY, 0.07.into()),
        (&good, gpu::MEMORY_USED, 1e9.into()),
        (&good, gpu::MEMORY_FREE, 204e9.into()),
        (&good, gpu::MEMORY_TOTAL, 205e9.into()),
        (&good, gpu::POWER, 612.345_678.into()),
        (&good, gpu::POWER_LIMIT, 750.0.into()),
        (&good, gpu::SM_CLOCK, 2.1e9.into()),
        (&good, gpu::TEMPERATURE, 66.0.into()),
        (&good, hardware::GPU_RAS_CORRECTED, 42.0.into()),
        (&good, hardware::GPU_RAS_UNCORRECTED, 3.0.into()),
        (&bad, gpu::PRESENT, 1.0.into()),
        (&bad, gpu::UTILIZATION, AbsenceReason::Error.into()),
        (&bad, gpu::UTILIZATION_SECONDS, AbsenceReason::Error.into()),
        (&bad, gpu::MEMORY_USED, AbsenceReason::Error.into()),
        (&bad, gpu::MEMORY_TOTAL, 8.0.into()),
        (&bad, gpu::POWER, 100.0.into()),
        (&bad, hardware::GPU_RAS_CORRECTED, AbsenceReason::Error.into()),
    ] {
        assert_eq!(
            expect_reading(&report, device, metric),
            reading,
            "{device} {}",
            metric.series_key()
        );
    }
    assert_eq!(
        report.find_reading(&bad, gpu::MEMORY_FREE),
        None,
        "no difference without its parts"
    );
    let gpus = report.devices.iter().filter(|device| device.class == DeviceClass::Gpu);
    assert_eq!(gpus.count(), 2, "connectors and renderers are no GPUs");
    let labels = info_labels(&report, &good, gpu::INFO);
    let expected = [
        "uuid=a1b2c3d4e5f60718",
        "model=AMD Instinct MI300X",
        "pci_bus_id=00000000:C1:00.0",
        "serial=692251000123",
        "driver=amdgpu",
    ];
    assert_eq!(labels, expected);
}

#[test]
fn text_files_of_other_programs_are_forwarded() {
    let (tree, files) = (build_tree("hosts/busy.tree"), tempfile::tempdir().unwrap());
    let text = "# TYPE loader_throughput_gbs gauge\nloader_throughput_gbs{rank=\"0\"} 471.5\n";
    fs::write(files.path().join("nccl.prom"), text).unwrap();
    fs::write(files.path().join("nccl.prom.tmp"), "half_a_fi").unwrap();
    fs::write(files.path().join("wild.prom"), "good 1\ngaunt_gpu_power_watts{gpu=\"0\"} 9\n")
        .unwrap();
    let mut command = node_command(&tree);
    command.arg("--textfiles").arg(files.path());
    let page = success_stdout(command.run_to_end());
    for line in ["loader_throughput_gbs{rank=\"0\"} 471.5", "good 1", "# TYPE good untyped"] {
        assert!(page.lines().any(|it| it == line), "{line}: {page}");
    }
    assert!(page.contains("gaunt_textfile_mtime_seconds{file=\"nccl.prom\"} "), "{page}");
    assert!(!page.contains("gaunt_gpu_power_watts{gpu=\"0\"} 9") && !page.contains("half_a_fi"));
    let report = decode_report(&page);
    assert_eq!(collector_success(&report, "textfiles"), Some(0.0));
    let message = collector_message(&report, "textfiles");
    assert_eq!(message, "wild.prom, line 2: the name gaunt_gpu_power_watts is reserved");
}

#[test]
fn collectives_of_nccl_inspector_files_are_devices_of_the_node() {
    let (tree, files) = (build_tree("hosts/busy.tree"), tempfile::tempdir().unwrap());
    let uuid = "8674351b-fff7-56c3-f545-26313154b8ed";
    let text = fs::read(repository_root().join("tests/fixtures/scrapes/nccl_inspector.prom"));
    let path = files.path().join(format!("nccl_inspector_metrics_{uuid}.prom"));
    fs::write(&path, text.unwrap()).unwrap();
    let run = || {
        let mut command = node_command(&tree);
        command.arg("--textfiles").arg(files.path());
        success_stdout(command.run_to_end())
    };
    let page = run();
    let series = format!(
        "gaunt_collective_duration_seconds{{gpu=\"GPU-{uuid}\",\
         collective=\"unknown ReduceScatter 134-135MB RING_SIMPLE 32\"}} 0.104164"
    );
    assert!(page.lines().any(|line| line == series), "{series} in {page}");
    assert!(page.contains("nccl_collective_exec_time_microseconds{"), "also unchanged: {page}");
    assert_eq!(collector_success(&decode_report(&page), "textfiles"), Some(1.0));
    // A file that nobody writes any more is of a job that ended.
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    fs::File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
    let page = run();
    assert!(!page.contains("gaunt_collective_duration_seconds{"), "{page}");
}
