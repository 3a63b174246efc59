//! Full file systems: a job whose checkpoint, cache or log cannot be written stops, and nothing about its GPUs tells why.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{
    DeviceClass, Entity, EntityKind, EvidenceItem, Finding, FindingKind, SanitizedText, UnixMs,
    catalogue::hardware::{self, LOCAL_FILESYSTEMS},
};

use super::{
    EvidenceRow, JudgeState, finding_lifecycle::DetectorOutcome, job_group::JobGroup,
    pending_finding::PendingFinding, standing_fault::is_harmless_to,
    starved_node::checkpoint_seconds, still_gpu::is_still,
};

/// The longest time in seconds between two samples that show what happened at one time.
const TOGETHER_SECONDS: f64 = 60.0;

/// The most file systems that a finding names.
const MOST_NAMED: usize = 4;

/// Adds nodes with a full file system, and shared storage that is full.
pub(super) fn detect_full_filesystems(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let restarting = outcome.suspicions.iter().map(|pending| &pending.finding);
    let restarting = restarting.filter(|finding| finding.kind == FindingKind::CrashLoop);
    let restarting: Vec<Entity> = restarting.map(|finding| finding.entity.clone()).collect();
    let mut shared = FullFilesystems::default();
    for (id, node) in cluster.sorted_nodes() {
        let mut own = FullFilesystems::default();
        for row in node.device_rows(DeviceClass::Mount) {
            let Some(full) = FullFilesystem::detect(judge, cluster, *row) else { continue };
            let place = if full.is_shared { &mut shared } else { &mut own };
            place.nodes.insert(id);
            place.by_name.entry(full.name).or_insert(full.evidence);
        }
        if !own.nodes.is_empty() {
            outcome.suspicions.push(own.suspect(
                judge,
                cluster,
                &restarting,
                Entity::new_node(&node.name),
            ));
        }
    }
    if !shared.nodes.is_empty() {
        let storage = Entity::new(EntityKind::Storage);
        outcome.suspicions.push(shared.suspect(judge, cluster, &restarting, storage));
    }
}

/// A file system with nothing left.
struct FullFilesystem {
    /// The folder of one on a node, what a shared one is mounted from.
    name: SanitizedText,
    is_shared: bool,
    evidence: EvidenceItem,
}

impl FullFilesystem {
    /// Returns the file system at a row if hardly any space or no inodes are left of it; what cannot be written at all, such
    /// as an image, is not full.
    fn detect(judge: &JudgeState, cluster: &Cluster, row: u32) -> Option<Self> {
        let value = |metric| cluster.current_value(metric, row);
        let least = judge.limits.filesystem_free_ratio;
        let left_of = |left, all| {
            let all = value(all).filter(|all| *all > 0.0)?;
            value(left).map(|left| left / all).filter(|share| *share < least)
        };
        let space = left_of(hardware::MOUNT_AVAILABLE, hardware::MOUNT_SIZE);
        let inodes = || left_of(hardware::MOUNT_FREE_INODES, hardware::MOUNT_INODES);
        let space = space.map(|share| (EvidenceRow::FreeSpace, share));
        let (row_of_evidence, share) =
            space.or_else(|| Some((EvidenceRow::FreeInodes, inodes()?)))?;
        if value(hardware::MOUNT_READ_ONLY).is_some_and(|flag| flag > 0.0) {
            return None;
        }
        let entry = cluster.device_at(DeviceClass::Mount, row)?;
        let kind = entry.info_label(hardware::MOUNT_INFO, "kind");
        let is_shared = kind.is_some_and(|kind| !LOCAL_FILESYSTEMS.contains(&kind.as_str()));
        let source = entry.info_label(hardware::MOUNT_INFO, "source").filter(|_| is_shared);
        let name = source.or(entry.device.key.first())?.clone();
        let evidence = row_of_evidence.to_evidence(Some(share), Some(least)).with_name(&name);
        Some(Self { name, is_shared, evidence })
    }
}

/// Those of one node, or those that nodes share.
#[derive(Default)]
struct FullFilesystems {
    nodes: BTreeSet<NodeId>,
    by_name: BTreeMap<SanitizedText, EvidenceItem>,
}

impl FullFilesystems {
    /// Information, until a job on these nodes suffers since about when they became full; a page once a job has stood still
    /// for longer than a checkpoint takes.
    fn suspect(
        self,
        judge: &JudgeState,
        cluster: &Cluster,
        restarting: &[Entity],
        entity: Entity,
    ) -> PendingFinding {
        let gpus = self.nodes.iter().filter_map(|id| cluster.node_by_id(*id));
        let gpus: Vec<u32> =
            gpus.flat_map(|node| node.device_rows(DeviceClass::Gpu)).copied().collect();
        let id = Finding::build_id(FindingKind::FilesystemFull, &entity);
        let jobs = SufferingJob::find(judge, cluster, restarting, (&id, &gpus));
        let names: Vec<&str> =
            self.by_name.keys().map(SanitizedText::as_str).take(MOST_NAMED).collect();
        let more = if self.by_name.len() > names.len() { " and others" } else { "" };
        let verb = if self.by_name.len() == 1 { "is" } else { "are" };
        let place = format!("{}{more}", names.join(", "));
        let full = match &entity.node {
            Some(node) => format!("{place} on {node} {verb} full"),
            None => format!("The shared file system {place} {verb} full"),
        };
        let mut summary = format!("{full}: nothing more can be written there.");
        if let Some(job) = jobs.first() {
            let others = if jobs.len() > 1 { ", and others suffer" } else { "" };
            _ = write!(summary, " {} {}{others}.", job.group.render_title(), job.words);
        }
        let kinds = if jobs.iter().any(|job| job.stands_for_long) { 2 } else { 1 };
        let lost = jobs.iter().map(|job| job.lost_gpus).sum();
        let victims = jobs.iter().flat_map(|job| job.group.list_victims(cluster, None)).collect();
        PendingFinding::of(FindingKind::FilesystemFull, entity, kinds, !jobs.is_empty())
            .with_cost(lost, victims)
            .with_summary(
                summary,
                "Delete what nobody needs there, such as old checkpoints, core dumps, caches of data and of images; \
                 then check that the job goes on, or restart it."
                    .to_owned(),
            )
            .with_evidence(self.by_name.into_values().take(MOST_NAMED))
            .with_evidence(jobs.into_iter().take(1).map(|job| job.evidence))
    }
}

