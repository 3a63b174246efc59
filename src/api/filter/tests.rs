//! Tests of the filter language against a row-by-row evaluator, and of its error messages.

use gaunt_schema::{SanitizedText, catalogue::gpu, natural_order};
use proptest::prelude::*;

use super::*;
use crate::field::{BuiltinField, FieldKey};

/// One GPU with the fields that these tests filter by.
#[derive(Clone, Debug)]
struct FilterTestRow {
    power: Option<f64>,
    node: &'static str,
    job: Option<&'static str>,
    rails: Vec<&'static str>,
}

impl RowSource for Vec<FilterTestRow> {
    fn len(&self) -> usize {
        <[FilterTestRow]>::len(self)
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let is_load = key == FieldKey::Builtin(BuiltinField::Load);
        assert!(is_load || key == FieldKey::Metric(gpu::POWER));
        rows.iter().map(|row| self[*row as usize].power.unwrap_or(f64::NAN)).collect()
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let (mut texts, mut starts) = (TextColumn::default(), vec![0]);
        for row in rows.iter().map(|row| &self[*row as usize]) {
            let words: Vec<&str> = match key {
                FieldKey::Builtin(BuiltinField::Node) => vec![row.node],
                FieldKey::Builtin(BuiltinField::Job) => row.job.into_iter().collect(),
                FieldKey::Builtin(BuiltinField::Leaf) => row.rails.clone(),
                other => panic!("{other:?}"),
            };
            for word in words {
                let known = texts.words.iter().position(|known| *known == word);
                let code = known.unwrap_or(texts.words.len());
                if known.is_none() {
                    texts.words.push(SanitizedText::new(word));
                }
                texts.codes.push(code as u32);
            }
            starts.push(texts.codes.len() as u32);
        }
        TextColumn { starts: Some(starts), ..texts }
    }
}

fn test_rows() -> Vec<FilterTestRow> {
    let row = |power, node, job, rails: &[&'static str]| FilterTestRow {
        power,
        node,
        job,
        rails: rails.to_vec(),
    };
    vec![
        row(Some(700.0), "gpu10", Some("8812"), &["0", "1"]),
        row(None, "gpu2", Some("8812"), &[]),
        row(Some(90.0), "gpu2", None, &["1"]),
        row(Some(-0.0), "gpu1", Some("99"), &["2"]),
    ]
}

fn select_gpus(text: &str) -> Vec<u32> {
    select_rows(&Filter::parse(Subject::Gpus, text).unwrap(), &test_rows(), USUAL_ROWS).rows
}

#[test]
fn filter_selects_matching_rows_and_never_absent_values() {
    for (text, expected) in [
        ("", &[0, 1, 2, 3][..]),
        ("job=8812", &[0, 1]),
        ("job!=8812", &[3]),
        ("not job=8812", &[3]),
        ("has job and not has power", &[1]),
        ("power<100W", &[2, 3]),
        ("not power<100W", &[0]),
        ("not (power<100W or job=8812)", &[]),
        ("not (power<100W and job=8812)", &[0, 3]),
        ("power<=0.7kW AND power>0 sort power", &[2, 0]),
        ("power=0", &[3]),
        ("node>=gpu2", &[0, 1, 2]),
        ("node~'GPU?'", &[1, 2, 3]),
        ("node~1", &[0, 3]),
        ("node!~1 or job=99", &[1, 2, 3]),
        ("job=8812,99 sort job", &[3, 0, 1]),
        ("leaf=1", &[0, 2]),
        ("leaf!=1", &[3]),
        ("sort power desc", &[0, 2, 3, 1]),
        ("sort power", &[3, 2, 0, 1]),
        ("sort node desc, power", &[0, 2, 1, 3]),
        ("sort power desc limit 2 offset 1", &[2, 3]),
        ("limit 1", &[0]),
        ("offset 9", &[]),
    ] {
        assert_eq!(select_gpus(text), expected, "{text}");
    }
    let all = Filter::parse(Subject::Gpus, "limit 1").unwrap();
    assert_eq!(
        select_rows(&all, &test_rows(), USUAL_ROWS).matched,
        4,
        "a limit does not change what matches"
    );
}

