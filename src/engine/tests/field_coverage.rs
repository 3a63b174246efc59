//! Tests that every declared field of every subject is filled by some row of a simulated fleet, and every value of a node.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_schema::{
    DeviceClass, Dialect, JobList, MetricId, NodeLocation, PortLocation, RejectionCounts, Report,
    SchedulerJob, ScrapedPage, SourceTopology, TopologyOrigin,
    catalogue::{gpu, gpu_parts, port},
    device::Device,
    unit::MetricKind,
};

use gaunt_sim::suite::SingleFaultFleet;

use super::*;
use gaunt_api::{Filter, FindingAction, FindingCommand};

/// Faults whose findings blame a port, a GPU, a job, a leaf and a rail.
const FAULTS: [FindingKind; 5] = [
    FindingKind::PortDown,
    FindingKind::ComputeStraggler,
    FindingKind::CollectiveHang,
    FindingKind::LeafCongested,
    FindingKind::RailSlow,
];

/// Seconds that a fault lasts, and seconds after which its finding is closed.
const LASTS_S: f64 = 90.0;
const CLOSED_S: u64 = 150;

/// Fields that no row of any fleet can fill, and why.
const EXCEPTIONS: [(Subject, &str, &str); 1] =
    [(Subject::Findings, "closed", "an open finding has no time of closing")];

/// The node whose page has every metric, and its target.
const FULL_NODE: &str = "full01";
const FULL_TARGET: u32 = 1_000;

/// A page with every metric of the devices that are rows.
fn full_page(at: UnixMs) -> Report {
    let mut report = Report { node: Some(FULL_NODE.into()), ..Report::default() };
    let process = Device::new_gpu_part(DeviceClass::Process, 0, 4711);
    let devices =
        [Device::new_node(), Device::new_gpu(0), Device::new_port("mlx5_0", "1"), process];
    for device in devices {
        let class = device.class;
        let row = report.ensure_device(device);
        let of_class = |id: &MetricId| id.catalogue_row().class == class;
        for id in MetricId::all_ids().filter(of_class) {
            match id.catalogue_row().kind {
                MetricKind::Counter(_) => report.push(row, id, at.0 as f64),
                MetricKind::Gauge => report.push(row, id, 1.0),
                MetricKind::Info => {}
            }
        }
        match class {
            DeviceClass::Gpu => {
                let names = [("uuid", "GPU-1"), ("model", "H100"), ("serial", "12")];
                let location = [("pci_bus_id", "0000:1a:00.0")];
                report.add_info(row, gpu::INFO, &[&names[..], &location].concat());
                let job = [("job", "900"), ("rank", "0"), ("namespace", "ml"), ("pod", "train-0")];
                report.add_info(row, gpu::JOB_INFO, &job);
            }
            DeviceClass::Port => {
                let labels = [("netdev", "eth0"), ("gpu_pci_bus_ids", "0000:1a:00.0")];
                report.add_info(row, port::INFO, &labels);
            }
            DeviceClass::Process => {
                let process_labels = [("name", "python"), ("user", "sam"), ("job", "900")];
                let location = [("namespace", "ml"), ("pod", "train-0"), ("container", "main")];
                report.add_info(
                    row,
                    gpu_parts::PROCESS_INFO,
                    &[&process_labels[..], &location].concat(),
                );
            }
            _ => {}
        }
    }
    report
}

/// The job on that page as a scheduler lists it.
fn declared_job() -> JobList {
    let job = SchedulerJob {
        id: "900".into(),
        name: Some("train".into()),
        user: Some("sam".into()),
        account: Some("lab".into()),
        partition: Some("batch".into()),
        started: Some(START),
        ..SchedulerJob::default()
    };
    JobList { source: "squeue".into(), jobs: vec![job] }
}

/// Where all nodes are, as an operator declares it: four below each leaf.
fn declared_topology(fleet: &SimFleet) -> SourceTopology {
    let mut topology = SourceTopology::new("topology.toml".into(), TopologyOrigin::Declared);
    topology.nodes.push(NodeLocation {
        node: FULL_NODE.into(),
        rack: Some("r1".into()),
        domain: Some("nvl1".into()),
        leaf: None,
    });
    let names = (0..fleet.node_count()).map(|node| fleet.node_name(node)).chain([FULL_NODE]);
    for (node, name) in names.enumerate() {
        topology.ports.extend((0..2).map(|rail| PortLocation {
            node: name.into(),
            device: format!("mlx5_{rail}").into(),
            port: None,
            guid: None,
            rail: Some(rail.to_string().into()),
            leaf: Some(format!("leaf-{}", node / 4).into()),
            switch_port: Some((1 + node % 4).to_string().into()),
        }));
    }
    topology
}

/// A fleet with a fault that ends, the node whose page is full, and a target that cannot be reached.
struct FaultyRun {
    fleet: SingleFaultFleet,
    engine: Engine,
    now: UnixMs,
}

/// Fields by subject that no row filled yet.
type UnfilledFields = BTreeMap<Subject, BTreeSet<&'static str>>;

