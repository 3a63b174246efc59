//! Prometheus's format for lists of targets, as its file and HTTP discovery read it: groups of addresses with labels.
//!
//! Of the labels, `__scheme__`, `__metrics_path__` and `__param_NAME` say how to ask, and `node` names the node. The
//! others are for relabelling, which gaunt does not do.

use std::{collections::BTreeMap, fmt::Write as _};

use gaunt_schema::{Safe, plain_error};
use serde::Deserialize;

use super::{Common, Listing};
use crate::gather::{
    hostlist::MAX_NAMES,
    place::{NamedBy, Place, Scheme, Usual, address_of, check_path},
};

/// Labels with a meaning here.
const SCHEME: &str = "__scheme__";
const PATH: &str = "__metrics_path__";
const PARAMETER: &str = "__param_";
const NODE: &str = "node";

/// One group of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// In which notation a list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// JSON.
    Json,
    /// YAML 1.2.
    Yaml,
}

/// How a list is to be understood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) common: &'a Common,
    pub(super) origin: &'a Safe,
    pub(super) named_by: NamedBy,
}

/// The addresses that a list names, or why it is no list; for tests that look for texts which this cannot take.
pub fn addresses(text: &str, notation: Notation) -> Result<Vec<String>, String> {
    let common = Common { usual: Usual::default(), may_downgrade: true };
    let context = Context { common: &common, origin: &"test".into(), named_by: NamedBy::Operator };
    let listing = read(text, notation, context)?;
    Ok(listing.places.iter().map(ToString::to_string).collect())
}

/// The places of a list. Entries that are none are told of, and the rest is taken; a text that is no list is refused.
pub(super) fn read(
    text: &str,
    notation: Notation,
    context: Context<'_>,
) -> Result<Listing, String> {
    let groups: Vec<Group> = match notation {
        Notation::Json => serde_json::from_str(text).map_err(|error| {
            let why = plain_error::json(&error);
            format!("{why}; write [{{\"targets\": [\"HOST:PORT\"], \"labels\": {{}}}}]")
        })?,
        Notation::Yaml => yaml(text)?,
    };
    let (mut places, mut wrong, mut first) = (Vec::new(), 0_u32, None);
    for group in &groups {
        let manner = Manner::of(&group.labels, context.common);
        for target in &group.targets {
            let place = manner.as_ref().map_err(Clone::clone).and_then(|manner| {
                if places.len() >= MAX_NAMES {
                    return Err(format!("it names more than {MAX_NAMES} targets"));
                }
                let (host, port) = address_of(target, context.common.usual.port)?;
                let (scheme, path) = (manner.scheme, manner.path.clone());
                let node = manner.node.clone();
                let (origin, named_by) = (context.origin.clone(), context.named_by);
                Ok(Place { scheme, host, port, path, node, origin, named_by })
            });
            match place {
                Ok(place) => places.push(place),
                Err(why) => {
                    wrong += 1;
                    first.get_or_insert(why);
                }
            }
        }
    }
    let trouble = first.map(|why| {
        let origin = context.origin;
        let all = places.len() + wrong as usize;
        Safe::new(&format!("{origin}: {wrong} of {all} entries are not taken, the first: {why}"))
    });
    Ok(Listing { places, trouble })
}

/// An empty file is an empty list; aliases are followed as far as the reader's own budget goes.
fn yaml(text: &str) -> Result<Vec<Group>, String> {
    let groups: Option<Vec<Group>> = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line());
        let parses = serde_saphyr::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let said = error.without_snippet().to_string();
        let why = plain_error::document(&said, "YAML", parses);
        format!("line {line}: {why}; write - targets: [\"HOST:PORT\"]")
    })?;
    Ok(groups.unwrap_or_default())
}

/// How the targets of a group are asked, and what they are called.
struct Manner {
    scheme: Scheme,
    path: String,
    node: Option<Safe>,
}

impl Manner {
    fn of(labels: &BTreeMap<String, String>, common: &Common) -> Result<Self, String> {
        let usual = &common.usual;
        let scheme = match labels.get(SCHEME) {
            None => usual.scheme,
            Some(name) => Scheme::named(name)
                .ok_or_else(|| format!("{name:?} is not a scheme; http and https are possible"))?,
        };
        if scheme == Scheme::Http && usual.scheme == Scheme::Https && !common.may_downgrade {
            return Err(format!(
                "{SCHEME} is http: the credentials of its group are only sent encrypted"
            ));
        }
        let mut path = labels.get(PATH).unwrap_or(&usual.path).clone();
        for (label, value) in labels {
            if let Some(name) = label.strip_prefix(PARAMETER) {
                path.push(if path.contains('?') { '&' } else { '?' });
                escape(&mut path, name);
                path.push('=');
                escape(&mut path, value);
            }
        }
        check_path(&path)?;
        let node = labels.get(NODE).filter(|node| !node.is_empty()).map(|node| Safe::new(node));
        Ok(Self { scheme, path, node })
    }
}

