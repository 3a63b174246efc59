//! The fabric matrix: one cell per leaf and rail, with the worse of both directions in each number.

use gaunt_schema::{FindingKind, MetricId, SanitizedText, UnixMs, catalogue::fleet_metrics};
use serde::{Deserialize, Serialize};

/// The fabric as a leaf × rail matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FabricMatrix {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Number of ports before filtering.
    pub total: u32,
    /// Number of ports that match the filter and are counted in the cells.
    pub matched: u32,
    /// Leaf switches by name; an empty name holds ports with an unknown leaf.
    pub leaves: Vec<SanitizedText>,
    /// Rails by name; an empty name holds ports with an unknown rail.
    pub rails: Vec<SanitizedText>,
    /// Cells that have a port: leaf by leaf, rail by rail.
    pub cells: FabricCellColumns,
}

/// Cells of the fabric as columns. Ratios and rates are means over the active ports of the cell; none without active
/// ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FabricCellColumns {
    /// Index of the cell's leaf in `leaves`.
    pub leaf: Vec<u32>,
    /// Index of the cell's rail in `rails`.
    pub rail: Vec<u32>,
    /// Ports in the cell.
    pub ports: Vec<u32>,
    /// Ports that are active.
    pub active: Vec<u32>,
    /// Receive throughput as a share of the link rate.
    pub receive_ratio: Vec<Option<f32>>,
    /// Transmit throughput as a share of the link rate.
    pub transmit_ratio: Vec<Option<f32>>,
    /// Throughput of the busiest direction of the busiest port, as a share of its link rate.
    pub busiest_ratio: Vec<Option<f32>>,
    /// Share of time in which the ports receive PFC pause.
    pub pause_received_ratio: Vec<Option<f32>>,
    /// Share of time in which the ports send PFC pause.
    pub pause_sent_ratio: Vec<Option<f32>>,
    /// CNPs handled by the ports per second.
    pub cnp_handled_per_second: Vec<Option<f32>>,
    /// ECN-marked packets per second.
    pub ecn_marked_per_second: Vec<Option<f32>>,
    /// Symbol errors, link recoveries, link downs and receive errors of all ports together, per second.
    pub errors_per_second: Vec<Option<f32>>,
    /// Link downs of the cell per second.
    #[serde(default)]
    pub downs_per_second: Vec<Option<f32>>,
    /// The worst open finding on a port, the leaf or the rail.
    pub finding: Vec<Option<FindingKind>>,
}

/// The words of a port's logical state: the place of a state is one less than its number.
pub const PORT_STATES: [&str; 4] = ["down", "initializing", "armed", "active"];

/// The series of a cell in a store: ports, active ports, and the other numbers of the columns in their order.
pub const FABRIC_SERIES: [MetricId; 11] = [
    fleet_metrics::FABRIC_PORTS,
    fleet_metrics::FABRIC_ACTIVE,
    fleet_metrics::FABRIC_RECEIVE,
    fleet_metrics::FABRIC_TRANSMIT,
    fleet_metrics::FABRIC_BUSIEST,
    fleet_metrics::FABRIC_PAUSE_RECEIVED,
    fleet_metrics::FABRIC_PAUSE_SENT,
    fleet_metrics::FABRIC_CNP,
    fleet_metrics::FABRIC_ECN,
    fleet_metrics::FABRIC_ERRORS,
    fleet_metrics::FABRIC_DOWNS,
];

/// The numbers of a cell in the order of [`FABRIC_SERIES`].
pub type FabricCellSeries = [Option<f32>; FABRIC_SERIES.len()];

impl FabricCellColumns {
    /// The numbers of a cell; none beyond the last one.
    pub fn cell_values(&self, cell: usize) -> FabricCellSeries {
        let count = |column: &[u32]| column.get(cell).map(|count| *count as f32);
        let number = |column: &[Option<f32>]| column.get(cell).copied().flatten();
        [
            count(&self.ports),
            count(&self.active),
            number(&self.receive_ratio),
            number(&self.transmit_ratio),
            number(&self.busiest_ratio),
            number(&self.pause_received_ratio),
            number(&self.pause_sent_ratio),
            number(&self.cnp_handled_per_second),
            number(&self.ecn_marked_per_second),
            number(&self.errors_per_second),
            number(&self.downs_per_second),
        ]
    }

    /// Adds a cell of these numbers.
    pub fn push_cell(
        &mut self,
        (leaf, rail): (u32, u32),
        values: FabricCellSeries,
        finding: Option<FindingKind>,
    ) {
        let [ports, active, numbers @ ..] = values;
        let count = |value: Option<f32>| value.unwrap_or(0.0) as u32;
        self.leaf.push(leaf);
        self.rail.push(rail);
        self.ports.push(count(ports));
        self.active.push(count(active));
        let columns = [
            &mut self.receive_ratio,
            &mut self.transmit_ratio,
            &mut self.busiest_ratio,
            &mut self.pause_received_ratio,
            &mut self.pause_sent_ratio,
            &mut self.cnp_handled_per_second,
            &mut self.ecn_marked_per_second,
            &mut self.errors_per_second,
            &mut self.downs_per_second,
        ];
        for (column, number) in columns.into_iter().zip(numbers) {
            column.push(number);
        }
        self.finding.push(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_that_is_pushed_has_its_values() {
        let values: FabricCellSeries =
            std::array::from_fn(|at| (at != 4).then_some(at as f32 + 1.0));
        let mut cells = FabricCellColumns::default();
        cells.push_cell((3, 7), values, Some(FindingKind::PortDown));
        assert_eq!(
            (cells.leaf[0], cells.rail[0], cells.finding[0]),
            (3, 7, Some(FindingKind::PortDown))
        );
        assert_eq!(cells.cell_values(0), values);
        assert_eq!(cells.cell_values(1), FabricCellSeries::default());
    }
}
