//! Job survey: what is looked at on the GPUs, hosts and ports of a slower job, and whether it is usual.

use std::collections::BTreeSet;

use gaunt_schema::{DeviceClass, EvidenceItem, catalogue::gpu_health};

use super::{
    EvidenceRow, JudgeState, Thresholds,
    gpu_signals::GpuAverages,
    host_averages::{BaselineComparison, HostAverages},
    job_group::JobGroup,
    link_averages::{LinkAverages, current_value},
    network_share::counts_ports,
    pending_finding::format_nodes,
    ranks_on_node::rows_in_group,
    robust_stats::median,
};
use gaunt_cluster::{Cluster, NodeId};

/// The maximum of nodes that are looked at: of a larger job every n-th.
const MAX_SURVEYED: usize = 512;

/// The most nodes that are named for one value.
const MOST_NAMED: usize = 2;

/// What is looked at, its evidence row, and how it is read from the GPU at a row.
type GpuSurveySpec = (&'static str, EvidenceRow, fn(&JudgeState, &Cluster, u32) -> Option<f64>);

const GPU_SIGNALS: &[GpuSurveySpec] = &[
    ("throttle reasons", EvidenceRow::Slowdown, |judge, cluster, row| {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let averages = &judge.gpus.get(row as usize)?.averages;
        let signals = averages.signals_at(now, gap, &judge.limits);
        [signals.hw_slowdown, signals.sw_thermal].into_iter().flatten().reduce(f64::max)
    }),
    ("PCIe", EvidenceRow::PcieReplays, |_, cluster, row| {
        cluster.current_rate(gpu_health::PCIE_REPLAYS, row)
    }),
    ("NVLink", EvidenceRow::NvlinkErrors, |judge, cluster, row| {
        judge.nvlinks.error_rate(row, cluster)
    }),
];

/// What is looked at on hosts, and its evidence row.
type HostSurveySpec =
    (&'static str, EvidenceRow, fn(&HostAverages, &Cluster) -> Option<BaselineComparison>);

const HOST_SIGNALS: &[HostSurveySpec] = &[
    ("storage (IO pressure)", EvidenceRow::IoPressure, HostAverages::compare_io_pressure),
    ("CPU pressure", EvidenceRow::CpuPressure, HostAverages::compare_cpu_pressure),
];

/// An evidence row of ports, and how its value is read from one.
type PortSurveySpec = (EvidenceRow, fn(&LinkAverages, &Cluster, &Thresholds) -> Option<f64>);

const PORT_SIGNALS: &[PortSurveySpec] = &[
    (EvidenceRow::LinkErrors, |link, cluster, _| current_value(link.errors, cluster)),
    (EvidenceRow::EcnMarked, |link, cluster, _| current_value(link.ecn_marked, cluster)),
    (EvidenceRow::PauseReceived, |link, cluster, _| current_value(link.pause_received, cluster)),
    (EvidenceRow::PauseSent, |link, cluster, _| current_value(link.pause_sent, cluster)),
    (EvidenceRow::OutOfBuffer, |link, cluster, _| current_value(link.out_of_buffer, cluster)),
    (EvidenceRow::TransmitWait, LinkAverages::waited_times),
];

/// One value that was looked at: the worst of the job, or the median of its clocks.
struct SurveyedSignal {
    subject: &'static str,
    evidence: EvidenceItem,
    is_usual: bool,
    /// The nodes on which it is unusual, as text; empty if it is on all.
    place: String,
}

/// What was looked at on the devices of a job.
pub(super) struct JobSurvey {
    signals: Vec<SurveyedSignal>,
}

impl JobSurvey {
    /// Looks at the devices of a job group.
    pub(super) fn of(
        judge: &JudgeState,
        cluster: &Cluster,
        group: &JobGroup,
        profile: &SlowdownProfile,
    ) -> Self {
        let limits = &judge.limits;
        let mut survey = Self { signals: Vec::new() };
        survey.add_clocks(profile, limits);
        let nodes = || every_nth(&group.nodes);
        for (subject, row, value) in GPU_SIGNALS {
            let Some(limit) = limits.limit_value(row.source().threshold) else { continue };
            let of_node = |id: NodeId| {
                let gpus =
                    cluster.node_by_id(id).map(|node| rows_in_group(judge, cluster, node, group));
                let values =
                    gpus.into_iter().flatten().filter_map(|gpu| value(judge, cluster, gpu));
                (id, values.reduce(f64::max), limit)
            };
            survey.add_worst(cluster, (subject, *row, limit), nodes().map(of_node));
        }
        for (subject, row, compare) in HOST_SIGNALS {
            let Some(least) = limits.limit_value(row.source().threshold) else { continue };
            let of_node = |id: NodeId| {
                let host = judge.hosts.get(id).and_then(|host| compare(host, cluster));
                let limit = host.map(|host| host.limit_beside_baseline(least, limits));
                (id, host.map(|host| host.now), limit.unwrap_or(least))
            };
            survey.add_worst(cluster, (subject, *row, least), nodes().map(of_node));
        }
        for (row, value) in PORT_SIGNALS {
            let Some(limit) = limits.limit_value(row.source().threshold) else { continue };
            let of_node = |id: NodeId| {
                let node = cluster.node_by_id(id);
                let ports =
                    node.map(|node| node.device_rows(DeviceClass::Port)).unwrap_or_default();
                let links = ports.iter().filter_map(|row| judge.links.of(*row));
                let values = links.filter_map(|link| value(link, cluster, limits));
                (id, values.reduce(f64::max), limit)
            };
            survey.add_worst(cluster, ("ports", *row, limit), nodes().map(of_node));
        }
        survey
    }

    fn add_clocks(&mut self, profile: &SlowdownProfile, limits: &Thresholds) {
        let Some(clock) = profile.clock else { return };
        let evidence =
            EvidenceRow::ClockChange.to_evidence(Some(clock), Some(limits.slow_clock_ratio));
        let is_usual = clock >= 1.0 - limits.usual_ratio;
        self.signals.push(SurveyedSignal {
            subject: "SM clocks",
            evidence,
            is_usual,
            place: String::new(),
        });
    }

    /// Adds the value that is closest to the limit of its node, or furthest above it; the limit is at least this.
    fn add_worst(
        &mut self,
        cluster: &Cluster,
        (subject, row, least): (&'static str, EvidenceRow, f64),
        of_nodes: impl Iterator<Item = (NodeId, Option<f64>, f64)>,
    ) {
        let known: Vec<(NodeId, f64, f64)> =
            of_nodes.filter_map(|(id, value, limit)| Some((id, value?, limit))).collect();
        let worst =
            known.iter().max_by(|(_, a, of_a), (_, b, of_b)| (a / of_a).total_cmp(&(b / of_b)));
        let Some((_, value, limit)) = worst else { return };
        let unusual = known.iter().filter(|(_, value, limit)| value >= limit).map(|(id, ..)| *id);
        let place = render_place(cluster, &unusual.collect(), known.len());
        let note = if *limit > least { "limit: pressure_times its baseline" } else { "" };
        let evidence = row.to_evidence(Some(*value), Some(*limit)).ruling_out().with_note(note);
        self.signals.push(SurveyedSignal { subject, evidence, is_usual: value < limit, place });
    }

    /// Returns what was looked at and found usual, each once.
    pub(super) fn usual_subjects(&self) -> Vec<&'static str> {
        let is_unusual =
            |subject| self.signals.iter().any(|it| it.subject == subject && !it.is_usual);
        let mut subjects: Vec<&str> = self.signals.iter().map(|signal| signal.subject).collect();
        subjects.dedup();
        subjects.retain(|subject| !is_unusual(*subject));
        subjects
    }

    /// Returns the labels of the values that are unusual, each with the nodes where it is.
    pub(super) fn unusual_labels(&self) -> Vec<String> {
        let unusual = self.signals.iter().filter(|signal| !signal.is_usual);
        let name = |signal: &SurveyedSignal| {
            let what = signal.evidence.what.trim_end_matches(" / baseline");
            format!("{what}{}", signal.place)
        };
        unusual.map(name).collect()
    }

    /// Returns the values that are usual, with their limits.
    pub(super) fn into_usual_evidence(self) -> impl Iterator<Item = EvidenceItem> {
        let usual = self.signals.into_iter().filter(|signal| signal.is_usual);
        usual.map(|signal| signal.evidence)
    }
}

/// Names the nodes where a value is unusual, of so many: ` on gpu003`. It is empty if that is all of them.
fn render_place(cluster: &Cluster, unusual: &BTreeSet<NodeId>, of: usize) -> String {
    match unusual.len() {
        all if all == of => String::new(),
        few if few <= MOST_NAMED => format!(" on {}", format_nodes(cluster, unusual)),
        many => format!(" on {many} of {of} nodes"),
    }
}

/// Iterates at most [`MAX_SURVEYED`] members.
fn every_nth<T: Copy>(members: &[T]) -> impl Iterator<Item = T> {
    members.iter().step_by(members.len().div_ceil(MAX_SURVEYED).max(1)).copied()
}

/// Whether a job on one node does the same work as before, with longer waits between.
pub(super) fn does_less_of_the_same(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> bool {
    let evidence = judge.gangs.of(group);
    group.nodes.len() == 1
        && evidence.knows_its_pace()
        && evidence.is_slower(group, &judge.limits)
        && SlowdownProfile::of(judge, cluster, group).works_as_before()
}

/// The signals of a slower job group that show what kind of slowdown it is: medians of its members, each relative to
/// its baseline.
pub(super) struct SlowdownProfile {
    utilization: Option<f64>,
    pub(super) clock: Option<f64>,
    pub(super) traffic: Option<f64>,
    /// Whether its nodes may work for each other: most of them send something, or it is not known.
    pub(super) may_exchange: bool,
    /// The share of its pace that its lower clock explains.
    by_clock: f64,
    /// What its GPUs do while they are busy.
    intensity: Option<f64>,
}

/// How far what GPUs do while they are busy may differ from before for the same work with longer waits between.
const SAME_INTENSITY: f64 = 0.15;

/// Power that computing draws falls with this power of the clock: with the clock itself, and twice with the voltage, which
/// follows it.
const POWER_EXPONENT: i32 = 3;

impl SlowdownProfile {
    /// Computes the profile of a group.
    pub(super) fn of(judge: &JudgeState, cluster: &Cluster, group: &JobGroup) -> Self {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let gpus = || group.gpus.iter().filter_map(|row| judge.gpus.get(*row as usize));
        // A job on one node exchanges nothing with others.
        let nodes = if group.nodes.len() > 1 { group.nodes.as_slice() } else { &[] };
        let traffic = |id: &NodeId| {
            let traffic = judge.hosts.get(*id)?.compare_traffic(cluster)?;
            Some((traffic.now, traffic.baseline?))
        };
        let is_silent = |baseline: f64| baseline <= judge.limits.silent_network_ratio;
        let shares = nodes.iter().filter_map(traffic).filter(|(_, baseline)| !is_silent(*baseline));
        let silent = nodes.iter().filter(|id| {
            traffic(id).is_some_and(|(_, baseline)| is_silent(baseline))
                && cluster.node_by_id(**id).is_some_and(|node| counts_ports(cluster, node))
        });
        let silent = silent.count();
        let clock = median(gpus().filter_map(|gpu| {
            Some(gpu.averages.clock_hertz(now, &judge.limits)? / gpu.averages.usual_clock()?)
        }));
        let busy_ratio = |averages: &GpuAverages| {
            Some(averages.utilization_at(now, gap)? / averages.usual_utilization()?)
        };
        // Without profiling counters the pace is that of the power, or of the traffic.
        let is_by_power = !group.is_profiled(&judge.gpus, now, gap)
            && !judge.gangs.of(group).is_paced_by_traffic(group);
        let exponent = if is_by_power { POWER_EXPONENT } else { 1 };
        Self {
            by_clock: clock.map_or(0.0, |share| 1.0 - share.powi(exponent)),
            clock,
            utilization: median(gpus().filter_map(|gpu| busy_ratio(&gpu.averages))),
            intensity: median(gpus().filter_map(|gpu| {
                let pace = gpu.averages.activity_ratio(now, gap, &judge.limits)?;
                Some(pace / busy_ratio(&gpu.averages).filter(|busy| *busy > 0.0)?)
            })),
            traffic: median(shares.map(|(now, baseline)| now / baseline)),
            may_exchange: silent * 2 <= nodes.len(),
        }
    }

    /// Whether only time was lost: it busy-waits as much and at the same clock as in its baseline, and moves about as
    /// much less data as it is slower.
    pub(super) fn is_only_slower(&self, limits: &Thresholds, pace: f64) -> bool {
        self.is_as_busy(limits)
            && self.clock.is_none_or(|share| share >= limits.slow_clock_ratio)
            && self.traffic.is_none_or(|share| share >= pace * limits.like_pace_share)
    }

    /// Whether it takes the same steps more slowly: it moves about as much less data as it is slower or, where traffic
    /// is unknown, its GPUs are as busy. An evaluation or another workload moves almost nothing. A lower clock of the
    /// whole job, such as a power cap, must explain less than half of the slowdown.
    pub(super) fn takes_same_steps(&self, limits: &Thresholds, pace: f64) -> bool {
        !self.is_capped(limits, pace)
            && self.traffic.map_or_else(
                || self.is_as_busy(limits),
                |share| share >= pace * limits.like_pace_share,
            )
    }

    /// Whether a job on one node takes the same steps as far as its GPUs show it: they do the same while they are busy, and
    /// wait for longer between.
    pub(super) fn waits_for_longer(&self, limits: &Thresholds, pace: f64) -> bool {
        !self.is_capped(limits, pace) && self.works_as_before()
    }

    pub(super) fn is_capped(&self, limits: &Thresholds, pace: f64) -> bool {
        let is_low = self.clock.is_some_and(|share| share < limits.slow_clock_ratio);
        is_low || self.by_clock * 2.0 > 1.0 - pace
    }

    /// Whether its GPUs do the same as before while they are busy: they wait for longer between.
    fn works_as_before(&self) -> bool {
        self.intensity.is_some_and(|share| (share - 1.0).abs() <= SAME_INTENSITY)
    }

    fn is_as_busy(&self, limits: &Thresholds) -> bool {
        self.utilization.is_some_and(|share| share >= limits.hungry_slow_ratio)
    }
}
