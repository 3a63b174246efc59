//! One finding with its whole chain of evidence, in plain columns.

use gaunt_schema::{LifeState, Turn, UnixMs, unit::Unit};
use unicode_width::UnicodeWidthStr as _;

use super::columns::{age, cut, pad, quantity, time_of_day, wrap};
use crate::answer::{
    Alternative, Chain, Change, Evidence, Explanation, Finding, Limit, Ruling, Signal,
};

/// What stands where nothing is known.
const UNKNOWN: &str = "-";

/// The width of the heads of sections.
const HEAD: usize = 11;

/// Victims that are named.
const VICTIMS: usize = 12;

/// The whole page.
pub(super) fn page(told: &Explanation) -> String {
    let finding = &told.finding;
    let mut lines = head(finding, told.at);
    lines.push(String::new());
    lines.extend(section("WHAT", &finding.summary));
    lines.extend(section("RULE", &told.rule));
    lines.extend(section("NEXT", &finding.next));
    if let Some(ack) = &finding.acknowledged {
        let note = if ack.note.is_empty() { String::new() } else { format!(": {}", ack.note) };
        lines.extend(section(
            "TAKEN ON",
            &format!("by {} at {}{note}", ack.by, time_of_day(ack.at)),
        ));
    }
    lines.extend(section("VICTIMS", &victims(finding)));
    lines.extend(evidence(&finding.evidence));
    lines.extend(limits(&told.limits));
    if let Some(chain) = &told.chain {
        lines.extend(signals(chain));
        for (title, ruling) in [
            ("RULED OUT", Ruling::RuledOut),
            ("ALSO THERE", Ruling::AlsoThere),
            ("NOT KNOWN", Ruling::Unknown),
        ] {
            lines.extend(alternatives(title, ruling, &chain.alternatives));
        }
    }
    if !finding.missing.is_empty() {
        lines.push(String::new());
        lines.push("MISSING".to_owned());
        lines.extend(finding.missing.iter().flat_map(|what| wrap("  ", &words(what), " ")));
    }
    lines.extend(changes(&finding.life.changes));
    let mut page = String::new();
    for line in lines {
        page.push_str(line.trim_end());
        page.push('\n');
    }
    page
}

fn head(finding: &Finding, now: UnixMs) -> Vec<String> {
    let life = &finding.life;
    let stands = match (life.state, life.closed) {
        (LifeState::Closed, Some(closed)) => format!(
            "closed at {}, {} ago, after {}",
            time_of_day(closed),
            age(now.since(closed)),
            age(closed.since(finding.since))
        ),
        (state, _) => format!(
            "{state} since {} ({})",
            time_of_day(finding.since),
            age(now.since(finding.since))
        ),
    };
    let mut facts = vec![finding.severity.to_string(), stands];
    facts.push(format!("sure {:.2}", finding.confidence));
    facts.push(format!("{:.1} lost GPUs", finding.lost_gpus));
    if life.openings > 1 {
        facts.push(format!("came {} times", life.openings));
    }
    vec![
        format!("{}  {}", finding.kind, finding.entity),
        facts.join(" · "),
        format!("id {}", finding.id),
    ]
}

/// A titled text in as many lines as it takes; nothing of nothing.
fn section(title: &str, text: &str) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { wrap(&pad(title, HEAD), &words(text), " ") }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn victims(finding: &Finding) -> String {
    let named = finding.victims.iter().take(VICTIMS).map(ToString::to_string);
    let named: Vec<String> = named.collect();
    match finding.victims.len() {
        0 => String::new(),
        count if count > VICTIMS => {
            format!("{}, and {} more", named.join(", "), count - VICTIMS)
        }
        _ => named.join(", "),
    }
}

fn number(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| quantity(value, unit))
}

fn evidence(evidence: &[Evidence]) -> Vec<String> {
    if evidence.is_empty() {
        return Vec::new();
    }
    let rows: Vec<[String; 5]> = evidence
        .iter()
        .map(|proof| {
            let limit = proof.limit.map_or_else(String::new, |limit| quantity(limit, proof.unit));
            let (value, note) = (number(proof.value, proof.unit), proof.note.clone());
            let key =
                if proof.threshold.is_empty() { String::new() } else { proof.threshold.clone() };
            [proof.what.clone(), value, limit, note, from(&proof.source, &key)]
        })
        .collect();
    table(["EVIDENCE", "is", "limit", "", "from"], 2, rows)
}

