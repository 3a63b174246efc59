//! Hosts that starve their GPUs: slow input, slow launches, or storage that a whole job waits for.

use std::collections::BTreeSet;

use gaunt_schema::{
    DeviceClass, Entity, EntityKind, FindingKind, SanitizedText, catalogue::gpu, unit::Unit,
};

use super::{
    FindingEvidence, Judge, Thresholds, checkpoint_pause,
    finding_lifecycle::DetectorOutcome,
    host_averages::{BaselineComparison, HostAverages},
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_count, format_percent},
    robust_stats::median,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Adds hosts that starve their GPUs, and storage that starves many.
pub(super) fn detect_starved_nodes(judge: &Judge, cluster: &Cluster, seen: &mut DetectorOutcome) {
    let mut told = BTreeSet::new();
    let mut storage: Vec<(&JobGroup, Vec<StarvedNode<'_>>)> = Vec::new();
    for gang in judge.job_groups.all_groups() {
        checkpoint_pause::refute_starvation(judge, cluster, gang, seen);
        let hungry: Vec<StarvedNode<'_>> = gang
            .nodes
            .iter()
            .filter_map(|id| StarvedNode::detect_node(judge, cluster, gang, *id))
            .collect();
        let by_storage = hungry.iter().filter(|hungry| hungry.waits_for_io(judge, cluster)).count();
        // GPU activity is often known from single instants, so that not every starved GPU shows at each sample; IO
        // pressure of the hosts is counted all the time. A node that sends nothing meanwhile writes a checkpoint.
        let wait = |id: &&NodeId| {
            let Some(host) = judge.hosts.get(id) else { return false };
            let limits = &judge.limits;
            let waits = host
                .compare_io_pressure(cluster)
                .is_some_and(|io| io.exceeds_limit(limits.io_pressure_ratio, limits));
            waits && host.is_pausing(cluster, limits) != Some(true)
        };
        let most = gang.nodes.iter().filter(wait).count().max(by_storage);
        let shared = by_storage as f64 >= judge.limits.shared_nodes && most * 2 > gang.nodes.len();
        if shared {
            storage.push((gang, hungry.into_iter().filter(|hungry| hungry.caught).collect()));
            continue;
        }
        // While most hosts wait for input no single one is to blame, however few were sampled as starved by now.
        let together = gang.nodes.len() > 1 && most * 2 > gang.nodes.len();
        for hungry in hungry {
            if together && hungry.excess_io_pressure(judge, cluster).is_some() {
                continue;
            }
            if told.insert(hungry.id) {
                seen.suspicions.extend(hungry.pending_finding(judge, cluster));
            }
        }
    }
    if !storage.is_empty() {
        seen.suspicions.push(storage_slow_finding(judge, cluster, &storage));
    }
}

/// Below this number of nodes a node is left out of the median that it is compared with.
const FEW_NODES: usize = 4;

/// A node whose GPUs are below their baseline and below those of its job group.
struct StarvedNode<'a> {
    id: NodeId,
    node: &'a Node,
    gang: &'a JobGroup,
    host: HostAverages,
    /// Its GPUs' utilization, their baseline, and that of the others.
    utilization: f64,
    usual: Option<f64>,
    others: Option<f64>,
    /// GPUs below the baseline, and the number of all.
    low: Vec<u32>,
    of: usize,
    /// Whether samples showed the drop, and not only host pressure and job pace.
    caught: bool,
}

/// Where pages come rarely, GPU activity may be known from single instants only, while host pressure and job pace are
/// counted: GPUs that were low a moment ago still count as low while both last. Before one was sampled low, only the
/// host and its job give evidence.
fn low_between_samples(
    judge: &Judge,
    cluster: &Cluster,
    gang: &JobGroup,
    host: &HostAverages,
    rows: &[u32],
) -> Option<(Vec<u32>, bool)> {
    let limits = &judge.limits;
    let counted = |row: &u32| cluster.current_rate(gpu::UTILIZATION_SECONDS, *row).is_some();
    let io = host
        .compare_io_pressure(cluster)
        .is_some_and(|io| io.exceeds_limit(limits.io_pressure_ratio, limits));
    let cpu = CpuPressure::of(host, cluster, limits);
    let slowed = gang.slowdown_ratio().is_some_and(|slowed| slowed >= limits.slowed_ratio);
    if rows.iter().any(counted) || !slowed || !(io || cpu.pressed || cpu.crowded) {
        return None;
    }
    let lately = |row: &&u32| {
        let gpu = judge.gpus.get(**row as usize);
        let since = gpu.and_then(|gpu| gpu.averages.since_low(cluster.now()));
        since.is_some_and(|seconds| seconds <= judge.two_collection_seconds(cluster))
    };
    let low: Vec<u32> = rows.iter().filter(lately).copied().collect();
    let begins = || (gang.nodes.len() > 1).then(|| (rows.to_vec(), false));
    if low.is_empty() { begins() } else { Some((low, true)) }
}

