//! The node that each target reports as, also before a restart, and why a node is gone: its target reports under
//! another name, or was removed.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet},
};

use gaunt_schema::SanitizedText;

use gaunt_cluster::{Cluster, MAX_TARGETS, TargetHealth, TrackedTarget, host_of};

/// The closing reason for findings of a node without targets.
const REMOVED: &str = "its node is no longer a target";

/// The maximum of renamed nodes that are recorded: as many findings can be open.
const MAX_RENAMED: usize = 1_000;

/// The names under which targets report.
#[derive(Debug, Default)]
pub(super) struct NodeNames {
    /// The node of each target by its address, also from before a restart.
    by_address: HashMap<SanitizedText, SanitizedText>,
    /// The name under which the target of a node reports now.
    renamed: BTreeMap<SanitizedText, SanitizedText>,
}

impl NodeNames {
    /// Restores the names from before a restart, by the targets' addresses.
    pub(super) fn recalled(by_address: HashMap<SanitizedText, SanitizedText>) -> Self {
        Self { by_address, renamed: BTreeMap::new() }
    }

    /// Updates the node that each target reports as.
    pub(super) fn observe_names(&mut self, cluster: &Cluster) {
        for scraped in cluster.tracked_targets() {
            let Some(node) = scraped.node.and_then(|id| cluster.node_by_id(id)) else { continue };
            let address = &scraped.target.address;
            if self.by_address.get(address) == Some(&node.name) {
                continue;
            }
            let before = self.by_address.insert(address.clone(), node.name.clone());
            if let Some(before) = before.filter(|_| self.renamed.len() < MAX_RENAMED) {
                self.renamed.insert(before, node.name.clone());
            }
        }
        self.renamed.retain(|before, _| !is_reported(cluster, before));
        if self.by_address.len() > 2 * MAX_TARGETS {
            let targets = cluster.tracked_targets().iter();
            let addresses: HashSet<&SanitizedText> =
                targets.map(|scraped| &scraped.target.address).collect();
            self.by_address.retain(|address, _| addresses.contains(address));
        }
    }

    /// Returns the node that the target at an address reported as last.
    pub(super) fn of(&self, address: &SanitizedText) -> Option<&SanitizedText> {
        self.by_address.get(address)
    }
}

/// Whether any target reports as this node.
fn is_reported(cluster: &Cluster, name: &SanitizedText) -> bool {
    cluster.node_by_name(name).is_some_and(|(_, node)| !node.sources.is_empty())
}

/// Why a node is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// Its target reports under this name now.
    Renamed(SanitizedText),
    /// It has no target any more.
    Removed,
}

impl Gone {
    /// Returns the reason as text.
    pub(super) fn reason(&self) -> SanitizedText {
        match self {
            Self::Renamed(name) => {
                SanitizedText::new(&format!("its target now reports as node {name}"))
            }
            Self::Removed => SanitizedText::new(REMOVED),
        }
    }
}

/// The targets of nodes as of one step: computed once, however many findings need it.
pub(super) struct Whereabouts<'a> {
    known: &'a NodeNames,
    cluster: &'a Cluster,
    /// The nodes of all targets.
    expected: OnceCell<HashSet<SanitizedText>>,
    /// The nodes of targets by the hosts of their addresses.
    by_host: OnceCell<HashMap<SanitizedText, SanitizedText>>,
    /// The nodes of targets that are not read now.
    unread: OnceCell<HashSet<SanitizedText>>,
}

impl<'a> Whereabouts<'a> {
    pub(super) fn of(known: &'a NodeNames, cluster: &'a Cluster) -> Self {
        Self {
            known,
            cluster,
            expected: OnceCell::new(),
            by_host: OnceCell::new(),
            unread: OnceCell::new(),
        }
    }

    /// Returns why the node with this name is gone; none while it has a target, read or not.
    pub(super) fn gone(&self, name: &SanitizedText) -> Option<Gone> {
        if is_reported(self.cluster, name) {
            return None;
        }
        if let Some(now) = self.known.renamed.get(name) {
            return Some(Gone::Renamed(now.clone()));
        }
        let expected = self.expected.get_or_init(|| self.names(|_| true));
        if expected.contains(name) {
            return None;
        }
        // A target that was never read was named by its address.
        let named = self.by_host.get_or_init(|| self.names_by_host()).get(name);
        Some(named.map_or(Gone::Removed, |now| Gone::Renamed(now.clone())))
    }

    /// Returns the names under which targets report, by the hosts of their addresses.
    fn names_by_host(&self) -> HashMap<SanitizedText, SanitizedText> {
        let targets = self.cluster.tracked_targets().iter();
        let named = targets.filter_map(|tracked| {
            let node = self.cluster.node_by_id(tracked.node?)?;
            Some((host_of(&tracked.target.address), node.name.clone()))
        });
        named.collect()
    }

    /// Whether a target of the node is not read now.
    pub(super) fn has_unread(&self, name: &SanitizedText) -> bool {
        let unread = |scraped: &TrackedTarget| scraped.health != TargetHealth::Live;
        self.unread.get_or_init(|| self.names(unread)).contains(name)
    }

    /// Returns the nodes of those targets: by the last reported name, the configured name, or the address.
    fn names(&self, wanted: impl Fn(&TrackedTarget) -> bool) -> HashSet<SanitizedText> {
        let wanted = self.cluster.tracked_targets().iter().filter(|scraped| wanted(scraped));
        let names = wanted.map(|scraped| {
            let target = &scraped.target;
            let configured = target.node.clone().filter(|name| !name.is_empty());
            let reported = || self.known.of(&target.address).cloned();
            configured.or_else(reported).unwrap_or_else(|| host_of(&target.address))
        });
        names.collect()
    }
}
