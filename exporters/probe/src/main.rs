//! gaunt-probe: says what is measured, lets it be done, and shows it.

mod cli;
mod table;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use gaunt_probe::{Ending, Kind, auto, doctor, meet, order::Answer, ras, supervise, worker};

use crate::cli::{Arguments, Command, Measuring, Meet};

fn main() -> ExitCode {
    if worker::requested() {
        return worker::run();
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, everything else is a wrong command line: nothing was started.
            let is_answer = error.print().is_ok() && !error.use_stderr();
            return ExitCode::from(if is_answer { 0 } else { Kind::Refused.code() });
        }
    };
    match run(&arguments.command) {
        Ok(kind) => ExitCode::from(kind.code()),
        Err(error) => {
            _ = writeln!(io::stderr().lock(), "gaunt-probe: {error:#}");
            ExitCode::from(Kind::Failed.code())
        }
    }
}

fn run(command: &Command) -> anyhow::Result<Kind> {
    let mut out = io::stdout().lock();
    if let Command::Ras(asked) = command {
        for line in ras::status(asked.address)? {
            writeln!(out, "{line}")?;
        }
        return Ok(Kind::Measured);
    }
    if let Command::Doctor(asked) = command {
        let signs = doctor::examine(&asked.libraries.libraries());
        if asked.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&signs)?)?;
        } else {
            for sign in &signs {
                let mark = if sign.good { "ok" } else { "--" };
                writeln!(out, "{mark}  {:12} {}", sign.name, sign.says)?;
            }
        }
        return Ok(doctor::ending(&signs));
    }
    if let Command::Meet(asked) = command {
        return met(asked, &mut out);
    }
    let (mut answer, shown) = match command {
        Command::Auto(auto) => {
            (auto::run(&auto.state, &auto.orders(), &auto.budget()), &auto.measuring)
        }
        other => {
            let Some((order, shown)) = other.order() else { return Ok(Kind::Failed) };
            (supervise(&order), shown)
        }
    };
    judge(&mut answer, shown);
    if shown.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else if answer.measured.is_empty() {
        for note in &answer.notes {
            writeln!(io::stderr().lock(), "note: {note}")?;
        }
        writeln!(io::stderr().lock(), "gaunt-probe: {}", answer.ending)?;
    } else {
        table::print(&answer, &mut out)?;
    }
    Ok(answer.ending.kind)
}

/// Meets other nodes, a line for each.
fn met(asked: &Meet, out: &mut impl Write) -> anyhow::Result<Kind> {
    let mut written = Ok(());
    let ending = meet::run(&asked.options(), &mut |met| {
        let line = if asked.measuring.json {
            serde_json::to_string(met).unwrap_or_default()
        } else {
            table::met(met)
        };
        let told = writeln!(out, "{line}").and_then(|()| out.flush());
        if written.is_ok() {
            written = told;
        }
    });
    written?;
    if ending.kind != Kind::Measured {
        writeln!(io::stderr().lock(), "gaunt-probe: {ending}")?;
    }
    Ok(ending.kind)
}

/// Holds what was measured against the floor that was asked for.
fn judge(answer: &mut Answer, shown: &Measuring) {
    let Some(floor) = shown.floor.filter(|_| answer.ending.kind == Kind::Measured) else { return };
    let links = answer.measured.iter().filter(|one| one.busbw.is_some());
    if let Some(slow) = links.into_iter().find(|one| one.bandwidth() < floor * 1e9) {
        let why = format!(
            "slow: {} {} reaches {:.1} GB/s, and the floor is {floor} GB/s",
            slow.collective,
            slow.between,
            slow.bandwidth() / 1e9
        );
        answer.ending = Ending::slow(&why);
    }
}