#[test]
fn ports_of_equal_shown_load_keep_the_order_of_their_names() {
    let row = |power| FilterTestRow { power, node: "gpu1", job: None, rails: Vec::new() };
    let rows = vec![row(Some(0.138)), row(None), row(Some(0.142)), row(Some(0.2))];
    let filter = Filter::parse(Subject::Ports, "sort load desc").unwrap();
    assert_eq!(select_rows(&filter, &rows, USUAL_ROWS).rows, [3, 0, 2, 1], "14 % twice");
}

#[test]
fn filter_errors_name_the_column_and_suggest_a_word() {
    let deep = format!("{}has job{}", "(".repeat(40), ")".repeat(40));
    for (text, column, message) in [
        ("powr>300", 1, "gpus have no field powr; did you mean power?"),
        ("job=1 and victims>3", 11, "gpus have no field victims; findings have it"),
        ("wibble=1", 1, "gpus have no field wibble; `gaunt metrics` lists the metric names"),
        ("power>10GB", 9, "GB is not a unit of power; it is a power, such as 300W or 1.2kW"),
        ("power>10 GB", 10, "GB is not a unit of power; it is a power, such as 300W or 1.2kW"),
        ("power>high", 7, "high is not a number; power is a power, such as 300W or 1.2kW"),
        ("power~3", 6, "power is a number; ~ matches text; use = != < <= > >="),
        (
            "power",
            6,
            "expected a comparison: = != < <= > >= ~ !~, found end of filter; has power tests \
             whether a value exists",
        ),
        ("power>1 job=2", 9, "job is not a unit of power; it is a power, such as 300W or 1.2kW"),
        ("node=a job=2", 8, "expected and, or, sort, limit, offset or columns, found job"),
        (
            "(node=a",
            8,
            "expected and, or or ), found end of filter; close the parenthesis at column 1",
        ),
        ("state=waitng", 7, "state is never waitng; did you mean waiting?"),
        ("node=a and", 11, "expected a field, found end of filter"),
        ("power>1,2", 8, "> takes one value; only = != ~ !~ take a list"),
        ("node~gpu[1", 6, "unclosed bracket; a pattern may contain * ? and [a-z]"),
        ("limit 0", 7, "expected a whole number from 1 to 131072, found 0"),
        ("sort node sort node", 11, "sort is given twice"),
        ("columns node, node", 15, "node is already a column"),
        (&deep, 33, "more than 32 nested parentheses and nots"),
    ] {
        let error = Filter::parse(Subject::Gpus, text).unwrap_err();
        assert_eq!(error.to_string(), format!("column {column}: {message}"), "{text}");
    }
    let long = format!("node={}", "x".repeat(MAX_BYTES));
    let error = Filter::parse(Subject::Gpus, &long).unwrap_err();
    assert!(error.to_string().contains("too long; the maximum is 1024 bytes"), "{error}");
    let many = format!("node={}x", "x,".repeat(MAX_VALUES));
    assert!(Filter::parse(Subject::Gpus, &many).unwrap_err().to_string().contains("more than 128"));
}

