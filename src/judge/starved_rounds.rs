//! Starved jobs whose samples are rare: who starves is judged by rounds of samples, and not by a single one.

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::Severity;

use super::{
    JudgeState,
    host_evidence::PressureSource,
    host_pressure::{HostPressure, only_pressed},
    idle_ranks::IdleRanks,
    job_group::JobGroup,
    starved_node::StarvedNode,
};

/// What rounds of rare samples say about a job that is slower.
pub(super) enum RareVerdict<'a> {
    /// Most nodes wait for IO.
    Storage(Vec<StarvedNode<'a>>),
    /// These nodes make the others wait.
    Nodes(Vec<StarvedNode<'a>>),
}

/// Returns the node of a job that an open finding blames.
fn blamed_node(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<NodeId> {
    judge.tracker.iter_open().find_map(|finding| {
        let node = cluster.node_by_name(finding.entity.node.as_ref()?)?.0;
        let is_urgent = finding.severity > Severity::Info;
        (is_urgent && group.has_node(node)).then_some(node)
    })
}

/// Finds the only pressed host of a slower job, if its GPUs are less busy than the others.
fn find_only_pressed<'a>(
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    group: &'a JobGroup,
    of_node: impl Fn(&NodeId, Option<&[u32]>) -> Option<StarvedNode<'a>>,
) -> Option<RareVerdict<'a>> {
    let only = only_pressed(judge, cluster, group)?;
    let starved = of_node(&only, None).filter(|starved| starved.is_below_others(judge))?;
    Some(RareVerdict::Nodes(vec![starved]))
}

/// Finds the nodes whose hosts plainly hold them up while the rest of the job, which need not wait for them, goes on.
pub(super) fn find_held_up<'a>(
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    group: &'a JobGroup,
) -> Option<RareVerdict<'a>> {
    let nodes = group.nodes.iter();
    let starved = nodes.filter_map(|id| {
        StarvedNode::of_idle_rows(judge, cluster, group, *id, None, false)
            .filter(|starved| starved.is_plain(judge, cluster))
    });
    let starved: Vec<StarvedNode<'a>> = starved.collect();
    (!starved.is_empty()).then_some(RareVerdict::Nodes(starved))
}

/// Finds who starves in a job whose samples are too rare to be taken one by one.
pub(super) fn detect_from_rounds<'a>(
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    group: &'a JobGroup,
    idle: &IdleRanks,
) -> Option<RareVerdict<'a>> {
    let others_wait = idle.others_wait() && idle.is_single();
    let of_node = |id: &NodeId, idle_rows: Option<&[u32]>| {
        StarvedNode::of_idle_rows(judge, cluster, group, *id, idle_rows, others_wait)
    };
    if !idle.is_empty() {
        let nodes = group.nodes.iter().filter(|id| !idle.on_node(**id).is_empty());
        let starved = nodes.filter_map(|id| of_node(id, Some(idle.on_node(*id))));
        return Some(RareVerdict::Nodes(starved.collect()));
    }
    if !idle.is_whole_job {
        return find_only_pressed(judge, cluster, group, of_node);
    }
    let evidence = |id: &NodeId| judge.hosts.get(*id).map(|host| host.evidence);
    let waits =
        |id: &&NodeId| evidence(id).is_some_and(|evidence| evidence.is_likely(PressureSource::Io));
    let waiting: Vec<&NodeId> = group.nodes.iter().filter(waits).collect();
    // Nodes without a label may belong to several jobs.
    let blamed = blamed_node(judge, cluster, group);
    if waiting.len() * 2 > group.nodes.len() {
        let starved = waiting.into_iter().filter_map(|id| of_node(id, None));
        return Some(RareVerdict::Storage(starved.collect()));
    }
    let works = |id: &NodeId| {
        let busy = of_node(id, None).map(|starved| starved.utilization);
        busy.is_some_and(|busy| busy >= judge.limits.standstill_ratio)
    };
    let is_pressed = |id: &&NodeId| {
        let host = judge.hosts.get(**id);
        host.is_some_and(|host| HostPressure::of(judge, cluster, host).is_clear(host)) && works(id)
    };
    let mut pressed: Vec<&NodeId> = group.nodes.iter().filter(is_pressed).collect();
    if let Some(blamed) = blamed {
        pressed.retain(|id| **id == blamed);
    }
    if group.job.is_none() && pressed.len() != 1 {
        return None;
    }
    let is_few = pressed.len() == 1 || pressed.len() * 4 <= group.nodes.len();
    is_few.then(|| {
        RareVerdict::Nodes(pressed.into_iter().filter_map(|id| of_node(id, None)).collect())
    })
}
