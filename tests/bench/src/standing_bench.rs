//! Bench `standing`: a fault of each kind that lasts for two days, and the outcome of its finding.

use std::{collections::BTreeSet, io::Write, time::Duration};

use gaunt::command::judge_command::VirtualRun;
use gaunt_api::{Answer, Question};
use gaunt_schema::{Delivery, FindingKind, UnixMs};
use gaunt_sim::suite::SingleFaultFleet;
use serde_json::json;

use crate::{cpu_clock, judge_bench::START};

/// Scrape period, and duration of a fault after it was found.
const PERIOD: Duration = Duration::from_secs(10);
const LASTS: Duration = Duration::from_hours(48);

/// Time limit for detection.
const FOUND: Duration = Duration::from_mins(20);

/// Outcome of one finding.
#[derive(Debug, Default)]
struct StandingFaultResult {
    found_s: Option<u64>,
    /// Ticks without the finding after it had been found.
    missing_ticks: u64,
    ids: BTreeSet<String>,
    /// Mean of lost GPUs in the first and in the last eighth of the time.
    first: f64,
    last: f64,
}

/// Every finding kind that a fleet can have.
fn tested_kinds() -> impl Iterator<Item = FindingKind> {
    let own_kinds = [
        FindingKind::AggregatorLate,
        FindingKind::CertificateExpiring,
        FindingKind::FindingsOverLimit,
        FindingKind::UnexplainedSlowdown,
    ];
    FindingKind::ALL.iter().copied().filter(move |kind| !own_kinds.contains(kind))
}

/// Runs a persistent fault of each kind, and prints a row each.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{:<20} found s  gaps  ids  lost GPUs first, last eighth", "kind")?;
    let (mut right_count, mut kind_count) = (0, 0);
    for kind in tested_kinds() {
        let result = run_standing_fault(kind);
        let found = result.found_s.map_or("never".to_owned(), |seconds| seconds.to_string());
        let (gaps, ids) = (result.missing_ticks, result.ids.len());
        let (first, last) = (result.first, result.last);
        writeln!(out, "{:<20} {found:>7} {gaps:>5} {ids:>4}  {first:.2} {last:.2}", kind.as_str())?;
        kind_count += 1;
        right_count += u32::from(result.found_s.is_some() && gaps == 0 && ids == 1);
    }
    let line = json!({
        "kinds": kind_count,
        "stood": right_count,
        "hours": LASTS.as_secs() / 3_600,
        "cpu_s": cpu_clock::process_cpu_time().as_secs(),
    });
    writeln!(out, "{line}")?;
    Ok(())
}

fn run_standing_fault(kind: FindingKind) -> StandingFaultResult {
    let mut fleet = SingleFaultFleet::of(kind, 0, START);
    let mut virtual_run = VirtualRun::new(gaunt_engine::EngineOptions {
        period: PERIOD,
        ..gaunt_engine::EngineOptions::default()
    });
    virtual_run.ingest_delivery(Delivery::Targets(fleet.scrape_targets()));
    let mut result = StandingFaultResult::default();
    let mut costs = Vec::new();
    let (onset, mut now): (UnixMs, UnixMs) = (fleet.onset_time(), START);
    let end = onset + FOUND + LASTS;
    while now < end {
        now = now + PERIOD;
        for batch in fleet.scrape_at(now) {
            virtual_run.ingest_delivery(Delivery::Batch(batch));
        }
        virtual_run.run_tick(now);
        let Answer::Findings(list) = virtual_run.answer_question(&Question::Findings) else {
            continue;
        };
        let findings: Vec<_> = list.findings.iter().filter(|f| f.kind == kind).collect();
        if now < onset || (findings.is_empty() && result.found_s.is_none()) {
            if now > onset + FOUND {
                return result;
            }
            continue;
        }
        result.found_s.get_or_insert(now.duration_since(onset).as_secs());
        result.missing_ticks += u64::from(findings.is_empty());
        result.ids.extend(findings.iter().map(|finding| finding.id.clone()));
        costs.push(findings.iter().map(|finding| finding.lost_gpus).sum::<f64>());
    }
    let eighth = (costs.len() / 8).max(1).min(costs.len());
    let mean = |costs: &[f64]| costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    (result.first, result.last) = (mean(&costs[..eighth]), mean(&costs[costs.len() - eighth..]));
    result
}
