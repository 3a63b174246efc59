//! gaunt-bench: measures one thing by name and prints a table, then one JSON object as the last line.

mod answers;
mod captures;
mod clock;
mod console;
mod farm;
mod fields;
mod fleet;
mod gather;
mod ingest;
mod judge;
mod load;
mod node;
mod pages;
mod parse;
mod pictures;
mod process;
mod rounds;
mod scrape;
mod signals;
mod soak;
mod standing;
mod versus;

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use clap::Parser;

/// Measures one thing by name: a table, then one JSON object as the last line.
#[derive(Parser)]
struct Args {
    /// What to measure, or `pages` to write the pages that are measured on.
    #[arg(default_value = "")]
    name: String,
    /// What `farm` serves: a port, and a coding.
    #[arg(long, hide = true, num_args = 2)]
    farm: Vec<String>,
    /// What `judge` plays.
    #[command(flatten)]
    judge: judge::Options,
    /// What `answers` asks about.
    #[command(flatten)]
    answers: answers::Options,
    /// How large the fleet of `fleet` is.
    #[command(flatten)]
    fleet: fleet::Options,
    /// How long `soak` lasts.
    #[command(flatten)]
    soak: soak::Options,
}

type Bench = fn(&Args, &mut dyn Write) -> anyhow::Result<()>;

/// Every bench with what it measures.
const BENCHES: &[(&str, &str, Bench)] = &[
    ("farm", "serves what `gather` measures on; it is started by `gather`", |args, _| {
        farm::run(&args.farm)
    }),
    (
        "console",
        "the console on 100,000 GPUs: first picture, frames, keys, bytes a second, memory",
        |_, out| console::run(out),
    ),
    (
        "fleet",
        "gaunt serve over gaunt-sim's written-down pages: time, memory and waits by the number of nodes",
        |args, out| fleet::run(&args.fleet, args.judge.quick, out),
    ),
    (
        "versus-prometheus",
        "gaunt and Prometheus on one farm of 1,000 nodes with equal history: time and memory",
        |args, out| versus::run(args.judge.quick, out),
    ),
    (
        "ingest",
        "reports and pages in memory into columns, history and rates: samples a second and core",
        |args, out| ingest::run(args.judge.quick, out),
    ),
    (
        "gather",
        "gaunt, Prometheus and VictoriaMetrics on the same 1,000 targets: time and memory",
        |args, out| gather::run(args.judge.quick, out),
    ),
    (
        "answers",
        "what questions about 100,000 GPUs cost, and how long who asks waits",
        |args, out| answers::run(&args.answers, out),
    ),
    (
        "judge",
        "plays labelled runs: how often the judge is right, how fast, at what cost",
        |args, out| judge::run(&args.judge, out),
    ),
    (
        "standing",
        "a fault of each kind that stands for two days: whether its finding stays, at what cost",
        |_, out| standing::run(out),
    ),
    (
        "soak",
        "days of faults that begin and heal while the aggregator is killed: what closed, doubled or stayed",
        |args, out| soak::run(&args.soak, out),
    ),
    (
        "node",
        "gaunt-node and prometheus-node-exporter on one node: time, memory, scrapes",
        |_, out| node::run(out),
    ),
    ("load", "gaunt-sim --load with 12,500 nodes: processor time and memory", |_, out| {
        load::run(out)
    }),
    ("pages", "writes tests/fixtures/scrapes/{dcgm,short}.prom anew", |_, out| pages::run(out)),
    ("parse", "reads pages of text: our reader and prometheus-parse side by side", |_, out| {
        parse::run(out)
    }),
    (
        "captures",
        "what the screen says of faults and of what only looks like one, as in the simulator's page",
        |_, out| captures::run(out),
    ),
    (
        "pictures",
        "tables of labelled runs over time, as they stand in the simulator's page",
        |_, out| pictures::run(out),
    ),
    (
        "signals",
        "what labelled runs show before and after their onset, and of whom",
        |args, out| signals::run(&args.judge, out),
    ),
];

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some((_, _, bench)) = BENCHES.iter().find(|(name, ..)| *name == args.name) {
        bench(&args, &mut std::io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stderr().lock();
    writeln!(out, "no bench is named {:?}; these are:", args.name).context("cannot write")?;
    for (name, what, _) in BENCHES {
        writeln!(out, "  {name:8} {what}")?;
    }
    Ok(ExitCode::from(2))
}

/// A program of this build.
fn built(name: &str) -> anyhow::Result<std::path::PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let path = own.with_file_name(name);
    anyhow::ensure!(
        path.exists(),
        "{} is not built: run `cargo build --release --workspace` first",
        path.display()
    );
    Ok(path)
}
