//! Tests of probe evidence: alone it is a warning, with counters it is critical, and an old probe is ignored.

use gaunt_schema::{
    Device, DeviceClass, Dialect, Entity, EntityKind, Finding, Report, Severity,
    catalogue::{gpu, gpu_parts, port, probe_results},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};
use crate::CrossNodeBandwidth;

const NODES: [(&str, Dialect); 2] = [("ash", Dialect::Gaunt), ("elm", Dialect::Gaunt)];

/// The page of an idle node, with a probe that ended so many seconds ago.
fn probe_report(place: usize, ratio: f64, path: &str, ended: f64) -> Report {
    let mut page = node_report(NODES[place].0);
    let node = page.ensure_device(Device::new_node());
    page.push(node, probe_results::LAST_RUN, ended);
    let device = page.ensure_device(Device::new_probe("all_reduce", "0,1,2,3"));
    page.add_info(device, probe_results::INFO, &[("path", path)]);
    page.push(device, probe_results::BASELINE_RATIO, if place == 0 { ratio } else { 1.0 });
    page.push(device, probe_results::WRONG, 0.0);
    page
}

fn open_severities(stage: &TargetFixture) -> Vec<(&str, Severity)> {
    let findings = stage.judge.open_findings().into_iter();
    findings.map(|finding| (finding.id.as_str(), finding.severity)).collect()
}

fn only_finding(stage: &TargetFixture) -> &Finding {
    let findings = stage.judge.open_findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0]
}

#[test]
fn a_probe_that_fell_is_worth_a_look_and_beside_errors_it_wakes_somebody() {
    let mut stage = TargetFixture::new(&NODES);
    stage.run(5, |_, place| probe_report(place, 0.93, "peer", 1.0));
    assert_eq!(open_severities(&stage), [], "a few per cent are nothing");
    stage.run(5, |_, place| probe_report(place, 0.52, "peer", 6.0));
    assert_eq!(open_severities(&stage), [("nvlink_degraded/ash", Severity::Warning)]);
    let said = only_finding(&stage);
    assert_eq!(
        said.summary,
        "all-reduce on ash reaches 52 % of its baseline, measured on idle GPUs."
    );
    assert_eq!((said.evidence[0].value, said.evidence[0].limit), (Some(0.52), Some(0.85)));

    let mut stage = TargetFixture::new(&NODES);
    stage.run(60, |second, place| {
        let mut page = probe_report(place, 0.52, "peer", 1.0);
        for gpu in 0..2 {
            push_reading(&mut page, Device::new_gpu(gpu), gpu::POWER, 100.0);
            let errors = if place == 0 && gpu == 1 { second as f64 * 500.0 } else { 0.0 };
            let link = Device::new_gpu_part(DeviceClass::Nvlink, gpu, 0);
            push_reading(&mut page, link, gpu_parts::NVLINK_REPLAY, errors);
        }
        page
    });
    assert_eq!(
        open_severities(&stage),
        [("nvlink_degraded/ash/1", Severity::Critical)],
        "one fault"
    );
    let said = only_finding(&stage);
    assert!(said.evidence.iter().any(|number| number.value == Some(0.52)), "{said:?}");
}

#[test]
fn what_goes_through_the_host_blames_its_bus_and_an_old_probe_nobody() {
    let mut stage = TargetFixture::new(&NODES);
    stage.run(5, |_, place| probe_report(place, 0.4, "host", 1.0));
    assert_eq!(open_severities(&stage), [("pcie_degraded/ash", Severity::Warning)]);
    let mut stage = TargetFixture::new(&NODES);
    stage.judge.state.limits.probe_valid_seconds = 60.0;
    stage.run(5, |_, place| probe_report(place, 0.4, "peer", -100.0));
    assert_eq!(open_severities(&stage), []);
    stage.run(5, |_, place| probe_report(place, 0.4, "local", 1.0));
    assert_eq!(open_severities(&stage), [], "no wire was measured");
}

#[test]
fn a_node_that_was_always_slow_is_measured_by_its_model() {
    let mut stage = TargetFixture::new(&NODES);
    stage.run(5, |_, place| {
        let mut page = probe_report(place, 1.0, "chosen", 1.0);
        let reached = if place == 0 { 0.76 } else { 1.04 };
        let device = Device::new_probe("all_reduce", "0,1,2,3");
        push_reading(&mut page, device, probe_results::REFERENCE_RATIO, reached);
        page
    });
    assert_eq!(open_severities(&stage), [("nvlink_degraded/ash", Severity::Warning)]);
    let said =
        "all-reduce on ash reaches 76 % of the reference of its GPU model, measured on idle GPUs.";
    assert_eq!(only_finding(&stage).summary, said);
}