/// Where a number comes from: its series, and the key of its limit.
fn from(source: &str, key: &str) -> String {
    match (source, key) {
        (source, "") => source.to_owned(),
        ("", key) => format!("limit {key}"),
        (source, key) => format!("{source}; limit {key}"),
    }
}

/// A table whose last column may be as wide as it is. The first column holds words, then as many as `numbers` hold numbers, the others words again.
fn table<const N: usize>(heads: [&str; N], numbers: usize, rows: Vec<[String; N]>) -> Vec<String> {
    /// Texts in the first columns are cut beyond this.
    const WIDEST: usize = 58;
    let heads = heads.map(str::to_owned);
    let mut widths = [0; N];
    for row in rows.iter().chain([&heads]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width()).min(WIDEST);
        }
    }
    let mut lines = vec![String::new()];
    for row in std::iter::once(heads).chain(rows) {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let right = (1..=numbers).contains(&at);
            match (right, at + 1 == N) {
                (_, true) => cell.clone(),
                (true, _) => {
                    format!("{}{cell}", " ".repeat(widths[at].saturating_sub(cell.width())))
                }
                _ => pad(&cut(cell, WIDEST), widths[at]),
            }
        });
        lines.push(cells.collect::<Vec<_>>().join("  "));
    }
    lines
}

fn limits(limits: &[Limit]) -> Vec<String> {
    if limits.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "LIMITS, from [judge] in the settings".to_owned()];
    let width = limits.iter().map(|limit| limit.key.len()).max().unwrap_or(0);
    for limit in limits {
        let head = format!("  {:<width$} = {:<6}  ", limit.key, limit.value);
        lines.extend(wrap(&head, &words(&limit.why), " "));
    }
    lines
}

fn signals(chain: &Chain) -> Vec<String> {
    if chain.signals.is_empty() {
        return Vec::new();
    }
    let beside =
        if chain.peers.is_empty() { String::new() } else { format!(", beside {}", chain.peers) };
    let rows: Vec<[String; 6]> = chain.signals.iter().map(signal).collect();
    let mut lines = vec![String::new(), format!("SIGNALS at {}{beside}", time_of_day(chain.at))];
    // The table brings an empty line of its own.
    lines.extend(
        table(["", "now", "usual", "peers", "quartiles", "from"], 4, rows).into_iter().skip(1),
    );
    lines
}

fn signal(signal: &Signal) -> [String; 6] {
    let of = |value: Option<f64>| value.map_or_else(String::new, |v| quantity(v, signal.unit));
    let now = match (signal.value, signal.absent) {
        (None, Some(reason)) => reason.as_str().to_owned(),
        (value, _) => number(value, signal.unit),
    };
    let quartiles = signal.quartiles.map_or_else(String::new, |(low, high)| {
        format!("{} to {}", quantity(low, signal.unit), quantity(high, signal.unit))
    });
    let what = format!("  {}", signal.what);
    [what, now, of(signal.usual), of(signal.peers), quartiles, signal.source.clone()]
}

fn alternatives(title: &str, ruling: Ruling, all: &[Alternative]) -> Vec<String> {
    let rows: Vec<[String; 5]> = all
        .iter()
        .filter(|other| other.ruling == ruling)
        .map(|other| {
            let proof = &other.number;
            [
                format!("  {}", other.kind),
                number(proof.value, proof.unit),
                proof.limit.map_or_else(String::new, |limit| quantity(limit, proof.unit)),
                proof.what.clone(),
                from(&proof.source, &proof.threshold),
            ]
        })
        .collect();
    if rows.is_empty() { Vec::new() } else { table([title, "is", "limit", "", "from"], 2, rows) }
}

fn changes(changes: &[Change]) -> Vec<String> {
    let mut lines = vec![String::new(), "LIFE".to_owned()];
    for change in changes {
        let (from, to) = (&change.from, &change.to);
        let how = match change.what {
            Turn::Acknowledged | Turn::Withdrawn | Turn::Accepted => format!("by {to}"),
            Turn::Opened | Turn::Reopened => format!("as {to}"),
            _ if from.is_empty() => to.to_string(),
            _ => format!("{from} → {to}"),
        };
        lines.push(format!("  {}  {:<12}  {how}", time_of_day(change.at), change.what.as_str()));
    }
    lines
}

#[cfg(test)]
mod tests;
