//! Tests of optional telemetry: hung drivers, stale pages, queues of model servers, switches.

use std::time::Duration;

use gaunt_schema::{
    AbsenceReason, Batch, Delivery, Device, DeviceClass, Dialect, EvidenceItem, FabricCable,
    Finding, FindingKind, GpuState, MetricId, Reading, RejectionCounts, Report, ScrapeFailure,
    ScrapeTarget, ScrapedPage, Severity, SourceTopology, TargetId, TopologyOrigin, UnixMs,
    catalogue::{exporter, gpu, host, port, service, switch_port},
};

use gaunt_cluster::Cluster;
use gaunt_judge::{Judge, Thresholds};

/// Targets that are scraped once a second, with arbitrary pages.
pub(super) struct TargetFixture {
    pub(super) cluster: Cluster,
    pub(super) judge: Judge,
    dialects: Vec<Dialect>,
    pub(super) second: i64,
}

impl TargetFixture {
    pub(super) fn new(targets: &[(&str, Dialect)]) -> Self {
        let named = targets.iter().zip(0..).map(|((address, _), id)| ScrapeTarget {
            id: TargetId(id),
            address: (*address).into(),
            node: None,
            origin: "test".into(),
        });
        let cluster = cluster_at(0, named.collect());
        let dialects = targets.iter().map(|(_, dialect)| *dialect).collect();
        Self { cluster, judge: Judge::new(Thresholds::default()), dialects, second: 0 }
    }

    pub(super) fn with_limits(mut self, limits: Thresholds) -> Self {
        self.judge = Judge::new(limits);
        self
    }

    /// Continues after so many seconds with the saved findings, as after a restart.
    pub(super) fn restart_judge(&mut self, gap: i64) -> &mut Self {
        self.second += gap;
        let (findings, baselines) =
            (self.judge.snapshot_findings(), self.judge.snapshot_baselines(&self.cluster));
        let targets = self.cluster.tracked_targets().iter().map(|scraped| scraped.target.clone());
        self.cluster = cluster_at(self.second, targets.collect());
        let judge = Judge::new(Thresholds::default());
        self.judge = judge.with_findings(findings).with_baselines(baselines);
        self
    }

    /// Runs seconds in which the targets report what `page` builds from the second and the target's index.
    pub(super) fn run(&mut self, seconds: i64, page: impl Fn(i64, usize) -> Report) -> &mut Self {
        self.run_without(seconds, &[], page)
    }

    /// The same, while the targets of these indices do not answer.
    pub(super) fn run_without(
        &mut self,
        seconds: i64,
        silent: &[usize],
        page: impl Fn(i64, usize) -> Report,
    ) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            let at = UnixMs(self.second * 1_000);
            for (index, dialect) in self.dialects.clone().into_iter().enumerate() {
                let report = page(self.second, index);
                let page =
                    ScrapedPage { report, dialect, bytes: 1, rejected: RejectionCounts::default() };
                let target = TargetId(index as u32);
                let is_silent = silent.contains(&index);
                let outcome = if is_silent {
                    Err(ScrapeFailure::Timeout("connect".into()))
                } else {
                    Ok(page)
                };
                let batch = Batch { target, at, duration_ms: 1.0, outcome };
                self.cluster.ingest_delivery(Delivery::Batch(batch));
            }
            self.cluster.advance_to(at);
            self.judge.evaluate_cluster(&self.cluster);
            self.judge.open_findings().into_iter().for_each(super::assert_sourced);
        }
        self
    }

    /// The usual value of a host that is saved at this place.
    pub(super) fn saved_host_baseline(&self, node: &str, place: usize) -> f64 {
        let saved = serde_json::to_value(self.judge.snapshot_baselines(&self.cluster)).unwrap();
        saved["nodes"][node]["host"][place][0].as_f64().unwrap()
    }

    pub(super) fn open_ids(&self) -> Vec<&str> {
        self.judge.open_findings().into_iter().map(|finding| finding.id.as_str()).collect()
    }
}

pub(super) fn evidence_of<'a>(finding: &'a Finding, label: &str) -> Option<&'a EvidenceItem> {
    finding.evidence.iter().find(|item| item.what == label)
}

