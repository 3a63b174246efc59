//! Evidence catalogue: how each finding kind is detected, which limits apply, and the series behind its values.

use gaunt_schema::{
    FindingKind, MetricId,
    catalogue::{
        ethernet, exporter, gpu, gpu_health, gpu_parts, host, port, probe_results, service,
        switch_port,
    },
};

use super::{Thresholds, probe_evidence};

#[cfg(test)]
mod tests;

/// The sample settings: their comments explain each limit and its source.
const SAMPLE: &str = include_str!("../../config/gaunt.toml");

/// The source of one evidence value of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceRow {
    /// The key of the limit that it is compared with; empty if that is no limit of the settings.
    pub threshold: &'static str,
    /// The series that it is computed from; empty if gaunt counts it itself.
    pub series: &'static [MetricId],
    /// Whether it describes the blamed device, and not others that it is compared with.
    pub own: bool,
    /// Whether its limit has the unit of the series itself. Other limits apply to a value derived from the series.
    pub alike: bool,
}

/// Values about other devices than the blamed one.
const OF_OTHERS: &[&str] = &[
    "sibling ports that are active",
    "the same port of other nodes that is active",
    "line rate of its siblings",
    "utilization of the others of the job",
    "waiting and drops at its switch, times their limits",
    "waiting and drops at the switch, times their limits",
    "the same at its switch",
    "pause frames that its switch receives in a second",
    probe_evidence::OTHERS,
];

/// Limits that have the unit of their series.
const ALIKE: &[&str] = &[
    "busiest_cpu_ratio",
    "clock_straggler_ratio",
    "cpu_pressure_ratio",
    "hungry_ratio",
    "io_pressure_ratio",
    "link_errors_per_second",
    "paused_ratio",
    "pauses_ratio",
    "pcie_replays_per_second",
    "port_samples",
    "unbuffered_per_second",
];

