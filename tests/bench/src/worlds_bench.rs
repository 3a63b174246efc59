//! Bench `worlds`: precision, recall, blame and calibration of the judge on clusters drawn at random, by family.
//!
//! The families for choosing limits and those for published figures are disjoint. A world without a fault counts for
//! false pages only.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use gaunt_worlds::draw::{FAMILIES, FamilySplit, WorldCase};
use serde_json::json;

#[cfg(test)]
mod evidence_tests;
#[cfg(test)]
mod metamorphic_tests;
mod played_world;
mod world_figures;

use played_world::{PlayedWorld, play_world};
use world_figures::{WorldFigures, write_reliability};

use gaunt_sim::suite::SuiteSplit;

use crate::judge_bench::{JudgeBenchOptions, measure_judge};

/// First seed of the published figures, far from those for choosing limits.
const TEST_SEEDS_FROM: u64 = 1_000_000;

/// Worlds of each family in a quick run.
const QUICK_WORLDS: usize = 4;

/// Of this many worlds, the last one has no fault.
const QUIET_EVERY: usize = 4;

/// Which worlds are drawn.
#[derive(clap::Args, Debug)]
pub(crate) struct WorldsBenchOptions {
    /// Worlds of each family for `worlds`.
    #[arg(long, default_value_t = 40, value_name = "N")]
    worlds: usize,
    /// Only this family for `worlds`.
    #[arg(long, value_name = "NAME")]
    family: Option<String>,
    /// Only the world of this seed for `worlds`.
    #[arg(long, value_name = "SEED")]
    world: Option<u64>,
    /// Quiet worlds only for `worlds`: pages per 1,000 GPU-days.
    #[arg(long)]
    quiet: bool,
    /// Duration of each quiet world for `worlds`, instead of the minutes around what looks like a fault.
    #[arg(long, value_name = "H", requires = "quiet")]
    hours: Option<f64>,
    /// Folder for the pages of the worlds that `worlds` plays, for `gaunt judge --from`.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
}

/// Draws and plays the worlds on all cores, and prints the tables and the JSON line.
pub(crate) fn run(
    options: &WorldsBenchOptions,
    judge: &JudgeBenchOptions,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let cost = measure_judge()?;
    let runs = select_worlds(options, judge);
    ensure!(!runs.is_empty(), "no family has the name {:?}", options.family);
    let played = play_all(&runs, options.dump.as_deref());
    let infeasible = runs.len() - played.len();
    write_groups(out, "family", &played, |world| world.family.to_owned())?;
    write_groups(out, "scrape period", &played, |world| {
        format!("{:>3} s", world.scrape_s.round())
    })?;
    write_groups(out, "loss", &played, |world| world.loss_class().to_owned())?;
    write_groups(out, "fault", &played, |world| world.case_name.clone())?;
    write_reliability(out, &played)?;
    if judge.explain {
        for world in &played {
            world.write_if_failed(out)?;
        }
    }
    let rejected: u64 = played.iter().map(|world| world.rejected).sum();
    writeln!(
        out,
        "{} worlds, {infeasible} infeasible, {rejected} lines rejected, {:.0} s",
        played.len(),
        started.elapsed().as_secs_f64()
    )?;
    let all = WorldFigures::of(&played);
    let families = group_by(&played, |world| world.family.to_owned());
    let by_family: Vec<WorldFigures> =
        families.values().map(|worlds| WorldFigures::of(worlds.iter().copied())).collect();
    let lowest =
        |of: fn(&WorldFigures) -> Option<f64>| by_family.iter().filter_map(of).reduce(f64::min);
    let highest =
        |of: fn(&WorldFigures) -> Option<f64>| by_family.iter().filter_map(of).reduce(f64::max);
    let limits = serde_json::to_value(gaunt_engine::EngineOptions::default().thresholds)?;
    let line = json!({
        "bench": "worlds",
        "precision": all.precision(),
        "recall": all.strong_recall(),
        "f1": all.f1_score(),
        "blame": all.blame_accuracy(),
        "worst_family_f1": lowest(WorldFigures::f1_score),
        "mild_recall": all.mild_recall(),
        "delay_ok_share": all.delay_ok_share(),
        "pages_per_1000_gpu_days": all.quiet_pages_per_1000_gpu_days(),
        "worst_family_pages_per_1000_gpu_days":
            highest(WorldFigures::quiet_pages_per_1000_gpu_days),
        "brier": all.brier_score(),
        "constants": limits.as_object().map(serde_json::Map::len),
        "ns_per_signal": cost.ns_per_signal,
        "bytes_per_gpu": cost.bytes_per_gpu,
        "worlds": played.len(),
        "infeasible": infeasible,
        "quiet_gpu_days": all.quiet_gpu_days,
    });
    writeln!(out, "{line}")?;
    Ok(())
}

