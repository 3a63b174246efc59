//! The matrix: every pair of GPUs in both directions, every GPU with itself and with pinned host memory.

use gaunt_schema::SanitizedText;

use super::{
    MeasureSession, POISON,
    rank_buffers::{self, DataCheckResult, RankBuffers},
};
use crate::{
    collective_plan::ExpectedSum,
    cuda::{CudaError, kernel_set::ElementType},
    exit_code::{ExitKind, ProbeExit},
    idle_check::GpuIdleCheck,
    pattern,
    request::{BandwidthMeasurement, DataPath, MeasureLimits, MeasureTool, min_median_max},
};

/// One route of a transfer.
#[derive(Clone, Copy, Debug)]
struct TransferRoute {
    kind: TransferKind,
    /// The sending and the receiving GPU, by position.
    from: usize,
    to: usize,
}

/// What copies the bytes of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferKind {
    /// A kernel of the receiving GPU.
    Read,
    /// A kernel of the sending GPU.
    Write,
    /// The driver, through the host.
    Staged,
    /// A kernel within one GPU.
    Copy,
    /// The driver within one GPU, as a reference for the kernel's copy.
    DriverCopy,
    /// The driver, from pinned memory.
    ToGpu,
    /// The driver, into pinned memory.
    FromGpu,
}

impl TransferKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read | Self::Staged => "read",
            Self::Write => "write",
            Self::Copy | Self::DriverCopy => "copy",
            Self::ToGpu => "to_gpu",
            Self::FromGpu => "from_gpu",
        }
    }

    fn measure_tool(self) -> MeasureTool {
        match self {
            Self::Read | Self::Write | Self::Copy => MeasureTool::Gaunt,
            _ => MeasureTool::Driver,
        }
    }

    fn data_path(self) -> DataPath {
        match self {
            Self::Read | Self::Write => DataPath::Peer,
            Self::Staged => DataPath::Staged,
            Self::Copy | Self::DriverCopy => DataPath::Local,
            Self::ToGpu | Self::FromGpu => DataPath::Host,
        }
    }
}

/// The buffers of the matrix.
struct MatrixSetup {
    rank_buffers: Vec<RankBuffers>,
    /// Pinned memory of the message's size.
    host_memory: u64,
    elements: usize,
    bytes: usize,
}

