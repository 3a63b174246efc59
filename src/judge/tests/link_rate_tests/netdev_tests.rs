//! Tests of network devices: those without an RDMA port, and those that count for one.

use gaunt_schema::{
    Device, Dialect, FindingKind, Report, Severity,
    catalogue::{ethernet, host, port},
};

use super::{GBIT, TargetFixture, found_after, found_of_kinds, page_of_ports};

/// A page with network devices of these names, and rates and traffic in Gbit/s.
fn page_of_netdevs(second: i64, devices: &[(&str, f64, f64)]) -> Report {
    let mut report = Report {
        node: Some("gpu000".into()),
        node_time: Some(gaunt_schema::UnixMs(second * 1_000)),
        ..Report::default()
    };
    for (name, gbit, sent) in devices {
        let device = report.ensure_device(Device::new_netdev(name));
        report.push(device, host::NETDEV_SPEED, gbit * GBIT);
        report.push(device, host::NETDEV_RECEIVE_BYTES, second as f64 * sent * GBIT);
        report.push(device, host::NETDEV_TRANSMIT_BYTES, second as f64 * sent * GBIT);
    }
    report
}

#[test]
fn network_device_with_traffic_that_is_slower_than_before_is_found_also_after_a_restart() {
    let id = "port_rate_low/gpu000/bond0";
    let mut fixture = TargetFixture::new(&[("10.0.0.1:9770", Dialect::Gaunt)]);
    let fast = |second, _| page_of_netdevs(second, &[("eth0", 50.0, 5.0), ("bond0", 50.0, 5.0)]);
    let slow = |second, _| page_of_netdevs(second, &[("eth0", 1.0, 0.9), ("bond0", 1.0, 0.9)]);
    let unused = |second, _| page_of_netdevs(second, &[("eth0", 1.0, 0.0), ("bond0", 1.0, 0.0)]);
    fixture.run(30, fast);
    assert_eq!(fixture.open_ids(), [""; 0]);
    fixture.run(10, slow);
    assert_eq!(fixture.open_ids(), [id], "once, for all devices of one cable");
    let found = fixture.judge.open_findings()[0];
    assert_eq!(found.summary, "gpu000 · bond0 runs at 1 Gb/s; it ran at 50 Gb/s before.");
    fixture.run(60, unused);
    assert_eq!(fixture.open_ids(), [id], "its job stands still");
    fixture.restart_judge(20).run(60, slow);
    assert_eq!(fixture.open_ids(), [id]);
    fixture.run(60, fast);
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn network_device_that_carries_nothing_or_is_another_one_of_the_same_row_is_no_fault() {
    let mut fixture = TargetFixture::new(&[("10.0.0.1:9770", Dialect::Gaunt)]);
    fixture
        .run(30, |second, _| page_of_netdevs(second, &[("eth0", 25.0, 1.0), ("eth1", 25.0, 0.0)]));
    fixture
        .run(30, |second, _| page_of_netdevs(second, &[("eth0", 25.0, 1.0), ("eth1", 1.0, 0.0)]));
    assert_eq!(fixture.open_ids(), [""; 0]);
    for second in 0..20 {
        let container = format!("veth{second}");
        fixture.run(1, |second, _| {
            let rate = if second % 2 == 0 { 100.0 } else { 10.0 };
            page_of_netdevs(second, &[("eth0", 25.0, 1.0), (&container, rate, 1.0)])
        });
    }
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn network_device_of_a_port_is_told_as_the_port() {
    let found = found_after(60, 1, |second, node| {
        let rate = if second > 30 { 100.0 } else { 400.0 };
        let mut report = page_of_ports(second, node, &[("mlx5_0".to_owned(), rate)]);
        let port = report.ensure_device(Device::new_port("mlx5_0", "1"));
        report.add_info(port, port::INFO, &[("netdev", "eth0")]);
        let device = report.ensure_device(Device::new_netdev("eth0"));
        report.push(device, host::NETDEV_SPEED, rate * GBIT);
        report.push(device, host::NETDEV_RECEIVE_BYTES, second as f64 * 1e9);
        report
    });
    assert_eq!(found, ["port_rate_low/gpu000/mlx5_0/1"]);
}

/// Traffic of 10 Gbit/s, unless the carrier is lost, and the counters of a network device.
fn push_link(report: &mut Report, second: i64, name: &str, carrier: bool, counts: [f64; 2]) {
    let device = report.ensure_device(Device::new_netdev(name));
    let [changes, errors] = counts;
    if carrier {
        report.push(device, host::NETDEV_SPEED, 100.0 * GBIT);
    }
    report.push(device, host::NETDEV_RECEIVE_BYTES, second as f64 * 10.0 * GBIT);
    report.push(device, host::NETDEV_CARRIER, f64::from(u8::from(carrier)));
    report.push(device, host::NETDEV_CARRIER_CHANGES, changes);
    report.push(device, host::NETDEV_RECEIVE_ERRORS, errors);
}

fn page_of_link(second: i64, name: &str, carrier: bool, counts: [f64; 2]) -> Report {
    let mut report = page_of_netdevs(second, &[]);
    push_link(&mut report, second, name, carrier, counts);
    report
}

#[test]
fn network_device_that_lost_its_carrier_is_found_and_kept_over_a_restart() {
    let id = "port_down/gpu000/eth1";
    let mut fixture = TargetFixture::new(&[("10.0.0.1:9770", Dialect::Gaunt)]);
    fixture.run(30, |second, _| page_of_link(second, "eth1", true, [2.0, 0.0]));
    assert_eq!(fixture.open_ids(), [""; 0]);
    let lost = |second, _| page_of_link(second, "eth1", false, [3.0, 0.0]);
    fixture.run(3, lost);
    assert_eq!(fixture.open_ids(), [id]);
    let found = fixture.judge.open_findings()[0];
    assert_eq!(found.severity, Severity::Warning, "no job is on the node");
    assert!(found.summary.starts_with("eth1 on gpu000 has no carrier since "));
    fixture.restart_judge(20).run(30, lost);
    assert_eq!(fixture.open_ids(), [id]);
    fixture.run(60, |second, _| page_of_link(second, "eth1", true, [4.0, 0.0]));
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn carrier_that_comes_and_goes_between_samples_is_flapping() {
    let mut fixture = TargetFixture::new(&[("10.0.0.1:9770", Dialect::Gaunt)]);
    fixture.run(30, |second, _| page_of_link(second, "eth1", true, [2.0, 0.0]));
    fixture.run(30, |second, _| page_of_link(second, "eth1", true, [4.0, 0.0]));
    assert_eq!(fixture.open_ids(), [""; 0], "once is no flapping");
    fixture.run(30, |second, _| page_of_link(second, "eth1", true, [6.0, 0.0]));
    assert_eq!(fixture.open_ids(), ["port_down/gpu000/eth1"]);
    let found = fixture.judge.open_findings()[0];
    assert!(found.summary.starts_with("eth1 on gpu000 is flapping"), "{}", found.summary);
}

#[test]
fn bridge_and_unused_card_may_lose_their_carrier() {
    let mut fixture = TargetFixture::new(&[("10.0.0.1:9770", Dialect::Gaunt)]);
    let page = |second: i64, carrier, changes| {
        let mut report = page_of_link(second, "docker0", carrier, [changes, 0.0]);
        // A card with a carrier and without traffic.
        push_link(&mut report, 0, "eth2", carrier, [changes, 0.0]);
        report
    };
    fixture.run(30, |second, _| page(second, true, 2.0));
    fixture.run(30, |second, _| page(second, false, 3.0));
    fixture.run(30, |second, _| page(second, true, second as f64));
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn errors_of_a_network_device_are_found_also_where_they_are_few() {
    let page = |per_second: f64| {
        found_of_kinds(&[FindingKind::LinkErrors], 90, 8, move |second, node| {
            let errors = if node == 3 { (second as f64 * per_second).floor() } else { 0.0 };
            let mut report = page_of_link(second, "eth1", true, [2.0, errors]);
            report.node = Some(format!("gpu{node:03}").as_str().into());
            report
        })
    };
    assert_eq!(page(2.0), ["link_errors/gpu003/eth1"]);
    assert_eq!(page(0.2), ["link_errors/gpu003/eth1"]);
    assert_eq!(page(0.01), [""; 0]);
}

#[test]
fn errors_of_a_card_without_a_line_rate_are_found() {
    let found = found_of_kinds(&[FindingKind::LinkErrors], 60, 8, |second, node| {
        let mut report = page_of_ports(second, node, &[]);
        let device = report.ensure_device(Device::new_netdev("eth3"));
        report.push(device, host::NETDEV_RECEIVE_BYTES, second as f64 * 1e9);
        let errors = if node == 3 { second as f64 * 5.0 } else { 0.0 };
        report.push(device, host::NETDEV_RECEIVE_ERRORS, errors);
        report
    });
    assert_eq!(found, ["link_errors/gpu003/eth3"]);
}

/// A page with an RDMA port and its network device, with these counters of the latter.
fn page_of_port_with_netdev(second: i64, node: usize, counts: [f64; 2]) -> Report {
    let mut report = page_of_ports(second, node, &[("mlx5_0".to_owned(), 400.0)]);
    let device = report.ensure_device(Device::new_port("mlx5_0", "1"));
    report.add_info(device, port::INFO, &[("netdev", "eth0")]);
    report.push(device, port::LINK_DOWNED, 0.0);
    report.push(device, port::SYMBOL_ERRORS, 0.0);
    push_link(&mut report, second, "eth0", true, counts);
    report
}

#[test]
fn errors_that_only_the_network_device_of_a_port_counts_are_those_of_the_port() {
    let found = found_of_kinds(&[FindingKind::LinkErrors], 60, 8, |second, node| {
        let errors = if node == 3 { second as f64 * 5.0 } else { 0.0 };
        page_of_port_with_netdev(second, node, [2.0, errors])
    });
    assert_eq!(found, ["link_errors/gpu003/mlx5_0/1"]);
    let found = found_of_kinds(&[FindingKind::LinkErrors], 60, 8, |second, node| {
        let mut report = page_of_port_with_netdev(second, node, [2.0, 0.0]);
        let device = report.ensure_device(Device::new_netdev("eth0"));
        let errors = if node == 3 { second as f64 * 5.0 } else { 0.0 };
        report.push(device, ethernet::PCS_SYMBOL_ERRORS, errors);
        report
    });
    assert_eq!(found, ["link_errors/gpu003/mlx5_0/1"]);
}

#[test]
fn port_flaps_where_only_its_network_device_counts_the_carrier() {
    let found = found_of_kinds(&[FindingKind::PortDown], 100, 8, |second, node| {
        let falls = if node == 3 { (second / 40) as f64 } else { 0.0 };
        page_of_port_with_netdev(second, node, [2.0 + 2.0 * falls, 0.0])
    });
    assert_eq!(found, ["port_down/gpu003/mlx5_0/1"]);
}
