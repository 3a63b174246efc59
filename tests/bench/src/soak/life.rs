//! The owner of a soak: fed, ticked, killed and started again from what was on the disk.

use std::time::Duration;

use anyhow::Context;
use gaunt::{
    answer::{Answer, Question},
    owner::{self, Owner, Remembered},
};
use gaunt_schema::{Delivery, Safe, Target, TargetId, UnixMs};
use gaunt_sim::{Fleet, Truth};

use super::{
    exporter_faults::ExporterFaults,
    standing::{Beside, Observer, Standing},
};
use crate::judge::START;

/// What was seen.
pub(super) struct Lived {
    pub(super) truths: Vec<Truth>,
    pub(super) standings: Vec<Standing>,
    pub(super) beside: Vec<Beside>,
    pub(super) ticks: u64,
    pub(super) kills: u32,
    /// Findings that were counted as opened more often than they came to be.
    pub(super) opened_twice: u64,
    /// Ticks at which the parts of the loss were not the whole, and by how many GPUs at worst.
    pub(super) loss_wrong: u64,
    pub(super) loss_worst: f64,
}

/// Parts of a loss may differ from the whole by rounding.
const SAME_LOSS: f64 = 1e-6;

/// Lives through the days of a fleet.
pub(super) fn live(
    mut fleet: Fleet,
    step: Duration,
    days: f64,
    seed: u64,
    kills: u32,
) -> anyhow::Result<Lived> {
    let options = owner::Options { period: step, ..owner::Options::default() };
    let ticks = (days * 86_400.0 / step.as_secs_f64()) as u64;
    let mut luck = Luck(seed ^ 0x50ac);
    let mut deaths: Vec<u64> = (0..kills).map(|_| luck.below(ticks)).collect();
    deaths.sort_unstable();
    deaths.dedup();
    let mut exporters = ExporterFaults::draw(&fleet, START, (days * 86_400.0) as u64, &mut luck);
    let truths: Vec<Truth> = fleet.truths().iter().chain(exporters.truths()).cloned().collect();
    let mut observer = Observer::new(&truths);
    let mut owner = begin(&options, Remembered::default(), &fleet);
    // What was on the disk at the tick before the last: what came after it is lost.
    let (mut disk, mut newest) = (Remembered::default(), Remembered::default());
    let (mut loss_wrong, mut loss_worst, mut away) = (0, 0.0_f64, 0_u64);
    for tick in 1..=ticks {
        let now = START + step * tick as u32;
        if step > Duration::from_secs(1) {
            fleet.advance(now - Duration::from_secs(1));
        }
        fleet.advance(now);
        if deaths.binary_search(&tick).is_ok() {
            let kept = through_files(&disk)?;
            owner = begin(&options, kept, &fleet);
            // It is started again after up to two minutes.
            away = luck.below(120 / step.as_secs().max(1) + 1);
        }
        if away > 0 {
            away -= 1;
            continue;
        }
        feed(&mut owner, &fleet, &mut exporters, now);
        owner.tick(now);
        disk = std::mem::replace(&mut newest, owner.remember().context("no judgement is away")?);
        let Answer::Findings(list) = owner.answer(&Question::Findings) else { continue };
        observer.see(&list, step);
        if let Answer::Overview(overview) = owner.answer(&Question::Overview) {
            let lost = &overview.lost;
            let findings: f64 = list.findings.iter().map(|finding| finding.lost_gpus).sum();
            let parts = findings + lost.idle_gpus + lost.unexplained_gpus;
            let difference = (lost.gpus - parts).abs();
            loss_wrong += u64::from(difference > SAME_LOSS);
            loss_worst = loss_worst.max(difference);
        }
    }
    let counted = match owner.answer(&Question::Targets) {
        Answer::Targets(list) => list.totals.findings_opened.values().sum(),
        _ => 0,
    };
    let opened_twice = u64::saturating_sub(counted, observer.openings());
    let (standings, beside) = observer.end();
    Ok(Lived {
        truths,
        standings,
        beside,
        ticks,
        kills: deaths.len() as u32,
        opened_twice,
        loss_wrong,
        loss_worst,
    })
}

/// An owner that goes on from what was kept.
fn begin(options: &owner::Options, kept: Remembered, fleet: &Fleet) -> Owner {
    let mut owner = Owner::resuming(options.clone(), kept);
    let targets = (0..fleet.nodes()).map(|node| Target {
        id: TargetId(node as u32),
        address: Safe::from(format!("10.{}.{}.7:9770", node / 250, node % 250)),
        node: None,
        origin: "the bench".into(),
    });
    owner.accept(Delivery::Targets(targets.collect()));
    owner
}

/// What was remembered as it comes back from its files.
fn through_files(kept: &Remembered) -> anyhow::Result<Remembered> {
    let back: Remembered = serde_json::from_slice(&serde_json::to_vec(kept)?)?;
    let recent = serde_json::from_slice(&serde_json::to_vec(kept.recent())?)?;
    let back = back.with_recent(recent);
    let Some(usual) = kept.usual() else { return Ok(back) };
    Ok(back.with_usual(serde_json::from_slice(&serde_json::to_vec(&**usual)?)?))
}

/// Hands over what every node's exporter says.
fn feed(owner: &mut Owner, fleet: &Fleet, exporters: &mut ExporterFaults, now: UnixMs) {
    for node in 0..fleet.nodes() {
        let Some(report) = fleet.told_report(node) else { continue };
        owner.accept(Delivery::Batch(exporters.batch(node, report, now)));
    }
}

/// Random numbers that repeat (a 64-bit linear congruential generator, upper half).
pub(super) struct Luck(u64);

impl Luck {
    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}
