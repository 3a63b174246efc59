//! The algorithms: rings for what is summed or spread, direct exchange for what is dealt out.

use std::ops::Range;

use super::{Claim, Filling, Move, Side, Spot, split};
use crate::collective::Collective;

/// Pieces of a broadcast for each channel: many, so that the last rank waits for a small one only, and few enough that
/// each is worth a start.
const BROADCAST_PIECES: usize = 8;

/// A plan without its order.
pub(super) struct Sketch {
    ranks: usize,
    channels: usize,
    pub(super) room: usize,
    pub(super) fillings: Vec<Filling>,
    pub(super) moves: Vec<Move>,
    pub(super) claims: Vec<Claim>,
}

pub(super) fn sketch(
    collective: Collective,
    ranks: usize,
    elements: usize,
    channels: usize,
) -> Sketch {
    let mut sketch = Sketch {
        ranks,
        channels,
        room: elements,
        fillings: vec![Filling { elements, base: 0 }; ranks],
        moves: Vec::new(),
        claims: Vec::new(),
    };
    let chunks = split(elements, ranks);
    match collective {
        Collective::AllReduce => sketch.all_reduce(&chunks),
        Collective::ReduceScatter => sketch.reduce_scatter(&chunks),
        Collective::AllGather => sketch.all_gather(&chunks),
        Collective::AllToAll => sketch.all_to_all(&chunks),
        Collective::Broadcast => sketch.broadcast(elements),
        Collective::SendRecv => sketch.send_recv(elements),
    }
    sketch
}

impl Sketch {
    /// First everybody gathers one chunk's sum on its way round the ring, then the sums go round.
    fn all_reduce(&mut self, chunks: &[Range<usize>]) {
        if self.ranks == 1 {
            self.bring(0, sending(0, 0), 0, chunks[0].len());
        }
        self.sum_round(chunks, 1);
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let chunk = &chunks[self.back(rank, step)];
                let from = receiving(self.back(rank, 1), chunk.start);
                self.bring(rank, from, chunk.start, chunk.len());
            }
        }
        for rank in 0..self.ranks {
            for chunk in chunks {
                self.claim(rank, chunk.start, chunk, 0..self.ranks);
            }
        }
    }

    fn reduce_scatter(&mut self, chunks: &[Range<usize>]) {
        if self.ranks == 1 {
            self.bring(0, sending(0, 0), 0, chunks[0].len());
        }
        self.sum_round(chunks, 2);
        for (rank, chunk) in chunks.iter().enumerate() {
            self.claim(rank, chunk.start, chunk, 0..self.ranks);
        }
    }

    /// A chunk's sum travels to the right and grows by what each rank has. `ahead` says where each one ends: 1 leaves a
    /// rank with the chunk of the next one, 2 with its own.
    fn sum_round(&mut self, chunks: &[Range<usize>], ahead: usize) {
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let chunk = &chunks[self.back(rank, step + ahead)];
                let left = self.back(rank, 1);
                let from = match step {
                    0 => sending(left, chunk.start),
                    _ => receiving(left, chunk.start),
                };
                self.add(rank, from, chunk);
            }
        }
    }

    fn all_gather(&mut self, chunks: &[Range<usize>]) {
        for (rank, chunk) in chunks.iter().enumerate() {
            self.fillings[rank] = Filling { elements: chunk.len(), base: chunk.start };
            self.bring(rank, sending(rank, 0), chunk.start, chunk.len());
        }
        for step in 0..self.ranks - 1 {
            for rank in 0..self.ranks {
                let left = self.back(rank, 1);
                let source = self.back(rank, 1 + step);
                let chunk = &chunks[source];
                let from = match step {
                    0 => sending(left, 0),
                    _ => receiving(left, chunk.start),
                };
                self.bring(rank, from, chunk.start, chunk.len());
            }
        }
        for rank in 0..self.ranks {
            for (source, chunk) in chunks.iter().enumerate() {
                self.claim(rank, chunk.start, chunk, source..source + 1);
            }
        }
    }

    /// Everybody fetches its part from each of the others, from another one at each step.
    fn all_to_all(&mut self, chunks: &[Range<usize>]) {
        let longest = chunks.iter().map(Range::len).max().unwrap_or(0);
        // Parts must not lie closer than they can be moved fast.
        let stride = longest.next_multiple_of(super::ALIGN);
        self.room = stride * self.ranks;
        for step in 0..self.ranks {
            for (rank, chunk) in chunks.iter().enumerate() {
                let source = (rank + step) % self.ranks;
                self.bring(rank, sending(source, chunk.start), source * stride, chunk.len());
            }
        }
        for (rank, chunk) in chunks.iter().enumerate() {
            for source in 0..self.ranks {
                self.claim(rank, source * stride, chunk, source..source + 1);
            }
        }
    }

    /// A chain in small pieces: everybody passes on what it has while more arrives.
    fn broadcast(&mut self, elements: usize) {
        let pieces = split(elements, self.channels * BROADCAST_PIECES);
        for (number, piece) in pieces.iter().enumerate() {
            for rank in 0..self.ranks {
                let from = match rank {
                    0 | 1 => sending(0, piece.start),
                    _ => receiving(rank - 1, piece.start),
                };
                self.go(number % self.channels, rank, from, None, piece.clone());
            }
        }
        for rank in 0..self.ranks {
            self.claim(rank, 0, &(0..elements), 0..1);
        }
    }

    fn send_recv(&mut self, elements: usize) {
        for rank in 0..self.ranks {
            let left = self.back(rank, 1);
            self.bring(rank, sending(left, 0), 0, elements);
            self.claim(rank, 0, &(0..elements), left..left + 1);
        }
    }

    /// The rank that stands `steps` before another one on the ring.
    fn back(&self, rank: usize, steps: usize) -> usize {
        (rank + 2 * self.ranks - steps) % self.ranks
    }

    /// Copies, cut over the channels.
    fn bring(&mut self, rank: usize, from: Spot, to: usize, elements: usize) {
        for (channel, part) in split(elements, self.channels).into_iter().enumerate() {
            let from = Spot { at: from.at + part.start, ..from };
            self.go(channel, rank, from, None, to + part.start..to + part.end);
        }
    }

    /// Sums, cut over the channels: what comes, plus the rank's own.
    fn add(&mut self, rank: usize, from: Spot, chunk: &Range<usize>) {
        for (channel, part) in split(chunk.len(), self.channels).into_iter().enumerate() {
            let from = Spot { at: from.at + part.start, ..from };
            let to = chunk.start + part.start..chunk.start + part.end;
            self.go(channel, rank, from, Some(to.start), to);
        }
    }

    fn go(
        &mut self,
        channel: usize,
        rank: usize,
        from: Spot,
        plus: Option<usize>,
        to: Range<usize>,
    ) {
        if !to.is_empty() {
            let elements = to.len();
            let to = receiving(rank, to.start);
            self.moves.push(Move { channel, from, plus, to, elements });
        }
    }

    /// Claims that `pattern`, summed over `sources`, lies at `at`.
    fn claim(&mut self, rank: usize, at: usize, pattern: &Range<usize>, sources: Range<usize>) {
        if !pattern.is_empty() {
            let (base, elements) = (pattern.start, pattern.len());
            let (first, ranks) = (sources.start, sources.len());
            self.claims.push(Claim { rank, at, elements, base, first, ranks });
        }
    }
}

fn sending(rank: usize, at: usize) -> Spot {
    Spot { rank, side: Side::Send, at }
}

fn receiving(rank: usize, at: usize) -> Spot {
    Spot { rank, side: Side::Receive, at }
}
