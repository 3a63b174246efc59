//! Parts of a GPU: its MIG instances and the processes on it.

use std::{collections::BTreeMap, time::Instant};

use gaunt_schema::{
    AbsenceReason, DeviceClass, MetricId, Reading, SanitizedText,
    catalogue::{gpu, gpu_health as health, gpu_parts as parts},
};
use nvml_wrapper::{Device, enums::device::UsedGpuMemory, error::NvmlError};

use super::{
    GpuSamplingRound, NvmlDeviceHandle, NvmlFunctions,
    gpm_sampler::{SM, to_catalogue_unit},
};
use crate::nvml::{
    driver_call::{Call, CurrentCall},
    nvml_ffi::GpmSample,
    worker_pipe::GpuPart,
};

/// The most MIG instances of a GPU that are queried: more than the largest GPU has.
const MAX_INSTANCES: u32 = 16;

/// The GPM metrics of an instance.
const ACTIVITY: [(u32, MetricId); 3] =
    [(SM, parts::MIG_SM_ACTIVE), (5, parts::MIG_TENSOR_ACTIVE), (10, parts::MIG_DRAM_ACTIVE)];

/// The state of a GPU's parts between rounds.
#[derive(Default)]
pub(super) struct GpuPartSampler {
    instances: Vec<MigSampler>,
    /// The driver's time of the newest sample of a process.
    last_timestamp: u64,
    /// The handle of the whole GPU, of which instances are sampled.
    gpu: Option<NvmlDeviceHandle>,
}

/// One MIG instance, and its GPM buffers: the last sample and one to take.
struct MigSampler {
    number: u32,
    gpu_instance: u32,
    buffers: Option<[GpmSample; 2]>,
    /// Which buffer holds the last sample, and when it was taken.
    last: Option<(usize, Instant)>,
}

impl GpuPartSampler {
    /// Samples the number of compute processes on the GPU and, if enabled, the processes.
    pub(super) fn sample_processes(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        device: &Device<'_>,
        by_process: bool,
    ) {
        if !by_process {
            let count =
                round.call_driver(Call::Processes, || device.running_compute_processes_count());
            round.record_reading(gpu::PROCESSES, count.map(f64::from));
            return;
        }
        let running = round.call_driver(Call::Processes, || device.running_compute_processes());
        round.record_reading(
            gpu::PROCESSES,
            running.as_ref().map(|processes| processes.len() as f64).map_err(|why| *why),
        );
        let Ok(running) = running else { return };
        if running.is_empty() {
            return;
        }
        let busy = self.query_process_activity(round, device);
        for process in running {
            let memory = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Reading::of(bytes as f64),
                UsedGpuMemory::Unavailable => AbsenceReason::Unsupported.into(),
            };
            // A process without a sample ran nothing.
            let busy = busy.as_ref().map(|busy| busy.get(&process.pid).copied().unwrap_or(0.0));
            let readings = vec![
                (parts::PROCESS_MEMORY, memory),
                (parts::PROCESS_SM, to_reading(busy.map_err(|why| *why))),
            ];
            round.sampled.parts.push(GpuPart::of(DeviceClass::Process, process.pid, readings));
        }
    }

    /// The ratio of time in which each process ran a kernel, since the last query.
    fn query_process_activity(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        device: &Device<'_>,
    ) -> Result<BTreeMap<u32, f64>, AbsenceReason> {
        let last_timestamp = self.last_timestamp;
        let samples = round.call_driver(Call::ProcessUtilization, || {
            match device.process_utilization_stats(last_timestamp) {
                // The driver's error for no samples.
                Err(NvmlError::NotFound) => Ok(Vec::new()),
                answer => answer,
            }
        })?;
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for sample in samples {
            self.last_timestamp = self.last_timestamp.max(sample.timestamp);
            let sum = sums.entry(sample.pid).or_default();
            *sum = (sum.0 + f64::from(sample.sm_util) / 100.0, sum.1 + 1.0);
        }
        Ok(sums.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect())
    }

    /// Samples the MIG instances and their memory.
    pub(super) fn sample_mig_instances(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
        device: &Device<'_>,
    ) {
        self.gpu = Some(NvmlFunctions::device_handle(device));
        let mode = round.call_driver(Call::MigMode, || device.mig_mode());
        round.record_reading(
            health::MIG_MODE,
            mode.as_ref().map(|mode| f64::from(mode.current)).map_err(|r| *r),
        );
        let mut present = Vec::new();
        if mode.is_ok_and(|mode| mode.current == 1) {
            let count =
                round.call_driver(Call::MigCount, || device.mig_device_count()).unwrap_or(0);
            for number in 0..count.min(MAX_INSTANCES) {
                present.extend(sample_mig_instance(round, functions, device, number));
            }
        }
        self.instances
            .retain(|instance| present.contains(&(instance.number, instance.gpu_instance)));
        for (number, gpu_instance) in present {
            if !self.instances.iter().any(|instance| instance.number == number) {
                let new = MigSampler { number, gpu_instance, buffers: None, last: None };
                self.instances.push(new);
            }
        }
    }

    /// Samples the activity of each MIG instance since the last round.
    pub(super) fn sample_mig_activity(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
    ) {
        let Some(gpu) = self.gpu else { return };
        for instance in &mut self.instances {
            if let Ok((span, readings)) = instance.sample_activity(round, functions, gpu)
                && !readings.is_empty()
            {
                let part = GpuPart::of(DeviceClass::Mig, instance.number, readings);
                round.sampled.parts.push(GpuPart { span, ..part });
            }
        }
    }

    /// Frees the buffers.
    pub(super) fn free_buffers(
        &mut self,
        current_call: &CurrentCall,
        functions: NvmlFunctions<'_>,
        index: u32,
    ) {
        for buffer in self.instances.drain(..).filter_map(|instance| instance.buffers).flatten() {
            // A buffer that the driver does not free is already lost to it.
            _ = current_call.run_call(Call::GpmFree, Some(index), || functions.free_sample(buffer));
        }
    }
}

