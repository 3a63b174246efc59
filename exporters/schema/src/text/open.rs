//! OpenMetrics 1.0, read strictly as its specification says: a page with a fault is refused, and told why.

mod family;
mod fault;
#[cfg(test)]
mod tests;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use self::{
    family::{Buckets, Type},
    fault::Fault,
};
use super::{Label, Limits, Sample, decode::Collector, labels, number};
use crate::{Failure, Page, Safe, dialect};

/// The most characters of an exemplar's labels, names and values together.
const EXEMPLAR_CHARACTERS: usize = 128;

/// Whether a body of this media type is a page of OpenMetrics.
pub fn is_open_metrics(media_type: &str) -> bool {
    let bare = media_type.split(';').next().unwrap_or_default().trim();
    bare.eq_ignore_ascii_case("application/openmetrics-text")
}

/// Reads a page of OpenMetrics in whoever's words it is.
pub fn decode_open_metrics(body: &[u8], limits: &Limits) -> Result<Page, Failure> {
    if body.len() > limits.body_bytes {
        return Err(Failure::TooLarge(limits.body_bytes as u64));
    }
    let mut reader = Reader { limits, ..Reader::new(limits) };
    let mut collector = Collector::default();
    let mut line_number = 0;
    let read = reader.page(body, &mut collector, &mut line_number);
    if let Err(fault) = read {
        let why = match fault {
            Fault::NotUtf8 | Fault::NoEnd | Fault::Empty => fault.to_string(),
            _ => format!("line {line_number}: {fault}"),
        };
        return Err(Failure::NotAPage(Safe::new(&format!("not OpenMetrics: {why}"))));
    }
    Ok(collector.finish(body.len()))
}

/// A sample with all that its type has a say in.
#[derive(Debug)]
struct Point<'r, 'a> {
    name: &'a str,
    labels: &'r [Label<'a>],
    digits: &'a str,
    value: f64,
    timestamp: Option<f64>,
    exemplar: bool,
}

/// The family that is read.
#[derive(Debug, Default)]
struct Family<'a> {
    name: &'a str,
    kind: Type,
    /// HELP, TYPE and UNIT, whether they were there.
    told: [bool; 3],
    sampled: bool,
    unit: &'a str,
    buckets: Buckets,
    /// The metric that is read, and those that were: labels without the one that tells samples of a metric apart.
    metric: Option<String>,
    metrics: HashSet<String, RandomState>,
}

/// Reads a page line by line.
#[derive(Debug)]
struct Reader<'a, 'l> {
    limits: &'l Limits,
    family: Family<'a>,
    /// Names that samples may have, and the family that has them.
    names: HashMap<String, &'a str, RandomState>,
    families: HashSet<&'a str, RandomState>,
    /// Series that were seen, and the timestamp of their last point.
    series: HashMap<String, Option<f64>, RandomState>,
    labels: Vec<Label<'a>>,
    samples: usize,
}

/// The descriptors of a family.
const DESCRIPTORS: [&str; 3] = ["HELP", "TYPE", "UNIT"];

/// The position of the type among them.
const TYPE: usize = 1;

/// The position of the unit among them.
const UNIT: usize = 2;

