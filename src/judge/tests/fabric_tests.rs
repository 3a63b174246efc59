//! Tests of the NVLink fabric: which GPU, node or domain is blamed, and what is no fault.

use gaunt_schema::{
    Device, Dialect, FindingKind, Report, Severity,
    catalogue::{gpu, gpu_health as health},
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
