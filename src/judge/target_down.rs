//! Targets that cannot be scraped: one finding for each node, however many of its targets fail.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
};

use gaunt_schema::{
    Entity, Finding, FindingKind, Quota, SanitizedText, ScrapeFailure, Severity, UnixMs,
    text::Reason,
};

use super::{
    EvidenceRow, JudgeState,
    aggregator_late::{failed_targets, is_aggregator_late},
    finding_lifecycle::DetectorOutcome,
    pending_finding::{CERTAIN, format_count, format_time_of_day},
    port_down::jobs_on_node,
    rack_down::{NodeDown, add_nodes_or_racks},
    silent_node::{SilentNode, cap_nodes_silent_together},
};
use gaunt_cluster::{Cluster, TargetHealth, TrackedTarget, host_of};

/// The maximum of targets of one node that a finding lists.
const MAX_NAMED: usize = 8;

/// Adds the nodes with failed targets.
pub(super) fn detect_down_targets(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let late = is_aggregator_late(judge, cluster);
    let mut by_node: BTreeMap<SanitizedText, Vec<&TrackedTarget>> = BTreeMap::new();
    for target in failed_targets(judge, cluster).filter(|target| !(late && target.is_missed())) {
        by_node.entry(reported_node(judge, cluster, target)).or_default().push(target);
    }
    let all = OnceCell::new();
    let mut nodes = Vec::new();
    for (name, targets) in by_node {
        let all_fail = || {
            let all = all.get_or_init(|| targets_of_nodes(judge, cluster));
            all.get(&name).is_none_or(|all| *all <= targets.len())
        };
        let found = Found { name: &name, targets: &targets, all_fail: &all_fail };
        nodes.push(node_finding(judge, cluster, &found));
    }
    cap_nodes_silent_together(judge, &mut nodes);
    add_nodes_or_racks(judge, cluster, nodes, outcome);
}

/// A node with failed targets.
struct Found<'a> {
    name: &'a SanitizedText,
    /// The failed targets.
    targets: &'a [&'a TrackedTarget],
    /// Whether the node has no others.
    all_fail: &'a dyn Fn() -> bool,
}

/// Returns the number of targets of every node.
fn targets_of_nodes(judge: &JudgeState, cluster: &Cluster) -> HashMap<SanitizedText, usize> {
    let mut all: HashMap<SanitizedText, usize> = HashMap::new();
    for target in cluster.tracked_targets() {
        *all.entry(reported_node(judge, cluster, target)).or_default() += 1;
    }
    all
}

fn node_finding(judge: &JudgeState, cluster: &Cluster, found: &Found<'_>) -> NodeDown {
    let (name, targets) = (found.name, found.targets);
    let id = format!("{}/{name}", FindingKind::TargetDown);
    let node = cluster.node_by_name(name).map(|(_, node)| node);
    // The jobs of a node that was not read since a restart are only known from before it.
    let before = judge.tracker.open_one(&id).filter(|_| node.is_none());
    let jobs_before = judge.restored_baselines.jobs(name).filter(|_| node.is_none());
    let jobs = match node {
        Some(node) => jobs_on_node(cluster, node),
        None => jobs_before.into_iter().flatten().cloned().collect(),
    };
    let is_silent = match node {
        Some(node) => node.sources.iter().all(|speaker| {
            cluster
                .target_by_id(speaker.target)
                .is_some_and(|target| target.health == TargetHealth::Down)
        }),
        None => jobs_before.is_some() && (found.all_fail)(),
    };
    let since = if is_silent { silent_since(cluster, found) } else { failing_since(targets) };
    let since = since.unwrap_or_else(|| cluster.now());
    let since = before.map_or(since, |before| before.since.min(since));
    let limit = Some(f64::from(judge.limits.target_failures));
    let evidence = targets.iter().take(MAX_NAMED).flat_map(|target| {
        let address = &target.target.address;
        let failures = Some(f64::from(target.failures));
        let failed = EvidenceRow::FailedScrapes
            .to_evidence(failures, limit)
            .with_name(address)
            .with_note(failure_reason(cluster, target));
        let dropped = target.dropped_lately().map(|results| {
            EvidenceRow::DiscardedResults.to_evidence(Some(results as f64), None).with_name(address)
        });
        [Some(failed), dropped].into_iter().flatten()
    });
    let silence = SilentNode { name, node, jobs: &jobs, since }.judge_silence(judge, cluster, &id);
    let critical = is_silent && silence.is_lost;
    let severity = if critical { Severity::Critical } else { Severity::Warning };
    // What the node's GPUs do meanwhile is unknown, so no cost can be counted.
    let finding = Finding {
        since,
        confidence: CERTAIN,
        victims: if is_silent { jobs.iter().map(Entity::new_job).collect() } else { Vec::new() },
        summary: render_summary(cluster, (name, targets), since, is_silent),
        next: targets.first().map(|target| next_step(cluster, target)).unwrap_or_default(),
        evidence: evidence.collect(),
        ..Finding::new(FindingKind::TargetDown, severity, Entity::new_node(name))
    };
    NodeDown { finding, is_silent, is_up: is_silent && silence.is_up }
}

