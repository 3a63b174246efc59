//! The frames of one tick, and what was told in the ticks before: who asks again is told what differs.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{
    Report,
    frame::{Holds, Told},
};
use hyper::body::Bytes;

/// Ticks that are kept to tell differences to: who comes every ten seconds beside somebody who comes every second still
/// holds one of them. A tick of 8 GPUs and 8 ports takes 8 kB.
const KEPT_TICKS: usize = 16;

/// Frames of one tick that are kept: one for each client that holds something else.
const KEPT_FRAMES: usize = 4;

/// Frames of one tick.
pub(crate) struct Frames {
    /// The number of the tick: no other readings of this node have it, not even those of a run before this one.
    tick: u64,
    /// What was told before, to whoever holds it still, the newest last.
    before: Vec<Arc<Told>>,
    /// What is told now, once somebody asks.
    now: OnceLock<Arc<Told>>,
    /// Whether anybody got it.
    asked: AtomicBool,
    written: Mutex<Vec<(Holds, Bytes)>>,
}

impl Default for Frames {
    fn default() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Nobody ticks a thousand million times a second: a later run begins above the numbers of this one.
        Self::of(wall.as_nanos() as u64, Vec::new())
    }
}

impl Frames {
    fn of(tick: u64, before: Vec<Arc<Told>>) -> Self {
        let (now, asked, written) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        Self { tick, before, now, asked, written }
    }

    /// The frames of the next tick, which has this report.
    pub(crate) fn next(&self, report: &Report) -> Self {
        let mut before = self.before.clone();
        let told = self.now.get().filter(|_| self.asked.load(Ordering::Relaxed));
        before.extend(told.cloned());
        before.drain(..before.len().saturating_sub(KEPT_TICKS));
        let next = Self::of(self.tick + 1, before);
        if told.is_some() {
            next.told(report);
        }
        next
    }

    /// The frame for a client that holds this.
    pub(crate) fn bytes(&self, report: &Report, holds: Holds) -> Bytes {
        self.asked.store(true, Ordering::Relaxed);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = written.iter().find(|(known, _)| *known == holds) {
            return bytes.clone();
        }
        let told = self.told(report);
        // Who asks twice within a tick holds this one.
        let mut known = std::iter::once(told).chain(self.before.iter().rev());
        let base = known.find(|base| told.follows(holds, base));
        let mut out = Vec::with_capacity(told.readings().len() * 4);
        told.write(holds, base.map(|base| &**base), &mut out);
        let bytes = Bytes::from(out);
        if written.len() < KEPT_FRAMES {
            written.push((holds, bytes.clone()));
        }
        bytes
    }

    fn told(&self, report: &Report) -> &Arc<Told> {
        let last = self.before.last().map(|last| &**last);
        self.now.get_or_init(|| Arc::new(Told::of(report, self.tick, last)))
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{
        Device, UnixMs,
        catalogue::gpu,
        frame::{self, Memory},
        text::Limits,
    };

    use super::*;

    fn report(moment: u32) -> Report {
        let mut report = Report { node_time: Some(UnixMs(1_000)), ..Report::default() };
        for at in 0..8 {
            let gpu = report.device(Device::gpu(at));
            report.push(gpu, gpu::POWER, f64::from(300 + moment + at));
            report.push(gpu, gpu::TEMPERATURE, 60.0);
        }
        report
    }

    #[test]
    fn who_comes_again_is_told_what_differs_and_who_stayed_away_all() {
        let reader = frame::Frames::default();
        let (mut often, mut seldom, mut absent) =
            (Memory::default(), Memory::default(), Memory::default());
        let mut frames = Frames::default();
        for moment in 0..=40 {
            let report = report(moment);
            let ask = |memory: &mut Memory| {
                let bytes = frames.bytes(&report, reader.holds(memory));
                let page = reader.decode(memory, &bytes, &Limits::default()).unwrap();
                assert_eq!(readings(&page.report), readings(&report));
                bytes.len()
            };
            let all = ask(&mut Memory::default());
            assert!(ask(&mut often) < all || moment == 0);
            if moment % 10 == 0 {
                ask(&mut seldom);
            }
            if moment % 20 == 0 {
                ask(&mut absent);
            }
            frames = frames.next(&self::report(moment + 1));
        }
        // What was told twenty ticks ago is not kept.
        assert_eq!(reader.tidings().differences, 40 + 4);
        assert_eq!(frames.before.len(), KEPT_TICKS);
    }

    /// What is read, metric by metric.
    fn readings(report: &Report) -> Vec<(gaunt_schema::MetricId, gaunt_schema::Reading)> {
        let mut readings: Vec<_> = report.samples.iter().map(|s| (s.metric, s.reading)).collect();
        readings.sort_by_key(|(metric, _)| *metric);
        readings
    }

    #[test]
    fn a_frame_is_written_once_for_all_who_hold_the_same() {
        let (frames, report) = (Frames::default(), report(1));
        let holds = Holds::default();
        let first = frames.bytes(&report, holds);
        assert_eq!(frames.bytes(&report, holds).as_ptr(), first.as_ptr());
        let told = frames.told(&report);
        let again = Holds { layout: Some(told.layout().hash()), tick: Some(told.tick()) };
        assert!(frames.bytes(&report, again).len() * 2 < first.len(), "nothing changed since");
        let stranger = Holds { layout: None, tick: Some(3) };
        assert_eq!(frames.bytes(&report, stranger), first, "who holds what nobody told gets all");
        for tick in 10..30 {
            frames.bytes(&report, Holds { layout: None, tick: Some(tick) });
        }
        assert_eq!(frames.written.lock().unwrap().len(), KEPT_FRAMES);
        let unasked = Frames::default().next(&report);
        assert!(
            unasked.now.get().is_none() && unasked.before.is_empty(),
            "nobody asks, nothing is done"
        );
    }
}
