//! Metrics of the parts of a GPU: its NVLinks, its errors by kind, its MIG instances and its processes.

use super::{MIB, Metric, gpu_health, rows};
use crate::{
    DeviceClass::{Mig, Nvlink, Process, Xid},
    unit::{CounterWidth::Bits64, Unit},
};

rows! {
    from gpu_health::END;
    NVLINK_INFO, "Where the NVLink leads: a PCI address, and the GPU's number if it is one of this node.",
        Metric::new_info_series("gaunt_nvlink_info", Nvlink, &["peer", "peer_gpu"]).with_rare_changes();
    NVLINK_UP, "Whether the NVLink is active.",
        Metric::new_gauge("gaunt_nvlink_up", Nvlink, Unit::Count, 1.0);
    NVLINK_RECEIVE_RATE, "Data that comes over the NVLink, averaged over the whole period.",
        Metric::new_gauge("gaunt_nvlink_receive_bytes_per_second", Nvlink, Unit::BytesPerSecond, 1e6)
            .with_integral("gaunt_nvlink_receive_bytes_total");
    NVLINK_TRANSMIT_RATE, "Data that goes over the NVLink, averaged over the whole period.",
        Metric::new_gauge("gaunt_nvlink_transmit_bytes_per_second", Nvlink, Unit::BytesPerSecond, 1e6)
            .with_integral("gaunt_nvlink_transmit_bytes_total");
    NVLINK_RECEIVE, "Data that came over the NVLink.",
        Metric::new_counter("gaunt_nvlink_receive_bytes_total", Nvlink, Unit::Bytes, Bits64);
    NVLINK_TRANSMIT, "Data that went over the NVLink.",
        Metric::new_counter("gaunt_nvlink_transmit_bytes_total", Nvlink, Unit::Bytes, Bits64);
    NVLINK_REPLAY, "Errors of the NVLink by kind; any is worth a look.",
        Metric::new_counter("gaunt_nvlink_errors_total", Nvlink, Unit::Count, Bits64).with_tag("kind", "replay");
    NVLINK_RECOVERY, "Errors of the NVLink by kind; any is worth a look.",
        Metric::new_counter("gaunt_nvlink_errors_total", Nvlink, Unit::Count, Bits64).with_tag("kind", "recovery");
    NVLINK_CRC, "Errors of the NVLink by kind; any is worth a look.",
        Metric::new_counter("gaunt_nvlink_errors_total", Nvlink, Unit::Count, Bits64).with_tag("kind", "crc");
    XID_INFO, "What an XID means, how bad it is and what to do.",
        Metric::new_info_series("gaunt_gpu_xid_info", Xid, &["severity", "meaning", "action"]);
    XID_ERRORS, "Driver errors of the GPU by XID, from the driver and from the kernel log, each counted once.",
        Metric::new_counter("gaunt_gpu_xid_errors_total", Xid, Unit::Count, Bits64);
    XID_RECENT, "Driver errors of this XID in the last 5 minutes.",
        Metric::new_gauge("gaunt_gpu_xid_errors_5m", Xid, Unit::Count, 1.0);
    XID_LAST_SEEN, "When this XID was last seen.",
        Metric::new_gauge("gaunt_gpu_xid_last_seen_timestamp_seconds", Xid, Unit::Seconds, 1.0);
    MIG_INFO, "Who the MIG instance is.",
        Metric::new_info_series("gaunt_mig_info", Mig, &["uuid", "name", "gpu_instance", "compute_instance", "namespace", "pod", "container"]);
    MIG_MEMORY_USED, "Memory in use.",
        Metric::new_gauge("gaunt_mig_memory_used_bytes", Mig, Unit::Bytes, MIB);
    MIG_MEMORY_TOTAL, "Memory of the instance.",
        Metric::new_gauge("gaunt_mig_memory_total_bytes", Mig, Unit::Bytes, MIB).with_rare_changes();
    MIG_SM_ACTIVE, "Share of cycles in which a multiprocessor of the instance held a warp.",
        Metric::new_gauge("gaunt_mig_sm_active_ratio", Mig, Unit::Ratio, 0.005)
            .with_integral("gaunt_mig_sm_active_seconds_total");
    MIG_SM_ACTIVE_SECONDS, "The integral of gaunt_mig_sm_active_ratio.",
        Metric::new_counter("gaunt_mig_sm_active_seconds_total", Mig, Unit::Seconds, Bits64);
    MIG_TENSOR_ACTIVE, "Share of cycles in which a tensor pipe of the instance was busy.",
        Metric::new_gauge("gaunt_mig_tensor_active_ratio", Mig, Unit::Ratio, 0.005)
            .with_integral("gaunt_mig_tensor_active_seconds_total");
    MIG_TENSOR_ACTIVE_SECONDS, "The integral of gaunt_mig_tensor_active_ratio.",
        Metric::new_counter("gaunt_mig_tensor_active_seconds_total", Mig, Unit::Seconds, Bits64);
    MIG_DRAM_ACTIVE, "Share of cycles in which the memory interface of the instance moved data.",
        Metric::new_gauge("gaunt_mig_dram_active_ratio", Mig, Unit::Ratio, 0.005)
            .with_integral("gaunt_mig_dram_active_seconds_total");
    MIG_DRAM_ACTIVE_SECONDS, "The integral of gaunt_mig_dram_active_ratio.",
        Metric::new_counter("gaunt_mig_dram_active_seconds_total", Mig, Unit::Seconds, Bits64);
    PROCESS_INFO, "Whose process it is: job, pod or container as its cgroup tells.",
        Metric::new_info_series("gaunt_gpu_process_info", Process,
            &["name", "user", "job", "step", "namespace", "pod", "container", "pod_uid", "source"]);
    PROCESS_MEMORY, "Device memory that the process holds.",
        Metric::new_gauge("gaunt_gpu_process_memory_bytes", Process, Unit::Bytes, MIB);
    PROCESS_SM, "Share of the driver's last samples in which the process ran a kernel.",
        Metric::new_gauge("gaunt_gpu_process_utilization_ratio", Process, Unit::Ratio, 0.01);
}
