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
        let peer_access = self.build_peer_matrix(ranks)?;
        let setup = self.set_up_collective(plan, peer_access)?;
        let nccl = self.prepare_nccl(collective, &setup)?;
        self.begin_measuring(idle_check)?;
        let tally = self.run_collective(collective, &setup, &CollectiveBackend::Ours)?;
        self.record_collective(collective, &setup, &CollectiveBackend::Ours, tally)?;
        if let Some(nccl) = &nccl {
            let backend = CollectiveBackend::Nccl(nccl, collective);
            let tally = self.run_collective(collective, &setup, &backend)?;
            self.record_collective(collective, &setup, &backend, tally)?;
        }
        Ok(())
    }

    /// Enables peer access where possible, and returns where it is. GPUs beyond the number of ranks are not used.
    fn build_peer_matrix(&mut self, ranks: usize) -> Result<Vec<Vec<bool>>, ProbeExit> {
        self.gpus.truncate(ranks);
        let count = self.gpus.len();
        let mut peer_access = vec![vec![true; count]; count];
        for (gpu, row) in peer_access.iter_mut().enumerate() {
            for (peer, can_access) in row.iter_mut().enumerate() {
                *can_access =
                    self.map_gpu_error(gpu, self.gpus[gpu].enable_peer_access(&self.gpus[peer]))?;
                if !*can_access && self.request.require_peer {
                    let (gpu, peer) = (self.gpus[gpu].index, self.gpus[peer].index);
                    let why = format!(
                        "GPU {gpu} cannot access the memory of GPU {peer}: check `nvidia-smi topo -p2p r`"
                    );
                    return Err(ProbeExit::new(ExitKind::NoPeerAccess, why));
                }
            }
        }
        Ok(peer_access)
    }

    /// Allocates memory, streams and events, after checks of the limits and of free memory.
    fn set_up_collective(
        &mut self,
        plan: CollectivePlan,
        peer_access: Vec<Vec<bool>>,
    ) -> Result<CollectiveSetup, ProbeExit> {
        let (count, size) = (self.gpus.len(), self.request.element.byte_size());
        let staged = peer_access.iter().flatten().any(|can_access| !can_access);
        let bounce = if staged { plan.largest_move() * size } else { 0 };
        let mut memory = vec![0; count];
        for (rank, pattern) in plan.sends.iter().enumerate() {
            let buffer_bytes =
                pattern.elements * size + rank_buffers::guarded_size(plan.receive_elements * size);
            memory[rank % count] += buffer_bytes + bounce * plan.channels;
        }
        self.request.limits.check_plan(&plan, &memory, self.request.element)?;
        self.outcome.cost.memory_bytes = memory.iter().copied().max().unwrap_or(0) as u64;
        for (gpu, needed) in self.gpus.iter().zip(&memory) {
            MeasureLimits::check_free_memory(gpu, *needed)?;
        }
        let sharing = plan.ranks.div_ceil(count) as u32;
        let mut rank_buffers = Vec::new();
        for (rank, pattern) in plan.sends.iter().enumerate() {
            let position = rank % count;
            let sizes = (pattern.elements * size, plan.receive_elements * size, bounce);
            let buffers = RankBuffers::allocate_buffers(
                &mut self.gpus[position],
                position,
                sizes,
                (plan.channels, sharing),
            );
            rank_buffers.push(self.map_gpu_error(position, buffers)?);
        }
        let mut move_events = Vec::new();
        for planned in &plan.moves {
            let position = planned.to.rank % count;
            let event = self.gpus[position].create_event(false);
            move_events.push(self.map_gpu_error(position, event)?);
        }
        let mut gates = Vec::new();
        for position in 0..count {
            let gpu = &mut self.gpus[position];
            let pair =
                gpu.create_stream().and_then(|stream| Ok((stream, gpu.create_event(false)?)));
            gates.push(self.map_gpu_error(position, pair)?);
        }
        let gate_memory = self.gpus[0].allocate_host(GATE);
        let gate_memory = self.map_gpu_error(0, gate_memory)?;
        // All streams of all ranks on a GPU may run at once; together they stay within the limit on SMs.
        let block_divisor = plan.channels as u32 * sharing;
        Ok(CollectiveSetup {
            plan,
            rank_buffers,
            move_events,
            gates,
            gate_memory,
            peer_access,
            block_divisor,
        })
    }

    fn run_collective(
        &mut self,
        collective: Collective,
        setup: &CollectiveSetup,
        backend: &CollectiveBackend<'_>,
    ) -> Result<RunTally, ProbeExit> {
        let mut tally = RunTally::default();
        let traffic = (setup.plan.crossing_elements(self.gpus.len())
            * self.request.element.byte_size()) as u64;
        let all_runs = self.request.warm_up + self.request.runs;
        for round in 0..all_runs {
            if !self.can_start_run(traffic)? {
                let measured = tally.seconds.len();
                let why = format!(
                    "{measured} of {} runs: limit of busy time or traffic reached",
                    self.request.runs
                );
                self.add_note(why);
                break;
            }
            // Rounds differ between the two, so that stale data of one fails the check of the other.
            let (prefix, first_round) =
                if backend.nccl_path().is_some() { ("NCCL ", all_runs) } else { ("", 0) };
            self.progress.report_step(&format!(
                "{prefix}{}, run {} of {all_runs}",
                collective.as_str(),
                round + 1
            ));
            let queued = self.queue_run(setup, backend, (first_round + round) as u32, true);
            // The gate opens even after an error, so that no kernel stays blocked.
            self.gpus[0].write_pinned(setup.gate_memory, 0, 1);
            queued?;
            let events: Vec<_> =
                setup.rank_buffers.iter().map(|buffers| (buffers.gpu, buffers.checked)).collect();
            self.wait_for_events(&events)?;
            self.outcome.cost.traffic_bytes += traffic;
            self.record_run(setup, round, &mut tally)?;
        }
        Ok(tally)
    }

    /// Queues one run behind a gate, which is `closed` or open.
    fn queue_run(
        &self,
        setup: &CollectiveSetup,
        backend: &CollectiveBackend<'_>,
        round: u32,
        closed: bool,
    ) -> Result<(), ProbeExit> {
        self.gpus[0].write_pinned(setup.gate_memory, 0, u32::from(!closed));
        self.gpus[0].write_pinned(setup.gate_memory, 4, 0);
        let element = self.request.element;
        for (rank, buffers) in setup.rank_buffers.iter().enumerate() {
            let pattern = setup.plan.sends[rank];
            let fill = (rank, pattern.elements, pattern.base);
            self.map_gpu_error(
                buffers.gpu,
                buffers.queue_fill(&self.gpus[buffers.gpu], element, fill, round),
            )?;
        }
        for (position, (stream, event)) in setup.gates.iter().enumerate() {
            let gpu = &self.gpus[position];
            let wait = |buffers: &RankBuffers| gpu.wait_event(*stream, buffers.ready);
            let waited = setup.rank_buffers.iter().try_for_each(wait);
            let launched =
                waited.and_then(|()| gpu.launch_gate(setup.gate_memory, GATE_NANOS, *stream));
            self.map_gpu_error(
                position,
                launched.and_then(|()| gpu.record_event(*event, *stream)),
            )?;
        }
        for buffers in &setup.rank_buffers {
            let (gpu, (_, event)) = (&self.gpus[buffers.gpu], setup.gates[buffers.gpu]);
            let mut streams = buffers.streams.iter();
            let waited = streams.try_for_each(|stream| gpu.wait_event(*stream, event));
            self.map_gpu_error(
                buffers.gpu,
                waited.and_then(|()| gpu.record_event(buffers.begin, buffers.streams[0])),
            )?;
        }
        match backend {
            CollectiveBackend::Nccl(nccl, collective) => {
                self.queue_nccl(nccl, *collective, setup)?;
            }
            CollectiveBackend::Ours => {
                for (number, planned) in setup.plan.moves.iter().enumerate() {
                    self.map_gpu_error(
                        setup.rank_buffers[planned.to.rank].gpu,
                        self.queue_move(setup, number, planned),
                    )?;
                }
            }
        }
        for (rank, buffers) in setup.rank_buffers.iter().enumerate() {
            self.map_gpu_error(buffers.gpu, self.queue_rank_end(setup, rank, buffers, round))?;
        }
        Ok(())
    }

    /// Queues one move after the moves that it must wait for.
    fn queue_move(
        &self,
        setup: &CollectiveSetup,
        number: usize,
        planned: &PlannedMove,
    ) -> Result<(), CudaError> {
        let (target, source) =
            (&setup.rank_buffers[planned.to.rank], &setup.rank_buffers[planned.from.rank]);
        let (gpu, size) = (&self.gpus[target.gpu], self.request.element.byte_size());
        let stream = target.streams[planned.channel];
        for earlier in &setup.plan.waits[number] {
            gpu.wait_event(stream, setup.move_events[*earlier])?;
        }
        let bytes = planned.elements * size;
        let buffer = match planned.from.side {
            BufferSide::Send => source.send,
            BufferSide::Receive => source.receive,
        };
        let mut from = buffer + (planned.from.at * size) as u64;
        let to = target.receive + (planned.to.at * size) as u64;
        if !setup.peer_access[target.gpu][source.gpu] {
            // The driver copies through the host; a sum needs the data in local memory first.
            let local = if planned.summand.is_some() { target.bounce[planned.channel] } else { to };
            gpu.copy_from_peer(local, (&self.gpus[source.gpu], from), bytes, stream)?;
            from = local;
        }
        if let Some(summand) = planned.summand {
            let arguments = [
                KernelArgument::Long(to),
                KernelArgument::Long(target.send + (summand * size) as u64),
                KernelArgument::Long(from),
                KernelArgument::Long(planned.elements as u64),
            ];
            let grid = (bytes.div_ceil(16), setup.block_divisor);
            gpu.launch_kernel(self.request.element.kernel_set().add, grid, stream, &arguments)?;
        } else if from != to {
            RankBuffers::queue_copy(gpu, (to, from, bytes), setup.block_divisor, stream)?;
        }
        gpu.record_event(setup.move_events[number], stream)
    }

    /// Queues the end of a rank's part: join its streams, record the end time, check the data.
    fn queue_rank_end(
        &self,
        setup: &CollectiveSetup,
        rank: usize,
        buffers: &RankBuffers,
        round: u32,
    ) -> Result<(), CudaError> {
        let gpu = &self.gpus[buffers.gpu];
        for channel in 1..buffers.streams.len() {
            let is_on_channel =
                |planned: &PlannedMove| planned.to.rank == rank && planned.channel == channel;
            if let Some(last) = setup.plan.moves.iter().rposition(is_on_channel) {
                gpu.wait_event(buffers.streams[0], setup.move_events[last])?;
            }
        }
        gpu.record_event(buffers.end, buffers.streams[0])?;
        let sums = setup.plan.expected.iter().filter(|sum| sum.rank == rank);
        buffers.queue_check(gpu, self.request.element, sums, round)
    }

    /// Records the result of one run.
    fn record_run(
        &self,
        setup: &CollectiveSetup,
        round: usize,
        tally: &mut RunTally,
    ) -> Result<(), ProbeExit> {
        let mut slowest: f64 = 0.0;
        for (rank, buffers) in setup.rank_buffers.iter().enumerate() {
            let gpu = &self.gpus[buffers.gpu];
            let seconds =
                self.map_gpu_error(buffers.gpu, gpu.seconds_between(buffers.begin, buffers.end))?;
            slowest = slowest.max(seconds);
            let check = buffers.read_check(gpu);
            if (check.wrong > 0 || check.past_end) && tally.wrong_at.is_none() {
                let position = if check.wrong > 0 {
                    format!("element {}", check.first)
                } else {
                    "past the end of the buffer".to_owned()
                };
                tally.wrong_at = Some(format!("rank {rank} on GPU {}, {position}", gpu.index));
            }
            tally.wrong += check.wrong + u64::from(check.past_end);
        }
        if self.gpus[0].read_pinned(setup.gate_memory, 4) != Some(0) {
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
        setup: &CollectiveSetup,
        backend: &CollectiveBackend<'_>,
        tally: RunTally,
    ) -> Result<(), ProbeExit> {
        if tally.untimed > 0 {
            let untimed = tally.untimed;
            self.add_note(format!(
                "{untimed} runs not timed: the host was too busy to queue them within 200 ms"
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
        let (ranks, bytes) = (setup.plan.ranks, (self.request.bytes / size * size) as u64);
        let algbw = bytes as f64 / seconds[1];
        let virtual_ranks = ranks > self.gpus.len();
        if virtual_ranks {
            self.add_note("several ranks share a GPU: this tests the kernels, not the links");
        }
        let path = backend.nccl_path().unwrap_or_else(|| self.data_path(setup));
        if path == DataPath::Staged || path == DataPath::Mixed {
            self.add_note("no peer access between some GPUs: their data went through host memory");
        }
        let wrong = tally.wrong;
        let wrong_at = tally.wrong_at;
        self.outcome.measured.push(BandwidthMeasurement {
            collective: collective.as_str().into(),
            between: gpu_group_name(&self.gpu_indices()).as_str().into(),
            tool: if path == DataPath::Chosen { MeasureTool::Nccl } else { MeasureTool::Gaunt },
            way: path,
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
            Some(position) => {
                let why = format!(
                    "{wrong} elements of {} are wrong, the first at {position}",
                    collective.as_str()
                );
                Err(ProbeExit::new(ExitKind::WrongData, why))
            }
        }
    }

    /// The path of the data.
    fn data_path(&self, setup: &CollectiveSetup) -> DataPath {
        let count = self.gpus.len();
        let pairs = setup
            .plan
            .moves
            .iter()
            .map(|planned| (planned.to.rank % count, planned.from.rank % count));
        let peer_access: Vec<bool> = pairs
            .filter(|(to, from)| to != from)
            .map(|(to, from)| setup.peer_access[to][from])
            .collect();
        match (
            peer_access.iter().any(|can_access| *can_access),
            peer_access.iter().any(|can_access| !can_access),
        ) {
            (false, false) => DataPath::Local,
            (true, false) => DataPath::Peer,
            (false, true) => DataPath::Staged,
            (true, true) => DataPath::Mixed,
        }
    }
}
