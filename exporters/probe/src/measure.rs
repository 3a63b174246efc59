//! Measurements: opens the GPUs, enforces the limits, runs and verifies the transfers.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use gaunt_schema::SanitizedText;

use crate::{
    cuda::{
        CudaError,
        cuda_ffi::CudaDriver,
        gpu_context::{self, ListedGpu, ProbeGpu},
    },
    exit_code::{ExitKind, ProbeExit},
    idle_check::GpuIdleCheck,
    idle_watch::GpuIdleWatch,
    request::{BandwidthMeasurement, MeasureCost, MeasureKind, MeasureRequest},
};

mod collective_run;
mod pair;
mod rank_buffers;
mod transfer_matrix;

/// The content of memory that is not written yet: not a number, and in no pattern.
const POISON: u32 = 0xFFFF_FFFF;

/// Guard bytes after each receive buffer, which no kernel may write.
const GUARD: usize = 256;

/// The interval at which a run is checked for completion.
const POLL: Duration = Duration::from_micros(50);

/// Receives the progress of a measurement; the parent's deadline depends on it.
pub(crate) trait ProgressReporter {
    /// Contexts and memory are ready: the GPUs are used from now on.
    fn report_measuring(&self);
    /// The step that starts now.
    fn report_step(&self, step: &str);
    /// The key with which the other side of a pair joins.
    fn report_key(&self, key: &str);
    /// The callback for another process on the GPUs.
    fn alarm_callback(&self) -> Box<dyn FnOnce(&ProbeExit) + Send>;
}

/// What was measured so far, whether the run succeeds or not.
#[derive(Default)]
pub(crate) struct MeasureOutcome {
    pub(crate) model: Option<SanitizedText>,
    pub(crate) measured: Vec<BandwidthMeasurement>,
    pub(crate) notes: Vec<SanitizedText>,
    pub(crate) cost: MeasureCost,
}

/// The GPUs that are measured, the request, and the idle watch.
struct MeasureSession<'a> {
    request: &'a MeasureRequest,
    gpus: Vec<ProbeGpu>,
    idle_watch: Option<GpuIdleWatch>,
    outcome: &'a mut MeasureOutcome,
    progress: &'a dyn ProgressReporter,
}

/// Runs a request; after a failure `outcome` contains what was measured before it.
pub(crate) fn run_measurement(
    request: &MeasureRequest,
    progress: &dyn ProgressReporter,
    outcome: &mut MeasureOutcome,
) -> Result<(), ProbeExit> {
    let started = Instant::now();
    let idle_check = if request.even_if_busy {
        GpuIdleCheck::open_nvml(request.libraries.nvml.as_deref(), &[]).ok()
    } else {
        Some(GpuIdleCheck::open_nvml(request.libraries.nvml.as_deref(), &request.unless)?)
    };
    let cuda = CudaDriver::open_library(request.libraries.cuda.as_deref())
        .map_err(|error| ProbeExit::of(&error, None))?;
    let chosen = choose_gpus(&cuda, idle_check.as_ref(), request)?;
    let mut idle_check = idle_check.filter(|_| !request.even_if_busy);
    if let Some(idle_check) = &mut idle_check {
        idle_check.retain_gpus(&chosen.iter().map(|(index, _)| *index).collect::<Vec<_>>());
        idle_check.check_idle()?;
    }
    outcome.model = chosen.first().map(|(_, listed)| SanitizedText::new(&listed.model));
    let cuda = Rc::new(cuda);
    let mut gpus = Vec::new();
    for (index, listed) in chosen {
        progress.report_step(&format!("context of GPU {index}"));
        let gpu = ProbeGpu::open_context(&cuda, listed, index, request.element, request.limits.sms);
        gpus.push(gpu.map_err(|error| ProbeExit::of(&error, Some(index)))?);
    }
    outcome.cost.contexts_seconds = started.elapsed().as_secs_f64();
    let mut session = MeasureSession { request, gpus, idle_watch: None, outcome, progress };
    let result = match request.what {
        MeasureKind::Collective(collective, ranks) => {
            session.measure_collective(collective, ranks, idle_check)
        }
        MeasureKind::Matrix => session.measure_matrix(idle_check),
        MeasureKind::Pair(rank) => session.measure_pair(rank, idle_check),
    };
    // All resources are freed before the result is reported.
    drop(session);
    outcome.cost.seconds = started.elapsed().as_secs_f64();
    result
}

