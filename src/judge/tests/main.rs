//! Tests of findings in virtual time: opened, kept, closed.

#![expect(clippy::unwrap_used, reason = "what a fixture lacks fails the test")]

use std::time::Duration;

use gaunt_schema::{
    AbsenceReason, Batch, Delivery, Device, Dialect, Finding, FindingKind, GpuState, MetricId,
    Reading, RejectionCounts, Report, ScrapeFailure, ScrapeTarget, ScrapedPage, Severity, TargetId,
    UnixMs,
    catalogue::{gpu, host, port},
};

mod always_slow_tests;
mod awaited_gpu_tests;
mod certificate_tests;
mod fabric_tests;
mod filesystem_tests;
mod first_look_tests;
mod flat_power_tests;
mod host_bound_tests;
mod inference_tests;
mod io_wait_tests;
mod job_stop_tests;
mod lagging_rank_tests;
mod late_rank_tests;
mod leaf_down_tests;
mod link_rate_tests;
mod lone_resend_tests;
mod loss_attribution_tests;
mod one_way_traffic_tests;
mod probe_evidence_tests;
mod quiet_congestion_tests;
mod rack_tests;
mod rare_error_tests;
mod restart_tests;
mod shared_cause_tests;
mod silent_node_tests;
mod slow_period_tests;
mod small_job_tests;
mod standing_wait_tests;
mod telemetry_tests;
mod unexplained_tests;
mod waited_for_tests;

use gaunt_cluster::Cluster;
use gaunt_judge::{Judge, Thresholds};

/// A few nodes of one job, each with GPUs and ports, scraped once a second.
struct JobFixture {
    cluster: Cluster,
    judge: Judge,
    second: i64,
    job: bool,
    /// The names that the nodes report.
    names: [&'static str; 4],
    /// The first node's page lists the GPUs from index `unlisted` up to `boards`.
    unlisted: u32,
    boards: u32,
    /// The ports of the first node whose link is up, and that the subnet manager has not made active.
    initialising: &'static [&'static str],
}

/// The values that one node reports in a second.
#[derive(Clone, Copy)]
struct NodeShown {
    gpu: [f64; 3],
    io: f64,
    busiest: f64,
    /// Logical and physical state of the first port, and its `link_downed`; none if they cannot be read.
    port: Option<[f64; 3]>,
    /// Whether the first GPU is present.
    present: bool,
}

const BUSY: NodeShown =
    NodeShown { gpu: [1.0, 0.4, 0.6], io: 0.0, busiest: 0.5, port: Some(UP), present: true };
const WAITING: NodeShown = NodeShown { gpu: [1.0, 0.01, 0.1], ..BUSY };
const STARVED: NodeShown = NodeShown { gpu: [0.3, 0.05, 0.1], io: 0.5, ..BUSY };
const UP: [f64; 3] = [4.0, 5.0, 0.0];
const DOWN: [f64; 3] = [1.0, 2.0, 0.0];

const NAMES: [&str; 4] = ["gpu001", "gpu002", "gpu003", "gpu004"];

impl JobFixture {
    fn new() -> Self {
        Self::of(2)
    }

    fn of(nodes: usize) -> Self {
        let mut cluster = Cluster::new(Duration::from_secs(1), 10);
        let targets = NAMES[..nodes].iter().zip(0..).map(|(name, id)| ScrapeTarget {
            id: TargetId(id),
            address: format!("{name}:9770").into(),
            node: None,
            origin: "test".into(),
        });
        cluster.ingest_delivery(Delivery::Targets(targets.collect()));
        cluster.advance_to(UnixMs(0));
        let judge = Judge::new(Thresholds::default());
        Self {
            cluster,
            judge,
            second: 0,
            job: true,
            names: NAMES,
            unlisted: 0,
            boards: 2,
            initialising: &[],
        }
    }

