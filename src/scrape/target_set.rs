//! The target set: the merged lists of all sources, with stable target ids and slots.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use gaunt_schema::{SanitizedText, ScrapeTarget, TargetId, TargetSource, UnixMs};

use super::{discovery_source::DiscoveredTargets, endpoint::Endpoint};

/// Maximum number of targets of all sources: a fleet of 100,000 GPUs has 12,500 nodes, with two exporters each.
pub const MAX_TARGETS: usize = 25_000;

/// Removals of at most this many targets are never held back: lists that short are edited by hand.
const FEW: usize = 4;

/// One source in the target set. `G` is what all its targets share.
#[derive(Debug)]
pub(super) struct SourceEntry<G> {
    pub(super) group: Arc<G>,
    pub(super) status: TargetSource,
    /// The last list that was accepted.
    endpoints: Vec<Endpoint>,
    /// Whether the next list is accepted without a check because the operator reloaded.
    confirmed: bool,
}

/// A target in the set.
#[derive(Debug)]
pub(super) struct TargetEntry<G> {
    pub(super) id: TargetId,
    /// Its position in the schedule, reused after it leaves.
    pub(super) slot: usize,
    pub(super) endpoint: Endpoint,
    pub(super) group: Arc<G>,
}

/// The changes of a new list.
#[derive(Debug)]
pub(super) struct TargetSetChanges<G> {
    /// Removed targets.
    pub(super) gone: Vec<TargetId>,
    /// Added targets.
    pub(super) new: Vec<(TargetId, usize, Endpoint, Arc<G>)>,
    /// Whether the list of targets differs at all from the one before.
    pub(super) any: bool,
}

/// All sources and all targets.
#[derive(Debug)]
pub(super) struct TargetSet<G> {
    /// The share of a source's targets that may vanish at once.
    removal: f64,
    sources: Vec<SourceEntry<G>>,
    members: HashMap<String, TargetEntry<G>>,
    /// The members' keys, in the order of the sources' lists.
    order: Vec<String>,
    next_id: u32,
    free_slots: BTreeSet<usize>,
    next_slot: usize,
}

impl<G> TargetSet<G> {
    pub(super) fn new(removal: f64) -> Self {
        Self {
            removal,
            sources: Vec::new(),
            members: HashMap::new(),
            order: Vec::new(),
            next_id: 0,
            free_slots: BTreeSet::new(),
            next_slot: 0,
        }
    }

    /// Replaces the sources. A source with a known key keeps its list until it sends the next one, which is accepted
    /// without a check because the operator reloaded.
    pub(super) fn set_sources(&mut self, sources: Vec<(SanitizedText, Arc<G>)>, removal: f64) {
        self.removal = removal;
        let mut known: Vec<SourceEntry<G>> = std::mem::take(&mut self.sources);
        for (name, group) in sources {
            let before = known.iter().position(|entry| entry.status.name == name);
            let entry = match before.map(|at| known.swap_remove(at)) {
                Some(entry) => SourceEntry { group, confirmed: true, ..entry },
                None => SourceEntry {
                    group,
                    status: TargetSource {
                        name,
                        targets: 0,
                        taken: None,
                        trouble: None,
                        failed_since: None,
                    },
                    endpoints: Vec::new(),
                    confirmed: true,
                },
            };
            self.sources.push(entry);
        }
    }

    /// The status of every source.
    pub(super) fn source_statuses(&self) -> Vec<TargetSource> {
        self.sources.iter().map(|entry| entry.status.clone()).collect()
    }

