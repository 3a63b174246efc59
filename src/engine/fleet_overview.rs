//! The fleet overview: one pass over the fleet per tick.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use gaunt_schema::{DeviceClass, GpuState, SanitizedText, SourceLoad};

use super::{
    acknowledgements::count_acknowledged, finding_contexts::contexts_of, lost_gpus,
    node_answers::NodeSortKey, view::View,
};
use gaunt_api::{
    Finding, FindingGroup, FindingLine, FindingList, HeatMap, LostGpuTime, NodeCounts, NodeState,
    Overview, PeerLine, StateCount, StoreLine, finding_group,
};
use gaunt_cluster::{NodeId, TargetHealth, host_of};
use gaunt_judge::gpus_of_parts;

/// Maximum number of finding and group rows in the overview, and of findings in it: more than any screen shows at
/// once.
const MAX_FINDINGS: usize = 32;

/// Maximum number of nodes in the overview: more than any screen shows at once.
pub const MAX_WORST: usize = 32;

/// A difference of clocks that changes nothing, in seconds: each sample has the instant of its server.
const MAX_SKEW_SECONDS: i64 = 5;

/// Maximum number of messages about the recording, about target sources, and about targets, in the overview.
const MAX_TROUBLE: usize = 8;

/// Maximum number of changes in the overview: more than a bar has columns for.
const MAX_CHANGES: usize = 64;

/// Span of the changes in the overview: that of the history of lost GPUs.
const CHANGE_SPAN: Duration = Duration::from_mins(15);

/// Lost GPUs of an overview; none if the state of all GPUs is unknown.
pub(super) fn known_loss(overview: &Overview) -> Option<f64> {
    overview.states.iter().copied().any(is_known).then_some(overview.lost.gpus)
}

/// Whether the counted state is a known one.
fn is_known(count: StateCount) -> bool {
    !matches!(count.state, GpuState::Stale | GpuState::Unknown)
}

/// The findings and groups of the worst rows. A group is never cut: it reports the number and the cost of all of its
/// members, the first of which are included.
pub fn worst_findings(list: &FindingList) -> (Vec<Finding>, Vec<FindingGroup>) {
    let lines = finding_group::collect_lines(&list.findings, &list.groups);
    let (mut wanted, mut groups) = (HashSet::new(), Vec::new());
    for line in lines.iter().take(MAX_FINDINGS) {
        match line {
            FindingLine::Single(finding) => _ = wanted.insert(finding.id.as_str()),
            FindingLine::Group(group) => {
                wanted.extend(group.members.first().map(String::as_str));
                groups.push((*group).clone());
            }
        }
    }
    // The rest is filled with the worst of the others.
    let mut left = MAX_FINDINGS.saturating_sub(wanted.len());
    let findings = list.findings.iter().filter(|finding| {
        let known = wanted.contains(finding.id.as_str());
        let more = !known && left > 0;
        left -= usize::from(more);
        known || more
    });
    (findings.cloned().collect(), groups)
}

