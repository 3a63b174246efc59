//! Matrix of cross-node probe measurements: one rail as a square of nodes or leaves, suspects first.

use std::collections::BTreeMap;

use gaunt_schema::natural_order;

use gaunt_api::{PairEnd, ProbePair, RailMatrix};

/// Measurements of one rail as a square.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PairMatrix {
    /// Whether rows and columns are leaves.
    pub(crate) by_leaf: bool,
    /// Nodes or leaves, in the order of rows and columns.
    pub(crate) ends: Vec<PairMatrixEnd>,
    /// Measurements between two ends, by their indexes, the lower one first.
    cells: BTreeMap<(usize, usize), PairMatrixCell>,
}

/// End of a pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PairMatrixEnd {
    /// A node, with its port if it has several on the rail; or a leaf.
    pub(crate) name: String,
    /// Leaf of the node, if known and different from the name.
    pub(crate) leaf: Option<String>,
    /// Whether the end or its leaf is a suspect.
    pub(crate) suspected: bool,
}

/// Measurements between two ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PairMatrixCell {
    /// Pairs, by their indexes in the rail's list.
    pub(crate) pairs: Vec<usize>,
    /// Median ratio of the pairs to their baselines; none if no pair has a baseline.
    pub(crate) ratio: Option<f64>,
    /// Number of failed pairs.
    pub(crate) failed: usize,
}

impl PairMatrix {
    /// Builds the matrix of a rail by nodes or by leaves.
    pub(crate) fn of(rail: &RailMatrix, by_leaf: bool) -> Self {
        let mut ends: BTreeMap<String, PairMatrixEnd> = BTreeMap::new();
        let several = !by_leaf && has_several_ports(&rail.pairs);
        for end in rail.pairs.iter().flat_map(|pair| [&pair.from, &pair.to]) {
            let name = end_name(end, by_leaf, several);
            ends.entry(name.clone()).or_insert_with(|| {
                let leaf = end.leaf.as_ref().map(ToString::to_string);
                let port = format!("{} {}/{}", end.node, end.device, end.port);
                let named = |of: &str| rail.suspects.iter().any(|suspect| *suspect.name == *of);
                let suspected = leaf.as_deref().is_some_and(named) || (!by_leaf && named(&port));
                PairMatrixEnd { name, leaf: leaf.filter(|_| !by_leaf), suspected }
            });
        }
        let mut ends: Vec<PairMatrixEnd> = ends.into_values().collect();
        // Ends below one leaf are adjacent, so that a slow uplink appears as a block.
        ends.sort_by(|one, other| {
            let leaf = |end: &PairMatrixEnd| end.leaf.clone().unwrap_or_default();
            (!one.suspected, one.leaf.is_some())
                .cmp(&(!other.suspected, other.leaf.is_some()))
                .then_with(|| natural_order(&leaf(one), &leaf(other)))
                .then_with(|| natural_order(&one.name, &other.name))
        });
        let index_by_name: BTreeMap<&str, usize> =
            ends.iter().enumerate().map(|(at, end)| (end.name.as_str(), at)).collect();
        let mut cells: BTreeMap<(usize, usize), PairMatrixCell> = BTreeMap::new();
        for (at, pair) in rail.pairs.iter().enumerate() {
            let end_index = |end: &PairEnd| {
                index_by_name.get(end_name(end, by_leaf, several).as_str()).copied()
            };
            let Some((one, other)) = end_index(&pair.from).zip(end_index(&pair.to)) else {
                continue;
            };
            let cell = cells.entry((one.min(other), one.max(other))).or_default();
            cell.pairs.push(at);
            cell.failed += usize::from(pair.failure.is_some());
        }
        for cell in cells.values_mut() {
            cell.ratio = median_of_values(
                cell.pairs.iter().filter_map(|at| rail.pairs[*at].ratio).collect(),
            );
        }
        Self { by_leaf, ends, cells }
    }

