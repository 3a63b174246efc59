//! Bench `gather`: cost of the whole scrape path. `gaunt serve`, Debian's Prometheus and VictoriaMetrics scrape the
//! same 1,000 targets of 960 samples every 10 s, at the same time, in the same encoding. CPU time is that of each
//! process alone.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::json;

use crate::{
    bench_pages::SAMPLES,
    bench_process::BenchProcess,
    scrape_client::{self, PLAIN, ScrapeClient},
    target_farm::{self, NODES},
};

/// The time between two scrapes of one target.
const PERIOD: Duration = Duration::from_secs(10);

/// Scrapes of each target before measuring starts: every series is known then.
const WARM_UP: u64 = 2;
const QUICK_WARM_UP: u64 = 1;

/// Measured time: whole periods.
const WINDOW: Duration = Duration::from_mins(1);
const QUICK_WINDOW: Duration = Duration::from_secs(10);

/// Time limit for a program to start serving.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The share of pages that may be missing in a window; above it the machine is too busy for a valid result.
const SLACK: f64 = 0.3;

/// Poll interval.
const POLL: Duration = Duration::from_millis(200);

/// The contenders, by their `User-Agent`.
const GAUNT: &str = "gaunt";
const PROMETHEUS: &str = "prometheus";
const VICTORIA: &str = "vm_promscrape";

/// Resource use of one contender in one encoding.
struct GatherFigure {
    name: &'static str,
    coding: &'static str,
    pages: u64,
    cpu: f64,
    resident: u64,
}

impl GatherFigure {
    /// Seconds of CPU time per million samples.
    fn per_million(&self) -> f64 {
        self.cpu / (self.pages as f64 * SAMPLES as f64) * 1e6
    }
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(quick: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "build with --release: figures of a debug build are meaningless"
    );
    let mut figures = Vec::new();
    let mut retained = 0;
    for coding in ["identity", "gzip"] {
        let (measured, samples) = measure_encoding(coding, quick)?;
        figures.extend(measured);
        retained = samples;
    }
    print_figures(&figures, retained, out)
}

fn print_figures(
    figures: &[GatherFigure],
    retained: u64,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "{NODES} targets × {SAMPLES} samples every {PERIOD:?}; gaunt keeps {retained} samples of a page, the others all"
    )?;
    writeln!(
        out,
        "{:24} {:>9} {:>8} {:>10} {:>12}",
        "", "pages", "CPU s", "CPU s/M", "resident MB"
    )?;
    for figure in figures {
        writeln!(
            out,
            "{:24} {:>9} {:>8.2} {:>10.3} {:>12.0}",
            format!("{}, {}", figure.name, figure.coding),
            figure.pages,
            figure.cpu,
            figure.per_million(),
            figure.resident as f64 / 1e6
        )?;
    }
    let find_figure = |name: &str, coding: &str| {
        figures.iter().find(|figure| figure.name == name && figure.coding == coding)
    };
    let cost = |name, coding| find_figure(name, coding).map(GatherFigure::per_million);
    let ratio = |name, coding| Some(cost(name, coding)? / cost(GAUNT, coding)?);
    let round = |value: Option<f64>| value.map(|value| (value * 1e3).round() / 1e3);
    let line = json!({
        "gaunt_cpu_s_per_million": round(cost(GAUNT, "identity")),
        "prometheus_cpu_s_per_million": round(cost(PROMETHEUS, "identity")),
        "ratio_cpu": round(ratio(PROMETHEUS, "identity")),
        "gaunt_cpu_s_per_million_gzip": round(cost(GAUNT, "gzip")),
        "prometheus_cpu_s_per_million_gzip": round(cost(PROMETHEUS, "gzip")),
        "ratio_cpu_gzip": round(ratio(PROMETHEUS, "gzip")),
        "victoria_cpu_s_per_million": round(cost(VICTORIA, "identity")),
        "victoria_cpu_s_per_million_gzip": round(cost(VICTORIA, "gzip")),
        "gaunt_rss_bytes": find_figure(GAUNT, "identity").map(|figure| figure.resident),
        "prometheus_rss_bytes": find_figure(PROMETHEUS, "identity").map(|figure| figure.resident),
        "samples": SAMPLES,
        "samples_kept": retained,
        "targets": NODES,
    });
    writeln!(out, "{line}").context("cannot write")
}

