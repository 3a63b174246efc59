//! Bench `versus-prometheus`: gaunt and Debian's Prometheus on the same targets at once, with equal history, judge on.
//! gaunt runs twice: once scraping frames from its own exporters, once scraping text. CPU time and memory are those of
//! each process alone.

use std::{
    fs,
    io::Write,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::json;

use crate::{
    bench_process::BenchProcess,
    fleet_bench,
    scrape_client::{self, ScrapeClient},
};

/// Nodes of the farm, 960 samples each.
const NODES: usize = 1_000;

/// Seconds between two scrapes of a node.
const PERIOD: u64 = 10;

/// Duration: the history fills; measured are the last minute, and memory at its end.
const SPAN: Duration = Duration::from_mins(15);
const QUICK_SPAN: Duration = Duration::from_mins(3);
const WINDOW: Duration = Duration::from_mins(1);

/// The share of samples that may be missing; above it the machine is too busy for a valid result.
const SLACK: f64 = 0.1;

/// A program that scrapes the farm.
struct VersusContender {
    name: &'static str,
    process: BenchProcess,
}

/// Resource use of one contender within the window.
struct VersusFigure {
    name: &'static str,
    samples: f64,
    cores: f64,
    resident: u64,
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(quick: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "build with --release: figures of a debug build are meaningless"
    );
    let folder = tempfile::tempdir().context("cannot create a folder")?;
    let (_simulator, targets) = fleet_bench::start_simulator(NODES, PERIOD, 0)?;
    let port = targets.rsplit(':').next().context("the simulator printed no address")?;
    let contenders = [
        start_gaunt("gaunt", true, &targets, folder.path())?,
        start_gaunt("gaunt, text", false, &targets, folder.path())?,
        start_prometheus(port, folder.path())?,
    ];
    let span = if quick { QUICK_SPAN } else { SPAN };
    thread::sleep(span.saturating_sub(WINDOW));
    let before = (Instant::now(), read_usage(&contenders)?);
    thread::sleep(WINDOW);
    let (seconds, after) = (before.0.elapsed().as_secs_f64(), read_usage(&contenders)?);
    let mut figures = Vec::new();
    for ((contender, before), after) in contenders.iter().zip(before.1).zip(after) {
        let samples = (after.1 - before.1) / seconds;
        let expected = (NODES * fleet_bench::SAMPLES) as f64 / PERIOD as f64;
        ensure!(
            samples > expected * (1.0 - SLACK),
            "{} ingested {samples:.0} samples per second, not {expected}: the machine is too busy to measure",
            contender.name
        );
        let cores = (after.0 - before.0) / seconds;
        let resident = contender.process.resident_bytes()?;
        figures.push(VersusFigure { name: contender.name, samples, cores, resident });
    }
    print_figures(&figures, span, out)
}

fn print_figures(
    figures: &[VersusFigure],
    span: Duration,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let samples = fleet_bench::SAMPLES;
    writeln!(
        out,
        "{NODES} nodes × {samples} samples every {PERIOD} s, {span:?} of history per series"
    )?;
    writeln!(out, "{:14} {:>10} {:>9} {:>10} {:>9}", "", "samples/s", "cores", "MB", "B/series")?;
    let series = (NODES * fleet_bench::SAMPLES) as f64;
    for VersusFigure { name, samples, cores, resident } in figures {
        let (mb, bytes_per_series) = (*resident as f64 / 1e6, *resident as f64 / series);
        writeln!(out, "{name:14} {samples:>10.0} {cores:>9.4} {mb:>10.0} {bytes_per_series:>9.0}")?;
    }
    let [gaunt, text, prometheus] = figures else { return Ok(()) };
    let round = |value: f64| (value * 1e3).round() / 1e3;
    let line = json!({
        "targets": NODES,
        "samples_per_target": samples,
        "span_s": span.as_secs(),
        "gaunt_cores": gaunt.cores,
        "gaunt_text_cores": text.cores,
        "prometheus_cores": prometheus.cores,
        "gaunt_rss_bytes": gaunt.resident,
        "gaunt_text_rss_bytes": text.resident,
        "prometheus_rss_bytes": prometheus.resident,
        "ratio_cpu": round(prometheus.cores / gaunt.cores),
        "ratio_bytes": round(prometheus.resident as f64 / gaunt.resident as f64),
        "ratio_cpu_text": round(prometheus.cores / text.cores),
        "ratio_bytes_text": round(prometheus.resident as f64 / text.resident as f64),
    });
    writeln!(out, "{line}").context("cannot write")
}

/// CPU seconds and samples of each until now.
fn read_usage(contenders: &[VersusContender]) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut usages = Vec::new();
    for VersusContender { name, process } in contenders {
        let mut client = ScrapeClient::new(&process.address)?;
        let names: &[&str] = if *name == PROMETHEUS { &APPENDED } else { &["gaunt_samples_total"] };
        let page = client.scrape_page()?;
        let value = |name: &&str| page.split_once(&format!("\n{name} "));
        let (_, rest) = names
            .iter()
            .find_map(value)
            .with_context(|| format!("{name} has no counter of samples"))?;
        let samples: f64 = rest.split('\n').next().unwrap_or_default().parse()?;
        let usage = process.read_cpu_usage()?;
        usages.push((usage.own + usage.children, samples));
    }
    Ok(usages)
}

/// Name of Prometheus in the table.
const PROMETHEUS: &str = "Prometheus";

/// Prometheus's counter of ingested samples, by version.
const APPENDED: [&str; 2] = [
    "prometheus_tsdb_head_samples_appended_total",
    "prometheus_tsdb_head_samples_appended_total{type=\"float\"}",
];

fn start_gaunt(
    name: &'static str,
    frames: bool,
    targets: &str,
    folder: &Path,
) -> anyhow::Result<VersusContender> {
    let settings = folder.join(format!("{frames}.toml"));
    // Prometheus keeps every series, and so does gaunt here.
    fs::write(&settings, format!("[gather]\nframes = {frames}\n[history]\nevery_metric = true\n"))?;
    let address = scrape_client::free_address()?;
    let mut command = Command::new(crate::built_program("gaunt")?);
    command.args(["serve", "--listen", &address, "--targets", targets]);
    command.args(["--period", &format!("{PERIOD}s"), "--config"]).arg(settings);
    Ok(VersusContender { name, process: BenchProcess::start_command(command, address)? })
}

fn start_prometheus(port: &str, folder: &Path) -> anyhow::Result<VersusContender> {
    let target = |node: usize| format!("'127.1.{}.{}:{port}'", node / 250, node % 250 + 1);
    let targets: Vec<String> = (0..NODES).map(target).collect();
    let config = folder.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: {PERIOD}s}}\nscrape_configs:\n- job_name: farm\n  static_configs:\n  - targets: [{}]\n",
        targets.join(",")
    );
    fs::write(&config, text)?;
    let address = scrape_client::free_address()?;
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"));
    let process = BenchProcess::start_command(command, address)
        .context("install prometheus, as tests/run does")?;
    Ok(VersusContender { name: PROMETHEUS, process })
}
