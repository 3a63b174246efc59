//! The averages of one host's pressure, CPU and traffic signals, and their baselines.

use gaunt_schema::{
    DeviceClass, MetricId, UnixMs,
    catalogue::{hardware, host},
};

use super::{
    Thresholds,
    baseline::{Baseline, SampleMoment, WorseDirection},
    host_evidence::{HostEvidence, PressureSource},
    moving_average::{CompactTimestamp, MovingAverage, SampleTiming},
    network_share::network_share,
    serving_queue::{self, ServingQueue},
    storage_response::StorageResponse,
};
use gaunt_cluster::{Cluster, Node};

/// The averages and baselines of one host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HostAverages {
    pub(super) io_pressure: MovingAverage,
    pub(super) cpu_pressure: MovingAverage,
    pub(super) busiest_cpu: MovingAverage,
    /// Share of its CPUs that the kernel takes, and that programs take.
    kernel_cpu: MovingAverage,
    program_cpu: MovingAverage,
    /// Share of the nominal rate of all its ports, in both directions.
    pub(super) network: MovingAverage,
    /// The same in the busier direction.
    busier_network: MovingAverage,
    /// Whether its kernel reports no PSI, so that IO pressure follows from the time for which CPUs idle meanwhile.
    knows_only_iowait: bool,
    /// Whether most of its GPUs are usually busy.
    is_busy: bool,
    /// Bytes per second that it reads from disks and network file systems, and writes to them.
    read: MovingAverage,
    written: MovingAverage,
    /// The queue of its model servers, if it has any.
    pub(super) queue: Option<ServingQueue>,
    usual_io: Baseline,
    usual_cpu: Baseline,
    usual_busiest: Baseline,
    usual_network: Baseline,
    usual_kernel: Baseline,
    usual_programs: Baseline,
    /// How long its network file systems take to answer.
    storage: StorageResponse,
    /// When its ports last carried more than next to nothing of their baseline.
    carried: CompactTimestamp,
    last_sampled: CompactTimestamp,
    /// Evidence that its pressure has risen.
    pub(super) evidence: HostEvidence,
}

/// The baselines of a host, as they are saved: new ones come last.
pub(super) type HostBaselines = [Baseline; 8];

/// Bytes per second below which what a node writes may be logs.
const LEAST_WRITTEN: f64 = 20e6;

/// The counters of what a node reads.
const READ_BYTES: [(DeviceClass, MetricId); 2] = [
    (DeviceClass::Disk, hardware::DISK_READ_BYTES),
    (DeviceClass::Mount, hardware::MOUNT_READ_BYTES),
];

/// The counters of what it writes.
const WRITTEN_BYTES: [(DeviceClass, MetricId); 2] = [
    (DeviceClass::Disk, hardware::DISK_WRITE_BYTES),
    (DeviceClass::Mount, hardware::MOUNT_WRITE_BYTES),
];

/// The share of the time that is most of it.
const MOST_OF_TIME: f64 = 0.5;

/// Share of the nominal rate of ports below which their traffic is not that of a job.
pub(super) const LEAST_TRAFFIC: f64 = 0.001;

/// A value of a host with its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BaselineComparison {
    pub(super) now: f64,
    pub(super) baseline: Option<f64>,
    /// A user accepted this baseline.
    pub(super) accepted: bool,
    /// The GPUs of the host are busy with it: it keeps none of them waiting.
    pub(super) harmless: bool,
}

/// The share of the CPUs of a host that its kernel takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelTime {
    pub(super) now: f64,
    pub(super) baseline: f64,
    /// How many times as large its part of the busy time is as before.
    pub(super) part_times: f64,
}

impl KernelTime {
    /// Returns how many times as much as before it is.
    pub(super) fn times(&self) -> f64 {
        self.now / self.baseline
    }
}

/// What a node is used for.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeUse {
    /// An open finding names it.
    pub(super) frozen: bool,
    /// No process uses any of its GPUs, or its job pauses: its pressure says nothing about that of a job at work.
    pub(super) is_idle: bool,
    /// Most of its GPUs are usually busy.
    pub(super) is_busy: bool,
}

