//! Page assembly: received samples are grouped by target and instant into the pages that were scraped.
//!
//! A sender splits a scrape into several requests. A page is whole when every series of the last whole one is there, or
//! some seconds after its first sample.

use std::{borrow::Cow, hash::BuildHasher as _, time::Duration};

use foldhash::fast::RandomState;
use gaunt_schema::{
    Batch, SanitizedText, ScrapeFailure, ScrapeTarget, TargetId, UnixMs,
    text::{PageLimits, TemplateCache},
};
use gaunt_store::{ReceivedRequest, ReceivedSeries};
use hashbrown::HashMap;

use crate::{
    known_series::{KnownSeries, SeriesKey},
    query_answer::AnsweredLabels,
    read_names::is_read_name,
    received_page::{PageSample, TargetAssembly},
    series_targets::SeriesTargets,
};

/// Samples that are older are not of use: a sender that catches up sends hours.
const OLDEST: Duration = Duration::from_mins(15);

/// How far ahead of our clock an instant may be.
const MAX_AHEAD: Duration = Duration::from_mins(1);

/// The most series of all targets: 100,000 GPUs with 40 each, and their hosts.
const MAX_SERIES: usize = 8_000_000;

/// The most pages that wait for their instants.
const MAX_READY: usize = 200_000;

/// What became of received samples, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedSamples {
    /// On a page.
    pub used: u64,
    /// Of metrics that no exporter format has.
    pub unknown: u64,
    /// Of targets without `up`.
    pub without_target: u64,
    /// Of pages that were complete before: duplicates, and samples out of order.
    pub late: u64,
    /// More than a quarter of an hour old.
    pub old: u64,
    /// More than a minute ahead of our clock.
    pub future: u64,
    /// Beyond the limits of series and targets.
    pub over_limit: u64,
}

/// What a series is.
#[derive(Clone, Copy, Debug)]
enum SeriesSlot {
    Up(u32),
    Duration(u32),
    Line(u32, u32),
}

/// The pages of all targets.
#[derive(Debug)]
pub(crate) struct PageAssembly {
    targets: SeriesTargets,
    cache: TemplateCache,
    assemblies: HashMap<u32, TargetAssembly<SeriesKey>, RandomState>,
    series: KnownSeries<SeriesSlot>,
    hashers: (RandomState, RandomState),
    /// Whole pages that wait for their instants.
    ready: std::collections::BTreeMap<(UnixMs, TargetId), Batch>,
    /// Targets with new samples.
    touched: Vec<u32>,
    samples: ReceivedSamples,
    /// The newest instant at which a target was scraped.
    newest: UnixMs,
    /// The name of the sender in failures.
    sender: SanitizedText,
}

impl PageAssembly {
    pub(crate) fn new(sender: SanitizedText) -> Self {
        Self {
            targets: SeriesTargets::default(),
            cache: TemplateCache::default(),
            assemblies: HashMap::default(),
            series: KnownSeries::default(),
            hashers: (RandomState::default(), RandomState::default()),
            ready: std::collections::BTreeMap::new(),
            touched: Vec::new(),
            samples: ReceivedSamples::default(),
            newest: UnixMs(0),
            sender,
        }
    }

    /// What became of all samples.
    pub(crate) fn samples(&self) -> ReceivedSamples {
        self.samples
    }

    /// Pages that are not whole or wait for their instants.
    pub(crate) fn waiting_pages(&self) -> usize {
        let open: usize = self.assemblies.values().map(TargetAssembly::open_pages).sum();
        self.ready.len() + open
    }

