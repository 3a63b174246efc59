//! The fields of dcgm-exporter: identifiers, names, help texts, types and values.

use super::{
    decimal::Decimal,
    gpu_sampler::{GpuProfile, GpuSample},
    gpu_view::GpuView,
};
use crate::exporter_plan::GpuMetricSet;

/// One field of a collector list.
#[derive(Clone, Copy, Debug)]
pub(super) struct DcgmField {
    /// DCGM's number: families are in its order.
    pub(super) id: u16,
    /// Name, without `DCGM_FI_`.
    pub(super) name: &'static str,
    /// Name from 4.9 on, if it is another.
    pub(super) name_of_49: &'static str,
    /// Help text.
    pub(super) help: &'static str,
    /// Whether its type is counter.
    pub(super) is_counter: bool,
    /// The unit of 4.9, where it is another.
    pub(super) unit_of_49: UnitOf49,
    /// Which lists have it.
    pub(super) set: FieldSet,
    /// Its value in the unit of 3.x and 4.8; none if it is blank.
    pub(super) value: fn(&GpuView<'_>) -> Option<Decimal>,
}

/// Which collector lists have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldSet {
    /// All.
    Minimal,
    /// The default list and the full one.
    Default,
    /// The same, but not of 3.x.
    DefaultOf4,
    /// The full list.
    Full,
}

/// How 4.9 changed a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitOf49 {
    /// Not at all.
    Same,
    /// Per cent to a ratio.
    PercentToRatio,
    /// Megahertz to hertz.
    MegahertzToHertz,
    /// Millijoules to joules.
    MillijoulesToJoules,
    /// Nanoseconds to seconds.
    NanosecondsToSeconds,
    /// Mebibytes to bytes.
    MebibytesToBytes,
    /// Thousands of KiB per second to bytes per second.
    ThousandKibToBytes,
}

impl UnitOf49 {
    /// What help texts say of the unit before 4.9 and since.
    pub(super) const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Same => ("(", ""),
            Self::PercentToRatio => (" (in %)", " (0.0-1.0)."),
            Self::MegahertzToHertz => (" (in MHz)", " (in Hz)."),
            Self::MillijoulesToJoules => (" (in mJ)", " (in J)."),
            Self::NanosecondsToSeconds => (" (in ns)", " (in seconds)."),
            Self::MebibytesToBytes => (" (in MiB)", " (in bytes)."),
            Self::ThousandKibToBytes => (" for all", " for all lanes (in bytes per second)."),
        }
    }

    /// The value in the unit of 4.9.
    pub(super) fn convert(self, value: Decimal) -> Decimal {
        match self {
            Self::Same => value,
            Self::PercentToRatio => value.extended(4).with_decimals(6),
            Self::MegahertzToHertz => value.times(1_000_000),
            Self::MillijoulesToJoules => value.times(1_000).with_decimals(6),
            Self::NanosecondsToSeconds => Decimal::floored(value.value() / 1e9, 6),
            Self::MebibytesToBytes => value.times(1_048_576),
            Self::ThousandKibToBytes => value.times(1_024_000),
        }
    }
}

impl DcgmField {
    /// Whether a list of a version has the field.
    pub(super) fn is_in_list(&self, set: GpuMetricSet, is_version_3: bool) -> bool {
        match self.set {
            FieldSet::Minimal => true,
            FieldSet::Default => set != GpuMetricSet::Minimal,
            FieldSet::DefaultOf4 => set != GpuMetricSet::Minimal && !is_version_3,
            FieldSet::Full => set == GpuMetricSet::Full,
        }
    }
}

