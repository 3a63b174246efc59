//! Bench `fleet`: the aggregator on a fleet of precomputed pages, with the judge and concurrent queries. CPU time and
//! memory are those of `gaunt serve` alone; response times include other load on the machine.

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
    bench_process::{BenchProcess, CpuUsage},
    scrape_client::{self, PLAIN, ScrapeClient},
};

mod loss_latency;
pub(crate) mod pressure;
mod reconnect_storm;

use reconnect_storm::ReconnectFigures;

/// Samples of one page of the farm.
pub(crate) const SAMPLES: usize = 960;

/// The fleet sizes of --growth.
const GROWTH: [usize; 4] = [100, 1_000, 5_000, 12_500];

/// Time limit until every target was scraped.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Time for streams to start.
const SETTLING: Duration = Duration::from_secs(5);

/// The time between two questions.
const PAUSE: Duration = Duration::from_millis(50);

/// Options of `fleet`.
#[derive(Args, Clone, Debug)]
#[group(id = "fleet")]
pub(crate) struct FleetBenchOptions {
    /// `fleet`: number of nodes, 960 samples each.
    #[arg(long, default_value_t = 12_500)]
    nodes: usize,
    /// `fleet`: scrape period in seconds.
    #[arg(long, default_value_t = 10)]
    period: u64,
    /// `fleet`: format of pages.
    #[arg(long, default_value = "text", value_parser = ["text", "frame"])]
    wire: String,
    /// `fleet`: seconds to measure after every node was scraped twice; 15 minutes and a period fill the history.
    #[arg(long)]
    seconds: Option<u64>,
    /// `fleet`: consoles that stream the overview in a second window of the same length, to measure their cost.
    #[arg(long, default_value_t = 0)]
    consoles: usize,
    /// `fleet`: keep history of every metric, not only of those on screens.
    #[arg(long)]
    every_metric: bool,
    /// `fleet`: afterwards stop and restart all exporters at once, and restart the aggregator.
    #[arg(long)]
    storm: bool,
    /// `fleet`: measure at 100, 1,000, 5,000 and 12,500 nodes in turn.
    #[arg(long)]
    growth: bool,
}

impl FleetBenchOptions {
    /// A fleet that is read as frames every second.
    fn frames_every_second(nodes: usize) -> Self {
        Self {
            nodes,
            period: 1,
            wire: "frame".to_owned(),
            seconds: None,
            consoles: 0,
            every_metric: false,
            storm: false,
            growth: false,
        }
    }
}

/// Figures of one fleet.
struct FleetFigures {
    nodes: usize,
    connections: u64,
    samples: f64,
    cores: f64,
    resident: u64,
    seconds: f64,
    scraped: f64,
    missed: f64,
    duration_p99_ms: f64,
    heatmap: WaitTimes,
    history: WaitTimes,
    consoles: Option<ConsoleCost>,
    /// Milliseconds from the loss of a GPU to its finding.
    finding: WaitTimes,
    storm: Option<ReconnectFigures>,
}

/// Cost of consoles that stream the overview.
#[derive(Clone, Copy, Debug)]
struct ConsoleCost {
    /// Additional cores.
    cores: f64,
    /// Bytes per second and console, after the first whole overview.
    bytes: f64,
}

/// Response times in milliseconds.
#[derive(Clone, Copy, Debug)]
struct WaitTimes {
    median: f64,
    p99: f64,
}

impl WaitTimes {
    fn of(mut waits: Vec<f64>) -> Self {
        Self { median: percentile_of(&mut waits, 50), p99: percentile_of(&mut waits, 99) }
    }
}

impl FleetFigures {
    fn series_count(&self) -> f64 {
        self.samples * self.nodes as f64
    }

