//! Frames have the content of the text form in every encoding, and malformed frames are rejected.

use proptest::prelude::*;

use super::{
    bytes::{encode_number, encode_text},
    frame_format::MOST_COLUMNS,
    frame_header::{FrameHeader, LENGTH},
    *,
};
use crate::{
    AbsenceReason, Device, LimitExceeded, Quota, Reading, Report, ScrapeFailure, ScrapedPage,
    UnixMs,
    catalogue::{gpu, host, port},
    text::{
        self, PageLimits,
        round_trip::{any_report, report_content},
    },
    unit::{CounterWidth, MetricKind},
};

fn default_limits() -> PageLimits {
    PageLimits::default()
}

fn encode_whole(report: &Report) -> Vec<u8> {
    let mut out = Vec::new();
    FrameEncoder::of(report, 7, None).encode_frame(ClientState::default(), None, &mut out);
    out
}

fn decode_alone(body: &[u8]) -> Result<ScrapedPage, ScrapeFailure> {
    FrameDecoder::default().decode_frame(&mut FrameDecodeState::default(), body, &default_limits())
}

/// A node with readings of every kind at one moment.
fn node_report(moment: u32) -> Report {
    let time = Some(UnixMs(1_795_000_000_000 + i64::from(moment)));
    let mut report = Report { node_time: time, node: Some("gpu0417".into()), ..Report::default() };
    let home = report.ensure_device(Device::new_node());
    report.push(home, host::CPUS, 128.0);
    for at in 0..8 {
        let gpu = report.ensure_device(Device::new_gpu(at));
        let uuid = format!("GPU-{at}");
        report.add_info(gpu, gpu::INFO, &[("uuid", &uuid), ("model", "H100")]);
        report.push(gpu, gpu::UTILIZATION, f64::from((at + moment) % 100) / 100.0);
        report.push(gpu, gpu::ENERGY, f64::from(moment) * 700.125);
        let cool = if at == 3 { AbsenceReason::Lost.into() } else { Reading::Value(61.0) };
        report.push(gpu, gpu::TEMPERATURE, cool);
        let port = report.ensure_device(Device::new_port(&format!("mlx5_{at}"), "1"));
        report.push(port, port::RECEIVE_BYTES, 1e15 + f64::from(moment) * 48e9);
    }
    report
}

/// Another moment of the same node: the values differ, and so may what is absent.
fn change_readings(report: &Report, changes: &[(usize, Reading)]) -> Report {
    let mut later = report.clone();
    for (at, reading) in changes {
        let count = later.samples.len().max(1);
        if let Some(sample) = later.samples.get_mut(at % count) {
            // A clock that is no sample on one page must not become one on the next.
            let clock = sample.metric == host::NODE_TIME;
            let stands = match sample.metric.catalogue_row().kind {
                MetricKind::Counter(width @ CounterWidth::Saturating(_)) => {
                    width.max_value() == reading.value()
                }
                _ => false,
            };
            if !clock && !stands {
                sample.reading = *reading;
            }
        }
    }
    later
}

fn any_changes() -> impl Strategy<Value = Vec<(usize, Reading)>> {
    let value =
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Reading::Value);
    let whole = (0..10_000_000_u64).prop_map(|whole| Reading::Value(whole as f64));
    let share = (0..10_000_u32).prop_map(|share| Reading::Value(f64::from(share) / 1e4));
    let absent =
        (0..AbsenceReason::ALL.len()).prop_map(|at| Reading::new_absent(AbsenceReason::ALL[at]));
    let reading = prop_oneof![value, whole, share, absent];
    prop::collection::vec((any::<usize>(), reading), 0..12)
}

