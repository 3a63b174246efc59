//! Tests: what is read equals what was written, whatever happens to the disk in between.

use std::{collections::BTreeMap, fs, path::Path, sync::atomic::Ordering, time::Duration};

use gaunt_schema::{
    Batch, Delivery, DeviceClass, Dialect, MetricId, RejectionCounts, SanitizedText, ScrapeFailure,
    ScrapeTarget, ScrapedPage, SourceTopology, TargetId, TopologyOrigin, UnixMs, text,
};
use gaunt_sim::{Scenario, SimFleet};
use proptest::prelude::*;

use super::{ENDING, RecordOptions, Recorder, Recording, decode_segment, segment_ring};
use crate::{Engine, system_disk::system_disk};
use gaunt_api::Question;
use gaunt_cluster::Cluster;

mod preambles;

const START: UnixMs = UnixMs(1_760_017_311_000);
const PERIOD: Duration = Duration::from_secs(1);

fn recorder_options(folder: &Path) -> RecordOptions {
    RecordOptions {
        folder: folder.to_owned(),
        max_size: 64 << 20,
        max_age: Duration::from_hours(24),
        period: PERIOD,
    }
}

/// Deliveries of a fleet with a fault in its first seconds.
fn fleet_deliveries(nodes: usize, seconds: i64) -> Vec<(UnixMs, Delivery)> {
    let mut fleet = SimFleet::new(Scenario::from_name("port_down").unwrap(), nodes, 7, START);
    let target = |node: usize| ScrapeTarget {
        id: TargetId(node as u32),
        address: format!("10.0.0.{node}:9770").into(),
        node: None,
        origin: "test".into(),
    };
    let mut all = vec![(START, Delivery::Targets((0..nodes).map(target).collect()))];
    for second in 1..=seconds {
        let at = UnixMs(START.0 + second * 1_000);
        fleet.advance_to(at);
        for node in 0..nodes {
            let mut page = String::new();
            text::write_text(&fleet.node_report(node), &mut page);
            let outcome = if (second, node) == (5, 1) {
                Err(ScrapeFailure::Status(503))
            } else {
                text::decode_page(page.as_bytes(), &text::PageLimits::default())
            };
            let at = UnixMs(at.0 + node as i64 * 37);
            let target = TargetId(node as u32);
            all.push((at, Delivery::Batch(Batch { target, at, duration_ms: 1.5, outcome })));
        }
    }
    all
}

/// Sends everything to a recorder, which drops none of it, and waits until it is written.
fn record_all(options: RecordOptions, all: &[(UnixMs, Delivery)]) {
    let recorder = Recorder::start_recording(options).unwrap();
    let status = recorder.disk_status().unwrap().clone();
    for (given, (at, delivery)) in (0_u64..).zip(all) {
        recorder.record_delivery(*at, delivery);
        // A test is faster than any disk: it waits where senders would be seconds apart.
        while given.saturating_sub(status.written.load(Ordering::Relaxed)) > 900 {
            std::thread::yield_now();
        }
    }
    drop(recorder);
    assert_eq!(status.dropped_entries(), 0);
    assert_eq!(status.written.load(Ordering::Relaxed), all.len() as u64);
}

fn read_all(folder: &Path, from: UnixMs) -> Vec<(UnixMs, Delivery)> {
    Recording::open_folder(folder).unwrap().deliveries_from(from).map(Result::unwrap).collect()
}

/// All values of a cluster after these deliveries.
fn cluster_values(all: &[(UnixMs, Delivery)]) -> BTreeMap<String, String> {
    let mut cluster = Cluster::new(PERIOD, 30);
    let mut now = START;
    for (at, delivery) in all {
        cluster.ingest_delivery(delivery.clone());
        now = now.max(*at);
        cluster.advance_to(now);
    }
    let mut values = BTreeMap::new();
    for metric in MetricId::all_ids() {
        for row in 0..cluster.row_count(metric.catalogue_row().class) as u32 {
            let known = (cluster.current_reading(metric, row), cluster.current_rate(metric, row));
            if let (Some(entry), Some(_)) =
                (cluster.device_at(metric.catalogue_row().class, row), known.0)
            {
                let node = &cluster.node_by_id(entry.node).unwrap().name;
                values.insert(
                    format!("{node} {} {}", entry.device, metric.series_key()),
                    format!("{known:?}"),
                );
            }
        }
    }
    assert!(cluster.row_count(DeviceClass::Gpu) > 0);
    values
}

