//! Boards as their exporters describe them, and the identity of each GPU.

use crate::{
    cluster_plan::{GpuModel, NodePlan},
    random::RandomKey,
};

/// One mebibyte.
pub(super) const MIB: f64 = 1_048_576.0;

/// What all GPUs of a model have in common.
#[derive(Debug)]
pub(super) struct GpuBoard {
    /// Its name by the driver.
    pub(super) name: &'static str,
    /// Framebuffer memory in MiB.
    pub(super) memory_mib: f64,
    /// Memory that the driver keeps for itself, in MiB.
    pub(super) reserved_mib: f64,
    /// Highest SM clock in MHz.
    pub(super) max_sm_clock_mhz: f64,
    /// Highest memory clock in MHz.
    pub(super) max_memory_clock_mhz: f64,
    /// Temperature from which the hardware slows down, in °C.
    pub(super) slowdown_c: f64,
    /// Power limit with which it starts, in watts.
    pub(super) default_limit_w: f64,
    /// Highest PCIe generation.
    pub(super) pcie_generation: u32,
    /// NVLinks.
    pub(super) nvlinks: u32,
    /// Whether its memory has a temperature sensor.
    pub(super) has_memory_sensor: bool,
    /// Ways of dividing it into MIG instances: profile and memory slices of eight.
    pub(super) mig_profiles: [(&'static str, f64); 2],
    /// PCI buses of eight of them in one machine.
    buses: [u8; 8],
}

/// The buses of a machine with SXM boards.
const SXM_BUSES: [u8; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];

const A100: GpuBoard = GpuBoard {
    name: "NVIDIA A100-SXM4-80GB",
    memory_mib: 81_920.0,
    reserved_mib: 670.0,
    max_sm_clock_mhz: 1_410.0,
    max_memory_clock_mhz: 1_593.0,
    slowdown_c: 92.0,
    default_limit_w: 400.0,
    pcie_generation: 4,
    nvlinks: 12,
    has_memory_sensor: true,
    mig_profiles: [("3g.40gb", 4.0), ("1g.10gb", 1.0)],
    buses: [0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd],
};

const H100: GpuBoard = GpuBoard {
    name: "NVIDIA H100 80GB HBM3",
    memory_mib: 81_559.0,
    reserved_mib: 551.0,
    max_sm_clock_mhz: 1_980.0,
    max_memory_clock_mhz: 2_619.0,
    slowdown_c: 87.0,
    default_limit_w: 700.0,
    pcie_generation: 5,
    nvlinks: 18,
    buses: SXM_BUSES,
    ..A100
};

const H200: GpuBoard = GpuBoard {
    name: "NVIDIA H200",
    memory_mib: 143_771.0,
    reserved_mib: 610.0,
    max_memory_clock_mhz: 3_201.0,
    mig_profiles: [("3g.71gb", 4.0), ("1g.18gb", 1.0)],
    ..H100
};

const B200: GpuBoard = GpuBoard {
    name: "NVIDIA B200",
    memory_mib: 183_359.0,
    reserved_mib: 712.0,
    max_sm_clock_mhz: 1_965.0,
    max_memory_clock_mhz: 3_996.0,
    default_limit_w: 1_000.0,
    mig_profiles: [("3g.90gb", 4.0), ("1g.23gb", 1.0)],
    ..H100
};

const L40S: GpuBoard = GpuBoard {
    name: "NVIDIA L40S",
    memory_mib: 46_068.0,
    reserved_mib: 596.0,
    max_sm_clock_mhz: 2_520.0,
    max_memory_clock_mhz: 9_001.0,
    slowdown_c: 92.0,
    default_limit_w: 350.0,
    pcie_generation: 4,
    nvlinks: 0,
    has_memory_sensor: false,
    mig_profiles: [("", 8.0), ("", 8.0)],
    buses: [0x16, 0x27, 0x38, 0x4a, 0x98, 0xa9, 0xb8, 0xc8],
};

const MI300X: GpuBoard = GpuBoard {
    name: "AMD Instinct MI300X OAM",
    memory_mib: 196_592.0,
    reserved_mib: 283.0,
    max_sm_clock_mhz: 2_100.0,
    max_memory_clock_mhz: 1_300.0,
    slowdown_c: 100.0,
    default_limit_w: 750.0,
    pcie_generation: 5,
    nvlinks: 7,
    has_memory_sensor: true,
    mig_profiles: [("", 8.0), ("", 8.0)],
    buses: [0x05, 0x26, 0x46, 0x65, 0x85, 0xa6, 0xc6, 0xe5],
};

/// The board of a model.
pub(super) fn board_of_model(model: GpuModel) -> &'static GpuBoard {
    match model {
        GpuModel::A100 => &A100,
        GpuModel::H100 => &H100,
        GpuModel::H200 => &H200,
        GpuModel::B200 => &B200,
        GpuModel::L40S => &L40S,
        GpuModel::Mi300x => &MI300X,
    }
}

/// One GPU as exporters name it; it stays the same for the whole run.
#[derive(Clone, Debug)]
pub(super) struct GpuIdentity {
    /// Position in the plan.
    pub(super) position: usize,
    /// Number by the exporter.
    pub(super) number: usize,
    /// Its board.
    pub(super) board: &'static GpuBoard,
    /// UUID, without the maker's prefix.
    pub(super) uuid: String,
    /// PCI address, such as `00000000:1B:00.0`.
    pub(super) pci_bus_id: String,
    /// Serial number.
    pub(super) serial: String,
    /// MIG instances; a GPU that is not divided has none.
    pub(super) instances: Vec<MigInstance>,
    /// Enforced power limit in watts.
    pub(super) power_limit_w: f64,
    /// Whether NVLink joins it to others.
    pub(super) has_nvlink: bool,
}

/// One MIG instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct MigInstance {
    /// Profile, such as `1g.10gb`.
    pub(super) profile: &'static str,
    /// Number of the GPU instance.
    pub(super) number: u32,
    /// Its share of the GPU.
    pub(super) share: f64,
}

