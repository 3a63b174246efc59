//! Tests of the finding journal on disk: it survives a restart, by the day, and loses no more than a damaged day.

use std::{fs, path::PathBuf};

use gaunt_api::{EvidenceContext, Filter, Refusal, Subject, TimeParam};
use gaunt_engine::{FindingJournal, JournalEntry, PersistedState};
use gaunt_schema::{Entity, LifeState};

use super::*;

const DAY_MS: i64 = 86_400_000;

/// Link errors of a port that closed so many days ago.
fn closed_finding(days_ago: i64) -> Finding {
    let entity = Entity::new_port(&"gpu003".into(), &"mlx5_1".into(), &"1".into());
    let mut finding = Finding::new(FindingKind::LinkErrors, Severity::Warning, entity);
    let closed = UnixMs(wall_clock_now().0 - days_ago * DAY_MS);
    (finding.life.state, finding.life.closed) = (LifeState::Closed, Some(closed));
    finding.life.opened = UnixMs(closed.0 - 60_000);
    finding.since = finding.life.opened;
    finding
}

/// A state whose journal has the findings that closed so many days ago.
fn state_with_journal(days_ago: &[i64]) -> PersistedState {
    let entry = |days: &i64| -> JournalEntry {
        let entry = serde_json::json!({ "finding": closed_finding(*days), "chain": null });
        serde_json::from_value(entry).unwrap()
    };
    let mut journal = FindingJournal::default();
    journal.add_entries(days_ago.iter().map(entry).collect());
    PersistedState::default().with_finding_journal(journal)
}

fn write_state(folder: &Path, state: &PersistedState) {
    let (store, _) = load_state(folder).unwrap();
    let outcome = PersistWriter::new(store).write_changes(state, true);
    assert_eq!((outcome.findings, outcome.other_parts), (Ok(()), Ok(())));
}

/// The files of the journal, in order of their days.
fn journal_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_day = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("journal-") && name.ends_with(".gaunt")
    };
    let mut files: Vec<PathBuf> = paths.filter(is_day).collect();
    files.sort();
    files
}

