//! The engine of a soak run: fed, ticked, killed and restarted from its persisted state.

use std::{ops::Range, time::Duration};

use anyhow::Context;
use gaunt_api::{Answer, FindingList, Question};
use gaunt_engine::{Engine, EngineOptions, PersistedState};
use gaunt_schema::{Delivery, SanitizedText, ScrapeTarget, TargetId, UnixMs};
use gaunt_sim::{GroundTruth, SimFleet};

use super::{
    exporter_faults::ExporterFaults,
    fault_outcome::{FaultOutcome, FindingObserver, UnexplainedFinding},
    soak_random::SoakRandom,
};
use crate::{bench_process::resident_bytes, judge_bench::START};

/// Results of the run.
pub(super) struct SoakOutcome {
    pub(super) truths: Vec<GroundTruth>,
    pub(super) outcomes: Vec<FaultOutcome>,
    pub(super) unexplained: Vec<UnexplainedFinding>,
    pub(super) ticks: u64,
    /// The kills of the aggregator, in seconds from the start.
    pub(super) kills: Vec<u64>,
    /// Findings whose opening counter exceeds their actual openings.
    pub(super) opened_twice: u64,
    /// Ticks at which the parts of the loss did not add up, and the largest difference in GPUs.
    pub(super) loss_mismatch_ticks: u64,
    pub(super) worst_loss_difference: f64,
    /// Resident memory of this process in megabytes after each virtual hour.
    pub(super) megabytes: Vec<f64>,
}

/// Tolerance for rounding in the parts of a loss.
const SAME_LOSS: f64 = 1e-6;

/// Simulates the days of a fleet.
pub(super) fn run_soak(
    mut fleet: SimFleet,
    step: Duration,
    span: Range<u32>,
    days: f64,
    seed: u64,
    kills: u32,
) -> anyhow::Result<SoakOutcome> {
    let options = EngineOptions { period: step, ..EngineOptions::default() };
    let ticks = (days * 86_400.0 / step.as_secs_f64()) as u64;
    let mut random = SoakRandom(seed ^ 0x50ac);
    let mut kill_ticks: Vec<u64> = (0..kills).map(|_| random.next_below(ticks)).collect();
    kill_ticks.sort_unstable();
    kill_ticks.dedup();
    let mut exporters = ExporterFaults::draw(&fleet, START, (days * 86_400.0) as u64, &mut random);
    let second = |second: u32| START + Duration::from_secs(second.into());
    let truths = fleet.ground_truths().iter().chain(exporters.fault_truths());
    let in_span =
        |truth: &&GroundTruth| (second(span.start)..second(span.end)).contains(&truth.onset);
    let truths: Vec<GroundTruth> = truths.filter(in_span).cloned().collect();
    let mut observer = FindingObserver::new(&truths);
    let mut engine = resume_engine(&options, PersistedState::default(), &fleet);
    // State on disk as of the tick before the last: later changes are lost.
    let (mut disk, mut newest) = (PersistedState::default(), PersistedState::default());
    let (mut loss_mismatch_ticks, mut worst_loss_difference, mut down_ticks) = (0, 0.0_f64, 0_u64);
    let mut megabytes = Vec::new();
    for tick in 1..=ticks {
        let now = START + step * tick as u32;
        if !(second(span.start)..=second(span.end)).contains(&now) {
            continue;
        }
        megabytes.extend(memory_after_hour(tick, step)?);
        if step > Duration::from_secs(1) {
            fleet.advance_to(now - Duration::from_secs(1));
        }
        fleet.advance_to(now);
        if kill_ticks.binary_search(&tick).is_ok() {
            let restored = round_trip_state(&disk)?;
            engine = resume_engine(&options, restored, &fleet);
            // It restarts after up to two minutes.
            down_ticks = random.next_below(120 / step.as_secs().max(1) + 1);
        }
        if down_ticks > 0 {
            down_ticks -= 1;
            continue;
        }
        ingest_reports(&mut engine, &fleet, &mut exporters, now);
        engine.run_tick(now);
        disk = std::mem::replace(
            &mut newest,
            engine.persisted_state().context("a judgement is still running")?,
        );
        let Answer::Findings(list) = engine.answer_question(&Question::Findings) else { continue };
        let absent_ids = observer.observe_findings(&list, step);
        if !absent_ids.is_empty()
            && let Answer::Findings(closed) = engine.answer_question(&Question::Closed)
        {
            observer.explain_gaps(&absent_ids, &closed);
        }
        let difference = loss_difference(&engine, &list);
        loss_mismatch_ticks += u64::from(difference > SAME_LOSS);
        worst_loss_difference = worst_loss_difference.max(difference);
    }
    let opened = match engine.answer_question(&Question::Targets) {
        Answer::Targets(answer) => answer.totals.findings_opened.values().sum(),
        _ => 0,
    };
    let opened_twice = u64::saturating_sub(opened, observer.opening_count());
    let (outcomes, unexplained) = observer.into_outcomes();
    Ok(SoakOutcome {
        truths,
        outcomes,
        unexplained,
        ticks,
        kills: kill_ticks.iter().map(|tick| tick * step.as_secs()).collect(),
        opened_twice,
        loss_mismatch_ticks,
        worst_loss_difference,
        megabytes,
    })
}

