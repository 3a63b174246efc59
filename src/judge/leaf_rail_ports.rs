//! Ports of a rail below a leaf, and the finding that they are congested.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_schema::{Entity, Finding, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    job_group::JobGroup,
    link_averages::{ALIKE_LOADS, LinkAverages, current_value},
    loaded_ports::LoadedPort,
    pending_finding::{MAX_VICTIMS, PendingFinding},
    robust_stats::median,
    standing_fault::ran_as_usual_beside,
};
use gaunt_cluster::{Cluster, NodeId};

/// Ports of one rail below one leaf.
pub(super) struct LeafRailPorts<'a> {
    pub(super) leaf: Option<&'a SanitizedText>,
    pub(super) rail: &'a SanitizedText,
    pub(super) members: Vec<&'a LoadedPort<'a>>,
}

impl LeafRailPorts<'_> {
    pub(super) fn congested_ports(&self) -> Vec<&LoadedPort<'_>> {
        self.members.iter().filter(|port| port.congested.is_some()).copied().collect()
    }

    pub(super) fn is_mostly_congested(&self, judge: &JudgeState) -> bool {
        let bad = self.congested_ports().len();
        bad as f64 >= judge.limits.sharing_members
            && bad as f64 >= judge.limits.members_bad_ratio * self.members.len() as f64
    }

    /// Whether the rail explains its congestion, and not the leaf: no port of the rail below another leaf carries as much
    /// without congestion. Where the leaf is known for whole nodes only, most of its other rails are not congested either.
    pub(super) fn is_whole_rail(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        all: &[LeafRailPorts<'_>],
    ) -> bool {
        let is_of_nodes = self.members.iter().all(|port| port.is_leaf_of_node);
        let below: Vec<_> = all.iter().filter(|other| other.leaf == self.leaf).collect();
        let congested = below.iter().filter(|other| other.is_mostly_congested(judge)).count();
        if is_of_nodes && congested * 2 > below.len() {
            return false;
        }
        let load = |port: &&LoadedPort<'_>| current_value(port.link.utilization, cluster);
        let own = median(self.members.iter().filter_map(load)).unwrap_or_default();
        let elsewhere =
            all.iter().filter(|other| other.rail == self.rail && other.leaf != self.leaf);
        let elsewhere = elsewhere.flat_map(|other| &other.members);
        let (bad, calm): (Vec<&LoadedPort<'_>>, Vec<_>) =
            elsewhere.copied().partition(|port| port.congested.is_some());
        let carries =
            |port: &LoadedPort<'_>| load(&port).is_some_and(|load| load * ALIKE_LOADS >= own);
        // A single port below another leaf is too few to blame that leaf, and enough to clear this one.
        !calm.into_iter().any(carries) && (is_of_nodes || !bad.is_empty())
    }
}

/// Groups ports by leaf and rail.
pub(super) fn group_by_leaf<'a>(ports: &'a [LoadedPort<'a>]) -> Vec<LeafRailPorts<'a>> {
    group_ports(ports, |port| port.leaf)
}

/// Groups ports by rail and by what this names as their leaf.
pub(super) fn group_ports<'a>(
    ports: &'a [LoadedPort<'a>],
    leaf_of: impl Fn(&LoadedPort<'a>) -> Option<&'a SanitizedText>,
) -> Vec<LeafRailPorts<'a>> {
    let mut leaf_rails: BTreeMap<(Option<&SanitizedText>, &SanitizedText), Vec<&LoadedPort<'a>>> =
        BTreeMap::new();
    for port in ports {
        leaf_rails.entry((leaf_of(port), &port.rail)).or_default().push(port);
    }
    let leaf_rail = |((leaf, rail), members)| LeafRailPorts { leaf, rail, members };
    leaf_rails.into_iter().map(leaf_rail).collect()
}

