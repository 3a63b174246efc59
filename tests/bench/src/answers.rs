//! What answers cost at fleet scale: microseconds in the owner, bytes on the wire, and the wait of who asks.

use std::{
    hint::black_box,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use gaunt::{
    answer::{Answer, Filter, Question, Subject, change},
    owner::{self, Handle, Owner},
};
use gaunt_schema::{Batch, Clock, Delivery, Dialect, Page, Rejected, Target, TargetId, UnixMs};
use gaunt_sim::{Fleet, Scenario};
use serde_json::{Value, json};

use crate::clock;

/// What a fleet is read every: large ones are read every ten seconds.
const PERIOD: Duration = Duration::from_secs(10);

/// A quarter of an hour at that period.
const SLOTS: usize = 90;

/// Periods that are lived through before anything is asked: rates, averages and states are known then.
const PERIODS: u64 = 4;

/// How often each question is asked, each time a little differently, so that no answer is kept from before.
const ROUNDS: usize = 41;

/// The pause of who asks long questions while others wait for short ones.
const LONG_PAUSE: Duration = Duration::from_millis(100);

/// Where the simulated time begins.
const START: UnixMs = UnixMs(1_700_000_000_000);

/// How large a fleet is asked about.
#[derive(Args, Clone, Debug)]
#[group(id = "answers")]
pub(crate) struct Options {
    /// Nodes of the fleet that `answers` asks about, 8 GPUs and 8 ports each.
    #[arg(long, default_value_t = 12_500)]
    pub(crate) answer_nodes: usize,
}

/// One question in several almost equal forms.
struct Asked {
    name: &'static str,
    question: fn(usize, &Names) -> String,
}

/// Names that the questions are about.
struct Names {
    node: String,
    job: String,
}

const ASKED: &[Asked] = &[
    Asked {
        name: "one GPU's power, 15 min",
        question: |at, names| {
            format!("history?metric=power&points={}&filter=node={} and gpu=0", 90 + at, names.node)
        },
    },
    Asked {
        name: "a job's mean power, 15 min",
        question: |at, names| {
            format!("history?metric=power&points={}&filter=job={}", 90 + at, names.job)
        },
    },
    Asked {
        name: "20 of a job, by power",
        question: |at, names| {
            format!("gpus?filter=job={} and power>{at} sort power desc limit 20", names.job)
        },
    },
    Asked {
        name: "20 of all, by power",
        question: |at, _| format!("gpus?filter=power>{at}W sort power desc limit 20"),
    },
    Asked {
        name: "20 of all, by two numbers",
        question: |at, _| format!("gpus?filter=sm_active<0.3 and power>{at}W limit 20"),
    },
    Asked {
        name: "20 of all, by node and model",
        question: |at, _| format!("gpus?filter=node~*{at}* and model~h100 limit 20"),
    },
    Asked {
        name: "all GPUs: power, one column",
        question: |at, _| format!("gpus?filter=power>{at}W&columns=power&limit=131072"),
    },
    Asked {
        name: "20 nodes, by loss",
        question: |at, _| format!("table/nodes?filter=gpus>0 sort lost desc limit {}", 20 + at),
    },
    Asked {
        name: "all jobs, 100 of them",
        question: |at, _| format!("jobs?filter=gpus>0 sort lost desc limit {}", 100 + at),
    },
    Asked { name: "one job", question: |_, names| format!("jobs/{}", names.job) },
    Asked {
        name: "fabric, all ports",
        question: |at, _| format!("fabric?filter=symbol_errors<{}", 1_000_000 + at),
    },
    Asked { name: "one node", question: |_, names| format!("nodes/{}", names.node) },
];

/// Measures, prints the table and the JSON line.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(Scenario::named("demo")?, options.answer_nodes, 7, START);
    let mut owner =
        Owner::new(owner::Options { period: PERIOD, slots: SLOTS, ..owner::Options::default() });
    owner.accept(Delivery::Targets(targets(&fleet)));
    for period in 1..=PERIODS {
        step(&mut fleet, &mut owner, START + PERIOD * period as u32);
    }
    let names = names(&mut owner)?;
    writeln!(out, "{} nodes, {} GPUs", fleet.nodes(), fleet.nodes() * 8)?;
    writeln!(out, "{:32} {:>12} {:>12} {:>12}", "question", "owner ms", "JSON ms", "bytes")?;
    let mut figures = serde_json::Map::new();
    for asked in ASKED {
        let cost = cost(&mut owner, asked, &names)?;
        writeln!(
            out,
            "{:32} {:>12.3} {:>12.3} {:>12}",
            asked.name, cost.owner, cost.json, cost.bytes
        )?;
        let key: String =
            asked.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        figures.insert(key, json!({ "owner_ms": round(cost.owner), "json_ms": round(cost.json), "bytes": cost.bytes }));
    }
    let published = published(&mut owner, &mut fleet, out)?;
    figures.insert("published".to_owned(), published);
    let waits = waits(owner, fleet, &names, out)?;
    figures.insert("waits".to_owned(), waits);
    writeln!(out, "{}", Value::Object(figures))?;
    Ok(())
}

