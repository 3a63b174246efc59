//! gaunt-probe: parses the command line, runs the measurement, and prints the result.

mod probe_cli;
mod result_table;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use gaunt_probe::{
    ExitKind, ProbeExit, auto, cross_node, doctor, probe_worker, ras, request::MeasureResult,
    run_supervised,
};

use crate::probe_cli::{CrossNodeArguments, MeasureArguments, ProbeArguments, ProbeCommand};

fn main() -> ExitCode {
    if probe_worker::is_worker_process() {
        return probe_worker::run();
    }
    let arguments = match ProbeArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version end with 0; anything else is an invalid command line: nothing was started.
            let is_answer = error.print().is_ok() && !error.use_stderr();
            return ExitCode::from(if is_answer { 0 } else { ExitKind::Refused.exit_code() });
        }
    };
    match run(&arguments.command) {
        Ok(kind) => ExitCode::from(kind.exit_code()),
        Err(error) => {
            _ = writeln!(io::stderr().lock(), "gaunt-probe: {error:#}");
            ExitCode::from(ExitKind::Failed.exit_code())
        }
    }
}

fn run(command: &ProbeCommand) -> anyhow::Result<ExitKind> {
    let mut out = io::stdout().lock();
    if let ProbeCommand::Ras(asked) = command {
        for line in ras::query_status(asked.address)? {
            writeln!(out, "{line}")?;
        }
        return Ok(ExitKind::Measured);
    }
    if let ProbeCommand::Doctor(asked) = command {
        let checks = doctor::run_checks(&asked.libraries.to_library_paths());
        if asked.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&checks)?)?;
        } else {
            for check in &checks {
                let mark = if check.good { "ok" } else { "--" };
                writeln!(out, "{mark}  {:12} {}", check.name, check.says)?;
            }
        }
        return Ok(doctor::exit_kind(&checks));
    }
    if let ProbeCommand::CrossNode(asked) = command {
        return run_cross_node(asked, &mut out);
    }
    let (mut answer, shown) = match command {
        ProbeCommand::Auto(auto) => {
            (auto::run(&auto.state, &auto.to_requests(), &auto.to_budget()), &auto.measuring)
        }
        other => {
            let Some((order, shown)) = other.to_request() else { return Ok(ExitKind::Failed) };
            (run_supervised(&order), shown)
        }
    };
    apply_floor(&mut answer, shown);
    if shown.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else if answer.measured.is_empty() {
        for note in &answer.notes {
            writeln!(io::stderr().lock(), "note: {note}")?;
        }
        writeln!(io::stderr().lock(), "gaunt-probe: {}", answer.ending)?;
    } else {
        result_table::write_result(&answer, &mut out)?;
    }
    Ok(answer.ending.kind)
}

/// Measures with other nodes, and prints one line for each.
fn run_cross_node(asked: &CrossNodeArguments, out: &mut impl Write) -> anyhow::Result<ExitKind> {
    let mut written = Ok(());
    let ending = cross_node::run(&asked.to_options(), &mut |result| {
        let line = if asked.measuring.json {
            serde_json::to_string(result).unwrap_or_default()
        } else {
            result_table::render_cross_node(result)
        };
        let outcome = writeln!(out, "{line}").and_then(|()| out.flush());
        if written.is_ok() {
            written = outcome;
        }
    });
    written?;
    if ending.kind != ExitKind::Measured {
        writeln!(io::stderr().lock(), "gaunt-probe: {ending}")?;
    }
    Ok(ending.kind)
}

/// Compares the measurements with --floor.
fn apply_floor(answer: &mut MeasureResult, shown: &MeasureArguments) {
    let Some(floor) = shown.floor.filter(|_| answer.ending.kind == ExitKind::Measured) else {
        return;
    };
    let links = answer.measured.iter().filter(|one| one.busbw.is_some());
    if let Some(slow) = links.into_iter().find(|one| one.effective_bandwidth() < floor * 1e9) {
        let why = format!(
            "slow: {} {} reaches {:.1} GB/s, below the floor of {floor} GB/s",
            slow.collective,
            slow.between,
            slow.effective_bandwidth() / 1e9
        );
        answer.ending = ProbeExit::new_slow(&why);
    }
}
