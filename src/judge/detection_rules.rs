//! Detection rules: how findings of each kind are detected, and which limits apply, in words.

use gaunt_schema::FindingKind;

use super::{
    Thresholds,
    pending_finding::{CERTAIN, is_inferred, posterior},
    thresholds::LIMITS,
};

/// How findings of each kind are detected, and the limits that apply besides those of their values.
const RULES: &[(FindingKind, &str, &[&str])] = &[
    (
        FindingKind::DataStarved,
        "GPUs of a node are active below their baseline while their host shows IO or CPU pressure above its baseline, or while the other GPUs of the job busy-wait for them. Where the kernel reports no PSI, IO pressure is the time for which CPUs idle meanwhile (iowait), if that is far above its baseline. A host that mostly writes is a warning only once a checkpoint would be over. Where most hosts of a slower job wait for CPUs together, or have far busier CPUs than before, the finding is about the job, and not about one of them, and never pages: it may load more for each step than before. Where nothing else shows a cause, a node whose GPUs all idle more than before is a warning after a minute, if it is the only such node of its job, and the job runs steadily but slower while its other GPUs are busy all the time.",
        &[
            "hungry_ratio",
            "pressure_times",
            "starved_seconds",
            "io_pressure_ratio",
            "cpu_pressure_ratio",
            "pressure_far_times",
            "inferred_hang_seconds",
        ],
    ),
    (
        FindingKind::StorageSlow,
        "Most nodes of a slower job wait for IO together, most of them with IO pressure or late answers of their network file systems: the storage that they share is slow. So it is where jobs on one node each begin to wait for IO at about the same time, or where the network file systems of one such job answer late, and those of no other node as before. So are pauses in which they do and that last at least twice as long as the shortest one of their job, or as the longest of late while one lasts: its checkpoints have grown, or one of them does not end. IO pressure below twice its limit never pages.",
        &[
            "shared_storage_seconds",
            "unexplained_ratio",
            "io_pressure_ratio",
            "pressure_times",
            "slow_response_times",
            "hungry_ratio",
        ],
    ),
    (
        FindingKind::ComputeStraggler,
        "The SM clock of an active GPU is below its peers (same job, model and role) and its own baseline without a thermal or HW slowdown, or it drifted below its peers (CUSUM). On a job of one node it is far below its own past while its work goes on and draws no more power. Or the GPU has more SM activity for the same tensor activity than the rest of its job; without profiling counters, it draws its usual power while all others of its job draw much less and are busy. A slowdown of its job confirms a low clock only where that may cost as much.",
        &[
            "slow_clock_ratio",
            "peer_score",
            "least_peers",
            "role_gap_ratio",
            "drift_sum_seconds",
            "slow_gpu_seconds",
        ],
    ),
    (
        FindingKind::Throttled,
        "An active GPU reports a thermal or HW slowdown for most of the time. Where it reports none, its clock is low while it is far hotter than its peers or, from 90 degrees Celsius on, below 0.6 of what its model reaches.",
        &["clock_event_ratio", "slow_gpu_seconds"],
    ),
    (
        FindingKind::HostBound,
        "GPUs of a node are active below their baseline while one CPU of their host is saturated or the host shows CPU pressure. Or tasks of a host of a job wait for memory, whatever its GPUs show. Or the kernel of one host of a slower job takes far more of its CPUs than before, as on no other host of the job, and programs there do not; or a network device of that host has a smaller MTU than on all others, which is a warning.",
        &[
            "hungry_ratio",
            "busiest_cpu_ratio",
            "cpu_crowded_ratio",
            "starved_seconds",
            "memory_pressure_ratio",
        ],
    ),
    (
        FindingKind::PcieDegraded,
        "The PCIe link of a GPU has a reduced width, a reduced generation under load, or counts replays: fewer than the limit, over the last minutes, are a warning and explain no slower job. Most GPUs of a node with such links blame the node.",
        &["pcie_seconds", "pcie_replay_seconds", "errors_per_second"],
    ),
    (
        FindingKind::NvlinkDegraded,
        "A GPU has fewer active NVLinks than the other GPUs of its node, or its NVLinks count errors: fewer than the limit, over the last minutes, are a warning and explain no slower job. Errors on several GPUs of a node, or XID 74 on several, blame what joins them.",
        &["errors_per_second", "nvlink_seconds"],
    ),
    (
        FindingKind::FabricDegraded,
        "The driver reports that a GPU's part of the NVLink fabric is unhealthy or failed to register; or it is still registering under a job; or the IMEX daemon of its node is not ready under a job on several nodes of the NVLink domain. GPUs of several nodes blame the domain.",
        &["fabric_fault_seconds", "fabric_start_seconds"],
    ),
    (
        FindingKind::PortDown,
        "A port that was active is down: its link-down counter rose, or two samples show it. One that carried next to nothing while it was active is a warning, and costs no job anything. A port that was down before the first sample should be active if its sibling ports are, or the same port of most other nodes is; one whose link is up and that waits for the subnet manager should be, whatever its siblings do. A port that is active at every sample flaps if that counter, the one of link error recoveries or its network device's carrier changes rise twice in a while. A network device that belongs to no RDMA port and carried traffic is judged by its carrier alone. A port is missing if its node no longer lists it and lists at least as many others: a warning, and critical while a job there is slower. Where no port of a node is active, the node is blamed, until half of them are. Where no port of a rail below a leaf is active, the leaf is blamed, until half of them are; where no source names the leaf, that of at least three nodes whose ports of one rail went down within a minute.",
        &["port_samples", "port_never_active_seconds", "sharing_members", "flap_window_seconds"],
    ),
    (
        FindingKind::PortRateLow,
        "An active port has a lower line rate than before, or than most other nodes with the same adapters have instead. A network device that belongs to no RDMA port and carries traffic has a lower line rate than before.",
        &["slowed_ratio", "carries_ratio"],
    ),
    (
        FindingKind::LinkErrors,
        "A port keeps counting symbol errors or receive errors, or its network device does; or one that belongs to no RDMA port and carries traffic. Fewer errors than the limit, over the last minutes, are a warning and explain no slower job. If most of the ports below a leaf do, three at least and of two nodes, it is one finding about the leaf.",
        &["errors_per_second", "link_errors_seconds"],
    ),
    (
        FindingKind::LeafCongested,
        "Most ports of one leaf on a rail show ECN marks, PFC pause or transmit wait, and those of other leaves do not; without a topology, several ports of a rail do so together. Where at most half of the nodes of a job show it, each far more than any other node of the job, only those count: the others wait for them in the same collectives. What was there at the first look, and beside which its jobs ran as usual, never pages. Or one port of a slower job alone is nearly full in one direction, and carries far less in the other: traffic that is not the job's fills it.",
        &[
            "members_bad_ratio",
            "together_ports",
            "incast_seconds",
            "hotspot_seconds",
            "congested_ratio",
            "counter_times",
        ],
    ),
    (
        FindingKind::RailSlow,
        "Most ports of one rail show ECN marks, PFC pause or transmit wait below several leaves, and other rails do not.",
        &["members_bad_ratio", "hotspot_seconds", "congested_ratio", "counter_times"],
    ),
    (
        FindingKind::HostBlocksNetwork,
        "Most ports with traffic of a host send PFC pause, or drop packets with out_of_buffer; or fewer do and something else shows it: the other of both, its switch, or a job that is slower. Pause that the other nodes of its job send as well is none of the host. Where only pause frames are counted, each is taken to stop the port for a quarter of the longest time. Or a network device of one host of a slower job alone is nearly full, and what the other hosts use carries next to nothing there.",
        &["pauses_ratio", "unbuffered_per_second", "hotspot_seconds"],
    ),
    (
        FindingKind::CollectiveHang,
        "Almost all GPUs of a job busy-wait, or some while the others do nothing; none computes and the network is idle. Beside a host that shows IO pressure, and where some do nothing, that must outlast a checkpoint. A process that began within five minutes and has not worked yet does not hang; one of a job on several nodes that began earlier and never worked does, as a warning until the job is known to work. Without profiling counters a GPU stands still at low constant power, or at constant power below its usual one while it no longer uses its memory. Where NCCL RAS is read, the GPU of the rank that is behind is blamed; a node that stopped reporting just before, or lost a GPU or a port, has its page instead.",
        &[
            "hung_gpus_ratio",
            "hung_seconds",
            "inferred_hang_seconds",
            "standstill_ratio",
            "utilization_spinning_ratio",
        ],
    ),
    (
        FindingKind::GpuFailed,
        "A GPU is missing from its node, reported an XID that needs a reset, has uncorrectable ECC errors, could not remap a row of its memory, or remaps several within minutes (a warning). So did one on which a program failed with an XID, while its job stopped within two minutes and does not run yet: a warning, usually an error of the application; of a job the first such GPU, unless most of its programs failed.",
        &["confirming_samples", "error_speaks_seconds"],
    ),
    (
        FindingKind::IdleAllocated,
        "A job holds GPUs and has used none of them for a long time; or its processes have left GPUs of a node while others beside them work on, or do nothing any more on some GPUs while its others go on as before, both a warning; a service, whose load varies, is told of the latter after four times as long. So is a node on which no process of a steadily working job has used a GPU for 300 s: no worker of it is to begin there.",
        &["idle_seconds", "utilization_idle_ratio", "sm_idle_ratio", "power_idle_share"],
    ),
    (
        FindingKind::CrashLoop,
        "The memory of a job's GPUs was freed and taken again, on nearly all of them together and each time within a quarter of an hour: twice is information, three times a warning if it has several GPUs; without a job label only if it worked for twice as long before. It ends once the job runs for twice as long as the longest time between two ends.",
        &["unexplained_ratio", "held_memory_ratio"],
    ),
    (
        FindingKind::FilesystemFull,
        "A file system that can be written to has hardly any space or no inodes left; it is more than information while a job on its nodes stands still, restarts again and again or is slower since then.",
        &["filesystem_free_ratio", "hung_gpus_ratio", "slowed_ratio"],
    ),
    (
        FindingKind::StageImbalance,
        "Some nodes of a job that is slower than its baseline are steadily more active than the others.",
        &["uneven_times", "uneven_lost_share", "uneven_seconds", "slowed_ratio"],
    ),
    (
        FindingKind::DataSkew,
        "A job is slower than its baseline, and the busiest node changes from sample to sample. Where samples are too rare to show which node is the busiest, a large slowdown is told as unexplained instead.",
        &["favourite_ratio", "uneven_seconds", "slowed_ratio"],
    ),
    (
        FindingKind::UnexplainedSlowdown,
        "A job is much slower than its baseline and takes the same steps, does not pause, its clocks are not capped, and no finding at warning or above names the job or its nodes. A job that begins again within minutes is measured by what it was before. Also one whose GPUs all stand still three times in a row, for much of the time, as they did not in a far longer time before. One that is open outlives a cap of all clocks that begins later.",
        &["unexplained_ratio", "unexplained_seconds", "like_pace_share", "slow_clock_ratio"],
    ),
    (
        FindingKind::TargetDown,
        "Scrapes of a target failed, or its target source is unreadable.",
        &["target_failures", "untried_targets", "dark_seconds", "source_unread_seconds"],
    ),
    (FindingKind::DriverHung, "A driver call on a node does not return.", &["driver_hung_seconds"]),
    (
        FindingKind::DataStale,
        "Scrapes succeed, and no value changes, or none of the values of the GPUs is left.",
        &["stale_seconds", "stale_periods"],
    ),
    (
        FindingKind::FindingsOverLimit,
        "A node has more findings than its limit; this one summarises those that are not listed.",
        &[],
    ),
    (
        FindingKind::AggregatorLate,
        "gaunt's own timers ran late, so that targets were not scraped in time: their failures are no evidence about them.",
        &["untried_targets", "own_late_ratio"],
    ),
    (
        FindingKind::CertificateExpiring,
        "A certificate of an exporter, as its page states it, or of gaunt itself expires soon, or has expired.",
        &["certificate_seconds"],
    ),
    (
        FindingKind::JudgementFailed,
        "A rule of gaunt failed on this data. All findings stay as they are, and after a while gaunt tries again.",
        &[],
    ),
];

