//! Played run: a simulated fleet whose pages are encoded and ingested by an engine in virtual time; its findings are
//! logged.

use std::time::Duration;

use gaunt::command::judge_command::{FindingEpisode, VirtualRun};
use gaunt_schema::{
    Batch, Delivery, Dialect, RejectionCounts, Report, SanitizedText, ScrapeFailure, ScrapeTarget,
    ScrapedPage, SourceTopology, TargetId, UnixMs,
};
use gaunt_sim::{GroundTruth, SimFleet};

use crate::page_decoder::PageDecoder;

/// Start of every run: an arbitrary instant that is not a round number.
pub(crate) const START: UnixMs = UnixMs(1_760_017_311_000);

/// Maximum time between two ticks of a running engine.
const TICK: Duration = Duration::from_secs(1);

/// Steps of a second from one scrape of a foreign exporter to the next: a common setting of Prometheus servers.
const FOREIGN_STEPS: u32 = 15;

/// Spreads neighbouring numbers over a period (Knuth's multiplicative hash).
const MIXER: u32 = 2_654_435_769;

/// Targets of a node: a target's number is that of the node times this, plus that of the exporter format.
const TARGETS_PER_NODE: u32 = 2;

/// How a fleet is scraped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetScrapePlan {
    /// Exporter format of its targets: gaunt's, or dcgm-exporter's and node_exporter's.
    pub(crate) dialect: Dialect,
    /// Duration in steps.
    pub(crate) steps: u32,
    /// The time between two ticks of the engine. The fleet advances with them.
    pub(crate) step: Duration,
    /// Steps from one scrape of a target to the next; each target has its own phase.
    pub(crate) steps_per_scrape: u32,
    /// Offset from the fleet's clock to the scraper's: faults do not begin in phase with scrapes.
    pub(crate) phase: Duration,
    /// Whether pages in gaunt's format are ingested without encoding and decoding them.
    pub(crate) without_encoding: bool,
}

impl FleetScrapePlan {
    /// The default scrape plan: each second, or each 15 for dcgm-exporter and node_exporter.
    pub(crate) fn with_dialect(dialect: Dialect, seconds: u32, seed: u64) -> Self {
        let steps_per_scrape = if dialect == Dialect::Gaunt { 1 } else { FOREIGN_STEPS };
        let mixed = (seed as u32).wrapping_mul(MIXER) >> 16;
        let phase = Duration::from_millis(u64::from(mixed) % TICK.as_millis() as u64);
        Self {
            dialect,
            steps: seconds,
            step: TICK,
            steps_per_scrape,
            phase,
            without_encoding: false,
        }
    }

    /// The time between two scrapes of a target.
    pub(crate) fn scrape_period(&self) -> Duration {
        self.step * self.steps_per_scrape
    }

    /// What a slow scrape period adds to every limit: three periods, if it is longer than a second.
    pub(crate) fn limit_grace(&self) -> Duration {
        if self.scrape_period() > TICK { self.scrape_period() * 3 } else { Duration::ZERO }
    }

    /// Whether a target is scraped in this step.
    fn is_due(&self, target: TargetId, step: u32) -> bool {
        let mixed = target.0.wrapping_mul(MIXER) >> 16;
        step % self.steps_per_scrape == mixed % self.steps_per_scrape
    }

    fn scraped_dialects(&self) -> &'static [Dialect] {
        match self.dialect {
            Dialect::Dcgm | Dialect::NodeExporter => &[Dialect::Dcgm, Dialect::NodeExporter],
            _ => &[Dialect::Gaunt],
        }
    }
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct PlayedRun {
    /// The ground truth.
    pub(crate) truths: Vec<GroundTruth>,
    /// The findings.
    pub(crate) episodes: Vec<FindingEpisode>,
    /// Observed GPU-days.
    pub(crate) gpu_days: f64,
    /// Pages that were encoded and decoded.
    pub(crate) pages: u64,
    /// Lines of pages that the parser rejected.
    pub(crate) rejected: u64,
}

/// Plays one run of a fleet that begins at [`START`].
pub(crate) fn play_run(
    mut fleet: SimFleet,
    gpus: usize,
    plan: &FleetScrapePlan,
    topology: Option<&SourceTopology>,
) -> PlayedRun {
    let mut decoder = PageDecoder::default();
    let options = gaunt_engine::EngineOptions {
        period: plan.scrape_period(),
        ..gaunt_engine::EngineOptions::default()
    };
    let mut virtual_run = VirtualRun::new(options);
    virtual_run.ingest_delivery(Delivery::Targets(fleet_targets(&fleet, plan.scraped_dialects())));
    if let Some(topology) = topology {
        virtual_run.ingest_delivery(Delivery::Topology(topology.clone()));
    }
    let truths = fleet.ground_truths().to_vec();
    let (mut page_count, mut now) = (0, START + plan.phase);
    for step in 0..plan.steps {
        now = now + plan.step;
        if plan.step > TICK {
            // Exporters sample their GPUs each second, however rarely they are scraped.
            fleet.advance_to(now - TICK);
        }
        fleet.advance_to(now);
        for node in 0..fleet.node_count() {
            let is_due = |dialect| plan.is_due(target_id(node, dialect), step);
            if !plan.scraped_dialects().iter().any(|dialect| is_due(*dialect)) {
                continue;
            }
            let report = if plan.without_encoding { fleet.scraped_report(node) } else { None };
            if let Some(report) = report {
                page_count += 1;
                virtual_run.ingest_delivery(Delivery::Batch(report_batch(report, node, now)));
                continue;
            }
            let pages = fleet.scraped_pages(node);
            for dialect in
                plan.scraped_dialects().iter().copied().filter(|dialect| is_due(*dialect))
            {
                let page = pages.iter().find(|(format, _)| *format == dialect);
                page_count += u64::from(page.is_some());
                let target = target_id(node, dialect);
                let outcome = match page {
                    Some((_, page)) => decoder.decode(target, page),
                    None => Err(ScrapeFailure::Connect("connection refused".into())),
                };
                let batch = Batch { target, at: now, duration_ms: 1.0, outcome };
                virtual_run.ingest_delivery(Delivery::Batch(batch));
            }
        }
        virtual_run.run_tick(now);
    }
    PlayedRun {
        truths,
        episodes: virtual_run.finding_log().all_episodes().to_vec(),
        gpu_days: gpus as f64 * (plan.step * plan.steps).as_secs_f64() / 86_400.0,
        pages: page_count,
        rejected: virtual_run.cumulative_totals().rejected.values().sum(),
    }
}