/// A job that suffers.
struct SufferingJob<'a> {
    group: &'a JobGroup,
    /// What is said of it.
    words: &'static str,
    evidence: EvidenceItem,
    lost_gpus: f64,
    /// When it was last well.
    well: UnixMs,
    /// Whether it has stood still for longer than a checkpoint takes.
    stands_for_long: bool,
}

impl<'a> SufferingJob<'a> {
    /// Returns the jobs on these GPUs that suffer since about when the finding with this id began, and are not known to be
    /// well in spite of it.
    fn find(
        judge: &'a JudgeState,
        cluster: &Cluster,
        restarting: &[Entity],
        (id, gpus): (&str, &[u32]),
    ) -> Vec<Self> {
        let since = judge.tracker.suspected_since(id).unwrap_or(cluster.now());
        let open = judge.tracker.open_one(id);
        let groups = judge.job_groups.groups_on(gpus).into_iter();
        let suffers = groups.filter_map(|group| {
            if restarting.contains(&group.to_entity()) {
                return Self::of_restarts(judge, cluster, group);
            }
            let suffers = Self::of_stop(judge, cluster, group, since);
            let suffers = suffers.or_else(|| Self::of_slowdown(judge, group))?;
            let is_harmless = open.is_some_and(|open| is_harmless_to(judge, open, group));
            (!is_harmless).then_some(suffers)
        });
        let began_then = |job: &Self| job.well + together_with(job.group) >= since;
        suffers.filter(began_then).collect()
    }

    /// A job in a crash loop: between two of its ends it works as usual.
    fn of_restarts(judge: &JudgeState, cluster: &Cluster, group: &'a JobGroup) -> Option<Self> {
        let count = judge.restarts.count_of(group, cluster.now())?;
        Some(Self {
            group,
            words: "restarts again and again",
            evidence: EvidenceRow::ProcessEnds.to_evidence(Some(count.ends as f64), None),
            lost_gpus: count.lost_share * group.gpus.len() as f64,
            well: count.since,
            stands_for_long: false,
        })
    }

    fn of_stop(
        judge: &JudgeState,
        cluster: &Cluster,
        group: &'a JobGroup,
        since: UnixMs,
    ) -> Option<Self> {
        if !stands_still(judge, cluster, group) {
            return None;
        }
        let (now, limits, lost_gpus) = (cluster.now(), &judge.limits, group.gpus.len() as f64);
        // It may have been slow before, for another reason: then its pause tells since when it stands.
        let usual = judge.gangs.of(group).last_usual();
        let was_slow = usual + together_with(group) < since;
        let stands = judge.pauses.lasting_seconds(group, now, limits).filter(|_| was_slow);
        let stood = stands.map(|seconds| UnixMs(now.0 - (seconds * 1e3) as i64));
        let well = usual.max(stood.unwrap_or_default());
        let stood = now.duration_since(well).as_secs_f64();
        Some(Self {
            group,
            words: "stands still",
            evidence: EvidenceRow::IdleGpus.to_evidence(Some(lost_gpus), None),
            lost_gpus,
            well,
            stands_for_long: stood >= checkpoint_seconds(group.interval, limits),
        })
    }

    fn of_slowdown(judge: &JudgeState, group: &'a JobGroup) -> Option<Self> {
        let (evidence, limits) = (judge.gangs.of(group), &judge.limits);
        let least = limits.slowed_ratio;
        let slowed = group.confirmed_slowdown(least).filter(|_| evidence.is_slower(group, limits));
        slowed.map(|slowed| Self {
            group,
            words: "is slower",
            evidence: EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(least)),
            lost_gpus: group.lost_gpus(),
            well: evidence.last_usual(),
            stands_for_long: false,
        })
    }
}

/// The longest time between the moments at which a file system is seen to be full and this job was last well.
fn together_with(group: &JobGroup) -> Duration {
    Duration::from_secs_f64(TOGETHER_SECONDS) + group.interval.to_duration()
}

/// Whether a job that has worked does nothing now: its processes wait, or have ended.
fn stands_still(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> bool {
    let is_stopped = |row: &&u32| {
        let Some(gpu) = judge.gpus.get(**row as usize) else { return false };
        let has_ended = gpu.start.has_worked && gpu.start.has_ended();
        has_ended || is_still(judge, cluster, gpu, true) == Some(true)
    };
    let stopped = group.gpus.iter().filter(is_stopped).count();
    stopped > 0 && stopped as f64 >= judge.limits.hung_gpus_ratio * group.gpus.len() as f64
}
