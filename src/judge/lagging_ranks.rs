//! Lagging ranks: the ranks for which a hung job waits, as NCCL's RAS states them, and the nodes to ask for them.
//!
//! gaunt-node reads the status of a job only on request. A request is made while a job seems to hang, to one node of the
//! job, until that node has compared two states. The GPU of the lagging rank is then the culprit of the hang, whose id
//! stays that of the job: an acknowledgement remains valid when the answer comes.

use std::{cmp::Reverse, collections::BTreeSet};

use gaunt_cluster::{Cluster, Node, NodeId, host_of};
use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, Finding, FindingKind, SanitizedText, catalogue::nccl_ras,
    ras_status::RasLaggingReason,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_count},
};

/// Seconds after which two states of a job that still hangs are compared again.
const COMPARED_AGAIN_SECONDS: f64 = 60.0;

/// The most nodes that are asked at a time, one of each hung job.
const MAX_ASKED: usize = 64;

/// A rank for which the others of its communicator wait.
#[derive(Debug, PartialEq)]
struct LaggingRank {
    communicator: SanitizedText,
    rank: SanitizedText,
    reason: RasLaggingReason,
    /// The address by which RAS names its node, its process, and its GPU as NVML counts.
    host: SanitizedText,
    pid: SanitizedText,
    nvml_gpu: SanitizedText,
    /// Its GPU, if the address or the process is that of a node of the job.
    gpu: Option<Entity>,
    operation: SanitizedText,
    launched: Option<f64>,
    expected: Option<f64>,
    waiting: usize,
}

/// Names the lagging ranks in the findings about hung jobs.
pub(super) fn add_lagging_rank_evidence(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for pending in &mut outcome.suspicions {
        if let Some(group) = hung_group(judge, &pending.finding) {
            let ranks = collect_ranks(cluster, group);
            add_ranks(&ranks, pending);
            if let Some(culprit) = find_culprit(&ranks) {
                let job = pending.finding.entity.job.take();
                pending.finding.entity = Entity { job, ..culprit };
            }
        }
    }
}

/// Returns the nodes that are to read the status of a job that seems to hang, one node a job.
pub(super) fn nodes_to_ask(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &DetectorOutcome,
) -> Vec<NodeId> {
    let pending = outcome.suspicions.iter();
    let groups = pending.filter_map(|pending| hung_group(judge, &pending.finding));
    let nodes: BTreeSet<NodeId> =
        groups.filter_map(|group| node_to_ask(cluster, group)).take(MAX_ASKED).collect();
    nodes.into_iter().collect()
}

/// Returns the job group that a finding says hangs.
fn hung_group<'a>(judge: &'a JudgeState, finding: &Finding) -> Option<&'a JobGroup> {
    if finding.kind != FindingKind::CollectiveHang {
        return None;
    }
    let hang_id = |group: &JobGroup| Finding::build_id(finding.kind, &group.to_entity());
    judge.job_groups.all_groups().iter().find(|group| hang_id(group) == finding.id)
}

/// Returns the first node of a job on which RAS answers, unless two states were compared a short time ago.
fn node_to_ask(cluster: &Cluster, group: &JobGroup) -> Option<NodeId> {
    let value = |node: &Node, metric| cluster.current_value(metric, node.own_row()?);
    let nodes = || group.nodes.iter().filter_map(|id| Some((*id, cluster.node_by_id(*id)?)));
    let is_compared = |node: &Node| {
        let skew = node.clock_skew_ms.unwrap_or_default() as f64 / 1e3;
        let age = |at: f64| cluster.now().to_seconds() + skew - at;
        let compared = value(node, nccl_ras::COMPARED_TIME);
        compared.is_some_and(|at| age(at) < COMPARED_AGAIN_SECONDS)
    };
    if nodes().any(|(_, node)| is_compared(node)) {
        return None;
    }
    let mut connected = nodes().filter(|(_, node)| value(node, nccl_ras::CONNECTED) == Some(1.0));
    connected.next().map(|(id, _)| id)
}

