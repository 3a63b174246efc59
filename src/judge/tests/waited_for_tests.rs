//! Tests of nodes for which the rest of their job waits, although their own past does not show it.

use gaunt_schema::{
    Device, Dialect, Report, Severity,
    catalogue::{gpu, host},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const NODES: [&str; 4] = ["gpu001", "gpu002", "gpu003", "gpu004"];

/// The utilization and the tensor core activity of a node's GPUs.
type NodeLoad = (f64, f64);

/// A rank that computes, and waits in a collective for the rest of the time.
const WAITS: NodeLoad = (0.99, 0.3);

fn job_page(node: usize, (utilization, tensor): NodeLoad) -> Report {
    let mut page = node_report(NODES[node]);
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        page.add_info(device, gpu::INFO, &[("model", "H100")]);
        for (metric, value) in [
            (gpu::UTILIZATION, utilization),
            (gpu::TENSOR_ACTIVE, tensor),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::POWER, 300.0 + 200.0 * utilization),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    page
}

fn fixture_of(nodes: usize) -> TargetFixture {
    TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt))[..nodes])
}

#[test]
fn node_that_idles_for_the_same_work_is_told_and_costs_what_the_job_waits() {
    let mut fixture = fixture_of(4);
    let idle = (0.5, 0.3);
    fixture.run(300, |_, node| job_page(node, if node == 1 { idle } else { WAITS }));
    assert_eq!(fixture.open_ids(), ["host_bound/gpu002"]);
    let finding = &fixture.judge.open_findings()[0];
    assert!(
        finding
            .summary
            .as_str()
            .ends_with("utilization 50 %, that of the other nodes 99 % for the same work."),
        "{}",
        finding.summary
    );
    assert!((finding.lost_gpus - 16.0 * (1.0 - 0.5 / 0.99)).abs() < 0.1, "{finding:?}");
    // It stays, also over a restart, and closes once the node works like the others.
    fixture.run(600, |_, node| job_page(node, if node == 1 { idle } else { WAITS }));
    fixture.restart_judge(5);
    fixture.run(400, |_, node| job_page(node, if node == 1 { idle } else { WAITS }));
    assert_eq!(fixture.open_ids(), ["host_bound/gpu002"]);
    assert_eq!(fixture.judge.open_findings()[0].life.opened.0 / 1_000, 151);
    fixture.run(300, |_, node| job_page(node, WAITS));
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn node_that_does_less_work_is_no_rank_that_the_others_wait_for() {
    let mut fixture = fixture_of(4);
    fixture.run(400, |_, node| job_page(node, if node == 1 { (0.5, 0.15) } else { WAITS }));
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn two_nodes_that_idle_are_no_outlier() {
    let mut fixture = fixture_of(4);
    fixture.run(400, |_, node| job_page(node, if node < 2 { (0.5, 0.3) } else { WAITS }));
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn of_two_nodes_without_known_traffic_one_may_do_the_same_work_by_chance() {
    let mut fixture = fixture_of(2);
    fixture.run(400, |_, node| job_page(node, if node == 1 { (0.5, 0.3) } else { WAITS }));
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn checkpoint_that_one_rank_writes_is_none() {
    let mut fixture = fixture_of(4);
    fixture.run(900, |second, node| {
        let writes = second % 450 > 400;
        job_page(node, if writes { (if node == 1 { 0.0 } else { 0.99 }, 0.0) } else { WAITS })
    });
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn two_nodes_that_idle_more_than_before_wait_for_something_else() {
    let told = |idle: &'static [f64]| {
        let mut fixture = fixture_of(4);
        fixture.run(300, |second, node| {
            let tensor = if second > 200 { 0.2 } else { 0.3 };
            let busy = idle.get(node).copied().filter(|_| second > 200).unwrap_or(0.99);
            job_page(node, (busy, tensor))
        });
        let open = fixture.judge.open_findings().into_iter();
        let starved = open.filter(|finding| finding.id.starts_with("data_starved"));
        starved.map(|it| (it.id.clone(), it.severity)).collect::<Vec<_>>()
    };
    assert_eq!(told(&[0.7]), [("data_starved/gpu001".to_owned(), Severity::Warning)]);
    let both = told(&[0.7, 0.75]);
    assert!(both.iter().all(|(_, severity)| *severity == Severity::Info), "{both:?}");
}

#[test]
fn host_that_shows_more_stays_one_finding() {
    let mut fixture = fixture_of(4);
    let page = |second: i64, node: usize| {
        let tensor = if second > 200 { 0.15 } else { 0.3 };
        let starves = second > 200 && node == 1;
        let mut page = job_page(node, (if starves { 0.5 } else { 0.99 }, tensor));
        let busiest = if starves && second > 300 { 0.99 } else { 0.3 };
        push_reading(&mut page, Device::new_node(), host::CPU_BUSIEST, busiest);
        page
    };
    fixture.run(290, page);
    let of_node = |fixture: &TargetFixture| {
        let ids = fixture.open_ids().into_iter().filter(|id| id.ends_with("/gpu002"));
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of_node(&fixture), ["data_starved/gpu002"]);
    fixture.run(110, page);
    assert_eq!(of_node(&fixture), ["data_starved/gpu002"]);
    let open = fixture.judge.open_findings();
    let finding = open.iter().find(|finding| finding.id == "data_starved/gpu002").unwrap();
    let busiest = finding.evidence.iter().find(|item| item.what == "busiest CPU").unwrap();
    assert!(busiest.value > busiest.limit, "{busiest:?}");
}

/// A node of four GPUs whose jobs nothing names: two of them work, the others are free.
fn half_used_page(node: usize, (utilization, tensor): NodeLoad) -> Report {
    let mut page = node_report(NODES[node]);
    for index in 0..4 {
        let (utilization, tensor) = if index < 2 { (utilization, tensor) } else { (0.0, 0.0) };
        for (metric, value) in [
            (gpu::UTILIZATION, utilization),
            (gpu::TENSOR_ACTIVE, tensor),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::POWER, 100.0 + 400.0 * utilization),
            (gpu::MEMORY_TOTAL, 80e9),
            (gpu::MEMORY_USED, if index < 2 { 60e9 } else { 4e6 }),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    page
}

/// The severity of what is told of the second of three nodes that idles from the 101st second on, while the others spin.
fn told_after(seconds: i64, waits: NodeLoad) -> Option<Severity> {
    let mut fixture = fixture_of(3);
    fixture.run(100, |_, node| half_used_page(node, WAITS));
    fixture
        .run(seconds, |_, node| half_used_page(node, if node == 1 { (0.3, 0.1) } else { waits }));
    let open = fixture.judge.open_findings().into_iter();
    open.filter(|finding| finding.id == "data_starved/gpu002").map(|told| told.severity).max()
}

#[test]
fn free_gpus_beside_those_of_an_unnamed_job_are_no_part_of_it() {
    let waits = (0.99, 0.1);
    assert_eq!(told_after(50, waits), Some(Severity::Info), "it may write a checkpoint for all");
    assert_eq!(told_after(110, waits), Some(Severity::Warning));
    assert_eq!(told_after(110, WAITS), None, "the others do not wait for it");
}
