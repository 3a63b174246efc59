//! A sheet: any answer as a head and rows, to be written as plain columns or as comma-separated values.

use std::fmt::Write as _;

use gaunt_schema::{Absent, GpuState, MetricId, Safe, Severity, UnixMs, unit::Unit};
use unicode_width::UnicodeWidthStr as _;

use super::columns::{cut, pad, quantity};
use crate::answer::{
    AlertList, AlertState, Answer, Cells, DeviceDetail, Evidence, Fabric, FabricCells, GpuTime,
    History, NodeDetail, Overview, Table, Usage, field::shown_unit,
};

mod matrix;

/// The widest text in a plain column; comma-separated values are never cut.
const WIDEST: usize = 60;

/// Stands for the job of GPUs of which nobody says who holds them.
const UNNAMED: &str = "(no job)";

/// One cell.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Text(String),
    /// A number in the unit of its column.
    Number(f64),
    /// None, and why if that is known.
    Absent(Option<Absent>),
}

impl Cell {
    /// A text; none if there is none.
    fn known(text: Option<&str>) -> Self {
        match text {
            None | Some("") => Self::Absent(None),
            Some(text) => Self::Text(text.to_owned()),
        }
    }
}

/// One column's name and the unit of its numbers.
#[derive(Clone, Debug, PartialEq)]
struct Head {
    name: String,
    unit: Option<Unit>,
}

/// A head and rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sheet {
    head: Vec<Head>,
    rows: Vec<Vec<Cell>>,
    /// What is said below the plain columns.
    below: String,
}

impl Sheet {
    /// The sheet of an answer; none for an answer that is a list of lines, which is asked for as a table.
    pub(super) fn of(answer: &Answer) -> Option<Self> {
        Some(match answer {
            Answer::Table(table) => Self::of_table(table),
            Answer::Job(job) => Self::of_table(&job.gpus),
            Answer::Fabric(fabric) => Self::of_fabric(fabric),
            Answer::History(history) => Self::of_history(history),
            Answer::Node(node) => Self::of_node(node),
            Answer::Probe(matrix) => Self::of_matrix(matrix),
            Answer::Overview(overview) => Self::of_overview(overview),
            Answer::GpuTime(time) => Self::of_gpu_time(time),
            Answer::Finding(told) => Self::of_evidence(&told.finding.evidence),
            Answer::Usage(usage) => Self::of_usage(usage),
            Answer::Alerts(list) => Self::of_alerts(list),
            Answer::Nodes(_) | Answer::Findings(_) | Answer::Targets(_) | Answer::Refused(_) => {
                return None;
            }
        })
    }

    fn new(head: &[(&str, Option<Unit>)]) -> Self {
        let head = head.iter().map(|(name, unit)| Head { name: (*name).to_owned(), unit: *unit });
        Self { head: head.collect(), ..Self::default() }
    }

    fn of_table(table: &Table) -> Self {
        let head = table.columns.iter();
        let head = head.map(|column| Head { name: column.name.clone(), unit: column.unit });
        let rows = (0..table.rows as usize).map(|row| {
            let cell = |column: &crate::answer::Column| match &column.cells {
                Cells::Numbers { .. } => column
                    .number(row)
                    .map_or_else(|| Cell::Absent(column.reason(row)), Cell::Number),
                Cells::Texts { .. } => {
                    column.text(row).map_or(Cell::Absent(None), |text| Cell::Text(text.to_string()))
                }
            };
            table.columns.iter().map(cell).collect()
        });
        let subject = table.subject.as_str();
        let mut below = format!("{} of {} {subject}", table.rows, table.total);
        if table.matched != table.total {
            _ = write!(below, ", {} match", table.matched);
        }
        Self { head: head.collect(), rows: rows.collect(), below }
    }

