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
    earlier: Vec<Arc<FrameEncoder>>,
    /// This tick, encoded on the first request.
    now: OnceLock<Arc<FrameEncoder>>,
    /// Whether any client requested it.
    requested: AtomicBool,
    frames: Mutex<Vec<(ClientState, Bytes)>>,
}

impl Default for TickFrames {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Ticks are far slower than a thousand million per second, so a later run starts above the numbers of this one.
        Self::of(since_epoch.as_nanos() as u64, Vec::new())
    }
}

impl TickFrames {
    fn of(tick: u64, earlier: Vec<Arc<FrameEncoder>>) -> Self {
        let (now, requested, frames) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        Self { tick, earlier, now, requested, frames }
    }

    /// The frames of the next tick, with this report.
    pub(crate) fn next(&self, report: &Report) -> Self {
        let mut earlier = self.earlier.clone();
        let encoded = self.now.get().filter(|_| self.requested.load(Ordering::Relaxed));
        earlier.extend(encoded.cloned());
        earlier.drain(..earlier.len().saturating_sub(KEPT_TICKS));
        let next = Self::of(self.tick + 1, earlier);
        if encoded.is_some() {
            next.frame_encoder(report);
        }
        next
    }

    /// The frame for a client in this state.
    pub(crate) fn encode_frame(&self, report: &Report, client_state: ClientState) -> Bytes {
        self.requested.store(true, Ordering::Relaxed);
        let mut cached = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = cached.iter().find(|(state, _)| *state == client_state) {
            return bytes.clone();
        }
        let encoder = self.frame_encoder(report);
        // A client that asks twice within a tick has this one.
        let mut encoders = std::iter::once(encoder).chain(self.earlier.iter().rev());
        let base = encoders.find(|base| encoder.can_diff_from(client_state, base));
        let mut buffer = Vec::with_capacity(encoder.reading_bits().len() * 4);
        encoder.encode_frame(client_state, base.map(|base| &**base), &mut buffer);
        let bytes = Bytes::from(buffer);
        if cached.len() < KEPT_FRAMES {
            cached.push((client_state, bytes.clone()));
        }
        bytes
    }

    fn frame_encoder(&self, report: &Report) -> &Arc<FrameEncoder> {
        let last = self.earlier.last().map(|last| &**last);
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

    fn report_at(second: u32) -> Report {
        let mut report = Report { node_time: Some(UnixMs(1_000)), ..Report::default() };
        for index in 0..8 {
            let gpu = report.ensure_device(Device::new_gpu(index));
            report.push(gpu, gpu::POWER, f64::from(300 + second + index));
            report.push(gpu, gpu::TEMPERATURE, 60.0);
        }
        report
    }

    #[test]
    fn frames_hold_differences_for_recent_clients_and_all_for_others() {
        let reader = frame::FrameDecoder::default();
        let (mut every_tick, mut every_tenth, mut every_twentieth) =
            (FrameDecodeState::default(), FrameDecodeState::default(), FrameDecodeState::default());
        let mut frames = TickFrames::default();
        for second in 0..=40 {
            let report = report_at(second);
            let request = |state: &mut FrameDecodeState| {
                let bytes = frames.encode_frame(&report, reader.client_state(state));
                let page = reader.decode_frame(state, &bytes, &PageLimits::default()).unwrap();
                assert_eq!(readings_by_metric(&page.report), readings_by_metric(&report));
                bytes.len()
            };
            let whole = request(&mut FrameDecodeState::default());
            assert!(request(&mut every_tick) < whole || second == 0);
            if second % 10 == 0 {
                request(&mut every_tenth);
            }
            if second % 20 == 0 {
                request(&mut every_twentieth);
            }
            frames = frames.next(&self::report_at(second + 1));
        }
        // Twenty ticks ago is beyond the kept ticks.
        assert_eq!(reader.decoder_stats().differences, 40 + 4);
        assert_eq!(frames.earlier.len(), KEPT_TICKS);
    }

    /// What is read, metric by metric.
    fn readings_by_metric(report: &Report) -> Vec<(gaunt_schema::MetricId, gaunt_schema::Reading)> {
        let mut readings: Vec<_> =
            report.samples.iter().map(|sample| (sample.metric, sample.reading)).collect();
        readings.sort_by_key(|(metric, _)| *metric);
        readings
    }

    #[test]
    fn frame_is_encoded_once_for_clients_in_equal_state() {
        let (frames, report) = (TickFrames::default(), report_at(1));
        let empty_state = ClientState::default();
        let first = frames.encode_frame(&report, empty_state);
        assert_eq!(frames.encode_frame(&report, empty_state).as_ptr(), first.as_ptr());
        let encoder = frames.frame_encoder(&report);
        let current = ClientState {
            layout: Some(encoder.layout().content_hash()),
            tick: Some(encoder.tick()),
        };
        assert!(
            frames.encode_frame(&report, current).len() * 2 < first.len(),
            "nothing changed since"
        );
        let unknown = ClientState { layout: None, tick: Some(3) };
        assert_eq!(
            frames.encode_frame(&report, unknown),
            first,
            "a client with an unknown state gets a whole frame"
        );
        for tick in 10..30 {
            frames.encode_frame(&report, ClientState { layout: None, tick: Some(tick) });
        }
        assert_eq!(frames.frames.lock().unwrap().len(), KEPT_FRAMES);
        let idle = TickFrames::default().next(&report);
        assert!(
            idle.now.get().is_none() && idle.earlier.is_empty(),
            "without a request nothing is encoded"
        );
    }
}
