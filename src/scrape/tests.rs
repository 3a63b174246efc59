//! Tests of scraping misbehaving servers, while a good one is scraped every period.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{Batch, ClockFn, Device, ScrapeFailure, ScrapedPage, UnixMs, catalogue::host};
use tokio::{net::TcpListener, time::timeout};

use self::misbehaving_server::{ServerBehaviour, ok_response, start_server};
use super::*;

mod changing_targets;
mod chaos;
mod dns_targets;
mod frame_fallback;
mod misbehaving_server;
mod ras_requests;
mod text_formats;
mod tls_access;

/// The period of these tests: short, and long enough for a debug build on a busy machine.
const PERIOD: Duration = Duration::from_millis(400);

/// The deadline of one scrape: several periods, so that a busy machine is not taken for a silent server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The page limit of these tests.
const MAX_BODY: usize = 2 << 20;

/// Timeout of each of these tests.
const PATIENCE: Duration = Duration::from_mins(1);

const GOOD: &str = "# TYPE gaunt_node_cpus gauge\ngaunt_node_cpus 64\n";

fn plan_with_lists(lists: impl IntoIterator<Item = String>, options: ScrapeOptions) -> ScrapePlan {
    let sources =
        lists.into_iter().map(|list| DiscoverySource::List(list, "test".into())).collect();
    ScrapePlan { options, groups: vec![TargetGroup { sources, ..TargetGroup::default() }] }
}

/// The wall clock.
pub(super) fn test_clock() -> ClockFn {
    let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Arc::new(move || UnixMs(0) + wall())
}

pub(super) fn test_options() -> ScrapeOptions {
    ScrapeOptions { timeout: TIMEOUT, max_body: MAX_BODY, ..ScrapeOptions::with_period(PERIOD) }
}

