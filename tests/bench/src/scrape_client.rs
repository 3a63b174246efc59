//! A client that asks for a page over one kept connection, as Prometheus does, and takes the time.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

/// The headers of a client that wants plain text.
pub(crate) const PLAIN: &str = "Accept: text/plain;version=0.0.4\r\n";

/// The headers that Prometheus sends.
pub(crate) const OPEN_GZIP: &str = "Accept: application/openmetrics-text;version=1.0.0,\
     application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n\
     Accept-Encoding: gzip\r\nX-Prometheus-Scrape-Timeout-Seconds: 1\r\n";

/// How long an answer may take before it counts as none.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The most that one read takes.
const PART: usize = 64 * 1024;

/// What ends an answer whose length is not announced.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A kept connection.
pub(crate) struct ScrapeClient {
    address: String,
    stream: TcpStream,
    answer: Vec<u8>,
    /// Room for one read.
    part: Vec<u8>,
}

/// A port of this machine that was free a moment ago.
pub(crate) fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
    Ok(listener.local_addr()?.to_string())
}

impl ScrapeClient {
    /// Connects once somebody listens.
    pub(crate) fn new(address: &str) -> anyhow::Result<Self> {
        let end = Instant::now() + TIMEOUT;
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < end => thread::sleep(LOOK),
                Err(error) => bail!("nobody listens on {address}: {error}"),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { address: address.to_owned(), stream, answer: Vec::new(), part: vec![0; PART] })
    }

    /// Asks once: the time until the last byte, and the body. A page that is not ready is an error.
    pub(crate) fn scrape_metrics(&mut self, headers: &str) -> anyhow::Result<(Duration, &[u8])> {
        self.get("/metrics", headers)
    }

    /// The same for what is at another path.
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
            "{} has no page: {:?}",
            self.address,
            String::from_utf8_lossy(
                self.answer.split(|byte| *byte == b'\r').next().unwrap_or_default()
            )
        );
        Ok((time, &self.answer[start..end]))
    }

    /// The page as text.
    pub(crate) fn scrape_page(&mut self) -> anyhow::Result<String> {
        // An answer in one piece: the connection's end would be its end as well.
        let body = self.scrape_metrics(PLAIN)?.1;
        Ok(String::from_utf8(body.to_vec())?)
    }

    /// Asks until a page fits.
    pub(crate) fn wait_for_page(
        &mut self,
        patience: Duration,
        fits: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        let end = Instant::now() + patience;
        loop {
            if let Ok(page) = self.scrape_page()
                && fits(&page)
            {
                return Ok(page);
            }
            ensure!(
                Instant::now() < end,
                "{} never had the page that was waited for",
                self.address
            );
            thread::sleep(LOOK);
        }
    }
}

/// Where the body of an answer begins and ends, once all of it is there.
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
    fn an_answer_is_whole_when_its_length_or_its_last_chunk_is_there() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(body_range(answer), Some((answer.len() - 3, answer.len())));
        assert_eq!(body_range(&answer[..answer.len() - 1]), None);
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert!(body_range(chunked).is_some());
        assert_eq!(body_range(&chunked[..chunked.len() - 5]), None);
    }
}
