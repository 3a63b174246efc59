//! Chaos test: a quarter of all targets misbehave at once, each in its own way, and the others keep their period.

use std::collections::BTreeMap;

use tokio::net::TcpSocket;

use super::{
    misbehaving_server::{encoded_response, gzip_bytes, zstd_bytes},
    *,
};

/// The period: long enough that the good ones respond within four fifths of it on a busy machine.
const CHAOS_PERIOD: Duration = Duration::from_secs(2);

/// Periods that are counted, after the first: a misbehaving target fails three times before it is scraped less often,
/// and a good one that lost every second page would be missing two.
const PERIODS: i64 = 4;

/// Good targets for each misbehaving one.
const GOOD_FOR_A_BAD_ONE: usize = 3;

/// The largest page: small, so that misbehaving servers exceed it soon.
const SMALL: usize = 1 << 20;

const OK: &str = "HTTP/1.1 200 OK\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// A page of a GPU whose number differs each time.
fn page_with_new_gpu(number: u64) -> String {
    format!("gaunt_node_cpus 64\ngaunt_gpu_info{{gpu=\"0\",uuid=\"GPU-{number}\"}} 1\n")
}

/// A page with new devices at every scrape.
fn page_with_new_devices(number: u64) -> String {
    let line = |n| format!("gaunt_netdev_receive_bytes_total{{device=\"veth{number}x{n}\"}} 1");
    (0..2_000).map(line).collect::<Vec<_>>().join("\n")
}

/// More samples than a page may have.
fn page_with_many_samples(_: u64) -> String {
    let line = |n| format!("some_metric{{n=\"{n}\"}} 1");
    (0..5_001).map(line).collect::<Vec<_>>().join("\n")
}

/// A page with every fault of labels and numbers that lines can have; the page as such is valid.
const ODD: &str = "gaunt_node_cpus 64\ngaunt_node_cpus 65\ngaunt_node_cpus{ 1\n\u{1b}[31m 1\ngaunt_gpu_power_watts\
                   {gpu=\"0\"} 0x12\ngaunt_gpu_power_watts{gpu=\"1\"} NaN\n";

/// A misbehaving server: its name, its behaviour, and the beginning of its failure. An empty one is no failure.
type MisbehavingServer = (&'static str, ServerBehaviour, &'static str);

/// Servers that are too slow, or close the connection.
fn silent_servers() -> Vec<MisbehavingServer> {
    let (waiting, reading, broke) = (
        "timeout while waiting for headers",
        "timeout while reading the page",
        "connection broke: ",
    );
    let broke_within_a_line = "connection broke: the page ends within a line";
    let truncated_body = "HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\ngaunt_node_cpus 64\n";
    let chunks = format!("{CHUNKED}5\r\ngaunt\r\nzz\r\n");
    vec![
        ("says nothing", ServerBehaviour::Holds(""), waiting),
        ("drips headers", ServerBehaviour::Drips(ok_response(GOOD)), waiting),
        ("stops in the body", ServerBehaviour::Holds(truncated_body), reading),
        ("closes at once", ServerBehaviour::Slams, broke),
        (
            "is cut off within a number, without a length",
            ServerBehaviour::AnswersAndCloses(
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\ngaunt_node_cpus 6".into(),
            ),
            broke_within_a_line,
        ),
        ("answers half", ServerBehaviour::AnswersAndCloses(truncated_body.into()), broke),
        ("resets in the body", ServerBehaviour::AnswersAndResets(truncated_body.into()), broke),
        ("breaks its chunks", ServerBehaviour::AnswersAndCloses(chunks.into()), broke),
        (
            "speaks no HTTP",
            ServerBehaviour::AnswersAndCloses(b"\x1b[31mSSH-2.0\r\n\r\n".to_vec()),
            broke,
        ),
    ]
}

