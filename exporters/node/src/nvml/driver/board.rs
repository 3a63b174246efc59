//! One GPU across rounds: what is asked each tick, what only now and then, and what is kept in between.

use std::time::Instant;

use gaunt_schema::{
    Absent, MetricId, Reading, Safe,
    catalogue::{gpu, gpu_health as health},
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Clock, TemperatureSensor, TemperatureThreshold},
};

use super::{
    Door, Handle, Round, Wanted, fields,
    gpm::Gpm,
    links::{self, Links},
    looks::{self, Looks},
    parts::Parts,
};
use crate::nvml::{
    call::{Call, Note},
    pipe::{Part, Word},
};

/// Every how many rounds limits, health and identities are asked: they change rarely, and some cost milliseconds.
pub(super) const SLOW_EVERY: u64 = 10;

/// What is kept of one GPU between rounds.
#[derive(Default)]
pub(super) struct Board {
    /// The driver's handle of it, while it is found.
    pub(super) handle: Option<Handle>,
    gpm: Gpm,
    looks: Looks,
    links: Links,
    parts: Parts,
    slow: Option<Slow>,
}

/// What was said when it was last asked for.
#[derive(Default)]
struct Slow {
    readings: Vec<(MetricId, Reading)>,
    words: Vec<(Word, Safe)>,
    parts: Vec<Part>,
}

/// What the driver itself measures each tick, without the clock events.
const METRICS: [MetricId; 16] = [
    gpu::UTILIZATION,
    gpu::MEMORY_ACTIVITY,
    gpu::MEMORY_USED,
    gpu::MEMORY_FREE,
    gpu::MEMORY_TOTAL,
    gpu::POWER,
    gpu::POWER_LIMIT,
    gpu::ENERGY,
    gpu::TEMPERATURE,
    gpu::SM_CLOCK,
    gpu::SM_CLOCK_MAX,
    gpu::PROCESSES,
    health::ENCODER,
    health::DECODER,
    health::JPEG,
    health::OFA,
];

impl Board {
    /// Everything that is due in this round.
    pub(super) fn round(
        &mut self,
        round: &mut Round<'_>,
        door: Door<'_>,
        device: &Device<'_>,
        wanted: Wanted,
        turn: bool,
    ) {
        let handle = Door::handle(device);
        activity(round, device);
        memory(round, device);
        power(round, device, &mut self.looks);
        clocks(round, device);
        engines(round, device, door, handle);
        fields::quick(round, door, handle);
        if wanted.gpm {
            self.gpm.round(round, door, handle, self.links.count(), &mut self.looks);
        }
        self.looks.tell(round, wanted);
        self.parts.processes(round, device, wanted.processes);
        self.links.traffic(round, door, handle);
        if !wanted.gpm || self.gpm.is_unsupported() {
            links::total(round);
        }
        if turn || self.slow.is_none() {
            self.slow(round, door, device);
        }
        if let Some(slow) = &self.slow {
            round.sampled.readings.extend_from_slice(&slow.readings);
            round.sampled.words.extend_from_slice(&slow.words);
            round.sampled.parts.extend_from_slice(&slow.parts);
        }
        if wanted.gpm {
            self.parts.mig_activity(round, door);
        }
    }

    /// Asks what is asked rarely; what was said before is forgotten.
    fn slow(&mut self, round: &mut Round<'_>, door: Door<'_>, device: &Device<'_>) {
        let before = std::mem::take(&mut round.sampled);
        let handle = Door::handle(device);
        limits(round, device, door, handle);
        pcie(round, device);
        modes(round, device, door, handle);
        fields::slow(round, door, handle);
        self.links.state(round, door, device);
        self.parts.mig(round, door, device);
        let said = std::mem::replace(&mut round.sampled, before);
        round.sampled.lost |= said.lost;
        let slow = Slow { readings: said.readings, words: said.words, parts: said.parts };
        // What a GPU that is being lost said is asked again at once.
        self.slow = (!said.lost).then_some(slow);
        if said.lost {
            let all = RARE.iter().chain(fields::rare());
            let lost = all.map(|metric| (*metric, Absent::Lost.into()));
            round.sampled.readings.extend(lost);
        }
    }

