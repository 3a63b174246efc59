//! Prometheus's format of target lists, for file and HTTP discovery: groups of addresses with labels.
//!
//! Of the labels, `__scheme__`, `__metrics_path__` and `__param_NAME` define the request, and `node` names the node.
//! The others are for relabelling, which gaunt does not support.

use std::{collections::BTreeMap, fmt::Write as _};

use gaunt_schema::{SanitizedText, plain_error};
use serde::{Deserialize, de::IgnoredAny};
use serde_saphyr::Spanned;

use super::{DiscoveredTargets, GroupDefaults};
use crate::{
    endpoint::{Endpoint, EndpointDefaults, EndpointNamedBy, UrlScheme, check_path, parse_address},
    host_list::MAX_NAMES,
};

/// Labels with a meaning here.
const SCHEME: &str = "__scheme__";
const PATH: &str = "__metrics_path__";
const PARAMETER: &str = "__param_";
const NODE: &str = "node";

/// One group of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrometheusGroup {
    /// None if there are none: Prometheus accepts that.
    #[serde(default)]
    targets: Option<Vec<String>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The syntax of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetListNotation {
    /// JSON.
    Json,
    /// YAML 1.2.
    Yaml,
}

/// How to interpret a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetListContext<'a> {
    pub(super) common: &'a GroupDefaults,
    pub(super) origin: &'a SanitizedText,
    pub(super) named_by: EndpointNamedBy,
}

/// The addresses in a list, or why it is invalid; for tests of malformed texts.
pub fn parse_addresses(text: &str, notation: TargetListNotation) -> Result<Vec<String>, String> {
    let common = GroupDefaults { defaults: EndpointDefaults::default(), may_downgrade: true };
    let context = TargetListContext {
        common: &common,
        origin: &"test".into(),
        named_by: EndpointNamedBy::Operator,
    };
    let targets = parse_targets(text, notation, context)?;
    Ok(targets.endpoints.iter().map(ToString::to_string).collect())
}

/// The endpoints of a list. Invalid entries are reported and the rest is accepted; an invalid text is rejected.
pub(super) fn parse_targets(
    text: &str,
    notation: TargetListNotation,
    context: TargetListContext<'_>,
) -> Result<DiscoveredTargets, String> {
    let groups: Vec<PrometheusGroup> = match notation {
        TargetListNotation::Json => serde_json::from_str(text).map_err(|error| {
            let why = plain_error::json(&error);
            format!("{why}; write [{{\"targets\": [\"HOST:PORT\"], \"labels\": {{}}}}]")
        })?,
        TargetListNotation::Yaml => parse_yaml(text)?,
    };
    let (mut endpoints, mut rejected, mut first_error) = (Vec::new(), 0_u32, None);
    let mut skipped = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let labels = GroupLabels::of(&group.labels, context.common);
        if group.targets.is_none() {
            skipped.push(index);
        }
        for target in group.targets.iter().flatten() {
            let endpoint = labels.as_ref().map_err(Clone::clone).and_then(|labels| {
                if endpoints.len() >= MAX_NAMES {
                    return Err(format!("more than {MAX_NAMES} targets"));
                }
                let (host, port) = parse_address(target, context.common.defaults.port)?;
                let (scheme, path) = (labels.scheme, labels.path.clone());
                let node = labels.node.clone();
                let (origin, named_by) = (context.origin.clone(), context.named_by);
                Ok(Endpoint { scheme, host, port, path, node, origin, named_by })
            });
            match endpoint {
                Ok(endpoint) => endpoints.push(endpoint),
                Err(why) => {
                    rejected += 1;
                    first_error.get_or_insert(why);
                }
            }
        }
    }
    let origin = context.origin;
    let rejected = first_error.map(|why| {
        let total = endpoints.len() + rejected as usize;
        format!("{origin}: {rejected} of {total} entries rejected, the first: {why}")
    });
    let troubles = [rejected, describe_skipped(text, &skipped, origin)].into_iter().flatten();
    let trouble = troubles.reduce(|first, other| format!("{first}; {other}"));
    let trouble = trouble.map(|trouble| SanitizedText::new(&trouble));
    Ok(DiscoveredTargets { endpoints, trouble })
}

