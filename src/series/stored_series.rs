//! Stored series: what an aggregator wrote to its store, read back: verdicts as samples, metrics with history as pages.

use std::{borrow::Cow, time::Duration};

use gaunt_schema::{MetricId, SanitizedText, UnixMs, text::TemplateCache};

use crate::{
    QueryError, SeriesOptions, SeriesWindow,
    query_answer::{AnswerText, AnsweredLabels, AnsweredMatrix, AnsweredSeries},
    query_client::QueryClient,
    selector::{check_matchers, match_values, select_names},
    series_pages::SeriesPages,
    series_reader::{WindowLoad, WindowQuery},
    series_targets::SeriesTargets,
};

/// The value of the label `job` of everything that an aggregator writes.
const JOB: &str = "gaunt";

/// The verdict that every step has.
const STEP_VERDICT: &str = "gaunt_nodes";

/// How far before an instant its step is looked for: more than twice the longest time between two steps.
const STEP_WITHIN: Duration = Duration::from_mins(5);

/// The verdict that every node has.
const NODE_VERDICT: &str = "gaunt_node_lost_gpus";

/// A series over time, out of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredHistory {
    /// The mean of each step, oldest first; of a counter its rate per second. None where the store has nothing.
    pub mean: Vec<Option<f32>>,
    /// The lowest sample of each step; empty for a counter.
    pub low: Vec<Option<f32>>,
    /// The highest sample of each step; empty for a counter.
    pub high: Vec<Option<f32>>,
}

/// Steps of a history.
#[derive(Clone, Copy, Debug)]
pub struct StoredSteps {
    /// The end of the last one.
    pub until: UnixMs,
    /// The length of each.
    pub step: Duration,
    /// Their number.
    pub count: usize,
}

/// The step of a range with one instant.
const ONE_STEP: Duration = Duration::from_secs(1);

/// The least range of a rate: two samples a minute apart, of which one may be missing.
const RATE_RANGE: Duration = Duration::from_mins(3);

/// A sample of a stored step.
#[derive(Debug)]
pub struct StoredSample<'a> {
    /// The name of the metric.
    pub name: &'a str,
    /// The value; a number.
    pub value: f64,
    labels: &'a AnsweredLabels<'a>,
}

impl StoredSample<'_> {
    /// The value of a label; empty if the series has none.
    pub fn label(&self, name: &str) -> &str {
        self.labels.find_label(name)
    }
}

/// Reads one cluster's series from a store.
#[derive(Debug)]
pub struct StoredSeries {
    client: QueryClient,
    server: SanitizedText,
    /// Matchers of the cluster.
    matchers: String,
    /// The label that tells the writers of a pair apart, if there is one.
    replica_label: Option<String>,
    max_samples: u64,
}

impl StoredSeries {
    /// Checks the options and reads the credentials; nothing is sent yet.
    pub async fn open(
        options: &SeriesOptions,
        cluster: &str,
        replica_label: Option<String>,
    ) -> Result<Self, QueryError> {
        check_matchers(&options.selector)?;
        let client = QueryClient::open(options).await?;
        let cluster = match_values("cluster", &[cluster]);
        Ok(Self {
            server: SanitizedText::new(client.shown_url()),
            client,
            matchers: format!("{cluster},job=\"{JOB}\",{}", options.selector),
            replica_label,
            max_samples: options.max_samples,
        })
    }

    /// The address of the server, for messages.
    pub fn server(&self) -> &SanitizedText {
        &self.server
    }

