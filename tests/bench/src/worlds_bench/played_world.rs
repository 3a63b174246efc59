//! One played world: its pages through an engine in virtual time, and the score of its findings.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use gaunt::command::judge_command::{FindingEpisode, VirtualRun};
use gaunt_schema::{
    Batch, Delivery, FindingKind, SanitizedText, ScrapeFailure, ScrapeTarget, TargetId, UnixMs,
};
use gaunt_worlds::{
    draw::{
        draw_world, job_list_json, lengthen_world, topology_file_name, topology_text, world_truths,
    },
    pages::ExporterPages,
    physics::RatePhysics,
    random::RandomKey,
    world::{RUN_START, World, WorldTruth},
};

use super::{TICK, WorldSelection};
use crate::{
    judge_bench::{RunScore, ScoreTerms, flagged_at, is_about, score_run},
    page_decoder::PageDecoder,
};

/// The score of one world.
pub(crate) struct PlayedWorld {
    /// Its family.
    pub(crate) family: &'static str,
    /// Its seed.
    pub(crate) seed: u64,
    /// The fault kind, or the quiet case.
    pub(crate) case_name: String,
    /// Share of speed that the fault costs; none without a fault.
    pub(crate) loss: Option<f64>,
    /// Seconds between two scrapes.
    pub(crate) scrape_s: f64,
    /// Observed GPU-days.
    pub(crate) gpu_days: f64,
    /// The score.
    pub(crate) score: RunScore,
    /// The confidence of each warning or worse.
    pub(crate) confidences: Vec<StatedConfidence>,
    /// Lines of pages that the parser rejected.
    pub(crate) rejected: u64,
    /// What was found, as lines.
    found: Vec<String>,
}

/// The confidence of a finding, beside the truth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatedConfidence {
    pub(crate) kind: FindingKind,
    pub(crate) confidence: f64,
    /// Whether it is about a fault.
    pub(crate) is_right: bool,
}

impl PlayedWorld {
    /// Classes of loss: below 10 %, 10 to 20 %, 20 to 45 %, above.
    pub(crate) fn loss_class(&self) -> &'static str {
        match self.loss {
            None => "no fault",
            Some(loss) if loss <= 0.0 => "none",
            Some(loss) if loss < 0.1 => "03-10 %",
            Some(loss) if loss < 0.2 => "10-20 %",
            Some(loss) if loss < 0.45 => "20-45 %",
            Some(_) => "45-80 %",
        }
    }

    /// Whether the fault costs at least 10 %, or is one without a loss that devices state themselves.
    pub(crate) fn is_strong(&self) -> bool {
        self.loss.is_some_and(|loss| loss <= 0.0 || loss >= 0.1)
    }

    /// Writes what was found in a world with a miss or a false finding.
    pub(crate) fn write_if_failed(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let is_missed = self.score.answers.iter().any(|answer| answer.in_time().is_none());
        if is_missed || !self.score.false_flags.is_empty() {
            let loss = self.loss.map(|loss| format!("{:.0} %", loss * 100.0)).unwrap_or_default();
            let missed = if is_missed { "missed" } else { "" };
            writeln!(
                out,
                "{} {} {} {loss} {:.0} s {missed}",
                self.family, self.seed, self.case_name, self.scrape_s
            )?;
            for line in &self.found {
                writeln!(out, "    {line}")?;
            }
        }
        Ok(())
    }
}

/// Draws and plays one world, and writes its pages into a folder if there is one; an error if this world cannot have this
/// fault.
pub(super) fn play_world(
    selection: &WorldSelection,
    dump_to: Option<&Path>,
) -> anyhow::Result<PlayedWorld> {
    let WorldSelection { family, seed, .. } = *selection;
    let mut world =
        draw_world(family, seed, selection.case.clone()).map_err(|error| anyhow!(error))?;
    if let Some(lasts_s) = selection.lasts_s {
        lengthen_world(&mut world, lasts_s);
    }
    let (mut run, shown_from) = match dump_to {
        Some(dir) => run_world(&world, seed, &PageDump::new(&world, dir)?)?,
        None => run_world(&world, seed, &Unchanged)?,
    };
    let truths = world_truths(&world, &shown_from);
    let rejected = run.cumulative_totals().rejected.values().sum();
    Ok(score_world(&world, truths, run.finding_log().all_episodes(), rejected))
}

/// A change of what a world serves and says, by which a test asks whether verdicts depend on it.
pub(super) trait WorldChange {
    /// Changes the names in a text.
    fn change_text(&self, text: String) -> String {
        text
    }

    /// Changes which targets there are; their numbers are those of the pages.
    fn change_targets(&self, targets: Vec<ScrapeTarget>) -> Vec<ScrapeTarget> {
        targets
    }

    /// Changes the page that a target serves at its scrape of this number; several targets may serve it.
    fn change_page(&self, target: u32, _scrape: usize, page: String) -> Vec<(u32, String)> {
        vec![(target, page)]
    }

