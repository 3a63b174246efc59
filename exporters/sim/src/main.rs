//! gaunt-sim: serves a simulated fleet as so many exporters, one loopback address each.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow, bail};
use clap::{Parser, ValueEnum};
use gaunt_schema::{Dialect, UnixMs, time};
use gaunt_signals::{HangUpAction, HeldSignals, ServiceSignals};
use gaunt_sim::{Scenario, ScenarioRun, SimFleet, scenario, scenario_run, suite::FaultLevel};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{sync::Semaphore, task::LocalSet};
use tracing::{info, level_filters::LevelFilter, warn};

mod fleet_server;
mod node_address;
mod page_ring;
mod recording_files;

/// Descriptors that are not connections: the listener, the runtime, the standard streams, and a reserve.
const RESERVED_DESCRIPTORS: u64 = 32;

/// The minimum period: below it the simulation uses a whole CPU.
const SHORTEST_PERIOD: Duration = Duration::from_millis(50);

/// Serves a simulated fleet: each node is an exporter with its own address in 127.1.0.0/16.
#[derive(Debug, Parser)]
#[command(name = "gaunt-sim", version = gaunt_schema::VERSION, after_help = render_scenarios_help())]
struct SimArguments {
    /// Number of nodes, each with 8 GPUs; default: 32. F1 to F19 and H1 to H16 have fleets of their own.
    #[arg(long)]
    nodes: Option<usize>,
    /// Scenario to run, listed below: F1 to F19 are faults, H1 to H16 harmless look-alikes.
    #[arg(long, default_value = scenario::DEFAULT)]
    scenario: String,
    /// Random seed; the same seed gives the same fleet.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Port on which all nodes listen; 0 selects a free one.
    #[arg(long, default_value_t = 9770)]
    listen_port: u16,
    /// Port of node_exporter's pages, with --dialect dcgm.
    #[arg(long, default_value_t = 9100)]
    node_port: u16,
    /// Sampling interval of the nodes, such as 1s or 500ms.
    #[arg(long, default_value = "1s", value_parser = parse_period)]
    period: Duration,
    /// Write one line NODE=ADDRESS:PORT per node to this file, or to standard output if it is `-`.
    #[arg(long, value_name = "FILE")]
    targets: Option<PathBuf>,
    /// Severity of F1 to F19 and H1 to H16.
    #[arg(long, value_enum, default_value_t = LevelArgument::Hard)]
    level: LevelArgument,
    /// Exporter format: gaunt-node's, or dcgm-exporter's and node_exporter's, each on its own port.
    #[arg(long, value_enum, default_value_t = DialectArgument::Gaunt)]
    dialect: DialectArgument,
    /// Speed of simulated time: a factor from 0.01 to 1000.
    #[arg(long, default_value_t = 1.0, value_parser = parse_speed)]
    speed: f64,
    /// Write the pages to DIR/<target>/<unix_ms>.prom and the topology to DIR/topology.toml at full speed, and exit.
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
    /// Simulated time to write, such as 300s; default: the length of the scenario.
    #[arg(long, requires = "write", value_parser = parse_period)]
    span: Option<Duration>,
    /// Load test: serve precomputed pages for --nodes nodes at low CPU cost.
    #[arg(long, conflicts_with_all = ["write", "truth", "once", "speed", "dialect"])]
    load: bool,
    /// With --load: every 5 s another node loses its first GPU for 30 s.
    #[arg(long, requires = "load")]
    lose_boards: bool,
    /// Print the ground truth as JSON and exit; with --write, write it to DIR/truth.json.
    #[arg(long)]
    truth: bool,
    /// Print the page of this node, such as gpu001, and exit.
    #[arg(long, value_name = "NODE")]
    once: Option<String>,
}

/// Severity of a case.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LevelArgument {
    Mild,
    Medium,
    Hard,
}

/// Exporter format of the pages.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum DialectArgument {
    Gaunt,
    Dcgm,
}

impl From<DialectArgument> for Dialect {
    fn from(format: DialectArgument) -> Self {
        match format {
            DialectArgument::Gaunt => Self::Gaunt,
            DialectArgument::Dcgm => Self::Dcgm,
        }
    }
}

/// The exit code of an invalid command line and of failures, as for every program of gaunt.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    let held_signals = HeldSignals::hold();
    let cli = match SimArguments::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version end with 0; anything else is an invalid command line.
            let is_answer = error.print().is_ok() && !error.use_stderr();
            return ExitCode::from(if is_answer { 0 } else { FAILED });
        }
    };
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_max_level(LevelFilter::INFO)
        .with_target(false)
        .init();
    match run(&cli, held_signals) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done if standard error is closed too.
            let _ = writeln!(io::stderr(), "gaunt-sim: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(cli: &SimArguments, held_signals: HeldSignals) -> anyhow::Result<()> {
    if cli.once.is_some() || cli.write.is_some() || cli.truth {
        // Signals have their default effect, as those that arrived meanwhile.
        drop(held_signals);
        return write_output(cli);
    }
    let signals = held_signals.receive(HangUpAction::End);
    let signals =
        signals.context("cannot install signal handlers; raise the limit on open files")?;
    if cli.load {
        return serve_page_rings(cli, signals);
    }
    let clock = scaled_clock(cli.speed);
    let (fleet, _) = build_fleet(cli, clock())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve_fleet(cli, fleet, clock, signals))
}