/// All findings of every tick.
fn findings_by_tick(all: &[(UnixMs, Delivery)]) -> Vec<String> {
    let mut engine =
        Engine::new(crate::EngineOptions { period: PERIOD, ..crate::EngineOptions::default() });
    let (mut tick, mut said) = (START, Vec::new());
    for (at, delivery) in all {
        while tick < *at {
            engine.run_tick(tick);
            said.push(format!("{:?}", engine.answer_question(&Question::Findings)));
            tick = tick + PERIOD;
        }
        engine.ingest_delivery(delivery.clone());
    }
    said
}

/// The targets of a segment change in the middle of it, as after a reload: what is read from later on needs the new ones.
#[test]
fn reading_from_the_middle_of_a_segment_knows_the_newest_targets() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = fleet_deliveries(1, 20);
    let Delivery::Targets(mut targets) = all[0].1.clone() else { panic!("targets come first") };
    targets[0].id = TargetId(100);
    let changed = all.iter().position(|(at, _)| at.0 > START.0 + 5_000).unwrap();
    all.insert(changed, (all[changed].0, Delivery::Targets(targets.clone())));
    record_all(recorder_options(folder.path()), &all);
    let read = read_all(folder.path(), UnixMs(START.0 + 15_000));
    let mut standing = read.iter().filter(|(_, it)| matches!(it, Delivery::Targets(_)));
    let Some((_, Delivery::Targets(newest))) = standing.next_back() else { panic!("targets") };
    assert_eq!(*newest, targets);
    assert!(
        read.iter().all(|(at, it)| at.0 >= START.0 + 15_000 || !matches!(it, Delivery::Batch(_)))
    );
}

#[test]
fn recording_returns_every_value_and_every_finding() {
    let folder = tempfile::tempdir().unwrap();
    let all = fleet_deliveries(4, 60);
    record_all(recorder_options(folder.path()), &all);
    let back = read_all(folder.path(), START);
    let order = |all: &[(UnixMs, Delivery)]| all.iter().map(|(at, _)| at.0).collect::<Vec<_>>();
    // The first block repeats the standing deliveries.
    assert_eq!(order(&back)[1..], order(&all)[..]);
    assert_eq!(cluster_values(&back), cluster_values(&all));
    let (original, replayed) = (findings_by_tick(&all), findings_by_tick(&back));
    assert!(original.iter().any(|said| said.contains("PortDown")), "the fault is found at all");
    assert_eq!(original, replayed);
    let recording = Recording::open_folder(folder.path()).unwrap();
    assert_eq!((recording.scrape_period(), recording.unfinished_bytes()), (PERIOD, 0));
    assert!(recording.damaged_segments().is_empty());
}

#[test]
fn foreign_pages_keep_their_dialect_and_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let page = "node_uname_info{nodename=\"a\"} 1\nnode_memory_MemTotal_bytes 5\nbad{ 1\n";
    let page: ScrapedPage =
        text::decode_page(page.as_bytes(), &text::PageLimits::default()).unwrap();
    let nothing = ScrapedPage {
        report: gaunt_schema::Report::default(),
        dialect: Dialect::Unknown,
        bytes: 9,
        rejected: RejectionCounts::default(),
    };
    let batch = |target, page: &ScrapedPage| {
        let (at, outcome) = (START, Ok(page.clone()));
        (START, Delivery::Batch(Batch { target: TargetId(target), at, duration_ms: 1.0, outcome }))
    };
    record_all(recorder_options(folder.path()), &[batch(0, &page), batch(1, &nothing)]);
    let back = read_all(folder.path(), START);
    let pages: Vec<_> = back
        .iter()
        .filter_map(|(_, delivery)| match delivery {
            Delivery::Batch(Batch { outcome: Ok(page), .. }) => Some(page),
            _ => None,
        })
        .collect();
    assert_eq!(pages[0].dialect, Dialect::NodeExporter);
    assert_eq!((&pages[0].report.node, pages[0].bytes), (&page.report.node, page.bytes));
    assert_eq!((&pages[0].rejected, page.rejected.total_count()), (&page.rejected, 1));
    assert_eq!((pages[1].dialect, pages[1].bytes), (Dialect::Unknown, 9));
}

