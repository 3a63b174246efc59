//! Victims of a finding in groups: GPUs, ports and nodes by their number and host list, jobs by name.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_schema::{Entity, EntityKind, natural_order};

/// Maximum number of names or ranges in one group; the rest is counted.
const NAMED: usize = 12;

/// Describes victims, one text per kind: `64 GPUs on 8 nodes: gpu[001-008]`, `8 GPUs of gpu003: 0-7`, `2 jobs: 8812,
/// 8840`.
pub fn describe_victims(victims: &[Entity]) -> Vec<String> {
    let mut kinds: BTreeMap<EntityKind, Vec<&Entity>> = BTreeMap::new();
    for victim in victims {
        kinds.entry(victim.kind).or_default().push(victim);
    }
    kinds.into_iter().map(|(kind, victims)| describe_kind(kind, &victims)).collect()
}

fn describe_kind(kind: EntityKind, victims: &[&Entity]) -> String {
    let name = |of: fn(&Entity) -> Option<String>| -> Vec<String> {
        victims.iter().filter_map(|victim| of(victim)).collect()
    };
    let nodes: BTreeSet<&str> = victims.iter().filter_map(|v| v.node.as_deref()).collect();
    let nodes: Vec<String> = nodes.into_iter().map(str::to_owned).collect();
    let (one, many, parts) = match kind {
        EntityKind::Gpu => ("GPU", "GPUs", name(|v| v.gpu.as_ref().map(ToString::to_string))),
        EntityKind::Port => {
            let port = |v: &Entity| match (&v.device, &v.port) {
                (Some(device), Some(port)) => Some(format!("{device}/{port}")),
                (device, _) => device.as_ref().map(ToString::to_string),
            };
            ("port", "ports", name(port))
        }
        EntityKind::Node => return count_names(victims.len(), "node", "nodes", &nodes),
        EntityKind::Job => {
            let jobs = name(|v| v.job.as_ref().map(ToString::to_string));
            return count_names(victims.len(), "job", "jobs", &jobs);
        }
        _ => {
            let all: Vec<String> = victims.iter().map(ToString::to_string).collect();
            let word = kind.as_str();
            return count_names(all.len(), word, word, &all);
        }
    };
    let count = count_noun(victims.len(), one, many);
    match nodes.as_slice() {
        [] => count_names(victims.len(), one, many, &parts),
        [node] if parts.is_empty() => format!("{count} of {node}"),
        [node] => format!("{count} of {node}: {}", compress_names(&parts)),
        nodes => format!("{count} on {} nodes: {}", nodes.len(), compress_names(nodes)),
    }
}

