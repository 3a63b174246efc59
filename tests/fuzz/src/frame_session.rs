//! A server and a client over some ticks, each keeping arbitrary state: whatever state the
//! client has, it decodes the report that the server encoded, to the last bit.

use gaunt_schema::{
    AbsenceReason, Device, DeviceClass, MetricId, Reading, Report, UnixMs,
    catalogue::CATALOGUE,
    frame::{FrameDecodeState, FrameDecoder, FrameEncoder},
    text::PageLimits,
    unit::{CounterWidth, MetricKind},
};

/// Ticks that the server keeps.
const KEPT: usize = 3;

/// The bytes of the input, and zeros after them.
struct InputBytes<'a>(&'a [u8]);

impl InputBytes<'_> {
    fn next_byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn next_word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.next_byte()))
    }

    /// A reading of a kind that pages have, or arbitrary bits.
    fn next_reading(&mut self) -> Reading {
        let kind = self.next_byte();
        match kind % 6 {
            0 => Reading::new_absent(
                AbsenceReason::ALL[usize::from(kind / 6) % AbsenceReason::ALL.len()],
            ),
            1 => Reading::of(f64::from_bits(self.next_word())),
            2 => Reading::of((self.next_word() >> (kind / 6)) as f64),
            3 => Reading::of(
                f64::from(self.next_word() as u32) / 10_f64.powi(i32::from(kind / 6 % 10)),
            ),
            _ => Reading::of(f64::from(self.next_byte()) / 100.0),
        }
    }
}

fn next_report(draw: &mut InputBytes<'_>) -> Report {
    let mut report =
        Report { node_time: Some(UnixMs(draw.next_word() as i64 >> 20)), ..Report::default() };
    for _ in 0..draw.next_byte() % 12 {
        let metric = MetricId(draw.next_word() as u16 % CATALOGUE.len() as u16);
        let row = metric.catalogue_row();
        if row.kind == MetricKind::Info
            || row.class == DeviceClass::Fleet
            || row.name == "gaunt_node_time_seconds"
        {
            continue;
        }
        for at in 0..draw.next_byte() % 9 {
            let key = row.class.key_label_names().iter().map(|_| at.to_string().into()).collect();
            let device = report.ensure_device(Device { class: row.class, key });
            if !report.samples.iter().any(|s| (s.metric, s.device) == (metric, device)) {
                report.push(device, metric, Reading::of(0.0));
            }
        }
    }
    report
}

/// The content of a report, compared bit by bit, independent of order.
fn report_content(report: &Report) -> impl PartialEq + std::fmt::Debug {
    let device = |at: u32| report.devices[at as usize].clone();
    let mut samples: Vec<_> = report
        .samples
        .iter()
        .map(|s| {
            // A saturated counter carries no value, in any format.
            let saturated = matches!(s.metric.catalogue_row().kind, MetricKind::Counter(width @ CounterWidth::Saturating(_)) if width.max_value() == s.reading.value());
            let reading = if saturated { AbsenceReason::Saturated.into() } else { s.reading };
            (s.metric, device(s.device), reading.value().map(f64::to_bits), reading.absence_reason())
        })
        .collect();
    samples.sort();
    (samples, report.node_time)
}

/// The input decides what the node reports, and what both sides keep.
pub fn check_input(input: &[u8]) {
    let mut draw = InputBytes(input);
    let (frames, mut memory) = (FrameDecoder::default(), FrameDecodeState::default());
    let mut kept: Vec<FrameEncoder> = Vec::new();
    let mut report = next_report(&mut draw);
    for tick in 0..8 {
        match draw.next_byte() % 8 {
            0 => memory = FrameDecodeState::default(),
            1 => report = next_report(&mut draw),
            2 => kept.clear(),
            _ => {}
        }
        for sample in &mut report.samples {
            if draw.next_byte() % 3 > 0 {
                sample.reading = draw.next_reading();
            }
        }
        let encoder = FrameEncoder::of(&report, tick, kept.last());
        let client = frames.client_state(&mut memory);
        let base = kept.iter().find(|base| encoder.can_diff_from(client, base));
        let mut frame = Vec::new();
        encoder.encode_frame(client, base, &mut frame);
        let page = frames.decode_frame(&mut memory, &frame, &PageLimits::default()).unwrap();
        assert_eq!(report_content(&page.report), report_content(&report));
        kept.push(encoder);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
}