#[test]
fn wrong_data_is_said_of_the_node() {
    let mut stage = TargetFixture::new(&NODES);
    stage.run(5, |_, place| {
        let mut page = probe_report(place, 1.0, "peer", 1.0);
        let wrong = if place == 0 { 3.0 } else { 0.0 };
        push_reading(
            &mut page,
            Device::new_probe("all_gather", "0,1,2,3"),
            probe_results::WRONG,
            wrong,
        );
        page
    });
    assert_eq!(open_severities(&stage), [("gpu_failed/ash", Severity::Warning)]);
}

#[test]
fn what_pairs_of_nodes_say_of_a_port_joins_what_its_counters_say() {
    let (node, device, number) = ("ash".into(), "mlx5_0".into(), "1".into());
    let entity = Entity::new_port(&node, &device, &number);
    let slow = CrossNodeBandwidth { entity, across: false, ratio: 0.5, pairs: 3 };
    let mut stage = TargetFixture::new(&NODES);
    stage.judge.set_probe_results(vec![slow.clone()]);
    stage.run(3, |_, place| node_report(NODES[place].0));
    assert_eq!(open_severities(&stage), [("port_rate_low/ash/mlx5_0/1", Severity::Warning)]);

    let mut stage = TargetFixture::new(&NODES);
    stage.run(20, |second, place| {
        let mut page = node_report(NODES[place].0);
        let port = page.ensure_device(Device::new_port("mlx5_0", "1"));
        page.push(port, port::STATE, 4.0);
        page.push(port, port::RATE, if place == 0 && second > 10 { 25e9 } else { 50e9 });
        page
    });
    assert_eq!(open_severities(&stage), [("port_rate_low/ash/mlx5_0/1", Severity::Warning)]);
    stage.judge.set_probe_results(vec![slow]);
    stage.run(3, |_, place| {
        let mut page = node_report(NODES[place].0);
        let port = page.ensure_device(Device::new_port("mlx5_0", "1"));
        page.push(port, port::STATE, 4.0);
        page.push(port, port::RATE, if place == 0 { 25e9 } else { 50e9 });
        page
    });
    assert_eq!(open_severities(&stage), [("port_rate_low/ash/mlx5_0/1", Severity::Critical)]);
}

#[test]
fn an_uplink_is_told_from_its_leaf() {
    let entity = Entity { leaf: Some("leaf-3".into()), ..Entity::new(EntityKind::Leaf) };
    let mut stage = TargetFixture::new(&NODES);
    stage.judge.set_probe_results(vec![CrossNodeBandwidth {
        entity,
        across: true,
        ratio: 0.4,
        pairs: 2,
    }]);
    stage.run(3, |_, place| node_report(NODES[place].0));
    assert_eq!(open_severities(&stage), [("leaf_congested/leaf-3", Severity::Warning)]);
    assert_eq!(
        only_finding(&stage).summary,
        "leaf-3 reaches 40 % of its baseline bandwidth with ports below other leaves, measured between idle nodes."
    );
}

#[test]
fn a_probe_at_work_is_no_fault() {
    // Two seconds in each minute its kernels busy-wait on every GPU, under a job of its own; otherwise the node is
    // idle.
    let mut stage = TargetFixture::new(&NODES);
    for _ in 0..40 {
        stage.run(60, |second, place| {
            let mut page = probe_report(place, 1.0, "peer", second as f64);
            let probes = second % 60 < 2;
            for index in 0..4 {
                let device = page.ensure_device(Device::new_gpu(index));
                if probes {
                    page.add_info(device, gpu::JOB_INFO, &[("job", "gaunt-probe")]);
                }
                page.push(device, gpu::PROCESSES, f64::from(probes));
                page.push(device, gpu::UTILIZATION, f64::from(probes));
                page.push(device, gpu::SM_ACTIVE, if probes { 0.12 } else { 0.0 });
                page.push(device, gpu::TENSOR_ACTIVE, 0.0);
                page.push(device, gpu::POWER, if probes { 240.0 } else { 70.0 });
            }
            page
        });
        assert_eq!(open_severities(&stage), []);
    }
}
