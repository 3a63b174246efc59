//! Bench `console`: the console on 100,000 GPUs: first frame, frame times, key latency, bytes, memory; compared with
//! other tools.

use std::{
    fs,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bench_process;

mod all_smi_comparison;
mod bench_terminal;
mod overview_server;

use bench_terminal::{BenchTerminal, OutputRate, SIZE};

/// Nodes of the fleet, eight GPUs each.
const NODES: usize = 12_500;

/// Waiting nodes in each second of the busy run; these and those of the second before change on screen, together 5 %
/// of all cells.
const WAITING: usize = SIZE.0 as usize * SIZE.1 as usize / 20 / 2;

/// Duration of byte counting.
const COUNTED: Duration = Duration::from_secs(15);

/// Time from a change of the fleet until it is transferred and drawn.
const SETTLED: Duration = Duration::from_secs(3);

/// Number of timed key presses.
const KEYS: usize = 120;

/// Time limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Measures, prints the table and the JSON line.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let gaunt = std::env::current_exe()?.with_file_name("gaunt");
    ensure!(gaunt.exists(), "{} is not built; run cargo build --release", gaunt.display());
    let busy = Arc::new(AtomicUsize::new(0));
    let address = overview_server::serve_overview(Arc::clone(&busy))?;
    let command = format!(
        "{} --log gaunt_console=trace --aggregator http://{address} 2>log",
        gaunt.display()
    );
    let begun = Instant::now();
    let terminal = BenchTerminal::start_command(&command);
    terminal.wait_for_text("one cell")?;
    let first_paint = begun.elapsed();
    // The first frame and all that is drawn until the next answer.
    thread::sleep(Duration::from_millis(500));
    let first_bytes = terminal.pty.byte_count();
    thread::sleep(SETTLED);
    let calm_rate = terminal.measure_rate()?;
    busy.store(WAITING, Ordering::Relaxed);
    thread::sleep(SETTLED);
    let from = terminal.pty.byte_count();
    let busy_rate = terminal.measure_rate()?;
    let cells = terminal.changed_cells(from) as f64 / COUNTED.as_secs_f64();
    busy.store(0, Ordering::Relaxed);
    let keys = measure_keys(&terminal)?;
    let memory = bench_process::resident_bytes(terminal.process_id())?;
    terminal.pty.press_keys("q");
    let frames = read_frame_times(&terminal.pty.file_path("log"))?;
    let [htop, btop] = ["htop -d 10", "btop"].map(measure_program);
    let peers = all_smi_comparison::compare_all_smi(&gaunt)?;
    let all_cells = f64::from(SIZE.0) * f64::from(SIZE.1);
    let figures = [
        ("first_paint_ms", Some(first_paint.as_secs_f64() * 1e3)),
        ("first_paint_bytes", Some(first_bytes as f64)),
        ("frame_p50_ms", Some(percentile_of(&frames, 0.5))),
        ("frame_p99_ms", Some(percentile_of(&frames, 0.99))),
        ("key_p50_ms", Some(percentile_of(&keys, 0.5))),
        ("key_p99_ms", Some(percentile_of(&keys, 0.99))),
        ("calm_bytes_s", Some(calm_rate.bytes)),
        ("busy_bytes_s", Some(busy_rate.bytes)),
        ("busy_cells_percent", Some(cells / all_cells * 100.0)),
        ("cpu_percent", Some(calm_rate.cpu)),
        ("busy_cpu_percent", Some(busy_rate.cpu)),
        ("rss_bytes", Some(memory as f64)),
        ("htop_bytes_s", htop.map(|rate| rate.bytes)),
        ("btop_bytes_s", btop.map(|rate| rate.bytes)),
        ("all_smi_500_bytes_s", peers.map(|[peer, _]| peer.bytes)),
        ("all_smi_500_cpu_percent", peers.map(|[peer, _]| peer.cpu)),
        ("gaunt_500_bytes_s", peers.map(|[_, ours]| ours.bytes)),
        ("gaunt_500_cpu_percent", peers.map(|[_, ours]| ours.cpu)),
    ];
    let mut line =
        json!({ "gpus": NODES * 8, "columns": SIZE.0, "lines": SIZE.1, "frames": frames.len() });
    for (name, value) in figures {
        let shown = value.map_or_else(|| "not installed".to_owned(), |value| format!("{value:.2}"));
        writeln!(out, "{name:24} {shown:>14}")?;
        line[name] = value.map_or(Value::Null, |value| json!((value * 100.0).round() / 100.0));
    }
    Ok(writeln!(out, "{line}")?)
}

/// Time from a key press to the first output byte, in milliseconds.
fn measure_keys(terminal: &BenchTerminal) -> anyhow::Result<Vec<f64>> {
    terminal.pty.press_keys("\t");
    thread::sleep(Duration::from_secs(1));
    let mut times = Vec::new();
    for key in 0..KEYS {
        // Between two updates of the source, so that only the key causes output.
        thread::sleep(Duration::from_millis(137));
        let (before, begun) = (terminal.pty.byte_count(), Instant::now());
        terminal.pty.press_keys(if key % 2 == 0 { "j" } else { "k" });
        while terminal.pty.byte_count() == before {
            ensure!(begun.elapsed() < TIMEOUT, "no output after a key");
            thread::sleep(Duration::from_micros(100));
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Render time of each frame in milliseconds, from the program's own log.
fn read_frame_times(log: &Path) -> anyhow::Result<Vec<f64>> {
    let log = fs::read_to_string(log).context("the console wrote no log")?;
    let micros = |line: &str| -> Option<f64> {
        let (_, rest) = line.split_once("micros=")?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let frames = log.lines().filter(|line| line.contains("frame")).filter_map(micros);
    let frames: Vec<f64> = frames.map(|micros| micros / 1e3).collect();
    ensure!(!frames.is_empty(), "the console's log contains no frame");
    Ok(frames)
}

fn percentile_of(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Output of another program in a terminal of the same size; `None` if it is not installed.
fn measure_program(program: &str) -> Option<OutputRate> {
    let name = program.split(' ').next()?;
    Path::new("/usr/bin").join(name).exists().then_some(())?;
    let terminal = BenchTerminal::start_command(program);
    thread::sleep(SETTLED);
    let rate = terminal.measure_rate().ok()?;
    terminal.pty.press_keys("q");
    Some(rate)
}