    fn of_gpu_time(time: &GpuTime) -> Self {
        let mut sheet =
            Self::new(&[("job", None), ("cause", None), ("gpu_seconds", Some(Unit::Seconds))]);
        for row in &time.starved {
            let job = if row.job.is_empty() { UNNAMED } else { &row.job };
            let texts = [job, &row.cause].map(|text| Cell::Text(text.to_owned()));
            sheet.rows.push(texts.into_iter().chain([Cell::Number(row.gpu_seconds)]).collect());
        }
        sheet
    }

    /// Numbers in their own units: a sheet has one unit for a column.
    fn of_evidence(evidence: &[Evidence]) -> Self {
        let names = ["what", "value", "limit", "unit", "threshold", "source", "note"];
        let mut sheet = Self::new(&names.map(|name| (name, None)));
        let text = |text: &str| match text {
            "" => Cell::Absent(None),
            text => Cell::Text(text.to_owned()),
        };
        for number in evidence {
            let value = |value: Option<f64>| text(&value.map_or(String::new(), |v| v.to_string()));
            let unit = number.unit.suffix().trim_start_matches('_');
            sheet.rows.push(vec![
                text(&number.what),
                value(number.value),
                value(number.limit),
                text(unit),
                text(&number.threshold),
                text(&number.source),
                text(&number.note),
            ]);
        }
        sheet
    }

    fn of_usage(usage: &Usage) -> Self {
        let mut sheet = Self::new(&[
            ("job", None),
            ("user", None),
            ("model", None),
            ("state", None),
            ("gpu_time", Some(Unit::Seconds)),
            ("energy", Some(Unit::Joules)),
        ]);
        for row in &usage.rows {
            sheet.rows.push(vec![
                Cell::known(row.job.as_deref()),
                Cell::known(row.user.as_deref()),
                Cell::known(row.model.as_deref()),
                Cell::known(row.state.map(GpuState::as_str)),
                Cell::Number(row.gpu_seconds),
                row.joules.map_or(Cell::Absent(None), Cell::Number),
            ]);
        }
        sheet
    }

    fn of_alerts(list: &AlertList) -> Self {
        let names = ["finding", "severity", "state", "receivers", "silenced_by", "why", "until"];
        let mut sheet = Self::new(&names.map(|name| (name, None)));
        for alert in &list.alerts {
            let receivers: Vec<&str> = alert.receivers.iter().map(Safe::as_str).collect();
            let silence = alert.silences.first();
            let state = match alert.state {
                AlertState::Unprocessed => "unprocessed",
                AlertState::Active => "active",
                AlertState::Suppressed if silence.is_some() => "silenced",
                AlertState::Suppressed => "inhibited",
            };
            sheet.rows.push(vec![
                Cell::known(Some(&alert.finding)),
                Cell::known(alert.severity.map(Severity::as_str)),
                Cell::known(Some(state)),
                Cell::known(Some(&receivers.join(" "))),
                Cell::known(silence.map(|silence| silence.by.as_str())),
                Cell::known(silence.map(|silence| silence.comment.as_str())),
                Cell::known(silence.map(|silence| silence.until.as_str())),
            ]);
        }
        for server in &list.servers {
            let failure = server.failure.as_deref().unwrap_or("answers");
            // Writing to a string cannot fail.
            _ = writeln!(sheet.below, "{}: {} posted, {failure}", server.address, server.posted);
        }
        if list.servers.is_empty() {
            sheet.below.push_str("no Alertmanager is named in the aggregator's settings\n");
        }
        sheet
    }

