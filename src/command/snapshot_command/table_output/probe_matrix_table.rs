//! Probe matrix table: one row per pair, and the suspects below.

use std::fmt::Write as _;

use gaunt_schema::{SanitizedText, unit::Unit};

use super::{OutputCell, OutputTable};
use gaunt_api::{PairEnd, ProbeMatrix, SuspectKind};

impl OutputTable {
    pub(super) fn from_probe_matrix(matrix: &ProbeMatrix) -> Self {
        let mut table = Self::new(&[
            ("rail", None),
            ("from", None),
            ("from_leaf", None),
            ("to", None),
            ("to_leaf", None),
            ("tool", None),
            ("bandwidth", Some(Unit::BytesPerSecond)),
            ("of_usual", Some(Unit::Ratio)),
            ("failure", None),
        ]);
        let text = |text: &str| OutputCell::Text(text.to_owned());
        let name =
            |end: &PairEnd| OutputCell::Text(format!("{} {}/{}", end.node, end.device, end.port));
        let optional = |optional: &Option<SanitizedText>| {
            optional.as_ref().map_or(OutputCell::Absent(None), |optional| text(optional))
        };
        let number =
            |value: Option<f64>| value.map_or(OutputCell::Absent(None), OutputCell::Number);
        for rail in &matrix.rails {
            for pair in &rail.pairs {
                table.rows.push(vec![
                    text(&rail.rail),
                    name(&pair.from),
                    optional(&pair.from.leaf),
                    name(&pair.to),
                    optional(&pair.to.leaf),
                    text(pair.tool.as_str()),
                    number(pair.bytes_per_second),
                    number(pair.ratio),
                    optional(&pair.failure),
                ]);
            }
        }
        let [ended, failed] = matrix.ended;
        let footer = &mut table.footer;
        _ = write!(
            footer,
            "{ended} pairs measured, {failed} failed; {} in progress, {} nodes idle",
            matrix.measuring, matrix.free
        );
        for (rail, suspect) in matrix
            .rails
            .iter()
            .flat_map(|rail| rail.suspects.iter().map(move |suspect| (&rail.rail, suspect)))
        {
            let what = match suspect.kind {
                SuspectKind::Port => "slow port, HCA or cable:",
                SuspectKind::Leaf => "slow leaf:",
                SuspectKind::Uplink => "slow uplinks of leaf",
                SuspectKind::Path => "slow path between leaves",
            };
            let (share, pairs) = (suspect.ratio * 100.0, suspect.pairs);
            _ = write!(
                footer,
                "\n{rail}: {what} {}, {share:.0} % of baseline, {pairs} pairs",
                suspect.name
            );
        }
        table
    }
}