impl MigSampler {
    /// Its activity since the last sample, and the time between the two in seconds.
    fn sample_activity(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
        gpu: NvmlDeviceHandle,
    ) -> Result<(f64, Vec<(MetricId, Reading)>), AbsenceReason> {
        let buffers = match &mut self.buffers {
            Some(buffers) => buffers,
            none => none.insert([
                round.call_driver(Call::GpmAllocate, || functions.allocate_sample())?,
                round.call_driver(Call::GpmAllocate, || functions.allocate_sample())?,
            ]),
        };
        let next = self.last.map_or(0, |(last, _)| 1 - last);
        let (buffer, id) = (&mut buffers[next], self.gpu_instance);
        round.call_driver(Call::GpmTakeMig, || functions.take_sample(gpu, Some(id), buffer))?;
        let now = Instant::now();
        let Some((last, last_time)) = self.last.replace((next, now)) else {
            return Ok((0.0, Vec::new()));
        };
        let pair = (&buffers[last], &buffers[next]);
        let numbers = ACTIVITY.map(|(number, _)| number);
        let values =
            round.call_driver(Call::GpmMetrics, || functions.query_gpm_metrics(pair, &numbers))?;
        let readings = ACTIVITY.iter().zip(values).map(|((number, metric), value)| {
            let value = value.map(|value| to_catalogue_unit(*number, value));
            let value = value.map_err(|error| round.absent_reason(Call::GpmMetrics, &error));
            (*metric, to_reading(value))
        });
        Ok(((now - last_time).as_secs_f64(), readings.collect()))
    }
}

/// Queries the identity and the memory of a MIG instance; returns its number and its GPU instance, if it exists.
fn sample_mig_instance(
    round: &mut GpuSamplingRound<'_>,
    functions: NvmlFunctions<'_>,
    device: &Device<'_>,
    number: u32,
) -> Option<(u32, u32)> {
    let result = round.call_driver(Call::MigHandle, || match device.mig_device_by_index(number) {
        // Positions without an instance are normal.
        Err(NvmlError::NotFound) => Ok(None),
        answer => answer.map(Some),
    });
    let mig = result.ok()??;
    let handle = NvmlFunctions::device_handle(&mig);
    let gpu_instance =
        round.call_driver(Call::GpuInstance, || functions.query_gpu_instance(handle)).ok()?;
    let compute =
        round.call_driver(Call::ComputeInstance, || functions.query_compute_instance(handle)).ok();
    let labels = [
        ("uuid", round.call_driver(Call::Uuid, || mig.uuid()).ok()),
        ("name", round.call_driver(Call::Name, || mig.name()).ok()),
        ("gpu_instance", Some(gpu_instance.to_string())),
        ("compute_instance", compute.map(|id| id.to_string())),
    ];
    let labels = labels.into_iter().filter_map(|(label, text)| Some((label.into(), text?.into())));
    let memory = round.call_driver(Call::MemoryInfo, || mig.memory_info());
    let used = memory.as_ref().map(|memory| memory.used as f64).map_err(|why| *why);
    let total = memory.map(|memory| memory.total as f64);
    let readings = vec![
        (parts::MIG_MEMORY_USED, to_reading(used)),
        (parts::MIG_MEMORY_TOTAL, to_reading(total)),
    ];
    let labels: Vec<(SanitizedText, SanitizedText)> = labels.collect();
    round.sampled.parts.push(GpuPart { labels, ..GpuPart::of(DeviceClass::Mig, number, readings) });
    Some((number, gpu_instance))
}

pub(super) fn to_reading(value: Result<f64, AbsenceReason>) -> Reading {
    value.map_or_else(Into::into, Reading::of)
}
