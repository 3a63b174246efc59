//! Reconnect storms: every exporter of the fleet stops and restarts at once, and the aggregator restarts.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{
    BenchServerProcess, FleetBenchOptions, fetch_targets, start_aggregator, start_simulator,
    wait_for_scrapes,
};
use crate::{bench_process::BenchProcess, scrape_client::ScrapeClient};

/// The share of all targets that must answer within a period before the rate counts as full.
const FULL: f64 = 0.999;

/// Poll interval.
const POLL: Duration = Duration::from_millis(100);

/// Time limit for all targets to be scraped again.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Figures of the storms.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReconnectFigures {
    /// Seconds from the restart of all exporters until each was scraped within one period.
    pub(super) reconnect: f64,
    /// The highest page rate in a tenth of a period meanwhile, relative to the mean.
    pub(super) peak_rate_ratio: f64,
    /// Seconds from the start of a new aggregator until it has scraped every target.
    pub(super) restart: f64,
}

/// Kills the simulator, restarts it at its port, and then does the same to the aggregator.
pub(super) fn measure_storms(
    farm: BenchServerProcess,
    gaunt: BenchProcess,
    targets: &str,
    options: &FleetBenchOptions,
    nodes: usize,
) -> anyhow::Result<ReconnectFigures> {
    let mut client = ScrapeClient::new(&gaunt.address)?;
    let port = targets.rsplit(':').next().context("no port")?.parse()?;
    drop(farm);
    // Long enough that every target is seen to be down.
    let period = Duration::from_secs(options.period);
    thread::sleep(period);
    let (farm, _) = start_simulator(nodes, options.period, port)?;
    let (reconnect, peak_rate_ratio) = wait_for_full_rate(&mut client, nodes, period)?;
    drop((client, gaunt));
    let begun = Instant::now();
    let (restarted, _settings) = start_aggregator(targets, options)?;
    let mut client = ScrapeClient::new(&restarted.address)?;
    wait_for_scrapes(&mut client, nodes as u64)?;
    drop(farm);
    Ok(ReconnectFigures { reconnect, peak_rate_ratio, restart: begun.elapsed().as_secs_f64() })
}

/// Seconds until nearly every target answered within one period, and the highest page rate on the way.
fn wait_for_full_rate(
    client: &mut ScrapeClient,
    nodes: usize,
    period: Duration,
) -> anyhow::Result<(f64, f64)> {
    let begun = Instant::now();
    let mut samples = vec![(0.0, ok_scrapes(&fetch_targets(client)?))];
    loop {
        thread::sleep(POLL);
        let now = begun.elapsed().as_secs_f64();
        let count = ok_scrapes(&fetch_targets(client)?);
        samples.push((now, count));
        let before = samples.iter().rev().find(|(time, _)| now - time >= period.as_secs_f64());
        if before.is_some_and(|(_, before)| (count - before) as f64 >= FULL * nodes as f64) {
            return Ok((now, peak_rate_ratio(&samples, nodes, period)));
        }
        ensure!(
            begun.elapsed() < TIMEOUT,
            "{count} pages in {TIMEOUT:?} after the restart of all exporters"
        );
    }
}

/// The most pages within a quarter of a period, relative to the mean at full rate.
fn peak_rate_ratio(samples: &[(f64, u64)], nodes: usize, period: Duration) -> f64 {
    let window = period.as_secs_f64() / 4.0;
    let mut highest = 0.0_f64;
    for (index, (now, count)) in samples.iter().enumerate() {
        let before = samples[..index].iter().rev().find(|(earlier, _)| now - earlier >= window);
        if let Some((earlier, before)) = before {
            let rate = (count - before) as f64 / (now - earlier);
            highest = highest.max(rate / (nodes as f64 / period.as_secs_f64()));
        }
    }
    highest
}

fn ok_scrapes(answer: &Value) -> u64 {
    answer["totals"]["scrapes"]["ok"].as_u64().unwrap_or_default()
}
