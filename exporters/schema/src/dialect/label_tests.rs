//! The meaning of single series of each dialect: units, blank values, instances, jobs, absence, identity.

use crate::{
    AbsenceReason, Device, DeviceClass, Dialect, MetricId, Reading, ScrapedPage, UnixMs,
    catalogue::{gpu, gpu_parts as parts, host, port},
    text::{PageLimits, decode_page},
};

fn decode_text(page: &str) -> ScrapedPage {
    decode_page(page.as_bytes(), &PageLimits::default()).unwrap()
}

/// The reading of GPU 0 on a page.
fn gpu_reading(page: &str, metric: MetricId) -> Option<Reading> {
    decode_text(page).report.find_reading(&Device::new_gpu(0), metric)
}

#[test]
fn dcgm_units_are_converted() {
    for (line, metric, value) in [
        ("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 57", gpu::UTILIZATION, 0.57),
        ("DCGM_FI_DEV_FB_USED{gpu=\"0\"} 70000", gpu::MEMORY_USED, 70_000.0 * 1_048_576.0),
        ("DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 301.5", gpu::POWER, 301.5),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu=\"0\"} 2147483634", gpu::ENERGY, 2_147_483.634),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu=\"0\"} 0.25", gpu::TENSOR_ACTIVE, 0.25),
    ] {
        assert_eq!(gpu_reading(line, metric), Some(value.into()), "{line}");
    }
}

#[test]
fn dcgm_blank_values_are_absent_with_reason() {
    for (digits, reason) in [
        ("2147483632", AbsenceReason::Error),
        ("2147483633", AbsenceReason::Error),
        ("2147483634", AbsenceReason::Unsupported),
        ("2147483635", AbsenceReason::NoPermission),
        ("9223372036854775792", AbsenceReason::Error),
        ("9223372036854775793", AbsenceReason::Error),
        ("9223372036854775794", AbsenceReason::Unsupported),
        ("9223372036854775795", AbsenceReason::NoPermission),
        ("9.223372036854776e+18", AbsenceReason::Unsupported),
        ("140737488355328", AbsenceReason::Error),
        ("140737488355330.0", AbsenceReason::Unsupported),
        ("140737488355331", AbsenceReason::NoPermission),
        ("NaN", AbsenceReason::Error),
        ("+Inf", AbsenceReason::Error),
        ("-Inf", AbsenceReason::Error),
    ] {
        let line = format!("DCGM_FI_DEV_GPU_TEMP{{gpu=\"0\"}} {digits}");
        assert_eq!(gpu_reading(&line, gpu::TEMPERATURE), Some(reason.into()), "{line}");
    }
    let mask = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"0\"} 9223372036854775795";
    assert_eq!(gpu_reading(mask, gpu::CLOCK_EVENT_IDLE), Some(AbsenceReason::NoPermission.into()));
}

#[test]
fn clock_event_mask_is_split_into_metrics() {
    let page = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu=\"0\"} 68\n\
                DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"0\"} 68\n";
    assert_eq!(
        decode_text(page).rejected.total_count(),
        0,
        "the old name beside the new one is not rejected"
    );
    assert_eq!(gpu_reading(page, gpu::CLOCK_EVENT_SW_POWER_CAP), Some(1.0.into()));
    assert_eq!(gpu_reading(page, gpu::CLOCK_EVENT_HW_THERMAL), Some(1.0.into()));
    assert_eq!(gpu_reading(page, gpu::CLOCK_EVENT_IDLE), Some(0.0.into()));
}

#[test]
fn last_xid_and_link_errors_belong_to_parts() {
    let page = "DCGM_FI_DEV_XID_ERRORS{gpu=\"3\",err_code=\"79\"} 79\n\
                DCGM_FI_DEV_XID_ERRORS{gpu=\"4\"} 0\n\
                DCGM_FI_DEV_XID_ERRORS{gpu=\"5\"} 2147483632\n\
                DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu=\"3\"} 7\n";
    let page = decode_text(page);
    assert_eq!(page.rejected.total_count(), 0);
    let xid = Device::new_gpu_part(DeviceClass::Xid, 3, 79);
    assert_eq!(page.report.find_reading(&xid, parts::XID_ERRORS), Some(1.0.into()));
    let links = Device { class: DeviceClass::Nvlink, key: ["3".into(), "all".into()].into() };
    assert_eq!(page.report.find_reading(&links, parts::NVLINK_REPLAY), Some(7.0.into()));
    // Other series than the fatal error report whether a GPU is present.
    assert_eq!(page.report.devices, [links, xid]);
}

