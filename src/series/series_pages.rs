//! Series to pages: samples of one window, grouped by target and instant into the pages that the exporters served.

use std::{hash::BuildHasher as _, time::Duration};

use foldhash::fast::{FixedState, RandomState};
use gaunt_schema::{
    Batch, SanitizedText, ScrapeFailure, TargetId, UnixMs,
    text::{PageLimits, TemplateCache},
};
use hashbrown::{HashMap, HashSet};

use crate::{
    query_answer::{AnsweredMatrix, AnsweredSeries},
    series_targets::{RareSeries, SeriesTargets},
};

/// How much older than its scrape a sample may be: exporters that state instants of their own collect once a minute.
const OLDEST_IN_SCRAPE: Duration = Duration::from_mins(5);

/// The most scrapes of one target in a window: a window of an hour at one per second.
const MAX_SCRAPES: usize = 4_096;

/// The hash of a series, the same in each window.
const SET_HASH: FixedState = FixedState::with_seed(0);

/// The series and scrapes of one window.
#[derive(Debug)]
pub(crate) struct SeriesPages {
    /// The instants of the window are later than the first, and not later than the second.
    window: (UnixMs, UnixMs),
    targets: HashMap<u32, TargetPages, RandomState>,
    /// The texts of all values.
    values: String,
    /// Series of targets without `up` in this window.
    unassigned: u64,
    /// Series with a name or a value that no exporter can have served.
    invalid: u64,
}

/// The scrapes of one target, and what they read.
#[derive(Debug)]
struct TargetPages {
    /// Samples up to here belong to pages that were delivered before.
    since: UnixMs,
    scrapes: Vec<SeriesScrape>,
    lines: Vec<SeriesLine>,
    /// The lines of series that change rarely, and whether they were asked for in this window.
    rare_lines: Vec<SeriesLine>,
    is_asked_for_rare: bool,
}

/// One scrape of a target by the server.
#[derive(Clone, Copy, Debug)]
struct SeriesScrape {
    at: UnixMs,
    is_up: bool,
    seconds: Option<f64>,
    /// The sum of the hashes of its series that change often: another set of series has another sum.
    series: u64,
}

/// A series as on the page, with its values by scrape.
#[derive(Debug)]
struct SeriesLine {
    text: String,
    values: Vec<ScrapedValue>,
}

/// The value of a series at a scrape, as a position in the texts of all values.
#[derive(Clone, Copy, Debug)]
struct ScrapedValue {
    scrape: u32,
    start: usize,
    len: usize,
}

impl SeriesPages {
    /// No series of a window.
    pub(crate) fn new(from: UnixMs, until: UnixMs) -> Self {
        Self {
            window: (from, until),
            targets: HashMap::default(),
            values: String::new(),
            unassigned: 0,
            invalid: 0,
        }
    }

    /// Adds series of `up`: they name the targets and the instants of their scrapes. They come before all others.
    pub(crate) fn add_scrapes(&mut self, matrix: &AnsweredMatrix<'_>, targets: &mut SeriesTargets) {
        for series in &matrix.result {
            let Some(newest) = series.values.last().map(|(at, _)| UnixMs::from_seconds(*at)) else {
                continue;
            };
            let (from, until) = self.window;
            let seen = newest.clamp(from, until);
            let Some((id, delivered)) = targets.ensure_target(&series.metric, seen) else {
                self.unassigned += 1;
                continue;
            };
            let since = delivered.max(from);
            let empty = || TargetPages::with_start(since);
            let scrapes = &mut self.targets.entry(id).or_insert_with(empty).scrapes;
            for (at, value) in &series.values {
                let at = UnixMs::from_seconds(*at);
                // Stale markers are no numbers.
                let is_up = match value.0.parse::<f64>() {
                    Ok(value) if !value.is_nan() => value > 0.0,
                    _ => continue,
                };
                if at > since && at <= until && scrapes.len() < MAX_SCRAPES {
                    scrapes.push(SeriesScrape { at, is_up, seconds: None, series: 0 });
                }
            }
            scrapes.sort_by_key(|scrape| scrape.at);
            scrapes.dedup_by_key(|scrape| scrape.at);
        }
    }

    /// Whether any target was scraped in the window.
    pub(crate) fn has_scrapes(&self) -> bool {
        self.targets.values().any(|pages| !pages.scrapes.is_empty())
    }

