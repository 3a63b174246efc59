//! Measuring: GPUs opened, limits kept, runs made and verified.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use gaunt_schema::Safe;

use crate::{
    cuda::{
        CudaError,
        door::Cuda,
        gpu::{self, Gpu, Listed},
    },
    ending::{Ending, Kind},
    idle::Look,
    order::{Cost, Measured, Order, What},
    watch::Watch,
};

mod collective;
mod lane;
mod matrix;
mod pair;

/// What lies in memory that nobody has written yet: not a number, and in no pattern.
const POISON: u32 = 0xFFFF_FFFF;

/// Bytes behind each receive buffer that nobody may write.
const GUARD: usize = 256;

/// How often it is looked whether a run is over.
const POLL: Duration = Duration::from_micros(50);

/// Hears how far a measurement is; what is done from then on is due by another deadline.
pub(crate) trait Hear {
    /// Contexts and memory are there: from now on GPUs work.
    fn measuring(&self);
    /// What is done now.
    fn at(&self, what: &str);
    /// The key by which the other side of a pair comes.
    fn key(&self, key: &str);
    /// Somebody came.
    fn alarm(&self) -> Box<dyn FnOnce(&Ending) + Send>;
}

/// What was measured so far, whatever the end.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) model: Option<Safe>,
    pub(crate) measured: Vec<Measured>,
    pub(crate) notes: Vec<Safe>,
    pub(crate) cost: Cost,
}

/// The GPUs that are measured, and what watches and bounds it.
struct Bench<'a> {
    order: &'a Order,
    gpus: Vec<Gpu>,
    watch: Option<Watch>,
    outcome: &'a mut Outcome,
    hear: &'a dyn Hear,
}

/// Does what is ordered; what was measured before a bad end is in `outcome` as well.
pub(crate) fn measure(order: &Order, hear: &dyn Hear, outcome: &mut Outcome) -> Result<(), Ending> {
    let began = Instant::now();
    let look = if order.even_if_busy {
        Look::open(order.libraries.nvml.as_deref(), &[]).ok()
    } else {
        Some(Look::open(order.libraries.nvml.as_deref(), &order.unless)?)
    };
    let cuda =
        Cuda::open(order.libraries.cuda.as_deref()).map_err(|error| Ending::of(&error, None))?;
    let chosen = choose(&cuda, look.as_ref(), order)?;
    let mut look = look.filter(|_| !order.even_if_busy);
    if let Some(look) = &mut look {
        look.narrow(&chosen.iter().map(|(index, _)| *index).collect::<Vec<_>>());
        look.is_free()?;
    }
    outcome.model = chosen.first().map(|(_, listed)| Safe::new(&listed.model));
    let cuda = Rc::new(cuda);
    let mut gpus = Vec::new();
    for (index, listed) in chosen {
        hear.at(&format!("the context of GPU {index}"));
        let gpu = Gpu::open(&cuda, listed, index, order.element, order.limits.sms);
        gpus.push(gpu.map_err(|error| Ending::of(&error, Some(index)))?);
    }
    outcome.cost.contexts_seconds = began.elapsed().as_secs_f64();
    let mut bench = Bench { order, gpus, watch: None, outcome, hear };
    let ended = match order.what {
        What::Collective(collective, ranks) => bench.collective(collective, ranks, look),
        What::Matrix => bench.matrix(look),
        What::Pair(rank) => bench.pair(rank, look),
    };
    // What was taken is given back before anybody is told the result.
    drop(bench);
    outcome.cost.seconds = began.elapsed().as_secs_f64();
    ended
}

/// The GPUs that are meant, by the numbers that people use, in their order.
fn choose(cuda: &Cuda, look: Option<&Look>, order: &Order) -> Result<Vec<(u32, Listed)>, Ending> {
    let listed = gpu::list(cuda).map_err(|error| Ending::of(&error, None))?;
    let numbered = listed.into_iter().zip(0_u32..).map(|(gpu, ordinal)| {
        let index = look.and_then(|look| look.index(&gpu.bus_id)).unwrap_or(ordinal);
        (index, gpu)
    });
    let mut all: Vec<(u32, Listed)> = numbered.collect();
    all.sort_by_key(|(index, _)| *index);
    if let Some(missing) =
        order.gpus.iter().find(|wanted| all.iter().all(|(known, _)| known != *wanted))
    {
        let known: Vec<String> = all.iter().map(|(index, _)| index.to_string()).collect();
        let why = format!("there is no GPU {missing} here; there are {}", known.join(", "));
        return Err(Ending::new(Kind::NoGpu, why));
    }
    if !order.gpus.is_empty() {
        all.retain(|(index, _)| order.gpus.contains(index));
    }
    if all.is_empty() {
        return Err(Ending::new(Kind::NoGpu, "the driver lists no GPU; see `nvidia-smi -L`"));
    }
    if let What::Pair(_) = order.what {
        all.truncate(1);
    }
    let oldest = order.element.oldest();
    if let Some((index, gpu)) = all.iter().find(|(_, gpu)| gpu.capability < oldest) {
        let why = format!(
            "GPU {index} is sm_{} and {} needs sm_{oldest}",
            gpu.capability,
            order.element.as_str()
        );
        return Err(Ending::new(Kind::Failed, why));
    }
    Ok(all)
}

impl Bench<'_> {
    /// Begins the part in which GPUs work: from here on strangers are watched for.
    fn begin(&mut self, look: Option<Look>) -> Result<(), Ending> {
        if let Some(mut look) = look {
            look.learn()?;
            let within = Duration::from_millis(self.order.limits.within_millis);
            self.watch = Some(Watch::start(look, within, self.hear.alarm()));
        }
        self.hear.measuring();
        Ok(())
    }

    /// Whether another run may begin that moves so many bytes.
    fn may_go_on(&self, bytes: u64) -> Result<bool, Ending> {
        if let Some(watch) = &self.watch {
            watch.clear()?;
        }
        let (cost, limits) = (&self.outcome.cost, &self.order.limits);
        let busy = (cost.busy_seconds * 1e3) as u64;
        Ok(busy < limits.busy_millis && cost.traffic_bytes + bytes <= limits.traffic_bytes)
    }

    /// Waits until all events are reached, and counts the time as the GPUs'.
    fn finish(&mut self, events: &[(usize, crate::cuda::door::Handle)]) -> Result<(), Ending> {
        let began = Instant::now();
        // All of them each time: a GPU that is lost leaves the others waiting for it, and only its own answer says so.
        loop {
            let mut open = false;
            for (gpu, event) in events {
                open |= !self.reached(*gpu, *event)?;
            }
            if !open {
                break;
            }
            if let Some(watch) = &self.watch {
                watch.clear()?;
            }
            std::thread::sleep(POLL);
        }
        self.outcome.cost.busy_seconds += began.elapsed().as_secs_f64();
        Ok(())
    }

    fn reached(&self, gpu: usize, event: crate::cuda::door::Handle) -> Result<bool, Ending> {
        self.on(gpu, self.gpus[gpu].reached(event))
    }

    /// An answer of the driver about one of the GPUs.
    fn on<T>(&self, gpu: usize, answer: Result<T, CudaError>) -> Result<T, Ending> {
        answer.map_err(|error| Ending::of(&error, Some(self.gpus[gpu].index)))
    }

    fn note(&mut self, note: impl AsRef<str>) {
        self.outcome.notes.push(Safe::new(note.as_ref()));
    }

    /// The numbers of the GPUs.
    fn indices(&self) -> Vec<u32> {
        self.gpus.iter().map(|gpu| gpu.index).collect()
    }
}
