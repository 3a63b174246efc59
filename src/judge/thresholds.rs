//! The one table of limits that every verdict is measured against.

use serde::{Deserialize, Serialize};

/// Every limit of the judge. A settings file may change any of them; names that are not here are refused.
///
/// Where a field names no source its value is a proposal, chosen on simulated fleets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Span of the moving averages in seconds: as old on average as a plain mean over this span.
    pub average_seconds: f64,
    /// Seconds for which samples must agree before a GPU enters a state.
    pub enter_seconds: f64,
    /// Seconds for which samples must disagree before a GPU leaves a state.
    pub leave_seconds: f64,
    /// A cut is lowered to this share of itself for a GPU that is in the state already.
    pub leave_share: f64,
    /// Tensor activity from which a GPU computes.
    pub tensor_busy_ratio: f64,
    /// SM activity from which a GPU computes without its tensor cores: NVIDIA's profiling guide calls 0.8 necessary.
    pub sm_busy_ratio: f64,
    /// DRAM activity from which high SM activity no longer means computing.
    pub dram_saturated_ratio: f64,
    /// DRAM activity from which a GPU is bound by its memory; the practical peak is about 0.8.
    pub dram_bound_ratio: f64,
    /// Share of the nominal NVLink or network rate from which a GPU communicates usefully.
    pub comm_busy_ratio: f64,
    /// The same share below which nothing is really moved.
    pub comm_quiet_ratio: f64,
    /// Tensor activity below which a GPU does not compute while it communicates or starves.
    pub tensor_low_ratio: f64,
    /// Tensor activity below which a GPU does not compute at all.
    pub tensor_quiet_ratio: f64,
    /// DRAM activity below which the memory is quiet.
    pub dram_quiet_ratio: f64,
    /// Utilization from which a kernel runs all the time, such as a collective that spins.
    pub utilization_spinning_ratio: f64,
    /// Utilization from which a GPU without profiling counters is called busy.
    pub utilization_busy_ratio: f64,
    /// SM activity below which a running kernel may be one that waits.
    pub sm_waiting_ratio: f64,
    /// Utilization below which a GPU starves if its host has trouble.
    pub utilization_starved_ratio: f64,
    /// Share of samples in which such a GPU does something: a pause of a whole job is no starvation.
    pub active_samples_ratio: f64,
    /// Seconds within which one that does less must have begun to do something again.
    pub active_again_seconds: f64,
    /// SM activity below which much PCIe traffic means waiting for input: KempnerPulse's data-loading rule.
    pub sm_loading_ratio: f64,
    /// PCIe receive rate from which input is being loaded, in bytes per second: KempnerPulse's data-loading rule.
    pub pcie_loading_bytes_per_second: f64,
    /// Utilization from which a GPU may be launch bound.
    pub utilization_launch_ratio: f64,
    /// SM activity below which a GPU may be launch bound.
    pub sm_launch_ratio: f64,
    /// Utilization below which a GPU is idle.
    pub utilization_idle_ratio: f64,
    /// SM activity below which a GPU is idle.
    pub sm_idle_ratio: f64,
    /// Power over the GPU's own lowest power up to which it is idle.
    pub power_idle_share: f64,
    /// Power over its limit from which a GPU without profiling counters computes.
    pub power_computing_ratio: f64,
    /// Power over its limit from which such a GPU may be bound by its memory.
    pub power_memory_ratio: f64,
    /// Driver's memory activity from which such a GPU is bound by its memory.
    pub memory_activity_ratio: f64,
    /// Power over its limit from which such a GPU may communicate usefully.
    pub power_comm_ratio: f64,
    /// Power over its limit above which such a GPU does more than communicate.
    pub power_comm_max_ratio: f64,
    /// Power over its limit below which such a GPU waits if a kernel runs all the time.
    pub power_waiting_ratio: f64,
    /// Power over its limit below which such a GPU may be launch bound.
    pub power_launch_ratio: f64,
    /// Spread of power over its mean from which such a GPU goes on and off.
    pub power_switching_ratio: f64,
    /// Clock over its maximum from which it is near its maximum.
    pub clock_near_max_ratio: f64,
    /// Clock over the median of the job below which heat costs time.
    pub clock_throttled_ratio: f64,
    /// Share of the time that a clock-event reason must hold.
    pub clock_event_ratio: f64,
    /// Seconds for which a port that was never seen active must be down beside active siblings.
    pub port_never_active_seconds: f64,
    /// Seconds for which a whole job must wait with a silent network before it is called hung.
    pub hung_seconds: f64,
    /// Nominal NVLink rate of a GPU in one direction, in bytes per second: 450 GB/s for Hopper.
    pub nvlink_bytes_per_second: f64,
    /// Share of the time in which a task of the host waits for input or output (PSI some).
    pub io_pressure_ratio: f64,
    /// Share of the time in which a task of the host waits for a CPU (PSI some).
    pub cpu_pressure_ratio: f64,
    /// Busy share of the busiest CPU from which a single thread is the limit.
    pub busiest_cpu_ratio: f64,
    /// Period from which pages may repeat what an exporter collected before: dcgm-exporter collects each 30 s.
    pub slow_period_seconds: f64,
    /// Seconds for which a node with a job must be dark before that wakes somebody.
    pub dark_seconds: f64,
    /// A GPU does less than usual below this share of its usual utilization.
    pub hungry_ratio: f64,
    /// The same where pages come seldom.
    pub hungry_slow_ratio: f64,
    /// A pressure of the host counts from so many times what is usual for it.
    pub pressure_times: f64,
    /// Share of the time in which a task waits for a CPU from which launching may suffer.
    pub cpu_crowded_ratio: f64,
    /// Seconds for which the nodes of a job must wait for storage together.
    pub storage_seconds: f64,
    /// Share of its usual speed from which a job is slower than usual.
    pub slowed_ratio: f64,
    /// Fewer GPUs than this are no peers: below four their spread is a matter of luck.
    pub least_peers: f64,
    /// Spreads from its peers from which one stands out: Monte Carlo gives no false ones with a floor of 3 per cent.
    pub peer_score: f64,
    /// Clock over that of its peers below which a GPU is slower than they are.
    pub clock_straggler_ratio: f64,
    /// Seconds for which a GPU must be slow.
    pub slow_gpu_seconds: f64,
    /// Packets that a PCIe link sends again in a second: DCGM's health check allows 31 a minute to 16 lanes of generation 5.
    pub pcie_replays_per_second: f64,
    /// Seconds for which a PCIe link must be narrower or slower than it should be.
    pub pcie_seconds: f64,
    /// Seconds for which it must send packets again.
    pub pcie_replay_seconds: f64,
    /// NVLink errors of a GPU in a second; DCGM's health check calls any a failure.
    pub nvlink_errors_per_second: f64,
    /// Seconds for which NVLinks must be bad.
    pub nvlink_seconds: f64,
    /// Broken symbols and packets in a second: NVSentinel calls 120 symbol errors an hour fatal, and gaunt wants more to page.
    pub link_errors_per_second: f64,
    /// Repaired bits, times the usual number, that confirm it.
    pub corrected_bits_times: f64,
    /// Packets sent again in a second, by anybody of the job, that confirm it.
    pub resent_packets_per_second: f64,
    /// Seconds for which a link must lose bits.
    pub link_errors_seconds: f64,
    /// Share of received packets with a congestion mark from which a queue is full.
    pub marked_packets_ratio: f64,
    /// Share of the time in which the network stops a port from which it is congested.
    pub paused_ratio: f64,
    /// Share of the time in which a port stops the network from which its host is to blame.
    pub pauses_ratio: f64,
    /// Packets without a buffer in a second from which its host is to blame.
    pub unbuffered_per_second: f64,
    /// Notifications to slow down, times the usual number for the same traffic, that confirm congestion.
    pub notified_times: f64,
    /// Waiting before transmission, times the usual, that means congestion where no switch marks packets.
    pub waited_times: f64,
    /// Share of a leaf's or rail's ports that must be bad before it is blamed.
    pub members_bad_ratio: f64,
    /// Seconds for which a hotspot must last.
    pub hotspot_seconds: f64,
    /// Work of a node against the middle of its job from which its stage has too much of it.
    pub uneven_times: f64,
    /// Share of looks at which one node may be the busiest where the data is uneven, and not the nodes.
    pub favourite_ratio: f64,
    /// Seconds for which a job must be uneven.
    pub uneven_seconds: f64,
    /// Share of a job's GPUs that must spin before it can hang.
    pub hung_gpus_ratio: f64,
    /// Seconds for which a job must hold idle GPUs before that is said.
    pub idle_seconds: f64,
    /// Seconds for which they must starve.
    pub starved_seconds: f64,
    /// Samples in a row that must show a port down.
    pub port_samples: u32,
    /// Seconds for which the evidence must be gone before a finding closes.
    pub close_seconds: f64,
    /// Times that evidence must have come within the window before a finding is said to flap.
    pub flap_openings: f64,
    /// Seconds within which a finding that opens again is the same one, and its openings are counted.
    pub flap_window_seconds: f64,
    /// Seconds for which the evidence must be gone before a finding that flaps closes.
    pub flap_close_seconds: f64,
    /// Seconds after a restart in which what was open before stays open, unless it is seen: averages and pasts must
    /// grow again first.
    pub resume_seconds: f64,
    /// Failed attempts in a row before a target is reported.
    pub target_failures: u32,
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
    pub fn check(&self) -> Result<(), ImpossibleThreshold> {
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

impl Default for Thresholds {
    #[expect(clippy::too_many_lines, reason = "one table with a line for each limit")]
    fn default() -> Self {
        Self {
            average_seconds: 10.0,
            enter_seconds: 5.0,
            leave_seconds: 10.0,
            leave_share: 0.8,
            tensor_busy_ratio: 0.25,
            sm_busy_ratio: 0.8,
            dram_saturated_ratio: 0.6,
            dram_bound_ratio: 0.5,
            comm_busy_ratio: 0.3,
            comm_quiet_ratio: 0.05,
            tensor_low_ratio: 0.15,
            tensor_quiet_ratio: 0.05,
            dram_quiet_ratio: 0.15,
            utilization_spinning_ratio: 0.8,
            utilization_busy_ratio: 0.9,
            sm_waiting_ratio: 0.35,
            utilization_starved_ratio: 0.6,
            active_samples_ratio: 0.5,
            active_again_seconds: 20.0,
            sm_loading_ratio: 0.3,
            pcie_loading_bytes_per_second: 1e9,
            utilization_launch_ratio: 0.4,
            sm_launch_ratio: 0.25,
            utilization_idle_ratio: 0.02,
            sm_idle_ratio: 0.01,
            power_idle_share: 1.15,
            power_computing_ratio: 0.65,
            power_memory_ratio: 0.4,
            memory_activity_ratio: 0.6,
            power_comm_ratio: 0.25,
            power_comm_max_ratio: 0.5,
            power_waiting_ratio: 0.4,
            power_launch_ratio: 0.35,
            power_switching_ratio: 0.25,
            clock_near_max_ratio: 0.8,
            clock_throttled_ratio: 0.85,
            clock_event_ratio: 0.5,
            port_never_active_seconds: 10.0,
            hung_seconds: 60.0,
            nvlink_bytes_per_second: 450e9,
            io_pressure_ratio: 0.08,
            cpu_pressure_ratio: 0.08,
            busiest_cpu_ratio: 0.95,
            slow_period_seconds: 5.0,
            dark_seconds: 120.0,
            hungry_ratio: 0.94,
            hungry_slow_ratio: 0.85,
            pressure_times: 3.0,
            cpu_crowded_ratio: 0.03,
            storage_seconds: 15.0,
            slowed_ratio: 0.06,
            least_peers: 4.0,
            peer_score: 4.0,
            clock_straggler_ratio: 0.85,
            slow_gpu_seconds: 5.0,
            pcie_replays_per_second: 0.5,
            pcie_seconds: 5.0,
            pcie_replay_seconds: 15.0,
            nvlink_errors_per_second: 0.5,
            nvlink_seconds: 8.0,
            link_errors_per_second: 0.5,
            corrected_bits_times: 10.0,
            resent_packets_per_second: 0.5,
            link_errors_seconds: 10.0,
            marked_packets_ratio: 0.01,
            paused_ratio: 0.01,
            pauses_ratio: 0.02,
            unbuffered_per_second: 1.0,
            notified_times: 10.0,
            waited_times: 10.0,
            members_bad_ratio: 0.6,
            hotspot_seconds: 8.0,
            uneven_times: 1.07,
            favourite_ratio: 0.5,
            uneven_seconds: 45.0,
            hung_gpus_ratio: 0.9,
            idle_seconds: 540.0,
            starved_seconds: 14.0,
            port_samples: 2,
            close_seconds: 10.0,
            flap_openings: 3.0,
            flap_window_seconds: 600.0,
            flap_close_seconds: 180.0,
            resume_seconds: 120.0,
            target_failures: 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_limits_are_refused_by_name() {
        assert_eq!(Thresholds::default().check(), Ok(()));
        let refused = |limits: Thresholds| limits.check().unwrap_err().to_string();
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
