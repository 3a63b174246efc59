//! Faults of exporters: an exporter that is down, one that serves the same page forever, a driver that hangs.

use std::{collections::HashMap, time::Duration};

use gaunt_schema::{
    AbsenceReason, Batch, Device, DeviceClass, Dialect, Entity, FindingKind, RejectionCounts,
    Report, SanitizedText, ScrapeFailure, ScrapedPage, TargetId, UnixMs, catalogue::exporter,
};
use gaunt_sim::{GroundTruth, SimFleet};

use super::soak_random::SoakRandom;

/// Nodes from this one on have no job: an exporter fault there hides no loss.
const FIRST_NODE: usize = 114;

/// Kinds, each on its own node so that no two overlap.
const KINDS: [(FindingKind, u64); 3] =
    [(FindingKind::TargetDown, 60), (FindingKind::DataStale, 180), (FindingKind::DriverHung, 60)];

/// Duration in seconds of a fault and of the pause after it: ten minutes to six hours.
const LASTS_S: (u64, u64) = (600, 21_600);

/// Every exporter fault of a run, and the page that each stale exporter repeats.
pub(super) struct ExporterFaults {
    faults: Vec<(usize, GroundTruth)>,
    frozen: HashMap<usize, Report>,
}

impl ExporterFaults {
    /// Draws the faults for so many seconds.
    pub(super) fn draw(
        fleet: &SimFleet,
        start: UnixMs,
        seconds: u64,
        random: &mut SoakRandom,
    ) -> Self {
        let mut faults = Vec::new();
        for (index, (kind, limit)) in KINDS.into_iter().enumerate() {
            let node = FIRST_NODE + index;
            let mut from = 1_800;
            loop {
                from += LASTS_S.0 + random.next_below(LASTS_S.1);
                let until = from + LASTS_S.0 + random.next_below(LASTS_S.1);
                if until > seconds {
                    break;
                }
                let at_second = |s: u64| start + Duration::from_secs(s);
                faults.push((
                    node,
                    exporter_truth(
                        kind,
                        fleet.node_name(node),
                        at_second(from),
                        at_second(until),
                        limit,
                    ),
                ));
                from = until;
            }
        }
        Self { faults, frozen: HashMap::new() }
    }

    /// The ground truth of the exporter faults.
    pub(super) fn fault_truths(&self) -> impl Iterator<Item = &GroundTruth> {
        self.faults.iter().map(|(_, truth)| truth)
    }

    /// The batch of a node at an instant, with its exporter fault applied.
    pub(super) fn node_batch(&mut self, node: usize, report: Report, at: UnixMs) -> Batch {
        let is_active = |(fault_node, truth): &&(usize, GroundTruth)| {
            *fault_node == node && at >= truth.onset && truth.ends.is_some_and(|end| at < end)
        };
        let kind = self.faults.iter().find(is_active).map(|(_, truth)| truth.kind);
        let report = match kind {
            Some(FindingKind::TargetDown) => {
                Err(ScrapeFailure::Connect("connection refused".into()))
            }
            Some(FindingKind::DataStale) => Ok(self.frozen.entry(node).or_insert(report).clone()),
            Some(_) => Ok(without_driver(report)),
            None => {
                self.frozen.remove(&node);
                Ok(report)
            }
        };
        let page = |report| ScrapedPage {
            report,
            dialect: Dialect::Gaunt,
            bytes: 0,
            rejected: RejectionCounts::default(),
        };
        Batch { target: TargetId(node as u32), at, duration_ms: 1.0, outcome: report.map(page) }
    }
}

fn exporter_truth(
    kind: FindingKind,
    node: &str,
    onset: UnixMs,
    ends: UnixMs,
    limit: u64,
) -> GroundTruth {
    GroundTruth {
        kind,
        blamed: Entity::new_node(&SanitizedText::new(node)),
        also: Vec::new(),
        kinds: Vec::new(),
        follows: Vec::new(),
        onset,
        ends: Some(ends),
        limit: Duration::from_secs(limit),
        victims: Vec::new(),
    }
}

/// The report of a node whose driver hangs: its GPU values are stale, and the collector reports that.
fn without_driver(mut report: Report) -> Report {
    let gpus: Vec<bool> =
        report.devices.iter().map(|device| device.class == DeviceClass::Gpu).collect();
    for sample in &mut report.samples {
        if gpus.get(sample.device as usize) == Some(&true) {
            sample.reading = AbsenceReason::Stale.into();
        }
    }
    let collector = report.ensure_device(Device {
        class: DeviceClass::Collector,
        key: [SanitizedText::new("nvml")].into(),
    });
    report.push(collector, exporter::COLLECTOR_SUCCESS, 0.0);
    report
}
