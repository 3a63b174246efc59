//! The one table of limits that every verdict is measured against.

use serde::{Deserialize, Serialize};

/// Makes the table: a line says what a limit is for and where it is from, the next one its name and value.
macro_rules! table {
    ($($(#[$doc:meta])+ $name:ident: $kind:ty = $value:expr;)+) => {
        /// Every limit of the judge. A settings file may change any of them; names that are not here are refused.
        ///
        /// Where a field names no source its value is a proposal, chosen on simulated fleets.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Thresholds {
            $($(#[$doc])+ pub $name: $kind,)+
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $value,)+ }
            }
        }
    };
}

table! {
    /// Span of the moving averages in seconds: as old on average as a plain mean over this span.
    average_seconds: f64 = 10.0;
    /// Seconds for which samples must agree before a GPU enters a state.
    enter_seconds: f64 = 5.0;
    /// Seconds for which samples must disagree before a GPU leaves a state.
    leave_seconds: f64 = 10.0;
    /// Samples that must agree before a GPU enters a state, however far they are apart.
    enter_samples: u32 = 2;
    /// A cut is lowered to this share of itself for a GPU that is in the state already.
    leave_share: f64 = 0.8;
    /// Tensor activity from which a GPU computes.
    tensor_busy_ratio: f64 = 0.25;
    /// SM activity from which a GPU computes without its tensor cores: NVIDIA's profiling guide calls 0.8 necessary.
    sm_busy_ratio: f64 = 0.8;
    /// DRAM activity from which high SM activity no longer means computing.
    dram_saturated_ratio: f64 = 0.6;
    /// DRAM activity from which a GPU is bound by its memory; the practical peak is about 0.8.
    dram_bound_ratio: f64 = 0.5;
    /// Share of the nominal NVLink or network rate from which a GPU communicates usefully.
    comm_busy_ratio: f64 = 0.3;
    /// The same share below which nothing is really moved.
    comm_quiet_ratio: f64 = 0.05;
    /// Tensor activity below which a GPU does not compute while it communicates or starves.
    tensor_low_ratio: f64 = 0.15;
    /// Tensor activity below which a GPU does not compute at all.
    tensor_quiet_ratio: f64 = 0.05;
    /// DRAM activity below which the memory is quiet.
    dram_quiet_ratio: f64 = 0.15;
    /// Utilization from which a kernel runs all the time, such as a collective that spins.
    utilization_spinning_ratio: f64 = 0.8;
    /// Utilization from which a GPU without profiling counters is called busy.
    utilization_busy_ratio: f64 = 0.9;
    /// SM activity below which a running kernel may be one that waits.
    sm_waiting_ratio: f64 = 0.35;
    /// Utilization below which a GPU starves if its host has trouble.
    utilization_starved_ratio: f64 = 0.6;
    /// Share of samples in which such a GPU does something: a pause of a whole job is no starvation.
    active_samples_ratio: f64 = 0.5;
    /// Seconds within which one that does less must have begun to do something again.
    active_again_seconds: f64 = 20.0;
    /// SM activity below which much PCIe traffic means waiting for input: KempnerPulse's data-loading rule.
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
    /// Power over the GPU's own lowest power up to which it is idle.
    power_idle_share: f64 = 1.15;
    /// Power over its limit from which a GPU without profiling counters computes.
    power_computing_ratio: f64 = 0.65;
    /// Power over its limit from which such a GPU may be bound by its memory.
    power_memory_ratio: f64 = 0.4;
    /// Driver's memory activity from which such a GPU is bound by its memory.
    memory_activity_ratio: f64 = 0.6;
    /// Power over its limit from which such a GPU may communicate usefully.
    power_comm_ratio: f64 = 0.25;
    /// Power over its limit above which such a GPU does more than communicate.
    power_comm_max_ratio: f64 = 0.5;
    /// Power over its limit below which such a GPU waits if a kernel runs all the time.
    power_waiting_ratio: f64 = 0.4;
    /// Power over its limit below which such a GPU may be launch bound.
    power_launch_ratio: f64 = 0.35;
    /// Spread of power over its mean from which such a GPU goes on and off.
    power_switching_ratio: f64 = 0.25;
    /// Clock over its maximum from which it is near its maximum.
    clock_near_max_ratio: f64 = 0.8;
    /// Clock over the median of the job below which heat costs time.
    clock_throttled_ratio: f64 = 0.85;
    /// Share of the time that a clock-event reason must hold.
    clock_event_ratio: f64 = 0.5;
    /// Seconds for which a port that was never seen active must be down beside active siblings.
    port_never_active_seconds: f64 = 10.0;
    /// Seconds for which a whole job must wait with a silent network before it is called hung.
    hung_seconds: f64 = 60.0;
    /// The same before a job that nobody names wakes somebody: a rank that was not taken for its own may be what it waits
    /// for, and write a checkpoint.
    inferred_hang_seconds: f64 = 180.0;
    /// Nominal NVLink rate of a GPU in one direction, in bytes per second: 450 GB/s for Hopper.
    nvlink_bytes_per_second: f64 = 450e9;
    /// Share of the time in which a task of the host waits for input or output (PSI some).
    io_pressure_ratio: f64 = 0.08;
    /// Share of the time in which a task of the host waits for a CPU (PSI some).
    cpu_pressure_ratio: f64 = 0.08;
    /// Busy share of the busiest CPU from which a single thread is the limit.
    busiest_cpu_ratio: f64 = 0.95;
    /// The same that it must usually be below: where one CPU always spins, that it does so now says nothing.
    busiest_cpu_before_ratio: f64 = 0.9;
    /// Period from which pages may repeat what an exporter collected before: dcgm-exporter collects each 30 s.
    slow_period_seconds: f64 = 5.0;
    /// Seconds beside two periods within which two samples have come for certain.
    sample_slack_seconds: f64 = 5.0;
    /// Seconds from one look of such an exporter at its boards to the next: what dcgm-exporter does unless told otherwise.
    collected_seconds: f64 = 30.0;
    /// Seconds for which a node with a job must be dark before that wakes somebody.
    dark_seconds: f64 = 120.0;
    /// Seconds for which a page must say that its values of GPUs are late: a call that only takes long returns.
    driver_hung_seconds: f64 = 10.0;
    /// Seconds for which nothing on a page moves: DCGM's health checks want a minute of samples, and dcgm-exporter looks
    /// each 30 s.
    stale_seconds: f64 = 120.0;
    /// Periods for which nothing must move at least.
    stale_periods: f64 = 4.0;
    /// Share of its usual bandwidth below which a probe found something: 64 MiB are bandwidth for 85 per cent of their time,
    /// so that wires which lost a tenth show as 0.915, and two probes of the same wires differ by a few per cent.
    probe_baseline_ratio: f64 = 0.85;
    /// Seconds for which the result of a probe is believed: busy nodes are not probed.
    probe_valid_seconds: f64 = 21_600.0;
    /// Share of its memory from which somebody holds a GPU, where no page counts processes: a driver alone takes less
    /// than 1 per cent, a context half a gigabyte.
    held_memory_ratio: f64 = 0.03;
    /// Requests that must wait at a model server before its GPUs can be said to starve: one may be about to begin.
    queue_requests: f64 = 4.0;
    /// Utilization of the busiest GPU below which a full queue is not its own doing.
    queue_idle_ratio: f64 = 0.3;
    /// Seconds for which requests must wait beside such GPUs.
    queue_seconds: f64 = 20.0;
    /// Seconds for which a model server may wait for requests before its GPUs are called idle: real ones do for hours.
    serving_idle_seconds: f64 = 3_600.0;
    /// Seconds of samples that make a past which something can be compared with.
    usual_learned_seconds: f64 = 40.0;
    /// What is usual changes over this time constant: a shift of a quarter of an hour is a new way of working.
    usual_seconds: f64 = 600.0;
    /// Better than usual is learned within this: a job that left its start-up behind shows what it can do.
    usual_better_seconds: f64 = 30.0;
    /// A change by more than this share is not learned but remarked.
    usual_ratio: f64 = 0.08;
    /// What stays worse for this long, and no open finding names, is the new usual.
    usual_accepted_seconds: f64 = 1_800.0;
    /// Seconds for which one sample teaches at most: where nobody looked nothing was learned.
    usual_sample_seconds: f64 = 120.0;
    /// Repaired bits in a second that are usual for any link: fewer make no multiple.
    usual_corrected_per_second: f64 = 100.0;
    /// The same for notifications to slow down, for each gigabyte sent.
    usual_notified_per_gigabyte: f64 = 1.0;
    /// The same for ticks of waiting, for each kilobyte sent.
    usual_waited_per_kilobyte: f64 = 0.01;
    /// Utilization of one sample from which the GPU did something.
    active_ratio: f64 = 0.02;
    /// Usual work below which nobody's pace is compared.
    least_work_ratio: f64 = 0.03;
    /// Share of its limit that a board draws at most while it does nothing: 66 of 400 W on the A100s of the Acme trace.
    idle_power_ratio: f64 = 0.15;
    /// A share of work below which a GPU stands still, and is not merely slow.
    standstill_ratio: f64 = 0.1;
    /// Seconds without such a share of what is usual to send after which a job pauses: one that is starved to a tenth of its
    /// speed sends with each step, every few seconds.
    pause_seconds: f64 = 8.0;
    /// Seconds after a pause in which a finding of the job's work stays open without its evidence: averages must grow again.
    pause_settle_seconds: f64 = 60.0;
    /// Seconds for which a clock's average stands: it is compared with GPUs that are read at other moments.
    clock_stands_seconds: f64 = 60.0;
    /// Seconds after which nodes without named jobs are put together anew.
    regroup_seconds: f64 = 20.0;
    /// Seconds for which a GPU must work as usual after a driver's error or one of its memory before that is over.
    error_speaks_seconds: f64 = 600.0;
    /// Pages that neighbours must bring without a board before it is gone.
    gone_samples: u32 = 2;
    /// A GPU does less than usual below this share of its usual utilization.
    hungry_ratio: f64 = 0.94;
    /// The same where pages come seldom.
    hungry_slow_ratio: f64 = 0.85;
    /// A pressure of the host counts from so many times what is usual for it.
    pressure_times: f64 = 3.0;
    /// So many times its limit a pressure counts whatever is usual: trouble as old as the first look looks usual.
    pressure_far_times: f64 = 4.0;
    /// Less pressure than this is none.
    pressure_floor_ratio: f64 = 0.02;
    /// Nodes of a job that wait for input together from which it is something that they share.
    shared_nodes: f64 = 2.0;
    /// Share of the time in which a task waits for a CPU from which launching may suffer.
    cpu_crowded_ratio: f64 = 0.03;
    /// Seconds for which nodes must wait for storage: averages take as long to forget a checkpoint.
    storage_seconds: f64 = 18.0;
    /// The same for many nodes: a pause that is too short to be told from it, and what averages remember of that.
    shared_storage_seconds: f64 = 26.0;
    /// Share of its usual speed from which a job is slower than usual.
    slowed_ratio: f64 = 0.06;
    /// Fewer GPUs than this are no peers: below four their spread is a matter of luck.
    least_peers: f64 = 4.0;
    /// Spreads from its peers from which one stands out: Monte Carlo gives no false ones with a floor of 3 per cent.
    peer_score: f64 = 4.0;
    /// Clocks of healthy peers differ by this share of their middle.
    peer_floor_ratio: f64 = 0.02;
    /// Clock over that of its peers below which a GPU is slower than they are.
    clock_straggler_ratio: f64 = 0.85;
    /// Gap in usual power that divides the GPUs of a job into roles: stages and experts differ steadily.
    role_gap_ratio: f64 = 0.15;
    /// Seconds that make what is usual for a GPU's clock beside its peers'.
    drift_learned_seconds: f64 = 300.0;
    /// That changes over this time constant: a decline of a slack within it is taken for usual.
    drift_seconds: f64 = 21_600.0;
    /// A deficit up to this is none; half of one that is to be found at a tenth, as for any CUSUM.
    drift_slack_ratio: f64 = 0.05;
    /// Sum of deficits above it that is a decline, in seconds: a minute of a tenth.
    drift_sum_seconds: f64 = 3.0;
    /// Seconds for which a GPU must be slow.
    slow_gpu_seconds: f64 = 5.0;
    /// Packets that a PCIe link sends again in a second: DCGM's health check allows 31 a minute to 16 lanes of generation 5.
    pcie_replays_per_second: f64 = 0.5;
    /// Seconds for which a PCIe link must be narrower or slower than it should be.
    pcie_seconds: f64 = 5.0;
    /// Seconds for which it must send packets again.
    pcie_replay_seconds: f64 = 15.0;
    /// NVLink errors of a GPU in a second; DCGM's health check calls any a failure.
    nvlink_errors_per_second: f64 = 0.5;
    /// Seconds for which NVLinks must be bad.
    nvlink_seconds: f64 = 8.0;
    /// Broken symbols and packets in a second: NVSentinel calls 120 symbol errors an hour fatal, and gaunt wants more to page.
    link_errors_per_second: f64 = 0.5;
    /// Repaired bits, times the usual number, that confirm it.
    corrected_bits_times: f64 = 10.0;
    /// Packets sent again in a second, by anybody of the job, that confirm it.
    resent_packets_per_second: f64 = 0.5;
    /// Seconds for which a link must lose bits.
    link_errors_seconds: f64 = 10.0;
    /// Less traffic than this share of the line rate says nothing about a port.
    carries_ratio: f64 = 0.005;
    /// Fewer received packets in a second are not worth a share of marks.
    least_packets_per_second: f64 = 100.0;
    /// Less sent data in a second says nothing about waiting and notifications.
    least_bytes_per_second: f64 = 1e6;
    /// Ports of a leaf or rail that must be bad: the authors of R-Pingmesh cannot tell fewer than three apart either.
    least_members: f64 = 2.0;
    /// Congested ports of a rail from which they are taken for those of a leaf that nobody names: the authors of
    /// R-Pingmesh cannot tell fewer than three from their switch.
    together_ports: f64 = 3.0;
    /// Share of the smaller of two groups of ports that must be in the other for both to be one group.
    together_share: f64 = 0.5;
    /// Rails that are bad at once from which it is not the rails.
    many_rails: u32 = 64;
    /// Siblings from which a port that was never active can be expected to be.
    least_siblings: f64 = 2.0;
    /// Share of received packets with a congestion mark from which a queue is full.
    marked_packets_ratio: f64 = 0.01;
    /// Share of the time in which the network stops a port from which it is congested.
    paused_ratio: f64 = 0.01;
    /// Share of the time in which a port stops the network from which its host is to blame.
    pauses_ratio: f64 = 0.02;
    /// Packets without a buffer in a second from which its host is to blame.
    unbuffered_per_second: f64 = 1.0;
    /// Notifications to slow down, times the usual number for the same traffic, that confirm congestion.
    notified_times: f64 = 10.0;
    /// Waiting before transmission, times the usual, that means congestion where no switch marks packets.
    waited_times: f64 = 10.0;
    /// Share of its line rate that a switch's port may lose to waiting: InfiniBand operators call 0.15 hot.
    switch_waited_ratio: f64 = 0.15;
    /// Packets that a switch's port may drop in a second: NVSentinel's limit for discards.
    switch_dropped_per_second: f64 = 100.0;
    /// Pause frames in a second by which a host stops its switch.
    switch_stopped_per_second: f64 = 100.0;
    /// Seconds for which a single port must be congested: the others of its rail would be seen by then.
    incast_seconds: f64 = 15.0;
    /// Nodes that must slow down before what they send to is an incast.
    incast_senders: f64 = 2.0;
    /// Share of a leaf's or rail's ports that must be bad before it is blamed.
    members_bad_ratio: f64 = 0.6;
    /// Seconds for which a hotspot must last.
    hotspot_seconds: f64 = 8.0;
    /// Work of a node against the middle of its job from which its stage has too much of it.
    uneven_times: f64 = 1.07;
    /// Work of a node against the middle of its job, at one instant, from which the others wait for it.
    stands_out_times: f64 = 1.3;
    /// The same where pages come seldom and no profiling counter is told: then work is known from single instants.
    uneven_slow_times: f64 = 1.25;
    /// Share of the middle node's slowdown that a stage with too much work has at most: it works nearly as ever while the
    /// others wait. A node that chance makes busier has lost about as much as they have.
    uneven_lost_share: f64 = 0.5;
    /// Span of the averages of a job's work, in seconds: several of its longest steps.
    pace_seconds: f64 = 30.0;
    /// The same where pages come seldom.
    pace_slow_seconds: f64 = 90.0;
    /// A node that works within this share of its usual pace goes on as ever.
    as_ever_ratio: f64 = 0.03;
    /// Clock against what is usual, of a whole job, below which its power or clock was capped.
    capped_clock_ratio: f64 = 0.85;
    /// A job that only waits longer moves at least this share of what its speed says; one that does something else
    /// moves next to nothing.
    like_pace_share: f64 = 0.3;
    /// Share of looks at which one node may be the busiest where the data is uneven, and not the nodes.
    favourite_ratio: f64 = 0.5;
    /// Looks from which a node can be said to be the busiest most often.
    favourite_looks: u32 = 16;
    /// Looks by which that is judged: a step may take several seconds, in which it is the same node at each look.
    favourite_kept_looks: u32 = 64;
    /// Seconds for which a job must be uneven.
    uneven_seconds: f64 = 45.0;
    /// Share of a job's GPUs that must spin before it can hang.
    hung_gpus_ratio: f64 = 0.9;
    /// GPUs of a job of which fewer wait for nobody.
    hung_ranks: u32 = 2;
    /// Work against what is usual below which a GPU with profiling counters does nothing.
    hung_pace_ratio: f64 = 0.05;
    /// The same for power above that of a board that does nothing, where no counter says more: spinning takes a third.
    hung_power_pace_ratio: f64 = 0.6;
    /// Spread of power over its mean below which it does not change.
    flat_power_ratio: f64 = 0.12;
    /// Share of the nominal rate below which a network is silent: keep-alives and monitoring stay below it.
    silent_network_ratio: f64 = 0.001;
    /// Nodes whose usual power differs by more than this share do not step together, where nobody names jobs.
    like_power_ratio: f64 = 0.05;
    /// The same for the traffic of their ports.
    like_traffic_ratio: f64 = 0.12;
    /// Less power or traffic than this share is alike whatever the ratio.
    like_floor_ratio: f64 = 0.02;
    /// Seconds for which a job must hold idle GPUs before that is said.
    idle_seconds: f64 = 540.0;
    /// Seconds for which they must starve.
    starved_seconds: f64 = 14.0;
    /// Samples in a row that must show a port down.
    port_samples: u32 = 2;
    /// Seconds for which the evidence must be gone before a finding closes.
    close_seconds: f64 = 10.0;
    /// Seconds for which evidence may be missing and counts as having lasted: one lost page.
    lapse_seconds: f64 = 2.5;
    /// Times that evidence must have come within the window before a finding is said to flap.
    flap_openings: f64 = 3.0;
    /// Seconds within which a finding that opens again is the same one, and its openings are counted.
    flap_window_seconds: f64 = 600.0;
    /// Seconds for which the evidence must be gone before a finding that flaps closes.
    flap_close_seconds: f64 = 180.0;
    /// Seconds for which all that a finding from before a restart rests on must be read again before it may close: averages
    /// must grow again first.
    resume_seconds: f64 = 120.0;
    /// Times as long after a restart that a node or device is waited for which was not read since; then its findings close
    /// and say so.
    resume_unread_times: f64 = 5.0;
    /// How sure one kind of evidence makes the judge. Confidences are steps, and no measured shares: what two kinds agree
    /// on pages.
    sure_of_one_ratio: f64 = 0.6;
    /// How sure two independent kinds of evidence make the judge.
    sure_of_two_ratio: f64 = 0.9;
    /// How sure more than two kinds of evidence make the judge.
    sure_of_more_ratio: f64 = 0.97;
    /// How sure the judge is at most of what rests on something that was learned and that nobody says.
    sure_of_learned_ratio: f64 = 0.5;
    /// How sure the judge is of what a device states of itself beside what it stated before.
    sure_of_fact_ratio: f64 = 0.99;
    /// How sure the judge is of what is expected of a device only because its siblings are so.
    sure_of_alike_ratio: f64 = 0.8;
    /// How sure the judge is of what was so before it first looked, and what only the state of others speaks against.
    sure_of_first_look_ratio: f64 = 0.7;
    /// How sure the judge is of what gaunt itself met with.
    sure_of_own_ratio: f64 = 1.0;
    /// Targets that nobody tried to read from which that is gaunt's own lateness, and no trouble of theirs.
    untried_targets: f64 = 3.0;
    /// The share of a minute, or of its attempts, for which gaunt itself was late from which that is a finding.
    own_late_ratio: f64 = 0.2;
    /// Failed attempts in a row before a target is reported.
    target_failures: u32 = 2;
    /// Seconds for which a source that named targets cannot be read before that is a finding; one that never named any
    /// is one at once.
    source_unread_seconds: f64 = 60.0;
}

