//! The NCCL comparison: the same buffers, patterns, gate and check as for our kernels.

use crate::{
    collective_kind::Collective,
    exit_code::{ExitKind, ProbeExit},
    measure::MeasureSession,
    nccl_ffi::{NcclBuffers, NcclError, NcclLibrary},
    request::DataPath,
};

use super::{CollectiveBackend, CollectiveSetup};

/// NCCL needs chunks of equal size; ours are equal if each is a multiple of this many elements.
const EQUAL: usize = 8;

impl MeasureSession<'_> {
    /// NCCL with a communicator of all GPUs and open connections, if requested, installed, and able to run the same.
    pub(super) fn prepare_nccl(
        &mut self,
        collective: Collective,
        setup: &CollectiveSetup,
    ) -> Result<Option<NcclLibrary>, ProbeExit> {
        if !self.request.nccl {
            return Ok(None);
        }
        let elements = self.request.bytes / self.request.element.byte_size();
        if setup.plan.ranks > self.gpus.len() {
            self.add_note("NCCL not measured: it has no virtual ranks");
            return Ok(None);
        }
        if !elements.is_multiple_of(setup.plan.ranks * EQUAL) {
            let parts = setup.plan.ranks * EQUAL;
            self.add_note(format!(
                "NCCL not measured: it needs equal chunks; use a multiple of {parts} elements"
            ));
            return Ok(None);
        }
        self.progress.report_step("NCCL communicators");
        let devices: Vec<i32> = self.gpus.iter().map(|gpu| gpu.listed.device).collect();
        let joined = NcclLibrary::open_library(self.request.libraries.nccl.as_deref()).and_then(
            |mut nccl| {
                nccl.init_communicators(&devices)?;
                Ok(nccl)
            },
        );
        let nccl = match joined {
            Ok(nccl) => nccl,
            // Our kernels are measured anyway.
            Err(error) => {
                self.add_note(format!("NCCL not measured: {error}"));
                return Ok(None);
            }
        };
        if let Ok(version) = nccl.library_version() {
            self.add_note(format!(
                "NCCL {version} allocated memory of its own, beyond the limit of --memory"
            ));
        }
        // The first call opens connections, and may wait for GPUs: no gate may block them then.
        self.queue_run(setup, &CollectiveBackend::Nccl(&nccl, collective), u32::MAX, false)?;
        let events: Vec<_> =
            setup.rank_buffers.iter().map(|buffers| (buffers.gpu, buffers.checked)).collect();
        self.wait_for_events(&events)?;
        Ok(Some(nccl))
    }

    /// Queues one collective of NCCL on the first stream of each rank.
    pub(super) fn queue_nccl(
        &self,
        nccl: &NcclLibrary,
        collective: Collective,
        setup: &CollectiveSetup,
    ) -> Result<(), ProbeExit> {
        let (ranks, element) = (setup.plan.ranks, self.request.element);
        let elements = self.request.bytes / element.byte_size();
        let (chunk, bytes) = (elements / ranks, elements / ranks * element.byte_size());
        let queue_rank = |rank: usize| {
            let rank_buffers = &setup.rank_buffers[rank];
            let buffers = NcclBuffers {
                send: rank_buffers.send,
                receive: rank_buffers.receive,
                stream: rank_buffers.streams[0],
            };
            match collective {
                Collective::AllReduce => nccl.all_reduce(rank, buffers, elements, element),
                Collective::Broadcast => nccl.broadcast(rank, buffers, elements, element),
                Collective::AllGather => nccl.all_gather(rank, buffers, chunk, element),
                Collective::ReduceScatter => {
                    // Our chunk stays at its position in the message.
                    let receive = buffers.receive + (rank * bytes) as u64;
                    nccl.reduce_scatter(rank, NcclBuffers { receive, ..buffers }, chunk, element)
                }
                Collective::SendRecv => {
                    let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                    nccl.send_recv(rank, buffers, (right, left), (elements, element))
                }
                Collective::AllToAll => (0..ranks).try_for_each(|peer| {
                    let offset = (peer * bytes) as u64;
                    let buffers = NcclBuffers {
                        send: buffers.send + offset,
                        receive: buffers.receive + offset,
                        ..buffers
                    };
                    nccl.send_recv(rank, buffers, (peer, peer), (chunk, element))
                }),
            }
        };
        let queued = nccl.group_calls(|| (0..ranks).try_for_each(queue_rank));
        queued.map_err(|error: NcclError| ProbeExit::new(ExitKind::Failed, error.to_string()))
    }
}

impl CollectiveBackend<'_> {
    /// The data path, if NCCL chooses it.
    pub(super) fn nccl_path(&self) -> Option<DataPath> {
        matches!(self, Self::Nccl(..)).then_some(DataPath::Chosen)
    }
}
