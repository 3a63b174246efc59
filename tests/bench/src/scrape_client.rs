//! HTTP client that scrapes a page over a keep-alive connection, as Prometheus does, and measures the time.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

/// The headers of a client that requests plain text.
pub(crate) const PLAIN: &str = "Accept: text/plain;version=0.0.4\r\n";

/// The headers that Prometheus sends.
pub(crate) const OPEN_GZIP: &str = "Accept: application/openmetrics-text;version=1.0.0,\
     application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n\
     Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 1\r\n";

/// Time limit for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Poll interval.
const POLL: Duration = Duration::from_millis(20);

/// Maximum size of one read.
const PART: usize = 64 * 1024;

/// The end of a chunked response.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A keep-alive connection.
pub(crate) struct ScrapeClient {
    address: String,
    stream: TcpStream,
    answer: Vec<u8>,
    /// Buffer for one read.
    part: Vec<u8>,
}

/// A local address with a port that was free a moment ago.
pub(crate) fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
    Ok(listener.local_addr()?.to_string())
}

impl ScrapeClient {
    /// Connects once a server listens.
    pub(crate) fn new(address: &str) -> anyhow::Result<Self> {
        let end = Instant::now() + TIMEOUT;
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < end => thread::sleep(POLL),
                Err(error) => bail!("nothing listens on {address}: {error}"),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { address: address.to_owned(), stream, answer: Vec::new(), part: vec![0; PART] })
    }

    /// Scrapes once: the time until the last byte, and the body. A page that is not ready is an error.
    pub(crate) fn scrape_metrics(&mut self, headers: &str) -> anyhow::Result<(Duration, &[u8])> {
        self.get("/metrics", headers)
    }

    /// The same for another path.
    pub(crate) fn get(&mut self, path: &str, headers: &str) -> anyhow::Result<(Duration, &[u8])> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address);
        self.answer.clear();
        let begun = Instant::now();
        self.stream.write_all(request.as_bytes())?;
        let (start, end) = loop {
            let count = self.stream.read(&mut self.part)?;
            ensure!(count > 0, "{} closed the connection", self.address);
            self.answer.extend_from_slice(&self.part[..count]);
            if let Some(range) = body_range(&self.answer) {
                break range;
            }
        };
        let time = begun.elapsed();
        ensure!(
            self.answer.starts_with(b"HTTP/1.1 200 "),
            "{} returned no page: {:?}",
            self.address,
            String::from_utf8_lossy(
                self.answer.split(|byte| *byte == b'\r').next().unwrap_or_default()
            )
        );
        Ok((time, &self.answer[start..end]))
    }

    /// The page as text.
    pub(crate) fn scrape_page(&mut self) -> anyhow::Result<String> {
        // A response without chunks: its end would be the end of the connection.
        let body = self.scrape_metrics(PLAIN)?.1;
        Ok(String::from_utf8(body.to_vec())?)
    }

    /// Scrapes until a page matches.
    pub(crate) fn wait_for_page(
        &mut self,
        timeout: Duration,
        matches: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let end = Instant::now() + timeout;
        loop {
            if let Ok(page) = self.scrape_page()
                && matches(&page)
            {
                return Ok(page);
            }
            ensure!(
                Instant::now() < end,
                "{} did not serve the expected page in time",
                self.address
            );
            thread::sleep(POLL);
        }
    }
}

/// The range of a response's body, once it is complete.
fn body_range(answer: &[u8]) -> Option<(usize, usize)> {
    let start = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = str::from_utf8(&answer[..start]).ok()?.to_ascii_lowercase();
    match head.split_once("\r\ncontent-length: ") {
        Some((_, rest)) => {
            let length: usize = rest.split("\r\n").next()?.parse().ok()?;
            (answer.len() >= start + length).then_some((start, start + length))
        }
        None => answer[start..].ends_with(LAST_CHUNK).then_some((start, answer.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_complete_with_its_length_or_its_last_chunk() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(body_range(answer), Some((answer.len() - 3, answer.len())));
        assert_eq!(body_range(&answer[..answer.len() - 1]), None);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert!(body_range(chunked).is_some());
        assert_eq!(body_range(&chunked[..chunked.len() - 5]), None);
    }
}
