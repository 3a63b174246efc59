//! gaunt-probe: parses the command line, runs the measurement, and prints the result.

mod probe_cli;
mod result_table;

use std::{
    io::{self, Write},
    process::{self, ExitCode},
};

use clap::Parser;
use gaunt_probe::{
    ExitKind, ProbeExit, auto, cross_node, doctor, probe_worker, ras, request::MeasureResult,
    run_supervised,
};
use gaunt_signals::HeldSignals;

use crate::probe_cli::{CrossNodeArguments, MeasureArguments, ProbeArguments, ProbeCommand};

fn main() -> ExitCode {
    let held_signals = HeldSignals::hold();
    if probe_worker::is_worker_process() {
        drop(held_signals);
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
    match exit_on_signals(held_signals).and_then(|()| run(&arguments.command)) {
        Ok(kind) => ExitCode::from(kind.exit_code()),
        Err(error) => {
            _ = writeln!(io::stderr().lock(), "gaunt-probe: {error:#}");
            ExitCode::from(ExitKind::Failed.exit_code())
        }
    }
}

/// Exits at signals where this is the first process of a container: the kernel ends that one only by signals that it handles,
/// so that a container would be killed once its grace period is over. The other processes of the container end with it.
fn exit_on_signals(held_signals: HeldSignals) -> anyhow::Result<()> {
    if process::id() == 1 {
        held_signals.exit_on_any()?;
    }
    Ok(())
}

fn run(command: &ProbeCommand) -> anyhow::Result<ExitKind> {
    let mut out = io::stdout().lock();
    if let Some(page) = command.render_installation()? {
        out.write_all(&page)?;
        return Ok(ExitKind::Measured);
    }
    if let ProbeCommand::Ras(arguments) = command {
        if arguments.compare {
            let comparison = ras::compare_ranks(arguments.address, ras::COMPARED_AFTER)?;
            if arguments.json {
                writeln!(out, "{}", serde_json::to_string_pretty(&comparison)?)?;
            } else {
                write!(out, "{comparison}")?;
            }
            return Ok(ExitKind::Measured);
        }
        for line in ras::query_status(arguments.address)? {
            writeln!(out, "{line}")?;
        }
        return Ok(ExitKind::Measured);
    }
    if let ProbeCommand::Doctor(arguments) = command {
        let checks = doctor::run_checks(&arguments.libraries.to_library_paths());
        if arguments.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&checks)?)?;
        } else {
            for check in &checks {
                let mark = if check.good { "ok" } else { "--" };
                writeln!(out, "{mark}  {:12} {}", check.name, check.says)?;
            }
        }
        return Ok(doctor::exit_kind(&checks));
    }
    if let ProbeCommand::CrossNode(arguments) = command {
        return run_cross_node(arguments, &mut out);
    }
    let (mut result, measuring) = match command {
        ProbeCommand::Auto(auto) => {
            (auto::run(&auto.state, &auto.to_requests(), &auto.to_budget()), &auto.measuring)
        }
        other => {
            let Some((request, measuring)) = other.to_request() else {
                return Ok(ExitKind::Failed);
            };
            (run_supervised(&request), measuring)
        }
    };
    apply_floor(&mut result, measuring);
    if measuring.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&result)?)?;
    } else if result.measured.is_empty() {
        for note in &result.notes {
            writeln!(io::stderr().lock(), "note: {note}")?;
        }
        writeln!(io::stderr().lock(), "gaunt-probe: {}", result.ending)?;
    } else {
        result_table::write_result(&result, &mut out)?;
    }
    Ok(measuring.exit_kind(result.ending.kind))
}

/// Measures with other nodes, and prints one line for each.
fn run_cross_node(
    arguments: &CrossNodeArguments,
    out: &mut impl Write,
) -> anyhow::Result<ExitKind> {
    let mut outcome = Ok(());
    let exit = cross_node::run(&arguments.to_options(), &mut |result| {
        let line = if arguments.measuring.json {
            serde_json::to_string(result).unwrap_or_default()
        } else {
            result_table::render_cross_node(result)
        };
        let written = writeln!(out, "{line}").and_then(|()| out.flush());
        if outcome.is_ok() {
            outcome = written;
        }
    });
    outcome?;
    if exit.kind != ExitKind::Measured {
        writeln!(io::stderr().lock(), "gaunt-probe: {exit}")?;
    }
    Ok(arguments.measuring.exit_kind(exit.kind))
}

/// Compares the measurements with --floor.
fn apply_floor(result: &mut MeasureResult, measuring: &MeasureArguments) {
    let Some(floor) = measuring.floor.filter(|_| result.ending.kind == ExitKind::Measured) else {
        return;
    };
    let links = result.measured.iter().filter(|measurement| measurement.busbw.is_some());
    if let Some(slow_link) =
        links.into_iter().find(|measurement| measurement.effective_bandwidth() < floor * 1e9)
    {
        let why = format!(
            "slow: {} {} reaches {:.1} GB/s, below the floor of {floor} GB/s",
            slow_link.collective,
            slow_link.between,
            slow_link.effective_bandwidth() / 1e9
        );
        result.ending = ProbeExit::new_slow(&why);
    }
}
