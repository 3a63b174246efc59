//! Bench `churn`: hours of `gaunt serve` in real time while jobs, nodes and series come and go and hostile targets answer
//! with everything but a page. Memory, open files and threads must not grow once every history is full.

use std::{
    fmt::Write as _,
    fs,
    io::Write,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bench_process::BenchProcess,
    scrape_client::{self, PLAIN, ScrapeClient},
};

mod churn_farm;
mod hostile_target;

use churn_farm::{ChurnFarm, ChurnPace};

/// Time between two rounds of questions to the aggregator, and between two lists of targets.
const ROUND: Duration = Duration::from_secs(5);

/// Time between two looks at the process, and between two printed rows.
const SAMPLE: Duration = Duration::from_mins(1);
const SAMPLES_PER_ROW: usize = 10;

/// Every past is full after this time: what grows later has no limit.
const FILLING: Duration = Duration::from_hours(1);

/// How long names last.
const PACE: ChurnPace = ChurnPace {
    node: Duration::from_mins(20),
    short_job: Duration::from_secs(30),
    long_job: Duration::from_mins(10),
    series: Duration::from_mins(1),
};

/// What a console, a dashboard and Prometheus ask for.
const PATHS: [&str; 6] = [
    "/metrics",
    "/api/gaunt/v1/overview",
    "/api/gaunt/v1/findings",
    "/api/gaunt/v1/jobs",
    "/api/gaunt/v1/nodes",
    "/api/gaunt/v1/targets",
];

/// Options of `churn`.
#[derive(Args, Clone, Debug)]
#[group(id = "churn")]
pub(crate) struct ChurnBenchOptions {
    /// `churn`: hours of real time.
    #[arg(long, default_value_t = 3.0)]
    churn_hours: f64,
    /// `churn`: number of nodes at one time, with 8 GPUs each.
    #[arg(long, default_value_t = 48)]
    churn_nodes: usize,
}

/// Resources of the process at one time.
#[derive(Clone, Copy, Debug)]
struct ProcessSample {
    hours: f64,
    megabytes: f64,
    open_files: usize,
    threads: usize,
}

/// Runs, prints rows and the JSON line.
pub(crate) fn run(options: &ChurnBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(options.churn_hours > 0.0, "--churn-hours must be above 0");
    ensure!((8..=240).contains(&options.churn_nodes), "--churn-nodes must be from 8 to 240");
    let started = Instant::now();
    let farm = ChurnFarm::start(options.churn_nodes, started)?;
    let folder = tempfile::tempdir()?;
    write_targets(&farm, folder.path())?;
    let gaunt = start_aggregator(&folder)?;
    let mut client = ScrapeClient::new(&gaunt.address)?;
    client.wait_for_page(Duration::from_mins(1), |page| page.contains("gaunt_gpus"))?;
    let end = Duration::from_secs_f64(options.churn_hours * 3_600.0);
    let (mut samples, mut slowest): (Vec<ProcessSample>, _) = (Vec::new(), Duration::ZERO);
    let (mut questions, mut refused_questions) = (0_u64, 0_u64);
    writeln!(out, "  hours       MB  files  threads  findings    samples   pages ok  refused")?;
    while started.elapsed() < end {
        thread::sleep(ROUND);
        write_targets(&farm, folder.path())?;
        for path in PATHS {
            questions += 1;
            match client.get(path, PLAIN) {
                Ok((time, _)) => slowest = slowest.max(time),
                // On a machine that has no time for it, an answer is refused, and must come again.
                Err(error) if error.to_string().contains(" 503 ") => refused_questions += 1,
                Err(error) => return Err(error.context(format!("no answer to {path}"))),
            }
        }
        if started.elapsed() < SAMPLE * (samples.len() as u32 + 1) {
            continue;
        }
        let sample = ProcessSample::read(&gaunt, started)?;
        samples.push(sample);
        if samples.len() % SAMPLES_PER_ROW == 0 {
            write_row(out, sample, &mut client)?;
        }
    }
    let totals = ask(&mut client, "targets")?["totals"].clone();
    let refused = refused_pages(&totals);
    let after: Vec<ProcessSample> =
        samples.iter().copied().filter(|it| it.hours > FILLING.as_secs_f64() / 3_600.0).collect();
    let largest = |of: fn(&ProcessSample) -> f64, samples: &[ProcessSample]| {
        samples.iter().map(of).fold(0.0, f64::max)
    };
    let round = |value: f64| (value * 100.0).round() / 100.0;
    let line = json!({
        "hours": round(started.elapsed().as_secs_f64() / 3_600.0),
        "nodes": options.churn_nodes,
        "named_nodes": PACE.node_count(options.churn_nodes, started.elapsed()),
        "short_jobs": PACE.short_job_count(options.churn_nodes, started.elapsed()),
        "hostile_answers": farm.hostile_answers(),
        "pages_ok": totals["scrapes"]["ok"],
        "pages_refused": refused,
        "questions": questions,
        "questions_refused": refused_questions,
        "slowest_answer_ms": round(slowest.as_secs_f64() * 1e3),
        "mb_after_first_hour": after.first().map(|it| round(it.megabytes)),
        "mb_at_end": samples.last().map(|it| round(it.megabytes)),
        "mb_max": round(largest(|it| it.megabytes, &samples)),
        "mb_per_hour_after_first": growth_per_hour(&after).map(round),
        "open_files_max": largest(|it| it.open_files as f64, &samples),
        "threads_max": largest(|it| it.threads as f64, &samples),
        "cpu_s": round(gaunt.read_cpu_usage()?.own),
    });
    writeln!(out, "{line}").context("cannot write")
}

