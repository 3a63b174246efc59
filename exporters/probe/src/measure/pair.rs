//! Measures a GPU with one of another node, with NCCL: both sides make the same runs and verify what they receive.

use gaunt_schema::SanitizedText;

use super::{
    MeasureSession,
    rank_buffers::{self, RankBuffers},
};
use crate::{
    collective_kind::Collective,
    collective_plan::ExpectedSum,
    exit_code::{ExitKind, ProbeExit},
    idle_check::GpuIdleCheck,
    nccl_ffi::{NcclBuffers, NcclError, NcclLibrary, NcclUniqueId},
    request::{
        BandwidthMeasurement, DataPath, MeasureLimits, MeasureTool, gpu_group_name, min_median_max,
    },
};

/// The ranks of a pair.
const RANKS: usize = 2;

/// The elements of the all-reduce that synchronises both sides before a timed one, so that no wait is timed.
const SYNC_ELEMENTS: usize = 8;

impl MeasureSession<'_> {
    /// Measures this side of an all-reduce of two ranks.
    pub(super) fn measure_pair(
        &mut self,
        rank: usize,
        idle_check: Option<GpuIdleCheck>,
    ) -> Result<(), ProbeExit> {
        let (element, size) = (self.request.element, self.request.element.byte_size());
        let elements = self.request.bytes / size;
        let all_runs = self.request.warm_up + self.request.runs;
        self.check_pair_limits(elements, all_runs as u64)?;
        let rank_buffers = RankBuffers::allocate_buffers(
            &mut self.gpus[0],
            0,
            (elements * size, elements * size, 0),
            (1, 1),
        );
        let rank_buffers = self.map_gpu_error(0, rank_buffers)?;
        let nccl = self.join_peer(rank)?;
        self.begin_measuring(idle_check)?;
        let expected = ExpectedSum { rank, at: 0, elements, base: 0, first: 0, ranks: RANKS };
        let buffers = NcclBuffers {
            send: rank_buffers.send,
            receive: rank_buffers.receive,
            stream: rank_buffers.streams[0],
        };
        let mut seconds = Vec::new();
        // Both sides must make the same runs: the limits were checked before the first.
        for round in 0..all_runs {
            self.progress
                .report_step(&format!("run {} of {all_runs} with the other node", round + 1));
            let gpu = &self.gpus[0];
            let prepared = rank_buffers.queue_fill(gpu, element, (rank, elements, 0), round as u32);
            self.map_gpu_error(0, prepared)?;
            map_nccl_error(nccl.all_reduce(0, buffers, SYNC_ELEMENTS, element))?;
            self.map_gpu_error(0, gpu.record_event(rank_buffers.begin, buffers.stream))?;
            map_nccl_error(nccl.all_reduce(0, buffers, elements, element))?;
            self.map_gpu_error(0, gpu.record_event(rank_buffers.end, buffers.stream))?;
            self.map_gpu_error(
                0,
                rank_buffers.queue_check(gpu, element, [&expected].into_iter(), round as u32),
            )?;
            self.wait_for_events(&[(0, rank_buffers.checked)])?;
            self.outcome.cost.traffic_bytes += self.request.bytes as u64;
            let gpu = &self.gpus[0];
            let check = rank_buffers.read_check(gpu);
            if check.wrong > 0 || check.past_end {
                let why = format!(
                    "{} elements of the sum are wrong, the first is {}",
                    check.wrong, check.first
                );
                return Err(ProbeExit::new(ExitKind::WrongData, why));
            }
            if round >= self.request.warm_up {
                seconds.push(
                    self.map_gpu_error(
                        0,
                        gpu.seconds_between(rank_buffers.begin, rank_buffers.end),
                    )?,
                );
            }
        }
        self.record_pair(seconds, (elements * size) as u64)
    }

    /// Checks the limits for all runs in advance: no side may stop before the other.
    fn check_pair_limits(&mut self, elements: usize, runs: u64) -> Result<(), ProbeExit> {
        if elements < SYNC_ELEMENTS || runs == 0 {
            let why = format!(
                "a pair needs at least {SYNC_ELEMENTS} elements and one run: raise --bytes"
            );
            return Err(ProbeExit::new(ExitKind::OverLimit, why));
        }
        let (bytes, limits) = (self.request.bytes as u64, &self.request.limits);
        if bytes.saturating_mul(runs) > limits.traffic_bytes {
            let why = format!(
                "{runs} runs move {} bytes, the limit is {}: lower --bytes or raise --traffic",
                bytes.saturating_mul(runs),
                limits.traffic_bytes
            );
            return Err(ProbeExit::new(ExitKind::OverLimit, why));
        }
        let memory = self.request.bytes + rank_buffers::guarded_size(self.request.bytes);
        limits.check_memory(&[memory])?;
        self.outcome.cost.memory_bytes = memory as u64;
        MeasureLimits::check_free_memory(&self.gpus[0], memory)
    }

    /// Joins the other side's communicator. This blocks until it joins too: the parent's deadline bounds it.
    fn join_peer(&mut self, rank: usize) -> Result<NcclLibrary, ProbeExit> {
        let mut nccl =
            map_nccl_error(NcclLibrary::open_library(self.request.libraries.nccl.as_deref()))?;
        let key_text = self.request.meeting.as_ref().and_then(|meeting| meeting.key.as_deref());
        let key = match key_text {
            None => {
                let key = map_nccl_error(nccl.create_unique_id())?;
                self.progress.report_key(&key.to_hex());
                key
            }
            Some(text) => NcclUniqueId::of(text).ok_or_else(|| {
                ProbeExit::new(ExitKind::Failed, "the pairing key is not an NCCL unique id")
            })?,
        };
        self.progress.report_step("join of the other node");
        self.map_gpu_error(0, self.gpus[0].set_current())?;
        map_nccl_error(nccl.join_communicator(key, rank, RANKS))?;
        if let Ok(version) = nccl.library_version() {
            self.add_note(format!(
                "NCCL {version} allocated memory of its own, beyond the limit of --memory"
            ));
        }
        Ok(nccl)
    }

    fn record_pair(&mut self, seconds: Vec<f64>, bytes: u64) -> Result<(), ProbeExit> {
        let runs = seconds.len();
        let seconds = min_median_max(seconds)
            .ok_or_else(|| ProbeExit::new(ExitKind::OverLimit, "no measured run: raise --runs"))?;
        let algbw = bytes as f64 / seconds[1];
        self.outcome.measured.push(BandwidthMeasurement {
            collective: Collective::AllReduce.as_str().into(),
            between: SanitizedText::new(&format!("{}>peer", gpu_group_name(&self.gpu_indices()))),
            tool: MeasureTool::Nccl,
            way: DataPath::Chosen,
            ranks: RANKS,
            virtual_ranks: false,
            bytes,
            element: self.request.element,
            seconds,
            runs,
            algbw,
            busbw: Collective::AllReduce.bus_factor(RANKS).map(|factor| algbw * factor),
            reference: None,
            wrong: 0,
            wrong_at: None,
        });
        Ok(())
    }
}

fn map_nccl_error<T>(result: Result<T, NcclError>) -> Result<T, ProbeExit> {
    result.map_err(|error| ProbeExit::new(ExitKind::Failed, error.to_string()))
}