#[test]
fn completion_offers_what_is_valid_at_the_cursor() {
    let jobs = |field: &SubjectField| match field.name.as_str() {
        "job" => vec!["8812".into(), "8840".into(), "llama pretrain".into()],
        _ => Vec::new(),
    };
    let offered = |text: &str| {
        let cursor = text.find('|').unwrap();
        let text = text.replace('|', "");
        let found = complete_filter(Subject::Gpus, &text, cursor, &jobs);
        let first = found.candidates.iter().take(3).map(|c| c.text.clone()).collect::<Vec<_>>();
        (found.from, first.join(" "))
    };
    for (text, from, candidates) in [
        ("sm_a|", 0, "sm_active sm_active_seconds_total sm_active_below_5_percent"),
        ("has tensor|", 4, "tensor_active tensor_active_seconds_total"),
        ("job|", 0, "job job_name"),
        ("job |", 4, "= != ~"),
        ("power |", 6, "< <= >"),
        ("job=88|12 and", 4, "8812 8840"),
        ("job=8812,|", 9, "8812 8840 \"llama pretrain\""),
        ("job=\"lla|", 4, "\"llama pretrain\""),
        ("state=wai|", 6, "waiting"),
        ("(state=waiting) |", 16, "and or sort"),
        ("job=8812 so|", 9, "sort"),
        ("sort power d|", 11, "desc"),
        ("limit |", 6, ""),
    ] {
        let (at, words) = offered(text);
        let first: Vec<_> = words.split(' ').take(candidates.split(' ').count()).collect();
        assert_eq!((at, first.join(" ").as_str()), (from, candidates), "{text}");
    }
}

/// A filter as a tree, with `not` where it is written.
#[derive(Clone, Debug)]
enum FilterTree {
    Compare(&'static str, &'static str, &'static str),
    Has(&'static str),
    Not(Box<FilterTree>),
    And(Box<FilterTree>, Box<FilterTree>),
    Or(Box<FilterTree>, Box<FilterTree>),
}

impl FilterTree {
    fn to_filter_text(&self) -> String {
        match self {
            Self::Compare(field, op, value) => format!("{field}{op}{value}"),
            Self::Has(field) => format!("has {field}"),
            Self::Not(inner) => format!("not ({})", inner.to_filter_text()),
            Self::And(a, b) => format!("({}) and ({})", a.to_filter_text(), b.to_filter_text()),
            Self::Or(a, b) => format!("({}) or ({})", a.to_filter_text(), b.to_filter_text()),
        }
    }

    /// Whether it holds for a row; none if a value is absent.
    fn evaluate_row(&self, row: &FilterTestRow) -> Option<bool> {
        match self {
            Self::Has(field) => Some(match *field {
                "power" => row.power.is_some(),
                "job" => row.job.is_some(),
                _ => true,
            }),
            Self::Not(inner) => inner.evaluate_row(row).map(|is_match| !is_match),
            Self::And(a, b) => match (a.evaluate_row(row), b.evaluate_row(row)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Or(a, b) => match (a.evaluate_row(row), b.evaluate_row(row)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Self::Compare("power", op, value) => {
                let value: f64 = value.trim_end_matches('W').parse().unwrap();
                row.power.map(|power| match *op {
                    "=" => power.total_cmp(&value).is_eq(),
                    "!=" => power.total_cmp(&value).is_ne(),
                    "<" => power < value,
                    "<=" => power <= value,
                    ">" => power > value,
                    _ => power >= value,
                })
            }
            Self::Compare(field, op, value) => {
                let text = if *field == "job" { row.job } else { Some(row.node) };
                text.map(|text| match *op {
                    "=" => text == *value,
                    "!=" => text != *value,
                    "~" => text.contains(value),
                    "!~" => !text.contains(value),
                    "<" => natural_order(text, value).is_lt(),
                    "<=" => natural_order(text, value).is_le(),
                    ">" => natural_order(text, value).is_gt(),
                    _ => natural_order(text, value).is_ge(),
                })
            }
        }
    }
}

fn filter_trees() -> impl Strategy<Value = FilterTree> {
    let text_ops = prop::sample::select(vec!["=", "!=", "~", "!~", "<", "<=", ">", ">="]);
    let number_ops = prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let names = prop::sample::select(vec!["gpu1", "gpu2", "gpu10", "8812", "9"]);
    let leaf = prop_oneof![
        (number_ops, prop::sample::select(vec!["0", "90W", "100", "700W"]))
            .prop_map(|(op, value)| FilterTree::Compare("power", op, value)),
        (prop::sample::select(vec!["node", "job"]), text_ops, names)
            .prop_map(|(field, op, value)| FilterTree::Compare(field, op, value)),
        prop::sample::select(vec!["power", "job", "node"]).prop_map(FilterTree::Has),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|tree| FilterTree::Not(Box::new(tree))),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| FilterTree::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner).prop_map(|(a, b)| FilterTree::Or(Box::new(a), Box::new(b))),
        ]
    })
}

