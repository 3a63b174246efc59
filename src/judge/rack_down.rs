//! A rack that is cut off, or gaunt itself: one finding instead of one for each of its nodes.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_schema::{Entity, EntityKind, Finding, FindingKind, SanitizedText, Severity, UnixMs};

use super::{
    JudgeState,
    finding_lifecycle::{DetectorOutcome, FindingTracker},
    pending_finding::{CERTAIN, format_count, format_time_of_day},
};
use gaunt_cluster::{Cluster, Node};

/// The least nodes of a rack that is reported as one: two nodes may fail together by chance.
const LEAST_NODES: usize = 3;

/// The least seconds for which a node waits for the other nodes of its rack that fail too and are not reported yet: their
/// next attempts decide.
const WAIT_SECONDS: f64 = 30.0;

/// The share of all nodes from which gaunt itself is cut off: the others are on its side.
const CUT_OFF_SHARE: f64 = 0.9;

/// The most nodes whose evidence the finding of a rack has.
const MAX_EVIDENCE: usize = 8;

/// A finding about a node, and whether no target of the node answers.
pub(super) struct NodeDown {
    pub(super) finding: Finding,
    pub(super) is_silent: bool,
    /// Whether it is up all the same: its job works as usual.
    pub(super) is_up: bool,
}

/// Adds the findings of nodes; those of a rack none of whose nodes answers are one. It stays one until half of its nodes
/// answer again.
pub(super) fn add_nodes_or_racks(
    judge: &JudgeState,
    cluster: &Cluster,
    nodes: Vec<NodeDown>,
    outcome: &mut DetectorOutcome,
) {
    let mut silent: BTreeMap<SanitizedText, Finding> = BTreeMap::new();
    for NodeDown { finding, is_silent, .. } in nodes {
        if !is_silent && is_of_outage(judge, cluster, &finding) {
            continue;
        }
        match finding.entity.node.clone().filter(|_| is_silent) {
            Some(name) => _ = silent.insert(name, finding),
            None => outcome.findings.push(finding),
        }
    }
    if report_cut_off(judge, cluster, &mut silent, outcome) {
        return;
    }
    for (rack, members) in cluster.topology().nodes_by_rack() {
        if silent.is_empty() {
            return;
        }
        if members.len() < LEAST_NODES {
            continue;
        }
        let members: Vec<&Node> = members.iter().filter_map(|id| cluster.node_by_id(*id)).collect();
        let down = members.iter().filter(|node| silent.contains_key(&node.name)).count();
        let entity = Entity::new_rack(rack);
        let id = Finding::build_id(FindingKind::TargetDown, &entity);
        let is_open = judge.tracker.open_one(&id).is_some();
        if down == members.len() || is_open && down * 2 > members.len() {
            let names = members.iter().map(|node| &node.name);
            let found: Vec<Finding> = names.filter_map(|name| silent.remove(name)).collect();
            for node in &found {
                outcome.supersede_open(&judge.tracker, &node.id, &format!("explained by {id}"));
            }
            outcome.findings.push(rack_finding(entity, &found, members.len()));
            continue;
        }
        // While the others are undecided it may be the rack.
        let undecided = members.iter().any(|node| is_undecided(judge, cluster, node));
        if undecided && !is_open {
            let of_rack: BTreeSet<&SanitizedText> = members.iter().map(|node| &node.name).collect();
            silent.retain(|name, found| {
                !of_rack.contains(name) || keep_while_undecided(judge, cluster, found)
            });
        }
    }
    outcome.findings.extend(silent.into_values());
}