/// Whether only the other ports of their nodes show that these ports are congested.
fn are_standing(ports: &[&LoadedPort<'_>]) -> bool {
    ports.iter().all(|port| port.congested.is_some_and(|congested| congested.is_standing))
}

/// Says what shows that these ports are congested, if that is the other ports of their nodes.
pub(super) fn render_standing(ports: &[&LoadedPort<'_>]) -> &'static str {
    if are_standing(ports) {
        ", from before the first look: they wait to send far longer than the ports beside them, which carry as much"
    } else {
        ""
    }
}

/// Whether they have been congested since the first look, and each of these jobs ran as usual beside that: it is no reason
/// for which they are slower now.
fn stands_beside_jobs(
    judge: &JudgeState,
    kind: FindingKind,
    entity: &Entity,
    groups: &[&JobGroup],
) -> bool {
    let Some(open) = judge.tracker.open_one(&Finding::build_id(kind, entity)) else { return false };
    let since_first = judge.first_step.map(|first| open.life.opened.duration_since(first));
    since_first.is_some_and(|since| since.as_secs_f64() <= judge.limits.unexplained_seconds)
        && groups.iter().all(|group| ran_as_usual_beside(judge, open, group))
}

/// Returns the finding that these ports are congested, of which the least number that tells it is given.
pub(super) fn congestion_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    kind: FindingKind,
    entity: Entity,
    bad: &[&LoadedPort<'_>],
    (least, of): (f64, String),
) -> PendingFinding {
    let limits = &judge.limits;
    let nodes: BTreeSet<NodeId> = bad.iter().map(|port| port.node).collect();
    let groups = judge.job_groups.slowed_on_nodes(cluster, &nodes, limits);
    // Pace varies: what is known to be more than that is evidence, what may be is worth a warning.
    let is_likely = groups.iter().any(|group| judge.gangs.is_likely_slower(group, limits));
    let median_of = |of: fn(&LinkAverages) -> super::moving_average::MovingAverage| {
        median(bad.iter().filter_map(|port| current_value(of(port.link), cluster)))
    };
    let paused = median_of(|link| link.pause_received);
    let marked = median(bad.iter().filter_map(|port| port.link.marked_times(cluster, limits)))
        .filter(|times| *times >= limits.marked_times);
    // The absolute limit is shown only where it is exceeded.
    let certain_marks = Some(limits.congested_ratio)
        .filter(|least| median_of(|link| link.ecn_marked).is_some_and(|share| share >= *least));
    let notified = median(bad.iter().filter_map(|port| port.link.notified_times(cluster, limits)));
    let far = bad
        .iter()
        .filter_map(|port| judge.switches.of(port.row)?.queue_over_limit(cluster, limits));
    let far = far.reduce(f64::max);
    // Marks, CNPs and pauses show one queue: only a switch and a slower job are other evidence. Without them a full queue
    // costs nobody anything.
    let kinds = 1 + usize::from(far.is_some()) + usize::from(is_likely);
    let is_certain =
        bad.iter().any(|port| port.congested.is_some_and(|congested| congested.is_certain));
    // What it costs is not known where it was so before: no more than a warning.
    let hard = !groups.is_empty() || (is_certain && kinds > 1) || are_standing(bad);
    let slowed = groups.iter().filter_map(|group| group.slowdown_ratio()).reduce(f64::max);
    let lost = groups.iter().map(|group| group.lost_gpus()).sum();
    let victims = groups
        .iter()
        .flat_map(|group| group.list_victims(cluster, None))
        .take(MAX_VICTIMS)
        .collect();
    let stands = stands_beside_jobs(judge, kind, &entity, &groups);
    let mut suspicion = PendingFinding::of(kind, entity, kinds, hard);
    if stands {
        suspicion.cap_severity();
    }
    let suspicion = suspicion.with_slowed_jobs(groups.iter().map(|group| group.group_key()));
    let suspicion = suspicion.with_hold_seconds(limits.hotspot_seconds).with_cost(lost, victims);
    suspicion.with_possible_evidence([
        EvidenceRow::CongestedPorts
            .to_evidence(Some(bad.len() as f64), Some(least.ceil()))
            .with_note(format!("limit: {of}")),
        EvidenceRow::EcnMarked.to_evidence(median_of(|link| link.ecn_marked), certain_marks),
        EvidenceRow::MarkedTimes.to_evidence(marked, Some(limits.marked_times)),
        EvidenceRow::PauseReceived.to_evidence(paused, Some(limits.congested_ratio)),
        EvidenceRow::CnpsReceived.to_evidence(notified, Some(limits.counter_times)),
        EvidenceRow::SwitchQueue
            .to_evidence(far, Some(1.0))
            .with_note("limit: the settings for each"),
        EvidenceRow::JobSlowdown
            .to_evidence(slowed, Some(limits.least_slowdown_ratio))
            .with_threshold("least_slowdown_ratio"),
    ])
}
