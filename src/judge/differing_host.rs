//! Differing hosts: the only host of a slower job that is not like the others. All GPUs of the job wait for it and look alike.
//!
//! Either its kernel takes far more of its CPUs than before, while its programs do not: it does by itself what devices do for
//! the other hosts (copies and packets where RDMA is lost), or serves interrupts or reclaims memory. Or the MTU of a network
//! device is smaller than on all others.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, FindingKind, SanitizedText, Severity, catalogue::host,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_averages::KernelTime,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_percent},
    robust_stats::median,
    starved_node::{HOST_KINDS, told_kind},
};

/// How many times as much as before the kernel of the host takes, and at least how much more of its CPUs.
const LEAST_TIMES: f64 = 1.4;
const LEAST_RISE: f64 = 0.015;

/// How many times as large its part of the busy time is as before: a program that does more makes the kernel do more as
/// well. And how many times as much it takes as on most other hosts: a baseline from between two pauses may be low.
const LEAST_PART_TIMES: f64 = 1.25;
const LEAST_BESIDE: f64 = 1.25;

/// The largest rise of any other host, as a share of that of the host.
const MOST_ELSEWHERE: f64 = 0.25;

/// The source of the limit.
const NOTE: &str = "limit: far above its past, and far above that of the other hosts of the job";

/// The only host whose kernel time has risen.
struct BusyKernel {
    id: NodeId,
    time: KernelTime,
    /// The share from which it counts.
    limit: f64,
}

/// The kinds of findings about a host that may follow from what differs.
const TAKES_EVIDENCE: [FindingKind; 4] = [
    FindingKind::DataStarved,
    FindingKind::HostBound,
    FindingKind::HostBlocksNetwork,
    FindingKind::LeafCongested,
];

/// The least hosts of a job that have the same MTU where another has a smaller one.
const LEAST_ALIKE: usize = 2;

/// The line rate of devices that carry the traffic of jobs, in bytes per second.
const LEAST_RATE: f64 = 1e9;

/// The only host with a smaller MTU on a network device.
struct SmallerMtu {
    id: NodeId,
    device: SanitizedText,
    own: f64,
    others: f64,
}

/// The only host of a job that is not like the others, by either sign.
struct DifferingHost {
    id: NodeId,
    kernel: Option<BusyKernel>,
    mtu: Option<SmallerMtu>,
}

/// Adds the host of each slower job that is not like the others. Another finding about the host has what differs as its
/// evidence instead; one about a device of it explains that.
pub(super) fn detect_differing_hosts(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for group in judge.job_groups.all_groups().iter().filter(|group| group.nodes.len() > 1) {
        let Some(slowed) = group.confirmed_slowdown(judge.limits.slowed_ratio) else { continue };
        let Some(found) = DifferingHost::find(judge, cluster, group) else { continue };
        let Some(node) = cluster.node_by_id(found.id) else { continue };
        let evidence = found.evidence();
        let is_about = |other: &PendingFinding| {
            other.finding.entity.node.as_ref() == Some(&node.name)
                && other.finding.severity > Severity::Info
        };
        let mut told = outcome.suspicions.iter_mut().filter(|other| is_about(other));
        if let Some(other) = told.next() {
            if TAKES_EVIDENCE.contains(&other.finding.kind) {
                other.finding.evidence.extend(evidence);
            }
            continue;
        }
        let is_same = |other: &PendingFinding| {
            other.finding.entity == Entity::new_node(&node.name)
                && HOST_KINDS.contains(&other.finding.kind)
        };
        outcome.suspicions.retain(|other| !is_same(other));
        let pending = found.pending_finding(judge, cluster, (group, slowed), &node.name);
        outcome.suspicions.push(pending.with_evidence(evidence));
    }
}

impl BusyKernel {
    fn find(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let time_of = |id: &NodeId| judge.hosts.get(*id).and_then(|host| host.kernel_time(cluster));
        let mut times: Vec<(NodeId, KernelTime)> =
            group.nodes.iter().filter_map(|id| Some((*id, time_of(id)?))).collect();
        times.sort_by(|(_, a), (_, b)| b.times().total_cmp(&a.times()));
        let [(id, time), others @ ..] = times.as_slice() else { return None };
        if times.len() * 2 <= group.nodes.len() {
            return None;
        }
        let (_, second) = others.first()?;
        let elsewhere = (second.times() - 1.0).max(0.0);
        let least_times = LEAST_TIMES.max(1.0 + elsewhere / MOST_ELSEWHERE);
        let beside = median(others.iter().map(|(_, other)| other.now))? * LEAST_BESIDE;
        let limit = (time.baseline * least_times).max(time.baseline + LEAST_RISE).max(beside);
        (time.now >= limit && time.part_times >= LEAST_PART_TIMES).then_some(Self {
            id: *id,
            time: *time,
            limit,
        })
    }

    fn evidence(&self) -> EvidenceItem {
        EvidenceRow::KernelTime
            .to_evidence(Some(self.time.now), Some(self.limit))
            .with_note(format!("baseline {}; {NOTE}", format_percent(self.time.baseline)))
    }
}