    fn of_fabric(fabric: &Fabric) -> Self {
        let mut sheet = Self::new(&[
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
        let FabricCells { ports, active, finding, .. } = &fabric.cells;
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
        for at in 0..ports.len() {
            let of = |places: &[u32], names: &[gaunt_schema::Safe]| {
                let name = places.get(at).and_then(|place| names.get(*place as usize));
                name.cloned().unwrap_or_default()
            };
            let (leaf, rail) = (of(&cells.leaf, &fabric.leaves), of(&cells.rail, &fabric.rails));
            let named = |name: &str| match name {
                "" => Cell::Absent(None),
                name => Cell::Text(name.to_owned()),
            };
            let count = |counts: &[u32]| {
                counts.get(at).map_or(Cell::Absent(None), |n| Cell::Number(f64::from(*n)))
            };
            let mut row = vec![named(&leaf), named(&rail), count(ports), count(active)];
            row.extend(shares.iter().map(|of| number(of.get(at).copied().flatten())));
            let kind = finding.get(at).copied().flatten();
            row.push(kind.map_or(Cell::Absent(None), |kind| Cell::Text(kind.as_str().to_owned())));
            sheet.rows.push(row);
        }
        let (leaves, rails) = (fabric.leaves.len(), fabric.rails.len());
        sheet.below =
            format!("{} of {} ports, {leaves} leaves, {rails} rails", fabric.matched, fabric.total);
        sheet
    }

    fn of_history(history: &History) -> Self {
        let unit = Some(history.unit);
        let thin = !history.low.is_empty();
        let mut head = vec![("at", None), ("mean", unit)];
        if thin {
            head.extend([("low", unit), ("high", unit)]);
        }
        let mut sheet = Self::new(&head);
        let points = history.mean.len();
        for at in 0..points {
            let ago = (points - 1 - at) as i64 * history.step_ms as i64;
            let mut row =
                vec![Cell::Text(instant(UnixMs(history.at.0 - ago))), number(history.mean[at])];
            if thin {
                row.extend(
                    [&history.low, &history.high].map(|of| number(of.get(at).copied().flatten())),
                );
            }
            sheet.rows.push(row);
        }
        let (metric, together) = (&history.metric, history.together.as_str());
        sheet.below = format!("{metric}, {together} of {} devices", history.devices);
        sheet
    }

    fn of_node(node: &NodeDetail) -> Self {
        let mut sheet = Self::new(&[
            ("class", None),
            ("device", None),
            ("metric", None),
            ("unit", None),
            ("value", Some(Unit::Count)),
        ]);
        for device in &node.devices {
            for id in MetricId::all() {
                let key = id.key();
                let Some(value) = shown(device, &key) else { continue };
                let unit = shown_unit(id.row().kind, id.row().unit);
                sheet.rows.push(vec![
                    Cell::Text(device.class.as_str().to_owned()),
                    Cell::Text(device.name.to_string()),
                    Cell::Text(key),
                    Cell::Text(unit.suffix().trim_start_matches('_').to_owned()),
                    value,
                ]);
            }
        }
        sheet
    }

    fn of_overview(overview: &Overview) -> Self {
        let mut sheet = Self::new(&[("state", None), ("gpus", Some(Unit::Count))]);
        for state in GpuState::ALL {
            let gpus = f64::from(overview.in_state(*state));
            sheet.rows.push(vec![Cell::Text(state.as_str().to_owned()), Cell::Number(gpus)]);
        }
        sheet
    }

    /// Plain columns: numbers to the right, each with its unit.
    pub(super) fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().zip(&self.head).map(|(cell, head)| cell.plain(head)).collect())
            .collect();
        let widths: Vec<usize> = (0..self.head.len())
            .map(|at| {
                let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.width());
                cells.chain([self.head[at].name.width()]).max().unwrap_or(0)
            })
            .collect();
        let mut page = String::new();
        let heads = self.head.iter().map(|head| head.name.to_uppercase()).collect();
        for row in std::iter::once(&heads).chain(&rows) {
            let mut line = String::new();
            for ((cell, width), head) in row.iter().zip(&widths).zip(&self.head) {
                let gap = if line.is_empty() { "" } else { "  " };
                let blank = " ".repeat(width.saturating_sub(cell.width()));
                line = match head.unit {
                    Some(_) => format!("{line}{gap}{blank}{cell}"),
                    None => format!("{line}{gap}{}", pad(cell, *width)),
                };
            }
            page.push_str(line.trim_end());
            page.push('\n');
        }
        if !self.below.is_empty() {
            page.push_str(&self.below);
            page.push('\n');
        }
        page
    }

    /// Comma-separated values as RFC 4180 has them, with the unit in each column's name; what is absent is empty.
    pub(super) fn csv(&self) -> String {
        let name = |head: &Head| {
            let suffix = head.unit.map_or("", Unit::suffix);
            let bare = head.name.strip_suffix(suffix).unwrap_or(&head.name);
            field(&format!("{bare}{suffix}"))
        };
        let mut page = self.head.iter().map(name).collect::<Vec<_>>().join(",");
        page.push_str("\r\n");
        for row in &self.rows {
            let cells = row.iter().map(|cell| match cell {
                Cell::Text(text) => field(text),
                Cell::Number(value) => value.to_string(),
                Cell::Absent(_) => String::new(),
            });
            page.push_str(&cells.collect::<Vec<_>>().join(","));
            page.push_str("\r\n");
        }
        page
    }
}

