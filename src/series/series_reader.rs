//! Reader of a server: queries the series of a window in slices, and returns the batches of its pages.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gaunt_schema::{Batch, SanitizedText, ScrapeTarget, TargetId, UnixMs, text::TemplateCache};

use crate::{
    QueryError, SeriesOptions,
    query_answer::AnsweredMatrix,
    query_client::QueryClient,
    read_names::{QueriedNames, read_name_count},
    remote_read::ReadSelection,
    selector::{Matcher, check_matchers, match_hosts, parse_matchers, select_job, select_names},
    series_pages::SeriesPages,
    series_targets::SeriesTargets,
};

/// Names of one query at first.
const MAX_NAMES: usize = 16;

/// Instances of one query at first; a node has two or three.
const MAX_INSTANCES: usize = 4_000;

/// Prometheus' own series of each scrape.
const UP: &[&str] = &["up"];
const SCRAPE_DURATION: &[&str] = &["scrape_duration_seconds"];

/// The period that is assumed if no target was scraped twice: the most common one.
const USUAL_PERIOD: Duration = Duration::from_secs(15);

/// The limits of a period, as for scraped targets.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
const LONGEST_PERIOD: Duration = Duration::from_hours(1);

/// Reads pages back from one server.
#[derive(Debug)]
pub struct SeriesReader {
    source: SampleSource,
    server: SanitizedText,
    names: QueriedNames,
    /// The time for which series that change rarely are not asked for again; zero asks for them in each window.
    rare_refresh: Duration,
    /// Whether jobs that had no series that gaunt reads may have some since.
    lists_all: bool,
    /// Sizes of a query that the server and the limit of an answer allow, as far as known.
    max_names: usize,
    max_instances: usize,
    targets: SeriesTargets,
    cache: TemplateCache,
}

/// What was scraped in a window of time.
#[derive(Clone, Debug, Default)]
pub struct SeriesWindow {
    /// All targets at its end.
    pub targets: Vec<ScrapeTarget>,
    /// Its scrapes in order of time.
    pub batches: Vec<Batch>,
    /// What reading it has cost.
    pub load: WindowLoad,
}

/// The load of one window on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowLoad {
    /// Queries that were sent.
    pub queries: u64,
    /// Samples that were read, of series that belong to no page too.
    pub samples: u64,
    /// How long all queries took together.
    pub elapsed: Duration,
    /// How far the server's clock is ahead of ours, in milliseconds, if it states its time.
    pub skew_ms: Option<i64>,
}

impl SeriesReader {
    /// Checks the options and reads the credentials; nothing is sent yet.
    pub async fn open(options: &SeriesOptions) -> Result<Self, QueryError> {
        check_matchers(&options.selector)?;
        let client = QueryClient::open(options).await?;
        Ok(Self {
            server: SanitizedText::new(client.shown_url()),
            source: SampleSource {
                client,
                selector: options.selector.clone(),
                remote_matchers: None,
                max_samples: options.max_samples,
            },
            names: QueriedNames::default(),
            rare_refresh: Duration::ZERO,
            lists_all: true,
            max_names: MAX_NAMES,
            max_instances: MAX_INSTANCES,
            targets: SeriesTargets::default(),
            cache: TemplateCache::default(),
        })
    }

    /// Asks for series that change rarely only once in this time, and for those of a target as soon as its other series
    /// are not the same ones as before. Pages in between have their last values.
    #[must_use]
    pub fn with_rare_refresh(mut self, rare_refresh: Duration) -> Self {
        self.rare_refresh = rare_refresh;
        self
    }

    /// Reads by remote read where the server answers it with streamed chunks: it evaluates nothing for long windows then.
    #[must_use]
    pub fn with_remote_read(mut self) -> Self {
        self.source.remote_matchers = parse_matchers(&self.source.selector);
        self
    }