    /// Adds series of `scrape_duration_seconds`.
    pub(crate) fn add_durations(&mut self, matrix: &AnsweredMatrix<'_>, targets: &SeriesTargets) {
        for series in &matrix.result {
            let id = targets.find_target(&series.metric);
            let Some(pages) = id.and_then(|id| self.targets.get_mut(&id)) else { continue };
            for (at, value) in &series.values {
                let at = UnixMs::from_seconds(*at);
                let index = pages.scrapes.binary_search_by_key(&at, |scrape| scrape.at);
                if let Some(scrape) = index.ok().and_then(|index| pages.scrapes.get_mut(index)) {
                    scrape.seconds = value.0.parse().ok().filter(|seconds: &f64| *seconds >= 0.0);
                }
            }
        }
    }

    /// Adds series of exporters that change often.
    pub(crate) fn add_series(&mut self, matrix: &AnsweredMatrix<'_>, targets: &mut SeriesTargets) {
        self.add_lines(matrix, targets, false);
    }

    /// Adds series of exporters that change rarely, of targets that [`Self::list_rare_instances`] named.
    pub(crate) fn add_rare_series(
        &mut self,
        matrix: &AnsweredMatrix<'_>,
        targets: &mut SeriesTargets,
    ) {
        self.add_lines(matrix, targets, true);
    }

    fn add_lines(
        &mut self,
        matrix: &AnsweredMatrix<'_>,
        targets: &mut SeriesTargets,
        changes_rarely: bool,
    ) {
        for series in &matrix.result {
            let Some(id) = targets.find_target(&series.metric) else {
                self.unassigned += 1;
                continue;
            };
            targets.mark_read(id);
            let (Some(pages), Some(target)) = (self.targets.get_mut(&id), targets.target(id))
            else {
                self.unassigned += 1;
                continue;
            };
            let Some(text) = target.page_series(&series.metric) else {
                self.invalid += 1;
                continue;
            };
            let values = pages.place_values(series, &mut self.values);
            if values.is_empty() {
                continue;
            }
            if changes_rarely {
                pages.rare_lines.push(SeriesLine { text, values });
                continue;
            }
            let hash = SET_HASH.hash_one(&text);
            for value in &values {
                if let Some(scrape) = pages.scrapes.get_mut(value.scrape as usize) {
                    scrape.series = scrape.series.wrapping_add(hash);
                }
            }
            pages.lines.push(SeriesLine { text, values });
        }
    }

    /// The instances, out of these, of targets whose series that change rarely are to be asked for in this window: not asked
    /// for since `before`, or beside another set of series. Each once, sorted.
    pub(crate) fn list_rare_instances<'a>(
        &mut self,
        instances: &[&'a str],
        targets: &SeriesTargets,
        before: UnixMs,
    ) -> Vec<&'a str> {
        let mut listed: HashSet<&str, RandomState> = HashSet::default();
        for (id, pages) in &self.targets {
            let rare = targets.target(*id).and_then(|target| target.rare.as_ref());
            let is_known = rare.is_some_and(|rare| {
                let mut up = pages.scrapes.iter().filter(|scrape| scrape.is_up);
                rare.asked > before && up.all(|scrape| scrape.series == rare.beside)
            });
            if !is_known && pages.scrapes.iter().any(|scrape| scrape.is_up) {
                listed.insert(targets.instance(*id));
            }
        }
        let mut listed: Vec<&str> =
            instances.iter().copied().filter(|instance| listed.contains(instance)).collect();
        if listed.len() * 2 > instances.len() {
            // A query without a list of instances is cheaper.
            listed = instances.to_vec();
        }
        let asked: HashSet<&str, RandomState> = listed.iter().copied().collect();
        for (id, pages) in &mut self.targets {
            pages.is_asked_for_rare = asked.contains(targets.instance(*id));
        }
        listed
    }

    /// Decodes the pages: one batch for each scrape of an announced target, in order of time.
    pub(crate) fn into_batches(
        self,
        targets: &mut SeriesTargets,
        cache: &TemplateCache,
        server: &SanitizedText,
    ) -> Vec<Batch> {
        if self.unassigned + self.invalid > 0 {
            let (unassigned, invalid) = (self.unassigned, self.invalid);
            tracing::debug!(unassigned, invalid, "series that belong to no page");
        }
        let limits = PageLimits::default();
        let (mut values, mut batches) = (self.values, Vec::new());
        let until = self.window.1;
        let mut ids: Vec<u32> = self.targets.keys().copied().collect();
        ids.retain(|id| targets.is_read(*id));
        ids.sort_unstable();
        let mut pages_by_target = self.targets;
        for id in ids {
            let (Some(mut pages), Some(target)) =
                (pages_by_target.remove(&id), targets.target_mut(id))
            else {
                continue;
            };
            pages.join_rare_lines(&mut target.rare, &mut values, until);
            // The order of a page does not depend on that of the answers, so that the next page has the same.
            pages.lines.sort_by(|left, right| left.text.cmp(&right.text));
            if let Some(last) = pages.scrapes.last() {
                target.delivered = last.at;
            }
            for (scrape, body) in pages.render_pages(&values) {
                let outcome = if scrape.is_up {
                    cache.decode_page(&mut target.template, body.as_bytes(), &limits)
                } else {
                    Err(ScrapeFailure::ReportedDown(server.clone()))
                };
                batches.push(Batch {
                    target: TargetId(id),
                    at: scrape.at,
                    duration_ms: scrape.seconds.unwrap_or_default() * 1e3,
                    outcome,
                });
            }
        }
        batches.sort_by_key(|batch| (batch.at, batch.target));
        batches
    }
}