    /// Looks at what a target serves, before it is changed; none where its scrape fails.
    fn observe_page(&self, _target: u32, _at: UnixMs, _page: Option<&str>) -> anyhow::Result<()> {
        Ok(())
    }

    /// Looks at the run after a tick.
    fn observe_tick(&self, _run: &mut VirtualRun) {}

    /// By how much longer targets are scraped.
    fn period_times(&self) -> u32 {
        1
    }
}

/// The world as it is.
pub(super) struct Unchanged;

impl WorldChange for Unchanged {}

/// Writes every page as `FOLDER/FAMILY-SEED/TARGET/UNIX_MS.prom`, empty where a scrape fails, for `gaunt judge --from`;
/// beside them `topology.conf` or the topology's own file name, and `jobs.json`, where the world has them.
struct PageDump {
    targets: Vec<PathBuf>,
}

impl PageDump {
    fn new(world: &World, dir: &Path) -> anyhow::Result<Self> {
        let dir = dir.join(format!("{}-{}", world.family, world.seed));
        let pages =
            ExporterPages::new(world, RandomKey::new(world.seed).child("run").child("pages"));
        let targets: Vec<PathBuf> =
            pages.targets().iter().map(|target| dir.join(&target.address)).collect();
        for target in &targets {
            fs::create_dir_all(target).with_context(|| target.display().to_string())?;
        }
        if let Some(text) = topology_text(world) {
            fs::write(dir.join(topology_file_name(world)), text)?;
        }
        if let Some(text) = job_list_json(world) {
            fs::write(dir.join("jobs.json"), text)?;
        }
        Ok(Self { targets })
    }
}

impl WorldChange for PageDump {
    fn observe_page(&self, target: u32, at: UnixMs, page: Option<&str>) -> anyhow::Result<()> {
        let path = self.targets[target as usize].join(format!("{}.prom", at.0));
        fs::write(&path, page.unwrap_or_default()).with_context(|| path.display().to_string())
    }
}

/// Plays a world; returns the run, and from when each fault can be seen.
pub(super) fn run_world(
    world: &World,
    seed: u64,
    change: &dyn WorldChange,
) -> anyhow::Result<(VirtualRun, Vec<Option<f64>>)> {
    let key = RandomKey::new(seed).child("run");
    let mut physics = RatePhysics::new(&world.cluster, &world.faults, key.child("physics"))
        .map_err(|error| anyhow!(error))?
        .with_duration_s(world.duration_s);
    let mut pages = ExporterPages::new(world, key.child("pages"));
    let options = gaunt_engine::EngineOptions {
        period: Duration::from_secs_f64(world.exporters.scrape_s) * change.period_times(),
        ..gaunt_engine::EngineOptions::default()
    };
    let mut run = VirtualRun::new(options);
    for delivery in site_deliveries(world, change)? {
        run.ingest_delivery(delivery);
    }
    let targets = change.change_targets(list_targets(&pages));
    run.ingest_delivery(Delivery::Targets(targets));
    play_pages(world, &mut physics, &mut pages, &mut run, change)?;
    let shown_from = (0..world.faults.len()).map(|fault| physics.shown_from_s(fault)).collect();
    Ok((run, shown_from))
}

/// What the site knows of its network and its jobs, through the readers of the site's files.
fn site_deliveries(world: &World, change: &dyn WorldChange) -> anyhow::Result<Vec<Delivery>> {
    let mut deliveries = Vec::new();
    if let Some(text) = topology_text(world).map(|text| change.change_text(text)) {
        let topology = gaunt_site::parse_topology(Path::new(topology_file_name(world)), &text);
        deliveries.push(Delivery::Topology(topology.context("topology of the world")?));
    }
    if let Some(text) = job_list_json(world).map(|text| change.change_text(text)) {
        let jobs =
            gaunt_site::parse_jobs(Path::new("jobs.json"), &text).context("jobs of the world")?;
        deliveries.push(Delivery::Jobs(jobs));
    }
    Ok(deliveries)
}

fn list_targets(pages: &ExporterPages) -> Vec<ScrapeTarget> {
    let target = |(index, target): (usize, &gaunt_worlds::pages::PageTarget)| ScrapeTarget {
        id: TargetId(index as u32),
        address: SanitizedText::from(target.address.clone()),
        node: None,
        origin: "the bench".into(),
    };
    pages.targets().iter().enumerate().map(target).collect()
}

