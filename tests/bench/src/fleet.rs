//! Bench `fleet`: the aggregator over a fleet of written-down pages, judge on, questions asked meanwhile. Processor time
//! and memory are those of `gaunt serve` alone; times that somebody waited are those of this machine as busy as it is.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::{
    process::{Process, Usage},
    scrape::{self, Client, PLAIN},
};

mod storm;
mod watch;

use storm::Storm;

/// Samples of one page of the farm.
pub(crate) const SAMPLES: usize = 960;

/// The sizes at which growth is looked at.
const GROWTH: [usize; 4] = [100, 1_000, 5_000, 12_500];

/// How long the fleet may take until every target was tried.
const PATIENCE: Duration = Duration::from_mins(3);

/// The time in which streams begin.
const SETTLING: Duration = Duration::from_secs(5);

/// The time between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// How large a fleet is, and how long it is looked at.
#[derive(Args, Clone, Debug)]
#[group(id = "fleet")]
pub(crate) struct Options {
    /// Nodes of the fleet that `fleet` serves, 960 samples each.
    #[arg(long, default_value_t = 12_500)]
    nodes: usize,
    /// Seconds between two scrapes of a node.
    #[arg(long, default_value_t = 10)]
    period: u64,
    /// How pages travel.
    #[arg(long, default_value = "text", value_parser = ["text", "frame"])]
    wire: String,
    /// Measure for so many seconds after every node was read twice; 15 minutes and a period fill the history.
    #[arg(long)]
    seconds: Option<u64>,
    /// Consoles that follow the overview in a second window of the same length, to see what they cost.
    #[arg(long, default_value_t = 0)]
    consoles: usize,
    /// Keep the past of every metric, not only of those that screens look back at.
    #[arg(long)]
    every_metric: bool,
    /// Then take every exporter away and bring all back at once, and start the aggregator anew.
    #[arg(long)]
    storm: bool,
    /// Measure at 100, 1,000, 5,000 and 12,500 nodes, one after the other.
    #[arg(long)]
    growth: bool,
}

/// What was measured of one fleet.
struct Figures {
    nodes: usize,
    connections: u64,
    samples: f64,
    cores: f64,
    resident: u64,
    seconds: f64,
    scraped: f64,
    missed: f64,
    lag: f64,
    heatmap: Waits,
    history: Waits,
    consoles: Option<Consoles>,
    /// Milliseconds from the loss of a board until it is told.
    finding: Waits,
    storm: Option<Storm>,
}

/// What consoles cost that follow the overview.
#[derive(Clone, Copy, Debug)]
struct Consoles {
    /// Cores more than without them.
    cores: f64,
    /// Bytes a second for each of them, once it has the whole.
    bytes: f64,
}

/// How long somebody waited who asked, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Waits {
    half: f64,
    most: f64,
}

impl Waits {
    fn of(mut waits: Vec<f64>) -> Self {
        Self { half: percentile(&mut waits, 50), most: percentile(&mut waits, 99) }
    }
}

impl Figures {
    fn series(&self) -> f64 {
        self.samples * self.nodes as f64
    }

