//! Failed GPUs: gone from the bus, with an error that requires a reset, or with memory that can no longer be repaired and
//! a board that is to be replaced (RMA).

use std::collections::{BTreeSet, HashSet};

use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, Finding, FindingKind, SanitizedText, UnixMs,
    xid::{describe_xid, is_nvlink_cause, is_nvlink_consequence as is_consequence},
};

use super::{
    EvidenceRow, JudgeState, Whereabouts, evidence_coverage,
    finding_lifecycle::DetectorOutcome,
    gpu_errors::GpuErrors,
    job_group::JobGroup,
    nvlink_degraded::nvlinks_of,
    pending_finding::{PendingFinding, format_count, format_time_of_day},
    row_remaps::LEAST_ROWS,
    sample_interval::SampleInterval,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// A failed request over NVLink waits so long in seconds for the GPU whose NVLink failed: nodes are read at different
/// times, and kernel logs are written late.
const CAUSE_WAIT_SECONDS: f64 = 30.0;

/// Adds every failed GPU.
pub(super) fn detect_failed_gpus(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    find_missing(judge, cluster, outcome);
    for (id, node) in cluster.sorted_nodes() {
        let gone = node
            .device_rows(DeviceClass::Gpu)
            .iter()
            .filter(|row| judge.health.of(**row).gone.is_some());
        // A driver reload removes all GPUs for a moment.
        let all = node.device_rows(DeviceClass::Gpu).len() > 1
            && gone.count() == node.device_rows(DeviceClass::Gpu).len();
        for row in node.device_rows(DeviceClass::Gpu) {
            let mut errors = judge.health.of(*row);
            errors.gone = errors.gone.filter(|_| !all);
            if errors.is_well(cluster.now()) {
                continue;
            }
            let Some(entity) = gpu_entity(cluster, *row) else { continue };
            let explained = if errors.follows {
                Some("explained by a failed NVLink of another GPU")
            } else if errors.is_only_nvlink() && shares_nvlink_errors(judge, node) {
                Some("explained by errors on several GPUs of the node")
            } else {
                None
            };
            if let Some(reason) = explained {
                let id = Finding::build_id(FindingKind::GpuFailed, &entity);
                outcome.supersede_open(&judge.tracker, &id, reason);
                errors.xid = None;
            }
            let failure = GpuFailure { judge, cluster, node: (id, node), row: *row, errors };
            failure.report_finding(&entity, outcome);
        }
    }
}

/// Whether a finding of this kind and estimated cost in GPUs is about a GPU that has a defect and does its work: no loss
/// and no other finding follows from it.
pub(super) fn works_in_spite_of_it(kind: FindingKind, estimate: f64) -> bool {
    kind == FindingKind::GpuFailed && estimate == 0.0
}

/// Whether several GPUs of a node have NVLink errors: what joins them is told.
fn shares_nvlink_errors(judge: &JudgeState, node: &Node) -> bool {
    nvlinks_of(judge, node, judge.nvlinks.peer_errors()).are_shared()
}

fn gpu_entity(cluster: &Cluster, row: u32) -> Option<Entity> {
    let entry = cluster.device_at(DeviceClass::Gpu, row)?;
    let node = cluster.node_by_id(entry.node)?;
    let empty = SanitizedText::default();
    Some(Entity::new_gpu(&node.name, entry.device.key.first().unwrap_or(&empty)))
}

/// One GPU with errors.
struct GpuFailure<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    node: (NodeId, &'a Node),
    row: u32,
    errors: GpuErrors,
}

impl GpuFailure<'_> {
    fn report_finding(&self, entity: &Entity, outcome: &mut DetectorOutcome) {
        let GpuErrors { gone, xid, memory, remap, .. } = self.errors;
        let times = [gone, memory, xid.map(|(_, at)| at)];
        let replaced = self.errors.failing_rows(self.cluster.now());
        let rows_replaced = replaced.map(|(rows, _)| rows);
        let working = remap.or(replaced.map(|(_, since)| since));
        let since =
            if self.errors.is_working() { working } else { times.into_iter().flatten().min() };
        let Some(since) = since else { return };
        let kinds = times.iter().flatten().count();
        // Memory errors alone are a warning; a GPU that is gone or has an error that needs a reset is a fact.
        let fact = gone.is_some() || xid.is_some();
        let group = self.judge.job_groups.of(self.row);
        let is_used = group.is_some()
            || self
                .judge
                .gpus
                .get(self.row as usize)
                .is_some_and(|gpu| gpu.allocated == Some(true));
        let id = self.node.0;
        let is_slower =
            |group: &&JobGroup| self.judge.gangs.is_likely_slower(group, &self.judge.limits);
        let cost = match group {
            // What replaces rows of its memory may be slower for that: its job is.
            Some(group) if replaced.is_some() && is_slower(&group) => {
                (group.lost_gpus(), group.list_victims(self.cluster, Some(id)))
            }
            // It does its work.
            _ if self.errors.is_working() => (0.0, Vec::new()),
            Some(group) => (group.lost_gpus().max(1.0), group.list_victims(self.cluster, Some(id))),
            None => (1.0, Vec::new()),
        };
        let suspicion = PendingFinding::of(
            FindingKind::GpuFailed,
            entity.clone(),
            if fact && is_used { kinds.max(2) } else { 1 },
            true,
        )
        .with_cost(cost.0, cost.1)
        .with_summary(self.render_summary(entity, since), self.next_step())
        .with_evidence(failure_evidence(
            gone.is_some(),
            xid.map(|(code, _)| f64::from(code)),
            memory,
            self.cluster.now(),
        ))
        .with_evidence([
            EvidenceRow::RowRemapFailed.to_evidence(remap.map(|_| 1.0), None),
            EvidenceRow::RowsRemapped
                .to_evidence(rows_replaced, Some(LEAST_ROWS))
                .with_note("limit: of one course, with at most ten minutes between two"),
        ]);
        if gone.is_none() && memory.is_none() && xid.is_some_and(|(code, _)| is_consequence(code)) {
            // The GPU whose NVLink failed may be on a node that is read later.
            let interval = SampleInterval::of_gpus(self.cluster, self.node.1);
            outcome
                .suspicions
                .push(suspicion.with_hold_seconds(CAUSE_WAIT_SECONDS).with_interval(interval));
            return;
        }
        let confidence = suspicion.compute_confidence(&self.judge.limits);
        let mut finding = suspicion.finding;
        finding.confidence = confidence;
        finding.since = since;
        outcome.findings.push(finding);
    }

    fn render_summary(&self, entity: &Entity, since: UnixMs) -> String {
        let failure = self.errors.xid.map(|(code, _)| describe_xid(code));
        let symptom = match (self.errors.gone.is_some(), failure) {
            (true, Some(xid)) => format!("is missing: XID {}, {}", xid.code, xid.meaning),
            (true, None) => "is missing from the metrics of its node".to_owned(),
            (false, Some(xid)) => format!("failed: XID {}, {}", xid.code, xid.meaning),
            (false, None) if self.errors.memory.is_some() => {
                "has uncorrectable ECC errors".to_owned()
            }
            (false, None) => match self.errors.failing_rows(self.cluster.now()) {
                Some((rows, _)) if self.errors.remap.is_none() => {
                    format!("works, but {rows:.0} rows of its memory were remapped")
                }
                _ => "works, but a row of its memory could not be remapped".to_owned(),
            },
        };
        let mut text = format!("{entity} {symptom}, since {}.", format_time_of_day(since));
        let followers = match failure {
            Some(xid) if is_nvlink_cause(xid.code) => {
                self.judge.health.count_followers(self.cluster, self.row)
            }
            _ => 0,
        };
        if followers > 0 {
            let others = format_count(followers, "other GPU");
            text = format!("{text} NVLink requests of {others} failed with it.");
        }
        text
    }

    fn next_step(&self) -> String {
        let failure = self.errors.xid.map(|(code, _)| describe_xid(code));
        let other = match self.errors.remap {
            Some(_) => "drain the node and have the board replaced (RMA)",
            None if self.errors.is_working() => {
                "drain the node when its job ends, reset the GPU, and have the board replaced (RMA) if it goes on"
            }
            None => "drain the node and check the kernel log",
        };
        let action = failure.map_or(other, |xid| xid.action);
        let mut next = action.to_owned();
        next[..1].make_ascii_uppercase();
        format!("{next}.")
    }
}

