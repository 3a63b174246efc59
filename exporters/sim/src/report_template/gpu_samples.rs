//! Samples of a node's GPUs.

use gaunt_schema::{AbsenceReason, MetricId, Reading, catalogue::gpu};

use super::{SampleWriter, floor_micros};
use crate::{
    gpu_activity::GpuPhase, job_workload::JobWorkload, noise_key::NoiseKey, sim_job::SimJob,
    sim_machine::SimGpu,
};

/// Memory reserved by the driver.
const DRIVER_BYTES: f64 = 0.6e9;

/// Metrics that the driver does not report for a GPU in MIG mode, and their sums over time.
const UNKNOWN_WHEN_SLICED: [MetricId; 10] = [
    gpu::UTILIZATION,
    gpu::UTILIZATION_SECONDS,
    gpu::MEMORY_ACTIVITY,
    gpu::MEMORY_ACTIVITY_SECONDS,
    gpu::SM_ACTIVE,
    gpu::SM_ACTIVE_SECONDS,
    gpu::TENSOR_ACTIVE,
    gpu::TENSOR_ACTIVE_SECONDS,
    gpu::DRAM_ACTIVE,
    gpu::DRAM_ACTIVE_SECONDS,
];

/// Processes that share a GPU.
const PROCESSES_SHARING: f64 = 4.0;

/// Above this die temperature the hardware slows the GPU down.
const SLOWDOWN_CELSIUS: f64 = 87.0;

/// Removes all samples of a lost GPU except that it is absent.
pub(super) fn mark_gpu_lost(writer: &mut SampleWriter, device: usize) {
    for sample in writer.report.samples.iter_mut().filter(|sample| sample.device == device as u32) {
        sample.reading = match sample.metric {
            gpu::PRESENT => Reading::of(0.0),
            _ => AbsenceReason::Lost.into(),
        };
    }
}

pub(super) fn write_gpu(
    writer: &mut SampleWriter,
    device: usize,
    gpu: &SimGpu,
    job: Option<&SimJob>,
    span: f64,
    noise: NoiseKey,
) {
    write_activity(writer, device, gpu, span);
    let (now, model) = (&gpu.shown, &gpu.variation.model);
    // The driver does not know the utilization of a whole GPU in MIG mode.
    if job.is_some_and(|job| job.work == JobWorkload::Slices) {
        for metric in UNKNOWN_WHEN_SLICED {
            let is_target = |sample: &&mut gaunt_schema::MetricSample| {
                sample.device == device as u32 && sample.metric == metric
            };
            if let Some(sample) = writer.report.samples.iter_mut().rev().find(is_target) {
                sample.reading = AbsenceReason::Unsupported.into();
            }
        }
    }
    let used = job.map_or(DRIVER_BYTES, |job| job.memory_bytes).floor();
    writer.add_sample(device, gpu::PRESENT, 1.0);
    writer.add_sample(device, gpu::MEMORY_USED, used);
    writer.add_sample(device, gpu::MEMORY_FREE, model.memory_bytes - used);
    writer.add_sample(device, gpu::MEMORY_TOTAL, model.memory_bytes);
    let watts = now.power_watts + noise.random_between(-1.5, 1.5);
    writer.add_sample(device, gpu::POWER, (watts * 1e3).round() / 1e3);
    writer.add_sample(device, gpu::POWER_LIMIT, model.limit_watts);
    writer.add_sample(device, gpu::ENERGY, (now.energy_joules * 1e3).floor() / 1e3);
    writer.add_sample(device, gpu::TEMPERATURE, now.temperature_celsius.round());
    writer.add_sample(device, gpu::SM_CLOCK, gpu.phase.clock_hertz(model, &gpu.condition));
    writer.add_sample(device, gpu::SM_CLOCK_MAX, model.clock_max_hertz);
    let processes = match job {
        Some(job) if job.work == JobWorkload::Shared => PROCESSES_SHARING,
        // A GPU diagnostic is a process without a job.
        None => f64::from(gpu.phase == GpuPhase::Compute),
        Some(_) => 1.0,
    };
    writer.add_sample(device, gpu::PROCESSES, processes);
    for &(_, event) in gpu::CLOCK_EVENTS {
        let is_hot = gpu.condition.warm_kelvin > 0.0;
        let active = match event {
            gpu::CLOCK_EVENT_IDLE => matches!(gpu.phase, GpuPhase::Free | GpuPhase::Held),
            gpu::CLOCK_EVENT_SW_POWER_CAP => gpu.phase == GpuPhase::Compute || gpu.condition.capped,
            gpu::CLOCK_EVENT_HW_THERMAL | gpu::CLOCK_EVENT_HW_SLOWDOWN => {
                is_hot || now.temperature_celsius > SLOWDOWN_CELSIUS
            }
            _ => false,
        };
        writer.add_sample(device, event, f64::from(active));
    }
    writer.add_sample(device, gpu::PCIE_RECEIVE, now.pcie_receive_bytes.floor());
    writer.add_sample(device, gpu::PCIE_TRANSMIT, now.pcie_transmit_bytes.floor());
    writer.add_sample(device, gpu::NVLINK_RECEIVE, now.nvlink_bytes.floor());
    writer.add_sample(device, gpu::NVLINK_TRANSMIT, now.nvlink_bytes.floor());
}

fn write_activity(writer: &mut SampleWriter, device: usize, gpu: &SimGpu, span: f64) {
    let (now, before) = (&gpu.shown, &gpu.before);
    let share = |now: f64, before: f64| {
        if span > 0.0 { ((now - before) / span).clamp(0.0, 1.0) } else { 0.0 }
    };
    // The driver reports its two utilizations in whole percent; profiling counters are finer.
    let rate =
        |now: f64, before: f64| if span > 0.0 { ((now - before) / span).floor() } else { 0.0 };
    let nvlink = rate(now.nvlink_bytes, before.nvlink_bytes);
    for (metric, rate) in [
        (gpu::PCIE_RECEIVE_RATE, rate(now.pcie_receive_bytes, before.pcie_receive_bytes)),
        (gpu::PCIE_TRANSMIT_RATE, rate(now.pcie_transmit_bytes, before.pcie_transmit_bytes)),
        (gpu::NVLINK_RECEIVE_RATE, nvlink),
        (gpu::NVLINK_TRANSMIT_RATE, nvlink),
    ] {
        writer.add_sample(device, metric, rate.max(0.0));
    }
    for (ratio, seconds, now, before, steps) in [
        (
            gpu::UTILIZATION,
            gpu::UTILIZATION_SECONDS,
            now.utilization_s,
            before.utilization_s,
            100.0,
        ),
        (gpu::MEMORY_ACTIVITY, gpu::MEMORY_ACTIVITY_SECONDS, now.memory_s, before.memory_s, 100.0),
        (gpu::SM_ACTIVE, gpu::SM_ACTIVE_SECONDS, now.sm_s, before.sm_s, 1e4),
        (gpu::TENSOR_ACTIVE, gpu::TENSOR_ACTIVE_SECONDS, now.tensor_s, before.tensor_s, 1e4),
        (gpu::DRAM_ACTIVE, gpu::DRAM_ACTIVE_SECONDS, now.dram_s, before.dram_s, 1e4),
    ] {
        writer.add_sample(device, ratio, (share(now, before) * steps).round() / steps);
        writer.add_sample(device, seconds, floor_micros(now));
    }
}
