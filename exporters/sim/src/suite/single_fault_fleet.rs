//! Persistent single faults: for each finding kind a small fleet in which one fault begins and never ends.
//!
//! Faults outside the job and machine model (targets and drivers that do not answer) are written over its reports.

use std::time::Duration;

use gaunt_schema::{
    AbsenceReason, Batch, DeviceClass, Dialect, FindingKind, RejectionCounts, Report,
    SanitizedText, ScrapeFailure, ScrapeTarget, ScrapedPage, TargetId, UnixMs,
    catalogue::{exporter, gpu_health, hardware},
};

use super::{FaultLevel, SuiteCase};
use crate::{
    FaultEffect, SimFault, SimFleet,
    fleet_shape::{FleetShape, GpuModelMix, JobShape, JobWorkload},
};

/// Seconds from the start to the onset of faults that are written over reports.
const ONSET: Duration = Duration::from_mins(2);

/// Number of occurrences of a recurring fault.
const MOST_TIMES: u32 = 30;

/// Interval, duration and maximum number of checkpoints of a job.
const CHECKPOINT_EVERY: Duration = Duration::from_mins(7);
const CHECKPOINT_LASTS: Duration = Duration::from_mins(1);
const CHECKPOINTS: u32 = 60;

/// A pause that is longer than every run.
const NEVER: Duration = Duration::from_hours(10_000);

/// The node whose reports are overwritten: one of the largest job.
const NODE: usize = 1;

/// A fleet with one persistent fault, and the batches of its targets.
#[derive(Debug)]
pub struct SingleFaultFleet {
    kind: FindingKind,
    fleet: SimFleet,
    onset: UnixMs,
    /// Duration of the fault and of the pause until it recurs; `None` means that it never ends.
    recurrence: Option<(Duration, Duration)>,
    /// The last report of the node whose page stops changing.
    stored_report: Option<Report>,
}

impl SingleFaultFleet {
    /// A fault of this kind in a fleet that begins at `start`; `seed` varies the run.
    pub fn of(kind: FindingKind, seed: u64, start: UnixMs) -> Self {
        Self::with_optional_end(kind, seed, start, None, Vec::new())
    }

    /// The same with a job that pauses for a minute at intervals to write a checkpoint.
    pub fn with_checkpoints(kind: FindingKind, seed: u64, start: UnixMs) -> Self {
        let pause = |number: u32| SimFault {
            onset_s: CHECKPOINT_EVERY.as_secs_f64() * f64::from(number),
            lasts_s: Some(CHECKPOINT_LASTS.as_secs_f64()),
            gang: 0,
            member: 0,
            effect: FaultEffect::Checkpoint { spin: number.is_multiple_of(2) },
        };
        Self::with_optional_end(kind, seed, start, None, (1..CHECKPOINTS).map(pause).collect())
    }

    fn with_optional_end(
        kind: FindingKind,
        seed: u64,
        start: UnixMs,
        recurrence: Option<(Duration, Duration)>,
        pauses: Vec<SimFault>,
    ) -> Self {
        let scenario = scenario_of_kind(kind);
        let case = SuiteCase::from_name(scenario.unwrap_or("F8"), FaultLevel::Hard, seed);
        let case = case.expect("a test makes one of every kind");
        let mut plan = SuiteCase { shape: small_shape(kind), ..case.clone() }.fleet_plan();
        plan.scenario.faults.truncate(usize::from(scenario.is_some()));
        let lasts_s = recurrence.map(|(duration, _)| duration.as_secs_f64());
        let interval =
            recurrence.map_or(Duration::MAX, |(duration, pause)| duration.saturating_add(pause));
        let first_fault = plan.scenario.faults.first().cloned();
        let repeats = (1..MOST_TIMES).take_while(|_| interval < NEVER).filter_map(|number| {
            let fault = first_fault.clone()?;
            let onset_s = fault.onset_s + interval.as_secs_f64() * f64::from(number);
            Some(SimFault { onset_s, ..fault })
        });
        plan.scenario.faults.extend(repeats);
        plan.scenario.faults.iter_mut().for_each(|fault| fault.lasts_s = lasts_s);
        plan.scenario.faults.extend(pauses);
        let fleet = SimFleet::of(plan, case.seed, start);
        let onset = fleet.ground_truths().first().map_or(start + ONSET, |truth| truth.onset);
        Self { kind, fleet, onset, recurrence, stored_report: None }
    }