/// Advances the physics each second, and ingests every page that is due.
fn play_pages(
    world: &World,
    physics: &mut RatePhysics,
    pages: &mut ExporterPages,
    run: &mut VirtualRun,
    change: &dyn WorldChange,
) -> anyhow::Result<()> {
    let mut decoder = PageDecoder::default();
    let targets: Vec<usize> = pages.targets().iter().map(|target| target.node).collect();
    let mut due: Vec<f64> = (0..targets.len()).map(|target| pages.due_at(target, 0.0)).collect();
    let mut scrapes = vec![0; targets.len()];
    let mut second = 0.0;
    while second < world.duration_s {
        second += TICK.as_secs_f64();
        physics.advance_to(second);
        for node in 0..world.cluster.nodes.len() {
            pages.observe(second, node, physics.node_state(node));
        }
        for (target, node) in targets.iter().enumerate() {
            if due[target] > second {
                continue;
            }
            let page = pages.scrape(second, target, physics.node_state(*node));
            due[target] = pages.due_at(target, second);
            scrapes[target] += 1;
            let at = instant_of(second);
            change.observe_page(target as u32, at, page.as_deref())?;
            let mut deliver = |target, outcome| {
                let target = TargetId(target);
                let batch = Batch { target, at, duration_ms: 1.0, outcome };
                run.ingest_delivery(Delivery::Batch(batch));
            };
            let Some(page) = page else {
                let refused = ScrapeFailure::Connect("connection refused".into());
                deliver(target as u32, Err(refused));
                continue;
            };
            for (target, page) in change.change_page(target as u32, scrapes[target], page) {
                deliver(target, decoder.decode(TargetId(target), &page));
            }
        }
        run.run_tick(instant_of(second));
        change.observe_tick(run);
    }
    Ok(())
}

fn instant_of(second: f64) -> UnixMs {
    RUN_START + Duration::from_secs_f64(second)
}

fn score_world(
    world: &World,
    truths: Vec<WorldTruth>,
    episodes: &[FindingEpisode],
    rejected: u64,
) -> PlayedWorld {
    let loss = truths.first().map(|truth| truth.loss);
    let truths: Vec<_> = truths.into_iter().map(|truth| truth.truth).collect();
    let terms = ScoreTerms { labels: true, grace: Duration::ZERO };
    let score = score_run(&truths, episodes, terms);
    let flagged = episodes.iter().filter(|episode| flagged_at(episode).is_some());
    let confidences = flagged.map(|episode| {
        let is_right = truths.iter().any(|truth| is_about(truth, &episode.finding));
        let (kind, confidence) = (episode.finding.kind, episode.finding.confidence);
        StatedConfidence { kind, confidence, is_right }
    });
    let case_name = match (world.faults.first(), world.quiet_case) {
        (Some(fault), _) => format!("{:?}", fault.kind),
        (None, case) => case.unwrap_or_default().to_owned(),
    };
    let gpus: usize = world.cluster.nodes.iter().map(|node| node.gpus.len()).sum();
    let expected = truths.iter().map(|truth| {
        format!(
            "truth {} {} at {:.0} s, limit {:.0} s",
            truth.kind,
            truth.blamed,
            truth.onset.duration_since(RUN_START).as_secs_f64(),
            truth.limit.as_secs_f64()
        )
    });
    let found = episodes.iter().map(|episode| {
        let lasted = episode.closed.map_or_else(
            || "to the end".to_owned(),
            |closed| format!("for {:.0} s", closed.duration_since(episode.opened).as_secs_f64()),
        );
        format!(
            "{:.0} s {lasted} {:?} {} {}",
            episode.opened.duration_since(RUN_START).as_secs_f64(),
            episode.worst,
            episode.finding.id,
            episode.finding.summary
        )
    });
    PlayedWorld {
        family: world.family,
        seed: world.seed,
        case_name,
        loss,
        scrape_s: world.exporters.scrape_s,
        gpu_days: gpus as f64 * world.duration_s / 86_400.0,
        confidences: confidences.collect(),
        score,
        rejected,
        found: describe_faults(world).chain(expected).chain(found).collect::<Vec<_>>(),
    }
}

/// Describes the faults as they were drawn, each with the cycle of its job.
fn describe_faults(world: &World) -> impl Iterator<Item = String> {
    world.faults.iter().map(|fault| {
        let job = fault.job.and_then(|job| world.cluster.jobs.get(job));
        let cycle = job.map_or_else(String::new, |job| {
            let steps = 1 + job.step.accumulation_steps;
            format!(", steps of {:.1} s × {steps}", job.step_s)
        });
        format!("{:?} {:.0} %, {:?}{cycle}", fault.kind, fault.loss * 100.0, fault.course)
    })
}

/// The kinds of the false findings, each with its number.
pub(crate) fn count_kinds(kinds: impl Iterator<Item = FindingKind>) -> String {
    let kinds: Vec<FindingKind> = kinds.collect();
    let names: BTreeSet<FindingKind> = kinds.iter().copied().collect();
    let counts = names.into_iter().map(|kind| {
        let count = kinds.iter().filter(|other| **other == kind).count();
        format!("{kind} {count}")
    });
    counts.collect::<Vec<_>>().join(", ")
}
