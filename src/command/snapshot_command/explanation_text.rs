//! Explanation text: one finding with its evidence, in plain columns.

use gaunt_schema::{
    FindingEvent, LifeState, UnixMs,
    time::{format_duration, format_time_of_day},
    unit::Unit,
};
use unicode_width::UnicodeWidthStr as _;

use super::text_columns::{format_quantity, pad_text, split_words, truncate_text, wrap_pieces};
use gaunt_api::{
    AlternativeDetail, AlternativeOutcome, EvidenceContext, EvidenceItem, Explanation, Finding,
    LifecycleChange, LimitDetail, SignalDetail, victim_groups::describe_victims,
};

/// Placeholder for an unknown value.
const UNKNOWN: &str = "-";

/// Width of section titles.
const HEAD: usize = 11;

/// Renders the whole page.
pub(super) fn render_page(explanation: &Explanation) -> String {
    let finding = &explanation.finding;
    let mut lines = render_head(finding, explanation.at);
    lines.push(String::new());
    lines.extend(render_section("WHAT", &finding.summary));
    lines.extend(render_section("REPEATED", &explanation.describe_repeats().unwrap_or_default()));
    lines.extend(render_section("NEXT", &finding.next));
    lines.extend(render_section("RULE", &explanation.rule));
    if let Some(ack) = &finding.acknowledged {
        let note = if ack.note.is_empty() { String::new() } else { format!(": {}", ack.note) };
        lines.extend(render_section(
            "ACK BY",
            &format!("by {} at {}{note}", ack.by, format_time_of_day(ack.at)),
        ));
    }
    lines.extend(render_context(explanation));
    lines.extend(render_evidence(&finding.evidence));
    lines.extend(render_limits(&explanation.limits));
    if let Some(chain) = &explanation.chain {
        lines.extend(render_signals(chain));
        for (title, ruling) in [
            ("RULED OUT", AlternativeOutcome::RuledOut),
            ("ALSO PRESENT", AlternativeOutcome::AlsoThere),
            ("UNDETERMINED", AlternativeOutcome::Unknown),
        ] {
            lines.extend(render_alternatives(title, ruling, &chain.alternatives));
        }
    }
    if let Some(undecided) = finding.undecided_text() {
        lines.push(String::new());
        lines.push("UNDECIDED".to_owned());
        lines.extend(wrap_pieces("  ", &split_words(&undecided), " "));
    }
    if !finding.missing.is_empty() {
        lines.push(String::new());
        lines.push("MISSING".to_owned());
        lines.extend(
            finding.missing.iter().flat_map(|what| wrap_pieces("  ", &split_words(what), " ")),
        );
    }
    lines.extend(render_changes(&finding.life.changes));
    let mut page = String::new();
    for line in lines {
        page.push_str(line.trim_end());
        page.push('\n');
    }
    page
}

fn render_head(finding: &Finding, now: UnixMs) -> Vec<String> {
    let life = &finding.life;
    let status = match (life.state, life.closed) {
        (LifeState::Closed, Some(closed)) => format!(
            "closed at {}, {} ago, after {}",
            format_time_of_day(closed),
            format_duration(now.duration_since(closed)),
            format_duration(closed.duration_since(finding.since))
        ),
        (state, _) => {
            // That it changed lately did not begin with its evidence.
            let state = if state == LifeState::Changing { LifeState::Open } else { state };
            let lasted = format_duration(now.duration_since(finding.since));
            format!("{state} since {} ({lasted})", format_time_of_day(finding.since))
        }
    };
    let mut facts = vec![finding.severity.to_string(), status];
    facts.push(format!("confidence {:.0} %", finding.confidence * 100.0));
    facts.push(format!("{:.1} GPUs lost", finding.lost_gpus));
    if life.openings > 1 {
        facts.push(format!("opened {} times", life.openings));
    }
    vec![
        format!("{}  {}", finding.kind, finding.entity),
        facts.join(" · "),
        format!("id {}", finding.id),
    ]
}

/// A titled text, wrapped; nothing for an empty text.
fn render_section(title: &str, text: &str) -> Vec<String> {
    if text.is_empty() {
        Vec::new()
    } else {
        wrap_pieces(&pad_text(title, HEAD), &split_words(text), " ")
    }
}

/// Owners, cost and nearby changes, and the victims in groups.
fn render_context(explanation: &Explanation) -> Vec<String> {
    let (finding, mut lines) = (&explanation.finding, Vec::new());
    if let Some(context) = &explanation.context {
        lines.extend(render_section("OWNER", &context.describe_jobs().unwrap_or_default()));
        if let Some(cost) = context.cost_per_hour {
            let cost = format!("{cost:.2} {} per hour", context.currency);
            lines.extend(render_section("COST", cost.trim()));
        }
        let changes = context.describe_changes(finding.since).join("; ");
        lines.extend(render_section("CHANGED", &changes));
    }
    let victims = describe_victims(&finding.victims).join("; ");
    lines.extend(render_section("VICTIMS", &victims));
    lines
}

fn format_number(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format_quantity(value, unit))
}

fn format_limit(item: &EvidenceItem) -> String {
    let render = |limit| item.side.render_limit(&format_quantity(limit, item.unit));
    item.limit.map_or_else(String::new, render)
}