/// Writes pages to standard output or files, or the ground truth.
fn write_output(cli: &SimArguments) -> anyhow::Result<()> {
    let (mut fleet, span) = build_fleet(cli, scaled_clock(cli.speed)())?;
    if let Some(name) = &cli.once {
        return print_once(&fleet, name);
    }
    let Some(folder) = &cli.write else {
        io::stdout().write_all(recording_files::render_truth(&fleet)?.as_bytes())?;
        return Ok(());
    };
    if cli.truth {
        recording_files::write_truth(&fleet, folder)?;
    }
    let topology = to_scenario_run(cli).fleet_shape()?.topology_file();
    recording_files::write_topology(&topology, folder)?;
    let span = cli.span.unwrap_or(span);
    let files = recording_files::write_pages(&mut fleet, folder, cli.period, span)?;
    writeln!(io::stdout(), "{files} pages in {}", folder.display())?;
    Ok(())
}

/// Serves page rings.
fn serve_page_rings(cli: &SimArguments, signals: ServiceSignals) -> anyhow::Result<()> {
    let nodes = cli.nodes.unwrap_or(scenario_run::USUAL_NODES);
    check_nodes(nodes)?;
    let rings =
        page_ring::PageRings::of(Scenario::from_name(&cli.scenario)?, nodes, cli.seed, cli.period)
            .with_gpu_loss(cli.lose_boards);
    let needed_files = nodes as u64 + RESERVED_DESCRIPTORS;
    let max_nodes = raise_file_limit();
    if max_nodes < nodes {
        bail!(
            "{nodes} nodes need {needed_files} open files and the hard limit is {}; raise it with \
             `ulimit -Hn {needed_files}` as root, or pass --nodes {max_nodes}",
            max_nodes as u64 + RESERVED_DESCRIPTORS
        );
    }
    let listener = page_ring::ring_server::bind_listener(cli.listen_port)
        .map_err(|error| fleet_server::FleetListenError::of(error, cli.listen_port))?;
    let port = listener.local_addr()?.port();
    announce_targets(cli, nodes, &page_ring::PageRings::node_name, &[port])?;
    let (end, _) = signals.take_over();
    info!(nodes, port, "serving precomputed pages");
    page_ring::ring_server::run(&listener, &rings, max_nodes, || end.has_arrived())?;
    info!("ending");
    Ok(())
}

fn check_nodes(nodes: usize) -> anyhow::Result<()> {
    if !(1..=node_address::MOST_NODES).contains(&nodes) {
        bail!("--nodes is {nodes}; it must be between 1 and {}", node_address::MOST_NODES);
    }
    Ok(())
}

/// The fleet of the command line, and the duration of its run.
fn build_fleet(cli: &SimArguments, start: UnixMs) -> anyhow::Result<(SimFleet, Duration)> {
    cli.nodes.map_or(Ok(()), check_nodes)?;
    let run = to_scenario_run(cli);
    Ok((run.build_fleet(start)?, run.run_timing()?.span))
}

/// The scenario run of the command line.
fn to_scenario_run(cli: &SimArguments) -> ScenarioRun {
    let dialect = cli.dialect.into();
    let level = match cli.level {
        LevelArgument::Mild => FaultLevel::Mild,
        LevelArgument::Medium => FaultLevel::Medium,
        LevelArgument::Hard => FaultLevel::Hard,
    };
    let name = cli.scenario.clone();
    ScenarioRun { name, nodes: cli.nodes, seed: cli.seed, level, dialect }
}

