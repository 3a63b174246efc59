//! NCCL beside our kernels: the same buffers, the same patterns, the same gate and the same check.

use crate::{
    collective::Collective,
    ending::{Ending, Kind},
    measure::Bench,
    nccl::{Nccl, NcclError, Part},
    order::Way,
};

use super::{By, Ring};

/// Parts that NCCL deals with must be equal, and as ours are when each has a multiple of this many elements.
const EQUAL: usize = 8;

impl Bench<'_> {
    /// NCCL with all GPUs in one group and its connections made, if it is wanted, there, and can do the same.
    pub(super) fn nccl(
        &mut self,
        collective: Collective,
        ring: &Ring,
    ) -> Result<Option<Nccl>, Ending> {
        if !self.order.nccl {
            return Ok(None);
        }
        let elements = self.order.bytes / self.order.element.bytes();
        if ring.plan.ranks > self.gpus.len() {
            self.note("NCCL is not measured beside: it knows no virtual ranks");
            return Ok(None);
        }
        if !elements.is_multiple_of(ring.plan.ranks * EQUAL) {
            let parts = ring.plan.ranks * EQUAL;
            self.note(format!("NCCL is not measured beside: its parts must be equal; choose a multiple of {parts} elements"));
            return Ok(None);
        }
        self.hear.at("NCCL's communicators");
        let devices: Vec<i32> = self.gpus.iter().map(|gpu| gpu.listed.device).collect();
        let joined = Nccl::open(self.order.libraries.nccl.as_deref()).and_then(|mut nccl| {
            nccl.join(&devices)?;
            Ok(nccl)
        });
        let nccl = match joined {
            Ok(nccl) => nccl,
            // Ours are measured all the same.
            Err(error) => {
                self.note(format!("NCCL is not measured beside: {error}"));
                return Ok(None);
            }
        };
        if let Ok(version) = nccl.version() {
            self.note(format!(
                "NCCL {version} took memory of its own, which the limit does not bound"
            ));
        }
        // The first call makes connections, and may wait for GPUs: no gate may hold them then.
        self.queue(ring, &By::Nccl(&nccl, collective), u32::MAX, false)?;
        let over: Vec<_> = ring.lanes.iter().map(|lane| (lane.gpu, lane.over)).collect();
        self.finish(&over)?;
        Ok(Some(nccl))
    }

    /// Queues one collective of NCCL on the first stream of each rank.
    pub(super) fn start_nccl(
        &self,
        nccl: &Nccl,
        collective: Collective,
        ring: &Ring,
    ) -> Result<(), Ending> {
        let (ranks, element) = (ring.plan.ranks, self.order.element);
        let elements = self.order.bytes / element.bytes();
        let (each, bytes) = (elements / ranks, elements / ranks * element.bytes());
        let one = |rank: usize| {
            let lane = &ring.lanes[rank];
            let part = Part { send: lane.send, receive: lane.receive, stream: lane.streams[0] };
            match collective {
                Collective::AllReduce => nccl.all_reduce(rank, part, elements, element),
                Collective::Broadcast => nccl.broadcast(rank, part, elements, element),
                Collective::AllGather => nccl.all_gather(rank, part, each, element),
                Collective::ReduceScatter => {
                    // Ours lies where it lay in the message.
                    let receive = part.receive + (rank * bytes) as u64;
                    nccl.reduce_scatter(rank, Part { receive, ..part }, each, element)
                }
                Collective::SendRecv => {
                    let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                    nccl.exchange(rank, part, (right, left), (elements, element))
                }
                Collective::AllToAll => (0..ranks).try_for_each(|peer| {
                    let at = (peer * bytes) as u64;
                    let part = Part { send: part.send + at, receive: part.receive + at, ..part };
                    nccl.exchange(rank, part, (peer, peer), (each, element))
                }),
            }
        };
        let made = nccl.together(|| (0..ranks).try_for_each(one));
        made.map_err(|error: NcclError| Ending::new(Kind::Failed, error.to_string()))
    }
}

impl By<'_> {
    /// The way that the data takes, if somebody else chooses it.
    pub(super) fn way(&self) -> Option<Way> {
        matches!(self, Self::Nccl(..)).then_some(Way::Chosen)
    }
}