    /// Runs seconds in which the nodes report this; none is a failed scrape.
    fn run<const N: usize>(&mut self, seconds: i64, shown: [Option<NodeShown>; N]) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            let at = UnixMs(self.second * 1_000);
            for (node, shown) in shown.into_iter().enumerate() {
                let refused = ScrapeFailure::Connect("connection refused".into());
                let outcome = shown.map(|shown| self.build_page(node, shown)).ok_or(refused);
                let target = TargetId(node as u32);
                let batch = Batch { target, at, duration_ms: 1.0, outcome };
                self.cluster.ingest_delivery(Delivery::Batch(batch));
            }
            self.cluster.advance_to(at);
            self.judge.evaluate_cluster(&self.cluster);
            self.judge.open_findings().into_iter().for_each(assert_sourced);
        }
        self
    }

    /// Runs seconds in which the first nodes report that they are busy, and the others are not scraped.
    fn run_first_nodes(&mut self, first: u32, seconds: i64) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            let at = UnixMs(self.second * 1_000);
            for node in 0..first {
                let outcome = Ok(self.build_page(node as usize, BUSY));
                let batch = Batch { target: TargetId(node), at, duration_ms: 1.0, outcome };
                self.cluster.ingest_delivery(Delivery::Batch(batch));
            }
            self.cluster.advance_to(at);
            self.judge.evaluate_cluster(&self.cluster);
        }
        self
    }

    fn build_page(&self, node: usize, shown: NodeShown) -> ScrapedPage {
        let mut report = Report { node: Some(self.names[node].into()), ..Report::default() };
        let mut say = |device: Device, metric: MetricId, reading: Reading| {
            let device = report.ensure_device(device);
            report.push(device, metric, reading);
        };
        say(Device::new_node(), host::CPU_BUSIEST, shown.busiest.into());
        say(Device::new_node(), host::IO_PRESSURE, (1e6 + shown.io * self.second as f64).into());
        let (unlisted, boards) = if node == 0 { (self.unlisted, self.boards) } else { (0, 2) };
        let first = u32::from(!shown.present).max(unlisted);
        if unlisted == 0 {
            say(Device::new_gpu(0), gpu::PRESENT, f64::from(shown.present).into());
        }
        for index in first..boards {
            let [utilization, tensor, sm] = shown.gpu;
            say(Device::new_gpu(index), gpu::UTILIZATION, utilization.into());
            say(Device::new_gpu(index), gpu::TENSOR_ACTIVE, tensor.into());
            say(Device::new_gpu(index), gpu::SM_ACTIVE, sm.into());
            say(Device::new_gpu(index), gpu::PROCESSES, f64::from(self.job).into());
        }
        for name in ["mlx5_0", "mlx5_1", "mlx5_2"] {
            let is_initialising = node == 0 && self.initialising.contains(&name);
            let values = if is_initialising {
                Some([2.0, 5.0, 0.0])
            } else if name == "mlx5_0" {
                shown.port
            } else {
                Some(UP)
            };
            for (at, metric) in
                [port::STATE, port::PHYSICAL_STATE, port::LINK_DOWNED].into_iter().enumerate()
            {
                let reading =
                    values.map_or(AbsenceReason::Error.into(), |values| values[at].into());
                say(Device::new_port(name, "1"), metric, reading);
            }
        }
        if self.job {
            for index in unlisted..boards {
                let device = report.ensure_device(Device::new_gpu(index));
                report.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
            }
        }
        ScrapedPage {
            report,
            dialect: Dialect::Gaunt,
            bytes: 1,
            rejected: RejectionCounts::default(),
        }
    }

    fn open_ids(&self) -> Vec<&str> {
        self.judge.open_findings().into_iter().map(|finding| finding.id.as_str()).collect()
    }

    fn finding_by_id(&self, id: &str) -> &Finding {
        self.judge.open_findings().into_iter().find(|finding| finding.id == id).unwrap()
    }
}

/// Asserts that every value of a finding has a source, and every limit a key or a note.
fn assert_sourced(finding: &Finding) {
    for number in &finding.evidence {
        let named = !number.threshold.is_empty();
        assert!(named || !number.source.is_empty(), "{}: {}: no source", finding.id, number.what);
        let bare = number.limit.is_some() && !named && number.note.is_empty();
        assert!(!bare, "{}: the limit of {} has no source", finding.id, number.what);
    }
}

const PORT: &str = "port_down/gpu001/mlx5_0/1";

fn with_port(port: [f64; 3]) -> [Option<NodeShown>; 2] {
    [Some(NodeShown { port: Some(port), ..BUSY }), Some(BUSY)]
}