/// Source of each evidence value that is the same for all finding kinds.
const NUMBERS: &[(&str, &str, &[MetricId])] = &[
    ("logical state", "port_samples", &[port::STATE]),
    ("physical state", "", &[port::PHYSICAL_STATE]),
    ("sibling ports that are active", "", &[port::STATE]),
    ("the same port of other nodes that is active", "", &[port::STATE]),
    ("times that the link went down", "", &[port::LINK_DOWNED]),
    ("line rate when it was active", "", &[port::RATE]),
    ("line rate", "", &[port::RATE]),
    ("line rate of its siblings", "", &[port::RATE]),
    ("lanes", "", &[port::LANES]),
    ("broken symbols and packets in a second", "link_errors_per_second", LINK_ERRORS),
    ("repaired bits, times the usual number", "corrected_bits_times", &[ethernet::CORRECTED_BITS]),
    ("packets sent again in a second", "", RESENT),
    ("speed that its job has lost", "slowed_ratio", WORK),
    ("speed that the job has lost", "slowed_ratio", WORK),
    ("GPUs that spin", "hung_gpus_ratio", &[gpu::UTILIZATION]),
    ("work against what is usual", "hung_pace_ratio", WORK),
    (
        "traffic of its ports",
        "silent_network_ratio",
        &[port::RECEIVE_BYTES, port::TRANSMIT_BYTES, port::RATE],
    ),
    ("tasks of its hosts waiting for input or output", "io_pressure_ratio", &[host::IO_PRESSURE]),
    ("GPUs that are held and idle", "", &[gpu::UTILIZATION, gpu::PROCESSES]),
    ("GPUs that starve", "", &[gpu::UTILIZATION]),
    ("utilization of these GPUs", "hungry_ratio", &[gpu::UTILIZATION]),
    ("utilization of the others of the job", "", &[gpu::UTILIZATION]),
    ("tasks of the host waiting for input or output", "io_pressure_ratio", &[host::IO_PRESSURE]),
    ("tasks of the host waiting for a CPU", "cpu_pressure_ratio", &[host::CPU_PRESSURE]),
    ("busiest CPU of the host", "busiest_cpu_ratio", &[host::CPU_BUSIEST]),
    ("nodes that wait for input", "", &[host::IO_PRESSURE, gpu::UTILIZATION]),
    ("tasks of these hosts waiting for input or output", "io_pressure_ratio", &[host::IO_PRESSURE]),
    ("utilization of their GPUs", "hungry_ratio", &[gpu::UTILIZATION]),
    ("board answers", "", &[gpu::PRESENT]),
    ("targets that gaunt did not come to read", "untried_targets", &[]),
    ("attempts of the last minute for which gaunt was too late", "own_late_ratio", &[]),
    ("time of the last minute in which gaunt took nothing", "own_late_ratio", &[]),
    ("periods from one page of a target to the next", "own_late_ratio", &[]),
    ("XID", "", &[gpu_parts::XID_ERRORS]),
    ("seconds since an uncorrectable memory error", "", &[gpu_health::ECC_UNCORRECTED_VOLATILE]),
    ("congested ports", "members_bad_ratio", &[port::ECN_MARKED, port::CNP_HANDLED]),
    ("packets with a congestion mark", "marked_packets_ratio", &[port::ECN_MARKED]),
    ("time in which the network stops them", "paused_ratio", PAUSED),
    ("notifications to slow down, times the usual number", "notified_times", &[port::CNP_HANDLED]),
    ("ports that stop the network", "", PAUSES),
    ("time in which they stop it", "pauses_ratio", PAUSES),
    ("packets without a buffer in a second", "unbuffered_per_second", &[port::OUT_OF_BUFFER]),
    ("active NVLinks", "", &[gpu_parts::NVLINK_UP]),
    ("NVLink errors in a second", "nvlink_errors_per_second", NVLINK),
    ("work of these nodes against the others", "uneven_times", WORK),
    ("looks at which the same node was the busiest", "favourite_ratio", WORK),
    ("PCIe lanes", "", &[gpu_health::PCIE_WIDTH, gpu_health::PCIE_WIDTH_MAX]),
    ("PCIe generation", "", &[gpu_health::PCIE_GENERATION, gpu_health::PCIE_GENERATION_MAX]),
    (
        "share of the time in which heat or hardware held the clock",
        "clock_event_ratio",
        CLOCK_EVENTS,
    ),
    ("clock", "clock_straggler_ratio", &[gpu::SM_CLOCK]),
    ("clock over the middle of its peers", "clock_straggler_ratio", &[gpu::SM_CLOCK]),
    ("GPUs of its job that wait", "utilization_spinning_ratio", WAITING),
    ("clock beside its peers'", "drift_slack_ratio", &[gpu::SM_CLOCK]),
    ("temperature", "", &[gpu::TEMPERATURE]),
    (probe_evidence::OWN, "probe_baseline_ratio", &[probe_results::BASELINE_RATIO]),
    (probe_evidence::MODEL, "", &[probe_results::REFERENCE_RATIO]),
    (probe_evidence::OTHERS, "probe_baseline_ratio", &[]),
    (probe_evidence::WRONG, "", &[probe_results::WRONG]),
    ("power over its limit", "power_waiting_ratio", &[gpu::POWER, gpu::POWER_LIMIT]),
    ("traffic against what is usual", "like_pace_share", TRAFFIC),
    ("clock against what is usual", "capped_clock_ratio", &[gpu::SM_CLOCK]),
    ("nodes that are told to slow down", "incast_senders", &[port::CNP_HANDLED]),
    ("times that these ports were congested together", "together_ports", QUEUES),
    ("waiting and drops at its switch, times their limits", "switch_waited_ratio", SWITCH_QUEUES),
    ("waiting and drops at the switch, times their limits", "switch_waited_ratio", SWITCH_QUEUES),
    ("the same at its switch", "link_errors_per_second", SWITCH_ERRORS),
    (
        "pause frames that its switch receives in a second",
        "switch_stopped_per_second",
        &[switch_port::RECEIVE_PAUSE],
    ),
    ("requests that wait", "queue_requests", &[service::WAITING]),
    ("requests that are being answered", "", &[service::RUNNING]),
    ("requests answered in a second", "", &[service::REQUESTS]),
    ("utilization of the busiest GPU", "queue_idle_ratio", &[gpu::UTILIZATION]),
    ("GPUs whose values are late", "driver_hung_seconds", &[gpu::UTILIZATION, gpu::POWER]),
    ("seconds without anything new", "stale_seconds", &[]),
    ("seconds in which this source cannot be read", "source_unread_seconds", &[]),
];

