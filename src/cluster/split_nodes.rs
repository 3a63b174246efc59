//! Split nodes: pairs of nodes that look like one machine whose pages were not joined, because what would join them is
//! ambiguous.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use gaunt_schema::{
    DeviceClass, MetricId, SanitizedText,
    catalogue::host::{CPU_BUSY, CPUS, LOAD, MEMORY_TOTAL},
};

use super::{
    Cluster,
    cluster_node::{Node, NodeId, host_of},
    name_spelling::short_name,
};

/// What every exporter of host metrics reports at least one of.
const HOST_METRICS: [MetricId; 4] = [MEMORY_TOTAL, LOAD, CPUS, CPU_BUSY];

/// The nodes with GPUs only and those with host metrics only that have one name or one address.
#[derive(Default)]
struct HalfNodes {
    with_gpus: Vec<NodeId>,
    with_host: Vec<NodeId>,
}

impl Cluster {
    /// Whether current pages report the host of a node: its CPUs, memory or load.
    pub fn has_host_metrics(&self, node: &Node) -> bool {
        let Some(row) = node.own_row() else { return false };
        HOST_METRICS.iter().any(|metric| self.current_value(*metric, row).is_some())
    }

    /// Nodes with GPUs and without host metrics, each with a node that has host metrics and no GPUs and looks like the
    /// same machine: their names differ only in case or domain, or targets of both are at one host.
    pub fn split_nodes(&self) -> BTreeSet<(NodeId, NodeId)> {
        let mut halves: BTreeMap<(bool, SanitizedText), HalfNodes> = BTreeMap::new();
        for (id, node) in self.sorted_nodes() {
            let has_gpus = node.last_fed(DeviceClass::Gpu).is_some();
            if has_gpus == self.has_host_metrics(node) {
                continue;
            }
            let targets = node.sources.iter().filter_map(|source| self.target_by_id(source.target));
            // Where the operator names a node, its address says nothing.
            let unnamed = targets.filter(|tracked| tracked.target.node.is_none());
            let hosts: BTreeSet<_> = unnamed.map(|it| host_of(&it.target.address)).collect();
            let hosts = hosts.into_iter().filter(|host| !is_local(host)).map(|host| (true, host));
            for key in hosts.chain([(false, short_name(&node.name))]) {
                let half = halves.entry(key).or_default();
                let ids = if has_gpus { &mut half.with_gpus } else { &mut half.with_host };
                ids.push(id);
            }
        }
        // Many nodes at one host are behind a proxy.
        let pair = |half: HalfNodes| match (&half.with_gpus[..], &half.with_host[..]) {
            ([gpus], [host]) => Some((*gpus, *host)),
            _ => None,
        };
        halves.into_values().filter_map(pair).collect()
    }
}

/// Whether a host is this machine: behind a tunnel to it may be any other one.
fn is_local(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Device, Dialect, Reading, catalogue::gpu};

    use super::*;
    use crate::tests::{new_cluster, node_report, send_page};

    /// The pairs of a cluster of these targets: an address, the name on its page, and whether the page has GPUs.
    fn pairs_of(pages: &[(&str, &str, bool)]) -> Vec<(String, String)> {
        let targets: Vec<_> = pages
            .iter()
            .enumerate()
            .map(|(id, (address, ..))| (id as u32, *address, None))
            .collect();
        let mut cluster = new_cluster(&targets);
        for (id, (_, name, has_gpus)) in pages.iter().enumerate() {
            let (dialect, samples) = if *has_gpus {
                (Dialect::NvidiaSmi, (Device::new_gpu(0), gpu::POWER, Reading::of(70.0)))
            } else {
                (Dialect::NodeExporter, (Device::new_node(), LOAD, Reading::of(1.0)))
            };
            send_page(&mut cluster, id as u32, 1_000, dialect, node_report(name, None, &[samples]));
        }
        let name = |id| cluster.node_by_id(id).unwrap().name.to_string();
        cluster.split_nodes().into_iter().map(|(gpus, host)| (name(gpus), name(host))).collect()
    }

    #[test]
    fn halves_of_one_name_or_host_are_a_pair_unless_there_are_several() {
        let pair = |gpus: &str, host: &str| vec![(gpus.to_owned(), host.to_owned())];
        // Two domains of one short name are not joined.
        let names = [("10.0.0.1:9835", "a.one", true), ("10.0.0.2:9100", "a.two", false)];
        assert_eq!(pairs_of(&names), pair("a.one", "a.two"));
        let apart = [("10.0.0.1:9835", "a", true), ("10.0.0.2:9100", "b", false)];
        assert_eq!(pairs_of(&apart), []);
        // Behind a proxy are many machines, and behind a tunnel to this one any other.
        let proxy = [
            ("10.0.0.1:9835", "a", true),
            ("10.0.0.1:9836", "b", true),
            ("10.0.0.1:9100", "c", false),
        ];
        assert_eq!(pairs_of(&proxy), []);
        let tunnel = [("127.0.0.1:9835", "a", true), ("127.0.0.1:9100", "b", false)];
        assert_eq!(pairs_of(&tunnel), []);
        // A machine with both is whole.
        let whole = [("10.0.0.1:9835", "a", true), ("10.0.0.1:9100", "a", false)];
        assert_eq!(pairs_of(&whole), []);
    }
}
