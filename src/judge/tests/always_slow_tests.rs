//! Tests of GPUs that are slow from the beginning: their past does not show it, and the others of their job do.

use gaunt_schema::{Device, Dialect, Report, Severity, catalogue::gpu};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const NODES: [&str; 4] = ["gpu001", "gpu002", "gpu003", "gpu004"];

/// What a page shows of a GPU.
#[derive(Clone, Copy)]
struct GpuShown {
    clock_mhz: f64,
    watts: f64,
    celsius: f64,
    tensor: f64,
    sm: f64,
    /// Whether its power cap holds its clock down.
    capped: bool,
}

/// A rank that computes a third of the time and waits for the rest of it.
const WAITS: GpuShown = GpuShown {
    clock_mhz: 1_740.0,
    watts: 480.0,
    celsius: 60.0,
    tensor: 0.3,
    sm: 0.45,
    capped: false,
};

fn job_page(node: usize, shown: impl Fn(usize, u32) -> GpuShown) -> Report {
    let mut page = node_report(NODES[node]);
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        page.add_info(device, gpu::INFO, &[("model", "H100")]);
        let shown = shown(node, index);
        for (metric, value) in [
            (gpu::UTILIZATION, 1.0),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::POWER, shown.watts),
            (gpu::SM_CLOCK, shown.clock_mhz * 1e6),
            (gpu::TEMPERATURE, shown.celsius),
            (gpu::TENSOR_ACTIVE, shown.tensor),
            (gpu::SM_ACTIVE, shown.sm),
            (gpu::CLOCK_EVENT_SW_POWER_CAP, f64::from(u8::from(shown.capped))),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    page
}

/// The ids of warnings and pages after five minutes of this job, and whether one of them is a page.
fn told(shown: impl Fn(usize, u32) -> GpuShown + Copy) -> (Vec<String>, bool) {
    let targets = NODES.map(|name| (name, Dialect::Gaunt));
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(300, |_, node| job_page(node, shown));
    let open = fixture.judge.open_findings();
    let told = open.iter().filter(|finding| finding.severity > Severity::Info);
    let pages = open.iter().any(|finding| finding.severity == Severity::Critical);
    (told.map(|finding| finding.id.clone()).collect(), pages)
}

#[test]
fn node_that_was_always_slower_and_lets_the_others_wait_is_a_warning() {
    let slow = GpuShown { clock_mhz: 960.0, watts: 290.0, tensor: 0.54, sm: 0.8, ..WAITS };
    let found = told(|node, _| if node == 1 { slow } else { WAITS });
    assert_eq!(found, (vec!["compute_straggler/gpu002".to_owned()], false));
}

#[test]
fn gpu_at_a_power_cap_is_a_warning_only_if_the_others_wait_for_it() {
    let capped = GpuShown { clock_mhz: 1_200.0, watts: 300.0, capped: true, ..WAITS };
    let awaited = GpuShown { tensor: 0.45, sm: 0.65, ..capped };
    let found = told(|node, index| if (node, index) == (1, 2) { awaited } else { WAITS });
    assert_eq!(found, (vec!["compute_straggler/gpu002/2".to_owned()], false));
    let found = told(|node, index| if (node, index) == (1, 2) { capped } else { WAITS });
    assert_eq!(found.0, [""; 0]);
}

#[test]
fn node_with_a_lower_clock_for_which_nobody_waits_is_the_design() {
    let capped = GpuShown { clock_mhz: 1_200.0, watts: 350.0, ..WAITS };
    assert_eq!(told(|node, _| if node == 1 { capped } else { WAITS }).0, [""; 0]);
    // A stage with more work draws more power, and its clock is lower for that.
    let stage = GpuShown { clock_mhz: 1_400.0, watts: 690.0, tensor: 0.54, sm: 0.55, ..WAITS };
    assert_eq!(told(|node, _| if node == 1 { stage } else { WAITS }).0, [""; 0]);
}

#[test]
fn hot_node_with_a_low_clock_is_throttled_though_no_reason_is_reported() {
    let hot = GpuShown { clock_mhz: 1_200.0, watts: 350.0, celsius: 89.0, ..WAITS };
    let found = told(|node, _| if node == 1 { hot } else { WAITS });
    assert_eq!(found.0, ["throttled/gpu002"]);
}

#[test]
fn gpu_that_computes_longer_for_the_same_work_is_a_warning() {
    let silent = GpuShown { sm: 0.8, ..WAITS };
    let found = told(|node, index| if (node, index) == (2, 1) { silent } else { WAITS });
    assert_eq!(found, (vec!["compute_straggler/gpu003/1".to_owned()], false));
    let more_work = GpuShown { tensor: 0.5, ..silent };
    assert_eq!(
        told(|node, index| if (node, index) == (2, 1) { more_work } else { WAITS }).0,
        [""; 0]
    );
    assert_eq!(told(|node, _| if node == 2 { silent } else { WAITS }).0, [""; 0], "a stage"); // GPUs that differ among themselves work each for another job.
    let differ = |node: usize, index: u32| match (node, index) {
        (2, 1) => silent,
        (_, 0) => GpuShown { sm: 0.35, ..WAITS },
        _ => WAITS,
    };
    assert_eq!(told(differ).0, [""; 0]);
}

#[test]
fn nodes_that_become_hot_are_throttled_though_most_of_their_job_is() {
    let works = GpuShown { clock_mhz: 1_965.0, watts: 600.0, tensor: 0.45, sm: 0.7, ..WAITS };
    let told = |since: GpuShown| {
        let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
        fixture.run(400, |second, node| {
            let shown = if second > 200 && node > 0 { since } else { works };
            job_page(node, |_, _| shown)
        });
        let open = fixture.judge.open_findings().into_iter();
        let told = open.filter(|finding| finding.severity > Severity::Info);
        told.map(|finding| finding.id.clone()).collect::<Vec<_>>()
    };
    let slow = GpuShown { clock_mhz: 1_400.0, watts: 420.0, tensor: 0.32, sm: 0.5, ..works };
    let hot = ["throttled/gpu004", "throttled/gpu003", "throttled/gpu002"];
    assert_eq!(told(GpuShown { celsius: 86.0, ..slow })[..3], hot);
    let capped = told(GpuShown { celsius: 50.0, ..slow });
    assert!(!capped.iter().any(|id| id.contains("gpu00")), "on purpose: {capped:?}");
}
