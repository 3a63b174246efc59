//! `gaunt demo`: a simulated fleet over the real wire format, live in the console, or simulated ahead in one snapshot.

use std::{
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use gaunt_schema::{
    Batch, ClockFn, Delivery, Dialect, SanitizedText, ScrapeFailure, ScrapeTarget, ScrapedPage,
    TargetId, UnixMs, text,
};
use gaunt_sim::{GroundTruth, SimFleet, suite::FaultLevel};
use tokio::sync::mpsc;

use super::{
    console_command::has_terminal,
    judge_command::{FindingLog, VirtualRun},
    snapshot_command,
};
use crate::answer_source::AnswerSource;
use gaunt_api::{Answer, Question};

/// Scrape interval: once a second, as for real nodes.
const PERIOD: Duration = Duration::from_secs(1);

/// The console opens at most this long before the fault begins: the baseline is visible first, without a long wait.
const LEAD: Duration = Duration::from_secs(15);

/// Which fleet is shown.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Number of nodes, if the scenario does not fix it.
    pub nodes: Option<usize>,
    /// Name of the scenario or of a case.
    pub scenario: String,
    /// Random seed.
    pub seed: u64,
    /// Fault level of a case.
    pub level: FaultLevel,
    /// Print a snapshot after this much virtual time instead of opening the console.
    pub snapshot_after: Option<Duration>,
}

impl DemoOptions {
    fn to_scenario_run(&self) -> gaunt_sim::ScenarioRun {
        let (name, nodes, seed, level) = (self.scenario.clone(), self.nodes, self.seed, self.level);
        gaunt_sim::ScenarioRun { name, nodes, seed, level, dialect: Dialect::Gaunt }
    }
}

