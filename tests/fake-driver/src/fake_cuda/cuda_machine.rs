//! The simulated machine: contexts, streams, events, links, and the order in which queued work runs.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    io::Write,
    sync::atomic::Ordering,
};

use super::{
    cuda_codes::{
        ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY, PEER_ENABLED, PEER_UNSUPPORTED,
    },
    cuda_scenario::{CudaFault, CudaScenario},
    emulated_kernels,
    fake_memory::{FakeCudaMemory, FakeMemoryRange, MemoryLocation},
    remote_rank,
};

/// Work queued on a stream.
pub(super) enum StreamWork {
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
    /// The sum with the data of another process.
    SumWithPeer {
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

struct FakeCudaStream {
    gpu: u32,
    queue: VecDeque<StreamWork>,
    /// The simulated second at which its last work ended.
    time: f64,
    /// Whether a kernel on it never ends.
    stuck: bool,
}

struct FakeCudaEvent {
    gpu: u32,
    /// The number of times that it was recorded, and the last of these that was reached.
    recorded: u64,
    reached: u64,
    time: f64,
}

pub(super) struct FakeCudaMachine {
    pub(super) settings: &'static CudaScenario,
    pub(super) memory: FakeCudaMemory,
    streams: BTreeMap<u64, FakeCudaStream>,
    events: BTreeMap<u64, FakeCudaEvent>,
    /// Events that NCCL created.
    marks: BTreeSet<u64>,
    modules: BTreeMap<u64, u32>,
    /// Kernels by their handle.
    functions: BTreeMap<u64, (u64, String)>,
    open_contexts: BTreeMap<u32, u32>,
    /// Contexts that failed, with the code.
    failed_contexts: BTreeMap<u32, u32>,
    peers: BTreeSet<(u32, u32)>,
    /// The second until which each path is busy.
    busy_until: BTreeMap<(MemoryLocation, MemoryLocation), f64>,
    match_counts: Vec<u64>,
    handles: u64,
    largest_grid: u32,
    most_streams: usize,
    random: u64,
}

impl FakeCudaMachine {
    pub(super) fn new(settings: &'static CudaScenario) -> Self {
        Self {
            settings,
            memory: FakeCudaMemory::default(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            marks: BTreeSet::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            open_contexts: BTreeMap::new(),
            failed_contexts: BTreeMap::new(),
            peers: BTreeSet::new(),
            busy_until: BTreeMap::new(),
            match_counts: vec![0; settings.faults.len()],
            handles: 0x1000,
            largest_grid: 0,
            most_streams: 0,
            random: settings.shuffle.unwrap_or(0) | 1,
        }
    }

    /// Returns the code of a context that failed.
    pub(super) fn check_context(&self, gpu: u32) -> Result<(), u32> {
        self.failed_contexts.get(&gpu).map_or(Ok(()), |code| Err(*code))
    }

    /// The fault that applies to a call now; those of kernels apply when they run.
    pub(super) fn match_fault(
        &mut self,
        fits: impl Fn(&CudaFault) -> bool,
    ) -> Option<&'static CudaFault> {
        let settings = self.settings;
        for (fault, match_count) in settings.faults.iter().zip(&mut self.match_counts) {
            if fits(fault) {
                *match_count += 1;
                if *match_count == fault.nth {
                    return Some(fault);
                }
            }
        }
        None
    }

    fn new_handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles
    }

    pub(super) fn retain_context(&mut self, gpu: u32) {
        *self.open_contexts.entry(gpu).or_insert(0) += 1;
        super::OPEN.fetch_or(1 << gpu, Ordering::Relaxed);
    }

    /// Ends a context, and records what was not freed in it.
    pub(super) fn release_context(&mut self, gpu: u32) -> Result<(), u32> {
        let count = self.open_contexts.get_mut(&gpu).ok_or(INVALID_CONTEXT)?;
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        self.open_contexts.remove(&gpu);
        super::OPEN.fetch_and(!(1 << gpu), Ordering::Relaxed);
        let streams = self.streams.values().filter(|stream| stream.gpu == gpu).count();
        let events = self.events.iter().filter(|(handle, _)| !self.marks.contains(handle));
        let events = events.filter(|(_, event)| event.gpu == gpu).count();
        let modules = self.modules.values().filter(|module_gpu| **module_gpu == gpu).count();
        let bytes = self.memory.used_bytes(MemoryLocation::Gpu(gpu));
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
        if !self.can_reach(gpu, peer) {
            return Err(PEER_UNSUPPORTED);
        }
        if self.peers.insert((gpu, peer)) { Ok(()) } else { Err(PEER_ENABLED) }
    }

    /// Whether kernels of `gpu` can access the memory of `peer`.
    pub(super) fn can_reach(&self, gpu: u32, peer: u32) -> bool {
        let allows_access = |from, to| {
            let mut links = self.settings.links.iter();
            links.find(|link| link.from == from && link.to == to).is_none_or(|link| link.peer)
        };
        gpu != peer && self.settings.peer && allows_access(gpu, peer) && allows_access(peer, gpu)
    }

    pub(super) fn load_module(&mut self, gpu: u32) -> u64 {
        let handle = self.new_handle();
        self.modules.insert(handle, gpu);
        handle
    }

    pub(super) fn unload_module(&mut self, module: u64) -> Result<(), u32> {
        self.modules.remove(&module).map(drop).ok_or(INVALID_HANDLE)
    }

    pub(super) fn create_function(&mut self, module: u64, name: String) -> Result<u64, u32> {
        if !self.modules.contains_key(&module) {
            return Err(INVALID_HANDLE);
        }
        let handle = self.new_handle();
        self.functions.insert(handle, (module, name));
        Ok(handle)
    }

    /// The name of a kernel whose module is loaded on a GPU.
    pub(super) fn kernel_name(&self, function: u64, gpu: u32) -> Result<String, u32> {
        let (module, name) = self.functions.get(&function).ok_or(INVALID_HANDLE)?;
        let is_loaded = self.modules.get(module) == Some(&gpu);
        if is_loaded { Ok(name.clone()) } else { Err(INVALID_HANDLE) }
    }

    pub(super) fn create_stream(&mut self, gpu: u32) -> u64 {
        let handle = self.new_handle();
        let queue = VecDeque::new();
        self.streams.insert(handle, FakeCudaStream { gpu, queue, time: 0.0, stuck: false });
        let stream_count = self.streams.values().filter(|stream| stream.gpu == gpu).count();
        self.most_streams = self.most_streams.max(stream_count);
        handle
    }

    pub(super) fn destroy_stream(&mut self, stream: u64) -> Result<(), u32> {
        self.streams.remove(&stream).map(drop).ok_or(INVALID_HANDLE)
    }

    pub(super) fn create_event(&mut self, gpu: u32) -> u64 {
        let handle = self.new_handle();
        self.events.insert(handle, FakeCudaEvent { gpu, recorded: 0, reached: 0, time: 0.0 });
        handle
    }

    /// Records an event of NCCL on a stream.
    pub(super) fn record_mark(&mut self, stream: u64) -> Result<u64, u32> {
        let gpu = self.streams.get(&stream).ok_or(INVALID_HANDLE)?.gpu;
        let event = self.create_event(gpu);
        self.marks.insert(event);
        self.record_event(event, stream)?;
        Ok(event)
    }

    pub(super) fn destroy_event(&mut self, event: u64) -> Result<(), u32> {
        self.events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
    }

    pub(super) fn record_event(&mut self, event: u64, stream: u64) -> Result<(), u32> {
        let state = self.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        let stream_gpu = self.streams.get(&stream).ok_or(INVALID_HANDLE)?.gpu;
        if state.gpu != stream_gpu {
            return Err(INVALID_HANDLE);
        }
        state.recorded += 1;
        let number = state.recorded;
        self.push(stream, StreamWork::Record { event, number })
    }

    pub(super) fn wait_event(&mut self, stream: u64, event: u64) -> Result<(), u32> {
        let number = self.events.get(&event).ok_or(INVALID_HANDLE)?.recorded;
        self.push(stream, StreamWork::Wait { event, number })
    }

    /// Records the size of a launched kernel.
    pub(super) fn record_launch(&mut self, blocks: u32) {
        super::LAUNCHES.fetch_add(1, Ordering::Relaxed);
        self.largest_grid = self.largest_grid.max(blocks);
    }

    pub(super) fn push(&mut self, stream: u64, work: StreamWork) -> Result<(), u32> {
        self.streams.get_mut(&stream).ok_or(INVALID_HANDLE)?.queue.push_back(work);
        Ok(())
    }

    /// Whether an event was reached, after all work that can run now.
    pub(super) fn is_event_done(&mut self, event: u64) -> Result<bool, u32> {
        self.run_ready_work(false);
        let event = self.events.get(&event).ok_or(INVALID_HANDLE)?;
        self.check_context(event.gpu)?;
        Ok(event.reached == event.recorded)
    }

    /// Seconds between two reached events of one GPU.
    pub(super) fn seconds_between(&self, from: u64, to: u64) -> Result<f64, u32> {
        let from = self.events.get(&from).ok_or(INVALID_HANDLE)?;
        let to = self.events.get(&to).ok_or(INVALID_HANDLE)?;
        if from.gpu != to.gpu || from.recorded == 0 || to.recorded == 0 {
            return Err(INVALID_HANDLE);
        }
        let ready = from.reached == from.recorded && to.reached == to.recorded;
        if ready { Ok(to.time - from.time) } else { Err(NOT_READY) }
    }

    /// Runs all queued work of a GPU; false if it never ends.
    pub(super) fn drain_gpu(&mut self, gpu: u32) -> bool {
        self.run_ready_work(true);
        let mut streams = self.streams.values().filter(|stream| stream.gpu == gpu);
        self.failed_contexts.contains_key(&gpu) || !streams.any(|stream| stream.stuck)
    }

    /// Runs all work that can run. Closed gates block their streams, unless `time_out` is set.
    fn run_ready_work(&mut self, time_out: bool) {
        while let Some(stream) = self.next(time_out) {
            let opened = self.streams.values().map(|stream| stream.time).fold(0.0, f64::max);
            let Some(state) = self.streams.get_mut(&stream) else { return };
            let Some(work) = state.queue.pop_front() else { return };
            let (gpu, from) = (state.gpu, state.time);
            match self.run_work(gpu, from, opened, &work) {
                Ok(Some(until)) => {
                    if let Some(state) = self.streams.get_mut(&stream) {
                        state.time = until;
                    }
                }
                Ok(None) => {
                    if let Some(state) = self.streams.get_mut(&stream) {
                        state.stuck = true;
                    }
                }
                Err(code) => {
                    self.failed_contexts.insert(gpu, code);
                }
            }
        }
    }

    /// The stream whose next work runs next: the earliest one, or a random one.
    fn next(&mut self, time_out: bool) -> Option<u64> {
        let ready: Vec<(u64, f64)> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.stuck && !self.failed_contexts.contains_key(&stream.gpu))
            .filter(|(_, stream)| {
                stream.queue.front().is_some_and(|work| self.can_run(work, time_out))
            })
            .map(|(handle, stream)| (*handle, stream.time))
            .collect();
        if self.settings.shuffle.is_some() && !ready.is_empty() {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            return Some(ready[(self.random >> 33) as usize % ready.len()].0);
        }
        ready.into_iter().min_by(|one, other| one.1.total_cmp(&other.1)).map(|(handle, _)| handle)
    }

