//! Bench `parse`: parse speed of text pages: our strict parser, the whole path to a report, and prometheus-parse.

use std::{io::Write, time::Duration};

use anyhow::ensure;
use gaunt_cluster::Cluster;
use gaunt_schema::{
    Batch, Delivery, ScrapeTarget, TargetId, UnixMs,
    text::{self, PageLimits, PageLine, TemplateCache, TemplateState, TextReader},
};
use prometheus_parse::Scrape;
use serde_json::json;

use crate::{
    bench_pages::{self, SAMPLES},
    interleaved_rounds::{self, RoundContender, RoundCost},
};

/// Measures, prints the table and the JSON line.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let (dcgm, short) = (bench_pages::dcgm_page(), bench_pages::short_page());
    for page in [&dcgm, &short] {
        ensure!(parse_strictly(page) == SAMPLES, "the parser does not accept every sample");
    }
    for page in [&dcgm, &short] {
        ensure!(
            parse_with_prometheus(page) == SAMPLES,
            "prometheus-parse does not accept every sample"
        );
    }
    let sequences = [bench_pages::dcgm_page_sequence(), bench_pages::short_page_sequence()];
    let mut contenders = [
        page_contender("strict parser, dcgm labels", &dcgm, parse_strictly),
        page_contender("strict parser, short labels", &short, parse_strictly),
        page_contender("decode to a report, dcgm labels", &dcgm, decode_page),
        page_contender("prometheus-parse, dcgm labels", &dcgm, parse_with_prometheus),
        page_contender("prometheus-parse, short labels", &short, parse_with_prometheus),
        repeating_contender("repeated layout to a report, dcgm labels", &sequences[0]),
        repeating_contender("repeated layout to a report, short labels", &sequences[1]),
        ingesting_contender("repeated layout into columns, dcgm labels", &sequences[0]),
        ingesting_contender("repeated layout into columns, short labels", &sequences[1]),
    ];
    let sizes = contenders.each_ref().map(|contender| contender.bytes as f64);
    let costs = interleaved_rounds::run(&mut contenders);

    writeln!(out, "{:42} {:>8} {:>15} {:>10}", "one core, CPU time", "MB/s", "range", "ns/sample")?;
    for ((contender, size), cost) in contenders.iter().zip(sizes).zip(&costs) {
        let range = format!(
            "{:.0}-{:.0}",
            megabytes_per_second(size, cost.most),
            megabytes_per_second(size, cost.least)
        );
        let ns_per_sample = cost.median / SAMPLES as f64 * 1e9;
        let speed = megabytes_per_second(size, cost.median);
        writeln!(out, "{:42} {speed:>8.0} {range:>15} {ns_per_sample:>10.0}", contender.name)?;
    }
    writeln!(out, "{}", summarize_costs(&sizes, &costs))?;
    Ok(())
}

fn summarize_costs(sizes: &[f64; 9], costs: &[RoundCost]) -> serde_json::Value {
    let speed = |index: usize| {
        (megabytes_per_second(sizes[index], costs[index].median) * 10.0).round() / 10.0
    };
    let ns = |index: usize| (costs[index].median / SAMPLES as f64 * 1e9).round();
    json!({
        "strict_dcgm_mb_s": speed(0),
        "strict_short_mb_s": speed(1),
        "decode_dcgm_mb_s": speed(2),
        "prometheus_parse_mb_s": speed(3),
        "prometheus_parse_short_mb_s": speed(4),
        "ratio_strict": (costs[3].median / costs[0].median * 10.0).round() / 10.0,
        "repeat_samples_s": (SAMPLES as f64 / costs[5].median).round(),
        "repeat_short_samples_s": (SAMPLES as f64 / costs[6].median).round(),
        "ratio_repeat": (costs[3].median / costs[5].median * 10.0).round() / 10.0,
        "accept_samples_s": (SAMPLES as f64 / costs[7].median).round(),
        "accept_short_samples_s": (SAMPLES as f64 / costs[8].median).round(),
        "repeat_dcgm_mb_s": speed(5),
        "repeat_dcgm_ns_sample": (costs[5].median / SAMPLES as f64 * 1e10).round() / 10.0,
        "strict_dcgm_ns_sample": ns(0),
        "strict_short_ns_sample": ns(1),
        "decode_dcgm_ns_sample": ns(2),
        "samples": SAMPLES,
        "dcgm_bytes": sizes[0] as u64,
        "short_bytes": sizes[1] as u64,
    })
}

/// Megabytes of page per second.
fn megabytes_per_second(size: f64, seconds: f64) -> f64 {
    size / seconds / 1e6
}

fn page_contender<'a>(
    name: &'static str,
    page: &'a str,
    work: fn(&str) -> usize,
) -> RoundContender<'a> {
    RoundContender { name, bytes: page.len(), work: Box::new(move || work(page)) }
}

/// Decodes pages in turn that differ only in values, as a target sends them, into reports.
fn repeating_contender<'a>(name: &'static str, pages: &'a [String]) -> RoundContender<'a> {
    let (layouts, mut state, limits) =
        (TemplateCache::default(), TemplateState::default(), PageLimits::default());
    let mut round = 0;
    let work = move || {
        round += 1;
        let body = pages[round % pages.len()].as_bytes();
        let page = layouts.decode_page(&mut state, body, &limits);
        page.map_or(0, |page| page.report.samples.len())
    };
    RoundContender { name, bytes: pages[0].len(), work: Box::new(work) }
}

/// The same, and ingests them into the columns of a cluster, with rates and history.
fn ingesting_contender<'a>(name: &'static str, pages: &'a [String]) -> RoundContender<'a> {
    const PERIOD: Duration = Duration::from_secs(10);
    let (layouts, mut state, limits) =
        (TemplateCache::default(), TemplateState::default(), PageLimits::default());
    let target = TargetId(0);
    let mut cluster = Cluster::new(PERIOD, 90);
    let (address, origin) = ("a:9400".into(), "bench".into());
    let scrape_target = ScrapeTarget { id: target, address, node: Some("a".into()), origin };
    cluster.ingest_delivery(Delivery::Targets(vec![scrape_target]));
    let (mut round, mut at) = (0, UnixMs(1_000_000));
    let work = move || {
        (round, at) = (round + 1, at + PERIOD);
        let body = pages[round % pages.len()].as_bytes();
        let outcome = layouts.decode_page(&mut state, body, &limits);
        let samples = outcome.as_ref().map_or(0, |page| page.report.samples.len());
        cluster.ingest_delivery(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
        samples
    };
    RoundContender { name, bytes: pages[0].len(), work: Box::new(work) }
}

/// Parses every line with all checks; the values are used, so that no work can be optimized away.
fn parse_strictly(page: &str) -> usize {
    let mut reader = TextReader::new(page.as_bytes(), &PageLimits::default());
    let (mut samples, mut sum) = (0, 0.0);
    while let Some(line) = reader.next() {
        if let Ok(PageLine::Sample(sample)) = line {
            samples += 1;
            sum += sample.value + sample.labels.len() as f64;
        }
    }
    std::hint::black_box(sum);
    samples
}

fn decode_page(page: &str) -> usize {
    text::decode_page(page.as_bytes(), &PageLimits::default())
        .map_or(0, |page| page.report.samples.len())
}

fn parse_with_prometheus(page: &str) -> usize {
    Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).map_or(0, |s| s.samples.len())
}
