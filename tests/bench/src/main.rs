//! gaunt-bench: measures one thing by name and prints a table, then one JSON object as the last line.

mod clock;
mod fields;
mod node;
mod pages;
mod parse;
mod rounds;

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use clap::Parser;

/// Measures one thing by name: a table, then one JSON object as the last line.
#[derive(Parser)]
struct Args {
    /// What to measure, or `pages` to write the pages that are measured on.
    #[arg(default_value = "")]
    name: String,
}

type Bench = fn(&mut dyn Write) -> anyhow::Result<()>;

/// Every bench with what it measures.
const BENCHES: &[(&str, &str, Bench)] = &[
    (
        "node",
        "gaunt-node and prometheus-node-exporter on one node: time, memory, scrapes",
        node::run,
    ),
    ("pages", "writes tests/fixtures/scrapes/{dcgm,short}.prom anew", pages::run),
    ("parse", "reads pages of text: our reader and prometheus-parse side by side", parse::run),
];

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some((_, _, bench)) = BENCHES.iter().find(|(name, ..)| *name == args.name) {
        bench(&mut std::io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stderr().lock();
    writeln!(out, "no bench is named {:?}; these are:", args.name).context("cannot write")?;
    for (name, what, _) in BENCHES {
        writeln!(out, "  {name:8} {what}")?;
    }
    Ok(ExitCode::from(2))
}
