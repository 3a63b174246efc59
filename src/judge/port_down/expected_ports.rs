//! Ports that were down before the first sample: whether they should be up, judging by their siblings and by the same
//! port of other nodes.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{DeviceClass, MetricId, SanitizedText, catalogue::port};

use super::{
    super::sample_interval::NEARLY_ALL, DISABLED, JudgeState, LINK_UP, PortTracker, is_port_active,
};
use gaunt_cluster::{Cluster, DeviceEntry, Node, NodeId};

/// Logical states of an InfiniBand port whose link is up and that the subnet manager has not made active: initialising
/// and armed.
const INITIALISING: [f64; 2] = [2.0, 3.0];

/// The same port of nodes of one build: its device and number, link layer and type of adapter.
type PortSlot<'a> = (&'a [SanitizedText], Option<&'a SanitizedText>, Option<&'a SanitizedText>);

/// How many ports of each slot are active, and how many there are; only of required slots.
#[derive(Debug, Default)]
pub(super) struct PortSlotCounts<'a> {
    slots: HashMap<PortSlot<'a>, (usize, usize)>,
    /// The active ports of every node that has ports.
    active: BTreeMap<NodeId, usize>,
    /// The same numbers, lowest first.
    sorted: Vec<usize>,
}

/// Other nodes that are needed to tell how many ports most have: fewer have no majority, and must agree.
const LEAST_PEERS: usize = 3;

impl<'a> PortSlotCounts<'a> {
    /// Counts the slots of all ports that are down and were never seen active.
    pub(super) fn count_slots(judge: &JudgeState, cluster: &'a Cluster) -> Self {
        let mut slots = HashMap::new();
        let ports = || {
            cluster
                .sorted_nodes()
                .flat_map(|(_, node)| node.device_rows(DeviceClass::Port).iter().copied())
        };
        for row in ports() {
            let port = judge.ports.of(row);
            if port.is_some_and(|port| !port.was_active() && port.down_samples() > 0)
                && let Some(entry) = cluster.device_at(DeviceClass::Port, row)
            {
                slots.insert(port_slot(entry), (0, 0));
            }
        }
        if slots.is_empty() {
            return Self::default();
        }
        let mut active_ports: BTreeMap<NodeId, usize> = BTreeMap::new();
        for row in ports() {
            let Some(entry) = cluster.device_at(DeviceClass::Port, row) else { continue };
            // A node that does not answer now does not make the others' ports more or less expected.
            let before = || judge.ports.of(row).map(PortTracker::was_active);
            let Some(active) = is_port_active(cluster, row).or_else(before) else { continue };
            *active_ports.entry(entry.node).or_default() += usize::from(active);
            if let Some((up, all)) = slots.get_mut(&port_slot(entry)) {
                *up += usize::from(active);
                *all += 1;
            }
        }
        let mut sorted: Vec<usize> = active_ports.values().copied().collect();
        sorted.sort_unstable();
        Self { slots, active: active_ports, sorted }
    }

    /// Whether as many ports of a node are active as of most other nodes, or as of each where there are few: then a
    /// port that was never up is one more than others have, whatever its name is. None without others.
    fn is_complete(&self, node: NodeId) -> Option<bool> {
        let own = *self.active.get(&node)?;
        let others = self.sorted.len() - 1;
        if others < LEAST_PEERS {
            return (others > 0).then(|| self.sorted.last() == Some(&own));
        }
        let middle = others / 2;
        // Without the node itself, all above it are one place lower.
        let is_above = middle >= self.sorted.partition_point(|active| *active < own);
        Some(own >= self.sorted[middle + usize::from(is_above)])
    }

    /// Returns how many other nodes' ports of this slot are active, and how many there are; the port itself is down.
    pub(super) fn count_others(&self, entry: &'a DeviceEntry) -> (usize, usize) {
        let (active, all) = self.slots.get(&port_slot(entry)).copied().unwrap_or_default();
        (active, all.saturating_sub(1))
    }
}

fn port_slot(entry: &DeviceEntry) -> PortSlot<'_> {
    let info = |label| entry.info_label(port::INFO, label);
    (&entry.device.key[..], info("link_layer"), info("hca_type"))
}

/// Whether a port is known to be on Ethernet.
pub(super) fn is_ethernet(entry: &DeviceEntry) -> bool {
    entry.info_label(port::INFO, "link_layer").is_some_and(|layer| *layer == "Ethernet")
}

/// The siblings and counterparts of a port that is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortSurroundings {
    /// Ports of the same kind of device on its node: active ones, and all.
    pub(super) siblings: (usize, usize),
    /// The same port of other nodes: active ones, and all.
    pub(super) others: (usize, usize),
    /// Whether the link counted that it went down: it was up once.
    pub(super) fell: bool,
    /// Whether its node has as many active ports as most others; none without others.
    pub(super) is_complete: Option<bool>,
    /// Whether it is disabled; on Ethernet a port without a carrier looks the same.
    pub(super) disabled: bool,
    /// Whether its link is up and it waits for the subnet manager; a port on Ethernet has none.
    pub(super) initialising: bool,
}

impl PortSurroundings {
    /// Collects them for one port.
    pub(super) fn of(
        cluster: &Cluster,
        siblings: &SiblingCounts,
        row: u32,
        entry: &DeviceEntry,
        slots: &PortSlotCounts<'_>,
    ) -> Self {
        let value = |metric: MetricId| cluster.current_value(metric, row);
        let is_up = value(port::PHYSICAL_STATE).is_none_or(|physical| physical == LINK_UP);
        let waits = value(port::STATE).is_some_and(|state| INITIALISING.contains(&state));
        Self {
            siblings: siblings.count_siblings(cluster, row),
            others: slots.count_others(entry),
            is_complete: slots.is_complete(entry.node),
            fell: value(port::LINK_DOWNED).is_some_and(|downed| downed > 0.0),
            disabled: value(port::PHYSICAL_STATE) == Some(DISABLED),
            initialising: is_up && waits && !is_ethernet(entry),
        }
    }

