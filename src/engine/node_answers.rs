//! Answers about nodes: a row for each, and the details of one.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use gaunt_schema::{
    DeviceClass, FindingKind, GpuState, MetricId, NaturalName, SanitizedText, catalogue::gpu,
    natural_order, unit::MetricKind,
};

use super::view::View;
use gaunt_api::{DeviceDetail, MetricSeries, NodeDetail, NodeLine, NodeList, NodeState};
use gaunt_cluster::{Node, NodeFreshness, NodeId};

/// Maximum number of jobs in a row.
const MAX_JOBS: usize = 8;

/// Maximum number of devices of one class in a node's details: an exporter that queries a whole fabric reports all
/// ports of all its switches, and the largest switch has 512.
const MAX_SHOWN: usize = 512;

/// Points of each series in a node's details: as many as a small graph shows. `history` returns all of them.
const DETAIL: usize = 120;

/// The device classes of a node's details, in order.
const ORDER: [DeviceClass; 17] = [
    DeviceClass::Node,
    DeviceClass::Gpu,
    DeviceClass::Nvlink,
    DeviceClass::Xid,
    DeviceClass::Mig,
    DeviceClass::Process,
    DeviceClass::Port,
    DeviceClass::Netdev,
    DeviceClass::Disk,
    DeviceClass::Mount,
    DeviceClass::Sensor,
    DeviceClass::SwitchPort,
    DeviceClass::Service,
    DeviceClass::Collective,
    DeviceClass::Rank,
    DeviceClass::Probe,
    DeviceClass::Collector,
];

/// Sort key, the worst node first: its loss, whether it is blamed, how fresh it is, and then its name.
pub(super) type NodeSortKey = (Reverse<u64>, bool, Reverse<NodeState>, NaturalName);

