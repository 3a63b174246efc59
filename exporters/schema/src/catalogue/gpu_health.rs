//! Metrics of a GPU's health, limits and host link.

use super::{
    MIB, Metric, NVLINK_RATE_UNIT,
    UnitScale::{Per, Same, Times},
    dcgm_name, gpu, rows,
};
use crate::{
    DeviceClass::Gpu,
    unit::{CounterWidth::Bits64, Unit},
};

rows! {
    from gpu::END;
    MEMORY_RESERVED, "Framebuffer memory that the driver keeps for itself.",
        Metric::new_gauge("gaunt_gpu_memory_reserved_bytes", Gpu, Unit::Bytes, MIB)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_FB_RESERVED", Times(MIB))]).with_rare_changes();
    BAR1_USED, "Host-visible window of device memory in use.",
        Metric::new_gauge("gaunt_gpu_bar1_used_bytes", Gpu, Unit::Bytes, MIB)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_BAR1_USED", Times(MIB))]);
    BAR1_TOTAL, "Host-visible window of device memory.",
        Metric::new_gauge("gaunt_gpu_bar1_total_bytes", Gpu, Unit::Bytes, MIB)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_BAR1_TOTAL", Times(MIB))]).with_rare_changes();
    ENCODER, "Share of the driver's last window in which the video encoder was busy.",
        Metric::new_gauge("gaunt_gpu_encoder_utilization_ratio", Gpu, Unit::Ratio, 0.01)
            .with_integral("gaunt_gpu_encoder_utilization_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ENC_UTIL", Per(100.0))]);
    ENCODER_SECONDS, "The integral of gaunt_gpu_encoder_utilization_ratio.",
        Metric::new_counter("gaunt_gpu_encoder_utilization_seconds_total", Gpu, Unit::Seconds, Bits64);
    DECODER, "Share of the driver's last window in which the video decoder was busy.",
        Metric::new_gauge("gaunt_gpu_decoder_utilization_ratio", Gpu, Unit::Ratio, 0.01)
            .with_integral("gaunt_gpu_decoder_utilization_seconds_total")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_DEC_UTIL", Per(100.0))]);
    DECODER_SECONDS, "The integral of gaunt_gpu_decoder_utilization_ratio.",
        Metric::new_counter("gaunt_gpu_decoder_utilization_seconds_total", Gpu, Unit::Seconds, Bits64);
    JPEG, "Share of the driver's last window in which the JPEG engine was busy.",
        Metric::new_gauge("gaunt_gpu_jpeg_utilization_ratio", Gpu, Unit::Ratio, 0.01)
            .with_integral("gaunt_gpu_jpeg_utilization_seconds_total");
    JPEG_SECONDS, "The integral of gaunt_gpu_jpeg_utilization_ratio.",
        Metric::new_counter("gaunt_gpu_jpeg_utilization_seconds_total", Gpu, Unit::Seconds, Bits64);
    OFA, "Share of the driver's last window in which the optical-flow engine was busy.",
        Metric::new_gauge("gaunt_gpu_ofa_utilization_ratio", Gpu, Unit::Ratio, 0.01)
            .with_integral("gaunt_gpu_ofa_utilization_seconds_total");
    OFA_SECONDS, "The integral of gaunt_gpu_ofa_utilization_ratio.",
        Metric::new_counter("gaunt_gpu_ofa_utilization_seconds_total", Gpu, Unit::Seconds, Bits64);
    POWER_INSTANT, "Power draw at this instant.",
        Metric::new_gauge("gaunt_gpu_power_instant_watts", Gpu, Unit::Watts, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_POWER_USAGE_INSTANT", Same)]);
    POWER_DEFAULT_LIMIT, "Power limit with which the board starts.",
        Metric::new_gauge("gaunt_gpu_power_default_limit_watts", Gpu, Unit::Watts, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", Same)]).with_rare_changes();
    MEMORY_TEMPERATURE, "Temperature of the device memory.",
        Metric::new_gauge("gaunt_gpu_memory_temperature_celsius", Gpu, Unit::Celsius, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_MEMORY_TEMP", Same)]);
    SLOWDOWN_TEMPERATURE, "Temperature from which the hardware slows its clocks.",
        Metric::new_gauge("gaunt_gpu_slowdown_temperature_celsius", Gpu, Unit::Celsius, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_SLOWDOWN_TEMP", Same)]).with_rare_changes();
    SHUTDOWN_TEMPERATURE, "Temperature at which the board switches itself off.",
        Metric::new_gauge("gaunt_gpu_shutdown_temperature_celsius", Gpu, Unit::Celsius, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_SHUTDOWN_TEMP", Same)]).with_rare_changes();
    TEMPERATURE_MARGIN, "Degrees that are left before the clocks are slowed.",
        Metric::new_gauge("gaunt_gpu_temperature_margin_celsius", Gpu, Unit::Celsius, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_GPU_TEMP_LIMIT", Same)]);
    MEMORY_CLOCK, "Clock of the device memory.",
        Metric::new_gauge("gaunt_gpu_memory_clock_hertz", Gpu, Unit::Hertz, 15e6)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_MEM_CLOCK", Times(1e6))]);
    MEMORY_CLOCK_MAX, "Highest clock of the device memory.",
        Metric::new_gauge("gaunt_gpu_memory_clock_max_hertz", Gpu, Unit::Hertz, 15e6)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_MAX_MEM_CLOCK", Times(1e6))]).with_rare_changes();
    PERFORMANCE_STATE, "Performance state: 0 is the fastest, 15 the slowest.",
        Metric::new_gauge("gaunt_gpu_performance_state", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_PSTATE", Same)]);
    VIOLATION_POWER, "Time for which this reason held the clocks below what was asked.",
        Metric::new_counter("gaunt_gpu_violation_seconds_total", Gpu, Unit::Seconds, Bits64).with_tag("reason", "power")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_POWER_VIOLATION", Per(1e9))]);
    VIOLATION_THERMAL, "Time for which this reason held the clocks below what was asked.",
        Metric::new_counter("gaunt_gpu_violation_seconds_total", Gpu, Unit::Seconds, Bits64).with_tag("reason", "thermal")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_THERMAL_VIOLATION", Per(1e9))]);
    VIOLATION_SYNC_BOOST, "Time for which this reason held the clocks below what was asked.",
        Metric::new_counter("gaunt_gpu_violation_seconds_total", Gpu, Unit::Seconds, Bits64).with_tag("reason", "sync_boost")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", Per(1e9))]);
    VIOLATION_BOARD_LIMIT, "Time for which this reason held the clocks below what was asked.",
        Metric::new_counter("gaunt_gpu_violation_seconds_total", Gpu, Unit::Seconds, Bits64).with_tag("reason", "board_limit")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", Per(1e9))]);
    VIOLATION_LOW_UTILIZATION, "Time for which this reason held the clocks below what was asked.",
        Metric::new_counter("gaunt_gpu_violation_seconds_total", Gpu, Unit::Seconds, Bits64).with_tag("reason", "low_utilization")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_LOW_UTIL_VIOLATION", Per(1e9))]);
    VIOLATION_RELIABILITY, "Time for which this reason held the clocks below what was asked.",
        Metric::new_counter("gaunt_gpu_violation_seconds_total", Gpu, Unit::Seconds, Bits64).with_tag("reason", "reliability")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_RELIABILITY_VIOLATION", Per(1e9))]);
    PCIE_GENERATION, "Generation at which the PCIe link runs now; it falls when the GPU idles.",
        Metric::new_gauge("gaunt_gpu_pcie_generation", Gpu, Unit::Count, 1.0).with_history()
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_PCIE_LINK_GEN", Same)]);
    PCIE_GENERATION_MAX, "Highest generation of PCIe that GPU and slot share.",
        Metric::new_gauge("gaunt_gpu_pcie_generation_max", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", Same)]).with_rare_changes();
    PCIE_WIDTH, "Lanes on which the PCIe link runs now.",
        Metric::new_gauge("gaunt_gpu_pcie_width_lanes", Gpu, Unit::Count, 1.0).with_history()
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_PCIE_LINK_WIDTH", Same)]);
    PCIE_WIDTH_MAX, "Most PCIe lanes that GPU and slot share.",
        Metric::new_gauge("gaunt_gpu_pcie_width_max_lanes", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", Same)]).with_rare_changes();
    PCIE_REPLAYS, "Packets that were sent again over PCIe.",
        Metric::new_counter("gaunt_gpu_pcie_replays_total", Gpu, Unit::Count, Bits64).with_history()
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", Same)]);
    ECC_CORRECTED_VOLATILE, "Memory errors found by ECC: since the driver was loaded.",
        Metric::new_counter("gaunt_gpu_ecc_volatile_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "corrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", Same)]);
    ECC_UNCORRECTED_VOLATILE, "Memory errors found by ECC: since the driver was loaded.",
        Metric::new_counter("gaunt_gpu_ecc_volatile_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "uncorrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", Same)]);
    ECC_CORRECTED_AGGREGATE, "Memory errors found by ECC: in the life of the board.",
        Metric::new_counter("gaunt_gpu_ecc_aggregate_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "corrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", Same)]).with_rare_changes();
    ECC_UNCORRECTED_AGGREGATE, "Memory errors found by ECC: in the life of the board.",
        Metric::new_counter("gaunt_gpu_ecc_aggregate_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "uncorrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", Same)]).with_rare_changes();
    RETIRED_CORRECTED, "Pages of memory that were retired, by the kind of error that did it.",
        Metric::new_gauge("gaunt_gpu_retired_pages", Gpu, Unit::Count, 1.0).with_tag("kind", "corrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_RETIRED_SBE", Same)]).with_rare_changes();
    RETIRED_UNCORRECTED, "Pages of memory that were retired, by the kind of error that did it.",
        Metric::new_gauge("gaunt_gpu_retired_pages", Gpu, Unit::Count, 1.0).with_tag("kind", "uncorrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_RETIRED_DBE", Same)]).with_rare_changes();
    RETIRED_PENDING, "Whether pages wait for a reset to be retired.",
        Metric::new_gauge("gaunt_gpu_retired_pages_pending", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_RETIRED_PENDING", Same)]).with_rare_changes();
    REMAPPED_CORRECTED, "Rows of memory that were replaced by spare ones, by the kind of error that did it.",
        Metric::new_gauge("gaunt_gpu_remapped_rows", Gpu, Unit::Count, 1.0).with_tag("kind", "corrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", Same)]);
    REMAPPED_UNCORRECTED, "Rows of memory that were replaced by spare ones, by the kind of error that did it.",
        Metric::new_gauge("gaunt_gpu_remapped_rows", Gpu, Unit::Count, 1.0).with_tag("kind", "uncorrected")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", Same)]);
    REMAP_PENDING, "Whether rows wait for a reset to be replaced.",
        Metric::new_gauge("gaunt_gpu_row_remap_pending", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ROW_REMAP_PENDING", Same)]).with_rare_changes();
    REMAP_FAILED, "Whether a row could not be replaced: the board is to be exchanged.",
        Metric::new_gauge("gaunt_gpu_row_remap_failed", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_ROW_REMAP_FAILURE", Same)]);
    NVLINK_CRC_FLIT, "Checksum errors on all NVLinks of the GPU, by what was hit.",
        Metric::new_counter("gaunt_gpu_nvlink_crc_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "flit")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", Same)]);
    NVLINK_CRC_DATA, "Checksum errors on all NVLinks of the GPU, by what was hit.",
        Metric::new_counter("gaunt_gpu_nvlink_crc_errors_total", Gpu, Unit::Count, Bits64).with_tag("kind", "data")
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", Same)]);
    RECOVERY_ACTION, "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peer-to-peer, 4 drain and reset.",
        Metric::new_gauge("gaunt_gpu_recovery_action", Gpu, Unit::Count, 1.0);
    FABRIC_STATE, "Registration with the NVLink fabric: 0 none, 1 not started, 2 in progress, 3 complete, 4 failed.",
        Metric::new_gauge("gaunt_gpu_fabric_state", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", Same)]);
    FABRIC_HEALTH_MASK, "Health of the NVLink fabric, two bits each from the lowest (1 faulty, 2 healthy): bandwidth, route recovery, route, access timeout; then four bits: configuration (2 and above wrong).",
        Metric::new_gauge("gaunt_gpu_fabric_health_mask", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_FABRIC_HEALTH_MASK", Same)]);
    FABRIC_HEALTH_SUMMARY, "Health of the NVLink fabric in one word: 0 unknown, 1 healthy, 2 unhealthy, 3 limited capacity.",
        Metric::new_gauge("gaunt_gpu_fabric_health", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", Same)]);
    IMEX_STATE, "State of the IMEX daemon of the GPU's node: 0 to 4 starting, 5 ready, 6 shutting down, 7 unavailable, below 0 not installed or not configured.",
        Metric::new_gauge("gaunt_gpu_imex_daemon_state", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_IMEX_DAEMON_STATUS", Same)]);
    MIG_MODE, "Whether the GPU is partitioned into MIG instances.",
        Metric::new_gauge("gaunt_gpu_mig_mode", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_MIG_MODE", Same)]).with_rare_changes();
    NVLINK_RATE, "Data that comes and goes over all NVLinks together.",
        Metric::new_gauge("gaunt_gpu_nvlink_bytes_per_second", Gpu, Unit::BytesPerSecond, 1e6)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", Times(NVLINK_RATE_UNIT))]);
    VGPU_LICENSED, "Whether the virtual GPU has a license.",
        Metric::new_gauge("gaunt_gpu_vgpu_licensed", Gpu, Unit::Count, 1.0)
            .with_foreign(&[dcgm_name("DCGM_FI_DEV_VGPU_LICENSE_STATUS", Same)]).with_rare_changes();
}