    /// The samples of a verdict of the whole cluster after `from` and not after `until`, in order of time. Of a pair of
    /// writers one sample an instant remains.
    pub async fn read_verdict(
        &mut self,
        name: &str,
        from: UnixMs,
        until: UnixMs,
    ) -> Result<Vec<(UnixMs, f64)>, QueryError> {
        let mut samples = Vec::new();
        let add = |matrix: &AnsweredMatrix<'_>| {
            for series in &matrix.result {
                let values = series.values.iter().filter_map(|(at, value)| {
                    let value: f64 = value.0.parse().ok()?;
                    let at = UnixMs::from_seconds(*at);
                    (at > from && at <= until && value.is_finite()).then_some((at, value))
                });
                samples.extend(values);
            }
        };
        let selector = select_names(&[name], &[], &self.matchers);
        let mut query = WindowQuery::new(from, until);
        query.run(&mut self.client, &selector, self.max_samples, add).await?;
        samples.sort_by_key(|(at, _)| *at);
        samples.dedup_by_key(|(at, _)| *at);
        Ok(samples)
    }

    /// The instant of the newest step of verdicts that is not after `at`; none if the store has none of that time.
    pub async fn find_step(&mut self, at: UnixMs) -> Result<Option<UnixMs>, QueryError> {
        let steps = self.read_verdict(STEP_VERDICT, at - STEP_WITHIN, at).await?;
        Ok(steps.last().map(|(at, _)| *at))
    }

    /// Reads the verdicts of a step, and calls `consume` with each sample: all were written together. Names that are too
    /// many for one query are queried in parts. Both of a pair of writers may have a sample of a series.
    pub async fn read_step(
        &mut self,
        names: &[&str],
        step: UnixMs,
        mut consume: impl FnMut(&StoredSample<'_>),
    ) -> Result<WindowLoad, QueryError> {
        let mut query = WindowQuery::new(step - Duration::from_millis(1), step);
        let mut parts = vec![names];
        while let Some(part) = parts.pop() {
            let selector = select_names(part, &[], &self.matchers);
            let add = |matrix: &AnsweredMatrix<'_>| {
                for series in &matrix.result {
                    let of_step = |(at, _): &&(f64, _)| UnixMs::from_seconds(*at) == step;
                    let value = series.values.iter().rev().find(of_step);
                    let value = value.and_then(|(_, value)| value.0.parse::<f64>().ok());
                    let Some(value) = value.filter(|value| value.is_finite()) else { continue };
                    let labels = &series.metric;
                    consume(&StoredSample { name: labels.metric_name(), value, labels });
                }
            };
            match query.run(&mut self.client, &selector, self.max_samples, add).await {
                Err(error) if error.is_too_large() && part.len() > 1 => {
                    let (left, right) = part.split_at(part.len() / 2);
                    parts.extend([right, left]);
                }
                result => result?,
            }
        }
        Ok(query.load())
    }

    /// A series with these labels over time; each step is summed up by the store.
    pub async fn read_history(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        is_counter: bool,
        steps: StoredSteps,
    ) -> Result<StoredHistory, QueryError> {
        let own = labels.iter().map(|(label, value)| match_values(label, &[value]));
        let matchers: Vec<String> = own.chain([self.matchers.clone()]).collect();
        let selector = select_names(&[name], &[], &matchers.join(","));
        let mut read = async |function: &str, range: Duration| {
            let expression = format!("{function}({selector}[{}ms])", range_ms(range));
            let from = steps.until - steps.step * (steps.count.saturating_sub(1) as u32);
            let span = (from, steps.until);
            let place = |matrix: AnsweredMatrix<'_>| place_points(&matrix, from, steps);
            self.client.query_range(&expression, span, steps.step, place).await
        };
        if is_counter {
            let mean = read("rate", steps.step.max(RATE_RANGE)).await?;
            return Ok(StoredHistory { mean, ..StoredHistory::default() });
        }
        Ok(StoredHistory {
            mean: read("avg_over_time", steps.step).await?,
            low: read("min_over_time", steps.step).await?,
            high: read("max_over_time", steps.step).await?,
        })
    }

    /// The sums of a metric that is written at each full hour over the hours that end in the `span` up to `until`, by these
    /// labels, and `consume` is called with each. Of several samples of one hour the greatest counts: that of the writer that
    /// saw more, and once where the store has copies.
    pub async fn sum_hours(
        &mut self,
        name: &str,
        labels: &[&str],
        (until, span): (UnixMs, Duration),
        mut consume: impl FnMut(&StoredSample<'_>),
    ) -> Result<(), QueryError> {
        let hour = format!("max by ({}) ({})", labels.join(","), self.at_full_hour(name));
        let expression = format!("sum_over_time(({hour})[{}ms:1h])", range_ms(span));
        let consume = |matrix: AnsweredMatrix<'_>| {
            for series in &matrix.result {
                let value = series.values.last().and_then(|(_, value)| value.0.parse().ok());
                let Some(value) = value.filter(|value: &f64| value.is_finite()) else { continue };
                consume(&StoredSample { name, value, labels: &series.metric });
            }
        };
        self.client.query_range(&expression, (until, until), ONE_STEP, consume).await
    }

    /// How many of the hours that end in the `span` up to `until` have a sample of a metric that is written at each full hour.
    pub async fn count_hours(
        &mut self,
        name: &str,
        (until, span): (UnixMs, Duration),
    ) -> Result<u64, QueryError> {
        let present = format!("count({})", self.at_full_hour(name));
        let expression = format!("count_over_time(({present})[{}ms:1h])", range_ms(span));
        let count = |matrix: AnsweredMatrix<'_>| {
            let values = matrix.result.iter().flat_map(|series| &series.values);
            let counts = values.filter_map(|(_, value)| value.0.parse::<f64>().ok());
            counts.fold(0.0, f64::max) as u64
        };
        self.client.query_range(&expression, (until, until), ONE_STEP, count).await
    }

    /// The expression that has at a full hour what was written about it, some steps later if the first ones were missed. Without
    /// a range of its own VictoriaMetrics would repeat a sample where the next one is missing.
    fn at_full_hour(&self, name: &str) -> String {
        let selector = select_names(&[name], &[], &self.matchers);
        format!("max_over_time({selector}[10m] offset -5m)")
    }

    /// The names of the nodes with verdicts from `from` to `until`, sorted.
    pub async fn list_nodes(
        &mut self,
        from: UnixMs,
        until: UnixMs,
    ) -> Result<Vec<String>, QueryError> {
        let selector = select_names(&[NODE_VERDICT], &[], &self.matchers);
        let mut nodes = self.client.list_values("node", &[selector], from, until).await?;
        nodes.retain(|node| !node.is_empty());
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// The pages of these nodes after `from` and not after `until`: the metrics with history, as they were at each instant
    /// that was written. A query that is too large for the server is split.
    pub async fn read_nodes(
        &mut self,
        nodes: &[String],
        from: UnixMs,
        until: UnixMs,
    ) -> Result<SeriesWindow, QueryError> {
        let mut names: Vec<&str> = MetricId::all_ids()
            .map(MetricId::catalogue_row)
            .filter_map(|row| row.history.then_some(row.name))
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut pages = SeriesPages::new(from, until);
        let (mut targets, mut query) = (SeriesTargets::default(), WindowQuery::new(from, until));
        let mut slices = vec![nodes];
        while let Some(slice) = slices.pop() {
            let matchers = format!("{},{}", match_values("node", slice), self.matchers);
            let selector = select_names(&names, &[], &matchers);
            let replica_label = self.replica_label.as_deref();
            let add = |matrix: &AnsweredMatrix<'_>| {
                let (scrapes, series) = split_instants(matrix, replica_label, slice);
                pages.add_scrapes(&scrapes, &mut targets);
                pages.add_series(&series, &mut targets);
            };
            match query.run(&mut self.client, &selector, self.max_samples, add).await {
                Err(error) if error.is_too_large() && slice.len() > 1 => {
                    let (left, right) = slice.split_at(slice.len() / 2);
                    slices.extend([right, left]);
                }
                result => result?,
            }
        }
        let cache = TemplateCache::default();
        let batches = pages.into_batches(&mut targets, &cache, &self.server);
        Ok(SeriesWindow {
            targets: targets.announced_targets(&self.server),
            batches,
            load: query.load(),
        })
    }
}

