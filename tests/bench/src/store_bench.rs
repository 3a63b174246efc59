//! Bench `store`: verdicts of 100,000 GPUs to a store: cost to encode, bytes, and an hour without the store.
//!
//! Time is virtual: steps follow one another as fast as they are taken. The store is a server in this process that reads
//! requests and keeps the instants of their first samples.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use gaunt_api::FABRIC_SERIES;
use gaunt_schema::{SanitizedText, UnixMs};
use gaunt_scrape::ServerAccess;
use gaunt_store::{BACKLOG_BYTES, INTERVAL, StoreLevel, StoreOptions, StoreStep, StoreWriter};
use serde_json::json;

use crate::{bench_process::resident_bytes, cpu_clock::process_cpu_time, write_sink::start_sink};

/// The design size of one aggregator.
const GPUS: usize = 100_000;
const QUICK_GPUS: usize = 8_000;

const GPUS_PER_NODE: usize = 8;
const GPUS_PER_JOB: usize = 100;

/// Steps whose cost is measured, and those of an hour.
const MEASURED_STEPS: i64 = 40;
const HOUR_STEPS: i64 = 240;

/// The time in which what waited for an hour must be in the store.
const DRAINED_WITHIN: Duration = Duration::from_mins(10);

/// The most memory that the series and an hour away may take: what waits is on disk.
const AWAY_MEMORY: u64 = 128 << 20;

/// A step that takes longer than this to hand over delays the verdicts. It is encoded on a thread that nothing waits for.
const LATE: Duration = Duration::from_secs(1);

const START: i64 = 1_700_000_000_000 / 15_000 * 15_000;

/// A store that is away or there.
struct TestStore {
    url: String,
    is_away: Arc<AtomicBool>,
    /// First instants of the requests, in the order in which they were taken.
    instants: Arc<Mutex<Vec<i64>>>,
}

impl TestStore {
    fn start() -> anyhow::Result<Self> {
        let (is_away, instants) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (away, taken) = (is_away.clone(), Arc::<Mutex<Vec<i64>>>::clone(&instants));
        let url = start_sink(move |body| {
            if away.load(Ordering::Relaxed) {
                return Some("503 Service Unavailable");
            }
            let instant = first_instant(&body)?;
            taken.lock().unwrap_or_else(PoisonError::into_inner).push(instant);
            Some("204 No Content")
        })?;
        Ok(Self { url, is_away, instants })
    }
}

/// The instant of the first sample of a request: field 2 of a sample, which is field 2 of a series.
fn first_instant(body: &[u8]) -> Option<i64> {
    let request = snap::raw::Decoder::new().decompress_vec(body).ok()?;
    let (_, series, _) = next_field(&request)?;
    let mut rest = series;
    loop {
        let (field, part, left) = next_field(rest)?;
        if field == 2 {
            // A value of eight bytes behind its tag, then the instant.
            return varint(part.get(10..)?).map(|(instant, _)| instant as i64);
        }
        rest = left;
    }
}

/// Number, bytes and remainder of a field with a length.
fn next_field(message: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (tag, rest) = varint(message)?;
    let (length, rest) = varint(rest)?;
    let (part, left) = rest.split_at_checked(length as usize)?;
    Some((tag >> 3, part, left))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let value = bytes[..=end].iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f));
    Some((value, &bytes[end + 1..]))
}

fn start_writer(url: &str, folder: Option<&std::path::Path>) -> anyhow::Result<StoreWriter> {
    let options = StoreOptions {
        query_url: None,
        url: url.to_owned(),
        level: StoreLevel::Verdicts,
        interval: INTERVAL,
        replica_label: None,
        replica: String::new(),
        cluster: SanitizedText::new("hall-1"),
        backlog_folder: folder.map(Into::into),
        backlog_bytes: BACKLOG_BYTES,
        tenant: None,
        access: ServerAccess::default(),
    };
    let mut writer = StoreWriter::start_thread(options, gaunt_engine::system_disk::system_disk())?;
    // The first call only sets the grid.
    let before = UnixMs(START - 1);
    ensure!(writer.begin_step(before, before).is_none(), "the first instant is skipped");
    Ok(writer)
}

