//! Tests of rare errors: a link that fails a few times a minute is found where its peers have none.

use gaunt_schema::{
    Device, DeviceClass, Dialect, Report, Severity,
    catalogue::{gpu, gpu_health, gpu_parts, port},
};

use super::telemetry_tests::TargetFixture;

const GPUS: u32 = 8;

/// A page of eight GPUs with these totals of NVLink errors and PCIe replays.
fn page_of_errors(
    second: i64,
    node: usize,
    nvlink_errors: impl Fn(u32) -> f64,
    replays: impl Fn(u32) -> f64,
) -> Report {
    let mut report = Report {
        node: Some(format!("gpu{node:03}").as_str().into()),
        node_time: Some(gaunt_schema::UnixMs(second * 1_000)),
        ..Report::default()
    };
    for index in 0..GPUS {
        let device = report.ensure_device(Device::new_gpu(index));
        report.push(device, gpu::UTILIZATION, 0.95);
        report.push(device, gpu_health::PCIE_REPLAYS, replays(index).floor());
        let link = Device::new_gpu_part(DeviceClass::Nvlink, index, 0);
        let link = report.ensure_device(link);
        report.push(link, gpu_parts::NVLINK_CRC, nvlink_errors(index).floor());
    }
    report
}

fn found_after(seconds: i64, page: impl Fn(i64, usize) -> Report) -> Vec<String> {
    let addresses: Vec<String> = (0..4).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        addresses.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(seconds, page);
    fixture.judge.open_findings().into_iter().map(|finding| finding.id.clone()).collect()
}

#[test]
fn gpu_with_an_error_each_ten_seconds_is_found_beside_quiet_peers() {
    let rate = |node: usize, index: u32| if (node, index) == (2, 5) { 0.1 } else { 0.0 };
    let found = found_after(150, |second, node| {
        let second_f = second as f64;
        page_of_errors(second, node, |index| rate(node, index) * second_f, |_| 0.0)
    });
    assert_eq!(found, ["nvlink_degraded/gpu002/5"]);
    let found = found_after(150, |second, node| {
        let second_f = second as f64;
        page_of_errors(second, node, |_| 0.0, |index| rate(node, index) * second_f)
    });
    assert_eq!(found, ["pcie_degraded/gpu002/5"]);
}

#[test]
fn replays_on_most_gpus_of_one_node_are_of_what_they_share() {
    let found = found_after(150, |second, node| {
        let rate = |index| if node == 1 && index > 1 { 5.0 } else { 0.0 };
        page_of_errors(second, node, |_| 0.0, |index| rate(index) * second as f64)
    });
    assert_eq!(found, ["pcie_degraded/gpu001"]);
}

#[test]
fn errors_on_several_gpus_of_one_node_are_of_its_switches() {
    let found = found_after(150, |second, node| {
        let rate = if node == 1 { 0.1 } else { 0.0 };
        let errors = |index: u32| f64::from(index % 2) * rate * second as f64;
        page_of_errors(second, node, errors, |_| 0.0)
    });
    assert_eq!(found, ["nvlink_degraded/gpu001"]);
}

#[test]
fn errors_on_two_gpus_of_one_node_are_of_what_joins_them() {
    let found = found_after(150, |second, node| {
        let rate = |index| if node == 1 && [2, 5].contains(&index) { 0.1 } else { 0.0 };
        page_of_errors(second, node, |index| rate(index) * second as f64, |_| 0.0)
    });
    assert_eq!(found, ["nvlink_degraded/gpu001"]);
}

#[test]
fn errors_that_all_gpus_have_and_one_burst_are_no_fault() {
    let found = found_after(150, |second, node| {
        page_of_errors(
            second,
            node,
            |_| 0.05 * second as f64,
            |index| {
                if second >= 60 && index == 3 && node == 0 { 4.0 } else { 0.0 }
            },
        )
    });
    assert_eq!(found, [""; 0]);
}

/// A page of four ports with these totals of symbol errors.
fn page_of_ports(node: usize, errors: impl Fn(usize) -> f64) -> Report {
    let mut report =
        Report { node: Some(format!("gpu{node:03}").as_str().into()), ..Report::default() };
    for index in 0..4 {
        let device = report.ensure_device(Device::new_port(&format!("mlx5_{index}"), "1"));
        report.push(device, port::STATE, 4.0);
        report.push(device, port::PHYSICAL_STATE, 5.0);
        report.push(device, port::RATE, 50e9);
        report.push(device, port::SYMBOL_ERRORS, errors(index).floor());
    }
    report
}

#[test]
fn port_with_a_few_errors_now_and_then_is_found_beside_quiet_ports() {
    // Three errors within three seconds, each forty seconds: too short for a rate that lasts.
    let bursts = |second: i64| (second / 40 * 3 + (second % 40).min(3)) as f64;
    let found = found_after(200, |second, node| {
        page_of_ports(node, |index| if (node, index) == (2, 1) { bursts(second) } else { 0.0 })
    });
    assert_eq!(found, ["link_errors/gpu002/mlx5_1/1"]);
    let found = found_after(200, |second, node| page_of_ports(node, |_| bursts(second)));
    assert_eq!(found, [""; 0], "all of them have these");
}

#[test]
fn gpu_whose_row_could_not_be_remapped_is_told_and_explains_nothing() {
    let targets: Vec<String> = (0..4).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        targets.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    let page = |failed: f64| {
        move |second, node| {
            let mut report = page_of_errors(second, node, |_| 0.0, |_| 0.0);
            let device = report.ensure_device(Device::new_gpu(5));
            report.push(device, gpu_health::REMAP_FAILED, if node == 2 { failed } else { 0.0 });
            report
        }
    };
    fixture.run(30, page(1.0));
    let found = fixture.judge.open_findings();
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((finding.id.as_str(), finding.severity), ("gpu_failed/gpu002/5", Severity::Warning));
    assert_eq!((finding.lost_gpus, finding.victims.len()), (0.0, 0));
    let wanted = "gpu002 · GPU 5 works, but a row of its memory could not be remapped, since ";
    assert!(finding.summary.starts_with(wanted), "{}", finding.summary);
    assert_eq!(finding.next, "Drain the node and have the board replaced (RMA).");
    // The board was replaced.
    fixture.run(150, page(0.0));
    assert_eq!(fixture.judge.open_findings().len(), 0);
}

#[test]
fn gpu_that_remaps_rows_one_after_the_other_is_a_warning_over_a_restart() {
    let page = |second: i64, node: usize| {
        let mut page = page_of_errors(second, node, |_| 0.0, |_| 0.0);
        let rows = if node == 2 { (second - 60).clamp(0, 60) / 5 } else { 3 };
        let device = page.ensure_device(Device::new_gpu(5));
        page.push(device, gpu_health::REMAPPED_CORRECTED, rows as f64);
        page
    };
    let addresses = ["10.0.0.0:9770", "10.0.0.1:9770", "10.0.0.2:9770"];
    let targets: Vec<(&str, Dialect)> =
        addresses.into_iter().map(|address| (address, Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(180, page);
    let found = fixture.judge.open_findings();
    let [found] = found[..] else { panic!("{found:?}") };
    assert_eq!((found.id.as_str(), found.severity), ("gpu_failed/gpu002/5", Severity::Warning));
    assert!(found.summary.contains("rows of its memory were remapped"), "{}", found.summary);
    assert_eq!(fixture.restart_judge(20).run(60, page).open_ids(), ["gpu_failed/gpu002/5"]);
}
