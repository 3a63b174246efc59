//! Work that is unevenly divided: pipeline stages that differ, or a slowest rank that changes with the data. Software,
//! and nobody's fault: lines of cost that wake nobody.

use std::collections::{BTreeMap, VecDeque};

use gaunt_schema::{Class, Entity, EntityKind, FindingKind, unit::Unit};

use super::{
    Evidence, Judge,
    crowd::median,
    finding::{Suspicion, percent},
    gang::Gang,
    life::Seen,
};
use crate::cluster::{Cluster, NodeId};

/// How a gang's nodes share the work, remembered from second to second.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    gangs: BTreeMap<String, Turns>,
}

/// Who was busiest at the last looks.
#[derive(Clone, Debug, Default)]
struct Turns {
    busiest: VecDeque<NodeId>,
}

/// So many looks are remembered.
const LOOKS: usize = 32;

/// Nodes of a gang below which nothing can be divided.
const LEAST_NODES: usize = 2;

/// Adds gangs whose work is uneven, and that are slower for it.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    for gang in
        judge.gangs.all().iter().filter(|gang| gang.goes_on() && gang.nodes.len() >= LEAST_NODES)
    {
        let slowed = gang.slowed().filter(|slowed| *slowed >= judge.limits.slowed_ratio);
        if slowed.is_some() && !is_explained(cluster, gang, seen) {
            seen.suspicions.extend(uneven(judge, cluster, gang));
        }
    }
}

impl Shares {
    /// Remembers who is busiest now.
    pub(super) fn look(judge: &mut Judge, cluster: &Cluster) {
        let mut shares = std::mem::take(&mut judge.shares);
        let names: Vec<String> = judge.gangs.all().iter().map(name).collect();
        shares.gangs.retain(|known, _| names.contains(known));
        for (gang, name) in judge.gangs.all().iter().zip(names) {
            let busiest =
                work(judge, cluster, gang, true).into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let turns = shares.gangs.entry(name).or_default();
            let Some((busiest, _)) = busiest else { continue };
            if turns.busiest.len() == LOOKS {
                turns.busiest.pop_front();
            }
            turns.busiest.push_back(busiest);
        }
        judge.shares = shares;
    }
}

impl Turns {
    /// The share of looks at which the one that was busiest most often was it; none before enough looks.
    fn favourite(&self) -> Option<f64> {
        if self.busiest.len() < LOOKS {
            return None;
        }
        let mut times: BTreeMap<NodeId, usize> = BTreeMap::new();
        for node in &self.busiest {
            *times.entry(*node).or_default() += 1;
        }
        times.into_values().max().map(|most| most as f64 / LOOKS as f64)
    }
}

fn name(gang: &Gang) -> String {
    gang.job.as_ref().map_or_else(|| format!("{:?}", gang.nodes.first()), ToString::to_string)
}

/// How much each node of a gang works: against its own usual pace, or as such.
fn work(judge: &Judge, cluster: &Cluster, gang: &Gang, now_only: bool) -> Vec<(NodeId, f64)> {
    let (now, gap) = (cluster.now(), cluster.fresh_for());
    let of = |id: &NodeId| {
        let rows = cluster.node(*id)?.rows(Class::Gpu);
        let own = rows.iter().filter_map(|row| judge.gpus.get(*row as usize));
        let work = if now_only {
            own.filter_map(|gpu| gpu.averages.power_now()).reduce(f64::max)
        } else {
            median(own.filter_map(|gpu| gpu.averages.pace(now, gap)))
        };
        Some((*id, work?))
    };
    gang.nodes.iter().filter_map(of).collect()
}

/// Whether something that is suspected now costs this gang its time.
fn is_explained(cluster: &Cluster, gang: &Gang, seen: &Seen) -> bool {
    let held = seen.suspicions.iter().map(|held| &held.finding);
    let all = seen.findings.iter().chain(held);
    all.filter(|finding| finding.severity > gaunt_schema::Severity::Info).any(|finding| {
        let on = |node: &gaunt_schema::Safe| {
            cluster.named(node).is_some_and(|(id, _)| gang.nodes.contains(&id))
        };
        finding.entity.node.as_ref().is_some_and(on)
            || finding.victims.iter().filter_map(|victim| victim.node.as_ref()).any(on)
    })
}

fn uneven(judge: &Judge, cluster: &Cluster, gang: &Gang) -> Option<Suspicion> {
    let limits = &judge.limits;
    let paces = work(judge, cluster, gang, false);
    let middle = median(paces.iter().map(|(_, pace)| *pace))?;
    let heavy: Vec<&(NodeId, f64)> =
        paces.iter().filter(|(_, pace)| *pace >= middle * limits.uneven_times).collect();
    let turns = judge.shares.gangs.get(&name(gang));
    let job = gang.entity();
    let slowed = Evidence::new(
        "speed that the job has lost",
        gang.slowed(),
        Unit::Ratio,
        Some(limits.slowed_ratio),
    );
    if !heavy.is_empty() && heavy.len() * 2 <= paces.len() {
        let names: Vec<&str> = heavy
            .iter()
            .filter_map(|(id, _)| Some(cluster.node(*id)?.name.as_str()))
            .take(4)
            .collect();
        let entity = Entity { kind: EntityKind::Stage, ..job };
        return Some(
            Suspicion::of(FindingKind::StageImbalance, entity, 1, false)
                .hold(limits.uneven_seconds)
                .costs(gang.lost_gpus(), gang.victims(cluster, None))
                .says(
                    format!("The stage on {} has more to compute than the others, which wait for it {} of the time.", names.join(", "), percent(gang.slowed().unwrap_or_default())),
                    "Divide the layers anew between the stages of the pipeline.".to_owned(),
                )
                .on([slowed, Evidence::new("work of these nodes against the others", median(heavy.iter().map(|(_, pace)| pace / middle)), Unit::Count, Some(limits.uneven_times))]),
        );
    }
    let favourite = turns.and_then(Turns::favourite)?;
    // Of two nodes one is the busiest half of the time at least.
    let most = limits.favourite_ratio.max(1.5 / gang.nodes.len() as f64);
    (heavy.is_empty() && favourite < most).then(|| {
        Suspicion::of(FindingKind::DataSkew, job, 1, false)
            .hold(limits.uneven_seconds)
            .costs(gang.lost_gpus(), gang.victims(cluster, None))
            .says(
                "Every step another rank has most to compute, and all others wait for it: no machine is to blame.".to_owned(),
                "Look at how samples of different length are divided between the ranks.".to_owned(),
            )
            .on([slowed, Evidence::new("looks at which the same node was the busiest", Some(favourite), Unit::Ratio, Some(most)).note("the limit is an upper one")])
    })
}