impl<'a, 'l> Reader<'a, 'l> {
    fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            family: Family::default(),
            names: HashMap::default(),
            families: HashSet::default(),
            series: HashMap::default(),
            labels: Vec::new(),
            samples: 0,
        }
    }

    fn page(
        &mut self,
        body: &'a [u8],
        collector: &mut Collector<'a>,
        number: &mut u64,
    ) -> Result<(), Fault> {
        let text = std::str::from_utf8(body).map_err(|_| Fault::NotUtf8)?;
        let mut rest = text;
        loop {
            *number += 1;
            let (line, after) = rest.split_once('\n').map_or((rest, None), |(l, r)| (l, Some(r)));
            if line == "# EOF" {
                if after.is_some_and(|after| !after.is_empty()) {
                    return Err(Fault::AfterEnd);
                }
                self.leave()?;
                return if self.samples == 0 { Err(Fault::Empty) } else { Ok(()) };
            }
            rest = after.ok_or(Fault::NoEnd)?;
            if line.len() > self.limits.line_bytes {
                return Err(Fault::LongLine(line.len()));
            }
            match line.strip_prefix('#') {
                Some(comment) => self.descriptor(comment)?,
                None if line.is_empty() => return Err(Fault::Blank),
                None => self.sample(line, collector, *number)?,
            }
        }
    }

    /// A line of HELP, TYPE or UNIT.
    fn descriptor(&mut self, comment: &'a str) -> Result<(), Fault> {
        let mut parts = comment.strip_prefix(' ').ok_or(Fault::Comment)?.splitn(3, ' ');
        let word = parts.next().unwrap_or_default();
        let which = DESCRIPTORS.iter().position(|known| *known == word).ok_or(Fault::Comment)?;
        let name = self.name(parts.next().unwrap_or_default())?;
        let value = parts.next().ok_or(Fault::Comment)?;
        if self.family.name != name {
            self.enter(name)?;
        } else if self.family.sampled {
            return Err(Fault::Late(name.to_owned(), DESCRIPTORS[which]));
        }
        if std::mem::replace(&mut self.family.told[which], true) {
            return Err(Fault::Repeated(name.to_owned(), DESCRIPTORS[which]));
        }
        match which {
            TYPE => {
                let known = Type::parse(value);
                let bad = || Fault::Type(name.to_owned(), value.to_owned());
                self.family.kind = known.ok_or_else(bad)?;
            }
            UNIT => {
                let ends = name.strip_suffix(value).is_some_and(|stem| stem.ends_with('_'));
                if !value.is_empty() && !ends {
                    return Err(Fault::Unit(name.to_owned(), value.to_owned()));
                }
                self.family.unit = value;
            }
            _ => {}
        }
        Ok(())
    }

    fn name(&self, name: &'a str) -> Result<&'a str, Fault> {
        let length = labels::name_length(name.as_bytes());
        if name.is_empty() || length != name.len() || length > self.limits.name_bytes {
            return Err(Fault::Name(shown(name)));
        }
        Ok(name)
    }

    /// Another family begins.
    fn enter(&mut self, name: &'a str) -> Result<(), Fault> {
        self.leave()?;
        if !self.families.insert(name) {
            return Err(Fault::Interleaved(name.to_owned()));
        }
        self.family = Family { name, ..Family::default() };
        Ok(())
    }

    /// The family is over.
    fn leave(&mut self) -> Result<(), Fault> {
        let Family { name, kind, unit, .. } = self.family;
        if matches!(kind, Type::Info | Type::StateSet) && !unit.is_empty() {
            return Err(Fault::Unitless(name.to_owned()));
        }
        self.family.buckets.end(name)?;
        if name.is_empty() || self.family.sampled {
            return Ok(());
        }
        self.reserve()
    }

    /// No other family may have samples of these names.
    fn reserve(&mut self) -> Result<(), Fault> {
        let Family { name, kind, .. } = self.family;
        let endings = kind.endings().iter().copied();
        for ending in endings.chain((kind != Type::Unknown).then_some("")) {
            let sample = format!("{name}{ending}");
            match self.names.insert(sample, name) {
                Some(other) if other != name => {
                    return Err(Fault::Clash(other.to_owned(), name.to_owned()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn sample(
        &mut self,
        line: &'a str,
        collector: &mut Collector<'a>,
        number: u64,
    ) -> Result<(), Fault> {
        if self.samples == self.limits.samples {
            return Err(Fault::ManySamples(self.limits.samples));
        }
        self.samples += 1;
        let name = &line[..labels::name_length(line.as_bytes())];
        if name.is_empty() || name.len() > self.limits.name_bytes {
            return Err(Fault::Name(shown(line)));
        }
        let mut labels = std::mem::take(&mut self.labels);
        let after = self.label_set(&line[name.len()..], &mut labels)?;
        let point = point(name, &labels, after, self.limits)?;
        let first = self.belong(&point)?;
        if first {
            collector.take(
                &Sample {
                    name: self.spoken(name),
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

    /// The name by which a sample of the family that is read is known. OpenMetrics appends `_total` to the names of
    /// counters that have none as text.
    fn spoken(&self, name: &'a str) -> &'a str {
        let Family { name: family, kind, .. } = self.family;
        let bare = kind == Type::Counter && name.strip_suffix("_total") == Some(family);
        if bare && !dialect::knows(name) && dialect::knows(family) { family } else { name }
    }

    /// Takes the labels in their braces, if there are any; returns what follows them.
    fn label_set(&self, text: &'a str, into: &mut Vec<Label<'a>>) -> Result<&'a str, Fault> {
        into.clear();
        let Some(mut rest) = text.strip_prefix('{') else { return Ok(text) };
        if let Some(rest) = rest.strip_prefix('}') {
            return Ok(rest);
        }
        loop {
            let (name, after) = rest.split_once("=\"").ok_or(Fault::Labels)?;
            if !labels::is_label_name(name) || name.len() > self.limits.name_bytes {
                return Err(Fault::Name(shown(name)));
            }
            let (end, escaped) = value_end(after).ok_or(Fault::Labels)?;
            if into.iter().any(|label| label.name == name) {
                return Err(Fault::Twin(name.to_owned()));
            }
            if into.len() == self.limits.labels || end > self.limits.value_bytes {
                return Err(Fault::ManyLabels(self.limits.labels));
            }
            into.push(Label { name, raw: &after[..end], escaped });
            rest = &after[end + 1..];
            match rest.as_bytes().first() {
                Some(b',') => rest = &rest[1..],
                Some(b'}') => return Ok(&rest[1..]),
                _ => return Err(Fault::Labels),
            }
        }
    }

    /// Finds the family of a sample and whether it may be there; says whether it is the first point of its series.
    fn belong(&mut self, point: &Point<'_, 'a>) -> Result<bool, Fault> {
        let ending = self.ending(point.name)?;
        if !self.family.sampled {
            self.family.sampled = true;
            self.reserve()?;
        }
        let Family { name, kind, .. } = self.family;
        if point.exemplar && !kind.exemplifies(ending) {
            return Err(Fault::Exemplar(point.name.to_owned()));
        }
        let bound = family::check(kind, name, ending, point)?;
        let metric = key("", point.labels, kind.own_label(name, ending));
        let new = self.family.metric.as_ref() != Some(&metric);
        if matches!(kind, Type::Histogram | Type::GaugeHistogram) {
            self.family.buckets.take(name, bound, point.value, new)?;
        }
        if new {
            if !self.family.metrics.insert(metric.clone()) {
                return Err(Fault::Apart(name.to_owned()));
            }
            self.family.metric = Some(metric);
        }
        match self.series.insert(key(point.name, point.labels, None), point.timestamp) {
            None => Ok(true),
            Some(before) => match (before, point.timestamp) {
                (Some(before), Some(now)) if before < now => Ok(false),
                (None, None) => Err(Fault::Duplicate),
                _ => Err(Fault::Order),
            },
        }
    }

    /// The ending of a sample of the family that is read; a sample of no family is one of its own.
    fn ending(&mut self, name: &'a str) -> Result<&'static str, Fault> {
        let Family { name: family, kind, .. } = self.family;
        let rest = name.strip_prefix(family).filter(|_| !family.is_empty());
        let own = rest.and_then(|rest| kind.endings().iter().find(|ending| **ending == rest));
        if let Some(ending) = own {
            return Ok(ending);
        }
        if rest == Some("") {
            return Err(match kind {
                Type::Counter => Fault::NoTotal(family.to_owned()),
                _ => Fault::Ending(family.to_owned(), name.to_owned()),
            });
        }
        if let Some(other) = self.names.get(name) {
            return Err(Fault::Interleaved((*other).to_owned()));
        }
        self.enter(name)?;
        Ok("")
    }
}

/// What stands behind the labels: the value, a timestamp, an exemplar.
fn point<'r, 'a>(
    name: &'a str,
    labels: &'r [Label<'a>],
    after: &'a str,
    limits: &Limits,
) -> Result<Point<'r, 'a>, Fault> {
    let after = after.strip_prefix(' ').ok_or(Fault::Blanks)?;
    let (plain, exemplar) = match after.split_once(" # ") {
        Some((plain, exemplar)) => (plain, Some(exemplar)),
        None => (after, None),
    };
    let (digits, value, timestamp) = numbers(plain)?;
    if let Some(exemplar) = exemplar {
        let mut own = Vec::new();
        let rest = Reader::new(limits).label_set(exemplar, &mut own)?;
        if rest.len() == exemplar.len() {
            return Err(Fault::Labels);
        }
        let characters = |label: &Label<'_>| label.name.len() + label.value().chars().count();
        let length = own.iter().map(characters).sum();
        if length > EXEMPLAR_CHARACTERS {
            return Err(Fault::LongExemplar(length));
        }
        numbers(rest.strip_prefix(' ').ok_or(Fault::Blanks)?)?;
    }
    Ok(Point { name, labels, digits, value, timestamp, exemplar: exemplar.is_some() })
}

/// A number and maybe a timestamp, one blank between them.
fn numbers(text: &str) -> Result<(&str, f64, Option<f64>), Fault> {
    let (digits, timestamp) = match text.split_once(' ') {
        Some((digits, timestamp)) => (digits, Some(timestamp)),
        None => (text, None),
    };
    if digits.is_empty() || timestamp.is_some_and(|text| text.is_empty() || text.contains(' ')) {
        return Err(Fault::Blanks);
    }
    let value = number::parse(digits).ok_or_else(|| Fault::Number(shown(digits)))?;
    let time = |text: &str| {
        let seconds = number::parse(text).filter(|seconds| seconds.is_finite());
        seconds.ok_or_else(|| Fault::Timestamp(shown(text)))
    };
    Ok((digits, value, timestamp.map(time).transpose()?))
}

/// The position of the quote that ends a label's value, and whether the value has escapes.
fn value_end(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let (mut at, mut escaped) = (0, false);
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some((at, escaped));
        }
        bytes.get(at + 1)?;
        (at, escaped) = (at + 2, true);
    }
}

/// A name with its labels in one order, without one of them.
fn key(name: &str, labels: &[Label<'_>], without: Option<&str>) -> String {
    let mut kept: Vec<&Label<'_>> = labels
        .iter()
        .filter(|label| Some(label.name) != without && !label.raw.is_empty())
        .collect();
    kept.sort_by_key(|label| label.name);
    let mut key = name.to_owned();
    for label in kept {
        // A line feed stands in no name and in no value as it is written.
        key.push('\n');
        key.push_str(label.name);
        key.push('\n');
        key.push_str(label.raw);
    }
    key
}

/// The beginning of what is shown of a fault.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}
