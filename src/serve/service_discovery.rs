//! Service discovery for Prometheus and vmagent: the targets as one inventory, and each node's page as last read.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    Json,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header::HOST},
    response::{IntoResponse, Response},
};
use gaunt_schema::{
    Device, InfoSeries, MetricId, MetricSample, Report, SanitizedText, UnixMs,
    text::{self, CompatOptions},
};
use serde::{Deserialize, Serialize};

use super::{
    api_responses::{refusal_response, unavailable_response},
    negotiated_page,
};
use crate::answer_source::AnswerSource;
use gaunt_api::{Answer, NodeDetail, NodeState, Question, TargetLine};

/// How a client reaches nodes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiscoveryParameters {
    /// `aggregator` for pages of this server; without it the nodes' own addresses are returned.
    through: Option<String>,
}

/// A group of targets in the format of Prometheus's HTTP service discovery.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct HttpSdGroup {
    targets: Vec<String>,
    labels: HashMap<&'static str, String>,
}

/// All targets with their nodes. Always the whole list, as the protocol requires.
pub(super) async fn handle_targets(
    State(source): State<AnswerSource>,
    query: Result<Query<DiscoveryParameters>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let through = match query.map(|Query(query)| query.through) {
        Ok(through) if through.as_deref().is_none_or(|word| word == "aggregator") => through,
        _ => {
            let why = "the only parameter is through=aggregator\n";
            return (StatusCode::BAD_REQUEST, why).into_response();
        }
    };
    let list = match source.ask_question(Question::Targets).await {
        Ok(Answer::Targets(list)) => list,
        Ok(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(error) => return unavailable_response(&error),
    };
    if through.is_none() {
        return Json(list.targets.iter().map(direct_group).collect::<Vec<_>>()).into_response();
    }
    let own_host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut groups: Vec<HttpSdGroup> = Vec::new();
    for line in &list.targets {
        groups.extend(relayed_group(line, own_host).filter(|group| !groups.contains(group)));
    }
    Json(groups).into_response()
}

/// A target with its own address.
fn direct_group(line: &TargetLine) -> HttpSdGroup {
    let (scheme, rest) = match line.address.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, line.address.as_str()),
    };
    let (address, path) =
        rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
    let mut labels = HashMap::new();
    labels.extend(line.node.as_ref().map(|node| ("node", node.to_string())));
    labels.extend(scheme.map(|scheme| ("__scheme__", scheme.to_owned())));
    labels.extend(path.map(|path| ("__metrics_path__", format!("/{path}"))));
    HttpSdGroup { targets: vec![address.to_owned()], labels }
}

/// The node of a target as a page of this server. It keeps the instance name of a direct scrape, so that no series
/// changes when the route does.
fn relayed_group(line: &TargetLine, own_host: &str) -> Option<HttpSdGroup> {
    let node = line.node.as_ref()?.to_string();
    let direct = direct_group(line);
    let labels = HashMap::from([
        ("__metrics_path__", format!("/node/{}/metrics", escape_segment(&node))),
        ("instance", direct.targets.into_iter().next()?),
        ("node", node),
    ]);
    Some(HttpSdGroup { targets: vec![own_host.to_owned()], labels })
}

/// Escapes a name as a path segment.
fn escape_segment(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            use std::fmt::Write as _;
            write!(path, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    path
}

/// The page of one node in gaunt's own format, whatever its exporter format. A node that is not scraped now has none:
/// Prometheus must see it as down, not as constant.
pub(super) async fn handle_node_page(
    State(source): State<AnswerSource>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    match source.ask_question(Question::Node(SanitizedText::new(&name))).await {
        Ok(Answer::Node(node)) if node.line.state == NodeState::Live => {
            let write = move |format| {
                let mut page = String::with_capacity(64 << 10);
                text::write_page(&build_report(&node), format, CompatOptions::default(), &mut page);
                page
            };
            negotiated_page::respond_page(&headers, write).await
        }
        Ok(Answer::Node(node)) => {
            let why = format!(
                "{} is {}; /api/gaunt/v1/targets shows the reason\n",
                node.line.node,
                node.line.state.as_str()
            );
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
        Ok(Answer::Refused(refusal)) => refusal_response(&refusal),
        Ok(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(error) => unavailable_response(&error),
    }
}

/// The known values of a node, as a report of the node itself.
fn build_report(node: &NodeDetail) -> Report {
    let sampled = node.line.age_ms.map(|age| node.at.0 - age as i64);
    let mut report = Report {
        node: Some(node.line.node.clone()),
        node_time: sampled.zip(node.clock_skew_ms).map(|(at, skew)| UnixMs(at + skew)),
        ..Report::default()
    };
    for detail in &node.devices {
        let key = detail
            .class
            .key_label_names()
            .iter()
            .filter_map(|name| detail.labels.get(*name).cloned());
        report.devices.push(Device { class: detail.class, key: key.collect() });
        let device = report.devices.len() as u32 - 1;
        let infos =
            detail.info.iter().filter_map(|(key, labels)| Some((metric_of_key(key)?, labels)));
        for (metric, labels) in infos {
            let labels = labels.iter().map(|(name, value)| (name.clone(), value.clone()));
            report.infos.push(InfoSeries { metric, device, labels: labels.collect() });
        }
        let values =
            detail.values.iter().filter_map(|(key, value)| Some((metric_of_key(key)?, *value)));
        report.samples.extend(values.map(|(metric, reading)| MetricSample {
            metric,
            device,
            reading,
        }));
    }
    report
}

/// The catalogue row with this key.
fn metric_of_key(key: &str) -> Option<MetricId> {
    static KEYS: LazyLock<HashMap<String, MetricId>> =
        LazyLock::new(|| MetricId::all_ids().map(|id| (id.series_key(), id)).collect());
    KEYS.get(key).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_becomes_one_path_segment() {
        assert_eq!(escape_segment("gpu-01.hall_1"), "gpu-01.hall_1");
        assert_eq!(escape_segment("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }

    #[test]
    fn catalogue_keys_find_their_rows() {
        for id in MetricId::all_ids() {
            assert_eq!(metric_of_key(&id.series_key()), Some(id));
        }
        assert_eq!(metric_of_key("gaunt_nothing"), None);
    }
}
