//! Bench `judge`: how often the judge is right, how fast, and what it costs, on labelled simulated runs.

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
use gaunt::command::judge::Episode;
use gaunt_schema::Dialect;
use gaunt_sim::Truth;
use serde_json::json;

mod cost;
mod explain;
mod play;
mod sample;
mod score;
mod table;
mod tally;

pub(crate) use play::START;
pub(crate) use sample::Options;
use sample::Run;
use score::Terms;
pub(crate) use score::{accepts, is_about};
use tally::{Counts, Peace, Scored, figures, rounded};

use crate::clock;

/// What a played run gives.
struct Outcome {
    scored: Scored,
    truths: Vec<Truth>,
    said: Vec<Episode>,
    pages: u64,
    rejected: u64,
}

/// Plays the sample on all cores, and prints the table and the JSON line.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = Instant::now();
    // Alone on the machine and before the heap is torn by the runs.
    let cost = cost::measure()?;
    let runs = options.runs()?;
    let outcomes = play_all(&runs)?;
    let rejected: u64 = outcomes.iter().map(|outcome| outcome.rejected).sum();
    ensure!(rejected == 0, "{rejected} lines of simulated pages are not taken by our own reader");
    let pages: u64 = outcomes.iter().map(|outcome| outcome.pages).sum();

    let of = |wanted: &dyn Fn(&Run) -> bool| -> Vec<Scored> {
        let pairs = runs.iter().zip(&outcomes).filter(|(run, _)| wanted(run));
        pairs.map(|(_, outcome)| outcome.scored.clone()).collect()
    };
    let short = of(&|run| !run.peace);
    let long = of(&|run| run.peace);
    let calm = by_period(&runs, &outcomes);
    table::write(out, &short)?;
    if !long.is_empty() {
        write_calm(out, options, &long, &calm)?;
    }
    if options.explain {
        for (run, outcome) in runs.iter().zip(&outcomes) {
            explain::write(out, run, outcome)?;
        }
    }
    // In a hard negative something happens within minutes; pages are counted where it happens as often as in life.
    let (negatives, peace) = (Peace::of(&short), Peace::of(&long));
    let mut line = figures(&short);
    let told = json!({
        "hard_negative_rate": rounded(negatives.rate()),
        "hard_negative_pages": negatives.pages,
        "false_pages_per_1000_gpu_days": rounded(peace.pages_per_1000_gpu_days()),
        "gpu_days": rounded(Some(peace.gpu_days)),
        "calm_by_period_s": calm.iter().map(|(period, peace)| json!({
            "period_s": period,
            "gpu_days": rounded(Some(peace.gpu_days)),
            "pages": peace.pages,
            "false_pages_per_1000_gpu_days": rounded(peace.pages_per_1000_gpu_days()),
        })).collect::<Vec<_>>(),
        "ns_per_signal": rounded(Some(cost.ns_per_signal)),
        "bytes_per_gpu": cost.bytes_per_gpu.round(),
        "gaunt_1s": by_dialect(&of(&|run| !run.peace && run.dialect == Dialect::Gaunt)),
        "dcgm_15s": by_dialect(&of(&|run| !run.peace && run.dialect != Dialect::Gaunt)),
        "seeds": options.seeds(),
        "sample": options.size(),
        "runs": runs.len(),
        "pages": pages,
        "cpu_s": clock::cpu().as_secs(),
        "wall_s": started.elapsed().as_secs(),
    });
    if let (Some(line), serde_json::Value::Object(told)) = (line.as_object_mut(), told) {
        line.extend(told);
    }
    writeln!(out, "{line}")?;
    Ok(())
}

/// Writes of the long fault-free runs, and how often they were looked at.
fn write_calm(
    out: &mut dyn Write,
    options: &Options,
    long: &[Scored],
    calm: &BTreeMap<u64, Peace>,
) -> anyhow::Result<()> {
    let close =
        if options.size() == "full" { "each second" } else { "each 30 s, a part each second" };
    writeln!(out, "long fault-free runs, read {close}; other exporters at most each 15 s:")?;
    table::write(out, long)?;
    for (period, peace) in calm {
        let rate = peace.pages_per_1000_gpu_days().unwrap_or_default();
        let (pages, days) = (peace.pages, peace.gpu_days);
        writeln!(
            out,
            "     read each {period:>2} s: {pages} pages in {days:.1} GPU-days, {rate:.1} in a thousand"
        )?;
    }
    Ok(())
}

/// What was said in the long fault-free runs, by the seconds from one look at a node to the next.
fn by_period(runs: &[Run], outcomes: &[Outcome]) -> BTreeMap<u64, Peace> {
    let mut scored: BTreeMap<u64, Vec<&Scored>> = BTreeMap::new();
    for (run, outcome) in runs.iter().zip(outcomes).filter(|(run, _)| run.peace) {
        scored.entry(run.watch.period().as_secs()).or_default().push(&outcome.scored);
    }
    scored.into_iter().map(|(period, scored)| (period, Peace::of(scored))).collect()
}

/// The main figures of the runs in one dialect, side by side with the other.
fn by_dialect(runs: &[Scored]) -> serde_json::Value {
    let mut all = figures(runs);
    if let Some(all) = all.as_object_mut() {
        let rate = rounded(Peace::of(runs).rate());
        all.insert("hard_negative_rate".to_owned(), json!(rate));
        all.insert("false_flags".to_owned(), json!(Counts::of(runs).false_flags));
    }
    all
}

/// Plays every run, the longest first, on as many threads as there are cores; in the order of the runs.
fn play_all(runs: &[Run]) -> anyhow::Result<Vec<Outcome>> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(runs[*at].weight()));
    let next = AtomicUsize::new(0);
    let (send, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (send, next, order) = (send.clone(), &next, &order);
            scope.spawn(move || {
                while let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver outlives the scope.
                    _ = send.send((*at, play_one(&runs[*at])));
                }
            });
        }
    });
    drop(send);
    let mut played: Vec<_> = outcomes.into_iter().collect();
    ensure!(played.len() == runs.len(), "a run ended before its score was known");
    played.sort_by_key(|(at, _)| *at);
    Ok(played.into_iter().map(|(_, outcome)| outcome).collect())
}

fn play_one(run: &Run) -> Outcome {
    let played = play::play((run.fleet)(), run.gpus, &run.watch, run.topology.as_ref());
    let terms = Terms { labels: run.labels, grace: run.watch.grace() };
    let score = score::score(&played.truths, &played.said, terms);
    let (scenario, level, gpu_days) = (run.scenario, run.level, played.gpu_days);
    let scored = Scored { scenario, level, gpu_days, score };
    let (pages, rejected) = (played.pages, played.rejected);
    Outcome { scored, truths: played.truths, said: played.said, pages, rejected }
}
