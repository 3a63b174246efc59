//! Metrics of NCCL's RAS service: the health of a job's processes, and the ranks for which the others wait.

use super::{Metric, collective, rows};
use crate::{
    DeviceClass::{Node, Rank},
    unit::{CounterWidth::Bits64, Unit},
};

const fn event_counter(event: &'static str) -> Metric {
    Metric::new_counter("gaunt_nccl_ras_events_total", Node, Unit::Count, Bits64)
        .with_tag("event", event)
}

const fn missing_gauge(state: &'static str) -> Metric {
    Metric::new_gauge("gaunt_nccl_ras_missing_ranks", Node, Unit::Count, 1.0)
        .with_tag("state", state)
}

rows! {
    from collective::END;
    INFO, "The address of the service, and the addresses of the node, by which the service names it.",
        Metric::new_info_series("gaunt_nccl_ras_info", Node, &["service", "addresses"]);
    CONNECTED, "Whether NCCL's RAS service of a job answers on the node.",
        Metric::new_gauge("gaunt_nccl_ras_connected", Node, Unit::Count, 1.0).with_history();
    JOINED, "Changes of the job's processes that the service reported, by event.", event_counter("joined");
    UNRESPONSIVE, "Changes of the job's processes that the service reported, by event.", event_counter("unresponsive");
    RECOVERED, "Changes of the job's processes that the service reported, by event.", event_counter("recovered");
    DEAD, "Changes of the job's processes that the service reported, by event.", event_counter("dead");
    STATUS_TIME, "When the status of the job was last read, on request of the aggregator.",
        Metric::new_gauge("gaunt_nccl_ras_status_timestamp_seconds", Node, Unit::Seconds, 1.0);
    COMPARED_TIME, "When two states of the job were last compared.",
        Metric::new_gauge("gaunt_nccl_ras_compared_timestamp_seconds", Node, Unit::Seconds, 1.0);
    COMMUNICATORS, "Communicators that were compared.",
        Metric::new_gauge("gaunt_nccl_ras_communicators", Node, Unit::Count, 1.0);
    STUCK_COMMUNICATORS, "Communicators of which no rank launched an operation between two states.",
        Metric::new_gauge("gaunt_nccl_ras_stuck_communicators", Node, Unit::Count, 1.0);
    MISSING_UNRESPONSIVE, "Ranks that did not answer for the last status, by state.", missing_gauge("unresponsive");
    MISSING_DEAD, "Ranks that did not answer for the last status, by state.", missing_gauge("dead");
    LAGGING_RANKS, "Ranks for which others wait, all communicators together; the page names the first 16.",
        Metric::new_gauge("gaunt_nccl_ras_lagging_ranks", Node, Unit::Count, 1.0);
    RANK_INFO, "A rank for which others wait: its host, process and GPU, why, and in which operation.",
        Metric::new_info_series("gaunt_nccl_lagging_rank_info", Rank, &["host", "pid", "gpu", "reason", "operation"]);
    LAUNCHED, "Operations that the lagging rank launched.",
        Metric::new_gauge("gaunt_nccl_lagging_rank_launched_operations", Rank, Unit::Count, 1.0);
    EXPECTED, "Operations that the rank launched that is furthest in the communicator.",
        Metric::new_gauge("gaunt_nccl_lagging_rank_expected_operations", Rank, Unit::Count, 1.0);
    WAITING, "Ranks of the communicator that wait for the lagging rank.",
        Metric::new_gauge("gaunt_nccl_lagging_rank_waiting_ranks", Rank, Unit::Count, 1.0);
}