fn any_row() -> impl Strategy<Value = FilterTestRow> {
    (
        prop::option::of(prop::sample::select(vec![0.0, 90.0, 100.0, 250.0, 700.0])),
        prop::sample::select(vec!["gpu1", "gpu2", "gpu10"]),
        prop::option::of(prop::sample::select(vec!["8812", "99", "9"])),
    )
        .prop_map(|(power, node, job)| FilterTestRow { power, node, job, rails: Vec::new() })
}

proptest! {
    #[test]
    fn column_evaluation_selects_the_same_rows_as_row_evaluation(
        tree in filter_trees(),
        rows in prop::collection::vec(any_row(), 0..20),
    ) {
        let filter = Filter::parse(Subject::Gpus, &tree.to_filter_text()).unwrap();
        let expected: Vec<u32> =
            (0..rows.len() as u32).filter(|at| tree.evaluate_row(&rows[*at as usize]) == Some(true)).collect();
        let found = select_rows(&filter, &rows, USUAL_ROWS);
        prop_assert_eq!(found.matched as usize, expected.len());
        prop_assert_eq!(found.rows, expected, "{}", tree.to_filter_text());
    }

    #[test]
    fn page_of_a_sorted_list_equals_that_part_of_the_whole(
        rows in prop::collection::vec(any_row(), 0..40),
        limit in 1_usize..10,
        offset in 0_usize..40,
    ) {
        let selected = |text: &str| select_rows(&Filter::parse(Subject::Gpus, text).unwrap(), &rows, MAX_ROWS).rows;
        let whole = selected("sort job, power desc");
        let absent = whole.iter().skip_while(|row| rows[**row as usize].job.is_some());
        prop_assert!(absent.into_iter().all(|row| rows[*row as usize].job.is_none()));
        let page = selected(&format!("sort job, power desc limit {limit} offset {offset}"));
        let expected: Vec<u32> = whole.into_iter().skip(offset).take(limit).collect();
        prop_assert_eq!(page, expected);
    }

    #[test]
    fn filter_parser_never_panics(text in "\\PC{0,60}", cursor in 0_usize..80) {
        for subject in Subject::ALL {
            if let Err(error) = Filter::parse(subject, &text) {
                prop_assert!(error.render_pointer().contains('^'));
            }
            complete_filter(subject, &text, cursor, &|_| vec!["a b".into()]);
        }
    }

    #[test]
    fn filter_parser_never_panics_on_almost_valid_filters(
        words in prop::collection::vec(prop::sample::select(vec![
            "power", "node", "(", ")", "and", "or", "not", "has", "=", "<", "~", "30", "%", "W", ",",
            "sort", "limit", "columns", "desc", "\"", "'x'", "gpu[", "*", "{", "}", "é",
        ]), 0..24),
    ) {
        let text = words.join(" ");
        if let Ok(filter) = Filter::parse(Subject::Gpus, &text) {
            let again = Filter::parse(Subject::Gpus, filter.source_text()).unwrap();
            prop_assert_eq!(&again, &filter);
            select_rows(&filter, &Vec::<FilterTestRow>::new(), USUAL_ROWS);
        }
        for cursor in 0..=text.len() {
            complete_filter(Subject::Gpus, &text, cursor, &|_| Vec::new());
        }
    }
}

#[test]
fn rows_expression_is_separated_from_the_clauses() {
    for (text, rows, sorts) in [
        (
            "power>300W and node~\"sort x\" sort power desc, node limit 3",
            "power>300W and node~\"sort x\"",
            2,
        ),
        ("columns node,gpu", "", 0),
        ("has job", "has job", 0),
        ("", "", 0),
    ] {
        let filter = Filter::parse(Subject::Gpus, text).unwrap();
        assert_eq!((filter.rows_text(), filter.sort_fields().count()), (rows, sorts), "{text}");
    }
}
