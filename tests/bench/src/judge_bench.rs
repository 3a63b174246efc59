//! Bench `judge`: precision, recall, detection time and cost of the judge, on labelled simulated runs.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use anyhow::ensure;
use gaunt::command::judge_command::FindingEpisode;
use gaunt_schema::Dialect;
use gaunt_sim::GroundTruth;
use serde_json::json;

mod failed_runs;
mod judge_cost;
mod played_run;
mod run_score;
mod run_selection;
mod score_table;
mod score_totals;

pub(crate) use judge_cost::{measure_judge, time_judge};
pub(crate) use played_run::START;
pub(crate) use run_score::{
    FaultAnswer, RunScore, ScoreTerms, accepts_entity, flagged_at, is_about, score_run,
};
pub(crate) use run_selection::JudgeBenchOptions;
use run_selection::LabelledRun;
pub(crate) use score_totals::round_figure;
use score_totals::{FaultFreeCounts, FlagCounts, ScoredRun, compute_figures};

use crate::cpu_clock;

/// Results of a played run.
struct RunOutcome {
    scored: ScoredRun,
    truths: Vec<GroundTruth>,
    episodes: Vec<FindingEpisode>,
    pages: u64,
    rejected: u64,
}

/// Plays the sample on all cores, and prints the table and the JSON line.
pub(crate) fn run(options: &JudgeBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = Instant::now();
    // Measured alone on the machine and before the runs fragment the heap.
    let cost = measure_judge()?;
    let runs = options.select_runs()?;
    let outcomes = play_all(&runs)?;
    let rejected: u64 = outcomes.iter().map(|outcome| outcome.rejected).sum();
    ensure!(rejected == 0, "{rejected} lines of simulated pages are rejected by our own parser");
    let pages: u64 = outcomes.iter().map(|outcome| outcome.pages).sum();

    let scored_runs = |wanted: &dyn Fn(&LabelledRun) -> bool| -> Vec<ScoredRun> {
        let pairs = runs.iter().zip(&outcomes).filter(|(run, _)| wanted(run));
        pairs.map(|(_, outcome)| outcome.scored.clone()).collect()
    };
    let short_runs = scored_runs(&|run| !run.is_fault_free);
    let long_runs = scored_runs(&|run| run.is_fault_free);
    let calm_by_period = by_period(&runs, &outcomes);
    score_table::write_table(out, &short_runs)?;
    if !long_runs.is_empty() {
        write_fault_free(out, options, &long_runs, &calm_by_period)?;
    }
    if options.explain {
        for (run, outcome) in runs.iter().zip(&outcomes) {
            failed_runs::write_if_failed(out, run, outcome)?;
        }
    }
    // In a hard negative a look-alike occurs within minutes; false pages are counted where look-alikes occur at a
    // realistic rate.
    let (negatives, fault_free) =
        (FaultFreeCounts::of(&short_runs), FaultFreeCounts::of(&long_runs));
    let mut line = compute_figures(&short_runs);
    let extra = json!({
        "hard_negative_rate": round_figure(negatives.flag_rate()),
        "hard_negative_pages": negatives.pages,
        "false_pages_per_1000_gpu_days": round_figure(fault_free.pages_per_1000_gpu_days()),
        "gpu_days": round_figure(Some(fault_free.gpu_days)),
        "calm_by_period_s": calm_by_period.iter().map(|(period, counts)| json!({
            "period_s": period,
            "gpu_days": round_figure(Some(counts.gpu_days)),
            "pages": counts.pages,
            "false_pages_per_1000_gpu_days": round_figure(counts.pages_per_1000_gpu_days()),
        })).collect::<Vec<_>>(),
        "ns_per_signal": round_figure(Some(cost.ns_per_signal)),
        "bytes_per_gpu": cost.bytes_per_gpu.round(),
        "gaunt_1s": dialect_figures(&scored_runs(&|run| !run.is_fault_free && run.dialect == Dialect::Gaunt)),
        "dcgm_15s": dialect_figures(&scored_runs(&|run| !run.is_fault_free && run.dialect != Dialect::Gaunt)),
        "seeds": options.seed_set_name(),
        "sample": options.size_name(),
        "runs": runs.len(),
        "pages": pages,
        "cpu_s": cpu_clock::process_cpu_time().as_secs(),
        "wall_s": started.elapsed().as_secs(),
    });
    if let (Some(line), serde_json::Value::Object(extra)) = (line.as_object_mut(), extra) {
        line.extend(extra);
    }
    writeln!(out, "{line}")?;
    Ok(())
}

