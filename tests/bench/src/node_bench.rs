//! Bench `node`: cost of gaunt-node on a node with 8 GPUs and 8 ports, once a second, compared with Debian's
//! prometheus-node-exporter.
//!
//! Both read the same device tree and are scraped by the same client in turn, so that other load on the machine slows
//! both equally. The GPUs are the fake driver's; its CPU time is counted for the worker, so the figures are upper
//! bounds.

mod device_tree;

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail, ensure};
use serde_json::json;

use crate::{
    bench_process::{BenchProcess, CpuUsage},
    scrape_client::{self, OPEN_GZIP, PLAIN, ScrapeClient},
};

/// Duration of the CPU time measurement, at one scrape a second.
const CALM: Duration = Duration::from_mins(1);

/// Timed scrapes of each kind. They include the first one of each tick: at least two in a hundred.
const SCRAPES: usize = 1000;

/// The time between two rounds of scrapes.
const BETWEEN: Duration = Duration::from_millis(40);

/// Time limit for a program to start serving, and for a hang to be flagged.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The period of gaunt-node, in seconds.
const PERIOD: f64 = 1.0;

/// The driver call that hangs, and when.
const HANG: &str =
    "\n[[fault]]\ncall = \"nvmlDeviceGetPowerUsage\"\ngpu = 1\nfrom = 5.0\nhang = true\n";

/// Measures, prints the table and the JSON line.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot create a folder")?;
    let sys = folder.path().join("sys");
    device_tree::write_tree(&sys).context("cannot create the device tree")?;
    let eight = fixture_path("scenarios/eight.toml");
    let hanging = folder.path().join("hanging.toml");
    let scenario = std::fs::read_to_string(&eight).context("cannot read the scenario")?;
    std::fs::write(&hanging, scenario + HANG).context("cannot write the scenario")?;

    let gaunt_node = start_node(&sys, &eight)?;
    let node_exporter = start_node_exporter(&sys)?;
    let (mut gaunt_client, mut peer_client) =
        (ScrapeClient::new(&gaunt_node.address)?, ScrapeClient::new(&node_exporter.address)?);
    gaunt_client
        .wait_for_page(TIMEOUT, |page| page.contains("gaunt_gpu_power_watts{gpu=\"7\"}"))?;
    let (text, peer_text) = (gaunt_client.scrape_page()?, peer_client.scrape_page()?);
    let usage =
        measure_usage([(&gaunt_node, &mut gaunt_client), (&node_exporter, &mut peer_client)])?;
    let memory = [gaunt_node.memory_bytes(FAKE_DRIVER)?, node_exporter.memory_bytes(FAKE_DRIVER)?];

    let hung = start_node(&sys, &hanging)?;
    let mut hung_client = ScrapeClient::new(&hung.address)?;
    let flagged = measure_hang_detection(&mut hung_client)?;
    let times = measure_scrape_times(&mut [
        (&mut gaunt_client, PLAIN),
        (&mut connect_again(&gaunt_node)?, OPEN_GZIP),
        (&mut hung_client, PLAIN),
        (&mut peer_client, PLAIN),
    ])?;
    let gzip = gaunt_client.scrape_metrics(OPEN_GZIP)?.1.len();
    let figures =
        NodeFigures { text, peer_text, usage, memory, hang_detected_s: flagged, times, gzip };
    figures.print_table(out)
}

fn connect_again(process: &BenchProcess) -> anyhow::Result<ScrapeClient> {
    ScrapeClient::new(&process.address)
}

/// All measured figures.
struct NodeFigures {
    text: String,
    peer_text: String,
    /// gaunt-node's, node_exporter's.
    usage: [CpuUsage; 2],
    /// gaunt-node's, node_exporter's.
    memory: [u64; 2],
    hang_detected_s: f64,
    /// In milliseconds, in order: ours, ours compressed, ours with a driver that hangs, theirs.
    times: [Vec<f64>; 4],
    gzip: usize,
}

