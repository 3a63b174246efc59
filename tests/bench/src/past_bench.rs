//! Bench `past`: a Prometheus that is asked, that sends, and whose past is judged: its CPU time and ours.
//!
//! The Prometheus is Debian's; what it has was sent to it by remote write. Time is virtual for what is received and judged.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write},
    net::TcpStream,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, ensure};
use gaunt::answer_source::AnswerSource;
use gaunt_api::{Answer, Question, TimeParam};
use gaunt_engine::{Engine, EngineOptions};
use gaunt_schema::{
    ClockFn, Delivery, Severity, UnixMs,
    text::{PageLimits, TemplateCache, TemplateState},
};
use gaunt_series::{RECEIVE_LAG, SeriesClock, SeriesOptions, SeriesReader, WriteReceiver};
use serde_json::json;
use tokio::{runtime::Runtime, sync::mpsc};

use crate::{
    bench_process::{BenchProcess, cpu_seconds},
    cpu_clock::process_cpu_time,
    scrape_client,
};

mod past_fleet;

use past_fleet::{FIELDS, GPUS_PER_NODE, PERIOD_MS, PastFleet};

/// The time between two refreshes.
const REFRESH: Duration = Duration::from_secs(30);

/// Refreshes that are measured.
const REFRESHES: u32 = 4;

/// Fields of the queried fleet.
const ASKED_FIELDS: usize = 25;

/// Scrapes of the large fleet that are received, after three that are not measured.
const RECEIVED: u32 = 3;
const WARM: u32 = 3;

/// The scrape interval.
const PERIOD: Duration = Duration::from_millis(PERIOD_MS as u64);

/// How long ago the old screen is.
const WEEK: Duration = Duration::from_hours(7 * 24);

/// Sizes: GPUs that are asked for, whose past is judged, and that are received.
struct PastSizes {
    asked: usize,
    judged: usize,
    received: usize,
    /// Scrapes of the past.
    scrapes: i64,
}

fn unix_now() -> UnixMs {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(now.as_millis() as i64 / PERIOD_MS * PERIOD_MS)
}

/// A Prometheus that takes what is sent to it.
struct FilledPrometheus {
    process: BenchProcess,
    connection: BufReader<TcpStream>,
    _folder: tempfile::TempDir,
}

impl FilledPrometheus {
    fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("prometheus.yml");
        std::fs::write(&config, "scrape_configs: []\n")?;
        let address = scrape_client::free_address()?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--web.listen-address={address}"));
        let process = BenchProcess::start_command(command, address.clone())
            .context("install prometheus, as tests/run does")?;
        let began = Instant::now();
        let connection = loop {
            match TcpStream::connect(&address) {
                Ok(stream) => break stream,
                Err(error) => {
                    ensure!(began.elapsed() < Duration::from_mins(1), "{address}: {error}");
                }
            }
            thread::sleep(Duration::from_millis(50));
        };
        Ok(Self { process, connection: BufReader::new(connection), _folder: folder })
    }

    /// Sends a request and waits until it is taken; it is sent again while the server starts.
    fn send(&mut self, body: &[u8]) -> anyhow::Result<()> {
        loop {
            let head = format!(
                "POST /api/v1/write HTTP/1.1\r\nHost: {}\r\nContent-Encoding: snappy\r\nContent-Type: \
                 application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
                self.process.address,
                body.len()
            );
            let stream = self.connection.get_mut();
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
            let (mut status, mut length) = (String::new(), 0);
            self.connection.read_line(&mut status)?;
            loop {
                let mut line = String::new();
                self.connection.read_line(&mut line)?;
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse()?;
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut answer = vec![0; length];
            std::io::Read::read_exact(&mut self.connection, &mut answer)?;
            if status.contains(" 503 ") {
                thread::sleep(Duration::from_millis(200));
                continue;
            }
            let text = String::from_utf8_lossy(&answer);
            ensure!(status.contains(" 204 "), "Prometheus: {} {text}", status.trim());
            return Ok(());
        }
    }

    fn options(&self) -> SeriesOptions {
        let url = format!("http://{}", self.process.address);
        SeriesOptions { max_samples: u64::MAX, ..SeriesOptions::with_url(url) }
    }

    fn cpu(&self) -> anyhow::Result<f64> {
        Ok(self.process.read_cpu_usage()?.total_percent())
    }
}

/// An engine in virtual time, and the findings that it told.
struct JudgedRun {
    engine: Engine,
    next_tick: Option<UnixMs>,
    told: BTreeSet<String>,
}