#[test]
fn counted_xids_are_read_beside_the_last_one() {
    let text = "DCGM_EXP_XID_ERRORS_TOTAL{gpu=\"3\",xid=\"149\"} 1\n\
                DCGM_EXP_XID_ERRORS_TOTAL{gpu=\"3\",xid=\"145\"} 2\n\
                DCGM_EXP_XID_ERRORS_TOTAL{gpu=\"3\",xid=\"145\",pod=\"b\"} 2\n\
                DCGM_EXP_XID_ERRORS_TOTAL{gpu=\"4\"} 0\n\
                DCGM_FI_DEV_XID_ERRORS{gpu=\"3\"} 145\n\
                DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL{gpu=\"3\"} 5\n\
                DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{gpu=\"3\"} 6\n\
                DCGM_FI_DEV_NVLINK_REPLAY_TOTAL{gpu=\"3\"} 7\n";
    let page = decode_text(text);
    assert_eq!((page.rejected.total_count(), page.dialect), (0, Dialect::Dcgm));
    let xid = |number| {
        let device = Device::new_gpu_part(DeviceClass::Xid, 3, number);
        page.report.find_reading(&device, parts::XID_ERRORS).and_then(Reading::value)
    };
    assert_eq!((xid(149), xid(145)), (Some(1.0), Some(2.0)));
    let xids = page.report.devices.iter().filter(|device| device.class == DeviceClass::Xid);
    assert_eq!(xids.count(), 2);
    let links = Device { class: DeviceClass::Nvlink, key: ["3".into(), "all".into()].into() };
    let count = |metric| page.report.find_reading(&links, metric).and_then(Reading::value);
    assert_eq!((count(parts::NVLINK_CRC), count(parts::NVLINK_REPLAY)), (Some(5.0), Some(6.0)));
}

#[test]
fn mig_instance_readings_are_not_those_of_the_gpu() {
    let page = decode_text(
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",GPU_I_ID=\"1\"} 90\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 10\n\
         DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"0\",GPU_I_ID=\"1\"} 4\n",
    );
    let device = Device::new_gpu(0);
    assert_eq!(page.report.find_reading(&device, gpu::UTILIZATION), Some(0.1.into()));
    // A field that DCGM has of whole GPUs alone.
    let cap = page.report.find_reading(&device, gpu::CLOCK_EVENT_SW_POWER_CAP);
    assert_eq!(cap, Some(1.0.into()));
    assert_eq!(page.rejected.total_count(), 0);
}

#[test]
fn job_of_batch_system_takes_precedence_over_pod() {
    for (labels, job) in [
        ("hpc_job=\"4711\",pod=\"a-0\"", Some("job=4711")),
        (
            "pod=\"llama-worker-3\",namespace=\"train\"",
            Some("job=train/llama name=llama-worker-3 namespace=train pod=llama-worker-3"),
        ),
        (
            "pod=\"chat-7d9f8b6c5-x2x4q\",namespace=\"web\"",
            Some("job=web/chat name=chat-7d9f8b6c5-x2x4q namespace=web pod=chat-7d9f8b6c5-x2x4q"),
        ),
        (
            "pod=\"eval-5-lm7k2\",namespace=\"ml\"",
            Some("job=ml/eval name=eval-5-lm7k2 namespace=ml pod=eval-5-lm7k2"),
        ),
        ("pod=\"solo\"", Some("job=solo name=solo pod=solo")),
        ("pod=\"\",namespace=\"\"", None),
    ] {
        let page = decode_text(&format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",{labels}}} 1"));
        let infos = page.report.infos.iter().filter(|info| info.metric == gpu::JOB_INFO);
        let jobs: Vec<_> = infos
            .flat_map(|info| info.labels.iter().map(|(name, value)| format!("{name}={value}")))
            .collect();
        assert_eq!(jobs.join(" "), job.unwrap_or_default(), "{labels}");
    }
}

#[test]
fn absence_applies_to_the_named_row() {
    let page = decode_text(
        "gaunt_gpu_power_watts{gpu=\"0\"} 300\n\
         gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_temperature_celsius\",reason=\"lost\"} 1\n\
         gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_clock_event\",tag=\"idle\",reason=\"unsupported\"} 1\n\
         gaunt_absent{metric=\"gaunt_node_cpus\",reason=\"no_permission\"} 1\n\
         gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_processes\",reason=\"stale\"} 0\n\
         gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_power_watts\",reason=\"stale\"} 1\n\
         gaunt_absent{gpu=\"0\",metric=\"no_such\",reason=\"stale\"} 1\n\
         gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_processes\",reason=\"lazy\"} 1\n\
         gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_clock_event\",reason=\"stale\"} 1\n\
         gaunt_absent{metric=\"gaunt_gpu_processes\",reason=\"stale\"} 1\n",
    );
    let gpu0 = Device::new_gpu(0);
    let reading = |device: &Device, metric| page.report.find_reading(device, metric);
    assert_eq!(reading(&gpu0, gpu::TEMPERATURE), Some(AbsenceReason::Lost.into()));
    assert_eq!(reading(&gpu0, gpu::CLOCK_EVENT_IDLE), Some(AbsenceReason::Unsupported.into()));
    assert_eq!(reading(&Device::new_node(), host::CPUS), Some(AbsenceReason::NoPermission.into()));
    assert_eq!(reading(&gpu0, gpu::PROCESSES), None);
    assert_eq!(reading(&gpu0, gpu::POWER), Some(300.0.into()));
    let rejected = page.rejected.by_reason.iter().map(|(reason, count)| (reason.as_str(), *count));
    let expected = [("no_device", 1), ("same_device", 1), ("bad_absence", 3)];
    assert_eq!(rejected.collect::<Vec<_>>(), expected);
}

