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
    seen: u64,
    /// The handle of the whole GPU, of which instances are sampled.
    whole: Option<NvmlDeviceHandle>,
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
        each: bool,
    ) {
        if !each {
            let count =
                round.call_driver(Call::Processes, || device.running_compute_processes_count());
            round.record_reading(gpu::PROCESSES, count.map(f64::from));
            return;
        }
        let running = round.call_driver(Call::Processes, || device.running_compute_processes());
        round.record_reading(
            gpu::PROCESSES,
            running.as_ref().map(|all| all.len() as f64).map_err(|why| *why),
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
        let seen = self.seen;
        let samples = round.call_driver(Call::ProcessUtilization, || {
            match device.process_utilization_stats(seen) {
                // The driver's error for no samples.
                Err(NvmlError::NotFound) => Ok(Vec::new()),
                answer => answer,
            }
        })?;
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for sample in samples {
            self.seen = self.seen.max(sample.timestamp);
            let sum = sums.entry(sample.pid).or_default();
            *sum = (sum.0 + f64::from(sample.sm_util) / 100.0, sum.1 + 1.0);
        }
        Ok(sums.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect())
    }

    /// Samples the MIG instances and their memory.
    pub(super) fn sample_mig_instances(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        door: NvmlFunctions<'_>,
        device: &Device<'_>,
    ) {
        self.whole = Some(NvmlFunctions::device_handle(device));
        let mode = round.call_driver(Call::MigMode, || device.mig_mode());
        round.record_reading(
            health::MIG_MODE,
            mode.as_ref().map(|mode| f64::from(mode.current)).map_err(|r| *r),
        );
        let mut there = Vec::new();
        if mode.is_ok_and(|mode| mode.current == 1) {
            let count =
                round.call_driver(Call::MigCount, || device.mig_device_count()).unwrap_or(0);
            for number in 0..count.min(MAX_INSTANCES) {
                there.extend(sample_mig_instance(round, door, device, number));
            }
        }
        self.instances.retain(|known| there.contains(&(known.number, known.gpu_instance)));
        for (number, gpu_instance) in there {
            if !self.instances.iter().any(|known| known.number == number) {
                let new = MigSampler { number, gpu_instance, buffers: None, last: None };
                self.instances.push(new);
            }
        }
    }

    /// Samples the activity of each MIG instance since the last round.
    pub(super) fn sample_mig_activity(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        door: NvmlFunctions<'_>,
    ) {
        let Some(whole) = self.whole else { return };
        for instance in &mut self.instances {
            if let Ok((span, readings)) = instance.sample_activity(round, door, whole)
                && !readings.is_empty()
            {
                let said = GpuPart::of(DeviceClass::Mig, instance.number, readings);
                round.sampled.parts.push(GpuPart { span, ..said });
            }
        }
    }

    /// Frees the buffers.
    pub(super) fn free_buffers(&mut self, note: &CurrentCall, door: NvmlFunctions<'_>, index: u32) {
        for buffer in self.instances.drain(..).filter_map(|known| known.buffers).flatten() {
            // A buffer that the driver does not free is already lost to it.
            _ = note.run_call(Call::GpmFree, Some(index), || door.free_sample(buffer));
        }
    }
}

impl MigSampler {
    /// Its activity since the last sample, and the time between the two in seconds.
    fn sample_activity(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        door: NvmlFunctions<'_>,
        whole: NvmlDeviceHandle,
    ) -> Result<(f64, Vec<(MetricId, Reading)>), AbsenceReason> {
        let buffers = match &mut self.buffers {
            Some(buffers) => buffers,
            none => none.insert([
                round.call_driver(Call::GpmAllocate, || door.allocate_sample())?,
                round.call_driver(Call::GpmAllocate, || door.allocate_sample())?,
            ]),
        };
        let next = self.last.map_or(0, |(last, _)| 1 - last);
        let (buffer, id) = (&mut buffers[next], self.gpu_instance);
        round.call_driver(Call::GpmTakeMig, || door.take_sample(whole, Some(id), buffer))?;
        let now = Instant::now();
        let Some((last, then)) = self.last.replace((next, now)) else {
            return Ok((0.0, Vec::new()));
        };
        let pair = (&buffers[last], &buffers[next]);
        let numbers = ACTIVITY.map(|(number, _)| number);
        let values =
            round.call_driver(Call::GpmMetrics, || door.query_gpm_metrics(pair, &numbers))?;
        let readings = ACTIVITY.iter().zip(values).map(|((number, metric), value)| {
            let value = value.map(|value| to_catalogue_unit(*number, value));
            let value = value.map_err(|error| round.absent_reason(Call::GpmMetrics, &error));
            (*metric, to_reading(value))
        });
        Ok(((now - then).as_secs_f64(), readings.collect()))
    }
}

/// Queries the identity and the memory of a MIG instance; returns its number and its GPU instance, if it exists.
fn sample_mig_instance(
    round: &mut GpuSamplingRound<'_>,
    door: NvmlFunctions<'_>,
    device: &Device<'_>,
    number: u32,
) -> Option<(u32, u32)> {
    let found = round.call_driver(Call::MigHandle, || match device.mig_device_by_index(number) {
        // Positions without an instance are normal.
        Err(NvmlError::NotFound) => Ok(None),
        answer => answer.map(Some),
    });
    let mig = found.ok()??;
    let handle = NvmlFunctions::device_handle(&mig);
    let gpu_instance =
        round.call_driver(Call::GpuInstance, || door.query_gpu_instance(handle)).ok()?;
    let compute =
        round.call_driver(Call::ComputeInstance, || door.query_compute_instance(handle)).ok();
    let words = [
        ("uuid", round.call_driver(Call::Uuid, || mig.uuid()).ok()),
        ("name", round.call_driver(Call::Name, || mig.name()).ok()),
        ("gpu_instance", Some(gpu_instance.to_string())),
        ("compute_instance", compute.map(|id| id.to_string())),
    ];
    let labels = words.into_iter().filter_map(|(label, text)| Some((label.into(), text?.into())));
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
