//! A recording that was made during an incident is read back with what was known then.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::atomic::{AtomicI64, Ordering},
};

use gaunt_schema::{Batch, Delivery, LifeState, Target, TargetId, text};
use gaunt_sim::{Fleet, Scenario};

use super::*;
use crate::{
    answer::{Answer, Finding, Question},
    record::{self, Recorder},
};

const START: UnixMs = UnixMs(1_760_017_311_000);
const PERIOD: Duration = Duration::from_secs(1);
const NODES: usize = 4;

/// When the recording begins and when it ends, in seconds after the owner.
const BEGINS: i64 = 240;
const ENDS: i64 = 300;

fn at(second: i64) -> UnixMs {
    UnixMs(START.0 + second * 1_000)
}

/// What a fleet delivers in each second, its targets first.
fn deliveries(scenario: &str) -> Vec<(UnixMs, Vec<Delivery>)> {
    let mut fleet = Fleet::new(Scenario::named(scenario).unwrap(), NODES, 7, START);
    let target = |node: usize| Target {
        id: TargetId(node as u32),
        address: format!("10.0.0.{node}:9770").into(),
        node: None,
        origin: "test".into(),
    };
    let mut all = vec![(START, vec![Delivery::Targets((0..NODES).map(target).collect())])];
    for second in 1..=ENDS {
        let at = at(second);
        fleet.advance(at);
        let pages = (0..NODES).map(|node| {
            let mut page = String::new();
            text::write(&fleet.report(node), &mut page);
            let outcome = text::decode(page.as_bytes(), &text::Limits::default());
            let target = TargetId(node as u32);
            Delivery::Batch(Batch { target, at, duration_ms: 1.5, outcome })
        });
        all.push((at, pages.collect()));
    }
    all
}

/// The ids of the open findings that cost somebody something.
fn open(owner: &mut Owner) -> BTreeSet<String> {
    let Answer::Findings(list) = owner.answer(&Question::Findings) else { panic!("no list") };
    let open = list.findings.iter().filter(|one| one.life.state != LifeState::Closed);
    open.map(|finding| finding.id.clone()).collect()
}

#[test]
fn recording_made_during_an_incident_has_its_findings_from_the_first_page_on() {
    for scenario in ["port_down", "data_starved", "slow_gpu"] {
        let folder = tempfile::tempdir().unwrap();
        let options =
            owner::Options { period: PERIOD, says_usual: true, ..owner::Options::default() };
        let mut owner = Owner::new(options.clone());
        let recorder = Recorder::start(record::Options {
            folder: folder.path().to_owned(),
            max_size: record::MAX_SIZE,
            max_age: record::MAX_AGE,
            period: PERIOD,
        })
        .unwrap();
        let mut stood = BTreeSet::new();
        for (at, all) in deliveries(scenario) {
            let records = at >= self::at(BEGINS);
            for delivery in all {
                if records || matches!(delivery, Delivery::Targets(_)) {
                    recorder.give(at, &delivery);
                }
                owner.accept(delivery);
            }
            owner.tick(at);
            if at == self::at(BEGINS - 1) {
                stood = open(&mut owner);
                let known = owner.remember().unwrap();
                let preamble = WrittenUsual::default().write(&known, None).unwrap();
                assert!(!preamble.usual.is_empty(), "what is usual is said");
                recorder.follow().give_preamble(at, preamble);
            }
        }
        drop(recorder);
        assert!(!stood.is_empty(), "{scenario}: nothing is found at all");
        let recording = Recording::open(folder.path()).unwrap();
        let (first, last) = recording.span();
        assert_eq!((first, last), (at(BEGINS), at(ENDS)), "{scenario}: from its first page on");
        let mut replayed = resume(&recording, first, options).unwrap();
        let mut tick = first;
        for one in recording.deliveries(first) {
            let (at, delivery) = one.unwrap();
            while tick < at {
                replayed.tick(tick);
                assert!(open(&mut replayed).is_superset(&stood), "{scenario} at {tick:?}");
                tick = tick + PERIOD;
            }
            replayed.accept(delivery);
        }
        assert!(tick > first, "{scenario}: something was replayed");
    }
}

#[test]
fn preamble_of_another_version_is_refused_with_the_next_step() {
    let newer = Preamble { version: 9, ..Preamble::default() };
    let why = remembered(&newer).unwrap_err();
    assert!(why.contains("of version 9 and this gaunt reads 1; use the gaunt that"), "{why}");
    let broken = Preamble { version: PREAMBLE_VERSION, findings: "[".into(), ..newer };
    let why = remembered(&broken).unwrap_err();
    assert_eq!(
        why,
        "its findings are not written as this gaunt writes them; use the gaunt that recorded it"
    );
}

