//! The algorithms: rings for reductions and broadcasts, direct exchange for all-to-all.

use std::ops::Range;

use super::{BufferPosition, BufferSide, ExpectedSum, PlannedMove, SendPattern, split_elements};
use crate::collective_kind::Collective;

/// Pieces of a broadcast for each channel: many, so that the last rank waits for a small one only, and few enough that
/// each is worth a kernel launch.
const BROADCAST_PIECES: usize = 8;

/// A plan without the waits between moves.
pub(super) struct PlanBuilder {
    ranks: usize,
    channels: usize,
    pub(super) receive_elements: usize,
    pub(super) sends: Vec<SendPattern>,
    pub(super) moves: Vec<PlannedMove>,
    pub(super) expected: Vec<ExpectedSum>,
}

pub(super) fn build_moves(
    collective: Collective,
    ranks: usize,
    elements: usize,
    channels: usize,
) -> PlanBuilder {
    let mut builder = PlanBuilder {
        ranks,
        channels,
        receive_elements: elements,
        sends: vec![SendPattern { elements, base: 0 }; ranks],
        moves: Vec::new(),
        expected: Vec::new(),
    };
    let chunks = split_elements(elements, ranks);
    match collective {
        Collective::AllReduce => builder.plan_all_reduce(&chunks),
        Collective::ReduceScatter => builder.plan_reduce_scatter(&chunks),
        Collective::AllGather => builder.plan_all_gather(&chunks),
        Collective::AllToAll => builder.plan_all_to_all(&chunks),
        Collective::Broadcast => builder.plan_broadcast(elements),
        Collective::SendRecv => builder.plan_send_recv(elements),
    }
    builder
}