/// The prefixes of evidence texts that end in a name.
const BEGINNINGS: &[(&str, &str, &[MetricId])] = &[
    ("failed attempts in a row at ", "target_failures", &[]),
    ("results after a later one of ", "target_failures", &[]),
    ("success of the collector ", "driver_hung_seconds", &[exporter::COLLECTOR_SUCCESS]),
];

/// Series that show that a GPU busy-waits in a collective.
const WAITING: &[MetricId] = &[gpu::UTILIZATION, gpu::TENSOR_ACTIVE, gpu::SM_ACTIVE, gpu::POWER];

const TRAFFIC: &[MetricId] = &[port::RECEIVE_BYTES, port::TRANSMIT_BYTES];
const QUEUES: &[MetricId] = &[port::ECN_MARKED, port::TRANSMIT_WAIT];
const SWITCH_QUEUES: &[MetricId] = &[switch_port::TRANSMIT_WAIT, switch_port::TRANSMIT_DISCARDS];
const SWITCH_ERRORS: &[MetricId] = &[switch_port::SYMBOL_ERRORS, switch_port::RECEIVE_ERRORS];

/// Error counters of a link itself.
const LINK_ERRORS: &[MetricId] = &[
    port::SYMBOL_ERRORS,
    port::RECEIVE_ERRORS,
    port::LOCAL_LINK_INTEGRITY_ERRORS,
    port::ICRC_ERRORS,
];

/// Counters of retransmitted packets.
const RESENT: &[MetricId] =
    &[port::PACKET_SEQUENCE_ERRORS, port::ADAPTIVE_RETRANSMITS, port::RETRANSMIT_PACKETS];

/// Series that show how much a GPU works.
const WORK: &[MetricId] = &[gpu::TENSOR_ACTIVE, gpu::POWER];

const PAUSED: &[MetricId] = &[ethernet::RECEIVE_PAUSED_3, ethernet::RECEIVE_GLOBAL_PAUSED];
const PAUSES: &[MetricId] = &[ethernet::TRANSMIT_PAUSED_3, ethernet::TRANSMIT_GLOBAL_PAUSED];
const NVLINK: &[MetricId] =
    &[gpu_parts::NVLINK_REPLAY, gpu_parts::NVLINK_RECOVERY, gpu_parts::NVLINK_CRC];
const CLOCK_EVENTS: &[MetricId] = &[
    gpu::CLOCK_EVENT_HW_SLOWDOWN,
    gpu::CLOCK_EVENT_HW_THERMAL,
    gpu::CLOCK_EVENT_HW_POWER_BRAKE,
    gpu::CLOCK_EVENT_SW_THERMAL,
];

/// Returns the source of the value with this name in findings of this kind.
pub fn evidence_row(kind: FindingKind, what: &str) -> EvidenceRow {
    // A PCIe link and a port use the same text.
    if kind == FindingKind::PcieDegraded && what == "packets sent again in a second" {
        return of("pcie_replays_per_second", &[gpu_health::PCIE_REPLAYS], true);
    }
    let begins = || BEGINNINGS.iter().find(|(known, ..)| what.starts_with(known));
    let row = NUMBERS.iter().find(|(known, ..)| *known == what).or_else(begins);
    row.map_or_else(EvidenceRow::default, |(known, threshold, series)| {
        of(threshold, series, !OF_OTHERS.contains(known))
    })
}

