//! Late ranks: the GPUs for which the others of their job wait in collectives, by the time that NCCL's inspector states
//! for each rank.
//!
//! A rank's time in a collective begins when it arrives, and all leave together. So in one communicator, operation and
//! message size the rank with the shortest time came last. One that waits in another communicator comes late because of
//! somebody else, and is not named.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use gaunt_cluster::{Cluster, DeviceEntry, Node, NodeId};
use gaunt_schema::{
    DeviceClass, SanitizedText, UnixMs,
    catalogue::{collective, gpu},
};

use super::{
    Thresholds,
    job_group::{JobGroup, JobGroups},
};

/// Seconds between two comparisons of a job: the inspector renews its averages every half a minute.
const COMPARED_SECONDS: f64 = 10.0;

/// Seconds for which the same ranks must be late, longer than one window: one may be chance.
const SETTLED_SECONDS: f64 = 45.0;

/// Seconds after which a window that does not change is a file that nobody writes any more.
const STALE_SECONDS: f64 = 300.0;

/// Ranks below which nobody is the last of many, and the part of a communicator that must be known.
const LEAST_RANKS: usize = 3;
const KNOWN_SHARE: f64 = 0.75;

/// Seconds by which the last rank must be shorter: launches differ by less.
const LEAST_GAP_SECONDS: f64 = 2e-5;

/// A node whose ranks save the others less than this share of what the last one does may be late by chance.
const RIVAL_SHARE: f64 = 0.5;

/// What the inspector states for a job that no scheduler started.
const NO_JOB: &str = "unknown";

/// How NVML writes the UUID of a GPU, and the label that holds it.
const UUID_PREFIX: &str = "GPU-";
const UUID: &str = "uuid";

/// The most collectives of a job that are compared.
const MAX_COLLECTIVES: usize = 1 << 18;

/// Operations in which no rank has another part than the others: the root of a broadcast may always be faster.
const SYMMETRIC: [&str; 4] = ["AllReduce", "AllGather", "ReduceScatter", "AlltoAll"];

/// The late ranks of all jobs, by their group keys.
#[derive(Debug, Default)]
pub(super) struct LateRankTable {
    jobs: HashMap<String, LateRankRecord>,
}

#[derive(Debug)]
struct LateRankRecord {
    compared: UnixMs,
    late: Option<LateRank>,
    /// Since when the same ranks are late, and when the inspector last renewed their time.
    since: UnixMs,
    renewed: UnixMs,
}

/// The ranks of one node for which the rest of their job waits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LateRank {
    pub(super) node: NodeId,
    /// The late GPUs by row, sorted.
    pub(super) gpus: Vec<u32>,
    /// The collective in which they are late by most.
    pub(super) communicator: SanitizedText,
    /// Its number in the communicator, if the inspector states it.
    pub(super) rank: Option<SanitizedText>,
    pub(super) operation: SanitizedText,
    pub(super) message_size: SanitizedText,
    /// The ranks that are compared in it.
    pub(super) ranks: usize,
    /// The shortest time, and what most others take.
    pub(super) own_seconds: f64,
    pub(super) other_seconds: f64,
}

/// One communicator, operation and message size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CollectiveKey {
    communicator: SanitizedText,
    operation: SanitizedText,
    message_size: SanitizedText,
    algorithm: SanitizedText,
    ranks: usize,
    /// Communicators within a node have the same names on every node.
    node: Option<NodeId>,
}

/// The time of one rank.
#[derive(Clone, Copy, Debug)]
struct RankTime {
    gpu: u32,
    node: NodeId,
    /// The collective, as a row.
    collective: u32,
    seconds: f64,
}

impl LateRankTable {
    /// Compares the collectives of every job that reports some.
    pub(super) fn observe_groups(
        &mut self,
        cluster: &Cluster,
        groups: &JobGroups,
        limits: &Thresholds,
    ) {
        let now = cluster.now();
        let has_collectives = |group: &&JobGroup| {
            let mut nodes = group.nodes.iter().filter_map(|id| cluster.node_by_id(*id));
            nodes.any(|node| !node.device_rows(DeviceClass::Collective).is_empty())
        };
        let mut seen: HashMap<String, LateRankRecord> = HashMap::new();
        for group in groups.all_groups().iter().filter(has_collectives) {
            let key = group.group_key();
            let before = self.jobs.remove(&key);
            let is_due = |record: &LateRankRecord| {
                now.duration_since(record.compared).as_secs_f64() >= COMPARED_SECONDS
                    || record.compared > now
            };
            let record = match before {
                Some(record) if !is_due(&record) => record,
                before => LateRankRecord::next(before, find_late(cluster, group, limits), now),
            };
            seen.insert(key, record);
        }
        self.jobs = seen;
    }