#[test]
fn port_is_down_after_two_samples_and_up_again_after_ten_seconds() {
    let mut fixture = JobFixture::new();
    assert_eq!(fixture.run(20, with_port(UP)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(1, with_port(DOWN)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(1, with_port(DOWN)).open_ids(), [PORT]);
    let finding = fixture.finding_by_id(PORT);
    assert_eq!((finding.kind, finding.severity), (FindingKind::PortDown, Severity::Critical));
    assert_eq!(finding.since, UnixMs(21_000));
    assert_eq!(
        finding.summary,
        "mlx5_0/1 on gpu001 is down since 00:00:21Z: 2 of its 2 sibling ports are active."
    );
    let evidence = |label| telemetry_tests::evidence_of(finding, label).unwrap();
    let state = evidence("logical state");
    assert_eq!((state.value, state.limit), (Some(1.0), Some(4.0)));
    assert_eq!(evidence("active sibling ports").value, Some(2.0));
    assert_eq!(fixture.run(9, with_port(UP)).open_ids(), [PORT]);
    assert_eq!(fixture.run(1, with_port(UP)).open_ids(), [""; 0]);
    fixture.run(2, with_port(DOWN));
    let opened = fixture.judge.opened_counts()[&FindingKind::PortDown];
    assert_eq!(opened, 2, "the same place opens anew");
}

#[test]
fn link_that_counted_its_failure_needs_no_second_sample() {
    let mut fixture = JobFixture::new();
    fixture.run(5, with_port(UP));
    assert_eq!(fixture.run(1, with_port([1.0, 2.0, 1.0])).open_ids(), [PORT]);
}

#[test]
fn unreadable_port_is_neither_down_nor_up() {
    let unread = [Some(NodeShown { port: None, ..BUSY }), Some(BUSY)];
    let mut fixture = JobFixture::new();
    assert_eq!(fixture.run(5, with_port(UP)).run(20, unread).open_ids(), [""; 0]);
    assert_eq!(fixture.run(2, with_port(DOWN)).run(60, unread).open_ids(), [PORT]);
}

#[test]
fn port_that_is_up_at_every_sample_flaps_if_its_counter_rose_twice() {
    let fell = |times: f64| with_port([4.0, 5.0, times]);
    let mut fixture = JobFixture::new();
    assert_eq!(fixture.run(5, fell(3.0)).run(30, fell(4.0)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(60, fell(5.0)).open_ids(), [PORT]);
    let finding = fixture.finding_by_id(PORT);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.summary.contains("is flapping"), "{}", finding.summary);
    assert_eq!(fixture.run(1_900, fell(5.0)).open_ids(), [""; 0], "long ago");
}

#[test]
fn port_that_was_never_active_is_expected_up_only_beside_active_siblings() {
    let mut fixture = JobFixture::new();
    fixture.job = false;
    assert_eq!(fixture.run(10, with_port(DOWN)).open_ids(), [""; 0]);
    assert_eq!(fixture.run(2, with_port(DOWN)).open_ids(), [PORT]);
    assert_eq!(fixture.finding_by_id(PORT).severity, Severity::Warning, "no job is on the node");
    let mut disabled = JobFixture::new();
    assert_eq!(disabled.run(60, with_port([1.0, 3.0, 0.0])).open_ids(), [""; 0]);
}

#[test]
fn port_that_waits_for_the_subnet_manager_is_found_at_the_first_look() {
    let mut fixture = JobFixture::new();
    fixture.job = false;
    let ids = [PORT, "port_down/gpu001/mlx5_1/1"];
    fixture.initialising = &["mlx5_0", "mlx5_1"];
    assert_eq!(fixture.run(12, [Some(BUSY), Some(BUSY)]).open_ids(), ids);
    let finding = fixture.finding_by_id(PORT);
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(
        finding.summary,
        "mlx5_0/1 on gpu001 is initialising since before the first sample: 1 of its 2 sibling ports are active, and the same port on 1 of 1 other node."
    );
    assert!(finding.next.contains("subnet manager"), "{}", finding.next);
    assert!(!finding.next.contains("cable"), "{}", finding.next);
}

#[test]
fn port_that_falls_back_to_initialising_names_the_subnet_manager() {
    let mut fixture = JobFixture::new();
    fixture.run(20, with_port(UP));
    assert_eq!(fixture.run(2, with_port([2.0, 5.0, 0.0])).open_ids(), [PORT]);
    let finding = fixture.finding_by_id(PORT);
    assert!(finding.summary.starts_with("mlx5_0/1 on gpu001 is initialising since 00:00:21Z"));
    assert!(finding.next.contains("subnet manager"), "{}", finding.next);
}

#[test]
fn starving_host_is_one_finding_and_its_peers_are_victims() {
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]);
    let starving = [Some(STARVED), Some(WAITING)];
    fixture.run(10, starving);
    assert_eq!(fixture.open_ids(), [""; 0]);
    fixture.run(20, starving);
    assert_eq!(fixture.open_ids(), ["data_starved/gpu001"]);
    let finding = fixture.finding_by_id("data_starved/gpu001");
    assert_eq!(finding.severity, Severity::Critical, "pressure and waiting peers");
    assert!(finding.lost_gpus > 3.5 && finding.lost_gpus <= 4.0, "{}", finding.lost_gpus);
    assert!(finding.victims.iter().any(|victim| victim.node.as_deref() == Some("gpu002")));
    assert!(finding.victims.iter().all(|victim| victim.node.as_deref() != Some("gpu001")));
    let since = finding.since;
    assert!(since >= UnixMs(60_000) && since <= UnixMs(70_000), "{since:?}");
    // The ports were silent as in a pause, after which averages have a minute to recover.
    fixture.run(80, [Some(BUSY), Some(BUSY)]);
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn hosts_that_starve_together_blame_their_storage() {
    let mut fixture = JobFixture::of(4);
    fixture.run(60, [Some(BUSY); 4]);
    let shown = [Some(STARVED), Some(STARVED), Some(STARVED), Some(WAITING)];
    fixture.run(60, shown);
    assert_eq!(fixture.judge.gpu_state(0), GpuState::DataStarved);
    assert_eq!(fixture.open_ids(), ["storage_slow"], "not one host after the other");
    fixture.run(60, [Some(STARVED), Some(WAITING), Some(WAITING), Some(WAITING)]);
    assert_eq!(fixture.open_ids(), ["data_starved/gpu001"]);
}

#[test]
fn starving_gpus_without_host_pressure_are_only_info() {
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]);
    fixture.run(60, [Some(NodeShown { io: 0.0, ..STARVED }), Some(WAITING)]);
    assert_eq!(fixture.open_ids(), ["data_starved/gpu001"]);
    assert_eq!(fixture.finding_by_id("data_starved/gpu001").severity, Severity::Info);
}

