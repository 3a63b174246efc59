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

/// What lies in memory that nobody has written yet: not a number, and in no pattern.
const POISON: u32 = 0xFFFF_FFFF;

/// Bytes behind each receive buffer that nobody may write.
const GUARD: usize = 256;

/// How often it is looked whether a run is over.
const POLL: Duration = Duration::from_micros(50);

/// Hears how far a measurement is; what is done from then on is due by another deadline.
pub(crate) trait ProgressReporter {
    /// Contexts and memory are there: from now on GPUs work.
    fn report_measuring(&self);
    /// What is done now.
    fn report_step(&self, what: &str);
    /// The key by which the other side of a pair comes.
    fn report_key(&self, key: &str);
    /// Somebody came.
    fn alarm_callback(&self) -> Box<dyn FnOnce(&ProbeExit) + Send>;
}

/// What was measured so far, whatever the end.
#[derive(Default)]
pub(crate) struct MeasureOutcome {
    pub(crate) model: Option<SanitizedText>,
    pub(crate) measured: Vec<BandwidthMeasurement>,
    pub(crate) notes: Vec<SanitizedText>,
    pub(crate) cost: MeasureCost,
}

/// The GPUs that are measured, and what watches and bounds it.
struct MeasureSession<'a> {
    request: &'a MeasureRequest,
    gpus: Vec<ProbeGpu>,
    idle_watch: Option<GpuIdleWatch>,
    outcome: &'a mut MeasureOutcome,
    progress: &'a dyn ProgressReporter,
}

/// Does what is ordered; what was measured before a bad end is in `outcome` as well.
pub(crate) fn run_measurement(
    order: &MeasureRequest,
    hear: &dyn ProgressReporter,
    outcome: &mut MeasureOutcome,
) -> Result<(), ProbeExit> {
    let began = Instant::now();
    let look = if order.even_if_busy {
        GpuIdleCheck::open_nvml(order.libraries.nvml.as_deref(), &[]).ok()
    } else {
        Some(GpuIdleCheck::open_nvml(order.libraries.nvml.as_deref(), &order.unless)?)
    };
    let cuda = CudaDriver::open_library(order.libraries.cuda.as_deref())
        .map_err(|error| ProbeExit::of(&error, None))?;
    let chosen = choose_gpus(&cuda, look.as_ref(), order)?;
    let mut look = look.filter(|_| !order.even_if_busy);
    if let Some(look) = &mut look {
        look.retain_gpus(&chosen.iter().map(|(index, _)| *index).collect::<Vec<_>>());
        look.check_idle()?;
    }
    outcome.model = chosen.first().map(|(_, listed)| SanitizedText::new(&listed.model));
    let cuda = Rc::new(cuda);
    let mut gpus = Vec::new();
    for (index, listed) in chosen {
        hear.report_step(&format!("the context of GPU {index}"));
        let gpu = ProbeGpu::open_context(&cuda, listed, index, order.element, order.limits.sms);
        gpus.push(gpu.map_err(|error| ProbeExit::of(&error, Some(index)))?);
    }
    outcome.cost.contexts_seconds = began.elapsed().as_secs_f64();
    let mut bench =
        MeasureSession { request: order, gpus, idle_watch: None, outcome, progress: hear };
    let ended = match order.what {
        MeasureKind::Collective(collective, ranks) => {
            bench.measure_collective(collective, ranks, look)
        }
        MeasureKind::Matrix => bench.measure_matrix(look),
        MeasureKind::Pair(rank) => bench.measure_pair(rank, look),
    };
    // What was taken is given back before anybody is told the result.
    drop(bench);
    outcome.cost.seconds = began.elapsed().as_secs_f64();
    ended
}