/// Open findings by their ids.
fn standing(answer: Answer) -> BTreeMap<String, Finding> {
    let Answer::Findings(list) = answer else { panic!("no list of findings") };
    let open = list.findings.iter().filter(|one| one.life.state != LifeState::Closed);
    open.map(|finding| (finding.id.clone(), finding.clone())).collect()
}

fn segments(folder: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "gaunt")).collect()
}

/// Records a fleet with a fault past a running owner, removes every segment at `BEGINS` and goes on to the end. Gives the
/// findings that were open when the segments were removed.
async fn recorded_with_segments_removed(
    folder: &Path,
    scenario: &str,
    options: owner::Options,
) -> BTreeMap<String, Finding> {
    let recorder = Recorder::start(record::Options {
        folder: folder.to_owned(),
        max_size: record::MAX_SIZE,
        max_age: record::MAX_AGE,
        period: PERIOD,
    })
    .unwrap();
    let now = Arc::new(AtomicI64::new(START.0));
    let clock: Clock = {
        let now = now.clone();
        Arc::new(move || UnixMs(now.load(Ordering::Relaxed)))
    };
    let (handle, beats) = owner::start_led(Owner::new(options), START);
    let _preambles =
        start(handle.clone(), recorder.follow(), clock, Some(START), Duration::from_mins(10));
    let mut stood = BTreeMap::new();
    for (at, all) in deliveries(scenario) {
        now.store(at.0, Ordering::Relaxed);
        for delivery in all {
            recorder.give(at, &delivery);
            handle.inbox().send(delivery).await.unwrap();
        }
        beats.send(at).await.unwrap();
        handle.ticked_after(at + Duration::ZERO - Duration::from_millis(1)).await.unwrap();
        if at == self::at(BEGINS) {
            stood = standing(handle.ask(Question::Findings).await.unwrap());
            for path in segments(folder) {
                fs::remove_file(path).unwrap();
            }
        }
    }
    // Its thread writes what waits.
    drop(recorder);
    stood
}

#[tokio::test(flavor = "multi_thread")]
async fn segment_is_replayed_by_itself_after_earlier_ones_are_removed() {
    for scenario in ["port_down", "slow_gpu"] {
        let folder = tempfile::tempdir().unwrap();
        let options =
            owner::Options { period: PERIOD, says_usual: true, ..owner::Options::default() };
        let stood = recorded_with_segments_removed(folder.path(), scenario, options.clone()).await;
        assert!(!stood.is_empty(), "{scenario}: nothing is found at all");
        let recording = Recording::open(folder.path()).unwrap();
        let (first, _) = recording.span();
        assert!(first > at(BEGINS / 2), "{scenario}: the first segments are gone");
        let mut replayed = resume(&recording, first, options).unwrap();
        let mut found = BTreeMap::new();
        let mut tick = first;
        'replay: for one in recording.deliveries(first) {
            let (at, delivery) = one.unwrap();
            while tick < at {
                replayed.tick(tick);
                found = standing(replayed.answer(&Question::Findings));
                tick = tick + PERIOD;
                if tick > first + PERIOD * 2 {
                    break 'replay;
                }
            }
            replayed.accept(delivery);
        }
        for (id, before) in &stood {
            let after = found.get(id).unwrap_or_else(|| panic!("{scenario}: {id} is not open"));
            assert_eq!(after.life.opened, before.life.opened, "{scenario}: {id} opened anew");
            // Averages begin anew with the first page: the cost is known to a factor of two at once.
            let (now, then) = (after.lost_gpus, before.lost_gpus);
            assert!(now >= then / 2.0 && now <= then * 2.0, "{scenario}: {id} costs {now}, {then}");
        }
        // History of a GPU, and of lost GPUs, begins long before the first page.
        let ask = "history?metric=power&filter=gpu=0&points=120";
        let question = Question::read_line(ask, &[]).unwrap();
        let Answer::History(history) = replayed.answer(&question) else { panic!("no history") };
        let known = history.mean.iter().flatten().count();
        assert!(known >= 100, "{scenario}: {known} points of history");
        let Answer::Overview(overview) = replayed.answer(&Question::Overview) else {
            panic!("no overview")
        };
        let known = overview.lost.history.iter().flatten().count();
        assert!(known >= 20, "{scenario}: {known} points of lost GPUs");
    }
}
