//! Tests of loss attribution: which share of a GPU is lost, and the cause that it is attributed to.

use super::*;
use gaunt_judge::{AttributedCause, gpus_of_parts};

impl JobFixture {
    /// Lost GPUs of findings, idle and unexplained.
    fn lost_gpus(&self) -> (f64, f64, f64) {
        let totals = self.judge.loss().totals;
        let of = gpus_of_parts;
        (of(totals.findings), of(totals.idle), of(totals.unexplained))
    }

    /// The displayed state, the lost share and its cause, of every GPU of a node.
    fn gpus_of(&self, node: &str) -> Vec<(GpuState, f64, Option<AttributedCause>)> {
        let (_, node) = self.cluster.node_by_name(node).unwrap();
        let rows = node.device_rows(gaunt_schema::DeviceClass::Gpu).iter();
        let gpus = rows.map(|row| self.judge.loss().gpus[*row as usize]);
        let of = |parts: u16| gpus_of_parts(parts.into());
        let cause =
            |gpu| self.judge.loss().causes.attributed_parts(gpu).next().map(|(cause, _)| cause);
        gpus.map(|gpu| (gpu.shown_state(), of(gpu.lost_parts()), cause(gpu))).collect()
    }
}

const SLOW: NodeShown = NodeShown { gpu: [1.0, 0.3, 0.6], ..BUSY };
const IDLE: NodeShown = NodeShown { gpu: [0.0, 0.0, 0.0], ..BUSY };

#[test]
fn loss_of_a_job_below_its_baseline_is_unexplained_without_a_finding() {
    let mut fixture = JobFixture::new();
    fixture.run(300, [Some(BUSY), Some(BUSY)]);
    assert_eq!(fixture.lost_gpus(), (0.0, 0.0, 0.0));
    fixture.run(25, [Some(SLOW), Some(SLOW)]);
    assert_eq!(fixture.open_ids(), [""; 0]);
    let (findings, idle, unexplained) = fixture.lost_gpus();
    assert_eq!((findings, idle), (0.0, 0.0));
    assert!((0.85..=1.0).contains(&unexplained), "a quarter of four GPUs: {unexplained}");
    for gpu in fixture.gpus_of("gpu001") {
        assert_eq!((gpu.0, gpu.2), (GpuState::Slowed, Some(AttributedCause::Unexplained)));
    }
}

#[test]
fn loss_of_a_job_is_attributed_once_to_the_finding_that_slows_it() {
    let mut fixture = JobFixture::new();
    fixture.run(300, [Some(BUSY), Some(BUSY)]);
    fixture.run(90, [Some(STARVED), Some(WAITING)]);
    assert_eq!(fixture.open_ids(), ["data_starved/gpu001"]);
    let (findings, idle, unexplained) = fixture.lost_gpus();
    assert_eq!((idle, unexplained), (0.0, 0.0));
    assert_eq!(
        fixture.finding_by_id("data_starved/gpu001").lost_gpus.to_string(),
        findings.to_string()
    );
    assert!(findings > 3.4 && findings <= 4.0, "{findings}");
    // A second fault in the same job is not charged twice; a fact is more probable than an inference.
    let down = NodeShown { port: Some(DOWN), ..STARVED };
    fixture.run(10, [Some(down), Some(WAITING)]);
    assert_eq!(fixture.open_ids().len(), 2);
    let sum: f64 = fixture.judge.open_findings().iter().map(|finding| finding.lost_gpus).sum();
    assert!((sum - fixture.lost_gpus().0).abs() < 1e-9 && sum <= 4.0, "{sum}");
}

#[test]
fn loss_of_idle_gpus_is_idle_and_of_free_ones_nothing() {
    let mut fixture = JobFixture::new();
    fixture.run(300, [Some(BUSY), Some(BUSY)]);
    fixture.run(60, [Some(IDLE), Some(IDLE)]);
    let (findings, idle, unexplained) = fixture.lost_gpus();
    assert!(
        (findings + idle - 4.0).abs() < 1e-9 && unexplained == 0.0,
        "{:?}",
        fixture.lost_gpus()
    );
    fixture.job = false;
    fixture.run(60, [Some(IDLE), Some(IDLE)]);
    assert_eq!(fixture.lost_gpus(), (0.0, 0.0, 0.0));
    assert!(fixture.gpus_of("gpu001").iter().all(|gpu| gpu.0 == GpuState::Idle));
}

#[test]
fn loss_of_a_silent_node_is_unknown_and_not_counted() {
    let mut fixture = JobFixture::new();
    fixture.run(300, [Some(BUSY), Some(BUSY)]);
    fixture.run(60, [None, Some(BUSY)]);
    assert_eq!(fixture.lost_gpus(), (0.0, 0.0, 0.0));
    assert!(fixture.gpus_of("gpu001").iter().all(|gpu| gpu.0 == GpuState::Stale));
    assert_eq!(fixture.finding_by_id("target_down/gpu001").lost_gpus.to_string(), "0");
}

#[test]
fn loss_reaches_every_gpu_of_a_job_with_more_nodes_than_victims() {
    let mut fixture = JobFixture::of(4);
    let all = |first: NodeShown| [Some(first), Some(WAITING), Some(WAITING), Some(WAITING)];
    fixture.run(300, [Some(BUSY); 4]);
    fixture.run(90, all(STARVED));
    let finding = fixture.finding_by_id("data_starved/gpu001").clone();
    // Only the job is listed, as where the nodes exceed the maximum of victims.
    let only_job = finding.victims.iter().filter(|victim| victim.node.is_none());
    assert_eq!(only_job.count(), 1);
    let explained = fixture
        .gpus_of("gpu004")
        .iter()
        .all(|gpu| gpu.1 > 0.8 && matches!(gpu.2, Some(AttributedCause::Finding(_))));
    assert!(explained, "{:?}", fixture.gpus_of("gpu004"));
}

#[test]
fn loss_of_a_missing_gpu_is_whole_and_attributed_to_its_finding() {
    let mut fixture = JobFixture::new();
    fixture.run(300, [Some(BUSY), Some(BUSY)]);
    fixture.run(30, [Some(NodeShown { present: false, ..BUSY }), Some(BUSY)]);
    let gone = fixture.gpus_of("gpu001")[0];
    assert_eq!((gone.0, gone.1.to_string()), (GpuState::Lost, "1".to_owned()));
    assert!(
        matches!(gone.2, Some(AttributedCause::Finding(_))),
        "{gone:?}, {:?}",
        fixture.open_ids()
    );
    assert_eq!(fixture.finding_by_id("gpu_failed/gpu001/0").lost_gpus.to_string(), "1");
}

#[test]
fn job_that_begins_again_slower_than_before_is_measured_by_what_it_was() {
    let mut fixture = JobFixture::new();
    fixture.run(400, [Some(BUSY), Some(BUSY)]);
    fixture.job = false;
    fixture.run(40, [Some(IDLE), Some(IDLE)]);
    fixture.job = true;
    let [utilization, tensor, sm] = BUSY.gpu;
    let slow = NodeShown { gpu: [utilization, tensor * 0.4, sm * 0.4], ..BUSY };
    fixture.run(300, [Some(slow), Some(slow)]);
    assert_eq!(fixture.open_ids(), ["unexplained_slowdown/8812"]);
}
