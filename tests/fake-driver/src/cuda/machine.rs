//! The simulated machine: contexts, streams, events, links, and the order in which queued work is done.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    io::Write,
    sync::atomic::Ordering,
};

use super::{
    kernel,
    memory::{Home, Memory, Stretch},
    remote,
    scenario::{Cuda, Fault},
};

/// CUDA's codes.
pub(super) const INVALID_VALUE: u32 = 1;
pub(super) const OUT_OF_MEMORY: u32 = 2;
pub(super) const NOT_INITIALIZED: u32 = 3;
pub(super) const NO_DEVICE: u32 = 100;
pub(super) const INVALID_CONTEXT: u32 = 201;
pub(super) const INVALID_HANDLE: u32 = 400;
pub(super) const NOT_READY: u32 = 600;
pub(super) const ILLEGAL_ADDRESS: u32 = 700;
pub(super) const PEER_ENABLED: u32 = 704;
pub(super) const PEER_UNSUPPORTED: u32 = 217;

/// Something that was queued on a stream.
pub(super) enum Work {
    Kernel {
        name: String,
        arguments: Vec<u64>,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Fill {
        to: u64,
        word: u32,
        words: usize,
    },
    /// The sum with what another process brings.
    Meet {
        number: usize,
        send: u64,
        receive: u64,
        bytes: usize,
        element: &'static str,
    },
    Record {
        event: u64,
        number: u64,
    },
    Wait {
        event: u64,
        number: u64,
    },
}

struct Stream {
    gpu: u32,
    queue: VecDeque<Work>,
    /// The simulated second up to which its work is done.
    time: f64,
    /// Whether a kernel on it never ends.
    stuck: bool,
}

struct Event {
    gpu: u32,
    /// How often it was recorded, and the last of these that was reached.
    recorded: u64,
    reached: u64,
    time: f64,
}

pub(super) struct Machine {
    pub(super) settings: &'static Cuda,
    pub(super) memory: Memory,
    streams: BTreeMap<u64, Stream>,
    events: BTreeMap<u64, Event>,
    /// Events that NCCL keeps for itself.
    marks: BTreeSet<u64>,
    modules: BTreeMap<u64, u32>,
    /// Kernels by their handle.
    functions: BTreeMap<u64, (u64, String)>,
    open: BTreeMap<u32, u32>,
    /// Contexts that died of a code.
    broken: BTreeMap<u32, u32>,
    peers: BTreeSet<(u32, u32)>,
    /// Until when each way is taken.
    taken: BTreeMap<(Home, Home), f64>,
    fitted: Vec<u64>,
    handles: u64,
    largest_grid: u32,
    most_streams: usize,
    random: u64,
}

impl Machine {
    pub(super) fn new(settings: &'static Cuda) -> Self {
        Self {
            settings,
            memory: Memory::default(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            marks: BTreeSet::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            open: BTreeMap::new(),
            broken: BTreeMap::new(),
            peers: BTreeSet::new(),
            taken: BTreeMap::new(),
            fitted: vec![0; settings.faults.len()],
            handles: 0x1000,
            largest_grid: 0,
            most_streams: 0,
            random: settings.shuffle.unwrap_or(0) | 1,
        }
    }

    /// The code of a context that died.
    pub(super) fn health(&self, gpu: u32) -> Result<(), u32> {
        self.broken.get(&gpu).map_or(Ok(()), |code| Err(*code))
    }

    /// The fault that a call meets now; kernels meet theirs when they run.
    pub(super) fn fault(&mut self, fits: impl Fn(&Fault) -> bool) -> Option<&'static Fault> {
        let settings = self.settings;
        for (fault, fitted) in settings.faults.iter().zip(&mut self.fitted) {
            if fits(fault) {
                *fitted += 1;
                if *fitted == fault.nth {
                    return Some(fault);
                }
            }
        }
        None
    }

    fn handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    pub(super) fn retain(&mut self, gpu: u32) {
        *self.open.entry(gpu).or_insert(0) += 1;
        super::OPEN.fetch_or(1 << gpu, Ordering::Relaxed);
    }

