//! Bench `soak`: days of a fleet in virtual time, with faults of every kind that begin and heal at random and an
//! aggregator that is killed at random. Every fault must have exactly one finding from its onset to its end, there
//! must be no unexplained finding, the parts of the loss must add up at every tick, and memory must not grow.

use std::{io::Write, time::Duration};

use anyhow::ensure;
use clap::Args;
use gaunt_sim::suite;
use serde_json::json;

mod exporter_faults;
mod fault_outcome;
mod soak_random;
mod soak_run;

use crate::{cpu_clock, judge_bench::START};
use fault_outcome::{FaultOutcome, UnexplainedFinding};
use soak_run::SoakOutcome;

/// Options of `soak`.
#[derive(Args, Clone, Debug)]
#[group(id = "soak")]
pub(crate) struct SoakBenchOptions {
    /// `soak`: days of virtual time.
    #[arg(long, default_value_t = 7.0)]
    days: f64,
    /// `soak`: seconds between two scrapes of a node, and between two ticks.
    #[arg(long, default_value_t = 10)]
    every_s: u32,
    /// `soak`: seed of faults and kills.
    #[arg(long, default_value_t = 1)]
    soak_seed: u64,
    /// `soak`: kills of the aggregator per day.
    #[arg(long, default_value_t = 12.0)]
    kills: f64,
    /// `soak`: second of virtual time at which the aggregator starts; earlier faults are not counted.
    #[arg(long, default_value_t = 0)]
    from_s: u32,
    /// `soak`: second of virtual time at which the run ends; later faults are not counted.
    #[arg(long)]
    until_s: Option<u32>,
    /// `soak`: print every fault, not only those with a wrong outcome.
    #[arg(long)]
    all: bool,
}

/// The accepted total time without a finding during a fault.
const NO_GAP: Duration = Duration::ZERO;

/// Simulates the days, and prints wrong outcomes and figures.
pub(crate) fn run(options: &SoakBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(options.days > 0.0 && options.every_s > 0, "--days and --every-s must be above 0");
    let fleet = suite::soak_fleet(options.days, options.soak_seed, START);
    let step = Duration::from_secs(options.every_s.into());
    let kills = (options.kills * options.days).round() as u32;
    let span = options.from_s..options.until_s.unwrap_or((options.days * 86_400.0) as u32);
    let soak = soak_run::run_soak(fleet, step, span, options.days, options.soak_seed, kills)?;
    let SoakOutcome { truths, outcomes, unexplained, .. } = &soak;
    for (truth, outcome) in truths.iter().zip(outcomes) {
        if options.all || !outcome.is_right() {
            writeln!(out, "{}", outcome.render_line(truth, START))?;
            for gap in outcome.gaps() {
                writeln!(out, "{gap}")?;
            }
        }
    }
    if options.all {
        writeln!(out, "killed at {:?} s", soak.kills)?;
    }
    for finding in unexplained {
        writeln!(out, "{}", finding.render_line(START))?;
    }
    writeln!(out, "{} faults, {} kills, {} ticks", truths.len(), soak.kills.len(), soak.ticks)?;
    write_table(out, truths, outcomes)?;
    let count =
        |wrong: &dyn Fn(&FaultOutcome) -> bool| outcomes.iter().filter(|s| wrong(s)).count();
    let pages = unexplained.iter().filter(|finding| finding.paged).count();
    let line = json!({
        "days": options.days,
        "every_s": options.every_s,
        "seed": options.soak_seed,
        "kills": soak.kills.len(),
        "faults": truths.len(),
        "right": count(&FaultOutcome::is_right),
        "missed": count(&|outcome| outcome.found.is_none()),
        "late": count(&|outcome| outcome.found.is_some() && outcome.late),
        "closed_under_fault": count(&|outcome| outcome.away > NO_GAP),
        "several_ids": count(&|outcome| outcome.ids.len() > 1),
        "open_after_end": count(&|outcome| outcome.lingers.is_some()),
        "opened_twice": soak.opened_twice,
        "warnings_beside": unexplained.len(),
        "pages_beside": pages,
        "loss_ticks_wrong": soak.loss_mismatch_ticks,
        "loss_worst_difference_gpus": soak.worst_loss_difference,
        "mb_after_first_hour": soak.megabytes.first(),
        "mb_at_end": soak.megabytes.last(),
        "mb_max": soak.megabytes.iter().copied().reduce(f64::max),
        "cpu_s": cpu_clock::process_cpu_time().as_secs(),
    });
    writeln!(out, "{line}")?;
    Ok(())
}

/// Writes one row per kind of fault.
fn write_table(
    out: &mut dyn Write,
    truths: &[gaunt_sim::GroundTruth],
    outcomes: &[FaultOutcome],
) -> anyhow::Result<()> {
    let mut kinds: Vec<_> = truths.iter().map(|truth| truth.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    writeln!(out, "{:<20} faults right missed closed ids lingers", "kind")?;
    for kind in kinds {
        let of_kind: Vec<&FaultOutcome> =
            truths.iter().zip(outcomes).filter(|(t, _)| t.kind == kind).map(|(_, s)| s).collect();
        let count =
            |wrong: &dyn Fn(&FaultOutcome) -> bool| of_kind.iter().filter(|s| wrong(s)).count();
        writeln!(
            out,
            "{:<20} {:>6} {:>5} {:>6} {:>6} {:>3} {:>7}",
            kind.as_str(),
            of_kind.len(),
            count(&FaultOutcome::is_right),
            count(&|s| s.found.is_none()),
            count(&|s| s.away > NO_GAP),
            count(&|s| s.ids.len() > 1),
            count(&|s| s.lingers.is_some()),
        )?;
    }
    Ok(())
}

impl UnexplainedFinding {
    fn render_line(&self, start: gaunt_schema::UnixMs) -> String {
        let after = self.opened.duration_since(start).as_secs();
        let page = if self.paged { "page" } else { "warning" };
        format!("unexplained  +{after} s  {page}  {}  {}", self.id, self.summary)
    }
}
