//! OpenMetrics 1.0, parsed strictly by its specification: a page with an error is rejected, with the reason.

mod family_type;
mod histogram_checker;
mod openmetrics_error;
#[cfg(test)]
mod tests;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use self::{
    family_type::OpenMetricsType, histogram_checker::HistogramChecker,
    openmetrics_error::OpenMetricsError,
};
use super::{
    PageLimits, SeriesLabel, TextSample, busiest_cpu::PageInSequence, labels, number,
    text_decode::PageBuilder,
};
use crate::{SanitizedText, ScrapeFailure, ScrapedPage, dialect};

/// The most characters of an exemplar's labels, names and values together.
const EXEMPLAR_CHARACTERS: usize = 128;

/// Whether a body of this media type is a page of OpenMetrics.
pub fn is_open_metrics(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/openmetrics-text")
}

/// Decodes a page of OpenMetrics in any dialect.
pub fn decode_open_metrics(body: &[u8], limits: &PageLimits) -> Result<ScrapedPage, ScrapeFailure> {
    decode_in_sequence(body, limits).map(|one| one.page)
}

/// Decodes a page of OpenMetrics, with what is compared with the page before it.
pub(super) fn decode_in_sequence(
    body: &[u8],
    limits: &PageLimits,
) -> Result<PageInSequence, ScrapeFailure> {
    if body.len() > limits.body_bytes {
        return Err(ScrapeFailure::TooLarge(limits.body_bytes as u64));
    }
    let mut reader = OpenMetricsReader { limits, ..OpenMetricsReader::new(limits) };
    let mut collector = PageBuilder::default();
    let mut line_number = 0;
    let read = reader.parse_page(body, &mut collector, &mut line_number);
    if let Err(fault) = read {
        let why = match fault {
            OpenMetricsError::NotUtf8 | OpenMetricsError::NoEnd => fault.to_string(),
            _ => format!("line {line_number}: {fault}"),
        };
        return Err(ScrapeFailure::NotAPage(SanitizedText::new(&format!(
            "not OpenMetrics: {why}"
        ))));
    }
    Ok(collector.into_page(body.len()))
}

/// A sample with everything that its type restricts.
#[derive(Debug)]
struct MetricPoint<'r, 'a> {
    name: &'a str,
    labels: &'r [SeriesLabel<'a>],
    digits: &'a str,
    value: f64,
    timestamp: Option<f64>,
    exemplar: bool,
}

/// The current family.
#[derive(Debug, Default)]
struct OpenMetricsFamily<'a> {
    name: &'a str,
    kind: OpenMetricsType,
    /// Whether HELP, TYPE and UNIT were present.
    seen_descriptors: [bool; 3],
    sampled: bool,
    unit: &'a str,
    histogram: HistogramChecker,
    /// The current metric, and the earlier ones: labels without the one that distinguishes samples of a metric.
    metric: Option<String>,
    metrics: HashSet<String, RandomState>,
}

/// Reads a page line by line.
#[derive(Debug)]
struct OpenMetricsReader<'a, 'l> {
    limits: &'l PageLimits,
    family: OpenMetricsFamily<'a>,
    /// The names that samples may have, and their families.
    names: HashMap<String, &'a str, RandomState>,
    families: HashSet<&'a str, RandomState>,
    /// The series so far, and the timestamp of the last point of each.
    series: HashMap<String, Option<f64>, RandomState>,
    labels: Vec<SeriesLabel<'a>>,
    samples: usize,
}

/// The descriptors of a family.
const DESCRIPTORS: [&str; 3] = ["HELP", "TYPE", "UNIT"];

/// The position of the type among them.
const TYPE: usize = 1;

/// The position of the unit among them.
const UNIT: usize = 2;

impl<'a, 'l> OpenMetricsReader<'a, 'l> {
    fn new(limits: &'l PageLimits) -> Self {
        Self {
            limits,
            family: OpenMetricsFamily::default(),
            names: HashMap::default(),
            families: HashSet::default(),
            series: HashMap::default(),
            labels: Vec::new(),
            samples: 0,
        }
    }

