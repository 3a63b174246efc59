//! Grid layout of a map: fits groups of cells, such as the GPUs of a node, into the available area.

/// Columns between two adjacent groups.
const GAP: usize = 2;

/// Layout of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GridLayout {
    /// Meaning of one cell.
    pub(crate) cell: GridCell,
    /// Tiles per row: groups with a label each, or single cells after one label per row.
    pub(crate) per_row: usize,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Columns of a tile, its gap included.
    pub(crate) tile: usize,
    /// Columns of a label, its gap included.
    pub(crate) label: usize,
    /// Whether every group has its label; otherwise only the first of a row.
    pub(crate) named: bool,
}

/// Meaning of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GridCell {
    /// One member of a group.
    One,
    /// This many whole groups.
    Groups(usize),
}

impl GridLayout {
    /// Lays out `groups` groups of at most `members` cells and labels of `label` columns into `width` × `height`: one
    /// cell per member as long as all of them fit, otherwise one cell per group, or per as many groups as must share
    /// one.
    pub(crate) fn fit_groups(
        groups: usize,
        members: usize,
        label: usize,
        width: usize,
        height: usize,
    ) -> Self {
        let label = label + 1;
        let tile = label + members.max(1) + GAP;
        let per_row = (width + GAP) / tile;
        if per_row > 0 && groups.div_ceil(per_row) <= height {
            // As many columns as needed and no more, so that adjacent groups are aligned below each other.
            let rows = groups.div_ceil(per_row);
            let per_row = groups.div_ceil(rows.max(1)).max(1);
            return Self { cell: GridCell::One, per_row, rows, tile, label, named: true };
        }
        // Without labels, more groups fit side by side.
        let tile = members.max(1) + 1;
        let per_row = (width + 1).saturating_sub(label) / tile;
        if per_row > 0 && groups.div_ceil(per_row) <= height {
            let rows = groups.div_ceil(per_row);
            return Self { cell: GridCell::One, per_row, rows, tile, label, named: false };
        }
        let per_row = width.saturating_sub(label).max(1);
        let capacity = per_row.saturating_mul(height).max(1);
        let shared = groups.div_ceil(capacity).max(1);
        let rows = groups.div_ceil(shared).div_ceil(per_row).min(height);
        Self { cell: GridCell::Groups(shared), per_row, rows, tile: 1, label, named: false }
    }

    /// Returns the smallest number of rows with one cell per member; none if a group is wider than the map.
    pub(crate) fn dense_rows(
        groups: usize,
        members: usize,
        label: usize,
        width: usize,
    ) -> Option<usize> {
        let per_row = (width + 1).saturating_sub(label + 1) / (members.max(1) + 1);
        (per_row > 0).then(|| groups.div_ceil(per_row))
    }

    /// Returns how many groups one step of the cursor passes.
    pub(crate) const fn groups_per_step(self) -> usize {
        match self.cell {
            GridCell::One => 1,
            GridCell::Groups(shared) => shared,
        }
    }

    /// Returns the number of groups per row.
    pub(crate) const fn groups_per_row(self) -> usize {
        self.per_row * self.groups_per_step()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_a_cell_each_while_they_fit() {
        let grid = GridLayout::fit_groups(32, 8, 6, 78, 8);
        assert_eq!((grid.cell, grid.per_row, grid.rows), (GridCell::One, 4, 8));
    }

    #[test]
    fn names_are_cut_before_members() {
        let grid = GridLayout::fit_groups(200, 8, 6, 79, 26);
        assert_eq!((grid.cell, grid.per_row, grid.rows), (GridCell::One, 8, 25));
        assert!(!grid.named);
        assert_eq!(GridLayout::dense_rows(200, 8, 6, 79), Some(25));
        assert_eq!(GridLayout::dense_rows(200, 80, 6, 79), None);
    }

    #[test]
    fn groups_share_cells_when_members_do_not_fit() {
        let grid = GridLayout::fit_groups(1_250, 8, 7, 78, 20);
        assert_eq!((grid.cell, grid.per_row, grid.rows), (GridCell::Groups(1), 70, 18));
        let grid = GridLayout::fit_groups(12_500, 8, 7, 78, 6);
        assert_eq!(grid.cell, GridCell::Groups(30));
        assert!(grid.rows <= 6);
        assert!(grid.rows * grid.groups_per_row() >= 12_500);
    }

    #[test]
    fn grid_never_panics_at_any_size() {
        for (groups, width, height) in [(0, 80, 4), (1, 0, 0), (5, 1, 1), (100_000, 3, 1)] {
            let grid = GridLayout::fit_groups(groups, 8, 6, width, height);
            assert!(grid.per_row > 0 && grid.groups_per_step() > 0);
        }
    }
}
