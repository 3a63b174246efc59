//! Uneven work: pipeline stages that differ, or a slowest rank that changes with the data. The cause is software:
//! informational findings that never page.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashSet, VecDeque},
};

use gaunt_schema::{DeviceClass, Entity, EntityKind, FindingKind, UnixMs};

use super::{
    EvidenceRow, FindingEvidence, Judge, Thresholds,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    moving_average::{MovingAverage, SampleTiming},
    pending_finding::{PendingFinding, finding_id, format_percent},
    robust_stats::median,
};
use gaunt_cluster::{Cluster, NodeId};

/// How a job group's nodes share the work, recorded every step.
#[derive(Debug, Default)]
pub(super) struct WorkShares {
    histories: BTreeMap<String, WorkHistory>,
}

/// What a group did over a longer time: a training step that is long relative to the moving averages makes them swing.
#[derive(Clone, Debug, Default)]
struct WorkHistory {
    /// Activity / baseline of each node.
    paces: BTreeMap<NodeId, MovingAverage>,
    /// The node that worked at each of the last samples at which most others waited.
    busiest: VecDeque<NodeId>,
    looked: Option<UnixMs>,
}

/// The maximum of recorded samples, whatever the settings.
const MOST_LOOKS: usize = 256;

/// The minimum of nodes in a group that can share work.
const LEAST_NODES: usize = 2;

/// Adds job groups whose work is uneven and that are slower for it.
pub(super) fn detect_job_imbalance(
    judge: &Judge,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    // What is added here is informational and explains nothing: the nodes are the same for all groups.
    let explained = OnceCell::new();
    let is_explained = |group: &JobGroup, outcome: &DetectorOutcome| {
        let explained = explained.get_or_init(|| explained_nodes(cluster, outcome));
        group.nodes.iter().any(|id| explained.contains(id))
    };
    for group in judge
        .job_groups
        .all_groups()
        .iter()
        .filter(|group| group.is_progressing() && group.nodes.len() >= LEAST_NODES)
    {
        let Some(uneven) = UnevenGroup::from_group(judge, cluster, group) else { continue };
        if uneven.slowed >= judge.limits.slowed_ratio && !is_explained(group, outcome) {
            outcome.suspicions.extend(uneven.detect_imbalance());
        }
    }
}

impl WorkShares {
    /// Forgets a group whose present work was accepted as its baseline.
    pub(super) fn forget_group(&mut self, group: &str) {
        self.histories.remove(group);
    }

    /// Records how much each node works, and which one works while the others wait.
    pub(super) fn observe_groups(judge: &mut Judge, cluster: &Cluster) {
        let slow = judge.has_slow_period(cluster);
        let mut shares = std::mem::take(&mut judge.shares);
        let names: Vec<String> =
            judge.job_groups.all_groups().iter().map(JobGroup::group_key).collect();
        let known: HashSet<&String> = names.iter().collect();
        shares.histories.retain(|name, _| known.contains(name));
        for (group, name) in judge.job_groups.all_groups().iter().zip(names) {
            if group.nodes.len() < LEAST_NODES {
                continue;
            }
            let turns = shares.histories.entry(name).or_default();
            let looked = group.nodes.iter().filter_map(|id| cluster.node_by_id(*id)?.sampled).max();
            let Some(at) = looked.filter(|_| turns.looked != looked) else { continue };
            turns.looked = looked;
            let limits = &judge.limits;
            let span = if slow { limits.pace_slow_seconds } else { limits.pace_seconds };
            let tick = &mut SampleTiming::new(at, span, cluster.freshness_window());
            turns.paces.retain(|id, _| group.has_node(*id));
            for (id, pace) in node_activity_ratios(judge, cluster, group) {
                turns.paces.entry(id).or_default().add_sample(Some(pace), tick);
            }
            let looks = kept_looks(limits);
            // Values that exporters collect now and then are of different moments on every node.
            let busiest = if slow { None } else { busiest_node(judge, cluster, group) };
            let Some(busiest) = busiest else { continue };
            while turns.busiest.len() >= looks {
                turns.busiest.pop_front();
            }
            turns.busiest.push_back(busiest);
        }
        judge.shares = shares;
    }
}

/// Recorded samples: several steps of a slow job.
fn kept_looks(limits: &Thresholds) -> usize {
    (limits.favourite_looks.max(limits.favourite_kept_looks) as usize).clamp(1, MOST_LOOKS)
}

/// Returns the node that works now while most others of its group wait.
fn busiest_node(judge: &Judge, cluster: &Cluster, group: &JobGroup) -> Option<NodeId> {
    let of = |id: &NodeId| {
        let rows = cluster.node_by_id(*id)?.device_rows(DeviceClass::Gpu);
        let own = rows.iter().filter_map(|row| judge.gpus.get(*row as usize));
        Some((*id, own.filter_map(|gpu| gpu.averages.effort_now(&judge.limits)).reduce(f64::max)?))
    };
    let efforts: Vec<(NodeId, f64)> = group.nodes.iter().filter_map(of).collect();
    let middle = median(efforts.iter().map(|(_, effort)| *effort))?;
    let (busiest, most) = efforts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most >= middle * judge.limits.stands_out_times).then_some(busiest)
}