    fn to_json(&self, options: &FleetBenchOptions) -> Value {
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
            "bytes_per_series": round(self.resident as f64 / self.series_count()),
            "missed_per_million": round(self.missed * 1e6),
            "lag_p99_ms": round(self.duration_p99_ms),
            "consoles": options.consoles,
            "console_cores": self.consoles.map(|consoles| round(consoles.cores)),
            "console_bytes_s": self.consoles.map(|consoles| round(consoles.bytes)),
            "heatmap_p50_ms": round(self.heatmap.median),
            "heatmap_p99_ms": round(self.heatmap.p99),
            "history_p50_ms": round(self.history.median),
            "history_p99_ms": round(self.history.p99),
            "finding_lag_ms": round(self.finding.median),
            "finding_lag_p99_ms": round(self.finding.p99),
            "every_metric": options.every_metric,
            "reconnect_s": self.storm.map(|storm| round(storm.reconnect)),
            "reconnect_wave": self.storm.map(|storm| round(storm.peak_rate_ratio)),
            "restart_s": self.storm.map(|storm| round(storm.restart)),
        })
    }
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(
    options: &FleetBenchOptions,
    quick: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "build with --release: figures of a debug build are meaningless"
    );
    let single = [options.nodes];
    let sizes: &[usize] = if options.growth { &GROWTH } else { &single };
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
        "hist ms",
        "find ms"
    )?;
    let mut lines = Vec::new();
    for nodes in sizes {
        let figures = measure_fleet(*nodes, options, quick)?;
        let line = figures.to_json(options);
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
            figures.duration_p99_ms,
            figures.heatmap.p99,
            figures.history.p99,
            figures.finding.median
        )?;
        lines.push(line);
    }
    let output = if options.growth { Value::Array(lines) } else { lines.remove(0) };
    writeln!(out, "{output}").context("cannot write")
}

/// A program that ends with the bench.
pub(crate) struct BenchServerProcess(Child);

