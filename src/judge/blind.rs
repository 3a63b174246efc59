//! What pages hide: drivers that do not return, so that a page has no GPU in it, and pages that say the same for ever.

use gaunt_schema::{
    Absent, Class, Dialect, Entity, FindingKind, Safe,
    catalogue::{exporter, gpu},
    unit::Unit,
};

use super::{
    Evidence, Judge,
    finding::{Suspicion, count, time_of_day},
    life::Seen,
};
use crate::cluster::{Cluster, Node, Scraped, Standing};

/// Adds the nodes whose driver hangs, and those whose pages stand still.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    for (_, node) in cluster.nodes() {
        seen.suspicions.extend(driver_hung(judge, cluster, node));
        seen.suspicions.extend(data_stale(judge, cluster, node));
    }
}

/// The exporter answers and says that its values of GPUs are old: a call to the driver has not returned.
fn driver_hung(judge: &Judge, cluster: &Cluster, node: &Node) -> Option<Suspicion> {
    let limits = &judge.limits;
    let gpus = node.rows(Class::Gpu);
    // A page that does not come says nothing of the driver; this one came, and names what is late.
    if node.sampled.is_none_or(|at| cluster.is_old(at)) {
        return None;
    }
    let late = gpus.iter().filter(|row| is_late(cluster, **row)).count();
    let failing = node
        .rows(Class::Collector)
        .iter()
        .find(|row| cluster.value(exporter::COLLECTOR_SUCCESS, **row) == Some(0.0));
    if gpus.is_empty() || late < gpus.len() {
        return None;
    }
    let collector = cluster.device(Class::Collector, *failing?)?;
    let empty = Safe::default();
    let name = collector.device.key.first().unwrap_or(&empty);
    let why = collector.info(exporter::COLLECTOR_INFO, "message");
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let kinds = 1 + usize::from(judge.gangs.slowed_on(gpus, limits.slowed_ratio).is_some());
    let jobs = judge.gangs.on(gpus).into_iter().flat_map(|gang| gang.victims(cluster, None));
    let jobs: Vec<Entity> = jobs.filter(|victim| victim.node.is_none()).collect();
    Some(
        Suspicion::of(FindingKind::DriverHung, Entity::node(&node.name), kinds, true)
            .hold(limits.driver_hung_seconds)
            .costs(0.0, jobs)
            .says(
                format!("The GPU driver of {} does not answer{why}.", node.name),
                format!("Look at the kernel log of {} (dmesg) and for processes that cannot be killed; drain it, and reset the GPUs or start it anew.", node.name),
            )
            .on([
                Evidence::new("GPUs whose values are late", Some(late as f64), Unit::Count, Some(gpus.len() as f64)).note("the limit is how many it has"),
                Evidence::new(&format!("success of the collector {name}"), Some(0.0), Unit::Count, Some(1.0)).note("the limit is what it should be"),
            ]),
    )
}

/// Whether the page itself says that what it knows of a GPU is old.
fn is_late(cluster: &Cluster, row: u32) -> bool {
    [gpu::UTILIZATION, gpu::POWER]
        .into_iter()
        .any(|metric| cluster.reading(metric, row) == Some(Absent::Stale.into()))
}

/// Pages come, and nothing in them moves.
fn data_stale(judge: &Judge, cluster: &Cluster, node: &Node) -> Option<Suspicion> {
    let limits = &judge.limits;
    let least = limits.stale_seconds.max(limits.stale_periods * cluster.period().as_secs_f64());
    let frozen = |target: &&Scraped| {
        let since = target.last_news().map(|news| cluster.now().since(news).as_secs_f64());
        target.standing == Standing::Live
            && target.dialect.is_some_and(moves)
            && since.is_some_and(|seconds| seconds >= least)
    };
    let targets = node.speakers.iter().filter_map(|speaker| cluster.target(speaker.target));
    let frozen: Vec<&Scraped> = targets.filter(frozen).collect();
    let first = frozen.first()?;
    let since = frozen.iter().filter_map(|target| target.last_news()).min()?;
    let address = &first.target.address;
    let others = match frozen.len() {
        1 => String::new(),
        more => format!(" and {} more", count(more - 1, "target")),
    };
    Some(
        Suspicion::of(FindingKind::DataStale, Entity::node(&node.name), 1, true)
            .says(
                format!("{address}{others} of {} answers, and nothing on its page has moved since {}.", node.name, time_of_day(since)),
                format!("Look at the exporter behind {address}: start it anew, and see whether what it asks answers."),
            )
            .on([Evidence::new(
                "seconds without anything new",
                Some(cluster.now().since(since).as_secs_f64()),
                Unit::Seconds,
                Some(least),
            )]),
    )
}

/// Whether something on a page of this dialect moves from one look to the next, whatever the node does: a clock, an
/// energy.
const fn moves(dialect: Dialect) -> bool {
    matches!(dialect, Dialect::Gaunt | Dialect::NodeExporter | Dialect::Dcgm | Dialect::Amd)
}