/// The requested GPUs with their NVML indices, in index order.
fn choose_gpus(
    cuda: &CudaDriver,
    idle_check: Option<&GpuIdleCheck>,
    request: &MeasureRequest,
) -> Result<Vec<(u32, ListedGpu)>, ProbeExit> {
    let listed = gpu_context::list_gpus(cuda).map_err(|error| ProbeExit::of(&error, None))?;
    let numbered = listed.into_iter().zip(0_u32..).map(|(gpu, ordinal)| {
        let index = idle_check.and_then(|check| check.gpu_index(&gpu.bus_id)).unwrap_or(ordinal);
        (index, gpu)
    });
    let mut gpus: Vec<(u32, ListedGpu)> = numbered.collect();
    gpus.sort_by_key(|(index, _)| *index);
    if let Some(missing) =
        request.gpus.iter().find(|index| gpus.iter().all(|(listed, _)| listed != *index))
    {
        let indices: Vec<String> = gpus.iter().map(|(index, _)| index.to_string()).collect();
        let why = format!("no GPU {missing} on this node; available: {}", indices.join(", "));
        return Err(ProbeExit::new(ExitKind::NoGpu, why));
    }
    if !request.gpus.is_empty() {
        gpus.retain(|(index, _)| request.gpus.contains(index));
    }
    if gpus.is_empty() {
        return Err(ProbeExit::new(
            ExitKind::NoGpu,
            "no GPU is visible: check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES",
        ));
    }
    if let MeasureKind::Pair(_) = request.what {
        gpus.truncate(1);
    }
    let min_capability = request.element.min_capability();
    if let Some((index, gpu)) = gpus.iter().find(|(_, gpu)| gpu.capability < min_capability) {
        let why = format!(
            "GPU {index} is sm_{}; {} needs sm_{min_capability} or newer",
            gpu.capability,
            request.element.as_str()
        );
        return Err(ProbeExit::new(ExitKind::Failed, why));
    }
    Ok(gpus)
}

impl MeasureSession<'_> {
    /// Begins the part that uses the GPUs: the idle watch runs from here on.
    fn begin_measuring(&mut self, idle_check: Option<GpuIdleCheck>) -> Result<(), ProbeExit> {
        if let Some(mut idle_check) = idle_check {
            idle_check.learn_own_use()?;
            let deadline = Duration::from_millis(self.request.limits.within_millis);
            self.idle_watch = Some(GpuIdleWatch::spawn_watch(
                idle_check,
                deadline,
                self.progress.alarm_callback(),
            ));
        }
        self.progress.report_measuring();
        Ok(())
    }

    /// Whether another run that moves so many bytes may begin within the limits.
    fn can_start_run(&self, bytes: u64) -> Result<bool, ProbeExit> {
        if let Some(watch) = &self.idle_watch {
            watch.clear()?;
        }
        let (cost, limits) = (&self.outcome.cost, &self.request.limits);
        let busy = (cost.busy_seconds * 1e3) as u64;
        Ok(busy < limits.busy_millis && cost.traffic_bytes + bytes <= limits.traffic_bytes)
    }

    /// Waits until all events are reached, and adds the time to the GPU time.
    fn wait_for_events(
        &mut self,
        events: &[(usize, crate::cuda::cuda_ffi::CudaHandle)],
    ) -> Result<(), ProbeExit> {
        let started = Instant::now();
        // All of them each time: if a GPU is lost, the others wait for it, and only its own event returns the error.
        loop {
            let mut open = false;
            for (gpu, event) in events {
                open |= !self.is_event_done(*gpu, *event)?;
            }
            if !open {
                break;
            }
            if let Some(watch) = &self.idle_watch {
                watch.clear()?;
            }
            std::thread::sleep(POLL);
        }
        self.outcome.cost.busy_seconds += started.elapsed().as_secs_f64();
        Ok(())
    }

    fn is_event_done(
        &self,
        gpu: usize,
        event: crate::cuda::cuda_ffi::CudaHandle,
    ) -> Result<bool, ProbeExit> {
        self.map_gpu_error(gpu, self.gpus[gpu].is_event_done(event))
    }

    /// Maps a driver error to an exit that names the GPU.
    fn map_gpu_error<T>(&self, gpu: usize, result: Result<T, CudaError>) -> Result<T, ProbeExit> {
        result.map_err(|error| ProbeExit::of(&error, Some(self.gpus[gpu].index)))
    }

    fn add_note(&mut self, note: impl AsRef<str>) {
        self.outcome.notes.push(SanitizedText::new(note.as_ref()));
    }

    /// The NVML indices of the GPUs.
    fn gpu_indices(&self) -> Vec<u32> {
        self.gpus.iter().map(|gpu| gpu.index).collect()
    }
}