#[test]
fn pressure_that_a_host_had_before_is_no_evidence() {
    let mut fixture = JobFixture::new();
    let busy = NodeShown { io: 0.40, ..BUSY };
    fixture.run(200, [Some(busy), Some(BUSY)]);
    fixture.run(60, [Some(NodeShown { io: 0.45, ..STARVED }), Some(WAITING)]);
    let open = fixture.judge.open_findings();
    assert!(open.iter().all(|finding| finding.severity == Severity::Info), "{open:?}");
}

#[test]
fn pause_of_all_nodes_with_busy_disks_is_no_finding() {
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]);
    let writes = NodeShown { gpu: [0.0, 0.0, 0.0], io: 0.4, ..BUSY };
    for _ in 0..60 {
        fixture.run(1, [Some(writes), Some(WAITING)]);
        assert_eq!(fixture.open_ids(), [""; 0]);
    }
    for _ in 0..60 {
        fixture.run(1, [Some(BUSY), Some(BUSY)]);
        assert_eq!(fixture.open_ids(), [""; 0]);
    }
}

#[test]
fn short_pause_with_busy_disks_is_no_slow_storage() {
    for pause in [5, 8, 10, 11, 12, 13, 15, 20, 60] {
        let mut fixture = JobFixture::of(4);
        fixture.run(60, [Some(BUSY); 4]);
        let writes = NodeShown { gpu: [0.0, 0.0, 0.0], io: 0.9, ..BUSY };
        for second in 0..pause + 40 {
            let shown = if second < pause { writes } else { BUSY };
            fixture.run(1, [Some(shown); 4]);
            assert_eq!(fixture.open_ids(), [""; 0], "{second} s after a pause of {pause} s began");
        }
    }
}

#[test]
fn steps_that_wait_repeatedly_are_slow_storage() {
    let mut fixture = JobFixture::of(4);
    fixture.run(60, [Some(BUSY); 4]);
    let reads = NodeShown { gpu: [0.0, 0.0, 0.0], io: 0.9, ..BUSY };
    for second in 0..45 {
        fixture.run(1, [Some(if second % 6 < 3 { reads } else { BUSY }); 4]);
    }
    assert_eq!(fixture.open_ids(), ["storage_slow"]);
}

#[test]
fn finding_of_starving_host_stays_open_while_its_target_is_down() {
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]).run(30, [Some(STARVED), Some(WAITING)]);
    fixture.run(60, [None, Some(WAITING)]);
    assert_eq!(fixture.open_ids(), ["data_starved/gpu001", "target_down/gpu001"]);
    fixture.run(100, [None, Some(WAITING)]);
    assert_eq!(
        fixture.finding_by_id("target_down/gpu001").severity,
        Severity::Critical,
        "dark for long"
    );
}

