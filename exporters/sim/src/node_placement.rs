//! Node placement: assigns the nodes of a fleet to job groups, to an idle allocation, or to nothing (free nodes).

use std::ops::Range;

/// The largest job group in nodes. A fleet of thousands runs several of them.
const LARGEST_GANG: usize = 128;

/// One node in this many is free, and half as many are allocated and idle.
const NODES_PER_FREE_ONE: usize = 12;

/// How the nodes of a fleet are assigned, in the order job groups, held, free.
#[derive(Debug)]
pub(crate) struct NodePlacement {
    /// The nodes of each job group, the largest first.
    pub(crate) gangs: Vec<Range<usize>>,
    /// Nodes that a job holds and leaves idle.
    pub(crate) held: Range<usize>,
}

impl NodePlacement {
    pub(crate) fn of(nodes: usize) -> Self {
        let free = nodes / NODES_PER_FREE_ONE;
        let working = nodes - free - free / 2;
        let mut gangs = Vec::new();
        let mut next = 0;
        while next < working {
            let left = working - next;
            let size = if left >= LARGEST_GANG { LARGEST_GANG } else { 1 << left.ilog2() };
            gangs.push(next..next + size);
            next += size;
        }
        Self { gangs, held: working..working + free / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_two_nodes_run_gangs_of_several_sizes() {
        let placement = NodePlacement::of(32);
        let sizes: Vec<_> = placement.gangs.iter().map(Range::len).collect();
        assert_eq!((sizes, placement.held), (vec![16, 8, 4, 1], 29..30));
    }

    #[test]
    fn every_node_has_one_place_whatever_the_size() {
        for nodes in (0..300).chain([1_000, 12_500]) {
            let placement = NodePlacement::of(nodes);
            let mut next = 0;
            for gang in &placement.gangs {
                assert_eq!(gang.start, next);
                assert!((1..=LARGEST_GANG).contains(&gang.len()));
                next = gang.end;
            }
            assert_eq!(placement.held.start, next);
            assert!(placement.held.end <= nodes);
            assert!(nodes == 0 || !placement.gangs.is_empty());
        }
    }
}