/// Scrapes `servers` until each of them has sent `rounds` batches. Periods that this machine had no time for do not
/// count.
async fn gather_batches(
    servers: &[(&'static str, String)],
    rounds: usize,
) -> HashMap<&'static str, Vec<Batch>> {
    let (inbox, mut deliveries) = mpsc::channel(64);
    let plan = plan_with_lists(servers.iter().map(|(_, address)| address.clone()), test_options());
    let _manager = spawn_manager(plan, inbox, test_clock());
    let mut names = HashMap::new();
    let mut batches: HashMap<_, Vec<_>> =
        servers.iter().map(|(name, _)| (*name, Vec::new())).collect();
    let collect = async {
        while batches.values().any(|batches| batches.len() < rounds) {
            match deliveries.recv().await.expect("the gatherer runs") {
                Delivery::Targets(targets) => {
                    for target in targets {
                        let server =
                            servers.iter().find(|(_, address)| target.address.contains(address));
                        names.insert(target.id, server.expect("a known target").0);
                    }
                }
                Delivery::Batch(batch) if !matches!(batch.outcome, Err(ScrapeFailure::Skipped)) => {
                    batches.get_mut(names[&batch.target]).unwrap().push(batch);
                }
                _ => {}
            }
        }
    };
    timeout(PATIENCE, collect).await.expect("every target sends a batch in every period");
    batches
}

fn page_of(batch: &Batch) -> &ScrapedPage {
    batch.outcome.as_ref().unwrap_or_else(|failure| panic!("no page: {failure}"))
}

fn cpu_count(page: &ScrapedPage) -> Option<f64> {
    page.report.find_reading(&Device::new_node(), host::CPUS)?.value()
}

/// Misbehaving servers, each with the text of its failure.
async fn misbehaving_servers() -> Vec<(&'static str, String, &'static str)> {
    let unused_address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let truncated_body =
        b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\ngaunt_node_cpus 64\n".to_vec();
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n";
    let redirect = "HTTP/1.1 302 Found\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n";
    let server_error = "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n";
    let gzip = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx";
    vec![
        ("gone", unused_address, "cannot connect: connection refused"),
        (
            "silent",
            start_server(ServerBehaviour::Holds("")).await,
            "timeout while waiting for headers (limit 5s)",
        ),
        (
            "stalls",
            start_server(ServerBehaviour::Holds(
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ngaunt",
            ))
            .await,
            "timeout while reading the page (limit 5s)",
        ),
        (
            "not http",
            start_server(ServerBehaviour::AnswersAndCloses(b"\x1b[31mhello\r\n\r\n".to_vec()))
                .await,
            "connection broke: ",
        ),
        (
            "half",
            start_server(ServerBehaviour::AnswersAndCloses(truncated_body)).await,
            "connection broke: ",
        ),
        (
            "huge",
            start_server(ServerBehaviour::Holds(huge)).await,
            "page is larger than the limit of 2097152 bytes",
        ),
        (
            "flood",
            start_server(ServerBehaviour::Repeats("HTTP/1.1 200 OK\r\n\r\n", vec![b'x'; 65_536]))
                .await,
            "page is larger than the limit of 2097152 bytes",
        ),
        (
            "garbage",
            start_server(ServerBehaviour::Answers(ok_response("<html>\nnot a page\n"))).await,
            "not an exposition page: ",
        ),
        (
            "gzip",
            start_server(ServerBehaviour::AnswersAndCloses(gzip.into())).await,
            "connection broke: the compressed page is truncated",
        ),
        (
            "error",
            start_server(ServerBehaviour::Answers(server_error.into())).await,
            "server returned HTTP status 500",
        ),
        (
            "redirect",
            start_server(ServerBehaviour::Answers(redirect.into())).await,
            "server returned HTTP status 302",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misbehaving_servers_are_named_and_do_not_delay_the_good_one() {
    let failing = misbehaving_servers().await;
    let mut servers =
        vec![("good", start_server(ServerBehaviour::Answers(ok_response(GOOD))).await)];
    servers.extend(failing.iter().map(|(name, address, _)| (*name, address.clone())));
    // It ends when the silent ones have timed out, and until then the others have had many periods.
    let batches = gather_batches(&servers, 1).await;
    for (name, _, expected) in &failing {
        for batch in &batches[name] {
            let failure = match &batch.outcome {
                Ok(_) => panic!("{name} has a page"),
                Err(ScrapeFailure::Resting(last)) => last,
                Err(failure) => failure,
            };
            assert!(failure.to_string().starts_with(expected), "{name}: {failure}");
        }
    }
    let read = batches["good"].len();
    assert!(read >= 3, "the good target is read while others are silent, not {read} times");
    for batch in &batches["good"] {
        assert_eq!(cpu_count(page_of(batch)), Some(64.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_lines_are_rejected_alone_and_counted() {
    let oversized_line = format!("gaunt_node_cpus{{x=\"{}\"}} 1\n{GOOD}", "y".repeat(1 << 20));
    let duplicate_series = format!("{GOOD}gaunt_node_cpus 65\n");
    let escapes = format!("{GOOD}gaunt_node_info{{node=\"\x1b]0;owned\x07gpu1\\n\"}} 1\n");
    let servers = [
        ("long", start_server(ServerBehaviour::Answers(ok_response(&oversized_line))).await),
        ("twice", start_server(ServerBehaviour::Answers(ok_response(&duplicate_series))).await),
        ("escapes", start_server(ServerBehaviour::Answers(ok_response(&escapes))).await),
    ];
    let batches = gather_batches(&servers, 1).await;
    for (name, reasons) in [
        ("long", vec![("line_too_long", 1)]),
        ("twice", vec![("duplicate_series", 1)]),
        ("escapes", vec![]),
    ] {
        let page = page_of(&batches[name][0]);
        assert_eq!(cpu_count(page), Some(64.0), "{name}");
        let counted: Vec<_> =
            page.rejected.by_reason.iter().map(|(r, n)| (r.as_str(), *n)).collect();
        assert_eq!(counted, reasons, "{name}");
    }
    let node = page_of(&batches["escapes"][0]).report.node.clone().unwrap();
    assert_eq!(node, "\u{fffd}]0;owned\u{fffd}gpu1\u{fffd}");
}

/// A server that closes each connection after its response costs a new connection, not a page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_connection_is_replaced_without_a_failure() {
    let closing = ServerBehaviour::AnswersAndCloses(ok_response(GOOD).into_bytes());
    let batches = gather_batches(&[("closing", start_server(closing).await)], 4).await;
    for batch in &batches["closing"] {
        assert_eq!(cpu_count(page_of(batch)), Some(64.0));
    }
}

/// Only the stream of a connection is kept between two pages; a server that sent more than one response gets a new
/// connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connection_is_used_for_the_next_request() {
    let page = |number: u64| {
        format!("gaunt_node_cpus {}\n", (number >> 32) * 1_000 + (number & 0xffff_ffff))
    };
    let servers = [
        ("kept", start_server(ServerBehaviour::Makes(page)).await),
        (
            "talkative",
            start_server(ServerBehaviour::Answers(format!("{}HTTP/1.1 2", ok_response(GOOD))))
                .await,
        ),
    ];
    let batches = gather_batches(&servers, 4).await;
    let cpu_counts = |name| batches[name].iter().take(4).map(|batch| cpu_count(page_of(batch)));
    // The first connection, and on it one request after the other.
    let one_connection = [1_001.0, 1_002.0, 1_003.0, 1_004.0].map(Some);
    assert_eq!(cpu_counts("kept").collect::<Vec<_>>(), one_connection);
    assert!(cpu_counts("talkative").all(|cpus| cpus == Some(64.0)));
}

/// A full inbox delays batches; a period that passed entirely is reported as skipped, not left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_period_is_reported_as_skipped() {
    use std::sync::atomic::{AtomicI64, Ordering};

    let time = Arc::new(AtomicI64::new(1_000_000));
    let clock: ClockFn = {
        let time = time.clone();
        // Each read of this clock advances it by a period and a half.
        Arc::new(move || gaunt_schema::UnixMs(time.fetch_add(600, Ordering::Relaxed)))
    };
    let good = start_server(ServerBehaviour::Answers(ok_response(GOOD))).await;
    let (inbox, mut deliveries) = mpsc::channel(4);
    let _manager =
        spawn_manager(plan_with_lists([good], ScrapeOptions::with_period(PERIOD)), inbox, clock);
    let skipped = async {
        while let Some(delivery) = deliveries.recv().await {
            if let Delivery::Batch(Batch { outcome: Err(ScrapeFailure::Skipped), .. }) = delivery {
                return true;
            }
        }
        false
    };
    assert!(timeout(PATIENCE, skipped).await.unwrap());
}