/// Resident memory of this process in megabytes, at the end of each hour of virtual time.
fn memory_after_hour(tick: u64, step: Duration) -> anyhow::Result<Option<f64>> {
    let ticks = (3_600 / step.as_secs()).max(1);
    let is_hour = tick.is_multiple_of(ticks);
    is_hour.then(|| Ok(resident_bytes(std::process::id())? as f64 / 1e6)).transpose()
}

/// How far the parts of the loss are from the whole, in GPUs.
fn loss_difference(engine: &Engine, list: &FindingList) -> f64 {
    let Answer::Overview(overview) = engine.answer_question(&Question::Overview) else {
        return 0.0;
    };
    let whole = &overview.lost;
    let attributed: f64 = list.findings.iter().map(|finding| finding.lost_gpus).sum();
    let parts = attributed + whole.idle_gpus + whole.unexplained_gpus;
    (whole.gpus - parts).abs()
}

/// An engine restored from persisted state.
fn resume_engine(options: &EngineOptions, state: PersistedState, fleet: &SimFleet) -> Engine {
    let mut engine = Engine::from_persisted(options.clone(), state);
    let targets = (0..fleet.node_count()).map(|node| ScrapeTarget {
        id: TargetId(node as u32),
        address: SanitizedText::from(format!("10.{}.{}.7:9770", node / 250, node % 250)),
        node: None,
        origin: "the bench".into(),
    });
    engine.ingest_delivery(Delivery::Targets(targets.collect()));
    engine
}

/// Persisted state after a round trip through its files.
fn round_trip_state(state: &PersistedState) -> anyhow::Result<PersistedState> {
    let restored: PersistedState = serde_json::from_slice(&serde_json::to_vec(state)?)?;
    let recent = serde_json::from_slice(&serde_json::to_vec(state.usage_window())?)?;
    let restored = restored.with_usage_window(recent);
    let Some(baselines) = state.learned_baselines() else { return Ok(restored) };
    Ok(restored.with_baselines(serde_json::from_slice(&serde_json::to_vec(&**baselines)?)?))
}

/// Ingests the reports of all nodes.
fn ingest_reports(
    engine: &mut Engine,
    fleet: &SimFleet,
    exporters: &mut ExporterFaults,
    now: UnixMs,
) {
    for node in 0..fleet.node_count() {
        let Some(report) = fleet.scraped_report(node) else { continue };
        engine.ingest_delivery(Delivery::Batch(exporters.node_batch(node, report, now)));
    }
}