/// The verdicts of a fleet, as `gaunt serve` writes them.
fn fill_step(step: &mut StoreStep, gpus: usize, number: i64) {
    let mut index = String::new();
    for node in 0..gpus / GPUS_PER_NODE {
        let name = format!("gpu{node:05}");
        for gpu in 0..GPUS_PER_NODE {
            index.clear();
            index.push(char::from(b'0' + gpu as u8));
            let state = (node as i64 + number / 20) % 3;
            step.push_sample(
                "gaunt_gpu_state_code",
                &[("node", &name), ("gpu", &index)],
                state as f64,
            );
        }
        let target = format!("{name}.example:9770");
        step.push_sample("gaunt_target_up", &[("target", &target), ("node", &name)], 1.0);
        step.push_sample("gaunt_node_lost_gpus", &[("node", &name)], (number % 7) as f64 / 8.0);
    }
    for job in 0..gpus / GPUS_PER_JOB {
        let name = format!("{}", 880_000 + job);
        for state in ["computing", "communicating", "waiting"] {
            let labels = [("job", name.as_str()), ("state", state)];
            step.push_sample("gaunt_job_gpus", &labels, 33.0);
            step.push_sample("gaunt_gpu_state_ratio", &labels, 0.33);
        }
        step.push_sample("gaunt_job_lost_gpus", &[("job", &name)], 0.5);
    }
    fill_fabric(step, gpus, number);
}

/// The network of a rail-optimised fabric: a leaf for 32 ports of one rail, with loads that change, and some ports that are
/// not active.
fn fill_fabric(step: &mut StoreStep, gpus: usize, number: i64) {
    const RAILS: usize = 8;
    const PORTS: usize = 32;
    const FLAGGED: usize = 1_000;
    for cell in 0..gpus / PORTS {
        let (leaf, rail) =
            (format!("unit-{:03}-r{}", cell / RAILS, cell % RAILS), (cell % RAILS).to_string());
        let labels = [("leaf", leaf.as_str()), ("rail", rail.as_str())];
        for (series, metric) in FABRIC_SERIES.into_iter().enumerate() {
            let mixed = (number as usize * 7_919 + cell * 31 + series * 17) % 1_009;
            let value = match series {
                0 | 1 => PORTS as f64,
                2..=4 => f64::from(0.38_f32 + mixed as f32 / 20_000.0),
                7 | 8 => f64::from(mixed as f32 * 1.37),
                _ => 0.0,
            };
            step.push_sample(metric.catalogue_row().name, &labels, value);
        }
    }
    for port in 0..(gpus / 100).min(FLAGGED) {
        let (node, device) = (format!("gpu{port:05}"), format!("mlx5_{}", port % RAILS));
        let (leaf, rail) = (format!("unit-{:03}-r{}", port / PORTS, port % RAILS), port % RAILS);
        let labels = [
            ("node", node.as_str()),
            ("device", &device),
            ("port", "1"),
            ("leaf", &leaf),
            ("rail", &rail.to_string()),
            ("kind", "port_down"),
        ];
        step.push_sample("gaunt_flagged_port_state", &labels, 1.0);
    }
}

/// Adds the samples of a fleet of this many GPUs to the step of this number.
type FillStep = fn(&mut StoreStep, usize, i64);

/// What a number of steps cost.
struct StepCost {
    samples: u64,
    cpu: Duration,
    late: usize,
}

