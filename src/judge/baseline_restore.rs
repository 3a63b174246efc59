//! Collects the baselines of all devices for a snapshot, and restores each device from it when it is seen again.

use std::time::Duration;

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, Finding, SanitizedText, UnixMs};

use super::{
    BaselineSnapshot, JudgeState, baseline_snapshot::NodeBaselines, compact_value::NodeTag,
    evidence_sum::LevelEvidence, gpu_signals::GpuAverages, gpu_tracker::GpuTracker,
    host_averages::HostAverages,
};

/// A device of a node that is read is expected for so long after a restart; then it counts as removed or renamed.
const RECALLED: Duration = Duration::from_hours(24);

/// The maximum of saved jobs per node.
const MAX_JOBS: usize = 64;

/// Collects the present baselines of the judge.
pub(super) fn collect_baselines(judge: &JudgeState, cluster: &Cluster) -> BaselineSnapshot {
    let mut baseline = BaselineSnapshot::default();
    // What was not seen since a restart is kept for the next one.
    baseline.nodes.clone_from(&judge.restored_baselines.nodes);
    for (id, node) in cluster.sorted_nodes() {
        let of = baseline.nodes.entry(node.name.clone()).or_default();
        of.snapshot_node(judge, cluster, id, node);
    }
    for (row, own) in judge.links.learned_baselines() {
        if let Some((node, key)) = port_key(cluster, row)
            && let Some(of) = baseline.nodes.get_mut(&node)
        {
            of.ports.insert(key, own);
        }
    }
    for (row, active) in judge.ports.snapshot_active(cluster.now()) {
        if let Some((node, key)) = port_key(cluster, row)
            && let Some(of) = baseline.nodes.get_mut(&node)
        {
            of.active.insert(key, active);
        }
    }
    baseline.drop_expired(cluster.now());
    baseline.jobs = judge.gangs.snapshot_jobs(cluster.now());
    baseline.usual_pressure = judge.usual_pressure.clone();
    baseline
}