    /// Accepts a list of the source at this position, unless too many targets vanish from it.
    pub(super) fn offer_targets(&mut self, source: usize, listing: DiscoveredTargets, now: UnixMs) {
        let removal = self.removal;
        let Some(entry) = self.sources.get_mut(source) else { return };
        entry.status.failed_since = None;
        let confirmed = std::mem::take(&mut entry.confirmed);
        let gone = count_vanished(&entry.endpoints, &listing.endpoints);
        if !confirmed
            && is_mass_removal(gone, entry.endpoints.len(), listing.endpoints.len(), removal)
        {
            let SourceEntry { status, endpoints: places, .. } = entry;
            let reason = listing.trouble.map(|why| format!(" ({why})")).unwrap_or_default();
            status.trouble = Some(SanitizedText::new(&format!(
                "{}: {gone} of {} targets disappeared from its list at once; they are \
                 kept{reason}. If they are really gone, send gaunt SIGHUP",
                status.name,
                places.len()
            )));
            return;
        }
        entry.status.targets = listing.endpoints.len() as u32;
        entry.status.taken = Some(now);
        entry.status.trouble = listing.trouble;
        entry.endpoints = listing.endpoints;
    }

    /// Records that a source cannot be read at `now`: its last list stays in effect.
    pub(super) fn record_failure(&mut self, source: usize, why: &str, now: UnixMs) {
        let Some(entry) = self.sources.get_mut(source) else { return };
        let kept = entry.endpoints.len();
        let kept = match kept {
            0 => String::new(),
            _ => format!("; its last {kept} targets are kept"),
        };
        entry.status.trouble = Some(SanitizedText::new(&format!("{why}{kept}")));
        entry.status.failed_since.get_or_insert(now);
    }

    /// Merges the lists. A target in the lists of several sources belongs to the first of them.
    pub(super) fn merge(&mut self) -> TargetSetChanges<G> {
        let mut changes = TargetSetChanges { gone: Vec::new(), new: Vec::new(), any: false };
        let mut order = Vec::new();
        let mut seen = HashSet::new();
        let mut left_out = 0_usize;
        let sources = std::mem::take(&mut self.sources);
        for entry in &sources {
            for place in &entry.endpoints {
                let key = place.to_url();
                if !seen.insert(key.clone()) {
                    continue;
                }
                if order.len() >= MAX_TARGETS {
                    left_out += 1;
                    continue;
                }
                self.add_or_update(&key, place, &entry.group, &mut changes);
                order.push(key);
            }
        }
        self.sources = sources;
        if left_out > 0
            && let Some(last) = self.sources.last_mut()
        {
            let why = format!(
                "{left_out} targets are not scraped: all sources together list more than \
                 {MAX_TARGETS}"
            );
            last.status.trouble = Some(SanitizedText::new(&why));
        }
        let stay: HashSet<&String> = order.iter().collect();
        let gone: Vec<String> =
            self.members.keys().filter(|key| !stay.contains(key)).cloned().collect();
        for key in gone {
            if let Some(member) = self.members.remove(&key) {
                self.free_slots.insert(member.slot);
                changes.gone.push(member.id);
            }
        }
        changes.any |= !changes.gone.is_empty() || order != self.order;
        self.order = order;
        changes
    }

    fn add_or_update(
        &mut self,
        key: &str,
        place: &Endpoint,
        group: &Arc<G>,
        changes: &mut TargetSetChanges<G>,
    ) {
        if let Some(member) = self.members.get_mut(key) {
            if member.endpoint.node != place.node {
                member.endpoint.node.clone_from(&place.node);
                changes.any = true;
            }
            // Another source may list it now, with other trust and transport options.
            let moved =
                !Arc::ptr_eq(&member.group, group) || member.endpoint.named_by != place.named_by;
            if !moved {
                return;
            }
            member.group = group.clone();
            member.endpoint.named_by = place.named_by;
            changes.new.push((member.id, member.slot, member.endpoint.clone(), group.clone()));
            return;
        }
        let id = self.new_id();
        let slot = self.free_slots.pop_first().unwrap_or_else(|| {
            self.next_slot += 1;
            self.next_slot - 1
        });
        let (place, group) = (place.clone(), group.clone());
        changes.new.push((id, slot, place.clone(), group.clone()));
        changes.any = true;
        self.members.insert(key.to_owned(), TargetEntry { id, slot, endpoint: place, group });
    }