/// Servers whose response has no end, or claims so.
fn endless_servers() -> Vec<MisbehavingServer> {
    let huge = "HTTP/1.1 200 OK\r\ncontent-length: 4294967296\r\n\r\n";
    let page = "HTTP/1.1 200 OK\r\n\r\n";
    let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
    let promise = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    let bomb = vec![b'\n'; 8 << 20];
    let larger = "page is larger";
    let headers = ServerBehaviour::Repeats(OK, b"x-a: bcdefgh\r\n".to_vec());
    vec![
        ("headers without end", headers, "connection broke: "),
        ("promises without end", ServerBehaviour::Repeats("", promise), ""),
        ("says it is huge", ServerBehaviour::Holds(huge), larger),
        ("lines without end", ServerBehaviour::Repeats(page, vec![b'x'; 65_536]), larger),
        ("chunks without end", ServerBehaviour::Repeats(CHUNKED, chunk), larger),
        (
            "a gzip bomb",
            ServerBehaviour::AnswersBytes(encoded_response("gzip", &gzip_bytes(&bomb))),
            larger,
        ),
        (
            "a zstd bomb",
            ServerBehaviour::AnswersBytes(encoded_response("zstd", &zstd_bytes(&bomb))),
            larger,
        ),
    ]
}

/// Servers that respond with something else than a page, or with too much of it.
fn wrong_servers() -> Vec<MisbehavingServer> {
    let truncated = gzip_bytes(GOOD.repeat(50).as_bytes());
    let truncated =
        ServerBehaviour::AnswersBytes(encoded_response("gzip", &truncated[..truncated.len() / 2]));
    let plain = |coding| ServerBehaviour::AnswersBytes(encoded_response(coding, GOOD.as_bytes()));
    let answer = |text: &str| ServerBehaviour::Answers(text.to_owned());
    let error = "HTTP/1.1 503 Oh\r\ncontent-length: 0\r\n\r\n";
    let redirect =
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
    let binary = ServerBehaviour::AnswersBytes(encoded_response("identity", &[0xff, 0, 0xfe, 1]));
    vec![
        ("half a gzip", truncated, "connection broke: the compressed page is truncated"),
        ("no gzip", plain("gzip"), "not an exposition page: invalid gzip"),
        ("no zstd", plain("zstd"), "not an exposition page: invalid zstd"),
        ("another coding", plain("br"), "not an exposition page: it is encoded as br"),
        ("a web page", answer(&ok_response("<html>\nnot a page\n")), "not an exposition page: "),
        ("binary", binary, "not an exposition page: "),
        ("an error", answer(error), "server returned HTTP status 503"),
        ("a redirect", answer(redirect), "server returned HTTP status 302"),
        (
            "a crowd",
            ServerBehaviour::Makes(page_with_many_samples),
            "page has 5001 samples or more, over the limit of 5000",
        ),
        ("explodes", ServerBehaviour::Makes(page_with_new_devices), "page has 2000 new series"),
        ("another machine each time", ServerBehaviour::Makes(page_with_new_gpu), ""),
        ("odd lines", answer(&ok_response(ODD)), ""),
    ]
}

/// An address without a listener, which no other process can use as long as the socket is open.
fn refusing_address() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// All misbehaving servers with their addresses; `unused_address` has no listener.
async fn start_misbehaving(unused_address: String) -> Vec<(&'static str, String, &'static str)> {
    let mut servers = vec![("refuses", unused_address, "cannot connect: connection refused")];
    for (name, behaviour, expected) in
        silent_servers().into_iter().chain(endless_servers()).chain(wrong_servers())
    {
        servers.push((name, start_server(behaviour).await, expected));
    }
    servers
}

/// Results of each address: pages, and failures with their counts.
#[derive(Default)]
struct TargetTally {
    pages: u32,
    failures: BTreeMap<String, u32>,
    batches: u32,
}

/// Scrapes for so many periods of the clock, and returns the results of each address.
async fn tally_targets(lists: Vec<String>) -> HashMap<String, TargetTally> {
    let limits = ScrapeQuotas { samples: 5_000, new_series: 1_000, ..ScrapeQuotas::default() };
    let options =
        ScrapeOptions { max_body: SMALL, limits, ..ScrapeOptions::with_period(CHAOS_PERIOD) };
    let clock = test_clock();
    let (inbox, mut deliveries) = mpsc::channel(256);
    let _manager = spawn_manager(plan_with_lists(lists, options), inbox, clock.clone());
    let begin = clock() + CHAOS_PERIOD;
    let end = begin + CHAOS_PERIOD * PERIODS as u32;
    let (mut names, mut tallies) = (HashMap::new(), HashMap::<String, TargetTally>::new());
    while let Ok(Some(delivery)) = timeout(PATIENCE, deliveries.recv()).await {
        match delivery {
            Delivery::Targets(targets) => {
                names.extend(targets.into_iter().map(|t| (t.id, t.address.to_string())));
            }
            Delivery::Batch(batch) if batch.at > end => break,
            Delivery::Batch(batch) if batch.at > begin => {
                let tally = tallies.entry(names[&batch.target].clone()).or_default();
                tally.batches += 1;
                match batch.outcome {
                    Ok(_) => tally.pages += 1,
                    Err(ScrapeFailure::Resting(last)) => {
                        *tally.failures.entry(last.to_string()).or_default() += 0;
                    }
                    Err(failure) => *tally.failures.entry(failure.to_string()).or_default() += 1,
                }
            }
            _ => {}
        }
    }
    tallies
}

