//! Standing faults: what has been broken while a job ran as usual does not explain why that job is slow or stands now.

use gaunt_cluster::Cluster;
use gaunt_schema::{
    DeviceClass, EntityKind, Finding, FindingKind, SanitizedText, Severity, UnixMs,
};

use super::{JudgeState, frozen_baselines::Harm, job_group::JobGroup};

/// Seconds for which a job must run as usual beside a fault, or after a restart: averages of a job that stops show its
/// usual pace for a while, and so do those of its first samples.
const USUAL_SECONDS: f64 = 120.0;

/// Seconds for which a finding outlives its evidence while its job is still slower and nothing else explains that.
const OUTLIVES_SECONDS: f64 = 300.0;

/// Findings whose evidence comes and goes with the phases of a job.
const COMES_AND_GOES: [FindingKind; 3] =
    [FindingKind::DataStarved, FindingKind::HostBound, FindingKind::ComputeStraggler];

/// Whether the evidence of an open finding is gone, but not what it costs: its job is still slower, and no other finding on
/// its node has evidence.
pub(super) fn outlives_evidence(judge: &JudgeState, cluster: &Cluster, finding: &Finding) -> bool {
    let limits = &judge.limits;
    if !COMES_AND_GOES.contains(&finding.kind) || finding.severity == Severity::Info {
        return false;
    }
    let seconds_since = |at: UnixMs| cluster.now().duration_since(at).as_secs_f64();
    let life = &finding.life;
    let stood = life.seen.duration_since(life.opened).as_secs_f64();
    if seconds_since(life.seen) > OUTLIVES_SECONDS || stood < limits.unexplained_seconds {
        return false;
    }
    let node = finding.entity.node.as_ref();
    let is_other = |other: &Finding| {
        other.id != finding.id
            && other.severity > Severity::Info
            && other.entity.node.as_ref() == node
            && other.life.seen > life.seen
    };
    let rows = node.and_then(|name| cluster.node_by_name(name));
    let rows = rows.map(|(_, node)| node.device_rows(DeviceClass::Gpu)).unwrap_or_default();
    let is_slower = |group: &JobGroup| {
        judge.gangs.of(group).is_slower(group, limits)
            && group.confirmed_slowdown(limits.unexplained_ratio).is_some()
    };
    !judge.tracker.iter_open().any(is_other)
        && judge.job_groups.groups_on(rows).into_iter().any(is_slower)
}

/// Whether a fault is either there or not: it does not become worse while its finding is open.
pub(super) const fn is_there_or_not(kind: FindingKind) -> bool {
    use FindingKind::{
        DataStale, DriverHung, FilesystemFull, GpuFailed, PortDown, PortRateLow, TargetDown,
    };
    matches!(
        kind,
        PortDown | PortRateLow | GpuFailed | TargetDown | DriverHung | DataStale | FilesystemFull
    )
}

/// Iterates the nodes that have a fault: the one that it names, or those of a rack or below a leaf, which are its victims.
pub(super) fn nodes_of_fault(fault: &Finding) -> impl Iterator<Item = &SanitizedText> {
    let is_shared = matches!(fault.entity.kind, EntityKind::Rack | EntityKind::Leaf);
    let victims = fault.victims.iter().filter(move |_| is_shared);
    fault.entity.node.iter().chain(victims.filter_map(|victim| victim.node.as_ref()))
}

/// Whether a job ran as usual after the finding about such a fault was opened.
pub(super) fn is_harmless_to(judge: &JudgeState, fault: &Finding, group: &JobGroup) -> bool {
    is_there_or_not(fault.kind) && ran_as_usual_beside(judge, fault, group)
}

/// Whether a job ran as usual after a finding was opened, for long enough.
pub(super) fn ran_as_usual_beside(judge: &JudgeState, fault: &Finding, group: &JobGroup) -> bool {
    let opened = judge.tracker.open_one(&fault.id).map(|open| open.life.opened);
    let Some((opened, first)) = opened.zip(judge.first_step) else { return false };
    let evidence = judge.gangs.of(group);
    // What is usual for a job that was new when the fault began was learned beside the fault: the baseline from before it
    // may show the loss.
    let was_known = opened.duration_since(evidence.first_seen()).as_secs_f64() > USUAL_SECONDS;
    let usual = if was_known { evidence.last_usual() } else { evidence.last_at_baseline() };
    usual.duration_since(opened.max(first)).as_secs_f64() > USUAL_SECONDS
}

/// Whether such a fault slows the jobs on its node, as far as known. Of a job whose usual pace is not known yet that is
/// learned, unless both are from before a restart: the fault may have slowed it since.
pub(super) fn harm_of(judge: &JudgeState, cluster: &Cluster, fault: &Finding) -> Harm {
    if !is_there_or_not(fault.kind) {
        // Information may rest on the pace of a job that is not known yet: it must not keep that from being learned.
        let is_information = fault.severity == Severity::Info;
        return if is_information { Harm::Unknown } else { Harm::Possible };
    }
    let nodes = nodes_of_fault(fault).filter_map(|name| cluster.node_by_name(name));
    let rows: Vec<u32> =
        nodes.flat_map(|(_, node)| node.device_rows(DeviceClass::Gpu).to_vec()).collect();
    let opened = fault.life.opened;
    let is_new = judge.first_step.is_none_or(|first| opened >= first);
    let mut harm = Harm::None;
    for group in judge.job_groups.groups_on(&rows) {
        let evidence = judge.gangs.of(group);
        if !evidence.is_learned() && (is_new || evidence.first_seen() > opened) {
            harm = Harm::Unknown;
        } else if !is_harmless_to(judge, fault, group) {
            return Harm::Possible;
        }
    }
    harm
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gaunt_schema::Entity;

    use super::*;
    use crate::Thresholds;

    #[test]
    fn information_keeps_no_job_from_being_learned() {
        let (judge, cluster) =
            (JudgeState::new(Thresholds::default()), Cluster::new(Duration::from_secs(1), 10));
        let harm = |kind, severity| {
            let fault = Finding::new(kind, severity, Entity::new_node(&"gpu001".into()));
            harm_of(&judge, &cluster, &fault)
        };
        for kind in [FindingKind::StageImbalance, FindingKind::DataStarved] {
            assert_eq!(harm(kind, Severity::Info), Harm::Unknown, "{kind}");
            assert_eq!(harm(kind, Severity::Warning), Harm::Possible, "{kind}");
        }
        assert_eq!(harm(FindingKind::PortDown, Severity::Warning), Harm::None, "of no job");
    }

    #[test]
    fn nodes_of_a_shared_fault_are_its_victims_and_those_of_others_are_not() {
        let [own, victim] = ["gpu001", "gpu002"].map(|name| Entity::new_node(&name.into()));
        let rack = Entity::new_rack(&"r1".into());
        let nodes = |kind: FindingKind, entity: &Entity| {
            let fault = Finding::new(kind, Severity::Critical, entity.clone());
            let fault = Finding { victims: vec![victim.clone()], ..fault };
            nodes_of_fault(&fault).map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(nodes(FindingKind::TargetDown, &rack), ["gpu002"]);
        assert_eq!(nodes(FindingKind::GpuFailed, &own), ["gpu001"]);
    }
}
