//! Runs a collective on the GPUs: it is queued behind a gate, so that the timing covers the links and not the host.

use gaunt_schema::SanitizedText;

use super::{
    MeasureSession,
    rank_buffers::{self, RankBuffers},
};
use crate::{
    collective_kind::Collective,
    collective_plan::{BufferSide, CollectivePlan, MAX_RANKS, PlannedMove},
    cuda::{
        CudaError,
        cuda_ffi::{CudaHandle, KernelArgument},
    },
    exit_code::{ExitKind, ProbeExit},
    idle_check::GpuIdleCheck,
    nccl_ffi::NcclLibrary,
    request::{
        BandwidthMeasurement, DataPath, MeasureLimits, MeasureTool, gpu_group_name, min_median_max,
    },
};

mod nccl_comparison;

/// The timeout of a gate: queueing 2,000 moves takes 20 ms, and no kernel may wait for a host that died.
const GATE_NANOS: u64 = 200_000_000;

/// Bytes of a gate: whether it is open, and whether it timed out.
const GATE: usize = 8;

/// A collective with its buffers, streams and events.
struct CollectiveSetup {
    plan: CollectivePlan,
    rank_buffers: Vec<RankBuffers>,
    /// For each move, its completion event.
    move_events: Vec<CudaHandle>,
    /// For each GPU, the stream that waits at the gate, and the event after it.
    gates: Vec<(CudaHandle, CudaHandle)>,
    gate_memory: u64,
    /// For each pair of ranks, whether the first one's kernels can access the second one's memory.
    peer_access: Vec<Vec<bool>>,
    block_divisor: u32,
}

/// The implementation of a collective.
enum CollectiveBackend<'a> {
    /// Our kernels.
    Ours,
    /// NCCL.
    Nccl(&'a NcclLibrary, Collective),
}

/// The results of all runs.
#[derive(Default)]
struct RunTally {
    seconds: Vec<f64>,
    wrong: u64,
    wrong_at: Option<String>,
    untimed: usize,
}