    fn parse_page(
        &mut self,
        body: &'a [u8],
        collector: &mut PageBuilder<'a>,
        number: &mut u64,
    ) -> Result<(), OpenMetricsError> {
        let text = std::str::from_utf8(body).map_err(|_| OpenMetricsError::NotUtf8)?;
        let mut rest = text;
        loop {
            *number += 1;
            let (line, after) =
                rest.split_once('\n').map_or((rest, None), |(line, after)| (line, Some(after)));
            if line == "# EOF" {
                if after.is_some_and(|after| !after.is_empty()) {
                    return Err(OpenMetricsError::AfterEnd);
                }
                return self.end_family();
            }
            rest = after.ok_or(OpenMetricsError::NoEnd)?;
            if line.len() > self.limits.line_bytes {
                return Err(OpenMetricsError::LongLine(line.len()));
            }
            match line.strip_prefix('#') {
                Some(comment) => self.parse_descriptor(comment)?,
                None if line.is_empty() => return Err(OpenMetricsError::Blank),
                None => self.parse_sample(line, collector, *number)?,
            }
        }
    }

    /// Parses a HELP, TYPE or UNIT line.
    fn parse_descriptor(&mut self, comment: &'a str) -> Result<(), OpenMetricsError> {
        let mut parts = comment.strip_prefix(' ').ok_or(OpenMetricsError::Comment)?.splitn(3, ' ');
        let keyword = parts.next().unwrap_or_default();
        let descriptor = DESCRIPTORS
            .iter()
            .position(|other| *other == keyword)
            .ok_or(OpenMetricsError::Comment)?;
        let name = self.check_name(parts.next().unwrap_or_default())?;
        let value = parts.next().ok_or(OpenMetricsError::Comment)?;
        if self.family.name != name {
            self.begin_family(name)?;
        } else if self.family.sampled {
            return Err(OpenMetricsError::Late(name.to_owned(), DESCRIPTORS[descriptor]));
        }
        if std::mem::replace(&mut self.family.seen_descriptors[descriptor], true) {
            return Err(OpenMetricsError::Repeated(name.to_owned(), DESCRIPTORS[descriptor]));
        }
        match descriptor {
            TYPE => {
                let kind = OpenMetricsType::parse(value);
                let invalid = || OpenMetricsError::Type(name.to_owned(), value.to_owned());
                self.family.kind = kind.ok_or_else(invalid)?;
            }
            UNIT => {
                let has_suffix = name.strip_suffix(value).is_some_and(|stem| stem.ends_with('_'));
                if !value.is_empty() && !has_suffix {
                    return Err(OpenMetricsError::Unit(name.to_owned(), value.to_owned()));
                }
                self.family.unit = value;
            }
            _ => {}
        }
        Ok(())
    }

