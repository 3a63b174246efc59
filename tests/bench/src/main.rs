//! gaunt-bench: runs one bench by name and prints a table, then one JSON object as the last line.

mod answers_bench;
mod bench_pages;
mod bench_process;
mod captures_bench;
mod churn_bench;
mod console_bench;
mod cpu_clock;
mod dcgm_fields;
mod farm_http;
mod fleet_bench;
mod gather_bench;
mod growth_bench;
mod ingest_bench;
mod interleaved_rounds;
mod judge_bench;
mod load_bench;
mod node_bench;
mod page_decoder;
mod parse_bench;
mod past_bench;
mod pictures_bench;
mod public_data_bench;
mod scrape_client;
mod signals_bench;
mod simulation_bench;
mod soak_bench;
mod standing_bench;
mod store_bench;
mod target_farm;
mod versus_bench;
mod worlds_bench;
mod write_sink;

use std::{io::Write, process::ExitCode};

use anyhow::Context;
use clap::Parser;

/// Run one bench: prints a table, then one JSON object as the last line.
#[derive(Parser)]
struct BenchArguments {
    /// Bench to run; without a name the list is printed.
    #[arg(default_value = "")]
    name: String,
    /// Port and encoding of `farm`.
    #[arg(long, hide = true, num_args = 2)]
    farm: Vec<String>,
    /// Options of `judge` and `signals`.
    #[command(flatten)]
    judge: judge_bench::JudgeBenchOptions,
    /// Options of `answers`.
    #[command(flatten)]
    answers: answers_bench::AnswersBenchOptions,
    /// Options of `past`.
    #[command(flatten)]
    past: past_bench::PastBenchOptions,
    /// Options of `fleet`.
    #[command(flatten)]
    fleet: fleet_bench::FleetBenchOptions,
    /// Options of `pressure`.
    #[command(flatten)]
    pressure: fleet_bench::pressure::PressureBenchOptions,
    /// Options of `soak`.
    #[command(flatten)]
    soak: soak_bench::SoakBenchOptions,
    /// Options of `churn`.
    #[command(flatten)]
    churn: churn_bench::ChurnBenchOptions,
    /// Options of `growth`.
    #[command(flatten)]
    growth: growth_bench::GrowthOptions,
    /// Options of `worlds`.
    #[command(flatten)]
    worlds: worlds_bench::WorldsBenchOptions,
    /// Options of `simulation`.
    #[command(flatten)]
    simulation: simulation_bench::SimulationBenchOptions,
    /// Options of `public-data`.
    #[command(flatten)]
    public_data: public_data_bench::PublicDataOptions,
}

type BenchFn = fn(&BenchArguments, &mut dyn Write) -> anyhow::Result<()>;

/// All benches with their descriptions.
const BENCHES: &[(&str, &str, BenchFn)] = &[
    ("farm", "serves the targets of `gather`, which starts it", |args, _| {
        target_farm::run(&args.farm)
    }),
    (
        "console",
        "the console on 100,000 GPUs: first frame, frame times, key latency, bytes per second, memory",
        |_, out| console_bench::run(out),
    ),
    (
        "simulation",
        "the whole in simulated time with faults of network, disk and clock: one run a seed, all invariants at each step",
        |args, out| simulation_bench::run(&args.simulation, out),
    ),
    (
        "fleet",
        "gaunt serve on gaunt-sim's precomputed pages: CPU time, memory and response times by number of nodes",
        |args, out| fleet_bench::run(&args.fleet, args.judge.quick, out),
    ),
    (
        "pressure",
        "gaunt serve beside programs that keep every core busy: pages lost without a word, freshness, response times",
        |args, out| fleet_bench::pressure::run(&args.pressure, out),
    ),
    (
        "versus-prometheus",
        "gaunt and Prometheus on the same 1,000 nodes with equal history: CPU time and memory",
        |args, out| versus_bench::run(args.judge.quick, out),
    ),
    (
        "ingest",
        "reports and pages in memory into columns, history and rates: samples per second and core",
        |args, out| ingest_bench::run(args.judge.quick, out),
    ),
    (
        "gather",
        "gaunt, Prometheus and VictoriaMetrics on the same 1,000 targets: CPU time and memory",
        |args, out| gather_bench::run(args.judge.quick, out),
    ),
    ("answers", "queries about 100,000 GPUs: CPU time and response times", |args, out| {
        answers_bench::run(&args.answers, out)
    }),
    (
        "judge",
        "labelled runs: precision, recall, detection time and cost of the judge",
        |args, out| judge_bench::run(&args.judge, out),
    ),
    (
        "growth",
        "the judge's CPU time for each signal at 128 and 1,024 nodes: whether it grows faster than the fleet",
        |args, out| growth_bench::run(&args.growth, out),
    ),
    (
        "worlds",
        "clusters drawn at random by family: precision, recall, blame, pages of quiet worlds, calibration",
        |args, out| worlds_bench::run(&args.worlds, &args.judge, out),
    ),
    (
        "public-data",
        "public traces of real GPU clusters: findings by kind, pages per 1,000 GPU-days, stragglers named",
        |args, out| public_data_bench::run(&args.public_data, args.judge.explain, out),
    ),
    (
        "standing",
        "a fault of each kind for two days: whether its finding stays open, and its cost",
        |_, out| standing_bench::run(out),
    ),
    (
        "store",
        "verdicts of 100,000 GPUs to a store: CPU time, bytes, and an hour without the store",
        |args, out| store_bench::run(args.judge.quick, out),
    ),
    (
        "past",
        "a Prometheus that is asked, that sends, and whose past is judged: its CPU time and ours",
        |args, out| past_bench::run(&args.past, args.judge.quick, out),
    ),
    (
        "soak",
        "days of faults that begin and heal while the aggregator is killed: findings closed, duplicated or left open",
        |args, out| soak_bench::run(&args.soak, out),
    ),
    (
        "churn",
        "hours of gaunt serve while jobs, nodes and series come and go and hostile targets answer: memory and open files",
        |args, out| churn_bench::run(&args.churn, out),
    ),
    (
        "node",
        "gaunt-node and prometheus-node-exporter on one node: CPU time, memory, scrape times",
        |_, out| node_bench::run(out),
    ),
    ("load", "gaunt-sim --load with 12,500 nodes: CPU time and memory", |_, out| {
        load_bench::run(out)
    }),
    ("pages", "writes tests/fixtures/scrapes/{dcgm,short}.prom", |_, out| bench_pages::run(out)),
    ("parse", "text pages: our parser compared with prometheus-parse", |_, out| {
        parse_bench::run(out)
    }),
    (
        "captures",
        "screens of faults and harmless look-alikes, for exporters/sim/CAPTURES.md",
        |_, out| captures_bench::run(out),
    ),
    ("pictures", "tables of labelled runs over time, for exporters/sim/README.md", |_, out| {
        pictures_bench::run(out)
    }),
    (
        "signals",
        "metrics of labelled runs before and after the onset, by relation to the fault",
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
    writeln!(out, "unknown bench {:?}; choose one of:", args.name).context("cannot write")?;
    for (name, what, _) in BENCHES {
        writeln!(out, "  {name:8} {what}")?;
    }
    Ok(ExitCode::from(2))
}

/// A program of this build.
fn built_program(name: &str) -> anyhow::Result<std::path::PathBuf> {
    let bench_path =
        std::env::current_exe().context("cannot determine the path of this program")?;
    let path = bench_path.with_file_name(name);
    anyhow::ensure!(
        path.exists(),
        "{} is not built: run `cargo build --release --workspace` first",
        path.display()
    );
    Ok(path)
}
