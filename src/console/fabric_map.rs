//! Layout of the network map: the position of each fabric cell.
//!
//! In a rail-optimised fabric every leaf serves one rail, and a map of leaves by rails would be a diagonal: then a row is a
//! scalable unit: the first leaf of each rail, the next row the second one of each.

use gaunt_api::FabricMatrix;

/// Row of the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FabricMapRow {
    /// Common name of its leaves.
    pub(crate) name: String,
    /// Cell of each rail, by its index in the fabric's columns.
    pub(crate) cells: Vec<Option<usize>>,
}

/// Returns whether every leaf serves one rail: a row of the map is then a scalable unit.
pub(crate) fn is_rail_optimised(fabric: &FabricMatrix) -> bool {
    let count = fabric.cells.leaf.len().min(fabric.cells.rail.len());
    fabric.rails.len() > 1 && count == fabric.leaves.len()
}

/// Returns the rows of the map.
pub(crate) fn fabric_map_rows(fabric: &FabricMatrix) -> Vec<FabricMapRow> {
    let cells = &fabric.cells;
    let count = cells.leaf.len().min(cells.rail.len());
    let rails = fabric.rails.len();
    let folded = is_rail_optimised(fabric);
    let mut rows: Vec<FabricMapRow> = Vec::new();
    let mut filled_rows = vec![0; rails];
    for cell in 0..count {
        let (leaf, rail) = (cells.leaf[cell] as usize, cells.rail[cell] as usize);
        if rail >= rails || leaf >= fabric.leaves.len() {
            continue;
        }
        let at = if folded { filled_rows[rail] } else { leaf };
        filled_rows[rail] += 1;
        while rows.len() <= at {
            rows.push(FabricMapRow { name: String::new(), cells: vec![None; rails] });
        }
        let name = fabric.leaves[leaf].as_str();
        let row = &mut rows[at];
        let first = row.cells.iter().all(Option::is_none);
        row.name = if first { name.to_owned() } else { common_prefix(&row.name, name) };
        row.cells[rail] = Some(cell);
    }
    for row in &mut rows {
        let trimmed = row.name.trim_end_matches(|c: char| !c.is_alphanumeric());
        row.name.truncate(trimmed.len());
    }
    // Leaves whose names begin differently have the number of their unit.
    for (at, row) in rows.iter_mut().enumerate().filter(|(_, row)| folded && row.name.is_empty()) {
        row.name = format!("unit {}", at + 1);
    }
    rows
}

/// Returns the common prefix of two names, up to a separator.
pub(crate) fn common_prefix(a: &str, b: &str) -> String {
    if a == b {
        return a.to_owned();
    }
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a);
    let same: String = same.collect();
    let end = same.rfind(|c: char| !c.is_alphanumeric()).map_or(0, |at| at + 1);
    same[..same.char_indices().map(|(at, _)| at).find(|at| *at >= end).unwrap_or(same.len())]
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers;

    #[test]
    fn fabric_map_has_leaves_as_rows_and_rails_as_columns() {
        let rows = fabric_map_rows(&sample_answers::leaf_rail_fabric());
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[1].name.as_str(), rows[1].cells[2]), ("leaf-01", Some(6)));
    }

    #[test]
    fn leaves_of_one_rail_each_are_folded_and_named_together() {
        let mut fabric = sample_answers::leaf_rail_fabric();
        fabric.leaves =
            ["leaf-00-r0", "leaf-00-r1", "leaf-01-r0", "leaf-01-r1"].map(Into::into).to_vec();
        fabric.rails = ["0", "1"].map(Into::into).to_vec();
        fabric.cells.leaf = vec![0, 1, 2, 3];
        fabric.cells.rail = vec![0, 1, 0, 1];
        let rows = fabric_map_rows(&fabric);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["leaf-00", "leaf-01"]);
        assert_eq!(rows[1].cells, [Some(2), Some(3)]);
        fabric.leaves = ["a-r0", "b-r0", "c-r1", "d-r1"].map(Into::into).to_vec();
        fabric.cells.rail = vec![0, 0, 1, 1];
        let rows = fabric_map_rows(&fabric);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["unit 1", "unit 2"], "no name in common");
    }

    #[test]
    fn out_of_range_indexes_are_no_cells() {
        let mut fabric = sample_answers::leaf_rail_fabric();
        fabric.cells.leaf[3] = 99;
        assert_eq!(fabric_map_rows(&fabric)[0].cells[3], None);
        assert_eq!(fabric_map_rows(&FabricMatrix::default()), []);
    }
}
