//! Ring pages as frames: the same readings as in the text pages, encoded as differences to the client's state.
//!
//! The server keeps no state per client: a tick is the millisecond of the wall clock, and the readings of that tick are
//! recomputed.

use std::sync::Arc;

use gaunt_schema::{
    Device, Report, SanitizedText, UnixMs,
    catalogue::gpu,
    frame::{ClientState, FrameEncoder, FrameLayout, FrameParts, encode_reading},
};

use super::{APART, FRAMES, PageRings, PatchKind, metric_patch};

/// One simulated node, for serving as frames.
#[derive(Debug)]
pub(super) struct FramedNode {
    layout: Arc<FrameLayout>,
    /// Its identity, and the positions in it that differ between nodes.
    identity: Vec<u8>,
    patches: Vec<(usize, PatchKind)>,
    /// The readings of each page.
    readings: [Vec<u64>; FRAMES],
    /// Readings that are counters.
    counts: Vec<CountedReading>,
    clocks: Vec<usize>,
    /// Position of the reading that says whether the first GPU is present.
    present: Option<usize>,
}

/// A counter reading: start value and rate per second, in fractions of a unit.
#[derive(Clone, Copy, Debug)]
struct CountedReading {
    at: usize,
    base: f64,
    slope: f64,
    parts: f64,
}

/// Reusable buffers, so that a response needs no allocation.
#[derive(Debug, Default)]
pub(crate) struct FrameScratch {
    now: Vec<u64>,
    base: Vec<u64>,
    identity: Vec<u8>,
    steps: Vec<i64>,
}

impl FramedNode {
    /// Builds the frames of a node of this name from its reports.
    pub(super) fn of(reports: &[Report], name: &str) -> Self {
        let mut encoders: Vec<FrameEncoder> = Vec::new();
        for report in reports {
            let mut report = report.clone();
            anonymize_report(&mut report, name);
            encoders.push(FrameEncoder::of(&report, 0, encoders.last()));
        }
        let (first, last) = (&encoders[0], &encoders[FRAMES - 1]);
        let (mut counts, mut clocks) = (Vec::new(), Vec::new());
        let first_board =
            reports[0].devices.iter().position(|device| *device == Device::new_gpu(0));
        let present = first.sample_order().iter().position(|sample| {
            let sample = reports[0].samples[*sample as usize];
            sample.metric == gpu::PRESENT && Some(sample.device as usize) == first_board
        });
        let pairs = first.reading_bits().iter().zip(last.reading_bits()).zip(first.sample_order());
        for (index, ((from, to), sample)) in pairs.enumerate() {
            let metric = reports[0].samples[*sample as usize].metric;
            let (from, to) = (f64::from_bits(*from), f64::from_bits(*to));
            if from.is_nan() || to.is_nan() {
                continue;
            }
            match metric_patch(metric, from, to) {
                Some(PatchKind::Count { base, slope, number }) => {
                    let parts = 10_f64.powi(number.decimals as i32);
                    counts.push(CountedReading { at: index, base, slope, parts });
                }
                Some(PatchKind::Clock(_)) => clocks.push(index),
                _ => {}
            }
        }
        Self {
            layout: first.layout().clone(),
            identity: first.identity_bytes().to_vec(),
            patches: find_patches(first.identity_bytes()),
            readings: std::array::from_fn(|index| encoders[index].reading_bits().to_vec()),
            counts,
            clocks,
            present,
        }
    }

    /// The readings of a node on this page number, so many seconds after the start.
    fn fill_readings(
        &self,
        page_index: usize,
        node: usize,
        seconds: f64,
        now: UnixMs,
        out: &mut Vec<u64>,
    ) {
        out.clear();
        out.extend_from_slice(&self.readings[page_index]);
        for CountedReading { at, base, slope, parts } in &self.counts {
            let count = (base + slope * seconds) as u64 + APART * node as u64;
            out[*at] = (count as f64 / parts).to_bits();
        }
        for index in &self.clocks {
            out[*index] = encode_reading(now.to_seconds().into());
        }
    }
}

impl PageRings {
    /// Appends the frame of a node for a client with this state, when the wall clock shows `now` and showed `started`
    /// at the start.
    pub(crate) fn write_frame(
        &self,
        node: usize,
        started: UnixMs,
        now: UnixMs,
        client: ClientState,
        scratch: &mut FrameScratch,
        out: &mut Vec<u8>,
    ) {
        let framed = &self.framed[node % self.framed.len()];
        let fill = |time: UnixMs, out: &mut Vec<u64>| {
            let elapsed = time.duration_since(started);
            framed.fill_readings(
                self.page_index(node, elapsed),
                node,
                elapsed.as_secs_f64(),
                time,
                out,
            );
            if let Some(position) = framed.present.filter(|_| self.is_gpu_lost(node, time)) {
                out[position] = encode_reading(0.0.into());
            }
        };
        fill(now, &mut scratch.now);
        let has_layout = client.layout == Some(framed.layout.content_hash());
        let base = client.tick.filter(|_| has_layout).map(|tick| UnixMs(tick as i64));
        let base = base.filter(|base| (started..=now).contains(base));
        if let Some(base) = base {
            fill(base, &mut scratch.base);
        } else {
            scratch.identity.clear();
            scratch.identity.extend_from_slice(&framed.identity);
            for (offset, patch) in &framed.patches {
                patch.write_name(node, &mut scratch.identity[*offset..]);
            }
        }
        let frame = FrameParts {
            tick: now.0.unsigned_abs(),
            base: base.map(|base| (base.0.unsigned_abs(), &*scratch.base)),
            time: Some(now),
            layout: &framed.layout,
            sends_layout: !has_layout,
            identity: base.is_none().then_some(&*scratch.identity),
            readings: &scratch.now,
        };
        frame.encode_frame(&mut scratch.steps, out);
    }
}