fn count_noun(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn count_names(count: usize, one: &str, many: &str, names: &[String]) -> String {
    let noun = count_noun(count, one, many);
    if names.is_empty() { noun } else { format!("{noun}: {}", compress_names(names)) }
}

/// Writes names as a host list: numbers that follow each other become ranges, `gpu[001-008,012]`.
pub fn compress_names(names: &[String]) -> String {
    let mut patterns: BTreeMap<(&str, usize, &str), BTreeSet<u64>> = BTreeMap::new();
    let mut plain: BTreeSet<&str> = BTreeSet::new();
    for name in names {
        match split_number(name) {
            Some((before, digits, after)) => {
                let number = digits.parse().unwrap_or_default();
                patterns.entry((before, digits.len(), after)).or_default().insert(number);
            }
            None => _ = plain.insert(name),
        }
    }
    let mut pieces: Vec<NamePiece> = Vec::new();
    for name in &plain {
        pieces.push(NamePiece { first: (*name).to_owned(), text: (*name).to_owned(), count: 1 });
    }
    for ((before, length, after), numbers) in &patterns {
        pieces.extend(render_ranges(before, *length, after, numbers));
    }
    pieces.sort_by(|a, b| natural_order(&a.first, &b.first));
    let hidden: usize = pieces.iter().skip(NAMED).map(|piece| piece.count).sum();
    let shown: Vec<&str> = pieces.iter().take(NAMED).map(|piece| piece.text.as_str()).collect();
    let more = if hidden > 0 { format!(" and {hidden} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// One name, or the names of a range.
struct NamePiece {
    /// The first of the names, for the order.
    first: String,
    text: String,
    count: usize,
}

/// Splits a name around its last number; none without one, or if it has too many digits.
fn split_number(name: &str) -> Option<(&str, &str, &str)> {
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = name[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    (end - start <= 18).then(|| (&name[..start], &name[start..end], &name[end..]))
}

/// Renders the ranges of one pattern, in one pair of brackets if there are several numbers, with the number of names.
fn render_ranges(
    before: &str,
    width: usize,
    after: &str,
    numbers: &BTreeSet<u64>,
) -> Vec<NamePiece> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let write = |(from, to): &(u64, u64)| {
        if from == to { format!("{from:0width$}") } else { format!("{from:0width$}-{to:0width$}") }
    };
    let first = |from: u64| format!("{before}{from:0width$}{after}");
    if before.is_empty() && after.is_empty() {
        let piece = |range: &(u64, u64)| {
            let (from, to) = *range;
            NamePiece { first: first(from), text: write(range), count: (to - from + 1) as usize }
        };
        return ranges.iter().map(piece).collect();
    }
    let Some((from, _)) = ranges.first().copied() else { return Vec::new() };
    let (first, count) = (first(from), numbers.len());
    let text = if count == 1 {
        first.clone()
    } else {
        let inner: Vec<String> = ranges.iter().take(NAMED).map(write).collect();
        let more = if ranges.len() > NAMED { ",…" } else { "" };
        format!("{before}[{}{more}]{after}", inner.join(","))
    };
    vec![NamePiece { first, text, count }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_become_a_host_list() {
        for (list, expected) in [
            (&["gpu003"][..], "gpu003"),
            (&["gpu001", "gpu002", "gpu003", "gpu007"], "gpu[001-003,007]"),
            (&["gpu9", "gpu8", "gpu10"], "gpu[8-9], gpu10"),
            (&["0", "1", "2", "5"], "0-2, 5"),
            (&["login", "r1-n1.pod", "r1-n2.pod"], "login, r1-n[1-2].pod"),
            (&["x99999999999999999999999"], "x99999999999999999999999"),
        ] {
            assert_eq!(compress_names(&names(list)), expected);
        }
        let many: Vec<String> = (0..40).map(|n| format!("job-{}x", char::from(b'A' + n))).collect();
        assert!(compress_names(&many).ends_with(" and 28 more"), "{}", compress_names(&many));
        let odd: Vec<String> = (0..40).map(|n| format!("gpu{:03}", n * 2)).collect();
        assert!(compress_names(&odd).ends_with(",022,…]"), "{}", compress_names(&odd));
    }

    #[test]
    fn victims_are_grouped_by_kind_and_node() {
        let gpu = |node: &str, n: usize| Entity::new_gpu(&node.into(), &n.to_string().into());
        let one: Vec<Entity> = (0..8).map(|n| gpu("gpu003", n)).collect();
        assert_eq!(describe_victims(&one), ["8 GPUs of gpu003: 0-7"]);
        let nodes = ["gpu001", "gpu002", "gpu003"];
        let mut many: Vec<Entity> =
            nodes.iter().flat_map(|node| (0..8).map(|n| gpu(node, n))).collect();
        many.push(Entity { job: Some("8840".into()), ..Entity::new(EntityKind::Job) });
        many.push(Entity { job: Some("8812".into()), ..Entity::new(EntityKind::Job) });
        many.push(Entity::new_port(&"gpu003".into(), &"mlx5_1".into(), &"1".into()));
        let mut texts = describe_victims(&many);
        texts.sort();
        let expected = [
            "1 port of gpu003: mlx5_1/1",
            "2 jobs: 8812, 8840",
            "24 GPUs on 3 nodes: gpu[001-003]",
        ];
        assert_eq!(texts, expected.map(str::to_owned));
        assert!(describe_victims(&[]).is_empty());
    }
}
