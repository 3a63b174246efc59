//! Tests: a recording that starts during an incident is replayed with the state of that time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::atomic::{AtomicI64, Ordering},
    time::Instant,
};

use gaunt_schema::{
    Batch, Delivery, Dialect, LifeState, RejectionCounts, ScrapeTarget, ScrapedPage, TargetId,
};
use gaunt_sim::{Scenario, SimFleet};

use super::*;
use gaunt_api::{Answer, Finding, Question};
use gaunt_engine::record::{self, Recorder};

const START: UnixMs = UnixMs(1_760_017_311_000);
const PERIOD: Duration = Duration::from_secs(1);
const NODES: usize = 4;

/// Start and end of the recording, in seconds after the start of the engine.
const BEGINS: i64 = 240;
const ENDS: i64 = 300;

/// Time limit for writing what is pending on a busy machine.
const WRITTEN: Duration = Duration::from_mins(1);

fn at(second: i64) -> UnixMs {
    UnixMs(START.0 + second * 1_000)
}

/// Deliveries of a fleet by second, its targets first.
fn deliveries(scenario: &str) -> Vec<(UnixMs, Vec<Delivery>)> {
    let mut fleet = SimFleet::new(Scenario::from_name(scenario).unwrap(), NODES, 7, START);
    let target = |node: usize| ScrapeTarget {
        id: TargetId(node as u32),
        address: format!("10.0.0.{node}:9770").into(),
        node: None,
        origin: "test".into(),
    };
    let mut by_second = vec![(START, vec![Delivery::Targets((0..NODES).map(target).collect())])];
    for second in 1..=ENDS {
        let at = at(second);
        fleet.advance_to(at);
        let pages = (0..NODES).map(|node| {
            let (report, rejected) = (fleet.node_report(node), RejectionCounts::default());
            let page = ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected };
            let target = TargetId(node as u32);
            Delivery::Batch(Batch { target, at, duration_ms: 1.5, outcome: Ok(page) })
        });
        by_second.push((at, pages.collect()));
    }
    by_second
}

/// Ids of the open findings that have a cost.
fn open(engine: &mut Engine) -> BTreeSet<String> {
    let Answer::Findings(list) = engine.answer_question(&Question::Findings) else {
        panic!("no list")
    };
    let open = list.findings.iter().filter(|finding| finding.life.state != LifeState::Closed);
    open.map(|finding| finding.id.clone()).collect()
}

#[test]
fn recording_made_during_an_incident_has_its_findings_from_the_first_page_on() {
    for scenario in ["port_down", "data_starved", "slow_gpu"] {
        let folder = tempfile::tempdir().unwrap();
        let options = gaunt_engine::EngineOptions {
            period: PERIOD,
            says_usual: true,
            ..gaunt_engine::EngineOptions::default()
        };
        let mut engine = Engine::new(options.clone());
        let recorder = Recorder::start_recording(record::RecordOptions {
            folder: folder.path().to_owned(),
            max_size: record::MAX_SIZE,
            max_age: record::MAX_AGE,
            period: PERIOD,
        })
        .unwrap();
        let mut open_before = BTreeSet::new();
        for (at, of_second) in deliveries(scenario) {
            let is_recorded = at >= self::at(BEGINS);
            for delivery in of_second {
                if is_recorded || matches!(delivery, Delivery::Targets(_)) {
                    recorder.record_delivery(at, &delivery);
                }
                engine.ingest_delivery(delivery);
            }
            engine.run_tick(at);
            if at == self::at(BEGINS - 1) {
                open_before = open(&mut engine);
                let state = engine.persisted_state().unwrap();
                let preamble = SerializedBaselines::default().build_preamble(&state, None).unwrap();
                assert!(!preamble.usual.is_empty(), "what is usual is said");
                recorder.follow_handle().send_preamble(at, preamble);
            }
        }
        drop(recorder);
        assert!(!open_before.is_empty(), "{scenario}: nothing is found at all");
        let recording = Recording::open_folder(folder.path()).unwrap();
        let (first, last) = recording.time_span();
        assert_eq!((first, last), (at(BEGINS), at(ENDS)), "{scenario}: from its first page on");
        let mut replayed = resume_engine(&recording, first, options).unwrap();
        let mut tick = first;
        for entry in recording.deliveries_from(first) {
            let (at, delivery) = entry.unwrap();
            while tick < at {
                replayed.run_tick(tick);
                assert!(open(&mut replayed).is_superset(&open_before), "{scenario} at {tick:?}");
                tick = tick + PERIOD;
            }
            replayed.ingest_delivery(delivery);
        }
        assert!(tick > first, "{scenario}: something was replayed");
    }
}

#[test]
fn preamble_of_another_version_is_refused_with_the_next_step() {
    let newer = RecordingPreamble { version: 9, ..RecordingPreamble::default() };
    let why = parse_preamble(&newer).unwrap_err();
    assert!(why.contains("version 9, this gaunt reads 1; use the gaunt that"), "{why}");
    let broken = RecordingPreamble { version: PREAMBLE_VERSION, findings: "[".into(), ..newer };
    let why = parse_preamble(&broken).unwrap_err();
    assert_eq!(why, "its findings have an unknown format; use the gaunt that recorded it");
}

