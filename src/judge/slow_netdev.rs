//! Slow network devices that belong to no RDMA port: data sets and checkpoints take them, and all traffic of a job where its
//! nodes have no RDMA port.

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, Entity, Finding, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    netdev_rates::carried_bytes,
    pending_finding::{PendingFinding, format_line_rate},
};

/// A network device that is slower than it was.
struct FallenRate<'a> {
    device: &'a SanitizedText,
    now: f64,
    best: f64,
}

/// Adds each node that has a slower network device than before, with traffic.
pub(super) fn detect_slow_netdevs(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for id in &judge.netdevs.fallen {
        let Some(node) = cluster.node_by_id(*id) else { continue };
        // A bond and a bridge are slower with the device below them: one of them stands for all.
        let is_told =
            |device: &FallenRate<'_>| judge.tracker.open_one(&device.id_on(node)).is_some();
        let device = fallen_rates(judge, cluster, node)
            .min_by_key(|device| (!is_told(device), device.device));
        outcome
            .suspicions
            .extend(device.map(|device| device.to_finding(judge, cluster, *id, node)));
    }
}

/// Iterates the devices of a node that are slower than they were, carry traffic or are told already, and belong to no RDMA
/// port: the port tells its own rate.
fn fallen_rates<'a>(
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    node: &'a Node,
) -> impl Iterator<Item = FallenRate<'a>> {
    let of_ports = judge.links.netdev_rows_of(node);
    let rows = node.device_rows(DeviceClass::Netdev).iter();
    rows.filter(move |row| !of_ports.contains(row)).filter_map(|row| {
        let device = cluster.device_at(DeviceClass::Netdev, *row)?.device.key.first()?;
        let (now, best) = judge.netdevs.of(*row, &node.name, device)?.fallen_from()?;
        let fallen = FallenRate { device, now, best };
        let is_used = carried_bytes(cluster, *row) >= now * judge.limits.carries_ratio;
        (is_used || judge.tracker.open_one(&fallen.id_on(node)).is_some()).then_some(fallen)
    })
}

impl FallenRate<'_> {
    fn entity_on(&self, node: &Node) -> Entity {
        Entity::new_netdev(&node.name, self.device)
    }

    fn id_on(&self, node: &Node) -> String {
        Finding::build_id(FindingKind::PortRateLow, &self.entity_on(node))
    }

    fn to_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        id: NodeId,
        node: &Node,
    ) -> PendingFinding {
        let entity = self.entity_on(node);
        let gpus = node.device_rows(DeviceClass::Gpu);
        let slowed: Option<(&JobGroup, f64)> =
            judge.job_groups.most_slowed_on(gpus, judge.limits.slowed_ratio);
        let group = slowed.map(|(group, _)| group);
        let summary = format!(
            "{entity} runs at {}; it ran at {} before.",
            format_line_rate(self.now),
            format_line_rate(self.best),
        );
        let next = "Check the cable and the transceivers at both ends, the rate that the switch port is set to, and the members of a bond.";
        PendingFinding::of(FindingKind::PortRateLow, entity, 1 + usize::from(group.is_some()), true)
            .with_cost(
                group.map_or(0.0, JobGroup::lost_gpus),
                group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default(),
            )
            .with_summary(summary, next.to_owned())
            .with_evidence([EvidenceRow::NetdevRate
                .to_evidence(Some(self.now), Some(self.best))
                .with_note("limit: expected rate")])
    }
}