fn round(ms: f64) -> f64 {
    (ms * 1e4).round() / 1e4
}

fn targets(fleet: &Fleet) -> Vec<Target> {
    let target = |node| Target {
        id: TargetId(node as u32),
        address: fleet.node_name(node).into(),
        node: None,
        origin: "bench".into(),
    };
    (0..fleet.nodes()).map(target).collect()
}

fn batch(fleet: &Fleet, node: usize, at: UnixMs) -> Delivery {
    let mut report = fleet.report(node);
    // A page that repeats its clock is not taken a second time.
    report.node_time = Some(at);
    let page = Page { report, dialect: Dialect::Gaunt, bytes: 0, rejected: Rejected::default() };
    let target = TargetId(node as u32);
    Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome: Ok(page) })
}

/// One period of the whole fleet, and the tick after it.
fn step(fleet: &mut Fleet, owner: &mut Owner, now: UnixMs) {
    fleet.advance(now);
    for node in 0..fleet.nodes() {
        owner.accept(batch(fleet, node, now));
    }
    owner.tick(now);
}

/// A node in the middle of the fleet, and the job with the most GPUs.
fn names(owner: &mut Owner) -> anyhow::Result<Names> {
    let Answer::Overview(overview) = owner.answer(&Question::Overview) else {
        bail!("no overview")
    };
    let node = &overview.heat.nodes[overview.heat.nodes.len() / 2];
    let jobs = Filter::parse(Subject::Jobs, "sort gpus desc limit 1 columns job")?;
    let Answer::Table(table) = owner.answer(&Question::Table(jobs)) else { bail!("no jobs") };
    let job = table.columns[0].text(0).context("no job in the fleet")?;
    Ok(Names { node: node.to_string(), job: job.to_string() })
}

struct Cost {
    owner: f64,
    json: f64,
    bytes: usize,
}

/// The median of some rounds, in milliseconds of CPU.
fn cost(owner: &mut Owner, asked: &Asked, names: &Names) -> anyhow::Result<Cost> {
    let (mut owners, mut jsons, mut bytes) = (Vec::new(), Vec::new(), 0);
    for at in 0..ROUNDS {
        let line = (asked.question)(at, names);
        let question = Question::read_line(&line, &[])?;
        let before = clock::cpu();
        let answer = owner.answer(&question);
        let made = clock::cpu();
        if let Answer::Refused(refusal) = &answer {
            bail!("{line}: {refusal}");
        }
        let json = serde_json::to_vec(&answer)?;
        owners.push((made.saturating_sub(before)).as_secs_f64() * 1e3);
        jsons.push((clock::cpu().saturating_sub(made)).as_secs_f64() * 1e3);
        bytes = black_box(json).len();
    }
    owners.sort_by(f64::total_cmp);
    jsons.sort_by(f64::total_cmp);
    Ok(Cost { owner: owners[ROUNDS / 2], json: jsons[ROUNDS / 2], bytes })
}