/// Collects the lagging ranks that the nodes of a job report, the most certain first.
fn collect_ranks(cluster: &Cluster, group: &JobGroup) -> Vec<LaggingRank> {
    let nodes = group.nodes.iter().filter_map(|id| cluster.node_by_id(*id));
    let rows = nodes.flat_map(|node| node.device_rows(DeviceClass::Rank));
    let ranks = rows.filter_map(|row| LaggingRank::of(cluster, group, *row));
    // Another job may run on the same node.
    let is_of_job =
        |rank: &LaggingRank| rank.gpu.as_ref().is_none_or(|gpu| is_gpu_of_job(cluster, group, gpu));
    let mut ranks: Vec<LaggingRank> = ranks.filter(is_of_job).collect();
    ranks.sort_by_key(|rank| (rank.reason, Reverse(rank.waiting)));
    ranks
}

fn is_gpu_of_job(cluster: &Cluster, group: &JobGroup, gpu: &Entity) -> bool {
    let rows = group.gpus.iter().filter_map(|row| cluster.device_at(DeviceClass::Gpu, *row));
    let mut entities = rows.filter_map(|entry| {
        Some(Entity::new_gpu(&cluster.node_by_id(entry.node)?.name, entry.device.key.first()?))
    });
    entities.any(|entity| entity == *gpu)
}

impl LaggingRank {
    fn of(cluster: &Cluster, group: &JobGroup, row: u32) -> Option<Self> {
        let entry = cluster.device_at(DeviceClass::Rank, row)?;
        let waiting = cluster.current_value(nccl_ras::WAITING, row)? as usize;
        let label = |name| entry.info_label(nccl_ras::RANK_INFO, name).cloned();
        let reason = label("reason")?;
        let [communicator, rank] = &*entry.device.key else { return None };
        let (host, pid, nvml_gpu) = (label("host")?, label("pid")?, label("gpu")?);
        let reasons =
            [RasLaggingReason::Dead, RasLaggingReason::Unresponsive, RasLaggingReason::Behind];
        let node = find_node(cluster, group, &host)
            .or_else(|| find_node_of_process(cluster, group, &nvml_gpu, &pid));
        Some(Self {
            communicator: communicator.clone(),
            rank: rank.clone(),
            reason: reasons.into_iter().find(|known| known.as_str() == reason.as_str())?,
            gpu: node.map(|node| Entity::new_gpu(&node.name, &nvml_gpu)),
            host,
            pid,
            nvml_gpu,
            operation: label("operation").unwrap_or_default(),
            launched: cluster.current_value(nccl_ras::LAUNCHED, row),
            expected: cluster.current_value(nccl_ras::EXPECTED, row),
            waiting,
        })
    }

    /// Returns its GPU: `gpu007 · GPU 3`, or as RAS names it where no node has the address.
    fn title(&self) -> String {
        match &self.gpu {
            Some(gpu) => gpu.to_string(),
            None => format!("GPU {} of {}", self.nvml_gpu, self.host),
        }
    }

    fn render_summary(&self, others: usize) -> String {
        let Self { rank, communicator, operation, .. } = self;
        let state = match (self.reason, self.launched.zip(self.expected)) {
            (RasLaggingReason::Dead, _) => "is dead".to_owned(),
            (RasLaggingReason::Unresponsive, _) => "does not respond".to_owned(),
            (RasLaggingReason::Behind, Some((own, most))) => {
                format!("launched {own} of {most} {operation}")
            }
            (RasLaggingReason::Behind, None) => "is behind".to_owned(),
        };
        let waiting = format_count(self.waiting, "rank");
        let others = match others {
            0 => String::new(),
            others => format!(", and {others} more lag"),
        };
        let title = self.title();
        format!(
            "rank {rank} of communicator {communicator} on {title} {state}, {waiting} waiting{others}"
        )
    }

