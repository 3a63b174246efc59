//! The results of a measurement as a table for people.

use std::io::{self, Write};

use gaunt_probe::{
    cross_node::CrossNodeResult,
    request::{BandwidthMeasurement, DataPath, MeasureResult, MeasureTool},
};

/// Prints a result: measurements, notes, cost, and the ending.
pub(crate) fn write_result(result: &MeasureResult, out: &mut impl Write) -> io::Result<()> {
    let model = result.model.as_ref().map_or("unknown GPUs", |model| model.as_str());
    let (pairs, rings): (Vec<_>, Vec<_>) = result.measured.iter().partition(|measurement| {
        measurement.collective.as_str() != "send_recv" && is_matrix_route(measurement)
    });
    for measurement in rings {
        write_collective(measurement, model, out)?;
    }
    if !pairs.is_empty() {
        write_matrix(&pairs, model, out)?;
    }
    for note in &result.notes {
        writeln!(out, "note: {note}")?;
    }
    let cost = &result.cost;
    if !result.measured.is_empty() {
        writeln!(
            out,
            "cost: {} GPU time, {} over links, {} memory per GPU; {:.2} s in total, {:.2} s of it to create contexts",
            format_seconds(cost.busy_seconds),
            format_size(cost.traffic_bytes),
            format_size(cost.memory_bytes),
            cost.seconds,
            cost.contexts_seconds,
        )?;
    }
    writeln!(out, "{}", result.ending.message)
}

/// One pairing in a line.
pub(crate) fn render_cross_node(result: &CrossNodeResult) -> String {
    let CrossNodeResult { peer, port, tool, .. } = result;
    let tool = tool.as_str();
    match result.bytes_per_second {
        None => format!("{port} with {peer} by {tool}: {}", result.says),
        Some(rate) => {
            let share = result
                .ratio
                .map_or(String::new(), |ratio| format!(", {:.0} % of baseline", ratio * 100.0));
            format!("{port} with {peer} by {tool}: {} GB/s{share}", format_gigabytes(rate))
        }
    }
}

fn is_matrix_route(measurement: &BandwidthMeasurement) -> bool {
    matches!(measurement.collective.as_str(), "read" | "write" | "copy" | "to_gpu" | "from_gpu")
}

fn write_collective(
    measurement: &BandwidthMeasurement,
    model: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let path = match measurement.way {
        DataPath::Local => "within a GPU",
        DataPath::Peer => "by peer access",
        DataPath::Staged => "through host memory",
        DataPath::Mixed => "by peer access and through host memory",
        DataPath::Host => "with the host",
        DataPath::Chosen => "by the path that NCCL chose",
    };
    let tool = if measurement.tool == MeasureTool::Nccl { "NCCL: " } else { "" };
    let ranks = if measurement.virtual_ranks { "virtual ranks" } else { "ranks" };
    writeln!(
        out,
        "{tool}{} of {} {} among {} {ranks}, {} ({model}), {path}",
        measurement.collective,
        format_size(measurement.bytes),
        measurement.element.as_str(),
        measurement.ranks,
        measurement.between,
    )?;
    let busbw = measurement
        .busbw
        .map_or("no bus".to_owned(), |busbw| format!("busbw {} GB/s", format_gigabytes(busbw)));
    let data = match &measurement.wrong_at {
        None => "data correct".to_owned(),
        Some(position) => {
            format!("DATA WRONG: {} elements, the first at {position}", measurement.wrong)
        }
    };
    writeln!(
        out,
        "  {busbw}   algbw {} GB/s   time {} ({} to {}, {} runs)   {data}",
        format_gigabytes(measurement.algbw),
        format_seconds(measurement.seconds[1]),
        format_seconds(measurement.seconds[0]),
        format_seconds(measurement.seconds[2]),
        measurement.runs,
    )?;
    measurement.render_reference_share().map_or(Ok(()), |share| writeln!(out, "  {share}"))
}

/// ```text
/// GB/s from the row's GPU to the column's, read by the receiver
///         gpu0   gpu1
/// gpu0       -    389
/// gpu1     391      -
/// ```
fn write_matrix(
    measurements: &[&BandwidthMeasurement],
    model: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let first = measurements[0];
    writeln!(out, "{} of {} ({model})", format_size(first.bytes), first.element.as_str())?;
    let mut names: Vec<&str> = measurements
        .iter()
        .filter(|measurement| measurement.collective.as_str() == "copy")
        .map(|measurement| measurement.between.as_str())
        .collect();
    names.dedup();
    for (kind, direction) in [("read", "read by the receiver"), ("write", "written by the sender")]
    {
        let pairs: Vec<_> = measurements
            .iter()
            .filter(|measurement| measurement.collective.as_str() == kind)
            .collect();
        if pairs.is_empty() {
            continue;
        }
        writeln!(
            out,
            "\nGB/s from the row's GPU to the column's, {direction}; * through host memory"
        )?;
        let header: Vec<String> = names.iter().map(|name| format!("{name:>8}")).collect();
        writeln!(out, "{:6}{}", "", header.concat())?;
        for from in &names {
            let cell = |to: &&str| {
                let route = format!("{from}>{to}");
                let pair = pairs.iter().find(|measurement| measurement.between.as_str() == route);
                let mark = if pair.is_some_and(|measurement| measurement.way == DataPath::Staged) {
                    "*"
                } else {
                    ""
                };
                format!(
                    "{:>8}",
                    pair.map_or("-".to_owned(), |measurement| format_gigabytes(measurement.algbw)
                        + mark)
                )
            };
            let row: String = names.iter().map(cell).collect();
            writeln!(out, "{from:6}{row}")?;
        }
    }
    writeln!(out, "\nGB/s within each GPU and with pinned host memory")?;
    writeln!(
        out,
        "{:6}{:>10}{:>13}{:>11}{:>11}",
        "", "our copy", "driver copy", "from host", "to host"
    )?;
    for name in &names {
        let bandwidth = |kind: &str, between: &str, tool| {
            let mut rows = measurements.iter();
            let row = rows.find(|measurement| {
                measurement.collective.as_str() == kind
                    && measurement.between.as_str() == between
                    && measurement.tool == tool
            });
            row.map_or("-".to_owned(), |measurement| format_gigabytes(measurement.algbw))
        };
        writeln!(
            out,
            "{name:6}{:>10}{:>13}{:>11}{:>11}",
            bandwidth("copy", name, MeasureTool::Gaunt),
            bandwidth("copy", name, MeasureTool::Driver),
            bandwidth("to_gpu", &format!("host>{name}"), MeasureTool::Driver),
            bandwidth("from_gpu", &format!("{name}>host"), MeasureTool::Driver),
        )?;
    }
    Ok(())
}

/// Gigabytes per second, with three significant digits.
fn format_gigabytes(bytes_per_second: f64) -> String {
    let gigabytes = bytes_per_second / 1e9;
    match gigabytes {
        gigabytes if gigabytes >= 100.0 => format!("{gigabytes:.0}"),
        gigabytes if gigabytes >= 10.0 => format!("{gigabytes:.1}"),
        gigabytes => format!("{gigabytes:.2}"),
    }
}

fn format_size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

fn format_seconds(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.3} ms", seconds * 1e3) }
}
