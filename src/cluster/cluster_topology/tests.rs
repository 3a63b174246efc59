//! Tests of the resolved topology after updates of sources and pages.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, Device, DeviceClass, DeviceRail, Dialect, FabricSwitch, JobAllocation,
    JobList, NodeLocation, PortLocation, RejectionCounts, Report, SanitizedText, SchedulerJob,
    ScrapeTarget, ScrapedPage, SourceTopology, TargetId, TopologyOrigin, UnixMs,
    catalogue::{gpu, host, port},
};

use crate::{Cluster, JobAttributes, NodeId};

/// A page of a node with two GPUs and two ports; the second is connected to `page-leaf`.
fn node_page(node: &str, job: Option<&str>) -> Report {
    let mut page = Report { node: Some(node.into()), ..Report::default() };
    let node_device = page.ensure_device(Device::new_node());
    page.push(node_device, host::CPUS, 8.0);
    for index in 0..2 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.push(device, gpu::UTILIZATION, 0.5);
        page.add_info(
            device,
            gpu::INFO,
            &[("pci_bus_id", &format!("00000000:{}B:00.0", index + 1))],
        );
        if let Some(job) = job.filter(|_| index == 0) {
            page.add_info(device, gpu::JOB_INFO, &[("job", job), ("user", "ann")]);
        }
    }
    for (index, leaf) in [(0, ""), (1, "page-leaf")] {
        let device = page.ensure_device(Device::new_port(&format!("mlx5_{index}"), "1"));
        page.push(device, port::STATE, 4.0);
        let gpu_bus_id = format!("0000:{}b:00.0", index + 1);
        let netdev = format!("rdma{index}");
        let guid = format!("guid-{node}-{index}");
        let labels = [
            ("netdev", netdev.as_str()),
            ("gpu_pci_bus_ids", gpu_bus_id.as_str()),
            ("leaf", leaf),
            ("guid", guid.as_str()),
        ];
        page.add_info(device, port::INFO, &labels);
    }
    page
}

