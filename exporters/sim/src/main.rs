//! gaunt-sim: serves a simulated fleet as so many exporters, one loopback address each.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow, bail};
use clap::Parser;
use gaunt_schema::UnixMs;
use gaunt_sim::{Fleet, Scenario, scenario};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Semaphore,
    task::LocalSet,
};
use tracing::{info, level_filters::LevelFilter, warn};

mod address;
mod door;

/// Descriptors that are not connections: the listener, the runtime, the standard streams, and some room.
const RESERVED_DESCRIPTORS: u64 = 32;

/// A period is at least this long: below it the fleet would do nothing but step.
const SHORTEST_PERIOD: Duration = Duration::from_millis(50);

/// Serves a simulated fleet: every node is an exporter at an address of its own in 127.1.0.0/16.
#[derive(Debug, Parser)]
#[command(name = "gaunt-sim", version, after_help = scenarios_help())]
struct Cli {
    /// How many nodes, of eight GPUs each.
    #[arg(long, default_value_t = 32)]
    nodes: usize,
    /// What happens; the names are listed below.
    #[arg(long, default_value = scenario::DEFAULT)]
    scenario: String,
    /// The same seed gives the same fleet.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The port that all nodes listen on; 0 takes any that is free.
    #[arg(long, default_value_t = 9770)]
    listen_port: u16,
    /// How often the nodes sample, such as 1s or 500ms.
    #[arg(long, default_value = "1s", value_parser = period)]
    period: Duration,
    /// Write one line NODE=ADDRESS:PORT for each node to this file, or to standard output if it is `-`.
    #[arg(long, value_name = "FILE")]
    targets: Option<PathBuf>,
    /// Print the page of this node, such as gpu001, and end.
    #[arg(long, value_name = "NODE")]
    once: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_max_level(LevelFilter::INFO)
        .with_target(false)
        .init();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done if standard error is closed too.
            let _ = writeln!(io::stderr(), "gaunt-sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    if !(1..=address::MOST_NODES).contains(&cli.nodes) {
        bail!("--nodes is {}; it must be between 1 and {}", cli.nodes, address::MOST_NODES);
    }
    let scenario = Scenario::named(&cli.scenario)?;
    let clock = clock();
    let fleet = Fleet::new(scenario, cli.nodes, cli.seed, clock());
    if let Some(name) = &cli.once {
        return print_once(&fleet, name);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(cli, fleet, clock))
}

async fn serve(cli: &Cli, fleet: Fleet, clock: impl Fn() -> UnixMs) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let connections = connections(cli.nodes);
    let (listener, port) = door::open(cli.listen_port).await?;
    announce(cli, &fleet, port)?;
    info!(
        nodes = cli.nodes,
        scenario = fleet.scenario().name,
        seed = cli.seed,
        port,
        "serving a simulated fleet"
    );
    let fleet = Rc::new(RefCell::new(fleet));
    tokio::select! {
        () = door::serve(listener, Rc::clone(&fleet), connections) => {}
        () = door::keep_time(fleet, cli.period, clock) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    info!("ending");
    Ok(())
}

/// Says where the nodes are: one host list on standard output, or lines where the user wants them.
fn announce(cli: &Cli, fleet: &Fleet, port: u16) -> anyhow::Result<()> {
    let names = || (0..fleet.nodes()).map(|node| fleet.node_name(node));
    let mut out = io::stdout().lock();
    match &cli.targets {
        Some(path) if path.as_os_str() == "-" => {
            return Ok(address::write_targets(&mut out, names(), port)?);
        }
        Some(path) => {
            let file = File::create(path).and_then(|file| {
                address::write_targets(&mut io::BufWriter::new(file), names(), port)
            });
            file.with_context(|| format!("cannot write the targets to {}", path.display()))?;
        }
        None => {}
    }
    writeln!(out, "{}", address::host_list(fleet.nodes(), port))?;
    Ok(out.flush()?)
}

fn print_once(fleet: &Fleet, name: &str) -> anyhow::Result<()> {
    let node = (0..fleet.nodes()).find(|&node| fleet.node_name(node) == name).ok_or_else(|| {
        let (first, last) = (fleet.node_name(0), fleet.node_name(fleet.nodes() - 1));
        anyhow!("no node is called {name:?}; the nodes are {first} to {last}")
    })?;
    let mut out = io::stdout().lock();
    out.write_all(door::page(fleet, node).as_bytes())?;
    Ok(out.flush()?)
}

/// The wall clock at the start, and from then on a clock that nobody sets.
fn clock() -> impl Fn() -> UnixMs {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let anchor = Instant::now();
    move || UnixMs((wall + anchor.elapsed()).as_millis() as i64)
}

/// Raises the limit on open files as far as it goes, and returns how many connections fit under it.
fn connections(nodes: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit on open files");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u32::MAX));
    let room = files.saturating_sub(RESERVED_DESCRIPTORS).max(1) as usize;
    if room < nodes {
        warn!(
            files,
            nodes, "fewer open files than nodes: not all can be scraped at once; raise `ulimit -n`"
        );
    }
    room.min(Semaphore::MAX_PERMITS)
}

/// Reads a span of time such as `1s`, `500ms` or `2.5s`.
fn period(text: &str) -> Result<Duration, String> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => return Err("give it a unit, such as 1s or 500ms".into()),
    };
    let seconds = number.parse::<f64>().map(|number| number * unit);
    let seconds = seconds.map_err(|_| format!("{number:?} is not a number"))?;
    let period = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if !(SHORTEST_PERIOD..=Duration::from_hours(1)).contains(&period) {
        return Err("it must be between 50ms and 3600s".into());
    }
    Ok(period)
}

fn scenarios_help() -> String {
    let width = scenario::names().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = scenario::names().map(|(name, line)| format!("\n  {name:width$}  {line}"));
    format!("Scenarios:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_a_unit_and_a_sensible_length() {
        assert_eq!(period("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(period("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(period("2.5s"), Ok(Duration::from_millis(2_500)));
        for wrong in ["1", "0s", "-1s", "nans", "1h", "1e9s", "s", ""] {
            assert!(period(wrong).is_err(), "{wrong:?}");
        }
    }
}