impl JudgedRun {
    fn new() -> Self {
        let options = EngineOptions { period: PERIOD, ..EngineOptions::default() };
        Self { engine: Engine::new(options), next_tick: None, told: BTreeSet::new() }
    }

    fn deliver(&mut self, delivery: Delivery) {
        if let Delivery::Batch(batch) = &delivery {
            self.run_until(batch.at);
        }
        self.engine.ingest_delivery(delivery);
    }

    fn run_until(&mut self, at: UnixMs) {
        let mut tick = self.next_tick.unwrap_or(at);
        while tick < at {
            self.engine.run_tick(tick);
            if let Answer::Findings(list) = self.engine.answer_question(&Question::Findings) {
                let urgent = list.findings.iter().filter(|it| it.severity >= Severity::Warning);
                self.told.extend(urgent.map(|finding| finding.id.clone()));
            }
            tick = tick + PERIOD / 4;
        }
        self.next_tick = Some(tick);
    }
}

/// The past of the small cluster, judged out of the server: seconds, and the findings.
fn judge_past(
    runtime: &Runtime,
    server: &FilledPrometheus,
    from: UnixMs,
    until: UnixMs,
) -> anyhow::Result<(f64, BTreeSet<String>)> {
    let (began, mut run) = (Instant::now(), JudgedRun::new());
    let options = SeriesOptions { selector: "cluster=\"small\"".to_owned(), ..server.options() };
    runtime.block_on(async {
        let mut reader = SeriesReader::open(&options).await?;
        reader.discover_names(from, until).await?;
        let mut at = from;
        while at < until {
            let end = (at + Duration::from_mins(5)).min(until);
            let window = reader.read_window(at, end).await?;
            run.deliver(Delivery::Targets(window.targets));
            window.batches.into_iter().for_each(|batch| run.deliver(Delivery::Batch(batch)));
            at = end;
        }
        anyhow::Ok(())
    })?;
    run.run_until(until + Duration::from_secs(1));
    Ok((began.elapsed().as_secs_f64(), run.told))
}

/// The findings of the pages themselves.
fn judge_pages(fleet: &PastFleet, from: UnixMs, until: UnixMs) -> BTreeSet<String> {
    let (mut run, cache) = (JudgedRun::new(), TemplateCache::default());
    let mut states: Vec<TemplateState> =
        (0..fleet.small_nodes).map(|_| TemplateState::default()).collect();
    let target = |node: usize| gaunt_schema::ScrapeTarget {
        id: gaunt_schema::TargetId(node as u32),
        address: PastFleet::instance(node).as_str().into(),
        node: None,
        origin: "pages".into(),
    };
    run.deliver(Delivery::Targets((0..fleet.small_nodes).map(target).collect()));
    let mut at = UnixMs((from.0 / PERIOD_MS + 1) * PERIOD_MS);
    while at <= until {
        for (node, state) in states.iter_mut().enumerate() {
            let outcome = match fleet.write_page(node, at) {
                Some(page) => cache.decode_page(state, page.as_bytes(), &PageLimits::default()),
                None => Err(gaunt_schema::ScrapeFailure::ReportedDown("pages".into())),
            };
            let target = gaunt_schema::TargetId(node as u32);
            run.deliver(Delivery::Batch(gaunt_schema::Batch {
                target,
                at,
                duration_ms: 20.0,
                outcome,
            }));
        }
        at = at + PERIOD;
    }
    run.run_until(until + Duration::from_secs(1));
    run.told
}

/// A receiver whose time is virtual.
struct VirtualReceiver {
    present: Arc<AtomicI64>,
    receiver: WriteReceiver,
    deliveries: mpsc::Receiver<Delivery>,
}

impl VirtualReceiver {
    fn start(at: UnixMs) -> anyhow::Result<Self> {
        let present = Arc::new(AtomicI64::new(at.0));
        let clock: ClockFn = {
            let present = present.clone();
            Arc::new(move || UnixMs(present.load(Relaxed)))
        };
        let (inbox, deliveries) = mpsc::channel(4_096);
        let clock = SeriesClock::new(clock, RECEIVE_LAG, at - RECEIVE_LAG);
        Ok(Self { present, receiver: WriteReceiver::start_thread(inbox, clock)?, deliveries })
    }

