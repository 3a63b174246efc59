//! Full ports: the only port of a slower job that is nearly full in one direction, with far less in the other. A collective
//! sends what it receives: what fills the port is other traffic (a backup, a storage gateway, many senders to one host), and
//! the job waits behind it. Or the traffic of one host takes a network device that is idle on all others.

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, FindingKind, MetricId, SanitizedText,
    catalogue::{host, port},
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    host_averages::LEAST_TRAFFIC,
    job_group::JobGroup,
    network_share::counts_ports,
    pending_finding::{PendingFinding, format_percent},
    port_link::line_rate,
    robust_stats::median,
};

/// The share of the line rate from which a port is nearly full.
const NEARLY_FULL: f64 = 0.7;

/// The share of the busier direction up to which the other one carries far less.
const FAR_LESS: f64 = 0.5;

/// The share of what the other nodes carry on a device up to which a node does not use it.
const UNUSED: f64 = 0.25;

/// The source of the limit.
const NOTE: &str = "limit: nearly full, as no other port of the job";

/// The busier direction of a device that carries traffic.
#[derive(Clone, Copy)]
struct Load {
    class: DeviceClass,
    row: u32,
    /// The share of the line rate in the busier direction, and in the other.
    busier: f64,
    other: f64,
    sends: bool,
}

/// The only full port of a job.
#[derive(Clone, Copy)]
pub(super) struct FullPort {
    node: NodeId,
    load: Load,
    /// Whether the other nodes use other devices.
    is_aside: bool,
}

/// Adds the only full port of each slower job.
pub(super) fn detect_full_ports(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for group in judge.job_groups.all_groups() {
        let Some(full) = FullPort::find(judge, cluster, group) else { continue };
        outcome.suspicions.extend(full.pending_finding(judge, cluster, group));
    }
}

/// Returns the loads of these devices of a node.
fn loads_of(
    cluster: &Cluster,
    node: &Node,
    class: DeviceClass,
    [incoming, outgoing]: [MetricId; 2],
) -> Vec<Load> {
    let load = |row: &u32| {
        let line = match class {
            DeviceClass::Port => line_rate(cluster, *row),
            _ => cluster.current_value(host::NETDEV_SPEED, *row),
        };
        let line = line.filter(|line| *line > 0.0)?;
        let received = cluster.current_rate(incoming, *row)? / line;
        let sent = cluster.current_rate(outgoing, *row)? / line;
        let (busier, other) = (received.max(sent), received.min(sent));
        Some(Load { class, row: *row, busier, other, sends: sent > received })
    };
    node.device_rows(class).iter().filter_map(load).collect()
}

fn port_loads(cluster: &Cluster, node: &Node) -> Vec<Load> {
    loads_of(cluster, node, DeviceClass::Port, [port::RECEIVE_BYTES, port::TRANSMIT_BYTES])
}

fn netdev_loads(cluster: &Cluster, node: &Node) -> Vec<Load> {
    let bytes = [host::NETDEV_RECEIVE_BYTES, host::NETDEV_TRANSMIT_BYTES];
    loads_of(cluster, node, DeviceClass::Netdev, bytes)
}

fn name_of(cluster: &Cluster, load: Load) -> Option<&SanitizedText> {
    cluster.device_at(load.class, load.row)?.device.key.first()
}

impl FullPort {
    /// Finds that of a slower job.
    pub(super) fn find(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        // A job that pauses may write a checkpoint, from one node.
        let pauses = || judge.pauses.distort_averages(group, cluster.now(), &judge.limits);
        if group.nodes.len() < 2 || pauses() {
            return None;
        }
        group.confirmed_slowdown(judge.limits.slowed_ratio)?;
        Self::find_one_way(cluster, group).or_else(|| Self::find_aside(cluster, group))
    }

    /// Finds the only port of a job that is nearly full, if it is so in one direction; the first one of its node.
    fn find_one_way(cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let full_of = |id: &NodeId| {
            let node = cluster.node_by_id(*id)?;
            let has_ports = counts_ports(cluster, node);
            let loads =
                if has_ports { port_loads(cluster, node) } else { netdev_loads(cluster, node) };
            let load = loads.into_iter().find(|load| load.busier >= NEARLY_FULL)?;
            Some(Self { node: *id, load, is_aside: false })
        };
        let mut full = group.nodes.iter().filter_map(full_of);
        let only = full.next().filter(|_| full.next().is_none())?;
        (only.load.other <= only.load.busier * FAR_LESS).then_some(only)
    }

