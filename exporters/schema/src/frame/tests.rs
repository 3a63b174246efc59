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
fn node_report(second: u32) -> Report {
    let time = Some(UnixMs(1_795_000_000_000 + i64::from(second)));
    let mut report = Report { node_time: time, node: Some("gpu0417".into()), ..Report::default() };
    let node = report.ensure_device(Device::new_node());
    report.push(node, host::CPUS, 128.0);
    for index in 0..8 {
        let gpu = report.ensure_device(Device::new_gpu(index));
        let uuid = format!("GPU-{index}");
        report.add_info(gpu, gpu::INFO, &[("uuid", &uuid), ("model", "H100")]);
        report.push(gpu, gpu::UTILIZATION, f64::from((index + second) % 100) / 100.0);
        report.push(gpu, gpu::ENERGY, f64::from(second) * 700.125);
        let temperature =
            if index == 3 { AbsenceReason::Lost.into() } else { Reading::Value(61.0) };
        report.push(gpu, gpu::TEMPERATURE, temperature);
        let port = report.ensure_device(Device::new_port(&format!("mlx5_{index}"), "1"));
        report.push(port, port::RECEIVE_BYTES, 1e15 + f64::from(second) * 48e9);
    }
    report
}

/// Another moment of the same node: the values differ, and so may what is absent.
fn change_readings(report: &Report, changes: &[(usize, Reading)]) -> Report {
    let mut modified = report.clone();
    for (index, reading) in changes {
        let count = modified.samples.len().max(1);
        if let Some(sample) = modified.samples.get_mut(index % count) {
            // A clock that is no sample on one page must not become one on the next.
            let clock = sample.metric == host::NODE_TIME;
            let is_constant = match sample.metric.catalogue_row().kind {
                MetricKind::Counter(width @ CounterWidth::Saturating(_)) => {
                    width.max_value() == reading.value()
                }
                _ => false,
            };
            if !clock && !is_constant {
                sample.reading = *reading;
            }
        }
    }
    modified
}

fn any_changes() -> impl Strategy<Value = Vec<(usize, Reading)>> {
    let value =
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Reading::Value);
    let integer = (0..10_000_000_u64).prop_map(|integer| Reading::Value(integer as f64));
    let share = (0..10_000_u32).prop_map(|share| Reading::Value(f64::from(share) / 1e4));
    let absent = (0..AbsenceReason::ALL.len())
        .prop_map(|index| Reading::new_absent(AbsenceReason::ALL[index]));
    let reading = prop_oneof![value, integer, share, absent];
    prop::collection::vec((any::<usize>(), reading), 0..12)
}

/// Ticks of a session; under Miri each takes a second.
const STEPS: usize = if cfg!(miri) { 4 } else { 12 };