    /// Returns the late ranks of a job, if several windows named them.
    pub(super) fn of(&self, group: &JobGroup, now: UnixMs) -> Option<&LateRank> {
        let record = self.jobs.get(&group.group_key())?;
        record.late.as_ref().filter(|_| record.is_settled(now))
    }
}

impl LateRankRecord {
    fn next(before: Option<Self>, late: Option<LateRank>, now: UnixMs) -> Self {
        let first = Self { compared: now, late: None, since: now, renewed: now };
        let before = before.unwrap_or(first);
        match (&before.late, &late) {
            (Some(earlier), Some(present)) if earlier.is_same_rank(present) => {
                let is_renewed = earlier.own_seconds.total_cmp(&present.own_seconds).is_ne();
                let renewed = if is_renewed { now } else { before.renewed };
                Self { compared: now, late, since: before.since, renewed }
            }
            _ => Self { compared: now, late, since: now, renewed: now },
        }
    }

    /// Whether several windows named the same ranks, and the last one is not of a file that nobody writes any more.
    fn is_settled(&self, now: UnixMs) -> bool {
        let seconds_since = |at: UnixMs| now.duration_since(at).as_secs_f64();
        self.renewed > self.since
            && seconds_since(self.since) >= SETTLED_SECONDS
            && seconds_since(self.renewed) < STALE_SECONDS
    }
}

impl LateRank {
    /// Returns how much longer the others take.
    fn gap_seconds(&self) -> f64 {
        self.other_seconds - self.own_seconds
    }

    fn is_same_rank(&self, other: &Self) -> bool {
        self.node == other.node && self.gpus.iter().any(|row| other.gpus.contains(row))
    }
}

/// Finds the node whose ranks are late, if it is one node.
fn find_late(cluster: &Cluster, group: &JobGroup, limits: &Thresholds) -> Option<LateRank> {
    let collectives = collect_times(cluster, group);
    let mut waiting: BTreeSet<u32> = BTreeSet::new();
    // By late GPU: what it costs the others in all its collectives together, and the one in which it costs most.
    let mut gaps: BTreeMap<u32, (f64, LateRank)> = BTreeMap::new();
    for (key, times) in &collectives {
        let Some(usual) = usual_seconds(key, times) else { continue };
        let is_late = |time: &RankTime| {
            time.seconds < usual * limits.late_rank_ratio
                && usual - time.seconds >= LEAST_GAP_SECONDS
        };
        let (late, rest): (Vec<RankTime>, Vec<RankTime>) = times.iter().partition(|it| is_late(it));
        if late.is_empty() || late.len() * 2 > times.len() {
            continue;
        }
        waiting.extend(rest.iter().map(|time| time.gpu));
        for time in late {
            let entry = cluster.device_at(DeviceClass::Collective, time.collective);
            let rank = entry.and_then(|entry| entry.info_label(collective::INFO, "rank")).cloned();
            let found = key.to_late(time, rank, times.len(), usual);
            let (sum, most) = gaps.entry(time.gpu).or_insert_with(|| (0.0, found.clone()));
            *sum += found.gap_seconds();
            if found.gap_seconds() > most.gap_seconds() {
                *most = found;
            }
        }
    }
    gaps.retain(|gpu, _| !waiting.contains(gpu));
    let (_, (most, late)) = gaps.iter().max_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b))?;
    let near = || gaps.iter().filter(|(_, (sum, _))| *sum >= most * RIVAL_SHARE);
    if near().any(|(_, (_, other))| other.node != late.node) {
        return None;
    }
    Some(LateRank { gpus: near().map(|(gpu, _)| *gpu).collect(), ..late.clone() })
}

/// Returns what most ranks take in a collective: the upper quartile, since the late ones may be half of a small job.
fn usual_seconds(key: &CollectiveKey, times: &[RankTime]) -> Option<f64> {
    let known = times.len();
    // More than the communicator has are several communicators of one name.
    if known < LEAST_RANKS || known > key.ranks || (known as f64) < key.ranks as f64 * KNOWN_SHARE {
        return None;
    }
    let mut seconds: Vec<f64> = times.iter().map(|time| time.seconds).collect();
    let quarter = (known - 1) * 3 / 4;
    Some(*seconds.select_nth_unstable_by(quarter, f64::total_cmp).1)
}