    /// The same fault, ending after so many seconds.
    pub fn with_end(kind: FindingKind, seed: u64, start: UnixMs, lasts_s: f64) -> Self {
        Self::with_optional_end(
            kind,
            seed,
            start,
            Some((Duration::from_secs_f64(lasts_s), NEVER)),
            Vec::new(),
        )
    }

    /// The same fault with this duration and pause, recurring thirty times in all.
    pub fn repeating(
        kind: FindingKind,
        seed: u64,
        start: UnixMs,
        duration: Duration,
        pause: Duration,
    ) -> Self {
        Self::with_optional_end(kind, seed, start, Some((duration, pause)), Vec::new())
    }

    /// Whether the fault is present at an instant.
    pub fn is_there(&self, now: UnixMs) -> bool {
        let Some((duration, pause)) = self.recurrence.filter(|_| now >= self.onset) else {
            return now >= self.onset;
        };
        let (elapsed, interval) = (now.duration_since(self.onset), duration.saturating_add(pause));
        let (repeats, offset) = (
            elapsed.as_millis() / interval.as_millis().max(1),
            elapsed.as_millis() % interval.as_millis().max(1),
        );
        repeats < u128::from(MOST_TIMES) && offset < duration.as_millis()
    }

    /// The kind of the fault.
    pub fn kind(&self) -> FindingKind {
        self.kind
    }

    /// When it begins.
    pub fn onset_time(&self) -> UnixMs {
        self.onset
    }

    /// The fleet with the fault.
    pub fn fleet(&self) -> &SimFleet {
        &self.fleet
    }

    /// The scrape targets: one for each node.
    pub fn scrape_targets(&self) -> Vec<ScrapeTarget> {
        let target = |node| ScrapeTarget {
            id: TargetId(node as u32),
            address: SanitizedText::new(&format!("{}:9770", self.fleet.node_name(node))),
            node: None,
            origin: "a persistent fault".into(),
        };
        (0..self.fleet.node_count()).map(target).collect()
    }

    /// Advances time to `now` and scrapes every target.
    pub fn scrape_at(&mut self, now: UnixMs) -> Vec<Batch> {
        self.fleet.advance_to(now);
        (0..self.fleet.node_count()).map(|node| self.scrape_node(node, now)).collect()
    }

    fn scrape_node(&mut self, node: usize, at: UnixMs) -> Batch {
        let outcome = self.scrape_outcome(node, at).map(|report| ScrapedPage {
            report,
            dialect: Dialect::Gaunt,
            bytes: 0,
            rejected: RejectionCounts::default(),
        });
        Batch { target: TargetId(node as u32), at, duration_ms: 1.0, outcome }
    }

    fn scrape_outcome(&mut self, node: usize, now: UnixMs) -> Result<Report, ScrapeFailure> {
        let mut report = self.fleet.node_report(node);
        let is_present = node == NODE && self.is_there(now);
        match self.kind {
            FindingKind::TargetDown if is_present => {
                return Err(ScrapeFailure::Connect("connection refused".into()));
            }
            FindingKind::DriverHung if node == NODE => hang_driver(&mut report, is_present),
            FindingKind::FabricDegraded if node == NODE => degrade_fabric(&mut report, is_present),
            FindingKind::FilesystemFull if node == NODE => fill_filesystem(&mut report, is_present),
            FindingKind::DataStale if is_present => {
                report = self.stored_report.get_or_insert(report).clone();
            }
            FindingKind::DataStale if node == NODE => self.stored_report = None,
            _ => {}
        }
        Ok(report)
    }
}

