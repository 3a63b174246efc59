//! Places: how many findings may be open, of all and of one node, so that no source and no kind takes those of another.
//!
//! What finds no place on its node is said by one finding that stands for the rest; whatever has no place is counted.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet},
};

use gaunt_schema::{Entity, FindingKind, Safe, Severity, UnixMs};

use super::{Known, MAX_OPEN};
use crate::judge::{
    Finding,
    finding::{count, id},
};

/// Open findings of all nodes together: so many of each kind, and as many more as all kinds share.
const OF_ALL: Share = Share { own: 20, shared: MAX_OPEN - 20 * FindingKind::ALL.len() };

/// The most open findings of one node, beside that which stands for the rest: a machine has fewer parts that break at once.
const MAX_OF_NODE: usize = 64;

/// The same of one node.
const OF_NODE: Share = Share { own: 1, shared: MAX_OF_NODE - (FindingKind::ALL.len() - 1) };

/// Kinds that are named in a sentence.
const MOST_NAMED: usize = 4;

/// How places are divided.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Places that each kind has for itself.
    own: usize,
    /// Places beyond those, for whichever kind comes first.
    shared: usize,
}

/// Places that are taken, by kind.
#[derive(Debug, Default)]
struct Taken {
    kinds: BTreeMap<FindingKind, usize>,
    /// Of those that all kinds share.
    shared: usize,
}

impl Taken {
    fn has_room(&self, kind: FindingKind, share: Share) -> bool {
        let own = self.kinds.get(&kind).copied().unwrap_or_default();
        own < share.own || self.shared < share.shared
    }

    fn take(&mut self, kind: FindingKind, share: Share) {
        let own = self.kinds.entry(kind).or_default();
        *own += 1;
        self.shared += usize::from(*own > share.own);
    }
}

/// All places that are taken.
#[derive(Debug, Default)]
struct Places {
    all: Taken,
    nodes: HashMap<Safe, Taken>,
}

impl Places {
    /// Those of the findings that are open.
    fn of<'a>(open: impl Iterator<Item = &'a Finding>) -> Self {
        let mut places = Self::default();
        open.for_each(|finding| places.take(finding));
        places
    }

    fn take(&mut self, finding: &Finding) {
        self.all.take(finding.kind, OF_ALL);
        if let Some(node) = node_of(finding) {
            self.nodes.entry(node.clone()).or_default().take(finding.kind, OF_NODE);
        }
    }

    /// Whether its node has a place for it.
    fn node_has_room(&self, finding: &Finding) -> bool {
        let taken = node_of(finding).and_then(|node| self.nodes.get(node));
        taken.is_none_or(|taken| taken.has_room(finding.kind, OF_NODE))
    }
}

/// The node among whose places a finding is; that which stands for the rest is beside them.
fn node_of(finding: &Finding) -> Option<&Safe> {
    finding.entity.node.as_ref().filter(|_| finding.kind != FindingKind::FindingsOverLimit)
}

/// Findings of a node that found no place there.
#[derive(Debug, Default)]
struct Rest {
    kinds: BTreeMap<FindingKind, u32>,
    severity: Option<Severity>,
    since: Option<UnixMs>,
    lost_gpus: f64,
}

impl Rest {
    fn add(&mut self, finding: &Finding) {
        *self.kinds.entry(finding.kind).or_default() += 1;
        self.severity = self.severity.max(Some(finding.severity));
        self.since = Some(self.since.map_or(finding.since, |since| since.min(finding.since)));
        // They may cost the same GPUs their time: the dearest of them at least does.
        self.lost_gpus = self.lost_gpus.max(finding.lost_gpus);
    }