async fn serve_fleet(
    cli: &SimArguments,
    fleet: SimFleet,
    clock: impl Fn() -> UnixMs,
    signals: ServiceSignals,
) -> anyhow::Result<()> {
    let (listener, port) = fleet_server::bind_listener(cli.listen_port).await?;
    let second = match cli.dialect {
        DialectArgument::Gaunt => None,
        // A free port for one means a free port for the other.
        DialectArgument::Dcgm if cli.listen_port == 0 => {
            Some(fleet_server::bind_listener(0).await?)
        }
        DialectArgument::Dcgm => Some(fleet_server::bind_listener(cli.node_port).await?),
    };
    let ports: Vec<u16> =
        std::iter::once(port).chain(second.iter().map(|(_, port)| *port)).collect();
    let connections = Arc::new(Semaphore::new(connection_limit(fleet.node_count() * ports.len())));
    announce_targets(cli, fleet.node_count(), &|node| fleet.node_name(node).to_owned(), &ports)?;
    let (mut end, _) = signals.take_over();
    info!(
        nodes = fleet.node_count(),
        scenario = fleet.scenario().name,
        seed = cli.seed,
        port,
        "serving a simulated fleet"
    );
    let fleet = Rc::new(RefCell::new(fleet));
    if let Some((listener, _)) = second {
        let (fleet, connections) = (Rc::clone(&fleet), Arc::clone(&connections));
        tokio::task::spawn_local(fleet_server::serve_pages(
            listener,
            fleet,
            Dialect::NodeExporter,
            connections,
        ));
    }
    tokio::select! {
        () = fleet_server::serve_pages(listener, Rc::clone(&fleet), cli.dialect.into(), connections) => {}
        () = fleet_server::advance_on_clock(fleet, cli.period, clock) => {}
        () = end.wait() => {}
    }
    info!("ending");
    Ok(())
}

/// Prints the targets: one host list on standard output, or lines to the file of --targets.
fn announce_targets(
    cli: &SimArguments,
    nodes: usize,
    name: &dyn Fn(usize) -> String,
    ports: &[u16],
) -> anyhow::Result<()> {
    let names = || (0..nodes).map(name);
    let mut out = io::stdout().lock();
    match &cli.targets {
        Some(path) if path.as_os_str() == "-" => {
            return Ok(node_address::write_targets(&mut out, names(), ports)?);
        }
        Some(path) => {
            let file = File::create(path).and_then(|file| {
                node_address::write_targets(&mut io::BufWriter::new(file), names(), ports)
            });
            file.with_context(|| format!("cannot write the targets to {}", path.display()))?;
        }
        None => {}
    }
    let lists = ports.iter().map(|port| node_address::host_list(nodes, *port));
    writeln!(out, "{}", lists.collect::<Vec<_>>().join(","))?;
    Ok(out.flush()?)
}

fn print_once(fleet: &SimFleet, name: &str) -> anyhow::Result<()> {
    let node =
        (0..fleet.node_count()).find(|&node| fleet.node_name(node) == name).ok_or_else(|| {
            let (first, last) = (fleet.node_name(0), fleet.node_name(fleet.node_count() - 1));
            anyhow!("no node is called {name:?}; the nodes are {first} to {last}")
        })?;
    let mut out = io::stdout().lock();
    out.write_all(fleet_server::join_pages(fleet, node).as_bytes())?;
    Ok(out.flush()?)
}

/// A clock that starts at the wall clock's time and then runs monotonically, faster by this factor.
fn scaled_clock(speed: f64) -> impl Fn() -> UnixMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let started = Instant::now();
    move || UnixMs((since_epoch + started.elapsed().mul_f64(speed)).as_millis() as i64)
}

/// The connections that the limit on open files allows. Warns if they are fewer than nodes.
fn connection_limit(nodes: usize) -> usize {
    let max_nodes = raise_file_limit();
    if max_nodes < nodes {
        warn!(
            room = max_nodes,
            nodes, "too few open files to scrape all nodes at once; raise `ulimit -n`"
        );
    }
    max_nodes.min(Semaphore::MAX_PERMITS)
}

/// Raises the limit on open files to its maximum, and returns the number of connections that it allows.
fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit on open files");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u32::MAX));
    files.saturating_sub(RESERVED_DESCRIPTORS).max(1) as usize
}

/// Parses a duration such as `1s`, `500ms` or `2.5s`.
fn parse_period(text: &str) -> Result<Duration, String> {
    let period = time::parse_duration(text).ok_or("expected a unit, such as 1s or 500ms")?;
    if !(SHORTEST_PERIOD..=Duration::from_hours(1)).contains(&period) {
        return Err("must be between 50ms and 3600s".into());
    }
    Ok(period)
}

/// Parses a speed: a factor on real time.
fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.01..=FASTEST).contains(&speed) {
        return Ok(speed);
    }
    Err(format!("must be between 0.01 and {FASTEST}"))
}

/// The maximum speed.
const FASTEST: f64 = 1_000.0;

fn render_scenarios_help() -> String {
    let names = scenario_run::list_names;
    let width = names().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = names().map(|(name, line)| format!("\n  {name:width$}  {line}"));
    let codes = "Exit codes: 0 done, 3 wrong command line or cannot start";
    format!("Scenarios:{}\n\n{codes}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_has_unit_and_bounds() {
        assert_eq!(parse_period("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_period("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_period("2.5s"), Ok(Duration::from_millis(2_500)));
        for text in ["1", "0s", "-1s", "nans", "2h", "1e9s", "s", ""] {
            assert!(parse_period(text).is_err(), "{text:?}");
        }
    }
}
