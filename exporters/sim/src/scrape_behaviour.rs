//! Scrape behaviour: pages that are missing, repeated or late, and clock skew.

use std::time::Duration;

use gaunt_schema::{Dialect, UnixMs};

use crate::{
    FaultEffect, Scenario, fleet_shape::FleetShape, noise_key::NoiseKey, sim_fault::WARM_UP,
};

/// Collection interval of dcgm-exporter, which serves the same values until the next one.
pub(crate) const COLLECT_S: f64 = 30.0;

/// A troubled node changes its failure mode at this interval.
const SPELL_S: f64 = 15.0;

/// Maximum clock skew of nodes, and that of a troubled node.
const SKEW_S: f64 = 0.2;
const TROUBLED_SKEW_S: f64 = 80.0;

/// The pages of one exporter or two.
pub(crate) type ExporterPages = Vec<(Dialect, String)>;

/// How the nodes of a fleet answer their scrapers.
#[derive(Debug)]
pub(crate) struct ScrapeBehaviour {
    noise: NoiseKey,
    dialect: Dialect,
    /// The stored page of each node that will be served again, and its key.
    stored_pages: Vec<(Option<u64>, ExporterPages)>,
    /// Nodes with scrape failures, from when until when, in seconds since the start.
    troubled: Vec<(usize, f64, f64)>,
    /// Nodes that restart, from when until when.
    rebooted: Vec<(std::ops::Range<usize>, f64, f64)>,
}

/// Failure mode of a troubled node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScrapeMode {
    Answers,
    Silent,
    /// It repeats the first page of this interval.
    Repeats(u64),
}

impl ScrapeBehaviour {
    pub(crate) fn new(
        noise: NoiseKey,
        scenario: &Scenario,
        shape: &FleetShape,
        dialect: Dialect,
    ) -> Self {
        let (mut troubled, mut rebooted) = (Vec::new(), Vec::new());
        for fault in &scenario.faults {
            let Some(job_index) = fault.gang.checked_rem(shape.jobs.len()) else { continue };
            let job = &shape.jobs[job_index].nodes;
            let node = job.start + fault.member % job.len();
            let from = WARM_UP.as_secs_f64() + fault.onset_s;
            let until = fault.lasts_s.map_or(f64::INFINITY, |duration| from + duration);
            match fault.effect {
                FaultEffect::ScrapeTrouble => troubled.push((node, from, until)),
                FaultEffect::Reboot => rebooted.push((job.clone(), from, until)),
                _ => {}
            }
        }
        Self {
            noise,
            dialect,
            stored_pages: vec![(None, Vec::new()); shape.nodes],
            troubled,
            rebooted,
        }
    }

    /// Whether the current page of a node must be stored, because it will be served again.
    pub(crate) fn is_store_due(&self, node: usize, now: f64) -> bool {
        let key = self.repeat_key(node, now);
        key.is_some() && self.stored_pages[node].0 != key
    }

    pub(crate) fn store_pages(&mut self, node: usize, now: f64, pages: ExporterPages) {
        self.stored_pages[node] = (self.repeat_key(node, now), pages);
    }

    /// The pages that a scraper receives from a node whose current pages are `fresh_pages`.
    pub(crate) fn scraped_pages(
        &self,
        node: usize,
        now: f64,
        fresh_pages: impl FnOnce() -> ExporterPages,
    ) -> ExporterPages {
        match self.scrape_mode(node, now) {
            ScrapeMode::Silent => return Vec::new(),
            ScrapeMode::Repeats(_) => return self.stored_pages[node].1.clone(),
            ScrapeMode::Answers => {}
        }
        let mut pages = fresh_pages();
        if self.dialect == Dialect::Dcgm {
            let stored =
                self.stored_pages[node].1.iter().find(|(dialect, _)| *dialect == Dialect::Dcgm);
            if let (Some(old), Some(new)) =
                (stored, pages.iter_mut().find(|(dialect, _)| *dialect == Dialect::Dcgm))
            {
                new.1.clone_from(&old.1);
            }
        }
        pages
    }

    /// Whether a scraper receives current data: in gaunt's format, and not a repeated page.
    pub(crate) fn is_live(&self, node: usize, now: f64) -> bool {
        self.dialect == Dialect::Gaunt && self.scrape_mode(node, now) == ScrapeMode::Answers
    }

    /// The clock of a node when the true time is `time`.
    pub(crate) fn node_clock(&self, node: usize, time: UnixMs) -> UnixMs {
        let max_skew = if self.troubled.iter().any(|(troubled, ..)| *troubled == node) {
            TROUBLED_SKEW_S
        } else {
            SKEW_S
        };
        let skew = self.noise.child_key(0).child_key(node as u64).random_unit() * max_skew;
        time - Duration::from_millis((skew * 1e3) as u64)
    }

    /// The key under which a page is repeated: the number of the collection, or of the interval.
    fn repeat_key(&self, node: usize, now: f64) -> Option<u64> {
        if let ScrapeMode::Repeats(key) = self.scrape_mode(node, now) {
            return Some(key);
        }
        let offset = self.noise.child_key(1).child_key(node as u64).random_unit() * COLLECT_S;
        (self.dialect == Dialect::Dcgm).then_some(((now + offset) / COLLECT_S) as u64)
    }

    fn scrape_mode(&self, node: usize, now: f64) -> ScrapeMode {
        let is_rebooting = |(nodes, from, until): &(std::ops::Range<usize>, f64, f64)| {
            nodes.contains(&node) && *from <= now && now < *until
        };
        if self.rebooted.iter().any(is_rebooting) {
            return ScrapeMode::Silent;
        }
        let is_troubled = |&&(troubled, from, until): &&(usize, f64, f64)| {
            troubled == node && from <= now && now < until
        };
        let Some((_, from, _)) = self.troubled.iter().find(is_troubled) else {
            return ScrapeMode::Answers;
        };
        let number = ((now - from) / SPELL_S) as u64;
        let noise = self.noise.child_key(2).child_key(node as u64).child_key(number);
        // Half of the intervals are affected for only part of their length, so that single scrapes fail too.
        let is_whole = noise.child_key(0).random_unit() < 0.5;
        if !is_whole && (now - from) % SPELL_S > 3.0 {
            return ScrapeMode::Answers;
        }
        match noise.child_key(1).random_below(3) {
            0 => ScrapeMode::Silent,
            // Larger than the number of any collection.
            1 => ScrapeMode::Repeats((1 << 32) + number),
            _ => ScrapeMode::Answers,
        }
    }
}