/// Adds one finding that gaunt itself is cut off if no node answers, or nearly none, until half of them answer again;
/// returns whether it did. Nothing is known of the nodes meanwhile: it pages nobody.
fn report_cut_off(
    judge: &JudgeState,
    cluster: &Cluster,
    silent: &mut BTreeMap<SanitizedText, Finding>,
    outcome: &mut DetectorOutcome,
) -> bool {
    if silent.is_empty() {
        return false;
    }
    let is_open = is_known_cut_off(&judge.tracker);
    let nodes = || cluster.sorted_nodes().map(|(_, node)| node).filter(|it| !it.sources.is_empty());
    let all = nodes().count();
    let down = nodes().filter(|node| silent.contains_key(&node.name)).count();
    let least = if is_open { all / 2 + 1 } else { (all as f64 * CUT_OFF_SHARE).ceil() as usize };
    if all < LEAST_NODES || down < least {
        let undecided = nodes().filter(|node| is_undecided(judge, cluster, node)).count();
        if all >= LEAST_NODES && down + undecided >= least {
            silent.retain(|_, found| keep_while_undecided(judge, cluster, found));
        }
        silent.retain(|_, found| !is_of_outage(judge, cluster, found));
        return false;
    }
    let entity = Entity::new(EntityKind::Aggregator);
    let id = Finding::build_id(FindingKind::TargetDown, &entity);
    let found: Vec<Finding> = std::mem::take(silent).into_values().collect();
    for node in &found {
        outcome.supersede_open(&judge.tracker, &node.id, &format!("explained by {id}"));
    }
    let since = found.iter().map(|node| node.since).min().unwrap_or(UnixMs(0));
    let first = found.first().map(|node| node.summary.clone()).unwrap_or_default();
    outcome.findings.push(Finding {
        since,
        confidence: CERTAIN,
        summary: format!(
            "gaunt is cut off: {down} of {} do not answer since {}. {first}",
            format_count(all, "node"),
            format_time_of_day(since)
        ),
        next: "Check the network of the machine that gaunt runs on; the state of the nodes is unknown.".to_owned(),
        evidence: found.iter().take(MAX_EVIDENCE).flat_map(|node| node.evidence.clone()).collect(),
        ..Finding::new(FindingKind::TargetDown, Severity::Warning, entity)
    });
    true
}

/// Whether the finding that gaunt is cut off is open.
pub(super) fn is_known_cut_off(tracker: &FindingTracker) -> bool {
    let entity = Entity::new(EntityKind::Aggregator);
    tracker.open_one(&Finding::build_id(FindingKind::TargetDown, &entity)).is_some()
}

/// Whether a node fails since gaunt was cut off from all of them, which is over for so short a time that its next attempts
/// decide whether it is down itself: nodes come back one after the other.
fn is_of_outage(judge: &JudgeState, cluster: &Cluster, found: &Finding) -> bool {
    found.since <= judge.cut_off_at
        && is_recent(judge, cluster, judge.cut_off_at)
        && judge.tracker.open_one(&found.id).is_none()
}

/// Whether so little time has passed since an instant that not every target was tried often enough.
fn is_recent(judge: &JudgeState, cluster: &Cluster, since: UnixMs) -> bool {
    let attempts = f64::from(judge.limits.target_failures.max(1)) + 1.0;
    let decided = WAIT_SECONDS.max(cluster.scrape_period().as_secs_f64() * attempts);
    cluster.now().duration_since(since).as_secs_f64() < decided
}

/// Keeps the finding of a node while others may be down for the same reason: until these would have failed as often, only
/// if it is open already, and as a warning. Returns whether it is kept.
fn keep_while_undecided(judge: &JudgeState, cluster: &Cluster, found: &mut Finding) -> bool {
    let open = judge.tracker.open_one(&found.id).map(|open| open.severity);
    if is_recent(judge, cluster, found.since) && open < Some(Severity::Critical) {
        found.severity = found.severity.min(Severity::Warning);
        return open.is_some();
    }
    true
}

/// Whether all targets of a node fail, and the next attempts of some decide whether it is down.
fn is_undecided(judge: &JudgeState, cluster: &Cluster, node: &Node) -> bool {
    let targets = || node.sources.iter().filter_map(|it| cluster.target_by_id(it.target));
    targets().all(|target| target.failures > 0)
        && targets().any(|target| target.failures < judge.limits.target_failures)
}

fn rack_finding(entity: Entity, nodes: &[Finding], members: usize) -> Finding {
    let rack = entity.rack.clone().unwrap_or_default();
    let since = nodes.iter().map(|node| node.since).min().unwrap_or(UnixMs(0));
    let severity = nodes.iter().map(|node| node.severity).max().unwrap_or(Severity::Warning);
    let mut victims: Vec<Entity> = nodes.iter().map(|node| node.entity.clone()).collect();
    for victim in nodes.iter().flat_map(|node| &node.victims) {
        if !victims.contains(victim) {
            victims.push(victim.clone());
        }
    }
    let first = nodes.first().map(|node| node.summary.clone()).unwrap_or_default();
    Finding {
        since,
        confidence: CERTAIN,
        victims,
        summary: format!(
            "{} of {} of rack {rack} do not answer since {}. {first}",
            nodes.len(),
            format_count(members, "node"),
            format_time_of_day(since)
        ),
        next: format!(
            "Check the power and the management switch of rack {rack}, and the path from here to it."
        ),
        evidence: nodes.iter().take(MAX_EVIDENCE).flat_map(|node| node.evidence.clone()).collect(),
        ..Finding::new(FindingKind::TargetDown, severity, entity)
    }
}
