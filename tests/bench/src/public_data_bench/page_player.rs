//! Plays pages made from a public data set through an engine in virtual time, as `gaunt judge` does.

use std::time::Duration;

use gaunt::command::judge_command::{FindingEpisode, VirtualRun};
use gaunt_schema::{Batch, Delivery, SanitizedText, ScrapeTarget, TargetId, UnixMs};

use crate::page_decoder::PageDecoder;

/// Time between two ticks of a running engine.
const TICK: Duration = Duration::from_secs(1);

/// The pages that the exporters of a data set would have served.
pub(super) trait PublicPages {
    /// The first and the last instant.
    fn time_span(&self) -> (UnixMs, UnixMs);

    /// The time between two pages of a target.
    fn scrape_period(&self) -> Duration;

    /// The addresses of the targets from this instant on, by number, if they changed since the last call.
    fn changed_targets(&mut self, at: UnixMs) -> Option<Vec<(u32, String)>>;

    /// The pages of this instant, by target; it is never earlier than that of the last call.
    fn take_pages(&mut self, at: UnixMs) -> Vec<(u32, String)>;
}

/// What the judge made of a data set.
#[derive(Debug)]
pub(super) struct PublicRun {
    /// Its findings.
    pub(super) episodes: Vec<FindingEpisode>,
    /// Pages that were played.
    pub(super) pages: u64,
    /// Lines of pages that were rejected.
    pub(super) rejected_lines: u64,
}

/// Plays all pages, with a tick each second.
pub(super) fn play_public_pages(source: &mut dyn PublicPages) -> PublicRun {
    let mut decoder = PageDecoder::default();
    let options = gaunt_engine::EngineOptions {
        period: source.scrape_period(),
        ..gaunt_engine::EngineOptions::default()
    };
    let mut run = VirtualRun::new(options);
    let (mut now, until) = source.time_span();
    let mut pages = 0;
    while now <= until {
        if let Some(targets) = source.changed_targets(now) {
            let targets = targets.into_iter().map(|(id, address)| new_target(id, &address));
            run.ingest_delivery(Delivery::Targets(targets.collect()));
        }
        for (target, page) in source.take_pages(now) {
            pages += 1;
            let target = TargetId(target);
            let outcome = decoder.decode(target, &page);
            run.ingest_delivery(Delivery::Batch(Batch {
                target,
                at: now,
                duration_ms: 1.0,
                outcome,
            }));
        }
        run.run_tick(now);
        now = now + TICK;
    }
    let rejected_lines = run.cumulative_totals().rejected.values().sum();
    PublicRun { episodes: run.into_finding_log().all_episodes().to_vec(), pages, rejected_lines }
}

fn new_target(id: u32, address: &str) -> ScrapeTarget {
    ScrapeTarget {
        id: TargetId(id),
        address: SanitizedText::new(address),
        node: None,
        origin: "public data".into(),
    }
}
