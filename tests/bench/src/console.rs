//! Bench `console`: the console on 100,000 GPUs over a bounded line: first picture, frames, keys, bytes, memory.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use gaunt::answer::{Heat, NodeCounts, Overview, StateCount, change};
use gaunt_schema::{GpuState, Safe, UnixMs};
use serde_json::{Value, json};

/// Nodes of the fleet, eight GPUs each.
const NODES: usize = 12_500;

/// Nodes whose look changes each second on the busy line: one in sixty, which is 5 % of the cells at three nodes a cell.
const CHANGING: usize = NODES / 60;

/// How long bytes are counted.
const COUNTED: Duration = Duration::from_secs(15);

/// Keys that are timed.
const KEYS: usize = 120;

/// The longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures, prints the table and the JSON line.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let gaunt = std::env::current_exe()?.with_file_name("gaunt");
    ensure!(gaunt.exists(), "{} is not built; run cargo build --release", gaunt.display());
    let folder = tempfile::tempdir()?;
    let busy = Arc::new(AtomicUsize::new(0));
    let address = serve(Arc::clone(&busy))?;
    let command = format!(
        "HOME={0} exec {1} --log gaunt=trace --aggregator http://{address} 2>{0}/log",
        folder.path().display(),
        gaunt.display()
    );
    let begun = Instant::now();
    let mut terminal = Terminal::start(folder.path(), &command)?;
    terminal
        .until("the heat map", |seen| contains(seen, b"HEAT") && contains(seen, b"one cell"))?;
    let first_paint = begun.elapsed();
    thread::sleep(Duration::from_secs(2));
    let first_bytes = terminal.bytes();
    let pid = terminal.pid()?;
    let (calm, calm_cpu) = counted(&terminal, pid)?;
    busy.store(CHANGING, Ordering::Relaxed);
    let (busy_bytes, busy_cpu) = counted(&terminal, pid)?;
    busy.store(0, Ordering::Relaxed);
    let keys = keys(&mut terminal)?;
    let memory = resident(pid)?;
    terminal.press(b"q")?;
    let frames = frames(&folder.path().join("log"))?;
    let [htop, btop] = ["htop -d 10", "btop"].map(beside);
    let figures = [
        ("first_paint_ms", Some(first_paint.as_secs_f64() * 1e3)),
        ("first_paint_bytes", Some(first_bytes as f64)),
        ("frame_p50_ms", Some(percentile(&frames, 0.5))),
        ("frame_p99_ms", Some(percentile(&frames, 0.99))),
        ("key_p50_ms", Some(percentile(&keys, 0.5))),
        ("key_p99_ms", Some(percentile(&keys, 0.99))),
        ("calm_bytes_s", Some(calm)),
        ("busy_bytes_s", Some(busy_bytes)),
        ("cpu_percent", Some(calm_cpu)),
        ("busy_cpu_percent", Some(busy_cpu)),
        ("rss_bytes", Some(memory as f64)),
        ("htop_bytes_s", htop),
        ("btop_bytes_s", btop),
    ];
    let mut line =
        json!({ "gpus": NODES * 8, "columns": 200, "lines": 50, "frames": frames.len() });
    for (name, value) in figures {
        let shown = value.map_or_else(|| "not there".to_owned(), |value| format!("{value:.2}"));
        writeln!(out, "{name:20} {shown:>14}")?;
        line[name] = value.map_or(Value::Null, |value| json!((value * 100.0).round() / 100.0));
    }
    writeln!(out, "{line}")?;
    Ok(())
}

/// Bytes and per cent of a core in a second, over some seconds.
fn counted(terminal: &Terminal, pid: u32) -> anyhow::Result<(f64, f64)> {
    thread::sleep(Duration::from_secs(2));
    let (bytes, cpu, begun) = (terminal.bytes(), seconds(pid)?, Instant::now());
    thread::sleep(COUNTED);
    let span = begun.elapsed().as_secs_f64();
    Ok(((terminal.bytes() - bytes) as f64 / span, (seconds(pid)? - cpu) / span * 100.0))
}

