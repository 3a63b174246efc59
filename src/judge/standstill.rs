//! Jobs that stand still: a collective that never ends, or GPUs that are held and not used.

use gaunt_schema::{Class, FindingKind, GpuState, unit::Unit};

use super::{
    Evidence, Judge,
    crowd::median,
    finding::{Suspicion, count},
    gang::Gang,
    life::Seen,
};
use crate::cluster::{Cluster, NodeId};

/// A gang that works at less than this share of its usual pace does nothing.
const NOTHING: f64 = 0.05;

/// Adds jobs that hang and jobs that hold GPUs without a use for them.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    for gang in judge.gangs.all().iter().filter(|gang| gang.gpus.len() > 1) {
        seen.suspicions.extend(hang(judge, cluster, gang).or_else(|| idle(judge, gang)));
    }
}

/// All ranks spin, none computes, nothing is sent, no host reads or writes.
fn hang(judge: &Judge, cluster: &Cluster, gang: &Gang) -> Option<Suspicion> {
    let limits = &judge.limits;
    let (now, gap) = (cluster.now(), cluster.fresh_for());
    let still = still_nodes(judge, cluster, gang);
    let rows =
        still.iter().filter_map(|id| cluster.node(*id)).flat_map(|node| node.rows(Class::Gpu));
    let own = |row: &&u32| gang.job.is_none() || cluster.job(**row) == gang.job.as_ref();
    let known: Vec<_> = rows.filter(own).filter_map(|row| judge.gpus.get(*row as usize)).collect();
    let utilization: Vec<f64> =
        known.iter().filter_map(|gpu| gpu.averages.utilization_at(now, gap)).collect();
    let spins =
        utilization.iter().filter(|share| **share >= limits.utilization_spinning_ratio).count();
    if utilization.is_empty() || (spins as f64) < limits.hung_gpus_ratio * utilization.len() as f64
    {
        return None;
    }
    // A job that never did anything is starting.
    let pace = median(known.iter().filter_map(|gpu| gpu.averages.pace(now, gap)))
        .filter(|pace| *pace < NOTHING)?;
    let hosts = || still.iter().filter_map(|id| judge.hosts.get(id));
    let traffic = hosts().filter_map(|host| Some(host.traffic(cluster)?.now)).reduce(f64::max);
    let io = hosts().filter_map(|host| Some(host.io(cluster)?.now)).reduce(f64::max);
    if traffic.is_some_and(|share| share >= super::state::SILENT_NETWORK)
        || io.is_some_and(|io| io >= limits.io_pressure_ratio)
    {
        return None;
    }
    let kinds = 1 + usize::from(traffic.is_some()) + usize::from(io.is_some());
    let name = gang
        .job
        .as_ref()
        .map_or_else(|| "A job without a name".to_owned(), |job| format!("Job {job}"));
    let entity = gang.entity();
    Some(
        Suspicion::of(FindingKind::CollectiveHang, entity, kinds, false)
            .hold(limits.hung_seconds)
            .costs(known.len() as f64, gang.victims(cluster, None))
            .says(
                format!("{name} hangs: {} spin in a collective, and nothing moves.", count(spins, "GPU")),
                "Ask the collective library who is missing (NCCL RAS, py-spy on the odd rank), then restart the job.".to_owned(),
            )
            .on([
                Evidence::new("GPUs that spin", Some(spins as f64), Unit::Count, Some(limits.hung_gpus_ratio * utilization.len() as f64)),
                Evidence::new("work against what is usual", Some(pace), Unit::Ratio, Some(NOTHING)).note("the limit is an upper one"),
                Evidence::new("traffic of its ports", traffic, Unit::Ratio, Some(super::state::SILENT_NETWORK)).note("the limit is an upper one"),
                Evidence::new("tasks of its hosts waiting for input or output", io, Unit::Ratio, Some(limits.io_pressure_ratio)).note("the limit is an upper one"),
            ]),
    )
}

/// The nodes that may hang together: of a job all; where nobody names jobs two may have been taken for one, so those
/// that stand still.
fn still_nodes(judge: &Judge, cluster: &Cluster, gang: &Gang) -> Vec<NodeId> {
    if gang.job.is_some() {
        return gang.nodes.clone();
    }
    let (now, gap) = (cluster.now(), cluster.fresh_for());
    let still = |id: &&NodeId| {
        let rows = cluster.node(**id).map(|node| node.rows(Class::Gpu)).unwrap_or_default();
        let paces =
            rows.iter().filter_map(|row| judge.gpus.get(*row as usize)?.averages.pace(now, gap));
        median(paces).is_some_and(|pace| pace < NOTHING)
    };
    gang.nodes.iter().filter(still).copied().collect()
}

/// A job holds its GPUs and does nothing with any of them: a line of cost, which wakes nobody.
fn idle(judge: &Judge, gang: &Gang) -> Option<Suspicion> {
    let idle = gang.gpus.iter().filter(|row| judge.state(**row) == GpuState::IdleAllocated).count();
    if idle < gang.gpus.len() {
        return None;
    }
    let name = gang
        .job
        .as_ref()
        .map_or_else(|| "A job without a name".to_owned(), |job| format!("Job {job}"));
    Some(
        Suspicion::of(FindingKind::IdleAllocated, gang.entity(), 1, false)
            .hold(judge.limits.idle_seconds)
            .costs(gang.gpus.len() as f64, Vec::new())
            .says(
                format!(
                    "{name} holds {} and does nothing with any of them.",
                    count(gang.gpus.len(), "GPU")
                ),
                "Ask its owner whether it still needs them.".to_owned(),
            )
            .on([Evidence::new(
                "GPUs that are held and idle",
                Some(idle as f64),
                Unit::Count,
                None,
            )]),
    )
}
