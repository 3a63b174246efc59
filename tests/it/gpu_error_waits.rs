//! Waiting for driver errors: a wait that fails is restarted, and the kernel log is still read.

use std::{fs, time::Duration};

use gaunt_schema::{Device, DeviceClass, catalogue::gpu_parts as parts};

use crate::{
    gpu_sampling::{FakeDriverSampler, read_scenario, reading_value},
    node_program::collector_success,
};

#[test]
fn failed_wait_for_errors_is_restarted() {
    let fault = "[[fault]]\ncall = 'nvmlEventSetWait_v2'\nuntil = 0.5\nerror = 'GPU_IS_LOST'\n";
    let text = read_scenario("full.toml").replacen("vbios", "xids = [[1.5, 43]]\nvbios", 1) + fault;
    let node = FakeDriverSampler::start_scenario(&text, |options, _| {
        options.period = Duration::from_millis(100);
    });
    let xid = Device::new_gpu_part(DeviceClass::Xid, 0, 43);
    let report = node.wait_for_report("the error", |report| {
        reading_value(report, &xid, parts::XID_ERRORS).is_some()
    });
    assert_eq!(reading_value(&report, &xid, parts::XID_ERRORS), Some(1.0));
}

#[test]
fn kernel_log_errors_are_counted_while_the_driver_hangs() {
    let fault = "[[fault]]\ncall = 'nvmlDeviceGetPowerUsage'\ntrigger = 'hang'\nhang = true\n";
    let node = FakeDriverSampler::start_scenario(
        &(read_scenario("full.toml") + fault),
        |options, folder| {
            options.call_deadline = Duration::from_millis(300);
            let log = folder.join("kmsg");
            fs::write(&log, "").unwrap();
            options.kernel_log = Some(log);
        },
    );
    node.wait_for_report("a tick", |report| collector_success(report, "nvml") == Some(1.0));
    fs::write(node.folder.path().join("hang"), "").unwrap();
    node.wait_for_report("the hang", |report| collector_success(report, "nvml") == Some(0.0));
    let line = "4,1,1,-;NVRM: Xid (PCI:0000:1a:00): 119, pid=1, name=x, Timeout after 6s\n";
    fs::write(node.folder.path().join("kmsg"), line).unwrap();
    let xid = Device::new_gpu_part(DeviceClass::Xid, 1, 119);
    node.wait_for_report("the error", |report| {
        reading_value(report, &xid, parts::XID_ERRORS) == Some(1.0)
    });
}
