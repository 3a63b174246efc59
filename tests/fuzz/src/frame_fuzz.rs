//! Any bytes as a frame, with a corrected header or not. Decoding gives a report within its limits, or an
//! error; a decoded report can be encoded again with the same content.

use gaunt_schema::{
    Report,
    frame::{ClientState, FrameDecodeState, FrameDecoder, FrameEncoder, LayoutHash},
    text::PageLimits,
};

/// Size of the frame header in bytes; the rest of the frame follows (`exporters/schema/FRAME.md`).
const HEAD: usize = 56;

/// Corrects the length, the checksum and the layout's hash.
fn fix_header(frame: &mut [u8]) {
    let length = frame.len() as u32;
    frame[..4].copy_from_slice(b"GNTF");
    frame[4] = 1;
    frame[5] &= 7;
    frame[6..8].fill(0);
    frame[12..16].copy_from_slice(&length.to_le_bytes());
    // A layout of fewer than 128 bytes has its length in one byte.
    let layout = frame.get(HEAD).map(|length| usize::from(*length)).filter(|length| *length < 128);
    if let Some(layout) = layout.and_then(|length| frame.get(HEAD + 1..HEAD + 1 + length)) {
        let digits = LayoutHash::of(layout).to_string();
        let name = u128::from_str_radix(&digits, 16).unwrap().to_be_bytes();
        frame[32..48].copy_from_slice(&name);
    }
    let sum = crc32fast::hash(&frame[12..]);
    frame[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// The content of a report, compared bit by bit.
fn report_content(report: &Report) -> impl PartialEq + std::fmt::Debug {
    let samples = report.samples.iter();
    let bits = samples.map(|s| {
        (s.metric, s.device, s.reading.value().map(f64::to_bits), s.reading.absence_reason())
    });
    let (devices, infos) = (report.devices.to_vec(), report.infos.to_vec());
    (bits.collect::<Vec<_>>(), devices, infos, report.node.clone(), report.node_time)
}

/// The report after encoding and decoding.
fn round_trip(report: &Report) -> Report {
    let mut frame = Vec::new();
    FrameEncoder::of(report, 1, None).encode_frame(ClientState::default(), None, &mut frame);
    FrameDecoder::default()
        .decode_frame(&mut FrameDecodeState::default(), &frame, &PageLimits::default())
        .unwrap()
        .report
}

/// The input is the frame.
pub fn check_input(input: &[u8]) {
    let limits = PageLimits { samples: 300, ..PageLimits::default() };
    let frames = FrameDecoder::new(1 << 20);
    let mut memory = FrameDecodeState::default();
    drop(frames.decode_frame(&mut memory, input, &limits));
    if input.len() < HEAD {
        return;
    }
    let mut frame = input.to_vec();
    fix_header(&mut frame);
    for _ in 0..2 {
        let Ok(page) = frames.decode_frame(&mut memory, &frame, &limits) else { return };
        assert!(page.report.samples.len() <= 300);
        let once = round_trip(&page.report);
        assert_eq!(report_content(&round_trip(&once)), report_content(&once));
    }
    assert!(frames.decoder_stats().bytes <= 1 << 20);
}