impl TargetPages {
    fn with_start(since: UnixMs) -> Self {
        Self {
            since,
            scrapes: Vec::new(),
            lines: Vec::new(),
            rare_lines: Vec::new(),
            is_asked_for_rare: false,
        }
    }

    /// Joins the series that change rarely to the others: those of this window, which are kept, or else the kept ones with
    /// their last value. Every page has both.
    fn join_rare_lines(
        &mut self,
        kept: &mut Option<RareSeries>,
        texts: &mut String,
        until: UnixMs,
    ) {
        let up = || self.scrapes.iter().enumerate().filter(|(_, scrape)| scrape.is_up);
        if self.is_asked_for_rare {
            let Some((newest, scrape)) = up().next_back() else { return };
            let of_newest = |line: &SeriesLine| {
                let value = line.values.last().filter(|value| value.scrape as usize == newest)?;
                let text = texts.get(value.start..value.start + value.len)?;
                Some((line.text.as_str().into(), text.into()))
            };
            let lines = self.rare_lines.iter().filter_map(of_newest).collect();
            *kept = Some(RareSeries { asked: until, beside: scrape.series, lines });
            self.lines.append(&mut self.rare_lines);
        } else if let Some(kept) = kept {
            for (text, value) in &kept.lines {
                let (start, len) = (texts.len(), value.len());
                texts.push_str(value);
                let values =
                    up().map(|(scrape, _)| ScrapedValue { scrape: scrape as u32, start, len });
                let values = values.collect();
                self.lines.push(SeriesLine { text: text.to_string(), values });
            }
        }
    }

    /// The values of a series by scrape: of equal instants the first, and of several in one scrape the last.
    fn place_values(&self, series: &AnsweredSeries<'_>, texts: &mut String) -> Vec<ScrapedValue> {
        let mut values: Vec<ScrapedValue> = Vec::with_capacity(series.values.len());
        let mut last = self.since;
        for (at, value) in &series.values {
            let at = UnixMs::from_seconds(*at);
            // A series that has ended is marked by a value that is no number.
            let is_number = value.0.parse::<f64>().is_ok_and(|value| !value.is_nan());
            if !is_number || at <= last {
                continue;
            }
            last = at;
            let scrape = self.scrapes.partition_point(|scrape| scrape.at < at);
            let is_of_scrape = |it: &SeriesScrape| it.at.duration_since(at) <= OLDEST_IN_SCRAPE;
            if !self.scrapes.get(scrape).is_some_and(is_of_scrape) {
                continue;
            }
            let scrape = scrape as u32;
            let placed = ScrapedValue { scrape, start: texts.len(), len: value.0.len() };
            texts.push_str(&value.0);
            match values.last_mut().filter(|last| last.scrape == scrape) {
                Some(last) => *last = placed,
                None => values.push(placed),
            }
        }
        values
    }

    /// The text of each page, by scrape. Of equal series, such as those of a pair of servers, the first counts.
    fn render_pages(&self, texts: &str) -> Vec<(SeriesScrape, String)> {
        let mut pages: Vec<(SeriesScrape, String)> =
            self.scrapes.iter().map(|scrape| (*scrape, String::new())).collect();
        let mut written: Vec<Option<&str>> = vec![None; pages.len()];
        for line in &self.lines {
            for value in &line.values {
                let index = value.scrape as usize;
                let text = texts.get(value.start..value.start + value.len);
                let (Some((_, page)), Some(text)) = (pages.get_mut(index), text) else { continue };
                if written[index] == Some(&line.text) {
                    continue;
                }
                written[index] = Some(&line.text);
                page.push_str(&line.text);
                page.push_str(text);
                page.push('\n');
            }
        }
        pages
    }
}
