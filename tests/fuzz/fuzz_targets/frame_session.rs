//! Fuzz target: a server and a client over some ticks, each keeping arbitrary state: whatever the client holds, it
//! receives all that the server sent, to the last bit.

#![no_main]

use gaunt_schema::{
    Absent, Class, Device, MetricId, Reading, Report, UnixMs,
    catalogue::CATALOGUE,
    frame::{Frames, Memory, Told},
    text::Limits,
    unit::{Kind, Width},
};
use libfuzzer_sys::fuzz_target;

/// Ticks that the server keeps.
const KEPT: usize = 3;

/// The bytes of the input, and zeros after them.
struct Draw<'a>(&'a [u8]);

impl Draw<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// A reading of a kind that pages have, or arbitrary bits.
    fn reading(&mut self) -> Reading {
        let kind = self.byte();
        match kind % 6 {
            0 => Reading::absent(Absent::ALL[usize::from(kind / 6) % Absent::ALL.len()]),
            1 => Reading::of(f64::from_bits(self.word())),
            2 => Reading::of((self.word() >> (kind / 6)) as f64),
            3 => Reading::of(self.word() as u32 as f64 / 10_f64.powi(i32::from(kind / 6 % 10))),
            _ => Reading::of(f64::from(self.byte()) / 100.0),
        }
    }
}

fn report(draw: &mut Draw<'_>) -> Report {
    let mut report = Report { node_time: Some(UnixMs(draw.word() as i64 >> 20)), ..Report::default() };
    for _ in 0..draw.byte() % 12 {
        let metric = MetricId(draw.word() as u16 % CATALOGUE.len() as u16);
        let row = metric.row();
        if row.kind == Kind::Info || row.class == Class::Fleet || row.name == "gaunt_node_time_seconds" {
            continue;
        }
        for at in 0..draw.byte() % 9 {
            let key = row.class.labels().iter().map(|_| at.to_string().into()).collect();
            let device = report.device(Device { class: row.class, key });
            if !report.samples.iter().any(|s| (s.metric, s.device) == (metric, device)) {
                report.push(device, metric, Reading::of(0.0));
            }
        }
    }
    report
}

/// The content of a report, compared bit by bit, independent of order.
fn said(report: &Report) -> impl PartialEq + std::fmt::Debug {
    let device = |at: u32| report.devices[at as usize].clone();
    let mut samples: Vec<_> = report
        .samples
        .iter()
        .map(|s| {
            // A saturated counter carries no value, in any format.
            let stands = matches!(s.metric.row().kind, Kind::Counter(width @ Width::Saturating(_)) if width.max() == s.reading.value());
            let reading = if stands { Absent::Saturated.into() } else { s.reading };
            (s.metric, device(s.device), reading.value().map(f64::to_bits), reading.reason())
        })
        .collect();
    samples.sort();
    (samples, report.node_time)
}

fuzz_target!(|input: &[u8]| {
    let mut draw = Draw(input);
    let (frames, mut memory) = (Frames::default(), Memory::default());
    let mut kept: Vec<Told> = Vec::new();
    let mut report = report(&mut draw);
    for tick in 0..8 {
        match draw.byte() % 8 {
            0 => memory = Memory::default(),
            1 => report = self::report(&mut draw),
            2 => kept.clear(),
            _ => {}
        }
        for sample in &mut report.samples {
            if draw.byte() % 3 > 0 {
                sample.reading = draw.reading();
            }
        }
        let told = Told::of(&report, tick, kept.last());
        let holds = frames.holds(&mut memory);
        let base = kept.iter().find(|base| told.follows(holds, base));
        let mut frame = Vec::new();
        told.write(holds, base, &mut frame);
        let page = frames.decode(&mut memory, &frame, &Limits::default()).unwrap();
        assert_eq!(said(&page.report), said(&report));
        kept.push(told);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
});
