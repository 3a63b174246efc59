//! Frozen baselines: devices that open findings name do not learn, so that a fault never becomes the baseline.

use std::collections::BTreeSet;

use gaunt_schema::{DeviceClass, Entity, EntityKind, Finding, SanitizedText};

use super::{job_group::JobGroups, port_rail::NodeRails};
use gaunt_cluster::{Cluster, Node, NodeId};

/// The GPUs and nodes whose baselines are frozen.
#[derive(Debug, Default)]
pub(super) struct FrozenBaselines {
    /// A resource that all share is slow: all are frozen.
    all: bool,
    /// GPUs that a finding blames or that lose work to one, with the whole of their jobs.
    gpus: BTreeSet<u32>,
    /// Those of them whose jobs may have been slower since they are known.
    slowed: BTreeSet<u32>,
    /// GPUs that are blamed by findings which slow no job.
    harmless: BTreeSet<u32>,
    nodes: BTreeSet<NodeId>,
}

/// The entities that findings name, each once.
#[derive(Debug, Default)]
struct NamedEntities {
    nodes: BTreeSet<SanitizedText>,
    jobs: BTreeSet<SanitizedText>,
    leaves: BTreeSet<SanitizedText>,
    rails: BTreeSet<SanitizedText>,
    storage: bool,
}

/// Whether a fault slows a job on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// It slows none.
    None,
    /// The usual pace of a job is not known yet, and is learned beside the fault.
    Unknown,
    /// It may slow one.
    Possible,
}

impl FrozenBaselines {
    /// Collects the entities of open findings. Of a standing fault that slows no job only the blamed device and its node
    /// are frozen: a port that has been down for weeks must not keep gaunt from learning what is usual for the jobs there.
    pub(super) fn of_open<'a>(
        cluster: &Cluster,
        findings: impl Iterator<Item = &'a Finding>,
        groups: &JobGroups,
        harm_of: impl Fn(&Finding) -> Harm,
    ) -> Self {
        let (mut harmless, mut undecided, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for finding in findings {
            match harm_of(finding) {
                Harm::None => harmless.push(finding),
                Harm::Unknown => undecided.push(finding),
                Harm::Possible => others.push(finding),
            }
        }
        let slowed = Self::of(cluster, others.iter().copied(), groups).gpus;
        others.append(&mut undecided);
        let mut frozen = Self::of(cluster, others.into_iter(), groups);
        frozen.slowed = slowed;
        let mut blamed = NamedEntities::default();
        for entity in harmless.into_iter().map(|finding| &finding.entity) {
            blamed.add_culprit(entity);
            let node = entity.node.as_ref().filter(|_| entity.device.is_none());
            let rows = node.and_then(|name| Some(cluster.node_by_name(name)?.1));
            let rows = rows.map(|node| node.device_rows(DeviceClass::Gpu)).unwrap_or_default();
            frozen.harmless.extend(rows);
        }
        frozen.nodes.extend(blamed.nodes(cluster));
        frozen
    }

    /// Collects the entities of these findings, with the whole of each affected job.
    pub(super) fn of<'a>(
        cluster: &Cluster,
        findings: impl Iterator<Item = &'a Finding>,
        groups: &JobGroups,
    ) -> Self {
        let named = &NamedEntities::from_findings(findings);
        let mut frozen = Self { all: named.storage, ..Self::default() };
        if frozen.all {
            return frozen;
        }
        frozen.nodes.extend(named.nodes(cluster));
        for id in &frozen.nodes {
            let rows = cluster
                .node_by_id(*id)
                .map(|node| node.device_rows(DeviceClass::Gpu))
                .unwrap_or_default();
            frozen.gpus.extend(rows);
        }
        let of_jobs = named.jobs.iter().filter_map(|job| cluster.gpus_by_job().get(job)).flatten();
        frozen.gpus.extend(of_jobs);
        // A synchronous job suffers as a whole: freeze whole job groups, however many victims are listed.
        let frozen_groups: BTreeSet<usize> =
            frozen.gpus.iter().filter_map(|row| groups.group_index(*row)).collect();
        for group in frozen_groups.into_iter().filter_map(|at| groups.all_groups().get(at)) {
            frozen.gpus.extend(&group.gpus);
            frozen.nodes.extend(&group.nodes);
        }
        frozen
    }

    /// Whether the baselines of the GPU at this row are frozen.
    pub(super) fn has_gpu(&self, row: u32) -> bool {
        self.all || self.gpus.contains(&row) || self.harmless.contains(&row)
    }

    /// Whether the GPU at this row or its job may lose work to what a finding blames, and may have done so all along.
    pub(super) fn is_slowed(&self, row: u32) -> bool {
        self.all || self.slowed.contains(&row)
    }

    /// Whether the baselines of this node's host and ports are frozen.
    pub(super) fn has_node(&self, id: NodeId) -> bool {
        self.all || self.nodes.contains(&id)
    }
}

impl NamedEntities {
    fn from_findings<'a>(findings: impl Iterator<Item = &'a Finding>) -> Self {
        let mut named = Self::default();
        for finding in findings {
            let culprit = &finding.entity;
            named.storage |= culprit.kind == EntityKind::Storage;
            named.add_culprit(culprit);
            for entity in std::iter::once(culprit).chain(&finding.victims) {
                named.nodes.extend(entity.node.clone());
                // An entity with a node and a job stands for the node; the job itself is listed separately.
                if entity.node.is_none() {
                    named.jobs.extend(entity.job.clone());
                }
            }
        }
        named
    }

    /// Adds the node, the leaf or the rail that a finding blames.
    fn add_culprit(&mut self, culprit: &Entity) {
        self.nodes.extend(culprit.node.clone());
        // A port has its leaf as a location; other nodes below that leaf are not concerned.
        if culprit.node.is_none() {
            self.leaves.extend(culprit.leaf.clone());
            if culprit.leaf.is_none() {
                self.rails.extend(culprit.rail.clone());
            }
        }
    }

    /// Returns the nodes that are named, or lie below a leaf or on a rail that is.
    fn nodes(&self, cluster: &Cluster) -> BTreeSet<NodeId> {
        let named = self.nodes.iter().filter_map(|name| Some(cluster.node_by_name(name)?.0));
        let mut nodes: BTreeSet<NodeId> = named.collect();
        if !self.leaves.is_empty() || !self.rails.is_empty() {
            nodes.extend(nodes_below(cluster, self));
        }
        nodes
    }
}

/// Returns the nodes with a port below these leaves or on these rails.
fn nodes_below(cluster: &Cluster, named: &NamedEntities) -> BTreeSet<NodeId> {
    let is_below = |id: NodeId, node: &Node| {
        let rails = NodeRails::of(node);
        let group = cluster.topology().node_topology(id).and_then(|node| node.leaf.as_ref());
        let mut rows = node.device_rows(DeviceClass::Port).iter();
        rows.any(|row| {
            let wiring = cluster.topology().port_topology(*row);
            let leaf = wiring.and_then(|wiring| wiring.leaf.as_ref()).or(group);
            let rail = rails.rail_of(cluster, *row);
            leaf.is_some_and(|leaf| named.leaves.contains(&leaf.value))
                || rail.is_some_and(|rail| named.rails.contains(&rail))
        })
    };
    let nodes = cluster.sorted_nodes();
    nodes.filter(|(id, node)| is_below(*id, node)).map(|(id, _)| id).collect()
}
