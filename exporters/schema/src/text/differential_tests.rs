//! Differential tests: where prometheus-parse is correct, gaunt's reader returns the same.
//!
//! It is wrong about label values with a comma, an equals sign, a brace or an escape, about names with a colon, empty
//! braces, blanks in odd places and repeated series, and it parses a histogram as one value; none of these is
//! generated.

use std::{collections::BTreeMap, fmt::Write};

use prometheus_parse::{Scrape, Value};
use proptest::prelude::*;

use super::{PageLimits, PageLine, TextReader};

/// A series: name, labels, value as bits, timestamp.
type SeriesByKey = BTreeMap<(String, BTreeMap<String, String>), (u64, Option<i64>)>;

/// One bit pattern for each value; all NaNs map to one.
fn value_bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

fn parse_ours(page: &str) -> SeriesByKey {
    let mut reader = TextReader::new(page.as_bytes(), &PageLimits::default());
    let mut series = SeriesByKey::new();
    while let Some(line) = reader.next() {
        if let PageLine::Sample(sample) = line.unwrap() {
            let label = |label: &super::SeriesLabel<'_>| {
                (label.name.to_owned(), label.unescaped_value().into_owned())
            };
            let labels = sample.labels.iter().map(label).collect();
            series.insert(
                (sample.name.to_owned(), labels),
                (value_bits(sample.value), sample.timestamp),
            );
        }
    }
    series
}

/// The result of prometheus-parse. It fills in its own clock where the page has no timestamp, hence `stamped`.
fn parse_theirs(page: &str, stamped: bool) -> SeriesByKey {
    let scrape = Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let convert = |sample: prometheus_parse::Sample| {
        let (Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value)) = sample.value
        else {
            panic!("no histograms here")
        };
        let labels = sample.labels.iter().map(|(name, value)| (name.clone(), value.clone()));
        let timestamp = stamped.then(|| sample.timestamp.timestamp_millis());
        ((sample.metric, labels.collect()), (value_bits(value), timestamp))
    };
    scrape.samples.into_iter().map(convert).collect()
}

#[test]
fn readers_agree_on_pages_of_real_exporters() {
    for page in [
        include_str!("../../../../tests/fixtures/scrapes/dcgm.prom"),
        include_str!("../../../../tests/fixtures/scrapes/short.prom"),
        include_str!("../../../../tests/fixtures/scrapes/node_infiniband.prom"),
    ] {
        let own = parse_ours(page);
        assert!(own.len() > 50);
        assert_eq!(own, parse_theirs(page, false));
    }
}

fn any_number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>().prop_map(|value| if value.is_nan() {
            "NaN".into()
        } else {
            format!("{value:e}")
        }),
        "[+-]?[0-9]{1,12}\\.[0-9]{1,12}",
        Just("+Inf".to_owned()),
        Just("-Inf".to_owned()),
    ]
}

/// A page of distinct series: every line has its own name.
fn any_page() -> impl Strategy<Value = (String, bool)> {
    let label = ("[a-z_][a-z0-9_]{0,8}", "[ -!#-+.-<>-\\[\\]-z|~é東]{0,12}");
    let labels = prop::collection::btree_map(label.0, label.1, 1..6);
    let line = (prop::option::of(labels), any_number(), 0_i64..4_000_000_000_000);
    (prop::collection::vec(line, 1..20), any::<bool>()).prop_map(|(lines, stamped)| {
        let mut page = String::new();
        for (index, (labels, value, time)) in lines.into_iter().enumerate() {
            write!(page, "name_{index}").unwrap();
            if let Some(labels) = labels {
                let labels = labels.iter().map(|(name, value)| format!("{name}=\"{value}\""));
                write!(page, "{{{}}}", labels.collect::<Vec<_>>().join(",")).unwrap();
            }
            write!(page, " {value}").unwrap();
            if stamped {
                write!(page, " {time}").unwrap();
            }
            page.push('\n');
        }
        (page, stamped)
    })
}

proptest! {
    #[test]
    fn readers_agree_on_pages_that_both_can_read((page, stamped) in any_page()) {
        prop_assert_eq!(parse_ours(&page), parse_theirs(&page, stamped), "{}", page);
    }
}