#[test]
fn truncated_segment_loses_only_the_truncated_block() {
    let mut bytes = super::segment::encode_header(1_000, START);
    for number in 0..20_u8 {
        let payload = vec![number; usize::from(number) * 3];
        bytes.extend(super::segment::encode_block(&payload, 1, START, START).unwrap());
    }
    let whole = decode_segment(&bytes).unwrap();
    let ends: Vec<usize> = whole
        .blocks
        .iter()
        .map(|block| block.bytes.as_ptr() as usize - bytes.as_ptr() as usize + block.bytes.len())
        .collect();
    for cut in 0..bytes.len() {
        let complete = ends.iter().filter(|end| **end <= cut).count();
        let read = decode_segment(&bytes[..cut]).map_or(0, |segment| segment.blocks.len());
        assert_eq!(read, complete, "cut at {cut}");
    }
}

#[test]
fn truncated_segment_returns_its_whole_blocks() {
    let (folder, cut_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Targets and one page: every byte more is one more cut, and more to search after each.
    let deliveries = fleet_deliveries(1, 1);
    record_all(recorder_options(folder.path()), &deliveries);
    let path =
        segment_ring::segments_in(&*system_disk(), folder.path()).unwrap().pop().unwrap().path;
    let mut bytes = fs::read(&path).unwrap();
    // A second block, so that half of the cuts leave one.
    let mut payload = Vec::new();
    for (at, delivery) in &deliveries {
        super::entry_codec::encode_delivery(delivery, *at, &mut payload);
    }
    let first = bytes.len();
    bytes.extend(super::segment::encode_block(&payload, 2, START, START).unwrap());
    for cut in 0..=bytes.len() {
        let expected = match cut {
            cut if cut < first => 0,
            cut if cut < bytes.len() => 1,
            _ => 2,
        };
        let blocks = decode_segment(&bytes[..cut]).map_or(0, |segment| segment.blocks.len());
        assert_eq!(blocks, expected, "cut at {cut}");
        // Decoding everything at every byte would only take time.
        if cut % 97 != 0 && cut != first && cut != bytes.len() {
            continue;
        }
        fs::write(cut_folder.path().join(path.file_name().unwrap()), &bytes[..cut]).unwrap();
        let back = Recording::open_folder(cut_folder.path()).map_or(0, |recording| {
            recording.deliveries_from(UnixMs(0)).map(|one| one.map(|_| 1).unwrap()).sum()
        });
        // The first block repeats the targets.
        let of = [0, deliveries.len() + 1, 2 * deliveries.len() + 1];
        assert_eq!(back, of[expected], "cut at {cut}");
    }
}

#[test]
fn entries_dropped_by_a_slow_disk_are_counted_and_the_rest_is_played() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::start_recording(recorder_options(folder.path())).unwrap();
    let status = recorder.disk_status().unwrap().clone();
    let all = fleet_deliveries(1, 1);
    let given = 30_000;
    // Copying a page is a small part of the work of writing it.
    for _ in 0..given {
        recorder.record_delivery(all[1].0, &all[1].1);
    }
    recorder.record_delivery(all[0].0, &all[0].1);
    drop(recorder);
    let (written, behind) =
        (status.written.load(Ordering::Relaxed), status.behind.load(Ordering::Relaxed));
    assert!(behind > 0, "the disk was as fast as memory");
    assert_eq!(written + behind, given + 1, "nothing is lost without being counted");
    let back = read_all(folder.path(), START);
    let targets = back.iter().filter(|(_, delivery)| matches!(delivery, Delivery::Targets(_)));
    assert_eq!(targets.count(), 1, "what stands is never dropped");
    assert_eq!(back.len() as u64, written);
}

#[test]
fn removed_folder_is_created_again() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("rec");
    let all = fleet_deliveries(1, 2);
    let recorder = Recorder::start_recording(recorder_options(&inner)).unwrap();
    let status = recorder.disk_status().unwrap().clone();
    let wait = |number| {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while status.written.load(Ordering::Relaxed) < number {
            assert!(std::time::Instant::now() < end, "{number} are not written");
            std::thread::yield_now();
        }
    };
    recorder.record_delivery(all[0].0, &all[0].1);
    recorder.record_delivery(all[1].0, &all[1].1);
    wait(2);
    fs::remove_dir_all(&inner).unwrap();
    recorder.record_delivery(all[2].0, &all[2].1);
    drop(recorder);
    let back = read_all(&inner, START);
    assert!(matches!(back[0].1, Delivery::Targets(_)), "what stands is said again");
    assert_eq!(back.len(), 2);
}

