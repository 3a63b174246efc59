//! Tests of line rates: adapters that are slower by design, and ports that are not.

use gaunt_schema::{
    Device, Dialect, FindingKind, Report,
    catalogue::{gpu, port},
};

use super::telemetry_tests::TargetFixture;

mod netdev_tests;

const GBIT: f64 = 1e9 / 8.0;

/// A page with ports of these names and rates in Gbit/s.
fn page_of_ports(second: i64, node: usize, ports: &[(String, f64)]) -> Report {
    page_with_unused(second, node, ports, "")
}

/// The same; the port of this name is down.
fn page_with_unused(second: i64, node: usize, ports: &[(String, f64)], unused: &str) -> Report {
    let mut report = Report {
        node: Some(format!("gpu{node:03}").as_str().into()),
        node_time: Some(gaunt_schema::UnixMs(second * 1_000)),
        ..Report::default()
    };
    for (name, gbit) in ports {
        let device = report.ensure_device(Device::new_port(name, "1"));
        let (state, physical) = if name == unused { (1.0, 2.0) } else { (4.0, 5.0) };
        report.push(device, port::STATE, state);
        report.push(device, port::PHYSICAL_STATE, physical);
        report.push(device, port::RATE, gbit * GBIT);
        report.push(device, port::RECEIVE_BYTES, second as f64 * 1e9);
    }
    report
}

/// A page with ports of these names, adapter types and rates in Gbit/s; their link layer is unknown.
fn page_of_adapters(second: i64, node: usize, ports: &[(&str, &str, f64)]) -> Report {
    let rates: Vec<(String, f64)> =
        ports.iter().map(|(name, _, rate)| ((*name).to_owned(), *rate)).collect();
    let mut report = page_of_ports(second, node, &rates);
    for (name, adapter, _) in ports {
        let device = report.ensure_device(Device::new_port(name, "1"));
        report.add_info(device, port::INFO, &[("hca_type", adapter)]);
    }
    report
}

/// The ports of these rates, with a storage adapter of another rate at a position that differs between nodes.
fn ports_with_storage(node: usize, rate: f64, storage: f64) -> Vec<(String, f64)> {
    let mut ports: Vec<(String, f64)> = (0..5).map(|slot| (format!("mlx5_{slot}"), rate)).collect();
    ports[node % 5].1 = storage;
    ports
}

fn found_after(seconds: i64, nodes: usize, page: impl Fn(i64, usize) -> Report) -> Vec<String> {
    found_of_kinds(&[FindingKind::PortRateLow], seconds, nodes, page)
}

fn found_of_kinds(
    kinds: &[FindingKind],
    seconds: i64,
    nodes: usize,
    page: impl Fn(i64, usize) -> Report,
) -> Vec<String> {
    let addresses: Vec<String> = (0..nodes).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        addresses.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(seconds, page);
    let findings = fixture.judge.open_findings().into_iter();
    findings
        .filter(|finding| kinds.contains(&finding.kind))
        .map(|finding| finding.id.clone())
        .collect()
}

#[test]
fn slow_port_of_one_of_two_nodes_is_found_by_what_it_carries() {
    let found = |slow_on: &[usize], carries: bool| {
        found_after(60, 2, |second, node| {
            let rate = |slot| if slot == 2 && slow_on.contains(&node) { 200.0 } else { 400.0 };
            let ports: Vec<_> = (0..5).map(|slot| (format!("mlx5_{slot}"), rate(slot))).collect();
            let mut page = page_of_ports(second, node, &ports);
            for (slot, _) in ports.iter().enumerate() {
                let device = page.ensure_device(Device::new_port(&format!("mlx5_{slot}"), "1"));
                let seconds = if slot != 2 || carries { second } else { 1 };
                page.push(device, port::TRANSMIT_BYTES, seconds as f64 * 2e9);
            }
            page
        })
    };
    assert_eq!(found(&[1], true), ["port_rate_low/gpu001/mlx5_2/1"]);
    assert_eq!(found(&[1], false), [""; 0], "an adapter for something else");
    assert_eq!(found(&[0, 1], true), [""; 0], "the design");
}

