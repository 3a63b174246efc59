//! Lines that readers often get wrong, each with the expected result: a canonical sample, or the reject reason.
//!
//! promtool 2.42 accepts and rejects the same pages except: it rejects blanks after the value and a carriage
//! return, and it accepts duplicate series and a TYPE line without a type. The last line needs no line feed, as for
//! Prometheus's server: some exporters omit it, and the transfer shows whether a page is whole.

use super::{PageLimits, PageLine, TextReader};

/// Reads a page; every line with content becomes a canonical line or its reject reason.
fn parse_lines(page: &[u8], limits: &PageLimits) -> Vec<String> {
    let mut reader = TextReader::new(page, limits);
    let mut lines = Vec::new();
    while let Some(line) = reader.next() {
        lines.push(match line {
            Ok(PageLine::Sample(sample)) => {
                let labels = sample.labels.iter();
                let labels =
                    labels.map(|label| format!("{}={:?}", label.name, label.unescaped_value()));
                let labels = labels.collect::<Vec<_>>().join(",");
                let timestamp =
                    sample.timestamp.map(|timestamp| format!(" @{timestamp}")).unwrap_or_default();
                format!("{}[{labels}] {}{timestamp}", sample.name, sample.value)
            }
            Ok(PageLine::Help { name, text }) => format!("help {name}: {text}"),
            Ok(PageLine::Type { name, kind }) => format!("type {name}: {kind}"),
            Err(reject) => format!("{} {}", reject.line, reject.reason.as_str()),
        });
    }
    lines
}

