//! The target set: the merged lists of all sources, with stable target ids and slots.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use gaunt_schema::{SanitizedText, ScrapeTarget, TargetId, TargetSource, UnixMs};

use super::{discovery_source::DiscoveredTargets, endpoint::Endpoint};

/// Maximum number of targets of all sources: a fleet of 100,000 GPUs has 12,500 nodes, with two exporters each.
pub const MAX_TARGETS: usize = 25_000;

/// Removals of at most this many targets are never held back, unless the list is empty then: lists that short are edited
/// by hand, and one target of three is more than any share that guards a long list. What a source loses by mistake is
/// mostly all of it.
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
        let mut previous: Vec<SourceEntry<G>> = std::mem::take(&mut self.sources);
        for (name, group) in sources {
            let position = previous.iter().position(|entry| entry.status.name == name);
            let entry = match position.map(|index| previous.swap_remove(index)) {
                Some(entry) => SourceEntry { group, confirmed: true, ..entry },
                None => SourceEntry {
                    group,
                    status: TargetSource {
                        name,
                        targets: 0,
                        taken: None,
                        trouble: None,
                        failed_since: None,
                        load: None,
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
    pub(super) fn offer_targets(&mut self, source: usize, targets: DiscoveredTargets, now: UnixMs) {
        let removal = self.removal;
        let Some(entry) = self.sources.get_mut(source) else { return };
        entry.status.failed_since = None;
        let confirmed = std::mem::take(&mut entry.confirmed);
        let gone = count_vanished(&entry.endpoints, &targets.endpoints);
        if !confirmed
            && is_mass_removal(gone, entry.endpoints.len(), targets.endpoints.len(), removal)
        {
            let SourceEntry { status, endpoints, .. } = entry;
            let reason = targets.trouble.map(|why| format!(" ({why})")).unwrap_or_default();
            status.trouble = Some(SanitizedText::new(&format!(
                "{}: {gone} of {} targets disappeared from its list at once; they are \
                 kept{reason}. If they are really gone, send gaunt SIGHUP",
                status.name,
                endpoints.len()
            )));
            return;
        }
        entry.status.targets = targets.endpoints.len() as u32;
        entry.status.taken = Some(now);
        entry.status.trouble = targets.trouble;
        entry.endpoints = targets.endpoints;
    }

    /// Records that a source cannot be read at `now`: its last list stays in effect.
    pub(super) fn record_failure(&mut self, source: usize, why: &str, now: UnixMs) {
        let Some(entry) = self.sources.get_mut(source) else { return };
        let count = entry.endpoints.len();
        let suffix = match count {
            0 => String::new(),
            _ => format!("; its last {count} targets are kept"),
        };
        entry.status.trouble = Some(SanitizedText::new(&format!("{why}{suffix}")));
        entry.status.failed_since.get_or_insert(now);
    }

    /// Merges the lists. A target in the lists of several sources belongs to the first of them.
    pub(super) fn merge(&mut self) -> TargetSetChanges<G> {
        let mut changes = TargetSetChanges { gone: Vec::new(), new: Vec::new(), any: false };
        let mut order = Vec::new();
        let mut urls = HashSet::new();
        let mut left_out = 0_usize;
        let sources = std::mem::take(&mut self.sources);
        for entry in &sources {
            for endpoint in &entry.endpoints {
                let key = endpoint.to_url();
                if !urls.insert(key.clone()) {
                    continue;
                }
                if order.len() >= MAX_TARGETS {
                    left_out += 1;
                    continue;
                }
                self.add_or_update(&key, endpoint, &entry.group, &mut changes);
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
        let listed: HashSet<&String> = order.iter().collect();
        let gone: Vec<String> =
            self.members.keys().filter(|key| !listed.contains(key)).cloned().collect();
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
        endpoint: &Endpoint,
        group: &Arc<G>,
        changes: &mut TargetSetChanges<G>,
    ) {
        if let Some(member) = self.members.get_mut(key) {
            if member.endpoint.node != endpoint.node {
                member.endpoint.node.clone_from(&endpoint.node);
                changes.any = true;
            }
            // Another source may list it now, with other trust and transport options.
            let source_changed =
                !Arc::ptr_eq(&member.group, group) || member.endpoint.named_by != endpoint.named_by;
            if !source_changed {
                return;
            }
            member.group = group.clone();
            member.endpoint.named_by = endpoint.named_by;
            changes.new.push((member.id, member.slot, member.endpoint.clone(), group.clone()));
            return;
        }
        let id = self.new_id();
        let slot = self.free_slots.pop_first().unwrap_or_else(|| {
            self.next_slot += 1;
            self.next_slot - 1
        });
        let (endpoint, group) = (endpoint.clone(), group.clone());
        changes.new.push((id, slot, endpoint.clone(), group.clone()));
        changes.any = true;
        self.members.insert(key.to_owned(), TargetEntry { id, slot, endpoint, group });
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
    before.iter().filter(|endpoint| !now.contains(&endpoint.to_url())).count()
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
        let mut endpoints = EndpointList::default();
        endpoints.add_list(list, &"test".into()).unwrap();
        DiscoveredTargets { endpoints: endpoints.into_vec(), trouble: None }
    }

    fn set_with_sources(sources: &[&str]) -> TargetSet<u8> {
        let mut set = TargetSet::new(0.2);
        set.set_sources(
            sources.iter().map(|name| (SanitizedText::new(name), Arc::new(0))).collect(),
            0.2,
        );
        set
    }

    fn render_targets(set: &TargetSet<u8>) -> String {
        let render = |target: ScrapeTarget| {
            format!("{}:{}", target.id.0, target.address.trim_end_matches(":9770"))
        };
        set.announced_targets().into_iter().map(render).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sources_do_not_drop_each_others_targets() {
        let mut set = set_with_sources(&["one", "two"]);
        set.offer_targets(0, parse_listing("a,b"), NOW);
        set.merge();
        set.offer_targets(1, parse_listing("b,c"), NOW);
        let changes = set.merge();
        assert_eq!((changes.new.len(), changes.gone.len(), changes.any), (1, 0, true));
        assert_eq!(render_targets(&set), "0:a 1:b 2:c");
        // The second still lists b.
        set.offer_targets(0, parse_listing("a"), NOW);
        assert!(set.merge().gone.is_empty());
        assert_eq!(render_targets(&set), "0:a 1:b 2:c");
        set.offer_targets(1, parse_listing("c"), NOW);
        assert_eq!(set.merge().gone, [TargetId(1)]);
        set.offer_targets(0, parse_listing("a,d"), NOW);
        let changes = set.merge();
        assert_eq!(
            (changes.new[0].0, changes.new[0].1),
            (TargetId(3), 1),
            "a new number, the free slot"
        );
        set.offer_targets(0, parse_listing("a,d"), UnixMs(9));
        assert!(!set.merge().any);
        assert_eq!(set.source_statuses()[0].taken, Some(UnixMs(9)));
    }

    #[test]
    fn list_that_loses_many_targets_at_once_is_rejected() {
        let mut set = set_with_sources(&["one"]);
        set.offer_targets(0, parse_listing("a[1-100]"), NOW);
        set.merge();
        for (list, is_rejected) in
            [("a[1-80]", false), ("a[1-60]", true), ("", true), ("a[70-80]", true)]
        {
            set.offer_targets(0, parse_listing(list), NOW);
            set.merge();
            assert_eq!(set.source_statuses()[0].trouble.is_some(), is_rejected, "{list}");
        }
        assert_eq!(set.announced_targets().len(), 80);
        let trouble = set.source_statuses()[0].trouble.clone().unwrap();
        assert_eq!(
            trouble,
            "one: 69 of 80 targets disappeared from its list at once; they are kept. If they are \
             really gone, send gaunt SIGHUP"
        );
        // The operator confirms; the next list is accepted, and the one after that is checked again.
        set.set_sources(vec![("one".into(), Arc::new(0))], 0.2);
        assert_eq!(set.merge().gone, [], "nothing vanishes before the source has spoken");
        set.offer_targets(0, parse_listing("a[1-10]"), NOW);
        assert_eq!(set.merge().gone.len(), 70);
        assert_eq!(set.source_statuses()[0].trouble, None);
        set.offer_targets(0, parse_listing("a[1-6]"), NOW);
        assert_eq!(set.announced_targets().len(), 10);
        set.merge();
        assert_eq!(set.announced_targets().len(), 6, "four are few");
        set.offer_targets(0, parse_listing(""), NOW);
        set.merge();
        assert_eq!(set.announced_targets().len(), 6, "none is never few");
        set.set_sources(vec![("one".into(), Arc::new(0))], 1.0);
        set.offer_targets(0, parse_listing("x"), NOW);
        set.offer_targets(0, parse_listing(""), NOW);
        set.merge();
        assert!(set.announced_targets().is_empty(), "a share of one switches the guard off");
    }

    #[test]
    fn short_list_may_lose_targets_and_is_kept_when_it_is_suddenly_empty() {
        let mut set = set_with_sources(&["one"]);
        set.offer_targets(0, parse_listing("a[1-4]"), NOW);
        set.offer_targets(0, parse_listing("a[1-2]"), NOW);
        set.merge();
        assert_eq!(render_targets(&set), "0:a1 1:a2");
        set.offer_targets(0, parse_listing(""), NOW);
        set.merge();
        assert_eq!(render_targets(&set), "0:a1 1:a2");
        let trouble = set.source_statuses()[0].trouble.clone().unwrap();
        assert!(trouble.starts_with("one: 2 of 2 targets disappeared"), "{trouble}");
    }

    #[test]
    fn failed_source_keeps_its_last_targets() {
        let mut set = set_with_sources(&["one"]);
        set.record_failure(0, "one: refused", UnixMs(1));
        set.record_failure(0, "one: refused", UnixMs(2));
        assert_eq!(set.source_statuses()[0].trouble.as_deref(), Some("one: refused"));
        assert_eq!(
            set.source_statuses()[0].failed_since,
            Some(UnixMs(1)),
            "since the first failure"
        );
        set.offer_targets(0, parse_listing("a,b"), NOW);
        assert_eq!(set.source_statuses()[0].failed_since, None);
        set.record_failure(0, "one: refused", NOW);
        set.merge();
        assert_eq!(render_targets(&set), "0:a 1:b");
        let trouble = set.source_statuses()[0].trouble.clone().unwrap();
        assert_eq!(trouble, "one: refused; its last 2 targets are kept");
        set.set_sources(Vec::new(), 0.2);
        assert_eq!(
            set.merge().gone.len(),
            2,
            "a source that the settings drop takes its targets along"
        );
    }

    #[test]
    fn target_id_changes_with_the_machine_and_not_with_the_name() {
        let mut set = set_with_sources(&["one"]);
        set.offer_targets(0, parse_listing("x=a,b"), NOW);
        set.merge();
        assert_eq!(set.assign_new_id(TargetId(0)), Some(TargetId(2)));
        assert_eq!(set.assign_new_id(TargetId(0)), None);
        assert_eq!(render_targets(&set), "2:a 1:b");
        set.offer_targets(0, parse_listing("y=a,b"), NOW);
        let changes = set.merge();
        assert!(changes.any && changes.new.is_empty());
        assert_eq!(set.announced_targets()[0].node.as_deref(), Some("y"));
    }

    #[test]
    fn targets_are_limited_in_number() {
        let mut set = set_with_sources(&["one", "two"]);
        set.offer_targets(0, parse_listing("a[1-15000]"), NOW);
        set.offer_targets(1, parse_listing("b[1-15000]"), NOW);
        set.merge();
        assert_eq!(set.announced_targets().len(), MAX_TARGETS);
        let trouble = set.source_statuses()[1].trouble.clone().unwrap();
        assert!(trouble.starts_with("5000 targets are not scraped"), "{trouble}");
    }
}
