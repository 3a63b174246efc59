//! Pages of dcgm-exporter where a GPU is not that of one job: MIG instances, and GPUs that pods share.

use super::exporter_page_tests::{assert_info, assert_values, decode_clean};
use crate::{
    AbsenceReason, Device, DeviceClass, MetricId, Report,
    catalogue::{gpu, gpu_health as health, gpu_parts as parts},
    text::{PageLimits, TemplateCache, TemplateState, decode_page},
};

const MIG: &str = include_str!("../../../../tests/fixtures/scrapes/dcgm_mig.prom");

const MIB: f64 = 1_048_576.0;

fn mig_instance(gpu: u32, number: u32) -> Device {
    Device::new_gpu_part(DeviceClass::Mig, gpu, number)
}

/// The labels of the job of a GPU, as text.
fn job_labels(report: &Report, gpu: u32) -> String {
    let device = report.devices.iter().position(|device| *device == Device::new_gpu(gpu));
    let mut infos = report
        .infos
        .iter()
        .filter(|info| info.metric == gpu::JOB_INFO && Some(info.device as usize) == device);
    let labels = infos.next().map(|info| info.labels.as_slice()).unwrap_or_default();
    assert!(infos.next().is_none(), "one job info for a GPU");
    labels.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn dcgm_page_of_instances_alone_has_gpus_with_instances() {
    let report = decode_clean(MIG).report;
    assert_eq!(report.node.as_deref(), Some("gpu-0201"));
    let first = Device::new_gpu(0);
    assert_values(
        &report,
        &first,
        &[
            (gpu::TEMPERATURE, 61.0),
            (gpu::POWER, 412.125),
            (gpu::SM_CLOCK, 1.755e9),
            (health::MIG_MODE, 1.0),
            // Memory is the sum of the instances, activity their mean by compute slices.
            (gpu::MEMORY_USED, (20_448.0 + 1_448.0) * MIB),
            (gpu::MEMORY_FREE, 59_000.0 * MIB),
        ],
    );
    let close = |metric: MetricId, expected: f64| {
        let value = report.find_reading(&first, metric).and_then(crate::Reading::value).unwrap();
        assert!((value - expected).abs() < 1e-12, "{} {value}", metric.series_key());
    };
    close(gpu::SM_ACTIVE, 0.7 * 3.0 / 7.0 + 0.35 * 4.0 / 7.0);
    close(gpu::TENSOR_ACTIVE, 0.35 * 3.0 / 7.0);
    assert_eq!(report.find_reading(&first, gpu::DRAM_ACTIVE), None);
    for (instance, values) in [
        (mig_instance(0, 1), [20_448.0 * MIB, 0.7, 0.35, 0.25]),
        (mig_instance(0, 2), [1_448.0 * MIB, 0.35, 0.0, 0.125]),
        (mig_instance(1, 0), [0.0, 0.0, 0.0, 0.0]),
    ] {
        let metrics = [
            parts::MIG_MEMORY_USED,
            parts::MIG_SM_ACTIVE,
            parts::MIG_TENSOR_ACTIVE,
            parts::MIG_DRAM_ACTIVE,
        ];
        let values: Vec<_> = metrics.into_iter().zip(values).collect();
        assert_values(&report, &instance, &values);
    }
    assert_info(
        &report,
        &mig_instance(0, 1),
        parts::MIG_INFO,
        &[
            ("name", "NVIDIA H100 80GB HBM3 MIG 3g.40gb"),
            ("gpu_instance", "1"),
            ("namespace", "train"),
            ("pod", "llama-worker-0"),
        ],
    );
    assert!(report.devices.contains(&Device::new_gpu_part(DeviceClass::Xid, 0, 43)));
    assert_eq!(
        job_labels(&report, 0),
        "name=train/llama-worker-0, web/chat-7d9f8b6c5-x2x4q shared_by=2"
    );
    assert_eq!(job_labels(&report, 1), "");
}

#[test]
fn dcgm_value_of_whole_gpu_wins_over_its_instances() {
    let whole = "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\"} 0.9\n";
    let parts = "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\",GPU_I_PROFILE=\"3g.40gb\",GPU_I_ID=\"1\"} 0.5\n\
                 DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\",GPU_I_PROFILE=\"4g.40gb\",GPU_I_ID=\"2\"} 0.2\n";
    for page in [format!("{whole}{parts}"), format!("{parts}{whole}")] {
        let report = decode_clean(&page).report;
        assert_values(&report, &Device::new_gpu(0), &[(gpu::SM_ACTIVE, 0.9)]);
        assert_values(&report, &mig_instance(0, 2), &[(parts::MIG_SM_ACTIVE, 0.2)]);
    }
}

#[test]
fn dcgm_sum_over_instances_is_absent_if_a_summand_is() {
    let page = |second: &str| {
        decode_clean(&format!(
            "DCGM_FI_PROF_SM_ACTIVE{{gpu=\"0\",GPU_I_PROFILE=\"3g.40gb\",GPU_I_ID=\"1\"}} 0.5\n\
             DCGM_FI_PROF_SM_ACTIVE{{gpu=\"0\",{second}\n"
        ))
        .report
        .find_reading(&Device::new_gpu(0), gpu::SM_ACTIVE)
    };
    let blank = page("GPU_I_PROFILE=\"4g.40gb\",GPU_I_ID=\"2\"} 140737488355330.000000");
    assert_eq!(blank, Some(AbsenceReason::Unsupported.into()));
    let unknown_profile = page("GPU_I_PROFILE=\"large\",GPU_I_ID=\"2\"} 0.5");
    assert_eq!(unknown_profile, Some(AbsenceReason::Error.into()));
}

#[test]
fn dcgm_gpu_shared_by_pods_has_its_own_value_and_lists_pods() {
    // A field that the exporter has by process comes first for the GPU, then for each pod; others only for each pod.
    let pod = |namespace: &str, name: &str, vgpu: u32| {
        format!("container=\"c\",namespace=\"{namespace}\",pod=\"{name}\",vgpu=\"{vgpu}\"")
    };
    let (chat, eval) = (pod("web", "chat-0", 1), pod("ml", "eval-1", 2));
    let page = decode_clean(&format!(
        "DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",UUID=\"GPU-a\"}} 90\n\
         DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",UUID=\"GPU-a\",{chat}}} 60\n\
         DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",UUID=\"GPU-a\",{eval}}} 30\n\
         DCGM_FI_DEV_GPU_TEMP{{gpu=\"0\",UUID=\"GPU-a\",{chat}}} 61\n\
         DCGM_FI_DEV_GPU_TEMP{{gpu=\"0\",UUID=\"GPU-a\",{eval}}} 61\n"
    ));
    let device = Device::new_gpu(0);
    assert_values(&page.report, &device, &[(gpu::UTILIZATION, 0.9), (gpu::TEMPERATURE, 61.0)]);
    assert_eq!(job_labels(&page.report, 0), "name=ml/eval-1, web/chat-0 shared_by=2");
}

#[test]
fn dcgm_pods_of_one_job_that_share_a_gpu_are_that_job() {
    let line = |pod: &str| {
        format!("DCGM_FI_DEV_GPU_TEMP{{gpu=\"0\",namespace=\"ml\",pod=\"{pod}\"}} 61\n")
    };
    let pods: String = (0..12).map(|pod| line(&format!("eval-{pod}"))).collect();
    let labels = job_labels(&decode_clean(&pods).report, 0);
    assert!(labels.starts_with("job=ml/eval name=ml/eval-0, ml/eval-1, ml/eval-10, "), "{labels}");
    assert!(labels.ends_with(" and 4 more shared_by=12"), "{labels}");
    let old_labels =
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",pod_namespace=\"ml\",pod_name=\"eval-3\"} 61\n";
    assert_eq!(
        job_labels(&decode_clean(old_labels).report, 0),
        "job=ml/eval name=eval-3 namespace=ml pod=eval-3"
    );
}

#[test]
fn dcgm_gpus_of_two_machines_with_one_number_are_rejected() {
    let page = decode_page(
        b"DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\"} 61\n\
          DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-b\"} 30\n",
        &PageLimits::default(),
    );
    assert_eq!(page.unwrap().rejected.by_reason, [("same_device".into(), 1)]);
}

#[test]
fn dcgm_value_of_the_device_counts_wherever_those_of_its_pods_are() {
    // A Prometheus gives series back in the order of their labels: `container` comes before `device`.
    let lines = |first: &str, part: &str, value: [u32; 3]| {
        let [whole, chat, eval] = value;
        [
            format!(
                "{first}UUID=\"GPU-a\",container=\"c\",gpu=\"0\",pod=\"chat-0\"{part}}} {chat}\n"
            ),
            format!(
                "{first}UUID=\"GPU-a\",container=\"c\",gpu=\"0\",pod=\"eval-1\"{part}}} {eval}\n"
            ),
            format!("{first}UUID=\"GPU-a\",gpu=\"0\"{part}}} {whole}\n"),
        ]
    };
    let instance = ",GPU_I_ID=\"1\",GPU_I_PROFILE=\"3g.40gb\"";
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let pick = |lines: [String; 3]| order.map(|index| lines[index].clone()).concat();
        let whole = pick(lines("DCGM_FI_DEV_GPU_UTIL{", "", [90, 60, 30]))
            + &pick(lines("DCGM_FI_DEV_FB_USED{", "", [4_096, 3_072, 512]));
        let device = Device::new_gpu(0);
        let expected = [(gpu::UTILIZATION, 0.9), (gpu::MEMORY_USED, 4_096.0 * MIB)];
        assert_values(&decode_clean(&whole).report, &device, &expected);

        let parts = pick(lines("DCGM_FI_DEV_FB_USED{", instance, [4_096, 3_072, 512]))
            + &pick(lines("DCGM_FI_DEV_GPU_UTIL{", instance, [80, 0, 0]))
            + "DCGM_FI_DEV_FB_USED{gpu=\"0\",GPU_I_ID=\"2\",GPU_I_PROFILE=\"3g.40gb\"} 8\n";
        let report = decode_clean(&parts).report;
        let sums = [(gpu::MEMORY_USED, 4_104.0 * MIB), (gpu::UTILIZATION, 0.8)];
        assert_values(&report, &device, &sums);
        let own = [(parts::MIG_MEMORY_USED, 4_096.0 * MIB)];
        assert_values(&report, &mig_instance(0, 1), &own);

        let ratio = pick(lines("DCGM_FI_DEV_GPU_UTIL_RATIO{", "", [90, 60, 30]));
        let values = [(gpu::UTILIZATION, 0.9)];
        assert_values(&decode_clean(&ratio).report, &device, &values);

        // The plan of a page does the same with the values of the next one.
        let cache = TemplateCache::default();
        let mut state = TemplateState::default();
        for page in [&parts, &parts.replace("4096", "2048")] {
            let bytes = page.as_bytes();
            let replayed = cache.decode_page(&mut state, bytes, &PageLimits::default()).unwrap();
            assert_eq!(replayed.report, decode_clean(page).report);
        }
    }
}