#[test]
fn known_metric_without_device_label_is_rejected() {
    let page = decode_text(
        "gaunt_port_state_id{device=\"mlx5_0\"} 4\ngaunt_port_state_id{device=\"mlx5_0\",port=\"\"} 4\n",
    );
    assert!(page.report.samples.is_empty());
    assert_eq!(page.rejected.total_count(), 2);
    let first = page.rejected.first.unwrap();
    assert_eq!(first.as_str(), "line 1: no_device: gaunt_port_state_id{device=\"mlx5_0\"} 4");
}

#[test]
fn device_identity_ignores_other_labels() {
    let page = decode_text(
        "gaunt_gpu_power_watts{gpu=\"0\",a=\"1\"} 1\ngaunt_gpu_power_watts{gpu=\"0\",a=\"2\"} 2\n",
    );
    assert_eq!(page.report.samples.len(), 1);
    assert_eq!(page.rejected.by_reason, [("same_device".into(), 1)]);
}

#[test]
fn node_name_sources_have_this_order() {
    let own_info = "gaunt_node_info{node=\"own\",kernel=\"6\"} 1\n";
    let dcgm = "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",hostname=\"dcgm\"} 1\n";
    let uname = "node_uname_info{nodename=\"uname\"} 1\n";
    let name = |page: &str| decode_text(page).report.node.map(|node| node.to_string());
    assert_eq!(name(&format!("{uname}{dcgm}{own_info}")).as_deref(), Some("own"));
    assert_eq!(name(&format!("{uname}{dcgm}")).as_deref(), Some("dcgm"));
    assert_eq!(name(uname).as_deref(), Some("uname"));
    assert_eq!(name("a 1"), None);
}

#[test]
fn dialect_is_that_of_most_samples() {
    let own_sample = "gaunt_gpu_power_watts{gpu=\"0\"} 1\n";
    let node = "node_pressure_cpu_waiting_seconds_total 1\nnode_memory_MemTotal_bytes 1\n";
    assert_eq!(decode_text(own_sample).dialect, Dialect::Gaunt);
    assert_eq!(decode_text(&format!("{own_sample}{node}")).dialect, Dialect::NodeExporter);
    assert_eq!(decode_text("go_goroutines 7").dialect, Dialect::Unknown);
}

#[test]
fn non_finite_value_is_error_and_full_counter_is_saturated() {
    let page = decode_text(
        "gaunt_gpu_power_watts{gpu=\"0\"} NaN\n\
         gaunt_port_link_downed_total{device=\"m\",port=\"1\"} 255\n\
         gaunt_port_symbol_errors_total{device=\"m\",port=\"1\"} 65536\n\
         gaunt_port_rnr_nak_retries_total{device=\"m\",port=\"1\"} 4294967295\n\
         gaunt_node_time_seconds 1795227212.248\n",
    );
    let port = Device::new_port("m", "1");
    let reading = |metric| page.report.find_reading(&port, metric);
    assert_eq!(
        page.report.find_reading(&Device::new_gpu(0), gpu::POWER),
        Some(AbsenceReason::Error.into())
    );
    assert_eq!(reading(port::LINK_DOWNED), Some(AbsenceReason::Saturated.into()));
    // Wider than in the table: it is not saturated.
    assert_eq!(reading(port::SYMBOL_ERRORS), Some(65536.0.into()));
    // A counter that wraps may legitimately be at its maximum.
    assert_eq!(reading(port::RNR_NAK_RETRIES), Some(4_294_967_295.0.into()));
    assert_eq!(page.report.node_time, Some(UnixMs(1_795_227_212_248)));
}

#[test]
fn clock_out_of_range_is_an_error() {
    for seconds in ["-1", "1e300", "253402300800"] {
        let report = decode_text(&format!("gaunt_node_time_seconds {seconds}")).report;
        assert_eq!(report.node_time, None);
        let reading = report.find_reading(&Device::new_node(), host::NODE_TIME);
        assert_eq!(reading, Some(AbsenceReason::Error.into()), "{seconds}");
    }
    assert_eq!(decode_text("node_time_seconds 253402300799").report.samples, []);
}

#[test]
fn fleet_metrics_of_aggregator_are_not_node_metrics() {
    let page =
        decode_text("gaunt_targets{state=\"live\"} 3\ngaunt_gpu_state{node=\"a\",gpu=\"0\"} 1\n");
    assert!(page.report.samples.is_empty());
    assert_eq!((page.rejected.total_count(), page.dialect), (0, Dialect::Gaunt));
}