    fn line(&self, options: &Options) -> Value {
        let round = |value: f64| (value * 1e3).round() / 1e3;
        json!({
            "targets": self.nodes,
            "connections": self.connections,
            "period_s": options.period,
            "wire": options.wire,
            "measured_s": round(self.seconds),
            "samples_per_target": round(self.samples),
            "samples_per_second": round(self.scraped / self.seconds),
            "samples_s_core": round(self.scraped / self.seconds / self.cores),
            "cpu_cores": round(self.cores),
            "rss_bytes": self.resident,
            "bytes_per_series": round(self.resident as f64 / self.series()),
            "missed_per_million": round(self.missed * 1e6),
            "lag_p99_ms": round(self.lag),
            "consoles": options.consoles,
            "console_cores": self.consoles.map(|consoles| round(consoles.cores)),
            "console_bytes_s": self.consoles.map(|consoles| round(consoles.bytes)),
            "heatmap_p50_ms": round(self.heatmap.half),
            "heatmap_p99_ms": round(self.heatmap.most),
            "history_p50_ms": round(self.history.half),
            "history_p99_ms": round(self.history.most),
            "finding_lag_ms": round(self.finding.half),
            "finding_lag_p99_ms": round(self.finding.most),
            "every_metric": options.every_metric,
            "reconnect_s": self.storm.map(|storm| round(storm.reconnect)),
            "reconnect_wave": self.storm.map(|storm| round(storm.wave)),
            "restart_s": self.storm.map(|storm| round(storm.restart)),
        })
    }
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(options: &Options, quick: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(!cfg!(debug_assertions), "build with --release: a debug build says nothing");
    let one = [options.nodes];
    let sizes: &[usize] = if options.growth { &GROWTH } else { &one };
    writeln!(
        out,
        "{:>7} {:>7} {:>8} {:>7} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "nodes",
        "conns",
        "samples",
        "cores",
        "M/s/core",
        "MB",
        "B/series",
        "miss ppm",
        "lag ms",
        "heat ms",
        "past ms",
        "told ms"
    )?;
    let mut lines = Vec::new();
    for nodes in sizes {
        let figures = measure(*nodes, options, quick)?;
        let line = figures.line(options);
        let number = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
        writeln!(
            out,
            "{:>7} {:>7} {:>8.0} {:>7.3} {:>9.3} {:>9.0} {:>9.1} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.0}",
            nodes,
            figures.connections,
            figures.samples,
            figures.cores,
            number("samples_s_core") / 1e6,
            figures.resident as f64 / 1e6,
            number("bytes_per_series"),
            number("missed_per_million"),
            figures.lag,
            figures.heatmap.most,
            figures.history.most,
            figures.finding.half
        )?;
        lines.push(line);
    }
    let last = if options.growth { Value::Array(lines) } else { lines.remove(0) };
    writeln!(out, "{last}").context("cannot write")
}

/// A program that ends with the bench.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The simulator that serves so many nodes, and its targets as a host list.
pub(crate) fn simulator(nodes: usize, period: u64, port: u16) -> anyhow::Result<(Server, String)> {
    let program = crate::built("gaunt-sim")?;
    let child = Command::new(&program)
        .args(["--load", "--lose-boards", "--scenario", "healthy"])
        .args(["--listen-port", &port.to_string()])
        .args(["--nodes", &nodes.to_string(), "--period", &format!("{period}s")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut server = Server(child);
    let mut list = String::new();
    let said = server.0.stdout.take().context("the simulator says nothing")?;
    BufReader::new(said).read_line(&mut list)?;
    Ok((server, list.trim().to_owned()))
}

/// The aggregator of these targets, and the settings that it was started with.
fn serve(targets: &str, options: &Options) -> anyhow::Result<(Process, NamedTempFile)> {
    let mut settings = tempfile::Builder::new().suffix(".toml").tempfile()?;
    let frames = options.wire == "frame";
    writeln!(settings, "[gather]\nframes = {frames}")?;
    writeln!(settings, "[history]\nevery_metric = {}", options.every_metric)?;
    let address = scrape::free_address()?;
    let mut command = Command::new(crate::built("gaunt")?);
    command.args(["serve", "--listen", &address, "--targets", targets]);
    command.args(["--period", &format!("{}s", options.period)]);
    // As its unit in config/systemd has it.
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    command.arg("--config").arg(settings.path());
    Ok((Process::start(command, address)?, settings))
}

/// What everybody was told until now.
struct Told {
    at: Instant,
    cpu: Usage,
    samples: f64,
    /// Pages that did not come, or too late.
    missed: f64,
    answer: Value,
}

impl Told {
    fn now(gaunt: &Process, client: &mut Client) -> anyhow::Result<Self> {
        let told = targets_told(client)?;
        let lines = told["targets"].as_array().context("no targets")?;
        let late = lines.iter().map(|line| line["missed"].as_f64().unwrap_or_default());
        let scrapes = told["totals"]["scrapes"].as_object().into_iter().flatten();
        let failed = scrapes.filter(|(outcome, _)| *outcome != "ok");
        let failed = failed.map(|(_, count)| count.as_f64().unwrap_or_default());
        let missed = late.chain(failed).sum();
        let samples = totals_of(&told, "samples");
        Ok(Self { at: Instant::now(), cpu: gaunt.usage()?, samples, missed, answer: told })
    }
}

/// What was seen within a window.
struct Seen {
    before: Told,
    after: Told,
    heatmap: Waits,
    history: Waits,
    finding: Waits,
}

/// Asks and watches for a while.
fn look(
    gaunt: &Process,
    client: &mut Client,
    nodes: usize,
    span: Duration,
) -> anyhow::Result<Seen> {
    let before = Told::now(gaunt, client)?;
    let over = AtomicBool::new(false);
    let (waits, finding) = thread::scope(|scope| {
        let watch = scope.spawn(|| watch::losses(&gaunt.address, nodes, &over));
        let waits = ask_meanwhile(client, span);
        over.store(true, Ordering::Relaxed);
        let losses = watch.join().map_err(|_| anyhow::anyhow!("whoever watched panicked"))??;
        anyhow::Ok((waits?, Waits::of(losses)))
    })?;
    let after = Told::now(gaunt, client)?;
    Ok(Seen { before, after, heatmap: waits.0, history: waits.1, finding })
}

fn measure(nodes: usize, options: &Options, quick: bool) -> anyhow::Result<Figures> {
    let (farm, targets) = simulator(nodes, options.period, 0)?;
    let port = targets.rsplit(':').next().context("the simulator does not say where it serves")?;
    let (gaunt, _settings) = serve(&targets, options)?;
    let mut client = Client::new(&gaunt.address)?;
    // Twice each: rates are known then, and layouts.
    await_scrapes(&mut client, 2 * nodes as u64)?;
    let seconds = options.seconds.unwrap_or(if quick { 20 } else { 60 });
    let seen = look(&gaunt, &mut client, nodes, Duration::from_secs(seconds))?;
    let Seen { before, after, .. } = &seen;
    let span = (after.at - before.at).as_secs_f64();
    let used = after.cpu.since(before.cpu, span).percent() / 100.0;
    let (resident, connections) = (gaunt.resident()?, established(port)?);
    ensure!(connections >= nodes as u64, "{connections} connections stand, not {nodes}");
    let lines = after.answer["targets"].as_array().context("no targets")?;
    let number = |line: &Value, name: &str| line[name].as_f64().unwrap_or_default();
    let samples = lines.iter().map(|line| number(line, "samples")).sum::<f64>();
    let mut lags: Vec<f64> = lines.iter().map(|line| number(line, "duration_ms")).collect();
    let consoles = (options.consoles > 0)
        .then(|| follow(&gaunt, &gaunt.address, options.consoles, seconds, used))
        .transpose()?;
    let storm =
        options.storm.then(|| storm::measure(farm, gaunt, &targets, options, nodes)).transpose()?;
    Ok(Figures {
        nodes,
        connections,
        samples: samples / nodes as f64,
        cores: used,
        resident,
        seconds: span,
        scraped: after.samples - before.samples,
        missed: (after.missed - before.missed) / (nodes as f64 * span / options.period as f64),
        lag: percentile(&mut lags, 99),
        heatmap: seen.heatmap,
        history: seen.history,
        consoles,
        finding: seen.finding,
        storm,
    })
}

/// Opens streams, waits until each has the whole overview, and measures as long as before.
fn follow(
    gaunt: &Process,
    address: &str,
    consoles: usize,
    seconds: u64,
    used_without: f64,
) -> anyhow::Result<Consoles> {
    let (heard, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..consoles {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PAUSE))?;
            write!(
                stream,
                "GET /api/gaunt/v1/stream?ask=overview HTTP/1.1\r\nHost: {address}\r\n\r\n"
            )?;
            let (heard, over) = (&heard, &over);
            scope.spawn(move || {
                let mut part = vec![0; 64 << 10];
                while !over.load(Ordering::Relaxed) {
                    // Nothing within a pause is no end.
                    let count = stream.read(&mut part).unwrap_or_default();
                    heard.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(SETTLING);
        let before = (Instant::now(), gaunt.usage(), heard.load(Ordering::Relaxed));
        thread::sleep(Duration::from_secs(seconds));
        let span = before.0.elapsed().as_secs_f64();
        let bytes = heard.load(Ordering::Relaxed) - before.2;
        let used = gaunt.usage();
        over.store(true, Ordering::Relaxed);
        let cores = used?.since(before.1?, span).percent() / 100.0;
        Ok(Consoles { cores: cores - used_without, bytes: bytes as f64 / span / consoles as f64 })
    })
}

fn targets_told(client: &mut Client) -> anyhow::Result<Value> {
    let (_, body) = client.get("/api/gaunt/v1/targets", PLAIN)?;
    Ok(serde_json::from_slice(body)?)
}

fn totals_of(told: &Value, name: &str) -> f64 {
    told["totals"][name].as_f64().unwrap_or_default()
}

fn await_scrapes(client: &mut Client, wanted: u64) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        // Before the first tick nobody knows any target.
        let told = targets_told(client)?;
        let ok = told["totals"]["scrapes"]["ok"].as_u64().unwrap_or_default();
        if ok >= wanted {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{ok} of {wanted} pages within {PATIENCE:?}: {}",
            told["totals"]
        );
        thread::sleep(Duration::from_secs(1));
    }
}

/// How long the heat map and one GPU's past are waited for.
fn ask_meanwhile(client: &mut Client, span: Duration) -> anyhow::Result<(Waits, Waits)> {
    let (mut heat, mut past) = (Vec::new(), Vec::new());
    let end = Instant::now() + span;
    let mut at = 0;
    while Instant::now() < end {
        at += 1;
        heat.push(client.get("/api/gaunt/v1/overview", PLAIN)?.0.as_secs_f64() * 1e3);
        let node = format!("gpu{:05}", at % 100 + 1);
        let ask = format!(
            "/api/gaunt/v1/history?metric=power&filter=node={node}%20and%20gpu=0&points={}",
            90 + at % 7
        );
        past.push(client.get(&ask, PLAIN)?.0.as_secs_f64() * 1e3);
        thread::sleep(PAUSE);
    }
    Ok((Waits::of(heat), Waits::of(past)))
}

fn percentile(values: &mut [f64], of: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * of / 100).copied().unwrap_or(f64::NAN)
}

/// Connections that stand to this port of this machine, as the kernel counts them.
fn established(port: &str) -> anyhow::Result<u64> {
    /// The code of an established connection.
    const ESTABLISHED: &str = "01";

    let port = format!(":{:04X}", port.parse::<u16>()?);
    let table = fs::read_to_string("/proc/net/tcp").context("cannot read /proc/net/tcp")?;
    let stands = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        let (remote, state) = (fields.next(), fields.next());
        remote.is_some_and(|remote| remote.ends_with(&port)) && state == Some(ESTABLISHED)
    };
    Ok(table.lines().filter(stands).count() as u64)
}
