//! Targets that bring no page: one finding for each node, however many of its targets fail.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
};

use gaunt_schema::{Budget, Entity, Failure, FindingKind, Safe, Severity, UnixMs, unit::Unit};

use super::{
    Evidence, Finding, Judge, aggregator_late,
    finding::{count, time_of_day},
    life::Seen,
    port_down::jobs,
};
use crate::cluster::{Cluster, Scraped, Standing, host_of};

/// The most targets of one node that are named in a finding.
const MAX_NAMED: usize = 8;

/// Adds the nodes with targets that fail.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    let late = aggregator_late::is_late(judge, cluster);
    let mut places: BTreeMap<Safe, Vec<&Scraped>> = BTreeMap::new();
    for target in down(judge, cluster).filter(|target| !(late && target.is_missed())) {
        places.entry(place(judge, cluster, target)).or_default().push(target);
    }
    let all = OnceCell::new();
    for (name, targets) in places {
        let all_fail = || {
            let all = all.get_or_init(|| targets_of_nodes(judge, cluster));
            all.get(&name).is_none_or(|all| *all <= targets.len())
        };
        let found = Found { name: &name, targets: &targets, all_fail: &all_fail };
        seen.findings.push(finding(judge, cluster, &found));
    }
}

/// A node with targets that fail.
struct Found<'a> {
    name: &'a Safe,
    /// Those that fail.
    targets: &'a [&'a Scraped],
    /// Whether it has no others.
    all_fail: &'a dyn Fn() -> bool,
}

/// How many targets every node has.
fn targets_of_nodes(judge: &Judge, cluster: &Cluster) -> HashMap<Safe, usize> {
    let mut all: HashMap<Safe, usize> = HashMap::new();
    for target in cluster.targets() {
        *all.entry(place(judge, cluster, target)).or_default() += 1;
    }
    all
}

/// The targets of which attempts failed, or were missed, often enough.
pub(super) fn down<'a>(judge: &Judge, cluster: &'a Cluster) -> impl Iterator<Item = &'a Scraped> {
    let least = judge.limits.target_failures.max(1);
    cluster.targets().iter().filter(move |target| target.failures >= least)
}

fn finding(judge: &Judge, cluster: &Cluster, found: &Found<'_>) -> Finding {
    let (name, targets) = (found.name, found.targets);
    let id = format!("{}/{name}", FindingKind::TargetDown);
    let known = cluster.named(name).map(|(_, node)| node);
    // What was on a node that was not read since a restart is only known from before it.
    let before = judge.life.open_one(&id).filter(|_| known.is_none());
    let jobs_before = judge.before.jobs(name).filter(|_| known.is_none());
    let jobs = match known {
        Some(node) => jobs(cluster, node),
        None => jobs_before.into_iter().flatten().cloned().collect(),
    };
    let dark = match known {
        Some(node) => node.speakers.iter().all(|speaker| {
            cluster.target(speaker.target).is_some_and(|target| target.standing == Standing::Down)
        }),
        None => jobs_before.is_some() && (found.all_fail)(),
    };
    let since = targets.iter().filter_map(|target| target.down_since).min();
    let since = since.unwrap_or_else(|| cluster.now());
    let since = before.map_or(since, |before| before.since.min(since));
    let limit = Some(f64::from(judge.limits.target_failures));
    let evidence = targets.iter().take(MAX_NAMED).flat_map(|target| {
        let address = &target.target.address;
        let what = format!("failed attempts in a row at {address}");
        let failed = Evidence::new(&what, Some(f64::from(target.failures)), Unit::Count, limit)
            .note(reason(target));
        let dropped = target.dropped_lately().map(|results| {
            let what = format!("results after a later one of {address}");
            Evidence::new(&what, Some(results as f64), Unit::Count, None).note("not taken")
        });
        [Some(failed), dropped].into_iter().flatten()
    });
    let long = cluster.now().since(since).as_secs_f64() >= judge.limits.dark_seconds;
    let critical = dark && long && !jobs.is_empty();
    let victim = |job: &Safe| Entity {
        job: Some(job.clone()),
        ..Entity::new(gaunt_schema::EntityKind::Job)
    };
    Finding {
        id,
        kind: FindingKind::TargetDown,
        severity: if critical { Severity::Critical } else { Severity::Warning },
        entity: Entity::node(name),
        since,
        confidence: judge.limits.sure_of_own_ratio,
        // What the node's GPUs do while nobody sees them is not known, and so costs nothing that could be counted.
        lost_gpus: 0.0,
        jobs: Vec::new(),
        victims: if dark { jobs.iter().map(victim).collect() } else { Vec::new() },
        summary: summary(name, targets, since, dark),
        next: targets.first().map(|target| next_step(target)).unwrap_or_default(),
        evidence: evidence.collect(),
    }
}