impl MeasureSession<'_> {
    /// Measures a collective.
    pub(super) fn measure_collective(
        &mut self,
        collective: Collective,
        ranks: Option<usize>,
        idle_check: Option<GpuIdleCheck>,
    ) -> Result<(), ProbeExit> {
        let ranks = ranks.unwrap_or(self.gpus.len());
        if !(1..=MAX_RANKS).contains(&ranks) {
            let why = format!("{ranks} ranks: must be 1 to {MAX_RANKS}; check --ranks and --gpus");
            return Err(ProbeExit::new(ExitKind::OverLimit, why));
        }
        let element = self.request.element;
        let elements = self.request.bytes / element.byte_size();
        if elements == 0 {
            return Err(ProbeExit::new(
                ExitKind::OverLimit,
                "the message is smaller than one element: raise --bytes",
            ));
        }
        let plan = CollectivePlan::new(collective, ranks, elements, self.request.channels);
        let reach = self.build_peer_matrix(ranks)?;
        let ring = self.set_up_collective(plan, reach)?;
        let nccl = self.prepare_nccl(collective, &ring)?;
        self.begin_measuring(idle_check)?;
        let tally = self.run_collective(collective, &ring, &CollectiveBackend::Ours)?;
        self.record_collective(collective, &ring, &CollectiveBackend::Ours, tally)?;
        if let Some(nccl) = &nccl {
            let by = CollectiveBackend::Nccl(nccl, collective);
            let tally = self.run_collective(collective, &ring, &by)?;
            self.record_collective(collective, &ring, &by, tally)?;
        }
        Ok(())
    }

    /// Enables peer access where possible, and returns where it is. GPUs beyond the number of ranks are not used.
    fn build_peer_matrix(&mut self, ranks: usize) -> Result<Vec<Vec<bool>>, ProbeExit> {
        self.gpus.truncate(ranks);
        let count = self.gpus.len();
        let mut reach = vec![vec![true; count]; count];
        for (one, row) in reach.iter_mut().enumerate() {
            for (other, reaches) in row.iter_mut().enumerate() {
                *reaches =
                    self.map_gpu_error(one, self.gpus[one].enable_peer_access(&self.gpus[other]))?;
                if !*reaches && self.request.require_peer {
                    let (one, other) = (self.gpus[one].index, self.gpus[other].index);
                    let why = format!(
                        "GPU {one} cannot access the memory of GPU {other}: check `nvidia-smi topo -p2p r`"
                    );
                    return Err(ProbeExit::new(ExitKind::NoPeerAccess, why));
                }
            }
        }
        Ok(reach)
    }

    /// Allocates memory, streams and events, after checks of the limits and of free memory.
    fn set_up_collective(
        &mut self,
        plan: CollectivePlan,
        reach: Vec<Vec<bool>>,
    ) -> Result<CollectiveSetup, ProbeExit> {
        let (count, size) = (self.gpus.len(), self.request.element.byte_size());
        let staged = reach.iter().flatten().any(|reaches| !reaches);
        let bounce = if staged { plan.largest_move() * size } else { 0 };
        let mut memory = vec![0; count];
        for (rank, filling) in plan.sends.iter().enumerate() {
            let buffers =
                filling.elements * size + rank_buffers::guarded_size(plan.receive_elements * size);
            memory[rank % count] += buffers + bounce * plan.channels;
        }
        self.request.limits.check_plan(&plan, &memory, self.request.element)?;
        self.outcome.cost.memory_bytes = memory.iter().copied().max().unwrap_or(0) as u64;
        for (gpu, needed) in self.gpus.iter().zip(&memory) {
            MeasureLimits::check_free_memory(gpu, *needed)?;
        }
        let sharing = plan.ranks.div_ceil(count) as u32;
        let mut lanes = Vec::new();
        for (rank, filling) in plan.sends.iter().enumerate() {
            let position = rank % count;
            let sizes = (filling.elements * size, plan.receive_elements * size, bounce);
            let lane = RankBuffers::allocate_buffers(
                &mut self.gpus[position],
                position,
                sizes,
                (plan.channels, sharing),
            );
            lanes.push(self.map_gpu_error(position, lane)?);
        }
        let mut done = Vec::new();
        for one in &plan.moves {
            let position = one.to.rank % count;
            let event = self.gpus[position].create_event(false);
            done.push(self.map_gpu_error(position, event)?);
        }
        let mut gates = Vec::new();
        for position in 0..count {
            let gpu = &mut self.gpus[position];
            let pair =
                gpu.create_stream().and_then(|stream| Ok((stream, gpu.create_event(false)?)));
            gates.push(self.map_gpu_error(position, pair)?);
        }
        let gate = self.gpus[0].allocate_host(GATE);
        let gate = self.map_gpu_error(0, gate)?;
        // All streams of all ranks on a GPU may run at once; together they stay within the limit on SMs.
        let share = plan.channels as u32 * sharing;
        Ok(CollectiveSetup {
            plan,
            rank_buffers: lanes,
            move_events: done,
            gates,
            gate_memory: gate,
            peer_access: reach,
            block_divisor: share,
        })
    }

    fn run_collective(
        &mut self,
        collective: Collective,
        ring: &CollectiveSetup,
        by: &CollectiveBackend<'_>,
    ) -> Result<RunTally, ProbeExit> {
        let mut tally = RunTally::default();
        let crossing = (ring.plan.crossing_elements(self.gpus.len())
            * self.request.element.byte_size()) as u64;
        let all = self.request.warm_up + self.request.runs;
        for round in 0..all {
            if !self.can_start_run(crossing)? {
                let made = tally.seconds.len();
                let why = format!(
                    "{made} of {} runs: limit of busy time or traffic reached",
                    self.request.runs
                );
                self.add_note(why);
                break;
            }
            // Rounds differ between the two, so that stale data of one fails the check of the other.
            let (prefix, first) = if by.nccl_path().is_some() { ("NCCL ", all) } else { ("", 0) };
            self.progress.report_step(&format!(
                "{prefix}{}, run {} of {all}",
                collective.as_str(),
                round + 1
            ));
            let queued = self.queue_run(ring, by, (first + round) as u32, true);
            // The gate opens even after an error, so that no kernel stays blocked.
            self.gpus[0].write_pinned(ring.gate_memory, 0, 1);
            queued?;
            let over: Vec<_> =
                ring.rank_buffers.iter().map(|lane| (lane.gpu, lane.checked)).collect();
            self.wait_for_events(&over)?;
            self.outcome.cost.traffic_bytes += crossing;
            self.record_run(ring, round, &mut tally)?;
        }
        Ok(tally)
    }

    /// Queues one run behind a gate, which is closed if `hold` is set.
    fn queue_run(
        &self,
        ring: &CollectiveSetup,
        by: &CollectiveBackend<'_>,
        round: u32,
        hold: bool,
    ) -> Result<(), ProbeExit> {
        self.gpus[0].write_pinned(ring.gate_memory, 0, u32::from(!hold));
        self.gpus[0].write_pinned(ring.gate_memory, 4, 0);
        let element = self.request.element;
        for (rank, lane) in ring.rank_buffers.iter().enumerate() {
            let filling = ring.plan.sends[rank];
            let what = (rank, filling.elements, filling.base);
            self.map_gpu_error(
                lane.gpu,
                lane.queue_fill(&self.gpus[lane.gpu], element, what, round),
            )?;
        }
        for (position, (stream, opened)) in ring.gates.iter().enumerate() {
            let gpu = &self.gpus[position];
            let wait = |lane: &RankBuffers| gpu.wait_event(*stream, lane.ready);
            let waited = ring.rank_buffers.iter().try_for_each(wait);
            let closed =
                waited.and_then(|()| gpu.launch_gate(ring.gate_memory, GATE_NANOS, *stream));
            self.map_gpu_error(position, closed.and_then(|()| gpu.record_event(*opened, *stream)))?;
        }
        for lane in &ring.rank_buffers {
            let (gpu, (_, opened)) = (&self.gpus[lane.gpu], ring.gates[lane.gpu]);
            let mut streams = lane.streams.iter();
            let waited = streams.try_for_each(|stream| gpu.wait_event(*stream, opened));
            self.map_gpu_error(
                lane.gpu,
                waited.and_then(|()| gpu.record_event(lane.begin, lane.streams[0])),
            )?;
        }
        match by {
            CollectiveBackend::Nccl(nccl, collective) => {
                self.queue_nccl(nccl, *collective, ring)?;
            }
            CollectiveBackend::Ours => {
                for (number, one) in ring.plan.moves.iter().enumerate() {
                    self.map_gpu_error(
                        ring.rank_buffers[one.to.rank].gpu,
                        self.queue_move(ring, number, one),
                    )?;
                }
            }
        }
        for (rank, lane) in ring.rank_buffers.iter().enumerate() {
            self.map_gpu_error(lane.gpu, self.queue_rank_end(ring, rank, lane, round))?;
        }
        Ok(())
    }

    /// Queues one move after the moves that it must wait for.
    fn queue_move(
        &self,
        ring: &CollectiveSetup,
        number: usize,
        one: &PlannedMove,
    ) -> Result<(), CudaError> {
        let (mine, theirs) = (&ring.rank_buffers[one.to.rank], &ring.rank_buffers[one.from.rank]);
        let (gpu, size) = (&self.gpus[mine.gpu], self.request.element.byte_size());
        let stream = mine.streams[one.channel];
        for earlier in &ring.plan.waits[number] {
            gpu.wait_event(stream, ring.move_events[*earlier])?;
        }
        let bytes = one.elements * size;
        let buffer = match one.from.side {
            BufferSide::Send => theirs.send,
            BufferSide::Receive => theirs.receive,
        };
        let mut from = buffer + (one.from.at * size) as u64;
        let to = mine.receive + (one.to.at * size) as u64;
        if !ring.peer_access[mine.gpu][theirs.gpu] {
            // The driver copies through the host; a sum needs the data in local memory first.
            let near = if one.summand.is_some() { mine.bounce[one.channel] } else { to };
            gpu.copy_from_peer(near, (&self.gpus[theirs.gpu], from), bytes, stream)?;
            from = near;
        }
        if let Some(plus) = one.summand {
            let arguments = [
                KernelArgument::Long(to),
                KernelArgument::Long(mine.send + (plus * size) as u64),
                KernelArgument::Long(from),
                KernelArgument::Long(one.elements as u64),
            ];
            let work = (bytes.div_ceil(16), ring.block_divisor);
            gpu.launch_kernel(self.request.element.kernel_set().add, work, stream, &arguments)?;
        } else if from != to {
            RankBuffers::queue_copy(gpu, (to, from, bytes), ring.block_divisor, stream)?;
        }
        gpu.record_event(ring.move_events[number], stream)
    }

    /// Queues the end of a rank's part: join its streams, record the end time, check the data.
    fn queue_rank_end(
        &self,
        ring: &CollectiveSetup,
        rank: usize,
        lane: &RankBuffers,
        round: u32,
    ) -> Result<(), CudaError> {
        let gpu = &self.gpus[lane.gpu];
        for channel in 1..lane.streams.len() {
            let own = |one: &PlannedMove| one.to.rank == rank && one.channel == channel;
            if let Some(last) = ring.plan.moves.iter().rposition(own) {
                gpu.wait_event(lane.streams[0], ring.move_events[last])?;
            }
        }
        gpu.record_event(lane.end, lane.streams[0])?;
        let claims = ring.plan.expected.iter().filter(|claim| claim.rank == rank);
        lane.queue_check(gpu, self.request.element, claims, round)
    }

    /// Records the result of one run.
    fn record_run(
        &self,
        ring: &CollectiveSetup,
        round: usize,
        tally: &mut RunTally,
    ) -> Result<(), ProbeExit> {
        let mut slowest: f64 = 0.0;
        for (rank, lane) in ring.rank_buffers.iter().enumerate() {
            let gpu = &self.gpus[lane.gpu];
            let seconds =
                self.map_gpu_error(lane.gpu, gpu.seconds_between(lane.begin, lane.end))?;
            slowest = slowest.max(seconds);
            let found = lane.read_check(gpu);
            if (found.wrong > 0 || found.past_end) && tally.wrong_at.is_none() {
                let what = if found.wrong > 0 {
                    format!("element {}", found.first)
                } else {
                    "past the end of the buffer".to_owned()
                };
                tally.wrong_at = Some(format!("rank {rank} on GPU {}, {what}", gpu.index));
            }
            tally.wrong += found.wrong + u64::from(found.past_end);
        }
        if self.gpus[0].read_pinned(ring.gate_memory, 4) != Some(0) {
            // The gate timed out because the host was late: the data is checked, the time is not used.
            tally.untimed += 1;
        } else if round >= self.request.warm_up {
            tally.seconds.push(slowest);
        }
        Ok(())
    }

    fn record_collective(
        &mut self,
        collective: Collective,
        ring: &CollectiveSetup,
        by: &CollectiveBackend<'_>,
        tally: RunTally,
    ) -> Result<(), ProbeExit> {
        if tally.untimed > 0 {
            let late = tally.untimed;
            self.add_note(format!(
                "{late} runs not timed: the host was too busy to queue them within 200 ms"
            ));
        }
        let runs = tally.seconds.len();
        let seconds = min_median_max(tally.seconds).ok_or_else(|| {
            ProbeExit::new(
                ExitKind::OverLimit,
                "no run within the limits: raise --busy or --traffic, or lower --bytes",
            )
        })?;
        let size = self.request.element.byte_size();
        let (ranks, bytes) = (ring.plan.ranks, (self.request.bytes / size * size) as u64);
        let algbw = bytes as f64 / seconds[1];
        let virtual_ranks = ranks > self.gpus.len();
        if virtual_ranks {
            self.add_note("several ranks share a GPU: this tests the kernels, not the links");
        }
        let way = by.nccl_path().unwrap_or_else(|| self.data_path(ring));
        if way == DataPath::Staged || way == DataPath::Mixed {
            self.add_note("no peer access between some GPUs: their data went through host memory");
        }
        let wrong = tally.wrong;
        let wrong_at = tally.wrong_at;
        self.outcome.measured.push(BandwidthMeasurement {
            collective: collective.as_str().into(),
            between: gpu_group_name(&self.gpu_indices()).as_str().into(),
            tool: if way == DataPath::Chosen { MeasureTool::Nccl } else { MeasureTool::Gaunt },
            way,
            ranks,
            virtual_ranks,
            bytes,
            element: self.request.element,
            seconds,
            runs,
            algbw,
            busbw: collective.bus_factor(ranks).map(|factor| algbw * factor),
            reference: None,
            wrong,
            wrong_at: wrong_at.as_deref().map(SanitizedText::new),
        });
        match wrong_at {
            None => Ok(()),
            Some(at) => {
                let why = format!(
                    "{wrong} elements of {} are wrong, the first at {at}",
                    collective.as_str()
                );
                Err(ProbeExit::new(ExitKind::WrongData, why))
            }
        }
    }

    /// The path of the data.
    fn data_path(&self, ring: &CollectiveSetup) -> DataPath {
        let count = self.gpus.len();
        let pairs = ring.plan.moves.iter().map(|one| (one.to.rank % count, one.from.rank % count));
        let far: Vec<bool> = pairs
            .filter(|(to, from)| to != from)
            .map(|(to, from)| ring.peer_access[to][from])
            .collect();
        match (far.iter().any(|reaches| *reaches), far.iter().any(|reaches| !reaches)) {
            (false, false) => DataPath::Local,
            (true, false) => DataPath::Peer,
            (false, true) => DataPath::Staged,
            (true, true) => DataPath::Mixed,
        }
    }
}