impl FaultyRun {
    fn new(kind: FindingKind) -> Self {
        let fleet = SingleFaultFleet::with_end(kind, 7, START, LASTS_S);
        let mut engine = Engine::new(EngineOptions::default());
        let target = |id| ScrapeTarget {
            id: TargetId(id),
            address: format!("127.1.0.1:{id}").into(),
            node: None,
            origin: "test".into(),
        };
        let more = [FULL_TARGET, FULL_TARGET + 1].map(target);
        let targets = fleet.scrape_targets().into_iter().chain(more);
        engine.ingest_delivery(Delivery::Targets(targets.collect()));
        engine.ingest_delivery(Delivery::Topology(declared_topology(fleet.fleet())));
        engine.ingest_delivery(Delivery::Jobs(declared_job()));
        Self { fleet, engine, now: START }
    }

    fn step_second(&mut self) {
        self.now = self.now + Duration::from_secs(1);
        let page = ScrapedPage {
            report: full_page(self.now),
            dialect: Dialect::Gaunt,
            bytes: 1,
            rejected: RejectionCounts::default(),
        };
        let failure = ScrapeFailure::Connect("connection refused".into());
        let more = [(FULL_TARGET, Ok(page)), (FULL_TARGET + 1, Err(failure))];
        let more = more.map(|(id, outcome)| {
            let target = TargetId(id);
            Batch { target, at: self.now, duration_ms: 1.0, outcome }
        });
        for batch in self.fleet.scrape_at(self.now).into_iter().chain(more) {
            self.engine.ingest_delivery(Delivery::Batch(batch));
        }
        self.engine.run_tick(self.now);
    }

    /// Acknowledges every open finding.
    fn acknowledge_findings(&mut self) {
        for finding in &self.engine.findings.clone().findings {
            let command = FindingCommand::Acknowledge { note: "being repaired".into() };
            let act = FindingAction {
                finding: finding.id.clone(),
                by: "sam".into(),
                command,
                seen: None,
            };
            self.engine.handle_action(&act);
        }
    }

    /// Removes the fields that some row fills.
    fn remove_filled(&self, unfilled: &mut UnfilledFields) {
        let view = self.engine.view();
        for (subject, names) in unfilled {
            let rows = view.subject_rows(&Filter::parse(*subject, "").unwrap());
            let all: Vec<u32> = (0..rows.len() as u32).collect();
            names.retain(|name| {
                let field = subject.find_field(name).unwrap();
                if !field.is_text() {
                    return rows.collect_numbers(field.key, &all).iter().all(|n| n.is_nan());
                }
                let texts = rows.collect_texts(field.key, &all);
                !all.iter().any(|row| texts.row_texts(*row as usize).any(|text| !text.is_empty()))
            });
        }
    }
}

#[test]
fn field_is_filled_by_a_row_or_excepted_with_its_reason() {
    let names = |subject: Subject| subject.all_fields().iter().map(|field| field.name.as_str());
    let mut unfilled: UnfilledFields =
        Subject::ALL.into_iter().map(|subject| (subject, names(subject).collect())).collect();
    for kind in FAULTS {
        let mut run = FaultyRun::new(kind);
        let end = run.fleet.onset_time() + Duration::from_secs(CLOSED_S);
        while run.now < end {
            run.step_second();
            if run.now.0 % 10_000 == 0 {
                run.acknowledge_findings();
                run.remove_filled(&mut unfilled);
            }
        }
    }
    let unfilled: Vec<(Subject, &str)> =
        unfilled.iter().flat_map(|(of, names)| names.iter().map(|name| (*of, *name))).collect();
    assert_eq!(unfilled, EXCEPTIONS.map(|(subject, name, _why)| (subject, name)));
}

#[test]
fn node_answer_has_every_value_of_its_page() {
    let mut run = EngineTestRun::new("healthy", 2, 1);
    for _ in 0..30 {
        run.step_period_as_text();
    }
    let report = run.fleet.node_report(0);
    let name = SanitizedText::new(run.fleet.node_name(0));
    let Answer::Node(detail) = run.engine.answer_question(&Question::Node(name)) else {
        panic!("no node")
    };
    for sample in &report.samples {
        let device = &report.devices[sample.device as usize];
        let shown = detail.devices.iter().find(|d| d.name == device.to_string().as_str()).unwrap();
        let key = sample.metric.series_key();
        assert_eq!(shown.values.get(&key), Some(&sample.reading), "{key} of {device}");
        if sample.metric.catalogue_row().history && sample.reading.value().is_some() {
            let past = shown.recent_points(&key);
            assert_eq!(past.len(), 120);
            assert!(past[past.len() - 29..].iter().all(Option::is_some), "{key} of {device}");
        }
    }
    let names: Vec<_> = detail.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names[..3], ["node", "GPU 0", "GPU 1"]);
    let unknown = run.engine.answer_question(&Question::Node("nobody".into()));
    assert!(matches!(unknown, Answer::Refused(_)));
}
