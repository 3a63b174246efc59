//! Peers of the fabric's cells: which cells deviate from the others, and which leaf comes first.

use super::{
    console_state::NetworkMeasure,
    fabric_map::{FabricMapRow, fabric_map_rows},
};
use gaunt_api::{FabricCellColumns, FabricMatrix};

/// Minimum number of peers for a median.
const PEERS: usize = 3;

/// A load deviates if it differs from that of its peers by this share of it, and by this share of the line rate.
const LOAD_RATIO: f32 = 0.25;
const LOAD_MARGIN: f32 = 0.03;

/// Another number deviates if it is this many times that of its peers, and above the floor of its measure.
const TIMES: f32 = 3.0;

/// Returns the number of a cell that a measure shows; none if it is unknown.
pub(crate) fn cell_value(
    cells: &FabricCellColumns,
    index: usize,
    measure: NetworkMeasure,
) -> Option<f32> {
    let of = |column: &[Option<f32>]| value_at(column, index);
    match measure {
        NetworkMeasure::Load => larger_of(of(&cells.receive_ratio), of(&cells.transmit_ratio)),
        NetworkMeasure::Pauses => {
            larger_of(of(&cells.pause_received_ratio), of(&cells.pause_sent_ratio))
        }
        NetworkMeasure::Congestion => {
            larger_of(of(&cells.cnp_handled_per_second), of(&cells.ecn_marked_per_second))
        }
        NetworkMeasure::Errors => of(&cells.errors_per_second),
        NetworkMeasure::Flaps => of(&cells.downs_per_second),
    }
}

/// Returns a finite value of a column.
pub(crate) fn value_at(column: &[Option<f32>], index: usize) -> Option<f32> {
    column.get(index).copied().flatten().filter(|value| value.is_finite())
}

fn larger_of(a: Option<f32>, b: Option<f32>) -> Option<f32> {
    a.into_iter().chain(b).reduce(f32::max)
}

/// Returns the smallest number that can deviate.
const fn floor_of(measure: NetworkMeasure) -> f32 {
    match measure {
        NetworkMeasure::Load => LOAD_MARGIN,
        NetworkMeasure::Pauses => 0.01,
        NetworkMeasure::Congestion => 100.0,
        NetworkMeasure::Errors | NetworkMeasure::Flaps => 0.0,
    }
}

/// A row of the map in which each cell is compared with its peers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComparedRow {
    /// The row.
    pub(crate) row: FabricMapRow,
    /// Whether each cell deviates from its peers.
    pub(crate) deviates: Vec<bool>,
}

/// Returns the rows of the map, the worst first: with findings, then with ports that are down, then with numbers that
/// deviate; the others in their order.
pub(crate) fn compare_rows(fabric: &FabricMatrix, measure: NetworkMeasure) -> Vec<ComparedRow> {
    let rows = fabric_map_rows(fabric);
    let cells = &fabric.cells;
    let all = rows.iter().flat_map(|row| row.cells.iter().copied().flatten());
    let fleet = median(all.filter_map(|index| cell_value(cells, index, measure)));
    let mut compared: Vec<ComparedRow> = rows
        .into_iter()
        .map(|row| {
            // A job loads all rails of its nodes alike: the peers of a load are the other rails of the leaf.
            let peers = row.cells.iter().copied().flatten();
            let peers = peers.filter_map(|index| cell_value(cells, index, measure));
            let usual = if measure == NetworkMeasure::Load { median(peers) } else { fleet };
            let deviates = row.cells.iter().map(|cell| {
                let value = cell.and_then(|index| cell_value(cells, index, measure));
                value.zip(usual).is_some_and(|(value, usual)| differs(value, usual, measure))
            });
            ComparedRow { deviates: deviates.collect(), row }
        })
        .collect();
    compared.sort_by_key(|row| std::cmp::Reverse(badness(row, cells)));
    compared
}

/// Returns how bad a row is: cells with a finding, with ports that are down, and with numbers that deviate.
fn badness(row: &ComparedRow, cells: &FabricCellColumns) -> (usize, usize, usize) {
    let known = || row.row.cells.iter().copied().flatten();
    let blamed = known().filter(|at| cells.finding.get(*at).copied().flatten().is_some());
    let down = known().filter(|at| cells.active.get(*at) < cells.ports.get(*at));
    (blamed.count(), down.count(), row.deviates.iter().filter(|deviates| **deviates).count())
}

fn differs(value: f32, usual: f32, measure: NetworkMeasure) -> bool {
    match measure {
        NetworkMeasure::Load => {
            let distance = (value - usual).abs();
            distance > LOAD_MARGIN && distance > usual * LOAD_RATIO
        }
        other => value > floor_of(other) && value > usual * TIMES,
    }
}

/// Returns the median; none with too few values.
fn median(values: impl Iterator<Item = f32>) -> Option<f32> {
    let mut values: Vec<f32> = values.collect();
    if values.len() < PEERS {
        return None;
    }
    let middle = values.len() / 2;
    let (_, median, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    Some(*median)
}

#[cfg(test)]
mod tests {
    use gaunt_schema::FindingKind;

    use super::*;
    use crate::sample_answers;

    #[test]
    fn cell_that_differs_from_the_other_rails_of_its_leaf_deviates() {
        let mut fabric = sample_answers::leaf_rail_fabric();
        fabric.cells.finding = vec![None; fabric.cells.leaf.len()];
        fabric.cells.active = fabric.cells.ports.clone();
        fabric.cells.receive_ratio[5] = Some(0.05);
        fabric.cells.transmit_ratio[5] = Some(0.05);
        let rows = compare_rows(&fabric, NetworkMeasure::Load);
        assert_eq!(rows[0].row.name, "leaf-01", "the leaf that deviates is first");
        assert_eq!(rows[0].deviates, [false, true, false, false]);
        let names: Vec<&str> = rows[1..].iter().map(|row| row.row.name.as_str()).collect();
        assert_eq!(names, ["leaf-00", "leaf-02", "leaf-03"], "the others keep their order");
        fabric.cells.finding[12] = Some(FindingKind::LeafCongested);
        let rows = compare_rows(&fabric, NetworkMeasure::Load);
        assert_eq!(rows[0].row.name, "leaf-03", "a finding comes before a deviation");
    }

    #[test]
    fn two_cells_are_no_peers() {
        assert_eq!(median([0.1, 0.9].into_iter()), None);
        assert_eq!(median([0.1, 0.9, 0.2].into_iter()), Some(0.2));
        assert!(
            differs(0.0, 0.4, NetworkMeasure::Load) && !differs(0.38, 0.4, NetworkMeasure::Load)
        );
        assert!(!differs(50.0, 0.0, NetworkMeasure::Congestion), "below the floor");
        assert!(differs(0.5, 0.0, NetworkMeasure::Errors));
    }
}