/// Writes a parameter's name or value as a URL carries it.
fn escape(out: &mut String, text: &str) {
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

    fn listing(text: &str, notation: Notation, common: &Common) -> Result<Listing, String> {
        let origin = Safe::new("sd.json");
        read(text, notation, Context { common, origin: &origin, named_by: NamedBy::Operator })
    }

    fn open() -> Common {
        Common { usual: Usual::default(), may_downgrade: true }
    }

    fn shown(listing: &Listing) -> Vec<String> {
        let shown = |place: &Place| match &place.node {
            None => place.to_string(),
            Some(node) => format!("{node}={place}"),
        };
        listing.places.iter().map(shown).collect()
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
    fn json_and_yaml_name_the_same_places() {
        for (text, notation) in [(JSON, Notation::Json), (YAML, Notation::Yaml)] {
            let listing = listing(text, notation, &open()).unwrap();
            assert_eq!(
                shown(&listing),
                [
                    "gpu1:9100",
                    "[::1]:9100",
                    "gpu2:9770",
                    "seven=https://10.0.0.7:443/m",
                    "sw1=http://snmp:9116/snmp?module=if_mib&target=switch%201/2",
                ]
            );
            assert_eq!(listing.trouble, None);
        }
        for empty in ["[]", ""] {
            assert_eq!(listing(empty, Notation::Yaml, &open()).unwrap(), Listing::default());
        }
        assert_eq!(listing("[]", Notation::Json, &open()).unwrap(), Listing::default());
    }

    #[test]
    fn an_entry_that_is_no_target_costs_itself() {
        let text = r#"[{"targets": ["a:1", "http://b:2/metrics", "c d", "e:99999"]},
                       {"targets": ["f:1"], "labels": {"__scheme__": "ftp"}},
                       {"targets": ["g:1"], "labels": {"__metrics_path__": "/a\r\nX: y"}}]"#;
        let listing = listing(text, Notation::Json, &open()).unwrap();
        assert_eq!(shown(&listing), ["a:1"]);
        let trouble = listing.trouble.unwrap();
        assert!(
            trouble.starts_with("sd.json: 5 of 6 entries are not taken, the first: \"http://b:2"),
            "{trouble}"
        );
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for (text, notation) in [
            ("", Notation::Json),
            ("[{\"targets\": [\"a:1\"]", Notation::Json),
            ("{\"targets\": []}", Notation::Json),
            ("[{\"target\": [\"a:1\"]}]", Notation::Json),
            ("[{\"labels\": {}}]", Notation::Json),
            ("[{\"targets\": [1]}]", Notation::Json),
            ("<html>", Notation::Yaml),
            ("- targets: {a: b}", Notation::Yaml),
            ("- targets: [a:1", Notation::Yaml),
            ("- target: [a:1]", Notation::Yaml),
        ] {
            let why = listing(text, notation, &open()).unwrap_err();
            assert!(!why.is_empty() && !why.contains('\n'), "{text:?}: {why:?}");
        }
    }

    #[test]
    fn credentials_are_not_taken_into_the_clear() {
        let usual = Usual { scheme: Scheme::Https, ..Usual::default() };
        let common = Common { usual, may_downgrade: false };
        let text =
            r#"[{"targets": ["a:1"], "labels": {"__scheme__": "http"}}, {"targets": ["b:1"]}]"#;
        let listing = listing(text, Notation::Json, &common).unwrap();
        assert_eq!(shown(&listing), ["https://b:1/metrics"]);
        assert!(listing.trouble.unwrap().contains("only sent encrypted"));
    }

    #[test]
    fn a_list_that_grows_by_aliases_is_refused() {
        let first = format!("- &group {{targets: [{}]}}\n", vec!["x"; 1_000].join(", "));
        let bomb = format!("{first}{}", "- *group\n".repeat(20_000));
        listing(&bomb, Notation::Yaml, &open()).unwrap_err();
    }
}
