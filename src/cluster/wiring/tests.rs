//! What is where after which sources and pages said what.

use std::time::Duration;

use gaunt_schema::{
    Batch, Class, Delivery, Device, DeviceRail, Dialect, Holding, Job, JobList, NodePlace, Origin,
    Page, PortPlace, Rejected, Report, Safe, Switch, Target, TargetId, Topology, UnixMs,
    catalogue::{gpu, host, port},
};

use crate::cluster::{Cluster, JobTold, NodeId};

/// A page of a node with two GPUs and two ports, of which the second is plugged into `page-leaf`.
fn page(node: &str, job: Option<&str>) -> Report {
    let mut page = Report { node: Some(node.into()), ..Report::default() };
    let own = page.device(Device::node());
    page.push(own, host::CPUS, 8.0);
    for index in 0..2 {
        let at = page.device(Device::gpu(index));
        page.push(at, gpu::UTILIZATION, 0.5);
        page.info(at, gpu::INFO, &[("pci_bus_id", &format!("00000000:{}B:00.0", index + 1))]);
        if let Some(job) = job.filter(|_| index == 0) {
            page.info(at, gpu::JOB_INFO, &[("job", job), ("user", "ann")]);
        }
    }
    for (index, leaf) in [(0, ""), (1, "page-leaf")] {
        let at = page.device(Device::port(&format!("mlx5_{index}"), "1"));
        page.push(at, port::STATE, 4.0);
        let near = format!("0000:{}b:00.0", index + 1);
        let netdev = format!("rdma{index}");
        let labels =
            [("netdev", netdev.as_str()), ("gpu_pci_bus_ids", near.as_str()), ("leaf", leaf)];
        page.info(at, port::INFO, &labels);
    }
    page
}

