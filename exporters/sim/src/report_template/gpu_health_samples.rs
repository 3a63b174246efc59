//! Samples of a node's GPU links, GPU memory and driver errors.

use gaunt_schema::{
    Device, DeviceClass,
    catalogue::{gpu_health as health, gpu_parts as parts},
};

use super::{DeviceLayout, SampleWriter};
use crate::{
    gpu_activity::GpuPhase,
    sim_machine::{GpuFailure, SimGpu, SimMachine},
};

/// Lanes of a PCIe link.
const PCIE_LANES: f64 = 16.0;

pub(super) fn write_health(writer: &mut SampleWriter, device: usize, gpu: &SimGpu, now: f64) {
    let is_free = gpu.phase == GpuPhase::Free;
    // An idle link lowers its speed to save power; its width stays.
    let generation = gpu.variation.model.pcie_generation;
    writer.add_sample(device, health::PCIE_GENERATION, if is_free { 1.0 } else { generation });
    writer.add_sample(device, health::PCIE_GENERATION_MAX, generation);
    writer.add_sample(device, health::PCIE_WIDTH, pcie_width(gpu));
    writer.add_sample(device, health::PCIE_WIDTH_MAX, PCIE_LANES);
    writer.add_sample(device, health::PCIE_REPLAYS, gpu.shown.pcie_replays.floor());
    writer.add_sample(device, health::VIOLATION_THERMAL, (gpu.shown.thermal_s * 1e3).floor() / 1e3);
    let broken = f64::from(gpu.failure_at(now).is_some_and(|failure| failure.ecc));
    writer.add_sample(device, health::ECC_CORRECTED_VOLATILE, gpu.corrected);
    writer.add_sample(device, health::ECC_UNCORRECTED_VOLATILE, broken);
    writer.add_sample(device, health::REMAP_PENDING, broken);
    writer.add_sample(device, health::REMAP_FAILED, 0.0);
    writer.add_sample(device, health::RECOVERY_ACTION, broken);
}

/// Current link width; a link that only replays packets keeps all lanes.
fn pcie_width(gpu: &SimGpu) -> f64 {
    if gpu.condition.copy <= 1.0 || gpu.condition.replays > 0.0 {
        return PCIE_LANES;
    }
    // A link trains at a power of two.
    PCIE_LANES / gpu.condition.copy.min(PCIE_LANES).log2().round().exp2()
}

/// The devices of these components, in the order in which they are written.
pub(super) fn nvlink_devices(layout: DeviceLayout) -> impl Iterator<Item = Device> {
    (0..layout.gpus).flat_map(move |gpu| {
        (0..layout.nvlinks)
            .map(move |link| Device::new_gpu_part(DeviceClass::Nvlink, gpu as u32, link as u32))
    })
}

pub(super) fn write_parts(
    writer: &mut SampleWriter,
    layout: DeviceLayout,
    machine: &SimMachine,
    now: f64,
) {
    for (index, gpu) in machine.gpus.iter().enumerate() {
        let failure = gpu.failure_at(now);
        if failure.is_none_or(|failure| failure.ecc) {
            // A link slower by a factor has lost as many NVLinks.
            let left = (layout.nvlinks as f64 / gpu.condition.nvlink_lost).ceil() as usize;
            for link in 0..layout.nvlinks {
                let device = layout.first_nvlink() + index * layout.nvlinks + link;
                writer.add_sample(device, parts::NVLINK_UP, f64::from(link < left));
                // The first link is active, and it is the one with errors.
                let replays = if link == 0 { gpu.shown.nvlink_replays.floor() } else { 0.0 };
                writer.add_sample(device, parts::NVLINK_REPLAY, replays);
            }
        }
        let xids: &[u32] = match failure {
            Some(GpuFailure { ecc: true, .. }) => &[48, 95],
            Some(_) => &[79],
            None => &[],
        };
        for xid in xids {
            let device = writer.report.ensure_device(Device::new_gpu_part(
                DeviceClass::Xid,
                index as u32,
                *xid,
            ));
            writer.report.push(device, parts::XID_ERRORS, 1.0);
        }
    }
}
