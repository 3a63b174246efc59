//! Slowdown causes: the jobs and nodes that a finding blames or lists as victims. One at warning or above explains their
//! slowdown, an informational one is a possible cause.

use std::collections::{BTreeSet, HashMap};

use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, EvidenceRole, Finding, FindingKind, SanitizedText, Severity,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    standing_fault::{is_harmless_to, is_there_or_not},
};
use gaunt_cluster::{Cluster, NodeId};

/// The findings that explain the slowdown of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowdownCause {
    /// The kind of one that has been open for long.
    pub(super) settled: Option<FindingKind>,
    /// Whether one is open, or was found at this step.
    pub(super) is_told: bool,
    /// Whether one is open, or evidence of one was found at this step.
    pub(super) is_suspected: bool,
    /// Whether evidence of one, open or not, was found at this step.
    pub(super) is_seen: bool,
}

/// What is known about why a job is slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowdownExplanation {
    /// A finding of this kind explains it.
    Settled(FindingKind),
    /// A finding that may explain it is open, though its evidence is gone, or has not been open for long.
    Told,
    /// Evidence of a finding that may explain it and is not open yet.
    Suspected,
    /// Nothing.
    Unknown,
}

impl SlowdownCause {
    fn merged(self, other: Self) -> Self {
        Self {
            settled: self.settled.or(other.settled),
            is_told: self.is_told || other.is_told,
            is_suspected: self.is_suspected || other.is_suspected,
            is_seen: self.is_seen || other.is_seen,
        }
    }
}

/// The causes of slowdowns by node and by job.
#[derive(Debug, Default)]
pub(super) struct SlowdownCauses {
    nodes: HashMap<NodeId, SlowdownCause>,
    jobs: HashMap<SanitizedText, SlowdownCause>,
    possible: Vec<PossibleCause>,
}

/// An informational finding.
#[derive(Debug)]
struct PossibleCause {
    kind: FindingKind,
    nodes: Vec<NodeId>,
    jobs: Vec<SanitizedText>,
}

/// Whether a finding rests on errors that are too few to slow a job: it warns of a link that gets worse.
fn has_few_errors(finding: &Finding) -> bool {
    use EvidenceRow::{
        ActiveNvlinks, LinkErrorCount, LinkErrors, NvlinkErrorCount, NvlinkErrors, PcieGeneration,
        PcieReplayCount, PcieReplays, PcieWidth, SwitchLinkErrors,
    };
    let (few, many) = match finding.kind {
        FindingKind::LinkErrors => (LinkErrorCount, [LinkErrors, SwitchLinkErrors].as_slice()),
        FindingKind::PcieDegraded => {
            (PcieReplayCount, [PcieReplays, PcieWidth, PcieGeneration].as_slice())
        }
        FindingKind::NvlinkDegraded => (NvlinkErrorCount, [NvlinkErrors, ActiveNvlinks].as_slice()),
        _ => return false,
    };
    let shows = |row: &EvidenceRow| {
        let is_proof = |number: &EvidenceItem| number.role == EvidenceRole::Proof;
        finding.evidence.iter().any(|number| row.is_row_of(number) && is_proof(number))
    };
    shows(&few) && !many.iter().any(shows)
}

impl SlowdownCauses {
    /// Collects the causes: open findings, and what the detectors found at this step.
    pub(super) fn collect(
        judge: &JudgeState,
        cluster: &Cluster,
        outcome: &DetectorOutcome,
    ) -> Self {
        let mut causes = Self::default();
        for (record, _) in judge.tracker.open_with_estimates() {
            // A checkpoint may look like slow storage for a moment.
            let open_s = cluster.now().duration_since(record.finding.life.opened).as_secs_f64();
            let is_settled = open_s >= judge.limits.unexplained_seconds;
            let settled = is_settled.then_some(record.finding.kind);
            let cause =
                SlowdownCause { settled, is_told: true, is_suspected: true, is_seen: false };
            causes.add_finding(judge, cluster, &record.finding, &record.jobs, cause);
        }
        let seen = SlowdownCause { is_suspected: true, is_seen: true, ..SlowdownCause::default() };
        let told = SlowdownCause { is_told: true, ..seen };
        for finding in &outcome.findings {
            let jobs = outcome.jobs.get(&finding.id).map_or(&[][..], Vec::as_slice);
            causes.add_finding(judge, cluster, finding, jobs, told);
        }
        // One that waits for other evidence before it opens explains nothing yet.
        for pending in outcome.suspicions.iter().filter(|pending| pending.hold.is_finite()) {
            causes.add_finding(judge, cluster, &pending.finding, &pending.jobs, seen);
        }
        causes
    }

    fn add_finding(
        &mut self,
        judge: &JudgeState,
        cluster: &Cluster,
        finding: &Finding,
        jobs: &[SanitizedText],
        cause: SlowdownCause,
    ) {
        use FindingKind::{DataSkew, IdleAllocated, StageImbalance, UnexplainedSlowdown};
        if finding.kind == UnexplainedSlowdown {
            return;
        }
        let entities = || std::iter::once(&finding.entity).chain(&finding.victims);
        let node = |entity: &Entity| Some(cluster.node_by_name(entity.node.as_ref()?)?.0);
        let nodes = entities().filter_map(node);
        let of_entities = entities().filter_map(|entity| entity.job.as_ref());
        let jobs = of_entities.chain(jobs).cloned();
        if finding.severity == Severity::Info || has_few_errors(finding) {
            if !matches!(finding.kind, DataSkew | IdleAllocated | StageImbalance) {
                let (nodes, jobs) = (nodes.collect(), jobs.collect());
                self.possible.push(PossibleCause { kind: finding.kind, nodes, jobs });
            }
            return;
        }
        // Most kinds are not looked up: a storm of them must not cost a search of all jobs each.
        let may_be_harmless = is_there_or_not(finding.kind);
        let is_harmless = |group: &JobGroup| is_harmless_to(judge, finding, group);
        let is_harmless_on = |id: &NodeId| {
            let rows = cluster.node_by_id(*id).map(|node| node.device_rows(DeviceClass::Gpu));
            let groups = judge.job_groups.groups_on(rows.unwrap_or_default());
            !groups.is_empty() && groups.into_iter().all(is_harmless)
        };
        let is_harmless_for =
            |job: &SanitizedText| judge.job_groups.by_key(job).is_some_and(is_harmless);
        for id in nodes.filter(|id| !(may_be_harmless && is_harmless_on(id))) {
            let known = self.nodes.entry(id).or_default();
            *known = known.merged(cause);
        }
        for job in jobs.filter(|job| !(may_be_harmless && is_harmless_for(job))) {
            let known = self.jobs.entry(job).or_default();
            *known = known.merged(cause);
        }
    }

    /// Returns the kinds of the informational findings about a group.
    pub(super) fn possible_causes(&self, group: &JobGroup) -> BTreeSet<FindingKind> {
        let job = SanitizedText::new(&group.group_key());
        let is_about = |cause: &&PossibleCause| {
            cause.jobs.contains(&job) || cause.nodes.iter().any(|id| group.nodes.contains(id))
        };
        self.possible.iter().filter(is_about).map(|cause| cause.kind).collect()
    }

    /// Returns what explains a group's slowdown.
    pub(super) fn cause_of(&self, group: &JobGroup) -> SlowdownCause {
        let of_nodes = group.nodes.iter().filter_map(|id| self.nodes.get(id));
        let of_job = self.jobs.get(&SanitizedText::new(&group.group_key()));
        of_nodes.chain(of_job).copied().fold(SlowdownCause::default(), SlowdownCause::merged)
    }
}