/// The GPUs of a node, by the exporter's numbers.
pub(super) fn identify_gpus(
    plan: &NodePlan,
    numbers: &[usize],
    key: RandomKey,
) -> Vec<GpuIdentity> {
    let gpus = plan.gpus.iter().enumerate().map(|(position, gpu)| {
        let board = board_of_model(gpu.model);
        let key = key.child_index(position);
        let (high, low) = (key.child("uuid").bits(), key.child("uuid end").bits());
        let bus = board.buses[position % 8];
        // Beyond eight GPUs the machine has a second domain.
        let domain = position / 8;
        GpuIdentity {
            position,
            number: numbers.get(position).copied().unwrap_or(position),
            board,
            uuid: format!(
                "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                high >> 32,
                (high >> 16) & 0xffff,
                high & 0xffff,
                low >> 48,
                low & 0xffff_ffff_ffff
            ),
            pci_bus_id: format!("{domain:08X}:{bus:02X}:00.0"),
            serial: format!("{}", 1_320_000_000_000 + key.child("serial").bits() % 9_999_999_999),
            instances: if gpu.has_mig { divide_gpu(board, key) } else { Vec::new() },
            power_limit_w: gpu.power_limit_w,
            has_nvlink: plan.has_nvlink && board.nvlinks > 0,
        }
    });
    let mut gpus: Vec<_> = gpus.collect();
    gpus.sort_by_key(|gpu| gpu.number);
    gpus
}

/// The MIG instances of a GPU: two large ones, or seven small ones.
fn divide_gpu(board: &GpuBoard, key: RandomKey) -> Vec<MigInstance> {
    let [large, small] = board.mig_profiles;
    let (count, first, (profile, slices)) =
        if key.child("mig").chance(0.5) { (2, 1, large) } else { (7, 7, small) };
    if profile.is_empty() {
        return Vec::new();
    }
    (0..count)
        .map(|index| MigInstance { profile, number: first + index, share: slices / 8.0 })
        .collect()
}
