//! Fabric samples: the network as it is judged, for a store: numbers by leaf and rail, and the ports that are flagged.

use gaunt_api::{
    Answer, AnswerTable, FABRIC_SERIES, FabricMatrix, Filter, PORT_STATES, Question, Subject,
};
use gaunt_schema::{SanitizedText, catalogue::fleet_metrics};

use super::page_output::{FamilyOutput, PageOutput};
use crate::answer_source::AnswerSource;

/// Cells of the fabric that are written: twice as many as 100,000 ports have at 32 ports of one rail on each leaf. Others
/// are left out.
const MAX_CELLS: usize = 8_192;

/// The ports that are written one by one, those that are not active first: a finding may be about all ports of a rail.
const FLAGGED: &str = "has finding or (has state and state!=active) sort state desc limit 1000 \
     columns node,device,port,leaf,rail,state,finding";

/// The network of one instant.
pub(super) struct FabricSamples {
    fabric: std::sync::Arc<FabricMatrix>,
    flagged: std::sync::Arc<AnswerTable>,
}

/// Asks for the network; none if the source does not answer.
pub(super) async fn fetch_fabric(source: &AnswerSource) -> Option<FabricSamples> {
    let flagged = Filter::parse(Subject::Ports, FLAGGED).ok()?;
    let fabric = Question::Fabric(Filter::all_rows(Subject::Ports));
    match (source.ask_question(fabric).await, source.ask_question(Question::Table(flagged)).await) {
        (Ok(Answer::Fabric(fabric)), Ok(Answer::Table(flagged))) => {
            Some(FabricSamples { fabric, flagged })
        }
        _ => None,
    }
}

impl FabricSamples {
    /// Writes the numbers of each cell that are known, and the flagged ports.
    pub(super) fn write_to(&self, page: &mut PageOutput<'_>) {
        let cells = &self.fabric.cells;
        for (series, metric) in FABRIC_SERIES.into_iter().enumerate() {
            page.write_family(metric, |family| {
                for cell in 0..cells.ports.len().min(MAX_CELLS) {
                    let Some(value) = cells.cell_values(cell)[series] else { continue };
                    let leaf = self.fabric.leaves.get(cells.leaf[cell] as usize);
                    let rail = self.fabric.rails.get(cells.rail[cell] as usize);
                    let labels = [("leaf", leaf), ("rail", rail)];
                    write_named(
                        family,
                        labels.map(|(name, it)| (name, it.map(SanitizedText::as_str))),
                        value.into(),
                    );
                }
            });
        }
        page.write_family(fleet_metrics::FLAGGED_PORT, |family| self.write_flagged(family));
    }

    fn write_flagged(&self, family: &mut FamilyOutput<'_, '_>) {
        let column = |name: &str| self.flagged.find_column(name);
        let columns = ["node", "device", "port", "leaf", "rail", "finding"].map(column);
        let state = column("state");
        for row in 0..self.flagged.rows as usize {
            let [node, device, port, leaf, rail, kind] =
                columns.map(|column| Some(column?.text_at(row)?.as_str()));
            let state = state.and_then(|column| column.text_at(row));
            let code =
                PORT_STATES.iter().position(|word| state.is_some_and(|it| it.as_str() == *word));
            let labels = [
                ("node", node),
                ("device", device),
                ("port", port),
                ("leaf", leaf),
                ("rail", rail),
                ("kind", kind),
            ];
            write_named(family, labels, code.map_or(0.0, |place| place as f64 + 1.0));
        }
    }
}

/// Writes a line with the labels that have a value: in a store an empty label is none.
fn write_named<const LABELS: usize>(
    family: &mut FamilyOutput<'_, '_>,
    labels: [(&str, Option<&str>); LABELS],
    value: f64,
) {
    let present = labels.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let present: Vec<(&str, &str)> = present.filter(|(_, text)| !text.is_empty()).collect();
    family.write_line(&present, value);
}
