//! Clients of a served pair beside its console: scrapers, service discovery, probes, and those that mean harm or are wrong.
//!
//! Each request is written as bytes, with what may be answered. No answer may take longer than the server's own limits, no
//! counter of `/metrics` may fall while a process lives, and no page may have a line that cannot be read.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaunt_schema::text::{PageLimits, PageLine, TextReader};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::timeout,
};

use crate::{seeded_random::SeededRandom, simulated_link::ServicePlace};

/// The longest time until an answer is complete: the server gives up after 10 s, and closes an unfinished request after 5 s.
const LONGEST: Duration = Duration::from_secs(13);

/// How long an endless answer is read.
const STREAMED_FOR: Duration = Duration::from_secs(6);

/// The most bytes of an answer that are read.
const MAX_READ: u64 = 4 << 20;

/// The token of the pair, and a header with it.
const WITH_TOKEN: &str = "Authorization: Bearer a-token-of-a-simulated-pair\r\n";
const WITH_WRONG_TOKEN: &str = "Authorization: Bearer another-token-than-theirs\r\n";

/// The host of a request is written for the process that gets it.
const HOST: &str = "Host: HOST\r\n";

/// A request: method and path, further headers, body, and the statuses that are right; 0 is a connection that is closed.
struct OtherRequest(&'static str, &'static [&'static str], &'static str, &'static [u16]);

/// What scrapers, consoles, probes and programs ask.
const USUAL: &[OtherRequest] = &[
    OtherRequest("GET /", &[HOST], "", &[200]),
    OtherRequest("GET /healthz", &[HOST], "", &[200]),
    OtherRequest("GET /readyz", &[HOST], "", &[200, 503]),
    OtherRequest("GET /metrics", &[HOST], "", &[200]),
    OtherRequest("GET /metrics", &[HOST, "Accept: application/openmetrics-text\r\n"], "", &[200]),
    OtherRequest("GET /metrics", &[HOST, "Accept-Encoding: gzip\r\n"], "", &[200]),
    // A client that names no host is no browser.
    OtherRequest("GET /metrics", &[], "", &[200]),
    OtherRequest("HEAD /metrics", &[HOST], "", &[200]),
    OtherRequest("GET /sd/http", &[HOST], "", &[200]),
    OtherRequest("GET /sd/http?through=aggregator", &[HOST], "", &[200]),
    OtherRequest("GET /node/gpu01/metrics", &[HOST], "", &[200, 404, 503]),
    OtherRequest("GET /api/gaunt/v1/openapi.json", &[HOST], "", &[200]),
    OtherRequest("GET /api/gaunt/v1/nodes/gpu02", &[HOST], "", &[200, 404]),
    OtherRequest("GET /api/gaunt/v1/history?metric=power", &[HOST], "", &[200]),
    OtherRequest("GET /api/gaunt/v1/stream?ask=findings", &[HOST], "", &[200]),
    OtherRequest("GET /api/gaunt/v1/stream?ask=nodes/nowhere", &[HOST], "", &[200, 404]),
    // This pair does not record.
    OtherRequest("GET /api/gaunt/v1/recording", &[HOST], "", &[503]),
    OtherRequest("GET /api/gaunt/v1/peer", &[HOST, WITH_TOKEN], "", &[200]),
    OtherRequest("GET /api/gaunt/v1/peer/state", &[HOST, WITH_TOKEN], "", &[200, 503]),
    OtherRequest(
        "POST /api/gaunt/v1/probe/meeting",
        &[HOST, WITH_TOKEN],
        r#"{"word":"free","node":"gpu01","host":"gpu01","tools":["nccl"]}"#,
        &[200],
    ),
];

/// What is wrong, or means harm: nothing of it is answered as if it were right.
const HOSTILE: &[OtherRequest] = &[
    OtherRequest("GET /nowhere", &[HOST], "", &[404]),
    OtherRequest("GET /sd/http?through=peer", &[HOST], "", &[400]),
    OtherRequest("GET /node/%1b%5b2J/metrics", &[HOST], "", &[404]),
    OtherRequest("GET /api/gaunt/v1/gpus?filter=power>", &[HOST], "", &[400]),
    OtherRequest("GET /api/gaunt/v1/history?metric=../../etc/passwd", &[HOST], "", &[400, 404]),
    OtherRequest("GET /api/gaunt/v1/stream", &[HOST], "", &[400, 404]),
    OtherRequest("GET /api/gaunt/v1/stream?ask=overview&from=x-9", &[HOST], "", &[200, 400]),
    OtherRequest("PUT /api/gaunt/v1/overview", &[HOST], "", &[405]),
    OtherRequest("GET /metrics", &[HOST, HOST], "", &[400]),
    OtherRequest("GET /metrics", &["Host: evil.example\r\n"], "", &[421]),
    OtherRequest("GET /metrics", &[HOST], "a body", &[413]),
    OtherRequest("GET /metrics", &[HOST, "Transfer-Encoding: chunked\r\n"], "", &[413]),
    OtherRequest("POST /api/v1/write", &[HOST, WITH_TOKEN], "\0\u{1}", &[404]),
    OtherRequest("GET /api/gaunt/v1/peer", &[HOST], "", &[401]),
    OtherRequest("GET /api/gaunt/v1/peer/state", &[HOST, WITH_WRONG_TOKEN], "", &[401, 429]),
    OtherRequest("POST /api/gaunt/v1/peer/actions", &[HOST, WITH_TOKEN], "{}", &[400]),
    OtherRequest("POST /api/gaunt/v1/probe/meeting", &[HOST, WITH_TOKEN], "[[[[", &[400]),
    OtherRequest("POST /api/gaunt/v1/probe/meeting", &[HOST], "{}", &[401]),
    OtherRequest(
        "POST /api/gaunt/v1/findings/none/acknowledge",
        &[HOST, WITH_WRONG_TOKEN],
        "{}",
        &[401, 429],
    ),
    OtherRequest(
        "POST /api/gaunt/v1/findings/none/acknowledge",
        &[HOST, WITH_TOKEN],
        r#"{"by":"","note":7}"#,
        &[400],
    ),
    OtherRequest(
        "POST /api/gaunt/v1/findings/none/acknowledge",
        &[HOST, WITH_TOKEN, "If-Match: \"\u{7f}\"\r\n"],
        r#"{"by":"sam","note":"x"}"#,
        &[400],
    ),
    OtherRequest(
        "DELETE /api/gaunt/v1/findings/none/acknowledge?by=sam",
        &[HOST, WITH_TOKEN],
        "",
        &[404],
    ),
    OtherRequest(
        "POST /api/gaunt/v1/findings/none/acknowledge",
        &[HOST, WITH_TOKEN, "Content-Length: 99999999\r\n"],
        "",
        &[413],
    ),
    // A head that never ends, and one that is none.
    OtherRequest("GET /metrics", &["X: "], "", &[0, 408]),
    OtherRequest("\u{16}\u{3}\u{1}\0\u{1}", &[], "", &[400, 0]),
];

/// Clients; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherClients(Arc<Mutex<ClientState>>);

#[derive(Debug, Default)]
struct ClientState {
    broken: Vec<String>,
    answered: u64,
    /// Counters of the last page of each process, by its start and the name of its machine.
    counters: BTreeMap<(&'static str, u64), BTreeMap<String, f64>>,
}

/// An answer.
struct RawAnswer {
    status: u16,
    body: Vec<u8>,
    is_plain: bool,
}

impl OtherClients {
    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What does not hold.
    pub(crate) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.state().broken)
    }

    /// Requests that were answered.
    pub(crate) fn answered(&self) -> u64 {
        self.state().answered
    }

    /// Sends a request to one of the two, whose name is that of its place.
    pub(crate) fn send_one(
        &self,
        (name, place): (&'static str, &ServicePlace),
        random: &mut SeededRandom,
        tasks: &mut JoinSet<()>,
    ) {
        let table = if random.once_in(2) { USUAL } else { HOSTILE };
        let request = &table[random.below(table.len() as u64) as usize];
        // Tokens are guessed at another address than that of the console.
        let client = SocketAddr::from(([10, 0, 9, random.below(3) as u8], 4_000));
        let (clients, place) = (self.clone(), place.clone());
        tasks.spawn(async move { clients.send(request, name, &place, client).await });
    }

    async fn send(
        &self,
        request: &OtherRequest,
        name: &'static str,
        place: &ServicePlace,
        client: SocketAddr,
    ) {
        let Some((started, mut stream)) = place.connect(client).await else { return };
        let OtherRequest(line, headers, body, right) = request;
        let asked = async {
            stream.write_all(&request.to_bytes(name)).await.ok();
            let mut answer = Vec::new();
            let is_stream = line.contains("/stream");
            let limit = if is_stream { STREAMED_FOR } else { LONGEST };
            let mut bounded = stream.take(MAX_READ);
            let read = timeout(limit, bounded.read_to_end(&mut answer)).await;
            (read.is_ok() || is_stream, answer)
        };
        let (is_in_time, answer) = asked.await;
        if place.running() != Some(started) {
            // Its process ended meanwhile.
            return;
        }
        let mut state = self.state();
        let shown = format!("{line} {headers:?} {body:?}");
        if !is_in_time {
            return state.broken.push(format!("{shown}: no end within {LONGEST:?}"));
        }
        state.answered += 1;
        let status = parse_answer(&answer).map_or(0, |answer| answer.status);
        if !right.contains(&status) {
            let start = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
            return state.broken.push(format!("{shown}: {status} instead of {right:?}: {start}"));
        }
        let Some(answer) = parse_answer(&answer).filter(|_| status == 200) else { return };
        if *line == "GET /metrics" && answer.is_plain {
            state.check_page(name, started, &answer.body);
        } else if line.starts_with("GET /sd/http")
            && serde_json::from_slice::<Vec<serde_json::Value>>(&answer.body).is_err()
        {
            state.broken.push(format!("{shown}: no list of targets"));
        }
    }
}

impl OtherRequest {
    /// The bytes of the request; the connection is closed after its answer.
    fn to_bytes(&self, host: &str) -> Vec<u8> {
        let Self(line, headers, body, _) = self;
        let mut bytes = format!("{line} HTTP/1.1\r\n");
        for header in *headers {
            bytes.push_str(&header.replace("HOST", &format!("{host}:9771")));
        }
        // A head whose last line has no end is never finished.
        if headers.last().is_none_or(|header| header.ends_with("\r\n")) {
            if !body.is_empty() || line.starts_with("POST") && !headers.concat().contains("Length")
            {
                bytes.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
            }
            bytes.extend(["Connection: close\r\n\r\n", *body]);
        }
        bytes.into_bytes()
    }
}

/// Status and body of an answer; none if it has no head.
fn parse_answer(answer: &[u8]) -> Option<RawAnswer> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let head = head.to_ascii_lowercase();
    let is_plain = !head.contains("content-encoding") && head.contains("text/plain");
    let body = answer[end + 4..].to_vec();
    // A stream has no last chunk while it is read.
    let is_chunked = head.contains("transfer-encoding: chunked");
    let body = join_chunks(&body).filter(|_| is_chunked).unwrap_or(body);
    Some(RawAnswer { status, body, is_plain })
}

fn join_chunks(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut joined = Vec::new();
    loop {
        let end = body.windows(2).position(|bytes| bytes == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(joined);
        }
        joined.extend_from_slice(body.get(end + 2..end + 2 + size)?);
        body = body.get(end + 4 + size..)?;
    }
}

impl ClientState {
    /// Checks that each line of a page can be read, and that no counter of the process falls.
    fn check_page(&mut self, name: &'static str, started: u64, page: &[u8]) {
        let limits = PageLimits::default();
        let mut reader = TextReader::new(page, &limits);
        let counters = self.counters.entry((name, started)).or_default();
        while let Some(line) = reader.next() {
            match line {
                Ok(PageLine::Sample(sample)) if sample.name.ends_with("_total") => {
                    let series = String::from_utf8_lossy(sample.line).into_owned();
                    let series = series.rsplit_once(' ').map_or(&*series, |(series, _)| series);
                    let before = counters.insert(series.to_owned(), sample.value);
                    if before.is_some_and(|before| sample.value < before) {
                        self.broken
                            .push(format!("{series} falls from {before:?} to {}", sample.value));
                    }
                }
                Ok(_) => {}
                Err(reject) => self.broken.push(format!("/metrics of {name}: {reject:?}")),
            }
        }
        if counters.is_empty() {
            self.broken.push(format!("/metrics of {name} has no counter"));
        }
    }
}