impl HostAverages {
    /// Ingests the newest sample of a node.
    pub(super) fn observe_node(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        NodeUse { frozen, is_idle, is_busy }: NodeUse,
        limits: &Thresholds,
    ) {
        let is_new = |at: &UnixMs| CompactTimestamp::of(*at).is_after(self.last_sampled);
        let Some(at) = node.sampled.filter(is_new) else { return };
        let sampled = CompactTimestamp::of(at);
        let since = sampled.seconds_after(std::mem::replace(&mut self.last_sampled, sampled));
        self.queue = serving_queue::sum_queues(cluster, node);
        self.is_busy = is_busy;
        let gap = cluster.freshness_window();
        let tick = &mut SampleTiming::new(at, limits.average_seconds, gap);
        let moment = SampleMoment { since, gap, frozen };
        let share = network_share(cluster, node);
        let baseline = self.usual_network.usual_value();
        let little = baseline.map_or(0.0, |baseline| baseline * limits.standstill_ratio);
        if share.is_some_and(|share| share.busier > little) {
            self.carried = tick.sampled_at();
        }
        self.network.add_sample(share.map(|share| share.exchanged), tick);
        self.busier_network.add_sample(share.map(|share| share.busier), tick);
        self.usual_network.learn_value(
            self.network.value_at(at, gap),
            moment,
            WorseDirection::Lower,
            limits.carries_ratio,
            limits,
        );
        self.storage.add_sample(cluster, node, tick, (at, moment), limits);
        self.read.add_sample(Some(transferred(cluster, node, READ_BYTES)), tick);
        self.written.add_sample(Some(transferred(cluster, node, WRITTEN_BYTES)), tick);
        let Some(row) = node.own_row() else { return };
        let pressure = cluster.current_rate(host::IO_PRESSURE, row);
        self.knows_only_iowait = pressure.is_none();
        self.io_pressure.add_sample(pressure.or_else(|| iowait_pressure(cluster, row)), tick);
        self.cpu_pressure.add_sample(cluster.current_rate(host::CPU_PRESSURE, row), tick);
        self.busiest_cpu.add_sample(cluster.current_value(host::CPU_BUSIEST, row), tick);
        let (kernel, programs) = cpu_shares(cluster, row).unzip();
        self.kernel_cpu.add_sample(kernel, tick);
        self.program_cpu.add_sample(programs, tick);
        for (baseline, average) in [
            (&mut self.usual_io, &self.io_pressure),
            (&mut self.usual_cpu, &self.cpu_pressure),
            (&mut self.usual_busiest, &self.busiest_cpu),
            (&mut self.usual_kernel, &self.kernel_cpu),
            (&mut self.usual_programs, &self.program_cpu),
        ] {
            if is_idle {
                continue;
            }
            baseline.learn_value(
                average.value_at(at, gap),
                moment,
                WorseDirection::Higher,
                limits.noise_floor_ratio,
                limits,
            );
        }
    }

    /// Resets the baselines because other jobs run on it.
    pub(super) fn reset_baselines(&mut self) {
        self.usual_io = Baseline::default();
        self.usual_cpu = Baseline::default();
        self.usual_busiest = Baseline::default();
        self.usual_network = Baseline::default();
        self.usual_kernel = Baseline::default();
        self.usual_programs = Baseline::default();
        self.storage = StorageResponse::default();
    }

    /// Accepts the present values as baselines.
    pub(super) fn accept_baselines(&mut self, cluster: &Cluster, limits: &Thresholds) {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        for (baseline, average) in [
            (&mut self.usual_io, &self.io_pressure),
            (&mut self.usual_cpu, &self.cpu_pressure),
            (&mut self.usual_busiest, &self.busiest_cpu),
            (&mut self.usual_network, &self.network),
            (&mut self.usual_kernel, &self.kernel_cpu),
            (&mut self.usual_programs, &self.program_cpu),
        ] {
            *baseline = baseline.with_accepted(average.value_at(now, gap), limits);
        }
        self.storage.accept_baseline(now, gap, limits);
    }

    /// When its last sample was read.
    pub(super) fn last_sampled(&self) -> Option<CompactTimestamp> {
        Some(self.last_sampled).filter(|at| at.is_set())
    }