#[test]
fn target_is_down_after_two_failures_until_it_is_read() {
    let mut fixture = JobFixture::new();
    fixture.run(10, [Some(BUSY), Some(BUSY)]);
    assert_eq!(fixture.run(1, [None, Some(BUSY)]).open_ids(), [""; 0]);
    assert_eq!(fixture.run(1, [None, Some(BUSY)]).open_ids(), ["target_down/gpu001"]);
    let finding = fixture.finding_by_id("target_down/gpu001");
    assert_eq!(finding.severity, Severity::Warning, "a node that starts anew comes back");
    assert_eq!(
        finding.summary,
        "No target answers on gpu001 since 00:00:11Z: gpu001:9770: cannot connect: connection refused."
    );
    assert_eq!(finding.next, "Check that an exporter runs and listens on gpu001:9770.");
    fixture.run(10, [Some(BUSY), Some(BUSY)]);
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn targets_without_scrapes_are_reported_only_while_they_are_few() {
    let mut fixture = JobFixture::of(4);
    fixture.run(10, [Some(BUSY); 4]);
    assert_eq!(
        fixture.run_first_nodes(0, 20).open_ids(),
        ["aggregator_late"],
        "it is gaunt that is late"
    );
    fixture.run(20, [Some(BUSY); 4]);
    assert_eq!(
        fixture.run_first_nodes(2, 20).open_ids(),
        ["target_down/gpu003", "target_down/gpu004"]
    );
    fixture.run(10, [Some(BUSY), None, None, None]);
    assert_eq!(fixture.open_ids().len(), 3, "whoever was tried in vain is down");
}

#[test]
fn gpus_of_silent_node_are_stale_and_missing_gpu_is_lost() {
    let mut fixture = JobFixture::new();
    fixture.run(10, [Some(BUSY), Some(BUSY)]).run(5, [None, Some(BUSY)]);
    let states = |fixture: &JobFixture| [0, 2].map(|row| fixture.judge.gpu_state(row));
    assert_eq!(states(&fixture), [GpuState::Stale, GpuState::Computing]);
    fixture.run(7, [Some(BUSY), Some(BUSY)]);
    assert_eq!(states(&fixture), [GpuState::Computing; 2]);
    let gone = NodeShown { present: false, ..BUSY };
    fixture.run(1, [Some(gone), Some(BUSY)]);
    assert_eq!(states(&fixture), [GpuState::Lost, GpuState::Computing]);
}

#[test]
fn job_whose_gpus_all_wait_is_hung_after_a_minute() {
    let mut fixture = JobFixture::new();
    fixture.run(20, [Some(BUSY), Some(BUSY)]).run(60, [Some(WAITING), Some(WAITING)]);
    assert_eq!(fixture.judge.gpu_state(0), GpuState::Waiting);
    fixture.run(40, [Some(WAITING), Some(WAITING)]);
    assert_eq!(fixture.judge.gpu_state(0), GpuState::Hung);
    fixture.run(20, [Some(BUSY), Some(BUSY)]);
    assert_eq!(fixture.judge.gpu_state(0), GpuState::Computing);
}

#[test]
fn job_whose_gpus_all_busy_wait_is_one_finding() {
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]).run(60, [Some(WAITING), Some(WAITING)]);
    assert_eq!(fixture.open_ids(), [""; 0]);
    fixture.run(40, [Some(WAITING), Some(WAITING)]);
    assert_eq!(fixture.open_ids(), ["collective_hang/8812"]);
    let finding = fixture.finding_by_id("collective_hang/8812");
    assert_eq!((finding.severity, finding.lost_gpus.to_string()), (Severity::Critical, "4".into()));
    fixture.run(20, [Some(BUSY), Some(BUSY)]);
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn gpu_that_is_missing_explains_that_its_job_hangs() {
    let mut fixture = JobFixture::new();
    fixture.run(60, [Some(BUSY), Some(BUSY)]);
    let gone = NodeShown { present: false, ..WAITING };
    fixture.run(2, [Some(gone), Some(WAITING)]);
    assert_eq!(fixture.open_ids(), ["gpu_failed/gpu001/0"]);
    assert_eq!(fixture.finding_by_id("gpu_failed/gpu001/0").severity, Severity::Critical);
    assert_eq!(fixture.run(200, [Some(gone), Some(WAITING)]).open_ids(), ["gpu_failed/gpu001/0"]);
}
