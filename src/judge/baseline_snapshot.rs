//! Saved baselines: over a restart, a lasting fault must not become the baseline, and detectors need their baselines at
//! the first step.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use gaunt_schema::{SanitizedText, UnixMs};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    baseline::Baseline, clock_drift::ClockDrift, evidence_sum::LevelEvidence,
    gang_evidence::JobEvidenceSnapshot, gpu_errors::NodeErrorSnapshot,
    host_averages::HostBaselines, host_evidence::SavedHostEvidence, link_averages::PortBaselines,
    name_map::NameMap, port_trackers::LastActive, usual_pressure::UsualPressure,
};
use gaunt_cluster::MAX_TARGETS;

/// Retention of the baselines of a node that is not read any more: a node in repair comes back within a week.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// The baselines of all known devices, by name: rows are not valid after a restart. The same baselines are saved as the same
/// bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BaselineSnapshot {
    pub(super) nodes: BTreeMap<SanitizedText, Box<NodeBaselines>>,
    /// The evidence about jobs; empty in the files of older versions, as is what follows.
    pub(super) jobs: JobEvidenceSnapshot,
    /// How far the pressure of hosts usually rises.
    pub(super) usual_pressure: UsualPressure,
}

/// The baselines of a node and its devices, by key. Maps that files of older versions lack are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeBaselines {
    #[serde(deserialize_with = "host_baselines")]
    pub(super) host: Option<HostBaselines>,
    /// With the lowest power that was seen of each.
    pub(super) gpus: NameMap<([Baseline; 4], Option<f32>)>,
    /// With the highest rate that was seen of each; keys are device and port.
    pub(super) ports: NameMap<PortBaselines>,
    /// Ports that were active, with their values of that time.
    #[serde(skip_serializing_if = "NameMap::is_empty")]
    pub(super) active: NameMap<LastActive>,
    /// The lowest clock at which each GPU usually works, in hertz.
    #[serde(skip_serializing_if = "NameMap::is_empty")]
    pub(super) clocks: NameMap<f32>,
    /// The clock of each GPU relative to its peers.
    #[serde(skip_serializing_if = "NameMap::is_empty")]
    pub(super) drifts: NameMap<ClockDrift>,
    /// Evidence that a GPU idles while others wait, and that its clock is lower than theirs.
    #[serde(skip_serializing_if = "NameMap::is_empty")]
    pub(super) shifts: NameMap<[LevelEvidence; 2]>,
    /// Evidence that the pressure of the host has risen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pressure: Option<SavedHostEvidence>,
    /// The most NVLinks that were seen of each GPU.
    #[serde(skip_serializing_if = "NameMap::is_empty")]
    pub(super) nvlinks: NameMap<u16>,
    /// The former line rates of network devices that are slower now.
    #[serde(skip_serializing_if = "NameMap::is_empty")]
    pub(super) netdevs: NameMap<f32>,
    /// Network devices that stand for a port and had a carrier, with their values of that time.
    #[serde(skip_serializing_if = "NameMap::is_empty")]
    pub(super) netdev_links: NameMap<LastActive>,
    /// Earlier error counts and broken GPUs; none if they were never read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) errors: Option<NodeErrorSnapshot>,
    /// The addresses of its targets.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) addresses: BTreeSet<SanitizedText>,
    /// The jobs on it: a node that was not read since a restart does not report them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) jobs: BTreeSet<SanitizedText>,
    /// When it was last among the nodes; none in the files of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seen: Option<UnixMs>,
    /// The number of the node's devices at the last attempt to restore the rest.
    #[serde(skip)]
    pub(super) tried: usize,
}

/// Reads the baselines of a host; those of older versions lack the last ones.
fn host_baselines<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HostBaselines>, D::Error> {
    let saved = Option::<Vec<Baseline>>::deserialize(from)?;
    Ok(saved.map(|saved| std::array::from_fn(|at| saved.get(at).copied().unwrap_or_default())))
}

impl BaselineSnapshot {
    /// Drops nodes that were not seen for long, and the oldest beyond the maximum.
    pub(super) fn drop_expired(&mut self, now: UnixMs) {
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

    /// Returns the GPUs of each node from before, by node name.
    pub(super) fn gpus_by_node(&self) -> HashMap<SanitizedText, HashSet<SanitizedText>> {
        let boards = |of: &NodeBaselines| of.gpus.keys().cloned().collect();
        self.nodes.iter().map(|(name, of)| (name.clone(), boards(of))).collect()
    }

    /// Returns the earlier jobs of a node that was not read since; none if the node is unknown.
    pub(super) fn jobs(&self, node: &SanitizedText) -> Option<&BTreeSet<SanitizedText>> {
        self.nodes.get(node).map(|of| &of.jobs)
    }

    /// Returns the earlier node of each target, by the target's address: a target that was not read since reports no
    /// name.
    pub fn nodes_by_address(&self) -> HashMap<SanitizedText, SanitizedText> {
        let named = self.nodes.iter().flat_map(|(name, of)| {
            of.addresses.iter().map(|address| (address.clone(), name.clone()))
        });
        named.collect()
    }
}

impl NodeBaselines {
    /// Whether all of it is restored.
    pub(super) fn is_empty(&self) -> bool {
        self.host.is_none()
            && self.gpus.is_empty()
            && self.ports.is_empty()
            && self.active.is_empty()
            && self.clocks.is_empty()
            && self.drifts.is_empty()
            && self.nvlinks.is_empty()
            && self.netdevs.is_empty()
            && self.netdev_links.is_empty()
            && self.shifts.is_empty()
            && self.pressure.is_none()
            && self.errors.as_ref().is_none_or(NodeErrorSnapshot::is_empty)
    }
}
