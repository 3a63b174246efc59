//! A lane: the buffers, streams and events with which one rank sends, receives and is checked.

use crate::{
    cuda::{
        CudaError,
        door::{Argument, Handle},
        gpu::Gpu,
        kernel::{Element, MOVE},
    },
    measure::{GUARD, POISON},
    plan::Claim,
};

/// Bytes of the report of a check on the GPU: how many are wrong, and the complement of the first one's place.
const WRONG: usize = 16;

/// The report of a check as it lies in pinned memory: that of the GPU, and the guard behind the buffer.
pub(super) const REPORT: usize = WRONG + GUARD;

/// What one rank has on its GPU.
pub(super) struct Lane {
    /// Its GPU, by position.
    pub(super) gpu: usize,
    pub(super) send: u64,
    pub(super) receive: u64,
    /// Bytes of the receive buffer, without the guard.
    room: usize,
    /// How many ranks share the GPU, and with it the limit on blocks.
    share: u32,
    /// Where pieces land that must go through the host, for each stream.
    pub(super) bounce: Vec<u64>,
    pub(super) streams: Vec<Handle>,
    pub(super) ready: Handle,
    pub(super) begin: Handle,
    pub(super) end: Handle,
    pub(super) over: Handle,
    wrong: u64,
    /// Pinned memory for the report.
    pinned: u64,
}

/// What a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Elements that are wrong.
    pub(super) wrong: u64,
    /// The place of the first of them.
    pub(super) first: u64,
    /// Whether something was written behind the buffer.
    pub(super) beyond: bool,
}

/// Bytes of a receive buffer with its guard.
pub(super) fn guarded(bytes: usize) -> usize {
    bytes.next_multiple_of(16) + GUARD
}

impl Lane {
    /// Takes what a rank needs that is one of `share` on its GPU: `send` and `receive` bytes, and `bounce` for each of
    /// its `channels`.
    pub(super) fn take(
        gpu: &mut Gpu,
        place: usize,
        (send, receive, bounce): (usize, usize, usize),
        (channels, share): (usize, u32),
    ) -> Result<Self, CudaError> {
        let streams = (0..channels).map(|_| gpu.stream()).collect::<Result<_, _>>()?;
        let bounces = if bounce > 0 { channels } else { 0 };
        Ok(Self {
            gpu: place,
            send: gpu.allocate(send)?,
            receive: gpu.allocate(guarded(receive))?,
            room: receive,
            share,
            bounce: (0..bounces).map(|_| gpu.allocate(bounce)).collect::<Result<_, _>>()?,
            streams,
            ready: gpu.event(false)?,
            begin: gpu.event(true)?,
            end: gpu.event(true)?,
            over: gpu.event(false)?,
            wrong: gpu.allocate(WRONG)?,
            pinned: gpu.allocate_host(REPORT)?,
        })
    }

    /// Writes what the rank sends, poisons what it receives into, and marks that as ready.
    pub(super) fn prepare(
        &self,
        gpu: &Gpu,
        element: Element,
        (rank, elements, base): (usize, usize, usize),
        round: u32,
    ) -> Result<(), CudaError> {
        let main = self.streams[0];
        let arguments = [
            Argument::Long(self.send),
            Argument::Long(elements as u64),
            Argument::Long(base as u64),
            Argument::Word(rank as u32),
            Argument::Word(round),
        ];
        gpu.launch(element.arithmetic().pattern, (elements, self.share), main, &arguments)?;
        gpu.fill(self.receive, POISON, guarded(self.room), main)?;
        gpu.fill(self.wrong, 0, WRONG, main)?;
        gpu.record(self.ready, main)
    }

    /// Checks what arrived, and brings the report to the host.
    pub(super) fn check<'a>(
        &self,
        gpu: &Gpu,
        element: Element,
        claims: impl Iterator<Item = &'a Claim>,
        round: u32,
    ) -> Result<(), CudaError> {
        let main = self.streams[0];
        for claim in claims {
            let arguments = [
                Argument::Long(self.receive + (claim.at * element.bytes()) as u64),
                Argument::Long(claim.elements as u64),
                Argument::Long(claim.base as u64),
                Argument::Long(claim.at as u64),
                Argument::Word(claim.first as u32),
                Argument::Word(claim.ranks as u32),
                Argument::Word(round),
                Argument::Long(self.wrong),
            ];
            gpu.launch(element.arithmetic().check, (claim.elements, self.share), main, &arguments)?;
        }
        gpu.copy(self.pinned, self.wrong, WRONG, main)?;
        let guard = self.receive + self.room.next_multiple_of(16) as u64;
        gpu.copy(self.pinned + WRONG as u64, guard, GUARD, main)?;
        gpu.record(self.over, main)
    }

    /// The report, once `over` is reached.
    pub(super) fn found(&self, gpu: &Gpu) -> Found {
        let word = |at: usize| gpu.peek(self.pinned, at).unwrap_or_default();
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let wrong = long(0);
        let first = if wrong > 0 { !long(8) } else { 0 };
        let beyond = (WRONG..REPORT).step_by(4).any(|at| word(at) != POISON);
        Found { wrong, first, beyond }
    }

    /// Moves bytes by a kernel of `gpu` that uses a share of its blocks.
    pub(super) fn go(
        gpu: &Gpu,
        (to, from, bytes): (u64, u64, usize),
        share: u32,
        on: Handle,
    ) -> Result<(), CudaError> {
        let arguments = [Argument::Long(to), Argument::Long(from), Argument::Long(bytes as u64)];
        gpu.launch(MOVE, (bytes.div_ceil(16), share), on, &arguments)
    }
}