#[test]
fn follower_gets_the_current_state_and_then_every_block() {
    let recorder = Recorder::forward_only(PERIOD).unwrap();
    let all = fleet_deliveries(2, 3);
    recorder.record_delivery(all[0].0, &all[0].1);
    let follow = recorder.follow_handle();
    let mut followers: Vec<_> = std::iter::from_fn(|| follow.start_following(START)).collect();
    assert_eq!(followers.len(), 4, "more are not served");
    for (at, delivery) in &all[1..] {
        recorder.record_delivery(*at, delivery);
    }
    drop(recorder);
    let mut stream = super::SegmentStream::default();
    let mut came = Vec::new();
    let mut follower = followers.remove(0);
    while let Some(bytes) = follower.blocking_recv() {
        came.extend(stream.decode_arrived(&bytes).unwrap());
    }
    assert_eq!(stream.period_ms(), Some(1_000));
    assert_eq!(cluster_values(&came), cluster_values(&all));
}

#[test]
fn flipped_bit_loses_one_block() {
    let folder = tempfile::tempdir().unwrap();
    // Blocks of a megabyte: this creates several.
    record_all(recorder_options(folder.path()), &fleet_deliveries(8, 12));
    let path =
        segment_ring::segments_in(&*system_disk(), folder.path()).unwrap().pop().unwrap().path;
    let bytes = fs::read(&path).unwrap();
    let blocks = decode_segment(&bytes).unwrap().blocks.len();
    assert!(blocks >= 3, "{blocks} blocks");
    for at in (super::segment::HEADER..bytes.len()).step_by(bytes.len() / 64) {
        let mut broken = bytes.clone();
        broken[at] ^= 0x10;
        let segment = decode_segment(&broken).unwrap();
        assert_eq!(segment.blocks.len(), blocks - 1, "bit at {at}");
        assert!(segment.lost > 0);
    }
    let mut broken = bytes.clone();
    broken[bytes.len() / 2] ^= 1;
    fs::write(&path, broken).unwrap();
    let recording = Recording::open_folder(folder.path()).unwrap();
    let damaged = recording.damaged_segments();
    assert!(damaged.len() == 1 && damaged[0].0 == path && damaged[0].1 > 0, "{damaged:?}");
    assert_eq!(recording.unfinished_bytes(), 0);
    assert!(recording.deliveries_from(START).all(|one| one.is_ok()));
    fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
    let cut = Recording::open_folder(folder.path()).unwrap();
    assert!(cut.unfinished_bytes() > 0 && cut.damaged_segments().is_empty());
    fs::write(&path, &b"not a segment of a recording"[..]).unwrap();
    let other = Recording::open_folder(folder.path()).unwrap_err().to_string();
    assert!(other.contains("is damaged, and its folder has no other"), "{other}");
}

#[test]
fn segment_that_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    record_all(recorder_options(folder.path()), &fleet_deliveries(2, 3));
    let strange = folder.path().join(format!("1.{ENDING}"));
    let refused = || Recording::open_folder(folder.path()).unwrap_err().to_string();
    rustix::fs::mkfifoat(rustix::fs::CWD, &strange, rustix::fs::Mode::RUSR).unwrap();
    assert!(refused().contains("1.gaunt: it is not a regular file"), "{}", refused());
    fs::remove_file(&strange).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &strange).unwrap();
    assert!(refused().contains("1.gaunt: it is not a regular file"), "{}", refused());
    fs::remove_file(&strange).unwrap();
    fs::File::create(&strange).unwrap().set_len(1 << 40).unwrap();
    assert!(refused().contains("1.gaunt: it is larger than "), "{}", refused());
}

#[test]
fn seek_begins_with_the_current_state_and_continues_from_its_instant() {
    let folder = tempfile::tempdir().unwrap();
    let mut all = fleet_deliveries(2, 30);
    let topology = SourceTopology::new("site.toml".into(), TopologyOrigin::Declared);
    let switch = gaunt_schema::FabricSwitch {
        name: SanitizedText::new("leaf"),
        ..gaunt_schema::FabricSwitch::default()
    };
    all.insert(
        1,
        (START, Delivery::Topology(SourceTopology { switches: vec![switch], ..topology })),
    );
    record_all(recorder_options(folder.path()), &all);
    let from = UnixMs(START.0 + 20_000);
    let back = read_all(folder.path(), from);
    assert!(
        back.iter().any(|(_, d)| matches!(d, Delivery::Targets(targets) if targets.len() == 2))
    );
    assert!(
        back.iter().any(
            |(_, d)| matches!(d, Delivery::Topology(topology) if topology.switches.len() == 1)
        )
    );
    let batches = back.iter().filter(|(_, d)| matches!(d, Delivery::Batch(_)));
    let expected = all.iter().filter(|(at, d)| *at >= from && matches!(d, Delivery::Batch(_)));
    assert_eq!(
        batches.map(|(at, _)| at.0).collect::<Vec<_>>(),
        expected.map(|(at, _)| at.0).collect::<Vec<_>>()
    );
}