#[test]
fn dcgm_page_of_several_nodes_is_read_as_that_of_the_first() {
    let line = |node: &str, gpu: u32, rest: &str| {
        format!(
            "DCGM_FI_DEV_GPU_UTIL{{Hostname=\"{node}\",UUID=\"GPU-{node}{gpu}\",gpu=\"{gpu}\"{rest}\n"
        )
    };
    let page = line("a", 0, "} 97") + &line("b", 0, "} 0") + &line("b", 1, "} 55");
    let page = decode_page(page.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!(page.rejected.by_reason, [("other_node".into(), 2)]);
    assert_eq!(page.report.node.as_deref(), Some("a"));
    assert_values(&page.report, &Device::new_gpu(0), &[(gpu::UTILIZATION, 0.97)]);
    assert!(!page.report.devices.contains(&Device::new_gpu(1)));
}

#[test]
fn dcgm_pod_of_the_exporter_holds_no_gpu() {
    // A Prometheus adds the labels of its target, and keeps the page's own as `exported_`.
    let added = "namespace=\"gpu-operator\",pod=\"nvidia-dcgm-exporter-x8x9z\"";
    let page = format!(
        "DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",exported_namespace=\"ml\",exported_pod=\"llama-0\",{added}}} 97\n\
         DCGM_FI_DEV_GPU_UTIL{{gpu=\"1\",{added}}} 0\n"
    );
    let report = decode_clean(&page).report;
    assert_eq!(job_labels(&report, 0), "job=ml/llama name=llama-0 namespace=ml pod=llama-0");
    assert_eq!(job_labels(&report, 1), "");
}