fn cluster_at(second: i64, targets: Vec<ScrapeTarget>) -> Cluster {
    let mut cluster = Cluster::new(Duration::from_secs(1), 600);
    cluster.ingest_delivery(Delivery::Targets(targets));
    cluster.advance_to(UnixMs(second * 1_000));
    cluster
}

pub(super) fn node_report(node: &str) -> Report {
    Report { node: Some(node.into()), ..Report::default() }
}

pub(super) fn push_reading(
    report: &mut Report,
    device: Device,
    metric: MetricId,
    reading: impl Into<Reading>,
) {
    let device = report.ensure_device(device);
    report.push(device, metric, reading.into());
}

/// Adds an active RDMA port of 400 Gb/s that has sent and received so much.
pub(super) fn push_active_port(report: &mut Report, bytes: f64) {
    for (metric, value) in [
        (port::STATE, 4.0),
        (port::PHYSICAL_STATE, 5.0),
        (port::RATE, 50e9),
        (port::TRANSMIT_BYTES, bytes),
        (port::RECEIVE_BYTES, bytes),
    ] {
        push_reading(report, Device::new_port("mlx5_0", "1"), metric, value);
    }
}

/// A node with two GPUs of one job, with this activity.
pub(super) fn busy_report(node: &str, busy: f64, tensor: f64) -> Report {
    let mut page = node_report(node);
    for index in 0..2 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        push_reading(&mut page, Device::new_gpu(index), gpu::UTILIZATION, busy);
        push_reading(&mut page, Device::new_gpu(index), gpu::TENSOR_ACTIVE, tensor);
    }
    page
}

#[test]
fn page_without_the_values_of_all_gpus_is_stale_and_one_without_those_of_one_has_lost_it() {
    let run = |left: usize, seconds: i64| {
        let mut fixture = TargetFixture::new(&[("gpu001:9400", Dialect::Dcgm)]);
        fixture.run(seconds, move |second: i64, _| {
            let mut page = node_report("gpu001");
            for index in 0..2 {
                let device = page.ensure_device(Device::new_gpu(index));
                page.add_info(device, gpu::INFO, &[("model", "H100")]);
                if second <= 60 || (index as usize) < left {
                    let power = 400.0 + (second % 7) as f64;
                    push_reading(&mut page, Device::new_gpu(index), gpu::POWER, power);
                }
            }
            page
        });
        fixture
    };
    assert_eq!(run(0, 85).open_ids(), [""; 0], "an exporter that restarts");
    let fixture = run(0, 110);
    assert_eq!(fixture.open_ids(), ["data_stale/gpu001"]);
    let found = fixture.judge.open_findings()[0];
    assert!(found.summary.contains("answers without the values of its GPUs since "), "{found:?}");
    assert_eq!(run(1, 200).open_ids(), ["gpu_failed/gpu001/1"]);
}

#[test]
fn driver_that_does_not_return_is_reported_after_long_lateness() {
    let hung = |second: i64, _| {
        let late = (31..=100).contains(&second);
        let mut page = node_report("gpu001");
        for index in 0..2 {
            let read = if late { AbsenceReason::Stale.into() } else { Reading::of(0.9) };
            push_reading(&mut page, Device::new_gpu(index), gpu::UTILIZATION, read);
        }
        let collector = page.ensure_device(Device::new_collector("nvml"));
        page.push(collector, exporter::COLLECTOR_SUCCESS, Reading::of(f64::from(!late)));
        if late {
            page.add_info(collector, exporter::COLLECTOR_INFO, &[("message", "a call is late")]);
        }
        page
    };
    let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
    assert_eq!(fixture.run(38, hung).open_ids(), [""; 0], "a call that only takes long returns");
    assert_eq!(fixture.run(10, hung).open_ids(), ["driver_hung/gpu001"]);
    let finding = fixture.judge.open_findings()[0];
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.summary, "The GPU driver of gpu001 hangs: a call is late.");
    assert_eq!(fixture.run(80, hung).open_ids(), [""; 0]);
}