impl SmallerMtu {
    /// Finds the only host of a job that has a smaller MTU than all others, on a device that all call alike.
    fn find(cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let mut of: BTreeMap<&SanitizedText, Vec<(NodeId, f64)>> = BTreeMap::new();
        for id in &group.nodes {
            let Some(node) = cluster.node_by_id(*id) else { continue };
            for row in node.device_rows(DeviceClass::Netdev) {
                let rate = cluster.current_value(host::NETDEV_SPEED, *row);
                let mtu = cluster.current_value(host::NETDEV_MTU, *row).filter(|mtu| *mtu > 0.0);
                let Some(mtu) = mtu.filter(|_| rate.is_some_and(|rate| rate >= LEAST_RATE)) else {
                    continue;
                };
                let entry = cluster.device_at(DeviceClass::Netdev, *row);
                let Some(name) = entry.and_then(|entry| entry.device.key.first()) else { continue };
                of.entry(name).or_default().push((*id, mtu));
            }
        }
        let smaller = |(name, mtus): (&SanitizedText, Vec<(NodeId, f64)>)| {
            let (id, own) = *mtus.iter().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
            let others = mtus.iter().filter(|(other, _)| *other != id).map(|(_, mtu)| *mtu);
            let others: Vec<f64> = others.collect();
            let alike = *others.first()?;
            let are_alike = others.iter().all(|mtu| mtu.total_cmp(&alike).is_eq());
            (others.len() >= LEAST_ALIKE && are_alike && own < alike).then(|| Self {
                id,
                device: name.clone(),
                own,
                others: alike,
            })
        };
        let found: Vec<Self> = of.into_iter().filter_map(smaller).collect();
        let hosts: BTreeSet<NodeId> = found.iter().map(|found| found.id).collect();
        found.into_iter().next().filter(|_| hosts.len() == 1)
    }

    fn evidence(&self) -> EvidenceItem {
        EvidenceRow::DeviceMtu
            .to_evidence(Some(self.own), Some(self.others))
            .with_note(format!("limit: that of {} on all other hosts of the job", self.device))
    }
}

impl DifferingHost {
    fn find(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let kernel = BusyKernel::find(judge, cluster, group);
        let mtu = SmallerMtu::find(cluster, group);
        let id = kernel.as_ref().map(|it| it.id).or(mtu.as_ref().map(|it| it.id))?;
        Some(Self { id, kernel, mtu: mtu.filter(|mtu| mtu.id == id) })
    }

    fn evidence(&self) -> Vec<EvidenceItem> {
        let of_kernel = self.kernel.iter().map(BusyKernel::evidence);
        of_kernel.chain(self.mtu.iter().map(SmallerMtu::evidence)).collect()
    }

    /// Says what differs, and what to do about it.
    fn render(&self, name: &SanitizedText, title: &str) -> (String, String) {
        let mtu = self.mtu.as_ref().map(|SmallerMtu { device, own, others, .. }| {
            format!("the MTU of {device} is {own:.0} bytes on {name} and {others:.0} elsewhere")
        });
        let summary = match (&self.kernel, &mtu) {
            (Some(BusyKernel { time, .. }), mtu) => format!(
                "The kernel of {name} takes {} of its CPUs, {} before, and that of no other host of {title} takes so much more{}: the job waits for this host.",
                format_percent(time.now),
                format_percent(time.baseline),
                mtu.as_ref().map(|mtu| format!("; {mtu}")).unwrap_or_default(),
            ),
            (None, mtu) => {
                format!("{title} may wait for {name}: {}.", mtu.as_deref().unwrap_or_default())
            }
        };
        let next = match &self.mtu {
            Some(SmallerMtu { device, others, .. }) => format!(
                "Set the MTU of {device} on {name} to {others:.0} (`ip link set {device} mtu {others:.0}`), and in the settings that apply at boot."
            ),
            None => format!(
                "On {name}, check whether NCCL still uses RDMA with GPUDirect (`NCCL_DEBUG=INFO` tells; is nvidia_peermem loaded?), the routes of its network devices, and what its kernel does (`perf top`, /proc/interrupts, compact_stall in /proc/vmstat)."
            ),
        };
        (summary, next)
    }

    fn pending_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        (group, slowed): (&JobGroup, f64),
        name: &SanitizedText,
    ) -> PendingFinding {
        let limits = &judge.limits;
        let kind = told_kind(judge, name, FindingKind::HostBound);
        // An MTU that was always smaller may cost nothing.
        let kinds = 1 + usize::from(self.kernel.is_some());
        let (summary, next) = self.render(name, &group.render_title());
        let hold = limits.unexplained_seconds.max(group.interval.two_sample_seconds(limits));
        PendingFinding::of(kind, Entity::new_node(name), kinds, true)
            .with_hold_seconds(hold)
            .with_interval(group.interval)
            .with_slowed_jobs(std::iter::once(group.group_key()))
            .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(self.id)))
            .with_summary(summary, next)
            .with_evidence([
                EvidenceRow::JobSlowdown.to_evidence(Some(slowed), Some(limits.slowed_ratio))
            ])
    }
}
