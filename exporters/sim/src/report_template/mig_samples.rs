//! Samples of MIG instances; a GPU in MIG mode reports little for itself.

use gaunt_schema::{Device, DeviceClass, Report, catalogue::gpu_parts as parts};

use super::{DeviceLayout, ReportWindow, SampleWriter};
use crate::sim_machine::SimMachine;

/// A MIG instance of a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MigSlice {
    /// Its profile, as the driver names it.
    pub(crate) profile: &'static str,
    /// The number of its GPU instance.
    pub(crate) instance: u32,
    /// Its share of the SMs, and of the memory.
    pub(crate) processors: f64,
    pub(crate) memory: f64,
}

/// The MIG layout of a GPU.
pub(crate) const SLICES: [MigSlice; 3] = [
    MigSlice { profile: "3g.40gb", instance: 2, processors: 3.0 / 7.0, memory: 0.5 },
    MigSlice { profile: "2g.20gb", instance: 5, processors: 2.0 / 7.0, memory: 0.25 },
    MigSlice { profile: "1g.10gb", instance: 9, processors: 1.0 / 7.0, memory: 0.125 },
];

/// Share of an instance's memory that its model uses.
const MEMORY_TAKEN: f64 = 0.82;

pub(super) fn mig_devices(layout: DeviceLayout) -> impl Iterator<Item = Device> {
    let slices = 0..layout.slices as u32;
    (0..layout.gpus as u32).flat_map(move |gpu| {
        slices.clone().map(move |instance| Device::new_gpu_part(DeviceClass::Mig, gpu, instance))
    })
}

/// Writes the identity labels of the instances.
pub(super) fn write_mig_infos(page: &mut Report, layout: DeviceLayout, node: usize) {
    for gpu in 0..layout.gpus {
        for (number, slice) in SLICES.iter().enumerate().take(layout.slices) {
            let device = (layout.first_slice() + gpu * layout.slices + number) as u32;
            let uuid = format!("MIG-51a0{node:04x}-{gpu:04x}-5000-8000-00005e55{number:04x}");
            let instance = slice.instance.to_string();
            let labels = [
                ("uuid", uuid.as_str()),
                ("name", slice.profile),
                ("gpu_instance", instance.as_str()),
                ("compute_instance", "0"),
            ];
            page.add_info(device, parts::MIG_INFO, &labels);
        }
    }
}

/// Each instance serves its own requests: the GPU's activity since the last sample is divided among them unevenly.
pub(super) fn write_mig_samples(
    writer: &mut SampleWriter,
    layout: DeviceLayout,
    machine: &SimMachine,
    window: &ReportWindow,
) {
    if layout.slices == 0 {
        return;
    }
    for (index, gpu) in machine.gpus.iter().enumerate() {
        let (now, before) = (&gpu.shown, &gpu.before);
        let share = |now: f64, before: f64| {
            if window.span > 0.0 { ((now - before) / window.span).max(0.0) } else { 0.0 }
        };
        // Requests come in bursts, to one instance more than to another.
        let burst_noise =
            window.noise.child_key(700 + index as u64).child_key((window.now / 40.0) as u64);
        let weights: Vec<f64> = (0..SLICES.len())
            .map(|index| burst_noise.child_key(index as u64).random_between(0.1, 1.0))
            .collect();
        let total_weight: f64 = weights.iter().sum();
        for (number, slice) in SLICES.iter().enumerate() {
            let device = layout.first_slice() + index * layout.slices + number;
            let weight = weights[number] / total_weight / slice.processors;
            let total = gpu.variation.model.memory_bytes * slice.memory;
            writer.add_sample(device, parts::MIG_MEMORY_USED, (total * MEMORY_TAKEN).floor());
            writer.add_sample(device, parts::MIG_MEMORY_TOTAL, total.floor());
            for (metric, now, before) in [
                (parts::MIG_SM_ACTIVE, now.sm_s, before.sm_s),
                (parts::MIG_TENSOR_ACTIVE, now.tensor_s, before.tensor_s),
                (parts::MIG_DRAM_ACTIVE, now.dram_s, before.dram_s),
            ] {
                let ratio = (share(now, before) * weight).min(1.0);
                writer.add_sample(device, metric, (ratio * 1e4).round() / 1e4);
            }
        }
    }
}