/// `gaunt serve` with state and recording, as in its unit.
fn start_aggregator(folder: &TempDir) -> anyhow::Result<BenchProcess> {
    let path = folder.path();
    let settings = path.join("gaunt.toml");
    let mut text = String::from("[gather]\ntargets_files = [\"targets\"]\nperiod = \"1s\"\n");
    text.push_str("[serve]\nstate_folder = \"state\"\n");
    text.push_str("[record]\nfolder = \"record\"\nmax_size = \"64MiB\"\n");
    for folder in ["state", "record"] {
        fs::create_dir(path.join(folder))?;
    }
    fs::write(&settings, text)?;
    let address = scrape_client::free_address()?;
    let mut command = Command::new(crate::built_program("gaunt")?);
    command.args(["serve", "--listen", &address, "--config"]).arg(&settings);
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1");
    BenchProcess::start_command(command, address)
}

/// Replaces the list of targets by the one of now.
fn write_targets(farm: &ChurnFarm, folder: &Path) -> anyhow::Result<()> {
    let mut list = String::new();
    for target in farm.list_targets() {
        writeln!(list, "{target}")?;
    }
    let new = folder.join("targets.new");
    fs::write(&new, list)?;
    fs::rename(new, folder.join("targets")).context("cannot replace the list of targets")
}

fn ask(client: &mut ScrapeClient, question: &str) -> anyhow::Result<Value> {
    let (_, body) = client.get(&format!("/api/gaunt/v1/{question}"), PLAIN)?;
    Ok(serde_json::from_slice(body)?)
}

fn refused_pages(totals: &Value) -> u64 {
    let outcomes = totals["scrapes"].as_object().into_iter().flatten();
    outcomes.filter(|(outcome, _)| *outcome != "ok").filter_map(|(_, count)| count.as_u64()).sum()
}

fn write_row(
    out: &mut dyn Write,
    sample: ProcessSample,
    client: &mut ScrapeClient,
) -> anyhow::Result<()> {
    let totals = ask(client, "targets")?["totals"].clone();
    let findings = ask(client, "findings")?["findings"].as_array().map_or(0, Vec::len);
    writeln!(
        out,
        "{:>7.2} {:>8.1} {:>6} {:>8} {findings:>9} {:>10} {:>10} {:>8}",
        sample.hours,
        sample.megabytes,
        sample.open_files,
        sample.threads,
        totals["samples"].as_u64().unwrap_or_default(),
        totals["scrapes"]["ok"].as_u64().unwrap_or_default(),
        refused_pages(&totals),
    )?;
    out.flush().context("cannot write")
}

impl ProcessSample {
    fn read(gaunt: &BenchProcess, started: Instant) -> anyhow::Result<Self> {
        let megabytes = gaunt.resident_bytes()? as f64 / 1e6;
        let [open_files, threads] = gaunt.count_files_and_threads()?;
        let hours = started.elapsed().as_secs_f64() / 3_600.0;
        Ok(Self { hours, megabytes, open_files, threads })
    }
}

/// The slope of memory over time, by least squares; none for less than ten samples.
fn growth_per_hour(samples: &[ProcessSample]) -> Option<f64> {
    let count = samples.len() as f64;
    if samples.len() < 10 {
        return None;
    }
    let mean = |of: fn(&ProcessSample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (middle, level) = (mean(|it| it.hours), mean(|it| it.megabytes));
    let products = samples.iter().map(|it| (it.hours - middle) * (it.megabytes - level));
    let squares = samples.iter().map(|it| (it.hours - middle).powi(2));
    Some(products.sum::<f64>() / squares.sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_slope_of_memory_over_time() {
        let sample = |minute: f64| ProcessSample {
            hours: minute / 60.0,
            megabytes: 100.0 + minute,
            open_files: 10,
            threads: 4,
        };
        let samples: Vec<_> = (0..20).map(|minute| sample(f64::from(minute))).collect();
        assert!((growth_per_hour(&samples).unwrap() - 60.0).abs() < 1e-6);
        assert!(growth_per_hour(&samples[..5]).is_none());
    }
}
