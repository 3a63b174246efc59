//! Nodes as answers: a line for each, and one of them in full.

use std::{cmp::Reverse, collections::HashMap};

use gaunt_schema::{Class, GpuState, MetricId, Safe, catalogue::gpu, unit::Kind};

use super::Owner;
use crate::{
    answer::{DeviceDetail, NodeDetail, NodeLine, NodeList, NodeState, Series},
    cluster::{Freshness, Node, NodeId},
};

/// The most jobs that are named in a line.
const MAX_JOBS: usize = 8;

/// The most devices of one class on a node's page: an exporter that asks a whole fabric speaks for all ports of all its
/// switches, and the largest switch has 512.
const MAX_SHOWN: usize = 512;

/// Points of each series of a node in full: as many as a small graph shows. `history` tells all.
const DETAIL: usize = 120;

/// The classes of a node's devices in the order of its page.
const ORDER: [Class; 16] = [
    Class::Node,
    Class::Gpu,
    Class::Nvlink,
    Class::Xid,
    Class::Mig,
    Class::Process,
    Class::Port,
    Class::Netdev,
    Class::Disk,
    Class::Mount,
    Class::Sensor,
    Class::SwitchPort,
    Class::Service,
    Class::Collective,
    Class::Probe,
    Class::Collector,
];

/// What decides how bad a node is: what it loses, whether it is blamed, how fresh it is, and then its name.
pub(super) type Badness = (Reverse<u64>, bool, Reverse<NodeState>, Safe);

impl Owner {
    pub(super) fn node_list(&self) -> NodeList {
        let blamed = self.blamed();
        let mut order: Vec<_> =
            self.cluster.nodes().map(|(id, node)| (self.badness(node, &blamed), id)).collect();
        order.sort();
        let lines =
            order.iter().filter_map(|(_, id)| Some(self.line(self.cluster.node(*id)?, &blamed)));
        let nodes: Vec<NodeLine> = lines.collect();
        let total = nodes.len() as u32;
        NodeList { at: self.sight().now(), nodes, total, matched: total }
    }

    pub(super) fn node_detail(&self, name: &Safe) -> Option<NodeDetail> {
        let (id, node) = self.cluster.named(name)?;
        let devices = ORDER
            .into_iter()
            .flat_map(|class| node.rows(class).iter().take(MAX_SHOWN).map(move |row| (class, *row)))
            .filter_map(|(class, row)| self.device(node, class, row));
        let about = |finding: &&crate::answer::Finding| finding.entity.node.as_ref() == Some(name);
        let speaks = |target: &&crate::cluster::Scraped| {
            target.node == Some(id) || target.target.node.as_ref() == Some(name)
        };
        let now = self.then.is_none();
        Some(NodeDetail {
            at: self.sight().now(),
            line: self.line(node, &self.blamed()),
            clock_skew_ms: node.clock_skew_ms.filter(|_| now),
            devices: devices.collect(),
            history_step_ms: self.cluster.period().as_millis() as u64,
            findings: self.findings.findings.iter().filter(about).cloned().collect(),
            targets: self
                .cluster
                .targets()
                .iter()
                // What became of scrapes in the past is not kept.
                .filter(|target| now && speaks(target))
                .map(|t| self.target_line(t))
                .collect(),
        })
    }

    /// The worst finding of each node that is blamed, by its position in the list of findings.
    pub(super) fn blamed(&self) -> HashMap<Safe, usize> {
        let mut blamed = HashMap::new();
        for (place, finding) in self.findings.findings.iter().enumerate() {
            if let Some(node) = &finding.entity.node {
                blamed.entry(node.clone()).or_insert(place);
            }
        }
        blamed
    }

    pub(super) fn badness(&self, node: &Node, blamed: &HashMap<Safe, usize>) -> Badness {
        let lost = self.lost_parts(node);
        (
            Reverse(lost),
            !blamed.contains_key(&node.name),
            Reverse(self.state(node)),
            node.name.clone(),
        )
    }

    /// Ten-thousandths of lost GPUs on a node: whole numbers, by which nodes are ordered.
    pub(super) fn lost_parts(&self, node: &Node) -> u64 {
        node.rows(Class::Gpu).iter().map(|row| u64::from(self.gpu_loss(*row).parts())).sum()
    }

    pub(super) fn state(&self, node: &Node) -> NodeState {
        if let Some(picture) = &self.picture {
            return picture.ailing.get(&node.name).copied().unwrap_or(NodeState::Live);
        }
        match self.cluster.freshness(node) {
            Freshness::Live => NodeState::Live,
            Freshness::Stale => NodeState::Stale,
            Freshness::Down => NodeState::Down,
        }
    }

    pub(super) fn line(&self, node: &Node, blamed: &HashMap<Safe, usize>) -> NodeLine {
        let (gpus, ports) = (node.rows(Class::Gpu), node.rows(Class::Port));
        let sight = self.sight();
        let values = |metric| gpus.iter().filter_map(move |row| sight.value(metric, *row));
        let (busy, known) = values(gpu::UTILIZATION).fold((0.0, 0), |(sum, n), v| (sum + v, n + 1));
        let mut jobs: Vec<Safe> =
            gpus.iter().filter_map(|row| self.cluster.job(*row).cloned()).collect();
        jobs.sort();
        jobs.dedup();
        jobs.truncate(MAX_JOBS);
        let active = ports.iter().filter(|row| sight.is_active(**row) == Some(true));
        let finding = blamed.get(&node.name).and_then(|place| self.findings.findings.get(*place));
        NodeLine {
            node: node.name.clone(),
            state: self.state(node),
            age_ms: node.sampled.and_then(|at| Some(sight.age(at)?.as_millis() as u64)),
            gpu_states: gpus.iter().map(|row| self.state_of(*row).code()).collect(),
            lost_gpus: self.lost_gpus(gpus),
            utilization_ratio: (known > 0).then(|| busy / f64::from(known)),
            power_watts: values(gpu::POWER).reduce(|a, b| a + b),
            ports: (active.count() as u32, ports.len() as u32),
            jobs,
            finding: finding.map(|finding| finding.kind),
        }
    }

    fn device(&self, node: &Node, class: Class, row: u32) -> Option<DeviceDetail> {
        let entry = self.cluster.device(class, row)?;
        let sight = self.sight();
        let measured = || {
            MetricId::all().filter(move |id| id.row().class == class && id.row().kind != Kind::Info)
        };
        let state: Option<GpuState> = (class == Class::Gpu).then(|| self.state_of(row));
        Some(DeviceDetail {
            class,
            name: Safe::new(&entry.device.to_string()),
            labels: entry
                .device
                .labels()
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect(),
            info: entry.infos().map(|(id, labels)| (id.key(), labels)).collect(),
            state,
            values: measured().filter_map(|id| Some((id.key(), sight.reading(id, row)?))).collect(),
            rates: measured().filter_map(|id| Some((id.key(), sight.rate(id, row)?))).collect(),
            history: measured()
                .filter_map(|id| {
                    let points = sight.past(id, node, row, DETAIL)?;
                    Some(Series { metric: id.key(), points })
                })
                .collect(),
        })
    }

    /// The nodes of these numbers in a line each.
    pub(super) fn lines(
        &self,
        ids: impl Iterator<Item = NodeId>,
        blamed: &HashMap<Safe, usize>,
    ) -> Vec<NodeLine> {
        ids.filter_map(|id| Some(self.line(self.cluster.node(id)?, blamed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_class_of_a_node() {
        for class in Class::ALL {
            assert_eq!(ORDER.contains(&class), class != Class::Fleet, "{class:?}");
        }
    }
}