    /// Ends a context, and notes what was left in it.
    pub(super) fn release(&mut self, gpu: u32) -> Result<(), u32> {
        let count = self.open.get_mut(&gpu).ok_or(INVALID_CONTEXT)?;
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        self.open.remove(&gpu);
        super::OPEN.fetch_and(!(1 << gpu), Ordering::Relaxed);
        let streams = self.streams.values().filter(|stream| stream.gpu == gpu).count();
        let events = self.events.iter().filter(|(at, _)| !self.marks.contains(at));
        let events = events.filter(|(_, event)| event.gpu == gpu).count();
        let modules = self.modules.values().filter(|home| **home == gpu).count();
        let bytes = self.memory.used(Home::Gpu(gpu));
        if let Some(path) = &self.settings.ledger {
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            let line = format!(
                "gpu={gpu} bytes={bytes} streams={streams} events={events} modules={modules} \
                 largest_grid={} most_streams={}",
                self.largest_grid, self.most_streams
            );
            _ = file.and_then(|mut file| writeln!(file, "{line}"));
        }
        Ok(())
    }

    pub(super) fn enable_peer(&mut self, gpu: u32, peer: u32) -> Result<(), u32> {
        if !self.reaches(gpu, peer) {
            return Err(PEER_UNSUPPORTED);
        }
        if self.peers.insert((gpu, peer)) { Ok(()) } else { Err(PEER_ENABLED) }
    }

    /// Whether kernels of `gpu` could address the memory of `peer`.
    pub(super) fn reaches(&self, gpu: u32, peer: u32) -> bool {
        let of = |from, to| {
            let mut links = self.settings.links.iter();
            links.find(|link| link.from == from && link.to == to).is_none_or(|link| link.peer)
        };
        gpu != peer && self.settings.peer && of(gpu, peer) && of(peer, gpu)
    }

    pub(super) fn module(&mut self, gpu: u32) -> u64 {
        let handle = self.handle();
        self.modules.insert(handle, gpu);
        handle
    }

    pub(super) fn unload(&mut self, module: u64) -> Result<(), u32> {
        self.modules.remove(&module).map(drop).ok_or(INVALID_HANDLE)
    }

    pub(super) fn function(&mut self, module: u64, name: String) -> Result<u64, u32> {
        if !self.modules.contains_key(&module) {
            return Err(INVALID_HANDLE);
        }
        let handle = self.handle();
        self.functions.insert(handle, (module, name));
        Ok(handle)
    }

    /// The name of a kernel whose module is loaded on a GPU.
    pub(super) fn name(&self, function: u64, gpu: u32) -> Result<String, u32> {
        let (module, name) = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let here = self.modules.get(module) == Some(&gpu);
        if here { Ok(name.clone()) } else { Err(INVALID_HANDLE) }
    }

    pub(super) fn stream(&mut self, gpu: u32) -> u64 {
        let handle = self.handle();
        let queue = VecDeque::new();
        self.streams.insert(handle, Stream { gpu, queue, time: 0.0, stuck: false });
        let here = self.streams.values().filter(|stream| stream.gpu == gpu).count();
        self.most_streams = self.most_streams.max(here);
        handle
    }

    pub(super) fn end_stream(&mut self, stream: u64) -> Result<(), u32> {
        self.streams.remove(&stream).map(drop).ok_or(INVALID_HANDLE)
    }

