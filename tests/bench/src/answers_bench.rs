//! Bench `answers`: cost of answers at fleet scale: CPU time in the engine, bytes of JSON, and response times.

use std::{
    hint::black_box,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use gaunt_api::{Answer, Filter, Question, Subject, json_diff};
use gaunt_engine::{Engine, EngineHandle};
use gaunt_schema::{
    Batch, ClockFn, Delivery, Dialect, RejectionCounts, ScrapeTarget, ScrapedPage, TargetId, UnixMs,
};
use gaunt_sim::{Scenario, SimFleet};
use serde_json::{Value, json};

use crate::cpu_clock;

/// The scrape period: large fleets are scraped every ten seconds.
const PERIOD: Duration = Duration::from_secs(10);

/// Points of history: a quarter of an hour at that period.
const SLOTS: usize = 90;

/// Simulated periods before the first question: rates, averages and states are known then.
const PERIODS: u64 = 4;

/// Number of times that each question is asked, with variations, so that no answer is cached.
const ROUNDS: usize = 41;

/// The pause between two long questions while short ones are timed.
const LONG_PAUSE: Duration = Duration::from_millis(100);

/// Start of the simulated time.
const START: UnixMs = UnixMs(1_700_000_000_000);

/// Options of `answers`.
#[derive(Args, Clone, Debug)]
#[group(id = "answers")]
pub(crate) struct AnswersBenchOptions {
    /// `answers`: number of nodes, 8 GPUs and 8 ports each.
    #[arg(long, default_value_t = 12_500)]
    pub(crate) answer_nodes: usize,
}

/// One question in several almost equal forms.
struct BenchQuestion {
    name: &'static str,
    question: fn(usize, &QuestionSubjects) -> String,
}

/// Names that the questions are about.
struct QuestionSubjects {
    node: String,
    job: String,
}

const QUESTIONS: &[BenchQuestion] = &[
    BenchQuestion {
        name: "one GPU's power, 15 min",
        question: |at, names| {
            format!("history?metric=power&points={}&filter=node={} and gpu=0", 90 + at, names.node)
        },
    },
    BenchQuestion {
        name: "a job's mean power, 15 min",
        question: |at, names| {
            format!("history?metric=power&points={}&filter=job={}", 90 + at, names.job)
        },
    },
    BenchQuestion {
        name: "20 of a job, by power",
        question: |at, names| {
            format!("gpus?filter=job={} and power>{at} sort power desc limit 20", names.job)
        },
    },
    BenchQuestion {
        name: "20 of all, by power",
        question: |at, _| format!("gpus?filter=power>{at}W sort power desc limit 20"),
    },
    BenchQuestion {
        name: "20 of all, by two numbers",
        question: |at, _| format!("gpus?filter=sm_active<0.3 and power>{at}W limit 20"),
    },
    BenchQuestion {
        name: "20 of all, by node and model",
        question: |at, _| format!("gpus?filter=node~*{at}* and model~h100 limit 20"),
    },
    BenchQuestion {
        name: "all GPUs: power, one column",
        question: |at, _| format!("gpus?filter=power>{at}W&columns=power&limit=131072"),
    },
    BenchQuestion {
        name: "20 nodes, by loss",
        question: |at, _| format!("table/nodes?filter=gpus>0 sort lost desc limit {}", 20 + at),
    },
    BenchQuestion {
        name: "all jobs, 100 of them",
        question: |at, _| format!("jobs?filter=gpus>0 sort lost desc limit {}", 100 + at),
    },
    BenchQuestion { name: "one job", question: |_, names| format!("jobs/{}", names.job) },
    BenchQuestion {
        name: "fabric, all ports",
        question: |at, _| format!("fabric?filter=symbol_errors<{}", 1_000_000 + at),
    },
    BenchQuestion { name: "one node", question: |_, names| format!("nodes/{}", names.node) },
];

/// Measures, prints the table and the JSON line.
pub(crate) fn run(options: &AnswersBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut fleet = SimFleet::new(Scenario::from_name("demo")?, options.answer_nodes, 7, START);
    let mut engine = Engine::new(gaunt_engine::EngineOptions {
        period: PERIOD,
        slots: SLOTS,
        ..gaunt_engine::EngineOptions::default()
    });
    engine.ingest_delivery(Delivery::Targets(fleet_targets(&fleet)));
    for period in 1..=PERIODS {
        run_period(&mut fleet, &mut engine, START + PERIOD * period as u32);
    }
    let names = pick_subjects(&mut engine)?;
    writeln!(out, "{} nodes, {} GPUs", fleet.node_count(), fleet.node_count() * 8)?;
    writeln!(out, "{:32} {:>12} {:>12} {:>12}", "question", "engine ms", "JSON ms", "bytes")?;
    let mut figures = serde_json::Map::new();
    for bench_question in QUESTIONS {
        let cost = measure_answer(&mut engine, bench_question, &names)?;
        writeln!(
            out,
            "{:32} {:>12.3} {:>12.3} {:>12}",
            bench_question.name, cost.engine_ms, cost.json_ms, cost.bytes
        )?;
        let key: String = bench_question
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        figures.insert(key, json!({ "owner_ms": round_millis(cost.engine_ms), "json_ms": round_millis(cost.json_ms), "bytes": cost.bytes }));
    }
    let published = measure_published(&mut engine, &mut fleet, out)?;
    figures.insert("published".to_owned(), published);
    let waits = measure_waits(engine, fleet, &names, out)?;
    figures.insert("waits".to_owned(), waits);
    writeln!(out, "{}", Value::Object(figures))?;
    Ok(())
}

fn round_millis(ms: f64) -> f64 {
    (ms * 1e4).round() / 1e4
}

fn fleet_targets(fleet: &SimFleet) -> Vec<ScrapeTarget> {
    let target = |node| ScrapeTarget {
        id: TargetId(node as u32),
        address: fleet.node_name(node).into(),
        node: None,
        origin: "bench".into(),
    };
    (0..fleet.node_count()).map(target).collect()
}

fn node_delivery(fleet: &SimFleet, node: usize, at: UnixMs) -> Delivery {
    let mut report = fleet.node_report(node);
    // A page with a repeated timestamp is not ingested again.
    report.node_time = Some(at);
    let page = ScrapedPage {
        report,
        dialect: Dialect::Gaunt,
        bytes: 0,
        rejected: RejectionCounts::default(),
    };
    let target = TargetId(node as u32);
    Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome: Ok(page) })
}