    /// Finds the only nearly full network device of a job whose node does not use what all others use.
    fn find_aside(cluster: &Cluster, group: &JobGroup) -> Option<Self> {
        let full_of = |id: &NodeId| {
            let loads = netdev_loads(cluster, cluster.node_by_id(*id)?);
            let load = loads.into_iter().find(|load| load.busier >= NEARLY_FULL)?;
            // A data set or a checkpoint goes one way.
            let is_exchanged = load.other > load.busier * FAR_LESS;
            is_exchanged.then_some(Self { node: *id, load, is_aside: true })
        };
        let mut full = group.nodes.iter().filter_map(full_of);
        let only = full.next().filter(|_| full.next().is_none())?;
        let full_name = name_of(cluster, only.load)?;
        let others = || group.nodes.iter().filter(|id| **id != only.node);
        // The RDMA ports, or the network device of this name.
        let used_by = |id: &NodeId| {
            let node = cluster.node_by_id(*id)?;
            if counts_ports(cluster, node) {
                return Some(None);
            }
            let loads = netdev_loads(cluster, node).into_iter();
            let most = loads.max_by(|a, b| a.other.total_cmp(&b.other))?;
            Some(Some(name_of(cluster, most)?))
        };
        let used: Option<&SanitizedText> = used_by(others().next()?)?;
        if used == Some(full_name) {
            return None;
        }
        let carried = |id: &NodeId| {
            let node = cluster.node_by_id(*id)?;
            let loads = match used {
                None => port_loads(cluster, node),
                Some(_) => netdev_loads(cluster, node),
            };
            let is_used = |load: &Load| used.is_none() || name_of(cluster, *load) == used;
            Some(loads.iter().filter(|load| is_used(load)).map(|load| load.other).sum::<f64>())
        };
        let usual = median(others().filter_map(carried))?;
        let is_gone = carried(&only.node).is_some_and(|own| own <= usual * UNUSED);
        (is_gone && usual > LEAST_TRAFFIC).then_some(only)
    }

    /// Returns the entity of the device, and its name.
    fn device(&self, cluster: &Cluster, node: &Node) -> Option<(Entity, String)> {
        let key = &cluster.device_at(self.load.class, self.load.row)?.device.key;
        let name = name_of(cluster, self.load)?;
        let entity = match self.load.class {
            DeviceClass::Port => Entity::new_port(&node.name, name, key.get(1)?),
            _ => Entity::new_netdev(&node.name, name),
        };
        Some((entity, name.to_string()))
    }

    fn pending_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        group: &JobGroup,
    ) -> Option<PendingFinding> {
        let limits = &judge.limits;
        let node = cluster.node_by_id(self.node)?;
        let (entity, device) = self.device(cluster, node)?;
        let (name, title) = (&node.name, group.render_title());
        let share = format_percent(self.load.busier);
        let (kind, entity, summary, next) = if self.is_aside {
            (
                FindingKind::HostBlocksNetwork,
                Entity::new_node(name),
                format!(
                    "{device} of {name} carries {share} of its line rate, and what the other nodes of {title} use carries next to nothing there: its traffic takes another way."
                ),
                format!(
                    "Check which network NCCL uses on {name} (`NCCL_DEBUG=INFO` tells; NCCL_SOCKET_IFNAME, NCCL_IB_HCA), its routes, and the devices that the other nodes use."
                ),
            )
        } else {
            let (does, way) = if self.load.sends { ("sends", "from") } else { ("receives", "to") };
            (
                FindingKind::LeafCongested,
                entity,
                format!(
                    "{device} of {name} {does} {share} of its line rate and {} the other way, unlike all other ports of {title}: traffic that is not the job's fills it.",
                    format_percent(self.load.other),
                ),
                format!(
                    "Find what moves data {way} {name} (a backup, a checkpoint, a storage gateway, senders of other jobs), and move it to another network or limit its rate."
                ),
            )
        };
        let hold = limits.unexplained_seconds.max(group.interval.two_sample_seconds(limits));
        Some(
            PendingFinding::of(kind, entity, 2, true)
                .with_hold_seconds(hold)
                .with_interval(group.interval)
                .with_slowed_jobs(std::iter::once(group.group_key()))
                .with_cost(group.lost_gpus(), group.list_victims(cluster, Some(self.node)))
                .with_summary(summary, next)
                .with_evidence(self.evidence(judge, group)),
        )
    }

    fn evidence(&self, judge: &JudgeState, group: &JobGroup) -> [EvidenceItem; 2] {
        let limits = &judge.limits;
        [
            EvidenceRow::PortUtilization
                .to_evidence(Some(self.load.busier), Some(NEARLY_FULL))
                .with_note(NOTE),
            EvidenceRow::JobSlowdown.to_evidence(group.slowdown_ratio(), Some(limits.slowed_ratio)),
        ]
    }
}