/// Collects the times of a job's GPUs by collective.
fn collect_times(cluster: &Cluster, group: &JobGroup) -> BTreeMap<CollectiveKey, Vec<RankTime>> {
    let mut collectives: BTreeMap<CollectiveKey, Vec<RankTime>> = BTreeMap::new();
    let members: HashSet<u32> = group.gpus.iter().copied().collect();
    let mut counted = 0;
    for id in &group.nodes {
        let Some(node) = cluster.node_by_id(*id) else { continue };
        let gpus = NodeGpus::of(cluster, node, &members);
        let rows = node.device_rows(DeviceClass::Collective).iter();
        let entries =
            rows.filter_map(|row| Some((*row, cluster.device_at(DeviceClass::Collective, *row)?)));
        let entries: Vec<(u32, &DeviceEntry)> =
            entries.take(MAX_COLLECTIVES.saturating_sub(counted)).collect();
        counted += entries.len();
        let has_uuids = entries.iter().any(|(_, entry)| names_uuid(entry));
        for (row, entry) in entries {
            // A number is that of the process, which may see only its own GPU: the UUID tells which one it is.
            if has_uuids && !names_uuid(entry) {
                continue;
            }
            let gpu = entry.device.key.first().and_then(|name| gpus.find_gpu(name));
            let seconds = cluster.current_value(collective::DURATION, row);
            let seconds = seconds.filter(|seconds| *seconds > 0.0);
            let key = CollectiveKey::of(entry, *id, group);
            if let (Some(gpu), Some(seconds), Some(key)) = (gpu, seconds, key) {
                collectives.entry(key).or_default().push(RankTime {
                    gpu,
                    node: *id,
                    collective: row,
                    seconds,
                });
            }
        }
    }
    collectives
}

/// Whether a collective names its GPU by UUID.
fn names_uuid(entry: &DeviceEntry) -> bool {
    entry.device.key.first().is_some_and(|name| name.starts_with(UUID_PREFIX))
}

/// The GPUs of a node in one job, by number and by UUID.
struct NodeGpus<'a>(HashMap<&'a SanitizedText, u32>);

impl<'a> NodeGpus<'a> {
    fn of(cluster: &'a Cluster, node: &Node, members: &HashSet<u32>) -> Self {
        let rows = node.device_rows(DeviceClass::Gpu).iter().filter(|row| members.contains(row));
        let mut gpus = HashMap::new();
        for row in rows {
            let Some(entry) = cluster.device_at(DeviceClass::Gpu, *row) else { continue };
            let names =
                entry.device.key.first().into_iter().chain(entry.info_label(gpu::INFO, UUID));
            gpus.extend(names.map(|name| (name, *row)));
        }
        Self(gpus)
    }

    fn find_gpu(&self, name: &SanitizedText) -> Option<u32> {
        self.0.get(name).copied()
    }
}

impl CollectiveKey {
    /// Returns the collective of a device; none if it is of another job, or not the same for all of its ranks.
    fn of(entry: &DeviceEntry, node: NodeId, group: &JobGroup) -> Option<Self> {
        let label = |name| entry.info_label(collective::INFO, name);
        let operation = label("operation")?;
        let is_named = |known: &&&str| known.eq_ignore_ascii_case(operation.as_str());
        SYMMETRIC.iter().find(is_named)?;
        let job = label("job").filter(|job| job.as_str() != NO_JOB);
        if job.zip(group.job.as_ref()).is_some_and(|(stated, own)| stated != own) {
            return None;
        }
        let nodes: Option<u32> = label("nodes").and_then(|nodes| nodes.as_str().parse().ok());
        Some(Self {
            communicator: label("communicator")?.clone(),
            operation: operation.clone(),
            message_size: label("message_size")?.clone(),
            algorithm: label("algorithm").cloned().unwrap_or_default(),
            ranks: label("ranks")?.as_str().parse().ok()?,
            node: (nodes == Some(1)).then_some(node),
        })
    }

    fn to_late(
        &self,
        time: RankTime,
        rank: Option<SanitizedText>,
        ranks: usize,
        usual_seconds: f64,
    ) -> LateRank {
        LateRank {
            node: time.node,
            gpus: vec![time.gpu],
            communicator: self.communicator.clone(),
            rank,
            operation: self.operation.clone(),
            message_size: self.message_size.clone(),
            ranks,
            own_seconds: time.seconds,
            other_seconds: usual_seconds,
        }
    }
}
