//! Bench `soak`: days of a fleet in virtual time, with faults of every kind that begin and heal at random and an
//! aggregator that is killed at random. Every fault is to have exactly one finding from its onset to its end, nothing
//! is to be said beside, and the account of loss is to add up at every tick.

use std::{io::Write, time::Duration};

use anyhow::ensure;
use clap::Args;
use gaunt_sim::suite;
use serde_json::json;

mod exporter_faults;
mod fault_outcome;
mod soak_run;

use crate::{cpu_clock, judge_bench::START};
use fault_outcome::{FaultOutcome, UnexplainedFinding};
use soak_run::SoakOutcome;

/// How long is lived through, and how.
#[derive(Args, Clone, Debug)]
#[group(id = "soak")]
pub(crate) struct SoakBenchOptions {
    /// `soak`: days of virtual time.
    #[arg(long, default_value_t = 7.0)]
    days: f64,
    /// `soak`: seconds from one page of a node to the next, and from one tick to the next.
    #[arg(long, default_value_t = 10)]
    every_s: u32,
    /// `soak`: the seed of faults and kills.
    #[arg(long, default_value_t = 1)]
    soak_seed: u64,
    /// `soak`: kills of the aggregator in a day.
    #[arg(long, default_value_t = 12.0)]
    kills: f64,
    /// `soak`: print every fault and every finding beside, and not only those that are wrong.
    #[arg(long)]
    all: bool,
}

/// A finding that was away for less than this was not away: one tick may see evidence lapse.
const NO_GAP: Duration = Duration::ZERO;

/// Lives through it, and prints what was wrong and the figures.
pub(crate) fn run(options: &SoakBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(options.days > 0.0 && options.every_s > 0, "--days and --every-s must be above 0");
    let fleet = suite::soak_fleet(options.days, options.soak_seed, START);
    let step = Duration::from_secs(options.every_s.into());
    let kills = (options.kills * options.days).round() as u32;
    let lived = soak_run::run_soak(fleet, step, options.days, options.soak_seed, kills)?;
    let SoakOutcome { truths, outcomes: standings, unexplained: beside, .. } = &lived;
    for (truth, standing) in truths.iter().zip(standings) {
        if options.all || !standing.is_right() {
            writeln!(out, "{}", standing.render_line(truth, START))?;
            for gap in standing.gaps() {
                writeln!(out, "{gap}")?;
            }
        }
    }
    for beside in beside {
        writeln!(out, "{}", beside.render_line(START))?;
    }
    writeln!(out, "{} faults, {} kills, {} ticks", truths.len(), lived.kills, lived.ticks)?;
    write_table(out, truths, standings)?;
    let count =
        |wrong: &dyn Fn(&FaultOutcome) -> bool| standings.iter().filter(|s| wrong(s)).count();
    let pages = beside.iter().filter(|beside| beside.paged).count();
    let line = json!({
        "days": options.days,
        "every_s": options.every_s,
        "seed": options.soak_seed,
        "kills": lived.kills,
        "faults": truths.len(),
        "right": count(&FaultOutcome::is_right),
        "missed": count(&|standing| standing.found.is_none()),
        "late": count(&|standing| standing.found.is_some() && standing.late),
        "closed_under_fault": count(&|standing| standing.away > NO_GAP),
        "several_ids": count(&|standing| standing.ids.len() > 1),
        "open_after_end": count(&|standing| standing.lingers.is_some()),
        "opened_twice": lived.opened_twice,
        "warnings_beside": beside.len(),
        "pages_beside": pages,
        "loss_ticks_wrong": lived.loss_mismatch_ticks,
        "loss_worst_difference_gpus": lived.worst_loss_difference,
        "cpu_s": cpu_clock::process_cpu_time().as_secs(),
    });
    writeln!(out, "{line}")?;
    Ok(())
}

/// One row a kind of fault.
fn write_table(
    out: &mut dyn Write,
    truths: &[gaunt_sim::GroundTruth],
    standings: &[FaultOutcome],
) -> anyhow::Result<()> {
    let mut kinds: Vec<_> = truths.iter().map(|truth| truth.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    writeln!(out, "{:<20} faults right missed closed ids lingers", "kind")?;
    for kind in kinds {
        let of: Vec<&FaultOutcome> =
            truths.iter().zip(standings).filter(|(t, _)| t.kind == kind).map(|(_, s)| s).collect();
        let count = |wrong: &dyn Fn(&FaultOutcome) -> bool| of.iter().filter(|s| wrong(s)).count();
        writeln!(
            out,
            "{:<20} {:>6} {:>5} {:>6} {:>6} {:>3} {:>7}",
            kind.as_str(),
            of.len(),
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
        format!("beside  +{after} s  {page}  {}  {}", self.id, self.summary)
    }
}
