//! Joins the pages of one machine: which node a page reports, where its exporters write the name differently.
//!
//! A machine runs one exporter of each kind, so targets of different dialects at one host are one node. Names that
//! differ only in case or in their domain are one name. What is ambiguous stays apart.

use std::{collections::HashMap, net::IpAddr};

use gaunt_schema::{Dialect, Report, SanitizedText, TargetId, dialect};

use super::{
    Cluster,
    cluster_node::{NodeId, host_of},
    tracked_target::TrackedTarget,
};

/// Names that any machine may have, or none.
const NAMES_OF_NOTHING: [&str; 3] = ["localhost", "localhost.localdomain", "(none)"];

/// The letters of what Kubernetes appends to the name of a pod.
const POD_SUFFIX: usize = 5;

/// How well a dialect knows the name of its machine: `Hostname` of dcgm-exporter may be the name of a pod, while
/// `nodename` is that of the kernel.
const fn name_authority(dialect: Dialect) -> u8 {
    match dialect {
        Dialect::Gaunt => 3,
        Dialect::NodeExporter => 2,
        _ => 1,
    }
}

/// Whether pages of this dialect describe the machine at their address; others describe a fabric or its switches.
const fn is_of_machine(dialect: Dialect) -> bool {
    !matches!(
        dialect,
        Dialect::Infiniband | Dialect::Ufm | Dialect::Snmp | Dialect::Nccl | Dialect::Unknown
    )
}

/// The name that a page reports, unless it names nothing.
fn reported_name(report: &Report) -> Option<SanitizedText> {
    let name = report.node.as_ref().filter(|name| !name.is_empty())?;
    let is_nothing = NAMES_OF_NOTHING.iter().any(|other| name.eq_ignore_ascii_case(other))
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        || is_name_of_pod(name);
    (!is_nothing).then(|| name.clone())
}

/// Whether this is the name of the exporter's own pod, which does not know its node: another one after each restart.
fn is_name_of_pod(name: &str) -> bool {
    let suffix = name.rsplit_once('-').map_or("", |(_, suffix)| suffix);
    suffix.len() == POD_SUFFIX
        && suffix.bytes().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
        && dialect::is_exporter_pod(name)
}

impl TrackedTarget {
    /// The name by which this target calls its machine, and how well it knows it.
    fn known_name(&self) -> Option<(u8, &SanitizedText)> {
        let declared = self.target.node.as_ref().filter(|name| !name.is_empty());
        let reported = || Some((name_authority(self.dialect?), self.page_name.as_ref()?));
        declared.map(|name| (u8::MAX, name)).or_else(reported)
    }
}

impl Cluster {
    /// Takes the name that a page itself reports; returns whether it is another one than before.
    pub(super) fn update_page_name(&mut self, index: usize, report: &Report) -> bool {
        let own = reported_name(report);
        let tracked = &mut self.targets[index];
        let is_other = tracked.page_name != own;
        if is_other {
            tracked.page_name = own;
        }
        is_other
    }

    /// The name of the node that a page reports: from the operator's configuration, else the best name that the
    /// exporters at its host report, else its host.
    pub(super) fn name_page(
        &self,
        index: usize,
        dialect: Dialect,
        report: &Report,
    ) -> SanitizedText {
        let own = self.targets[index].page_name.clone();
        if let Some(name) = self.targets[index].target.node.as_ref().filter(|name| !name.is_empty())
        {
            return name.clone();
        }
        let host = host_of(&self.targets[index].target.address);
        let is_here = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        // Behind a tunnel to this host may be another machine.
        if let Some(name) = own.as_ref().filter(|_| is_here) {
            return name.clone();
        }
        let own_rank = own.is_some().then(|| name_authority(dialect));
        let better = self.peers_at_host(index, dialect).and_then(|peers| {
            let names = peers.filter_map(TrackedTarget::known_name);
            names.filter(|(rank, _)| Some(*rank) > own_rank).max_by_key(|(rank, _)| *rank)
        });
        let better = better.map(|(_, name)| name.clone());
        better.or(own).unwrap_or_else(|| {
            report.node.clone().filter(|name| is_here && !name.is_empty()).unwrap_or(host)
        })
    }

    /// The other targets at the host of this one, if they can be those of one machine: one of each dialect, apart from
    /// model servers.
    fn peers_at_host(
        &self,
        index: usize,
        dialect: Dialect,
    ) -> Option<impl Iterator<Item = &TrackedTarget>> {
        if !is_of_machine(dialect) {
            return None;
        }
        let at_host = self.targets_at_host.get(&host_of(&self.targets[index].target.address))?;
        if at_host.len() < 2 {
            return None;
        }
        let others = move || at_host.iter().filter(move |other| **other != index);
        let mut seen: Vec<Dialect> = vec![dialect];
        for other in others() {
            let Some(dialect) = self.targets[*other].dialect else { continue };
            if dialect.is_model_server() || !is_of_machine(dialect) {
                continue;
            }
            if seen.contains(&dialect) {
                return None;
            }
            seen.push(dialect);
        }
        Some(others().map(|other| &self.targets[*other]))
    }

    /// The node with this name. A name that its exporter may have from elsewhere also means the one node with the same
    /// name in another spelling, if an exporter that knows better reports it and none of this dialect does.
    pub(super) fn find_node(
        &self,
        name: &SanitizedText,
        dialect: Dialect,
        target: TargetId,
    ) -> Option<NodeId> {
        let is_better = |id: &NodeId| {
            let sources = self.inventory.node_by_id(*id).map(|node| node.sources.as_slice());
            let sources = sources.unwrap_or_default();
            let rank = name_authority(dialect);
            sources.iter().any(|source| name_authority(source.dialect) > rank)
                && sources.iter().all(|it| it.dialect != dialect || it.target == target)
        };
        let mut better = self.inventory.ids_by_spelling(name).filter(is_better);
        let only = better.next().filter(|_| better.next().is_none());
        only.or_else(|| self.inventory.id_by_name(name))
    }
}

/// The positions of the targets at each host.
pub(super) fn group_by_host(targets: &[TrackedTarget]) -> HashMap<SanitizedText, Vec<usize>> {
    let mut groups: HashMap<SanitizedText, Vec<usize>> = HashMap::new();
    for (position, tracked) in targets.iter().enumerate() {
        groups.entry(host_of(&tracked.target.address)).or_default().push(position);
    }
    groups
}