    /// Whether it was read at all.
    pub(super) fn is_read(&self) -> bool {
        self.last_sampled.is_set()
    }

    /// Returns its baselines.
    pub(super) fn learned_baselines(&self) -> HostBaselines {
        let [reads, metadata] = self.storage.learned_baselines();
        [
            self.usual_io,
            self.usual_cpu,
            self.usual_busiest,
            self.usual_network,
            reads,
            metadata,
            self.usual_kernel,
            self.usual_programs,
        ]
    }

    /// Creates a host with restored baselines.
    pub(super) fn from_baselines(baselines: HostBaselines) -> Self {
        let [
            usual_io,
            usual_cpu,
            usual_busiest,
            usual_network,
            reads,
            metadata,
            usual_kernel,
            usual_programs,
        ] = baselines;
        Self {
            usual_io,
            usual_cpu,
            usual_busiest,
            usual_network,
            usual_kernel,
            usual_programs,
            storage: StorageResponse::from_baselines([reads, metadata]),
            ..Self::default()
        }
    }

    /// Returns the share of its CPUs that its kernel takes; none without a baseline.
    pub(super) fn kernel_time(&self, cluster: &Cluster) -> Option<KernelTime> {
        let kernel = compare_average(self.kernel_cpu, &self.usual_kernel, cluster)?;
        let programs = compare_average(self.program_cpu, &self.usual_programs, cluster)?;
        let baseline = kernel.baseline.filter(|baseline| *baseline > 0.0)?;
        let part = |kernel: f64, programs: f64| kernel / (kernel + programs);
        let part_times = part(kernel.now, programs.now) / part(baseline, programs.baseline?);
        Some(KernelTime { now: kernel.now, baseline, part_times })
    }

    /// Returns its traffic relative to the baseline; none where that is next to nothing.
    pub(super) fn traffic_ratio(&self, cluster: &Cluster) -> Option<f64> {
        let baseline =
            self.usual_network.usual_value().filter(|baseline| *baseline > LEAST_TRAFFIC)?;
        Some(self.network.value_at(cluster.now(), cluster.freshness_window())? / baseline)
    }

    /// Returns IO pressure: the share of the time in which a task waits for IO.
    pub(super) fn compare_io_pressure(&self, cluster: &Cluster) -> Option<BaselineComparison> {
        let compared = self.compare_pressure(self.io_pressure, &self.usual_io, cluster)?;
        if !self.knows_only_iowait {
            return Some(compared);
        }
        // What CPUs idle for is known roughly: only what is far above the baseline counts.
        Some(BaselineComparison { accepted: true, ..compared })
            .filter(|compared| compared.baseline.is_some())
    }

    /// Returns the pressure with its baseline, which is harmless where GPUs are usually busy with it.
    fn compare_pressure(
        &self,
        average: MovingAverage,
        baseline: &Baseline,
        cluster: &Cluster,
    ) -> Option<BaselineComparison> {
        let compared = compare_average(average, baseline, cluster)?;
        let harmless = self.is_busy && compared.baseline.is_some();
        Some(BaselineComparison { harmless, ..compared })
    }

    /// Whether its IO pressure follows from idle CPUs.
    pub(super) fn knows_only_iowait(&self) -> bool {
        self.knows_only_iowait
    }

    /// Returns the least rise of IO pressure above its baseline that is evidence.
    pub(super) fn least_io_rise(&self, limits: &Thresholds) -> f64 {
        let times = if self.knows_only_iowait { limits.pressure_far_times } else { 1.0 };
        limits.io_pressure_ratio * times
    }

    /// Returns IO pressure that is evidence. Where it follows from idle CPUs, it varies by chance and is known roughly: it
    /// must be far above its baseline, and more than hosts rise by chance.
    pub(super) fn excess_io_pressure(
        &self,
        cluster: &Cluster,
        limits: &Thresholds,
    ) -> Option<BaselineComparison> {
        let is_clear = |io: &BaselineComparison| {
            let rise = io.now - io.baseline.unwrap_or_default();
            rise >= self.least_io_rise(limits) && self.evidence.is_likely(PressureSource::Io)
        };
        self.compare_io_pressure(cluster).filter(|io| {
            io.exceeds_limit(limits.io_pressure_ratio, limits)
                && (!self.knows_only_iowait || is_clear(io))
        })
    }