#[test]
fn temperature_that_stays_for_a_minute_or_while_its_gpu_idles_is_not_stale() {
    let found = |busy: f64, with_power: bool, seconds: i64| {
        let mut fixture = TargetFixture::new(&[("gpu001:9400", Dialect::Dcgm)]);
        fixture.run(60 + seconds, move |second: i64, _| {
            let (mut page, at) = (node_report("gpu001"), second.min(60));
            let mut push = |metric, value: f64| {
                push_reading(&mut page, Device::new_gpu(0), metric, value);
            };
            push(gpu::UTILIZATION, busy);
            push(gpu::TEMPERATURE, 50.0 + (at % 3) as f64);
            if with_power {
                push(gpu::POWER, 400.0 + (at % 7) as f64);
            }
            page
        });
        fixture.open_ids().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found(0.9, true, 60), ["data_stale/gpu001"]);
    assert_eq!(found(0.9, false, 60), [""; 0]);
    assert_eq!(found(0.9, false, 150), ["data_stale/gpu001"]);
    assert_eq!(found(0.0, false, 600), [""; 0]);
}

#[test]
fn node_without_a_driver_has_no_hung_driver() {
    let mut fixture = TargetFixture::new(&[("cpu001:9770", Dialect::Gaunt)]);
    fixture.run(60, |_, _| {
        let mut page = node_report("cpu001");
        push_reading(&mut page, Device::new_collector("nvml"), exporter::COLLECTOR_SUCCESS, 0.0);
        page
    });
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn page_without_changes_is_reported_unless_its_server_is_idle() {
    let mut fixture =
        TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt), ("gpu001:8000", Dialect::Vllm)]);
    let page = |stops: i64| {
        move |second: i64, index: usize| {
            let mut page = node_report("gpu001");
            if index == 1 {
                push_reading(
                    &mut page,
                    Device::new_service("gpu001:8000", "m"),
                    service::WAITING,
                    0.0,
                );
                return page;
            }
            page.node_time = Some(UnixMs(second.min(stops) * 1_000));
            push_reading(&mut page, Device::new_node(), host::CPUS, 64.0);
            page
        }
    };
    assert_eq!(fixture.run(200, page(i64::MAX)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(100, page(200)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(30, page(200)).open_ids(), ["data_stale/gpu001"]);
    let finding = fixture.judge.open_findings()[0];
    assert!(
        finding.summary.starts_with("gpu001:9770 on gpu001 serves stale metrics"),
        "{finding:?}"
    );
    assert_eq!(fixture.run(20, page(i64::MAX)).open_ids(), [""; 0]);
}

#[test]
fn page_without_a_sensor_does_not_change_while_its_gpus_are_idle() {
    let found = |dialect: Dialect, busy: f64, sensor: Option<MetricId>| {
        let mut fixture = TargetFixture::new(&[("gpu001:9400", dialect)]);
        fixture.run(400, |_, _| {
            let mut page = node_report("gpu001");
            push_reading(&mut page, Device::new_gpu(0), gpu::UTILIZATION, busy);
            push_reading(&mut page, Device::new_gpu(0), gpu::MEMORY_USED, 4e9);
            if let Some(sensor) = sensor {
                push_reading(&mut page, Device::new_gpu(0), sensor, 70.0);
            }
            page
        });
        fixture.open_ids().contains(&"data_stale/gpu001")
    };
    assert!(!found(Dialect::Dcgm, 0.0, None));
    assert!(found(Dialect::Dcgm, 0.0, Some(gpu::POWER)));
    assert!(!found(Dialect::NvidiaSmi, 0.0, Some(gpu::POWER)), "it rounds to a watt");
    assert!(found(Dialect::NvidiaSmi, 0.9, Some(gpu::POWER)), "power of a GPU at work changes");
}

#[test]
fn staleness_does_not_wait_again_after_a_restart() {
    let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
    let page = |second: i64, _: usize| {
        let mut page = node_report("gpu001");
        page.node_time = Some(UnixMs(second.min(200) * 1_000));
        push_reading(&mut page, Device::new_node(), host::CPUS, 64.0);
        page
    };
    assert_eq!(fixture.run(310, page).open_ids(), [""; 0]);
    fixture.restart_judge(60);
    assert_eq!(
        fixture.run(30, page).open_ids(),
        [""; 0],
        "pages alike for a moment are no evidence"
    );
    assert_eq!(fixture.run(15, page).open_ids(), ["data_stale/gpu001"]);
}

#[test]
fn queue_beside_idle_gpus_is_a_finding_only_if_full() {
    let mut fixture =
        TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt), ("gpu001:8000", Dialect::Vllm)]);
    let page = |waiting: f64, answered: f64, busy: f64| {
        move |second: i64, index: usize| {
            let mut page = busy_report("gpu001", busy, 0.0);
            if index == 1 {
                page = node_report("gpu001");
                let server = || Device::new_service("gpu001:8000", "chat-13b");
                push_reading(&mut page, server(), service::WAITING, waiting);
                push_reading(
                    &mut page,
                    server(),
                    service::REQUESTS,
                    1e3 + answered * second as f64,
                );
                return page;
            }
            // The host has a fault of its own: without requests that is no starvation.
            push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 0.4 * second as f64);
            page
        }
    };
    assert_eq!(fixture.run(120, page(0.0, 1.0, 0.1)).open_ids(), [""; 0]);
    assert_ne!(fixture.judge.gpu_state(0), GpuState::DataStarved);
    assert_eq!(fixture.run(60, page(30.0, 4.0, 0.9)).open_ids(), [""; 0], "they work on it");
    assert_eq!(fixture.run(60, page(30.0, 0.0, 0.02)).open_ids(), ["data_starved/gpu001"]);
    assert_eq!(fixture.judge.gpu_state(0), GpuState::DataStarved);
    let finding = fixture.judge.open_findings()[0];
    assert_eq!(finding.severity, Severity::Critical, "requests wait, and none is answered");
    assert_eq!(
        finding.summary,
        "30 requests queued for chat-13b on gpu001 while its 2 GPUs have a utilization of at most 2 %."
    );
}