/// Shows the fleet in the console; without a terminal prints one snapshot, minutes ahead.
pub async fn run(
    story: DemoOptions,
    owner: gaunt_engine::EngineOptions,
    console: gaunt_console::ConsoleOptions,
) -> anyhow::Result<ExitCode> {
    let owner = gaunt_engine::EngineOptions {
        cluster: SanitizedText::new("demo"),
        period: PERIOD,
        ..owner
    };
    let (after, story) = (story.snapshot_after, story.to_scenario_run());
    let timing = story.run_timing()?;
    if after.is_some() || !has_terminal() {
        let start = gaunt_engine::monotonic_clock()() - after.unwrap_or(timing.look);
        let mut seen = run_ahead(&story, start, after.unwrap_or(timing.look), owner)?;
        snapshot_command::print_page(&build_snapshot(&mut seen).render_text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let clock = gaunt_engine::monotonic_clock();
    let handle = gaunt_engine::spawn_new(owner, clock.clone());
    let fleet = story.build_fleet(clock() - timing.first.saturating_sub(LEAD))?;
    announce_targets(&handle, fleet_targets(&fleet)).await?;
    let (stop, stopped) = channel::<()>();
    let inbox = handle.delivery_sender();
    let feeding = thread::Builder::new()
        .name("demo".to_owned())
        .spawn(move || feed_pages(fleet, &inbox, &clock, |pause| stopped.recv_timeout(pause)))?;
    let shown = gaunt_console::run(AnswerSource::Engine(handle), console).await;
    drop(stop);
    feeding.join().map_err(|_| anyhow::anyhow!("the simulated fleet ended with a panic"))?;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// Announces the targets and waits until the engine has ingested them: the console must not open on an empty list.
async fn announce_targets(
    owner: &gaunt_engine::EngineHandle,
    targets: Vec<ScrapeTarget>,
) -> anyhow::Result<()> {
    owner.delivery_sender().send(Delivery::Targets(targets)).await?;
    let mut ticked = UnixMs(0);
    loop {
        ticked = owner.wait_for_tick(ticked).await?;
        if let Answer::Overview(overview) = owner.ask_question(Question::Overview).await?
            && overview.nodes.pending > 0
        {
            return Ok(());
        }
    }
}

/// Advances the fleet once a second and delivers its pages, until stopped or the receiver is gone.
fn feed_pages(
    mut fleet: SimFleet,
    inbox: &mpsc::Sender<Delivery>,
    clock: &ClockFn,
    wait: impl Fn(Duration) -> Result<(), RecvTimeoutError>,
) {
    let limits = text::PageLimits::default();
    let mut next = clock();
    loop {
        fleet.advance_to(clock());
        for node in 0..fleet.node_count() {
            let batch = decode_node_page(&fleet, node, clock(), &limits);
            if inbox.blocking_send(Delivery::Batch(batch)).is_err() {
                return;
            }
        }
        next = next + PERIOD;
        if wait(next.duration_since(clock())) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// A scenario at its most visible time, with its ground truth.
#[derive(Debug)]
pub struct DemoCapture {
    /// The snapshot at that time.
    pub page: String,
    /// All findings since the start.
    pub finding_log: FindingLog,
    /// The faults that are active then.
    pub truths: Vec<GroundTruth>,
    /// Simulated time.
    pub after: Duration,
    /// Number of nodes.
    pub nodes: usize,
}

/// Simulates a scenario that begins at `start`, in virtual time.
pub fn capture_demo(
    story: &DemoOptions,
    start: UnixMs,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<DemoCapture> {
    let told = story.to_scenario_run();
    let after = story.snapshot_after.map_or_else(|| Ok(told.run_timing()?.look), anyhow::Ok)?;
    let options = gaunt_engine::EngineOptions {
        cluster: SanitizedText::new("demo"),
        period: PERIOD,
        ..options
    };
    let mut seen = run_ahead(&told, start, after, options)?;
    let page = build_snapshot(&mut seen).render_text();
    let (fleet, end) = (told.build_fleet(start)?, start + after);
    let truths = fleet.ground_truths().iter().filter(|truth| truth.onset < end).cloned().collect();
    Ok(DemoCapture {
        page,
        finding_log: seen.into_finding_log(),
        truths,
        after,
        nodes: fleet.node_count(),
    })
}

/// Simulates the first minutes in virtual time; returns the run.
fn run_ahead(
    story: &gaunt_sim::ScenarioRun,
    start: UnixMs,
    after: Duration,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<VirtualRun> {
    run_watched(story, start, after, options, |_, _| {})
}

/// The same, with a callback after each second.
fn run_watched(
    story: &gaunt_sim::ScenarioRun,
    start: UnixMs,
    after: Duration,
    options: gaunt_engine::EngineOptions,
    mut look: impl FnMut(u32, &mut VirtualRun),
) -> anyhow::Result<VirtualRun> {
    let limits = text::PageLimits::default();
    let mut fleet = story.build_fleet(start)?;
    let mut witness = VirtualRun::new(options);
    witness.ingest_delivery(Delivery::Targets(fleet_targets(&fleet)));
    for second in 1..=after.as_secs() as u32 {
        let now = start + PERIOD * second;
        fleet.advance_to(now);
        for node in 0..fleet.node_count() {
            witness.ingest_delivery(Delivery::Batch(decode_node_page(&fleet, node, now, &limits)));
        }
        witness.run_tick(now);
        look(second, &mut witness);
    }
    Ok(witness)
}

fn build_snapshot(seen: &mut VirtualRun) -> snapshot_command::FleetSnapshot {
    let questions = [Question::Overview, Question::Findings, Question::Targets];
    snapshot_command::FleetSnapshot::from_answers(
        questions.map(|question| seen.answer_question(&question)),
    )
}

fn fleet_targets(fleet: &SimFleet) -> Vec<ScrapeTarget> {
    let target = |node| ScrapeTarget {
        id: TargetId(node as u32),
        address: SanitizedText::new(&format!("demo:{}", fleet.node_name(node))),
        node: None,
        origin: "the demo".into(),
    };
    (0..fleet.node_count()).map(target).collect()
}

/// One node's page, encoded and decoded as between processes; none if the node does not answer.
fn decode_node_page(fleet: &SimFleet, node: usize, at: UnixMs, limits: &text::PageLimits) -> Batch {
    let outcome: Result<ScrapedPage, _> = match fleet.scraped_pages(node).first() {
        Some((_, page)) => text::decode_page(page.as_bytes(), limits),
        None => Err(ScrapeFailure::Connect("connection refused".into())),
    };
    Batch { target: TargetId(node as u32), at, duration_ms: 0.0, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn console_of_the_demo_opens_with_its_targets_named() {
        let clock: ClockFn = gaunt_engine::monotonic_clock();
        let options = gaunt_engine::EngineOptions {
            period: Duration::from_millis(100),
            ..Default::default()
        };
        let handle = gaunt_engine::spawn_new(options, clock.clone());
        let target = |node: u32| ScrapeTarget {
            id: TargetId(node),
            address: SanitizedText::new(&format!("demo:gpu{node:03}")),
            node: None,
            origin: "the demo".into(),
        };
        announce_targets(&handle, (0..4).map(target).collect()).await.unwrap();
        let Ok(Answer::Overview(overview)) = handle.ask_question(Question::Overview).await else {
            panic!("no overview")
        };
        assert_eq!(overview.nodes.pending, 4);
    }

    #[test]
    fn demo_says_the_same_after_28_and_33_minutes() {
        let story = DemoOptions {
            nodes: Some(5),
            scenario: "demo".to_owned(),
            seed: 1,
            level: FaultLevel::Hard,
            snapshot_after: None,
        };
        let (start, after) = (UnixMs(1_760_017_311_000), Duration::from_mins(33));
        let mut told = Vec::new();
        let look = |second: u32, seen: &mut VirtualRun| {
            if let (true, Answer::Findings(list)) =
                (second == 28 * 60 || second == 33 * 60, seen.answer_question(&Question::Findings))
            {
                let one = |finding: &gaunt_api::Finding| {
                    (finding.id.clone(), finding.severity, finding.cost_gpu_hours_per_hour)
                };
                told.push(list.findings.iter().map(one).collect::<Vec<_>>());
            }
        };
        let seen = run_watched(
            &story.to_scenario_run(),
            start,
            after,
            gaunt_engine::EngineOptions::default(),
            look,
        );
        assert!(seen.is_ok(), "{seen:?}");
        let [early, late] = told.as_slice() else { panic!("{told:?}") };
        assert!(!early.is_empty() && early.len() == late.len(), "{told:?}");
        for ((id, severity, cost), (later, same, costs)) in early.iter().zip(late) {
            assert_eq!((id, severity), (later, same), "{told:?}");
            assert!((cost - costs).abs() <= (cost * 0.1).max(0.5), "{told:?}");
        }
    }
}