impl NodeFigures {
    fn print_table(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let [ours, theirs] = self.usage;
        let [plain, gzip, hung, peer] = &self.times;
        let (series, peer_series) = (count_series(&self.text), count_series(&self.peer_text));
        let mut row = |what: &str, ours: String, theirs: String| {
            writeln!(out, "{what:42} {ours:>12} {theirs:>22}")
        };
        row("", "gaunt-node".to_owned(), "prometheus-node-exporter".to_owned())?;
        row("series", series.to_string(), peer_series.to_string())?;
        row("text, bytes", self.text.len().to_string(), self.peer_text.len().to_string())?;
        row(
            "% of a core at one scrape per second",
            two_decimals(ours.total_percent()),
            two_decimals(theirs.total_percent()),
        )?;
        row("  of which the NVML worker", two_decimals(ours.children), String::new())?;
        row(
            "memory (PSS), MB",
            format_megabytes(self.memory[0]),
            format_megabytes(self.memory[1]),
        )?;
        for (what, rank) in [("p50", 0.5), ("p99", 0.99)] {
            let percentile = |times: &[f64]| format!("{:.3}", percentile_of(times, rank));
            row(&format!("scrape ms, {what}"), percentile(plain), percentile(peer))?;
            row("  OpenMetrics, compressed", percentile(gzip), String::new())?;
            row("  with NVML hung", percentile(hung), String::new())?;
        }
        row("s from a hang to its report", two_decimals(self.hang_detected_s), String::new())?;
        let p99 = |times: &[f64]| round_to(percentile_of(times, 0.99), 1e3);
        let line = json!({
            "series": series,
            "cpu_percent": round_to(ours.total_percent(), 1e3),
            "cpu_worker_percent": round_to(ours.children, 1e3),
            "pss_bytes": self.memory[0],
            "scrape_p50_ms": round_to(percentile_of(plain, 0.5), 1e3),
            "scrape_p99_ms": p99(plain),
            "scrape_gzip_p99_ms": p99(gzip),
            "scrape_p99_hung_ms": p99(hung),
            "hang_flagged_s": round_to(self.hang_detected_s, 1e2),
            "text_bytes": self.text.len(),
            "gzip_bytes": self.gzip,
            "peer_series": peer_series,
            "peer_cpu_percent": round_to(theirs.total_percent(), 1e3),
            "peer_pss_bytes": self.memory[1],
            "peer_scrape_p50_ms": round_to(percentile_of(peer, 0.5), 1e3),
            "peer_scrape_p99_ms": p99(peer),
            "peer_text_bytes": self.peer_text.len(),
        });
        writeln!(out, "{line}").context("cannot write")
    }
}

/// The fake driver's library: its memory is not counted for the exporter.
const FAKE_DRIVER: &str = "libgaunt_fake_driver.so";

/// gaunt-node of this build over the tree, in a scenario of the fake driver.
fn start_node(sys: &Path, scenario: &Path) -> anyhow::Result<BenchProcess> {
    let address = scrape_client::free_address()?;
    let mut command = Command::new(built_file("gaunt-node")?);
    command
        .args(["--listen", &address, "--sys-root"])
        .arg(sys)
        .arg("--nvml-library")
        .arg(built_file(FAKE_DRIVER)?)
        .env("GAUNT_FAKE_DRIVER", scenario);
    BenchProcess::start_command(command, address)
}

/// Debian's exporter over the same tree, with the collectors that match gaunt-node's.
fn start_node_exporter(sys: &Path) -> anyhow::Result<BenchProcess> {
    let address = scrape_client::free_address()?;
    let mut command = Command::new("prometheus-node-exporter");
    command.arg("--collector.disable-defaults").args(
        ["cpu", "infiniband", "meminfo", "netclass", "netdev", "pressure", "stat", "time", "uname"]
            .map(|name| format!("--collector.{name}")),
    );
    command
        .arg(format!("--path.sysfs={}", sys.display()))
        .arg(format!("--web.listen-address={address}"));
    BenchProcess::start_command(command, address)
        .context("install prometheus-node-exporter, as tests/run does")
}

