//! Line rates of network devices that belong to no RDMA port: data sets and checkpoints take them, and all traffic of a job
//! where its nodes have no RDMA port.

use std::collections::{BTreeSet, HashMap};

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{
    DeviceClass, Entity, Finding, FindingKind, SanitizedText, UnixMs, catalogue::host,
};

use super::{
    EvidenceRow, JudgeState,
    compact_value::{CompactValue, NodeTag},
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::PendingFinding,
};

/// The highest line rate of each network device, by row, and those that are below it.
#[derive(Debug, Default)]
pub(super) struct NetdevRates {
    devices: Vec<Option<NetdevRate>>,
    /// The nodes with such devices.
    fallen: BTreeSet<NodeId>,
    /// The timestamp of each node's page that was read last.
    read_at: HashMap<NodeId, UnixMs>,
}

/// The line rate of one network device: sixteen bytes.
#[derive(Clone, Copy, Debug)]
struct NetdevRate {
    /// Its node and its name: rows are reassigned, and devices of containers come and go.
    node: NodeTag,
    name: NodeTag,
    now: CompactValue,
    /// The highest one that was seen.
    best: CompactValue,
}

/// A network device that is slower than it was.
struct FallenRate<'a> {
    device: &'a SanitizedText,
    now: f64,
    best: f64,
}

impl NetdevRates {
    /// Ingests the newest sample of every network device.
    pub(super) fn observe_netdevs(&mut self, cluster: &Cluster) {
        self.read_at.retain(|id, _| cluster.node_by_id(*id).is_some());
        self.fallen.retain(|id| cluster.node_by_id(*id).is_some());
        self.devices.resize(cluster.row_count(DeviceClass::Netdev), None);
        for (id, node) in cluster.sorted_nodes() {
            let Some(at) = node.last_fed(DeviceClass::Netdev) else { continue };
            if self.read_at.insert(id, at) != Some(at) {
                self.observe_node(cluster, id, node);
            }
        }
    }

    /// Iterates the devices of a node that are slower than they were, by name, and how fast they were.
    pub(super) fn fallen_from<'a>(
        &self,
        cluster: &'a Cluster,
        id: NodeId,
        node: &'a Node,
    ) -> impl Iterator<Item = (&'a SanitizedText, f32)> {
        let rows = node.device_rows(DeviceClass::Netdev).iter();
        rows.filter(move |_| self.fallen.contains(&id)).filter_map(|row| {
            let name = cluster.device_at(DeviceClass::Netdev, *row)?.device.key.first()?;
            let (_, best) = self.of(*row, &node.name, name)?.fallen_from()?;
            Some((name, best as f32))
        })
    }

    /// Restores the highest line rate of a network device of this node.
    pub(super) fn restore_best_rate(
        &mut self,
        node: &SanitizedText,
        (row, name): (u32, &SanitizedText),
        best: f32,
    ) {
        if self.devices.len() <= row as usize {
            self.devices.resize(row as usize + 1, None);
        }
        let unknown = CompactValue::default();
        let own = &mut self.devices[row as usize];
        if own.is_none_or(|own| own.now.known().is_none()) {
            *own = Some(NetdevRate::new(node, name, unknown, Some(best).into()));
        }
    }

    fn observe_node(&mut self, cluster: &Cluster, id: NodeId, node: &Node) {
        let mut has_fallen = false;
        for row in node.device_rows(DeviceClass::Netdev) {
            let entry = cluster.device_at(DeviceClass::Netdev, *row);
            let name = entry.and_then(|entry| entry.device.key.first());
            let rate = cluster.current_value(host::NETDEV_SPEED, *row).filter(|rate| *rate > 0.0);
            let (Some(name), Some(rate)) = (name, rate) else { continue };
            let own = &mut self.devices[*row as usize];
            if own.is_none_or(|own| own.now.known() != Some(rate as f32)) {
                let seen = own.filter(|own| own.is_of(&node.name, name));
                let best = seen.map_or(CompactValue::default(), |own| own.best);
                *own = Some(NetdevRate::new(&node.name, name, Some(rate).into(), best));
            }
            has_fallen |= own.is_some_and(|own| own.fallen_from().is_some());
        }
        if has_fallen {
            self.fallen.insert(id);
        } else {
            self.fallen.remove(&id);
        }
    }

    fn of(&self, row: u32, node: &SanitizedText, name: &SanitizedText) -> Option<&NetdevRate> {
        self.devices.get(row as usize)?.as_ref().filter(|own| own.is_of(node, name))
    }
}

impl NetdevRate {
    fn new(
        node: &SanitizedText,
        name: &SanitizedText,
        now: CompactValue,
        best: CompactValue,
    ) -> Self {
        Self { node: NodeTag::of(node), name: NodeTag::of(name), now, best: best.max(now) }
    }

    fn is_of(&self, node: &SanitizedText, name: &SanitizedText) -> bool {
        self.node == NodeTag::of(node) && self.name == NodeTag::of(name)
    }

    /// Returns the rate and the higher one that was seen, if there is one.
    fn fallen_from(&self) -> Option<(f64, f64)> {
        let (now, best) = (self.now.known()?, self.best.known()?);
        (now < best).then(|| (now.into(), best.into()))
    }
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
        let mut fallen: Vec<FallenRate<'_>> = fallen_rates(judge, cluster, node).collect();
        fallen.sort_by_key(|device| device.device);
        let told = |device: &&FallenRate<'_>| judge.tracker.open_one(&device.id_on(node)).is_some();
        let device = fallen.iter().find(told).or_else(|| fallen.first());
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
    let ports = node.device_rows(DeviceClass::Port).iter();
    let of_ports: BTreeSet<u32> =
        ports.filter_map(|row| judge.links.of(*row)?.netdev_row()).collect();
    let rows = node.device_rows(DeviceClass::Netdev).iter();
    rows.filter(move |row| !of_ports.contains(row)).filter_map(|row| {
        let device = cluster.device_at(DeviceClass::Netdev, *row)?.device.key.first()?;
        let (now, best) = judge.netdevs.of(*row, &node.name, device)?.fallen_from()?;
        let fallen = FallenRate { device, now, best };
        let traffic = [host::NETDEV_RECEIVE_BYTES, host::NETDEV_TRANSMIT_BYTES];
        let traffic = traffic.iter().filter_map(|bytes| cluster.current_rate(*bytes, *row));
        let is_used = traffic.sum::<f64>() >= now * judge.limits.carries_ratio;
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
        let gbit = |bytes: f64| bytes * 8.0 / 1e9;
        let summary = format!(
            "{entity} runs at {:.0} of {:.0} Gb/s: it was faster before.",
            gbit(self.now),
            gbit(self.best),
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