    /// Receives a scrape of these nodes, and passes on what is delivered until each node has its page.
    fn receive(
        &mut self,
        runtime: &Runtime,
        fleet: &PastFleet,
        nodes: usize,
        at: UnixMs,
        mut consume: impl FnMut(Delivery),
    ) -> anyhow::Result<u64> {
        self.present.store(at.0 + 500, Relaxed);
        let (receiver, mut pages) = (self.receiver.clone(), 0);
        let samples = fleet.encode_scrape(0..nodes, at, |body| {
            runtime.block_on(receiver.submit_request(body))?;
            Ok(())
        })?;
        self.present.store((at + RECEIVE_LAG).0 + 1_000, Relaxed);
        let began = Instant::now();
        while pages < nodes {
            ensure!(began.elapsed() < Duration::from_mins(2), "{pages} of {nodes} pages came");
            match self.deliveries.try_recv() {
                Ok(delivery) => {
                    pages += usize::from(matches!(delivery, Delivery::Batch(_)));
                    consume(delivery);
                }
                Err(mpsc::error::TryRecvError::Empty) => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(samples)
    }
}

/// CPU time of the thread that reads requests, in seconds.
fn receiver_cpu() -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        // A thread may have ended.
        let Ok(name) = std::fs::read_to_string(path.join("comm")) else { continue };
        if name.trim() == "receive" {
            let id = path.file_name().and_then(|id| id.to_str()?.parse().ok());
            sum += cpu_seconds(id.context("a thread has a number")?)?;
        }
    }
    Ok(sum)
}

/// Sends the past to a server: a node a week ago, the small cluster, and the whole fleet at last.
fn fill_server(
    fleet: &PastFleet,
    sizes: &PastSizes,
    now: UnixMs,
) -> anyhow::Result<FilledPrometheus> {
    /// Scrapes of the whole fleet.
    const RECENT: i64 = 8;
    let mut server = FilledPrometheus::start()?;
    for scrape in (0..60).rev() {
        fleet.encode_scrape(0..1, now - WEEK - PERIOD * scrape, |body| server.send(&body))?;
    }
    for scrape in (0..sizes.scrapes).rev() {
        let at = now - PERIOD * scrape as u32;
        let nodes = if scrape < RECENT { sizes.asked / GPUS_PER_NODE } else { fleet.small_nodes };
        fleet.encode_scrape(0..nodes, at, |body| server.send(&body))?;
    }
    Ok(server)
}

/// What one refresh costs.
struct RefreshCost {
    samples: f64,
    answered_s: f64,
    their_cores: f64,
    our_cores: f64,
}

/// Refreshes of the whole fleet, as often as a console does.
fn measure_refreshes(
    runtime: &Runtime,
    server: &FilledPrometheus,
    now: UnixMs,
) -> anyhow::Result<RefreshCost> {
    let mut reader = runtime.block_on(SeriesReader::open(&server.options()))?;
    runtime.block_on(reader.discover_names(now - Duration::from_mins(5), now))?;
    let end = |number: u32| now - PERIOD * (REFRESHES - number);
    runtime.block_on(reader.read_window(end(0) - REFRESH, end(0)))?;
    let (their_before, our_before, began) = (server.cpu()?, process_cpu_time(), Instant::now());
    let mut samples = 0;
    for number in 1..=REFRESHES {
        let from = end(number) - REFRESH - Duration::from_secs(6);
        samples += runtime.block_on(reader.read_window(from, end(number)))?.load.samples;
    }
    let (count, seconds) = (f64::from(REFRESHES), REFRESH.as_secs_f64() * f64::from(REFRESHES));
    Ok(RefreshCost {
        samples: samples as f64 / count,
        answered_s: began.elapsed().as_secs_f64() / count,
        their_cores: (server.cpu()? - their_before) / seconds,
        our_cores: process_cpu_time().saturating_sub(our_before).as_secs_f64() / seconds,
    })
}

