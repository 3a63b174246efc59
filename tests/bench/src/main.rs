//! gaunt-bench: measures one thing by name and prints a table, then one JSON object as the last line.

mod answers_bench;
mod bench_pages;
mod bench_process;
mod captures_bench;
mod console_bench;
mod cpu_clock;
mod dcgm_fields;
mod fleet_bench;
mod gather_bench;
mod ingest_bench;
mod interleaved_rounds;
mod judge_bench;
mod load_bench;
mod node_bench;
mod parse_bench;
mod pictures_bench;
mod scrape_client;
mod signals_bench;
mod soak_bench;
mod standing_bench;
mod target_farm;
mod versus_bench;

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use clap::Parser;

/// Measures one thing by name: a table, then one JSON object as the last line.
#[derive(Parser)]
struct BenchArguments {
    /// What to measure, or `pages` to write the pages that are measured on.
    #[arg(default_value = "")]
    name: String,
    /// What `farm` serves: a port, and a coding.
    #[arg(long, hide = true, num_args = 2)]
    farm: Vec<String>,
    /// What `judge` plays.
    #[command(flatten)]
    judge: judge_bench::JudgeBenchOptions,
    /// What `answers` asks about.
    #[command(flatten)]
    answers: answers_bench::AnswersBenchOptions,
    /// How large the fleet of `fleet` is.
    #[command(flatten)]
    fleet: fleet_bench::FleetBenchOptions,
    /// How long `soak` lasts.
    #[command(flatten)]
    soak: soak_bench::SoakBenchOptions,
}

type BenchFn = fn(&BenchArguments, &mut dyn Write) -> anyhow::Result<()>;

/// Every bench with what it measures.
const BENCHES: &[(&str, &str, BenchFn)] = &[
    ("farm", "serves what `gather` measures on; it is started by `gather`", |args, _| {
        target_farm::run(&args.farm)
    }),
    (
        "console",
        "the console on 100,000 GPUs: first picture, frames, keys, bytes a second, memory",
        |_, out| console_bench::run(out),
    ),
    (
        "fleet",
        "gaunt serve over gaunt-sim's written-down pages: time, memory and waits by the number of nodes",
        |args, out| fleet_bench::run(&args.fleet, args.judge.quick, out),
    ),
    (
        "versus-prometheus",
        "gaunt and Prometheus on one farm of 1,000 nodes with equal history: time and memory",
        |args, out| versus_bench::run(args.judge.quick, out),
    ),
    (
        "ingest",
        "reports and pages in memory into columns, history and rates: samples a second and core",
        |args, out| ingest_bench::run(args.judge.quick, out),
    ),
    (
        "gather",
        "gaunt, Prometheus and VictoriaMetrics on the same 1,000 targets: time and memory",
        |args, out| gather_bench::run(args.judge.quick, out),
    ),
    (
        "answers",
        "what questions about 100,000 GPUs cost, and how long who asks waits",
        |args, out| answers_bench::run(&args.answers, out),
    ),
    (
        "judge",
        "plays labelled runs: how often the judge is right, how fast, at what cost",
        |args, out| judge_bench::run(&args.judge, out),
    ),
    (
        "standing",
        "a fault of each kind that stands for two days: whether its finding stays, at what cost",
        |_, out| standing_bench::run(out),
    ),
    (
        "soak",
        "days of faults that begin and heal while the aggregator is killed: what closed, doubled or stayed",
        |args, out| soak_bench::run(&args.soak, out),
    ),
    (
        "node",
        "gaunt-node and prometheus-node-exporter on one node: time, memory, scrapes",
        |_, out| node_bench::run(out),
    ),
    ("load", "gaunt-sim --load with 12,500 nodes: processor time and memory", |_, out| {
        load_bench::run(out)
    }),
    ("pages", "writes tests/fixtures/scrapes/{dcgm,short}.prom anew", |_, out| {
        bench_pages::run(out)
    }),
    ("parse", "reads pages of text: our reader and prometheus-parse side by side", |_, out| {
        parse_bench::run(out)
    }),
    (
        "captures",
        "what the screen says of faults and of what only looks like one, as in the simulator's page",
        |_, out| captures_bench::run(out),
    ),
    (
        "pictures",
        "tables of labelled runs over time, as they stand in the simulator's page",
        |_, out| pictures_bench::run(out),
    ),
    (
        "signals",
        "what labelled runs show before and after their onset, and of whom",
        |args, out| signals_bench::run(&args.judge, out),
    ),
];

fn main() -> anyhow::Result<ExitCode> {
    let args = BenchArguments::parse();
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
fn built_program(name: &str) -> anyhow::Result<std::path::PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let path = own.with_file_name(name);
    anyhow::ensure!(
        path.exists(),
        "{} is not built: run `cargo build --release --workspace` first",
        path.display()
    );
    Ok(path)
}
