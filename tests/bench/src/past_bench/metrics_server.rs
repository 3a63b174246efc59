//! Metrics server of bench `past`: a real Prometheus, VictoriaMetrics or vmagent, to which scrapes are written.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use gaunt_schema::UnixMs;
use gaunt_series::SeriesOptions;
use gaunt_store::{StoreSample, compress_request, encode_labels, push_series};

use crate::{bench_process::BenchProcess, scrape_client};

/// Samples of one request of vmagent. What is less waits for a second or two of real time.
const BLOCK: u64 = 500;

/// A program that takes what is sent to it; it ends when this value is dropped.
pub(crate) struct MetricsServer {
    process: BenchProcess,
    /// Samples that the program forwards together, whatever the time; zero if it waits for none.
    block: u64,
    connection: BufReader<TcpStream>,
    _folder: tempfile::TempDir,
}

impl MetricsServer {
    /// A Prometheus, which forwards what it takes to this URL if one is given.
    pub(crate) fn start_prometheus(forward_to: Option<&str>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("prometheus.yml");
        let forward = forward_to.map_or(String::new(), |url| {
            format!(
                "remote_write:\n  - url: {url}\n    queue_config: {{max_shards: 1, \
                 batch_send_deadline: 100ms, max_samples_per_send: 2000}}\n"
            )
        });
        std::fs::write(&config, format!("scrape_configs: []\n{forward}"))?;
        let address = scrape_client::free_address()?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--web.listen-address={address}"));
        Self::start_command(command, &address, folder)
    }

    /// A VictoriaMetrics.
    pub(crate) fn start_victoria_metrics() -> anyhow::Result<Self> {
        let (folder, address) = (tempfile::tempdir()?, scrape_client::free_address()?);
        let mut command = Command::new("victoria-metrics");
        command
            .arg(format!("-storageDataPath={}", folder.path().join("data").display()))
            .arg("-search.latencyOffset=0s")
            .arg(format!("-httpListenAddr={address}"));
        Self::start_command(command, &address, folder)
    }

    /// A vmagent that forwards what it takes to this URL.
    pub(crate) fn start_vmagent(forward_to: &str) -> anyhow::Result<Self> {
        let (folder, address) = (tempfile::tempdir()?, scrape_client::free_address()?);
        let mut command = Command::new("vmagent");
        command
            .arg(format!("-remoteWrite.url={forward_to}"))
            .arg("-remoteWrite.queues=1")
            .arg(format!("-remoteWrite.maxRowsPerBlock={BLOCK}"))
            .arg(format!("-remoteWrite.tmpDataPath={}", folder.path().join("queue").display()))
            .arg(format!("-httpListenAddr={address}"));
        Ok(Self { block: BLOCK, ..Self::start_command(command, &address, folder)? })
    }

    fn start_command(
        command: Command,
        address: &str,
        folder: tempfile::TempDir,
    ) -> anyhow::Result<Self> {
        let process = BenchProcess::start_command(command, address.to_owned())
            .context("install prometheus and victoria-metrics, as tests/run does")?;
        let connection = open_connection(address)?;
        Ok(Self { process, block: 0, connection, _folder: folder })
    }

    /// Sends a request and waits until it is taken; it is sent again while the server starts.
    ///
    /// VictoriaMetrics and vmagent end a connection after two minutes (`-http.connTimeout`), and say so in the last answer.
    pub(crate) fn send(&mut self, body: &[u8]) -> anyhow::Result<()> {
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
            let (mut status, mut length, mut is_last) = (String::new(), 0, false);
            self.connection.read_line(&mut status)?;
            loop {
                let mut line = String::new();
                self.connection.read_line(&mut line)?;
                let header = line.trim().to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse()?;
                }
                is_last |= header == "connection: close";
                if header.is_empty() {
                    break;
                }
            }
            let mut answer = vec![0; length];
            self.connection.read_exact(&mut answer)?;
            if is_last {
                self.connection = open_connection(&self.process.address)?;
            }
            if status.contains(" 503 ") {
                thread::sleep(Duration::from_millis(200));
                continue;
            }
            let text = String::from_utf8_lossy(&answer);
            ensure!(status.contains(" 204 "), "{}: {} {text}", self.process.address, status.trim());
            return Ok(());
        }
    }

    /// Sends a block of samples that nobody reads: all that was sent before is forwarded at once. Returns the number of
    /// these samples, of which as many may stay behind.
    pub(crate) fn push_out(&mut self, at: UnixMs) -> anyhow::Result<u64> {
        let (mut request, mut encoded) = (Vec::new(), Vec::new());
        for number in 0..self.block {
            encoded.clear();
            let number = number.to_string();
            encode_labels(&mut [("__name__", "bench_padding"), ("number", &number)], &mut encoded);
            push_series(&encoded, &[StoreSample { at, bits: 1.0_f64.to_bits() }], &mut request);
        }
        if self.block > 0 {
            self.send(&compress_request(&request)?)?;
        }
        Ok(self.block)
    }

    /// How it is queried.
    pub(crate) fn options(&self) -> SeriesOptions {
        let url = format!("http://{}", self.process.address);
        SeriesOptions { max_samples: u64::MAX, ..SeriesOptions::with_url(url) }
    }

    /// The bytes of all answers of a Prometheus at the paths of its API that read samples, as they were sent.
    pub(crate) fn answered_bytes(&self) -> anyhow::Result<f64> {
        let mut stream = TcpStream::connect(&self.process.address)?;
        // An answer to HTTP/1.0 has no chunks.
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.process.address)?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let sums = ["/api/v1/query", "/api/v1/read"].map(|handler| {
            let start =
                format!("prometheus_http_response_size_bytes_sum{{handler=\"{handler}\"}} ");
            let sum = page.lines().find_map(|line| line.strip_prefix(&start)?.parse::<f64>().ok());
            sum.unwrap_or(0.0)
        });
        Ok(sums.iter().sum())
    }

    /// Its CPU time in seconds.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        Ok(self.process.read_cpu_usage()?.total_percent())
    }
}

/// Connects to a program that is starting.
fn open_connection(address: &str) -> anyhow::Result<BufReader<TcpStream>> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(BufReader::new(stream)),
            Err(error) => {
                ensure!(began.elapsed() < Duration::from_mins(1), "{address}: {error}");
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}