/// Names the first group without targets by its line; none if every group has some.
fn describe_skipped(text: &str, skipped: &[usize], origin: &SanitizedText) -> Option<String> {
    let (first, others) = skipped.split_first()?;
    // JSON is YAML, whose parser knows where each group begins.
    let groups: Vec<Spanned<IgnoredAny>> = serde_saphyr::from_str(text).unwrap_or_default();
    let place = match groups.get(*first) {
        Some(group) => format!("{origin}:{}", group.referenced.line()),
        None => format!("{origin}, group {}", first + 1),
    };
    let more = match others.len() {
        0 => String::new(),
        more => format!(", as are {more} more"),
    };
    Some(format!(
        "{place}: a group without \"targets\" is skipped{more}; write \"targets\": [\"HOST:PORT\"]"
    ))
}

/// An empty file is an empty list; aliases are followed as far as the parser's own limits allow.
fn parse_yaml(text: &str) -> Result<Vec<PrometheusGroup>, String> {
    let groups: Option<Vec<PrometheusGroup>> = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let parses = serde_saphyr::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let message = error.without_snippet().to_string();
        let why = plain_error::document(&message, "YAML", parses);
        format!("line {line}: {why}; write - targets: [\"HOST:PORT\"]")
    })?;
    Ok(groups.unwrap_or_default())
}

/// Request options and node name of the targets of a group.
struct GroupLabels {
    scheme: UrlScheme,
    path: String,
    node: Option<SanitizedText>,
}

impl GroupLabels {
    fn of(labels: &BTreeMap<String, String>, common: &GroupDefaults) -> Result<Self, String> {
        let defaults = &common.defaults;
        let scheme = match labels.get(SCHEME) {
            None => defaults.scheme,
            Some(name) => UrlScheme::parse_scheme(name)
                .ok_or_else(|| format!("{name:?} is not a scheme; write http or https"))?,
        };
        if scheme == UrlScheme::Http && defaults.scheme == UrlScheme::Https && !common.may_downgrade
        {
            return Err(format!("{SCHEME} is http, but the credentials of its group need https"));
        }
        let mut path = labels.get(PATH).unwrap_or(&defaults.path).clone();
        for (label, value) in labels {
            if let Some(name) = label.strip_prefix(PARAMETER) {
                path.push(if path.contains('?') { '&' } else { '?' });
                escape_parameter(&mut path, name);
                path.push('=');
                escape_parameter(&mut path, value);
            }
        }
        check_path(&path)?;
        let node =
            labels.get(NODE).filter(|node| !node.is_empty()).map(|node| SanitizedText::new(node));
        Ok(Self { scheme, path, node })
    }
}

/// Percent-encodes a parameter's name or value.
fn escape_parameter(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' => {
                out.push(byte as char);
            }
            _ => write!(out, "%{byte:02X}").expect("writing to a string cannot fail"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_test_list(
        text: &str,
        notation: TargetListNotation,
        common: &GroupDefaults,
    ) -> Result<DiscoveredTargets, String> {
        let origin = SanitizedText::new("sd.json");
        parse_targets(
            text,
            notation,
            TargetListContext { common, origin: &origin, named_by: EndpointNamedBy::Operator },
        )
    }

    fn downgrade_defaults() -> GroupDefaults {
        GroupDefaults { defaults: EndpointDefaults::default(), may_downgrade: true }
    }

    fn render_endpoints(targets: &DiscoveredTargets) -> Vec<String> {
        let render = |endpoint: &Endpoint| match &endpoint.node {
            None => endpoint.to_string(),
            Some(node) => format!("{node}={endpoint}"),
        };
        targets.endpoints.iter().map(render).collect()
    }

    const JSON: &str = r#"[
        {"targets": ["gpu1:9100", "[::1]:9100", "gpu2"]},
        {"targets": ["10.0.0.7:443"], "labels": {"__scheme__": "HTTPS", "__metrics_path__": "/m", "node": "seven",
         "rack": "r1"}},
        {"targets": ["snmp:9116"], "labels": {"__metrics_path__": "/snmp", "__param_target": "switch 1/2",
         "__param_module": "if_mib", "node": "sw1"}}
    ]"#;

    const YAML: &str = r#"
# what an operator writes
- targets: [ "gpu1:9100", '[::1]:9100' ]
- targets:
    - gpu2
- labels: {__scheme__: HTTPS, __metrics_path__: /m, node: seven, rack: 12}
  targets: [10.0.0.7:443]
- targets: ["snmp:9116"]
  labels:
    __metrics_path__: /snmp
    __param_target: switch 1/2
    __param_module: if_mib
    node: sw1