/// The milliseconds of a range that ends at an instant: old servers count a sample at its beginning too.
fn range_ms(range: Duration) -> u128 {
    range.as_millis().saturating_sub(1).max(1)
}

/// The points of a series by step; of a pair of writers the greater one.
fn place_points(matrix: &AnsweredMatrix<'_>, from: UnixMs, steps: StoredSteps) -> Vec<Option<f32>> {
    let mut points = vec![None; steps.count];
    for (at, value) in matrix.result.iter().flat_map(|series| &series.values) {
        let Some(value) = value.0.parse::<f32>().ok().filter(|value| value.is_finite()) else {
            continue;
        };
        let at = UnixMs::from_seconds(*at);
        let step = at.duration_since(from).as_millis() / steps.step.as_millis().max(1);
        if at >= from
            && let Some(point) = points.get_mut(step as usize)
        {
            *point = Some(point.map_or(value, |known: f32| known.max(value)));
        }
    }
    points
}

/// What was written of nodes, as a server would have that scrapes them: a series `up` with the instants, and the series of
/// the target that is the node. Series of other nodes are left out.
fn split_instants<'a>(
    matrix: &'a AnsweredMatrix<'_>,
    replica_label: Option<&str>,
    nodes: &[String],
) -> (AnsweredMatrix<'a>, AnsweredMatrix<'a>) {
    let (mut scrapes, mut all) = (Vec::new(), Vec::new());
    for series in &matrix.result {
        let node = series.metric.find_label("node");
        if !nodes.iter().any(|asked| asked == node) {
            continue;
        }
        let borrow = |(name, value): &'a (Cow<'_, str>, Cow<'_, str>)| {
            (Cow::Borrowed(&**name), Cow::Borrowed(&**value))
        };
        let is_kept = |name: &str| Some(name) != replica_label && name != "instance";
        let mut labels: Vec<_> = series.metric.0.iter().map(borrow).collect();
        labels.retain(|(name, _)| is_kept(name));
        labels.push((Cow::Borrowed("instance"), Cow::Borrowed(node)));
        let of_target = |name: &str| matches!(name, "cluster" | "instance" | "job" | "node");
        let target = labels.iter().filter(|(name, _)| of_target(name)).cloned().collect();
        let (mut instants, mut values) = (Vec::new(), Vec::new());
        for (at, value) in &series.values {
            instants.push((*at, AnswerText(Cow::Borrowed("1"))));
            values.push((*at, AnswerText(Cow::Borrowed(&*value.0))));
        }
        scrapes.push(AnsweredSeries { metric: AnsweredLabels(target), values: instants });
        all.push(AnsweredSeries { metric: AnsweredLabels(labels), values });
    }
    let matrix_of = |result| AnsweredMatrix { result_type: AnswerText::default(), result };
    (matrix_of(scrapes), matrix_of(all))
}
