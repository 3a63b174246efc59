//! Target farm of bench `gather`: 1,000 nodes at work on loopback, each a page of 960 samples.
//!
//! It is a separate process, so that its resource use is not counted for a contender.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, bail};
use flate2::{Compression, write::GzEncoder};
use tokio::net::{TcpListener, TcpStream};

use crate::{bench_pages, farm_http};

/// Nodes of the farm.
pub(crate) const NODES: u16 = 1_000;

/// Number of pages, which repeat: counters begin anew after ten minutes.
const MOMENTS: u64 = 64;

/// The same where pages are compressed, each node's own.
const COMPRESSED_MOMENTS: usize = 4;

/// The text before the part of a label that differs between nodes, and the length of that part.
const HOST: (&[u8], usize) = (b"Hostname=\"gpu-", 4);
const UUID: (&[u8], usize) = (b"UUID=\"GPU-", 4);

/// The listen address of the node of this number.
pub(crate) fn node_address(node: u16, port: u16) -> String {
    format!("127.1.{}.{}:{port}", node / 250, node % 250 + 1)
}

/// Every page of the farm.
struct TargetFarm {
    page_versions: Vec<FarmPageTemplate>,
    /// By node, then by page number; empty where pages are not compressed.
    compressed: Vec<Vec<Vec<u8>>>,
    /// Pages served, by `User-Agent`.
    served: Mutex<BTreeMap<String, u64>>,
}

/// A page with the positions that differ between nodes.
struct FarmPageTemplate {
    page: Vec<u8>,
    hosts: Vec<usize>,
    uuids: Vec<usize>,
}

impl FarmPageTemplate {
    fn new(page: String) -> Self {
        let page = page.into_bytes();
        let positions_after = |marker: &[u8]| {
            let found = page.windows(marker.len()).enumerate().filter(|(_, part)| *part == marker);
            found.map(|(start, _)| start + marker.len()).collect()
        };
        Self { hosts: positions_after(HOST.0), uuids: positions_after(UUID.0), page }
    }

    fn of(&self, node: u16) -> Vec<u8> {
        let mut page = self.page.clone();
        for (positions, text) in
            [(&self.hosts, format!("{node:04}")), (&self.uuids, format!("{node:04x}"))]
        {
            for position in positions {
                page[*position..*position + text.len()].copy_from_slice(text.as_bytes());
            }
        }
        page
    }
}

/// Serves on a port, compressed or not, until it is killed.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let [port, coding] = args else { bail!("pass --farm PORT identity|gzip") };
    let port: u16 = port.parse().context("the port of the farm")?;
    let farm = Arc::new(TargetFarm::new(coding == "gzip")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
        loop {
            let (stream, peer) = listener.accept().await?;
            if peer.ip().is_loopback() {
                let farm = farm.clone();
                tokio::spawn(async move { farm.serve_connection(stream).await });
            }
        }
    })
}

impl TargetFarm {
    fn new(compress: bool) -> anyhow::Result<Self> {
        let templates: Vec<_> = bench_pages::steady_page_sequence(MOMENTS)
            .into_iter()
            .map(FarmPageTemplate::new)
            .collect();
        let mut compressed = Vec::new();
        for node in 0..if compress { NODES } else { 0 } {
            let mut pages = Vec::new();
            for template in templates.iter().take(COMPRESSED_MOMENTS) {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(&template.of(node))?;
                pages.push(encoder.finish()?);
            }
            compressed.push(pages);
        }
        Ok(Self { page_versions: templates, compressed, served: Mutex::default() })
    }

    /// Serves one connection until it ends.
    async fn serve_connection(&self, mut stream: TcpStream) -> Option<()> {
        let SocketAddr::V4(local) = stream.local_addr().ok()? else { return None };
        let [_, _, high, low] = local.ip().octets();
        let node = u16::from(high) * 250 + u16::from(low.saturating_sub(1));
        stream.set_nodelay(true).ok()?;
        let (mut head, mut count) = (Vec::new(), usize::from(node));
        loop {
            farm_http::read_head(&mut stream, &mut head).await?;
            let text = String::from_utf8_lossy(&head).to_lowercase();
            if text.starts_with("get /served ") {
                let served = self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let body = serde_json::to_vec(&served).ok()?;
                farm_http::write_page(&mut stream, &body, "").await?;
                continue;
            }
            let agent = text.split("\r\nuser-agent: ").nth(1).unwrap_or("unknown");
            let agent = agent.split(['/', '\r']).next().unwrap_or_default().to_owned();
            *self
                .served
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(agent)
                .or_default() += 1;
            let accepts_gzip = text.split("\r\naccept-encoding: ").nth(1).is_some_and(|rest| {
                rest.split('\r').next().is_some_and(|codings| codings.contains("gzip"))
            });
            count += 1;
            if let Some(pages) = self.compressed.get(usize::from(node)).filter(|_| accepts_gzip) {
                let page = &pages[count % COMPRESSED_MOMENTS];
                farm_http::write_page(&mut stream, page, "Content-Encoding: gzip\r\n").await?;
            } else {
                let page = self.page_versions[count % self.page_versions.len()].of(node);
                farm_http::write_page(&mut stream, &page, "").await?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_labels_differ_by_node_and_values_over_time() {
        let template = FarmPageTemplate::new(bench_pages::dcgm_page());
        assert_eq!(
            (template.hosts.len(), template.uuids.len()),
            (bench_pages::SAMPLES, bench_pages::SAMPLES)
        );
        let page = String::from_utf8(template.of(37)).unwrap();
        assert!(page.contains("Hostname=\"gpu-0037\"") && page.contains("UUID=\"GPU-0025"));
        let [before, later]: [String; 2] = bench_pages::steady_page_sequence(2).try_into().unwrap();
        let changed_lines = before.lines().zip(later.lines()).filter(|(a, b)| a != b).count();
        let share = changed_lines as f64 / bench_pages::SAMPLES as f64;
        // Error counts, limits and modes stay as they are.
        assert!(share > 0.4, "{share}");
    }
}
