//! Metrics of a GPU as a whole.

use super::{
    MIB, Metric,
    UnitScale::{Per, Same, Times},
    dcgm_name, host, rows,
};
use crate::{
    DeviceClass::Gpu,
    unit::{CounterWidth::Bits64, Unit},
};

/// The label that holds the clock-event reason.
const REASON: &str = "reason";

const fn clock_event(reason: &'static str) -> Metric {
    Metric::new_gauge("gaunt_gpu_clock_event", Gpu, Unit::Count, 1.0)
        .with_tag(REASON, reason)
        .with_history()
}

const fn recent_event(reason: &'static str) -> Metric {
    Metric::new_gauge("gaunt_gpu_clock_event_5m_ticks", Gpu, Unit::Count, 1.0)
        .with_tag(REASON, reason)
}

rows! {
    from host::END;
    INFO, "Who the GPU is.",
        Metric::new_info_series("gaunt_gpu_info", Gpu,
            &["uuid", "model", "pci_bus_id", "serial", "driver", "vbios", "numa_node", "nics", "nics_by", "compute_mode", "persistence",
                "cluster_uuid", "clique"]).with_rare_changes();
    JOB_INFO, "The job that holds the GPU.",
        Metric::new_info_series("gaunt_gpu_job_info", Gpu, &["job", "step", "name", "user", "rank", "namespace", "pod", "container", "pod_uid", "source", "shared_by"]);
    PRESENT, "Whether the GPU answers: 0 after it was seen once and is gone.",
        Metric::new_gauge("gaunt_gpu_present", Gpu, Unit::Count, 1.0);
    UTILIZATION, "Share of the driver's last window in which a kernel ran, however small.",
        Metric::new_gauge("gaunt_gpu_utilization_ratio", Gpu, Unit::Ratio, 0.01)
            .with_history().with_integral("gaunt_gpu_utilization_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_GPU_UTIL", Per(100.0))]);
    UTILIZATION_SECONDS, "Time in which a kernel ran: the integral of gaunt_gpu_utilization_ratio.",
        Metric::new_counter("gaunt_gpu_utilization_seconds_total", Gpu, Unit::Seconds, Bits64);
    MEMORY_ACTIVITY, "Share of the driver's last window in which device memory was read or written.",
        Metric::new_gauge("gaunt_gpu_memory_activity_ratio", Gpu, Unit::Ratio, 0.01)
            .with_history().with_integral("gaunt_gpu_memory_activity_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_MEM_COPY_UTIL", Per(100.0))]);
    MEMORY_ACTIVITY_SECONDS, "Time of device memory traffic: the integral of gaunt_gpu_memory_activity_ratio.",
        Metric::new_counter("gaunt_gpu_memory_activity_seconds_total", Gpu, Unit::Seconds, Bits64);
    MEMORY_USED, "Framebuffer memory in use.",
        Metric::new_gauge("gaunt_gpu_memory_used_bytes", Gpu, Unit::Bytes, MIB)
            .with_history().with_foreign(&[dcgm_name("DCGM_FI_DEV_FB_USED", Times(MIB))]);
    MEMORY_FREE, "Framebuffer memory that is free.",
        Metric::new_gauge("gaunt_gpu_memory_free_bytes", Gpu, Unit::Bytes, MIB)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_FB_FREE", Times(MIB))]);
    MEMORY_TOTAL, "Framebuffer memory of the board.",
        Metric::new_gauge("gaunt_gpu_memory_total_bytes", Gpu, Unit::Bytes, MIB)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_FB_TOTAL", Times(MIB))]).with_rare_changes();
    POWER, "Power draw of the board.",
        Metric::new_gauge("gaunt_gpu_power_watts", Gpu, Unit::Watts, 1.0)
            .with_history().with_integral("gaunt_gpu_energy_joules_total")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_POWER_USAGE", Same)]);
    POWER_LIMIT, "Power limit that is enforced.",
        Metric::new_gauge("gaunt_gpu_power_limit_watts", Gpu, Unit::Watts, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", Same)]).with_rare_changes();
    ENERGY, "Energy used since the driver was loaded.",
        Metric::new_counter("gaunt_gpu_energy_joules_total", Gpu, Unit::Joules, Bits64)
            .with_history()
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Per(1e3))]);
    TEMPERATURE, "Temperature of the GPU die.",
        Metric::new_gauge("gaunt_gpu_temperature_celsius", Gpu, Unit::Celsius, 1.0)
            .with_history().with_foreign(&[dcgm_name("DCGM_FI_DEV_GPU_TEMP", Same)]);
    SM_CLOCK, "Clock of the streaming multiprocessors.",
        Metric::new_gauge("gaunt_gpu_sm_clock_hertz", Gpu, Unit::Hertz, 15e6)
            .with_history().with_foreign(&[dcgm_name("DCGM_FI_DEV_SM_CLOCK", Times(1e6))]);
    SM_CLOCK_MAX, "Highest clock of the streaming multiprocessors.",
        Metric::new_gauge("gaunt_gpu_sm_clock_max_hertz", Gpu, Unit::Hertz, 15e6)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_MAX_SM_CLOCK", Times(1e6))]).with_rare_changes();
    PROCESSES, "Processes that hold a compute context on the GPU.",
        Metric::new_gauge("gaunt_gpu_processes", Gpu, Unit::Count, 1.0);
    CLOCK_EVENT_IDLE, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("idle");
    CLOCK_EVENT_APPLICATION_CLOCKS, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("application_clocks");
    CLOCK_EVENT_SW_POWER_CAP, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("sw_power_cap");
    CLOCK_EVENT_HW_SLOWDOWN, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("hw_slowdown");
    CLOCK_EVENT_SYNC_BOOST, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("sync_boost");
    CLOCK_EVENT_SW_THERMAL, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("sw_thermal");
    CLOCK_EVENT_HW_THERMAL, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("hw_thermal");
    CLOCK_EVENT_HW_POWER_BRAKE, "Whether this reason holds the clock now (1) or not (0).",
        clock_event("hw_power_brake");
    RECENT_IDLE, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("idle");
    RECENT_APPLICATION_CLOCKS, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("application_clocks");
    RECENT_SW_POWER_CAP, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("sw_power_cap");
    RECENT_HW_SLOWDOWN, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("hw_slowdown");
    RECENT_SYNC_BOOST, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("sync_boost");
    RECENT_SW_THERMAL, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("sw_thermal");
    RECENT_HW_THERMAL, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("hw_thermal");
    RECENT_HW_POWER_BRAKE, "Ticks of the last 5 minutes in which this reason held the clock.",
        recent_event("hw_power_brake");
    SM_ACTIVE, "Share of cycles in which a multiprocessor held at least one warp, averaged over all of them.",
        Metric::new_gauge("gaunt_gpu_sm_active_ratio", Gpu, Unit::Ratio, 0.005)
            .with_history().with_integral("gaunt_gpu_sm_active_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_SM_ACTIVE", Same)]);
    SM_ACTIVE_SECONDS, "The integral of gaunt_gpu_sm_active_ratio.",
        Metric::new_counter("gaunt_gpu_sm_active_seconds_total", Gpu, Unit::Seconds, Bits64);
    TENSOR_ACTIVE, "Share of cycles in which a tensor pipe was busy.",
        Metric::new_gauge("gaunt_gpu_tensor_active_ratio", Gpu, Unit::Ratio, 0.005)
            .with_history().with_integral("gaunt_gpu_tensor_active_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", Same)]);
    TENSOR_ACTIVE_SECONDS, "The integral of gaunt_gpu_tensor_active_ratio.",
        Metric::new_counter("gaunt_gpu_tensor_active_seconds_total", Gpu, Unit::Seconds, Bits64);
    DRAM_ACTIVE, "Share of cycles in which the memory interface moved data.",
        Metric::new_gauge("gaunt_gpu_dram_active_ratio", Gpu, Unit::Ratio, 0.005)
            .with_history().with_integral("gaunt_gpu_dram_active_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_DRAM_ACTIVE", Same)]);
    DRAM_ACTIVE_SECONDS, "The integral of gaunt_gpu_dram_active_ratio.",
        Metric::new_counter("gaunt_gpu_dram_active_seconds_total", Gpu, Unit::Seconds, Bits64);
    SM_OCCUPANCY, "Warps that multiprocessors held, as a share of those that they can hold.",
        Metric::new_gauge("gaunt_gpu_sm_occupancy_ratio", Gpu, Unit::Ratio, 0.005)
            .with_history().with_integral("gaunt_gpu_sm_occupancy_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_SM_OCCUPANCY", Same)]);
    SM_OCCUPANCY_SECONDS, "The integral of gaunt_gpu_sm_occupancy_ratio.",
        Metric::new_counter("gaunt_gpu_sm_occupancy_seconds_total", Gpu, Unit::Seconds, Bits64);
    GRAPHICS_ACTIVE, "Share of time in which any part of the compute or graphics engine was busy.",
        Metric::new_gauge("gaunt_gpu_graphics_active_ratio", Gpu, Unit::Ratio, 0.005)
            .with_integral("gaunt_gpu_graphics_active_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_GR_ENGINE_ACTIVE", Same)]);
    GRAPHICS_ACTIVE_SECONDS, "The integral of gaunt_gpu_graphics_active_ratio.",
        Metric::new_counter("gaunt_gpu_graphics_active_seconds_total", Gpu, Unit::Seconds, Bits64);
    FP64_ACTIVE, "Share of cycles in which an FP64 pipe was busy.",
        Metric::new_gauge("gaunt_gpu_fp64_active_ratio", Gpu, Unit::Ratio, 0.005)
            .with_integral("gaunt_gpu_fp64_active_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_PIPE_FP64_ACTIVE", Same)]);
    FP64_ACTIVE_SECONDS, "The integral of gaunt_gpu_fp64_active_ratio.",
        Metric::new_counter("gaunt_gpu_fp64_active_seconds_total", Gpu, Unit::Seconds, Bits64);
    FP32_ACTIVE, "Share of cycles in which an FP32 pipe was busy.",
        Metric::new_gauge("gaunt_gpu_fp32_active_ratio", Gpu, Unit::Ratio, 0.005)
            .with_integral("gaunt_gpu_fp32_active_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_PIPE_FP32_ACTIVE", Same)]);
    FP32_ACTIVE_SECONDS, "The integral of gaunt_gpu_fp32_active_ratio.",
        Metric::new_counter("gaunt_gpu_fp32_active_seconds_total", Gpu, Unit::Seconds, Bits64);
    FP16_ACTIVE, "Share of cycles in which an FP16 pipe was busy, tensor pipes apart.",
        Metric::new_gauge("gaunt_gpu_fp16_active_ratio", Gpu, Unit::Ratio, 0.005)
            .with_integral("gaunt_gpu_fp16_active_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_PIPE_FP16_ACTIVE", Same)]);
    FP16_ACTIVE_SECONDS, "The integral of gaunt_gpu_fp16_active_ratio.",
        Metric::new_counter("gaunt_gpu_fp16_active_seconds_total", Gpu, Unit::Seconds, Bits64);
    SM_BELOW_5, "Time in which gaunt_gpu_sm_active_ratio was below 5 per cent, looked at several times a period.",
        Metric::new_counter("gaunt_gpu_sm_active_below_5_percent_seconds_total", Gpu, Unit::Seconds, Bits64);
    UTILIZATION_BELOW_5, "Time in which gaunt_gpu_utilization_ratio was below 5 per cent.",
        Metric::new_counter("gaunt_gpu_utilization_below_5_percent_seconds_total", Gpu, Unit::Seconds, Bits64);
    SM_ACTIVE_MIN, "Lowest SM activity of the last 10 s, looked at several times a period.",
        Metric::new_gauge("gaunt_gpu_sm_active_10s_min_ratio", Gpu, Unit::Ratio, 0.005);
    SM_ACTIVE_MAX, "Highest SM activity of the last 10 s, looked at several times a period.",
        Metric::new_gauge("gaunt_gpu_sm_active_10s_max_ratio", Gpu, Unit::Ratio, 0.005);
    POWER_MIN, "Lowest reading of the board's present power in the last 10 s, read several times a period.",
        Metric::new_gauge("gaunt_gpu_power_10s_min_watts", Gpu, Unit::Watts, 1.0);
    POWER_MAX, "Highest reading of the board's present power in the last 10 s, read several times a period.",
        Metric::new_gauge("gaunt_gpu_power_10s_max_watts", Gpu, Unit::Watts, 1.0);
    PCIE_RECEIVE_RATE, "Data that comes from the host over PCIe, averaged over the whole period.",
        Metric::new_gauge("gaunt_gpu_pcie_receive_bytes_per_second", Gpu, Unit::BytesPerSecond, 1e6)
            .with_integral("gaunt_gpu_pcie_receive_bytes_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_PCIE_RX_BYTES", Same)]);
    PCIE_TRANSMIT_RATE, "Data that goes to the host over PCIe, averaged over the whole period.",
        Metric::new_gauge("gaunt_gpu_pcie_transmit_bytes_per_second", Gpu, Unit::BytesPerSecond, 1e6)
            .with_integral("gaunt_gpu_pcie_transmit_bytes_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_PCIE_TX_BYTES", Same)]);
    NVLINK_RECEIVE_RATE, "Data that comes over all NVLinks, averaged over the whole period.",
        Metric::new_gauge("gaunt_gpu_nvlink_receive_bytes_per_second", Gpu, Unit::BytesPerSecond, 1e6)
            .with_integral("gaunt_gpu_nvlink_receive_bytes_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_NVLINK_RX_BYTES", Same)]);
    NVLINK_TRANSMIT_RATE, "Data that goes over all NVLinks, averaged over the whole period.",
        Metric::new_gauge("gaunt_gpu_nvlink_transmit_bytes_per_second", Gpu, Unit::BytesPerSecond, 1e6)
            .with_integral("gaunt_gpu_nvlink_transmit_bytes_total")
            .with_foreign(&[dcgm_name("DCGM_FI_PROF_NVLINK_TX_BYTES", Same)]);
    PCIE_RECEIVE, "Data that came from the host over PCIe.",
        Metric::new_counter("gaunt_gpu_pcie_receive_bytes_total", Gpu, Unit::Bytes, Bits64).with_history();
    PCIE_TRANSMIT, "Data that went to the host over PCIe.",
        Metric::new_counter("gaunt_gpu_pcie_transmit_bytes_total", Gpu, Unit::Bytes, Bits64).with_history();
    NVLINK_RECEIVE, "Data that came over all NVLinks of the GPU.",
        Metric::new_counter("gaunt_gpu_nvlink_receive_bytes_total", Gpu, Unit::Bytes, Bits64).with_history();
    NVLINK_TRANSMIT, "Data that went over all NVLinks of the GPU.",
        Metric::new_counter("gaunt_gpu_nvlink_transmit_bytes_total", Gpu, Unit::Bytes, Bits64).with_history();
}

