//! Metrics of gaunt-probe: the bandwidth measured between GPUs, and the probes that were skipped.

use super::{Metric, nccl_ras, rows};
use crate::{
    DeviceClass::{Node, Probe},
    unit::{CounterWidth::Bits64, Unit},
};

/// The label that holds why nothing was measured.
const REASON: &str = "reason";

const fn skipped_counter(reason: &'static str) -> Metric {
    Metric::new_counter("gaunt_probe_skipped_total", Node, Unit::Count, Bits64)
        .with_tag(REASON, reason)
}

rows! {
    from nccl_ras::END;
    INFO, "How it was measured: whose kernels, over which way, with how many ranks and bytes.",
        Metric::new_info_series("gaunt_probe_info", Probe, &["tool", "path", "ranks", "bytes", "type"]);
    BUS_BANDWIDTH, "What each link must have carried, as nccl-tests defines it; the median of the runs.",
        Metric::new_gauge("gaunt_probe_busbw_bytes_per_second", Probe, Unit::BytesPerSecond, 1e7).with_history();
    ALGORITHM_BANDWIDTH, "Bytes of the message over the time that the collective took; the median of the runs.",
        Metric::new_gauge("gaunt_probe_algbw_bytes_per_second", Probe, Unit::BytesPerSecond, 1e7);
    BASELINE_RATIO, "Bandwidth as a share of what the same GPUs usually reach: below 0.9 something changed.",
        Metric::new_gauge("gaunt_probe_baseline_ratio", Probe, Unit::Ratio, 0.01).with_history();
    REFERENCE_RATIO, "Bandwidth as a share of the least that boards of this model should reach: below 1 the node was perhaps always slow.",
        Metric::new_gauge("gaunt_probe_reference_ratio", Probe, Unit::Ratio, 0.01);
    WRONG, "Elements that the last probe found wrong: above 0 the data that GPUs exchange cannot be trusted.",
        Metric::new_gauge("gaunt_probe_wrong_elements", Probe, Unit::Count, 1.0).with_history();
    DURATION, "Time from start to result of the node's last probe, contexts included.",
        Metric::new_gauge("gaunt_probe_duration_seconds", Node, Unit::Seconds, 0.01);
    LAST_RUN, "When the node's last probe that measured something ended.",
        Metric::new_gauge("gaunt_probe_last_run_timestamp_seconds", Node, Unit::Seconds, 1.0);
    LAST_CODE, "How the last try ended, by gaunt-probe's exit codes: 0 is a result, and nothing wrong with it.",
        Metric::new_gauge("gaunt_probe_last_exit_code", Node, Unit::Count, 1.0);
    RUNS, "Probes that measured something.",
        Metric::new_counter("gaunt_probe_runs_total", Node, Unit::Count, Bits64);
    BUSY_TIME, "Time that probes kept GPUs busy, summed over all probes.",
        Metric::new_counter("gaunt_probe_busy_seconds_total", Node, Unit::Seconds, Bits64);
    SKIPPED_PROCESS, "Probes that were not run, or were stopped, by reason.", skipped_counter("process");
    SKIPPED_USE, "Probes that were not run, or were stopped, by reason.", skipped_counter("in_use");
    SKIPPED_JOB, "Probes that were not run, or were stopped, by reason.", skipped_counter("job");
    SKIPPED_MODE, "Probes that were not run, or were stopped, by reason.", skipped_counter("mode");
    SKIPPED_BLIND, "Probes that were not run, or were stopped, by reason.", skipped_counter("blind");
    SKIPPED_COOL_DOWN, "Probes that were not run, or were stopped, by reason.", skipped_counter("cool_down");
    SKIPPED_BUDGET, "Probes that were not run, or were stopped, by reason.", skipped_counter("budget");
    SKIPPED_NO_GPU, "Probes that were not run, or were stopped, by reason.", skipped_counter("no_gpu");
    SKIPPED_FAILED, "Probes that were not run, or were stopped, by reason.", skipped_counter("failed");
}

/// The counters of skipped probes, by the value of their label.
pub const SKIPPED: [(&str, crate::MetricId); 9] = [
    ("process", SKIPPED_PROCESS),
    ("in_use", SKIPPED_USE),
    ("job", SKIPPED_JOB),
    ("mode", SKIPPED_MODE),
    ("blind", SKIPPED_BLIND),
    ("cool_down", SKIPPED_COOL_DOWN),
    ("budget", SKIPPED_BUDGET),
    ("no_gpu", SKIPPED_NO_GPU),
    ("failed", SKIPPED_FAILED),
];
