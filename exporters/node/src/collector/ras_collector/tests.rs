//! Tests of the RAS collector with a service that speaks NCCL's protocol.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
};

use super::*;

/// A RAS service. It answers a status with the current state, and notes every command.
struct FakeService {
    address: SocketAddr,
    commands: Receiver<String>,
    state: watch::Sender<String>,
    /// The connections that asked for events.
    followers: Receiver<TcpStream>,
}

impl FakeService {
    fn start(has_events: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (command_sender, commands) = channel();
        let (follower_sender, followers) = channel();
        let state = watch::Sender::new(String::new());
        let current = state.subscribe();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (commands, followers) = (command_sender.clone(), follower_sender.clone());
                let current = current.clone();
                thread::spawn(move || serve(stream, has_events, &current, &commands, &followers));
            }
        });
        Self { address, commands, state, followers }
    }

    fn commands(&self) -> Vec<String> {
        self.commands.try_iter().collect()
    }
}

fn serve(
    mut stream: TcpStream,
    has_events: bool,
    state: &watch::Receiver<String>,
    commands: &Sender<String>,
    followers: &Sender<TcpStream>,
) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let answer = match line.as_str() {
            "VERBOSE STATUS" => state.borrow().clone(),
            line if line.starts_with("CLIENT PROTOCOL ") => "SERVER PROTOCOL 2\n".to_owned(),
            line if line.starts_with("TIMEOUT ") => "OK\n".to_owned(),
            "SET FORMAT json" => "OK\n".to_owned(),
            line if line.starts_with("MONITOR") && has_events => "OK\n".to_owned(),
            line => format!("ERROR: Unknown command {line}\n"),
        };
        _ = commands.send(line.clone());
        stream.write_all(answer.as_bytes()).unwrap();
        match line.as_str() {
            "VERBOSE STATUS" => return,
            "MONITOR all" => followers.send(stream.try_clone().unwrap()).unwrap_or(()),
            _ => {}
        }
    }
}

/// A state of two ranks with these counts; a rank without one is dead.
fn json_state(counts: [Option<u64>; 2]) -> String {
    let (mut ranks, mut missing) = (Vec::new(), Vec::new());
    for (rank, count) in counts.into_iter().enumerate() {
        let mut entry = serde_json::json!({
            "rank": rank, "host": "10.0.0.7", "pid": 1_000 + rank, "cuda_dev": rank, "nvml_dev": rank,
        });
        if let Some(count) = count {
            entry["collective_counts"] = serde_json::json!({"AllReduce": count});
            ranks.push(entry);
        } else {
            entry["status"] = serde_json::json!({"unresponsive": false, "considered_dead": true});
            missing.push(entry);
        }
    }
    let communicator =
        serde_json::json!({"hash": "0xab", "size": 2, "ranks": ranks, "missing_ranks": missing});
    serde_json::json!({"nccl_version": "2.29.3", "communicators": [communicator]}).to_string()
}

/// A collector with its requests, in a time of its own.
struct CollectorFixture {
    collector: RasCollector,
    requests: watch::Sender<u64>,
    now: Instant,
}

impl CollectorFixture {
    fn new(service: SocketAddr) -> Self {
        let requests = watch::Sender::new(0);
        let options = SamplerOptions::default();
        let collector = RasCollector::new(service, &options, requests.subscribe());
        Self { collector, requests, now: Instant::now() }
    }

    fn request_status(&self) {
        self.requests.send_modify(|requests| *requests += 1);
    }

    /// Collects so many seconds later, after a query that runs has ended.
    fn collect_after(&mut self, seconds: u64) -> (Report, Result<CollectOutcome, CollectError>) {
        while self.collector.query.as_ref().is_some_and(|query| !query.is_finished()) {
            thread::yield_now();
        }
        self.now += Duration::from_secs(seconds);
        let mut report = Report { node_time: Some(UnixMs(1_000)), ..Report::default() };
        let outcome = self.collector.collect_at(self.now, &mut report);
        (report, outcome)
    }

    /// The same, whatever comes out.
    fn pass_seconds(&mut self, seconds: u64) {
        _ = self.collect_after(seconds);
    }

    /// Collects until the report has this value.
    fn await_value(&mut self, metric: MetricId, value: f64) -> Report {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let (report, outcome) = self.collect_after(0);
            if node_value(&report, metric) == Some(value) {
                return report;
            }
            assert!(Instant::now() < end, "{outcome:?}");
            thread::yield_now();
        }
    }
}

fn node_value(report: &Report, metric: MetricId) -> Option<f64> {
    report.find_reading(&Device::new_node(), metric).and_then(Reading::value)
}