/// Returns how findings of a kind are detected, and the limits that apply besides those of their values.
pub fn detection_rule(kind: FindingKind) -> (&'static str, &'static [&'static str]) {
    let row = RULES.iter().find(|(known, ..)| *known == kind);
    row.map_or(("", &[]), |(_, words, keys)| (words, keys))
}

/// Returns the limits that the confidence of a finding of this kind comes from; none of what gaunt itself observes.
pub fn confidence_limits(
    limits: &Thresholds,
    kind: FindingKind,
    confidence: f64,
) -> Vec<&'static str> {
    if confidence >= CERTAIN {
        return Vec::new();
    }
    let stated = [
        ("sure_of_fact_ratio", limits.sure_of_fact_ratio),
        ("sure_of_alike_ratio", limits.sure_of_alike_ratio),
    ];
    let mut stated = stated.into_iter().filter(|(_, value)| value.total_cmp(&confidence).is_eq());
    if let Some((key, _)) = stated.next() {
        return vec![key];
    }
    let reported = posterior(limits.reported_odds);
    let prior =
        if is_inferred(kind) || confidence < reported { "inferred_odds" } else { "reported_odds" };
    vec![prior, "evidence_odds"]
}

/// Returns a limit's value and its reason; none for a name that is no limit.
pub fn explain_limit(limits: &Thresholds, key: &str) -> Option<(f64, String)> {
    let limit = LIMITS.iter().find(|limit| limit.name == key)?;
    Some((limits.limit_value(key)?, limit.reason()))
}