    /// Whether it writes much, and more than it reads: what it waits for then may be a checkpoint, and not its input.
    pub(super) fn mostly_writes(&self, cluster: &Cluster) -> bool {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let rate = |average: &MovingAverage| average.value_at(now, gap).unwrap_or_default();
        rate(&self.written) >= rate(&self.read).max(LEAST_WRITTEN)
    }

    /// Whether it is known to read and write next to nothing.
    pub(super) fn transfers_little(&self, cluster: &Cluster) -> bool {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        let little = |average: &MovingAverage| {
            average.value_at(now, gap).is_none_or(|rate| rate < LEAST_WRITTEN)
        };
        self.tells_transfers(cluster) && little(&self.written) && little(&self.read)
    }

    /// Whether it is known what it reads and writes: any host does either.
    pub(super) fn tells_transfers(&self, cluster: &Cluster) -> bool {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        [&self.written, &self.read]
            .iter()
            .any(|it| it.value_at(now, gap).is_some_and(|it| it > 0.0))
    }

    /// Returns CPU pressure: the share of the time in which a task waits for a CPU (PSI "some").
    pub(super) fn compare_cpu_pressure(&self, cluster: &Cluster) -> Option<BaselineComparison> {
        self.compare_pressure(self.cpu_pressure, &self.usual_cpu, cluster)
    }

    /// Returns the largest share of the time for which tasks wait, for CPUs, IO or the busiest CPU, beyond the baseline.
    pub(super) fn risen_pressure(&self, cluster: &Cluster) -> f64 {
        let compared = [
            self.compare_io_pressure(cluster),
            self.compare_cpu_pressure(cluster),
            self.compare_busiest_cpu(cluster),
        ];
        let risen = |it: BaselineComparison| it.now - it.baseline.unwrap_or_default();
        compared.into_iter().flatten().map(risen).fold(0.0, f64::max)
    }

    /// Whether its tasks wait for IO or CPUs for more of the time than before, by most of it: no chore makes them.
    pub(super) fn mostly_waits(&self, cluster: &Cluster) -> bool {
        let compared = [self.compare_io_pressure(cluster), self.compare_cpu_pressure(cluster)];
        let risen = |it: BaselineComparison| it.now - it.baseline.unwrap_or_default();
        compared.into_iter().flatten().any(|it| risen(it) >= MOST_OF_TIME)
    }

    /// Returns the time that its network file systems take to answer a request, in seconds.
    pub(super) fn compare_response_time(&self, cluster: &Cluster) -> Option<BaselineComparison> {
        let (now, usual) = self.storage.times(cluster.now(), cluster.freshness_window());
        compare_value(now, usual)
    }

    /// Returns that time if it is so far above its baseline, for long enough, that storage is slow for this host.
    pub(super) fn slow_response(
        &self,
        cluster: &Cluster,
        limits: &Thresholds,
    ) -> Option<BaselineComparison> {
        let response = self.compare_response_time(cluster)?;
        let slow = response.baseline? * limits.slow_response_times;
        (response.now >= slow && self.evidence.is_likely(PressureSource::Storage))
            .then_some(response)
    }

    /// Returns the busy share of the busiest CPU.
    pub(super) fn compare_busiest_cpu(&self, cluster: &Cluster) -> Option<BaselineComparison> {
        compare_average(self.busiest_cpu, &self.usual_busiest, cluster)
    }

    /// Returns the share of the nominal rate that its ports carry in both directions.
    pub(super) fn compare_traffic(&self, cluster: &Cluster) -> Option<BaselineComparison> {
        compare_average(self.network, &self.usual_network, cluster)
    }

    /// Returns the share of the nominal rate that its ports carry in the busier direction.
    pub(super) fn busier_traffic(&self, cluster: &Cluster) -> Option<f64> {
        self.busier_network.value_at(cluster.now(), cluster.freshness_window())
    }

