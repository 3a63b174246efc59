//! Tests of the backlog: restarts, kills, limits, damaged files and a folder that cannot be written.

use std::fs;

use gaunt_engine::system_disk::system_disk;

use super::*;
use crate::write_request::{encode_labels, tests::decode_body};

fn batch_at(at: i64) -> RequestBatch {
    RequestBatch {
        body: vec![at as u8; 1_000],
        samples: 10,
        oldest: UnixMs(at),
        newest: UnixMs(at),
    }
}

fn drain_instants(backlog: &mut Backlog) -> Vec<u8> {
    let mut instants = Vec::new();
    while let Some((id, body)) = backlog.read_oldest() {
        instants.push(body[0]);
        backlog.remove_request(id);
    }
    instants
}

#[test]
fn requests_outlive_a_restart_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = Some(folder.path().join("backlog"));
    let mut backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
    backlog.push_requests(vec![batch_at(1), batch_at(2)]);
    backlog.push_requests(vec![batch_at(3)]);
    drop(backlog);
    let mut backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
    backlog.push_requests(vec![batch_at(4)]);
    assert_eq!(backlog.oldest_instant(), Some(UnixMs(1)));
    assert_eq!(drain_instants(&mut backlog), [1, 2, 3, 4]);
    assert_eq!((backlog.waiting_bytes(), backlog.is_empty()), (0, true));
    assert!(Backlog::open(system_disk(), path, 1 << 20).unwrap().is_empty());
}

fn record_at(at: i64, labels: bool) -> WindowRecord {
    let mut record = WindowRecord::new(UnixMs(at));
    let mut encoded = Vec::new();
    encode_labels(&mut [("__name__", "a")], &mut encoded);
    record.push_sample(0, 0, labels.then_some(&*encoded));
    record
}

/// A killed program has lost no step that it had written, and sends none twice.
#[test]
fn window_of_a_killed_program_becomes_requests() {
    let folder = tempfile::tempdir().unwrap();
    let path = Some(folder.path().to_path_buf());
    let mut backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
    backlog.keep_step(record_at(1, true));
    backlog.push_window(vec![batch_at(2)]);
    backlog.keep_step(record_at(3, true));
    // These are no requests of the window.
    backlog.push_requests(vec![batch_at(7)]);
    backlog.keep_step(record_at(4, false));
    drop(backlog);
    // It was killed when only some requests of the window were kept.
    let window = folder.path().join("000000000001.window");
    let kept = fs::read(&window).unwrap();
    drop(Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "three requests");
    fs::write(&window, kept).unwrap();
    fs::write(folder.path().join("000000000099.tmp"), "cut").unwrap();
    let mut backlog = Backlog::open(system_disk(), path, 1 << 20).unwrap();
    for number in [2, 7] {
        let (id, body) = backlog.read_oldest().unwrap();
        assert_eq!(body[0], number);
        backlog.remove_request(id);
    }
    let (id, body) = backlog.read_oldest().unwrap();
    let request = decode_body(&body);
    let instants = request.series[0].samples.iter().map(|sample| sample.at);
    assert_eq!(instants.collect::<Vec<_>>(), [3, 4]);
    backlog.remove_request(id);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn oldest_requests_are_given_up_and_counted_when_it_is_full() {
    for folder in [None, Some(tempfile::tempdir().unwrap())] {
        let path = folder.as_ref().map(|folder| folder.path().to_path_buf());
        let mut backlog = Backlog::open(system_disk(), path, 3_500).unwrap();
        backlog.push_requests((1..=5).map(batch_at).collect());
        assert_eq!(backlog.loss(), BacklogLoss { full: 20, damaged: 0 });
        assert_eq!(drain_instants(&mut backlog), [3, 4, 5]);
    }
}

#[test]
fn files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/store");
    let mut backlog = Backlog::open(system_disk(), Some(path.clone()), 1 << 20).unwrap();
    backlog.keep_step(record_at(1, true));
    backlog.push_window(vec![batch_at(1)]);
    backlog.keep_step(record_at(2, true));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let modes: Vec<u32> =
        fs::read_dir(&path).unwrap().map(|entry| mode(&entry.unwrap().path())).collect();
    assert_eq!(modes, [0o600, 0o600]);
}