/// Replaces the node names of a report by placeholders of the same width.
fn anonymize_report(report: &mut Report, name: &str) {
    const PLACEHOLDER: &str = "gpu00000";
    if report.node.as_deref() == Some(name) {
        report.node = Some(PLACEHOLDER.into());
    }
    for (_, value) in report.infos.iter_mut().flat_map(|info| &mut info.labels) {
        if *value == name {
            *value = PLACEHOLDER.into();
        } else if *value == "48211" {
            *value = "48000".into();
        } else if let Some(rail) = value.strip_prefix("leaf-00-r") {
            *value = SanitizedText::new(&format!("leaf-0000-r{rail}"));
        }
    }
}

/// Positions of node names in the identity of a node with placeholders; a text begins with its length in bytes.
fn find_patches(identity: &[u8]) -> Vec<(usize, PatchKind)> {
    let marks: [(&[u8], usize, PatchKind); 4] = [
        (b"\x08gpu00000", 4, PatchKind::Name),
        (b"leaf-0000-r", 5, PatchKind::Leaf),
        (b"\x0548000", 3, PatchKind::Job),
        (b"GPU-51a0", 8, PatchKind::Gpu),
    ];
    let mut patches = Vec::new();
    for (mark, skip, fill) in marks {
        let occurrences =
            identity.windows(mark.len()).enumerate().filter(|(_, part)| *part == mark);
        patches.extend(occurrences.map(|(offset, _)| (offset + skip, fill)));
    }
    patches
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use gaunt_schema::{
        ScrapedPage,
        frame::{self, FrameDecodeState},
        text,
    };

    use super::*;
    use crate::page_ring::{FRAME, Scenario};

    const BEGAN: UnixMs = UnixMs(1_800_000_000_123);

    /// The node that loses a GPU at that time.
    const LOST: usize = (1_800_000_000_123_u64 / 5_000 % 12_500) as usize;

    /// The content of a page, independent of order.
    fn page_content(page: &ScrapedPage) -> BTreeSet<String> {
        let report = &page.report;
        let device = |index: u32| &report.devices[index as usize];
        let samples = report.samples.iter();
        let samples = samples.map(|sample| {
            format!("{:?} {:?} {:?}", sample.metric, device(sample.device), sample.reading)
        });
        let infos = report.infos.iter();
        let infos = infos
            .map(|info| format!("{:?} {:?} {:?}", info.metric, device(info.device), info.labels));
        let names = format!("{:?} {:?}", report.node, report.node_time);
        samples.chain(infos).chain([names]).collect()
    }

    #[test]
    fn frames_equal_text_at_every_tick() {
        let rings = PageRings::of(Scenario::from_name("healthy").unwrap(), 12_500, 1, FRAME)
            .with_gpu_loss(true);
        let (frames, mut state, mut scratch) =
            (frame::FrameDecoder::default(), FrameDecodeState::default(), FrameScratch::default());
        let limits = text::PageLimits::default();
        for (node, seconds) in [
            (7_003, 0),
            (7_003, 1),
            (7_003, 12),
            (7_003, 600),
            (12_499, 600),
            (0, 7),
            (LOST, 0),
            (LOST, 1),
        ] {
            if seconds == 0 || node != 7_003 {
                state = FrameDecodeState::default();
            }
            let elapsed = Duration::from_secs(seconds);
            let (mut answer, mut frame) = (Vec::new(), Vec::new());
            rings.write_answer(node, elapsed, BEGAN + elapsed, &mut answer);
            let body = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let text = text::decode_page(&answer[body..], &limits).unwrap();
            rings.write_frame(
                node,
                BEGAN,
                BEGAN + elapsed,
                frames.client_state(&mut state),
                &mut scratch,
                &mut frame,
            );
            let page = frames.decode_frame(&mut state, &frame, &limits).unwrap();
            assert_eq!(page_content(&page), page_content(&text));
            let is_lost = page_content(&page).iter().any(|line| {
                line.starts_with(&format!("{:?} {:?} Value(0", gpu::PRESENT, Device::new_gpu(0)))
            });
            assert_eq!(is_lost, node == LOST);
            assert!(frame.len() * 10 < answer.len() || seconds == 0 || node != 7_003);
        }
        let totals = frames.decoder_stats();
        assert_eq!((totals.layouts, totals.differences), (1, 3), "all nodes have one layout");
    }

    #[test]
    fn client_state_of_another_server_gets_whole_frame() {
        let rings = PageRings::of(Scenario::from_name("healthy").unwrap(), 10, 1, FRAME);
        let (frames, mut state, mut scratch) =
            (frame::FrameDecoder::default(), FrameDecodeState::default(), FrameScratch::default());
        for started in [BEGAN, BEGAN + Duration::from_hours(1)] {
            let (now, mut frame) = (started + Duration::from_secs(3), Vec::new());
            rings.write_frame(
                4,
                started,
                now,
                frames.client_state(&mut state),
                &mut scratch,
                &mut frame,
            );
            frames.decode_frame(&mut state, &frame, &text::PageLimits::default()).unwrap();
        }
        assert_eq!(frames.decoder_stats().whole, 2);
    }
}