/// What is made once a tick for everybody: the overview, and the difference that a stream sends.
fn published(owner: &mut Owner, fleet: &mut Fleet, out: &mut dyn Write) -> anyhow::Result<Value> {
    let now = fleet.now();
    let overview = |owner: &mut Owner| -> anyhow::Result<Value> {
        Ok(serde_json::to_value(owner.answer(&Question::Overview))?)
    };
    let old = overview(owner)?;
    let before = clock::cpu();
    owner.tick(now + Duration::from_secs(1));
    let tick = clock::cpu().saturating_sub(before).as_secs_f64() * 1e3;
    let calm = overview(owner)?;
    step(fleet, owner, now + PERIOD);
    let before = clock::cpu();
    let busy = overview(owner)?;
    let value = clock::cpu().saturating_sub(before).as_secs_f64() * 1e3;
    let length =
        |old: &Value, new: &Value| change::between(old, new).map_or(0, |c| c.to_string().len());
    let before = clock::cpu();
    let busy_bytes = length(&calm, &busy);
    let difference = clock::cpu().saturating_sub(before).as_secs_f64() * 1e3;
    let (calm_bytes, whole) = (length(&old, &calm), busy.to_string().len());
    writeln!(out, "{:32} {tick:>12.3}", "a tick without news: judge, overview")?;
    writeln!(out, "{:32} {value:>12.3} {:>12} {whole:>12}", "the overview as a value", "")?;
    writeln!(
        out,
        "{:32} {difference:>12.3} {:>12} {busy_bytes:>12}",
        "its change after a period", ""
    )?;
    writeln!(
        out,
        "{:32} {:>12} {:>12} {calm_bytes:>12}",
        "its change after a calm second", "", ""
    )?;
    Ok(json!({
        "tick_ms": round(tick),
        "overview_value_ms": round(value),
        "overview_bytes": whole,
        "difference_ms": round(difference),
        "change_bytes_period": busy_bytes,
        "change_bytes_calm": calm_bytes,
    }))
}

/// How long one waits who asks an owner that is fed and ticks: wall-clock time, of a busy machine too.
fn waits(owner: Owner, fleet: Fleet, names: &Names, out: &mut dyn Write) -> anyhow::Result<Value> {
    // The simulated time goes on from here.
    let (anchor, begun) = (fleet.now() + PERIOD, Instant::now());
    let clock: Clock = Arc::new(move || anchor + begun.elapsed());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (heat, history) = runtime.block_on(async {
        let handle = owner::resume(owner, clock.clone());
        let feeding = tokio::task::spawn_blocking({
            let inbox = handle.inbox();
            let clock = clock.clone();
            move || {
                let end = Instant::now() + Duration::from_secs(12);
                for node in (0..fleet.nodes()).cycle() {
                    if Instant::now() > end
                        || inbox.blocking_send(batch(&fleet, node, clock())).is_err()
                    {
                        return;
                    }
                    // As many pages in a second as the fleet sends.
                    std::thread::sleep(PERIOD / fleet.nodes() as u32);
                }
            }
        });
        let long = tokio::spawn(ask_much(handle.clone()));
        let overview = Question::Overview;
        let power = Question::read_line(
            &format!("history?metric=power&filter=node={} and gpu=0", names.node),
            &[],
        )?;
        let mut waits = (Vec::new(), Vec::new());
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            waits.0.push(wait(&handle, overview.clone()).await?);
            waits.1.push(wait(&handle, power.clone()).await?);
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        feeding.await?;
        long.abort();
        anyhow::Ok(waits)
    })?;
    let mut told = serde_json::Map::new();
    for (name, mut waits) in [("heatmap", heat), ("history", history)] {
        waits.sort_by(f64::total_cmp);
        let (half, most) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
        writeln!(
            out,
            "{name:32} waits p50 {half:.3} ms, p99 {most:.3} ms of {} questions",
            waits.len()
        )?;
        told.insert(format!("{name}_p50_ms"), json!(round(half)));
        told.insert(format!("{name}_p99_ms"), json!(round(most)));
    }
    Ok(Value::Object(told))
}

async fn wait(handle: &Handle, question: Question) -> anyhow::Result<f64> {
    let asked = Instant::now();
    black_box(handle.ask(question).await?);
    Ok(asked.elapsed().as_secs_f64() * 1e3)
}

/// Somebody asks for the whole fabric and the whole fleet all the time.
async fn ask_much(handle: Handle) {
    for at in 0_usize.. {
        let line = if at.is_multiple_of(2) {
            format!("fabric?filter=symbol_errors<{}", 1_000_000 + at)
        } else {
            format!("gpus?filter=power>{}W sort power desc limit 20", at % 90)
        };
        let Ok(question) = Question::read_line(&line, &[]) else { return };
        if handle.ask(question).await.is_err() {
            return;
        }
        tokio::time::sleep(LONG_PAUSE).await;
    }
}
