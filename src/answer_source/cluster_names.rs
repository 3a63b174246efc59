//! Names of several clusters in one answer: those of nodes, jobs and findings begin with their cluster, `hall-1/gpu001`.

use std::sync::Arc;

use gaunt_api::{Answer, Filter, HistoryQuery, Question};
use gaunt_schema::SanitizedText;
use serde_json::Value;

/// Members of answers whose texts name something of one cluster.
const NAMES: &[&str] = &[
    "address", "domain", "id", "job", "jobs", "leaf", "leaves", "members", "node", "nodes", "rail",
];

/// Columns of tables that do.
const COLUMNS: &[&str] = &["domain", "id", "job", "leaf", "node", "target"];

/// Members that are sentences.
const SENTENCES: &[&str] = &["source_notes", "source_trouble", "trouble"];

/// Puts the cluster before the names of an answer; those of an answer that cannot be read back stay as they are.
pub(super) fn qualify_answer(cluster: &str, question: &Question, answer: Answer) -> Answer {
    if matches!(answer, Answer::Refused(_)) {
        return answer;
    }
    let Ok(mut value) = serde_json::to_value(&answer) else { return answer };
    qualify_value(cluster, &mut value);
    match Answer::from_json(question, &value) {
        Ok(Answer::Usage(mut usage)) => {
            for row in &mut Arc::make_mut(&mut usage).rows {
                row.cluster = Some(SanitizedText::new(cluster));
            }
            Answer::Usage(usage)
        }
        Ok(qualified) => qualified,
        Err(_) => answer,
    }
}

fn qualify_value(cluster: &str, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| qualify_value(cluster, item)),
        Value::Object(members) => {
            let is_column = members
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(|name| COLUMNS.contains(&name));
            if let Some(words) = members
                .get_mut("cells")
                .and_then(|cells| cells.get_mut("texts")?.get_mut("words"))
                .filter(|_| is_column)
            {
                prefix_texts(cluster, "/", words);
            }
            for (name, member) in members.iter_mut() {
                let name = name.as_str();
                let is_finding =
                    name == "finding" && member.as_str().is_some_and(|id| id.contains('/'));
                if NAMES.contains(&name) || is_finding {
                    prefix_texts(cluster, "/", member);
                } else if SENTENCES.contains(&name) {
                    prefix_texts(cluster, ": ", member);
                } else {
                    qualify_value(cluster, member);
                }
            }
        }
        _ => {}
    }
}

/// Prefixes a text, or each text of a list; what is not a text is qualified.
fn prefix_texts(cluster: &str, separator: &str, value: &mut Value) {
    match value {
        Value::String(text) if !text.is_empty() => *text = [cluster, separator, text].concat(),
        Value::Array(items) => {
            for item in items {
                prefix_texts(cluster, separator, item);
            }
        }
        other => qualify_value(cluster, other),
    }
}

/// The question as the cluster knows it.
pub(super) fn localize_question(cluster: &str, question: &Question) -> Question {
    let local = |name: &str| name.strip_prefix(cluster)?.strip_prefix('/').map(str::to_owned);
    let text = |name: &SanitizedText| {
        local(name).map_or_else(|| name.clone(), |name| SanitizedText::new(&name))
    };
    match question {
        Question::Node(node) => Question::Node(text(node)),
        Question::Job(job) => Question::Job(text(job)),
        Question::Finding(id) => Question::Finding(local(id).unwrap_or_else(|| id.clone())),
        Question::List(filter) => Question::List(localize_filter(cluster, filter)),
        Question::Table(filter) => Question::Table(localize_filter(cluster, filter)),
        Question::Fabric(filter) => Question::Fabric(localize_filter(cluster, filter)),
        Question::History(query) => {
            let of = localize_filter(cluster, &query.of);
            Question::History(HistoryQuery { of, ..query.clone() })
        }
        Question::AtTime(at, question) => {
            Question::AtTime(*at, Box::new(localize_question(cluster, question)))
        }
        other => other.clone(),
    }
}

