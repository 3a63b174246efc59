//! Metrics of the aggregator about the fleet and about itself. These rows are written, never gathered.

use super::{Metric, exporter, rows};
use crate::{
    DeviceClass::Fleet,
    unit::{CounterWidth::Bits64, Unit},
};

rows! {
    from exporter::END;
    BUILD_INFO, "The version that runs.",
        Metric::new_info_series("gaunt_build_info", Fleet, &["version"]);
    TARGETS, "Targets by state: live, down, or not yet tried.",
        Metric::new_gauge("gaunt_targets", Fleet, Unit::Count, 1.0);
    TARGET_UP, "Whether the target's last scrape succeeded.",
        Metric::new_gauge("gaunt_target_up", Fleet, Unit::Count, 1.0);
    SCRAPES, "Scrapes by outcome: ok, or the reason of the failure.",
        Metric::new_counter("gaunt_scrapes_total", Fleet, Unit::Count, Bits64);
    SAMPLES, "Samples taken from pages.",
        Metric::new_counter("gaunt_samples_total", Fleet, Unit::Count, Bits64);
    REJECTED, "Lines of pages that were not taken, by reason.",
        Metric::new_counter("gaunt_rejected_lines_total", Fleet, Unit::Count, Bits64);
    NODES, "Nodes by state: live, stale or down.",
        Metric::new_gauge("gaunt_nodes", Fleet, Unit::Count, 1.0);
    GPUS, "GPUs by state.",
        Metric::new_gauge("gaunt_gpus", Fleet, Unit::Count, 1.0);
    GPU_STATE, "The state that each GPU is judged to be in.",
        Metric::new_gauge("gaunt_gpu_state", Fleet, Unit::Count, 1.0);
    GPU_STATE_RATIO, "Share of the GPUs in each state: of a job's, or of all without a job.",
        Metric::new_gauge("gaunt_gpu_state_ratio", Fleet, Unit::Ratio, 0.001);
    LOST_GPUS, "Lost GPUs: the shares of their time that GPUs lose to the jobs that hold them, added up.",
        Metric::new_gauge("gaunt_lost_gpus", Fleet, Unit::Count, 0.1);
    STARVED, "Lost GPUs added up over time, by job and by cause: the kind of the finding, idle or unexplained; of jobs that ended long ago together.",
        Metric::new_counter("gaunt_starved_gpu_seconds_total", Fleet, Unit::Seconds, Bits64);
    FINDING, "An open finding, with what it blames and whether somebody took it on.",
        Metric::new_gauge("gaunt_finding", Fleet, Unit::Count, 1.0);
    FINDINGS_OPENED, "Findings opened, by kind.",
        Metric::new_counter("gaunt_findings_opened_total", Fleet, Unit::Count, Bits64);
    FINDINGS_WITHOUT_PLACE, "Findings whose evidence is there and that are not listed because there is no place for them, by kind.",
        Metric::new_gauge("gaunt_findings_without_place", Fleet, Unit::Count, 1.0);
    REFUSED_DEVICES, "Devices that pages name beyond what one node may have, by class; they are not taken.",
        Metric::new_gauge("gaunt_refused_devices", Fleet, Unit::Count, 1.0);
    UNJUDGED_TARGETS, "Targets whose last attempt says nothing of them because gaunt itself was late.",
        Metric::new_gauge("gaunt_unjudged_targets", Fleet, Unit::Count, 1.0);
    DROPPED_BATCHES, "Results of attempts that were not taken, by reason: the target is not announced, or a later attempt was taken before.",
        Metric::new_counter("gaunt_dropped_batches_total", Fleet, Unit::Count, Bits64);
    TARGET_DROPPED_BATCHES, "Results of attempts at a target that were not taken because a later attempt was taken before; of the 20 targets with most.",
        Metric::new_counter("gaunt_target_dropped_batches_total", Fleet, Unit::Count, Bits64);
    RECORD_ACTIVE, "Whether what targets say is recorded: 0 while nothing can be written, with the reason.",
        Metric::new_gauge("gaunt_record_active", Fleet, Unit::Count, 1.0);
    RECORD_BYTES, "Bytes written to the recording.",
        Metric::new_counter("gaunt_record_bytes_total", Fleet, Unit::Bytes, Bits64);
    RECORD_WRITTEN, "Batches, and what stands beside them, written to the recording.",
        Metric::new_counter("gaunt_record_written_batches_total", Fleet, Unit::Count, Bits64);
    RECORD_DROPPED, "Batches that are missing in the recording: the disk was behind, or recording was stopped.",
        Metric::new_counter("gaunt_record_dropped_batches_total", Fleet, Unit::Count, Bits64);
    LOST_BY_CAUSE, "Lost GPUs by cause: the kind of the open findings that they are attributed to, idle or unexplained. The sum is gaunt_lost_gpus.",
        Metric::new_gauge("gaunt_cause_lost_gpus", Fleet, Unit::Count, 0.1);
    FINDING_LOST, "Lost GPUs that are attributed to an open finding.",
        Metric::new_gauge("gaunt_finding_lost_gpus", Fleet, Unit::Count, 0.1);
    NODE_LOST, "Lost GPUs of each node. The sum is gaunt_lost_gpus.",
        Metric::new_gauge("gaunt_node_lost_gpus", Fleet, Unit::Count, 0.1);
    JOB_LOST, "Lost GPUs of each job, of the largest thousand.",
        Metric::new_gauge("gaunt_job_lost_gpus", Fleet, Unit::Count, 0.1);
    JOB_GPUS, "GPUs of each job in each state that occurs, of the largest thousand jobs.",
        Metric::new_gauge("gaunt_job_gpus", Fleet, Unit::Count, 1.0);
    GPU_STATE_CODE, "The state that each GPU is judged to be in, as a number; only written to a store: 0 computing, 1 memory_bound, 2 communicating, 3 busy, 4 slowed, 5 waiting, 6 data_starved, 7 launch_bound, 8 throttled, 9 hung, 10 idle_allocated, 11 idle, 12 lost, 13 stale, 14 unknown.",
        Metric::new_gauge("gaunt_gpu_state_code", Fleet, Unit::Count, 1.0);
    JOB_GPU_HOURS, "GPU-hours of the last hour by job, user, state and cause of loss, at the full hour; only written to a store.",
        Metric::new_gauge("gaunt_job_gpu_hours", Fleet, Unit::Count, 0.001);
    JOB_LOST_GPU_HOURS, "Lost GPU-hours of the last hour by job, user, state and cause of loss, at the full hour; only written to a store.",
        Metric::new_gauge("gaunt_job_lost_gpu_hours", Fleet, Unit::Count, 0.001);
    JOB_ENERGY, "Energy of GPUs in the last hour by job, user, state and cause of loss, at the full hour; only written to a store.",
        Metric::new_gauge("gaunt_job_energy_joules", Fleet, Unit::Joules, 1.0);
    FABRIC_PORTS, "Ports by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_ports", Fleet, Unit::Count, 1.0);
    FABRIC_ACTIVE, "Ports that are active, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_active_ports", Fleet, Unit::Count, 1.0);
    FABRIC_RECEIVE, "Receive throughput as a share of the line rate, mean of the active ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_receive_ratio", Fleet, Unit::Ratio, 0.001);
    FABRIC_TRANSMIT, "Transmit throughput as a share of the line rate, mean of the active ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_transmit_ratio", Fleet, Unit::Ratio, 0.001);
    FABRIC_BUSIEST, "Throughput of the busier direction of the busiest port as a share of its line rate, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_busiest_ratio", Fleet, Unit::Ratio, 0.001);
    FABRIC_PAUSE_RECEIVED, "PFC pause time received, mean of the active ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_pause_received_ratio", Fleet, Unit::Ratio, 0.001);
    FABRIC_PAUSE_SENT, "PFC pause time sent, mean of the active ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_pause_sent_ratio", Fleet, Unit::Ratio, 0.001);
    FABRIC_CNP, "CNPs handled per second, mean of the active ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_cnp_handled_per_second", Fleet, Unit::Count, 0.1);
    FABRIC_ECN, "ECN-marked packets received per second, mean of the active ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_ecn_marked_per_second", Fleet, Unit::Count, 0.1);
    FABRIC_ERRORS, "Symbol errors, link recoveries, link downs and receive errors per second of all ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_errors_per_second", Fleet, Unit::Count, 0.1);
    FABRIC_DOWNS, "Link downs per second of all ports, by leaf and rail; only written to a store.",
        Metric::new_gauge("gaunt_fabric_downs_per_second", Fleet, Unit::Count, 0.001);
    FLAGGED_PORT, "The logical state of a port that is not active or that a finding is about, with its leaf, its rail and the kind of the finding: 0 unknown, 1 down, 2 initializing, 3 armed, 4 active; of a thousand ports at most, and only written to a store.",
        Metric::new_gauge("gaunt_flagged_port_state", Fleet, Unit::Count, 1.0);
    STORE_SENT, "Samples that the store accepted.",
        Metric::new_counter("gaunt_store_sent_samples_total", Fleet, Unit::Count, Bits64);
    STORE_SENT_BYTES, "Bytes of the requests that the store accepted.",
        Metric::new_counter("gaunt_store_sent_bytes_total", Fleet, Unit::Bytes, Bits64);
    STORE_REFUSED, "Samples that the store refused, by HTTP status, and those that it did not keep because it takes another replica's (202); they are not sent again.",
        Metric::new_counter("gaunt_store_refused_samples_total", Fleet, Unit::Count, Bits64);
    STORE_DROPPED, "Samples for the store that were given up, by reason: the backlog was full, a file of it was damaged, or they were over a limit.",
        Metric::new_counter("gaunt_store_dropped_samples_total", Fleet, Unit::Count, Bits64);
    STORE_FAILED, "Requests to the store that failed and are repeated.",
        Metric::new_counter("gaunt_store_failed_requests_total", Fleet, Unit::Count, Bits64);
    STORE_WAITING_BYTES, "Bytes of requests that wait for the store.",
        Metric::new_gauge("gaunt_store_waiting_bytes", Fleet, Unit::Bytes, 1.0);
    STORE_WAITING_SECONDS, "Age of the oldest sample that waits for the store in a full request; 0 if none waits.",
        Metric::new_gauge("gaunt_store_waiting_seconds", Fleet, Unit::Seconds, 1.0);
    STORE_SERIES, "Series that are written to the store.",
        Metric::new_gauge("gaunt_store_series", Fleet, Unit::Count, 1.0);
    CERTIFICATE_EXPIRY, "When a certificate that the aggregator presents expires, or the one of its chain that expires first.",
        Metric::new_gauge("gaunt_certificate_expiry_timestamp_seconds", Fleet, Unit::Seconds, 1.0);
    RECEIVE_REQUESTS, "Remote write requests that were received, by outcome: read, or refused because their form is invalid.",
        Metric::new_counter("gaunt_receive_requests_total", Fleet, Unit::Count, Bits64);
    RECEIVE_SAMPLES, "Samples that were received by remote write, by outcome: used, of metrics that gaunt does not read (unknown), of targets without the series up (without_target), of pages that were complete before (late), older than 15 minutes (old), more than a minute ahead (future), or over a limit of series and targets.",
        Metric::new_counter("gaunt_receive_samples_total", Fleet, Unit::Count, Bits64);
    RECEIVE_WAITING, "Received pages that are not complete, or wait for their instants.",
        Metric::new_gauge("gaunt_receive_waiting_pages", Fleet, Unit::Count, 1.0);
    PEER_UP, "Whether another aggregator of the cluster answers.",
        Metric::new_gauge("gaunt_peer_up", Fleet, Unit::Count, 1.0);
    PEER_WAITING, "Acknowledgements and other actions that another aggregator of the cluster does not have yet.",
        Metric::new_gauge("gaunt_peer_waiting_actions", Fleet, Unit::Count, 1.0);
    PEER_PASSED, "Acknowledgements and other actions that another aggregator of the cluster has taken.",
        Metric::new_counter("gaunt_peer_passed_actions_total", Fleet, Unit::Count, Bits64);
}