/// Pressure on the CPUs of a host that launch kernels and load data.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuPressure {
    /// Tasks wait for a CPU.
    pub(super) pressed: bool,
    /// Tasks wait for a CPU a little.
    pub(super) crowded: bool,
    /// One CPU is saturated, and was not in its baseline.
    pub(super) pegged: bool,
    /// The busy share of the busiest one.
    pub(super) busiest: Option<f64>,
}

impl CpuPressure {
    /// Returns the pressure on this host now.
    pub(super) fn of(host: &HostAverages, cluster: &Cluster, limits: &Thresholds) -> Self {
        let (cpu, busiest) =
            (host.compare_cpu_pressure(cluster), host.compare_busiest_cpu(cluster));
        let waits = |limit: f64| cpu.is_some_and(|cpu| cpu.exceeds_limit(limit, limits));
        let pegged = busiest.is_some_and(|busiest| {
            // Where one CPU always spins, its load is no evidence.
            let before = busiest.usual.is_none_or(|usual| usual < limits.busiest_cpu_before_ratio);
            busiest.now >= limits.busiest_cpu_ratio && before
        });
        Self {
            pressed: waits(limits.cpu_pressure_ratio),
            crowded: waits(limits.cpu_crowded_ratio),
            pegged,
            busiest: busiest.map(|busiest| busiest.now),
        }
    }

    /// Whether any of it is unusual.
    pub(super) fn is_any_unusual(self) -> bool {
        self.pressed || self.crowded || self.pegged
    }
}

impl<'a> StarvedNode<'a> {
    fn detect_node(
        judge: &'a Judge,
        cluster: &'a Cluster,
        gang: &'a JobGroup,
        id: NodeId,
    ) -> Option<Self> {
        let limits = &judge.limits;
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let node = cluster.node_by_id(id)?;
        let own =
            |row: &&u32| judge.job_groups.of(**row).is_some_and(|other| std::ptr::eq(other, gang));
        let rows: Vec<u32> =
            node.device_rows(DeviceClass::Gpu).iter().filter(own).copied().collect();
        let known = |row: &u32| judge.gpus.get(*row as usize);
        let busy = |rows: &[u32]| {
            median(rows.iter().filter_map(|row| known(row)?.averages.utilization_at(now, gap)))
        };
        // Among many nodes one does not move the median; of a few it is left out.
        let elsewhere = match gang.nodes.len() {
            0 | 1 => None,
            2..FEW_NODES => {
                let others = gang.gpus.iter().filter(|row| !rows.contains(row)).copied();
                busy(&others.collect::<Vec<u32>>())
            }
            _ => gang.utilization,
        };
        // Samples that are taken now and then vary by chance: only a large drop counts.
        let hungry = if judge.has_slow_period(cluster) {
            limits.hungry_slow_ratio
        } else {
            limits.hungry_ratio
        };
        // Where nothing is sent any more the whole job pauses: it writes a checkpoint, or ends.
        let host = judge.hosts.get(&id).copied().unwrap_or_default();
        if host.is_pausing(cluster, limits) == Some(true) {
            return None;
        }
        let low_one = |row: &u32| {
            let averages = &known(row)?.averages;
            let is = averages.utilization_at(now, gap)?;
            // Before its own baseline is known, the others serve as one.
            let usual = averages.usual_utilization().or(elsewhere)?;
            // It still does some work: a GPU that does none pauses, or hangs. Traffic does not show it: a checkpoint
            // may use the same ports.
            let works = is >= limits.standstill_ratio
                && averages.activity_ratio(now, gap, &judge.limits).unwrap_or(is)
                    >= limits.standstill_ratio;
            let goes_on = works || checkpoint_pause::works_intermittently(judge, cluster, *row);
            let low = usual >= limits.utilization_launch_ratio && is < usual * hungry;
            Some(low && goes_on)
        };
        let now_low = rows.iter().filter(|row| low_one(row) == Some(true)).copied();
        let (low, caught) = match now_low.collect::<Vec<u32>>() {
            low if !low.is_empty() => (low, true),
            _ if judge.has_slow_period(cluster) => {
                low_between_samples(judge, cluster, gang, &host, &rows)?
            }
            _ => return None,
        };
        let usual = median(low.iter().filter_map(|row| known(row)?.averages.usual_utilization()));
        let usual = usual.or(elsewhere);
        // In a job group of one node the others are those GPUs of the node that stay at their baseline.
        let siblings = rows.iter().filter(|row| !low.contains(row)).copied();
        let others = elsewhere.or_else(|| busy(&siblings.collect::<Vec<u32>>()));
        let utilization = busy(&low)?;
        Some(Self { id, node, gang, host, utilization, usual, others, of: rows.len(), low, caught })
    }

