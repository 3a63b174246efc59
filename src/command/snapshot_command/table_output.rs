//! Table output: any answer as a header and rows, written as plain columns or comma-separated values.

use std::fmt::Write as _;

use gaunt_schema::{
    AbsenceReason, GpuState, MetricId, SanitizedText, Severity, UnixMs, unit::Unit,
};
use unicode_width::UnicodeWidthStr as _;

use super::text_columns::{format_quantity, pad_text, truncate_text};
use gaunt_api::{
    AlertList, AlertState, Answer, AnswerCells, AnswerTable, DeviceDetail, EvidenceItem,
    FabricCellColumns, FabricMatrix, GpuTime, MetricHistory, NodeDetail, Overview, UsageReport,
    answer_table::HISTORY_FIELD, csv_line, field::shown_unit,
};

mod coverage_table;
mod probe_matrix_table;

/// The widest text in a plain column; comma-separated values are never cut.
const WIDEST: usize = 60;

/// The column that is never cut: its next step is at its end.
const WHOLE: &str = "message";

/// One cell.
#[derive(Clone, Debug, PartialEq)]
enum OutputCell {
    Text(String),
    /// A number in the unit of its column.
    Number(f64),
    /// No value, and the reason if known.
    Absent(Option<AbsenceReason>),
}

impl OutputCell {
    /// A text cell, or an absent one.
    fn text_or_absent(text: Option<&str>) -> Self {
        match text {
            None | Some("") => Self::Absent(None),
            Some(text) => Self::Text(text.to_owned()),
        }
    }
}

/// One column's name and the unit of its numbers.
#[derive(Clone, Debug, PartialEq)]
struct OutputColumn {
    name: String,
    unit: Option<Unit>,
}

/// A header and rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OutputTable {
    columns: Vec<OutputColumn>,
    rows: Vec<Vec<OutputCell>>,
    /// Text below the plain columns.
    footer: String,
}

impl OutputTable {
    /// The table of an answer; none for an answer that is a list of lines, which is requested as a table.
    pub(super) fn of(answer: &Answer) -> Option<Self> {
        Some(match answer {
            Answer::Table(table) => Self::from_table(table),
            Answer::Job(job) => Self::from_table(&job.gpus),
            Answer::Fabric(fabric) => Self::from_fabric(fabric),
            Answer::History(history) => Self::from_history(history),
            Answer::Node(node) => Self::from_node(node),
            Answer::Probe(matrix) => Self::from_probe_matrix(matrix),
            Answer::Overview(overview) => Self::from_overview(overview),
            Answer::GpuTime(time) => Self::from_gpu_time(time),
            Answer::Finding(explanation) => Self::from_evidence(&explanation.finding.evidence),
            Answer::Usage(usage) => Self::from_usage(usage),
            Answer::Alerts(list) => Self::from_alerts(list),
            Answer::Coverage(coverage) => Self::from_coverage(coverage),
            Answer::Nodes(_) | Answer::Findings(_) | Answer::Targets(_) | Answer::Refused(_) => {
                return None;
            }
        })
    }

    fn new(head: &[(&str, Option<Unit>)]) -> Self {
        let head =
            head.iter().map(|(name, unit)| OutputColumn { name: (*name).to_owned(), unit: *unit });
        Self { columns: head.collect(), ..Self::default() }
    }

    /// Adds the number of rows below them: all of the answer's.
    fn with_row_count(self, what: &str) -> Self {
        let count = self.rows.len();
        Self { footer: format!("{count} of {count} {what}"), ..self }
    }

    fn from_table(table: &AnswerTable) -> Self {
        let head = table.columns.iter();
        let head = head.map(|column| OutputColumn { name: column.name.clone(), unit: column.unit });
        let rows = (0..table.rows as usize).map(|row| {
            let cell = |column: &gaunt_api::AnswerColumn| match &column.cells {
                AnswerCells::Numbers { .. } => column.number_at(row).map_or_else(
                    || OutputCell::Absent(column.absent_reason(row)),
                    OutputCell::Number,
                ),
                AnswerCells::Texts { .. } => column
                    .text_at(row)
                    .map_or(OutputCell::Absent(None), |text| OutputCell::Text(text.to_string())),
            };
            table.columns.iter().map(cell).collect()
        });
        let subject = table.subject.as_str();
        let mut footer = format!("{} of {} {subject}", table.rows, table.total);
        if table.matched != table.total {
            _ = write!(footer, ", {} match", table.matched);
        }
        Self { columns: head.collect(), rows: rows.collect(), footer }
    }

