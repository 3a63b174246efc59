//! Coverage tables: one row per check, and the renewal intervals below.

use gaunt_schema::unit::Unit;

use super::{OutputCell, OutputTable};
use gaunt_api::TelemetryCoverage;

impl OutputTable {
    pub(super) fn from_coverage(coverage: &TelemetryCoverage) -> Self {
        let mut table = Self::new(&[
            ("check", None),
            ("state", None),
            ("known", Some(Unit::Count)),
            ("total", Some(Unit::Count)),
            ("stated_by", None),
            ("missing", None),
        ]);
        for check in &coverage.checks {
            table.rows.push(vec![
                OutputCell::Text(check.kind.as_str().to_owned()),
                OutputCell::Text(check.state.as_str().to_owned()),
                OutputCell::Number(f64::from(check.known)),
                OutputCell::Number(f64::from(check.total)),
                OutputCell::text_or_absent(Some(&check.list_origins())),
                OutputCell::text_or_absent(Some(&check.list_missing())),
            ]);
        }
        table.footer = format!("\n{}", Self::from_intervals(coverage).render_text());
        table
    }

    fn from_intervals(coverage: &TelemetryCoverage) -> Self {
        let mut table = Self::new(&[
            ("exporter", None),
            ("values", None),
            ("nodes", Some(Unit::Count)),
            ("renewed_every", Some(Unit::Seconds)),
            ("inferred_after", Some(Unit::Seconds)),
        ]);
        let number =
            |value: Option<f64>| value.map_or(OutputCell::Absent(None), OutputCell::Number);
        for group in &coverage.intervals {
            table.rows.push(vec![
                OutputCell::Text(group.dialect.as_str().to_owned()),
                OutputCell::Text(group.class_label().to_owned()),
                OutputCell::Number(f64::from(group.nodes)),
                number(group.renewal_seconds),
                number(group.inferred_seconds),
            ]);
        }
        table.footer = coverage.describe_delays().join("\n");
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_is_a_table_of_checks_and_one_of_intervals() {
        let coverage = gaunt_api::samples::telemetry_coverage();
        let text = OutputTable::from_coverage(&coverage).render_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "CHECK         STATE    KNOWN  TOTAL  STATED_BY                     MISSING",
                "targets       ok          64     64  -                             -",
                "host_metrics  missing     29     32  -                             gpu001, gpu002, gpu017",
            ]
        );
        assert!(
            text.contains("dcgm           GPUs       32         30.0 s          30.0 s"),
            "{text}"
        );
        assert!(
            text.contains("node_exporter  hosts       2              -               -"),
            "{text}"
        );
    }
}
