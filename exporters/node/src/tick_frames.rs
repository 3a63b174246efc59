//! The frames of one tick, and the encoders of earlier ticks: repeated requests receive only differences.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{
    Report,
    frame::{ClientState, FrameEncoder},
};
use hyper::body::Bytes;

/// Ticks that are kept as bases of differences: a client with a period of ten seconds beside one with a period of one
/// second still has one of them. A tick of 8 GPUs and 8 ports takes 8 kB.
const KEPT_TICKS: usize = 16;

/// Cached frames of one tick: one for each distinct client state.
const KEPT_FRAMES: usize = 4;

/// Frames of one tick.
pub(crate) struct TickFrames {
    /// The number of the tick: unique for this node, also across restarts.
    tick: u64,
    /// Earlier ticks that clients may still have, the newest last.
    before: Vec<Arc<FrameEncoder>>,
    /// This tick, encoded on the first request.
    now: OnceLock<Arc<FrameEncoder>>,
    /// Whether any client requested it.
    asked: AtomicBool,
    written: Mutex<Vec<(ClientState, Bytes)>>,
}

impl Default for TickFrames {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Ticks are far slower than a thousand million per second, so a later run starts above the numbers of this one.
        Self::of(wall.as_nanos() as u64, Vec::new())
    }
}

impl TickFrames {
    fn of(tick: u64, before: Vec<Arc<FrameEncoder>>) -> Self {
        let (now, asked, written) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        Self { tick, before, now, asked, written }
    }

    /// The frames of the next tick, with this report.
    pub(crate) fn next(&self, report: &Report) -> Self {
        let mut before = self.before.clone();
        let told = self.now.get().filter(|_| self.asked.load(Ordering::Relaxed));
        before.extend(told.cloned());
        before.drain(..before.len().saturating_sub(KEPT_TICKS));
        let next = Self::of(self.tick + 1, before);
        if told.is_some() {
            next.frame_encoder(report);
        }
        next
    }

    /// The frame for a client in this state.
    pub(crate) fn encode_frame(&self, report: &Report, holds: ClientState) -> Bytes {
        self.asked.store(true, Ordering::Relaxed);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = written.iter().find(|(known, _)| *known == holds) {
            return bytes.clone();
        }
        let told = self.frame_encoder(report);
        // A client that asks twice within a tick has this one.
        let mut known = std::iter::once(told).chain(self.before.iter().rev());
        let base = known.find(|base| told.can_diff_from(holds, base));
        let mut out = Vec::with_capacity(told.reading_bits().len() * 4);
        told.encode_frame(holds, base.map(|base| &**base), &mut out);
        let bytes = Bytes::from(out);
        if written.len() < KEPT_FRAMES {
            written.push((holds, bytes.clone()));
        }
        bytes
    }

    fn frame_encoder(&self, report: &Report) -> &Arc<FrameEncoder> {
        let last = self.before.last().map(|last| &**last);
        self.now.get_or_init(|| Arc::new(FrameEncoder::of(report, self.tick, last)))
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{
        Device, UnixMs,
        catalogue::gpu,
        frame::{self, FrameDecodeState},
        text::PageLimits,
    };

    use super::*;

    fn report_at(moment: u32) -> Report {
        let mut report = Report { node_time: Some(UnixMs(1_000)), ..Report::default() };
        for at in 0..8 {
            let gpu = report.ensure_device(Device::new_gpu(at));
            report.push(gpu, gpu::POWER, f64::from(300 + moment + at));
            report.push(gpu, gpu::TEMPERATURE, 60.0);
        }
        report
    }

    #[test]
    fn who_comes_again_is_told_what_differs_and_who_stayed_away_all() {
        let reader = frame::FrameDecoder::default();
        let (mut often, mut seldom, mut absent) =
            (FrameDecodeState::default(), FrameDecodeState::default(), FrameDecodeState::default());
        let mut frames = TickFrames::default();
        for moment in 0..=40 {
            let report = report_at(moment);
            let ask = |memory: &mut FrameDecodeState| {
                let bytes = frames.encode_frame(&report, reader.client_state(memory));
                let page = reader.decode_frame(memory, &bytes, &PageLimits::default()).unwrap();
                assert_eq!(readings_by_metric(&page.report), readings_by_metric(&report));
                bytes.len()
            };
            let all = ask(&mut FrameDecodeState::default());
            assert!(ask(&mut often) < all || moment == 0);
            if moment % 10 == 0 {
                ask(&mut seldom);
            }
            if moment % 20 == 0 {
                ask(&mut absent);
            }
            frames = frames.next(&self::report_at(moment + 1));
        }
        // Twenty ticks ago is beyond the kept ticks.
        assert_eq!(reader.decoder_stats().differences, 40 + 4);
        assert_eq!(frames.before.len(), KEPT_TICKS);
    }

    /// What is read, metric by metric.
    fn readings_by_metric(report: &Report) -> Vec<(gaunt_schema::MetricId, gaunt_schema::Reading)> {
        let mut readings: Vec<_> = report.samples.iter().map(|s| (s.metric, s.reading)).collect();
        readings.sort_by_key(|(metric, _)| *metric);
        readings
    }

    #[test]
    fn a_frame_is_written_once_for_all_who_hold_the_same() {
        let (frames, report) = (TickFrames::default(), report_at(1));
        let holds = ClientState::default();
        let first = frames.encode_frame(&report, holds);
        assert_eq!(frames.encode_frame(&report, holds).as_ptr(), first.as_ptr());
        let told = frames.frame_encoder(&report);
        let again =
            ClientState { layout: Some(told.layout().content_hash()), tick: Some(told.tick()) };
        assert!(
            frames.encode_frame(&report, again).len() * 2 < first.len(),
            "nothing changed since"
        );
        let stranger = ClientState { layout: None, tick: Some(3) };
        assert_eq!(
            frames.encode_frame(&report, stranger),
            first,
            "a client with an unknown state gets a whole frame"
        );
        for tick in 10..30 {
            frames.encode_frame(&report, ClientState { layout: None, tick: Some(tick) });
        }
        assert_eq!(frames.written.lock().unwrap().len(), KEPT_FRAMES);
        let unasked = TickFrames::default().next(&report);
        assert!(
            unasked.now.get().is_none() && unasked.before.is_empty(),
            "without a request nothing is encoded"
        );
    }
}