    fn from_gpu_time(time: &GpuTime) -> Self {
        let mut table =
            Self::new(&[("job", None), ("cause", None), ("gpu_seconds", Some(Unit::Seconds))]);
        for row in &time.starved {
            let job = if row.job.is_empty() { gaunt_api::gpu_time::NO_JOB } else { &row.job };
            let texts = [job, &row.cause].map(|text| OutputCell::Text(text.to_owned()));
            table
                .rows
                .push(texts.into_iter().chain([OutputCell::Number(row.gpu_seconds)]).collect());
        }
        table.with_row_count("sums of lost GPU time")
    }

    /// Numbers in their own units: a table column has one unit.
    fn from_evidence(evidence: &[EvidenceItem]) -> Self {
        let names =
            ["what", "value", "limit", "unit", "side", "role", "threshold", "source", "note"];
        let mut table = Self::new(&names.map(|name| (name, None)));
        let text = |text: &str| match text {
            "" => OutputCell::Absent(None),
            text => OutputCell::Text(text.to_owned()),
        };
        for item in evidence {
            let value = |value: Option<f64>| text(&value.map_or(String::new(), |v| v.to_string()));
            let unit = item.unit.name_suffix().trim_start_matches('_');
            table.rows.push(vec![
                text(&item.what),
                value(item.value),
                value(item.limit),
                text(unit),
                text(item.side.as_str()),
                text(item.role.as_str()),
                text(&item.threshold),
                text(&item.source),
                text(&item.note),
            ]);
        }
        table
    }

    fn from_usage(usage: &UsageReport) -> Self {
        let mut table = Self::new(&[
            ("job", None),
            ("user", None),
            ("model", None),
            ("state", None),
            ("gpu_time", Some(Unit::Seconds)),
            ("energy", Some(Unit::Joules)),
        ]);
        for row in &usage.rows {
            table.rows.push(vec![
                OutputCell::text_or_absent(row.job.as_deref()),
                OutputCell::text_or_absent(row.user.as_deref()),
                OutputCell::text_or_absent(row.model.as_deref()),
                OutputCell::text_or_absent(row.state.map(GpuState::as_str)),
                OutputCell::Number(row.gpu_seconds),
                row.joules.map_or(OutputCell::Absent(None), OutputCell::Number),
            ]);
        }
        table.with_row_count("sums of GPU time")
    }

    fn from_alerts(list: &AlertList) -> Self {
        let names = ["finding", "severity", "state", "receivers", "silenced_by", "why", "until"];
        let mut table = Self::new(&names.map(|name| (name, None)));
        for alert in &list.alerts {
            let receivers: Vec<&str> = alert.receivers.iter().map(SanitizedText::as_str).collect();
            let silence = alert.silences.first();
            let state = match alert.state {
                AlertState::Unprocessed => "unprocessed",
                AlertState::Active => "active",
                AlertState::Suppressed if silence.is_some() => "silenced",
                AlertState::Suppressed => "inhibited",
            };
            table.rows.push(vec![
                OutputCell::text_or_absent(Some(&alert.finding)),
                OutputCell::text_or_absent(alert.severity.map(Severity::as_str)),
                OutputCell::text_or_absent(Some(state)),
                OutputCell::text_or_absent(Some(&receivers.join(" "))),
                OutputCell::text_or_absent(silence.map(|silence| silence.by.as_str())),
                OutputCell::text_or_absent(silence.map(|silence| silence.comment.as_str())),
                OutputCell::text_or_absent(silence.map(|silence| silence.until.as_str())),
            ]);
        }
        for server in &list.servers {
            let failure = server.failure.as_deref().unwrap_or("ok");
            // Writing to a string cannot fail.
            _ = writeln!(table.footer, "{}: {} posted, {failure}", server.address, server.posted);
        }
        if list.servers.is_empty() {
            table
                .footer
                .push_str("no Alertmanager in the aggregator's settings (alertmanager.urls)\n");
        }
        table
    }

