//! Answers of a target that is no exporter, or one that went wrong: each must be refused, said, and forgotten.

use std::{fmt::Write as _, io::Write as _, sync::LazyLock, time::Duration};

use flate2::{Compression, write::GzEncoder};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    time::sleep,
};

use crate::farm_http::write_page;

/// Number of kinds of answers. Each hostile target goes through all of them.
pub(super) const KINDS: usize = 12;

/// How long a target holds a connection that it does not answer.
const SILENCE: Duration = Duration::from_secs(20);

/// Answers of one kind before the next one.
const REPEATS: u64 = 4;

/// Zeros of the compressed page.
const BOMB_BYTES: usize = 256 << 20;

/// A small page that decompresses to more than any page may have.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..BOMB_BYTES >> 20 {
        // A Vec takes everything.
        _ = encoder.write_all(&zeros);
    }
    encoder.finish().unwrap_or_default()
});

/// Gives the answer whose turn it is for a target; `None` ends the connection.
pub(super) async fn answer(
    stream: &mut (impl AsyncWrite + Unpin),
    target: usize,
    count: u64,
    page: &str,
) -> Option<()> {
    let turn = count / (REPEATS * KINDS as u64);
    match (turn as usize + target) % KINDS {
        0 => None,
        1 => {
            sleep(SILENCE).await;
            None
        }
        2 => endless_head(stream).await,
        3 => write_page(stream, &noise(count, 256 << 10), "").await,
        4 => slow_body(stream).await,
        5 => write_page(stream, new_series(count).as_bytes(), "").await,
        6 => write_page(stream, &vec![b'x'; 4 << 20], "").await,
        // The page of another node, under the name of this target.
        7 => write_page(stream, page.as_bytes(), "").await,
        8 => write_page(stream, absurd_values(page).as_bytes(), "").await,
        9 => write_page(stream, &BOMB, "Content-Encoding: gzip\r\n").await,
        10 => stream
            .write_all(b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\nContent-Length: 0\r\n\r\n")
            .await
            .ok(),
        // Half of a page, and the end of the connection.
        _ => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(&page.as_bytes()[..page.len() / 2]).await.ok()?;
            None
        }
    }
}

async fn endless_head(stream: &mut (impl AsyncWrite + Unpin)) -> Option<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\n").await.ok()?;
    for number in 0..10_000 {
        stream.write_all(format!("X-Header-{number}: {number:0200}\r\n").as_bytes()).await.ok()?;
    }
    None
}

async fn slow_body(stream: &mut (impl AsyncWrite + Unpin)) -> Option<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await.ok()?;
    for _ in 0..SILENCE.as_secs() {
        stream.write_all(b"gaunt_gpu_utilization_ratio 1\n").await.ok()?;
        stream.flush().await.ok()?;
        sleep(Duration::from_secs(1)).await;
    }
    None
}

/// Bytes that are no text, others each time.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// GPUs and jobs that no page had before.
fn new_series(count: u64) -> String {
    let mut page = String::new();
    for gpu in 0..500 {
        let labels =
            format!("gpu=\"{gpu}\",UUID=\"GPU-{count:08x}-{gpu:04}\",hpc_job=\"{count}{gpu:03}\"");
        // A String takes everything.
        _ = writeln!(
            page,
            "DCGM_FI_DEV_GPU_UTIL{{{labels}}} 50\nDCGM_FI_DEV_POWER_USAGE{{{labels}}} 300"
        );
    }
    page
}

/// The page with every third value replaced.
fn absurd_values(page: &str) -> String {
    let absurd = ["NaN", "+Inf", "-Inf", "1e308", "-1", "18446744073709551616"];
    let mut out = String::new();
    for (number, line) in page.lines().enumerate() {
        match line.rsplit_once(' ').filter(|_| !line.starts_with('#') && number % 3 == 0) {
            Some((series, _)) => {
                _ = writeln!(out, "{series} {}", absurd[number / 3 % absurd.len()]);
            }
            None => _ = writeln!(out, "{line}"),
        }
    }
    out
}