    /// Returns the measurements between two ends, if there are any.
    pub(crate) fn cell_between(&self, one: usize, other: usize) -> Option<&PairMatrixCell> {
        self.cells.get(&(one.min(other), one.max(other)))
    }
}

/// Returns whether a node has several ports on the rail.
fn has_several_ports(pairs: &[ProbePair]) -> bool {
    let mut known: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut ends = pairs.iter().flat_map(|pair| [&pair.from, &pair.to]);
    ends.any(|end| {
        let port = (end.device.as_str(), end.port.as_str());
        *known.entry(end.node.as_str()).or_insert(port) != port
    })
}

fn end_name(end: &PairEnd, by_leaf: bool, several: bool) -> String {
    match (by_leaf, several) {
        (true, _) => end.leaf.as_ref().map_or_else(|| "(unknown)".into(), ToString::to_string),
        (false, true) => format!("{} {}/{}", end.node, end.device, end.port),
        (false, false) => end.node.to_string(),
    }
}

fn median_of_values(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers;

    #[test]
    fn pair_matrix_is_symmetric_and_lists_suspects_first() {
        let matrix = sample_answers::probe_matrix();
        let square = PairMatrix::of(&matrix.rails[0], false);
        assert_eq!(square.ends.len(), 8);
        assert_eq!((square.ends[0].name.as_str(), square.ends[0].suspected), ("gpu003", true));
        assert!(square.ends[1..].iter().all(|end| !end.suspected));
        assert_eq!(square.cell_between(0, 3), square.cell_between(3, 0));
        assert_eq!(square.cell_between(2, 2), None, "no end is measured with itself");
        let slow = square.cell_between(0, 1).unwrap().ratio.unwrap();
        assert!((slow - 0.41).abs() < 0.01, "{slow}");
    }

    #[test]
    fn leaf_matrix_merges_pairs_and_its_diagonal_is_within_the_leaf() {
        let matrix = sample_answers::probe_matrix();
        let square = PairMatrix::of(&matrix.rails[0], true);
        let names: Vec<&str> = square.ends.iter().map(|end| end.name.as_str()).collect();
        assert_eq!(names, ["leaf-00", "leaf-01"]);
        let (within, across) =
            (square.cell_between(0, 0).unwrap(), square.cell_between(0, 1).unwrap());
        assert_eq!((within.pairs.len(), across.pairs.len()), (6, 16));
        assert_eq!(across.failed, 1);
        assert!(across.ratio.unwrap() > 0.9, "one slow port does not slow the path");
    }

    #[test]
    fn leaves_are_in_natural_order() {
        let mut rail = sample_answers::probe_matrix().rails.swap_remove(0);
        rail.suspects.clear();
        for end in rail.pairs.iter_mut().flat_map(|pair| [&mut pair.from, &mut pair.to]) {
            let leaf = end
                .leaf
                .as_deref()
                .map(|leaf| if leaf == "leaf-00" { "leaf-10" } else { "leaf-2" });
            end.leaf = leaf.map(Into::into);
        }
        let names = |by_leaf| -> Vec<String> {
            PairMatrix::of(&rail, by_leaf).ends.into_iter().map(|end| end.name).collect()
        };
        assert_eq!(names(true), ["leaf-2", "leaf-10"]);
        let nodes = names(false);
        assert_eq!(
            (nodes.len(), nodes.last().map(String::as_str)),
            (8, Some("gpu004")),
            "{nodes:?}"
        );
    }

    #[test]
    fn node_with_two_ports_on_a_rail_has_two_ends() {
        let mut rail = sample_answers::probe_matrix().rails.swap_remove(0);
        rail.pairs[0].from.device = "mlx5_9".into();
        let square = PairMatrix::of(&rail, false);
        assert!(square.ends.iter().any(|end| end.name == "gpu001 mlx5_9/1"));
        assert!(square.ends.iter().any(|end| end.name == "gpu001 mlx5_0/1"));
    }
}