/// Returns since when the first of these targets fails.
fn failing_since(targets: &[&TrackedTarget]) -> Option<UnixMs> {
    targets.iter().filter_map(|target| target.down_since).min()
}

/// Returns since when a node is silent of which nothing answers: since the last of its targets fails, which may have failed
/// only once yet.
fn silent_since(cluster: &Cluster, found: &Found<'_>) -> Option<UnixMs> {
    let node = cluster.node_by_name(found.name).map(|(_, node)| node);
    let speakers = node.into_iter().flat_map(|node| &node.sources);
    let speakers = speakers.filter_map(|speaker| cluster.target_by_id(speaker.target));
    let all = found.targets.iter().copied().chain(speakers);
    all.filter_map(|target| target.down_since).max()
}

fn render_summary(
    cluster: &Cluster,
    (name, targets): (&SanitizedText, &[&TrackedTarget]),
    since: UnixMs,
    is_silent: bool,
) -> String {
    let since = format_time_of_day(since);
    let what = match targets {
        [only] => format!("{}: {}", only.target.address, failure_reason(cluster, only)),
        [first, ..] => {
            let (all, why) =
                (format_count(targets.len(), "target"), failure_reason(cluster, first));
            format!("{all} fail, first {}: {why}", first.target.address)
        }
        [] => String::new(),
    };
    if is_silent {
        return format!("No target answers on {name} since {since}: {what}.");
    }
    let verb = if targets.len() == 1 { "A target of" } else { "Targets of" };
    format!("{verb} {name} cannot be scraped since {since}: {what}.")
}

/// Returns the node name under which a target's failure is reported.
fn reported_node(judge: &JudgeState, cluster: &Cluster, target: &TrackedTarget) -> SanitizedText {
    let configured = target.target.node.clone().filter(|name| !name.is_empty());
    let reported = || target.node.and_then(|id| Some(cluster.node_by_id(id)?.name.clone()));
    // A target that was not read since a restart reported as the same node before.
    let remembered = || judge.node_names.of(&target.target.address).cloned();
    configured
        .or_else(reported)
        .or_else(remembered)
        .unwrap_or_else(|| host_of(&target.target.address))
}

/// Describes in a few words why a target fails.
fn failure_reason(cluster: &Cluster, target: &TrackedTarget) -> String {
    match (&target.failure, read_from(cluster, target)) {
        (Some(failure), _) => failure.to_string(),
        (None, Some(server)) => format!("{server} has no scrape of it in time"),
        (None, None) => "no scrape was attempted in time".to_owned(),
    }
}

/// The server whose scrapes of a target are read, or the sender of them; none if gaunt scrapes it.
fn read_from<'a>(cluster: &'a Cluster, target: &TrackedTarget) -> Option<&'a SanitizedText> {
    let mut sources = cluster.target_sources().iter();
    let found = sources.find(|source| source.name == target.target.origin && source.load.is_some());
    found.map(|source| &source.name)
}

/// Returns one sentence for a target that is not read, with the next step; none if it is read.
pub fn target_problem(cluster: &Cluster, target: &TrackedTarget) -> Option<SanitizedText> {
    if target.health != TargetHealth::Down {
        return target.flag.clone().or_else(|| of_other_nodes(target)).or_else(|| dropped(target));
    }
    let (address, reason) = (&target.target.address, failure_reason(cluster, target));
    Some(SanitizedText::new(&format!("{address}: {reason}. {}", next_step(cluster, target))))
}