/// The same good targets are scraped twice at the same time, once alone and once among misbehaving ones: a busy
/// machine slows both, the chaos only the second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_targets_are_not_delayed_by_a_quarter_that_misbehaves() {
    let (_socket, unused_address) = refusing_address();
    let misbehaving = start_misbehaving(unused_address).await;
    let mut good = Vec::new();
    for _ in 0..GOOD_FOR_A_BAD_ONE * misbehaving.len() {
        good.push(start_server(ServerBehaviour::Answers(ok_response(GOOD))).await);
    }
    // Good and bad ones interleaved, so that they share every moment of the period.
    let mut interleaved = good.clone();
    for (index, (_, address, _)) in misbehaving.iter().enumerate() {
        interleaved.insert(index * (GOOD_FOR_A_BAD_ONE + 1), address.clone());
    }
    let (mixed, alone) = tokio::join!(tally_targets(interleaved), tally_targets(good.clone()));
    for address in &good {
        let (mixed, alone) = (&mixed[address], &alone[address]);
        assert!(
            mixed.failures.keys().all(|why| why.starts_with("timeout while")),
            "{:?}",
            mixed.failures
        );
        assert!(
            mixed.pages + 1 >= alone.pages,
            "{} pages among them, {} alone",
            mixed.pages,
            alone.pages
        );
    }
    let pages: u32 = good.iter().map(|address| mixed[address].pages).sum();
    let expected_pages = good.len() as u32 * PERIODS as u32;
    assert!(
        pages * 2 > expected_pages,
        "{pages} of {expected_pages} pages: the machine is too busy to tell"
    );
    for (name, address, expected) in &misbehaving {
        let tally = &mixed[address];
        assert!(
            i64::from(tally.batches) + 1 >= PERIODS,
            "{name} is flagged in {} periods only",
            tally.batches
        );
        if expected.is_empty() {
            continue;
        }
        assert!(
            tally.failures.keys().any(|why| why.starts_with(expected)),
            "{name}: {:?}",
            tally.failures
        );
        assert!(tally.pages == 0 || *name == "explodes", "{name} has {} pages", tally.pages);
    }
}

/// A page with too high a compression ratio is rejected even if it is within the size limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_over_the_compression_ratio_is_refused() {
    let page = format!("{GOOD}{}", "\n".repeat(MAX_BODY - 1_000));
    let servers = [
        (
            "gzip",
            start_server(ServerBehaviour::AnswersBytes(encoded_response(
                "gzip",
                &gzip_bytes(page.as_bytes()),
            )))
            .await,
        ),
        (
            "zstd",
            start_server(ServerBehaviour::AnswersBytes(encoded_response(
                "zstd",
                &zstd_bytes(page.as_bytes()),
            )))
            .await,
        ),
        (
            "honest",
            start_server(ServerBehaviour::AnswersBytes(encoded_response(
                "gzip",
                &gzip_bytes(GOOD.as_bytes()),
            )))
            .await,
        ),
        (
            "plain",
            start_server(ServerBehaviour::AnswersBytes(encoded_response(
                "zstd",
                &zstd_bytes(GOOD.as_bytes()),
            )))
            .await,
        ),
    ];
    let batches = gather_batches(&servers, 1).await;
    for name in ["gzip", "zstd"] {
        let failure = batches[name][0].outcome.as_ref().unwrap_err().to_string();
        assert!(
            failure.starts_with("page is ") && failure.ends_with(", over the limit of 200"),
            "{failure}"
        );
    }
    for name in ["honest", "plain"] {
        assert_eq!(cpu_count(page_of(&batches[name][0])), Some(64.0), "{name}");
    }
}