impl WorkHistory {
    /// Returns the share of samples at which the most frequent busiest node was busiest; none before enough samples.
    fn busiest_share(&self, limits: &Thresholds) -> Option<f64> {
        let looks = self.busiest.len();
        if looks < (limits.favourite_looks as usize).clamp(1, MOST_LOOKS) {
            return None;
        }
        let mut times: BTreeMap<NodeId, usize> = BTreeMap::new();
        for node in &self.busiest {
            *times.entry(*node).or_default() += 1;
        }
        times.into_values().max().map(|most| most as f64 / looks as f64)
    }
}

/// Returns activity / baseline of each node of a group.
fn node_activity_ratios(judge: &Judge, cluster: &Cluster, group: &JobGroup) -> Vec<(NodeId, f64)> {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let of = |id: &NodeId| {
        let rows = cluster.node_by_id(*id)?.device_rows(DeviceClass::Gpu);
        let own = rows.iter().filter_map(|row| judge.gpus.get(*row as usize));
        // The median of single instants is misleading: most instants are of the busiest phase.
        let (mut sum, mut known) = (0.0, 0.0);
        for pace in own.filter_map(|gpu| gpu.averages.activity_ratio(now, gap, &judge.limits)) {
            sum += pace;
            known += 1.0;
        }
        (known > 0.0).then(|| (*id, sum / known))
    };
    group.nodes.iter().filter_map(of).collect()
}

/// Returns the nodes that a pending finding blames or lists as victims: that explains the lost time of groups there.
fn explained_nodes(cluster: &Cluster, seen: &DetectorOutcome) -> HashSet<NodeId> {
    let held = seen.suspicions.iter().map(|held| &held.finding);
    let all = seen.findings.iter().chain(held);
    let urgent = all.filter(|finding| finding.severity > gaunt_schema::Severity::Info);
    let entities =
        urgent.flat_map(|finding| std::iter::once(&finding.entity).chain(&finding.victims));
    let nodes = entities.filter_map(|entity| Some(cluster.node_by_name(entity.node.as_ref()?)?.0));
    nodes.collect()
}

/// A job group in which some nodes may work more than others.
struct UnevenGroup<'a> {
    judge: &'a Judge,
    cluster: &'a Cluster,
    group: &'a JobGroup,
    turns: &'a WorkHistory,
    /// The share of its baseline speed that it has lost, over a longer time.
    slowed: f64,
    /// The median pace of its nodes.
    middle: f64,
    /// Nodes that work much more than the median, and how much they do.
    heavy: Vec<(NodeId, f64)>,
    of: usize,
    /// Its work is only known from single instants.
    instants: bool,
}

impl<'a> UnevenGroup<'a> {
    fn from_group(judge: &'a Judge, cluster: &'a Cluster, group: &'a JobGroup) -> Option<Self> {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let turns = judge.shares.histories.get(&group.group_key())?;
        let known =
            turns.paces.iter().filter_map(|(id, pace)| Some((*id, pace.value_at(now, gap)?)));
        // Without job labels, nodes of another, unchanged job may be among them.
        let as_ever = |pace: f64| group.job.is_none() && (pace - 1.0).abs() < limits.as_ever_ratio;
        let paces: Vec<(NodeId, f64)> = known.filter(|(_, pace)| !as_ever(*pace)).collect();
        if paces.len() < LEAST_NODES {
            return None;
        }
        let middle = median(paces.iter().map(|(_, pace)| *pace))?;
        let instants = judge.has_slow_period(cluster) && !group.is_profiled(judge, now, gap);
        let times = if instants { limits.uneven_slow_times } else { limits.uneven_times };
        let of = paces.len();
        let slowed = (1.0 - middle).max(0.0);
        // The stage that the others wait for has lost next to nothing. Where all have lost alike, chance makes some
        // node an outlier: steps are few within the span of the averages.
        let least = (middle * times).max(1.0 - slowed * limits.uneven_lost_share);
        let heavy = paces.into_iter().filter(|(_, pace)| *pace >= least).collect();
        Some(Self { judge, cluster, group, turns, slowed, middle, heavy, of, instants })
    }

    fn detect_imbalance(&self) -> Option<PendingFinding> {
        if self.heavy.is_empty() {
            // For single instants, chance exceeds the loss of a job.
            return if self.instants { None } else { self.detect_data_skew() };
        }
        (self.heavy.len() * 2 <= self.of).then(|| self.stage_imbalance())
    }