/// Hands over these steps, filled for this number of GPUs, each as soon as the one before is taken.
fn send_steps(
    writer: &mut StoreWriter,
    (fill, gpus): (FillStep, usize),
    numbers: std::ops::Range<i64>,
) -> anyhow::Result<StepCost> {
    let (began, mut samples, mut late) = (process_cpu_time(), 0, 0);
    for number in numbers {
        let at = UnixMs(START + number * INTERVAL.as_millis() as i64);
        let mut step = writer.begin_step(at, at).context("an instant of the grid is skipped")?;
        fill(&mut step, gpus, number);
        samples += step.len() as u64;
        let encoded = step.encode();
        let handed = Instant::now();
        writer.send_step(encoded);
        late += usize::from(handed.elapsed() > LATE);
        while !writer.is_idle() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(StepCost { samples, cpu: process_cpu_time().saturating_sub(began), late })
}

/// Waits until the store has this many samples.
fn wait_for_samples(
    writer: &StoreWriter,
    samples: u64,
    limit: Duration,
) -> anyhow::Result<Duration> {
    let (status, began) = (writer.watch_status(), Instant::now());
    while status.borrow().sent_samples < samples {
        let sent = status.borrow().sent_samples;
        ensure!(began.elapsed() < limit, "{sent} of {samples} samples after {limit:?}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(began.elapsed())
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(quick: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions) || quick,
        "build with --release: figures of a debug build are meaningless"
    );
    let gpus = if quick { QUICK_GPUS } else { GPUS };
    // Nothing listens: what is measured is the way to the request alone.
    let mut writer = start_writer("http://127.0.0.1:9/api/v1/write", None)?;
    let encode = send_steps(&mut writer, (fill_step, gpus), 0..MEASURED_STEPS)?;
    let series = writer.watch_status().borrow().series;
    drop(writer);

    let store = TestStore::start()?;
    let mut writer = start_writer(&store.url, None)?;
    let sent = send_steps(&mut writer, (fill_step, gpus), 0..MEASURED_STEPS)?;
    wait_for_samples(&writer, sent.samples, DRAINED_WITHIN)?;
    let bytes = writer.watch_status().borrow().sent_bytes;
    drop(writer);

    // The part of it that is about the network.
    let store = TestStore::start()?;
    let mut writer = start_writer(&store.url, None)?;
    let network = send_steps(&mut writer, (fill_fabric, gpus), 0..MEASURED_STEPS)?;
    wait_for_samples(&writer, network.samples, DRAINED_WITHIN)?;
    let network_bytes = writer.watch_status().borrow().sent_bytes;
    let network_series = writer.watch_status().borrow().series;
    drop(writer);

    let before = resident_bytes(std::process::id())?;
    let folder = tempfile::tempdir().context("cannot create a folder")?;
    let store = TestStore::start()?;
    store.is_away.store(true, Ordering::Relaxed);
    let mut writer = start_writer(&store.url, Some(folder.path()))?;
    let hour = send_steps(&mut writer, (fill_step, gpus), 0..HOUR_STEPS)?;
    let waiting_bytes = writer.watch_status().borrow().waiting_bytes;
    let grown = resident_bytes(std::process::id())?.saturating_sub(before);
    ensure!(grown < AWAY_MEMORY, "the series and an hour away take {grown} bytes of memory");
    store.is_away.store(false, Ordering::Relaxed);
    let drained = wait_for_samples(&writer, hour.samples, DRAINED_WITHIN)?;
    let instants = store.instants.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure!(instants.is_sorted(), "requests arrive in another order than they were made");

    let seconds = MEASURED_STEPS as f64 * INTERVAL.as_secs_f64();
    let encode_ns = encode.cpu.as_nanos() as f64 / encode.samples as f64;
    let (cores, rate) = (sent.cpu.as_secs_f64() / seconds, bytes as f64 / seconds);
    let late = encode.late + sent.late + hour.late;
    writeln!(out, "verdicts of {gpus} GPUs each {INTERVAL:?}: {series} series")?;
    writeln!(out, "  to the request     {encode_ns:8.0} ns of CPU a sample")?;
    writeln!(out, "  with the store     {cores:8.3} cores, {:.3} MB/s", rate / 1e6)?;
    writeln!(
        out,
        "  of the network     {network_series:8} series, {:.3} MB/s",
        network_bytes as f64 / seconds / 1e6
    )?;
    writeln!(out, "  an hour away       {:8.1} MB wait", waiting_bytes as f64 / 1e6)?;
    writeln!(out, "  drained in order   {:8.1} s", drained.as_secs_f64())?;
    writeln!(out, "  memory of it       {:8.1} MB", grown as f64 / 1e6)?;
    writeln!(out, "  late verdicts      {late:8}")?;
    let line = json!({
        "gpus": gpus,
        "cpu_cores": cores,
        "bytes_s": rate,
        "encode_ns_per_sample": encode_ns,
        "series": series,
        "backlog_drained_s": drained.as_secs_f64(),
        "late_verdicts": late,
    });
    writeln!(out, "{line}")?;
    Ok(())
}