    /// Reads only what is scraped at the hosts of this job, if it is found in this time. Names are those that were
    /// discovered before.
    pub async fn narrow_to_job(
        &mut self,
        job: &str,
        from: UnixMs,
        until: UnixMs,
    ) -> Result<(), QueryError> {
        let selectors = select_job(job, &self.source.selector);
        let instances = self.source.client.list_values("instance", &selectors, from, until).await?;
        if !instances.is_empty() {
            let matcher = match_hosts(&instances);
            let own = std::mem::take(&mut self.source.selector);
            self.source.selector = match own.trim().trim_matches(',') {
                "" => matcher,
                own => format!("{own},{matcher}"),
            };
        }
        Ok(())
    }

    /// The address of the server, for messages.
    pub fn server(&self) -> &SanitizedText {
        &self.server
    }

    /// Finds the names that the server has in this time and gaunt reads.
    pub async fn discover_names(&mut self, from: UnixMs, until: UnixMs) -> Result<(), QueryError> {
        let selector = match self.source.selector.trim() {
            "" => None,
            matchers => Some(format!("{{{}}}", matchers.trim_matches(','))),
        };
        let client = &mut self.source.client;
        let names = client.list_values("__name__", selector.as_slice(), from, until).await?;
        let names = QueriedNames::of_server(&names);
        if names.is_empty() {
            return Err(self.no_series());
        }
        tracing::debug!(usual = names.usual.len(), rare = names.rare.len(), "names to query");
        (self.names, self.lists_all) = (names, true);
        Ok(())
    }

    /// Reads what was scraped after `from` and not after `until`.
    pub async fn read_window(
        &mut self,
        from: UnixMs,
        until: UnixMs,
    ) -> Result<SeriesWindow, QueryError> {
        if self.names.is_empty() {
            self.discover_names(from, until).await?;
        }
        let mut query = WindowQuery::new(from, until);
        let mut pages = SeriesPages::new(from, until);
        // What `up` shows was written with all other series of its scrape: nothing is torn.
        let targets = &mut self.targets;
        let add = |matrix: &AnsweredMatrix<'_>| pages.add_scrapes(matrix, targets);
        self.source.read(&mut query, UP, &[], add).await?;
        self.targets.forget_gone(until);
        if !pages.has_scrapes() && self.targets.is_empty() {
            let (url, selector) =
                (self.source.client.shown_url().to_owned(), self.shown_selector());
            return Err(QueryError::NoScrapes { url, selector });
        }
        if pages.has_scrapes() {
            self.query_pages(&mut query, &mut pages).await?;
        }
        let batches = pages.into_batches(&mut self.targets, &self.cache, &self.server);
        let targets = self.targets.announced_targets(&self.server);
        let load = WindowLoad { skew_ms: self.source.client.clock_skew_ms(), ..query.load };
        Ok(SeriesWindow { targets, batches, load })
    }