    /// Everything is absent, because the GPU is not there to be asked.
    pub(super) fn absent(&mut self, round: &mut Round<'_>, wanted: Wanted, reason: Absent) {
        self.slow = None;
        let gpm = if wanted.gpm { Gpm::metrics() } else { &[] };
        let events = gpu::CLOCK_EVENTS.iter().map(|(_, metric)| metric);
        let all = METRICS
            .iter()
            .chain(events)
            .chain(fields::all())
            .chain(RARE)
            .chain(gpm)
            .chain(looks::metrics(wanted));
        round.sampled.readings.extend(all.map(|metric| (*metric, reason.into())));
    }

    /// A short look between two rounds.
    pub(super) fn look(&mut self, note: &Note, door: Door<'_>, index: u32, now: Instant) {
        let Some(handle) = self.handle else { return };
        let device = door.device(handle);
        let energy = note.during(Call::Energy, Some(index), || device.total_energy_consumption());
        if let Ok(millijoules) = energy {
            self.looks.energy(now, millijoules);
        }
        self.gpm.look(note, door, handle, index, &mut self.looks);
    }

    /// Gives its buffers back.
    pub(super) fn free(&mut self, note: &Note, door: Door<'_>, index: u32) {
        self.gpm.free(note, door, index);
        self.parts.free(note, door, index);
    }
}

/// What is asked rarely and call by call.
const RARE: &[MetricId] = &[
    health::BAR1_USED,
    health::BAR1_TOTAL,
    health::SLOWDOWN_TEMPERATURE,
    health::SHUTDOWN_TEMPERATURE,
    health::TEMPERATURE_MARGIN,
    health::MEMORY_CLOCK_MAX,
    health::PCIE_GENERATION,
    health::PCIE_GENERATION_MAX,
    health::PCIE_WIDTH,
    health::PCIE_WIDTH_MAX,
    health::FABRIC_STATE,
    health::MIG_MODE,
];

fn activity(round: &mut Round<'_>, device: &Device<'_>) {
    let used = round.ask(Call::Utilization, || device.utilization_rates());
    round.put(
        gpu::UTILIZATION,
        used.as_ref().map(|used| f64::from(used.gpu) / 100.0).map_err(|r| *r),
    );
    round.put(gpu::MEMORY_ACTIVITY, used.map(|used| f64::from(used.memory) / 100.0));
}

fn memory(round: &mut Round<'_>, device: &Device<'_>) {
    let memory = round.ask(Call::MemoryInfo, || device.memory_info());
    let mut put = |metric, pick: fn(&nvml_wrapper::struct_wrappers::device::MemoryInfo) -> u64| {
        round.put(metric, memory.as_ref().map(|memory| pick(memory) as f64).map_err(|why| *why));
    };
    put(gpu::MEMORY_USED, |memory| memory.used);
    put(gpu::MEMORY_FREE, |memory| memory.free);
    put(gpu::MEMORY_TOTAL, |memory| memory.total);
    put(health::MEMORY_RESERVED, |memory| memory.reserved);
}

fn power(round: &mut Round<'_>, device: &Device<'_>, looks: &mut Looks) {
    let milliwatts = round.ask(Call::PowerUsage, || device.power_usage());
    round.put(gpu::POWER, milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3));
    let limit = round.ask(Call::PowerLimit, || device.enforced_power_limit());
    round.put(gpu::POWER_LIMIT, limit.map(|milliwatts| f64::from(milliwatts) / 1e3));
    let energy = round.ask(Call::Energy, || device.total_energy_consumption());
    if let Ok(millijoules) = energy {
        looks.energy(Instant::now(), millijoules);
    }
    round.put(gpu::ENERGY, energy.map(|millijoules| millijoules as f64 / 1e3));
}

fn clocks(round: &mut Round<'_>, device: &Device<'_>) {
    let gpu_sensor = TemperatureSensor::Gpu;
    round.one(gpu::TEMPERATURE, 1.0, Call::Temperature, || device.temperature(gpu_sensor));
    round.one(gpu::SM_CLOCK, 1e6, Call::Clock, || device.clock_info(Clock::SM));
    round.one(gpu::SM_CLOCK_MAX, 1e6, Call::MaxClock, || device.max_clock_info(Clock::SM));
    round.one(health::MEMORY_CLOCK, 1e6, Call::Clock, || device.clock_info(Clock::Memory));
    let state = round.ask(Call::PerformanceState, || device.performance_state());
    round.put(health::PERFORMANCE_STATE, state.map(|state| f64::from(state.as_c())));
    let events = round.ask(Call::ClockEvents, || device.current_throttle_reasons());
    for &(bit, metric) in gpu::CLOCK_EVENTS {
        round.put(metric, events.map(|events| f64::from(u8::from(events.bits() & bit != 0))));
    }
}