#[test]
fn events_are_counted_and_a_dead_process_is_named() {
    let service = FakeService::start(true);
    let mut fixture = CollectorFixture::new(service.address);
    fixture.await_value(nccl_ras::CONNECTED, 1.0);
    let mut follower = service.followers.recv().unwrap();
    follower
        .write_all(
            b"[2026-01-02 03:04:05] PEER_NEW: Process 7 on node 10.0.0.7 managing GPU 1\n\
              [2026-01-02 03:04:06] PEER_UNRESPONSIVE: Process 7 on node 10.0.0.7 managing GPU 1 no keep-alive\n\
              [2026-01-02 03:04:07] PEER_DEAD: Process 7 on node 10.0.0.7 managing GPU 1 \n",
        )
        .unwrap();
    let report = fixture.await_value(nccl_ras::DEAD, 1.0);
    let counts = [nccl_ras::JOINED, nccl_ras::UNRESPONSIVE, nccl_ras::RECOVERED];
    assert_eq!(counts.map(|metric| node_value(&report, metric)), [Some(1.0), Some(1.0), Some(0.0)]);
    let (_, outcome) = fixture.collect_after(0);
    let Ok(CollectOutcome::FoundThat { message, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(message, "NCCL considers dead: Process 7 on node 10.0.0.7 managing GPU 1");
    // Nothing was asked of the job besides.
    assert_eq!(service.commands(), ["CLIENT PROTOCOL 2", "TIMEOUT 5", "MONITOR all"]);
}

#[test]
fn status_is_read_on_request_only_and_at_most_every_ten_seconds() {
    let service = FakeService::start(true);
    let mut fixture = CollectorFixture::new(service.address);
    fixture.await_value(nccl_ras::CONNECTED, 1.0);
    service.state.send_replace(json_state([Some(42), Some(41)]));
    fixture.pass_seconds(60);
    assert!(!service.commands().contains(&"VERBOSE STATUS".to_owned()));
    let count = |service: &FakeService| {
        service.commands().iter().filter(|command| *command == "VERBOSE STATUS").count()
    };
    for _ in 0..5 {
        fixture.request_status();
        fixture.pass_seconds(1);
    }
    let (report, _) = fixture.collect_after(1);
    assert_eq!(count(&service), 1);
    assert_eq!(node_value(&report, nccl_ras::STATUS_TIME), Some(1.0));
    assert_eq!(node_value(&report, nccl_ras::MISSING_DEAD), Some(0.0));
    // One state alone does not show that nothing moves.
    assert_eq!(node_value(&report, nccl_ras::COMPARED_TIME), None);
    fixture.pass_seconds(10);
    let (report, _) = fixture.collect_after(1);
    assert_eq!(count(&service), 1);
    assert_eq!(node_value(&report, nccl_ras::STUCK_COMMUNICATORS), Some(1.0));
    let rank = Device::new_rank(&"0xab".into(), 1);
    let value = |metric| report.find_reading(&rank, metric).and_then(Reading::value);
    assert_eq!(
        [nccl_ras::LAUNCHED, nccl_ras::EXPECTED, nccl_ras::WAITING].map(value),
        [Some(41.0), Some(42.0), Some(1.0)]
    );
    let labels: Vec<String> = report
        .infos
        .iter()
        .filter(|info| info.metric == nccl_ras::RANK_INFO)
        .flat_map(|info| info.labels.iter().map(|(name, value)| format!("{name}={value}")))
        .collect();
    assert_eq!(
        labels,
        ["host=10.0.0.7", "pid=1001", "gpu=1", "reason=behind", "operation=AllReduce"]
    );
    // A comparison of long ago is not reported.
    let (report, _) = fixture.collect_after(COMPARISON_VALID.as_secs() + 1);
    assert_eq!(node_value(&report, nccl_ras::COMPARED_TIME), None);
    assert!(report.devices.iter().all(|device| *device != rank));
}

#[test]
fn dead_rank_has_no_counts() {
    let service = FakeService::start(true);
    let mut fixture = CollectorFixture::new(service.address);
    fixture.await_value(nccl_ras::CONNECTED, 1.0);
    service.state.send_replace(json_state([Some(42), None]));
    for _ in 0..2 {
        fixture.request_status();
        fixture.pass_seconds(QUERY_EVERY.as_secs());
    }
    let (report, _) = fixture.collect_after(1);
    assert_eq!(node_value(&report, nccl_ras::MISSING_DEAD), Some(1.0));
    let rank = Device::new_rank(&"0xab".into(), 1);
    let launched = report.find_reading(&rank, nccl_ras::LAUNCHED);
    assert_eq!(launched, Some(AbsenceReason::Lost.into()));
}

#[test]
fn service_without_events_still_has_a_status() {
    let service = FakeService::start(false);
    let mut fixture = CollectorFixture::new(service.address);
    let report = fixture.await_value(nccl_ras::CONNECTED, 1.0);
    let dead = report.find_reading(&Device::new_node(), nccl_ras::DEAD);
    assert_eq!(dead, Some(AbsenceReason::Unsupported.into()));
    service.state.send_replace(json_state([Some(1), Some(1)]));
    fixture.request_status();
    fixture.pass_seconds(1);
    let (report, _) = fixture.collect_after(1);
    assert_eq!(node_value(&report, nccl_ras::STATUS_TIME), Some(1.0));
    // What cannot be read is an error that names the service.
    service.state.send_replace("{".to_owned());
    fixture.request_status();
    fixture.pass_seconds(20);
    let error = fixture.collect_after(1).1.unwrap_err().to_string();
    assert!(
        error.contains(&service.address.to_string()) && error.contains("gaunt-probe ras"),
        "{error}"
    );
}

#[test]
fn node_without_service_is_no_failure() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut fixture = CollectorFixture::new(closed);
    fixture.request_status();
    let report = fixture.await_value(nccl_ras::CONNECTED, 0.0);
    assert!(report.infos.iter().any(|info| info.metric == nccl_ras::INFO));
    let (_, outcome) = fixture.collect_after(1);
    let Ok(CollectOutcome::Nothing(reason)) = outcome else { panic!("{outcome:?}") };
    assert!(reason.starts_with("no NCCL RAS service at 127.0.0.1:"), "{reason}");
    assert!(fixture.collector.query.is_none());
}
