//! Explains a finding: compares the signals of the blamed device, checks other causes, and lists missing telemetry.

use std::collections::{BTreeSet, HashSet};

use gaunt_schema::{
    DeviceClass, EntityKind, EvidenceContext, Finding, FindingKind, SanitizedText,
    catalogue::gpu_parts,
};

use super::{
    JudgeState, fabric_congestion, job_group::JobGroup, peer_clocks::model_of, robust_stats::median,
};
use gaunt_cluster::{Cluster, NodeId};

mod compared_signals;
mod missing_telemetry;
mod ruled_out;

/// The maximum of peers to compare with: of a larger job every n-th, which moves no quartile.
const MAX_PEERS: usize = 512;

/// The devices that a finding is about, and their peers.
struct ExplanationScope<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    group: Option<&'a JobGroup>,
    /// The rows of these GPUs and of their peers.
    gpus: Vec<u32>,
    peers: Vec<u32>,
    nodes: Vec<NodeId>,
    peer_nodes: Vec<NodeId>,
    ports: Vec<u32>,
    peer_ports: Vec<u32>,
}

/// Explains a finding from the signals around the blamed device; also returns what is unknown.
pub(super) fn explain_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    finding: &Finding,
) -> (EvidenceContext, Vec<String>) {
    let nothing = EvidenceContext { at: cluster.now(), ..EvidenceContext::default() };
    match finding.kind {
        // Nothing further is known of a target that is not read.
        FindingKind::TargetDown => return (nothing, missing_telemetry::missing_while_unread()),
        FindingKind::FindingsOverLimit
        | FindingKind::AggregatorLate
        | FindingKind::JudgementFailed
        | FindingKind::CertificateExpiring => {
            return (nothing, Vec::new());
        }
        _ => {}
    }
    let scope = ExplanationScope::of(judge, cluster, finding);
    let context = EvidenceContext {
        peers: scope.render_peers(finding),
        signals: scope.collect_signals(finding),
        alternatives: scope.check_alternatives(finding.kind),
        ..nothing
    };
    (context, scope.missing_telemetry(finding.kind))
}

/// Returns the names of the telemetry that a job lacks and that would show the cause of its slowdown.
pub(super) fn deciding_telemetry(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Vec<&'static str> {
    ExplanationScope::of_group(judge, cluster, group).deciding_telemetry()
}

impl<'a> ExplanationScope<'a> {
    /// A whole job, which has no peers; of a larger job every n-th GPU.
    fn of_group(judge: &'a JudgeState, cluster: &'a Cluster, group: &'a JobGroup) -> Self {
        let step = group.gpus.len().div_ceil(MAX_PEERS).max(1);
        let gpus: Vec<u32> = group.gpus.iter().step_by(step).copied().collect();
        let nodes = gpus
            .iter()
            .filter_map(|row| Some(cluster.device_at(DeviceClass::Gpu, *row)?.node))
            .collect::<BTreeSet<NodeId>>();
        let members = nodes.iter().filter_map(|id| cluster.node_by_id(*id));
        let ports = members.flat_map(|node| node.device_rows(DeviceClass::Port)).copied().collect();
        Self {
            judge,
            cluster,
            group: Some(group),
            gpus,
            peers: Vec::new(),
            nodes: nodes.into_iter().collect(),
            peer_nodes: Vec::new(),
            ports,
            peer_ports: Vec::new(),
        }
    }

