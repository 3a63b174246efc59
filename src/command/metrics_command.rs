//! `gaunt metrics`: prints the metric catalogue as a table, for people and for the documentation.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use gaunt_schema::{
    MetricId,
    unit::{CounterWidth, MetricKind, Unit},
};

/// Prints every metric: key, kind, unit, class, help.
pub fn run() -> anyhow::Result<ExitCode> {
    let page = render_table();
    match io::stdout().lock().write_all(page.as_bytes()) {
        // A reader that closes the pipe early is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The table, columns aligned.
fn render_table() -> String {
    let rows: Vec<[String; 5]> =
        std::iter::once(["metric", "kind", "unit", "class", "meaning"].map(str::to_owned))
            .chain(MetricId::all_ids().map(metric_cells))
            .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut page = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  "));
        page.extend(cells);
        page.push_str(&row[4]);
        page.push('\n');
    }
    page
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
        unit_label(metric.unit).to_owned(),
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

fn unit_label(unit: Unit) -> &'static str {
    match unit {
        Unit::Ratio => "ratio",
        Unit::Bytes => "bytes",
        Unit::BytesPerSecond => "bytes/s",
        Unit::Watts => "watts",
        Unit::Joules => "joules",
        Unit::Celsius => "celsius",
        Unit::Hertz => "hertz",
        Unit::Seconds => "seconds",
        Unit::Count => "count",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_one_line_per_metric_and_aligned_columns() {
        let table = render_table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), MetricId::all_ids().count() + 1);
        let help_start = lines[0].find("meaning").unwrap();
        for (line, id) in lines[1..].iter().zip(MetricId::all_ids()) {
            assert!(line.starts_with(&id.series_key()), "{line}");
            assert!(line[help_start..].starts_with(id.catalogue_row().help), "{line}");
        }
    }
}