fn listed_count(engine: &Engine, question: &Question) -> usize {
    match engine.answer_question(question) {
        Answer::Findings(list) => list.findings.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn journal_survives_a_restart_and_names_the_repeated_fault() {
    let folder = tempfile::tempdir().unwrap();
    write_state(folder.path(), &state_with_journal(&[0, 12, 25, 60]));
    assert_eq!(journal_files(folder.path()).len(), 4);
    let (_store, state) = load_state(folder.path()).unwrap();
    let engine = Engine::from_persisted(gaunt_engine::EngineOptions::default(), state);
    assert_eq!(listed_count(&engine, &Question::Closed), 4);
    let Answer::Finding(explained) =
        engine.answer_question(&Question::Finding("link_errors/gpu003/mlx5_1/1".to_owned()))
    else {
        panic!("not explained")
    };
    assert_eq!((explained.earlier_count, explained.earlier.len()), (2, 2));
    let repeats = explained.describe_repeats().unwrap();
    assert!(repeats.starts_with("third link_errors on this port in 30 days"), "{repeats}");
}

/// A time of which the engine keeps nothing else: the one of several findings of a fault that was open then.
#[test]
fn finding_of_the_past_is_explained_by_the_journal() {
    let options = gaunt_engine::EngineOptions::default();
    let mut engine = Engine::from_persisted(options, state_with_journal(&[1, 12, 60]));
    engine.run_tick(wall_clock_now());
    let explain = |days: i64, id: &str| {
        let at = UnixMs(wall_clock_now().0 - days * DAY_MS - 30_000);
        let question = Question::Finding(id.to_owned());
        (at, engine.answer_question(&Question::AtTime(TimeParam::At(at), Box::new(question))))
    };
    let (at, answer) = explain(12, "link_errors/gpu003/mlx5_1/1");
    let Answer::Finding(explained) = answer else { panic!("{answer:?}") };
    assert_eq!((explained.at, explained.earlier_count), (at, 0));
    let life = &explained.finding.life;
    assert!(life.opened <= at && life.closed.is_none(), "as it was then: {life:?}");
    for (days, id) in [(11, "link_errors/gpu003/mlx5_1/1"), (12, "link_errors/gpu004/mlx5_1/1")] {
        let (_, answer) = explain(days, id);
        assert!(matches!(answer, Answer::Refused(Refusal::NotKept { .. })), "{answer:?}");
    }
}

#[test]
fn closed_findings_are_filtered_by_time() {
    let options = gaunt_engine::EngineOptions::default();
    let mut engine = Engine::from_persisted(options, state_with_journal(&[1, 12, 60]));
    engine.run_tick(wall_clock_now());
    for (filter, count) in [("closed<7d", 1), ("closed<30d", 2), ("closed>=30d", 1)] {
        let filter = Filter::parse(Subject::Closed, filter).unwrap();
        assert_eq!(listed_count(&engine, &Question::List(filter)), count);
    }
}

/// A start at a clock of 1970 loads no day of today, and findings that the judge retains close on it.
#[test]
fn day_that_no_start_looked_at_keeps_its_entries() {
    let folder = tempfile::tempdir().unwrap();
    let closed = closed_finding(1);
    let entry = |port: &str, chain: Option<EvidenceContext>| -> JournalEntry {
        let mut finding = closed.clone();
        finding.id = format!("link_errors/gpu003/mlx5_1/{port}");
        let entry = serde_json::json!({ "finding": finding, "chain": chain });
        serde_json::from_value(entry).unwrap()
    };
    let state_of = |entries: Vec<JournalEntry>| {
        let mut journal = FindingJournal::default();
        journal.add_entries(entries);
        PersistedState::default().with_finding_journal(journal)
    };
    let explained = EvidenceContext::default();
    let stored = vec![entry("1", Some(explained.clone())), entry("2", None)];
    write_state(folder.path(), &state_of(stored));
    let mut store = StateStore::open_folder(folder.path()).unwrap();
    assert_eq!(load_from_store(&mut store, UnixMs(0)).unwrap().finding_journal().len(), 0);
    let mut writer = PersistWriter::new(store);
    // The one that is known comes again without its explanation; another one closes; all of them leave.
    let steps = [
        (vec![entry("1", None)], 2),
        (vec![entry("1", None), entry("3", None)], 3),
        (Vec::new(), 2),
    ];
    for (entries, count) in steps {
        assert_eq!(writer.write_changes(&state_of(entries), true).other_parts, Ok(()));
        let bytes = fs::read(&journal_files(folder.path())[0]).unwrap();
        // A start at the right clock reads a copy, as the folder itself is locked.
        let copy = tempfile::tempdir().unwrap();
        let name = journal_files(folder.path())[0].file_name().unwrap().to_owned();
        fs::write(copy.path().join(name), bytes).unwrap();
        let (_store, state) = load_state(copy.path()).unwrap();
        let entries: Vec<serde_json::Value> = state
            .finding_journal()
            .days()
            .flat_map(|(_, day)| day.entries())
            .map(|entry| serde_json::to_value(entry).unwrap())
            .collect();
        assert_eq!(entries.len(), count, "{entries:?}");
        assert_eq!(entries[0]["chain"], serde_json::to_value(&explained).unwrap());
    }
}

#[test]
fn day_that_cannot_be_read_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let state = state_with_journal(&[1]);
    write_state(folder.path(), &state);
    let file = journal_files(folder.path()).remove(0);
    fs::remove_file(&file).unwrap();
    // A link to itself cannot be opened, by no user.
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let mut writer = PersistWriter::new(StateStore::open_folder(folder.path()).unwrap());
    for _ in 0..2 {
        assert!(writer.write_changes(&state, true).other_parts.is_err());
        assert!(file.is_symlink());
    }
}

#[test]
fn damaged_day_is_set_aside_and_the_others_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    write_state(folder.path(), &state_with_journal(&[1, 12, 25]));
    let files = journal_files(folder.path());
    let mut bytes = fs::read(&files[1]).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&files[1], bytes).unwrap();
    let (_store, state) = load_state(folder.path()).unwrap();
    assert_eq!(state.finding_journal().len(), 2);
    assert_eq!(journal_files(folder.path()).len(), 2);
}

#[test]
fn days_that_are_too_old_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    write_state(folder.path(), &state_with_journal(&[1, 92]));
    assert_eq!(journal_files(folder.path()).len(), 2);
    let (store, state) = load_state(folder.path()).unwrap();
    assert_eq!((state.finding_journal().len(), journal_files(folder.path()).len()), (1, 1));
    let mut writer = PersistWriter::new(store);
    for (state, files) in [(state, 1), (PersistedState::default(), 0)] {
        assert_eq!(writer.write_changes(&state, false).other_parts, Ok(()));
        assert_eq!(journal_files(folder.path()).len(), files);
    }
}