/// One period of the whole fleet, and the tick after it.
fn run_period(fleet: &mut SimFleet, engine: &mut Engine, now: UnixMs) {
    fleet.advance_to(now);
    for node in 0..fleet.node_count() {
        engine.ingest_delivery(node_delivery(fleet, node, now));
    }
    engine.run_tick(now);
}

/// A node in the middle of the fleet, and the job with the most GPUs.
fn pick_subjects(engine: &mut Engine) -> anyhow::Result<QuestionSubjects> {
    let Answer::Overview(overview) = engine.answer_question(&Question::Overview) else {
        bail!("no overview")
    };
    let node = &overview.heat.nodes[overview.heat.nodes.len() / 2];
    let jobs = Filter::parse(Subject::Jobs, "sort gpus desc limit 1 columns job")?;
    let Answer::Table(table) = engine.answer_question(&Question::Table(jobs)) else {
        bail!("no jobs")
    };
    let job = table.columns[0].text_at(0).context("no job in the fleet")?;
    Ok(QuestionSubjects { node: node.to_string(), job: job.to_string() })
}

struct AnswerCost {
    engine_ms: f64,
    json_ms: f64,
    bytes: usize,
}

/// The median of some rounds, in milliseconds of CPU.
fn measure_answer(
    engine: &mut Engine,
    bench_question: &BenchQuestion,
    names: &QuestionSubjects,
) -> anyhow::Result<AnswerCost> {
    let (mut engine_times, mut json_times, mut bytes) = (Vec::new(), Vec::new(), 0);
    for round in 0..ROUNDS {
        let line = (bench_question.question)(round, names);
        let question = Question::parse_line(&line, &[])?;
        let before = cpu_clock::process_cpu_time();
        let answer = engine.answer_question(&question);
        let answered = cpu_clock::process_cpu_time();
        if let Answer::Refused(refusal) = &answer {
            bail!("{line}: {refusal}");
        }
        let json = serde_json::to_vec(&answer)?;
        engine_times.push((answered.saturating_sub(before)).as_secs_f64() * 1e3);
        json_times
            .push((cpu_clock::process_cpu_time().saturating_sub(answered)).as_secs_f64() * 1e3);
        bytes = black_box(json).len();
    }
    engine_times.sort_by(f64::total_cmp);
    json_times.sort_by(f64::total_cmp);
    Ok(AnswerCost { engine_ms: engine_times[ROUNDS / 2], json_ms: json_times[ROUNDS / 2], bytes })
}