    /// Queries everything but `up`, slice by slice.
    async fn query_pages(
        &mut self,
        query: &mut WindowQuery,
        pages: &mut SeriesPages,
    ) -> Result<(), QueryError> {
        let targets = &self.targets;
        let add = |matrix: &AnsweredMatrix<'_>| pages.add_durations(matrix, targets);
        self.source.read(query, SCRAPE_DURATION, &[], add).await?;
        let instances = self.targets.list_instances(self.lists_all);
        let instances: Vec<&str> = instances.iter().map(|instance| &**instance).collect();
        let QueriedNames { usual, rare } = self.names.clone();
        let add = |matrix: &AnsweredMatrix<'_>, targets: &mut SeriesTargets| {
            pages.add_series(matrix, targets);
        };
        self.query_slices(query, &usual, &instances, true, add).await?;
        let before = query.until - self.rare_refresh;
        let listed = pages.list_rare_instances(&instances, &self.targets, before);
        if !listed.is_empty() {
            let is_all = listed.len() == instances.len();
            let add = |matrix: &AnsweredMatrix<'_>, targets: &mut SeriesTargets| {
                pages.add_rare_series(matrix, targets);
            };
            self.query_slices(query, &rare, &listed, is_all, add).await?;
        }
        self.lists_all = false;
        Ok(())
    }

    /// Queries the series of these names and instances, split to the sizes that the server allows.
    async fn query_slices(
        &mut self,
        query: &mut WindowQuery,
        names: &[&'static str],
        instances: &[&str],
        is_all: bool,
        mut add: impl FnMut(&AnsweredMatrix<'_>, &mut SeriesTargets),
    ) -> Result<(), QueryError> {
        let mut slices = vec![QuerySlice { names, instances }];
        while let Some(slice) = slices.pop() {
            if slice.names.is_empty() {
                continue;
            }
            if let Some(parts) = slice.split(self.max_names, self.max_instances) {
                slices.extend(parts);
                continue;
            }
            // All instances need no list.
            let needs_no_list = is_all && slice.instances.len() == instances.len();
            let listed = if needs_no_list { &[] } else { slice.instances };
            let targets = &mut self.targets;
            let add = |matrix: &AnsweredMatrix<'_>| add(matrix, targets);
            match self.source.read(query, slice.names, listed, add).await {
                Ok(()) => {}
                Err(error) if error.is_too_large() => {
                    // One name of all instances is cheaper than all names of one.
                    if slice.names.len() > 1 {
                        self.max_names = slice.names.len() / 2;
                    } else if slice.instances.len() > 1 {
                        self.max_instances = slice.instances.len() / 2;
                    } else {
                        return Err(error);
                    }
                    tracing::debug!(%error, "the query is split");
                    slices.push(slice);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The error for a server without series that gaunt reads.
    pub fn no_series(&self) -> QueryError {
        let (url, selector) = (self.source.client.shown_url().to_owned(), self.shown_selector());
        QueryError::NoSeries { url, selector, names: read_name_count() }
    }

    /// The matchers, as the end of a sentence.
    fn shown_selector(&self) -> String {
        match self.source.selector.trim() {
            "" => String::new(),
            matchers => format!(" with {matchers}"),
        }
    }
}

/// Where raw samples are read, and how.
#[derive(Debug)]
struct SampleSource {
    client: QueryClient,
    selector: String,
    /// The operator's matchers one by one, while the server may answer remote read.
    remote_matchers: Option<Vec<Matcher>>,
    max_samples: u64,
}

impl SampleSource {
    /// Reads the samples of these names and instances: by remote read as long as the server answers it. It adds its external
    /// labels to all series there, also to those that name the targets.
    async fn read(
        &mut self,
        query: &mut WindowQuery,
        names: &[&str],
        instances: &[&str],
        mut add: impl FnMut(&AnsweredMatrix<'_>),
    ) -> Result<(), QueryError> {
        if let Some(matchers) = &self.remote_matchers {
            let series = (names, instances, matchers.as_slice());
            match query.read_remotely(&mut self.client, series, self.max_samples, &mut add).await {
                Ok(true) => return Ok(()),
                Ok(false) => tracing::debug!("no remote read there"),
                Err(error @ QueryError::OverBudget { .. }) => return Err(error),
                // Series that were added are left out when they come a second time.
                Err(error) => tracing::warn!(%error, "remote read failed; queries take its place"),
            }
            self.remote_matchers = None;
        }
        let selector = select_names(names, instances, &self.selector);
        query.run(&mut self.client, &selector, self.max_samples, add).await
    }
}

/// A part of the series of a window.
#[derive(Clone, Copy)]
struct QuerySlice<'a> {
    names: &'a [&'static str],
    instances: &'a [&'a str],
}

impl QuerySlice<'_> {
    /// Two parts, unless it is within the limits of a query.
    fn split(self, max_names: usize, max_instances: usize) -> Option<[Self; 2]> {
        let Self { names, instances } = self;
        if instances.len() > max_instances.max(1) {
            let (left, right) = instances.split_at(instances.len() / 2);
            return Some([Self { names, instances: right }, Self { names, instances: left }]);
        }
        if names.len() > max_names.max(1) {
            let (left, right) = names.split_at(names.len() / 2);
            return Some([Self { names: right, instances }, Self { names: left, instances }]);
        }
        None
    }
}

/// The queries of one window.
pub(crate) struct WindowQuery {
    until: UnixMs,
    range_ms: u128,
    load: WindowLoad,
}

impl WindowQuery {
    /// No query yet, for what is after `from` and not after `until`.
    pub(crate) fn new(from: UnixMs, until: UnixMs) -> Self {
        let range_ms = until.duration_since(from).as_millis();
        Self { until, range_ms, load: WindowLoad::default() }
    }

    /// What the queries have cost so far.
    pub(crate) fn load(&self) -> WindowLoad {
        self.load
    }

    /// Reads the raw samples of these names, instances and matchers by remote read; false if the server does not answer it.
    async fn read_remotely(
        &mut self,
        client: &mut QueryClient,
        (names, instances, matchers): (&[&str], &[&str], &[Matcher]),
        max_samples: u64,
        add: impl FnMut(&AnsweredMatrix<'_>),
    ) -> Result<bool, QueryError> {
        let begun = Instant::now();
        let from = self.until - Duration::from_millis(self.range_ms as u64);
        let selection = ReadSelection { names, instances, matchers, from, until: self.until };
        self.load.queries += 1;
        let budget = max_samples.saturating_sub(self.load.samples);
        let samples = match client.read_remotely(&selection, budget, add).await {
            Err(QueryError::OverBudget { .. }) => return Err(client.over_budget(max_samples)),
            read => read?,
        };
        self.load.elapsed += begun.elapsed();
        self.load.samples += samples.unwrap_or_default();
        self.check_budget(client, max_samples)?;
        Ok(samples.is_some())
    }

    fn check_budget(&self, client: &QueryClient, max_samples: u64) -> Result<(), QueryError> {
        if self.load.samples > max_samples { Err(client.over_budget(max_samples)) } else { Ok(()) }
    }

    /// Runs a query for the raw samples of a selector, twice if another instance of the server may answer it.
    pub(crate) async fn run(
        &mut self,
        client: &mut QueryClient,
        selector: &str,
        max_samples: u64,
        mut add: impl FnMut(&AnsweredMatrix<'_>),
    ) -> Result<(), QueryError> {
        let (query, begun) = (format!("{selector}[{}ms]", self.range_ms.max(1)), Instant::now());
        let mut retried = false;
        let samples = loop {
            self.load.queries += 1;
            let result = client.query_samples(&query, self.until, |matrix| {
                add(&matrix);
                matrix.result.iter().map(|series| series.values.len() as u64).sum::<u64>()
            });
            match result.await {
                Err(error) if !retried && error.is_worth_a_retry() => retried = true,
                result => break result?,
            }
        };
        self.load.elapsed += begun.elapsed();
        self.load.samples += samples;
        self.check_budget(client, max_samples)
    }
}

impl SeriesWindow {
    /// The time between two scrapes: the median of the slowest target.
    pub fn scrape_period(&self) -> Duration {
        let mut gaps: BTreeMap<TargetId, (UnixMs, Vec<Duration>)> = BTreeMap::new();
        for batch in &self.batches {
            let (last, gaps) = gaps.entry(batch.target).or_insert((batch.at, Vec::new()));
            if batch.at > *last {
                gaps.push(batch.at.duration_since(*last));
                *last = batch.at;
            }
        }
        let median = |mut gaps: Vec<Duration>| {
            gaps.sort_unstable();
            gaps.get(gaps.len() / 2).copied()
        };
        let slowest = gaps.into_values().filter_map(|(_, gaps)| median(gaps)).max();
        slowest.unwrap_or(USUAL_PERIOD).clamp(SHORTEST_PERIOD, LONGEST_PERIOD)
    }
}
