//! `gaunt demo`: a simulated fleet over the real wire format, live in the console, or simulated ahead in one snapshot.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use gaunt_schema::{
    Batch, ClockFn, Delivery, Dialect, RejectionCounts, SanitizedText, ScrapeFailure, ScrapeTarget,
    ScrapedPage, TargetId, UnixMs, text,
};
use gaunt_sim::{GroundTruth, SimFleet, scenario_run::RunTiming, suite::FaultLevel};
use tokio::sync::{mpsc, watch};

use super::{
    console_command::has_terminal,
    demo_alerts::simulate_alerts,
    demo_probes::measure_free_pairs,
    demo_processes::add_processes,
    judge_command::{FindingLog, VirtualRun},
    snapshot_command,
};
use crate::answer_source::AnswerSource;
use gaunt_api::{Answer, Question};

/// Scrape interval: once a second, as for real nodes.
const PERIOD: Duration = Duration::from_secs(1);

/// Price of a GPU hour where none is set, in US dollars: about that of a rented H100.
const PRICE: f64 = 2.5;

/// The most reports that are simulated before the console opens: about a second of one core.
const AHEAD_REPORTS: u64 = 12_000;

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
    options: DemoOptions,
    engine_options: gaunt_engine::EngineOptions,
    console: gaunt_console::ConsoleOptions,
) -> anyhow::Result<ExitCode> {
    let engine_options = gaunt_engine::EngineOptions {
        cluster: SanitizedText::new("demo"),
        period: PERIOD,
        price_per_gpu_hour: engine_options.price_per_gpu_hour.or(Some(PRICE)),
        ..engine_options
    };
    let (after, scenario_run) = (options.snapshot_after, options.to_scenario_run());
    let timing = scenario_run.run_timing()?;
    if after.is_some() || !has_terminal() {
        let start = gaunt_engine::monotonic_clock()() - after.unwrap_or(timing.look);
        let mut virtual_run =
            run_ahead(&scenario_run, start, after.unwrap_or(timing.look), engine_options)?;
        snapshot_command::print_page(&build_snapshot(&mut virtual_run).render_text())?;
        return Ok(ExitCode::SUCCESS);
    }
    let clock = gaunt_engine::monotonic_clock();
    let (alerts, receiver) = watch::channel(Arc::default());
    let engine_options = gaunt_engine::EngineOptions { alerts: Some(receiver), ..engine_options };
    let (fleet, engine) = run_up_to_now(&scenario_run, timing, &clock, engine_options)?;
    let handle = gaunt_engine::spawn_existing(engine, clock.clone());
    let (stop, stopped) = channel::<()>();
    let (asked, runtime) = (handle.clone(), tokio::runtime::Handle::current());
    let inbox = handle.delivery_sender();
    let after_each = move |fleet: &SimFleet| {
        let send = |request| runtime.block_on(asked.send_pairing_request(request)).ok();
        measure_free_pairs(fleet, send);
        if let Ok(Answer::Findings(list)) = runtime.block_on(asked.ask_question(Question::Findings))
        {
            alerts.send_replace(Arc::new(simulate_alerts(&list.findings)));
        }
    };
    let feeder = thread::Builder::new().name("demo".to_owned()).spawn(move || {
        feed_pages(fleet, &inbox, &clock, after_each, |pause| stopped.recv_timeout(pause));
    })?;
    let result = gaunt_console::run(AnswerSource::Engine(handle), console).await;
    drop(stop);
    feeder.join().map_err(|_| anyhow::anyhow!("the simulated fleet ended with a panic"))?;
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Advances the fleet once a second and delivers its pages, until stopped or the receiver is gone. `after_each` runs after
/// each second.
fn feed_pages(
    mut fleet: SimFleet,
    inbox: &mpsc::Sender<Delivery>,
    clock: &ClockFn,
    after_each: impl Fn(&SimFleet),
    wait: impl Fn(Duration) -> Result<(), RecvTimeoutError>,
) {
    let limits = text::PageLimits::default();
    let mut next = clock();
    loop {
        fleet.advance_to(clock());
        for node in 0..fleet.node_count() {
            let batch = with_processes(decode_node_page(&fleet, node, clock(), &limits));
            if inbox.blocking_send(Delivery::Batch(batch)).is_err() {
                return;
            }
        }
        after_each(&fleet);
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
    demo: &DemoOptions,
    start: UnixMs,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<DemoCapture> {
    let limits = text::PageLimits::default();
    capture_watched(
        demo,
        start,
        options,
        |fleet, node, at| decode_node_page(fleet, node, at, &limits),
        |_, _| {},
    )
}

/// The same with a callback after each second. Reports are not encoded and decoded, which takes most of the time; a
/// test compares both.
pub fn capture_reports(
    demo: &DemoOptions,
    start: UnixMs,
    options: gaunt_engine::EngineOptions,
    observe: impl FnMut(u32, &mut VirtualRun),
) -> anyhow::Result<DemoCapture> {
    capture_watched(demo, start, options, read_node_report, observe)
}

fn capture_watched(
    demo: &DemoOptions,
    start: UnixMs,
    options: gaunt_engine::EngineOptions,
    scrape: impl Fn(&SimFleet, usize, UnixMs) -> Batch,
    observe: impl FnMut(u32, &mut VirtualRun),
) -> anyhow::Result<DemoCapture> {
    let scenario_run = demo.to_scenario_run();
    let after =
        demo.snapshot_after.map_or_else(|| Ok(scenario_run.run_timing()?.look), anyhow::Ok)?;
    let options = gaunt_engine::EngineOptions {
        cluster: SanitizedText::new("demo"),
        period: PERIOD,
        ..options
    };
    let mut virtual_run = run_watched(&scenario_run, start, after, options, scrape, observe)?;
    let page = build_snapshot(&mut virtual_run).render_text();
    let (fleet, end) = (scenario_run.build_fleet(start)?, start + after);
    let truths = fleet.ground_truths().iter().filter(|truth| truth.onset < end).cloned().collect();
    Ok(DemoCapture {
        page,
        finding_log: virtual_run.into_finding_log(),
        truths,
        after,
        nodes: fleet.node_count(),
    })
}

/// Simulates the first minutes in virtual time; returns the run.
fn run_ahead(
    scenario_run: &gaunt_sim::ScenarioRun,
    start: UnixMs,
    after: Duration,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<VirtualRun> {
    let limits = text::PageLimits::default();
    run_watched(
        scenario_run,
        start,
        after,
        options,
        |fleet, node, at| decode_node_page(fleet, node, at, &limits),
        |_, _| {},
    )
}

/// The same with batches from `scrape`, and with a callback after each second.
fn run_watched(
    scenario_run: &gaunt_sim::ScenarioRun,
    start: UnixMs,
    after: Duration,
    options: gaunt_engine::EngineOptions,
    scrape: impl Fn(&SimFleet, usize, UnixMs) -> Batch,
    mut observe: impl FnMut(u32, &mut VirtualRun),
) -> anyhow::Result<VirtualRun> {
    let past = scenario_run.run_timing()?.past;
    let (mut fleet, mut run) = begin_run(scenario_run, start, past, options)?;
    for second in 1..=past.as_secs() as u32 {
        run_second(&mut fleet, &mut run, start - past + PERIOD * second, &scrape);
    }
    for second in 1..=after.as_secs() as u32 {
        run_second(&mut fleet, &mut run, start + PERIOD * second, &scrape);
        observe(second, &mut run);
    }
    Ok(run)
}

/// Simulates a scenario up to the present, so that the first frame of the console shows what it is about: its past and
/// up to the moment of its snapshot, or for a large fleet as far as that takes about a second.
fn run_up_to_now(
    scenario_run: &gaunt_sim::ScenarioRun,
    timing: RunTiming,
    clock: &ClockFn,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<(SimFleet, gaunt_engine::Engine)> {
    let nodes = scenario_run.fleet_shape()?.nodes.max(1) as u64;
    let affordable = Duration::from_secs(AHEAD_REPORTS / nodes);
    let ahead = timing.look.min(affordable);
    let past = timing.past.min(affordable.saturating_sub(ahead));
    let start = clock() - ahead;
    let mut now = start - past;
    let (mut fleet, mut run) = begin_run(scenario_run, start, past, options)?;
    // What passes meanwhile is simulated too, so that no second lacks its reports.
    while now + PERIOD <= clock() {
        now = now + PERIOD;
        run_second(&mut fleet, &mut run, now, &|fleet, node, at| {
            with_processes(read_node_report(fleet, node, at))
        });
        measure_free_pairs(&fleet, |request| Some(run.handle_pairing_request(request)));
    }
    Ok((fleet, run.into_engine()))
}

/// A fleet from `past` before `start` on, and an engine that knows its targets and its topology.
fn begin_run(
    scenario_run: &gaunt_sim::ScenarioRun,
    start: UnixMs,
    past: Duration,
    options: gaunt_engine::EngineOptions,
) -> anyhow::Result<(SimFleet, VirtualRun)> {
    let fleet = scenario_run.build_fleet_before(start, past)?;
    let mut run = VirtualRun::new(options);
    run.ingest_delivery(Delivery::Targets(fleet_targets(&fleet)));
    run.ingest_delivery(Delivery::Topology(scenario_run.fleet_shape()?.to_topology()));
    Ok((fleet, run))
}

fn run_second(
    fleet: &mut SimFleet,
    run: &mut VirtualRun,
    now: UnixMs,
    scrape: &impl Fn(&SimFleet, usize, UnixMs) -> Batch,
) {
    fleet.advance_to(now);
    for node in 0..fleet.node_count() {
        run.ingest_delivery(Delivery::Batch(scrape(fleet, node, now)));
    }
    run.run_tick(now);
}

fn build_snapshot(run: &mut VirtualRun) -> snapshot_command::FleetSnapshot {
    let questions = [Question::Overview, Question::Findings, Question::Targets];
    snapshot_command::FleetSnapshot::from_answers(
        questions.map(|question| run.answer_question(&question)),
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

/// Adds the processes of a node to what was read of it.
fn with_processes(mut batch: Batch) -> Batch {
    if let Ok(page) = &mut batch.outcome {
        add_processes(&mut page.report);
    }
    batch
}

/// One node's page, encoded and decoded as between processes; none if the node does not answer.
fn decode_node_page(fleet: &SimFleet, node: usize, at: UnixMs, limits: &text::PageLimits) -> Batch {
    let outcome: Result<ScrapedPage, _> = match fleet.scraped_pages(node).first() {
        Some((_, page)) => text::decode_page(page.as_bytes(), limits),
        None => Err(ScrapeFailure::Connect("connection refused".into())),
    };
    Batch { target: TargetId(node as u32), at, duration_ms: 0.0, outcome }
}

/// One node's report as it is; as text only where it is not current.
fn read_node_report(fleet: &SimFleet, node: usize, at: UnixMs) -> Batch {
    let Some(report) = fleet.scraped_report(node) else {
        return decode_node_page(fleet, node, at, &text::PageLimits::default());
    };
    let rejected = RejectionCounts::default();
    let page = ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected };
    Batch { target: TargetId(node as u32), at, duration_ms: 0.0, outcome: Ok(page) }
}

#[cfg(test)]
mod tests {
    use gaunt_api::Answer;
    use gaunt_schema::Severity;

    use super::*;

    const START: UnixMs = UnixMs(1_760_017_311_000);

    fn demo_options(scenario: &str, nodes: usize, snapshot_after: Option<Duration>) -> DemoOptions {
        let (scenario, level) = (scenario.to_owned(), FaultLevel::Hard);
        DemoOptions { nodes: Some(nodes), scenario, seed: 1, level, snapshot_after }
    }

    #[test]
    fn first_frame_of_the_demo_has_findings_with_their_cost() {
        let clock: ClockFn = std::sync::Arc::new(|| START);
        let tour = demo_options("tour", 32, None).to_scenario_run();
        let options = gaunt_engine::EngineOptions::default();
        let timing = tour.run_timing().unwrap();
        let (fleet, engine) = run_up_to_now(&tour, timing, &clock, options).unwrap();
        assert_eq!(fleet.current_time(), START);
        let Answer::Overview(overview) = engine.answer_question(&Question::Overview) else {
            panic!("no overview")
        };
        assert_eq!((overview.at, overview.nodes.live), (START, 32));
        let costly = overview.findings.iter().filter(|finding| finding.lost_gpus > 1.0);
        assert!(costly.count() >= 3, "{:?}", overview.findings);
        // A job that one node starves almost stands, from the third minute that is known of it on.
        let mut severities = overview.findings.iter().map(|finding| finding.severity);
        assert!(severities.all(|severity| severity == Severity::Critical), "{overview:?}");
        let Answer::Probe(matrix) = engine.answer_question(&Question::Probe) else {
            panic!("no measurements")
        };
        let pairs = matrix.rails.iter().flat_map(|rail| &rail.pairs);
        let measured = pairs.filter(|pair| pair.bytes_per_second.is_some_and(|rate| rate > 40e9));
        assert_eq!((measured.count(), matrix.free, matrix.ended), (8, 2, [8, 0]), "{matrix:?}");
        assert!(matrix.rails.iter().all(|rail| rail.suspects.is_empty()), "{matrix:?}");
        let question = Question::parse_line("table/processes?filter=node=gpu019", &[]).unwrap();
        let Answer::Table(processes) = engine.answer_question(&question) else {
            panic!("no processes")
        };
        let user = processes.find_column("user").unwrap().text_at(0).unwrap();
        assert_eq!((processes.matched, user.as_str()), (8, "jonas"));
    }

    /// A worse level without a finding becomes the baseline after half an hour.
    #[test]
    fn demo_has_the_same_findings_after_28_and_33_minutes() {
        let (early, late) = (28 * 60, 33 * 60);
        let mut findings = Vec::new();
        let observe = |second: u32, run: &mut VirtualRun| {
            if let (true, Answer::Findings(list)) =
                (second == early || second == late, run.answer_question(&Question::Findings))
            {
                let summary = |finding: &gaunt_api::Finding| {
                    (finding.id.clone(), finding.severity, finding.cost_gpu_hours_per_hour)
                };
                findings.push(list.findings.iter().map(summary).collect::<Vec<_>>());
            }
        };
        let run = run_watched(
            &demo_options("demo", 5, None).to_scenario_run(),
            START,
            Duration::from_secs(u64::from(late)),
            gaunt_engine::EngineOptions::default(),
            read_node_report,
            observe,
        );
        assert!(run.is_ok(), "{run:?}");
        let [early, late] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(!early.is_empty() && early.len() == late.len(), "{findings:?}");
        for ((id, severity, cost), (later_id, later_severity, later_cost)) in early.iter().zip(late)
        {
            assert_eq!((id, severity), (later_id, later_severity), "{findings:?}");
            assert!((cost - later_cost).abs() <= (cost * 0.1).max(0.5), "{findings:?}");
        }
    }

    /// Tests of findings use reports: the demo, over the wire format, shows the same.
    #[test]
    fn encoded_pages_and_reports_give_the_same_capture() {
        for scenario in ["port_down", "data_starved", "gpu_lost"] {
            let demo = demo_options(scenario, 4, Some(Duration::from_secs(75)));
            let options = gaunt_engine::EngineOptions::default();
            let decoded = capture_demo(&demo, START, options.clone()).unwrap();
            let reported = capture_reports(&demo, START, options, |_, _| {}).unwrap();
            assert_eq!(decoded.page, reported.page, "{scenario}");
            let episodes = |capture: &DemoCapture| -> Vec<(String, UnixMs, Option<UnixMs>)> {
                let episodes = capture.finding_log.all_episodes().iter();
                episodes.map(|e| (e.finding.id.clone(), e.opened, e.closed)).collect()
            };
            assert_eq!(episodes(&decoded), episodes(&reported), "{scenario}");
            assert!(!episodes(&decoded).is_empty(), "{scenario}: nothing is found");
        }
    }
}