    /// Whether no recent sample showed more than next to nothing sent; none where it is not known to send much.
    pub(super) fn is_silent(&self, cluster: &Cluster, limits: &Thresholds) -> Option<bool> {
        let baseline = self
            .compare_traffic(cluster)?
            .baseline
            .filter(|baseline| *baseline >= limits.carries_ratio)?;
        Some(
            baseline > 0.0
                && self.carried.is_set()
                && self.silent_seconds() >= limits.pause_seconds,
        )
    }

    /// Whether it sends next to nothing of its baseline, and has not for a while: a starved node sends something with
    /// each of its few steps. None without a baseline.
    pub(super) fn is_pausing(&self, cluster: &Cluster, limits: &Thresholds) -> Option<bool> {
        let BaselineComparison { now, baseline, .. } = self.compare_traffic(cluster)?;
        let is_little = now < baseline? * limits.standstill_ratio;
        Some(is_little && self.silent_seconds() >= limits.pause_seconds)
    }

    /// Seconds from the last sample that showed traffic to the last sample: between samples nothing is known.
    fn silent_seconds(&self) -> f64 {
        self.last_sampled().map_or(0.0, |last| last.seconds_since(self.carried))
    }
}

impl BaselineComparison {
    /// Whether the value is at least `limit`, and exceeds its baseline by the required factor, if that is known. Far
    /// above the limit it counts in any case, unless GPUs were busy with it: pressure that exists since the first sample
    /// would become the baseline.
    pub(super) fn exceeds_limit(&self, limit: f64, limits: &Thresholds) -> bool {
        self.now >= self.limit_beside_baseline(limit, limits)
    }

    /// Returns the value from which it is evidence: the limit, or the required multiple of its baseline; close to saturation,
    /// half of the time that was left must be gone.
    pub(super) fn limit_beside_baseline(&self, limit: f64, limits: &Thresholds) -> f64 {
        let more = |baseline: f64| {
            limit.max((baseline * limits.pressure_times).min(f64::midpoint(baseline, 1.0)))
        };
        let beside = self.baseline.map_or(limit, more);
        if self.accepted || self.harmless {
            return beside;
        }
        beside.min(limit * limits.pressure_far_times.max(1.0))
    }
}

/// Returns about the share of the time in which a task waits for IO where the kernel reports no PSI (that of RHEL does so
/// only if told to at boot): CPUs idle so long for tasks that wait independently of each other.
fn iowait_pressure(cluster: &Cluster, row: u32) -> Option<f64> {
    Some(1.0 - (-cluster.current_rate(host::CPU_IOWAIT, row)?).exp())
}

/// Returns the shares of its CPUs that the kernel and that programs take.
fn cpu_shares(cluster: &Cluster, row: u32) -> Option<(f64, f64)> {
    let cpus = cluster.last_value(host::CPUS, row).filter(|cpus| *cpus > 0.0)?;
    let kernel = cluster.current_rate(host::CPU_KERNEL, row)?;
    let busy = cluster.current_rate(host::CPU_BUSY, row)?;
    Some((kernel / cpus, (busy - kernel).max(0.0) / cpus))
}

/// Returns the bytes per second that a node transfers, by the counters of its disks and of its network file systems.
fn transferred(cluster: &Cluster, node: &Node, counters: [(DeviceClass, MetricId); 2]) -> f64 {
    let of = |(class, metric): (DeviceClass, MetricId)| {
        let rows = node.device_rows(class).iter();
        rows.filter_map(|row| cluster.current_rate(metric, *row)).sum::<f64>()
    };
    counters.into_iter().map(of).sum()
}

fn compare_average(
    average: MovingAverage,
    baseline: &Baseline,
    cluster: &Cluster,
) -> Option<BaselineComparison> {
    compare_value(average.value_at(cluster.now(), cluster.freshness_window()), baseline)
}

fn compare_value(now: Option<f64>, baseline: &Baseline) -> Option<BaselineComparison> {
    Some(BaselineComparison {
        now: now?,
        baseline: baseline.usual_value(),
        accepted: baseline.is_accepted(),
        harmless: false,
    })
}
