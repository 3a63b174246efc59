//! Valid pages of OpenMetrics, and the reasons why others are rejected.

use proptest::prelude::*;

use super::{super::PageLimits, decode_open_metrics, is_open_metrics};
use crate::{
    Device, Dialect, Reading, Report, ScrapeFailure, ScrapedPage,
    catalogue::{gpu, gpu_health, host},
    text::{CompatOptions, ExpositionFormat, write_page},
};

fn decode_text(page: &str) -> Result<ScrapedPage, String> {
    decode_open_metrics(page.as_bytes(), &PageLimits::default()).map_err(|failure| match failure {
        ScrapeFailure::NotAPage(why) => why.to_string(),
        other => panic!("{other:?}"),
    })
}

/// A page after the example of the specification: every type, units, exemplars, timestamps.
const WHOLE: &str = "# TYPE acme_http_router_request_seconds summary\n\
# UNIT acme_http_router_request_seconds seconds\n\
# HELP acme_http_router_request_seconds Latency though all of ACME's HTTP request router.\n\
acme_http_router_request_seconds{path=\"/api/v1\",quantile=\"0.5\"} 0.1\n\
acme_http_router_request_seconds_sum{path=\"/api/v1\",method=\"GET\"} 9036.32\n\
acme_http_router_request_seconds_count{path=\"/api/v1\",method=\"GET\"} 807283.0\n\
acme_http_router_request_seconds_created{path=\"/api/v1\",method=\"GET\"} 1605281325.0\n\
# TYPE go_goroutines gauge\n\
# HELP go_goroutines Number of goroutines that currently exist.\n\
go_goroutines 69\n\
# TYPE process_cpu_seconds counter\n\
# UNIT process_cpu_seconds seconds\n\
process_cpu_seconds_total 4.20072246e+06\n\
process_cpu_seconds_created 1600000000.5\n\
# TYPE foo histogram\n\
foo_bucket{le=\"0.01\"} 0\n\
foo_bucket{le=\"1.0\"} 11 # {trace_id=\"KOO5S4vxi0o\"} 0.67\n\
foo_bucket{le=\"+Inf\"} 17 # {trace_id=\"oHg5SJYRHA0\"} 9.8 1520879607.789\n\
foo_count 17\n\
foo_sum 324789.3\n\
foo_created 1520430000.123\n\
# TYPE size gaugehistogram\n\
size_bucket{le=\"+Inf\"} 4\n\
size_gcount 4\n\
size_gsum 1\n\
# TYPE state stateset\n\
state{state=\"a\"} 1\n\
state{state=\"b\"} 0\n\
# TYPE build info\n\
build_info{version=\"8.2\\n\\\"x\\\"\"} 1\n\
# TYPE odd unknown\n\
odd{a=\"1\"} 1 1\n\
odd{a=\"1\"} 2 2.5\n\
node_load1 0.5\n\
# EOF\n";

#[test]
fn openmetrics_types_are_all_read() {
    let page = decode_text(WHOLE).unwrap();
    assert_eq!(page.report.find_reading(&Device::new_node(), host::LOAD), Some(0.5.into()));
    decode_text(WHOLE.trim_end()).expect("the last line feed may be missing");
}

/// A page of the same lines with one of them replaced.
fn error_with_replaced(old: &str, new: &str) -> String {
    assert!(WHOLE.contains(old), "{old}");
    decode_text(&WHOLE.replacen(old, new, 1)).expect_err(new)
}

