//! Tests of probe evidence: alone it is a warning, with counters it is critical, and an old probe is ignored.

use gaunt_schema::{
    Device, DeviceClass, Dialect, Entity, EntityKind, Finding, Report, Severity,
    catalogue::{gpu, gpu_parts, port, probe_results},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};
use gaunt_judge::{CrossNodeBandwidth, Thresholds};

const NODES: [(&str, Dialect); 2] = [("ash", Dialect::Gaunt), ("elm", Dialect::Gaunt)];

/// The page of an idle node, with a probe that ended so many seconds ago.
fn probe_report(node_index: usize, ratio: f64, path: &str, ended: f64) -> Report {
    let mut page = node_report(NODES[node_index].0);
    let node = page.ensure_device(Device::new_node());
    page.push(node, probe_results::LAST_RUN, ended);
    let device = page.ensure_device(Device::new_probe("all_reduce", "0,1,2,3"));
    page.add_info(device, probe_results::INFO, &[("path", path)]);
    page.push(device, probe_results::BASELINE_RATIO, if node_index == 0 { ratio } else { 1.0 });
    page.push(device, probe_results::WRONG, 0.0);
    page
}

fn open_severities(fixture: &TargetFixture) -> Vec<(&str, Severity)> {
    let findings = fixture.judge.open_findings().into_iter();
    findings.map(|finding| (finding.id.as_str(), finding.severity)).collect()
}

fn only_finding(fixture: &TargetFixture) -> &Finding {
    let findings = fixture.judge.open_findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0]
}

#[test]
fn probe_below_baseline_is_a_warning_and_with_link_errors_critical() {
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(5, |_, node_index| probe_report(node_index, 0.93, "peer", 1.0));
    assert_eq!(open_severities(&fixture), [], "a few per cent are nothing");
    fixture.run(5, |_, node_index| probe_report(node_index, 0.52, "peer", 6.0));
    assert_eq!(open_severities(&fixture), [("nvlink_degraded/ash", Severity::Warning)]);
    let finding = only_finding(&fixture);
    assert_eq!(
        finding.summary,
        "all-reduce on ash reaches 52 % of its baseline, measured on idle GPUs."
    );
    assert_eq!((finding.evidence[0].value, finding.evidence[0].limit), (Some(0.52), Some(0.85)));

    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(60, |second, node_index| {
        let mut page = probe_report(node_index, 0.52, "peer", 1.0);
        for gpu in 0..2 {
            push_reading(&mut page, Device::new_gpu(gpu), gpu::POWER, 100.0);
            let errors = if node_index == 0 && gpu == 1 { second as f64 * 500.0 } else { 0.0 };
            let link = Device::new_gpu_part(DeviceClass::Nvlink, gpu, 0);
            push_reading(&mut page, link, gpu_parts::NVLINK_REPLAY, errors);
        }
        page
    });
    assert_eq!(
        open_severities(&fixture),
        [("nvlink_degraded/ash/1", Severity::Critical)],
        "one fault"
    );
    let finding = only_finding(&fixture);
    assert!(finding.evidence.iter().any(|number| number.value == Some(0.52)), "{finding:?}");
}

#[test]
fn probe_through_the_host_blames_pcie_and_old_probe_nothing() {
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(5, |_, node_index| probe_report(node_index, 0.4, "host", 1.0));
    assert_eq!(open_severities(&fixture), [("pcie_degraded/ash", Severity::Warning)]);
    let limits = Thresholds { probe_valid_seconds: 60.0, ..Thresholds::default() };
    let mut fixture = TargetFixture::new(&NODES).with_limits(limits);
    fixture.run(5, |_, node_index| probe_report(node_index, 0.4, "peer", -100.0));
    assert_eq!(open_severities(&fixture), []);
    fixture.run(5, |_, node_index| probe_report(node_index, 0.4, "local", 1.0));
    assert_eq!(open_severities(&fixture), [], "no wire was measured");
}