    /// Whether the others are busier than it.
    fn is_below_others(&self, judge: &Judge) -> bool {
        self.others.is_some_and(|others| self.utilization < others * judge.limits.hungry_ratio)
    }

    fn excess_io_pressure(&self, judge: &Judge, cluster: &Cluster) -> Option<BaselineComparison> {
        let limits = &judge.limits;
        self.host
            .compare_io_pressure(cluster)
            .filter(|io| io.exceeds_limit(limits.io_pressure_ratio, limits))
    }

    fn cpu_pressure(&self, judge: &Judge, cluster: &Cluster) -> CpuPressure {
        CpuPressure::of(&self.host, cluster, &judge.limits)
    }

    fn waits_for_io(&self, judge: &Judge, cluster: &Cluster) -> bool {
        self.caught
            && self.excess_io_pressure(judge, cluster).is_some()
            && self.low.len() * 2 > self.of
    }

    fn pending_finding(&self, judge: &Judge, cluster: &Cluster) -> Option<PendingFinding> {
        let limits = &judge.limits;
        let io = self.excess_io_pressure(judge, cluster).is_some();
        let CpuPressure { pressed, crowded, pegged, .. } = self.cpu_pressure(judge, cluster);
        let alone = self.is_below_others(judge);
        let waits = self.gang.slowdown_ratio().is_some_and(|slowed| slowed >= limits.slowed_ratio)
            && self.gang.nodes.len() > 1
            && self.others.is_some_and(|others| others >= limits.utilization_spinning_ratio);
        let host = [io, pressed || crowded, pegged].into_iter().filter(|kind| *kind).count();
        if host == 0 && !(alone && waits) {
            return None;
        }
        let kind = if io || pressed || host == 0 {
            FindingKind::DataStarved
        } else {
            FindingKind::HostBound
        };
        // A node that wrote a checkpoint waited for the disk as well, and goes on.
        let hold = if io { limits.storage_seconds } else { limits.starved_seconds };
        let hold = match self.caught {
            true => hold.max(judge.two_sample_seconds(cluster)),
            false if self.host.is_progressing(cluster, limits) => {
                hold.max(judge.two_sample_seconds_of_all(cluster))
            }
            false => f64::INFINITY,
        };
        // Its own drop and the waiting of the others are one kind of evidence seen from two sides.
        let kinds = usize::from(host > 0) + usize::from(alone || waits);
        // A node that was not sampled low is a warning, and does not page.
        let kinds = if self.caught { kinds } else { 1 };
        let entity = Entity::new_node(&self.node.name);
        let lost =
            (1.0 - self.utilization / self.usual.unwrap_or(1.0)).max(0.0) * self.low.len() as f64;
        let summary = self.render_summary(kind, limits);
        let name = &self.node.name;
        let next = match (io, kind) {
            (true, _) => format!(
                "Look at what the data loader of {name} reads, and from which disk or mount."
            ),
            (_, FindingKind::HostBound) => format!(
                "Look at the process that keeps one CPU of {name} busy, and at what shares that CPU with it."
            ),
            _ => format!(
                "Look at the data loader's processes on {name}: their number, and what they do on the CPU."
            ),
        };
        Some(
            PendingFinding::of(kind, entity, kinds, host > 0)
                .with_hold_seconds(hold)
                .with_cost(
                    self.gang.lost_gpus().max(lost),
                    self.gang.list_victims(cluster, Some(self.id)),
                )
                .with_summary(summary, next)
                .with_evidence(self.collect_evidence(judge, cluster)),
        )
    }

    fn render_summary(&self, kind: FindingKind, limits: &Thresholds) -> String {
        let what = if kind == FindingKind::DataStarved {
            "input does not come in time"
        } else {
            "its host launches work too slowly"
        };
        let (name, gpus) = (&self.node.name, format_count(self.of, "allocated GPU"));
        let usual = self.usual.unwrap_or_default();
        let lost = format_percent(self.gang.slowdown_ratio().unwrap_or_default());
        if !self.caught {
            return format!(
                "{name} may starve its {gpus}: {what}, and its job has lost {lost} of its speed; no sample of these GPUs shows it."
            );
        }
        let starves = format!("{name} starves {} of its {gpus}: {what}", self.low.len());
        if self.utilization < usual * limits.hungry_ratio {
            let busy = format_percent(self.utilization);
            return format!(
                "{starves}; they are busy {busy} of the time instead of {}.",
                format_percent(usual)
            );
        }
        format!("{starves}; they were seen to do less, and its job has lost {lost} of its speed.")
    }

