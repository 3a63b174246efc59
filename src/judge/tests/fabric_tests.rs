//! Tests of the NVLink fabric: which GPU, node or domain is blamed, and what is no fault.

use gaunt_schema::{
    Device, DeviceClass, Dialect, FindingKind, Report, Severity,
    catalogue::{gpu, gpu_health as health, gpu_parts},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const DOMAIN: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

/// Every condition reported, and none true.
const HEALTHY: f64 = 426.0;

/// The same with degraded bandwidth.
const DEGRADED: f64 = 425.0;

/// What one GPU reports of the fabric.
#[derive(Clone, Copy)]
struct FabricShown {
    state: f64,
    mask: Option<f64>,
    summary: Option<f64>,
    imex: Option<f64>,
}

const WELL: FabricShown =
    FabricShown { state: 3.0, mask: Some(HEALTHY), summary: Some(1.0), imex: Some(5.0) };
const FAULTY: FabricShown = FabricShown { mask: Some(DEGRADED), ..WELL };
const REGISTERING: FabricShown = FabricShown { state: 2.0, mask: None, summary: None, imex: None };

/// A page of four GPUs of one domain, held by this job.
fn rack_page(node: usize, job: Option<&str>, shown: impl Fn(u32) -> FabricShown) -> Report {
    let mut page = node_report(&format!("gpu00{}", node + 1));
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::INFO, &[("cluster_uuid", DOMAIN), ("clique", "7")]);
        if let Some(job) = job {
            page.add_info(device, gpu::JOB_INFO, &[("job", job)]);
        }
        push_reading(&mut page, Device::new_gpu(index), gpu::UTILIZATION, 0.9);
        let FabricShown { state, mask, summary, imex } = shown(index);
        let readings = [
            (health::FABRIC_STATE, Some(state)),
            (health::FABRIC_HEALTH_MASK, mask),
            (health::FABRIC_HEALTH_SUMMARY, summary),
            (health::IMEX_STATE, imex),
        ];
        for (metric, value) in readings {
            if let Some(value) = value {
                push_reading(&mut page, Device::new_gpu(index), metric, value);
            }
        }
    }
    page
}

fn three_nodes() -> TargetFixture {
    TargetFixture::new(&[
        ("gpu001:9770", Dialect::Gaunt),
        ("gpu002:9770", Dialect::Gaunt),
        ("gpu003:9770", Dialect::Gaunt),
    ])
}

fn fabric_ids(fixture: &TargetFixture) -> Vec<&str> {
    let ids = fixture.open_ids().into_iter();
    ids.filter(|id| id.starts_with("fabric_degraded")).collect()
}

#[test]
fn fault_of_one_gpu_blames_that_gpu() {
    let page = |_, node| {
        rack_page(node, None, |index| if (node, index) == (1, 2) { FAULTY } else { WELL })
    };
    let mut fixture = three_nodes();
    assert_eq!(fabric_ids(fixture.run(28, page)), [""; 0], "too short");
    assert_eq!(fabric_ids(fixture.run(10, page)), ["fabric_degraded/gpu002/2"]);
    let finding = fixture.judge.open_findings()[0];
    assert_eq!((finding.kind, finding.severity), (FindingKind::FabricDegraded, Severity::Warning));
    assert_eq!(finding.summary, "The NVLink fabric of gpu002 · GPU 2 has degraded bandwidth.");
    fixture.run(60, |_, node| rack_page(node, None, |_| WELL));
    assert_eq!(fabric_ids(&fixture), [""; 0], "healthy again");
}

#[test]
fn fault_of_a_whole_tray_blames_the_node_and_of_several_the_domain() {
    let mut fixture = three_nodes();
    fixture.run(40, |_, node| {
        rack_page(node, Some("8812"), |_| if node == 1 { FAULTY } else { WELL })
    });
    assert_eq!(fabric_ids(&fixture), ["fabric_degraded/gpu002"]);
    fixture.run(40, |_, node| {
        rack_page(node, Some("8812"), |index| if index < 2 { FAULTY } else { WELL })
    });
    assert_eq!(fabric_ids(&fixture), [format!("fabric_degraded/{DOMAIN}.7")]);
    let finding = fixture.judge.open_findings()[0];
    assert_eq!(
        finding.summary,
        format!(
            "The NVLink fabric of 6 of 12 GPUs of NVLink domain {DOMAIN}.7 has degraded bandwidth."
        )
    );
    assert!(finding.next.contains("NVLink switches"), "{}", finding.next);
}

#[test]
fn summary_counts_where_the_mask_names_nothing_and_failed_registration_always() {
    for (shown, words) in [
        (FabricShown { mask: None, summary: Some(2.0), ..WELL }, "an unhealthy summary"),
        (FabricShown { summary: Some(3.0), ..WELL }, "limited capacity"),
        (FabricShown { state: 4.0, ..WELL }, "a failed registration"),
    ] {
        let mut fixture = three_nodes();
        fixture.run(40, |_, node| {
            rack_page(node, None, |index| if (node, index) == (0, 0) { shown } else { WELL })
        });
        assert_eq!(fabric_ids(&fixture), ["fabric_degraded/gpu001/0"], "{words}");
        let summary = &fixture.judge.open_findings()[0].summary;
        assert!(summary.ends_with(&format!("has {words}.")), "{summary}");
    }
}