/// A cluster in which each of these nodes was read once.
fn cluster(nodes: &[(&str, Option<&str>)]) -> Cluster {
    let mut cluster = Cluster::new(Duration::from_secs(1), 10);
    let target = |(id, (node, _)): (u32, &(&str, Option<&str>))| Target {
        id: TargetId(id),
        address: (*node).into(),
        node: None,
        origin: "test".into(),
    };
    cluster.accept(Delivery::Targets((0..).zip(nodes).map(target).collect()));
    for (id, (node, job)) in (0..).zip(nodes) {
        let outcome = Ok(Page {
            report: page(node, *job),
            dialect: Dialect::Gaunt,
            bytes: 1,
            rejected: Rejected::default(),
        });
        let (target, at) = (TargetId(id), UnixMs(1_000));
        cluster.accept(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
    }
    cluster.advance(UnixMs(1_000));
    cluster
}

fn tell(cluster: &mut Cluster, topology: Topology) {
    cluster.accept(Delivery::Topology(topology));
    cluster.advance(cluster.now());
}

fn named(cluster: &Cluster, node: &str) -> NodeId {
    cluster.named(node).unwrap().0
}

/// Leaf and rail of a port, with who says so.
fn port_of(cluster: &Cluster, node: &str, device: &str) -> (Option<String>, Option<String>) {
    let (_, node) = cluster.named(node).unwrap();
    let row = node.rows(Class::Port).iter().find(|row| {
        cluster.device(Class::Port, **row).unwrap().device == Device::port(device, "1")
    });
    let place = cluster.wiring().port(*row.unwrap()).unwrap();
    let said = |told: &Option<crate::cluster::Told>| {
        told.as_ref().map(|told| format!("{} by {}", told.value, told.source))
    };
    (said(&place.leaf), said(&place.rail))
}

fn plug(node: &str, device: &str, leaf: &str) -> PortPlace {
    PortPlace {
        node: node.into(),
        device: device.into(),
        leaf: Some(leaf.into()),
        ..PortPlace::default()
    }
}

/// A text that was said by somebody.
#[expect(clippy::unnecessary_wraps, reason = "it stands beside what may be none")]
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn what_nobody_says_is_none() {
    let cluster = cluster(&[("a", None)]);
    assert_eq!(port_of(&cluster, "a", "mlx5_0"), (None, None));
    assert_eq!(port_of(&cluster, "a", "mlx5_1"), (some("page-leaf by its page"), None));
    let wiring = cluster.wiring();
    assert_eq!(wiring.node(named(&cluster, "a")), None);
    assert!(wiring.rails().is_empty() && wiring.racks().is_empty() && wiring.domains().is_empty());
    assert_eq!(wiring.leaves().keys().collect::<Vec<_>>(), ["page-leaf"]);
    assert_eq!(wiring.disputed(), 0);
}

#[test]
fn the_operator_is_believed_before_the_fabric_and_that_before_the_page() {
    let mut cluster = cluster(&[("a", None), ("b.cluster.local", None)]);
    let fabric = Topology {
        ports: vec![plug("a", "mlx5_1", "leaf-1"), plug("b", "rdma0", "leaf-1")],
        switches: vec![Switch {
            name: "leaf-1".into(),
            above: vec!["spine-2".into(), "spine-1".into()],
            rail: None,
        }],
        ..Topology::new("fabric.txt".into(), Origin::Fabric)
    };
    tell(&mut cluster, fabric.clone());
    assert_eq!(port_of(&cluster, "a", "mlx5_1").0, some("leaf-1 by fabric.txt"));
    assert_eq!(port_of(&cluster, "b.cluster.local", "mlx5_0").0, some("leaf-1 by fabric.txt"));
    assert_eq!(
        cluster.wiring().disputes()[0].as_str(),
        "a mlx5_1/1: fabric.txt says leaf-1, its page says page-leaf; the first is believed"
    );
    let leaf = &cluster.wiring().leaves()["leaf-1"];
    assert_eq!((leaf.ports.len(), leaf.nodes.len(), leaf.spines.len()), (2, 2, 2));
    assert_eq!(cluster.wiring().spines()["spine-1"], ["leaf-1"]);

    let declared = Topology {
        nodes: vec![NodePlace {
            node: "a".into(),
            rack: Some("r1".into()),
            leaf: Some("leaf-9".into()),
            domain: Some("nvl".into()),
        }],
        rails: vec![DeviceRail { device: "mlx5_0".into(), rail: "east".into() }],
        ..Topology::new("site.toml".into(), Origin::Declared)
    };
    tell(&mut cluster, declared);
    let both = (some("leaf-9 by site.toml"), some("east by site.toml"));
    assert_eq!(port_of(&cluster, "a", "mlx5_0"), both);
    assert_eq!(port_of(&cluster, "b.cluster.local", "mlx5_0").1, some("east by site.toml"));
    let a = named(&cluster, "a");
    assert_eq!(cluster.wiring().racks()["r1"], [a]);
    assert_eq!(cluster.wiring().domains()["nvl"].gpus.len(), 2);
    assert_eq!(cluster.wiring().rails()["east"].len(), 2);

    tell(&mut cluster, Topology::new("site.toml".into(), Origin::Declared));
    assert_eq!(port_of(&cluster, "a", "mlx5_1").0, some("leaf-1 by fabric.txt"));
    assert!(cluster.wiring().racks().is_empty());
}

#[test]
fn a_schedulers_leaf_is_the_nodes_and_not_its_ports() {
    let mut cluster = cluster(&[("a", None)]);
    let place = NodePlace { node: "a".into(), leaf: Some("su1".into()), ..NodePlace::default() };
    let slurm =
        Topology { nodes: vec![place], ..Topology::new("topology.conf".into(), Origin::Scheduler) };
    tell(&mut cluster, slurm);
    assert_eq!(port_of(&cluster, "a", "mlx5_0").0, None);
    let a = named(&cluster, "a");
    assert_eq!(cluster.wiring().node(a).unwrap().leaf.as_ref().unwrap().value, "su1");
    let leaf = &cluster.wiring().leaves()["su1"];
    assert_eq!((leaf.nodes.as_slice(), leaf.ports.len()), ([a].as_slice(), 0));
    assert_eq!(cluster.wiring().disputed(), 0);
}

#[test]
fn a_gpu_has_the_rail_of_the_port_beside_it() {
    let mut cluster = cluster(&[("a", None)]);
    let switch = Switch { name: "page-leaf".into(), above: vec![], rail: Some("7".into()) };
    let declared =
        Topology { switches: vec![switch], ..Topology::new("site.toml".into(), Origin::Declared) };
    tell(&mut cluster, declared);
    let (_, node) = cluster.named("a").unwrap();
    let [first, second] = node.rows(Class::Gpu) else { panic!("two GPUs") };
    assert_eq!(cluster.wiring().gpu(*second).unwrap().ports.len(), 1);
    assert_eq!(cluster.wiring().rail_of_gpu(*second).map(Safe::as_str), Some("7"));
    assert_eq!(cluster.wiring().rail_of_gpu(*first), None);
}

#[test]
fn a_page_that_names_other_devices_is_resolved_anew() {
    let mut cluster = cluster(&[("a", None)]);
    let mut page = page("a", None);
    let at = page.device(Device::port("mlx5_2", "1"));
    page.push(at, port::STATE, 4.0);
    page.info(at, port::INFO, &[("leaf", "page-leaf"), ("rail", "2")]);
    let outcome =
        Ok(Page { report: page, dialect: Dialect::Gaunt, bytes: 1, rejected: Rejected::default() });
    let (target, at) = (TargetId(0), UnixMs(2_000));
    cluster.accept(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
    cluster.advance(at);
    assert_eq!(cluster.wiring().leaves()["page-leaf"].ports.len(), 2);
    assert_eq!(port_of(&cluster, "a", "mlx5_2").1, some("2 by its page"));
}

#[test]
fn a_scheduler_says_whose_gpu_it_is_where_the_page_does_not() {
    let mut cluster = cluster(&[("a", Some("8812")), ("b.local", None), ("c", None)]);
    let holding =
        |node: &str, gpus: Option<Vec<u32>>, whole| Holding { node: node.into(), gpus, whole };
    let job = |id: &str, holds| Job {
        id: id.into(),
        name: Some("train".into()),
        account: Some("physics".into()),
        started: Some(UnixMs(5)),
        holds,
        ..Job::default()
    };
    let jobs = vec![
        job("8812", vec![holding("a", Some(vec![0]), false), holding("b", Some(vec![1]), false)]),
        job("9000", vec![holding("a", None, true), holding("c", None, false)]),
        job("9001", vec![holding("nowhere", None, true)]),
    ];
    cluster.accept(Delivery::Jobs(JobList { source: "squeue.json".into(), jobs }));
    cluster.advance(UnixMs(1_000));
    let jobs: Vec<_> =
        cluster.jobs().iter().map(|(job, gpus)| (job.as_str(), gpus.len())).collect();
    assert_eq!(jobs, [("8812", 2), ("9000", 1)]);
    let told = cluster.job_told("8812").unwrap();
    let expected = JobTold {
        name: Some("train".into()),
        user: Some("ann".into()),
        account: Some("physics".into()),
        started: Some(UnixMs(5)),
        ..JobTold::default()
    };
    assert_eq!(*told, expected);
    assert_eq!(cluster.job_told("9001"), None);
    let (_, b) = cluster.named("b.local").unwrap();
    assert_eq!(cluster.job(b.rows(Class::Gpu)[1]).map(Safe::as_str), Some("8812"));
    assert_eq!(cluster.job_size(b.rows(Class::Gpu)[1]), Some(2));
    assert_eq!(cluster.job_size(b.rows(Class::Gpu)[0]), None);

    cluster.accept(Delivery::Jobs(JobList { source: "squeue.json".into(), jobs: vec![] }));
    cluster.advance(UnixMs(1_000));
    assert_eq!(cluster.jobs().len(), 1);
}