    fn check_name(&self, name: &'a str) -> Result<&'a str, OpenMetricsError> {
        let length = labels::name_length(name.as_bytes());
        if name.is_empty() || length != name.len() || length > self.limits.name_bytes {
            return Err(OpenMetricsError::Name(error_excerpt(name)));
        }
        Ok(name)
    }

    /// Begins another family.
    fn begin_family(&mut self, name: &'a str) -> Result<(), OpenMetricsError> {
        self.end_family()?;
        if !self.families.insert(name) {
            return Err(OpenMetricsError::Interleaved(name.to_owned()));
        }
        self.family = OpenMetricsFamily { name, ..OpenMetricsFamily::default() };
        Ok(())
    }

    /// Ends the current family.
    fn end_family(&mut self) -> Result<(), OpenMetricsError> {
        let OpenMetricsFamily { name, kind, unit, .. } = self.family;
        if matches!(kind, OpenMetricsType::Info | OpenMetricsType::StateSet) && !unit.is_empty() {
            return Err(OpenMetricsError::Unitless(name.to_owned()));
        }
        self.family.histogram.end_point(name)?;
        if name.is_empty() || self.family.sampled {
            return Ok(());
        }
        self.reserve_names()
    }

    /// Reserves the sample names of the current family, so that no other family may use them.
    fn reserve_names(&mut self) -> Result<(), OpenMetricsError> {
        let OpenMetricsFamily { name, kind, .. } = self.family;
        let suffixes = kind.sample_suffixes().iter().copied();
        for suffix in suffixes.chain((kind != OpenMetricsType::Unknown).then_some("")) {
            let sample = format!("{name}{suffix}");
            match self.names.insert(sample, name) {
                Some(other) if other != name => {
                    return Err(OpenMetricsError::Clash(other.to_owned(), name.to_owned()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn parse_sample(
        &mut self,
        line: &'a str,
        collector: &mut PageBuilder<'a>,
        number: u64,
    ) -> Result<(), OpenMetricsError> {
        if self.samples == self.limits.samples {
            return Err(OpenMetricsError::ManySamples(self.limits.samples));
        }
        self.samples += 1;
        let name = &line[..labels::name_length(line.as_bytes())];
        if name.is_empty() || name.len() > self.limits.name_bytes {
            return Err(OpenMetricsError::Name(error_excerpt(line)));
        }
        let mut labels = std::mem::take(&mut self.labels);
        let after = self.parse_label_set(&line[name.len()..], &mut labels)?;
        let point = parse_point(name, &labels, after, self.limits)?;
        let first = self.check_point(&point)?;
        if first {
            collector.add_sample(
                &TextSample {
                    name: self.text_format_name(name),
                    labels: &labels,
                    value: point.value,
                    digits: point.digits,
                    timestamp: point.timestamp.map(|seconds| (seconds * 1e3) as i64),
                    line: line.as_bytes(),
                },
                number,
            );
        }
        labels.clear();
        self.labels = labels;
        Ok(())
    }

    /// The catalogue name of a sample of the current family. OpenMetrics appends `_total` to the names of counters that
    /// have none in the text format.
    fn text_format_name(&self, name: &'a str) -> &'a str {
        let OpenMetricsFamily { name: family, kind, .. } = self.family;
        let adds_total =
            kind == OpenMetricsType::Counter && name.strip_suffix("_total") == Some(family);
        if adds_total && !dialect::is_known_name(name) && dialect::is_known_name(family) {
            family
        } else {
            name
        }
    }

    /// Parses the labels in their braces, if there are any; returns the rest of the line.
    fn parse_label_set(
        &self,
        text: &'a str,
        label_set: &mut Vec<SeriesLabel<'a>>,
    ) -> Result<&'a str, OpenMetricsError> {
        label_set.clear();
        let Some(mut rest) = text.strip_prefix('{') else { return Ok(text) };
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok(rest);
        }
        loop {
            let (name, after) = rest.split_once("=\"").ok_or(OpenMetricsError::Labels)?;
            if !labels::is_label_name(name) || name.len() > self.limits.name_bytes {
                return Err(OpenMetricsError::Name(error_excerpt(name)));
            }
            let (end, escaped) = find_value_end(after).ok_or(OpenMetricsError::Labels)?;
            if label_set.iter().any(|label| label.name == name) {
                return Err(OpenMetricsError::Twin(name.to_owned()));
            }
            if label_set.len() == self.limits.labels || end > self.limits.value_bytes {
                return Err(OpenMetricsError::ManyLabels(self.limits.labels));
            }
            label_set.push(SeriesLabel { name, raw: &after[..end], escaped });
            rest = &after[end + 1..];
            match rest.as_bytes().first() {
                Some(b',') => rest = &rest[1..],
                Some(b'}') => return Ok(&rest[1..]),
                _ => return Err(OpenMetricsError::Labels),
            }
        }
    }

    /// Finds the family of a sample and checks that the sample is allowed; returns whether it is the first point of its
    /// series.
    fn check_point(&mut self, point: &MetricPoint<'_, 'a>) -> Result<bool, OpenMetricsError> {
        let suffix = self.sample_suffix(point.name)?;
        if !self.family.sampled {
            self.family.sampled = true;
            self.reserve_names()?;
        }
        let OpenMetricsFamily { name, kind, .. } = self.family;
        if point.exemplar && !kind.can_have_exemplar(suffix) {
            return Err(OpenMetricsError::Exemplar(point.name.to_owned()));
        }
        let bound = family_type::check_sample(kind, name, suffix, point)?;
        let metric = series_key("", point.labels, kind.reserved_label(name, suffix));
        let new = self.family.metric.as_ref() != Some(&metric);
        if matches!(kind, OpenMetricsType::Histogram | OpenMetricsType::GaugeHistogram) {
            let histogram = &mut self.family.histogram;
            histogram.check_sample(kind, name, (suffix, bound), point, new)?;
        }
        if new {
            if !self.family.metrics.insert(metric.clone()) {
                return Err(OpenMetricsError::Apart(name.to_owned()));
            }
            self.family.metric = Some(metric);
        }
        match self.series.insert(series_key(point.name, point.labels, None), point.timestamp) {
            None => Ok(true),
            Some(before) => match (before, point.timestamp) {
                (Some(before), Some(now)) if before <= now => Ok(false),
                (None, None) => Err(OpenMetricsError::Duplicate),
                _ => Err(OpenMetricsError::Order),
            },
        }
    }

    /// The suffix of a sample of the current family; a sample of no family begins its own.
    fn sample_suffix(&mut self, name: &'a str) -> Result<&'static str, OpenMetricsError> {
        let OpenMetricsFamily { name: family, kind, .. } = self.family;
        let rest = name.strip_prefix(family).filter(|_| !family.is_empty());
        let own_suffix =
            rest.and_then(|rest| kind.sample_suffixes().iter().find(|suffix| **suffix == rest));
        if let Some(suffix) = own_suffix {
            return Ok(suffix);
        }
        if rest == Some("") {
            return Err(match kind {
                OpenMetricsType::Counter => OpenMetricsError::NoTotal(family.to_owned()),
                _ => OpenMetricsError::Ending(family.to_owned(), name.to_owned()),
            });
        }
        if let Some(other) = self.names.get(name) {
            return Err(OpenMetricsError::Interleaved((*other).to_owned()));
        }
        self.begin_family(name)?;
        Ok("")
    }
}

/// Parses what follows the labels: the value, a timestamp, an exemplar.
fn parse_point<'r, 'a>(
    name: &'a str,
    labels: &'r [SeriesLabel<'a>],
    after: &'a str,
    limits: &PageLimits,
) -> Result<MetricPoint<'r, 'a>, OpenMetricsError> {
    let after = after.strip_prefix(' ').ok_or(OpenMetricsError::Blanks)?;
    let (numbers, exemplar) = match after.split_once(" # ") {
        Some((numbers, exemplar)) => (numbers, Some(exemplar)),
        None => (after, None),
    };
    let (digits, value, timestamp) = parse_numbers(numbers)?;
    if let Some(exemplar) = exemplar {
        let mut exemplar_labels = Vec::new();
        let rest =
            OpenMetricsReader::new(limits).parse_label_set(exemplar, &mut exemplar_labels)?;
        if rest.len() == exemplar.len() {
            return Err(OpenMetricsError::Labels);
        }
        let characters =
            |label: &SeriesLabel<'_>| label.name.len() + label.unescaped_value().chars().count();
        let length = exemplar_labels.iter().map(characters).sum();
        if length > EXEMPLAR_CHARACTERS {
            return Err(OpenMetricsError::LongExemplar(length));
        }
        parse_numbers(rest.strip_prefix(' ').ok_or(OpenMetricsError::Blanks)?)?;
    }
    Ok(MetricPoint { name, labels, digits, value, timestamp, exemplar: exemplar.is_some() })
}

/// Parses a number and an optional timestamp, separated by one blank.
fn parse_numbers(text: &str) -> Result<(&str, f64, Option<f64>), OpenMetricsError> {
    let (digits, timestamp) = match text.split_once(' ') {
        Some((digits, timestamp)) => (digits, Some(timestamp)),
        None => (text, None),
    };
    if digits.is_empty() || timestamp.is_some_and(|text| text.is_empty() || text.contains(' ')) {
        return Err(OpenMetricsError::Blanks);
    }
    let value =
        number::parse(digits).ok_or_else(|| OpenMetricsError::Number(error_excerpt(digits)))?;
    let time = |text: &str| {
        let seconds = number::parse(text).filter(|seconds| seconds.is_finite());
        seconds.ok_or_else(|| OpenMetricsError::Timestamp(error_excerpt(text)))
    };
    Ok((digits, value, timestamp.map(time).transpose()?))
}

/// The position of the quote that ends a label's value, and whether the value has escapes.
fn find_value_end(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let (mut offset, mut escaped) = (0, false);
    loop {
        offset += memchr::memchr2(b'"', b'\\', bytes.get(offset..)?)?;
        if bytes[offset] == b'"' {
            return Some((offset, escaped));
        }
        bytes.get(offset + 1)?;
        (offset, escaped) = (offset + 2, true);
    }
}

/// A name with its labels sorted, without one of them.
fn series_key(name: &str, labels: &[SeriesLabel<'_>], excluded: Option<&str>) -> String {
    let mut sorted: Vec<&SeriesLabel<'_>> = labels
        .iter()
        .filter(|label| Some(label.name) != excluded && !label.raw.is_empty())
        .collect();
    sorted.sort_by_key(|label| label.name);
    let mut key = name.to_owned();
    for label in sorted {
        // No name and no raw value contains a line feed.
        key.push('\n');
        key.push_str(label.name);
        key.push('\n');
        key.push_str(label.raw);
    }
    key
}

/// The beginning of a text, for an error message.
fn error_excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}