    fn new_id(&mut self) -> TargetId {
        let id = TargetId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Gives a target a new id: another machine answers at its address.
    pub(super) fn assign_new_id(&mut self, old: TargetId) -> Option<TargetId> {
        let id = self.new_id();
        let member = self.members.values_mut().find(|member| member.id == old)?;
        member.id = id;
        Some(id)
    }

    /// Number of targets.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// All targets as announced to the engine.
    pub(super) fn announced_targets(&self) -> Vec<ScrapeTarget> {
        let members = self.order.iter().filter_map(|key| self.members.get(key));
        members.map(|member| member.endpoint.to_target(member.id)).collect()
    }
}

/// Number of endpoints in `before` that are not in `now`.
fn count_vanished(before: &[Endpoint], now: &[Endpoint]) -> usize {
    let now: HashSet<String> = now.iter().map(Endpoint::to_url).collect();
    before.iter().filter(|place| !now.contains(&place.to_url())).count()
}

/// Whether a list is more likely broken than intended: it is suddenly empty, or lacks more than the allowed share.
fn is_mass_removal(gone: usize, before: usize, now: usize, share: f64) -> bool {
    if share >= 1.0 || gone == 0 {
        return false;
    }
    now == 0 || gone > FEW && gone as f64 > share * before as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::EndpointList;

    const NOW: UnixMs = UnixMs(5);

    fn parse_listing(list: &str) -> DiscoveredTargets {
        let mut places = EndpointList::default();
        places.add_list(list, &"test".into()).unwrap();
        DiscoveredTargets { endpoints: places.into_vec(), trouble: None }
    }

    fn set_with_sources(sources: &[&str]) -> TargetSet<u8> {
        let mut roster = TargetSet::new(0.2);
        roster.set_sources(
            sources.iter().map(|name| (SanitizedText::new(name), Arc::new(0))).collect(),
            0.2,
        );
        roster
    }

    fn render_targets(roster: &TargetSet<u8>) -> String {
        let shown = |target: ScrapeTarget| {
            format!("{}:{}", target.id.0, target.address.trim_end_matches(":9770"))
        };
        roster.announced_targets().into_iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sources_do_not_drop_each_others_targets() {
        let mut roster = set_with_sources(&["one", "two"]);
        roster.offer_targets(0, parse_listing("a,b"), NOW);
        roster.merge();
        roster.offer_targets(1, parse_listing("b,c"), NOW);
        let changes = roster.merge();
        assert_eq!((changes.new.len(), changes.gone.len(), changes.any), (1, 0, true));
        assert_eq!(render_targets(&roster), "0:a 1:b 2:c");
        // The second still lists b.
        roster.offer_targets(0, parse_listing("a"), NOW);
        assert!(roster.merge().gone.is_empty());
        assert_eq!(render_targets(&roster), "0:a 1:b 2:c");
        roster.offer_targets(1, parse_listing("c"), NOW);
        assert_eq!(roster.merge().gone, [TargetId(1)]);
        roster.offer_targets(0, parse_listing("a,d"), NOW);
        let changes = roster.merge();
        assert_eq!(
            (changes.new[0].0, changes.new[0].1),
            (TargetId(3), 1),
            "a new number, the free slot"
        );
        roster.offer_targets(0, parse_listing("a,d"), UnixMs(9));
        assert!(!roster.merge().any);
        assert_eq!(roster.source_statuses()[0].taken, Some(UnixMs(9)));
    }

    #[test]
    fn a_list_that_loses_many_targets_at_once_is_not_believed() {
        let mut roster = set_with_sources(&["one"]);
        roster.offer_targets(0, parse_listing("a[1-100]"), NOW);
        roster.merge();
        for (list, held) in [("a[1-80]", false), ("a[1-60]", true), ("", true), ("a[70-80]", true)]
        {
            roster.offer_targets(0, parse_listing(list), NOW);
            roster.merge();
            assert_eq!(roster.source_statuses()[0].trouble.is_some(), held, "{list}");
        }
        assert_eq!(roster.announced_targets().len(), 80);
        let trouble = roster.source_statuses()[0].trouble.clone().unwrap();
        assert_eq!(
            trouble,
            "one: 69 of 80 targets disappeared from its list at once; they are kept. If they are \
             really gone, send gaunt SIGHUP"
        );
        // The operator confirms; the next list is accepted, and the one after that is checked again.
        roster.set_sources(vec![("one".into(), Arc::new(0))], 0.2);
        assert_eq!(roster.merge().gone, [], "nothing vanishes before the source has spoken");
        roster.offer_targets(0, parse_listing("a[1-10]"), NOW);
        assert_eq!(roster.merge().gone.len(), 70);
        assert_eq!(roster.source_statuses()[0].trouble, None);
        roster.offer_targets(0, parse_listing("a[1-6]"), NOW);
        assert_eq!(roster.announced_targets().len(), 10);
        roster.merge();
        assert_eq!(roster.announced_targets().len(), 6, "four are few");
        roster.offer_targets(0, parse_listing(""), NOW);
        roster.merge();
        assert_eq!(roster.announced_targets().len(), 6, "none is never few");
        roster.set_sources(vec![("one".into(), Arc::new(0))], 1.0);
        roster.offer_targets(0, parse_listing("x"), NOW);
        roster.offer_targets(0, parse_listing(""), NOW);
        roster.merge();
        assert!(roster.announced_targets().is_empty(), "a share of one switches the guard off");
    }

    #[test]
    fn a_source_that_fails_keeps_what_it_named() {
        let mut roster = set_with_sources(&["one"]);
        roster.record_failure(0, "one: refused", UnixMs(1));
        roster.record_failure(0, "one: refused", UnixMs(2));
        assert_eq!(roster.source_statuses()[0].trouble.as_deref(), Some("one: refused"));
        assert_eq!(
            roster.source_statuses()[0].failed_since,
            Some(UnixMs(1)),
            "since the first failure"
        );
        roster.offer_targets(0, parse_listing("a,b"), NOW);
        assert_eq!(roster.source_statuses()[0].failed_since, None);
        roster.record_failure(0, "one: refused", NOW);
        roster.merge();
        assert_eq!(render_targets(&roster), "0:a 1:b");
        let trouble = roster.source_statuses()[0].trouble.clone().unwrap();
        assert_eq!(trouble, "one: refused; its last 2 targets are kept");
        roster.set_sources(Vec::new(), 0.2);
        assert_eq!(
            roster.merge().gone.len(),
            2,
            "a source that the settings drop takes its targets along"
        );
    }

    #[test]
    fn another_machine_gets_another_number_and_a_new_name_keeps_it() {
        let mut roster = set_with_sources(&["one"]);
        roster.offer_targets(0, parse_listing("x=a,b"), NOW);
        roster.merge();
        assert_eq!(roster.assign_new_id(TargetId(0)), Some(TargetId(2)));
        assert_eq!(roster.assign_new_id(TargetId(0)), None);
        assert_eq!(render_targets(&roster), "2:a 1:b");
        roster.offer_targets(0, parse_listing("y=a,b"), NOW);
        let changes = roster.merge();
        assert!(changes.any && changes.new.is_empty());
        assert_eq!(roster.announced_targets()[0].node.as_deref(), Some("y"));
    }

    #[test]
    fn there_is_an_end_to_targets() {
        let mut roster = set_with_sources(&["one", "two"]);
        roster.offer_targets(0, parse_listing("a[1-15000]"), NOW);
        roster.offer_targets(1, parse_listing("b[1-15000]"), NOW);
        roster.merge();
        assert_eq!(roster.announced_targets().len(), MAX_TARGETS);
        let trouble = roster.source_statuses()[1].trouble.clone().unwrap();
        assert!(trouble.starts_with("5000 targets are not scraped"), "{trouble}");
    }
}
