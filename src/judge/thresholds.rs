//! The one table of limits of the judge, with their defaults and reasons. `[judge]` of the sample settings is generated
//! from it.

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// Makes the table: each line has a reason, a name and a default.
macro_rules! table {
    ($($(#[doc = $reason:literal])+ $name:ident: $kind:ty = $value:expr;)+) => {
        /// Every limit of the judge. A settings file may change any of them; unknown names are rejected.
        ///
        /// A limit whose reason names no source is a proposal, chosen on simulated fleets.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Thresholds {
            $($(#[doc = $reason])+ pub $name: $kind,)+
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $value,)+ }
            }
        }

        impl Thresholds {
            /// Returns the limit with this name.
            pub(super) fn limit_value(&self, name: &str) -> Option<f64> {
                let values = [$((stringify!($name), f64::from(self.$name)),)+];
                values.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
            }
        }

        /// All limits, in the order of the settings file.
        pub(super) const LIMITS: &[ThresholdRow] = &[$(
            ThresholdRow {
                name: stringify!($name),
                #[cfg(test)]
                default: stringify!($value),
                reason: concat!($($reason),+),
            },
        )+];
    };
}

/// One limit: its name, its default as TOML, and its reason.
pub(super) struct ThresholdRow {
    pub(super) name: &'static str,
    #[cfg(test)]
    default: &'static str,
    reason: &'static str,
}

impl ThresholdRow {
    /// Returns the reason in one line.
    pub(super) fn reason(&self) -> String {
        self.reason.trim().to_owned()
    }
}