    fn of(judge: &'a JudgeState, cluster: &'a Cluster, finding: &Finding) -> Self {
        let entity = &finding.entity;
        // A job without a label is named by its first node.
        if entity.kind == EntityKind::Job
            && entity.job.is_none()
            && let Some((_, node)) = entity.node.as_ref().and_then(|it| cluster.node_by_name(it))
            && let Some(group) =
                judge.job_groups.groups_on(node.device_rows(DeviceClass::Gpu)).first()
        {
            return Self::of_group(judge, cluster, group);
        }
        let node = entity.node.as_ref().and_then(|name| cluster.node_by_name(name));
        let job = entity.job.as_ref().and_then(|job| cluster.gpus_by_job().get(job));
        let of_node = node.map(|(_, node)| node.device_rows(DeviceClass::Gpu)).unwrap_or_default();
        let has_key = |class: DeviceClass, row: u32, at: usize, key: Option<&SanitizedText>| {
            let entry = cluster.device_at(class, row);
            key.is_none() || entry.and_then(|entry| entry.device.key.get(at)) == key
        };
        let blamed_rows =
            of_node.iter().filter(|row| has_key(DeviceClass::Gpu, **row, 0, entity.gpu.as_ref()));
        let mut gpus: Vec<u32> = blamed_rows.copied().collect();
        if gpus.is_empty() {
            gpus = job.cloned().unwrap_or_default();
        }
        let group = gpus.first().and_then(|row| judge.job_groups.of(*row));
        // Whole jobs, leaves and rails have no peers.
        let all = match (group, node) {
            (Some(group), Some(_)) => group.gpus.as_slice(),
            (None, Some(_)) => of_node,
            _ => &[],
        };
        let blamed: HashSet<u32> = gpus.iter().copied().collect();
        let others: Vec<u32> = all.iter().filter(|row| !blamed.contains(row)).copied().collect();
        let step = others.len().div_ceil(MAX_PEERS).max(1);
        let peers: Vec<u32> = others.into_iter().step_by(step).collect();
        let nodes_of = |rows: &[u32]| -> BTreeSet<NodeId> {
            rows.iter()
                .filter_map(|row| Some(cluster.device_at(DeviceClass::Gpu, *row)?.node))
                .collect()
        };
        let nodes = match node {
            Some((id, _)) => BTreeSet::from([id]),
            None => nodes_of(&gpus),
        };
        let peer_nodes = nodes_of(&peers).into_iter().filter(|id| !nodes.contains(id)).collect();
        let ports_of =
            |id: NodeId| cluster.node_by_id(id).map(|node| node.device_rows(DeviceClass::Port));
        let ports = nodes.iter().filter_map(|id| ports_of(*id)).flatten();
        let (ports, siblings): (Vec<u32>, Vec<u32>) = ports.partition(|row| {
            has_key(DeviceClass::Port, **row, 0, entity.device.as_ref())
                && has_key(DeviceClass::Port, **row, 1, entity.port.as_ref())
        });
        // A leaf or a rail is described by its ports.
        let ports = match entity.node {
            None if ports.is_empty() => {
                fabric_congestion::ports_of_entity(judge, cluster, entity, MAX_PEERS)
            }
            _ => ports,
        };
        Self {
            judge,
            cluster,
            group,
            gpus,
            peers,
            nodes: nodes.into_iter().collect(),
            peer_nodes,
            ports,
            peer_ports: siblings,
        }
    }

    /// Describes the peers that it is compared with.
    fn render_peers(&self, finding: &Finding) -> String {
        let count = |number: usize, noun: &str| super::pending_finding::format_count(number, noun);
        if finding.entity.port.is_some() {
            return match self.peer_ports.len() {
                0 => String::new(),
                ports => format!("{} of its node", count(ports, "other port")),
            };
        }
        if self.peers.is_empty() {
            return String::new();
        }
        let of = match self.group.map(|group| &group.job) {
            Some(Some(job)) => format!("job {job}"),
            Some(None) => "a job inferred from correlated activity".to_owned(),
            None => "its node".to_owned(),
        };
        let model = self.gpus.first().map(|row| model_of(self.cluster, *row)).unwrap_or_default();
        let roles = match self.group.map_or(0, |group| group.peers.count_roles(model)) {
            0 | 1 => String::new(),
            roles => format!(", clocks compared within {roles} roles inferred from baseline power"),
        };
        format!("{} of {of}{roles}", count(self.peers.len(), "other GPU"))
    }

    /// Returns the NVLink errors of a GPU per second.
    fn nvlink_error_rate(&self, row: u32) -> Option<f64> {
        let entry = self.cluster.device_at(DeviceClass::Gpu, row)?;
        let links =
            self.cluster.node_by_id(entry.node)?.device_rows(DeviceClass::Nvlink).iter().filter(
                |link| {
                    let link = self.cluster.device_at(DeviceClass::Nvlink, **link);
                    link.is_some_and(|link| link.device.key.first() == entry.device.key.first())
                },
            );
        let counters =
            [gpu_parts::NVLINK_REPLAY, gpu_parts::NVLINK_RECOVERY, gpu_parts::NVLINK_CRC];
        let rates = links
            .flat_map(|link| counters.map(|counter| self.cluster.current_rate(counter, *link)))
            .flatten();
        rates.reduce(|a, b| a + b)
    }

    /// Returns the median of a value over some rows.
    fn median_of_rows(rows: &[u32], of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
        median(rows.iter().filter_map(|row| of(*row)))
    }
}
