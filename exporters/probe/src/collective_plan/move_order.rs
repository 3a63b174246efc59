//! The order of moves: which move waits for which, derived from the ranges that each one reads and writes.

use std::{collections::BTreeMap, ops::Range};

use super::{CollectivePlan, PlannedMove};

/// A range of a receive buffer that a move accesses.
struct BufferAccess {
    range: Range<usize>,
    by: usize,
    writes: bool,
}

/// For each move, the earlier ones on other streams that it must wait for: those that wrote what it reads, and those
/// that access what it writes. Of several on one stream only the last is kept.
pub(super) fn compute_waits(moves: &[PlannedMove], ranks: usize) -> Vec<Vec<usize>> {
    let mut accesses: Vec<Vec<BufferAccess>> = (0..ranks).map(|_| Vec::new()).collect();
    let mut all = Vec::with_capacity(moves.len());
    for (number, one) in moves.iter().enumerate() {
        let (read, (writer, written)) = CollectivePlan::touched_ranges(one);
        let mut last: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut after = |known: &BufferAccess| {
            let earlier = &moves[known.by];
            last.insert((earlier.to.rank, earlier.channel), known.by);
        };
        if let Some((rank, range)) = &read {
            let wrote = accesses[*rank].iter().filter(|known| known.writes);
            wrote.filter(|known| ranges_overlap(&known.range, range)).for_each(&mut after);
        }
        accesses[writer]
            .iter()
            .filter(|known| ranges_overlap(&known.range, &written))
            .for_each(after);
        // Moves on one stream run in order anyway.
        last.remove(&(one.to.rank, one.channel));
        all.push(last.into_values().collect());
        if let Some((rank, range)) = read {
            accesses[rank].push(BufferAccess { range, by: number, writes: false });
        }
        accesses[writer].push(BufferAccess { range: written, by: number, writes: true });
    }
    all
}

fn ranges_overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}