    /// Adds the samples of a request that arrived at `now`.
    pub(crate) fn add_request(&mut self, request: &ReceivedRequest<'_>, now: UnixMs) {
        // Series of one name follow each other.
        let mut checked: (&[u8], bool) = (b"", false);
        for series in &request.series {
            let count = request.samples_of(series).len() as u64;
            if checked.0 != series.name {
                checked = (series.name, is_received_name(series.name));
            }
            if !checked.1 {
                self.samples.unknown += count;
                continue;
            }
            let key = self.hash_series(series);
            let slot = self.series.find(key).or_else(|| {
                let newest = request.samples_of(series).map(|(at, _)| at).max().unwrap_or(now);
                self.add_series(series, key, newest.min(now), count)
            });
            let Some(slot) = slot else { continue };
            for (at, value) in request.samples_of(series) {
                self.add_sample(slot, at, value, now);
            }
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        for id in std::mem::take(&mut self.touched) {
            self.close_pages(id, now);
        }
    }

    fn hash_series(&self, series: &ReceivedSeries<'_>) -> SeriesKey {
        let (first, second) = &self.hashers;
        (first.hash_one(series.label_bytes), second.hash_one(series.label_bytes))
    }

    /// Finds the target and the line of a new series; none if it has none, which is counted.
    fn add_series(
        &mut self,
        series: &ReceivedSeries<'_>,
        key: SeriesKey,
        newest: UnixMs,
        count: u64,
    ) -> Option<SeriesSlot> {
        if self.series.len() >= MAX_SERIES {
            self.samples.over_limit += count;
            return None;
        }
        let labels = series.labels().map(|(name, value)| (name.into(), value.into()));
        let labels = AnsweredLabels(labels.collect::<Vec<(Cow<'_, str>, Cow<'_, str>)>>());
        let slot = match series.name {
            b"up" => {
                let Some((id, _)) = self.targets.ensure_target(&labels, newest) else {
                    self.samples.over_limit += count;
                    return None;
                };
                SeriesSlot::Up(id)
            }
            name => {
                let id = self.targets.find_target(&labels);
                let target = id.and_then(|id| self.targets.target(id).zip(Some(id)));
                let Some((target, id)) = target else {
                    self.samples.without_target += count;
                    return None;
                };
                if name == b"scrape_duration_seconds" {
                    SeriesSlot::Duration(id)
                } else if let Some(text) = target.page_series(&labels) {
                    self.targets.mark_read(id);
                    let assembly = self.assemblies.entry(id).or_default();
                    SeriesSlot::Line(id, assembly.add_line(text, key))
                } else {
                    self.samples.unknown += count;
                    return None;
                }
            }
        };
        if let SeriesSlot::Up(id) | SeriesSlot::Duration(id) = slot {
            self.assemblies.entry(id).or_default().add_key(key);
        }
        self.series.insert(key, slot);
        Some(slot)
    }

    fn add_sample(&mut self, slot: SeriesSlot, at: UnixMs, value: Option<f64>, now: UnixMs) {
        let (SeriesSlot::Up(id) | SeriesSlot::Duration(id) | SeriesSlot::Line(id, _)) = slot;
        let Some(assembly) = self.assemblies.get_mut(&id) else { return };
        let Some(value) = value else {
            // The series has ended: the next page is whole without it.
            if let SeriesSlot::Line(_, line) = slot {
                assembly.end_line(line);
            }
            return;
        };
        if now.duration_since(at) > OLDEST {
            self.samples.old += 1;
            return;
        }
        if at.duration_since(now) > MAX_AHEAD {
            self.samples.future += 1;
            return;
        }
        let sample = match slot {
            SeriesSlot::Up(_) if value.is_nan() => return,
            SeriesSlot::Up(_) => {
                self.newest = self.newest.max(at.min(now));
                self.targets.mark_scraped(id, at.min(now));
                PageSample::Up(value > 0.0)
            }
            SeriesSlot::Duration(_) => PageSample::Duration(value),
            SeriesSlot::Line(_, line) => PageSample::Value(line, value),
        };
        if assembly.add_sample(sample, at, now) {
            self.samples.used += 1;
            if self.touched.last() != Some(&id) {
                self.touched.push(id);
            }
        } else {
            self.samples.late += 1;
        }
    }

    /// Decodes the pages of a target that are whole or have waited long enough.
    fn close_pages(&mut self, id: u32, now: UnixMs) {
        let (Some(assembly), Some(target)) =
            (self.assemblies.get_mut(&id), self.targets.target_mut(id))
        else {
            return;
        };
        while let Some(page) = assembly.close_page(now) {
            target.delivered = page.at;
            let outcome = if page.is_up {
                self.cache.decode_page(
                    &mut target.template,
                    page.text.as_bytes(),
                    &PageLimits::default(),
                )
            } else {
                Err(ScrapeFailure::ReportedDown(self.sender.clone()))
            };
            let duration_ms = page.seconds.unwrap_or_default() * 1e3;
            let batch = Batch { target: TargetId(id), at: page.at, duration_ms, outcome };
            if self.ready.len() >= MAX_READY {
                self.ready.pop_first();
            }
            self.ready.insert((page.at, TargetId(id)), batch);
        }
        for key in assembly.drop_unused_lines(target.delivered) {
            self.series.remove(key);
        }
    }

    /// Closes pages that have waited long enough, and forgets targets that are gone.
    pub(crate) fn run_housekeeping(&mut self, now: UnixMs) {
        let mut ids: Vec<u32> = self
            .assemblies
            .iter()
            .filter(|(_, it)| it.open_pages() > 0)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        for id in ids {
            self.close_pages(id, now);
        }
        // While nothing arrives no target is gone.
        self.targets.forget_gone(self.newest);
        let targets = &self.targets;
        let gone: Vec<u32> =
            self.assemblies.keys().filter(|id| targets.target(**id).is_none()).copied().collect();
        for key in gone
            .iter()
            .filter_map(|id| self.assemblies.remove(id))
            .flat_map(TargetAssembly::into_keys)
        {
            self.series.remove(key);
        }
    }

    /// The pages of announced targets up to this instant, in order of time.
    pub(crate) fn take_due(&mut self, until: UnixMs) -> Vec<Batch> {
        let later = self.ready.split_off(&(until + Duration::from_millis(1), TargetId(0)));
        let due = std::mem::replace(&mut self.ready, later);
        due.into_values().filter(|batch| self.targets.is_read(batch.target.0)).collect()
    }

    /// Changes with the announced targets.
    pub(crate) fn target_revision(&self) -> u64 {
        self.targets.revision()
    }

    /// The newest instant at which a target was scraped; zero before the first.
    pub(crate) fn newest(&self) -> UnixMs {
        self.newest
    }

    /// All targets.
    pub(crate) fn announced_targets(&self) -> Vec<ScrapeTarget> {
        self.targets.announced_targets(&self.sender)
    }
}

fn is_received_name(name: &[u8]) -> bool {
    matches!(name, b"up" | b"scrape_duration_seconds")
        || str::from_utf8(name).is_ok_and(is_read_name)
}

#[cfg(test)]
mod tests;
