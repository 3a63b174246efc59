//! What was learned, as it outlives a restart: a fault that lasts over one must not be taken for usual by who looks anew,
//! and what a detector compares with must be there at its first look.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use gaunt_schema::{DeviceClass, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{
    DetectedFinding, GpuTracker, Judge, baseline::Baseline, clock_drift::ClockDrift,
    gpu_errors::NodeErrorSnapshot, gpu_signals::GpuAverages, host_averages::HostAverages,
    port_down::LastActive,
};
use crate::cluster::{Cluster, MAX_TARGETS, Node, NodeId};

/// What was learned of a node that is never read again is forgotten after so long: who is away for repair comes back
/// within a week.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// A device of a node that is read is waited for so long after a restart; then it was taken out, or has another name.
const RECALLED: Duration = Duration::from_hours(24);

/// Jobs of one node that are kept.
const MAX_JOBS: usize = 64;

/// What was learned of everything that is known, by names: rows mean nothing after a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BaselineSnapshot {
    nodes: HashMap<SanitizedText, NodeBaselines>,
}

/// What was learned of a node and its devices, by their keys. Maps that are not in the files of older versions are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct NodeBaselines {
    host: Option<[Baseline; 4]>,
    /// With the least power that each was seen to draw.
    gpus: HashMap<SanitizedText, ([Baseline; 4], Option<f32>)>,
    /// With the highest rate that each was seen at; keys are device and port.
    ports: HashMap<SanitizedText, ([Baseline; 3], Option<f64>)>,
    /// Ports that were active, with what they said then.
    #[serde(skip_serializing_if = "HashMap::is_empty")]
    active: HashMap<SanitizedText, LastActive>,
    /// The clock of each GPU beside its peers'.
    #[serde(skip_serializing_if = "HashMap::is_empty")]
    drifts: HashMap<SanitizedText, ClockDrift>,
    /// The most NVLinks that each GPU was seen to have.
    #[serde(skip_serializing_if = "HashMap::is_empty")]
    nvlinks: HashMap<SanitizedText, u16>,
    /// Errors that were counted before, and GPUs that are broken; none if nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<NodeErrorSnapshot>,
    /// The addresses of its targets.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    addresses: BTreeSet<SanitizedText>,
    /// The jobs on it: a node that is not read since a restart cannot say them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    jobs: BTreeSet<SanitizedText>,
    /// When it was last among the nodes; none in the files of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<UnixMs>,
    /// Devices of the node when it was last looked for what is still to be recalled.
    #[serde(skip)]
    tried: usize,
}

impl BaselineSnapshot {
    /// What the judge has learned by now.
    pub(super) fn of(judge: &Judge, cluster: &Cluster) -> Self {
        let mut usual = Self::default();
        // What was not seen since a restart is not forgotten for another one.
        usual.nodes.clone_from(&judge.restored_baselines.nodes);
        for (id, node) in cluster.sorted_nodes() {
            let of = usual.nodes.entry(node.name.clone()).or_default();
            of.snapshot_node(judge, cluster, id, node);
        }
        for (row, own) in judge.links.learned_baselines() {
            if let Some((node, key)) = port_key(cluster, row)
                && let Some(of) = usual.nodes.get_mut(&node)
            {
                of.ports.insert(key, own);
            }
        }
        for (row, active) in judge.ports.snapshot_active() {
            if let Some((node, key)) = port_key(cluster, row)
                && let Some(of) = usual.nodes.get_mut(&node)
            {
                of.active.insert(key, active);
            }
        }
        usual.drop_expired(cluster.now());
        usual
    }

    /// Forgets nodes that were not seen for long, and the oldest of too many.
    fn drop_expired(&mut self, now: UnixMs) {
        self.nodes.retain(|_, of| now.duration_since(*of.seen.get_or_insert(now)) <= KEPT);
        if self.nodes.len() > MAX_TARGETS {
            let mut ages: Vec<_> =
                self.nodes.iter().map(|(name, of)| (of.seen, name.clone())).collect();
            ages.sort();
            for (_, name) in ages.into_iter().take(self.nodes.len() - MAX_TARGETS) {
                self.nodes.remove(&name);
            }
        }
    }

    /// Gives every device that is seen for the first time what was learned of it before. The pages of a node's targets come
    /// one after the other, and so do its devices.
    pub(super) fn restore_devices(judge: &mut Judge, cluster: &Cluster) {
        if judge.restored_baselines.nodes.is_empty() {
            return;
        }
        let mut before = std::mem::take(&mut judge.restored_baselines);
        let since =
            judge.first_step.map_or(Duration::ZERO, |began| cluster.now().duration_since(began));
        for (id, node) in cluster.sorted_nodes() {
            let Some(of) = before.nodes.get_mut(&node.name) else { continue };
            // What a finding is open about may still come back.
            let named =
                |finding: &DetectedFinding| finding.entity.node.as_ref() == Some(&node.name);
            if since > RECALLED && judge.tracker.open_ids_where(named).is_empty() {
                before.nodes.remove(&node.name);
                continue;
            }
            let devices = [DeviceClass::Gpu, DeviceClass::Port, DeviceClass::Xid]
                .map(|class| node.device_rows(class).len());
            let devices = devices.into_iter().sum();
            // Devices come with the first page.
            if devices == of.tried {
                continue;
            }
            of.tried = devices;
            of.restore_node(judge, cluster, id, node);
            if of.is_empty() {
                before.nodes.remove(&node.name);
            }
        }
        judge.restored_baselines = before;
    }

