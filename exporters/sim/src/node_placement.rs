//! Node placement: assigns the nodes of a fleet to job groups, to an idle allocation, or to nothing (free nodes).

use std::ops::Range;

/// The largest job group in nodes. A fleet of thousands runs several of them.
const LARGEST_JOB_GROUP: usize = 128;

/// One node in this many is free, and half as many are allocated and idle.
const NODES_PER_FREE_ONE: usize = 12;

/// How the nodes of a fleet are assigned, in the order job groups, held, free.
#[derive(Debug)]
pub(crate) struct NodePlacement {
    /// The nodes of each job group, the largest first.
    pub(crate) job_groups: Vec<Range<usize>>,
    /// Nodes that are allocated to an idle job.
    pub(crate) held: Range<usize>,
}

impl NodePlacement {
    pub(crate) fn of(nodes: usize) -> Self {
        let free_nodes = nodes / NODES_PER_FREE_ONE;
        let busy = nodes - free_nodes - free_nodes / 2;
        let mut job_groups = Vec::new();
        let mut next = 0;
        while next < busy {
            let left = busy - next;
            let size =
                if left >= LARGEST_JOB_GROUP { LARGEST_JOB_GROUP } else { 1 << left.ilog2() };
            job_groups.push(next..next + size);
            next += size;
        }
        Self { job_groups, held: busy..busy + free_nodes / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_groups_of_32_nodes_have_several_sizes() {
        let placement = NodePlacement::of(32);
        let sizes: Vec<_> = placement.job_groups.iter().map(Range::len).collect();
        assert_eq!((sizes, placement.held), (vec![16, 8, 4, 1], 29..30));
    }

    #[test]
    fn nodes_have_one_placement_at_any_fleet_size() {
        for nodes in (0..300).chain([1_000, 12_500]) {
            let placement = NodePlacement::of(nodes);
            let mut next = 0;
            for group in &placement.job_groups {
                assert_eq!(group.start, next);
                assert!((1..=LARGEST_JOB_GROUP).contains(&group.len()));
                next = group.end;
            }
            assert_eq!(placement.held.start, next);
            assert!(placement.held.end <= nodes);
            assert!(nodes == 0 || !placement.job_groups.is_empty());
        }
    }
}
