//! Collective plans: a collective as an ordered list of moves between ranks. Pure: it is verified without a GPU.
//!
//! Every rank has two buffers: a send buffer, which never changes, and a receive buffer. A move is done by one rank,
//! which reads from any rank and writes into its own buffer. Moves are listed in a valid sequential order; what may run
//! in parallel follows from the buffer ranges of each move, so that no dependency is missed.

use std::ops::Range;

use crate::collective_kind::Collective;

mod move_order;
mod plan_builder;

/// The maximum ranks: larger sums would not be exact in bf16, and no node has more GPUs.
pub const MAX_RANKS: usize = 16;

/// Parts of a message begin at multiples of this many elements, so that 16 bytes are copied at a time.
const ALIGN: usize = 8;

/// A position in a rank's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferPosition {
    pub(crate) rank: usize,
    pub(crate) side: BufferSide,
    /// The first element.
    pub(crate) at: usize,
}

/// One of a rank's two buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferSide {
    Send,
    Receive,
}

/// A move: elements that one rank copies or sums at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedMove {
    /// The stream of the rank that does it.
    pub(crate) channel: usize,
    pub(crate) from: BufferPosition,
    /// For a sum: the position of the other summand in the rank's own send buffer.
    pub(crate) summand: Option<usize>,
    /// Always in the receive buffer of the rank that does it.
    pub(crate) to: BufferPosition,
    pub(crate) elements: usize,
}

/// The expected content of a receive buffer at the end: the sum of what some ranks sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedSum {
    pub(crate) rank: usize,
    pub(crate) at: usize,
    pub(crate) elements: usize,
    /// The index of the first element in the pattern.
    pub(crate) base: usize,
    pub(crate) first: usize,
    pub(crate) ranks: usize,
}

/// The data that a rank sends: elements of its pattern from `base` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendPattern {
    pub(crate) elements: usize,
    pub(crate) base: usize,
}

/// A rank, and a range of its receive buffer.
type ReceiveRange = (usize, Range<usize>);

/// A collective, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct CollectivePlan {
    pub(crate) ranks: usize,
    pub(crate) channels: usize,
    /// Elements of each rank's receive buffer.
    pub(crate) receive_elements: usize,
    pub(crate) sends: Vec<SendPattern>,
    pub(crate) moves: Vec<PlannedMove>,
    /// For each move, the earlier moves on other streams that must be done before it.
    pub(crate) waits: Vec<Vec<usize>>,
    pub(crate) expected: Vec<ExpectedSum>,
}

impl CollectivePlan {
    /// The plan of a collective over `elements` elements in all, as nccl-tests counts them.
    pub(crate) fn new(
        collective: Collective,
        ranks: usize,
        elements: usize,
        channels: usize,
    ) -> Self {
        let builder = plan_builder::build_moves(collective, ranks, elements, channels);
        let waits = move_order::compute_waits(&builder.moves, ranks);
        Self {
            ranks,
            channels,
            receive_elements: builder.receive_elements,
            sends: builder.sends,
            waits,
            moves: builder.moves,
            expected: builder.expected,
        }
    }

    /// The ranges of receive buffers that a move accesses: the one that it reads, if any, and the one that it writes.
    fn touched_ranges(planned: &PlannedMove) -> (Option<ReceiveRange>, ReceiveRange) {
        let read = (planned.from.side == BufferSide::Receive)
            .then(|| (planned.from.rank, planned.from.at..planned.from.at + planned.elements));
        (read, (planned.to.rank, planned.to.at..planned.to.at + planned.elements))
    }

    /// Elements that cross between GPUs, with the ranks assigned to `gpus` GPUs in turn.
    pub(crate) fn crossing_elements(&self, gpus: usize) -> usize {
        let crossing =
            self.moves.iter().filter(|planned| planned.from.rank % gpus != planned.to.rank % gpus);
        crossing.map(|planned| planned.elements).sum()
    }

    /// The maximum elements of one move.
    pub(crate) fn largest_move(&self) -> usize {
        self.moves.iter().map(|planned| planned.elements).max().unwrap_or(0)
    }
}

/// Splits `elements` into `parts` ranges, all but the last ones of the same aligned length.
pub(crate) fn split_elements(elements: usize, parts: usize) -> Vec<Range<usize>> {
    let length = elements.div_ceil(parts.max(1)).next_multiple_of(ALIGN);
    let boundary = |part: usize| (part * length).min(elements);
    (0..parts).map(|part| boundary(part)..boundary(part + 1)).collect()
}

#[cfg(test)]
mod tests;