    fn to_evidence(&self, unreached: usize) -> EvidenceItem {
        let Self { rank, communicator, host, pid, operation, .. } = self;
        let item = match self.reason {
            RasLaggingReason::Behind => {
                EvidenceRow::LaggingRank.to_evidence(self.launched, self.expected)
            }
            RasLaggingReason::Dead | RasLaggingReason::Unresponsive => {
                EvidenceRow::UnreachedRanks.to_evidence(Some(unreached as f64), None)
            }
        };
        let (title, waiting) = (self.title(), format_count(self.waiting, "rank"));
        let operation = if operation.is_empty() { String::new() } else { format!("{operation}, ") };
        item.with_note(format!(
            "{operation}rank {rank} of communicator {communicator}: {title}, host {host}, process {pid}; {waiting} waiting; limit: the rank that is furthest"
        ))
    }
}

/// Returns the node of a job that has an address: as it states itself, as it is scraped, or as its name.
fn find_node<'a>(cluster: &'a Cluster, group: &JobGroup, host: &SanitizedText) -> Option<&'a Node> {
    // A link-local address names the interface as well.
    let host = host.split('%').next().unwrap_or_default();
    let has_address = |node: &&Node| {
        let own = node.own_row().and_then(|row| cluster.device_at(DeviceClass::Node, row));
        let stated = own.and_then(|entry| entry.info_label(nccl_ras::INFO, "addresses"));
        let mut sources =
            node.sources.iter().filter_map(|source| cluster.target_by_id(source.target));
        stated.is_some_and(|stated| stated.split(' ').any(|address| address == host))
            || node.name.as_str() == host
            || sources.any(|tracked| host_of(&tracked.target.address).as_str() == host)
    };
    group.nodes.iter().filter_map(|id| cluster.node_by_id(*id)).find(has_address)
}

/// Returns the only node of a job that has a process of this number on this GPU.
fn find_node_of_process<'a>(
    cluster: &'a Cluster,
    group: &JobGroup,
    gpu: &SanitizedText,
    pid: &SanitizedText,
) -> Option<&'a Node> {
    let has_process = |node: &&Node| {
        let rows = node.device_rows(DeviceClass::Process).iter();
        let mut entries = rows.filter_map(|row| cluster.device_at(DeviceClass::Process, *row));
        entries.any(|entry| matches!(&*entry.device.key, [own_gpu, own_pid] if own_gpu == gpu && own_pid == pid))
    };
    let mut nodes = group.nodes.iter().filter_map(|id| cluster.node_by_id(*id)).filter(has_process);
    nodes.next().filter(|_| nodes.next().is_none())
}

/// Returns the GPU of the most certain lagging ranks, or their node if they are several GPUs of one. Ranks of several nodes,
/// and one whose GPU is not known, leave the hang to the job.
fn find_culprit(ranks: &[LaggingRank]) -> Option<Entity> {
    let first = ranks.first()?;
    let culprits = ranks.iter().filter(|rank| rank.reason == first.reason);
    let gpus: BTreeSet<Option<&Entity>> = culprits.map(|rank| rank.gpu.as_ref()).collect();
    let gpu = first.gpu.as_ref()?;
    if gpus.len() == 1 {
        return Some(gpu.clone());
    }
    let node = gpu.node.as_ref()?;
    let mut gpus = gpus.into_iter();
    gpus.all(|other| other.and_then(|other| other.node.as_ref()) == Some(node))
        .then(|| Entity::new_node(node))
}

/// Adds the first lagging rank to a finding. It confirms that GPUs that busy-wait do so for a rank that does not come; that
/// idle GPUs do is not certain.
fn add_ranks(ranks: &[LaggingRank], pending: &mut PendingFinding) {
    let Some(first) = ranks.first() else { return };
    let summary = pending.finding.summary.trim_end_matches('.');
    pending.finding.summary = format!("{summary}; {}.", first.render_summary(ranks.len() - 1));
    pending.finding.next = format!(
        "Inspect process {} of {} (py-spy dump --pid), which the other ranks wait for; then restart the job.",
        first.pid,
        first.title()
    );
    let unreached = ranks.iter().filter(|rank| rank.reason != RasLaggingReason::Behind).count();
    let evidence = first.to_evidence(unreached);
    let mut found = pending.finding.evidence.iter();
    if found.any(|item| EvidenceRow::BusyWaitingGpus.is_row_of(item)) {
        pending.add_confirmation(evidence);
    } else {
        pending.finding.evidence.push(evidence);
    }
}