#[test]
fn busy_port_of_one_of_two_nodes_is_found_by_what_its_faster_namesake_carries() {
    let mut fixture = TargetFixture::new(&[("a:9770", Dialect::Gaunt), ("b:9770", Dialect::Gaunt)]);
    // The job pauses after 100 s; each node sends so many Gbit/s before.
    let page = |gbit: f64| {
        move |second: i64, node: usize| {
            let ports = [("mlx5_0".to_owned(), [10.0, 2.5][node])];
            let mut page = page_of_ports(second, node, &ports);
            let port = page.ensure_device(Device::new_port("mlx5_0", "1"));
            page.samples.retain(|sample| sample.metric != port::RECEIVE_BYTES);
            for metric in [port::RECEIVE_BYTES, port::TRANSMIT_BYTES] {
                page.push(port, metric, second.min(100) as f64 * gbit * GBIT);
            }
            let device = page.ensure_device(Device::new_gpu(0));
            page.add_info(device, gpu::JOB_INFO, &[("job", "train")]);
            page.push(device, gpu::UTILIZATION, 0.9);
            page
        }
    };
    fixture.run(60, page(1.7));
    assert_eq!(fixture.open_ids(), ["port_rate_low/gpu001/mlx5_0/1"]);
    let finding = fixture.judge.open_findings()[0];
    assert!(finding.summary.as_str().contains("runs at 2.5 of 10 Gb/s"), "{}", finding.summary);
    let openings = |fixture: &TargetFixture| {
        let open = fixture.judge.open_findings().into_iter();
        open.filter(|found| found.kind == FindingKind::PortRateLow)
            .map(|it| it.life.openings)
            .sum::<u32>()
    };
    fixture.run(100, page(1.7));
    assert_eq!(openings(&fixture), 1, "a pause does not close it");
    let targets = [("a:9770", Dialect::Gaunt), ("b:9770", Dialect::Gaunt)];
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(60, page(0.3));
    assert_eq!(openings(&fixture), 0, "it keeps nobody waiting");
}

