//! What a node's GPUs say of their links, their memory and their driver's errors.

use gaunt_schema::{
    Class, Device,
    catalogue::{gpu_health as health, gpu_parts as parts},
};

use super::{Layout, Writer};
use crate::{
    gpu::Phase,
    machine::{Failure, Gpu, Machine},
};

/// Lanes of a PCIe link.
const PCIE_LANES: f64 = 16.0;

pub(super) fn write_health(out: &mut Writer, at: usize, gpu: &Gpu, now: f64) {
    let free = gpu.phase == Phase::Free;
    // An idle link is slowed down to save power; its width stays.
    let generation = gpu.board.model.pcie_generation;
    out.put(at, health::PCIE_GENERATION, if free { 1.0 } else { generation });
    out.put(at, health::PCIE_GENERATION_MAX, generation);
    out.put(at, health::PCIE_WIDTH, lanes(gpu));
    out.put(at, health::PCIE_WIDTH_MAX, PCIE_LANES);
    out.put(at, health::PCIE_REPLAYS, gpu.shown.pcie_replays.floor());
    out.put(at, health::VIOLATION_THERMAL, (gpu.shown.thermal_s * 1e3).floor() / 1e3);
    let broken = f64::from(gpu.failed(now).is_some_and(|failure| failure.ecc));
    out.put(at, health::ECC_CORRECTED_VOLATILE, gpu.corrected);
    out.put(at, health::ECC_UNCORRECTED_VOLATILE, broken);
    out.put(at, health::REMAP_PENDING, broken);
    out.put(at, health::REMAP_FAILED, 0.0);
    out.put(at, health::RECOVERY_ACTION, broken);
}

/// Lanes that are left: of a link that only sends packets again, all.
fn lanes(gpu: &Gpu) -> f64 {
    if gpu.mood.copy <= 1.0 || gpu.mood.replays > 0.0 {
        return PCIE_LANES;
    }
    // A link trains at a power of two.
    PCIE_LANES / gpu.mood.copy.min(PCIE_LANES).log2().round().exp2()
}

/// The devices of these parts, in the order in which they are written.
pub(super) fn links(layout: Layout) -> impl Iterator<Item = Device> {
    (0..layout.gpus).flat_map(move |gpu| {
        (0..layout.nvlinks).map(move |link| Device::part(Class::Nvlink, gpu as u32, link as u32))
    })
}

pub(super) fn write_parts(out: &mut Writer, layout: Layout, machine: &Machine, now: f64) {
    for (index, gpu) in machine.gpus.iter().enumerate() {
        let failure = gpu.failed(now);
        if failure.is_none_or(|failure| failure.ecc) {
            // What is slower by a factor has lost as many links.
            let left = (layout.nvlinks as f64 / gpu.mood.nvlink_lost).ceil() as usize;
            for link in 0..layout.nvlinks {
                let at = layout.links() + index * layout.nvlinks + link;
                out.put(at, parts::NVLINK_UP, f64::from(link < left));
                // The first link is one that is left, and it is the one that errs.
                let replays = if link == 0 { gpu.shown.nvlink_replays.floor() } else { 0.0 };
                out.put(at, parts::NVLINK_REPLAY, replays);
            }
        }
        let xids: &[u32] = match failure {
            Some(Failure { ecc: true, .. }) => &[48, 95],
            Some(_) => &[79],
            None => &[],
        };
        for xid in xids {
            let device = out.report.device(Device::part(Class::Xid, index as u32, *xid));
            out.report.push(device, parts::XID_ERRORS, 1.0);
        }
    }
}
