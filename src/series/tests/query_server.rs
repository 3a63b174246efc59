//! A server of Prometheus' query API that answers as a test wants.

use std::{
    io::Write as _,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// The answer to one request.
#[derive(Clone, Debug)]
pub(crate) struct ServerAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) encoding: Option<&'static str>,
    pub(crate) body: Vec<u8>,
    /// Whether the connection ends before the announced length.
    pub(crate) is_cut: bool,
    /// Whether nothing is ever answered.
    pub(crate) is_silent: bool,
}

impl ServerAnswer {
    pub(crate) fn new(status: u16, content_type: &'static str, body: &str) -> Self {
        let body = body.as_bytes().to_vec();
        Self { status, content_type, encoding: None, body, is_cut: false, is_silent: false }
    }

    pub(crate) fn cut(body: &str) -> Self {
        Self { is_cut: true, ..json_answer(body) }
    }

    pub(crate) fn silent() -> Self {
        Self { is_silent: true, ..json_answer("") }
    }
}

pub(crate) fn json_answer(body: &str) -> ServerAnswer {
    ServerAnswer::new(200, "application/json", body)
}

/// The multiples of `period` within the window of a query for raw samples, in milliseconds.
pub(crate) fn queried_instants(request: &str, period: i64) -> impl Iterator<Item = i64> {
    let between = |start: &str, end: &str| {
        request.split(start).nth(1).unwrap().split(end).next().unwrap().to_owned()
    };
    let until = (between("time=", "&").parse::<f64>().unwrap() * 1e3) as i64;
    let range: i64 = between("%5B", "ms").parse().unwrap();
    let instants = (until - range).div_euclid(period) + 1..=until.div_euclid(period);
    instants.map(move |number| number * period)
}

/// Series as labels and values in JSON.
pub(crate) fn matrix_answer(series: &[(&str, &str)]) -> ServerAnswer {
    let series = series
        .iter()
        .map(|(labels, values)| format!(r#"{{"metric":{{{labels}}},"values":[{values}]}}"#));
    let result = series.collect::<Vec<_>>().join(",");
    json_answer(&format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#
    ))
}

pub(crate) fn gzip_bytes(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// A running server; dropping it ends it.
pub(crate) struct QueryServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
    accepting: AbortHandle,
}

impl Drop for QueryServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl QueryServer {
    /// Starts a server; `answer` gets the head and the body of each request.
    pub(crate) async fn start(
        answer: impl Fn(&str) -> ServerAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (requests, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let seen = requests.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answer) = (seen.clone(), answer.clone());
                tokio::spawn(async move { serve_request(stream, &seen, &*answer).await });
            }
        });
        Self { url, requests, accepting: accepting.abort_handle() }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Serves one request of a connection.
async fn serve_request(
    mut stream: TcpStream,
    seen: &Mutex<Vec<String>>,
    answer: &(dyn Fn(&str) -> ServerAnswer + Send + Sync),
) {
    let Some(request) = read_request(&mut stream).await else { return };
    seen.lock().unwrap().push(request.clone());
    let answer = answer(&request);
    if answer.is_silent {
        return std::future::pending().await;
    }
    let length = answer.body.len() + if answer.is_cut { 100 } else { 0 };
    let encoding =
        answer.encoding.map_or(String::new(), |it| format!("content-encoding: {it}\r\n"));
    let head = format!(
        "HTTP/1.1 {} x\r\ncontent-type: {}\r\n{encoding}connection: close\r\ncontent-length: {length}\r\n\r\n",
        answer.status, answer.content_type
    );
    // The client may have gone.
    _ = stream.write_all(head.as_bytes()).await;
    _ = stream.write_all(&answer.body).await;
    _ = stream.shutdown().await;
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let read = stream.read_buf(&mut bytes).await.ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.trim().parse().unwrap()) {
                return Some(text);
            }
        }
        if read == 0 {
            return None;
        }
    }
}