#[test]
fn oldest_segments_are_removed_and_the_rest_is_played() {
    let folder = tempfile::tempdir().unwrap();
    let small = RecordOptions { max_size: 256 << 10, ..recorder_options(folder.path()) };
    let deliveries = fleet_deliveries(4, 10);
    for _ in 0..12 {
        record_all(small.clone(), &deliveries);
    }
    let segments = segment_ring::segments_in(&*system_disk(), folder.path()).unwrap();
    let size: u64 = segments.iter().map(|segment| segment.bytes).sum();
    assert!(size <= small.max_size, "{size} bytes in {} segments", segments.len());
    assert!(segments.len() > 1);
    let back = read_all(folder.path(), START);
    assert!(matches!(back[0].1, Delivery::Targets(_)), "each segment says what stands");
}

/// The header of a segment of a newer version.
fn newer_segment() -> Vec<u8> {
    let mut header = super::segment::encode_header(1_000, START);
    header[8] = 9;
    let sum = crc32fast::hash(&header[..24]).to_le_bytes();
    header[24..].copy_from_slice(&sum);
    header
}

/// After a downgrade the recording of the newer version stays, whatever its names; the limits of age and size hold for it too.
#[test]
fn segments_of_another_version_stay_beside_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let newer = [newer_segment(), b"follows".to_vec()].concat();
    let names = [START.0 - 3_600_000, START.0, START.0 + 3_600_000];
    let paths = names.map(|at| folder.path().join(format!("{at:016}.{ENDING}")));
    for path in &paths {
        fs::write(path, &newer).unwrap();
    }
    record_all(recorder_options(folder.path()), &fleet_deliveries(1, 5));
    for path in &paths {
        assert_eq!(fs::read(path).unwrap(), newer, "{}", path.display());
    }
    let segments = segment_ring::segments_in(&*system_disk(), folder.path()).unwrap();
    assert_eq!(segments.len(), 4, "{segments:?}");
    let own = segments.last().unwrap();
    assert!(!paths.contains(&own.path), "what is written now is the newest: {segments:?}");
    let why = Recording::open_folder(folder.path()).unwrap_err().to_string();
    assert!(why.contains("has format version 9, this gaunt reads 1"), "{why}");
    // Nothing else is between the reader and what was recorded now.
    for path in &paths {
        fs::remove_file(path).unwrap();
    }
    assert!(!read_all(folder.path(), START).is_empty());
}

#[test]
fn invalid_recording_is_rejected_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let refused = || Recording::open_folder(folder.path()).unwrap_err().to_string();
    assert!(refused().starts_with("no recording in "), "{}", refused());
    assert!(refused().contains("pages is for `gaunt judge`"), "{}", refused());
    let path = folder.path().join(format!("1.{ENDING}"));
    fs::write(&path, "gaunt").unwrap();
    assert!(refused().starts_with("no recording in "));
    fs::write(&path, newer_segment()).unwrap();
    assert!(refused().contains("has format version 9, this gaunt reads 1"));
    let none = Recorder::start_recording(recorder_options(Path::new("/proc/nowhere")))
        .unwrap_err()
        .to_string();
    assert!(none.starts_with("cannot use /proc/nowhere for a recording"), "{none}");
}

proptest! {
    #[test]
    fn reader_does_not_panic_on_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..400), whole: bool) {
        if whole {
            let mut segment = super::segment::encode_header(1_000, START);
            segment.append(&mut bytes);
            bytes = segment;
        }
        if let Ok(segment) = decode_segment(&bytes) {
            for block in segment.blocks {
                block.decode_deliveries(&text::PageLimits::default());
            }
        }
    }

    #[test]
    fn reader_does_not_panic_on_any_payload(payload in prop::collection::vec(any::<u8>(), 0..400)) {
        let block = super::segment::encode_block(&payload, 1, START, START).unwrap();
        let (block, _) = super::segment::decode_block(&block).unwrap();
        block.decode_deliveries(&text::PageLimits::default());
    }
}