/// Every clock-event reason with its bit in NVML's mask.
pub const CLOCK_EVENTS: &[(u64, crate::MetricId)] = &[
    (0x01, CLOCK_EVENT_IDLE),
    (0x02, CLOCK_EVENT_APPLICATION_CLOCKS),
    (0x04, CLOCK_EVENT_SW_POWER_CAP),
    (0x08, CLOCK_EVENT_HW_SLOWDOWN),
    (0x10, CLOCK_EVENT_SYNC_BOOST),
    (0x20, CLOCK_EVENT_SW_THERMAL),
    (0x40, CLOCK_EVENT_HW_THERMAL),
    (0x80, CLOCK_EVENT_HW_POWER_BRAKE),
];

/// For each reason in [`CLOCK_EVENTS`], the metric of how long it recently limited the clock.
pub const RECENT_CLOCK_EVENTS: [crate::MetricId; CLOCK_EVENTS.len()] = [
    RECENT_IDLE,
    RECENT_APPLICATION_CLOCKS,
    RECENT_SW_POWER_CAP,
    RECENT_HW_SLOWDOWN,
    RECENT_SYNC_BOOST,
    RECENT_SW_THERMAL,
    RECENT_HW_THERMAL,
    RECENT_HW_POWER_BRAKE,
];