    fn collect_evidence(&self, judge: &Judge, cluster: &Cluster) -> Vec<FindingEvidence> {
        let limits = &judge.limits;
        let usual = |beside: Option<BaselineComparison>| {
            let usual = beside.and_then(|beside| beside.usual);
            usual.map(|usual| format!("usually {}", format_percent(usual))).unwrap_or_default()
        };
        let now = |beside: Option<BaselineComparison>| beside.map(|beside| beside.now);
        let (io, cpu, busiest) = (
            self.host.compare_io_pressure(cluster),
            self.host.compare_cpu_pressure(cluster),
            self.host.compare_busiest_cpu(cluster),
        );
        vec![
            FindingEvidence::new(
                "GPUs that starve",
                Some(self.low.len() as f64),
                Unit::Count,
                None,
            )
            .with_note(format!("of {} allocated", self.of)),
            FindingEvidence::new(
                "utilization of these GPUs",
                Some(self.utilization),
                Unit::Ratio,
                self.usual.map(|usual| usual * limits.hungry_ratio),
            )
            .with_note(self.usual.map_or_else(String::new, |usual| {
                format!("usually {}; the limit is an upper one, from that", format_percent(usual))
            })),
            FindingEvidence::new(
                "utilization of the others of the job",
                self.others,
                Unit::Ratio,
                None,
            ),
            FindingEvidence::new(
                "tasks of the host waiting for input or output",
                now(io),
                Unit::Ratio,
                Some(limits.io_pressure_ratio),
            )
            .with_note(usual(io)),
            FindingEvidence::new(
                "tasks of the host waiting for a CPU",
                now(cpu),
                Unit::Ratio,
                Some(limits.cpu_pressure_ratio),
            )
            .with_note(usual(cpu)),
            FindingEvidence::new(
                "busiest CPU of the host",
                now(busiest),
                Unit::Ratio,
                Some(limits.busiest_cpu_ratio),
            )
            .with_note(usual(busiest)),
            FindingEvidence::new(
                "speed that its job has lost",
                self.gang.slowdown_ratio(),
                Unit::Ratio,
                Some(limits.slowed_ratio),
            ),
        ]
    }
}

fn storage_slow_finding(
    judge: &Judge,
    cluster: &Cluster,
    gangs: &[(&JobGroup, Vec<StarvedNode<'_>>)],
) -> PendingFinding {
    let limits = &judge.limits;
    let hungry = || gangs.iter().flat_map(|(_, hungry)| hungry);
    let nodes = hungry().count();
    let io =
        median(hungry().filter_map(|hungry| Some(hungry.excess_io_pressure(judge, cluster)?.now)));
    let busy = median(hungry().map(|hungry| hungry.utilization));
    let usual = median(hungry().filter_map(|hungry| hungry.usual));
    let slowed = gangs.iter().filter_map(|(gang, _)| gang.slowdown_ratio()).reduce(f64::max);
    let kinds = 1
        + usize::from(io.is_some())
        + usize::from(slowed.is_some_and(|slowed| slowed >= limits.slowed_ratio));
    let jobs: Vec<SanitizedText> = gangs.iter().filter_map(|(gang, _)| gang.job.clone()).collect();
    let of = if jobs.is_empty() {
        String::new()
    } else {
        format!(" of job {}", jobs.iter().map(SanitizedText::as_str).collect::<Vec<_>>().join(", "))
    };
    let lost = hungry()
        .map(|hungry| {
            (1.0 - hungry.utilization / hungry.usual.unwrap_or(1.0)).max(0.0)
                * hungry.low.len() as f64
        })
        .sum();
    PendingFinding::of(FindingKind::StorageSlow, Entity::new(EntityKind::Storage), kinds, true)
        .with_hold_seconds(limits.shared_storage_seconds.max(judge.two_sample_seconds_of_all(cluster)))
        .with_members(gangs.iter().map(|(gang, _)| gang.group_key()))
        .with_slowed_jobs(gangs.iter().map(|(gang, _)| *gang))
        .with_cost(lost, gangs.iter().flat_map(|(gang, _)| gang.list_victims(cluster, None)).take(super::pending_finding::MAX_VICTIMS).collect())
        .with_summary(
            format!("{}{of} wait for input together: what they read from is slow.", format_count(nodes, "node")),
            "Look at the file system that these nodes share: its servers, its network, and who else reads or writes there.".to_owned(),
        )
        .with_evidence([
            FindingEvidence::new("nodes that wait for input", Some(nodes as f64), Unit::Count, None),
            FindingEvidence::new("tasks of these hosts waiting for input or output", io, Unit::Ratio, Some(limits.io_pressure_ratio)),
            FindingEvidence::new("utilization of their GPUs", busy, Unit::Ratio, usual.map(|usual| usual * limits.hungry_ratio)).with_note("the limit is an upper one"),
        ])
}