/// The batch of a report that was neither encoded nor decoded.
fn report_batch(report: Report, node: usize, at: UnixMs) -> Batch {
    let dialect = Dialect::Gaunt;
    let page = ScrapedPage { report, dialect, bytes: 0, rejected: RejectionCounts::default() };
    Batch { target: target_id(node, dialect), at, duration_ms: 1.0, outcome: Ok(page) }
}

fn fleet_targets(fleet: &SimFleet, dialects: &[Dialect]) -> Vec<ScrapeTarget> {
    let node_dialects = |node: usize| dialects.iter().map(move |dialect| (node, *dialect));
    let target = |(node, dialect): (usize, Dialect)| ScrapeTarget {
        id: target_id(node, dialect),
        address: SanitizedText::from(format!(
            "10.{}.{}.7:{}",
            node / 250,
            node % 250,
            dialect_port(dialect)
        )),
        node: None,
        origin: "the bench".into(),
    };
    (0..fleet.node_count()).flat_map(node_dialects).map(target).collect()
}

fn target_id(node: usize, dialect: Dialect) -> TargetId {
    let number = u32::from(dialect == Dialect::NodeExporter);
    TargetId(node as u32 * TARGETS_PER_NODE + number)
}

fn dialect_port(dialect: Dialect) -> u16 {
    match dialect {
        Dialect::Dcgm => 9400,
        Dialect::NodeExporter => 9100,
        _ => 9770,
    }
}

#[cfg(test)]
mod tests {
    use gaunt_sim::Scenario;

    use super::*;

    #[test]
    fn targets_are_scraped_once_a_period_and_not_all_in_one_step() {
        let plan = FleetScrapePlan::with_dialect(Dialect::Dcgm, 240, 1);
        assert_eq!(plan.limit_grace(), Duration::from_secs(45));
        let mut steps = [0; FOREIGN_STEPS as usize];
        for number in 0..300 {
            let due: Vec<_> = (0..30).filter(|step| plan.is_due(TargetId(number), *step)).collect();
            assert_eq!(due[1] - due[0], FOREIGN_STEPS);
            steps[due[0] as usize] += 1;
        }
        assert!(steps.iter().all(|targets| (5..60).contains(targets)), "{steps:?}");
        let plan = FleetScrapePlan::with_dialect(Dialect::Gaunt, 240, 1);
        assert_eq!(plan.limit_grace(), Duration::ZERO);
        assert!((0..300).all(|step| plan.is_due(TargetId(7), step)));
    }

    #[test]
    fn phases_differ_between_seeds() {
        let phase = |seed| FleetScrapePlan::with_dialect(Dialect::Gaunt, 240, seed).phase;
        let mut phases: Vec<_> = (1..=20).map(|number| phase(number * 1_000)).collect();
        phases.sort_unstable();
        phases.dedup();
        assert!(phases.len() >= 18, "{phases:?}");
        assert!(phases[0] < TICK / 4 && phases.last().is_some_and(|last| *last > TICK * 3 / 4));
    }

    #[test]
    fn fault_of_a_played_fleet_is_its_only_finding() {
        let scenario = Scenario::from_name("port_down").unwrap();
        let plan = FleetScrapePlan::with_dialect(Dialect::Gaunt, 75, 3);
        let fleet = || SimFleet::new(scenario.clone(), 4, 3, START);
        let played = play_run(fleet(), 32, &plan, None);
        let [truth] = played.truths.as_slice() else { panic!("{:?}", played.truths) };
        let [episode] = played.episodes.as_slice() else { panic!("{:?}", played.episodes) };
        assert_eq!((episode.finding.kind, &episode.finding.entity), (truth.kind, &truth.blamed));
        assert!(episode.opened > truth.onset);
        assert_eq!((played.pages, played.rejected), (4 * 75, 0));
        assert!((played.gpu_days - 32.0 * 75.0 / 86_400.0).abs() < 1e-9);
        // A repetition gives the same result, and so does a run without encoding.
        let without_encoding = FleetScrapePlan { without_encoding: true, ..plan };
        assert_eq!(play_run(fleet(), 32, &without_encoding, None).episodes, played.episodes);
        assert_eq!(play_run(fleet(), 32, &plan, None).episodes, played.episodes);
    }
}