/// Cost of what is published once a tick: the overview, and the difference that a stream sends.
fn measure_published(
    engine: &mut Engine,
    fleet: &mut SimFleet,
    out: &mut dyn Write,
) -> anyhow::Result<Value> {
    let now = fleet.current_time();
    let overview = |engine: &mut Engine| -> anyhow::Result<Value> {
        Ok(serde_json::to_value(engine.answer_question(&Question::Overview))?)
    };
    let old = overview(engine)?;
    let before = cpu_clock::process_cpu_time();
    engine.run_tick(now + Duration::from_secs(1));
    let tick = cpu_clock::process_cpu_time().saturating_sub(before).as_secs_f64() * 1e3;
    let calm = overview(engine)?;
    run_period(fleet, engine, now + PERIOD);
    let before = cpu_clock::process_cpu_time();
    let busy = overview(engine)?;
    let value = cpu_clock::process_cpu_time().saturating_sub(before).as_secs_f64() * 1e3;
    let length = |old: &Value, new: &Value| {
        json_diff::diff_values(old, new).map_or(0, |c| c.to_string().len())
    };
    let before = cpu_clock::process_cpu_time();
    let busy_bytes = length(&calm, &busy);
    let difference = cpu_clock::process_cpu_time().saturating_sub(before).as_secs_f64() * 1e3;
    let (calm_bytes, overview_bytes) = (length(&old, &calm), busy.to_string().len());
    writeln!(out, "{:32} {tick:>12.3}", "a tick without batches: judge, overview")?;
    writeln!(
        out,
        "{:32} {value:>12.3} {:>12} {overview_bytes:>12}",
        "the overview as a value", ""
    )?;
    writeln!(
        out,
        "{:32} {difference:>12.3} {:>12} {busy_bytes:>12}",
        "its change after a period", ""
    )?;
    writeln!(
        out,
        "{:32} {:>12} {:>12} {calm_bytes:>12}",
        "its change after a second without batches", "", ""
    )?;
    Ok(json!({
        "tick_ms": round_millis(tick),
        "overview_value_ms": round_millis(value),
        "overview_bytes": overview_bytes,
        "difference_ms": round_millis(difference),
        "change_bytes_period": busy_bytes,
        "change_bytes_calm": calm_bytes,
    }))
}

/// Response times of an engine that ingests and ticks, in wall-clock time, other load on the machine included.
fn measure_waits(
    engine: Engine,
    fleet: SimFleet,
    names: &QuestionSubjects,
    out: &mut dyn Write,
) -> anyhow::Result<Value> {
    // The simulated time continues from here.
    let (anchor, begun) = (fleet.current_time() + PERIOD, Instant::now());
    let clock: ClockFn = Arc::new(move || anchor + begun.elapsed());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (heat, history) = runtime.block_on(async {
        let handle = gaunt_engine::spawn_existing(engine, clock.clone());
        let feeder = tokio::task::spawn_blocking({
            let inbox = handle.delivery_sender();
            let clock = clock.clone();
            move || {
                let end = Instant::now() + Duration::from_secs(12);
                for node in (0..fleet.node_count()).cycle() {
                    if Instant::now() > end
                        || inbox.blocking_send(node_delivery(&fleet, node, clock())).is_err()
                    {
                        return;
                    }
                    // The page rate of the fleet.
                    std::thread::sleep(PERIOD / fleet.node_count() as u32);
                }
            }
        });
        let flood = tokio::spawn(flood_questions(handle.clone()));
        let overview = Question::Overview;
        let power = Question::parse_line(
            &format!("history?metric=power&filter=node={} and gpu=0", names.node),
            &[],
        )?;
        let mut waits = (Vec::new(), Vec::new());
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            waits.0.push(time_question(&handle, overview.clone()).await?);
            waits.1.push(time_question(&handle, power.clone()).await?);
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        feeder.await?;
        flood.abort();
        anyhow::Ok(waits)
    })?;
    let mut figures = serde_json::Map::new();
    for (name, mut waits) in [("heatmap", heat), ("history", history)] {
        waits.sort_by(f64::total_cmp);
        let (p50, p99) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
        writeln!(
            out,
            "{name:32} response p50 {p50:.3} ms, p99 {p99:.3} ms of {} questions",
            waits.len()
        )?;
        figures.insert(format!("{name}_p50_ms"), json!(round_millis(p50)));
        figures.insert(format!("{name}_p99_ms"), json!(round_millis(p99)));
    }
    Ok(Value::Object(figures))
}

async fn time_question(handle: &EngineHandle, question: Question) -> anyhow::Result<f64> {
    let begun = Instant::now();
    black_box(handle.ask_question(question).await?);
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// Asks for the whole fabric and the whole fleet continuously.
async fn flood_questions(handle: EngineHandle) {
    for number in 0_usize.. {
        let line = if number.is_multiple_of(2) {
            format!("fabric?filter=symbol_errors<{}", 1_000_000 + number)
        } else {
            format!("gpus?filter=power>{}W sort power desc limit 20", number % 90)
        };
        let Ok(question) = Question::parse_line(&line, &[]) else { return };
        if handle.ask_question(question).await.is_err() {
            return;
        }
        tokio::time::sleep(LONG_PAUSE).await;
    }
}