impl Drop for BenchServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Starts a simulator of so many nodes; also returns its targets as a host list.
pub(crate) fn start_simulator(
    nodes: usize,
    period: u64,
    port: u16,
) -> anyhow::Result<(BenchServerProcess, String)> {
    let program = crate::built_program("gaunt-sim")?;
    let child = Command::new(&program)
        .args(["--load", "--lose-boards", "--scenario", "healthy"])
        .args(["--listen-port", &port.to_string()])
        .args(["--nodes", &nodes.to_string(), "--period", &format!("{period}s")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut server = BenchServerProcess(child);
    let mut list = String::new();
    let output = server.0.stdout.take().context("the simulator has no standard output")?;
    BufReader::new(output).read_line(&mut list)?;
    Ok((server, list.trim().to_owned()))
}

/// Starts the aggregator of these targets; also returns its settings file.
fn start_aggregator(
    targets: &str,
    options: &FleetBenchOptions,
) -> anyhow::Result<(BenchProcess, NamedTempFile)> {
    let mut settings = tempfile::Builder::new().suffix(".toml").tempfile()?;
    let frames = options.wire == "frame";
    writeln!(settings, "[gather]\nframes = {frames}")?;
    writeln!(settings, "[history]\nevery_metric = {}", options.every_metric)?;
    let address = scrape_client::free_address()?;
    let mut command = Command::new(crate::built_program("gaunt")?);
    command.args(["serve", "--listen", &address, "--targets", targets]);
    command.args(["--period", &format!("{}s", options.period)]);
    // As in its unit in config/systemd.
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1");
    command.arg("--config").arg(settings.path());
    Ok((BenchProcess::start_command(command, address)?, settings))
}

/// Counters of the aggregator and of its process until now.
struct FleetCounters {
    at: Instant,
    cpu: CpuUsage,
    samples: f64,
    /// Pages that are missing or late.
    missed: f64,
    answer: Value,
}

impl FleetCounters {
    fn read_now(gaunt: &BenchProcess, client: &mut ScrapeClient) -> anyhow::Result<Self> {
        let answer = fetch_targets(client)?;
        let lines = answer["targets"].as_array().context("no targets")?;
        let late = lines.iter().map(|line| line["missed"].as_f64().unwrap_or_default());
        let scrapes = answer["totals"]["scrapes"].as_object().into_iter().flatten();
        let failed = scrapes.filter(|(outcome, _)| *outcome != "ok");
        let failed = failed.map(|(_, count)| count.as_f64().unwrap_or_default());
        let missed = late.chain(failed).sum();
        let samples = total_of(&answer, "samples");
        Ok(Self { at: Instant::now(), cpu: gaunt.read_cpu_usage()?, samples, missed, answer })
    }
}

/// Observations within a window.
struct FleetWindow {
    before: FleetCounters,
    after: FleetCounters,
    heatmap: WaitTimes,
    history: WaitTimes,
    finding: WaitTimes,
}

/// Times queries and watches findings for a while.
fn observe_window(
    gaunt: &BenchProcess,
    client: &mut ScrapeClient,
    nodes: usize,
    span: Duration,
) -> anyhow::Result<FleetWindow> {
    let before = FleetCounters::read_now(gaunt, client)?;
    let is_over = AtomicBool::new(false);
    let (waits, finding) = thread::scope(|scope| {
        let watch =
            scope.spawn(|| loss_latency::measure_loss_latency(&gaunt.address, nodes, &is_over));
        let waits = time_questions(client, span);
        is_over.store(true, Ordering::Relaxed);
        let losses =
            watch.join().map_err(|_| anyhow::anyhow!("the watching thread panicked"))??;
        anyhow::Ok((waits?, WaitTimes::of(losses)))
    })?;
    let after = FleetCounters::read_now(gaunt, client)?;
    Ok(FleetWindow { before, after, heatmap: waits.0, history: waits.1, finding })
}

fn measure_fleet(
    nodes: usize,
    options: &FleetBenchOptions,
    quick: bool,
) -> anyhow::Result<FleetFigures> {
    let (farm, targets) = start_simulator(nodes, options.period, 0)?;
    let port = targets.rsplit(':').next().context("the simulator printed no address")?;
    let (gaunt, _settings) = start_aggregator(&targets, options)?;
    let mut client = ScrapeClient::new(&gaunt.address)?;
    // After two scrapes rates and layouts are known.
    wait_for_scrapes(&mut client, 2 * nodes as u64)?;
    let seconds = options.seconds.unwrap_or(if quick { 20 } else { 60 });
    let window = observe_window(&gaunt, &mut client, nodes, Duration::from_secs(seconds))?;
    let FleetWindow { before, after, .. } = &window;
    let span = (after.at - before.at).as_secs_f64();
    let used = after.cpu.percent_since(before.cpu, span).total_percent() / 100.0;
    let (resident, connections) = (gaunt.resident_bytes()?, count_connections(port)?);
    ensure!(connections >= nodes as u64, "{connections} connections are open, not {nodes}");
    let lines = after.answer["targets"].as_array().context("no targets")?;
    let number = |line: &Value, name: &str| line[name].as_f64().unwrap_or_default();
    let samples = lines.iter().map(|line| number(line, "samples")).sum::<f64>();
    let mut lags: Vec<f64> = lines.iter().map(|line| number(line, "duration_ms")).collect();
    let consoles = (options.consoles > 0)
        .then(|| measure_consoles(&gaunt, &gaunt.address, options.consoles, seconds, used))
        .transpose()?;
    let storm = options
        .storm
        .then(|| reconnect_storm::measure_storms(farm, gaunt, &targets, options, nodes))
        .transpose()?;
    Ok(FleetFigures {
        nodes,
        connections,
        samples: samples / nodes as f64,
        cores: used,
        resident,
        seconds: span,
        scraped: after.samples - before.samples,
        missed: (after.missed - before.missed) / (nodes as f64 * span / options.period as f64),
        duration_p99_ms: percentile_of(&mut lags, 99),
        heatmap: window.heatmap,
        history: window.history,
        consoles,
        finding: window.finding,
        storm,
    })
}

/// Opens streams, waits until each has the whole overview, and measures for the same time as before.
fn measure_consoles(
    gaunt: &BenchProcess,
    address: &str,
    consoles: usize,
    seconds: u64,
    used_without: f64,
) -> anyhow::Result<ConsoleCost> {
    let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..consoles {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(PAUSE))?;
            write!(
                stream,
                "GET /api/gaunt/v1/stream?ask=overview HTTP/1.1\r\nHost: {address}\r\n\r\n"
            )?;
            let (received, is_over) = (&received, &is_over);
            scope.spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while !is_over.load(Ordering::Relaxed) {
                    // A timeout is not the end of the stream.
                    let count = stream.read(&mut buffer).unwrap_or_default();
                    received.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(SETTLING);
        let before = (Instant::now(), gaunt.read_cpu_usage(), received.load(Ordering::Relaxed));
        thread::sleep(Duration::from_secs(seconds));
        let span = before.0.elapsed().as_secs_f64();
        let bytes = received.load(Ordering::Relaxed) - before.2;
        let used = gaunt.read_cpu_usage();
        is_over.store(true, Ordering::Relaxed);
        let cores = used?.percent_since(before.1?, span).total_percent() / 100.0;
        Ok(ConsoleCost {
            cores: cores - used_without,
            bytes: bytes as f64 / span / consoles as f64,
        })
    })
}

fn fetch_targets(client: &mut ScrapeClient) -> anyhow::Result<Value> {
    let (_, body) = client.get("/api/gaunt/v1/targets", PLAIN)?;
    Ok(serde_json::from_slice(body)?)
}

fn total_of(answer: &Value, name: &str) -> f64 {
    answer["totals"][name].as_f64().unwrap_or_default()
}

fn wait_for_scrapes(client: &mut ScrapeClient, wanted: u64) -> anyhow::Result<()> {
    let end = Instant::now() + TIMEOUT;
    loop {
        // Before the first tick the answer has no targets.
        let answer = fetch_targets(client)?;
        let ok = answer["totals"]["scrapes"]["ok"].as_u64().unwrap_or_default();
        if ok >= wanted {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{ok} of {wanted} pages within {TIMEOUT:?}: {}",
            answer["totals"]
        );
        thread::sleep(Duration::from_secs(1));
    }
}

/// Response times of the heat map and of one GPU's history.
fn time_questions(
    client: &mut ScrapeClient,
    span: Duration,
) -> anyhow::Result<(WaitTimes, WaitTimes)> {
    let (mut heat, mut history) = (Vec::new(), Vec::new());
    let end = Instant::now() + span;
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        heat.push(client.get("/api/gaunt/v1/overview", PLAIN)?.0.as_secs_f64() * 1e3);
        let node = format!("gpu{:05}", number % 100 + 1);
        let ask = format!(
            "/api/gaunt/v1/history?metric=power&filter=node={node}%20and%20gpu=0&points={}",
            90 + number % 7
        );
        history.push(client.get(&ask, PLAIN)?.0.as_secs_f64() * 1e3);
        thread::sleep(PAUSE);
    }
    Ok((WaitTimes::of(heat), WaitTimes::of(history)))
}

fn percentile_of(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

/// Open connections to this port of this machine, from the kernel's table.
fn count_connections(port: &str) -> anyhow::Result<u64> {
    /// The code of an established connection.
    const ESTABLISHED: &str = "01";

    let port = format!(":{:04X}", port.parse::<u16>()?);
    let table = fs::read_to_string("/proc/net/tcp").context("cannot read /proc/net/tcp")?;
    let is_open = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        let (remote, state) = (fields.next(), fields.next());
        remote.is_some_and(|remote| remote.ends_with(&port)) && state == Some(ESTABLISHED)
    };
    Ok(table.lines().filter(is_open).count() as u64)
}