#[test]
fn adapter_that_is_slower_on_every_node_is_the_design_whatever_its_name() {
    let found = found_after(60, 5, |second, node| {
        page_of_ports(second, node, &ports_with_storage(node, 400.0, 100.0))
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn adapter_with_the_same_low_rate_on_a_third_of_the_nodes_is_the_design() {
    let rates = [25.0, 100.0, 200.0, 25.0, 100.0, 200.0, 25.0, 100.0, 200.0];
    let page = |second, node: usize| {
        page_of_ports(second, node, &ports_with_storage(node, 400.0, rates[node]))
    };
    assert_eq!(found_after(60, 9, page), [""; 0]);
    // One that is alone with its rate is a fault all the same.
    let page = |second, node: usize| {
        let rate = if node == 4 { 10.0 } else { rates[node] };
        page_of_ports(second, node, &ports_with_storage(node, 400.0, rate))
    };
    assert_eq!(found_after(60, 9, page), ["port_rate_low/gpu004/mlx5_4/1"]);
}

#[test]
fn slow_port_that_only_some_nodes_use_is_no_fault_of_either() {
    // 25 Gbit/s for management, without a cable on three and on five of eight nodes.
    for unused_on in [3, 5] {
        let kinds = [FindingKind::PortRateLow, FindingKind::PortDown];
        let found = found_of_kinds(&kinds, 60, 8, |second, node| {
            let ports = [("mlx5_0", 200.0), ("mlx5_1", 100.0), ("mlx5_2", 25.0)];
            let ports = ports.map(|(name, rate)| (name.to_owned(), rate));
            page_with_unused(second, node, &ports, if node < unused_on { "mlx5_2" } else { "" })
        });
        assert_eq!(found, [""; 0], "without a cable on {unused_on}");
    }
}

#[test]
fn port_below_those_of_most_nodes_is_found_at_the_first_look() {
    let found = found_after(30, 5, |second, node| {
        let mut ports: Vec<(String, f64)> =
            (0..4).map(|slot| (format!("mlx5_{slot}"), 400.0)).collect();
        ports.push(("mlx5_4".to_owned(), 100.0));
        if node == 3 {
            ports[1].1 = 100.0;
        }
        page_of_ports(second, node, &ports)
    });
    assert_eq!(found, ["port_rate_low/gpu003/mlx5_1/1"]);
}

#[test]
fn port_that_fell_below_the_storage_adapter_is_the_only_one() {
    let rates = |fallen: f64| {
        move |second, node| {
            let mut ports = ports_with_storage(node, 400.0, 200.0);
            if node == 3 {
                ports[1].1 = fallen;
            }
            page_of_ports(second, node, &ports)
        }
    };
    for fallen in [100.0, 200.0] {
        let found = found_after(30, 6, rates(fallen));
        assert_eq!(found.len(), 1, "{fallen}: {found:?}");
    }
    let found = found_after(60, 6, |second, node| {
        rates(if second > 30 { 200.0 } else { 400.0 })(second, node)
    });
    assert_eq!(found, ["port_rate_low/gpu003/mlx5_1/1"], "although the names of the others differ");
    let found = found_after(30, 6, rates(100.0));
    assert_eq!(found, ["port_rate_low/gpu003/mlx5_1/1"]);
}

#[test]
fn node_whose_ports_are_all_slow_is_found() {
    let found = found_after(30, 6, |second, node| {
        let rate = if node == 2 { 200.0 } else { 400.0 };
        let ports: Vec<(String, f64)> = (0..2).map(|slot| (format!("mlx5_{slot}"), rate)).collect();
        page_of_ports(second, node, &ports)
    });
    assert_eq!(found, ["port_rate_low/gpu002/mlx5_0/1", "port_rate_low/gpu002/mlx5_1/1"]);
}

#[test]
fn with_fewer_than_three_other_nodes_only_a_fall_is_a_fault() {
    let found = found_after(60, 3, |second, node| {
        let fell = if node == 1 && second > 30 { 200.0 } else { 400.0 };
        let ports = [("mlx5_0", 400.0), ("mlx5_1", fell), ("mlx5_2", 400.0), ("mlx5_3", 100.0)];
        let ports = ports.map(|(name, rate)| (name.to_owned(), rate));
        page_of_ports(second, node, &ports)
    });
    assert_eq!(found, ["port_rate_low/gpu001/mlx5_1/1"]);
}

#[test]
fn slower_adapter_of_another_model_is_no_fault_beside_faster_ones() {
    let fast = [("mlx5_0", "MT4129", 400.0), ("mlx5_1", "MT4129", 400.0)];
    for nodes in [1, 5] {
        let found = found_after(60, nodes, |second, node| {
            let third =
                if node == 0 { ("mlx5_2", "MT4125", 100.0) } else { ("mlx5_2", "MT4129", 400.0) };
            page_of_adapters(second, node, &[fast[0], fast[1], third])
        });
        assert_eq!(found, [""; 0], "{nodes} nodes");
    }
    let found = found_after(30, 5, |second, node| {
        let rate = if node == 0 { 100.0 } else { 400.0 };
        page_of_adapters(second, node, &[fast[0], fast[1], ("mlx5_2", "MT4129", rate)])
    });
    assert_eq!(found, ["port_rate_low/gpu000/mlx5_2/1"], "the same model");
}

#[test]
fn adapter_of_unknown_model_is_not_compared_with_known_ones() {
    let found = found_after(60, 5, |second, node| {
        let rate = if node == 0 { 100.0 } else { 400.0 };
        let ports = [("mlx5_0", "MT4129", 400.0), ("mlx5_1", "MT4129", rate)];
        if node == 0 {
            let bare: Vec<(String, f64)> =
                ports.iter().map(|(name, _, rate)| ((*name).to_owned(), *rate)).collect();
            return page_of_ports(second, node, &bare);
        }
        page_of_adapters(second, node, &ports)
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn node_at_half_the_rate_of_all_others_is_found_whatever_the_names_of_its_devices() {
    let found = found_after(30, 6, |second, node| {
        let rate = if node == 2 { 200.0 } else { 400.0 };
        let (first, other) = if node == 2 { ("mlx5_4", "mlx5_5") } else { ("mlx5_0", "mlx5_1") };
        page_of_adapters(second, node, &[(first, "MT4129", rate), (other, "MT4129", rate)])
    });
    assert_eq!(found, ["port_rate_low/gpu002/mlx5_4/1", "port_rate_low/gpu002/mlx5_5/1"]);
}