/// Runs every contender against one farm; also returns how many samples of a page gaunt keeps.
fn measure_encoding(coding: &'static str, quick: bool) -> anyhow::Result<(Vec<GatherFigure>, u64)> {
    let folder = tempfile::tempdir().context("cannot create a folder")?;
    let port: u16 =
        scrape_client::free_address()?.rsplit(':').next().unwrap_or_default().parse()?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["farm", "--farm", &port.to_string(), coding]);
    let _farm = BenchProcess::start_command(command, target_farm::node_address(0, port))?;
    let mut farm = connect_when_ready(&target_farm::node_address(0, port))?;
    let mut contenders = vec![
        (GAUNT, start_gaunt(folder.path(), port, coding)?),
        (PROMETHEUS, start_prometheus(folder.path(), port)?),
    ];
    if !quick && let Some(victoria) = start_victoria(folder.path(), port)? {
        contenders.push((VICTORIA, victoria));
    }
    let warm_up = u64::from(NODES) * if quick { QUICK_WARM_UP } else { WARM_UP };
    let end = Instant::now() + TIMEOUT;
    while read_usage(&contenders, &mut farm)?.iter().any(|(_, pages)| *pages < warm_up) {
        ensure!(Instant::now() < end, "not all contenders read {warm_up} pages within {TIMEOUT:?}");
        thread::sleep(POLL);
    }
    let window = if quick { QUICK_WINDOW } else { WINDOW };
    let before = read_usage(&contenders, &mut farm)?;
    thread::sleep(window);
    let after = read_usage(&contenders, &mut farm)?;
    let expected = f64::from(NODES) * window.as_secs_f64() / PERIOD.as_secs_f64();
    let mut figures = Vec::new();
    for (((name, process), before), after) in contenders.iter().zip(before).zip(after) {
        let pages = after.1 - before.1;
        ensure!(
            pages as f64 > (1.0 - SLACK) * expected,
            "{name} scraped {pages} pages, not {expected}: the machine is too busy to measure"
        );
        let resident = process.resident_bytes()?;
        figures.push(GatherFigure { name, coding, pages, cpu: after.0 - before.0, resident });
    }
    let (pages, samples) = read_scrape_totals(&contenders[0].1.address)?;
    ensure!(pages >= u64::from(NODES), "gaunt ingested only {pages} pages");
    Ok((figures, samples / pages))
}

/// A client of a program that may still be starting.
fn connect_when_ready(address: &str) -> anyhow::Result<ScrapeClient> {
    let end = Instant::now() + TIMEOUT;
    loop {
        match ScrapeClient::new(address) {
            Ok(client) => return Ok(client),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => {}
        }
    }
}

/// CPU seconds and pages of every contender until now.
fn read_usage(
    contenders: &[(&'static str, BenchProcess)],
    farm: &mut ScrapeClient,
) -> anyhow::Result<Vec<(f64, u64)>> {
    let served: BTreeMap<String, u64> = serde_json::from_slice(farm.get("/served", PLAIN)?.1)?;
    let mut usages = Vec::new();
    for (name, process) in contenders {
        let usage = process.read_cpu_usage()?;
        usages.push((usage.own + usage.children, served.get(*name).copied().unwrap_or(0)));
    }
    Ok(usages)
}

/// Pages that gaunt ingested since its start, and samples on them, from its own metrics.
fn read_scrape_totals(address: &str) -> anyhow::Result<(u64, u64)> {
    let mut client = ScrapeClient::new(address)?;
    let page = client.scrape_page()?;
    let value = |name: &str| -> Option<u64> {
        let (_, rest) = page.split_once(&format!("\n{name} "))?;
        Some(rest.split('\n').next()?.parse::<f64>().ok()? as u64)
    };
    let pages =
        value("gaunt_scrapes_total{outcome=\"ok\"}").context("gaunt has no count of pages")?;
    Ok((pages, value("gaunt_samples_total").context("gaunt has no count of samples")?))
}

fn start_gaunt(folder: &Path, port: u16, coding: &str) -> anyhow::Result<BenchProcess> {
    let targets: Vec<String> =
        (0..NODES).map(|node| target_farm::node_address(node, port)).collect();
    let list = folder.join("targets");
    fs::write(&list, targets.join("\n"))?;
    let settings = folder.join("gaunt.toml");
    let compress = coding == "gzip";
    let text = format!(
        "[gather]\ncompress = {compress}\nperiod = \"10s\"\ntargets_files = [\"targets\"]\n"
    );
    fs::write(&settings, text)?;
    let address = scrape_client::free_address()?;
    let mut command = Command::new(crate::built_program("gaunt")?);
    command.args(["serve", "--listen", &address, "--config"]).arg(settings);
    BenchProcess::start_command(command, address)
}

/// The configuration shared by Prometheus and VictoriaMetrics.
fn write_prometheus_config(folder: &Path, port: u16) -> anyhow::Result<PathBuf> {
    let targets: Vec<String> =
        (0..NODES).map(|node| format!("'{}'", target_farm::node_address(node, port))).collect();
    let path = folder.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: {}s}}\nscrape_configs:\n- job_name: farm\n  static_configs:\n  - targets: [{}]\n",
        PERIOD.as_secs(),
        targets.join(",")
    );
    fs::write(&path, text)?;
    Ok(path)
}

fn start_prometheus(folder: &Path, port: u16) -> anyhow::Result<BenchProcess> {
    let address = scrape_client::free_address()?;
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", write_prometheus_config(folder, port)?.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={address}"));
    BenchProcess::start_command(command, address).context("install prometheus, as tests/run does")
}

/// VictoriaMetrics where it is installed.
fn start_victoria(folder: &Path, port: u16) -> anyhow::Result<Option<BenchProcess>> {
    if !Path::new("/usr/bin/victoria-metrics").exists() {
        return Ok(None);
    }
    let address = scrape_client::free_address()?;
    let mut command = Command::new("victoria-metrics");
    command
        .arg(format!("-promscrape.config={}", write_prometheus_config(folder, port)?.display()))
        .arg(format!("-storageDataPath={}", folder.join("victoria").display()))
        .arg(format!("-httpListenAddr={address}"));
    BenchProcess::start_command(command, address).map(Some)
}