    /// Builds the finding that some nodes always work more than the others.
    fn stage_imbalance(&self) -> PendingFinding {
        let names: Vec<&str> = self
            .heavy
            .iter()
            .filter_map(|(id, _)| Some(self.cluster.node_by_id(*id)?.name.as_str()))
            .take(MOST_NAMED)
            .collect();
        let entity = Entity { kind: EntityKind::Stage, ..self.group.to_entity() };
        let says = format!(
            "The pipeline stage on {} is overloaded: the other stages wait for it {} of the time.",
            names.join(", "),
            format_percent(self.slowed)
        );
        let next = "Rebalance the layers between the pipeline stages.".to_owned();
        let work = median(self.heavy.iter().map(|(_, pace)| pace / self.middle));
        let limit = Some(self.judge.limits.uneven_times);
        self.of(FindingKind::StageImbalance, entity).with_summary(says, next).with_evidence([
            self.slowdown_evidence(),
            FindingEvidence::new(EvidenceRow::NodeActivity, work, limit),
        ])
    }

    /// Returns a finding if all lose the same and no hardware or host signal explains it; at best the data shows that
    /// they wait for a different node each time.
    fn detect_data_skew(&self) -> Option<PendingFinding> {
        let limits = &self.judge.limits;
        let favourite = self.turns.busiest_share(limits);
        // Of two nodes one is the busiest at least half of the time.
        let most = limits.favourite_ratio.max(1.5 / self.group.nodes.len() as f64);
        let entity = self.group.to_entity();
        // Chance favours one node for a while: an open finding is only left for a node that is nearly always the
        // busiest.
        let open =
            self.judge.tracker.open_one(&finding_id(FindingKind::DataSkew, &entity)).is_some();
        let most = if open { f64::midpoint(most, 1.0) } else { most };
        let like = SlowdownProfile::of(self.judge, self.cluster, self.group);
        if favourite.is_some_and(|share| share >= most) || !like.is_only_slower(limits, self.middle)
        {
            return None;
        }
        let summary = match favourite {
            Some(_) => format!(
                "{} waits {} of the time for the slowest rank of a step, each time another one: data skew, no node is the cause.",
                self.group.render_title(),
                format_percent(self.slowed)
            ),
            None => format!(
                "{} is {} slower on all ranks alike, and no node or port shows a cause: uneven or changed workload.",
                self.group.render_title(),
                format_percent(self.slowed)
            ),
        };
        let next =
            "Check how samples of different length are distributed over the ranks.".to_owned();
        Some(
            self.of(FindingKind::DataSkew, entity).with_summary(summary, next).with_evidence([
                self.slowdown_evidence(),
                FindingEvidence::new(EvidenceRow::BusiestNode, favourite, Some(most))
                    .with_note("must stay below the limit"),
                FindingEvidence::new(
                    EvidenceRow::TrafficChange,
                    like.traffic,
                    Some(self.middle * limits.like_pace_share),
                )
                .with_note("limit: share of the job's median pace"),
                FindingEvidence::new(
                    EvidenceRow::ClockChange,
                    like.clock,
                    Some(limits.capped_clock_ratio),
                )
                .with_note("must stay above the limit"),
            ]),
        )
    }

    fn of(&self, kind: FindingKind, entity: Entity) -> PendingFinding {
        let lost = self.slowed * self.group.gpus.len() as f64;
        PendingFinding::of(kind, entity, 1, false)
            .with_hold_seconds(self.judge.limits.uneven_seconds)
            .with_cost(lost, self.group.list_victims(self.cluster, None))
    }

    fn slowdown_evidence(&self) -> FindingEvidence {
        let limit = Some(self.judge.limits.slowed_ratio);
        FindingEvidence::new(EvidenceRow::JobSlowdown, Some(self.slowed), limit)
    }
}

/// The unchanged signals of a slower job group: medians of its members, each relative to its baseline.
struct SlowdownProfile {
    utilization: Option<f64>,
    clock: Option<f64>,
    traffic: Option<f64>,
}

impl SlowdownProfile {
    fn of(judge: &Judge, cluster: &Cluster, group: &JobGroup) -> Self {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let gpus = || group.gpus.iter().filter_map(|row| judge.gpus.get(*row as usize));
        let hosts = group.nodes.iter().filter_map(|id| judge.hosts.get(id));
        let traffic = hosts.filter_map(|host| {
            let traffic = host.compare_traffic(cluster)?;
            Some(
                traffic.now
                    / traffic
                        .baseline
                        .filter(|baseline| *baseline > judge.limits.silent_network_ratio)?,
            )
        });
        Self {
            utilization: median(gpus().filter_map(|gpu| {
                Some(gpu.averages.utilization_at(now, gap)? / gpu.averages.usual_utilization()?)
            })),
            clock: median(gpus().filter_map(|gpu| {
                Some(gpu.averages.clock_hertz(now, &judge.limits)? / gpu.averages.usual_clock()?)
            })),
            traffic: median(traffic),
        }
    }

    /// Whether only time was lost: it busy-waits as much and at the same clock as in its baseline, and moves about as
    /// much less data as it is slower.
    fn is_only_slower(&self, limits: &Thresholds, pace: f64) -> bool {
        self.utilization.is_some_and(|share| share >= limits.hungry_slow_ratio)
            && self.clock.is_none_or(|share| share >= limits.capped_clock_ratio)
            && self.traffic.is_none_or(|share| share >= pace * limits.like_pace_share)
    }
}

/// The maximum of nodes that a sentence lists.
const MOST_NAMED: usize = 4;