/// One world to draw.
#[derive(Clone, Debug)]
struct WorldSelection {
    family: &'static str,
    seed: u64,
    case: WorldCase<'static>,
    /// Duration of the run, where it is not the drawn one.
    lasts_s: Option<f64>,
}

fn select_worlds(options: &WorldsBenchOptions, judge: &JudgeBenchOptions) -> Vec<WorldSelection> {
    let (split, first) = match judge.suite_split() {
        SuiteSplit::Tune => (FamilySplit::Tune, 1),
        SuiteSplit::Test => (FamilySplit::Test, TEST_SEEDS_FROM),
    };
    let count = if judge.quick { QUICK_WORLDS } else { options.worlds };
    let wanted = |name: &str| options.family.as_ref().is_none_or(|family| family == name);
    let is_played = |name: &str, of: FamilySplit| match &options.family {
        Some(_) => wanted(name),
        None => of == split,
    };
    let mut runs = Vec::new();
    let mut numbers: BTreeMap<FamilySplit, usize> = BTreeMap::new();
    for family in FAMILIES {
        // A family's seeds are the same whether or not others are played.
        let next = numbers.entry(family.split).or_default();
        let number = *next;
        *next += 1;
        if !is_played(family.name, family.split) {
            continue;
        }
        for world in 0..count {
            let case = if options.quiet || world % QUIET_EVERY == QUIET_EVERY - 1 {
                WorldCase::Quiet { case: None }
            } else {
                WorldCase::Fault { kind: None, loss: None, course: None, second: false }
            };
            let seed = first + (number * 10_000 + world) as u64;
            if options.world.is_none_or(|only| only == seed) {
                let lasts_s = options.hours.map(|hours| hours * 3_600.0);
                runs.push(WorldSelection { family: family.name, seed, case, lasts_s });
            }
        }
    }
    runs
}

/// Plays all worlds that can be drawn, in their order.
fn play_all(runs: &[WorldSelection], dump_to: Option<&Path>) -> Vec<PlayedWorld> {
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut played: Vec<(usize, PlayedWorld)> = thread::scope(|scope| {
        let work = || {
            let mut own = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(run) = runs.get(index) else { return own };
                if let Ok(world) = play_world(run, dump_to) {
                    own.push((index, world));
                }
            }
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap_or_default()).collect()
    });
    played.sort_by_key(|(index, _)| *index);
    played.into_iter().map(|(_, world)| world).collect()
}

fn group_by<K: Ord>(
    played: &[PlayedWorld],
    key: impl Fn(&PlayedWorld) -> K,
) -> BTreeMap<K, Vec<&PlayedWorld>> {
    let mut groups: BTreeMap<K, Vec<&PlayedWorld>> = BTreeMap::new();
    for world in played {
        groups.entry(key(world)).or_default().push(world);
    }
    groups
}

/// Writes a table with a line for each group of worlds.
fn write_groups(
    out: &mut dyn Write,
    title: &str,
    played: &[PlayedWorld],
    key: impl Fn(&PlayedWorld) -> String,
) -> anyhow::Result<()> {
    writeln!(
        out,
        "{title:26} {:>5} {:>6} {:>5} {:>5} {:>6} {:>5} {:>5} {:>5} {:>6} {:>6}  false",
        "runs", "faults", "found", "blame", "false", "P", "R", "F1", "quiet", "pages"
    )?;
    for (name, worlds) in group_by(played, key) {
        WorldFigures::of(worlds.iter().copied()).write_row(out, &name)?;
    }
    WorldFigures::of(played).write_row(out, "all")?;
    writeln!(out)?;
    Ok(())
}

/// Maximum time between two ticks of a running engine.
const TICK: Duration = Duration::from_secs(1);