/// A line of the page, its replacement, and the expected error.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("# EOF\n", "", "no `# EOF` at the end"),
    ("# EOF\n", "# EOF\ngo_goroutines 1\n", "content after `# EOF`"),
    ("# EOF\n", "# EOF\n\n", "content after `# EOF`"),
    ("go_goroutines 69\n", "go_goroutines 69\n\n", "blank line"),
    ("go_goroutines 69\n", "go_goroutines 69\r\n", "is not a number"),
    ("go_goroutines 69\n", "go_goroutines  69\n", "by one blank"),
    ("go_goroutines 69\n", "go_goroutines 69 \n", "by one blank"),
    ("go_goroutines 69\n", "go_goroutines\t69\n", "by one blank"),
    ("go_goroutines 69\n", "go_goroutines{} 69 nan\n", "not a timestamp"),
    ("go_goroutines 69\n", "go_goroutines 69 1 2\n", "by one blank"),
    ("go_goroutines 69\n", "go_goroutines x\n", "`x` is not a number"),
    ("go_goroutines 69\n", "go_goroutines 69\ngo_goroutines 70\n", "duplicate series"),
    (
        "go_goroutines 69\n",
        "go_goroutines 69 2\ngo_goroutines 70 1\n",
        "none before the previous one",
    ),
    ("go_goroutines 69\n", "go_goroutines 69 # {a=\"b\"} 1\n", "exemplar on go_goroutines"),
    ("go_goroutines 69\n", "go_goroutines{a=\"b\",} 69\n", "labels are not"),
    ("go_goroutines 69\n", "go_goroutines{a=\"b\" } 69\n", "labels are not"),
    ("go_goroutines 69\n", "go_goroutines{ a=\"b\"} 69\n", "is not a valid name"),
    ("go_goroutines 69\n", "go_goroutines{a=\"b\",a=\"c\"} 69\n", "duplicate label a"),
    ("go_goroutines 69\n", "go_goroutines{a=\"b} 69\n", "labels are not"),
    ("go_goroutines 69\n", "go_goroutines 69\n# just a comment\n", "is not HELP"),
    ("go_goroutines 69\n", "go_goroutines 69\n#HELP a b\n", "is not HELP"),
    (
        "go_goroutines 69\n",
        "go_goroutines 69\n# HELP go_goroutines late\n",
        "HELP of go_goroutines after its samples",
    ),
    (
        "# TYPE go_goroutines gauge\n",
        "# TYPE go_goroutines gauge\n# TYPE go_goroutines gauge\n",
        "second TYPE",
    ),
    (
        "# TYPE go_goroutines gauge\n",
        "# TYPE go_goroutines untyped\n",
        "has the invalid type `untyped`",
    ),
    ("# TYPE go_goroutines gauge\n", "# TYPE go_goroutines counter\n", "must end in _total"),
    (
        "go_goroutines 69\n",
        "go_goroutines 69\n# UNIT x_bytes seconds\n",
        "does not end in its unit",
    ),
    ("process_cpu_seconds_total 4", "process_cpu_seconds_total -4", "not below zero"),
    ("process_cpu_seconds_total 4.20072246e+06", "process_cpu_seconds_total NaN", "not below zero"),
    ("process_cpu_seconds_total 4", "go_goroutines{a=\"b\"} 4", "go_goroutines is interleaved"),
    (
        "process_cpu_seconds_created 1600000000.5\n",
        "# TYPE process_cpu_seconds_total gauge\nprocess_cpu_seconds_total{a=\"b\"} 1\n",
        "share a sample name",
    ),
    ("foo_bucket{le=\"0.01\"} 0\n", "foo_bucket 0\n", "foo_bucket has no label le"),
    ("foo_bucket{le=\"0.01\"} 0\n", "foo_bucket{le=\"0.01\"} 12\n", "are not in order"),
    ("foo_bucket{le=\"0.01\"} 0\n", "foo_bucket{le=\"5\"} 0\n", "are not in order"),
    (
        "foo_bucket{le=\"+Inf\"} 17 # {trace_id=\"oHg5SJYRHA0\"} 9.8 1520879607.789\n",
        "",
        "do not end at le",
    ),
    ("foo_bucket{le=\"+Inf\"} 17", "foo_bucket{le=\"inf\"} 17", "do not end at le"),
    ("foo_bucket{le=\"+Inf\"} 17", "foo_bucket{le=\"+Inf\"} 18", "the count of foo differs"),
    ("foo_count 17\n", "", "has a sum without a count, or a count without a sum"),
    ("foo_sum 324789.3\n", "", "has a sum without a count, or a count without a sum"),
    ("foo_sum 3", "foo_sum -3", "not below zero"),
    ("foo_sum 324789.3", "foo_sum NaN", "not below zero"),
    ("foo_bucket{le=\"0.01\"}", "foo_bucket{le=\"-1\"}", "foo has buckets below zero and a sum"),
    ("size_gcount 4\n", "", "has a sum without a count, or a count without a sum"),
    ("size_gcount 4", "size_gcount 3", "the count of size differs"),
    ("size_gsum 1", "size_gsum -1", "the sum of size is below zero"),
    ("size_gsum 1", "size_gsum NaN", "not below zero"),
    ("size_bucket{le=\"+Inf\"} 4\n", "size_bucket{le=\"-1\"} 2\nsize_bucket{le=\"+Inf\"} 4\n", ""),
    (
        "seconds_sum{path=\"/api/v1\",method=\"GET\"} 9",
        "seconds_sum{path=\"/api/v1\",method=\"GET\"} -9",
        "not below zero",
    ),
    (
        "quantile=\"0.5\"} 0.1",
        "quantile=\"0.5\"} -0.1",
        "a value at a quantile must not be below zero",
    ),
    ("quantile=\"0.5\"} 0.1", "quantile=\"0.5\"} NaN", ""),
    ("foo_count 17", "foo_total 17\nfoo_count 17", "foo is interleaved"),
    ("state{state=\"a\"} 1", "state{state=\"a\"} 2", "a state must be 0 or 1"),
    ("state{state=\"a\"} 1", "state{other=\"a\"} 1", "has no label state"),
    ("# TYPE state stateset\n", "# TYPE state stateset\n# UNIT state \n", ""),
    ("build_info{version", "build{version", "a sample with an invalid suffix"),
    ("\"8.2\\n\\\"x\\\"\"} 1", "\"8.2\"} 3", "an info must be 1"),
    ("quantile=\"0.5\"", "quantile=\"1.5\"", "a number from 0 to 1"),
    ("# {trace_id=\"KOO5S4vxi0o\"} 0.67", "# {trace_id=\"KOO5S4vxi0o\"}", "by one blank"),
    ("# {trace_id=\"KOO5S4vxi0o\"} 0.67", "# 0.67", "labels are not"),
];