/// A node with a port whose counters grow by so much a second.
fn port_report(node: &str, second: i64, grows: &[(MetricId, f64)]) -> Report {
    let mut page = busy_report(node, 1.0, 0.4);
    let card = || Device::new_port("mlx5_0", "1");
    for (metric, value) in [(port::STATE, 4.0), (port::PHYSICAL_STATE, 5.0), (port::RATE, 5e10)] {
        push_reading(&mut page, card(), metric, value);
    }
    let baseline = [
        (port::TRANSMIT_BYTES, 8e9),
        (port::RECEIVE_BYTES, 8e9),
        (port::RECEIVE_PACKETS, 2e6),
        (port::SYMBOL_ERRORS, 0.0),
        (port::ECN_MARKED, 0.0),
        (port::CNP_HANDLED, 2.0),
    ];
    for (metric, by) in baseline {
        let by = grows.iter().find(|(grown, _)| *grown == metric).map_or(by, |(_, by)| *by);
        push_reading(&mut page, card(), metric, 1e9 + by * second as f64);
    }
    page
}

#[test]
fn switch_receive_errors_blame_the_port_at_the_other_end_of_the_cable() {
    let mut fixture = TargetFixture::new(&[
        ("gpu001:9770", Dialect::Gaunt),
        ("gpu002:9770", Dialect::Gaunt),
        ("exporter:9315", Dialect::Infiniband),
    ]);
    let page = |broken: f64| {
        move |second: i64, index: usize| {
            if index < 2 {
                return port_report(["gpu001", "gpu002"][index], second, &[]);
            }
            let mut page = node_report("exporter");
            for (number, peer) in ["gpu001", "gpu002"].into_iter().enumerate() {
                let device =
                    page.ensure_device(Device::new_switch_port("leaf-1", &number.to_string()));
                let labels = [("peer", peer), ("peer_kind", "node"), ("peer_device", "HCA-1")];
                page.add_info(device, switch_port::INFO, &labels);
                let errors = if number == 1 { broken * second as f64 } else { 0.0 };
                page.push(device, switch_port::SYMBOL_ERRORS, Reading::of(errors.floor()));
            }
            page
        }
    };
    assert_eq!(fixture.run(60, page(0.0)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(60, page(20.0)).open_ids(), ["link_errors/gpu002/mlx5_0/1"]);
    let summary = &fixture.judge.open_findings()[0].summary;
    assert!(summary.ends_with(" has 20.0 link errors per second at its switch port."), "{summary}");
}

/// UFM Telemetry names switches by GUID and no far ends; the fabric's cables do.
#[test]
fn switch_errors_without_a_peer_on_the_page_are_joined_by_the_cables_of_the_fabric() {
    let mut fixture = TargetFixture::new(&[
        ("gpu001:9770", Dialect::Gaunt),
        ("gpu002:9770", Dialect::Gaunt),
        ("ufm:9001", Dialect::Ufm),
    ]);
    let page = |broken: f64| {
        move |second: i64, index: usize| {
            if index < 2 {
                return port_report(["gpu001", "gpu002"][index], second, &[]);
            }
            let mut page = node_report("ufm");
            for number in ["1", "2"] {
                let guid = "0xfc6a1c0300aa0100";
                let device = page.ensure_device(Device::new_switch_port(guid, number));
                page.add_info(device, switch_port::INFO, &[("guid", guid)]);
                let errors = if number == "2" { broken * second as f64 } else { 0.0 };
                page.push(device, switch_port::SYMBOL_ERRORS, Reading::of(errors.floor()));
            }
            page
        }
    };
    assert_eq!(fixture.run(60, page(20.0)).open_ids(), [""; 0], "no cable is known");
    let mut fabric = SourceTopology::new("fabric.txt".into(), TopologyOrigin::Fabric);
    fabric.cables = [("1", "gpu001"), ("2", "gpu002.example")]
        .map(|(port, node)| FabricCable {
            switch_guid: 0xfc6a_1c03_00aa_0100,
            switch_port: port.into(),
            node: node.into(),
            adapter: "mlx5_0".into(),
        })
        .into();
    fixture.cluster.ingest_delivery(Delivery::Topology(fabric));
    assert_eq!(fixture.run(60, page(20.0)).open_ids(), ["link_errors/gpu002/mlx5_0/1"]);
}

#[test]
fn port_with_many_senders_is_an_incast_and_its_senders_are_victims() {
    let names = ["gpu001", "gpu002", "gpu003", "gpu004"];
    let targets: Vec<_> = names.map(|name| (name, Dialect::Gaunt)).into();
    let mut fixture = TargetFixture::new(&targets);
    let page = |onset: i64| {
        move |second: i64, index: usize| {
            let many = (second - onset).max(0) as f64 / second as f64;
            match index {
                0 => port_report(names[0], second, &[(port::ECN_MARKED, 1e5 * many)]),
                _ => port_report(names[index], second, &[(port::CNP_HANDLED, 2.0 + 900.0 * many)]),
            }
        }
    };
    assert_eq!(fixture.run(60, page(60)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(60, page(60)).open_ids(), ["leaf_congested/gpu001/mlx5_0/1"]);
    let finding = fixture.judge.open_findings()[0];
    assert_eq!(finding.kind, FindingKind::LeafCongested);
    assert!(finding.summary.contains("3 senders receive CNPs"), "{}", finding.summary);
    assert_eq!(fixture.cluster.row_count(DeviceClass::Port), 4);
}

#[test]
fn gpu_that_two_collections_leave_out_is_missing_however_often_they_are_read() {
    let mut fixture = TargetFixture::new(&[("ash:9400", Dialect::Dcgm)]);
    let collects_s = 15;
    let run = |fixture: &mut TargetFixture, seconds: i64| {
        fixture.run(seconds, |second, _| {
            let collection = second / collects_s;
            let mut page = node_report("ash");
            for number in 0..if collection < 20 { 4 } else { 3 } {
                let watts = 500.0 + (collection % 7) as f64;
                push_reading(&mut page, Device::new_gpu(number), gpu::POWER, watts);
            }
            page
        });
        fixture.open_ids().len()
    };
    assert_eq!(run(&mut fixture, 314), 0, "one collection may be wrong");
    assert_eq!(run(&mut fixture, 1), 1);
    assert_eq!(fixture.open_ids(), ["gpu_failed/ash/3"]);
    run(&mut fixture, 60);
    let states = [2, 3].map(|row| fixture.judge.gpu_state(row));
    assert!(states[0] != GpuState::Lost && states[1] == GpuState::Lost, "{states:?}");
}