    pub(super) fn event(&mut self, gpu: u32) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event { gpu, recorded: 0, reached: 0, time: 0.0 });
        handle
    }

    /// A mark of NCCL's own where a stream is.
    pub(super) fn mark(&mut self, stream: u64) -> Result<u64, u32> {
        let gpu = self.streams.get(&stream).ok_or(INVALID_HANDLE)?.gpu;
        let event = self.event(gpu);
        self.marks.insert(event);
        self.record(event, stream)?;
        Ok(event)
    }

    pub(super) fn end_event(&mut self, event: u64) -> Result<(), u32> {
        self.events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
    }

    pub(super) fn record(&mut self, event: u64, stream: u64) -> Result<(), u32> {
        let known = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        let home = self.streams.get(&stream).ok_or(INVALID_HANDLE)?.gpu;
        if known.gpu != home {
            return Err(INVALID_HANDLE);
        }
        known.recorded += 1;
        let number = known.recorded;
        self.push(stream, Work::Record { event, number })
    }

    pub(super) fn wait(&mut self, stream: u64, event: u64) -> Result<(), u32> {
        let number = self.events.get(&event).ok_or(INVALID_HANDLE)?.recorded;
        self.push(stream, Work::Wait { event, number })
    }

    /// Notes the size of a kernel that is started.
    pub(super) fn note_grid(&mut self, blocks: u32) {
        super::LAUNCHES.fetch_add(1, Ordering::Relaxed);
        self.largest_grid = self.largest_grid.max(blocks);
    }

    pub(super) fn push(&mut self, stream: u64, work: Work) -> Result<(), u32> {
        self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?.queue.push_back(work);
        Ok(())
    }

    /// Whether an event was reached, after all work that can be done now.
    pub(super) fn reached(&mut self, event: u64) -> Result<bool, u32> {
        self.pump(false);
        let event = self.events.get(&event).ok_or(INVALID_HANDLE)?;
        self.health(event.gpu)?;
        Ok(event.reached == event.recorded)
    }

    /// Seconds between two reached events of one GPU.
    pub(super) fn seconds(&self, from: u64, to: u64) -> Result<f64, u32> {
        let from = self.events.get(&from).ok_or(INVALID_HANDLE)?;
        let to = self.events.get(&to).ok_or(INVALID_HANDLE)?;
        if from.gpu != to.gpu || from.recorded == 0 || to.recorded == 0 {
            return Err(INVALID_HANDLE);
        }
        let ready = from.reached == from.recorded && to.reached == to.recorded;
        if ready { Ok(to.time - from.time) } else { Err(NOT_READY) }
    }

    /// Does everything that a GPU still has to do; false if that never ends.
    pub(super) fn drain(&mut self, gpu: u32) -> bool {
        self.pump(true);
        let mut here = self.streams.values().filter(|stream| stream.gpu == gpu);
        self.broken.contains_key(&gpu) || !here.any(|stream| stream.stuck)
    }

    /// Does all work that can be done. Gates that nobody opens hold their streams, unless they are to give up.
    fn pump(&mut self, give_up: bool) {
        while let Some(stream) = self.next(give_up) {
            let opened = self.streams.values().map(|stream| stream.time).fold(0.0, f64::max);
            let Some(known) = self.streams.get_mut(&stream) else { return };
            let Some(work) = known.queue.pop_front() else { return };
            let (gpu, from) = (known.gpu, known.time);
            match self.act(gpu, from, opened, &work) {
                Ok(Some(until)) => {
                    if let Some(known) = self.streams.get_mut(&stream) {
                        known.time = until;
                    }
                }
                Ok(None) => {
                    if let Some(known) = self.streams.get_mut(&stream) {
                        known.stuck = true;
                    }
                }
                Err(code) => {
                    self.broken.insert(gpu, code);
                }
            }
        }
    }

    /// The stream whose next piece of work is done next: the earliest one, or any.
    fn next(&mut self, give_up: bool) -> Option<u64> {
        let ready: Vec<(u64, f64)> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.stuck && !self.broken.contains_key(&stream.gpu))
            .filter(|(_, stream)| stream.queue.front().is_some_and(|work| self.can(work, give_up)))
            .map(|(handle, stream)| (*handle, stream.time))
            .collect();
        if self.settings.shuffle.is_some() && !ready.is_empty() {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            return Some(ready[(self.random >> 33) as usize % ready.len()].0);
        }
        ready.into_iter().min_by(|one, other| one.1.total_cmp(&other.1)).map(|(handle, _)| handle)
    }

    fn can(&self, work: &Work, give_up: bool) -> bool {
        match work {
            Work::Wait { event, number } => {
                self.events.get(event).is_none_or(|event| event.reached >= *number)
            }
            Work::Kernel { name, arguments } if name == "gaunt_gate" => {
                give_up || self.gate(arguments).is_none_or(|(_, open)| open)
            }
            _ => true,
        }
    }

    /// The words of a gate, and whether it is open.
    fn gate(&self, arguments: &[u64]) -> Option<(Stretch, bool)> {
        let words = self.memory.stretch(*arguments.first()?, 8)?;
        Some((words, self.memory.read(words)[..4].iter().any(|byte| *byte != 0)))
    }

    /// Does one piece of work that starts at `from`; the second at which it ends, or none if it never does.
    fn act(&mut self, gpu: u32, from: f64, opened: f64, work: &Work) -> Result<Option<f64>, u32> {
        match work {
            Work::Record { event, number } => {
                if let Some(event) = self.events.get_mut(event) {
                    (event.reached, event.time) = (*number, from);
                }
                Ok(Some(from))
            }
            Work::Wait { event, .. } => {
                Ok(Some(self.events.get(event).map_or(from, |event| event.time.max(from))))
            }
            Work::Fill { to, word, words } => {
                let to = self.memory.stretch(*to, words * 4).ok_or(ILLEGAL_ADDRESS)?;
                self.memory.write(to, &word.to_le_bytes().repeat(*words));
                Ok(Some(self.carry(to.home, to.home, words * 4, from)))
            }
            Work::Copy { to, from: source, bytes } => {
                let to = self.memory.stretch(*to, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                let source = self.memory.stretch(*source, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                self.memory.write(to, &self.memory.read(source));
                Ok(Some(self.carry(source.home, to.home, *bytes, from)))
            }
            Work::Meet { number, send, receive, bytes, element } => {
                let send = self.memory.stretch(*send, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                let receive = self.memory.stretch(*receive, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                let sum = remote::sum(*number, &self.memory.read(send), element);
                self.memory.write(receive, &sum.map_err(|_| ILLEGAL_ADDRESS)?);
                let seconds = *bytes as f64 / (self.settings.remote_gigabytes_per_second * 1e9);
                Ok(Some(from + seconds + self.settings.latency_microseconds / 1e6))
            }
            Work::Kernel { name, arguments } if name == "gaunt_gate" => {
                if let Some((words, false)) = self.gate(arguments) {
                    self.memory.write(words, &[0, 0, 0, 0, 1, 0, 0, 0]);
                }
                Ok(Some(opened))
            }
            Work::Kernel { name, arguments } => self.kernel(gpu, from, name, arguments),
        }
    }

    fn kernel(
        &mut self,
        gpu: u32,
        from: f64,
        name: &str,
        arguments: &[u64],
    ) -> Result<Option<f64>, u32> {
        let fault = self.fault(|fault| {
            fault.kernel.as_deref() == Some(name) && fault.gpu.is_none_or(|wanted| wanted == gpu)
        });
        if let Some(code) = fault.and_then(|fault| fault.error) {
            return Err(code);
        }
        if fault.is_some_and(|fault| fault.hang) {
            return Ok(None);
        }
        let may = |home| match home {
            Home::Host => true,
            Home::Gpu(other) => other == gpu || self.peers.contains(&(gpu, other)),
        };
        let flow = kernel::execute(&self.memory, name, arguments, &may)?;
        if fault.is_some_and(|fault| fault.wrong) {
            let mut bytes = self.memory.read(flow.wrote);
            let middle = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0x10;
            }
            self.memory.write(flow.wrote, &bytes);
        }
        Ok(Some(self.carry(flow.from, flow.to, flow.bytes, from)))
    }

    /// When bytes that start at a second have gone their way, which carries one load after the other.
    fn carry(&mut self, from: Home, to: Home, bytes: usize, start: f64) -> f64 {
        let seconds = bytes as f64 / (self.speed(from, to) * 1e9);
        let taken = self.taken.entry((from, to)).or_insert(0.0);
        let begin = start.max(*taken);
        *taken = begin + seconds;
        *taken + self.settings.latency_microseconds / 1e6
    }

    fn speed(&self, from: Home, to: Home) -> f64 {
        let settings = self.settings;
        match (from, to) {
            (Home::Gpu(one), Home::Gpu(other)) if one == other => {
                settings.local_gigabytes_per_second
            }
            (Home::Gpu(one), Home::Gpu(other)) => {
                let mut links = settings.links.iter();
                let link = links.find(|link| link.from == one && link.to == other);
                let usual = if self.reaches(one, other) {
                    settings.link_gigabytes_per_second
                } else {
                    // Through the host: in, and out again.
                    settings.host_gigabytes_per_second / 2.0
                };
                link.and_then(|link| link.gigabytes_per_second).unwrap_or(usual)
            }
            _ => settings.host_gigabytes_per_second,
        }
    }
}