fn limits(round: &mut Round<'_>, device: &Device<'_>, door: Door<'_>, handle: Handle) {
    for (metric, threshold) in [
        (health::SLOWDOWN_TEMPERATURE, TemperatureThreshold::Slowdown),
        (health::SHUTDOWN_TEMPERATURE, TemperatureThreshold::Shutdown),
    ] {
        let ask = || device.temperature_threshold(threshold);
        round.one(metric, 1.0, Call::TemperatureThreshold, ask);
    }
    round.one(health::TEMPERATURE_MARGIN, 1.0, Call::Margin, || door.margin(handle));
    let highest = || device.max_clock_info(Clock::Memory);
    round.one(health::MEMORY_CLOCK_MAX, 1e6, Call::MaxClock, highest);
    let window = round.ask(Call::Bar1, || device.bar1_memory_info());
    round.put(health::BAR1_USED, window.as_ref().map(|bar1| bar1.used as f64).map_err(|why| *why));
    round.put(health::BAR1_TOTAL, window.map(|bar1| bar1.total as f64));
}

fn engines(round: &mut Round<'_>, device: &Device<'_>, door: Door<'_>, handle: Handle) {
    let encoder = round.ask(Call::Encoder, || device.encoder_utilization());
    round.put(health::ENCODER, encoder.map(|used| f64::from(used.utilization) / 100.0));
    let decoder = round.ask(Call::Decoder, || device.decoder_utilization());
    round.put(health::DECODER, decoder.map(|used| f64::from(used.utilization) / 100.0));
    let jpeg = round.ask(Call::Jpeg, || door.jpeg(handle));
    round.put(health::JPEG, jpeg.map(|percent| f64::from(percent) / 100.0));
    let ofa = round.ask(Call::Ofa, || door.ofa(handle));
    round.put(health::OFA, ofa.map(|percent| f64::from(percent) / 100.0));
}

fn pcie(round: &mut Round<'_>, device: &Device<'_>) {
    let generation = || device.current_pcie_link_gen();
    round.one(health::PCIE_GENERATION, 1.0, Call::PcieGeneration, generation);
    let highest = || device.max_pcie_link_gen();
    round.one(health::PCIE_GENERATION_MAX, 1.0, Call::PcieGenerationMax, highest);
    round.one(health::PCIE_WIDTH, 1.0, Call::PcieWidth, || device.current_pcie_link_width());
    round.one(health::PCIE_WIDTH_MAX, 1.0, Call::PcieWidthMax, || device.max_pcie_link_width());
}

/// Modes, and the place in the fabric: words rather than numbers.
fn modes(round: &mut Round<'_>, device: &Device<'_>, door: Door<'_>, handle: Handle) {
    if let Ok(mode) = round.ask(Call::ComputeMode, || device.compute_mode()) {
        round.word(Word::ComputeMode, format!("{mode:?}").to_lowercase());
    }
    if let Ok(kept) = round.ask(Call::Persistence, || device.is_in_persistent_mode()) {
        round.word(Word::Persistence, if kept { "on" } else { "off" });
    }
    let fabric = round.ask(Call::Fabric, || door.fabric(handle));
    if let Ok(fabric) = &fabric
        && fabric.cluster != [0; 16]
    {
        round.word(Word::ClusterUuid, uuid(fabric.cluster));
        round.word(Word::Clique, fabric.clique.to_string());
    }
    round.put(health::FABRIC_STATE, fabric.map(|fabric| f64::from(fabric.state)));
}

/// A UUID as people write it.
fn uuid(bytes: [u8; 16]) -> String {
    use std::fmt::Write;
    bytes.iter().enumerate().fold(String::with_capacity(36), |mut text, (at, byte)| {
        let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
        _ = write!(text, "{dash}{byte:02x}");
        text
    })
}