/// Milliseconds until a node is shown as it was a week ago.
fn measure_screen(
    runtime: &Runtime,
    server: &FilledPrometheus,
    now: UnixMs,
) -> anyhow::Result<f64> {
    let began = Instant::now();
    let answer = runtime.block_on(async {
        let clock = gaunt_engine::monotonic_clock();
        let live = gaunt_engine::spawn_new(EngineOptions::default(), clock);
        let past = (server.options(), EngineOptions::default());
        let source = AnswerSource::of_engine(live, Some(past));
        let node = Question::Node(PastFleet::node_name(0).as_str().into());
        source.ask_question(Question::AtTime(TimeParam::At(now - WEEK), Box::new(node))).await
    })?;
    ensure!(matches!(answer, Answer::Node(_)), "the node of last week: {answer:?}");
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// The findings of the small cluster as it is received.
fn judge_received(
    runtime: &Runtime,
    fleet: &PastFleet,
    scrapes: i64,
    now: UnixMs,
) -> anyhow::Result<BTreeSet<String>> {
    let mut run = JudgedRun::new();
    let mut sender = VirtualReceiver::start(now - PERIOD * scrapes as u32)?;
    for scrape in (0..scrapes).rev() {
        let at = now - PERIOD * scrape as u32;
        sender.receive(runtime, fleet, fleet.small_nodes, at, |delivery| run.deliver(delivery))?;
    }
    run.run_until(now + Duration::from_secs(1));
    Ok(run.told)
}

/// Cores that it takes to receive so many GPUs, and samples of one scrape.
fn measure_receiving(
    runtime: &Runtime,
    fleet: &PastFleet,
    gpus: usize,
    now: UnixMs,
) -> anyhow::Result<(f64, u64)> {
    let (mut sender, mut samples, mut before) = (VirtualReceiver::start(now)?, 0, 0.0);
    for scrape in 1..=WARM + RECEIVED {
        if scrape == WARM + 1 {
            before = receiver_cpu()?;
        }
        let at = now + PERIOD * scrape;
        samples = sender.receive(runtime, fleet, gpus / GPUS_PER_NODE, at, drop)?;
    }
    let seconds = f64::from(RECEIVED) * PERIOD.as_secs_f64();
    Ok(((receiver_cpu()? - before) / seconds, samples))
}

/// Measures, prints the table and the JSON line.
pub(crate) fn run(quick: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(
        !cfg!(debug_assertions) || quick,
        "build with --release: figures of a debug build are meaningless"
    );
    let sizes = if quick {
        PastSizes { asked: 400, judged: 80, received: 800, scrapes: 100 }
    } else {
        PastSizes { asked: 10_000, judged: 1_000, received: 100_000, scrapes: 240 }
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let now = unix_now();
    let from = now - PERIOD * sizes.scrapes as u32;
    let fleet = PastFleet {
        small_nodes: sizes.judged / GPUS_PER_NODE,
        fields: ASKED_FIELDS,
        slow_from: from + PERIOD * (sizes.scrapes as u32 / 2),
        down_from: now - PERIOD * 12,
    };
    let server = fill_server(&fleet, &sizes, now)?;
    let refresh = measure_refreshes(&runtime, &server, now)?;
    let screen_ms = measure_screen(&runtime, &server, now)?;
    let (postmortem_s, asked) = judge_past(&runtime, &server, from, now)?;
    let direct = judge_pages(&fleet, from, now);
    let received = judge_received(&runtime, &fleet, sizes.scrapes, now)?;
    let same = asked == direct && received == direct && !direct.is_empty();
    let large = PastFleet { fields: FIELDS.len(), ..fleet };
    let (cores, samples) = measure_receiving(&runtime, &large, sizes.received, now)?;

    writeln!(out, "{} GPUs with {ASKED_FIELDS} fields, asked each {REFRESH:?}", sizes.asked)?;
    let RefreshCost { samples: asked_samples, answered_s, their_cores, our_cores } = refresh;
    writeln!(out, "  a refresh       {asked_samples:8.0} samples in {answered_s:.2} s")?;
    writeln!(out, "  CPU             {their_cores:8.3} cores of theirs, {our_cores:.3} of ours")?;
    writeln!(out, "a node a week ago {screen_ms:8.0} ms")?;
    writeln!(out, "{} GPUs received: {samples} samples each {PERIOD:?}", sizes.received)?;
    writeln!(out, "  CPU             {cores:8.3} cores")?;
    writeln!(
        out,
        "{} scrapes of {} GPUs judged in {postmortem_s:.1} s",
        sizes.scrapes, sizes.judged
    )?;
    writeln!(out, "findings of pages {direct:?}\n  asked {asked:?}\n  received {received:?}")?;
    let line = json!({
        "gpus": sizes.asked,
        "their_cpu_cores": their_cores,
        "our_cpu_cores": our_cores,
        "screen_7d_ms": screen_ms,
        "receive_cpu_cores": cores,
        "postmortem_s": postmortem_s,
        "same_findings": same,
    });
    writeln!(out, "{line}")?;
    Ok(())
}