/// Resource use of each process while it is scraped once a second, as Prometheus does.
fn measure_usage(
    mut processes: [(&BenchProcess, &mut ScrapeClient); 2],
) -> anyhow::Result<[CpuUsage; 2]> {
    let begun = Instant::now();
    let mut before = Vec::new();
    for (process, _) in &processes {
        before.push(process.read_cpu_usage()?);
    }
    for second in 1..=CALM.as_secs() {
        for (_, client) in &mut processes {
            client.scrape_metrics(OPEN_GZIP)?;
        }
        thread::sleep(
            (begun + Duration::from_secs(second)).saturating_duration_since(Instant::now()),
        );
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut usage = Vec::new();
    for ((process, _), before) in processes.iter().zip(before) {
        usage.push(process.read_cpu_usage()?.percent_since(before, seconds));
    }
    usage.try_into().map_err(|_| anyhow::anyhow!("two processes have two usages"))
}

/// Seconds from the beginning of the round in which a call hangs until a page reports it.
fn measure_hang_detection(client: &mut ScrapeClient) -> anyhow::Result<f64> {
    client.wait_for_page(TIMEOUT, |page| page.contains("gaunt_gpu_power_watts{gpu=\"7\"}"))?;
    let page = client.wait_for_page(TIMEOUT, |page| {
        page.contains("\ngaunt_collector_success{collector=\"nvml\"} 0\n")
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is not set")?;
    let key = "\ngaunt_collector_last_success_timestamp_seconds{collector=\"nvml\"} ";
    let last = page.split_once(key).and_then(|(_, rest)| rest.split('\n').next());
    let last: f64 = last.context("the page has no last success")?.parse()?;
    // The round after the last successful one began a period later.
    Ok(now.as_secs_f64() - last - PERIOD)
}

/// Durations of scrapes in milliseconds, one of each kind in turn, round after round.
fn measure_scrape_times<const N: usize>(
    kinds: &mut [(&mut ScrapeClient, &str); N],
) -> anyhow::Result<[Vec<f64>; N]> {
    let mut times = [const { Vec::new() }; N];
    let begun = Instant::now();
    for round in 1..=SCRAPES as u32 {
        for ((client, headers), times) in kinds.iter_mut().zip(&mut times) {
            times.push(client.scrape_metrics(headers)?.0.as_secs_f64() * 1e3);
        }
        thread::sleep((begun + BETWEEN * round).saturating_duration_since(Instant::now()));
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    Ok(times)
}

/// A file of this build.
fn built_file(name: &str) -> anyhow::Result<PathBuf> {
    let bench_path = env::current_exe().context("cannot determine the path of this program")?;
    let path = bench_path.with_file_name(name);
    if !path.exists() {
        bail!("{} is not built: run `cargo build --release --workspace` first", path.display());
    }
    ensure!(
        !cfg!(debug_assertions),
        "build with --release: figures of a debug build are meaningless"
    );
    Ok(path)
}

fn fixture_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(path)
}

fn count_series(page: &str) -> usize {
    page.lines().filter(|line| !line.starts_with('#')).count()
}

/// The value below which this share of sorted times is.
fn percentile_of(sorted: &[f64], rank: f64) -> f64 {
    let position = (sorted.len() as f64 * rank).ceil() as usize;
    sorted.get(position.max(1) - 1).copied().unwrap_or(f64::NAN)
}

fn round_to(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

fn format_megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        let percentile = |count, rank| percentile_of(&sorted[..count], rank).to_string();
        assert_eq!(
            [percentile(100, 0.5), percentile(100, 0.99), percentile(1, 0.99)],
            ["50", "99", "1"]
        );
    }
}