    /// The GPUs of each node that were known before, by its name.
    pub(super) fn gpus_by_node(&self) -> HashMap<SanitizedText, HashSet<SanitizedText>> {
        let boards = |of: &NodeBaselines| of.gpus.keys().cloned().collect();
        self.nodes.iter().map(|(name, of)| (name.clone(), boards(of))).collect()
    }

    /// The jobs that were on a node before, which was not read since; none of a node that was not known.
    pub(super) fn jobs(&self, node: &SanitizedText) -> Option<&BTreeSet<SanitizedText>> {
        self.nodes.get(node).map(|of| &of.jobs)
    }

    /// The nodes that targets spoke for before, by the targets' addresses: who is not read since cannot say his name.
    pub(super) fn nodes_by_address(&self) -> HashMap<SanitizedText, SanitizedText> {
        let named = |(name, of): (&SanitizedText, &NodeBaselines)| {
            of.addresses.iter().map(|address| (address.clone(), name.clone())).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(named).collect()
    }
}

impl NodeBaselines {
    fn snapshot_node(&mut self, judge: &Judge, cluster: &Cluster, id: NodeId, node: &Node) {
        self.seen = Some(cluster.now());
        let targets =
            node.sources.iter().filter_map(|speaker| cluster.target_by_id(speaker.target));
        self.addresses = targets.map(|scraped| scraped.target.address.clone()).collect();
        let gpus = node.device_rows(DeviceClass::Gpu).iter();
        self.jobs =
            gpus.filter_map(|row| cluster.job_of_gpu(*row).cloned()).take(MAX_JOBS).collect();
        if let Some(host) = judge.hosts.get(&id).filter(|host| host.is_read()) {
            self.host = Some(host.learned_baselines());
        }
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(key) = device_key(cluster, DeviceClass::Gpu, *row) else { continue };
            let Some(gpu) = judge.gpus.get(*row as usize) else { continue };
            let own = gpu.averages.learned_baselines();
            if own.0.iter().any(|usual| !usual.is_new()) {
                self.gpus.insert(key.clone(), own);
            }
            if !gpu.drift.is_new() {
                self.drifts.insert(key.clone(), gpu.drift);
            }
            if let Some(most) = judge.nvlinks.max_links(*row) {
                self.nvlinks.insert(key.clone(), most);
            }
        }
        if judge.health_read_at.contains_key(&id) {
            let errors = self.errors.get_or_insert_default();
            judge.health.snapshot_errors(cluster, node, errors);
        }
    }

    /// Gives the devices of a node what was learned of them; what is given is left to them.
    fn restore_node(&mut self, judge: &mut Judge, cluster: &Cluster, id: NodeId, node: &Node) {
        if let Some(usual) = self.host.take() {
            judge.hosts.insert(id, HostAverages::from_baselines(usual));
        }
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(key) = device_key(cluster, DeviceClass::Gpu, *row) else { continue };
            let (own, drift) = (self.gpus.remove(key), self.drifts.remove(key));
            if let (true, Some(gpu)) =
                (own.is_some() || drift.is_some(), judge.gpus.get_mut(*row as usize))
            {
                let averages = own.map(GpuAverages::from_baselines).unwrap_or_default();
                let (node, drift) = (Some(node.name.clone()), drift.unwrap_or_default());
                *gpu = GpuTracker { node, averages, drift, ..GpuTracker::default() };
            }
            if let Some(most) = self.nvlinks.remove(key) {
                judge.nvlinks.restore_max_links(*row, most);
            }
        }
        for row in node.device_rows(DeviceClass::Port) {
            let Some((_, key)) = port_key(cluster, *row) else { continue };
            if let Some(own) = self.ports.remove(&key) {
                judge.links.restore_port(&node.name, *row, own);
            }
            if let Some(active) = self.active.remove(&key) {
                judge.ports.restore_port(&node.name, *row, active, cluster.now());
            }
        }
        if let Some(errors) = &mut self.errors {
            // What was counted before is no news, and what was counted since is.
            judge.health_read_at.entry(id).or_insert(UnixMs(i64::MIN));
            judge.health.restore_errors(cluster, node, errors);
        }
    }

    fn is_empty(&self) -> bool {
        self.host.is_none()
            && self.gpus.is_empty()
            && self.ports.is_empty()
            && self.active.is_empty()
            && self.drifts.is_empty()
            && self.nvlinks.is_empty()
            && self.errors.as_ref().is_none_or(NodeErrorSnapshot::is_empty)
    }
}

fn device_key(cluster: &Cluster, class: DeviceClass, row: u32) -> Option<&SanitizedText> {
    cluster.device_at(class, row)?.device.key.first()
}

/// The node of a port, and its device and number in one word.
fn port_key(cluster: &Cluster, row: u32) -> Option<(SanitizedText, SanitizedText)> {
    let entry = cluster.device_at(DeviceClass::Port, row)?;
    let name = cluster.node_by_id(entry.node)?.name.clone();
    Some((name, SanitizedText::new(&entry.device.key.join("/"))))
}
