//! Tests of several exporters on one node: their pages become one node, and each GPU one GPU.

use gaunt_schema::{
    Delivery, Device, DeviceClass, Dialect, MetricId, Reading, Report, UnixMs,
    catalogue::{gpu, gpu_health, port, service, switch_port},
};

use super::{
    Cluster, NodeFreshness,
    tests::{new_cluster, new_targets, node_report, row_of, send_page},
};

/// A GPU's name on a page, its identity labels, and a reading.
type GpuOnPage<'a> = (&'a str, &'a [(&'a str, &'a str)], f64);

/// A page of GPUs by number with their identity labels, each with one reading.
fn gpu_report(node: &str, metric: MetricId, gpus: &[GpuOnPage<'_>]) -> Report {
    let mut page = Report { node: Some(node.into()), ..Report::default() };
    for (name, identity, value) in gpus {
        let device = Device { class: DeviceClass::Gpu, key: [(*name).into()].into() };
        let index = page.ensure_device(device);
        page.push(index, metric, *value);
        page.add_info(index, gpu::INFO, identity);
    }
    page
}

fn value_of(cluster: &Cluster, metric: MetricId, device: &Device) -> Option<f64> {
    cluster.current_value(metric, row_of(cluster, "a", device))
}

#[test]
fn gpu_is_identified_by_uuid_then_pci_address_then_index() {
    let mut cluster = new_cluster(&[
        (1, "a:9770", None),
        (2, "a:9835", None),
        (3, "a:5000", None),
        (4, "a:9400", None),
    ]);
    let native: [GpuOnPage<'_>; 3] = [
        ("0", &[("uuid", "GPU-AAAA"), ("pci_bus_id", "00000000:1B:00.0")], 0.1),
        ("1", &[("uuid", "GPU-BBBB"), ("pci_bus_id", "00000000:9B:00.0")], 0.2),
        ("2", &[], 0.3),
    ];
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, gpu_report("a", gpu::UTILIZATION, &native));
    // The same GPUs in reverse order, identified by UUID.
    let by_uuid: [GpuOnPage<'_>; 2] =
        [("1", &[("uuid", "aaaa")], 51.0), ("0", &[("uuid", "bbbb")], 52.0)];
    send_page(
        &mut cluster,
        2,
        1_100,
        Dialect::NvidiaSmi,
        gpu_report("a", gpu::TEMPERATURE, &by_uuid),
    );
    assert_eq!(value_of(&cluster, gpu::TEMPERATURE, &Device::new_gpu(0)), Some(51.0));
    assert_eq!(value_of(&cluster, gpu::TEMPERATURE, &Device::new_gpu(1)), Some(52.0));
    // Identified by PCI address, in another spelling.
    let by_pci_address: [GpuOnPage<'_>; 1] = [("7", &[("pci_bus_id", "0000:9b:00.0")], 300.0)];
    send_page(&mut cluster, 3, 1_200, Dialect::Amd, gpu_report("a", gpu::POWER, &by_pci_address));
    assert_eq!(value_of(&cluster, gpu::POWER, &Device::new_gpu(1)), Some(300.0));
    // Identified only by number.
    let by_index: [GpuOnPage<'_>; 1] = [("2", &[], 5.0)];
    send_page(
        &mut cluster,
        4,
        1_300,
        Dialect::Dcgm,
        gpu_report("a", gpu_health::PCIE_GENERATION, &by_index),
    );
    assert_eq!(value_of(&cluster, gpu_health::PCIE_GENERATION, &Device::new_gpu(2)), Some(5.0));
    let (_, node) = cluster.node_by_name("a").unwrap();
    assert_eq!(node.device_rows(DeviceClass::Gpu).len(), 3, "three boards, whoever looks");
    assert!(cluster.tracked_targets().iter().all(|target| target.flag.is_none()));
}

#[test]
fn gpu_without_an_index_gets_it_from_a_later_page() {
    let mut cluster = new_cluster(&[(1, "a:8002", None), (2, "a:9770", None)]);
    let server: [GpuOnPage<'_>; 1] = [("GPU-aa", &[("uuid", "GPU-aa")], 0.5)];
    send_page(&mut cluster, 1, 1_000, Dialect::Triton, gpu_report("a", gpu::UTILIZATION, &server));
    let native: [GpuOnPage<'_>; 1] = [("4", &[("uuid", "GPU-aa")], 70.0)];
    send_page(&mut cluster, 2, 1_100, Dialect::Gaunt, gpu_report("a", gpu::TEMPERATURE, &native));
    assert_eq!(value_of(&cluster, gpu::UTILIZATION, &Device::new_gpu(4)), Some(0.5));
    assert_eq!(value_of(&cluster, gpu::TEMPERATURE, &Device::new_gpu(4)), Some(70.0));
}

#[test]
fn metrics_missing_on_one_page_are_ingested_from_another() {
    let mut cluster = new_cluster(&[(1, "a:9770", None), (2, "a:9400", None)]);
    let device = Device::new_gpu(0);
    let native = [(device.clone(), gpu::UTILIZATION, Reading::of(0.9))];
    let foreign = [
        (device.clone(), gpu::UTILIZATION, Reading::of(0.1)),
        (device.clone(), gpu::TENSOR_ACTIVE, Reading::of(0.4)),
    ];
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, node_report("a", None, &native));
    send_page(&mut cluster, 2, 1_100, Dialect::Dcgm, node_report("a", None, &foreign));
    assert_eq!(value_of(&cluster, gpu::UTILIZATION, &device), Some(0.9));
    assert_eq!(value_of(&cluster, gpu::TENSOR_ACTIVE, &device), Some(0.4));
}

#[test]
fn counter_of_another_source_has_no_rate_across_the_change() {
    let mut cluster = new_cluster(&[(1, "a:9770", None), (2, "a:9100", None)]);
    let device = Device::new_port("mlx5_0", "1");
    let bytes = |value: f64| [(device.clone(), port::RECEIVE_BYTES, Reading::of(value))];
    send_page(&mut cluster, 2, 1_000, Dialect::NodeExporter, node_report("a", None, &bytes(1e6)));
    send_page(&mut cluster, 2, 2_000, Dialect::NodeExporter, node_report("a", None, &bytes(2e6)));
    let row = row_of(&cluster, "a", &device);
    assert_eq!(cluster.current_rate(port::RECEIVE_BYTES, row), Some(1e6));
    send_page(&mut cluster, 1, 2_500, Dialect::Gaunt, node_report("a", None, &bytes(9e9)));
    assert_eq!(cluster.current_rate(port::RECEIVE_BYTES, row), None);
    send_page(&mut cluster, 1, 3_500, Dialect::Gaunt, node_report("a", None, &bytes(9e9 + 5.0)));
    assert_eq!(cluster.current_rate(port::RECEIVE_BYTES, row), Some(5.0));
}

/// dcgm-exporter samples every 30 s and is scraped every second: one new sample in thirty, and no burst.
#[test]
fn repeated_value_is_not_a_new_sample() {
    let mut cluster = new_cluster(&[(1, "a:9400", None)]);
    let device = Device::new_gpu(0);
    for second in 0..=95_i64 {
        let sample_index = second / 30;
        let page = [
            (device.clone(), gpu::ENERGY, Reading::of(1e6 + 9_000.0 * sample_index as f64)),
            (device.clone(), gpu::POWER, Reading::of(300.0 + sample_index as f64)),
        ];
        let at = 10_000 + second * 1_000;
        send_page(&mut cluster, 1, at, Dialect::Dcgm, node_report("a", None, &page));
        cluster.advance_to(UnixMs(at));
        let gpu = row_of(&cluster, "a", &device);
        let (rate, power) =
            (cluster.current_rate(gpu::ENERGY, gpu), cluster.current_value(gpu::POWER, gpu));
        assert_eq!(power, Some(300.0 + sample_index as f64), "after {second} s");
        assert_eq!(rate, (second >= 30).then_some(300.0), "after {second} s");
        let (_, node) = cluster.node_by_name("a").unwrap();
        assert_eq!(cluster.node_freshness(node), NodeFreshness::Live);
    }
    // A page that repeats itself for longer than the longest sampling interval reports that nothing changes.
    let constant = [
        (device.clone(), gpu::ENERGY, Reading::of(2e6)),
        (device.clone(), gpu::POWER, Reading::of(60.0)),
    ];
    for second in 0..70_i64 {
        send_page(
            &mut cluster,
            1,
            200_000 + second * 1_000,
            Dialect::Dcgm,
            node_report("a", None, &constant),
        );
    }
    let gpu = row_of(&cluster, "a", &device);
    assert_eq!(cluster.current_rate(gpu::ENERGY, gpu), Some(0.0));
}

#[test]
fn model_servers_of_one_node_are_all_ingested() {
    let mut cluster = new_cluster(&[(1, "a:8000", None), (2, "a:8001", None)]);
    let queue =
        |value: f64| [(Device::new_service("", "llama"), service::WAITING, Reading::of(value))];
    send_page(&mut cluster, 1, 1_000, Dialect::Vllm, node_report("a", None, &queue(3.0)));
    send_page(&mut cluster, 2, 1_100, Dialect::Vllm, node_report("a", None, &queue(9.0)));
    assert!(cluster.tracked_targets().iter().all(|target| target.flag.is_none()));
    for (address, waiting) in [("a:8000", 3.0), ("a:8001", 9.0)] {
        let server = Device::new_service(address, "llama");
        assert_eq!(value_of(&cluster, service::WAITING, &server), Some(waiting), "{address}");
    }
}

#[test]
fn switch_without_a_name_has_that_of_its_node() {
    let mut cluster = new_cluster(&[(1, "snmp:9116", Some("a"))]);
    let port = [(Device::new_switch_port("", "swp1"), switch_port::UP, Reading::of(1.0))];
    send_page(&mut cluster, 1, 1_000, Dialect::Snmp, node_report("other", None, &port));
    assert_eq!(
        value_of(&cluster, switch_port::UP, &Device::new_switch_port("a", "swp1")),
        Some(1.0)
    );
}

#[test]
fn labels_of_a_removed_target_are_dropped() {
    let mut cluster = new_cluster(&[(1, "a:9770", None), (2, "a:9400", None)]);
    let native: [GpuOnPage<'_>; 1] = [("0", &[("model", "ours")], 0.1)];
    let foreign: [GpuOnPage<'_>; 1] = [("0", &[("model", "theirs")], 0.2)];
    let model = |cluster: &Cluster| {
        let gpu = row_of(cluster, "a", &Device::new_gpu(0));
        cluster
            .device_at(DeviceClass::Gpu, gpu)
            .unwrap()
            .info_label(gpu::INFO, "model")
            .map(ToString::to_string)
    };
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, gpu_report("a", gpu::UTILIZATION, &native));
    send_page(&mut cluster, 2, 1_100, Dialect::Dcgm, gpu_report("a", gpu::TEMPERATURE, &foreign));
    assert_eq!(model(&cluster).as_deref(), Some("ours"));
    cluster.ingest_delivery(Delivery::Targets(new_targets(&[(2, "a:9400", None)])));
    send_page(&mut cluster, 2, 2_100, Dialect::Dcgm, gpu_report("a", gpu::TEMPERATURE, &foreign));
    assert_eq!(model(&cluster).as_deref(), Some("theirs"));
}

/// Names of nodes with their dialects, after each target reported the node name of its page twice.
fn joined_nodes(targets: &[(&str, Dialect, &str)]) -> Vec<(String, Vec<Dialect>)> {
    let listed: Vec<_> = (1..).zip(targets).map(|(id, target)| (id, target.0, None)).collect();
    let mut cluster = new_cluster(&listed);
    for at in [1_000, 2_000] {
        for (id, (_, dialect, name)) in (1..).zip(targets) {
            let page = gpu_report(name, gpu::UTILIZATION, &[("0", &[], 0.5)]);
            send_page(&mut cluster, id, at, *dialect, page);
        }
    }
    let nodes = cluster.sorted_nodes().filter(|(_, node)| !node.sources.is_empty());
    let dialects = |node: &super::Node| node.sources.iter().map(|source| source.dialect).collect();
    nodes.map(|(_, node)| (node.name.to_string(), dialects(node))).collect()
}

#[test]
fn exporters_of_one_host_are_one_node_whatever_they_call_it() {
    use Dialect::{Dcgm, NodeExporter};
    let both = |name: &str| vec![(name.to_owned(), vec![NodeExporter, Dcgm])];
    for name in ["localhost", "dcgm-exporter-x7k2p", "GPU007", "gpu007.hpc.example", ""] {
        let targets = [("10.0.0.7:9400", Dcgm, name), ("10.0.0.7:9100", NodeExporter, "gpu007")];
        assert_eq!(joined_nodes(&targets), both("gpu007"), "{name}");
    }
}

#[test]
fn names_in_other_spellings_are_one_node_and_localhost_is_no_name() {
    use Dialect::{Dcgm, NodeExporter};
    let targets = [("a:9400", Dcgm, "gpu007.hpc.example"), ("b:9100", NodeExporter, "GPU007")];
    assert_eq!(joined_nodes(&targets), [("GPU007".to_owned(), vec![NodeExporter, Dcgm])]);
    let targets = [("10.0.0.7:9400", Dcgm, "localhost"), ("10.0.0.8:9400", Dcgm, "localhost")];
    let nodes = joined_nodes(&targets);
    assert_eq!(
        nodes.iter().map(|node| node.0.as_str()).collect::<Vec<_>>(),
        ["10.0.0.7", "10.0.0.8"]
    );
}

#[test]
fn node_is_not_named_after_the_pod_of_an_exporter() {
    use Dialect::Dcgm;
    let name_of = |address, reported| joined_nodes(&[(address, Dcgm, reported)]).remove(0).0;
    assert_eq!(name_of("gpu007:9400", "nvidia-dcgm-exporter-x7k2p"), "gpu007");
    assert_eq!(name_of("10.0.0.7:9400", "dcgm-exporter-x7k2p"), "10.0.0.7");
    assert_eq!(name_of("127.0.0.1:9400", "dcgm-exporter-x7k2p"), "dcgm-exporter-x7k2p");
    assert_eq!(name_of("10.0.0.7:9400", "gpu-exporter-x7k2p"), "gpu-exporter-x7k2p");
    assert_eq!(name_of("10.0.0.7:9400", "dcgm-exporter-host"), "dcgm-exporter-host");
}

#[test]
fn machines_behind_one_address_stay_apart() {
    use Dialect::{Dcgm, NodeExporter};
    let targets = [
        ("127.0.0.1:9401", Dcgm, "gpu001"),
        ("127.0.0.1:9402", Dcgm, "gpu002"),
        ("127.0.0.1:9101", NodeExporter, "gpu001"),
        ("127.0.0.1:9102", NodeExporter, "gpu002"),
    ];
    let nodes = joined_nodes(&targets);
    assert_eq!(nodes.iter().map(|node| node.0.as_str()).collect::<Vec<_>>(), ["gpu001", "gpu002"]);
    let domains = [("c:9400", Dcgm, "gpu1.a.example"), ("d:9100", NodeExporter, "gpu1.b.example")];
    assert_eq!(joined_nodes(&domains).len(), 2);
}

#[test]
fn node_that_another_exporter_names_better_leaves_no_other_node() {
    let mut cluster = new_cluster(&[(1, "10.0.0.7:9400", None), (2, "10.0.0.7:9100", None)]);
    let gpus: [GpuOnPage<'_>; 1] = [("0", &[("uuid", "GPU-AAAA")], 0.5)];
    let nodes = |cluster: &Cluster| -> Vec<String> {
        cluster.sorted_nodes().map(|(_, node)| node.name.to_string()).collect()
    };
    let gpu_page = |at, cluster: &mut Cluster| {
        send_page(cluster, 1, at, Dialect::Dcgm, gpu_report("pod-x", gpu::UTILIZATION, &gpus));
    };
    gpu_page(1_000, &mut cluster);
    assert_eq!(nodes(&cluster), ["pod-x"]);
    let host = node_report("gpu7.example.org", None, &[]);
    send_page(&mut cluster, 2, 1_100, Dialect::NodeExporter, host);
    gpu_page(2_000, &mut cluster);
    assert_eq!(nodes(&cluster), ["gpu7.example.org"]);
    let gpu = row_of(&cluster, "gpu7.example.org", &Device::new_gpu(0));
    assert_eq!(cluster.current_value(gpu::UTILIZATION, gpu), Some(0.5));
    assert_eq!(cluster.row_count(DeviceClass::Gpu), 1, "its row is used again");
}