impl View<'_> {
    /// The overview at the time of the view.
    pub(super) fn build_overview(&self) -> Overview {
        let blamed = self.blamed_nodes();
        let (mut heat, mut nodes) = (HeatMap::default(), self.pending_and_down());
        let mut states = vec![0_u32; GpuState::ALL.len()];
        let mut worst: Vec<(NodeSortKey, NodeId)> = Vec::new();
        for (id, node) in self.cluster.sorted_nodes() {
            match self.node_state(node) {
                NodeState::Live => nodes.live += 1,
                NodeState::Stale => nodes.stale += 1,
                NodeState::Down => nodes.down += 1,
            }
            let gpus = node.device_rows(DeviceClass::Gpu);
            if !gpus.is_empty() {
                heat.nodes.push(node.name.clone());
                heat.gpus.push(gpus.len() as u16);
            }
            for row in gpus {
                let state = self.gpu_state(*row);
                heat.states.push(state.letter_code());
                states[state as usize] += 1;
            }
            worst.push((self.node_sort_key(node, &blamed), id));
        }
        if worst.len() > MAX_WORST {
            worst.select_nth_unstable(MAX_WORST);
            worst.truncate(MAX_WORST);
        }
        worst.sort_unstable();
        let counts = GpuState::ALL.iter().map(|state| (*state, states[*state as usize]));
        let states: Vec<_> = counts
            .filter(|(_, gpus)| *gpus > 0)
            .map(|(state, gpus)| StateCount { state, gpus })
            .collect();
        let (findings, groups) = worst_findings(self.findings);
        Overview {
            cluster: self.options.cluster.clone(),
            silent_clusters: Vec::new(),
            at: self.at,
            period_ms: self.cluster.scrape_period().as_millis() as u64,
            nodes,
            lost: self.lost_now(&states),
            states,
            findings_open: self.findings.findings.len() as u32,
            findings_acknowledged: count_acknowledged(self.findings),
            findings_without_place: self.without_place.map_or(0, |kinds| kinds.values().sum()),
            contexts: contexts_of(&self.findings.contexts, &findings),
            changes: self.change_log.changes_within(self.at - CHANGE_SPAN, self.at, MAX_CHANGES),
            findings,
            groups,
            heat,
            worst: self.node_lines(worst.into_iter().map(|(_, id)| id), &blamed),
            trouble: self.trouble_messages(),
            source_trouble: self.source_troubles().take(MAX_TROUBLE).collect(),
            source_notes: self.source_notes().take(MAX_TROUBLE).collect(),
        }
    }

    /// Targets that count for no node: not attempted, or never read. The latter are down, each node once; a node
    /// without a name is the host of its targets, unless another target there is read.
    fn pending_and_down(&self) -> NodeCounts {
        let (mut counts, mut unreached) = (NodeCounts::default(), BTreeSet::new());
        if let Some(snapshot) = self.past {
            // Nodes that have been removed since are counted as they were.
            let ailing =
                |state| snapshot.not_live.values().filter(|known| **known == state).count();
            counts.pending = snapshot.nodes.pending;
            counts.down = snapshot.nodes.down.saturating_sub(ailing(NodeState::Down) as u32);
            return counts;
        }
        let targets = self.cluster.tracked_targets();
        let (unread, read): (Vec<_>, Vec<_>) =
            targets.iter().partition(|target| target.node.is_none());
        let read_hosts: HashSet<_> = if unread.is_empty() {
            HashSet::new()
        } else {
            read.iter().map(|target| host_of(&target.target.address)).collect()
        };
        for target in unread {
            match (self.standing(target), &target.target.node) {
                (TargetHealth::Live, _) => {}
                (TargetHealth::Down, Some(name)) => {
                    if self.cluster.node_by_name(name).is_none() {
                        unreached.insert(name.clone());
                    }
                }
                (TargetHealth::Down, None) => {
                    let host = host_of(&target.target.address);
                    if !read_hosts.contains(&host) {
                        unreached.insert(host);
                    }
                }
                (TargetHealth::Pending, _) => counts.pending += 1,
            }
        }
        counts.down = unreached.len() as u32;
        counts
    }

    fn lost_now(&self, states: &[StateCount]) -> LostGpuTime {
        let (totals, gpus) = (self.loss.totals, gpus_of_parts(self.loss.totals.total_parts()));
        let unknown = states.iter().filter(|count| !is_known(**count));
        LostGpuTime {
            gpus,
            findings_gpus: gpus_of_parts(totals.findings),
            idle_gpus: gpus_of_parts(totals.idle),
            unexplained_gpus: gpus_of_parts(totals.unexplained),
            unknown_gpus: unknown.map(|count| count.gpus).sum(),
            cost_per_hour: self.options.price_per_gpu_hour.map(|price| price * gpus),
            price_per_gpu_hour: self.options.price_per_gpu_hour,
            currency: self.options.currency.clone(),
            history: self.lost_series.points_until(self.at),
            history_step_ms: lost_gpus::STEP.as_millis() as u64,
        }
    }

    fn trouble_messages(&self) -> Vec<SanitizedText> {
        if self.past.is_some() {
            return Vec::new();
        }
        let recording =
            self.cluster.recording_status().and_then(|recording| recording.trouble.clone());
        let sources = self.source_troubles();
        let targets = self.cluster.tracked_targets().iter();
        let targets =
            targets.filter_map(|target| gaunt_judge::target_problem(self.cluster, target));
        let unlisted = self.unlisted_findings_message();
        let own = self.save_failure.cloned().into_iter().chain(recording);
        let all = own.chain(unlisted).chain(sources).chain(targets);
        all.take(MAX_TROUBLE).collect()
    }

    /// Messages about peers, the store, target sources and site files.
    fn source_troubles(&self) -> impl Iterator<Item = SanitizedText> {
        let is_now = self.past.is_none();
        let peers = self.peer_lines().into_iter().filter_map(|peer| {
            let why = format!("aggregator {}: {}", peer.address, peer.failure?);
            Some(SanitizedText::new(&why))
        });
        let store = self.store_line().and_then(|store| {
            let why = format!("store {}: {}", store.address, store.failure?);
            Some(SanitizedText::new(&why))
        });
        let sources = self.cluster.target_sources().iter().map(|source| &source.trouble);
        let files = self.cluster.site_files().iter().map(|file| &file.trouble);
        let files = sources.chain(files).flatten().cloned();
        peers.chain(store).chain(files).filter(move |_| is_now)
    }

    /// The store that verdicts are written to, once it is known.
    pub(super) fn store_line(&self) -> Option<StoreLine> {
        self.options.store.as_ref().and_then(|line| line.borrow().clone())
    }

    /// The other aggregators of the cluster.
    pub(super) fn peer_lines(&self) -> Vec<PeerLine> {
        self.options.peers.as_ref().map(|lines| lines.borrow().clone()).unwrap_or_default()
    }

    /// What sources that are queried cost their servers, and what their data lacks.
    fn source_notes(&self) -> impl Iterator<Item = SanitizedText> {
        let sources = self.cluster.target_sources().iter();
        sources.filter_map(|source| {
            let load = source.load?;
            let SourceLoad { queries, samples, answer_ms, refresh_ms, delay_ms, skew_ms, .. } = load;
            let (requests, answered) =
                if load.is_received { ("requests", "read") } else { ("queries", "answered") };
            let skew = match skew_ms.map(|ms| ms / 1_000) {
                Some(seconds) if seconds > MAX_SKEW_SECONDS => {
                    format!("; its clock is {seconds} s ahead, check NTP")
                }
                Some(seconds) if seconds < -MAX_SKEW_SECONDS => {
                    format!("; its clock is {} s behind, check NTP", -seconds)
                }
                _ => String::new(),
            };
            Some(SanitizedText::new(&format!(
                "{}: {samples} samples in {queries} {requests} every {:.0} s, {answered} in {:.1} s; shown {:.0} s \
                 late{skew}; no processes, and no values between its scrapes",
                source.name,
                refresh_ms as f64 / 1e3,
                answer_ms / 1e3,
                delay_ms as f64 / 1e3,
            )))
        })
    }

    /// A message about findings above the limit of the list.
    fn unlisted_findings_message(&self) -> Option<SanitizedText> {
        let kinds: Vec<String> = self
            .without_place
            .into_iter()
            .flatten()
            .map(|(kind, findings)| format!("{findings} {kind}"))
            .collect();
        (!kinds.is_empty()).then(|| {
            SanitizedText::new(&format!(
                "finding limit reached; not listed are {}. Check `findings_over_limit` and the \
                 nodes with most findings first",
                kinds.join(", ")
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Delivery, Entity, ScrapeTarget, Severity, TargetId, TargetSource, UnixMs};

    use super::*;
    use gaunt_api::{JobOwner, samples::idle_finding};

    #[test]
    fn group_is_complete_and_hides_no_worse_finding() {
        let mut findings: Vec<Finding> = (0..83).map(idle_finding).collect();
        let warning = |at| Finding { severity: Severity::Warning, ..idle_finding(at) };
        findings.extend([100, 101].map(warning));
        let owner_of = |_: &Entity| JobOwner { user: Some("sam".into()), account: None };
        let groups = FindingGroup::group_findings(&findings, owner_of);
        let list = FindingList { findings, groups, ..FindingList::default() };
        let (worst, groups) = worst_findings(&list);
        assert_eq!(worst.len(), MAX_FINDINGS);
        let urgent = worst.iter().filter(|finding| finding.severity == Severity::Warning);
        assert_eq!(urgent.count(), 2, "what comes after 83 others has its place");
        assert_eq!((groups[0].members.len(), groups[0].lost_gpus), (83, 664.0));
        assert!(worst.iter().any(|finding| finding.id == groups[0].members[0]));
    }

    #[test]
    fn load_on_a_queried_server_is_stated() {
        let mut engine = crate::Engine::new(crate::EngineOptions::default());
        let load = SourceLoad {
            queries: 12,
            samples: 25_000,
            answer_ms: 420.0,
            refresh_ms: 15_000,
            delay_ms: 25_000,
            skew_ms: Some(-61_200),
            is_received: false,
        };
        let queried = TargetSource {
            name: "http://prometheus:9090".into(),
            targets: 2,
            taken: None,
            trouble: None,
            failed_since: None,
            load: Some(load),
        };
        let listed = TargetSource { name: "--targets".into(), load: None, ..queried.clone() };
        let target = |id: u32, origin: &SanitizedText| ScrapeTarget {
            id: TargetId(id),
            address: format!("10.0.0.{id}:9400").into(),
            node: None,
            origin: origin.clone(),
        };
        let targets = vec![target(1, &listed.name), target(2, &queried.name)];
        engine.ingest_delivery(Delivery::Targets(targets));
        engine.ingest_delivery(Delivery::Sources(vec![listed, queried]));
        for second in 1..=6 {
            engine.run_tick(UnixMs(second * 1_000));
        }
        let overview = engine.view().build_overview();
        let (notes, trouble) = (&overview.source_notes, &overview.trouble);
        // What gaunt did not scrape in time is its own lateness, and what the server did not is the server's.
        assert!(trouble[0].contains("gaunt itself is late"), "{trouble:?}");
        assert!(
            trouble[1].contains("http://prometheus:9090 has no scrape of it in time. Check that"),
            "{trouble:?}"
        );
        assert_eq!(notes.len(), 1);
        assert_eq!(
            notes[0].as_str(),
            "http://prometheus:9090: 25000 samples in 12 queries every 15 s, answered in 0.4 s; shown 25 s late; its \
             clock is 61 s behind, check NTP; no processes, and no values between its scrapes"
        );
    }
}