proptest! {
    /// All forms of a page have the same report: text, text that matches a template, whole frames and differences.
    #[test]
    fn text_repeated_text_and_frames_say_the_same(first in any_report(), changes in any_changes()) {
        let second = change_readings(&first, &changes);
        let (layouts, mut memory) = (text::TemplateCache::default(), text::TemplateState::default());
        let (frames, mut held) = (FrameDecoder::default(), FrameDecodeState::default());
        let mut last = None;
        for (tick, report) in [&first, &second, &second].into_iter().enumerate() {
            let mut page = String::new();
            text::write_text(report, &mut page);
            let strict = text::decode_page(page.as_bytes(), &default_limits()).unwrap();
            let repeated = layouts.decode_page(&mut memory, page.as_bytes(), &default_limits()).unwrap();
            let told = FrameEncoder::of(report, tick as u64, last.as_ref());
            let mut frame = Vec::new();
            told.encode_frame(frames.client_state(&mut held), last.as_ref(), &mut frame);
            let framed = frames.decode_frame(&mut held, &frame, &default_limits()).unwrap();
            let alone = decode_alone(&encode_whole(report)).unwrap();
            prop_assert_eq!(report_content(&strict.report), report_content(report));
            prop_assert_eq!(report_content(&repeated.report), report_content(report));
            prop_assert_eq!(report_content(&framed.report), report_content(report));
            prop_assert_eq!(report_content(&alone.report), report_content(report));
            prop_assert_eq!((framed.dialect, &framed.rejected), (strict.dialect, &strict.rejected));
            last = Some(told);
        }
        prop_assert_eq!(frames.decoder_stats().differences, 2, "one layout, whatever is absent");
    }

    /// A server that keeps some ticks, and a client that sometimes loses its state.
    #[test]
    fn whatever_is_held_the_client_has_it_all(
        steps in prop::collection::vec((0_u32..50, 0_usize..4, any::<bool>()), 1..12),
    ) {
        let (frames, mut held) = (FrameDecoder::default(), FrameDecodeState::default());
        let mut kept: Vec<FrameEncoder> = Vec::new();
        for (tick, (moment, back, forgets)) in steps.into_iter().enumerate() {
            if forgets {
                held = FrameDecodeState::default();
            }
            let report = node_report(moment);
            let told = FrameEncoder::of(&report, 100 + tick as u64, kept.last());
            let holds = frames.client_state(&mut held);
            let base = kept.iter().rev().nth(back);
            let mut frame = Vec::new();
            told.encode_frame(holds, base, &mut frame);
            let page = frames.decode_frame(&mut held, &frame, &default_limits()).unwrap();
            prop_assert_eq!(report_content(&page.report), report_content(&decode_alone(&encode_whole(&report)).unwrap().report));
            kept.push(told);
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_frame(body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode_alone(&body).is_err());
    }

    /// Arbitrary bytes with a valid checksum decode to a report within its limits, or to an error.
    #[test]
    fn a_frame_with_any_bytes_changed_and_summed_anew_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut body = encode_whole(&node_report(3));
        let head = FrameHeader::decode_header(&body).unwrap();
        for (place, byte) in changes {
            let at = LENGTH + place.index(body.len() - LENGTH);
            body[at] = byte;
        }
        if is_cut {
            body.truncate(LENGTH + cut.index(body.len() - LENGTH));
        }
        // The hash of the layout is recomputed too, if the layout can still be found.
        let name = LayoutHash::of(layout_of(&body).unwrap_or_default());
        for layout in [head.layout, name] {
            FrameHeader { layout, ..head }.encode_header(0, &mut body);
            if let Ok(page) = decode_alone(&body) {
                let devices = page.report.devices.len() as u32;
                prop_assert!(page.report.samples.iter().all(|sample| sample.device < devices));
                prop_assert!(page.report.infos.iter().all(|info| info.device < devices));
                let finite = |reading: Reading| reading.value().is_none_or(f64::is_finite);
                prop_assert!(page.report.samples.iter().all(|sample| finite(sample.reading)));
            }
        }
    }
}

/// The bytes of the layout of a frame that has one.
fn layout_of(body: &[u8]) -> Option<&[u8]> {
    let mut bytes = bytes::ByteDecoder::new("test", &body[LENGTH..]);
    bytes.decode_part("layout").ok().map(|layout| layout.remaining_bytes())
}