#[test]
fn registration_in_progress_is_a_fault_only_under_a_job_and_after_minutes() {
    let registering = |job| {
        move |_, node| {
            rack_page(node, job, |index| if (node, index) == (0, 3) { REGISTERING } else { WELL })
        }
    };
    let mut idle = three_nodes();
    assert_eq!(fabric_ids(idle.run(400, registering(None))), [""; 0]);
    let mut fixture = three_nodes();
    assert_eq!(fabric_ids(fixture.run(290, registering(Some("8812")))), [""; 0]);
    assert_eq!(
        fabric_ids(fixture.run(20, registering(Some("8812")))),
        ["fabric_degraded/gpu001/3"]
    );
    assert!(fixture.judge.open_findings()[0].next.contains("fabric manager"));
}

#[test]
fn imex_daemon_matters_only_to_a_job_on_several_nodes_of_the_domain() {
    let starting = FabricShown { imex: Some(2.0), ..WELL };
    let page = |job: fn(usize) -> &'static str, shown: FabricShown| {
        move |_, node| rack_page(node, Some(job(node)), |_| if node == 2 { shown } else { WELL })
    };
    let own_job: fn(usize) -> &'static str = |node| ["1", "2", "3"][node];
    let mut fixture = three_nodes();
    assert_eq!(fabric_ids(fixture.run(400, page(own_job, starting))), [""; 0]);
    let not_installed = FabricShown { imex: Some(-1.0), ..WELL };
    let mut fixture = three_nodes();
    assert_eq!(fabric_ids(fixture.run(400, page(|_| "8812", not_installed))), [""; 0]);
    let mut fixture = three_nodes();
    fixture.run(320, page(|_| "8812", starting));
    assert_eq!(fabric_ids(&fixture), ["fabric_degraded/gpu003"]);
    assert!(fixture.judge.open_findings()[0].next.contains("nvidia-imex-ctl"));
}

/// A page of a rack in which GPUs report these XIDs from a second on.
fn xid_page(second: i64, node: usize, xids: &[(usize, u32, u32, i64)]) -> Report {
    let mut page = rack_page(node, None, |_| WELL);
    for (of_node, index, code, since) in xids {
        if *of_node == node && second >= *since {
            let xid = Device::new_gpu_part(DeviceClass::Xid, *index, *code);
            push_reading(&mut page, xid, gpu_parts::XID_ERRORS, 1.0);
        }
    }
    page
}

#[test]
fn failed_nvlink_is_blamed_before_the_requests_of_its_peers() {
    // The peers report first, and the GPU itself also reports failed requests after its link went down.
    let mut xids = vec![(1, 2, 149, 14), (1, 2, 145, 15)];
    for node in 0..3 {
        let peers = (0..4).filter(|index| (node, *index) != (1, 2));
        xids.extend(peers.map(|index| (node, index, 145, 12)));
    }
    let mut fixture = three_nodes();
    fixture.run(60, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu002/2"]);
    let summary = &fixture.judge.open_findings()[0].summary;
    assert!(summary.contains("XID 149, NVLink: link went down or is faulty"), "{summary}");
    assert!(summary.ends_with("NVLink requests of 11 other GPUs failed with it."), "{summary}");
    fixture.run(300, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu002/2"], "its peers stay explained");
}

#[test]
fn failed_request_without_a_failed_nvlink_blames_its_gpu_after_a_while() {
    let mut fixture = three_nodes();
    let xids = [(0, 1, 145, 12), (2, 0, 149, 400)];
    fixture.run(40, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), [""; 0], "the cause may come");
    fixture.run(10, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu001/1"]);
    fixture.run(360, |second, node| xid_page(second, node, &xids));
    let both = ["gpu_failed/gpu001/1", "gpu_failed/gpu003/0"];
    assert_eq!(fixture.open_ids(), both, "long after it");
}

#[test]
fn nvlink_errors_on_several_gpus_blame_what_joins_them() {
    let mut fixture = three_nodes();
    let xids = [(0, 1, 74, 12), (0, 3, 74, 40), (2, 2, 74, 40)];
    fixture.run(30, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu001/1"]);
    fixture.run(30, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu003/2", "nvlink_degraded/gpu001"]);
    let open = fixture.judge.open_findings();
    let told = open.iter().find(|finding| finding.entity.gpu.is_none());
    let told = told.map(|finding| finding.summary.as_str()).unwrap_or_default();
    assert!(told.starts_with("2 GPUs of gpu001 have NVLink errors (XID 74 on 2 GPUs): "), "{told}");
}

#[test]
fn cause_that_is_read_late_replaces_the_finding_about_its_peer() {
    let mut fixture = three_nodes();
    let xids = [(0, 1, 145, 12), (2, 0, 149, 70)];
    fixture.run(60, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu001/1"]);
    fixture.run(20, |second, node| xid_page(second, node, &xids));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu003/0"]);
}

#[test]
fn contained_memory_error_is_a_warning_about_its_gpu() {
    let mut fixture = three_nodes();
    fixture.run(30, |second, node| xid_page(second, node, &[(1, 2, 94, 12), (0, 0, 63, 12)]));
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu002/2"]);
    let finding = fixture.judge.open_findings()[0];
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.summary.contains("uncorrectable ECC errors"), "{}", finding.summary);
}