/// The GPUs that are meant, by the numbers that people use, in their order.
fn choose_gpus(
    cuda: &CudaDriver,
    look: Option<&GpuIdleCheck>,
    order: &MeasureRequest,
) -> Result<Vec<(u32, ListedGpu)>, ProbeExit> {
    let listed = gpu_context::list_gpus(cuda).map_err(|error| ProbeExit::of(&error, None))?;
    let numbered = listed.into_iter().zip(0_u32..).map(|(gpu, ordinal)| {
        let index = look.and_then(|look| look.gpu_index(&gpu.bus_id)).unwrap_or(ordinal);
        (index, gpu)
    });
    let mut all: Vec<(u32, ListedGpu)> = numbered.collect();
    all.sort_by_key(|(index, _)| *index);
    if let Some(missing) =
        order.gpus.iter().find(|wanted| all.iter().all(|(known, _)| known != *wanted))
    {
        let known: Vec<String> = all.iter().map(|(index, _)| index.to_string()).collect();
        let why = format!("there is no GPU {missing} here; there are {}", known.join(", "));
        return Err(ProbeExit::new(ExitKind::NoGpu, why));
    }
    if !order.gpus.is_empty() {
        all.retain(|(index, _)| order.gpus.contains(index));
    }
    if all.is_empty() {
        return Err(ProbeExit::new(
            ExitKind::NoGpu,
            "the driver lists no GPU; see `nvidia-smi -L`",
        ));
    }
    if let MeasureKind::Pair(_) = order.what {
        all.truncate(1);
    }
    let oldest = order.element.min_capability();
    if let Some((index, gpu)) = all.iter().find(|(_, gpu)| gpu.capability < oldest) {
        let why = format!(
            "GPU {index} is sm_{} and {} needs sm_{oldest}",
            gpu.capability,
            order.element.as_str()
        );
        return Err(ProbeExit::new(ExitKind::Failed, why));
    }
    Ok(all)
}

impl MeasureSession<'_> {
    /// Begins the part in which GPUs work: from here on strangers are watched for.
    fn begin_measuring(&mut self, look: Option<GpuIdleCheck>) -> Result<(), ProbeExit> {
        if let Some(mut look) = look {
            look.learn_own_use()?;
            let within = Duration::from_millis(self.request.limits.within_millis);
            self.idle_watch =
                Some(GpuIdleWatch::spawn_watch(look, within, self.progress.alarm_callback()));
        }
        self.progress.report_measuring();
        Ok(())
    }

    /// Whether another run may begin that moves so many bytes.
    fn can_start_run(&self, bytes: u64) -> Result<bool, ProbeExit> {
        if let Some(watch) = &self.idle_watch {
            watch.clear()?;
        }
        let (cost, limits) = (&self.outcome.cost, &self.request.limits);
        let busy = (cost.busy_seconds * 1e3) as u64;
        Ok(busy < limits.busy_millis && cost.traffic_bytes + bytes <= limits.traffic_bytes)
    }

    /// Waits until all events are reached, and counts the time as the GPUs'.
    fn wait_for_events(
        &mut self,
        events: &[(usize, crate::cuda::cuda_ffi::CudaHandle)],
    ) -> Result<(), ProbeExit> {
        let began = Instant::now();
        // All of them each time: a GPU that is lost leaves the others waiting for it, and only its own answer says so.
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
        self.outcome.cost.busy_seconds += began.elapsed().as_secs_f64();
        Ok(())
    }

    fn is_event_done(
        &self,
        gpu: usize,
        event: crate::cuda::cuda_ffi::CudaHandle,
    ) -> Result<bool, ProbeExit> {
        self.map_gpu_error(gpu, self.gpus[gpu].is_event_done(event))
    }

    /// An answer of the driver about one of the GPUs.
    fn map_gpu_error<T>(&self, gpu: usize, answer: Result<T, CudaError>) -> Result<T, ProbeExit> {
        answer.map_err(|error| ProbeExit::of(&error, Some(self.gpus[gpu].index)))
    }

    fn add_note(&mut self, note: impl AsRef<str>) {
        self.outcome.notes.push(SanitizedText::new(note.as_ref()));
    }

    /// The numbers of the GPUs.
    fn gpu_indices(&self) -> Vec<u32> {
        self.gpus.iter().map(|gpu| gpu.index).collect()
    }
}