/// From a key until the terminal is told something, in milliseconds.
fn keys(terminal: &mut Terminal) -> anyhow::Result<Vec<f64>> {
    terminal.press(b"\t")?;
    thread::sleep(Duration::from_secs(1));
    let mut times = Vec::new();
    for key in 0..KEYS {
        // Between two answers of the source, so that the key alone is seen.
        thread::sleep(Duration::from_millis(137));
        let (before, begun) = (terminal.bytes(), Instant::now());
        terminal.press(if key % 2 == 0 { b"j" } else { b"k" })?;
        while terminal.bytes() == before {
            ensure!(begun.elapsed() < PATIENCE, "a key is never answered");
            thread::sleep(Duration::from_micros(100));
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// How long each frame took to be made, in milliseconds, from the program's own log.
fn frames(log: &Path) -> anyhow::Result<Vec<f64>> {
    let log = fs::read_to_string(log).context("the console wrote no log")?;
    let micros = |line: &str| -> Option<f64> {
        let (_, rest) = line.split_once("micros=")?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let frames: Vec<f64> = log
        .lines()
        .filter(|line| line.contains("frame"))
        .filter_map(micros)
        .map(|us| us / 1e3)
        .collect();
    ensure!(!frames.is_empty(), "no frame is in the console's log");
    Ok(frames)
}

fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Bytes in a second of another program in a terminal of the same size; none if it is not installed.
fn beside(program: &str) -> Option<f64> {
    let name = program.split(' ').next()?;
    Path::new("/usr/bin").join(name).exists().then_some(())?;
    let folder = tempfile::tempdir().ok()?;
    let mut terminal = Terminal::start(folder.path(), &format!("exec {program}")).ok()?;
    thread::sleep(Duration::from_secs(3));
    let (before, begun) = (terminal.bytes(), Instant::now());
    thread::sleep(COUNTED);
    let rate = (terminal.bytes() - before) as f64 / begun.elapsed().as_secs_f64();
    terminal.press(b"q").ok()?;
    Some(rate)
}

/// A program in a terminal of 200 columns and 50 lines, whose bytes are counted.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    seen: Arc<Mutex<Vec<u8>>>,
    count: Arc<AtomicUsize>,
    folder: PathBuf,
}

impl Terminal {
    fn start(folder: &Path, command: &str) -> anyhow::Result<Self> {
        let script = format!("stty cols 200 rows 50; echo $$ >{}/pid; {command}", folder.display());
        let mut child = Command::new("script")
            .args(["-qfec", &script, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start script, which opens a terminal")?;
        let keys = child.stdin.take().context("script takes no keys")?;
        let mut screen = child.stdout.take().context("script shows nothing")?;
        let (seen, count) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(AtomicUsize::new(0)));
        let (kept, counted) = (Arc::clone(&seen), Arc::clone(&count));
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length) = screen.read(&mut buffer) {
                if length == 0 {
                    return;
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < 1 << 20 {
                    kept.extend_from_slice(&buffer[..length]);
                }
                drop(kept);
                counted.fetch_add(length, Ordering::Relaxed);
            }
        });
        Ok(Self { child, keys, seen, count, folder: folder.to_owned() })
    }

    fn bytes(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn press(&mut self, keys: &[u8]) -> anyhow::Result<()> {
        self.keys.write_all(keys)?;
        self.keys.flush()?;
        Ok(())
    }

    fn until(&self, what: &str, is_there: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !is_there(&self.seen.lock().unwrap_or_else(PoisonError::into_inner)) {
            ensure!(begun.elapsed() < PATIENCE, "{what} is never shown");
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn pid(&self) -> anyhow::Result<u32> {
        let text = fs::read_to_string(self.folder.join("pid"))?;
        text.trim().parse().context("the shell wrote no number")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Serves the stream of the overview as an aggregator does; `busy` says how many nodes change in each second.
fn serve(busy: Arc<AtomicUsize>) -> anyhow::Result<std::net::SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let busy = Arc::clone(&busy);
            thread::spawn(move || _ = talk(&stream, &busy));
        }
    });
    Ok(address)
}

fn talk(stream: &TcpStream, busy: &AtomicUsize) -> anyhow::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().context("no request")??;
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let mut out = stream;
    if !request.contains("ask=overview") {
        let body =
            json!({ "refused": "unknown_node", "node": "none", "message": "none" }).to_string();
        write!(out, "HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
        return Ok(());
    }
    write!(
        out,
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n"
    )?;
    let mut states: Vec<u8> = "C".repeat(NODES * 8).into_bytes();
    let mut last = serde_json::to_value(overview(&states, 0)?)?;
    writeln!(out, "{}", json!({ "stream": "bench", "number": 1, "whole": last }))?;
    for second in 1_usize.. {
        thread::sleep(Duration::from_secs(1));
        for change in 0..busy.load(Ordering::Relaxed) {
            let gpu = (change * 60 + second % 7 * 3) * 8 % (NODES * 8);
            states[gpu] = if states[gpu] == b'C' { b'w' } else { b'C' };
        }
        let next = serde_json::to_value(overview(&states, second)?)?;
        let change = change::between(&last, &next).context("nothing changed")?;
        writeln!(out, "{}", json!({ "number": second + 1, "change": change }))?;
        last = next;
    }
    Ok(())
}

fn overview(states: &[u8], second: usize) -> anyhow::Result<Overview> {
    let names = (0..NODES).map(|node| Safe::new(&format!("gpu{node:05}")));
    let heat = Heat {
        nodes: names.collect(),
        gpus: vec![8; NODES],
        states: String::from_utf8(states.to_vec())?,
    };
    let waiting = states.iter().map(|state| u32::from(*state == b'w')).sum::<u32>();
    let count = |state, gpus| StateCount { state, gpus };
    let computing = count(GpuState::Computing, (NODES * 8) as u32 - waiting);
    Ok(Overview {
        cluster: "bench".into(),
        at: UnixMs(1_700_000_000_000 + second as i64 * 1_000),
        period_ms: 1_000,
        nodes: NodeCounts { live: NODES as u32, ..NodeCounts::default() },
        states: vec![computing, count(GpuState::Waiting, waiting)],
        heat,
        ..Overview::default()
    })
}

/// The processor time of a process, in seconds.
fn seconds(id: u32) -> anyhow::Result<f64> {
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let after = stat.rsplit_once(") ").context("/proc/PID/stat is not as it was")?.1;
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    Ok((ticks(11).context("no time")? + ticks(12).context("no time")?) / TICKS)
}

fn resident(id: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kilobytes.context("no VmRSS in /proc/PID/status")? * 1024)
}