#[test]
fn openmetrics_violations_are_reported() {
    let mut mismatches = Vec::new();
    for (old, new, why) in FORBIDDEN {
        if why.is_empty() {
            decode_text(&WHOLE.replacen(old, new, 1)).expect(new);
        } else {
            let error = error_with_replaced(old, new);
            if !error.contains(why) {
                mismatches.push(format!("{new:?}: {error}, not {why}"));
            }
        }
    }
    assert!(mismatches.is_empty(), "{mismatches:#?}");
    let long = format!("# {{trace_id=\"{}\"}} 0.67", "x".repeat(121));
    let error = error_with_replaced("# {trace_id=\"KOO5S4vxi0o\"} 0.67", &long);
    assert_eq!(
        error,
        "not OpenMetrics: line 17: exemplar of 129 characters, over the limit of 128"
    );
}

/// Clients append `_total` to counters that lack it in the text format.
#[test]
fn counter_is_recognised_by_name_in_text_format() {
    let page = "# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter\n\
                DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total{gpu=\"0\"} 5\n\
                DCGM_FI_DEV_PCIE_REPLAY_COUNTER_created{gpu=\"0\"} 1600000000.5\n\
                # TYPE node_pressure_cpu_waiting_seconds counter\n\
                node_pressure_cpu_waiting_seconds_total 7\n\
                # TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 40 1.5\n# EOF\n";
    let report = decode_text(page).unwrap().report;
    let gpu0 = Device::new_gpu(0);
    assert_eq!(report.find_reading(&gpu0, gpu_health::PCIE_REPLAYS), Some(5.0.into()));
    assert_eq!(report.find_reading(&Device::new_node(), host::CPU_PRESSURE), Some(7.0.into()));
    assert_eq!(report.find_reading(&gpu0, gpu::TEMPERATURE), Some(40.0.into()));
    assert_eq!(report.samples.len(), 3);
    // A gauge with this suffix is not a counter of another name.
    let gauge = "# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total gauge\n\
                 DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total{gpu=\"0\"} 5\nnode_load1 1\n# EOF\n";
    assert_eq!(decode_text(gauge).unwrap().report.samples.len(), 1);
}

#[test]
fn metrics_of_a_family_must_be_adjacent() {
    let page = "# TYPE a histogram\na_bucket{x=\"1\",le=\"+Inf\"} 1\na_bucket{x=\"2\",le=\"+Inf\"} 1\na_count{x=\"1\"} 1\n# EOF\n";
    assert!(decode_text(page).unwrap_err().contains("samples of one metric of a are interleaved"));
    assert_eq!(
        decode_text("a 1\n\u{feff}b 1\n# EOF\n").unwrap_err(),
        "not OpenMetrics: line 2: `\u{fffd}b 1` is not a valid name"
    );
}