impl Cell {
    fn plain(&self, head: &Head) -> String {
        match self {
            Self::Text(text) => cut(text, WIDEST),
            Self::Number(value) => quantity(*value, head.unit.unwrap_or(Unit::Count)),
            Self::Absent(Some(reason)) => reason.as_str().to_owned(),
            Self::Absent(None) => "-".to_owned(),
        }
    }
}

fn number(value: Option<f32>) -> Cell {
    value.map_or(Cell::Absent(None), |value| Cell::Number(f64::from(value)))
}

/// What is shown of a metric of a device: what a counter grows by, or the reading.
fn shown(device: &DeviceDetail, key: &str) -> Option<Cell> {
    if let Some(rate) = device.rates.get(key) {
        return Some(Cell::Number(*rate));
    }
    let reading = device.values.get(key)?;
    if key.contains("_total") && reading.value().is_some() {
        return None; // A counter that was read once grows by nothing that is known.
    }
    Some(reading.value().map_or(Cell::Absent(reading.reason()), Cell::Number))
}

/// An instant as ISO 8601 writes it, in UTC.
fn instant(at: UnixMs) -> String {
    let (days, ms) = (at.0.div_euclid(86_400_000), at.0.rem_euclid(86_400_000));
    // Days since 0000-03-01, in eras of 400 years of 146,097 days each.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let seconds = ms / 1_000;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60,
        ms % 1_000
    )
}

/// A field in quotes where it needs them. Text that a spreadsheet would take for a formula is told that it is text.
fn field(text: &str) -> String {
    let text =
        if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        Sheet {
            head: vec![
                Head { name: "node".into(), unit: None },
                Head { name: "power".into(), unit: Some(Unit::Watts) },
            ],
            rows: vec![
                vec![Cell::Text("gpu, \"1\"".into()), Cell::Number(701.5)],
                vec![Cell::Text("=cmd()".into()), Cell::Absent(Some(Absent::NoPermission))],
            ],
            below: "2 of 2 gpus".into(),
        }
    }

    #[test]
    fn columns_are_aligned_and_what_is_absent_says_why() {
        assert_eq!(
            sheet().text(),
            "NODE              POWER\n\
             gpu, \"1\"          702 W\n\
             =cmd()    no_permission\n\
             2 of 2 gpus\n"
        );
    }

    #[test]
    fn values_are_quoted_and_no_formula_gets_through() {
        assert_eq!(sheet().csv(), "node,power_watts\r\n\"gpu, \"\"1\"\"\",701.5\r\n'=cmd(),\r\n");
    }

    #[test]
    fn instants_are_dates() {
        for (ms, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_000, "2023-11-14T22:13:20.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(instant(UnixMs(ms)), date);
        }
    }
}
