//! The results of a measurement as a table for people.

use std::io::{self, Write};

use gaunt_probe::{
    cross_node::CrossNodeResult,
    request::{BandwidthMeasurement, DataPath, MeasureResult, MeasureTool},
};

/// Prints a result: measurements, notes, cost, and the ending.
pub(crate) fn write_result(answer: &MeasureResult, out: &mut impl Write) -> io::Result<()> {
    let model = answer.model.as_ref().map_or("unknown GPUs", |model| model.as_str());
    let (pairs, rings): (Vec<_>, Vec<_>) = answer
        .measured
        .iter()
        .partition(|one| one.collective.as_str() != "send_recv" && is_matrix_route(one));
    for one in rings {
        write_collective(one, model, out)?;
    }
    if !pairs.is_empty() {
        write_matrix(&pairs, model, out)?;
    }
    for note in &answer.notes {
        writeln!(out, "note: {note}")?;
    }
    let cost = &answer.cost;
    if !answer.measured.is_empty() {
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
    writeln!(out, "{}", answer.ending.message)
}

/// One pairing in a line.
pub(crate) fn render_cross_node(result: &CrossNodeResult) -> String {
    let CrossNodeResult { peer, port, tool, .. } = result;
    let tool = tool.as_str();
    match result.bytes_per_second {
        None => format!("{port} with {peer} by {tool}: {}", result.says),
        Some(carried) => {
            let share = result
                .ratio
                .map_or(String::new(), |ratio| format!(", {:.0} % of baseline", ratio * 100.0));
            format!("{port} with {peer} by {tool}: {} GB/s{share}", format_gigabytes(carried))
        }
    }
}

fn is_matrix_route(one: &BandwidthMeasurement) -> bool {
    matches!(one.collective.as_str(), "read" | "write" | "copy" | "to_gpu" | "from_gpu")
}

fn write_collective(
    one: &BandwidthMeasurement,
    model: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let way = match one.way {
        DataPath::Local => "within a GPU",
        DataPath::Peer => "by peer access",
        DataPath::Staged => "through host memory",
        DataPath::Mixed => "by peer access and through host memory",
        DataPath::Host => "with the host",
        DataPath::Chosen => "by the path that NCCL chose",
    };
    let tool = if one.tool == MeasureTool::Nccl { "NCCL: " } else { "" };
    let ranks = if one.virtual_ranks { "virtual ranks" } else { "ranks" };
    writeln!(
        out,
        "{tool}{} of {} {} among {} {ranks}, {} ({model}), {way}",
        one.collective,
        format_size(one.bytes),
        one.element.as_str(),
        one.ranks,
        one.between,
    )?;
    let busbw = one
        .busbw
        .map_or("no bus".to_owned(), |busbw| format!("busbw {} GB/s", format_gigabytes(busbw)));
    let data = match &one.wrong_at {
        None => "data correct".to_owned(),
        Some(at) => format!("DATA WRONG: {} elements, the first at {at}", one.wrong),
    };
    writeln!(
        out,
        "  {busbw}   algbw {} GB/s   time {} ({} to {}, {} runs)   {data}",
        format_gigabytes(one.algbw),
        format_seconds(one.seconds[1]),
        format_seconds(one.seconds[0]),
        format_seconds(one.seconds[2]),
        one.runs,
    )?;
    one.render_reference_share().map_or(Ok(()), |said| writeln!(out, "  {said}"))
}

/// ```text
/// GB/s from the row's GPU to the column's, read by the receiver
///         gpu0   gpu1
/// gpu0       -    389
/// gpu1     391      -
/// ```
fn write_matrix(
    all: &[&BandwidthMeasurement],
    model: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let first = all[0];
    writeln!(out, "{} of {} ({model})", format_size(first.bytes), first.element.as_str())?;
    let mut names: Vec<&str> = all
        .iter()
        .filter(|one| one.collective.as_str() == "copy")
        .map(|one| one.between.as_str())
        .collect();
    names.dedup();
    for (what, says) in [("read", "read by the receiver"), ("write", "written by the sender")] {
        let pairs: Vec<_> = all.iter().filter(|one| one.collective.as_str() == what).collect();
        if pairs.is_empty() {
            continue;
        }
        writeln!(out, "\nGB/s from the row's GPU to the column's, {says}; * through host memory")?;
        let heads: Vec<String> = names.iter().map(|name| format!("{name:>8}")).collect();
        writeln!(out, "{:6}{}", "", heads.concat())?;
        for from in &names {
            let cell = |to: &&str| {
                let wanted = format!("{from}>{to}");
                let known = pairs.iter().find(|one| one.between.as_str() == wanted);
                let mark =
                    if known.is_some_and(|one| one.way == DataPath::Staged) { "*" } else { "" };
                format!(
                    "{:>8}",
                    known.map_or("-".to_owned(), |one| format_gigabytes(one.algbw) + mark)
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
        let of = |what: &str, between: &str, tool| {
            let mut known = all.iter();
            let known = known.find(|one| {
                one.collective.as_str() == what
                    && one.between.as_str() == between
                    && one.tool == tool
            });
            known.map_or("-".to_owned(), |one| format_gigabytes(one.algbw))
        };
        writeln!(
            out,
            "{name:6}{:>10}{:>13}{:>11}{:>11}",
            of("copy", name, MeasureTool::Gaunt),
            of("copy", name, MeasureTool::Driver),
            of("to_gpu", &format!("host>{name}"), MeasureTool::Driver),
            of("from_gpu", &format!("{name}>host"), MeasureTool::Driver),
        )?;
    }
    Ok(())
}

/// Gigabytes per second, with three significant digits.
fn format_gigabytes(bytes_per_second: f64) -> String {
    let giga = bytes_per_second / 1e9;
    match giga {
        giga if giga >= 100.0 => format!("{giga:.0}"),
        giga if giga >= 10.0 => format!("{giga:.1}"),
        giga => format!("{giga:.2}"),
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