/// Open findings by id.
fn standing(answer: Answer) -> BTreeMap<String, Finding> {
    let Answer::Findings(list) = answer else { panic!("no list of findings") };
    let open = list.findings.iter().filter(|finding| finding.life.state != LifeState::Closed);
    open.map(|finding| (finding.id.clone(), finding.clone())).collect()
}

fn segments(folder: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "gaunt")).collect()
}

/// Records a fleet with a fault through a running engine, removes every segment at `BEGINS` and continues to the end.
/// Returns the findings that were open when the segments were removed.
async fn recorded_with_segments_removed(
    folder: &Path,
    scenario: &str,
    options: gaunt_engine::EngineOptions,
) -> BTreeMap<String, Finding> {
    let recorder = Recorder::start_recording(record::RecordOptions {
        folder: folder.to_owned(),
        max_size: record::MAX_SIZE,
        max_age: record::MAX_AGE,
        period: PERIOD,
    })
    .unwrap();
    let now = Arc::new(AtomicI64::new(START.0));
    let clock: ClockFn = {
        let now = now.clone();
        Arc::new(move || UnixMs(now.load(Ordering::Relaxed)))
    };
    let (handle, ticks) = gaunt_engine::spawn_stepped(Engine::new(options), START);
    let _preambles = spawn_preamble_task(
        handle.clone(),
        recorder.follow_handle(),
        clock,
        Some(START),
        Duration::from_mins(10),
    );
    let mut open_findings = BTreeMap::new();
    let mut sent = 0;
    for (at, of_second) in deliveries(scenario) {
        now.store(at.0, Ordering::Relaxed);
        for delivery in of_second {
            sent += 1;
            recorder.record_delivery(at, &delivery);
            handle.delivery_sender().send(delivery).await.unwrap();
        }
        ticks.send(at).await.unwrap();
        handle.wait_for_tick(at + Duration::ZERO - Duration::from_millis(1)).await.unwrap();
        if at == self::at(BEGINS + 1) {
            // The new segment begins with the preamble that is requested now.
            wait_until(|| !segments(folder).is_empty()).await;
        }
        if at == self::at(BEGINS) {
            open_findings = standing(handle.ask_question(Question::Findings).await.unwrap());
            // Virtual time does not wait for the disk: everything until now must be in the segments that go.
            let status = recorder.disk_status().unwrap();
            wait_until(|| status.written.load(Ordering::Relaxed) >= sent).await;
            for path in segments(folder) {
                fs::remove_file(path).unwrap();
            }
        }
    }
    // Its thread writes the pending entries.
    drop(recorder);
    open_findings
}

async fn wait_until(is_done: impl Fn() -> bool) {
    let deadline = Instant::now() + WRITTEN;
    while !is_done() {
        assert!(Instant::now() < deadline, "the recorder does not write");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn segment_is_replayed_by_itself_after_earlier_ones_are_removed() {
    for scenario in ["port_down", "slow_gpu"] {
        let folder = tempfile::tempdir().unwrap();
        let options = gaunt_engine::EngineOptions {
            period: PERIOD,
            says_usual: true,
            ..gaunt_engine::EngineOptions::default()
        };
        let open_before =
            recorded_with_segments_removed(folder.path(), scenario, options.clone()).await;
        assert!(!open_before.is_empty(), "{scenario}: nothing is found at all");
        let recording = Recording::open_folder(folder.path()).unwrap();
        let (first, _) = recording.time_span();
        assert!(first > at(BEGINS / 2), "{scenario}: the first segments are gone");
        let mut replayed = resume_engine(&recording, first, options).unwrap();
        let mut found = BTreeMap::new();
        let mut tick = first;
        'replay: for entry in recording.deliveries_from(first) {
            let (at, delivery) = entry.unwrap();
            while tick < at {
                replayed.run_tick(tick);
                found = standing(replayed.answer_question(&Question::Findings));
                tick = tick + PERIOD;
                if tick > first + PERIOD * 2 {
                    break 'replay;
                }
            }
            replayed.ingest_delivery(delivery);
        }
        for (id, before) in &open_before {
            let after = found.get(id).unwrap_or_else(|| panic!("{scenario}: {id} is not open"));
            assert_eq!(after.life.opened, before.life.opened, "{scenario}: {id} opened anew");
            // Averages restart with the first page: the cost is within a factor of two at once.
            let (now, then) = (after.lost_gpus, before.lost_gpus);
            assert!(now >= then / 2.0 && now <= then * 2.0, "{scenario}: {id} costs {now}, {then}");
        }
        // The history of a GPU, and of lost GPUs, begins long before the first page.
        let query = "history?metric=power&filter=gpu=0&points=120";
        let question = Question::parse_line(query, &[]).unwrap();
        let Answer::History(history) = replayed.answer_question(&question) else {
            panic!("no history")
        };
        let points = history.mean.iter().flatten().count();
        assert!(points >= 100, "{scenario}: {points} points of history");
        let Answer::Overview(overview) = replayed.answer_question(&Question::Overview) else {
            panic!("no overview")
        };
        let points = overview.lost.history.iter().flatten().count();
        assert!(points >= 20, "{scenario}: {points} points of lost GPUs");
    }
}
