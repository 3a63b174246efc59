//! Latency from the loss of a GPU to its finding: the simulator loses one every five seconds by the wall clock, and the
//! bench polls the findings.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::scrape_client::{PLAIN, ScrapeClient};

/// Interval between two losses, as in `gaunt-sim --lose-boards`.
const LOSS_EVERY_MS: u64 = 5_000;

/// A GPU reported later than this was lost before the measurement began.
const OLD_MS: f64 = 60_000.0;

/// Poll interval.
const POLL: Duration = Duration::from_millis(100);

/// Milliseconds from loss to finding, for each GPU that was lost until `is_over`.
pub(super) fn measure_loss_latency(
    address: &str,
    nodes: usize,
    is_over: &AtomicBool,
) -> anyhow::Result<Vec<f64>> {
    let mut client = ScrapeClient::new(address)?;
    let mut reported: HashSet<u64> = lost_gpu_nodes(&mut client)?.into_iter().collect();
    let mut lags = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(POLL);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        for node in lost_gpu_nodes(&mut client)? {
            if !reported.insert(node) {
                continue;
            }
            let (nodes, span) = (nodes as u64, now as u64 / LOSS_EVERY_MS);
            let since = (span % nodes + nodes - node % nodes) % nodes;
            let lag = now as f64 - ((span - since) * LOSS_EVERY_MS) as f64;
            if lag < OLD_MS {
                lags.push(lag);
            }
        }
    }
    Ok(lags)
}

/// The numbers of the nodes with a finding for the loss of their first GPU.
fn lost_gpu_nodes(client: &mut ScrapeClient) -> anyhow::Result<Vec<u64>> {
    let (_, body) = client.get("/api/gaunt/v1/findings", PLAIN)?;
    let answer: Value = serde_json::from_slice(body)?;
    let findings = answer["findings"].as_array().into_iter().flatten();
    let failed = findings.filter(|finding| finding["kind"] == "gpu_failed");
    let node = |finding: &Value| {
        let name = finding["entity"]["node"].as_str()?;
        name.strip_prefix("gpu")?.parse::<u64>().ok()?.checked_sub(1)
    };
    Ok(failed.filter_map(node).collect())
}