#[test]
fn damaged_file_is_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut backlog =
        Backlog::open(system_disk(), Some(folder.path().to_path_buf()), 1 << 20).unwrap();
    backlog.push_requests((1..=3).map(batch_at).collect());
    let damaged = folder.path().join("000000000000-0000.rw");
    let mut bytes = fs::read(&damaged).unwrap();
    bytes[500] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    fs::write(folder.path().join("000000000000-0001.rw"), "GRW1").unwrap();
    assert_eq!(drain_instants(&mut backlog), [3]);
    assert_eq!(backlog.loss(), BacklogLoss { full: 0, damaged: 20 });
    assert!(folder.path().read_dir().unwrap().next().is_none());
}

/// After a downgrade the samples of the newer version wait for it; nothing is written over them.
#[test]
fn files_of_another_version_stay_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = Some(folder.path().to_path_buf());
    let mut backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
    backlog.keep_step(record_at(1, true));
    assert_eq!(backlog.failure(), None);
    drop(backlog);
    // The newer version was killed between the requests of a window and the removal of its file.
    let foreign = [
        ("000000000000-0000.rw", "GRW2 of the same window"),
        ("000000000005-0000.rw", "GRW2"),
        ("000000000006.window", "GSW2 and its records"),
    ];
    for (name, content) in foreign {
        fs::write(folder.path().join(name), content).unwrap();
    }
    fs::write(folder.path().join("000000000004-0000.rw"), "\0RW2").unwrap();
    for _ in 0..2 {
        let mut backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
        let why = backlog.failure().unwrap();
        assert!(why.starts_with("3 files in /") && why.ends_with("or remove them"), "{why}");
        backlog.keep_step(record_at(8, true));
        backlog.push_window(vec![batch_at(8)]);
        assert_eq!(backlog.failure(), Some(why));
    }
    let mut backlog = Backlog::open(system_disk(), path, 1 << 20).unwrap();
    let (id, body) = backlog.read_oldest().unwrap();
    assert_eq!(decode_body(&body).series[0].samples[0].at, 1, "the window's step is sent");
    backlog.remove_request(id);
    assert_eq!(drain_instants(&mut backlog), [8, 8]);
    let mut left: Vec<(String, String)> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    left.sort();
    assert_eq!(left, foreign.map(|(name, content)| (name.to_owned(), content.to_owned())));
}

/// The window's file is all that outlives a kill when its requests cannot be written.
#[test]
fn window_is_kept_until_its_requests_are_on_disk_or_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = Some(folder.path().to_path_buf());
    for is_sent in [false, true] {
        let mut backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
        backlog.keep_step(record_at(1, true));
        // A folder is in the place of the file of its request.
        let blocked = folder.path().join("000000000000-0000.tmp");
        fs::create_dir(&blocked).unwrap();
        backlog.push_window(vec![batch_at(1)]);
        fs::remove_dir(blocked).unwrap();
        if is_sent {
            let (id, _) = backlog.read_oldest().unwrap();
            backlog.remove_request(id);
        }
        drop(backlog);
        let mut backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
        assert_eq!(backlog.is_empty(), is_sent);
        drain_instants(&mut backlog);
    }
}

#[test]
fn requests_are_kept_in_memory_while_the_folder_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backlog");
    let mut backlog = Backlog::open(system_disk(), Some(path.clone()), 1 << 20).unwrap();
    fs::remove_dir(&path).unwrap();
    backlog.push_requests(vec![batch_at(1)]);
    assert!(backlog.failure().unwrap().contains("free space"), "{:?}", backlog.failure());
    fs::create_dir(&path).unwrap();
    backlog.push_requests(vec![batch_at(2)]);
    assert_eq!(backlog.failure(), None);
    assert_eq!(drain_instants(&mut backlog), [1, 2]);
}