fn of(threshold: &'static str, series: &'static [MetricId], own: bool) -> EvidenceRow {
    EvidenceRow { threshold, series, own, alike: ALIKE.contains(&threshold) }
}

/// How findings of each kind are detected, and the limits that apply besides those of their values.
const RULES: &[(FindingKind, &str, &[&str])] = &[
    (
        FindingKind::DataStarved,
        "GPUs of a node do less than they usually do and go on with something, while tasks of their host wait for \
             input or a CPU more than usual, or while the other GPUs of the job spin and wait for them.",
        &[
            "hungry_ratio",
            "pressure_times",
            "starved_seconds",
            "io_pressure_ratio",
            "cpu_pressure_ratio",
        ],
    ),
    (
        FindingKind::StorageSlow,
        "Most nodes of a job wait for input together, each with tasks that wait for input or output: what they share is slow.",
        &["shared_storage_seconds", "io_pressure_ratio", "pressure_times", "hungry_ratio"],
    ),
    (
        FindingKind::ComputeStraggler,
        "A GPU that works runs at a clock below that of its peers (same job, model and role) and below its own usual \
             one, and neither heat nor hardware holds it; or beside its peers it became slower little by little.",
        &[
            "clock_straggler_ratio",
            "peer_score",
            "least_peers",
            "role_gap_ratio",
            "drift_sum_seconds",
            "slow_gpu_seconds",
        ],
    ),
    (
        FindingKind::Throttled,
        "Hardware or heat holds the clock of a GPU that works for most of the time.",
        &["clock_event_ratio", "slow_gpu_seconds"],
    ),
    (
        FindingKind::HostBound,
        "GPUs of a node do less than they usually do, and one CPU of their host is busy all the time or its tasks wait for a CPU.",
        &["hungry_ratio", "busiest_cpu_ratio", "cpu_crowded_ratio", "starved_seconds"],
    ),
    (
        FindingKind::PcieDegraded,
        "A GPU's PCIe link is narrower than it should be, slower than it should be under load, or sends packets again.",
        &["pcie_seconds", "pcie_replay_seconds", "pcie_replays_per_second", "collected_seconds"],
    ),
    (
        FindingKind::NvlinkDegraded,
        "A GPU has fewer NVLinks than its neighbours, or its NVLinks count errors.",
        &["nvlink_errors_per_second", "nvlink_seconds"],
    ),
    (
        FindingKind::PortDown,
        "A port that was active is not: it counted a fall of its link, or two samples say so. One that was down before the \
             first look should be up where its siblings are, or the same port of most other nodes is.",
        &["port_samples", "port_never_active_seconds", "least_siblings"],
    ),
    (
        FindingKind::PortRateLow,
        "An active port runs at a lower rate than it did before, or than all its siblings do.",
        &["slowed_ratio"],
    ),
    (
        FindingKind::LinkErrors,
        "A port receives broken symbols or packets again and again.",
        &["link_errors_per_second", "link_errors_seconds", "resent_packets_per_second"],
    ),
    (
        FindingKind::LeafCongested,
        "Most ports below one leaf on a rail have marked packets, are stopped, or wait, and those of other leaves do \
             not; where nobody names leaves, several ports of a rail do together.",
        &[
            "members_bad_ratio",
            "together_ports",
            "incast_seconds",
            "hotspot_seconds",
            "marked_packets_ratio",
            "waited_times",
        ],
    ),
    (
        FindingKind::RailSlow,
        "Most ports of one rail have marked packets, are stopped, or wait below several leaves, and other rails do not.",
        &["members_bad_ratio", "hotspot_seconds", "marked_packets_ratio", "waited_times"],
    ),
    (
        FindingKind::HostBlocksNetwork,
        "Most ports of a host that carry something stop the network, or have no buffer for what arrives.",
        &["pauses_ratio", "unbuffered_per_second", "hotspot_seconds"],
    ),
    (
        FindingKind::CollectiveHang,
        "Almost all GPUs of a job spin, none works, nothing is sent, and no host reads or writes.",
        &["hung_gpus_ratio", "hung_seconds", "inferred_hang_seconds", "utilization_spinning_ratio"],
    ),
    (
        FindingKind::GpuFailed,
        "A GPU is gone from its node, its driver reported an error that needs a reset, or its memory could not be corrected.",
        &["gone_samples", "error_speaks_seconds"],
    ),
    (
        FindingKind::IdleAllocated,
        "A job holds GPUs and does nothing with any of them for a long time.",
        &["idle_seconds", "utilization_idle_ratio", "sm_idle_ratio", "power_idle_share"],
    ),
    (
        FindingKind::StageImbalance,
        "Some nodes of a job that is slower than usual have steadily more work than the others.",
        &["uneven_times", "uneven_lost_share", "uneven_seconds", "slowed_ratio"],
    ),
    (
        FindingKind::DataSkew,
        "A job is slower than usual, and another of its nodes is the busiest at each look.",
        &["favourite_ratio", "uneven_seconds", "slowed_ratio"],
    ),
    (
        FindingKind::TargetDown,
        "Attempts to read a target, or the source that names targets, failed.",
        &["target_failures", "untried_targets", "dark_seconds", "source_unread_seconds"],
    ),
    (
        FindingKind::DriverHung,
        "A call of the driver on a node does not return.",
        &["driver_hung_seconds"],
    ),
    (
        FindingKind::DataStale,
        "Pages come, and their values do not move.",
        &["stale_seconds", "stale_periods"],
    ),
    (
        FindingKind::FindingsOverLimit,
        "A node has more findings than places for them; this one stands for those that are not listed.",
        &[],
    ),
    (
        FindingKind::AggregatorLate,
        "gaunt's own timers ran late, so that targets were not read in their time: their failures say nothing of them.",
        &["untried_targets", "own_late_ratio"],
    ),
];

