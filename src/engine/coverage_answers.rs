//! Answers about telemetry coverage: what no page, source or scheduler reports, computed from the present state.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gaunt_schema::{
    DeviceClass, Dialect, GpuState, SanitizedText, TopologyOrigin,
    catalogue::{gpu, host},
};

use super::view::View;
use gaunt_api::{
    CoverageCheck, CoverageKind, CoverageState, OriginCount, RenewalGroup, TelemetryCoverage,
    telemetry_coverage::{MAX_MISSING_NAMES, MAX_RENEWAL_GROUPS},
};
use gaunt_cluster::{AttributedFact, Cluster, Node, NodeId, TargetHealth};
use gaunt_judge::{
    has_other_nodes, is_port_active, least_inferred_seconds, reported_state_seconds, target_problem,
};

mod coverage_texts;
mod installation_checks;

/// The classes whose values findings are inferred from.
const INFERRED_FROM: [DeviceClass; 3] = [DeviceClass::Gpu, DeviceClass::Node, DeviceClass::Port];

/// From this interval on, groups of renewal intervals differ by whole seconds, and below by tenths.
const COARSE_FROM: Duration = Duration::from_secs(2);

/// How many of several things are known, and the names of those that lack it.
#[derive(Default)]
struct KnownCount {
    known: u32,
    total: u32,
    missing: BTreeSet<SanitizedText>,
    origins: BTreeMap<String, u32>,
}

/// One node with what pages report of it.
#[derive(Clone, Copy)]
struct CoveredNode<'a> {
    id: NodeId,
    node: &'a Node,
    has_gpus: bool,
    has_host: bool,
}

impl KnownCount {
    /// Counts one thing of a node or target with this name.
    fn count(&mut self, name: &SanitizedText, is_known: bool) {
        self.total += 1;
        if is_known {
            self.known += 1;
        } else if !self.missing.contains(name) {
            self.missing.insert(name.clone());
        }
    }

    /// Counts one thing whose topology a source may state.
    fn count_fact(&mut self, name: &SanitizedText, fact: Option<&AttributedFact>) {
        self.count(name, fact.is_some());
        if let Some(fact) = fact {
            let origin = match fact.origin {
                TopologyOrigin::Page => "pages of the nodes".to_owned(),
                origin => format!("{} {}", origin.as_str(), fact.source),
            };
            *self.origins.entry(origin).or_default() += 1;
        }
    }

    /// Builds the check; without anything to count, it does not apply.
    fn into_check(self, kind: CoverageKind) -> Option<CoverageCheck> {
        if self.total == 0 {
            return None;
        }
        let state =
            if self.known == self.total { CoverageState::Ok } else { CoverageState::Missing };
        let (summary, next) = coverage_texts::describe_check(kind, self.known, self.total);
        let mut origins: Vec<_> = self.origins.into_iter().collect();
        origins.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let origins = origins
            .into_iter()
            .take(MAX_MISSING_NAMES)
            .map(|(origin, count)| OriginCount { origin: SanitizedText::new(&origin), count });
        Some(CoverageCheck {
            kind,
            state,
            known: self.known,
            total: self.total,
            summary: SanitizedText::new(&summary),
            next: SanitizedText::new(if state == CoverageState::Ok { "" } else { next }),
            missing_total: self.missing.len() as u32,
            missing: self.missing.into_iter().take(MAX_MISSING_NAMES).collect(),
            origins: origins.collect(),
        })
    }
}

