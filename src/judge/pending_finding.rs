//! A suspected fault as a detector creates it, with the values behind it.

pub(super) use gaunt_schema::time::format_time_of_day;
use std::collections::BTreeSet;

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{Entity, EvidenceItem, Finding, FindingKind, SanitizedText, Severity};

use super::{Thresholds, sample_interval::SampleInterval};

/// The maximum of listed victims; the cost includes all of them.
pub(super) const MAX_VICTIMS: usize = 32;

/// The most nodes below a switch that a sentence names: they tell which one it is where it has no name.
pub(super) const MOST_BELOW: usize = 12;

/// Confidence of what gaunt itself observes, such as failed scrapes.
pub(super) const CERTAIN: f64 = 1.0;

/// The maximum of jobs that a finding keeps by name, so that its cost reaches all of them.
const MAX_JOBS: usize = 4_096;

/// A suspected fault: it becomes a finding once its evidence has lasted for a while.
#[derive(Clone, Debug)]
pub(super) struct PendingFinding {
    /// Seconds for which the evidence must last.
    pub(super) hold: f64,
    /// Seconds for which it must have lasted before it pages.
    pub(super) page_delay: f64,
    /// Seconds for which it must have lasted before it is more than information.
    pub(super) warning_delay: f64,
    /// The time between two samples of its evidence.
    pub(super) interval: SampleInterval,
    /// The number of independent kinds of evidence.
    kinds: usize,
    /// Whether it rests on something inferred that no exporter reports.
    learned: bool,
    /// Those that show it, where several do: at least one of them must be the same all the time.
    pub(super) members: Vec<String>,
    /// All affected jobs, by name, where the finding's victims are too few for all of them.
    pub(super) jobs: Vec<SanitizedText>,
    /// The future finding.
    pub(super) finding: Finding,
}

/// GPU time in seconds that jobs on one node each must lose before that is more than information, and the least loss in GPUs, so that
/// it is told at some time.
const SMALL_LOSS_GPU_SECONDS: f64 = 180.0;
const LEAST_LOST_GPUS: f64 = 0.2;

/// A loss of this share of all GPUs is not small.
const LEAST_FLEET_SHARE: f64 = 0.05;

impl PendingFinding {
    /// Creates a pending finding about `entity` with `kinds` independent kinds of evidence. Two are critical (page),
    /// one that the hardware reports is a warning, and any other one is informational.
    pub(super) fn of(kind: FindingKind, entity: Entity, kinds: usize, hard: bool) -> Self {
        let severity = match (kinds, hard) {
            (2.., _) => Severity::Critical,
            (1, true) => Severity::Warning,
            _ => Severity::Info,
        };
        Self {
            hold: 0.0,
            page_delay: 0.0,
            warning_delay: 0.0,
            interval: SampleInterval::default(),
            kinds,
            learned: false,
            members: Vec::new(),
            jobs: Vec::new(),
            finding: Finding::new(kind, severity, entity),
        }
    }

    /// Makes it a finding about another entity.
    pub(super) fn about(mut self, entity: Entity) -> Self {
        self.finding.id = Finding::build_id(self.finding.kind, &entity);
        self.finding.entity = entity;
        self
    }

    /// Sets the seconds for which it must have lasted.
    pub(super) fn with_hold_seconds(mut self, seconds: f64) -> Self {
        self.hold = seconds;
        self
    }

    /// Sets the time between two samples of its evidence.
    pub(super) fn with_interval(mut self, interval: SampleInterval) -> Self {
        self.interval = interval;
        self
    }

    /// Sets those that show it now. What one shows after another does not add up to the hold time.
    pub(super) fn with_members(mut self, members: impl IntoIterator<Item = String>) -> Self {
        self.members = members.into_iter().collect();
        self
    }

    /// Delays paging until it has lasted for so many seconds: until then it may be harmless.
    pub(super) fn with_page_delay(mut self, seconds: f64) -> Self {
        self.page_delay = seconds;
        self
    }

    /// Delays warning until it has lasted for so many seconds: until then it is only information.
    pub(super) fn with_warning_delay(mut self, seconds: f64) -> Self {
        self.warning_delay = seconds;
        self
    }