    fn from_fabric(fabric: &FabricMatrix) -> Self {
        let mut table = Self::new(&[
            ("leaf", None),
            ("rail", None),
            ("ports", Some(Unit::Count)),
            ("active", Some(Unit::Count)),
            ("receive", Some(Unit::Ratio)),
            ("transmit", Some(Unit::Ratio)),
            ("busiest", Some(Unit::Ratio)),
            ("pause_received", Some(Unit::Ratio)),
            ("pause_sent", Some(Unit::Ratio)),
            ("cnp_handled_per_second", Some(Unit::Count)),
            ("ecn_marked_per_second", Some(Unit::Count)),
            ("errors_per_second", Some(Unit::Count)),
            ("finding", None),
        ]);
        let FabricCellColumns { ports, active, finding, .. } = &fabric.cells;
        let cells = &fabric.cells;
        let shares = [
            &cells.receive_ratio,
            &cells.transmit_ratio,
            &cells.busiest_ratio,
            &cells.pause_received_ratio,
            &cells.pause_sent_ratio,
            &cells.cnp_handled_per_second,
            &cells.ecn_marked_per_second,
            &cells.errors_per_second,
        ];
        for index in 0..ports.len() {
            let name_of = |positions: &[u32], names: &[gaunt_schema::SanitizedText]| {
                let name = positions.get(index).and_then(|position| names.get(*position as usize));
                name.cloned().unwrap_or_default()
            };
            let (leaf, rail) =
                (name_of(&cells.leaf, &fabric.leaves), name_of(&cells.rail, &fabric.rails));
            let text_cell = |name: &str| match name {
                "" => OutputCell::Absent(None),
                name => OutputCell::Text(name.to_owned()),
            };
            let count = |counts: &[u32]| {
                counts
                    .get(index)
                    .map_or(OutputCell::Absent(None), |n| OutputCell::Number(f64::from(*n)))
            };
            let mut row = vec![text_cell(&leaf), text_cell(&rail), count(ports), count(active)];
            row.extend(
                shares.iter().map(|ratios| number_cell(ratios.get(index).copied().flatten())),
            );
            let kind = finding.get(index).copied().flatten();
            row.push(kind.map_or(OutputCell::Absent(None), |kind| {
                OutputCell::Text(kind.as_str().to_owned())
            }));
            table.rows.push(row);
        }
        let (leaves, rails) = (fabric.leaves.len(), fabric.rails.len());
        table.footer =
            format!("{} of {} ports, {leaves} leaves, {rails} rails", fabric.matched, fabric.total);
        table
    }

    fn from_history(history: &MetricHistory) -> Self {
        let unit = Some(history.unit);
        let has_range = !history.low.is_empty();
        let mut head = vec![("at", None), ("mean", unit)];
        if has_range {
            head.extend([("low", unit), ("high", unit)]);
        }
        let mut table = Self::new(&head);
        let points = history.mean.len();
        for index in 0..points {
            let age_ms = (points - 1 - index) as i64 * history.step_ms as i64;
            let mut row = vec![
                OutputCell::Text(UnixMs(history.at.0 - age_ms).to_rfc3339()),
                number_cell(history.mean[index]),
            ];
            if has_range {
                row.extend(
                    [&history.low, &history.high]
                        .map(|values| number_cell(values.get(index).copied().flatten())),
                );
            }
            table.rows.push(row);
        }
        let (metric, together) = (&history.metric, history.together.as_str());
        table.footer = format!("{metric}, {together} of {} devices", history.devices);
        table
    }

    fn from_node(node: &NodeDetail) -> Self {
        let mut table = Self::new(&[
            ("class", None),
            ("device", None),
            ("metric", None),
            ("unit", None),
            ("value", Some(Unit::Count)),
        ]);
        for device in &node.devices {
            for id in MetricId::all_ids() {
                let key = id.series_key();
                let Some(value) = metric_cell(device, &key) else { continue };
                let unit = shown_unit(id.catalogue_row().kind, id.catalogue_row().unit);
                table.rows.push(vec![
                    OutputCell::Text(device.class.as_str().to_owned()),
                    OutputCell::Text(device.name.to_string()),
                    OutputCell::Text(key),
                    OutputCell::Text(unit.name_suffix().trim_start_matches('_').to_owned()),
                    value,
                ]);
            }
        }
        table
    }

    fn from_overview(overview: &Overview) -> Self {
        let mut table = Self::new(&[("state", None), ("gpus", Some(Unit::Count))]);
        for state in GpuState::ALL {
            let gpus = f64::from(overview.gpus_in_state(*state));
            table
                .rows
                .push(vec![OutputCell::Text(state.as_str().to_owned()), OutputCell::Number(gpus)]);
        }
        table
    }