table! {
    /// Time constant of the moving averages in seconds: the mean age of the samples equals that of a plain mean over
    /// this span.
    average_seconds: f64 = 10.0;
    /// Seconds for which samples must agree before a GPU enters a state.
    enter_seconds: f64 = 5.0;
    /// Seconds for which samples must disagree before a GPU leaves a state.
    leave_seconds: f64 = 10.0;
    /// Samples of one GPU that must agree before it enters a state, or is missing: one may be wrong.
    confirming_samples: u32 = 2;
    /// Hysteresis: the threshold for leaving a state is the threshold for entering it × this.
    leave_share: f64 = 0.8;
    /// Tensor activity from which a GPU is computing.
    tensor_busy_ratio: f64 = 0.25;
    /// SM activity from which a GPU without tensor activity is computing: NVIDIA's profiling guide calls 0.8 necessary.
    sm_busy_ratio: f64 = 0.8;
    /// DRAM activity from which high SM activity no longer means computing.
    dram_saturated_ratio: f64 = 0.6;
    /// DRAM activity from which a GPU is memory bound.
    dram_bound_ratio: f64 = 0.5;
    /// DRAM activity from which no kernel uses the memory more: an H200 has 0.89 with copies, 0.85 with additions.
    dram_peak_ratio: f64 = 0.85;
    /// Share of the nominal NVLink or network rate from which a GPU is communicating.
    comm_busy_ratio: f64 = 0.3;
    /// Share of the nominal NVLink or network rate below which the link is idle.
    comm_quiet_ratio: f64 = 0.05;
    /// Tensor activity below which a GPU may be communicating or data-starved instead of computing.
    tensor_low_ratio: f64 = 0.15;
    /// Tensor activity below which a GPU is not computing at all.
    tensor_quiet_ratio: f64 = 0.05;
    /// DRAM activity below which the memory is idle.
    dram_quiet_ratio: f64 = 0.15;
    /// Utilization from which a kernel runs all the time, such as a busy-waiting collective.
    utilization_spinning_ratio: f64 = 0.8;
    /// Utilization from which a GPU without profiling counters counts as busy.
    utilization_busy_ratio: f64 = 0.9;
    /// SM activity below which a running kernel may be busy-waiting.
    sm_waiting_ratio: f64 = 0.35;
    /// Utilization below which a GPU is data-starved if its host shows pressure.
    utilization_starved_ratio: f64 = 0.6;
    /// Share of samples in which a data-starved GPU is active: a pause of the whole job is no starvation.
    active_samples_ratio: f64 = 0.5;
    /// Seconds within which a GPU below its baseline must become active again to count as data-starved.
    active_again_seconds: f64 = 20.0;
    /// SM activity below which high PCIe traffic means waiting for input: KempnerPulse's data-loading rule.
    sm_loading_ratio: f64 = 0.3;
    /// PCIe receive rate from which input is being loaded, in bytes per second: KempnerPulse's data-loading rule.
    pcie_loading_bytes_per_second: f64 = 1e9;
    /// Utilization from which a GPU may be launch bound.
    utilization_launch_ratio: f64 = 0.4;
    /// SM activity below which a GPU may be launch bound.
    sm_launch_ratio: f64 = 0.25;
    /// Utilization below which a GPU is idle.
    utilization_idle_ratio: f64 = 0.02;
    /// SM activity below which a GPU is idle.
    sm_idle_ratio: f64 = 0.01;
    /// Power / the GPU's own lowest power up to which it is idle.
    power_idle_share: f64 = 1.15;
    /// Power / power limit from which a GPU without profiling counters is computing.
    power_computing_ratio: f64 = 0.65;
    /// Power / power limit from which a GPU without profiling counters may be memory bound.
    power_memory_ratio: f64 = 0.4;
    /// NVML memory utilization from which a GPU without profiling counters is memory bound.
    memory_activity_ratio: f64 = 0.6;
    /// Power / power limit from which a GPU without profiling counters may be communicating.
    power_comm_ratio: f64 = 0.25;
    /// Power / power limit above which a GPU without profiling counters does more than communicate.
    power_comm_max_ratio: f64 = 0.5;
    /// Power / power limit below which a GPU without profiling counters is busy-waiting if a kernel runs all the time.
    power_waiting_ratio: f64 = 0.4;
    /// Power / power limit below which a GPU without profiling counters may be launch bound.
    power_launch_ratio: f64 = 0.35;
    /// Spread of power / mean power from which a GPU without profiling counters alternates between busy and idle.
    power_switching_ratio: f64 = 0.25;
    /// SM clock / maximum from which the clock counts as near its maximum.
    clock_near_max_ratio: f64 = 0.8;
    /// SM clock / clock of its peers, of the median of its job or of its own past below which a GPU is slow: a straggler,
    /// throttled by heat, or capped with its whole job.
    slow_clock_ratio: f64 = 0.85;
    /// Share of the time for which a clock-event (throttle) reason must be active.
    clock_event_ratio: f64 = 0.5;
    /// Seconds for which a port that was never active must be down beside active sibling ports.
    port_never_active_seconds: f64 = 10.0;
    /// Seconds for which all ranks of a job must busy-wait with an idle network before the job is hung.
    hung_seconds: f64 = 60.0;
    /// Seconds for which all ranks of an inferred job (no job labels) must busy-wait before its hang pages: the job may
    /// wait for a rank outside the inferred group that writes a checkpoint.
    inferred_hang_seconds: f64 = 180.0;
    /// Nominal NVLink rate of a GPU in one direction, in bytes per second: 450 GB/s for Hopper.
    nvlink_bytes_per_second: f64 = 450e9;
    /// Share of the time in which a task of the host waits for IO (PSI some).
    io_pressure_ratio: f64 = 0.08;
    /// Response time of network file systems, as a multiple of its baseline, from which storage may be slow.
    slow_response_times: f64 = 2.0;
    /// Share of the time in which a task of the host waits for a CPU (PSI some).
    cpu_pressure_ratio: f64 = 0.08;
    /// Share of the time in which a task of the host waits for memory (PSI some): a healthy host never does, one whose page
    /// cache is reclaimed does for a few hundredths.
    memory_pressure_ratio: f64 = 0.1;
    /// Utilization of the busiest CPU from which a single thread is the bottleneck.
    busiest_cpu_ratio: f64 = 0.95;
    /// Rise of the busiest CPU above its baseline that is evidence: below `busiest_cpu_ratio` only where hosts do not rise so
    /// much by chance, as for a thread that moves between CPUs.
    busiest_cpu_rise_ratio: f64 = 0.25;
    /// Scrape interval from which a page may repeat values: dcgm-exporter collects every 30 s.
    slow_period_seconds: f64 = 5.0;
    /// Seconds added to two scrape intervals, so that two samples have arrived.
    sample_slack_seconds: f64 = 5.0;
    /// Seconds for which no target of a node with a job must answer before that is critical.
    dark_seconds: f64 = 120.0;
    /// Seconds for which a page must report its GPU values as stale: a call that is only slow returns.
    driver_hung_seconds: f64 = 10.0;
    /// Seconds without a changed value on a page: DCGM's health checks need a minute of samples, and dcgm-exporter
    /// collects every 30 s.
    stale_seconds: f64 = 120.0;
    /// Seconds without a changed value on a page whose GPUs are at work, at least: their values change at every
    /// collection.
    stale_working_seconds: f64 = 30.0;
    /// Scrape or collection intervals without a changed value, at least.
    stale_periods: f64 = 3.0;
    /// Bandwidth / baseline below which a probe reports a slow link: 64 MiB messages spend 85 % of their time on
    /// bandwidth, so a link that lost 10 % shows 0.915, and two probes of one link differ by a few per cent.
    probe_baseline_ratio: f64 = 0.85;
    /// Seconds for which a probe result is valid: busy nodes are not probed.
    probe_valid_seconds: f64 = 21_600.0;
    /// Share of used GPU memory from which a process holds the GPU, where no process count is exported: a driver alone
    /// uses below 1 %, a context half a gigabyte.
    held_memory_ratio: f64 = 0.03;
    /// Queued requests of a model server from which its GPUs can be starved: fewer may be about to start.
    queue_requests: f64 = 4.0;
    /// Utilization of the busiest GPU below which the GPUs are not the cause of the queue.
    queue_idle_ratio: f64 = 0.3;
    /// Seconds for which requests must be queued beside idle GPUs.
    queue_seconds: f64 = 20.0;
    /// Seconds without requests after which the GPUs of a model server are idle: gaps of hours are normal.
    serving_idle_seconds: f64 = 3_600.0;
    /// Seconds of samples from which a baseline can be compared with.
    usual_learned_seconds: f64 = 40.0;
    /// Time constant of a baseline in seconds: a change that lasts a quarter of an hour is a new workload.
    usual_seconds: f64 = 600.0;
    /// Time constant in seconds for values better than the baseline: after start-up a job shows its full speed.
    usual_better_seconds: f64 = 30.0;
    /// Change relative to the baseline from which a value is reported and not learned.
    usual_ratio: f64 = 0.08;
    /// Seconds after which a worse level without an open finding becomes the new baseline.
    usual_accepted_seconds: f64 = 1_800.0;
    /// Minimum baseline of FEC-corrected bits per second: below it a multiple has no meaning.
    usual_corrected_per_second: f64 = 100.0;
    /// Minimum baseline of CNPs received per gigabyte sent.
    usual_notified_per_gigabyte: f64 = 1.0;
    /// Minimum baseline of the share of ECN-marked packets: quiet congestion control marks a few in 10,000.
    usual_marked_ratio: f64 = 0.0001;
    /// Minimum baseline of transmit-wait ticks per kilobyte sent.
    usual_waited_per_kilobyte: f64 = 0.01;
    /// Minimum baseline activity for comparing a pace.
    least_work_ratio: f64 = 0.03;
    /// Maximum power / power limit of an idle GPU: 66 of 400 W on the A100s of the Acme trace.
    idle_power_ratio: f64 = 0.15;
    /// Share of the baseline activity below which a GPU has stopped, and is not merely slow.
    standstill_ratio: f64 = 0.1;
    /// Seconds with less than that share of the baseline traffic after which a job pauses: a job starved to a tenth of
    /// its speed still sends at each step, every few seconds.
    pause_seconds: f64 = 8.0;
    /// Seconds after a pause for which a finding about a job's activity stays open without evidence: averages recover
    /// first.
    pause_settle_seconds: f64 = 60.0;
    /// Seconds for which the average of a clock stays valid: it is compared with GPUs that are scraped at other times.
    clock_stands_seconds: f64 = 60.0;
    /// Interval in seconds at which nodes without job labels are regrouped into inferred jobs.
    regroup_seconds: f64 = 20.0;
    /// Seconds of baseline activity after an XID or ECC error before the finding closes.
    error_speaks_seconds: f64 = 600.0;
    /// Utilization / baseline below which a GPU may be data-starved.
    hungry_ratio: f64 = 0.94;
    /// Utilization / baseline below which a GPU may be data-starved, at slow scrape intervals.
    hungry_slow_ratio: f64 = 0.85;
    /// PSI / baseline of the host from which pressure is evidence; close to saturation, half of the rest must be gone.
    pressure_times: f64 = 3.0;
    /// PSI / limit from which pressure is evidence at any baseline, unless GPUs were busy with that: a fault older than the
    /// first sample is part of the baseline.
    pressure_far_times: f64 = 4.0;
    /// Share below which a value, or what two values differ by, is noise: PSI, the spread of the clocks of healthy peers,
    /// power and traffic of nodes that are alike.
    noise_floor_ratio: f64 = 0.02;
    /// Fewest ports, senders or nodes that show the same, or siblings that are active, before what they share is blamed: one
    /// alone is a fault of its own, and the authors of R-Pingmesh cannot localise with fewer than three either.
    sharing_members: f64 = 2.0;
    /// CPU pressure (PSI some) from which kernel launches may be delayed.
    cpu_crowded_ratio: f64 = 0.03;
    /// Seconds for which a node must wait for IO: the averages need as long to forget a checkpoint.
    storage_seconds: f64 = 18.0;
    /// Seconds for which many nodes must wait for IO together: covers a checkpoint pause too short to be recognised, and
    /// its decay in the averages.
    shared_storage_seconds: f64 = 26.0;
    /// Job slowdown from which a job is slower than its baseline.
    slowed_ratio: f64 = 0.06;
    /// Job slowdown from which a job that is clearly slower than its baseline is worth a finding.
    least_slowdown_ratio: f64 = 0.03;
    /// Deviation of a share, or of a value relative to its baseline, below which it is noise however steady the value.
    shift_floor_ratio: f64 = 0.004;
    /// Minimum number of peer GPUs: below four their spread is chance.
    least_peers: f64 = 4.0;
    /// Robust z-score from which a GPU is an outlier among its peers: Monte Carlo shows no false positives with a floor
    /// of 3 %.
    peer_score: f64 = 4.0;
    /// Gap in baseline power that separates the GPUs of a job into roles: pipeline stages and experts differ steadily.
    role_gap_ratio: f64 = 0.15;
    /// Seconds of samples for the baseline of a GPU's clock relative to its peers.
    drift_learned_seconds: f64 = 300.0;
    /// Time constant of that baseline in seconds: a slower decline than the slack within it becomes the baseline.
    drift_seconds: f64 = 21_600.0;
    /// CUSUM slack: a smaller clock deficit counts as none; half of the 10 % that are to be detected.
    drift_slack_ratio: f64 = 0.05;
    /// CUSUM threshold in seconds (sum of deficits above the slack): one minute at 10 %.
    drift_sum_seconds: f64 = 3.0;
    /// Seconds for which a GPU must be slow.
    slow_gpu_seconds: f64 = 5.0;
    /// Errors of a link per second, or packets that it sends again: DCGM's health check allows 31 PCIe replays per minute at
    /// 16 lanes of generation 5 and fails on any NVLink error, NVSentinel calls 120 symbol errors per hour fatal. Rarer
    /// ones are compared with those of other links.
    errors_per_second: f64 = 0.5;
    /// Seconds for which a PCIe link must have a reduced width or generation.
    pcie_seconds: f64 = 5.0;
    /// Seconds for which a PCIe link must count replays.
    pcie_replay_seconds: f64 = 15.0;
    /// Seconds for which NVLinks must be degraded.
    nvlink_seconds: f64 = 8.0;
    /// Seconds for which the health of the NVLink fabric must be bad: three readings of gaunt-node, which reads it every
    /// tenth tick.
    fabric_fault_seconds: f64 = 30.0;
    /// Seconds after which a GPU under a job must be registered with the NVLink fabric, and IMEX be ready.
    fabric_start_seconds: f64 = 300.0;
    /// Counter of a link / its baseline for the same traffic from which it has risen: CNPs received and FEC-corrected bits,
    /// which confirm, and transmit wait, which means congestion where no switch marks packets (ECN).
    counter_times: f64 = 10.0;
    /// Seconds for which a link must count errors.
    link_errors_seconds: f64 = 10.0;
    /// Traffic / line rate below which a port is no evidence.
    carries_ratio: f64 = 0.005;
    /// Minimum received packets per second for a share of ECN-marked packets.
    least_packets_per_second: f64 = 100.0;
    /// Minimum bytes sent per second for transmit wait and CNP ratios.
    least_bytes_per_second: f64 = 1e6;
    /// Congested ports of a rail from which they may share a leaf that no topology names: the authors of R-Pingmesh
    /// cannot tell fewer than three from their switch.
    together_ports: f64 = 3.0;
    /// Overlap of two groups of congested ports, as a share of the smaller one, from which they are one group.
    together_share: f64 = 0.5;
    /// Share of ECN-marked packets, or of PFC pause time received, from which a port is congested.
    congested_ratio: f64 = 0.01;
    /// ECN-marked packets / baseline, and / the same of the quieter third of all ports, from which a queue is congested
    /// at any share: how many packets a switch marks differs a hundredfold between clusters.
    marked_times: f64 = 3.0;
    /// PFC pause time sent from which the host is a slow receiver.
    pauses_ratio: f64 = 0.02;
    /// out_of_buffer drops per second from which the host is a slow receiver.
    unbuffered_per_second: f64 = 1.0;
    /// Share of the line rate that a switch port may lose to transmit wait: InfiniBand operators call 0.15 hot.
    switch_waited_ratio: f64 = 0.15;
    /// Discards of a switch port per second, or PFC pause frames by which a host pauses it: NVSentinel's limit for discards.
    switch_events_per_second: f64 = 100.0;
    /// Seconds for which a single port must be congested: other ports of its rail would show by then.
    incast_seconds: f64 = 15.0;
    /// Share of the ports of a leaf or rail that must be congested before it is blamed.
    members_bad_ratio: f64 = 0.6;
    /// Seconds for which congestion must last.
    hotspot_seconds: f64 = 8.0;
    /// Activity of a node / job median from which its pipeline stage is overloaded.
    uneven_times: f64 = 1.07;
    /// Activity of a node / job median in one sample from which the other nodes wait for it.
    stands_out_times: f64 = 1.3;
    /// Activity of a node / job median from which its pipeline stage is overloaded, at slow scrape intervals without
    /// profiling counters: activity is known from single samples.
    uneven_slow_times: f64 = 1.25;
    /// Maximum slowdown of an overloaded stage / that of the median node: it hardly slows down while the others wait. A
    /// node that is busier by chance slows down like the others.
    uneven_lost_share: f64 = 0.5;
    /// Time constant of the averages of a job's activity in seconds: several of its longest steps.
    pace_seconds: f64 = 30.0;
    /// Time constant of the averages of a job's activity in seconds, at slow scrape intervals.
    pace_slow_seconds: f64 = 90.0;
    /// Change relative to the baseline below which the pace of a node is unchanged.
    as_ever_ratio: f64 = 0.03;
    /// Minimum traffic / traffic expected from the job's pace: a job that only waits longer sends in proportion,
    /// another workload sends almost nothing.
    like_pace_share: f64 = 0.3;
    /// Utilization / that of the job's other nodes up to which a node idles for which they wait, and the work / theirs from
    /// which it does the same work.
    waited_for_ratio: f64 = 0.75;
    /// Maximum share of samples in which one node is the busiest for data skew: above it the node is the cause.
    favourite_ratio: f64 = 0.5;
    /// Minimum samples for naming the node that is busiest most often.
    favourite_looks: u32 = 16;
    /// Samples in that window: within a step of several seconds the same node is the busiest in every sample.
    favourite_kept_looks: u32 = 64;
    /// Seconds for which a job must be imbalanced.
    uneven_seconds: f64 = 45.0;
    /// Job slowdown from which one that no finding explains is reported. The pace of the job must besides be below what
    /// is usual for it: that of many jobs drifts by a tenth with their work.
    unexplained_ratio: f64 = 0.10;
    /// Seconds for which a slowdown must be unexplained: the findings that explain one open within a minute, and a
    /// moment later at slow scrape intervals.
    unexplained_seconds: f64 = 60.0;
    /// Time of a rank in a collective / time of most others below which it came last: those that come in time spend the
    /// difference waiting for it.
    late_rank_ratio: f64 = 0.7;
    /// Share of a job's GPUs that must busy-wait before the job can be hung.
    hung_gpus_ratio: f64 = 0.9;
    /// Minimum GPUs of a job for a collective hang.
    hung_ranks: u32 = 2;
    /// Activity / baseline below which a GPU with profiling counters has stopped.
    hung_pace_ratio: f64 = 0.05;
    /// Power above idle power / baseline below which a GPU without profiling counters has stopped: busy-waiting draws a
    /// third.
    hung_power_pace_ratio: f64 = 0.6;
    /// Spread of power / mean power below which power is constant.
    flat_power_ratio: f64 = 0.12;
    /// Traffic / nominal rate below which the network is idle: keep-alives and monitoring stay below it.
    silent_network_ratio: f64 = 0.001;
    /// Maximum difference in baseline power of nodes that step together in an inferred job (no job labels).
    like_power_ratio: f64 = 0.05;
    /// Maximum difference in the port traffic of nodes that step together in an inferred job (no job labels).
    like_traffic_ratio: f64 = 0.12;
    /// Seconds for which a job must hold idle GPUs before that is reported.
    idle_seconds: f64 = 540.0;
    /// Seconds for which GPUs must be data-starved.
    starved_seconds: f64 = 14.0;
    /// Consecutive samples that must show a port down.
    port_samples: u32 = 2;
    /// Seconds without evidence before a finding closes.
    close_seconds: f64 = 10.0;
    /// Seconds for which evidence may be missing and still counts as continuous: one lost page.
    lapse_seconds: f64 = 2.5;
    /// Openings within the flap window from which a finding is flapping.
    flap_openings: f64 = 3.0;
    /// Seconds within which a reopened finding is the same one, and its openings are counted.
    flap_window_seconds: f64 = 1_800.0;
    /// Least seconds without evidence before a flapping finding closes; 1.5 times its longest pause, if that is more.
    flap_close_seconds: f64 = 600.0;
    /// Seconds for which the evidence of a finding from before a restart must be read before the finding may close:
    /// averages recover first.
    resume_seconds: f64 = 120.0;
    /// After resume_seconds × this, findings about nodes or devices that were not read since a restart close with that
    /// reason.
    resume_unread_times: f64 = 5.0;
    /// Prior odds that a finding is right whose evidence is the behaviour of a job and its hosts: as often as such
    /// findings were right on simulated clusters.
    inferred_odds: f64 = 3.0;
    /// Prior odds that a finding is right about a fault that a device reports or that is measured at it.
    reported_odds: f64 = 30.0;
    /// Factor of the odds for each further independent kind of evidence.
    evidence_odds: f64 = 3.0;
    /// Confidence of a state that a device reports, compared with its own former state.
    sure_of_fact_ratio: f64 = 0.99;
    /// Confidence of an expectation that rests on other devices only, or is as old as the first sample.
    sure_of_alike_ratio: f64 = 0.8;
    /// Targets that gaunt did not scrape from which gaunt itself is late, and not the targets.
    untried_targets: f64 = 3.0;
    /// Share of a minute, or of its scrapes, for which gaunt itself is late before that is a finding.
    own_late_ratio: f64 = 0.2;
    /// Consecutive failed scrapes before a target is reported.
    target_failures: u32 = 2;
    /// Seconds before a certificate expires from which that is reported: 14 days.
    certificate_seconds: f64 = 1_209_600.0;
    /// Share of a file system's space or inodes below which it is full.
    filesystem_free_ratio: f64 = 0.001;
    /// Seconds for which a target source that was read before must be unreadable; one that was never readable is
    /// reported at once.
    source_unread_seconds: f64 = 60.0;
}

/// A limit outside its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}; it must be {allowed}")]
pub struct ImpossibleThreshold {
    /// Its name.
    pub name: String,
    /// The value that was set.
    pub value: String,
    /// The allowed range.
    pub allowed: &'static str,
}

impl Thresholds {
    /// Values that can never be judged: negative ones, ratios above 1, and non-numbers.
    pub fn impossible_limits(&self) -> impl Iterator<Item = ImpossibleThreshold> {
        LIMITS.iter().filter_map(|limit| {
            let name = limit.name;
            let (top, allowed) = if name.ends_with("_ratio") {
                (1.0, "a number between 0 and 1")
            } else {
                (f64::MAX, "a number of at least 0")
            };
            let value = self.limit_value(name).unwrap_or(f64::NAN);
            let is_possible = (0.0..=top).contains(&value);
            (!is_possible).then(|| {
                let value =
                    if value.is_finite() { format!("{value:?}") } else { "not finite".into() };
                ImpossibleThreshold { name: name.to_owned(), value, allowed }
            })
        })
    }
}