    /// Delays warning until jobs on one node each have lost enough GPU time, unless that is much of a fleet of so many GPUs: no
    /// other node tells what such a job does by itself, and most of that is over soon.
    pub(super) fn delay_small_loss(mut self, fleet_gpus: usize) -> Self {
        let lost = self.finding.lost_gpus;
        if lost < LEAST_FLEET_SHARE * fleet_gpus as f64 {
            let seconds = SMALL_LOSS_GPU_SECONDS / lost.max(LEAST_LOST_GPUS);
            self.warning_delay = self.warning_delay.max(seconds);
        }
        self
    }

    /// Marks it as resting on something inferred that no exporter reports: it never pages, and has a lower confidence.
    pub(super) fn mark_learned(mut self) -> Self {
        self.finding.severity = self.finding.severity.min(Severity::Warning);
        self.learned = true;
        self
    }

    /// Keeps it from paging.
    pub(super) fn cap_severity(&mut self) {
        self.finding.severity = self.finding.severity.min(Severity::Warning);
    }

    /// Adds another independent kind of evidence.
    pub(super) fn add_confirmation(&mut self, evidence: EvidenceItem) {
        self.kinds += 1;
        self.warning_delay = 0.0;
        self.finding.evidence.push(evidence);
        self.finding.severity = Severity::Critical;
    }

    /// Computes the confidence, a posterior: the odds of a kind of finding, times the odds of each kind of evidence
    /// beyond the first.
    pub(super) fn compute_confidence(&self, limits: &Thresholds) -> f64 {
        let inferred = self.learned || is_inferred(self.finding.kind);
        let prior = if inferred { limits.inferred_odds } else { limits.reported_odds };
        let further = if self.learned { 0 } else { self.kinds.saturating_sub(1) };
        posterior(prior * limits.evidence_odds.powi(further as i32))
    }

    /// Sets the estimated cost, which orders pending findings, and the victims. The cost of an open finding is the sum
    /// of the shares that are attributed to it.
    pub(super) fn with_cost(mut self, lost_gpus: f64, victims: Vec<Entity>) -> Self {
        self.finding.set_lost_gpus(lost_gpus);
        self.finding.victims = victims;
        self
    }

    /// Sets all affected job groups by name, also those that exceed the maximum of victims.
    pub(super) fn with_slowed_jobs(mut self, names: impl Iterator<Item = String>) -> Self {
        let names = names.map(|name| SanitizedText::new(&name));
        self.jobs = names.take(MAX_JOBS).collect();
        self
    }

    /// Sets the summary and the next step.
    pub(super) fn with_summary(mut self, summary: String, next: String) -> Self {
        self.finding.summary = summary;
        self.finding.next = next;
        self
    }

    /// Sets the values behind it; unknown ones are left out.
    pub(super) fn with_evidence(
        mut self,
        evidence: impl IntoIterator<Item = EvidenceItem>,
    ) -> Self {
        self.finding.evidence.extend(evidence.into_iter().filter(|number| number.value.is_some()));
        self
    }

    /// Sets values of which each may show it: those that are not on their side of the limit are context.
    pub(super) fn with_possible_evidence(
        self,
        evidence: impl IntoIterator<Item = EvidenceItem>,
    ) -> Self {
        self.with_evidence(evidence.into_iter().map(EvidenceItem::or_context))
    }
}

/// Returns the probability with these odds.
pub(super) fn posterior(odds: f64) -> f64 {
    odds / (1.0 + odds)
}

/// Whether the evidence of a kind is the behaviour of a job and its hosts, and no fault that a device reports.
pub(super) const fn is_inferred(kind: FindingKind) -> bool {
    use FindingKind::{
        DataSkew, DataStarved, HostBound, IdleAllocated, LeafCongested, RailSlow, StageImbalance,
        StorageSlow, UnexplainedSlowdown,
    };
    matches!(
        kind,
        DataSkew
            | DataStarved
            | HostBound
            | IdleAllocated
            | LeafCongested
            | RailSlow
            | StageImbalance
            | StorageSlow
            | UnexplainedSlowdown
    )
}