/// A limit that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}; it must be {allowed}")]
pub struct ImpossibleThreshold {
    /// The field.
    pub name: String,
    /// What it was set to.
    pub value: String,
    /// What it may be.
    pub allowed: &'static str,
}

impl Thresholds {
    /// Refuses values under which nothing could ever be judged: negative ones, ratios above 1, what is no number.
    pub fn validate_limits(&self) -> Result<(), ImpossibleThreshold> {
        // Through the names in the settings file, so that a new field cannot be left out here.
        let fields = serde_json::to_value(self).unwrap_or_default();
        for (name, value) in fields.as_object().into_iter().flatten() {
            let (top, allowed) = if name.ends_with("_ratio") {
                (1.0, "a number between 0 and 1")
            } else {
                (f64::MAX, "a number of at least 0")
            };
            if !value.as_f64().is_some_and(|value| (0.0..=top).contains(&value)) {
                let value = if value.is_null() { "not finite".into() } else { value.to_string() };
                return Err(ImpossibleThreshold { name: name.clone(), value, allowed });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_limits_are_refused_by_name() {
        assert_eq!(Thresholds::default().validate_limits(), Ok(()));
        let refused = |limits: Thresholds| limits.validate_limits().unwrap_err().to_string();
        let above = Thresholds { tensor_busy_ratio: 25.0, ..Thresholds::default() };
        assert_eq!(
            refused(above),
            "tensor_busy_ratio is 25.0; it must be a number between 0 and 1"
        );
        let below = Thresholds { enter_seconds: -5.0, ..Thresholds::default() };
        assert_eq!(refused(below), "enter_seconds is -5.0; it must be a number of at least 0");
        let neither = Thresholds { hung_seconds: f64::NAN, ..Thresholds::default() };
        assert!(refused(neither).starts_with("hung_seconds is not finite"));
    }

    #[test]
    fn a_name_that_is_no_limit_is_refused() {
        let limits: Result<Thresholds, _> = serde_json::from_str(r#"{"tensor_busy": 0.3}"#);
        assert!(limits.unwrap_err().to_string().contains("unknown field `tensor_busy`"));
    }
}