/// The specification allows both: an exporter may have nothing to report, and points at one time.
#[test]
fn openmetrics_page_without_samples_is_a_page() {
    for page in ["# EOF\n", "# TYPE a counter\n# HELP a \u{0}\n# UNIT b \n# EOF\n"] {
        let page = decode_text(page).unwrap();
        assert!(page.report.samples.is_empty());
        assert_eq!((page.dialect, page.rejected.by_reason.len()), (Dialect::Unknown, 0));
    }
    // As text, a page of comments is an error page: nothing marks its end.
    assert!(crate::text::decode_page(b"# EOF\n", &PageLimits::default()).is_err());
}

#[test]
fn openmetrics_points_at_one_time_are_read() {
    let page = "# TYPE node_load1 gauge\nnode_load1 1 5\nnode_load1 2 5\nnode_load1 3 5.5\n# EOF\n";
    let report = decode_text(page).unwrap().report;
    assert_eq!(report.find_reading(&Device::new_node(), host::LOAD), Some(1.0.into()));
}

#[test]
fn openmetrics_histogram_points_are_checked_one_by_one() {
    let point = |time: &str, count: u32| {
        format!(
            "a_bucket{{le=\"1\"}} 1 {time}\na_bucket{{le=\"+Inf\"}} 2 {time}\na_count {count} {time}\na_sum 3 {time}\n"
        )
    };
    let page = |second: u32| {
        format!("# TYPE a histogram\n{}{}a_created 0\n# EOF\n", point("1", 2), point("2", second))
    };
    decode_text(&page(2)).unwrap();
    let error = decode_text(&page(3)).unwrap_err();
    assert_eq!(
        error,
        "not OpenMetrics: line 11: the count of a differs from its bucket le=\"+Inf\""
    );
    let no_bucket = decode_text("# TYPE a histogram\na_count 1\na_sum 1\n# EOF\n").unwrap_err();
    assert!(no_bucket.contains("the buckets of a do not end at le=\"+Inf\""), "{no_bucket}");
}

#[test]
fn openmetrics_limits_hold() {
    let limits = PageLimits { samples: 1, ..PageLimits::default() };
    let error = decode_open_metrics(b"a 1\nb 1\n# EOF\n", &limits).unwrap_err();
    assert!(error.to_string().contains("more samples than the limit of 1"), "{error}");
    let limits = PageLimits { body_bytes: 5, ..PageLimits::default() };
    assert_eq!(
        decode_open_metrics(b"a 1\n# EOF\n", &limits).unwrap_err(),
        ScrapeFailure::TooLarge(5)
    );
}

#[test]
fn media_type_selects_openmetrics() {
    for (media_type, expected) in [
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", true),
        ("Application/OpenMetrics-Text", true),
        ("text/plain; version=0.0.4", false),
        ("", false),
    ] {
        assert_eq!(is_open_metrics(media_type), expected, "{media_type}");
        // Without its end the page is complete as text and truncated as OpenMetrics.
        let layouts = crate::text::TemplateCache::default();
        let mut state = crate::text::TemplateState::default();
        let read =
            layouts.decode_as(media_type, &mut state, b"node_load1 1\n", &PageLimits::default());
        assert_eq!(read.is_err(), expected, "{media_type}");
    }
}

#[test]
fn own_pages_read_the_same_in_both_formats() {
    let mut report = Report { node: Some("a".into()), ..Report::default() };
    let gpu = report.ensure_device(Device::new_gpu(0));
    report.add_info(gpu, gpu::INFO, &[("uuid", "GPU-1"), ("model", "a \"b\" \\ c")]);
    for (metric, value) in [(gpu::POWER, 301.5), (gpu::ENERGY, 1e9), (gpu::CLOCK_EVENT_IDLE, 1.0)] {
        report.push(gpu, metric, value);
    }
    report.push(gpu, gpu::TEMPERATURE, Reading::new_absent(crate::AbsenceReason::Lost));
    let mut page = String::new();
    write_page(&report, ExpositionFormat::OpenMetrics, CompatOptions::default(), &mut page);
    let decoded = decode_text(&page).unwrap_or_else(|why| panic!("{why}\n{page}")).report;
    for sample in &report.samples {
        assert_eq!(decoded.find_reading(&Device::new_gpu(0), sample.metric), Some(sample.reading));
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), offset in 0..WHOLE.len()) {
        let _ = decode_open_metrics(&bytes, &PageLimits::default());
        let mut page = WHOLE.as_bytes().to_vec();
        page.splice(offset..(offset + bytes.len() / 20).min(page.len()), bytes.iter().copied().take(4));
        let _ = decode_open_metrics(&page, &PageLimits::default());
    }
}