impl View<'_> {
    /// What is not known now.
    pub(super) fn telemetry_coverage(&self) -> TelemetryCoverage {
        let cluster = self.cluster;
        let nodes: Vec<CoveredNode<'_>> =
            cluster.sorted_nodes().map(|(id, node)| CoveredNode::of(cluster, id, node)).collect();
        let (intervals, intervals_total, inferred_seconds) = self.renewal_groups(&nodes);
        let count = |is: fn(&CoveredNode<'_>) -> bool| nodes.iter().filter(|it| is(it)).count();
        let gpus = |it: &CoveredNode<'_>| it.node.device_rows(DeviceClass::Gpu).len();
        TelemetryCoverage {
            at: self.at,
            nodes: count(|it| it.has_gpus || it.has_host) as u32,
            gpu_nodes: count(|it| it.has_gpus) as u32,
            gpus: nodes.iter().map(gpus).sum::<usize>() as u32,
            period_ms: cluster.scrape_period().as_millis() as u64,
            checks: self.coverage_checks(&self.answering_nodes(&nodes)),
            intervals,
            intervals_total,
            inferred_seconds,
            reported_seconds: reported_state_seconds(
                &self.options.thresholds,
                cluster.scrape_period(),
            ),
        }
    }

    /// The nodes without those of which no target answers: what they report is unknown, and not missing.
    fn answering_nodes<'a>(&self, nodes: &[CoveredNode<'a>]) -> Vec<CoveredNode<'a>> {
        let (mut live, mut named) = (BTreeSet::new(), BTreeSet::new());
        for target in self.cluster.tracked_targets() {
            let Some(node) = target.node else { continue };
            named.insert(node);
            if self.standing(target) == TargetHealth::Live {
                live.insert(node);
            }
        }
        let answers = |it: &&CoveredNode<'_>| live.contains(&it.id) || !named.contains(&it.id);
        nodes.iter().filter(answers).copied().collect()
    }

    fn coverage_checks(&self, nodes: &[CoveredNode<'_>]) -> Vec<CoverageCheck> {
        use CoverageKind as K;
        let cluster = self.cluster;
        let with_gpus = || nodes.iter().filter(|it| it.has_gpus);
        let checks = [
            Some(self.check_targets()),
            count_nodes(with_gpus(), |it| it.has_host).into_check(K::HostMetrics),
            check_gpu_metrics(nodes).filter(|_| self.is_any_read()),
            check_joined_nodes(cluster, nodes).into_check(K::JoinedNodes),
            count_nodes(with_gpus().filter(|it| it.has_host), |it| it.has_pressure(cluster))
                .into_check(K::PressureMetrics),
            check_exporter_fields(cluster),
            self.check_profiling(nodes).into_check(K::ProfilingCounters),
            check_ports(nodes),
            check_port_facts(cluster, nodes, K::Rails).into_check(K::Rails),
            check_port_facts(cluster, nodes, K::Leaves).into_check(K::Leaves),
            self.check_job_labels(nodes).into_check(K::JobLabels),
        ];
        checks.into_iter().flatten().chain(self.installation_checks(nodes)).collect()
    }

    /// Whether a target is read, or there is none: else nothing is known of the fleet.
    fn is_any_read(&self) -> bool {
        let targets = self.cluster.tracked_targets();
        let is_live = |target| self.standing(target) == TargetHealth::Live;
        targets.is_empty() || targets.iter().any(is_live)
    }

    /// Targets that are read; without any target there is nothing else to check.
    fn check_targets(&self) -> CoverageCheck {
        let (mut counted, mut problem, mut untried) = (KnownCount::default(), None, 0_u32);
        for target in self.cluster.tracked_targets() {
            let health = self.standing(target);
            // Neither read nor missing.
            if health == TargetHealth::Pending {
                untried += 1;
                continue;
            }
            // A page of which nothing is taken, and no node: another program's, or that of an aggregator.
            let is_useless = target.flag.is_some() && target.node.is_none();
            let is_read = health == TargetHealth::Live && !is_useless && !has_other_nodes(target);
            counted.count(&target.target.address, is_read);
            if !is_read {
                problem = problem.or_else(|| target_problem(self.cluster, target));
            }
        }
        let Some(check) = counted.into_check(CoverageKind::Targets) else {
            if untried > 0 {
                return note_untried(empty_check(CoverageKind::Targets), untried);
            }
            return CoverageCheck {
                state: CoverageState::Missing,
                summary: SanitizedText::new("no targets: no source lists any"),
                next: SanitizedText::new(coverage_texts::NO_TARGETS_NEXT),
                ..empty_check(CoverageKind::Targets)
            };
        };
        let check = if untried > 0 { note_untried(check, untried) } else { check };
        match problem {
            // The reasons of the others are where the text of the kind says.
            Some(first) if check.missing_total > 1 => CoverageCheck {
                next: SanitizedText::new(&format!(
                    "{}. {}",
                    first.trim_end_matches('.'),
                    check.next
                )),
                ..check
            },
            Some(only) => CoverageCheck { next: only, ..check },
            None => check,
        }
    }

    /// GPUs in use with a job; an idle GPU has none.
    fn check_job_labels(&self, nodes: &[CoveredNode<'_>]) -> KnownCount {
        let mut counted = KnownCount::default();
        for it in nodes {
            for row in it.node.device_rows(DeviceClass::Gpu) {
                let is_unused = matches!(
                    self.gpu_state(*row),
                    GpuState::Idle | GpuState::Lost | GpuState::Stale | GpuState::Unknown
                );
                if !is_unused {
                    counted.count(&it.node.name, self.cluster.job_of_gpu(*row).is_some());
                }
            }
        }
        counted
    }

    /// GPUs with the profiling counter that tells computing from waiting.
    fn check_profiling(&self, nodes: &[CoveredNode<'_>]) -> KnownCount {
        let mut counted = KnownCount::default();
        for it in nodes {
            // A GPU that is lost has no counters at all, which is what its finding says.
            let rows = it.node.device_rows(DeviceClass::Gpu).iter();
            for row in rows.filter(|row| self.gpu_state(**row) != GpuState::Lost) {
                let is_known = self.cluster.current_value(gpu::TENSOR_ACTIVE, *row).is_some();
                counted.count(&it.node.name, is_known);
            }
        }
        counted
    }

    /// Groups the nodes by exporter format, class and measured interval: the groups, the rarest renewals first, their
    /// number, and the shortest delay of all.
    fn renewal_groups(&self, nodes: &[CoveredNode<'_>]) -> (Vec<RenewalGroup>, u32, Option<f64>) {
        let period = self.cluster.scrape_period();
        let mut counts: BTreeMap<(Dialect, DeviceClass, Option<Duration>), u32> = BTreeMap::new();
        for it in nodes {
            for class in INFERRED_FROM.into_iter().filter(|class| it.has_class(*class)) {
                if let Some(dialect) = it.node.feed_dialect(class) {
                    let interval = it.node.renewals(class).whole_interval();
                    let interval = interval.map(|interval| round_interval(interval, period));
                    *counts.entry((dialect, class, interval)).or_default() += 1;
                }
            }
        }
        let group = |((dialect, class, interval), nodes): (
            (Dialect, DeviceClass, Option<Duration>),
            u32,
        )| {
            let delay = |interval: Duration| {
                least_inferred_seconds(&self.options.thresholds, class, interval.max(period))
            };
            RenewalGroup {
                dialect,
                class,
                nodes,
                renewal_seconds: interval.map(|interval| interval.as_secs_f64()),
                inferred_seconds: interval.and_then(delay),
            }
        };
        let mut groups: Vec<RenewalGroup> = counts.into_iter().map(group).collect();
        let least = groups.iter().filter_map(|group| group.inferred_seconds).reduce(f64::min);
        let seconds = |group: &RenewalGroup| group.renewal_seconds.unwrap_or_default();
        groups.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
        let total = groups.len() as u32;
        groups.truncate(MAX_RENEWAL_GROUPS);
        (groups, total, least)
    }
}

impl<'a> CoveredNode<'a> {
    fn of(cluster: &Cluster, id: NodeId, node: &'a Node) -> Self {
        // A page may name devices of which it has no values.
        let has_gpus = node.last_fed(DeviceClass::Gpu).is_some();
        Self { id, node, has_gpus, has_host: cluster.has_host_metrics(node) }
    }

    fn has_class(&self, class: DeviceClass) -> bool {
        match class {
            DeviceClass::Gpu => self.has_gpus,
            DeviceClass::Node => self.has_host,
            class => self.node.last_fed(class).is_some(),
        }
    }

    /// Whether the host reports PSI: pressure of IO or CPUs.
    fn has_pressure(&self, cluster: &Cluster) -> bool {
        let Some(row) = self.node.own_row() else { return false };
        let pressures = [host::IO_PRESSURE, host::CPU_PRESSURE];
        pressures.iter().any(|metric| cluster.current_value(*metric, row).is_some())
    }
}

/// Whole seconds, or tenths of short intervals, since intervals of one exporter format vary with the moment of the scrape;
/// one that differs from the scrape period by less than a quarter is the period.
fn round_interval(interval: Duration, period: Duration) -> Duration {
    if interval.abs_diff(period) < period / 4 {
        return period;
    }
    let step_ms = if interval >= COARSE_FROM { 1_000 } else { 100 };
    let ms = interval.as_millis() as u64;
    Duration::from_millis((ms + step_ms / 2) / step_ms * step_ms)
}

fn count_nodes<'a>(
    nodes: impl Iterator<Item = &'a CoveredNode<'a>>,
    is_known: impl Fn(&CoveredNode<'_>) -> bool,
) -> KnownCount {
    let mut counted = KnownCount::default();
    for it in nodes {
        counted.count(&it.node.name, is_known(it));
    }
    counted
}

/// A check of nothing.
fn empty_check(kind: CoverageKind) -> CoverageCheck {
    CoverageCheck {
        kind,
        state: CoverageState::Ok,
        known: 0,
        total: 0,
        summary: SanitizedText::default(),
        next: SanitizedText::default(),
        missing: Vec::new(),
        missing_total: 0,
        origins: Vec::new(),
    }
}

/// Adds targets that were not tried yet. They are no fault, but without them not all is known.
fn note_untried(check: CoverageCheck, untried: u32) -> CoverageCheck {
    let text = coverage_texts::describe_untried(untried);
    let summary = match check.total {
        0 => text,
        _ => format!("{}; {text}", check.summary),
    };
    let (summary, total) = (SanitizedText::new(&summary), check.total + untried);
    if check.state == CoverageState::Missing {
        return CoverageCheck { summary, total, ..check };
    }
    let next = SanitizedText::new(coverage_texts::UNTRIED_NEXT);
    CoverageCheck { state: CoverageState::Note, summary, total, next, ..check }
}

/// Nodes with host metrics that have GPUs. A fleet has hosts without GPUs, but not only such.
fn check_gpu_metrics(nodes: &[CoveredNode<'_>]) -> Option<CoverageCheck> {
    let with_host = nodes.iter().filter(|it| it.has_host);
    let check = count_nodes(with_host, |it| it.has_gpus).into_check(CoverageKind::GpuMetrics);
    if !nodes.iter().any(|it| it.has_gpus) {
        return Some(CoverageCheck {
            state: CoverageState::Missing,
            summary: SanitizedText::new("no node has GPU metrics: no GPU is watched"),
            next: SanitizedText::new(coverage_texts::NO_GPUS_NEXT),
            ..check.unwrap_or_else(|| empty_check(CoverageKind::GpuMetrics))
        });
    }
    let mut check = check?;
    if check.state == CoverageState::Missing {
        check.state = CoverageState::Note;
    }
    Some(check)
}

/// Nodes with GPUs whose host metrics are not on another node that looks like the same machine.
fn check_joined_nodes(cluster: &Cluster, nodes: &[CoveredNode<'_>]) -> KnownCount {
    let with_gpus = nodes.iter().filter(|it| it.has_gpus).count() as u32;
    let name_of = |id| cluster.node_by_id(id).map(|node| node.name.as_str()).unwrap_or_default();
    let split = cluster.split_nodes();
    let halves: BTreeSet<NodeId> = split.iter().map(|(gpus, _)| *gpus).collect();
    let names = split.iter().map(|(gpus, host)| {
        let names = format!("{} (GPUs) + {} (host metrics)", name_of(*gpus), name_of(*host));
        SanitizedText::new(&names)
    });
    let known = with_gpus.saturating_sub(halves.len() as u32);
    KnownCount { known, total: with_gpus, missing: names.collect(), ..KnownCount::default() }
}

/// Targets of dcgm-exporter whose fields are all understood. Custom lists have fields that gaunt does not use; a page of
/// which most are unknown, or whose GPUs lack a reading that all default lists have, is of another version.
fn check_exporter_fields(cluster: &Cluster) -> Option<CoverageCheck> {
    let mut counted = KnownCount::default();
    let mut is_another_version = false;
    for target in cluster.tracked_targets() {
        let fields = &target.rejected.fields;
        // Nothing of a page of unknown format is understood, which the check of the targets tells.
        let is_other = target.dialect == Some(Dialect::Unknown) || fields.is_empty();
        if target.dialect != Some(Dialect::Dcgm) && is_other {
            continue;
        }
        counted.total += 1;
        counted.known += u32::from(fields.is_empty());
        counted.missing.extend(fields.names.iter().cloned());
        let node = target.node.and_then(|node| cluster.node_by_id(node));
        let lacks_usual =
            !fields.is_empty() && node.is_some_and(|it| lacks_usual_field(cluster, it));
        is_another_version |= fields.is_mostly_unknown() || lacks_usual;
    }
    let mut check = counted.into_check(CoverageKind::ExporterFields)?;
    if check.state == CoverageState::Missing && !is_another_version {
        check.state = CoverageState::Note;
    }
    Some(check)
}

/// Whether no GPU of a node has one of the readings that every default list of dcgm-exporter has, also with MIG.
fn lacks_usual_field(cluster: &Cluster, node: &Node) -> bool {
    let rows = node.device_rows(DeviceClass::Gpu);
    let is_absent = |metric| rows.iter().all(|row| cluster.current_value(metric, *row).is_none());
    !rows.is_empty() && [gpu::POWER, gpu::TEMPERATURE, gpu::SM_CLOCK].into_iter().any(is_absent)
}

/// Nodes with GPUs that have metrics of RDMA ports. A fleet without any may have no such network.
fn check_ports(nodes: &[CoveredNode<'_>]) -> Option<CoverageCheck> {
    let with_gpus = nodes.iter().filter(|it| it.has_gpus);
    let counted = count_nodes(with_gpus, |it| it.has_class(DeviceClass::Port));
    let is_any = counted.known > 0;
    let mut check = counted.into_check(CoverageKind::PortMetrics)?;
    if !is_any {
        check.state = CoverageState::Note;
    }
    Some(check)
}

/// Active ports of nodes with GPUs whose rail or leaf switch a source states; between ports of one node there is no
/// fabric to know. A scheduler states the leaf of a whole node.
fn check_port_facts(
    cluster: &Cluster,
    nodes: &[CoveredNode<'_>],
    kind: CoverageKind,
) -> KnownCount {
    let topology = cluster.topology();
    let mut counted = KnownCount::default();
    let with_ports = || nodes.iter().filter(|it| it.has_gpus && it.has_class(DeviceClass::Port));
    if with_ports().count() < 2 {
        return counted;
    }
    for it in with_ports() {
        for row in it.node.device_rows(DeviceClass::Port) {
            if is_port_active(cluster, *row) != Some(true) {
                continue;
            }
            let fact = if kind == CoverageKind::Rails {
                topology.port_topology(*row).and_then(|port| port.rail.as_ref())
            } else {
                topology.leaf_of_port(it.id, *row)
            };
            counted.count_fact(&it.node.name, fact);
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_one_exporter_are_one_group() {
        let period = Duration::from_secs(1);
        let rounded = |ms| round_interval(Duration::from_millis(ms), period).as_millis();
        assert_eq!(
            [29_600, 30_400, 860, 1_049, 1_220, 1_310, 480].map(rounded),
            [30_000, 30_000, 1_000, 1_000, 1_000, 1_300, 500]
        );
    }

    #[test]
    fn check_counts_things_and_lists_their_nodes_once() {
        let mut counted = KnownCount::default();
        for (name, known) in [("b", false), ("b", false), ("a", true)] {
            counted.count(&name.into(), known);
        }
        let check = counted.into_check(CoverageKind::ProfilingCounters).unwrap();
        assert_eq!((check.known, check.total, check.list_missing().as_str()), (1, 3, "b"));
        assert_eq!(check.state, CoverageState::Missing);
        assert!(check.summary.starts_with("2 of 3 GPUs have no profiling counters"), "{check:?}");
        assert!(KnownCount::default().into_check(CoverageKind::Rails).is_none());
    }
}
