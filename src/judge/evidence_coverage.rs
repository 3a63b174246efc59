//! Findings from before a restart: whether the evidence of each is read again, so that its absence counts.
//!
//! A restart clears averages and states. Until the evidence of a finding was read for long enough again, its absence
//! cannot be decided, however long that takes; only what never comes back is given up, with a reason.

use gaunt_schema::{DeviceClass, EntityKind, Finding, FindingKind, SanitizedText};

use super::{
    Gone, JudgeState, Whereabouts, finding_lifecycle::EvidenceCoverage, gpu_tracker::GpuTracker,
    job_restarts::LONGEST_CYCLE_S, sample_interval::SampleInterval,
};
use gaunt_cluster::{Cluster, Node, TargetHealth};

/// The reason for giving up a finding about a removed device.
const NO_DEVICE: &str = "the device is missing from its node since the restart";
const NO_PAST: &str = "its baseline from before the restart is lost";

/// Returns the evidence coverage of each finding from before a restart, by its id.
pub(super) fn check_coverage(
    judge: &JudgeState,
    cluster: &Cluster,
) -> Vec<(String, EvidenceCoverage)> {
    let nodes = Whereabouts::of(&judge.node_names, cluster);
    let ids = judge.tracker.unsettled_findings();
    ids.map(|finding| (finding.id.clone(), finding_coverage(judge, cluster, &nodes, finding)))
        .collect()
}

/// Whether a node's pages lack the evidence of this kind of finding now, although they had it.
pub(super) fn is_silent(cluster: &Cluster, node: &Node, kind: FindingKind) -> bool {
    let old = |at: Option<_>| at.is_none_or(|at| cluster.is_stale(at));
    let part = evidence_class(kind).filter(|class| !node.device_rows(*class).is_empty());
    old(node.sampled) || part.is_some_and(|class| old(node.last_fed(class)))
}

/// Returns the device class whose pages are evidence for a kind of finding; none for those of the node itself.
fn evidence_class(kind: FindingKind) -> Option<DeviceClass> {
    use FindingKind::{
        AggregatorLate, CertificateExpiring, CollectiveHang, ComputeStraggler, CrashLoop, DataSkew,
        DataStale, DataStarved, DriverHung, FabricDegraded, FilesystemFull, FindingsOverLimit,
        GpuFailed, HostBlocksNetwork, HostBound, IdleAllocated, JudgementFailed, LeafCongested,
        LinkErrors, NvlinkDegraded, PcieDegraded, PortDown, PortRateLow, RailSlow, StageImbalance,
        StorageSlow, TargetDown, Throttled, UnexplainedSlowdown,
    };
    match kind {
        DataStarved | StorageSlow | ComputeStraggler | Throttled | HostBound | PcieDegraded
        | NvlinkDegraded | FabricDegraded | CollectiveHang | CrashLoop | GpuFailed
        | IdleAllocated | StageImbalance | DataSkew | UnexplainedSlowdown => Some(DeviceClass::Gpu),
        PortDown | PortRateLow | LinkErrors | LeafCongested | RailSlow | HostBlocksNetwork => {
            Some(DeviceClass::Port)
        }
        FilesystemFull => Some(DeviceClass::Mount),
        TargetDown | DriverHung | DataStale | AggregatorLate | FindingsOverLimit
        | CertificateExpiring | JudgementFailed => None,
    }
}

/// Whether a kind of finding compares GPUs with their baselines.
fn needs_baseline(kind: FindingKind) -> bool {
    use FindingKind::{
        CollectiveHang, DataSkew, DataStarved, HostBound, StageImbalance, StorageSlow,
        UnexplainedSlowdown,
    };
    matches!(
        kind,
        DataStarved
            | StorageSlow
            | HostBound
            | CollectiveHang
            | StageImbalance
            | DataSkew
            | UnexplainedSlowdown
    )
}

/// Returns the seconds for which evidence must be read before its absence closes a finding of this kind.
fn needed_seconds(judge: &JudgeState, cluster: &Cluster, finding: &Finding) -> f64 {
    let (limits, period) = (&judge.limits, cluster.scrape_period().as_secs_f64());
    match finding.kind {
        FindingKind::PortDown
        | FindingKind::PortRateLow
        | FindingKind::GpuFailed
        | FindingKind::DriverHung => f64::from(limits.port_samples + 1) * period,
        FindingKind::TargetDown | FindingKind::AggregatorLate => {
            f64::from(limits.target_failures + 2) * period
        }
        // As long as it may take until it ends again.
        FindingKind::CrashLoop => LONGEST_CYCLE_S,
        FindingKind::DataStale => {
            limits.stale_seconds.max(limits.stale_periods * period) + 2.0 * period
        }
        _ => {
            let unnamed = finding.entity.kind == EntityKind::Job && finding.entity.job.is_none();
            let regroups = if unnamed { limits.regroup_seconds } else { 0.0 };
            limits.resume_seconds.max(
                SampleInterval::of_fleet(cluster).two_sample_seconds_of_all(limits) + 2.0 * period,
            ) + regroups
        }
    }
}

