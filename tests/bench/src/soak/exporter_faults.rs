//! Faults of exporters: an exporter that is gone, one that serves the same page for ever, a driver that never returns.

use std::{collections::HashMap, time::Duration};

use gaunt_schema::{
    Absent, Batch, Class, Device, Dialect, Entity, Failure, FindingKind, Page, Rejected, Report,
    Safe, TargetId, UnixMs, catalogue::exporter,
};
use gaunt_sim::{Fleet, Truth};

use super::life::Luck;

/// Nodes that no job works on, from this one on: what an exporter hides there costs nothing.
const FIRST_NODE: usize = 114;

/// Kinds, each on a node of its own so that no two are at once.
const KINDS: [(FindingKind, u64); 3] =
    [(FindingKind::TargetDown, 60), (FindingKind::DataStale, 180), (FindingKind::DriverHung, 60)];

/// A fault lasts from ten minutes to six hours, and so long do the pauses between.
const LASTS_S: (u64, u64) = (600, 21_600);

/// Every fault of an exporter in a run, and the page that each stale one repeats.
pub(super) struct ExporterFaults {
    faults: Vec<(usize, Truth)>,
    frozen: HashMap<usize, Report>,
}

impl ExporterFaults {
    /// Draws them for so many seconds.
    pub(super) fn draw(fleet: &Fleet, start: UnixMs, seconds: u64, luck: &mut Luck) -> Self {
        let mut faults = Vec::new();
        for (at, (kind, limit)) in KINDS.into_iter().enumerate() {
            let node = FIRST_NODE + at;
            let mut from = 1_800;
            loop {
                from += LASTS_S.0 + luck.below(LASTS_S.1);
                let until = from + LASTS_S.0 + luck.below(LASTS_S.1);
                if until > seconds {
                    break;
                }
                let after = |s: u64| start + Duration::from_secs(s);
                faults.push((
                    node,
                    truth(kind, fleet.node_name(node), after(from), after(until), limit),
                ));
                from = until;
            }
        }
        Self { faults, frozen: HashMap::new() }
    }

    /// What is wrong when.
    pub(super) fn truths(&self) -> impl Iterator<Item = &Truth> {
        self.faults.iter().map(|(_, truth)| truth)
    }

    /// The batch of a node at an instant: as its exporter is.
    pub(super) fn batch(&mut self, node: usize, report: Report, at: UnixMs) -> Batch {
        let there = |(of, truth): &&(usize, Truth)| {
            *of == node && at >= truth.onset && truth.ends.is_some_and(|end| at < end)
        };
        let kind = self.faults.iter().find(there).map(|(_, truth)| truth.kind);
        let report = match kind {
            Some(FindingKind::TargetDown) => Err(Failure::Connect("connection refused".into())),
            Some(FindingKind::DataStale) => Ok(self.frozen.entry(node).or_insert(report).clone()),
            Some(_) => Ok(without_driver(report)),
            None => {
                self.frozen.remove(&node);
                Ok(report)
            }
        };
        let page = |report| Page {
            report,
            dialect: Dialect::Gaunt,
            bytes: 0,
            rejected: Rejected::default(),
        };
        Batch { target: TargetId(node as u32), at, duration_ms: 1.0, outcome: report.map(page) }
    }
}

fn truth(kind: FindingKind, node: &str, onset: UnixMs, ends: UnixMs, limit: u64) -> Truth {
    Truth {
        kind,
        blamed: Entity::node(&Safe::new(node)),
        also: Vec::new(),
        kinds: Vec::new(),
        follows: Vec::new(),
        onset,
        ends: Some(ends),
        limit: Duration::from_secs(limit),
        victims: Vec::new(),
    }
}

/// The report of a node whose driver does not return: its GPUs' values are old, and the collector says so.
fn without_driver(mut report: Report) -> Report {
    let gpus: Vec<bool> = report.devices.iter().map(|device| device.class == Class::Gpu).collect();
    for sample in &mut report.samples {
        if gpus.get(sample.device as usize) == Some(&true) {
            sample.reading = Absent::Stale.into();
        }
    }
    let collector =
        report.device(Device { class: Class::Collector, key: [Safe::new("nvml")].into() });
    report.push(collector, exporter::COLLECTOR_SUCCESS, 0.0);
    report
}