/// Returns how findings of a kind are detected, and the limits that apply besides those of their values.
pub fn detection_rule(kind: FindingKind) -> (&'static str, &'static [&'static str]) {
    let row = RULES.iter().find(|(known, ..)| *known == kind);
    row.map_or(("", &[]), |(_, words, keys)| (words, keys))
}

/// Returns the limit that a confidence comes from.
pub fn confidence_limit(limits: &Thresholds, confidence: f64) -> Option<&'static str> {
    let steps = [
        ("sure_of_one_ratio", limits.sure_of_one_ratio),
        ("sure_of_two_ratio", limits.sure_of_two_ratio),
        ("sure_of_more_ratio", limits.sure_of_more_ratio),
        ("sure_of_learned_ratio", limits.sure_of_learned_ratio),
        ("sure_of_fact_ratio", limits.sure_of_fact_ratio),
        ("sure_of_alike_ratio", limits.sure_of_alike_ratio),
        ("sure_of_first_look_ratio", limits.sure_of_first_look_ratio),
        ("sure_of_own_ratio", limits.sure_of_own_ratio),
    ];
    steps.into_iter().find(|(_, value)| value.total_cmp(&confidence).is_eq()).map(|(key, _)| key)
}

/// Returns a limit's value and its comment in the settings; none for a name that is no limit.
pub fn explain_limit(limits: &Thresholds, key: &str) -> Option<(f64, String)> {
    let fields = serde_json::to_value(limits).ok()?;
    Some((fields.get(key)?.as_f64()?, limit_comment(key)))
}

/// Returns the comment above a key of the sample settings.
fn limit_comment(key: &str) -> String {
    let lines: Vec<&str> = SAMPLE.lines().collect();
    let own = |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| name == key);
    let Some(at) = lines.iter().position(own) else { return String::new() };
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("# "));
    let mut words: Vec<&str> = above.map(|line| &line[2..]).collect();
    words.reverse();
    words.join(" ").replace("- ", "-")
}