/// Adds the GPUs that a node had before a restart and does not list since: no row exists for them now.
fn find_missing(judge: &JudgeState, cluster: &Cluster, outcome: &mut DetectorOutcome) {
    let nodes = Whereabouts::of(&judge.node_names, cluster);
    for (id, node) in cluster.sorted_nodes() {
        let rows = node.device_rows(DeviceClass::Gpu);
        let Some(before) = judge.restored_gpus.get(&node.name).filter(|it| it.len() > rows.len())
        else {
            continue;
        };
        // Without any GPU the driver is being reloaded, or the pages of another target have not arrived yet.
        if rows.is_empty()
            || evidence_coverage::is_silent(cluster, node, FindingKind::GpuFailed)
            || nodes.has_unread(&node.name)
        {
            continue;
        }
        let now: HashSet<&SanitizedText> = rows
            .iter()
            .filter_map(|row| cluster.device_at(DeviceClass::Gpu, *row)?.device.key.first())
            .collect();
        let missing: BTreeSet<&SanitizedText> =
            before.iter().filter(|key| !now.contains(key)).collect();
        if missing.len() != before.len() - rows.len() {
            continue; // The others are renamed: which one is missing is unknown.
        }
        for key in missing {
            let entity = Entity::new_gpu(&node.name, key);
            let group = rows.iter().find_map(|row| judge.job_groups.of(*row));
            let summary = format!(
                "{entity} is missing since the restart of gaunt: its node reports {} of {}.",
                rows.len(),
                format_count(before.len(), "GPU")
            );
            let next = "Drain the node and check the kernel log.".to_owned();
            let victims =
                group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default();
            outcome.suspicions.push(
                PendingFinding::of(FindingKind::GpuFailed, entity, 1, true)
                    .with_hold_seconds(judge.limits.average_seconds)
                    .with_cost(1.0, victims)
                    .with_summary(summary, next)
                    .with_evidence(failure_evidence(true, None, None, cluster.now())),
            );
        }
    }
}

fn failure_evidence(
    gone: bool,
    xid: Option<f64>,
    memory: Option<UnixMs>,
    now: UnixMs,
) -> [EvidenceItem; 3] {
    [
        EvidenceRow::GpuPresent
            .to_evidence(gone.then_some(0.0), Some(1.0))
            .with_note("limit: expected value"),
        EvidenceRow::Xid.to_evidence(xid, None).with_note("NVIDIA driver error code"),
        EvidenceRow::EccErrorAge
            .to_evidence(memory.map(|at| now.duration_since(at).as_secs_f64()), None),
    ]
}