/// Prints the long fault-free runs, by scrape period.
fn write_fault_free(
    out: &mut dyn Write,
    options: &JudgeBenchOptions,
    long_runs: &[ScoredRun],
    calm_by_period: &BTreeMap<u64, FaultFreeCounts>,
) -> anyhow::Result<()> {
    let scrape_rate = if options.size_name() == "full" {
        "every second"
    } else {
        "every 30 s, a part every second"
    };
    writeln!(
        out,
        "long fault-free runs, scraped {scrape_rate}; other exporters at most every 15 s:"
    )?;
    score_table::write_table(out, long_runs)?;
    for (period, counts) in calm_by_period {
        let rate = counts.pages_per_1000_gpu_days().unwrap_or_default();
        let (pages, days) = (counts.pages, counts.gpu_days);
        writeln!(
            out,
            "     scraped every {period:>2} s: {pages} pages in {days:.1} GPU-days, {rate:.1} per 1,000"
        )?;
    }
    Ok(())
}

/// Findings in the long fault-free runs, by scrape period in seconds.
fn by_period(runs: &[LabelledRun], outcomes: &[RunOutcome]) -> BTreeMap<u64, FaultFreeCounts> {
    let mut scored: BTreeMap<u64, Vec<&ScoredRun>> = BTreeMap::new();
    for (run, outcome) in runs.iter().zip(outcomes).filter(|(run, _)| run.is_fault_free) {
        scored.entry(run.scrape_plan.scrape_period().as_secs()).or_default().push(&outcome.scored);
    }
    scored.into_iter().map(|(period, scored)| (period, FaultFreeCounts::of(scored))).collect()
}

/// The main figures of the runs in one exporter format.
fn dialect_figures(runs: &[ScoredRun]) -> serde_json::Value {
    let mut figures = compute_figures(runs);
    if let Some(figures) = figures.as_object_mut() {
        let rate = round_figure(FaultFreeCounts::of(runs).flag_rate());
        figures.insert("hard_negative_rate".to_owned(), json!(rate));
        figures.insert("false_flags".to_owned(), json!(FlagCounts::of(runs).false_flags));
    }
    figures
}

/// Plays every run, the longest first, on as many threads as there are cores; results are in the order of the runs.
fn play_all(runs: &[LabelledRun]) -> anyhow::Result<Vec<RunOutcome>> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(runs[*index].run_weight()));
    let next = AtomicUsize::new(0);
    let (send, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (send, next, order) = (send.clone(), &next, &order);
            scope.spawn(move || {
                while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver outlives the scope.
                    _ = send.send((*index, play_one(&runs[*index])));
                }
            });
        }
    });
    drop(send);
    let mut played: Vec<_> = outcomes.into_iter().collect();
    ensure!(played.len() == runs.len(), "a run ended before its score was known");
    played.sort_by_key(|(index, _)| *index);
    Ok(played.into_iter().map(|(_, outcome)| outcome).collect())
}

fn play_one(run: &LabelledRun) -> RunOutcome {
    let played =
        played_run::play_run((run.fleet)(), run.gpus, &run.scrape_plan, run.topology.as_ref());
    let terms = ScoreTerms { labels: run.labels, grace: run.scrape_plan.limit_grace() };
    let score = run_score::score_run(&played.truths, &played.episodes, terms);
    let (scenario, level, gpu_days) = (run.scenario, run.level, played.gpu_days);
    let scored = ScoredRun { scenario, level, gpu_days, score };
    let (pages, rejected) = (played.pages, played.rejected);
    RunOutcome { scored, truths: played.truths, episodes: played.episodes, pages, rejected }
}