    /// The finding that stands for them.
    fn finding(&self, node: &Safe, confidence: f64) -> Finding {
        let entity = Entity::node(node);
        let kind = FindingKind::FindingsOverLimit;
        let mut kinds: Vec<_> = self.kinds.iter().collect();
        kinds.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let named =
            kinds.iter().take(MOST_NAMED).map(|(kind, findings)| format!("{findings} {kind}"));
        let named: Vec<String> = named.collect();
        let others = match kinds.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {} more", count(more, "kind")),
        };
        let all: u32 = self.kinds.values().sum();
        Finding {
            id: id(kind, &entity),
            kind,
            severity: self.severity.unwrap_or(Severity::Info),
            since: self.since.unwrap_or_default(),
            confidence,
            lost_gpus: self.lost_gpus,
            jobs: Vec::new(),
            victims: Vec::new(),
            summary: format!(
                "{node} has as many open findings as one node may have, and {all} more that {} not listed: {}{others}.",
                if all == 1 { "is" } else { "are" },
                named.join(", "),
            ),
            next: format!(
                "Look at the findings of {node} that are listed; where they cannot all be true, look at what its exporter reports."
            ),
            entity,
            evidence: Vec::new(),
        }
    }
}

/// Findings that are seen and have no place, by kind.
pub(super) type WithoutPlace = BTreeMap<FindingKind, u32>;

/// Leaves those findings that have a place or get one, and adds one for the rest of each node; says how many of each kind
/// have none. What is open keeps its place; of the others the most urgent come first.
pub(super) fn assign(
    known: &BTreeMap<String, Known>,
    seen: Vec<Finding>,
    confidence: f64,
) -> (Vec<Finding>, WithoutPlace) {
    let open = |finding: &Finding| known.get(&finding.id).is_some_and(Known::is_open);
    let mut places =
        Places::of(known.values().filter(|known| known.is_open()).map(|known| &known.told.finding));
    let (mut listed, mut new): (Vec<Finding>, Vec<Finding>) = seen.into_iter().partition(open);
    new.sort_by(by_urgency);
    let mut without = WithoutPlace::new();
    let mut rests: BTreeMap<Safe, Rest> = BTreeMap::new();
    let mut admitted: HashSet<String> = HashSet::new();
    for finding in new {
        // Two detectors may name one fault: it has one place.
        let again = admitted.contains(&finding.id);
        let on_node = again || places.node_has_room(&finding);
        if on_node && (again || places.all.has_room(finding.kind, OF_ALL)) {
            if !again {
                places.take(&finding);
                admitted.insert(finding.id.clone());
            }
            listed.push(finding);
            continue;
        }
        *without.entry(finding.kind).or_default() += 1;
        if let Some(node) = finding.entity.node.as_ref().filter(|_| !on_node) {
            rests.entry(node.clone()).or_default().add(&finding);
        }
    }
    for (node, rest) in rests {
        let finding = rest.finding(&node, confidence);
        if open(&finding) {
            listed.push(finding);
        } else if places.all.has_room(finding.kind, OF_ALL) {
            places.take(&finding);
            listed.push(finding);
        } else {
            *without.entry(finding.kind).or_default() += 1;
        }
    }
    (listed, without)
}

fn by_urgency(a: &Finding, b: &Finding) -> Ordering {
    let cost = b.lost_gpus.total_cmp(&a.lost_gpus);
    b.severity.cmp(&a.severity).then(cost).then_with(|| a.id.cmp(&b.id))
}

/// The closed findings that are to be forgotten so that at most `most` are left: the oldest of the node that has most, so
/// that what one node opens and closes does not push out what others did.
pub(super) fn crowded_out(known: &BTreeMap<String, Known>, most: usize) -> Vec<String> {
    let closed = known.values().filter(|known| !known.is_open());
    let mut nodes: HashMap<(Option<&Safe>, Option<&Safe>), Vec<&Known>> = HashMap::new();
    let mut all = 0;
    for known in closed {
        let entity = &known.told.finding.entity;
        nodes.entry((entity.node.as_ref(), entity.job.as_ref())).or_default().push(known);
        all += 1;
    }
    // The newest of each node first.
    let age = |a: &&Known, b: &&Known| {
        let newest = b.told.life.closed.cmp(&a.told.life.closed);
        newest.then_with(|| a.told.finding.id.cmp(&b.told.finding.id))
    };
    let mut ranked: Vec<(usize, &Known)> = Vec::with_capacity(all);
    for of_node in nodes.values_mut() {
        of_node.sort_by(age);
        ranked.extend(of_node.iter().copied().enumerate());
    }
    // Who is the n-th newest of its node goes after every (n-1)-th.
    ranked.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| age(one, other)));
    ranked.into_iter().skip(most).map(|(_, known)| known.told.finding.id.clone()).collect()
}

#[cfg(test)]
mod tests;