/// The frame of a layout in bytes of its own, and nothing else.
fn frame_of(layout: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    FrameHeader::reserve_header(&mut body);
    encode_number(layout.len() as u64, &mut body);
    body.extend_from_slice(layout);
    let head = FrameHeader {
        has_layout: true,
        has_identity: false,
        tick: 1,
        base_tick: None,
        layout: LayoutHash::of(layout),
        time: None,
    };
    head.encode_header(0, &mut body);
    body
}

fn failure_text(result: Result<ScrapedPage, ScrapeFailure>) -> String {
    match result {
        Err(ScrapeFailure::NotAPage(why)) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_torn_or_changed_frame_is_not_taken_and_the_next_one_is_whole() {
    let (frames, mut memory) = (FrameDecoder::default(), FrameDecodeState::default());
    let told = FrameEncoder::of(&node_report(1), 1, None);
    let mut body = Vec::new();
    told.encode_frame(ClientState::default(), None, &mut body);
    for length in 0..body.len() {
        assert!(decode_alone(&body[..length]).is_err(), "{length} of {}", body.len());
    }
    for at in 0..body.len() {
        let mut changed = body.clone();
        changed[at] ^= 0x10;
        assert!(decode_alone(&changed).is_err(), "byte {at}");
    }
    frames.decode_frame(&mut memory, &body, &default_limits()).unwrap();
    assert_eq!(frames.client_state(&mut memory).tick, Some(1));
    let mut longer = body.clone();
    longer.push(0);
    let torn = format!(
        "frame: length mismatch: {} bytes received, {} announced",
        longer.len(),
        body.len()
    );
    assert_eq!(failure_text(frames.decode_frame(&mut memory, &longer, &default_limits())), torn);
    assert_eq!(
        frames.client_state(&mut memory).tick,
        None,
        "a rejected frame clears the state of its target"
    );
    assert_eq!(frames.decoder_stats().faults, 1);
    frames.decode_frame(&mut memory, &body, &default_limits()).unwrap();
}

#[test]
fn differences_to_what_is_not_held_are_not_taken() {
    let (first, second) =
        (FrameEncoder::of(&node_report(1), 1, None), FrameEncoder::of(&node_report(2), 2, None));
    let mut whole = Vec::new();
    first.encode_frame(ClientState::default(), None, &mut whole);
    let holds = ClientState { layout: Some(first.layout().content_hash()), tick: Some(1) };
    let mut difference = Vec::new();
    second.encode_frame(holds, Some(&first), &mut difference);
    assert!(difference.len() * 3 < whole.len(), "{} of {}", difference.len(), whole.len());
    let (frames, mut memory) = (FrameDecoder::default(), FrameDecodeState::default());
    let fault = failure_text(frames.decode_frame(&mut memory, &difference, &default_limits()));
    assert_eq!(fault, "frame: unknown layout hash without a layout");
    frames.decode_frame(&mut memory, &whole, &default_limits()).unwrap();
    frames.decode_frame(&mut memory, &difference, &default_limits()).unwrap();
    let again = failure_text(frames.decode_frame(&mut memory, &difference, &default_limits()));
    assert_eq!(again, "frame: difference to an unknown tick");
    // A server that was restarted has other ticks, and sends whole frames.
    let mut anew = Vec::new();
    FrameEncoder::of(&node_report(3), 900, None).encode_frame(
        holds,
        Some(&FrameEncoder::of(&node_report(1), 899, None)),
        &mut anew,
    );
    let page = frames.decode_frame(&mut memory, &anew, &default_limits());
    assert_eq!(failure_text(page), "frame: unknown layout hash without a layout");
}

#[test]
fn equal_nodes_share_a_layout_and_only_the_first_sends_it() {
    let frames = FrameDecoder::default();
    let mut sizes = Vec::new();
    let mut memories: Vec<FrameDecodeState> =
        std::iter::repeat_with(FrameDecodeState::default).take(50).collect();
    for (target, memory) in memories.iter_mut().enumerate() {
        let mut report = node_report(target as u32);
        report.node = Some(format!("gpu{target}").into());
        report.infos[0].labels[0].1 = format!("GPU-{target}-0").into();
        let mut body = Vec::new();
        FrameEncoder::of(&report, 1, None).encode_frame(
            frames.client_state(memory),
            None,
            &mut body,
        );
        let page = frames.decode_frame(memory, &body, &default_limits()).unwrap();
        assert_eq!(page.report.node, report.node);
        sizes.push(body.len());
    }
    assert!(sizes[1..].iter().all(|size| size + 300 < sizes[0]), "{sizes:?}");
    assert_eq!((frames.decoder_stats().layouts, frames.decoder_stats().whole), (1, 50));
    // A boot with one GPU less is another layout, and its identity is sent again.
    let mut less = node_report(60);
    less.samples.retain(|sample| sample.device != 1);
    let mut body = Vec::new();
    FrameEncoder::of(&less, 2, None).encode_frame(
        frames.client_state(&mut memories[0]),
        None,
        &mut body,
    );
    let page = frames.decode_frame(&mut memories[0], &body, &default_limits()).unwrap();
    assert_eq!(
        report_content(&page.report),
        report_content(&decode_alone(&encode_whole(&less)).unwrap().report)
    );
    assert_eq!(frames.decoder_stats().layouts, 2);
}

#[test]
fn who_changes_in_identity_tells_it_within_a_difference() {
    let (frames, mut memory) = (FrameDecoder::default(), FrameDecodeState::default());
    let mut last: Option<FrameEncoder> = None;
    let mut lengths = Vec::new();
    for (tick, uuid) in ["GPU-0", "GPU-0", "GPU-9"].into_iter().enumerate() {
        let mut report = node_report(tick as u32);
        report.infos[0].labels[0].1 = uuid.into();
        let told = FrameEncoder::of(&report, tick as u64, last.as_ref());
        let mut body = Vec::new();
        told.encode_frame(frames.client_state(&mut memory), last.as_ref(), &mut body);
        let page = frames.decode_frame(&mut memory, &body, &default_limits()).unwrap();
        assert_eq!(page.report.infos[1].labels[0].1, uuid);
        lengths.push(body.len());
        last = Some(told);
    }
    assert_eq!(frames.decoder_stats().differences, 2);
    assert!(lengths[1] < lengths[2], "{lengths:?}");
}

#[test]
fn everything_has_a_limit_before_room_is_made_for_it() {
    let tight = PageLimits { samples: 40, body_bytes: 10_000, ..default_limits() };
    let frames = FrameDecoder::default();
    let over = |body: &[u8]| {
        frames.decode_frame(&mut FrameDecodeState::default(), body, &tight).unwrap_err()
    };
    assert_eq!(over(&vec![0; 10_001]), ScrapeFailure::TooLarge(10_000));
    let excess = LimitExceeded { budget: Quota::Samples, found: 41, limit: 40 };
    assert_eq!(over(&encode_whole(&netdev_report(41))), ScrapeFailure::OverBudget(excess));
    // Counts far beyond the number of bytes.
    let mut huge = Vec::new();
    encode_number(u64::MAX >> 1, &mut huge);
    assert!(
        failure_text(decode_alone(&frame_of(&huge))).starts_with("frame: its layout has number ")
    );
    let mut columns = vec![0];
    encode_number(MOST_COLUMNS as u64 + 1, &mut columns);
    columns.resize(columns.len() + MOST_COLUMNS + 1, 0);
    assert_eq!(
        failure_text(decode_alone(&frame_of(&columns))),
        "frame: 65537 columns, over the limit of 65536"
    );
    let small = FrameDecoder::new(10);
    let full = failure_text(small.decode_frame(
        &mut FrameDecodeState::default(),
        &encode_whole(&node_report(1)),
        &default_limits(),
    ));
    assert_eq!(full, "frame: no space for its layout: 0 bytes of layouts stored");
}

fn netdev_report(devices: usize) -> Report {
    let mut report = Report::default();
    for at in 0..devices {
        let device = report.ensure_device(Device::new_netdev(&format!("veth{at}")));
        report.push(device, host::NETDEV_SPEED, 1.0);
    }
    report
}

#[test]
fn layouts_that_nobody_uses_make_room_for_others() {
    let size = |frames: &FrameDecoder| frames.decoder_stats().bytes as usize;
    let one = FrameDecoder::default();
    one.decode_frame(
        &mut FrameDecodeState::default(),
        &encode_whole(&netdev_report(3)),
        &default_limits(),
    )
    .unwrap();
    let frames = FrameDecoder::new(size(&one) * 20);
    for devices in 1..400 {
        let mut body = Vec::new();
        FrameEncoder::of(&netdev_report(devices % 4 + 1), 1, None).encode_frame(
            ClientState::default(),
            None,
            &mut body,
        );
        frames.decode_frame(&mut FrameDecodeState::default(), &body, &default_limits()).unwrap();
        assert!(size(&frames) <= size(&one) * 20);
    }
    for target in 0..400 {
        let mut report = netdev_report(1);
        report.devices[0] = Device::new_netdev(&format!("eth{target}"));
        frames
            .decode_frame(
                &mut FrameDecodeState::default(),
                &encode_whole(&report),
                &default_limits(),
            )
            .unwrap();
    }
}

/// Metrics and classes of a newer version are ignored; the rest is decoded.
#[test]
fn metrics_and_classes_of_a_newer_version_are_passed_over() {
    let mut layout = Vec::new();
    encode_number(3, &mut layout);
    for (class, key) in [("gpu", &["0"][..]), ("warp drive", &["a", "b", "c"]), ("node", &[])] {
        encode_text(class, &mut layout);
        encode_number(key.len() as u64, &mut layout);
        for part in key {
            encode_text(part, &mut layout);
        }
    }
    let columns = [
        (gpu::POWER.catalogue_row().name, "", &[0_u8][..]),
        ("gaunt_gpu_flavour_ratio", "", &[0]),
        (gpu::POWER.catalogue_row().name, "", &[2]),
        (gpu::CLOCK_EVENT_IDLE.catalogue_row().name, "quantum", &[0]),
        (gpu::CLOCK_EVENT_IDLE.catalogue_row().name, "idle", &[0]),
    ];
    encode_number(columns.len() as u64, &mut layout);
    for (name, tag, devices) in columns {
        encode_text(name, &mut layout);
        encode_text(tag, &mut layout);
        encode_number(devices.len() as u64, &mut layout);
        for device in devices {
            encode_number(u64::from(*device) * 2, &mut layout);
        }
    }
    let head = FrameHeader::decode_header(&frame_of(&layout)).unwrap();
    let mut body = frame_of(&layout);
    let identity = [0, 0];
    encode_number(identity.len() as u64, &mut body);
    body.extend_from_slice(&identity);
    for watts in [300_u16, 7, 7, 7, 1] {
        // A whole number, encoded as a first difference of none.
        body.extend_from_slice(&[0x00]);
        encode_number(u64::from(watts) * 2, &mut body);
    }
    FrameHeader { has_identity: true, ..head }.encode_header(0, &mut body);
    let report = decode_alone(&body).unwrap().report;
    assert_eq!(report.devices, [Device::new_gpu(0), Device::new_node()]);
    let told: Vec<_> = report.samples.iter().map(|s| (s.metric, s.device, s.reading)).collect();
    assert_eq!(
        told,
        [(gpu::POWER, 0, Reading::Value(300.0)), (gpu::CLOCK_EVENT_IDLE, 0, Reading::Value(1.0))]
    );
    let mut newer = body.clone();
    newer[4] = 2;
    assert_eq!(
        failure_text(decode_alone(&newer)),
        "frame: version 2 is not supported, only version 1; upgrade the older program"
    );
}

#[test]
fn the_media_type_says_what_it_is() {
    assert!(is_frame(CONTENT_TYPE) && is_frame("application/vnd.gaunt.frame; version=9"));
    assert!(!is_frame("text/plain") && !is_frame("application/vnd.gaunt.frames"));
}
