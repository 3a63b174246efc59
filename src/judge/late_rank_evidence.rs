//! Late-rank evidence: findings about a GPU or node for which the others wait in collectives say so, and name rank and
//! communicator; so does a slowdown that no other finding explains.

use gaunt_cluster::Cluster;
use gaunt_schema::{
    DeviceClass, EvidenceItem, FindingKind, SanitizedText, Severity, catalogue::gpu,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    late_ranks::LateRank,
    pending_finding::{PendingFinding, format_count, format_percent},
    robust_stats::median,
};

/// Findings whose fault makes ranks late, and those about jobs that a late rank slowed down or stopped.
const KINDS: [FindingKind; 6] = [
    FindingKind::ComputeStraggler,
    FindingKind::Throttled,
    FindingKind::DataStarved,
    FindingKind::HostBound,
    FindingKind::UnexplainedSlowdown,
    FindingKind::CollectiveHang,
];

/// Those about a whole job.
const JOB_KINDS: [FindingKind; 2] = [FindingKind::UnexplainedSlowdown, FindingKind::CollectiveHang];

/// Adds what collectives show to the findings about late ranks.
pub(super) fn add_late_rank_evidence(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for group in judge.job_groups.all_groups() {
        let Some(late) = judge.late_ranks.of(group, cluster.now()) else { continue };
        let Some(found) = LateRankEvidence::of(judge, cluster, group, late) else { continue };
        for pending in &mut outcome.suspicions {
            found.add_to(pending);
        }
    }
}

/// What the collectives of one job show.
struct LateRankEvidence<'a> {
    group: &'a JobGroup,
    late: &'a LateRank,
    node: &'a SanitizedText,
    /// The numbers of its late GPUs on the node.
    gpus: Vec<&'a SanitizedText>,
    /// Whom the others wait for, with the rank if it is known.
    title: String,
    activity: SmActivityChange,
    /// The limit of the time of a late rank.
    late_ratio: f64,
}

/// SM activity of the late ranks beside the rest of their job.
#[derive(Clone, Copy, Debug, Default)]
struct SmActivityChange {
    own: Option<f64>,
    others: Option<f64>,
}

impl<'a> LateRankEvidence<'a> {
    fn of(
        judge: &JudgeState,
        cluster: &'a Cluster,
        group: &'a JobGroup,
        late: &'a LateRank,
    ) -> Option<Self> {
        let node = &cluster.node_by_id(late.node)?.name;
        let entries = late.gpus.iter();
        let entries = entries.filter_map(|row| cluster.device_at(DeviceClass::Gpu, *row));
        let entries: Vec<_> = entries.collect();
        let gpus: Vec<_> = entries.iter().filter_map(|entry| entry.device.key.first()).collect();
        let ranks = entries.iter().filter_map(|entry| entry.info_label(gpu::JOB_INFO, "rank"));
        let ranks: Vec<_> = ranks.collect();
        let title = match (gpus.as_slice(), ranks.as_slice()) {
            ([], _) => return None,
            ([gpu], [rank]) => format!("{node}/{gpu} (rank {rank})"),
            ([gpu], _) => format!("{node}/{gpu}"),
            (several, _) => format!("{} of {node}", format_count(several.len(), "GPU")),
        };
        let activity = SmActivityChange::of(judge, cluster, group, late);
        let late_ratio = judge.limits.late_rank_ratio;
        Some(Self { group, late, node, gpus, title, activity, late_ratio })
    }

    /// Whether a finding is about the late ranks.
    fn is_about(&self, pending: &PendingFinding) -> bool {
        let entity = &pending.finding.entity;
        if JOB_KINDS.contains(&pending.finding.kind) {
            return *entity == self.group.to_entity();
        }
        let is_late = |gpu: &SanitizedText| self.gpus.contains(&gpu);
        entity.node.as_ref() == Some(self.node) && entity.gpu.as_ref().is_none_or(is_late)
    }

    fn add_to(&self, pending: &mut PendingFinding) {
        let kind = pending.finding.kind;
        if !KINDS.contains(&kind) || !self.is_about(pending) {
            return;
        }
        let summary = pending.finding.summary.trim_end_matches('.');
        pending.finding.summary = format!("{summary}; {}.", self.render_summary());
        let [times, activity] = self.collect_evidence();
        // Which rank it is does not yet explain the slowdown of the job, and it was late before the job hung.
        let confirms = self.activity.is_different() && !JOB_KINDS.contains(&kind);
        if confirms && pending.finding.severity > Severity::Info {
            pending.add_confirmation(times);
        } else {
            pending.finding.evidence.push(times.context_if(!confirms));
        }
        pending.finding.evidence.extend(Some(activity).filter(|it| it.value.is_some()));
    }

    fn render_summary(&self) -> String {
        let late = self.late;
        let (own, others) = (format_time(late.own_seconds), format_time(late.other_seconds));
        let LateRank { operation, communicator, .. } = late;
        let rank = late.rank.as_ref().filter(|_| self.gpus.len() == 1);
        let place = rank.map_or("of".to_owned(), |rank| format!("as rank {rank} of"));
        let comes = if self.gpus.len() == 1 { "comes" } else { "come" };
        format!(
            "{} {comes} last to {operation} {place} communicator {communicator} ({own}, others {others})",
            self.title
        )
    }

    fn collect_evidence(&self) -> [EvidenceItem; 2] {
        let late = self.late;
        let note = format!(
            "{} of {}, communicator {}: {} of {} ranks, others {}",
            late.operation,
            late.message_size,
            late.communicator,
            format_time(late.own_seconds),
            late.ranks,
            format_time(late.other_seconds)
        );
        let others = self.activity.others;
        let others = others.map(|share| format!("job median {}", format_percent(share)));
        [
            EvidenceRow::CollectiveTime
                .to_evidence(Some(late.own_seconds / late.other_seconds), Some(self.late_ratio))
                .with_note(note),
            EvidenceRow::SmActivity
                .to_evidence(self.activity.own, None)
                .with_note(others.unwrap_or_default()),
        ]
    }
}

impl SmActivityChange {
    fn of(judge: &JudgeState, cluster: &Cluster, group: &JobGroup, late: &LateRank) -> Self {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let activity = |row: &u32| {
            judge.gpus.get(*row as usize)?.averages.signals_at(now, gap, &judge.limits).sm
        };
        let others = group.gpus.iter().filter(|row| !late.gpus.contains(row));
        Self {
            own: median(late.gpus.iter().filter_map(activity)),
            others: median(others.filter_map(activity)),
        }
    }

    /// Whether the late ranks do something else than the ranks that wait: they still compute, or have not begun.
    fn is_different(self) -> bool {
        let both = self.own.zip(self.others);
        both.is_some_and(|(own, others)| (own - others).abs() >= LEAST_DIFFERENCE)
    }
}

/// The difference in SM activity between a rank that waits in a collective and one that does not.
const LEAST_DIFFERENCE: f64 = 0.05;

/// Formats the time of a collective: `2.31 ms`.
fn format_time(seconds: f64) -> String {
    format!("{:.2} ms", seconds * MILLISECONDS)
}

const MILLISECONDS: f64 = 1e3;
