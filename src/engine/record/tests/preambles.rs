//! Tests of preambles of segments and followers: requested, left out if too large, damaged, or missing.

use std::{fs, time::Duration};

use gaunt_schema::{Delivery, RecordingPreamble, UnixMs};

use super::{
    super::{
        Earlier, RecordOptions, Recorder, RecorderFollowHandle, Recording, SegmentStream,
        decode_segment, segment_ring,
    },
    PERIOD, START, fleet_deliveries, record_all, recorder_options,
};
use crate::system_disk::system_disk;

#[test]
fn follower_begins_with_the_current_preamble_and_not_the_first() {
    let recorder = Recorder::forward_only(PERIOD).unwrap();
    let all = fleet_deliveries(2, 3);
    recorder.record_delivery(all[0].0, &all[0].1);
    let follow = recorder.follow_handle();
    follow.announce_preambles(WAIT);
    let later = UnixMs(START.0 + 3_600_000);
    let mut follower = follow.start_following(later).unwrap();
    let past = [1, 2, 3].into();
    let (findings, usual) = ("known".into(), "usual".into());
    let preamble = RecordingPreamble { version: 1, since: Some(START), findings, usual, past };
    follow.answer_preamble(later, Some(preamble.clone()));
    let first = follower.blocking_recv().unwrap();
    let (mut stream, began) = (SegmentStream::default(), decode_segment(&first).unwrap().blocks[0]);
    assert_eq!(began.first, later, "not when this process began");
    let came = stream.decode_arrived(&first).unwrap();
    let mut known = came.iter().filter(|(_, one)| matches!(one, Delivery::Preamble(_)));
    let known = known.next_back().unwrap();
    assert!(matches!(&known.1, Delivery::Preamble(known) if *known == preamble), "{came:?}");
    assert!(came.iter().any(|(_, one)| matches!(one, Delivery::Targets(all) if all.len() == 2)));
    // After recording and forwarding it is still the same.
    let folder = tempfile::tempdir().unwrap();
    record_all(recorder_options(folder.path()), &came);
    let recording = Recording::open_folder(folder.path()).unwrap();
    assert_eq!(recording.earlier(later).unwrap(), Earlier::Known(later, preamble));
    drop(recorder);
}

#[test]
fn preamble_too_large_for_a_segment_omits_baselines() {
    let folder = tempfile::tempdir().unwrap();
    let small = RecordOptions { max_size: 1 << 20, ..recorder_options(folder.path()) };
    let usual = "u".repeat(1 << 20);
    let all = fleet_deliveries(2, 5);
    let recorder = Recorder::start_recording(small).unwrap();
    let findings = "known".into();
    let preamble = RecordingPreamble {
        version: 1,
        findings,
        usual: usual.into(),
        ..RecordingPreamble::default()
    };
    recorder.follow_handle().send_preamble(START, preamble);
    for (at, delivery) in &all {
        recorder.record_delivery(*at, delivery);
    }
    drop(recorder);
    let recording = Recording::open_folder(folder.path()).unwrap();
    let known = match recording.earlier(UnixMs(START.0 + 1_000)).unwrap() {
        Earlier::Known(_, known) => known,
        other => panic!("{other:?}"),
    };
    assert_eq!((known.findings.as_ref(), known.usual.as_ref()), ("known", ""));
    let batches = recording.deliveries_from(START).map(Result::unwrap);
    let batches = batches.filter(|(_, one)| matches!(one, Delivery::Batch(_))).count();
    assert_eq!(batches, all.len() - 1);
}

/// Longer than anything here takes.
const WAIT: Duration = Duration::from_mins(10);

/// Waits until a preamble is requested.
fn wait_asked(follow: &RecorderFollowHandle) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(follow.asked());
}

/// A preamble with this text as its findings.
fn saying(findings: &str) -> RecordingPreamble {
    let (findings, past) = (findings.into(), [1, 2, 3].into());
    RecordingPreamble { version: 1, findings, past, ..RecordingPreamble::default() }
}

#[test]
fn segment_begins_with_a_current_preamble_and_not_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::start_recording(recorder_options(folder.path())).unwrap();
    let follow = recorder.follow_handle();
    follow.announce_preambles(WAIT);
    let all = fleet_deliveries(8, 12);
    // Ten seconds old: findings since then are missing.
    follow.send_preamble(START, saying("old").without_past());
    for (at, delivery) in &all {
        recorder.record_delivery(*at, delivery);
    }
    wait_asked(&follow);
    assert!(
        segment_ring::segments_in(&*system_disk(), folder.path()).unwrap().is_empty(),
        "it waits for the answer"
    );
    follow.answer_preamble(UnixMs(START.0 + 11_000), Some(saying("now")));
    drop(recorder);
    let recording = Recording::open_folder(folder.path()).unwrap();
    let (first, _) = recording.time_span();
    let preamble = recording.earlier(first).unwrap();
    let Earlier::Known(at, preamble) = preamble else { panic!("{preamble:?}") };
    assert_eq!((at, preamble), (UnixMs(START.0 + 11_000), saying("now")));
    let batches = recording.deliveries_from(START).map(Result::unwrap);
    let batches = batches.filter(|(_, one)| matches!(one, Delivery::Batch(_))).count();
    assert_eq!(batches, all.len() - 1, "nothing was lost while it waited");
}

#[test]
fn damaged_preamble_is_reported_and_everything_else_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let all = fleet_deliveries(2, 5);
    let recorder = Recorder::start_recording(recorder_options(folder.path())).unwrap();
    recorder.follow_handle().answer_preamble(START, Some(saying("known")));
    for (at, delivery) in &all {
        recorder.record_delivery(*at, delivery);
    }
    drop(recorder);
    let path =
        segment_ring::segments_in(&*system_disk(), folder.path()).unwrap().pop().unwrap().path;
    let whole = fs::read(&path).unwrap();
    let (at, length) = {
        let segment = decode_segment(&whole).unwrap();
        let block =
            segment.blocks.iter().find(|block| block.find_preamble(START).is_some()).unwrap();
        (block.bytes.as_ptr() as usize - whole.as_ptr() as usize, block.bytes.len())
    };
    let mut flipped = whole.clone();
    flipped[at + length - 1] ^= 1;
    fs::write(&path, &flipped).unwrap();
    let recording = Recording::open_folder(folder.path()).unwrap();
    let (first, _) = recording.time_span();
    assert_eq!(recording.earlier(first).unwrap(), Earlier::Damaged(path, length));
    let read = recording.deliveries_from(START).map(Result::unwrap).collect::<Vec<_>>();
    assert!(read.iter().any(|(_, one)| matches!(one, Delivery::Targets(_))), "{read:?}");
    let batches = read.iter().filter(|(_, one)| matches!(one, Delivery::Batch(_))).count();
    assert_eq!(batches, all.len() - 1);
}

#[test]
fn recording_without_preambles_is_read_and_says_that_it_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let all = fleet_deliveries(2, 5);
    record_all(recorder_options(folder.path()), &all);
    let recording = Recording::open_folder(folder.path()).unwrap();
    let (first, _) = recording.time_span();
    assert_eq!(recording.earlier(first).unwrap(), Earlier::Unsaid);
    assert_eq!(recording.deliveries_from(START).count(), all.len() + 1, "targets are said again");
}