fn finding_coverage(
    judge: &JudgeState,
    cluster: &Cluster,
    nodes: &Whereabouts<'_>,
    finding: &Finding,
) -> EvidenceCoverage {
    let limits = &judge.limits;
    let since = judge.first_step.map(|began| cluster.now().duration_since(began).as_secs_f64());
    let waited = limits.resume_seconds * limits.resume_unread_times;
    let waited = since.is_some_and(|since| since >= waited);
    let never = |why: SanitizedText| {
        if waited { EvidenceCoverage::NeverRead(why) } else { EvidenceCoverage::Unread }
    };
    // A target that was not scraped yet may be any node.
    let pending =
        cluster.tracked_targets().iter().any(|target| target.health == TargetHealth::Pending);
    let enough = EvidenceCoverage::ReadFor(needed_seconds(judge, cluster, finding));
    match finding.entity.node.as_ref().and_then(|name| nodes.gone(name)) {
        Some(Gone::Renamed(name)) => {
            return EvidenceCoverage::NeverRead(Gone::Renamed(name).reason());
        }
        // A list of targets may arrive in parts.
        Some(Gone::Removed) => return never(Gone::Removed.reason()),
        None => {}
    }
    if finding.kind == FindingKind::TargetDown {
        return if pending { EvidenceCoverage::Unread } else { enough };
    }
    let Some(name) = &finding.entity.node else {
        return if are_victims_read(cluster, finding, waited) && (!pending || waited) {
            enough
        } else {
            EvidenceCoverage::Unread
        };
    };
    // Its target exists, and was not read yet: there is no time limit for that.
    let Some((_, node)) = cluster.node_by_name(name) else { return EvidenceCoverage::Unread };
    if is_silent(cluster, node, finding.kind) {
        return EvidenceCoverage::Unread;
    }
    if is_gpu_missing(judge, node, finding) {
        return EvidenceCoverage::Unread;
    }
    if !has_device(cluster, node, finding) {
        return never(NO_DEVICE.into());
    }
    if needs_baseline(finding.kind) && !has_baseline(judge, node) {
        return never(NO_PAST.into());
    }
    enough
}

/// Whether every affected node is read: the blamed entity is larger than one node. After a while, nodes that do not
/// come back are skipped.
fn are_victims_read(cluster: &Cluster, finding: &Finding, waited: bool) -> bool {
    let read = |name: &SanitizedText| {
        cluster.node_by_name(name).is_some_and(|(_, node)| !is_silent(cluster, node, finding.kind))
    };
    let mut nodes = finding.victims.iter().filter_map(|victim| victim.node.as_ref()).peekable();
    if nodes.peek().is_none() {
        return true;
    }
    if waited { nodes.any(read) } else { nodes.all(read) }
}

/// Whether a failed GPU is still missing: its node has fewer than before.
fn is_gpu_missing(judge: &JudgeState, node: &Node, finding: &Finding) -> bool {
    let Some(gpu) = finding.entity.gpu.as_ref() else { return false };
    let Some(before) = judge.restored_gpus.get(&node.name) else { return false };
    finding.kind == FindingKind::GpuFailed
        && before.contains(gpu)
        && node.device_rows(DeviceClass::Gpu).len() < before.len()
}

/// Whether the blamed device is on its node.
fn has_device(cluster: &Cluster, node: &Node, finding: &Finding) -> bool {
    let entity = &finding.entity;
    let (class, first) = match (&entity.gpu, &entity.device) {
        (Some(gpu), _) => (DeviceClass::Gpu, gpu),
        (None, Some(device)) if entity.port.is_some() => (DeviceClass::Port, device),
        (None, Some(device)) => (DeviceClass::Netdev, device),
        (None, None) => {
            let part = evidence_class(finding.kind);
            return part.is_none_or(|class| !node.device_rows(class).is_empty());
        }
    };
    let is = |row: &u32| {
        let key = cluster.device_at(class, *row).map(|entry| &entry.device.key);
        key.is_some_and(|key| {
            let port = entity.port.as_ref().filter(|_| class == DeviceClass::Port);
            key.first() == Some(first) && (port.is_none() || key.get(1) == port)
        })
    };
    node.device_rows(class).iter().any(is)
}

/// Whether any GPU of a node has a baseline.
fn has_baseline(judge: &JudgeState, node: &Node) -> bool {
    let known =
        node.device_rows(DeviceClass::Gpu).iter().filter_map(|row| judge.gpus.get(*row as usize));
    let baseline =
        |gpu: &GpuTracker| gpu.averages.usual_utilization().or_else(|| gpu.averages.usual_power());
    known.into_iter().any(|gpu| baseline(gpu).is_some())
}