#[test]
fn node_that_was_always_slow_is_compared_with_its_model() {
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(5, |_, node_index| {
        let mut page = probe_report(node_index, 1.0, "chosen", 1.0);
        let reached = if node_index == 0 { 0.76 } else { 1.04 };
        let device = Device::new_probe("all_reduce", "0,1,2,3");
        push_reading(&mut page, device, probe_results::REFERENCE_RATIO, reached);
        page
    });
    assert_eq!(open_severities(&fixture), [("nvlink_degraded/ash", Severity::Warning)]);
    let said =
        "all-reduce on ash reaches 76 % of the reference of its GPU model, measured on idle GPUs.";
    assert_eq!(only_finding(&fixture).summary, said);
}

#[test]
fn wrong_data_blames_the_node() {
    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(5, |_, node_index| {
        let mut page = probe_report(node_index, 1.0, "peer", 1.0);
        let wrong = if node_index == 0 { 3.0 } else { 0.0 };
        push_reading(
            &mut page,
            Device::new_probe("all_gather", "0,1,2,3"),
            probe_results::WRONG,
            wrong,
        );
        page
    });
    assert_eq!(open_severities(&fixture), [("gpu_failed/ash", Severity::Warning)]);
}

#[test]
fn port_evidence_of_node_pairs_joins_its_counters() {
    let (node, device, number) = ("ash".into(), "mlx5_0".into(), "1".into());
    let entity = Entity::new_port(&node, &device, &number);
    let slow = CrossNodeBandwidth { entity, across: false, ratio: 0.5, pairs: 3 };
    let mut fixture = TargetFixture::new(&NODES);
    fixture.judge.set_probe_results(vec![slow.clone()]);
    fixture.run(3, |_, node_index| node_report(NODES[node_index].0));
    assert_eq!(open_severities(&fixture), [("port_rate_low/ash/mlx5_0/1", Severity::Warning)]);

    let mut fixture = TargetFixture::new(&NODES);
    fixture.run(20, |second, node_index| {
        let mut page = node_report(NODES[node_index].0);
        let port = page.ensure_device(Device::new_port("mlx5_0", "1"));
        page.push(port, port::STATE, 4.0);
        page.push(port, port::RATE, if node_index == 0 && second > 10 { 25e9 } else { 50e9 });
        page
    });
    assert_eq!(open_severities(&fixture), [("port_rate_low/ash/mlx5_0/1", Severity::Warning)]);
    fixture.judge.set_probe_results(vec![slow]);
    fixture.run(3, |_, node_index| {
        let mut page = node_report(NODES[node_index].0);
        let port = page.ensure_device(Device::new_port("mlx5_0", "1"));
        page.push(port, port::STATE, 4.0);
        page.push(port, port::RATE, if node_index == 0 { 25e9 } else { 50e9 });
        page
    });
    assert_eq!(open_severities(&fixture), [("port_rate_low/ash/mlx5_0/1", Severity::Critical)]);
}

#[test]
fn uplink_is_distinguished_from_its_leaf() {
    let entity = Entity { leaf: Some("leaf-3".into()), ..Entity::new(EntityKind::Leaf) };
    let mut fixture = TargetFixture::new(&NODES);
    fixture.judge.set_probe_results(vec![CrossNodeBandwidth {
        entity,
        across: true,
        ratio: 0.4,
        pairs: 2,
    }]);
    fixture.run(3, |_, node_index| node_report(NODES[node_index].0));
    assert_eq!(open_severities(&fixture), [("leaf_congested/leaf-3", Severity::Warning)]);
    assert_eq!(
        only_finding(&fixture).summary,
        "leaf-3 reaches 40 % of its baseline bandwidth with ports below other leaves, measured between idle nodes."
    );
}

#[test]
fn probe_at_work_is_no_finding() {
    // Two seconds in each minute its kernels busy-wait on every GPU, under a job of its own; otherwise the node is
    // idle.
    let mut fixture = TargetFixture::new(&NODES);
    for _ in 0..40 {
        fixture.run(60, |second, node_index| {
            let mut page = probe_report(node_index, 1.0, "peer", second as f64);
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
        assert_eq!(open_severities(&fixture), []);
    }
}