impl MeasureSession<'_> {
    /// Measures all routes.
    pub(super) fn measure_matrix(
        &mut self,
        idle_check: Option<GpuIdleCheck>,
    ) -> Result<(), ProbeExit> {
        let size = self.request.element.byte_size();
        // Pinned memory is written in 32-bit words.
        let elements = self.request.bytes / 4 * 4 / size;
        if elements == 0 {
            return Err(ProbeExit::new(
                ExitKind::OverLimit,
                "the message is smaller than 4 bytes: raise --bytes",
            ));
        }
        let bytes = elements * size;
        let memory = bytes + rank_buffers::guarded_size(bytes);
        self.request.limits.check_memory(&[memory])?;
        self.outcome.cost.memory_bytes = memory as u64;
        let routes = self.list_routes()?;
        let mut rank_buffers = Vec::new();
        for position in 0..self.gpus.len() {
            MeasureLimits::check_free_memory(&self.gpus[position], memory)?;
            let buffers = RankBuffers::allocate_buffers(
                &mut self.gpus[position],
                position,
                (bytes, bytes, 0),
                (1, 1),
            );
            rank_buffers.push(self.map_gpu_error(position, buffers)?);
        }
        let host_memory = self.gpus[0].allocate_host(bytes);
        let host_memory = self.map_gpu_error(0, host_memory)?;
        self.begin_measuring(idle_check)?;
        let setup = MatrixSetup { rank_buffers, host_memory, elements, bytes };
        let mut first_wrong = None;
        for (number, route) in routes.iter().enumerate() {
            if let Some(wrong_at) = self.measure_route(&setup, *route, (number, routes.len()))? {
                first_wrong.get_or_insert(wrong_at);
            }
        }
        let unmeasured = routes.len() - self.outcome.measured.len();
        if unmeasured > 0 {
            self.add_note(format!(
                "{unmeasured} of {} routes not measured: limit of busy time or traffic reached",
                routes.len()
            ));
        }
        match first_wrong {
            Some(wrong_at) => {
                Err(ProbeExit::new(ExitKind::WrongData, format!("wrong data: {wrong_at}")))
            }
            None if self.outcome.measured.is_empty() => Err(ProbeExit::new(
                ExitKind::OverLimit,
                "nothing measured within the limits: raise --traffic or lower --bytes",
            )),
            None => Ok(()),
        }
    }

    /// All routes, pairs first.
    fn list_routes(&self) -> Result<Vec<TransferRoute>, ProbeExit> {
        let count = self.gpus.len();
        let mut routes = Vec::new();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let mut add = |kind| routes.push(TransferRoute { kind, from, to });
                let can_read =
                    self.map_gpu_error(to, self.gpus[to].enable_peer_access(&self.gpus[from]))?;
                let can_write =
                    self.map_gpu_error(from, self.gpus[from].enable_peer_access(&self.gpus[to]))?;
                if !(can_read && can_write) && self.request.require_peer {
                    let (gpu, peer) = (self.gpus[to].index, self.gpus[from].index);
                    let why = format!(
                        "GPU {gpu} cannot access the memory of GPU {peer}: check `nvidia-smi topo -p2p r`"
                    );
                    return Err(ProbeExit::new(ExitKind::NoPeerAccess, why));
                }
                add(if can_read { TransferKind::Read } else { TransferKind::Staged });
                if can_write {
                    add(TransferKind::Write);
                }
            }
        }
        let single_gpu_kinds = [
            TransferKind::Copy,
            TransferKind::DriverCopy,
            TransferKind::ToGpu,
            TransferKind::FromGpu,
        ];
        for gpu in 0..count {
            routes.extend(single_gpu_kinds.map(|kind| TransferRoute { kind, from: gpu, to: gpu }));
        }
        Ok(routes)
    }

    /// Measures one route; returns where data was wrong, if it was.
    fn measure_route(
        &mut self,
        setup: &MatrixSetup,
        route: TransferRoute,
        (number, route_count): (usize, usize),
    ) -> Result<Option<SanitizedText>, ProbeExit> {
        let between = self.route_name(route);
        self.progress.report_step(&format!(
            "{} {between}, route {} of {route_count}",
            route.kind.as_str(),
            number + 1
        ));
        let (mut seconds, mut total) = (Vec::new(), DataCheckResult::default());
        // Bytes within a GPU cross no link.
        let traffic =
            if route.kind.data_path() == DataPath::Local { 0 } else { setup.bytes as u64 };
        for run in 0..self.request.warm_up + self.request.runs {
            if !self.can_start_run(traffic)? {
                break;
            }
            let round = (number * 64 + run) as u32;
            let (run_seconds, check) = self.run(setup, route, round)?;
            self.outcome.cost.traffic_bytes += traffic;
            if total.wrong == 0 {
                total.first = check.first;
            }
            total.wrong += check.wrong + u64::from(check.past_end);
            if run >= self.request.warm_up {
                seconds.push(run_seconds);
            }
        }
        let runs = seconds.len();
        let Some(seconds) = min_median_max(seconds) else { return Ok(None) };
        let algbw = setup.bytes as f64 / seconds[1];
        let first_wrong = format!(
            "{} {between}, {} elements, the first at {}",
            route.kind.as_str(),
            total.wrong,
            total.first
        );
        let wrong_at = (total.wrong > 0).then(|| SanitizedText::new(&first_wrong));
        let is_local = route.kind.data_path() == DataPath::Local;
        self.outcome.measured.push(BandwidthMeasurement {
            collective: route.kind.as_str().into(),
            between: between.as_str().into(),
            tool: route.kind.measure_tool(),
            way: route.kind.data_path(),
            ranks: if route.from == route.to { 1 } else { 2 },
            virtual_ranks: false,
            bytes: setup.bytes as u64,
            element: self.request.element,
            seconds,
            runs,
            algbw,
            busbw: (!is_local).then_some(algbw),
            reference: None,
            wrong: total.wrong,
            wrong_at: wrong_at.clone(),
        });
        Ok(wrong_at)
    }

    /// The two ends, in the direction of the data.
    fn route_name(&self, route: TransferRoute) -> String {
        let (from, to) = (self.gpus[route.from].index, self.gpus[route.to].index);
        match route.kind {
            TransferKind::Copy | TransferKind::DriverCopy => format!("gpu{from}"),
            TransferKind::ToGpu => format!("host>gpu{to}"),
            TransferKind::FromGpu => format!("gpu{from}>host"),
            _ => format!("gpu{from}>gpu{to}"),
        }
    }

    /// One run: fill and poison the buffers, copy the bytes, check the received data.
    fn run(
        &mut self,
        setup: &MatrixSetup,
        route: TransferRoute,
        round: u32,
    ) -> Result<(f64, DataCheckResult), ProbeExit> {
        let (from, to) = (&setup.rank_buffers[route.from], &setup.rank_buffers[route.to]);
        let element = self.request.element;
        for buffers in [from, to].into_iter().take(if route.from == route.to { 1 } else { 2 }) {
            let fill = (buffers.gpu, setup.elements, 0);
            self.map_gpu_error(
                buffers.gpu,
                buffers.queue_fill(&self.gpus[buffers.gpu], element, fill, round),
            )?;
        }
        match route.kind {
            TransferKind::ToGpu => {
                self.fill_host(setup, |index| {
                    pattern::word_at(element, index, route.from as u32, round)
                });
            }
            TransferKind::FromGpu => self.fill_host(setup, |_| POISON),
            _ => {}
        }
        let executor = if route.kind == TransferKind::Write { from } else { to };
        self.map_gpu_error(executor.gpu, self.queue_transfer(setup, route, executor))?;
        let expected = ExpectedSum {
            rank: route.to,
            at: 0,
            elements: setup.elements,
            base: 0,
            first: route.from,
            ranks: 1,
        };
        let sums = (route.kind != TransferKind::FromGpu).then_some(&expected).into_iter();
        let gpu = &self.gpus[to.gpu];
        let checked = gpu
            .wait_event(to.streams[0], executor.checked)
            .and_then(|()| to.queue_check(gpu, element, sums, round));
        self.map_gpu_error(to.gpu, checked)?;
        self.wait_for_events(&[(to.gpu, to.checked)])?;
        let seconds = self.map_gpu_error(
            executor.gpu,
            self.gpus[executor.gpu].seconds_between(executor.begin, executor.end),
        )?;
        let check = match route.kind {
            TransferKind::FromGpu => self.check_host(setup, element, (route.from as u32, round)),
            _ => to.read_check(&self.gpus[to.gpu]),
        };
        Ok((seconds, check))
    }

    /// Queues the copy between two events of the GPU that executes it.
    fn queue_transfer(
        &self,
        setup: &MatrixSetup,
        route: TransferRoute,
        executor: &RankBuffers,
    ) -> Result<(), CudaError> {
        let (from, to) = (&setup.rank_buffers[route.from], &setup.rank_buffers[route.to]);
        let (gpu, stream, bytes) = (&self.gpus[executor.gpu], executor.streams[0], setup.bytes);
        gpu.wait_event(stream, from.ready)?;
        gpu.wait_event(stream, to.ready)?;
        gpu.record_event(executor.begin, stream)?;
        match route.kind {
            TransferKind::Read | TransferKind::Write | TransferKind::Copy => {
                RankBuffers::queue_copy(gpu, (to.receive, from.send, bytes), 1, stream)?;
            }
            TransferKind::Staged => {
                gpu.copy_from_peer(to.receive, (&self.gpus[from.gpu], from.send), bytes, stream)?;
            }
            TransferKind::DriverCopy => gpu.copy_memory(to.receive, from.send, bytes, stream)?,
            TransferKind::ToGpu => gpu.copy_memory(to.receive, setup.host_memory, bytes, stream)?,
            TransferKind::FromGpu => {
                gpu.copy_memory(setup.host_memory, from.send, bytes, stream)?;
            }
        }
        gpu.record_event(executor.end, stream)?;
        // The check of the other GPU waits for this one.
        gpu.record_event(executor.checked, stream)
    }

    fn fill_host(&self, setup: &MatrixSetup, word_value: impl Fn(u64) -> u32) {
        for index in 0..setup.bytes / 4 {
            self.gpus[0].write_pinned(setup.host_memory, index * 4, word_value(index as u64));
        }
    }

    /// Checks the data received by the host.
    fn check_host(
        &self,
        setup: &MatrixSetup,
        element: ElementType,
        (rank, round): (u32, u32),
    ) -> DataCheckResult {
        let expected = |index: u64| pattern::word_at(element, index, rank, round);
        let actual = |index: usize| self.gpus[0].read_pinned(setup.host_memory, index * 4);
        let mut mismatches =
            (0..setup.bytes / 4).filter(|index| actual(*index) != Some(expected(*index as u64)));
        let first = mismatches.next();
        let wrong = first.map_or(0, |_| 1 + mismatches.count() as u64);
        let per_word = (4 / element.byte_size()) as u64;
        DataCheckResult { wrong, first: first.unwrap_or(0) as u64 * per_word, past_end: false }
    }
}