    /// Whether a port that was never seen active should be. `enough` is how many siblings, or other nodes, are needed.
    pub(super) fn expects_active(self, enough: f64) -> bool {
        let ((active, siblings), (others_active, others)) = (self.siblings, self.others);
        if self.is_complete == Some(true) {
            return false;
        }
        // A link that is up has a cable and another end: it is in use, whatever its siblings do.
        let siblings_say = self.initialising || siblings as f64 >= enough && active == siblings;
        if others == 0 {
            // No other node has this port: one that is disabled and never was up may be so on purpose.
            return siblings_say && (self.fell || !self.disabled);
        }
        // A port that several other nodes do not use either is unused by design; one whose link is up is not, unless
        // most nodes do not use it.
        let is_used = if self.initialising {
            others_active * 2 > others
        } else {
            others_active as f64 >= others as f64 * NEARLY_ALL
        };
        if !is_used {
            return false;
        }
        let others_say = others as f64 >= enough;
        if self.disabled && !self.fell {
            return siblings_say && others_say && others_active == others;
        }
        siblings_say || others_say
    }
}

/// The ports of a node that report a state, by kind: how many are active, and how many there are.
pub(super) struct SiblingCounts(HashMap<u32, (usize, usize)>);

impl SiblingCounts {
    /// Counts the ports of a node.
    pub(super) fn of(cluster: &Cluster, node: &Node) -> Self {
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        for row in node.device_rows(DeviceClass::Port) {
            let Some(kind) = cluster.topology().port_kind(*row) else { continue };
            let Some(is_active) = is_port_active(cluster, *row) else { continue };
            let (active, all) = counts.entry(kind).or_default();
            *active += usize::from(is_active);
            *all += 1;
        }
        Self(counts)
    }

    /// Returns how many siblings of a port that is down are active, and how many there are.
    fn count_siblings(&self, cluster: &Cluster, row: u32) -> (usize, usize) {
        let kind = cluster.topology().port_kind(row);
        let counts = kind.and_then(|kind| self.0.get(&kind));
        let (active, all) = counts.copied().unwrap_or_default();
        (active, all.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: PortSurroundings = PortSurroundings {
        siblings: (3, 3),
        others: (7, 7),
        is_complete: Some(false),
        fell: false,
        disabled: false,
        initialising: false,
    };

    #[test]
    fn port_whose_link_is_up_is_expected_active_whatever_its_siblings_do() {
        let waits = PortSurroundings { others: (0, 0), initialising: true, ..DOWN };
        for siblings in [(0, 0), (0, 1), (6, 7), (7, 7)] {
            let port = PortSurroundings { siblings, ..waits };
            assert!(port.expects_active(2.0), "{siblings:?}");
            assert!(PortSurroundings { others: (1, 1), ..port }.expects_active(2.0));
            let unused = PortSurroundings { others: (0, 7), ..port };
            assert!(!unused.expects_active(2.0), "no node uses it");
            assert!(!PortSurroundings { is_complete: Some(true), ..port }.expects_active(2.0));
        }
    }

    #[test]
    fn port_that_several_nodes_do_not_use_is_unused_by_design() {
        for others in [(0, 1), (0, 7), (3, 7), (1, 2), (4, 7), (2, 3)] {
            let unused = PortSurroundings { others, ..DOWN };
            assert!(!unused.expects_active(2.0), "{others:?}");
            assert!(!PortSurroundings { fell: true, disabled: true, ..unused }.expects_active(2.0));
        }
        for others in [(1, 1), (3, 3), (6, 7), (12, 15)] {
            assert!(PortSurroundings { others, ..DOWN }.expects_active(1.0), "{others:?}");
        }
        let waits = PortSurroundings { others: (4, 7), initialising: true, ..DOWN };
        assert!(waits.expects_active(2.0), "its link is up");
    }

    #[test]
    fn port_more_than_other_nodes_have_is_not_missed() {
        assert!(!PortSurroundings { is_complete: Some(true), ..DOWN }.expects_active(2.0));
        assert!(PortSurroundings { is_complete: None, ..DOWN }.expects_active(2.0));
    }

    #[test]
    fn port_is_expected_up_by_its_siblings_or_other_nodes() {
        let alone = PortSurroundings { others: (0, 0), ..DOWN };
        assert!(alone.expects_active(2.0));
        assert!(!PortSurroundings { siblings: (2, 3), ..alone }.expects_active(2.0));
        assert!(!PortSurroundings { siblings: (1, 1), ..alone }.expects_active(2.0));
        let only_others = PortSurroundings { siblings: (0, 0), ..DOWN };
        assert!(only_others.expects_active(2.0));
        assert!(!PortSurroundings { others: (1, 1), ..only_others }.expects_active(2.0));
    }

    #[test]
    fn disabled_port_counts_if_it_was_up_once_or_all_others_are() {
        let off = PortSurroundings { disabled: true, ..DOWN };
        assert!(off.expects_active(2.0), "all others use it");
        assert!(
            !PortSurroundings { others: (6, 7), ..off }.expects_active(2.0),
            "it is off elsewhere too"
        );
        assert!(PortSurroundings { others: (6, 7), fell: true, ..off }.expects_active(2.0));
        let alone = PortSurroundings { others: (0, 0), ..off };
        assert!(!alone.expects_active(2.0));
        assert!(PortSurroundings { fell: true, ..alone }.expects_active(2.0));
    }
}