/// Restores the baselines of every device that is seen for the first time. The pages of a node's targets arrive one
/// after the other, and so do its devices.
pub(super) fn restore_devices(judge: &mut JudgeState, cluster: &Cluster) {
    if judge.restored_baselines.nodes.is_empty() {
        return;
    }
    let mut before = std::mem::take(&mut judge.restored_baselines);
    let since =
        judge.first_step.map_or(Duration::ZERO, |began| cluster.now().duration_since(began));
    for (id, node) in cluster.sorted_nodes() {
        let Some(of) = before.nodes.get_mut(&node.name) else { continue };
        // The blamed device of an open finding may still come back.
        let named = |finding: &Finding| finding.entity.node.as_ref() == Some(&node.name);
        if since > RECALLED && judge.tracker.open_ids_where(named).is_empty() {
            before.nodes.remove(&node.name);
            continue;
        }
        let devices = [DeviceClass::Gpu, DeviceClass::Port, DeviceClass::Netdev, DeviceClass::Xid]
            .map(|class| node.device_rows(class).len());
        let devices = devices.into_iter().sum();
        // Devices appear with the first page.
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

impl NodeBaselines {
    fn snapshot_node(&mut self, judge: &JudgeState, cluster: &Cluster, id: NodeId, node: &Node) {
        self.seen = Some(cluster.now());
        let targets =
            node.sources.iter().filter_map(|speaker| cluster.target_by_id(speaker.target));
        self.addresses = targets.map(|scraped| scraped.target.address.clone()).collect();
        let gpus = node.device_rows(DeviceClass::Gpu).iter();
        self.jobs =
            gpus.filter_map(|row| cluster.job_of_gpu(*row).cloned()).take(MAX_JOBS).collect();
        if let Some(host) = judge.hosts.get(id).filter(|host| host.is_read()) {
            self.host = Some(host.learned_baselines());
            self.pressure = Some(host.evidence.sums);
        }
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(key) = device_key(cluster, DeviceClass::Gpu, *row) else { continue };
            let Some(gpu) = judge.gpus.get(*row as usize) else { continue };
            let own = gpu.averages.learned_baselines();
            if own.0.iter().any(|baseline| !baseline.is_new()) {
                self.gpus.insert(key.clone(), own);
            }
            if let Some(clock) = gpu.averages.learned_clock() {
                self.clocks.insert(key.clone(), clock);
            }
            if !gpu.drift.is_new() {
                self.drifts.insert(key.clone(), gpu.drift);
            }
            let shifts = [gpu.idler, gpu.slower_clock];
            if shifts != <[LevelEvidence; 2]>::default() {
                self.shifts.insert(key.clone(), shifts);
            }
            if let Some(most) = judge.nvlinks.max_links(*row) {
                self.nvlinks.insert(key.clone(), most);
            }
        }
        for (name, best) in judge.netdevs.fallen_from(cluster, id, node) {
            self.netdevs.insert(name.clone(), best);
        }
        for (name, last) in judge.netdevs.snapshot_links(cluster, node) {
            self.netdev_links.insert(name.clone(), last);
        }
        if judge.health_read_at.contains_key(&id) {
            let errors = self.errors.get_or_insert_default();
            judge.health.snapshot_errors(cluster, node, errors);
        }
    }

    /// Restores the devices of a node and removes what is restored from the snapshot.
    fn restore_node(&mut self, judge: &mut JudgeState, cluster: &Cluster, id: NodeId, node: &Node) {
        if let Some(baseline) = self.host.take() {
            let mut host = HostAverages::from_baselines(baseline);
            host.evidence = self.pressure.take().unwrap_or_default().into();
            judge.hosts.insert(id, host);
        }
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(key) = device_key(cluster, DeviceClass::Gpu, *row) else { continue };
            let (own, drift) = (self.gpus.remove(key), self.drifts.remove(key));
            if let (true, Some(gpu)) =
                (own.is_some() || drift.is_some(), judge.gpus.get_mut(*row as usize))
            {
                let averages = own.map(GpuAverages::from_baselines).unwrap_or_default();
                let (node, drift) = (Some(NodeTag::of(&node.name)), drift.unwrap_or_default());
                *gpu = GpuTracker { node, averages, drift, ..GpuTracker::default() };
            }
            if let (Some([idler, slower_clock]), Some(gpu)) =
                (self.shifts.remove(key), judge.gpus.get_mut(*row as usize))
            {
                (gpu.idler, gpu.slower_clock) = (idler, slower_clock);
            }
            if let (Some(clock), Some(gpu)) =
                (self.clocks.remove(key), judge.gpus.get_mut(*row as usize))
            {
                gpu.averages.restore_clock(clock);
            }
            if let Some(most) = self.nvlinks.remove(key) {
                judge.nvlinks.restore_max_links(*row, most);
            }
        }
        for row in node.device_rows(DeviceClass::Netdev) {
            let Some(key) = device_key(cluster, DeviceClass::Netdev, *row) else { continue };
            if let Some(best) = self.netdevs.remove(key) {
                judge.netdevs.restore_best_rate(&node.name, (*row, key), best);
            }
            if let Some(last) = self.netdev_links.remove(key) {
                judge.netdevs.restore_link((id, node), (*row, key), last, cluster.now());
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
            // Errors that were counted before the restart are old, and those counted since are new.
            judge.health_read_at.entry(id).or_insert(UnixMs(i64::MIN));
            judge.health.restore_errors(cluster, node, errors);
        }
    }
}

fn device_key(cluster: &Cluster, class: DeviceClass, row: u32) -> Option<&SanitizedText> {
    cluster.device_at(class, row)?.device.key.first()
}

/// Returns the node of a port, and its device and port number in one key.
fn port_key(cluster: &Cluster, row: u32) -> Option<(SanitizedText, SanitizedText)> {
    let entry = cluster.device_at(DeviceClass::Port, row)?;
    let name = cluster.node_by_id(entry.node)?.name.clone();
    Some((name, SanitizedText::new(&entry.device.key.join("/"))))
}
