//! Constants of the boards.

use crate::cluster_plan::GpuModel;

/// What all boards of a model have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Board {
    /// Power limit as sold.
    pub(super) power_w: f64,
    /// Power with nothing on it.
    pub(super) idle_w: f64,
    /// Power with a program that waits.
    pub(super) context_w: f64,
    /// Highest SM clock.
    pub(super) max_clock_mhz: f64,
    /// SM clock when nothing runs.
    pub(super) idle_clock_mhz: f64,
    /// Memory clock.
    pub(super) memory_clock_mhz: f64,
    /// Framebuffer.
    pub(super) memory_bytes: f64,
    /// NVLink or xGMI, bytes per second and direction.
    pub(super) link_bytes_per_s: f64,
    /// PCIe generation.
    pub(super) pcie_generation: u32,
    /// PCIe with 16 lanes, bytes per second and direction.
    pub(super) pcie_bytes_per_s: f64,
    /// Temperature at which the clock begins to fall.
    pub(super) throttle_c: f64,
    /// Speed of a job on it relative to the other models, with batches chosen for it.
    pub(super) speed: f64,
}

const A100: Board = Board {
    power_w: 400.0,
    idle_w: 58.0,
    context_w: 78.0,
    max_clock_mhz: 1_410.0,
    idle_clock_mhz: 210.0,
    memory_clock_mhz: 1_593.0,
    memory_bytes: 81_920.0 * 1_048_576.0,
    link_bytes_per_s: 300e9,
    pcie_generation: 4,
    pcie_bytes_per_s: 27e9,
    throttle_c: 86.0,
    speed: 0.8,
};

const H100: Board = Board {
    power_w: 700.0,
    idle_w: 72.0,
    context_w: 118.0,
    max_clock_mhz: 1_980.0,
    idle_clock_mhz: 345.0,
    memory_clock_mhz: 2_619.0,
    memory_bytes: 81_559.0 * 1_048_576.0,
    link_bytes_per_s: 450e9,
    pcie_generation: 5,
    pcie_bytes_per_s: 55e9,
    throttle_c: 87.0,
    speed: 1.0,
};

const H200: Board = Board {
    idle_w: 76.0,
    memory_clock_mhz: 3_201.0,
    memory_bytes: 143_771.0 * 1_048_576.0,
    speed: 1.03,
    ..H100
};

const B200: Board = Board {
    power_w: 1_000.0,
    idle_w: 142.0,
    context_w: 190.0,
    max_clock_mhz: 1_965.0,
    idle_clock_mhz: 120.0,
    memory_clock_mhz: 3_996.0,
    memory_bytes: 183_359.0 * 1_048_576.0,
    link_bytes_per_s: 900e9,
    speed: 1.2,
    ..H100
};

const L40S: Board = Board {
    power_w: 350.0,
    idle_w: 34.0,
    context_w: 82.0,
    max_clock_mhz: 2_520.0,
    idle_clock_mhz: 210.0,
    memory_clock_mhz: 9_001.0,
    memory_bytes: 46_068.0 * 1_048_576.0,
    link_bytes_per_s: 0.0,
    throttle_c: 88.0,
    speed: 0.75,
    ..A100
};

const MI300X: Board = Board {
    power_w: 750.0,
    idle_w: 138.0,
    context_w: 165.0,
    max_clock_mhz: 2_100.0,
    idle_clock_mhz: 132.0,
    memory_clock_mhz: 1_300.0,
    memory_bytes: 196_592.0 * 1_048_576.0,
    link_bytes_per_s: 448e9,
    throttle_c: 98.0,
    speed: 1.0,
    ..H100
};

/// The constants of a model.
pub(super) const fn board_of(model: GpuModel) -> &'static Board {
    match model {
        GpuModel::A100 => &A100,
        GpuModel::H100 => &H100,
        GpuModel::H200 => &H200,
        GpuModel::B200 => &B200,
        GpuModel::L40S => &L40S,
        GpuModel::Mi300x => &MI300X,
    }
}