impl View<'_> {
    pub(super) fn node_list(&self) -> NodeList {
        let blamed = self.blamed_nodes();
        let mut order: Vec<_> = self
            .cluster
            .sorted_nodes()
            .map(|(id, node)| (self.node_sort_key(node, &blamed), id))
            .collect();
        order.sort();
        let lines = order
            .iter()
            .filter_map(|(_, id)| Some(self.node_line(self.cluster.node_by_id(*id)?, &blamed)));
        let nodes: Vec<NodeLine> = lines.collect();
        let total = nodes.len() as u32;
        NodeList { at: self.at, nodes, total, matched: total }
    }

    pub(super) fn node_detail(&self, name: &SanitizedText) -> Option<NodeDetail> {
        let (id, node) = self.cluster.node_by_name(name)?;
        let devices = ORDER
            .into_iter()
            .flat_map(|class| {
                node.device_rows(class).iter().take(MAX_SHOWN).map(move |row| (class, *row))
            })
            .filter_map(|(class, row)| self.device_detail(node, class, row));
        let line = self.node_line(node, &self.blamed_nodes());
        let speaks = |target: &&gaunt_cluster::TrackedTarget| {
            target.node == Some(id) || target.target.node.as_ref() == Some(name)
        };
        let now = self.past.is_none();
        Some(NodeDetail {
            at: self.at,
            findings: self.concerned_findings(&line),
            line,
            clock_skew_ms: node.clock_skew_ms.filter(|_| now),
            devices: devices.collect(),
            history_step_ms: self.cluster.scrape_period().as_millis() as u64,
            targets: self
                .cluster
                .tracked_targets()
                .iter()
                // Past results of scrapes are not kept.
                .filter(|target| now && speaks(target))
                .map(|t| self.target_line(t))
                .collect(),
        })
    }

    /// The findings about a node, then those about something else that most of its loss is attributed to.
    fn concerned_findings(&self, line: &NodeLine) -> Vec<gaunt_api::Finding> {
        let is_own =
            |finding: &&gaunt_api::Finding| finding.entity.node.as_ref() == Some(&line.node);
        let is_victim = |finding: &&gaunt_api::Finding| {
            line.finding == Some(finding.kind)
                && !is_own(finding)
                && finding.victims.iter().any(|victim| match &victim.job {
                    Some(job) => line.jobs.contains(job),
                    None => victim.node.as_ref() == Some(&line.node),
                })
        };
        let all = &self.findings.findings;
        all.iter().filter(is_own).chain(all.iter().filter(is_victim)).cloned().collect()
    }

    /// The worst finding of each node that is blamed, by its position in the list of findings.
    pub(super) fn blamed_nodes(&self) -> HashMap<SanitizedText, usize> {
        let mut blamed = HashMap::new();
        for (index, finding) in self.findings.findings.iter().enumerate() {
            if let Some(node) = &finding.entity.node {
                blamed.entry(node.clone()).or_insert(index);
            }
        }
        blamed
    }

    pub(super) fn node_sort_key(
        &self,
        node: &Node,
        blamed: &HashMap<SanitizedText, usize>,
    ) -> NodeSortKey {
        // Tenths of a GPU, as lists show them: among equals the blamed node comes first, and noise moves no row.
        let lost = self.lost_parts(node) / 1_000;
        (
            Reverse(lost),
            !blamed.contains_key(&node.name),
            Reverse(self.node_state(node)),
            NaturalName(node.name.clone()),
        )
    }

    /// Lost GPUs of a node in ten-thousandths: an integer for sorting.
    pub(super) fn lost_parts(&self, node: &Node) -> u64 {
        node.device_rows(DeviceClass::Gpu)
            .iter()
            .map(|row| u64::from(self.gpu_loss(*row).lost_parts()))
            .sum()
    }

    pub(super) fn node_state(&self, node: &Node) -> NodeState {
        if let Some(snapshot) = self.past {
            return snapshot.not_live.get(&node.name).copied().unwrap_or(NodeState::Live);
        }
        match self.cluster.node_freshness(node) {
            NodeFreshness::Live => NodeState::Live,
            NodeFreshness::Stale => NodeState::Stale,
            NodeFreshness::Down => NodeState::Down,
        }
    }

    pub(super) fn node_line(
        &self,
        node: &Node,
        blamed: &HashMap<SanitizedText, usize>,
    ) -> NodeLine {
        let (gpus, ports) =
            (node.device_rows(DeviceClass::Gpu), node.device_rows(DeviceClass::Port));
        let values = |metric| gpus.iter().filter_map(move |row| self.metric_value(metric, *row));
        let (busy, known) = values(gpu::UTILIZATION).fold((0.0, 0), |(sum, n), v| (sum + v, n + 1));
        let mut jobs: Vec<SanitizedText> =
            gpus.iter().filter_map(|row| self.cluster.job_of_gpu(*row).cloned()).collect();
        jobs.sort_by(|a, b| natural_order(a, b));
        jobs.dedup();
        jobs.truncate(MAX_JOBS);
        let links = || ports.iter().filter_map(|row| self.is_active(*row));
        let active = links().filter(|is_active| *is_active).count();
        let finding = blamed.get(&node.name).and_then(|index| self.findings.findings.get(*index));
        NodeLine {
            node: node.name.clone(),
            state: self.node_state(node),
            age_ms: node.sampled.and_then(|at| Some(self.age_of(at)?.as_millis() as u64)),
            gpu_states: gpus.iter().map(|row| self.gpu_state(*row).letter_code()).collect(),
            lost_gpus: self.lost_gpus(gpus),
            utilization_ratio: (known > 0).then(|| busy / f64::from(known)),
            power_watts: values(gpu::POWER).reduce(|a, b| a + b),
            ports: (active as u32, links().count() as u32),
            jobs,
            finding: finding.map(|finding| finding.kind).or_else(|| self.loss_finding_of(gpus)),
        }
    }

    /// The kind of the finding that most of the loss of these GPUs is attributed to.
    pub(super) fn loss_finding_of(&self, gpus: &[u32]) -> Option<FindingKind> {
        let mut parts: BTreeMap<FindingKind, u64> = BTreeMap::new();
        for gpu in gpus {
            if let Some(kind) = self.loss_finding(*gpu) {
                *parts.entry(kind).or_default() += u64::from(self.gpu_loss(*gpu).lost_parts());
            }
        }
        parts.into_iter().max_by_key(|(_, parts)| *parts).map(|(kind, _)| kind)
    }

    fn device_detail(&self, node: &Node, class: DeviceClass, row: u32) -> Option<DeviceDetail> {
        let entry = self.cluster.device_at(class, row)?;
        let measured = || {
            MetricId::all_ids().filter(move |id| {
                id.catalogue_row().class == class && id.catalogue_row().kind != MetricKind::Info
            })
        };
        let state: Option<GpuState> = (class == DeviceClass::Gpu).then(|| self.gpu_state(row));
        Some(DeviceDetail {
            class,
            name: SanitizedText::new(&entry.device.to_string()),
            labels: entry
                .device
                .key_labels()
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect(),
            info: entry.info_series().map(|(id, labels)| (id.series_key(), labels)).collect(),
            state,
            values: measured()
                .filter_map(|id| Some((id.series_key(), self.last_reading(id, row)?)))
                .collect(),
            rates: measured()
                .filter_map(|id| Some((id.series_key(), self.counter_rate(id, row)?)))
                .collect(),
            history: measured()
                .filter_map(|id| {
                    let points = self.past_points(id, node, row, DETAIL)?;
                    Some(MetricSeries { metric: id.series_key(), points })
                })
                .collect(),
        })
    }

    /// The rows of these nodes.
    pub(super) fn node_lines(
        &self,
        ids: impl Iterator<Item = NodeId>,
        blamed: &HashMap<SanitizedText, usize>,
    ) -> Vec<NodeLine> {
        ids.filter_map(|id| Some(self.node_line(self.cluster.node_by_id(id)?, blamed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_page_has_every_device_class() {
        for class in DeviceClass::ALL {
            assert_eq!(ORDER.contains(&class), class != DeviceClass::Fleet, "{class:?}");
        }
    }
}