fn summary(name: &Safe, targets: &[&Scraped], since: UnixMs, dark: bool) -> String {
    let since = time_of_day(since);
    let what = match targets {
        [only] => format!("{}: {}", only.target.address, reason(only)),
        [first, ..] => {
            let all = count(targets.len(), "target");
            format!("{all} fail, the first is {}: {}", first.target.address, reason(first))
        }
        [] => String::new(),
    };
    let whole = if dark { "Nothing is known of" } else { "A target fails on" };
    format!("{whole} {name} since {since}: {what}.")
}

/// The name under which a target's failure is reported.
fn place(judge: &Judge, cluster: &Cluster, target: &Scraped) -> Safe {
    let told = target.target.node.clone().filter(|name| !name.is_empty());
    let spoken = || target.node.and_then(|id| Some(cluster.node(id)?.name.clone()));
    // Who was not read since a restart spoke for the same node before.
    let spoke = || judge.node_names.of(&target.target.address).cloned();
    told.or_else(spoken).or_else(spoke).unwrap_or_else(|| host_of(&target.target.address))
}

/// Why a target fails, in a few words.
fn reason(target: &Scraped) -> String {
    match &target.failure {
        Some(failure) => failure.to_string(),
        None => "no attempt to read it was reported in its time".to_owned(),
    }
}

/// One sentence for a target that is not read, with the next step; none if it is read.
pub fn trouble(target: &Scraped) -> Option<Safe> {
    if target.standing != Standing::Down {
        return target.flag.clone().or_else(|| dropped(target));
    }
    let (address, reason) = (&target.target.address, reason(target));
    Some(Safe::new(&format!("{address}: {reason}. {}", next_step(target))))
}

/// What is said of a target that is read and of which results were not taken lately, if any.
fn dropped(target: &Scraped) -> Option<Safe> {
    let (results, at) = (target.dropped_lately()?, time_of_day(target.dropped_at?));
    let results = count(results as usize, "result");
    Some(Safe::new(&format!(
        "{}: {results} of attempts at it came after a later one and were not taken, the last at {at}. \
         Look in the log of gaunt, with RUST_LOG=gaunt=debug, for what holds them up.",
        target.target.address
    )))
}

/// What to do about a target that fails.
pub fn next_step(target: &Scraped) -> String {
    let address = &target.target.address;
    let url = if address.contains("://") {
        address.to_string()
    } else {
        format!("http://{address}/metrics")
    };
    match &target.failure {
        Some(Failure::Connect(_)) => {
            format!("Check that an exporter runs there and listens on {address}.")
        }
        Some(Failure::OutOfFiles(_)) => {
            "Raise it with `ulimit -n 27000`, or LimitNOFILE=27000 in gaunt's unit.".to_owned()
        }
        Some(Failure::Timeout(_)) => {
            format!("Look at the load of the node and the way to it; try `curl {url}`.")
        }
        Some(Failure::Status(_) | Failure::Broken(_) | Failure::NotAPage(_)) => {
            format!("Check that {address} is an exporter; try `curl {url}`.")
        }
        Some(Failure::TooLarge(_)) => {
            "If the page is meant to be so large, raise max_body under [gather] in the settings."
                .to_owned()
        }
        Some(Failure::OverBudget(excess)) => match excess.budget.key() {
            Some(key) => format!(
                "Look at what `curl {url}` shows; if it is meant to be so, raise {key} under [gather] in the settings."
            ),
            None if excess.budget == Budget::IngestTime => {
                format!("Look at what changes from one page to the next: `curl {url}` twice.")
            }
            None => format!("Nothing honest is so repetitive: look at what `curl {url}` shows."),
        },
        Some(Failure::Forbidden(_)) => {
            "Correct the address, or allow it under [gather] in the settings.".to_owned()
        }
        Some(Failure::Skipped | Failure::OwnLateness(_) | Failure::Resting(_)) | None => {
            "That is gaunt's own fault: give it more CPU, or a longer period.".to_owned()
        }
    }
}