/// The suite scenario with a fault of this kind; `None` where reports are overwritten.
fn scenario_of_kind(kind: FindingKind) -> Option<&'static str> {
    Some(match kind {
        FindingKind::DataStarved => "F1",
        FindingKind::StorageSlow => "F2",
        FindingKind::ComputeStraggler => "F3",
        FindingKind::Throttled => "F4",
        FindingKind::HostBound => "F5",
        FindingKind::PcieDegraded => "F6",
        FindingKind::NvlinkDegraded => "F7",
        FindingKind::PortDown => "F8",
        FindingKind::PortRateLow => "F9",
        FindingKind::LinkErrors => "F10",
        FindingKind::LeafCongested => "F11",
        FindingKind::RailSlow => "F12",
        FindingKind::HostBlocksNetwork => "F13",
        FindingKind::CollectiveHang => "F14",
        FindingKind::GpuFailed => "F15",
        FindingKind::IdleAllocated => "F16",
        FindingKind::StageImbalance => "F17",
        FindingKind::DataSkew => "F18",
        FindingKind::CrashLoop => "F19",
        // What no detector explains is no fault that can be simulated as one.
        FindingKind::UnexplainedSlowdown
        | FindingKind::FabricDegraded
        | FindingKind::FilesystemFull
        | FindingKind::TargetDown
        | FindingKind::DriverHung
        | FindingKind::DataStale
        // Findings about gaunt itself are not faults of a fleet.
        | FindingKind::AggregatorLate
        | FindingKind::JudgementFailed
        | FindingKind::CertificateExpiring
        | FindingKind::FindingsOverLimit => return None,
    })
}

/// A job of four nodes, or of eight below two leaves for faults of shared components, and one free node.
fn small_shape(kind: FindingKind) -> FleetShape {
    let many_nodes =
        matches!(kind, FindingKind::LeafCongested | FindingKind::RailSlow | FindingKind::DataSkew);
    let nodes = if many_nodes { 8 } else { 4 };
    let stages = if kind == FindingKind::StageImbalance { 4 } else { 1 };
    let job = JobShape { nodes: 0..nodes, work: JobWorkload::Train, stages, experts: false };
    FleetShape {
        nodes: nodes + 1,
        gpus: 4,
        rails: 2,
        leaf_nodes: 4,
        gpu_models: GpuModelMix::Usual,
        domain_nodes: 1,
        jobs: vec![job],
        held: nodes..nodes,
    }
}

/// Simulates a hung driver: its GPU values are stale, and so is the collector that queries it.
fn hang_driver(report: &mut Report, hangs: bool) {
    let collector = report.ensure_device(gaunt_schema::Device::new_collector("nvml"));
    report.push(collector, exporter::COLLECTOR_SUCCESS, f64::from(u8::from(!hangs)));
    if !hangs {
        return;
    }
    for sample in &mut report.samples {
        let device = report.devices.get(sample.device as usize);
        if device.is_some_and(|device| device.class == DeviceClass::Gpu) {
            sample.reading = AbsenceReason::Stale.into();
        }
    }
}

/// Reports the health of the NVLink fabric at the first GPU: with degraded bandwidth, or without a fault.
fn degrade_fabric(report: &mut Report, is_degraded: bool) {
    let gpu = report.ensure_device(gaunt_schema::Device::new_gpu(0));
    let mask = if is_degraded { 0x1a9 } else { 0x1aa };
    report.push(gpu, gpu_health::FABRIC_HEALTH_MASK, f64::from(mask));
}

/// Reports the node's scratch space: full, or half full.
fn fill_filesystem(report: &mut Report, is_full: bool) {
    let scratch = report.ensure_device(gaunt_schema::Device::new_mount("/scratch"));
    let left = if is_full { 0.0 } else { 8e11 };
    report.push(scratch, hardware::MOUNT_SIZE, 1.6e12);
    report.push(scratch, hardware::MOUNT_AVAILABLE, left);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_kinds_all_have_a_permanent_fault() {
        for kind in FindingKind::ALL {
            let mut single = SingleFaultFleet::of(*kind, 0, UnixMs(0));
            let truth = single.fleet.ground_truths().first().cloned();
            assert!(
                truth.is_none_or(|truth| truth.kind == *kind && truth.ends.is_none()),
                "{kind}"
            );
            let batches = single.scrape_at(single.onset_time() + Duration::from_secs(1));
            assert_eq!(batches.len(), single.scrape_targets().len());
        }
    }
}