proptest! {
    /// All forms of a page have the same report: text, text that matches a template, whole frames and differences.
    #[test]
    fn text_repeated_text_and_frames_have_equal_reports(first in any_report(), changes in any_changes()) {
        let second = change_readings(&first, &changes);
        let (layouts, mut template_state) = (text::TemplateCache::default(), text::TemplateState::default());
        let (frames, mut state) = (FrameDecoder::default(), FrameDecodeState::default());
        let mut last = None;
        for (tick, report) in [&first, &second, &second].into_iter().enumerate() {
            let mut page = String::new();
            text::write_text(report, &mut page);
            let parsed = text::decode_page(page.as_bytes(), &default_limits()).unwrap();
            let repeated = layouts.decode_page(&mut template_state, page.as_bytes(), &default_limits()).unwrap();
            let encoder = FrameEncoder::of(report, tick as u64, last.as_ref());
            let mut frame = Vec::new();
            encoder.encode_frame(frames.client_state(&mut state), last.as_ref(), &mut frame);
            let framed = frames.decode_frame(&mut state, &frame, &default_limits()).unwrap();
            let decoded_alone = decode_alone(&encode_whole(report)).unwrap();
            prop_assert_eq!(report_content(&parsed.report), report_content(report));
            prop_assert_eq!(report_content(&repeated.report), report_content(report));
            prop_assert_eq!(report_content(&framed.report), report_content(report));
            prop_assert_eq!(report_content(&decoded_alone.report), report_content(report));
            prop_assert_eq!((framed.dialect, &framed.rejected), (parsed.dialect, &parsed.rejected));
            last = Some(encoder);
        }
        prop_assert_eq!(frames.decoder_stats().differences, 2, "one layout, whatever is absent");
    }

    /// A server that keeps some ticks, and a client that sometimes loses its state.
    #[test]
    fn client_gets_whole_report_from_any_state(
        steps in prop::collection::vec((0_u32..50, 0_usize..4, any::<bool>()), 1..STEPS),
    ) {
        let (frames, mut state) = (FrameDecoder::default(), FrameDecodeState::default());
        let mut encoders: Vec<FrameEncoder> = Vec::new();
        for (tick, (second, base_age, forgets)) in steps.into_iter().enumerate() {
            if forgets {
                state = FrameDecodeState::default();
            }
            let report = node_report(second);
            let encoder = FrameEncoder::of(&report, 100 + tick as u64, encoders.last());
            let client = frames.client_state(&mut state);
            let base = encoders.iter().rev().nth(base_age);
            let mut frame = Vec::new();
            encoder.encode_frame(client, base, &mut frame);
            let page = frames.decode_frame(&mut state, &frame, &default_limits()).unwrap();
            prop_assert_eq!(report_content(&page.report), report_content(&decode_alone(&encode_whole(&report)).unwrap().report));
            encoders.push(encoder);
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_frame(body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode_alone(&body).is_err());
    }

    /// Arbitrary bytes with a valid checksum decode to a report within its limits, or to an error.
    #[test]
    fn changed_bytes_with_valid_checksum_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut body = encode_whole(&node_report(3));
        let head = FrameHeader::decode_header(&body).unwrap();
        for (index, byte) in changes {
            let offset = LENGTH + index.index(body.len() - LENGTH);
            body[offset] = byte;
        }
        if is_cut {
            body.truncate(LENGTH + cut.index(body.len() - LENGTH));
        }
        // The hash of the layout is recomputed too, if the layout can still be found.
        let hash = LayoutHash::of(layout_of(&body).unwrap_or_default());
        for layout in [head.layout, hash] {
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
fn damaged_frame_is_rejected_and_next_one_is_whole() {
    let (frames, mut state) = (FrameDecoder::default(), FrameDecodeState::default());
    let encoder = FrameEncoder::of(&node_report(1), 1, None);
    let mut body = Vec::new();
    encoder.encode_frame(ClientState::default(), None, &mut body);
    // Under Miri each takes a fiftieth of a second.
    let step = if cfg!(miri) { 31 } else { 1 };
    for length in (0..body.len()).step_by(step) {
        assert!(decode_alone(&body[..length]).is_err(), "{length} of {}", body.len());
    }
    for index in (0..body.len()).step_by(step) {
        let mut changed = body.clone();
        changed[index] ^= 0x10;
        assert!(decode_alone(&changed).is_err(), "byte {index}");
    }
    frames.decode_frame(&mut state, &body, &default_limits()).unwrap();
    assert_eq!(frames.client_state(&mut state).tick, Some(1));
    let mut longer = body.clone();
    longer.push(0);
    let truncated = format!(
        "frame: length mismatch: {} bytes received, {} announced",
        longer.len(),
        body.len()
    );
    assert_eq!(
        failure_text(frames.decode_frame(&mut state, &longer, &default_limits())),
        truncated
    );
    assert_eq!(
        frames.client_state(&mut state).tick,
        None,
        "a rejected frame clears the state of its target"
    );
    assert_eq!(frames.decoder_stats().faults, 1);
    frames.decode_frame(&mut state, &body, &default_limits()).unwrap();
}

#[test]
fn differences_from_unknown_tick_are_rejected() {
    let (first, second) =
        (FrameEncoder::of(&node_report(1), 1, None), FrameEncoder::of(&node_report(2), 2, None));
    let mut first_frame = Vec::new();
    first.encode_frame(ClientState::default(), None, &mut first_frame);
    let client_state = ClientState { layout: Some(first.layout().content_hash()), tick: Some(1) };
    let mut difference = Vec::new();
    second.encode_frame(client_state, Some(&first), &mut difference);
    assert!(
        difference.len() * 3 < first_frame.len(),
        "{} of {}",
        difference.len(),
        first_frame.len()
    );
    let (frames, mut state) = (FrameDecoder::default(), FrameDecodeState::default());
    let fault = failure_text(frames.decode_frame(&mut state, &difference, &default_limits()));
    assert_eq!(fault, "frame: unknown layout hash without a layout");
    frames.decode_frame(&mut state, &first_frame, &default_limits()).unwrap();
    frames.decode_frame(&mut state, &difference, &default_limits()).unwrap();
    let repeated = failure_text(frames.decode_frame(&mut state, &difference, &default_limits()));
    assert_eq!(repeated, "frame: difference to an unknown tick");
    // A server that was restarted has other ticks, and sends whole frames.
    let mut whole_frame = Vec::new();
    FrameEncoder::of(&node_report(3), 900, None).encode_frame(
        client_state,
        Some(&FrameEncoder::of(&node_report(1), 899, None)),
        &mut whole_frame,
    );
    let page = frames.decode_frame(&mut state, &whole_frame, &default_limits());
    assert_eq!(failure_text(page), "frame: unknown layout hash without a layout");
}

#[test]
fn layout_of_equal_nodes_is_sent_once() {
    let frames = FrameDecoder::default();
    let mut sizes = Vec::new();
    let mut memories: Vec<FrameDecodeState> =
        std::iter::repeat_with(FrameDecodeState::default).take(50).collect();
    for (target, state) in memories.iter_mut().enumerate() {
        let mut report = node_report(target as u32);
        report.node = Some(format!("gpu{target}").into());
        report.infos[0].labels[0].1 = format!("GPU-{target}-0").into();
        let mut body = Vec::new();
        FrameEncoder::of(&report, 1, None).encode_frame(
            frames.client_state(state),
            None,
            &mut body,
        );
        let page = frames.decode_frame(state, &body, &default_limits()).unwrap();
        assert_eq!(page.report.node, report.node);
        sizes.push(body.len());
    }
    assert!(sizes[1..].iter().all(|size| size + 300 < sizes[0]), "{sizes:?}");
    assert_eq!((frames.decoder_stats().layouts, frames.decoder_stats().whole), (1, 50));
    // A boot with one GPU less is another layout, and its identity is sent again.
    let mut smaller = node_report(60);
    smaller.samples.retain(|sample| sample.device != 1);
    let mut body = Vec::new();
    FrameEncoder::of(&smaller, 2, None).encode_frame(
        frames.client_state(&mut memories[0]),
        None,
        &mut body,
    );
    let page = frames.decode_frame(&mut memories[0], &body, &default_limits()).unwrap();
    assert_eq!(
        report_content(&page.report),
        report_content(&decode_alone(&encode_whole(&smaller)).unwrap().report)
    );
    assert_eq!(frames.decoder_stats().layouts, 2);
}

#[test]
fn identity_change_is_sent_in_a_difference() {
    let (frames, mut state) = (FrameDecoder::default(), FrameDecodeState::default());
    let mut last: Option<FrameEncoder> = None;
    let mut lengths = Vec::new();
    for (tick, uuid) in ["GPU-0", "GPU-0", "GPU-9"].into_iter().enumerate() {
        let mut report = node_report(tick as u32);
        report.infos[0].labels[0].1 = uuid.into();
        let encoder = FrameEncoder::of(&report, tick as u64, last.as_ref());
        let mut body = Vec::new();
        encoder.encode_frame(frames.client_state(&mut state), last.as_ref(), &mut body);
        let page = frames.decode_frame(&mut state, &body, &default_limits()).unwrap();
        assert_eq!(page.report.infos[1].labels[0].1, uuid);
        lengths.push(body.len());
        last = Some(encoder);
    }
    assert_eq!(frames.decoder_stats().differences, 2);
    assert!(lengths[1] < lengths[2], "{lengths:?}");
}

#[test]
fn frame_limits_are_checked_before_allocation() {
    let low_limits = PageLimits { samples: 40, body_bytes: 10_000, ..default_limits() };
    let frames = FrameDecoder::default();
    let failure = |body: &[u8]| {
        frames.decode_frame(&mut FrameDecodeState::default(), body, &low_limits).unwrap_err()
    };
    assert_eq!(failure(&vec![0; 10_001]), ScrapeFailure::TooLarge(10_000));
    let excess = LimitExceeded { budget: Quota::Samples, found: 41, limit: 40 };
    assert_eq!(failure(&encode_whole(&netdev_report(41))), ScrapeFailure::OverBudget(excess));
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
    let no_capacity = failure_text(small.decode_frame(
        &mut FrameDecodeState::default(),
        &encode_whole(&node_report(1)),
        &default_limits(),
    ));
    assert_eq!(no_capacity, "frame: no space for its layout: 0 bytes of layouts stored");
}

fn netdev_report(devices: usize) -> Report {
    let mut report = Report::default();
    for index in 0..devices {
        let device = report.ensure_device(Device::new_netdev(&format!("veth{index}")));
        report.push(device, host::NETDEV_SPEED, 1.0);
    }
    report
}

#[test]
fn unused_layouts_are_evicted() {
    let size = |frames: &FrameDecoder| frames.decoder_stats().bytes as usize;
    let decoder = FrameDecoder::default();
    decoder
        .decode_frame(
            &mut FrameDecodeState::default(),
            &encode_whole(&netdev_report(3)),
            &default_limits(),
        )
        .unwrap();
    let frames = FrameDecoder::new(size(&decoder) * 20);
    for devices in 1..400 {
        let mut body = Vec::new();
        FrameEncoder::of(&netdev_report(devices % 4 + 1), 1, None).encode_frame(
            ClientState::default(),
            None,
            &mut body,
        );
        frames.decode_frame(&mut FrameDecodeState::default(), &body, &default_limits()).unwrap();
        assert!(size(&frames) <= size(&decoder) * 20);
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
fn metrics_and_classes_of_newer_version_are_skipped() {
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
    let readings: Vec<_> = report
        .samples
        .iter()
        .map(|sample| (sample.metric, sample.device, sample.reading))
        .collect();
    assert_eq!(
        readings,
        [(gpu::POWER, 0, Reading::Value(300.0)), (gpu::CLOCK_EVENT_IDLE, 0, Reading::Value(1.0))]
    );
    let mut newer_body = body.clone();
    newer_body[4] = 2;
    assert_eq!(
        failure_text(decode_alone(&newer_body)),
        "frame: version 2 is not supported, only version 1; upgrade the older program"
    );
}

#[test]
fn media_type_identifies_frames() {
    assert!(is_frame(CONTENT_TYPE) && is_frame("application/vnd.gaunt.frame; version=9"));
    assert!(!is_frame("text/plain") && !is_frame("application/vnd.gaunt.frames"));
}