"#;

    #[test]
    fn json_and_yaml_give_the_same_endpoints() {
        for (text, notation) in [(JSON, TargetListNotation::Json), (YAML, TargetListNotation::Yaml)]
        {
            let targets = parse_test_list(text, notation, &downgrade_defaults()).unwrap();
            assert_eq!(
                render_endpoints(&targets),
                [
                    "gpu1:9100",
                    "[::1]:9100",
                    "gpu2:9770",
                    "seven=https://10.0.0.7:443/m",
                    "sw1=http://snmp:9116/snmp?module=if_mib&target=switch%201/2",
                ]
            );
            assert_eq!(targets.trouble, None);
        }
        for empty in ["[]", ""] {
            assert_eq!(
                parse_test_list(empty, TargetListNotation::Yaml, &downgrade_defaults()).unwrap(),
                DiscoveredTargets::default()
            );
        }
        assert_eq!(
            parse_test_list("[]", TargetListNotation::Json, &downgrade_defaults()).unwrap(),
            DiscoveredTargets::default()
        );
    }

    #[test]
    fn invalid_entry_is_rejected_alone() {
        let text = r#"[{"targets": ["a:1", "http://b:2/metrics", "c d", "e:99999"]},
                       {"targets": ["f:1"], "labels": {"__scheme__": "ftp"}},
                       {"targets": ["g:1"], "labels": {"__metrics_path__": "/a\r\nX: y"}}]"#;
        let targets =
            parse_test_list(text, TargetListNotation::Json, &downgrade_defaults()).unwrap();
        assert_eq!(render_endpoints(&targets), ["a:1"]);
        let trouble = targets.trouble.unwrap();
        assert!(
            trouble.starts_with("sd.json: 5 of 6 entries rejected, the first: \"http://b:2"),
            "{trouble}"
        );
    }

    #[test]
    fn group_without_targets_is_skipped_and_named_by_its_line() {
        let json = "[\n  {\"targets\": [\"a:1\"]},\n  {\"labels\": {\"rack\": \"r1\"}},\n  {\"labels\": {}},\n  {\"targets\": [\"b:1\"]}\n]";
        let yaml =
            "- targets: [\"a:1\"]\n\n- labels: {rack: r1}\n- labels: {}\n- targets: [\"b:1\"]\n";
        for (text, notation) in [(json, TargetListNotation::Json), (yaml, TargetListNotation::Yaml)]
        {
            let targets = parse_test_list(text, notation, &downgrade_defaults()).unwrap();
            assert_eq!(render_endpoints(&targets), ["a:1", "b:1"]);
            assert_eq!(
                targets.trouble.unwrap(),
                "sd.json:3: a group without \"targets\" is skipped, as are 1 more; write \
                 \"targets\": [\"HOST:PORT\"]"
            );
        }
    }

    #[test]
    fn invalid_list_is_refused() {
        for (text, notation) in [
            ("", TargetListNotation::Json),
            ("[{\"targets\": [\"a:1\"]", TargetListNotation::Json),
            ("{\"targets\": []}", TargetListNotation::Json),
            ("[{\"target\": [\"a:1\"]}]", TargetListNotation::Json),
            ("[{\"targets\": [1]}]", TargetListNotation::Json),
            ("<html>", TargetListNotation::Yaml),
            ("- targets: {a: b}", TargetListNotation::Yaml),
            ("- targets: [a:1", TargetListNotation::Yaml),
            ("- target: [a:1]", TargetListNotation::Yaml),
        ] {
            let why = parse_test_list(text, notation, &downgrade_defaults()).unwrap_err();
            assert!(!why.is_empty() && !why.contains('\n'), "{text:?}: {why:?}");
        }
    }

    #[test]
    fn credentials_are_not_sent_without_tls() {
        let defaults = EndpointDefaults { scheme: UrlScheme::Https, ..EndpointDefaults::default() };
        let common = GroupDefaults { defaults, may_downgrade: false };
        let text =
            r#"[{"targets": ["a:1"], "labels": {"__scheme__": "http"}}, {"targets": ["b:1"]}]"#;
        let targets = parse_test_list(text, TargetListNotation::Json, &common).unwrap();
        assert_eq!(render_endpoints(&targets), ["https://b:1/metrics"]);
        assert!(targets.trouble.unwrap().contains("credentials of its group need https"));
    }

    #[test]
    fn list_expanded_by_aliases_is_refused() {
        let group = format!("- &group {{targets: [{}]}}\n", vec!["x"; 1_000].join(", "));
        let list = format!("{group}{}", "- *group\n".repeat(20_000));
        parse_test_list(&list, TargetListNotation::Yaml, &downgrade_defaults()).unwrap_err();
    }
}
