//! The order of moves: which move waits for which, derived from the ranges that each one reads and writes.

use std::{collections::BTreeMap, ops::Range};

use super::{CollectivePlan, PlannedMove};

/// A range of a receive buffer that a move accesses.
struct BufferAccess {
    range: Range<usize>,
    number: usize,
    writes: bool,
}

/// For each move, the earlier ones on other streams that it must wait for: those that wrote what it reads, and those
/// that access what it writes. Of several on one stream only the last is kept.
pub(super) fn compute_waits(moves: &[PlannedMove], ranks: usize) -> Vec<Vec<usize>> {
    let mut accesses: Vec<Vec<BufferAccess>> = (0..ranks).map(|_| Vec::new()).collect();
    let mut waits = Vec::with_capacity(moves.len());
    for (number, planned) in moves.iter().enumerate() {
        let (read, (writer, written)) = CollectivePlan::touched_ranges(planned);
        let mut last: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let mut add_wait = |access: &BufferAccess| {
            let earlier = &moves[access.number];
            last.insert((earlier.to.rank, earlier.channel), access.number);
        };
        if let Some((rank, range)) = &read {
            let write_accesses = accesses[*rank].iter().filter(|access| access.writes);
            write_accesses
                .filter(|access| ranges_overlap(&access.range, range))
                .for_each(&mut add_wait);
        }
        accesses[writer]
            .iter()
            .filter(|access| ranges_overlap(&access.range, &written))
            .for_each(add_wait);
        // Moves on one stream run in order anyway.
        last.remove(&(planned.to.rank, planned.channel));
        waits.push(last.into_values().collect());
        if let Some((rank, range)) = read {
            accesses[rank].push(BufferAccess { range, number, writes: false });
        }
        accesses[writer].push(BufferAccess { range: written, number, writes: true });
    }
    waits
}

fn ranges_overlap(first: &Range<usize>, second: &Range<usize>) -> bool {
    first.start < second.end && second.start < first.end
}