    /// Renders plain columns: numbers right-aligned, each with its unit.
    pub(super) fn render_text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                row.iter().zip(&self.columns).map(|(cell, head)| cell.render_cell(head)).collect()
            })
            .collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|index| {
                let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.width());
                cells.chain([self.columns[index].name.width()]).max().unwrap_or(0)
            })
            .collect();
        let mut page = String::new();
        let heads = self.columns.iter().map(|head| head.name.to_uppercase()).collect();
        for row in std::iter::once(&heads).chain(&rows) {
            let mut line = String::new();
            for ((cell, width), head) in row.iter().zip(&widths).zip(&self.columns) {
                let gap = if line.is_empty() { "" } else { "  " };
                let blank = " ".repeat(width.saturating_sub(cell.width()));
                line = match head.unit {
                    Some(_) => format!("{line}{gap}{blank}{cell}"),
                    None => format!("{line}{gap}{}", pad_text(cell, *width)),
                };
            }
            page.push_str(line.trim_end());
            page.push('\n');
        }
        if !self.footer.is_empty() {
            page.push_str(&self.footer);
            page.push('\n');
        }
        page
    }

    /// Renders RFC 4180 CSV with the unit in each column name; absent values are empty.
    pub(super) fn render_csv(&self) -> String {
        let name = |head: &OutputColumn| {
            let suffix = head.unit.map_or("", Unit::name_suffix);
            let bare = head.name.strip_suffix(suffix).unwrap_or(&head.name);
            format!("{bare}{suffix}")
        };
        let is_exported = |at: &usize| self.columns[*at].name != HISTORY_FIELD;
        let exported: Vec<usize> = (0..self.columns.len()).filter(is_exported).collect();
        let mut page = csv_line(exported.iter().map(|at| name(&self.columns[*at]))) + "\r\n";
        for row in &self.rows {
            page += &csv_line(exported.iter().map(|at| match &row[*at] {
                OutputCell::Text(text) => text.clone(),
                OutputCell::Number(value) => value.to_string(),
                OutputCell::Absent(_) => String::new(),
            }));
            page.push_str("\r\n");
        }
        page
    }
}

impl OutputCell {
    fn render_cell(&self, head: &OutputColumn) -> String {
        match self {
            Self::Text(text) if head.name == WHOLE => text.clone(),
            Self::Text(text) => truncate_text(text, WIDEST),
            Self::Number(value) => format_quantity(*value, head.unit.unwrap_or(Unit::Count)),
            Self::Absent(Some(reason)) => reason.as_str().to_owned(),
            Self::Absent(None) => "-".to_owned(),
        }
    }
}

fn number_cell(value: Option<f32>) -> OutputCell {
    value.map_or(OutputCell::Absent(None), |value| OutputCell::Number(f64::from(value)))
}

/// Value of a device metric: the rate of a counter, or the reading.
fn metric_cell(device: &DeviceDetail, key: &str) -> Option<OutputCell> {
    if let Some(rate) = device.rates.get(key) {
        return Some(OutputCell::Number(*rate));
    }
    let reading = device.values.get(key)?;
    if key.contains("_total") && reading.value().is_some() {
        return None; // A counter that was read once grows by nothing that is known.
    }
    Some(reading.value().map_or(OutputCell::Absent(reading.absence_reason()), OutputCell::Number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_table() -> OutputTable {
        OutputTable {
            columns: vec![
                OutputColumn { name: "node".into(), unit: None },
                OutputColumn { name: "power".into(), unit: Some(Unit::Watts) },
            ],
            rows: vec![
                vec![OutputCell::Text("gpu, \"1\"".into()), OutputCell::Number(701.5)],
                vec![
                    OutputCell::Text("=cmd()".into()),
                    OutputCell::Absent(Some(AbsenceReason::NoPermission)),
                ],
            ],
            footer: "2 of 2 gpus".into(),
        }
    }

    #[test]
    fn columns_are_aligned_and_absent_values_show_their_reason() {
        assert_eq!(
            sample_table().render_text(),
            "NODE              POWER\n\
             gpu, \"1\"          702 W\n\
             =cmd()    no_permission\n\
             2 of 2 gpus\n"
        );
    }

    #[test]
    fn message_is_not_cut() {
        let text = "a".repeat(WIDEST + 9);
        let columns = ["name", WHOLE].map(|name| OutputColumn { name: name.into(), unit: None });
        let row = vec![OutputCell::Text(text.clone()), OutputCell::Text(text.clone())];
        let table = OutputTable { columns: columns.into(), rows: vec![row], footer: String::new() };
        let page = table.render_text();
        assert!(page.lines().nth(1).unwrap().ends_with(&format!("…  {text}")), "{page}");
    }

    #[test]
    fn history_digits_are_in_the_columns_only() {
        let columns =
            ["node", HISTORY_FIELD].map(|name| OutputColumn { name: name.into(), unit: None });
        let row = ["gpu001", "99"].map(|text| OutputCell::Text(text.into()));
        let table =
            OutputTable { columns: columns.into(), rows: vec![row.into()], footer: String::new() };
        assert_eq!(table.render_csv(), "node\r\ngpu001\r\n");
        assert!(table.render_text().contains("99"));
    }

    #[test]
    fn values_are_quoted_and_formulas_are_escaped() {
        assert_eq!(
            sample_table().render_csv(),
            "node,power_watts\r\n\"gpu, \"\"1\"\"\",701.5\r\n'=cmd(),\r\n"
        );
    }
}