/// Each row: the page, and the expected lines.
const CASES: &[(&str, &[&str])] = &[
    // Plain samples and blanks.
    ("a 1", &["a[] 1"]),
    ("a\t1\t\n", &["a[] 1"]),
    ("  a   1  ", &["a[] 1"]),
    ("a 1\r\nb 2\r\n", &["a[] 1", "b[] 2"]),
    ("a 1\n\n \t\nb 2", &["a[] 1", "b[] 2"]),
    ("a{} 1", &["a[] 1"]),
    ("a { } 1", &["a[] 1"]),
    ("a{b=\"c\"}1", &["a[b=\"c\"] 1"]),
    ("a {b=\"c\"} 1", &["a[b=\"c\"] 1"]),
    ("a{ b = \"c\" , d = \"e\" } 1", &["a[b=\"c\",d=\"e\"] 1"]),
    ("a{b=\"c\",} 1", &["a[b=\"c\"] 1"]),
    ("a{b=\"\"} 1", &["a[b=\"\"] 1"]),
    ("job:a:rate5m 1", &["job:a:rate5m[] 1"]),
    (":a 1", &[":a[] 1"]),
    ("_9 1", &["_9[] 1"]),
    // The content of a value is text.
    ("a{b=\"x,y\"} 1", &["a[b=\"x,y\"] 1"]),
    ("a{b=\"x=y\"} 1", &["a[b=\"x=y\"] 1"]),
    ("a{b=\"x}y{\"} 1", &["a[b=\"x}y{\"] 1"]),
    ("a{b=\"# no comment\"} 1", &["a[b=\"# no comment\"] 1"]),
    ("a{b=\"größe 東京\"} 1", &["a[b=\"größe 東京\"] 1"]),
    ("a{b=\"\\\\ \\\" \\n\"} 1", &["a[b=\"\\\\ \\\" \\n\"] 1"]),
    ("a{b=\"\\\"q\\\"\"} 1", &["a[b=\"\\\"q\\\"\"] 1"]),
    ("a{b=\"c\\\\\"} 1", &["a[b=\"c\\\\\"] 1"]),
    // Values and timestamps.
    ("a NaN\nb +Inf\nc -Inf\nd inf", &["a[] NaN", "b[] inf", "c[] -inf", "d[] inf"]),
    ("a -1.5e-3\nb 1E6\nc .5\nd 5.", &["a[] -0.0015", "b[] 1000000", "c[] 0.5", "d[] 5"]),
    ("a 9.223372036854775807e18", &["a[] 9223372036854776000"]),
    ("a 1 1395066363000", &["a[] 1 @1395066363000"]),
    ("a 1 -3982045", &["a[] 1 @-3982045"]),
    ("a 1\t7\t", &["a[] 1 @7"]),
    ("a 0x1p3", &["1 bad_value"]),
    ("a 1_000", &["1 bad_value"]),
    ("a 1e999", &["1 bad_value"]),
    ("a one", &["1 bad_value"]),
    ("a 1 2 3", &["1 bad_timestamp"]),
    ("a 1 2.5", &["1 bad_timestamp"]),
    ("a 1 99999999999999999999", &["1 bad_timestamp"]),
    ("a 1 # {trace=\"x\"} 0.5", &["1 bad_timestamp"]),
    ("a", &["1 no_value"]),
    ("a ", &["1 no_value"]),
    ("a{b=\"c\"}", &["1 no_value"]),
    // Names.
    ("9a 1", &["1 bad_name"]),
    ("größe 1", &["1 bad_name"]),
    ("a-b 1", &["1 bad_name"]),
    ("{a=\"b\"} 1", &["1 bad_name"]),
    ("<html>", &["1 bad_name"]),
    ("a.b 1\nc 2", &["1 bad_name", "c[] 2"]),
    // Labels.
    ("a{b} 1", &["1 bad_label"]),
    ("a{b=c} 1", &["1 bad_label"]),
    ("a{b='c'} 1", &["1 bad_label"]),
    ("a{9=\"c\"} 1", &["1 bad_label"]),
    ("a{b:c=\"d\"} 1", &["1 bad_label"]),
    ("a{,} 1", &["1 bad_label"]),
    ("a{b=\"c\",,} 1", &["1 bad_label"]),
    ("a{b=\"c\" d=\"e\"} 1", &["1 bad_label"]),
    ("a{__name__=\"b\"} 1", &["1 bad_label"]),
    ("a{b=\"\\t\"} 1", &["1 bad_escape"]),
    ("a{b=\"c", &["1 unclosed_label"]),
    ("a{b=\"c\\", &["1 unclosed_label"]),
    ("a{b=\"c\"", &["1 unclosed_label"]),
    ("a{b=\"two\nlines\"} 1", &["1 unclosed_label", "2 bad_name"]),
    ("a{b=\"1\",b=\"2\"} 1", &["1 duplicate_label"]),
    // Duplicate series: the order of labels and an empty label make no difference.
    ("a 1\na 2", &["a[] 1", "2 duplicate_series"]),
    (
        "a{b=\"1\",c=\"2\"} 1\na{c=\"2\", b=\"1\"} 2",
        &["a[b=\"1\",c=\"2\"] 1", "2 duplicate_series"],
    ),
    ("a{b=\"\"} 1\na 2", &["a[b=\"\"] 1", "2 duplicate_series"]),
    (
        "a{b=\"1\",c=\"2\"} 1\na{b=\"2\",c=\"1\"} 2",
        &["a[b=\"1\",c=\"2\"] 1", "a[b=\"2\",c=\"1\"] 2"],
    ),
    ("a{b=\"c\"} 1\na{bc=\"\"} 2", &["a[b=\"c\"] 1", "a[bc=\"\"] 2"]),
    ("a{b=\"cd\"} 1\na{bc=\"d\"} 2", &["a[b=\"cd\"] 1", "a[bc=\"d\"] 2"]),
    ("a x\na 1", &["1 bad_value", "a[] 1"]),
    ("a 1 5\na 2 6", &["a[] 1 @5", "2 duplicate_series"]),
    // Comments, HELP and TYPE.
    ("# any text\n#\n#HELP a b\n# HELPER a b\na 1", &["help a: b", "a[] 1"]),
    ("# EOF\na 1", &["a[] 1"]),
    ("# HELP a b \\\\ \\n c", &["help a: b \\\\ \\n c"]),
    ("# HELP a", &["help a: "]),
    ("# HELP a \\q", &["1 bad_help"]),
    ("# HELP a end\\", &["1 bad_help"]),
    ("# HELP 9 b", &["1 bad_name"]),
    ("# HELP a b\n# HELP a c", &["help a: b", "2 help_repeated"]),
    ("#\tTYPE\ta\tgauge", &["type a: gauge"]),
    ("# TYPE a info", &["1 bad_type"]),
    ("# TYPE a", &["1 bad_type"]),
    ("# TYPE a gauge gauge", &["1 bad_type"]),
    ("# TYPE a gauge\n# TYPE a counter", &["type a: gauge", "2 type_repeated"]),
    ("# HELP \n# TYPE\n#\tHELP\t\na 1", &["a[] 1"]),
    ("# HELP a\n# HELP a \n# HELP a b", &["help a: ", "help a: ", "help a: b"]),
    // Bounds of buckets and quantiles, of names that have such a type.
    (
        "# TYPE a histogram\na_bucket{le=\"x\"} 1\na_bucket{le=\"+Inf\"} 1\na_bucket{le=\"\"} 1\na_sum{le=\"x\"} 1",
        &[
            "type a: histogram",
            "2 bad_bound",
            "a_bucket[le=\"+Inf\"] 1",
            "4 bad_bound",
            "a_sum[le=\"x\"] 1",
        ],
    ),
    (
        "# TYPE a summary\na{quantile=\"0.5\"} 1\na{quantile=\"half\"} 1\na_count 1",
        &["type a: summary", "a[quantile=\"0.5\"] 1", "3 bad_bound", "a_count[] 1"],
    ),
    ("a_bucket{le=\"x\"} 1\na{quantile=\"x\"} 1", &["a_bucket[le=\"x\"] 1", "a[quantile=\"x\"] 1"]),
    ("# TYPE a gauge\na{quantile=\"x\"} 1", &["type a: gauge", "a[quantile=\"x\"] 1"]),
    ("a 1\nb 1\n# TYPE a gauge", &["a[] 1", "b[] 1", "3 type_after_samples"]),
];