/// A cluster in which each of these nodes was scraped once.
fn scraped_cluster(nodes: &[(&str, Option<&str>)]) -> Cluster {
    let mut cluster = Cluster::new(Duration::from_secs(1), 10);
    let target = |(id, (node, _)): (u32, &(&str, Option<&str>))| ScrapeTarget {
        id: TargetId(id),
        address: (*node).into(),
        node: None,
        origin: "test".into(),
    };
    cluster.ingest_delivery(Delivery::Targets((0..).zip(nodes).map(target).collect()));
    for (id, (node, job)) in (0..).zip(nodes) {
        let outcome = Ok(ScrapedPage {
            report: node_page(node, *job),
            dialect: Dialect::Gaunt,
            bytes: 1,
            rejected: RejectionCounts::default(),
        });
        let (target, at) = (TargetId(id), UnixMs(1_000));
        cluster.ingest_delivery(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
    }
    cluster.advance_to(UnixMs(1_000));
    cluster
}

fn apply_topology(cluster: &mut Cluster, topology: SourceTopology) {
    cluster.ingest_delivery(Delivery::Topology(topology));
    cluster.advance_to(cluster.now());
}

fn node_id(cluster: &Cluster, node: &str) -> NodeId {
    cluster.node_by_name(node).unwrap().0
}

/// Leaf and rail of a port, with their sources.
fn leaf_and_rail(cluster: &Cluster, node: &str, device: &str) -> (Option<String>, Option<String>) {
    let (_, node) = cluster.node_by_name(node).unwrap();
    let row = node.device_rows(DeviceClass::Port).iter().find(|row| {
        cluster.device_at(DeviceClass::Port, **row).unwrap().device == Device::new_port(device, "1")
    });
    let topology = cluster.topology().port_topology(*row.unwrap()).unwrap();
    let describe = |fact: &Option<crate::AttributedFact>| {
        fact.as_ref().map(|fact| format!("{} by {}", fact.value, fact.source))
    };
    (describe(&topology.leaf), describe(&topology.rail))
}

fn port_location(node: &str, device: &str, leaf: &str) -> PortLocation {
    PortLocation {
        node: node.into(),
        device: device.into(),
        leaf: Some(leaf.into()),
        ..PortLocation::default()
    }
}

/// A text with a source.
#[expect(clippy::unnecessary_wraps, reason = "it is compared with optional texts")]
fn some_text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn facts_without_a_source_are_none() {
    let cluster = scraped_cluster(&[("a", None)]);
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_0"), (None, None));
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_1"), (some_text("page-leaf by its page"), None));
    let topology = cluster.topology();
    assert_eq!(topology.node_topology(node_id(&cluster, "a")), None);
    assert!(
        topology.ports_by_rail().is_empty()
            && topology.nodes_by_rack().is_empty()
            && topology.nvlink_domains().is_empty()
    );
    assert_eq!(topology.leaf_switches().keys().collect::<Vec<_>>(), ["page-leaf"]);
    assert_eq!(topology.disputed_ports(), 0);
}

#[test]
fn operator_takes_precedence_over_fabric_and_fabric_over_page() {
    let mut cluster = scraped_cluster(&[("a", None), ("b.cluster.local", None)]);
    let fabric = SourceTopology {
        ports: vec![port_location("a", "mlx5_1", "leaf-1"), port_location("b", "rdma0", "leaf-1")],
        switches: vec![FabricSwitch {
            name: "leaf-1".into(),
            above: vec!["spine-2".into(), "spine-1".into()],
            rail: None,
        }],
        ..SourceTopology::new("fabric.txt".into(), TopologyOrigin::Fabric)
    };
    apply_topology(&mut cluster, fabric.clone());
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_1").0, some_text("leaf-1 by fabric.txt"));
    assert_eq!(
        leaf_and_rail(&cluster, "b.cluster.local", "mlx5_0").0,
        some_text("leaf-1 by fabric.txt")
    );
    assert_eq!(
        cluster.topology().dispute_sentences()[0].as_str(),
        "a mlx5_1/1: fabric.txt says leaf-1, its page says page-leaf; the first is used"
    );
    let leaf = &cluster.topology().leaf_switches()["leaf-1"];
    assert_eq!((leaf.ports.len(), leaf.nodes.len(), leaf.spines.len()), (2, 2, 2));
    assert_eq!(cluster.topology().leaves_by_spine()["spine-1"], ["leaf-1"]);

    let declared = SourceTopology {
        nodes: vec![NodeLocation {
            node: "a".into(),
            rack: Some("r1".into()),
            leaf: Some("leaf-9".into()),
            domain: Some("nvl".into()),
        }],
        rails: vec![DeviceRail { device: "mlx5_0".into(), rail: "east".into() }],
        ..SourceTopology::new("site.toml".into(), TopologyOrigin::Declared)
    };
    apply_topology(&mut cluster, declared);
    let both = (some_text("leaf-9 by site.toml"), some_text("east by site.toml"));
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_0"), both);
    assert_eq!(
        leaf_and_rail(&cluster, "b.cluster.local", "mlx5_0").1,
        some_text("east by site.toml")
    );
    let a = node_id(&cluster, "a");
    assert_eq!(cluster.topology().nodes_by_rack()["r1"], [a]);
    assert_eq!(cluster.topology().nvlink_domains()["nvl"].gpus.len(), 2);
    assert_eq!(cluster.topology().ports_by_rail()["east"].len(), 2);

    apply_topology(&mut cluster, SourceTopology::new("site.toml".into(), TopologyOrigin::Declared));
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_1").0, some_text("leaf-1 by fabric.txt"));
    assert!(cluster.topology().nodes_by_rack().is_empty());
}

#[test]
fn guid_places_a_port_whatever_the_fabric_calls_its_node() {
    let mut cluster = scraped_cluster(&[("a", None), ("b", None)]);
    let nameless = PortLocation {
        port: Some("1".into()),
        guid: Some("guid-a-0".into()),
        ..port_location("localhost", "", "leaf-1")
    };
    // Its description is from before it was renamed, when another node had this name.
    let renamed =
        PortLocation { guid: Some("guid-b-0".into()), ..port_location("a", "mlx5_0", "leaf-2") };
    let ports = vec![renamed, nameless];
    let fabric = SourceTopology::new("fabric.txt".into(), TopologyOrigin::Fabric);
    apply_topology(&mut cluster, SourceTopology { ports, ..fabric });
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_0").0, some_text("leaf-1 by fabric.txt"));
    assert_eq!(leaf_and_rail(&cluster, "b", "mlx5_0").0, some_text("leaf-2 by fabric.txt"));
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_1").0, some_text("page-leaf by its page"));
    let leaves = cluster.topology().leaf_switches();
    assert_eq!(leaves["leaf-1"].nodes, [node_id(&cluster, "a")]);
}

#[test]
fn leaf_from_a_scheduler_applies_to_the_node_and_not_to_its_ports() {
    let mut cluster = scraped_cluster(&[("a", None)]);
    let location =
        NodeLocation { node: "a".into(), leaf: Some("su1".into()), ..NodeLocation::default() };
    let slurm = SourceTopology {
        nodes: vec![location],
        ..SourceTopology::new("topology.conf".into(), TopologyOrigin::Scheduler)
    };
    apply_topology(&mut cluster, slurm);
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_0").0, None);
    let a = node_id(&cluster, "a");
    assert_eq!(cluster.topology().node_topology(a).unwrap().leaf.as_ref().unwrap().value, "su1");
    let leaf = &cluster.topology().leaf_switches()["su1"];
    assert_eq!((leaf.nodes.as_slice(), leaf.ports.len()), ([a].as_slice(), 0));
    assert_eq!(cluster.topology().disputed_ports(), 0);
}

#[test]
fn gpu_has_the_rail_of_its_nearest_port() {
    let mut cluster = scraped_cluster(&[("a", None)]);
    let switch = FabricSwitch { name: "page-leaf".into(), above: vec![], rail: Some("7".into()) };
    let declared = SourceTopology {
        switches: vec![switch],
        ..SourceTopology::new("site.toml".into(), TopologyOrigin::Declared)
    };
    apply_topology(&mut cluster, declared);
    let (_, node) = cluster.node_by_name("a").unwrap();
    let [first, second] = node.device_rows(DeviceClass::Gpu) else { panic!("two GPUs") };
    assert_eq!(cluster.topology().gpu_topology(*second).unwrap().ports.len(), 1);
    assert_eq!(cluster.topology().rail_of_gpu(*second).map(SanitizedText::as_str), Some("7"));
    assert_eq!(cluster.topology().rail_of_gpu(*first), None);
}

#[test]
fn topology_is_resolved_again_when_a_page_names_other_devices() {
    let mut cluster = scraped_cluster(&[("a", None)]);
    let mut page = node_page("a", None);
    let device = page.ensure_device(Device::new_port("mlx5_2", "1"));
    page.push(device, port::STATE, 4.0);
    page.add_info(device, port::INFO, &[("leaf", "page-leaf"), ("rail", "2")]);
    let outcome = Ok(ScrapedPage {
        report: page,
        dialect: Dialect::Gaunt,
        bytes: 1,
        rejected: RejectionCounts::default(),
    });
    let (target, at) = (TargetId(0), UnixMs(2_000));
    cluster.ingest_delivery(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
    cluster.advance_to(at);
    assert_eq!(cluster.topology().leaf_switches()["page-leaf"].ports.len(), 2);
    assert_eq!(leaf_and_rail(&cluster, "a", "mlx5_2").1, some_text("2 by its page"));
}

#[test]
fn scheduler_assigns_gpus_to_jobs_where_the_page_does_not() {
    let mut cluster = scraped_cluster(&[("a", Some("8812")), ("b.local", None), ("c", None)]);
    let allocation = |node: &str, gpus: Option<Vec<u32>>, whole| JobAllocation {
        node: node.into(),
        gpus,
        whole,
    };
    let job = |id: &str, holds| SchedulerJob {
        id: id.into(),
        name: Some("train".into()),
        account: Some("physics".into()),
        started: Some(UnixMs(5)),
        holds,
        ..SchedulerJob::default()
    };
    let jobs = vec![
        job(
            "8812",
            vec![allocation("a", Some(vec![0]), false), allocation("b", Some(vec![1]), false)],
        ),
        job("9000", vec![allocation("a", None, true), allocation("c", None, false)]),
        job("9001", vec![allocation("nowhere", None, true)]),
    ];
    cluster.ingest_delivery(Delivery::Jobs(JobList { source: "squeue.json".into(), jobs }));
    cluster.advance_to(UnixMs(1_000));
    let jobs: Vec<_> =
        cluster.gpus_by_job().iter().map(|(job, gpus)| (job.as_str(), gpus.len())).collect();
    assert_eq!(jobs, [("8812", 2), ("9000", 1)]);
    let attributes = cluster.job_attributes("8812").unwrap();
    let expected = JobAttributes {
        name: Some("train".into()),
        user: Some("ann".into()),
        account: Some("physics".into()),
        started: Some(UnixMs(5)),
        ..JobAttributes::default()
    };
    assert_eq!(*attributes, expected);
    assert_eq!(cluster.job_attributes("9001"), None);
    let (_, b) = cluster.node_by_name("b.local").unwrap();
    assert_eq!(
        cluster.job_of_gpu(b.device_rows(DeviceClass::Gpu)[1]).map(SanitizedText::as_str),
        Some("8812")
    );
    assert_eq!(cluster.job_size(b.device_rows(DeviceClass::Gpu)[1]), Some(2));
    assert_eq!(cluster.job_size(b.device_rows(DeviceClass::Gpu)[0]), None);

    cluster.ingest_delivery(Delivery::Jobs(JobList { source: "squeue.json".into(), jobs: vec![] }));
    cluster.advance_to(UnixMs(1_000));
    assert_eq!(cluster.gpus_by_job().len(), 1);
}