/// The filter without the name of this cluster; names of other clusters match nothing there.
fn localize_filter(cluster: &str, filter: &Filter) -> Filter {
    let text = filter.source_text();
    let prefix = format!("{cluster}/");
    if !text.contains(&prefix) {
        return filter.clone();
    }
    Filter::parse(filter.subject(), &text.replace(&prefix, "")).unwrap_or_else(|_| filter.clone())
}

/// Whether a question names something of this cluster.
pub(super) fn names_cluster(cluster: &str, question: &Question) -> bool {
    let begins = |name: &str| name.strip_prefix(cluster).is_some_and(|rest| rest.starts_with('/'));
    match question {
        Question::Node(name) | Question::Job(name) => begins(name),
        Question::Finding(id) => begins(id),
        Question::History(query) => query.of.source_text().contains(&format!("{cluster}/")),
        Question::AtTime(_, question) => names_cluster(cluster, question),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::{Subject, UsageReport, UsageRow, usage_report::USUAL_SPAN};
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_of_usage_name_their_cluster() {
        let usage = UsageReport { rows: vec![UsageRow::default()], ..UsageReport::default() };
        let answer = Answer::Usage(Arc::new(usage));
        let qualified = qualify_answer("a", &Question::Usage(USUAL_SPAN), answer);
        let Answer::Usage(usage) = qualified else { panic!("{qualified:?}") };
        assert_eq!(usage.rows[0].cluster.as_deref(), Some("a"));
    }

    #[test]
    fn names_get_their_cluster_and_nothing_else_does() {
        let mut value = json!({
            "at": 5,
            "nodes": {"live": 3},
            "heat": {"nodes": ["gpu1", "gpu2"], "states": "cc"},
            "trouble": ["target x is down"],
            "worst": [{"node": "gpu1", "jobs": ["8812", ""], "finding": "port_down"}],
            "findings": [{"id": "port_down/gpu1/mlx5_1/1", "entity": {"type": "port", "node": "gpu1", "device": "mlx5_1"},
                "summary": "gpu1: port down", "loss_shares": [{"id": "x/y", "share": 1.0}]}],
            "columns": [
                {"name": "node", "cells": {"texts": {"words": ["gpu1"], "codes": [0]}}},
                {"name": "user", "cells": {"texts": {"words": ["sam"], "codes": [0]}}}
            ],
        });
        qualify_value("a", &mut value);
        assert_eq!(value["nodes"]["live"], 3);
        assert_eq!(value["heat"]["nodes"], json!(["a/gpu1", "a/gpu2"]));
        assert_eq!(value["trouble"], json!(["a: target x is down"]));
        assert_eq!(
            value["worst"][0],
            json!({"node": "a/gpu1", "jobs": ["a/8812", ""], "finding": "port_down"})
        );
        let finding = &value["findings"][0];
        assert_eq!(finding["id"], "a/port_down/gpu1/mlx5_1/1");
        assert_eq!(
            finding["entity"],
            json!({"type": "port", "node": "a/gpu1", "device": "mlx5_1"})
        );
        assert_eq!(
            (&finding["summary"], &finding["loss_shares"][0]["id"]),
            (&json!("gpu1: port down"), &json!("a/x/y"))
        );
        assert_eq!(value["columns"][0]["cells"]["texts"]["words"], json!(["a/gpu1"]));
        assert_eq!(value["columns"][1]["cells"]["texts"]["words"], json!(["sam"]));
    }

    #[test]
    fn question_is_asked_in_the_names_of_its_cluster() {
        let node = Question::Node("a/gpu1".into());
        assert!(names_cluster("a", &node) && !names_cluster("ab", &node));
        assert_eq!(localize_question("a", &node), Question::Node("gpu1".into()));
        assert_eq!(localize_question("b", &node), node);
        let filter = Filter::parse(Subject::Gpus, "node=a/gpu1 or node=b/gpu2").unwrap();
        let asked = localize_question("a", &Question::Table(filter));
        let Question::Table(filter) = asked else { panic!("{asked:?}") };
        assert_eq!(filter.source_text(), "node=gpu1 or node=b/gpu2");
    }
}