    fn can_run(&self, work: &StreamWork, time_out: bool) -> bool {
        match work {
            StreamWork::Wait { event, number } => {
                self.events.get(event).is_none_or(|event| event.reached >= *number)
            }
            StreamWork::Kernel { name, arguments } if name == "gaunt_gate" => {
                time_out || self.read_gate(arguments).is_none_or(|(_, open)| open)
            }
            _ => true,
        }
    }

    /// The words of a gate, and whether it is open.
    fn read_gate(&self, arguments: &[u64]) -> Option<(FakeMemoryRange, bool)> {
        let words = self.memory.find_range(*arguments.first()?, 8)?;
        Some((words, self.memory.read_range(words)[..4].iter().any(|byte| *byte != 0)))
    }

    /// Runs work that starts at `from`; returns the second at which it ends, or none if it never does.
    fn run_work(
        &mut self,
        gpu: u32,
        from: f64,
        opened: f64,
        work: &StreamWork,
    ) -> Result<Option<f64>, u32> {
        match work {
            StreamWork::Record { event, number } => {
                if let Some(event) = self.events.get_mut(event) {
                    (event.reached, event.time) = (*number, from);
                }
                Ok(Some(from))
            }
            StreamWork::Wait { event, .. } => {
                Ok(Some(self.events.get(event).map_or(from, |event| event.time.max(from))))
            }
            StreamWork::Fill { to, word, words } => {
                let to = self.memory.find_range(*to, words * 4).ok_or(ILLEGAL_ADDRESS)?;
                self.memory.write_range(to, &word.to_le_bytes().repeat(*words));
                Ok(Some(self.schedule_transfer(to.location, to.location, words * 4, from)))
            }
            StreamWork::Copy { to, from: source, bytes } => {
                let to = self.memory.find_range(*to, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                let source = self.memory.find_range(*source, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                self.memory.write_range(to, &self.memory.read_range(source));
                Ok(Some(self.schedule_transfer(source.location, to.location, *bytes, from)))
            }
            StreamWork::SumWithPeer { number, send, receive, bytes, element } => {
                let send = self.memory.find_range(*send, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                let receive = self.memory.find_range(*receive, *bytes).ok_or(ILLEGAL_ADDRESS)?;
                let sum =
                    remote_rank::sum_with_peer(*number, &self.memory.read_range(send), element);
                self.memory.write_range(receive, &sum.map_err(|_| ILLEGAL_ADDRESS)?);
                let seconds = *bytes as f64 / (self.settings.remote_gigabytes_per_second * 1e9);
                Ok(Some(from + seconds + self.settings.latency_microseconds / 1e6))
            }
            StreamWork::Kernel { name, arguments } if name == "gaunt_gate" => {
                if let Some((words, false)) = self.read_gate(arguments) {
                    self.memory.write_range(words, &[0, 0, 0, 0, 1, 0, 0, 0]);
                }
                Ok(Some(opened))
            }
            StreamWork::Kernel { name, arguments } => self.run_kernel(gpu, from, name, arguments),
        }
    }

    fn run_kernel(
        &mut self,
        gpu: u32,
        from: f64,
        name: &str,
        arguments: &[u64],
    ) -> Result<Option<f64>, u32> {
        let fault = self.match_fault(|fault| {
            fault.kernel.as_deref() == Some(name) && fault.gpu.is_none_or(|wanted| wanted == gpu)
        });
        if let Some(code) = fault.and_then(|fault| fault.error) {
            return Err(code);
        }
        if fault.is_some_and(|fault| fault.hang) {
            return Ok(None);
        }
        let can_access = |location| match location {
            MemoryLocation::Host => true,
            MemoryLocation::Gpu(other) => other == gpu || self.peers.contains(&(gpu, other)),
        };
        let flow = emulated_kernels::execute_kernel(&self.memory, name, arguments, &can_access)?;
        if fault.is_some_and(|fault| fault.wrong) {
            let mut bytes = self.memory.read_range(flow.wrote);
            let middle = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0x10;
            }
            self.memory.write_range(flow.wrote, &bytes);
        }
        Ok(Some(self.schedule_transfer(flow.from, flow.to, flow.bytes, from)))
    }

    /// The second at which a transfer ends that starts at `start`; a path carries one transfer at a time.
    fn schedule_transfer(
        &mut self,
        from: MemoryLocation,
        to: MemoryLocation,
        bytes: usize,
        start: f64,
    ) -> f64 {
        let seconds = bytes as f64 / (self.transfer_speed(from, to) * 1e9);
        let busy = self.busy_until.entry((from, to)).or_insert(0.0);
        let begin = start.max(*busy);
        *busy = begin + seconds;
        *busy + self.settings.latency_microseconds / 1e6
    }

    fn transfer_speed(&self, from: MemoryLocation, to: MemoryLocation) -> f64 {
        let settings = self.settings;
        match (from, to) {
            (MemoryLocation::Gpu(one), MemoryLocation::Gpu(other)) if one == other => {
                settings.local_gigabytes_per_second
            }
            (MemoryLocation::Gpu(one), MemoryLocation::Gpu(other)) => {
                let mut links = settings.links.iter();
                let link = links.find(|link| link.from == one && link.to == other);
                let default = if self.can_reach(one, other) {
                    settings.link_gigabytes_per_second
                } else {
                    // Through the host: in, and out again.
                    settings.host_gigabytes_per_second / 2.0
                };
                link.and_then(|link| link.gigabytes_per_second).unwrap_or(default)
            }
            _ => settings.host_gigabytes_per_second,
        }
    }
}