/// Whether the evidence of a kind is what one device reports of itself.
pub(super) const fn is_of_device(kind: FindingKind) -> bool {
    use FindingKind::{
        ComputeStraggler, FabricDegraded, HostBlocksNetwork, LinkErrors, NvlinkDegraded,
        PcieDegraded, PortRateLow, Throttled,
    };
    matches!(
        kind,
        ComputeStraggler
            | FabricDegraded
            | HostBlocksNetwork
            | LinkErrors
            | NvlinkDegraded
            | PcieDegraded
            | PortRateLow
            | Throttled
    )
}

/// Whether the evidence of a kind of finding exists only while a job works.
pub(super) fn rests_on_work(kind: FindingKind) -> bool {
    use FindingKind::{
        ComputeStraggler, DataSkew, DataStarved, HostBlocksNetwork, HostBound, LeafCongested,
        LinkErrors, NvlinkDegraded, PcieDegraded, RailSlow, StageImbalance, StorageSlow, Throttled,
        UnexplainedSlowdown,
    };
    matches!(
        kind,
        ComputeStraggler
            | DataSkew
            | DataStarved
            | HostBlocksNetwork
            | HostBound
            | LeafCongested
            | LinkErrors
            | NvlinkDegraded
            | PcieDegraded
            | RailSlow
            | StageImbalance
            | StorageSlow
            | Throttled
            | UnexplainedSlowdown
    )
}

/// Formats a share as a percentage: `31 %`.
pub(super) fn format_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Formats a line rate: `400 Gb/s`, `2.5 Gb/s`, `100 Mb/s`.
pub(super) fn format_line_rate(bytes_per_second: f64) -> String {
    let gigabits = bytes_per_second * 8.0 / 1e9;
    match gigabits {
        ..1.0 => format!("{:.0} Mb/s", gigabits * 1e3),
        ..10.0 => format!("{} Gb/s", (gigabits * 10.0).round() / 10.0),
        _ => format!("{gigabits:.0} Gb/s"),
    }
}

/// The most nodes that a sentence names.
const MOST_NAMED: usize = 4;

/// Formats the names of nodes: `gpu001, gpu002 and others`.
pub(super) fn format_nodes(cluster: &Cluster, nodes: &BTreeSet<NodeId>) -> String {
    format_most_nodes(cluster, nodes, MOST_NAMED)
}

/// Formats the names of nodes, at most so many.
pub(super) fn format_most_nodes(
    cluster: &Cluster,
    nodes: &BTreeSet<NodeId>,
    most: usize,
) -> String {
    let names = nodes.iter().filter_map(|id| Some(cluster.node_by_id(*id)?.name.as_str()));
    let names: Vec<&str> = names.take(most).collect();
    let more = if nodes.len() > names.len() { " and others" } else { "" };
    format!("{}{more}", names.join(", "))
}

/// Formats a count with its noun: `1 GPU`, `8 GPUs`.
pub(super) fn format_count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rates_of_old_and_new_links_are_told_apart() {
        for (gigabits, text) in
            [(0.1, "100 Mb/s"), (1.0, "1 Gb/s"), (2.5, "2.5 Gb/s"), (400.0, "400 Gb/s")]
        {
            assert_eq!(format_line_rate(gigabits * 1e9 / 8.0), text);
        }
    }

    #[test]
    fn count_has_a_singular_or_plural_noun() {
        assert_eq!(
            (format_count(1, "GPU"), format_count(0, "port")),
            ("1 GPU".into(), "0 ports".into())
        );
    }

    #[test]
    fn small_loss_warns_after_enough_gpu_time_and_much_of_a_fleet_at_once() {
        let delay = |lost: f64, fleet: usize| {
            let pending = PendingFinding::of(
                FindingKind::UnexplainedSlowdown,
                Entity::new(gaunt_schema::EntityKind::Storage),
                1,
                true,
            );
            pending.with_cost(lost, Vec::new()).delay_small_loss(fleet).warning_delay
        };
        let seconds = [(0.5, 100), (2.0, 100), (0.01, 100), (0.5, 8), (5.0, 100)];
        let seconds = seconds.map(|(lost, fleet)| delay(lost, fleet).round() as u32);
        // The third one loses next to nothing, and is told at some time.
        assert_eq!(seconds, [360, 90, 900, 0, 0]);
    }
}