#[test]
fn malformed_cases_have_expected_results() {
    for (page, expected) in CASES {
        assert_eq!(parse_lines(page.as_bytes(), &PageLimits::default()), *expected, "{page:?}");
    }
}

#[test]
fn non_utf_8_line_affects_only_itself() {
    let page = b"a 1\nb{c=\"\xff\"} 2\n# \xc3\nd 3\ne{f=\"\xc3\"} 4";
    let expected = ["a[] 1", "2 not_utf8", "3 not_utf8", "d[] 3", "5 not_utf8"];
    assert_eq!(parse_lines(page, &PageLimits::default()), expected);
}

#[test]
fn limits_hold_at_their_edges() {
    let limits = PageLimits {
        line_bytes: 24,
        labels: 2,
        samples: 3,
        name_bytes: 6,
        value_bytes: 4,
        ..PageLimits::default()
    };
    let page = "sixsix 1\nsevenns 1\na{sevenns=\"1\"} 1\na{b=\"1234\"} 1\na{b=\"12345\"} 1\n\
                a{b=\"1\",c=\"2\",d=\"3\"} 1\na{b=\"1\",c=\"2\"}         1\n\
                a{b=\"1\",c=\"2\"}          1\na 4\n# HELP sevenns b\n";
    let expected = [
        "sixsix[] 1",
        "2 name_too_long",
        "3 name_too_long",
        "a[b=\"1234\"] 1",
        "5 label_too_long",
        "6 too_many_labels",
        "a[b=\"1\",c=\"2\"] 1",
        "8 line_too_long",
        "9 too_many_samples",
        "10 name_too_long",
    ];
    assert_eq!(parse_lines(page.as_bytes(), &limits), expected);
}