/// The series of a target's page that are of other nodes than its first; none if it has those of one node.
fn other_nodes_series(target: &TrackedTarget) -> Option<u64> {
    let mut counts = target.rejected.by_reason.iter();
    counts.find(|(reason, _)| **reason == *Reason::OtherNode.as_str()).map(|(_, series)| *series)
}

/// Whether a target's page has series of several nodes, of which only those of the first are read.
pub fn has_other_nodes(target: &TrackedTarget) -> bool {
    other_nodes_series(target).is_some()
}

/// Describes a target whose page has series of several nodes; none if it has those of one.
fn of_other_nodes(target: &TrackedTarget) -> Option<SanitizedText> {
    let series = other_nodes_series(target)?;
    let series = format_count(series as usize, "line");
    Some(SanitizedText::new(&format!(
        "{}: its page is that of a federation, a collector or a proxy; not read: {series} of other nodes than the first on it. \
         Scrape the exporters themselves, or read the Prometheus with --prometheus.",
        target.target.address
    )))
}

/// Describes a target that is read but whose late results were discarded lately; none if there were none.
fn dropped(target: &TrackedTarget) -> Option<SanitizedText> {
    let (results, at) = (target.dropped_lately()?, format_time_of_day(target.dropped_at?));
    let results = format_count(results as usize, "result");
    Some(SanitizedText::new(&format!(
        "{}: {results} arrived after a newer one and were discarded, the last at {at}. \
         Check the log of gaunt with RUST_LOG=gaunt=debug for the delay.",
        target.target.address
    )))
}

/// Returns the next step for a failed target.
fn next_step(cluster: &Cluster, target: &TrackedTarget) -> String {
    let address = &target.target.address;
    let url = if address.contains("://") {
        address.to_string()
    } else {
        format!("http://{address}/metrics")
    };
    match &target.failure {
        Some(ScrapeFailure::Connect(_)) => {
            format!("Check that an exporter runs and listens on {address}.")
        }
        Some(ScrapeFailure::OutOfFiles(_)) => {
            "Raise it with `ulimit -n 27000`, or LimitNOFILE=27000 in gaunt's unit.".to_owned()
        }
        Some(ScrapeFailure::Timeout(_)) => {
            format!("Check the load of the node and the network path; try `curl {url}`.")
        }
        // 421, Misdirected Request: gaunt-node guards against DNS rebinding by web pages.
        Some(ScrapeFailure::Status(421)) => format!(
            "gaunt-node does not know the host name in {address}: add it to `names` of its settings, or \
             use the IP address."
        ),
        // The reason has the next step.
        Some(ScrapeFailure::Broken(why)) if why.starts_with("TLS: ") => {
            format!("`openssl s_client -connect {address} -showcerts` shows its certificates.")
        }
        Some(ScrapeFailure::Status(_) | ScrapeFailure::Broken(_) | ScrapeFailure::NotAPage(_)) => {
            format!("Check that {address} is an exporter; try `curl {url}`.")
        }
        Some(ScrapeFailure::ReportedDown(server)) => {
            format!("Read the error of {address} at {server}/targets.")
        }
        Some(ScrapeFailure::TooLarge(_)) => {
            "If this page size is intended, raise `[gather] max_body`.".to_owned()
        }
        Some(ScrapeFailure::OverBudget(excess)) => match excess.budget.settings_key() {
            Some(key) => format!(
                "Check the output of `curl {url}`; if it is intended, raise `[gather] {key}`."
            ),
            None if excess.budget == Quota::IngestTime => {
                format!("Run `curl {url}` twice and check what changes between the pages.")
            }
            None => format!("The page is abnormally repetitive: check the output of `curl {url}`."),
        },
        Some(ScrapeFailure::Forbidden(why)) if why.contains("`allow`") => {
            "Correct the address, or add it to `[gather] allow`.".to_owned()
        }
        // Its address, or a file with the credentials of its group.
        Some(ScrapeFailure::Forbidden(_)) => {
            "Correct that in the settings, or the file: it is read again when it changes."
                .to_owned()
        }
        Some(
            ScrapeFailure::Skipped | ScrapeFailure::OwnLateness(_) | ScrapeFailure::Resting(_),
        )
        | None => {
            if read_from(cluster, target).is_some() {
                return "Check that the Prometheus which scrapes it runs, is not overloaded and still has it as a target."
                    .to_owned();
            }
            "gaunt itself is late: give it more CPU, or a longer `[gather] period`.".to_owned()
        }
    }
}