impl PlanBuilder {
    /// A reduce-scatter around the ring, then an all-gather of the sums.
    fn plan_all_reduce(&mut self, chunks: &[Range<usize>]) {
        if self.ranks == 1 {
            self.add_copies(0, send_position(0, 0), 0, chunks[0].len());
        }
        self.plan_ring_sum(chunks, 1);
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let chunk = &chunks[self.rank_before(rank, step)];
                let from = receive_position(self.rank_before(rank, 1), chunk.start);
                self.add_copies(rank, from, chunk.start, chunk.len());
            }
        }
        for rank in 0..self.ranks {
            for chunk in chunks {
                self.expect_sum(rank, chunk.start, chunk, 0..self.ranks);
            }
        }
    }

    fn plan_reduce_scatter(&mut self, chunks: &[Range<usize>]) {
        if self.ranks == 1 {
            self.add_copies(0, send_position(0, 0), 0, chunks[0].len());
        }
        self.plan_ring_sum(chunks, 2);
        for (rank, chunk) in chunks.iter().enumerate() {
            self.expect_sum(rank, chunk.start, chunk, 0..self.ranks);
        }
    }

    /// A ring reduce-scatter: each chunk's sum moves to the right, and every rank adds its own data. `ahead` sets where
    /// it ends: 1 leaves a rank with the chunk of the next rank, 2 with its own.
    fn plan_ring_sum(&mut self, chunks: &[Range<usize>], ahead: usize) {
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let chunk = &chunks[self.rank_before(rank, step + ahead)];
                let previous = self.rank_before(rank, 1);
                let from = match step {
                    0 => send_position(previous, chunk.start),
                    _ => receive_position(previous, chunk.start),
                };
                self.add_sums(rank, from, chunk);
            }
        }
    }

    fn plan_all_gather(&mut self, chunks: &[Range<usize>]) {
        for (rank, chunk) in chunks.iter().enumerate() {
            self.sends[rank] = SendPattern { elements: chunk.len(), base: chunk.start };
            self.add_copies(rank, send_position(rank, 0), chunk.start, chunk.len());
        }
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let previous = self.rank_before(rank, 1);
                let source = self.rank_before(rank, 1 + step);
                let chunk = &chunks[source];
                let from = match step {
                    0 => send_position(previous, 0),
                    _ => receive_position(previous, chunk.start),
                };
                self.add_copies(rank, from, chunk.start, chunk.len());
            }
        }
        for rank in 0..self.ranks {
            for (source, chunk) in chunks.iter().enumerate() {
                self.expect_sum(rank, chunk.start, chunk, source..source + 1);
            }
        }
    }

    /// Every rank reads its chunk from each other rank, from a different one at each step.
    fn plan_all_to_all(&mut self, chunks: &[Range<usize>]) {
        let longest = chunks.iter().map(Range::len).max().unwrap_or(0);
        // Parts are aligned, so that 16 bytes are copied at a time.
        let stride = longest.next_multiple_of(super::ALIGN);
        self.receive_elements = stride * self.ranks;
        for step in 0..self.ranks {
            for (rank, chunk) in chunks.iter().enumerate() {
                let source = (rank + step) % self.ranks;
                self.add_copies(
                    rank,
                    send_position(source, chunk.start),
                    source * stride,
                    chunk.len(),
                );
            }
        }
        for (rank, chunk) in chunks.iter().enumerate() {
            for source in 0..self.ranks {
                self.expect_sum(rank, source * stride, chunk, source..source + 1);
            }
        }
    }

    /// A pipelined chain: every rank forwards a piece while it receives the next one.
    fn plan_broadcast(&mut self, elements: usize) {
        let pieces = split_elements(elements, self.channels * BROADCAST_PIECES);
        for (number, piece) in pieces.iter().enumerate() {
            for rank in 0..self.ranks {
                let from = match rank {
                    0 | 1 => send_position(0, piece.start),
                    _ => receive_position(rank - 1, piece.start),
                };
                self.add_move(number % self.channels, rank, from, None, piece.clone());
            }
        }
        for rank in 0..self.ranks {
            self.expect_sum(rank, 0, &(0..elements), 0..1);
        }
    }

    fn plan_send_recv(&mut self, elements: usize) {
        for rank in 0..self.ranks {
            let previous = self.rank_before(rank, 1);
            self.add_copies(rank, send_position(previous, 0), 0, elements);
            self.expect_sum(rank, 0, &(0..elements), previous..previous + 1);
        }
    }

    /// The rank `steps` positions before another one on the ring.
    fn rank_before(&self, rank: usize, steps: usize) -> usize {
        (rank + 2 * self.ranks - steps) % self.ranks
    }

    /// Adds copies, split over the channels.
    fn add_copies(&mut self, rank: usize, from: BufferPosition, to: usize, elements: usize) {
        for (channel, part) in split_elements(elements, self.channels).into_iter().enumerate() {
            let from = BufferPosition { at: from.at + part.start, ..from };
            self.add_move(channel, rank, from, None, to + part.start..to + part.end);
        }
    }

    /// Adds sums, split over the channels: the received data plus the rank's own.
    fn add_sums(&mut self, rank: usize, from: BufferPosition, chunk: &Range<usize>) {
        for (channel, part) in split_elements(chunk.len(), self.channels).into_iter().enumerate() {
            let from = BufferPosition { at: from.at + part.start, ..from };
            let to = chunk.start + part.start..chunk.start + part.end;
            self.add_move(channel, rank, from, Some(to.start), to);
        }
    }

    fn add_move(
        &mut self,
        channel: usize,
        rank: usize,
        from: BufferPosition,
        summand: Option<usize>,
        to: Range<usize>,
    ) {
        if !to.is_empty() {
            let elements = to.len();
            let to = receive_position(rank, to.start);
            self.moves.push(PlannedMove { channel, from, summand, to, elements });
        }
    }

    /// Expects `pattern`, summed over `sources`, at `at`.
    fn expect_sum(
        &mut self,
        rank: usize,
        at: usize,
        pattern: &Range<usize>,
        sources: Range<usize>,
    ) {
        if !pattern.is_empty() {
            let (base, elements) = (pattern.start, pattern.len());
            let (first, ranks) = (sources.start, sources.len());
            self.expected.push(ExpectedSum { rank, at, elements, base, first, ranks });
        }
    }
}

fn send_position(rank: usize, at: usize) -> BufferPosition {
    BufferPosition { rank, side: BufferSide::Send, at }
}

fn receive_position(rank: usize, at: usize) -> BufferPosition {
    BufferPosition { rank, side: BufferSide::Receive, at }
}