fn render_evidence(evidence: &[EvidenceItem]) -> Vec<String> {
    if evidence.is_empty() {
        return Vec::new();
    }
    let rows: Vec<[String; 5]> = evidence
        .iter()
        .map(|item| {
            let limit = format_limit(item);
            let (value, note) = (format_number(item.value, item.unit), item.describe());
            let key =
                if item.threshold.is_empty() { String::new() } else { item.threshold.clone() };
            [item.what.clone(), value, limit, note, render_origin(&item.source, &key)]
        })
        .collect();
    render_table(["EVIDENCE", "value", "limit", "", "source"], 2, rows)
}

/// Origin of a number: its series, and the key of its limit.
fn render_origin(source: &str, key: &str) -> String {
    match (source, key) {
        (source, "") => source.to_owned(),
        ("", key) => format!("limit {key}"),
        (source, key) => format!("{source}; limit {key}"),
    }
}

/// A table whose last column has any width. The first column holds text, the next `numbers` columns hold numbers, the
/// others text.
fn render_table<const N: usize>(
    heads: [&str; N],
    numbers: usize,
    rows: Vec<[String; N]>,
) -> Vec<String> {
    /// Maximum width of text in the first columns.
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
        let cells = row.iter().enumerate().map(|(index, cell)| {
            let is_number = (1..=numbers).contains(&index);
            match (is_number, index + 1 == N) {
                (_, true) => cell.clone(),
                (true, _) => {
                    format!("{}{cell}", " ".repeat(widths[index].saturating_sub(cell.width())))
                }
                _ => pad_text(&truncate_text(cell, WIDEST), widths[index]),
            }
        });
        lines.push(cells.collect::<Vec<_>>().join("  "));
    }
    lines
}

fn render_limits(limits: &[LimitDetail]) -> Vec<String> {
    if limits.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "LIMITS, from [judge] in the settings".to_owned()];
    let width = limits.iter().map(|limit| limit.key.len()).max().unwrap_or(0);
    for limit in limits {
        let head = format!("  {:<width$} = {:<6}  ", limit.key, limit.value);
        lines.extend(wrap_pieces(&head, &split_words(&limit.why), " "));
    }
    lines
}

fn render_signals(chain: &EvidenceContext) -> Vec<String> {
    if chain.signals.is_empty() {
        return Vec::new();
    }
    let peers =
        if chain.peers.is_empty() { String::new() } else { format!(", peers: {}", chain.peers) };
    let rows: Vec<[String; 6]> = chain.signals.iter().map(signal_cells).collect();
    let mut lines =
        vec![String::new(), format!("SIGNALS at {}{peers}", format_time_of_day(chain.at))];
    // The table starts with an empty line.
    lines.extend(
        render_table(["", "now", "baseline", "peer median", "quartiles", "source"], 4, rows)
            .into_iter()
            .skip(1),
    );
    lines
}

fn signal_cells(signal: &SignalDetail) -> [String; 6] {
    let format_optional =
        |value: Option<f64>| value.map_or_else(String::new, |v| format_quantity(v, signal.unit));
    let now = match (signal.value, signal.absent) {
        (None, Some(reason)) => reason.as_str().to_owned(),
        (value, _) => format_number(value, signal.unit),
    };
    let quartiles = signal.quartiles.map_or_else(String::new, |(low, high)| {
        format!("{} to {}", format_quantity(low, signal.unit), format_quantity(high, signal.unit))
    });
    let what = format!("  {}", signal.what);
    [
        what,
        now,
        format_optional(signal.usual),
        format_optional(signal.peers),
        quartiles,
        signal.source.clone(),
    ]
}

fn render_alternatives(
    title: &str,
    ruling: AlternativeOutcome,
    alternatives: &[AlternativeDetail],
) -> Vec<String> {
    let rows: Vec<[String; 5]> = alternatives
        .iter()
        .filter(|other| other.ruling == ruling)
        .map(|other| {
            let number = &other.number;
            let limit = format_limit(number);
            [
                format!("  {}", other.kind),
                format_number(number.value, number.unit),
                if limit.is_empty() { limit } else { format!("limit {limit}") },
                number.what.clone(),
                render_origin(&number.source, &number.threshold),
            ]
        })
        .collect();
    if rows.is_empty() {
        Vec::new()
    } else {
        render_table([title, "value", "", "", "source"], 2, rows)
    }
}

fn render_changes(changes: &[LifecycleChange]) -> Vec<String> {
    let mut lines = vec![String::new(), "LIFECYCLE".to_owned()];
    for change in changes {
        let (from, to) = (&change.from, &change.to);
        let details = match change.what {
            FindingEvent::Acknowledged | FindingEvent::Withdrawn | FindingEvent::Accepted => {
                format!("by {to}")
            }
            FindingEvent::Opened | FindingEvent::Reopened => format!("as {to}"),
            _ if from.is_empty() => to.to_string(),
            _ => format!("{from} → {to}"),
        };
        lines.push(format!(
            "  {}  {:<12}  {details}",
            format_time_of_day(change.at),
            change.what.as_str()
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
