//! `gaunt metrics`: prints the metric catalogue, or the names of other exporters that gaunt reads, as a table.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use gaunt_schema::{
    MetricId,
    dialect::{DialectMetric, dialect_metrics},
    unit::{CounterWidth, MetricKind},
};

/// Prints every metric: key, kind, unit, class, help. With `dialects`, prints the names of other exporters instead.
pub fn run(dialects: bool) -> anyhow::Result<ExitCode> {
    let page = if dialects { render_dialects() } else { render_catalogue() };
    match io::stdout().lock().write_all(page.as_bytes()) {
        // A reader that closes the pipe early is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The table of the catalogue.
fn render_catalogue() -> String {
    let title = ["metric", "kind", "unit", "class", "meaning"].map(str::to_owned);
    render_table(
        &std::iter::once(title).chain(MetricId::all_ids().map(metric_cells)).collect::<Vec<_>>(),
    )
}

/// The table of names on other exporters' pages.
fn render_dialects() -> String {
    let title = ["dialect", "name on the page", "only series", "unit there", "metric", "unit"]
        .map(str::to_owned);
    let metrics = dialect_metrics();
    render_table(
        &std::iter::once(title).chain(metrics.iter().map(dialect_cells)).collect::<Vec<_>>(),
    )
}

/// Aligns all columns but the last.
fn render_table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut page = String::new();
    for row in rows {
        let (last, cells) = row.split_last().expect("a table has columns");
        page.extend(cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  ")));
        page.push_str(last);
        page.push('\n');
    }
    page
}

fn dialect_cells(entry: &DialectMetric) -> [String; 6] {
    let row = entry.metric.map(MetricId::catalogue_row);
    [
        entry.dialect.as_str().to_owned(),
        entry.name.to_owned(),
        entry.series.clone().unwrap_or_else(|| "-".to_owned()),
        entry.unit.as_deref().unwrap_or("-").to_owned(),
        match (entry.metric, entry.declined) {
            (Some(metric), _) => metric.series_key(),
            (None, Some(reason)) => format!("not read: {reason}"),
            (None, None) => "labels, or by its own rule".to_owned(),
        },
        row.map_or("-", |row| row.unit.as_str()).to_owned(),
    ]
}

fn metric_cells(id: MetricId) -> [String; 5] {
    let metric = id.catalogue_row();
    let meaning = match metric.labels {
        [] => metric.help.to_owned(),
        labels => format!("{} Labels: {}.", metric.help, labels.join(", ")),
    };
    [
        id.series_key(),
        kind_label(metric.kind),
        metric.unit.as_str().to_owned(),
        metric.class.as_str().to_owned(),
        meaning,
    ]
}

fn kind_label(kind: MetricKind) -> String {
    match kind {
        MetricKind::Gauge => "gauge".to_owned(),
        MetricKind::Info => "info".to_owned(),
        MetricKind::Counter(CounterWidth::Bits64) => "counter 64".to_owned(),
        MetricKind::Counter(CounterWidth::Wrapping32) => "counter 32 wrapping".to_owned(),
        MetricKind::Counter(CounterWidth::Saturating(bits)) => format!("counter {bits} saturating"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_one_line_per_metric_and_aligned_columns() {
        let table = render_catalogue();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), MetricId::all_ids().count() + 1);
        let help_start = lines[0].find("meaning").unwrap();
        for (line, id) in lines[1..].iter().zip(MetricId::all_ids()) {
            assert!(line.starts_with(&id.series_key()), "{line}");
            assert!(line[help_start..].starts_with(id.catalogue_row().help), "{line}");
        }
    }
    #[test]
    fn dialect_table_has_units_on_both_sides() {
        let table = render_dialects();
        let line = |name: &str| {
            let found = table.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
            found
                .unwrap_or_else(|| panic!("{name} is not listed"))
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        let energy = line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION");
        assert_eq!(energy[..1], ["dcgm"]);
        assert_eq!(energy[2..], ["-", "mJ", "gaunt_gpu_energy_joules_total", "joules"]);
        assert_eq!(
            line("habanalabs_utilization")[3..],
            ["percent", "gaunt_gpu_utilization_ratio", "ratio"]
        );
        assert_eq!(table.lines().count(), dialect_metrics().len() + 1);
        let metric_start = table.lines().next().unwrap().find("metric").unwrap();
        for text in table.lines() {
            assert!(text.chars().nth(metric_start - 1) == Some(' '), "{text}");
        }
    }
}
