//! Cost of the judge: CPU time for each signal of a GPU, memory for each GPU.

use std::{hint::black_box, time::Duration};

use anyhow::ensure;
use gaunt_cluster::Cluster;
use gaunt_judge::{Judge, Thresholds};
use gaunt_schema::{
    Batch, Delivery, DeviceClass, Dialect, RejectionCounts, Report, SanitizedText, ScrapeTarget,
    ScrapedPage, TargetId, UnixMs,
};
use gaunt_sim::{Scenario, SimFleet};
use gaunt_simulation::bytes_in_use;

use super::played_run::START;
use crate::cpu_clock;

/// Enough GPUs that the judge's memory does not stay in a cache, and that the findings of the demonstration, whose number does
/// not grow with the fleet, are a small part of it: 4,096.
const NODES: usize = 512;

/// Warm-up seconds before timing, so that every average and state is set.
const WARM_UP: i64 = 20;

/// Timed seconds; their median is reported.
const TIMED: i64 = 21;

/// Judges of which memory is measured.
const JUDGES: usize = 2;

/// Steps after which the memory of a judge for an unchanged fleet is constant.
const FILL: i64 = 5;

/// The cost of the judge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgeCost {
    /// Nanoseconds of CPU time for each sample of a GPU.
    pub(crate) ns_per_signal: f64,
    /// Bytes in use for each GPU; what the allocator holds besides differs from run to run.
    pub(crate) bytes_per_gpu: f64,
}

/// Measures a judge on a fleet with the faults of the demonstration.
pub(crate) fn measure_judge() -> anyhow::Result<JudgeCost> {
    let scenario = Scenario::from_name(gaunt_sim::scenario::DEFAULT)?;
    let TimedFleet { mut fleet, mut cluster, ns_per_signal } =
        time_judge(scenario, NODES, |_, _| {})?;
    let gpus = cluster.row_count(DeviceClass::Gpu);

    let mut judges: Vec<Judge> = (0..JUDGES).map(|_| Judge::new(Thresholds::default())).collect();
    for second in 1..=FILL {
        ingest_second(&mut fleet, &mut cluster, WARM_UP + TIMED + second, |_, _| {});
        for judge in &mut judges {
            judge.evaluate_cluster(&cluster);
        }
    }
    // What they free: the cluster grows meanwhile as well.
    let with_judges = bytes_in_use();
    drop(black_box(judges));
    let bytes = with_judges.saturating_sub(bytes_in_use());
    Ok(JudgeCost { ns_per_signal, bytes_per_gpu: bytes as f64 / (JUDGES * gpus) as f64 })
}

/// A fleet that was judged for some seconds.
pub(crate) struct TimedFleet {
    fleet: SimFleet,
    cluster: Cluster,
    /// Nanoseconds of CPU time for each sample of a GPU, the median of the timed seconds.
    pub(crate) ns_per_signal: f64,
}

/// Judges a fleet whose reports are changed by `change`, which also gets the second since the start.
pub(crate) fn time_judge(
    scenario: Scenario,
    nodes: usize,
    change: impl Fn(&mut Report, i64),
) -> anyhow::Result<TimedFleet> {
    let mut fleet = SimFleet::new(scenario, nodes, 1, START);
    let mut cluster = Cluster::new(Duration::from_secs(1), 120);
    cluster.ingest_delivery(Delivery::Targets((0..nodes).map(bench_target).collect()));
    let mut judge = Judge::new(Thresholds::default());
    let (mut times, mut signals) = (Vec::new(), 0);
    for second in 1..=WARM_UP + TIMED {
        signals = ingest_second(&mut fleet, &mut cluster, second, &change);
        let before = cpu_clock::process_cpu_time();
        judge.evaluate_cluster(&cluster);
        let time = cpu_clock::process_cpu_time().saturating_sub(before);
        if second > WARM_UP {
            times.push(time);
        }
    }
    ensure!(cluster.row_count(DeviceClass::Gpu) > 0 && signals > 0, "the fleet has no GPU");
    times.sort_unstable();
    let ns_per_signal = times[times.len() / 2].as_nanos() as f64 / signals as f64;
    Ok(TimedFleet { fleet, cluster, ns_per_signal })
}

fn bench_target(node: usize) -> ScrapeTarget {
    let address = SanitizedText::from(format!("node {node}"));
    ScrapeTarget { id: TargetId(node as u32), address, node: None, origin: "the bench".into() }
}

/// Ingests a second's reports into the cluster, and counts their GPU samples.
fn ingest_second(
    fleet: &mut SimFleet,
    cluster: &mut Cluster,
    second: i64,
    change: impl Fn(&mut Report, i64),
) -> usize {
    let at = UnixMs(START.0 + second * 1_000);
    fleet.advance_to(at);
    let mut signals = 0;
    for node in 0..fleet.node_count() {
        let mut report = fleet.node_report(node);
        change(&mut report, second);
        let is_of_gpu = |sample: &&gaunt_schema::MetricSample| {
            let device = report.devices.get(sample.device as usize);
            device.is_some_and(|device| device.class == DeviceClass::Gpu)
        };
        signals += report.samples.iter().filter(is_of_gpu).count();
        let page = ScrapedPage {
            report,
            dialect: Dialect::Gaunt,
            bytes: 0,
            rejected: RejectionCounts::default(),
        };
        let target = TargetId(node as u32);
        cluster.ingest_delivery(Delivery::Batch(Batch {
            target,
            at,
            duration_ms: 1.0,
            outcome: Ok(page),
        }));
    }
    cluster.advance_to(at);
    signals
}