type FieldValue = fn(&GpuView<'_>) -> Option<Decimal>;

const fn gauge(
    id: u16,
    name: &'static str,
    name_of_49: &'static str,
    help: &'static str,
    set: FieldSet,
    value: FieldValue,
) -> DcgmField {
    let unit_of_49 = UnitOf49::Same;
    DcgmField { id, name, name_of_49, help, is_counter: false, unit_of_49, set, value }
}

const fn counter(
    id: u16,
    name: &'static str,
    name_of_49: &'static str,
    help: &'static str,
    set: FieldSet,
    value: FieldValue,
) -> DcgmField {
    DcgmField { is_counter: true, ..gauge(id, name, name_of_49, help, set, value) }
}

impl DcgmField {
    const fn with_unit(mut self, unit: UnitOf49) -> Self {
        self.unit_of_49 = unit;
        self
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the values of a table have one type")]
fn zero(_: &GpuView<'_>) -> Option<Decimal> {
    Some(Decimal::whole(0))
}

#[expect(clippy::unnecessary_wraps, reason = "the values of a table have one type")]
fn count(value: f64) -> Option<Decimal> {
    Some(Decimal::count(value))
}

#[expect(clippy::unnecessary_wraps, reason = "the values of a table have one type")]
fn nearest(value: f64) -> Option<Decimal> {
    Some(Decimal::nearest(value))
}

#[expect(clippy::unnecessary_wraps, reason = "the values of a table have one type")]
fn real(value: f64) -> Option<Decimal> {
    Some(Decimal::rounded(value, 6))
}

/// A percentage of NVML, which it has for whole GPUs only.
fn percent(view: &GpuView<'_>, value: fn(&GpuSample) -> f64) -> Option<Decimal> {
    view.instance.is_none().then(|| Decimal::nearest(value(view.sample) * 100.0))
}

fn profile(view: &GpuView<'_>, value: fn(&GpuProfile) -> f64) -> Option<Decimal> {
    view.profile().map(|profile| Decimal::rounded(value(profile), 6))
}

/// A rate of profiling in bytes per second: DCGM counts whole bytes.
fn profile_rate(view: &GpuView<'_>, value: fn(&GpuProfile) -> f64) -> Option<Decimal> {
    view.profile().map(|profile| Decimal::nearest(value(profile) * view.share()))
}

fn nvlink(view: &GpuView<'_>, value: f64) -> Option<Decimal> {
    view.identity.has_nvlink.then(|| Decimal::count(value))
}

use FieldSet::{Default as InDefault, DefaultOf4, Full, Minimal};
use UnitOf49::{
    MebibytesToBytes, MegahertzToHertz, MillijoulesToJoules, NanosecondsToSeconds, PercentToRatio,
    ThousandKibToBytes,
};

/// All fields, by number.
#[rustfmt::skip]
pub(super) const FIELDS: &[DcgmField] = &[
    gauge(100, "DEV_SM_CLOCK", "DEV_SM_CLOCK_HERTZ", "SM clock frequency (in MHz).", Minimal, |v| nearest(v.sample.sm_clock_mhz)).with_unit(MegahertzToHertz),
    gauge(101, "DEV_MEM_CLOCK", "DEV_MEMORY_CLOCK_HERTZ", "Memory clock frequency (in MHz).", InDefault, |v| nearest(v.sample.state.memory_clock_mhz)).with_unit(MegahertzToHertz),
    gauge(112, "DEV_CLOCKS_EVENT_REASONS", "", "Current clock event reasons (bitmask of DCGM_CLOCKS_EVENT_REASON_*).", Full, |v| Some(Decimal::whole(v.sample.state.clock_event_bits as i64))),
    gauge(113, "DEV_MAX_SM_CLOCK", "DEV_SM_MAX_CLOCK_HERTZ", "Maximum supported SM clock (in MHz).", Full, |v| nearest(v.identity.board.max_sm_clock_mhz)).with_unit(MegahertzToHertz),
    gauge(140, "DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS", "Memory temperature (in C).", InDefault, |v| v.identity.board.has_memory_sensor.then(|| Decimal::nearest(v.sample.memory_temperature_c))),
    gauge(150, "DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS", "GPU temperature (in C).", Minimal, |v| nearest(v.sample.temperature_c)),
    gauge(155, "DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS", "Power draw (in W).", Minimal, |v| Some(Decimal::rounded(v.sample.power_w, 3).extended(6))),
    counter(156, "DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_GPU_ENERGY_JOULES_TOTAL", "Total energy consumption since boot (in mJ).", InDefault, |v| count(v.sample.state.energy_j * 1e3)).with_unit(MillijoulesToJoules),
    gauge(158, "DEV_SLOWDOWN_TEMP", "DEV_GPU_TEMP_SLOWDOWN_CELSIUS", "Slowdown temperature for the device.", Full, |v| nearest(v.identity.board.slowdown_c)),
    gauge(159, "DEV_SHUTDOWN_TEMP", "DEV_GPU_TEMP_SHUTDOWN_CELSIUS", "Shutdown temperature for the device.", Full, |v| nearest(v.identity.board.slowdown_c + 5.0)),
    gauge(164, "DEV_ENFORCED_POWER_LIMIT", "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "Effective power limit that the driver enforces.", Full, |v| real(v.identity.power_limit_w)),
    gauge(190, "DEV_PSTATE", "DEV_GPU_PSTATE", "Performance state (P-State) 0-15. 0=highest.", Full, zero),
    counter(202, "DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL", "Total number of PCIe retries.", InDefault, |v| count(v.sample.state.pcie_replays)),
    gauge(203, "DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", "GPU utilization (in %).", Minimal, |v| percent(v, |sample| sample.utilization)).with_unit(PercentToRatio),
    gauge(204, "DEV_MEM_COPY_UTIL", "DEV_MEMORY_UTIL_RATIO", "Memory utilization (in %).", InDefault, |v| percent(v, |sample| sample.memory_utilization)).with_unit(PercentToRatio),
    gauge(206, "DEV_ENC_UTIL", "DEV_ENC_UTIL_RATIO", "Encoder utilization (in %).", InDefault, |v| percent(v, |_| 0.0)).with_unit(PercentToRatio),
    gauge(207, "DEV_DEC_UTIL", "DEV_DEC_UTIL_RATIO", "Decoder utilization (in %).", InDefault, |v| percent(v, |_| 0.0)).with_unit(PercentToRatio),
    gauge(XID_FIELD, "DEV_XID_ERRORS", "DEV_XID_ERROR", "Value of the last XID error encountered.", Minimal, |v| Some(Decimal::whole(i64::from(v.xid())))),
    gauge(235, "DEV_PCIE_MAX_LINK_GEN", "", "PCIe Max Link Generation.", Full, |v| nearest(f64::from(v.identity.board.pcie_generation))),
    gauge(236, "DEV_PCIE_MAX_LINK_WIDTH", "", "PCIe Max Link Width.", Full, |_| nearest(16.0)),
    gauge(237, "DEV_PCIE_LINK_GEN", "", "PCIe Current Link Generation.", Full, |v| nearest(f64::from(v.sample.state.pcie_generation))),
    gauge(238, "DEV_PCIE_LINK_WIDTH", "", "PCIe Current Link Width.", Full, |v| nearest(f64::from(v.sample.state.pcie_lanes))),
    counter(240, "DEV_POWER_VIOLATION", "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", "Throttling duration due to power constraints (in ns).", Full, |v| count(v.sample.state.power_violation_s * 1e9)).with_unit(NanosecondsToSeconds),
    counter(241, "DEV_THERMAL_VIOLATION", "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "Throttling duration due to thermal constraints (in ns).", Full, |v| count(v.sample.state.thermal_violation_s * 1e9)).with_unit(NanosecondsToSeconds),
    counter(242, "DEV_SYNC_BOOST_VIOLATION", "DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL", "Throttling duration due to sync-boost constraints (in ns).", Full, zero).with_unit(NanosecondsToSeconds),
    counter(243, "DEV_BOARD_LIMIT_VIOLATION", "DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL", "Throttling duration due to board limit constraints (in ns).", Full, zero).with_unit(NanosecondsToSeconds),
    counter(244, "DEV_LOW_UTIL_VIOLATION", "DEV_GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL", "Throttling duration due to low utilization (in ns).", Full, zero).with_unit(NanosecondsToSeconds),
    counter(245, "DEV_RELIABILITY_VIOLATION", "DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL", "Throttling duration due to reliability constraints (in ns).", Full, zero).with_unit(NanosecondsToSeconds),
    gauge(250, "DEV_FB_TOTAL", "DEV_FB_CAPACITY_BYTES", "Total framebuffer memory (in MiB).", Full, |v| nearest(v.memory_mib().0)).with_unit(MebibytesToBytes),
    gauge(251, "DEV_FB_FREE", "DEV_FB_FREE_BYTES", "Framebuffer memory free (in MiB).", InDefault, |v| { let (total, reserved, used) = v.memory_mib(); nearest(total - reserved - used) }).with_unit(MebibytesToBytes),
    gauge(252, "DEV_FB_USED", "DEV_FB_USED_BYTES", "Framebuffer memory used (in MiB).", Minimal, |v| nearest(v.memory_mib().2)).with_unit(MebibytesToBytes),
    gauge(253, "DEV_FB_RESERVED", "DEV_FB_RESERVED_BYTES", "Framebuffer memory reserved (in MiB).", DefaultOf4, |v| nearest(v.memory_mib().1)).with_unit(MebibytesToBytes),
    counter(310, "DEV_ECC_SBE_VOL_TOTAL", "", "Total number of single-bit volatile ECC errors.", Full, |v| count(v.sample.state.ecc_corrected)),
    counter(311, "DEV_ECC_DBE_VOL_TOTAL", "", "Total number of double-bit volatile ECC errors.", Full, |v| count(v.sample.state.ecc_uncorrected)),
    counter(312, "DEV_ECC_SBE_AGG_TOTAL", "", "Total number of single-bit persistent ECC errors.", Full, |v| count(v.sample.state.ecc_corrected)),
    counter(313, "DEV_ECC_DBE_AGG_TOTAL", "", "Total number of double-bit persistent ECC errors.", Full, |v| count(v.sample.state.ecc_uncorrected)),
    counter(393, "DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "Number of remapped rows for uncorrectable errors", InDefault, |v| count(v.sample.state.remapped_rows)),
    counter(394, "DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_CORRECTABLE_TOTAL", "Number of remapped rows for correctable errors", InDefault, zero),
    gauge(395, "DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED", "Whether remapping of rows has failed", InDefault, zero),
    gauge(396, "DEV_ROW_REMAP_PENDING", "", "Whether remapping of rows is pending", Full, zero),
    counter(409, "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", "Total number of NVLink flow-control CRC errors.", Full, |v| nvlink(v, v.sample.state.nvlink_crc_errors)),
    counter(419, "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "DEV_NVLINK_CRC_DATA_ERROR_TOTAL", "Total number of NVLink data CRC errors.", Full, |v| nvlink(v, 0.0)),
    counter(429, "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DEV_NVLINK_REPLAY_ERROR_TOTAL", "Total number of NVLink retries.", Full, |v| nvlink(v, v.sample.state.nvlink_replays)),
    counter(439, "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_TOTAL", "Total number of NVLink recovery errors.", Full, |v| nvlink(v, 0.0)),
    // Its type says counter, its value is a rate: thousands of KiB per second, both directions.
    counter(BANDWIDTH_FIELD, "DEV_NVLINK_BANDWIDTH_TOTAL", "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "Total number of NVLink bandwidth counters for all lanes.", InDefault, |v| nvlink(v, v.sample.profile.map_or(0.0, |profile| (profile.nvlink_receive + profile.nvlink_transmit) / 1_024_000.0))).with_unit(ThousandKibToBytes),
    gauge(500, "DEV_VGPU_LICENSE_STATUS", "", "vGPU License status", InDefault, zero),
    gauge(1001, "PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO", "Ratio of time the graphics engine is active.", InDefault, |v| profile(v, |profile| profile.engine_active)),
    gauge(1002, "PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", "The ratio of cycles an SM has at least 1 warp assigned.", Full, |v| profile(v, |profile| profile.sm_active)),
    gauge(1003, "PROF_SM_OCCUPANCY", "PROF_SM_OCCUPANCY_RATIO", "The ratio of number of warps resident on an SM.", Full, |v| profile(v, |profile| profile.sm_active * (0.12 + 0.3 * profile.tensor_active))),
    gauge(1004, "PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "Ratio of cycles the tensor (HMMA) pipe is active.", InDefault, |v| profile(v, |profile| profile.tensor_active)),
    gauge(1005, "PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", "Ratio of cycles the device memory interface is active sending or receiving data.", InDefault, |v| profile(v, |profile| profile.dram_active)),
    gauge(1006, "PROF_PIPE_FP64_ACTIVE", "PROF_FP64_UTIL_RATIO", "Ratio of cycles the fp64 pipes are active.", Full, |v| profile(v, |_| 0.0)),
    gauge(1007, "PROF_PIPE_FP32_ACTIVE", "PROF_FP32_UTIL_RATIO", "Ratio of cycles the fp32 pipes are active.", Full, |v| profile(v, |profile| profile.sm_active * 0.11)),
    gauge(1008, "PROF_PIPE_FP16_ACTIVE", "PROF_FP16_UTIL_RATIO", "Ratio of cycles the fp16 pipes are active.", Full, |v| profile(v, |profile| profile.sm_active * 0.02)),
    gauge(1009, "PROF_PCIE_TX_BYTES", "", "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - in bytes per second.", InDefault, |v| profile_rate(v, |profile| profile.pcie_transmit)),
    gauge(1010, "PROF_PCIE_RX_BYTES", "", "The rate of data received over the PCIe bus - including both protocol headers and data payloads - in bytes per second.", InDefault, |v| profile_rate(v, |profile| profile.pcie_receive)),
    gauge(1011, "PROF_NVLINK_TX_BYTES", "", "The rate of data transmitted over NVLink, not including protocol headers, in bytes per second.", Full, |v| profile_rate(v, |profile| profile.nvlink_transmit).filter(|_| v.identity.has_nvlink)),
    gauge(1012, "PROF_NVLINK_RX_BYTES", "", "The rate of data received over NVLink, not including protocol headers, in bytes per second.", Full, |v| profile_rate(v, |profile| profile.nvlink_receive).filter(|_| v.identity.has_nvlink)),
];

/// The field of the last XID.
pub(super) const XID_FIELD: u16 = 230;

/// The field whose type is counter and whose value is a rate.
pub(super) const BANDWIDTH_FIELD: u16 = 449;

/// The mask of clock events, which had another name in 3.x.
pub(super) const CLOCK_EVENTS_FIELD: u16 = 112;

/// DCGM's words for an XID.
pub(super) fn describe_xid(xid: u32) -> &'static str {
    match xid {
        0 => "No Error",
        13 => "Graphics Engine Exception",
        31 => "GPU memory page fault",
        43 => "GPU stopped processing",
        45 => "Preemptive cleanup, due to previous errors",
        48 => "Double Bit ECC Error",
        63 => "ECC page retirement or row remapping recording event",
        64 => "ECC page retirement or row remapper recording failure",
        74 => "NVLINK Error",
        79 => "GPU has fallen off the bus",
        92 => "High single-bit ECC error rate",
        94 => "Contained ECC error",
        95 => "Uncontained ECC error",
        119 => "GSP RPC Timeout",
        _ => "Unknown Error",
    }
}
