//! Fleet text: a snapshot in plain columns: fleet state, cost, findings and evidence.

use std::time::Duration;

use gaunt_schema::{
    FindingKind, GpuState, LifeState, Severity, UnixMs,
    time::{format_duration, format_time_of_day},
    unit::Unit,
};
use unicode_width::UnicodeWidthStr as _;

use super::{
    FleetSnapshot, node_text,
    text_columns::{WIDTH, format_quantity, pad_text, split_words, truncate_text, wrap_pieces},
};
use gaunt_api::{
    EvidenceItem, Finding, FindingGroup, FindingLine, FindingList, LostGpuTime, NodeLine, Overview,
    finding_group, finding_place,
};

/// Placeholder for an unknown value.
const UNKNOWN: &str = "-";

/// Findings and groups that are shown with evidence; the others are counted.
const FINDINGS: usize = 20;

/// Columns of a finding's kind: the longest is `unexplained_slowdown`.
const KIND: usize = 20;

/// The same with an arrow.
const NODE_KIND: usize = KIND + 2;

/// Columns of the entity of a finding.
const ENTITY: usize = 29;

/// The most nodes that are shown.
const NODES: usize = 10;

/// Renders the whole page.
pub(super) fn render_page(snapshot: &FleetSnapshot) -> String {
    let overview = &*snapshot.overview;
    let mut lines = vec![render_title(overview)];
    lines.extend(render_gpu_time(overview));
    lines.push(render_loss(&overview.lost, overview.gpu_count()));
    lines.extend(render_loss_causes(&overview.lost));
    lines.push(String::new());
    lines.extend(render_findings(&snapshot.findings, overview.at));
    lines.extend(render_worst_nodes(&overview.worst, &snapshot.findings.findings));
    if let [node] = snapshot.nodes.as_slice() {
        lines.extend(node_text::render_node(node));
    }
    lines.extend(render_troubles(overview));
    let mut page = String::new();
    for line in lines {
        page.push_str(truncate_text(&line, WIDTH).trim_end());
        page.push('\n');
    }
    page
}

fn render_title(overview: &Overview) -> String {
    let nodes = &overview.nodes;
    let mut parts = Vec::new();
    if !overview.cluster.is_empty() {
        parts.push(overview.cluster.to_string());
    }
    parts.extend(overview.describe_silent_clusters());
    parts.push(format_count(nodes.live + nodes.stale + nodes.down, "node"));
    parts.push(format_count(overview.gpu_count(), "GPU"));
    parts.push(format!("{} live", nodes.live));
    for (number, word) in [(nodes.stale, "stale"), (nodes.down, "down"), (nodes.pending, "pending")]
    {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    format!("gaunt  {}  at {}", parts.join(" · "), format_time_of_day(overview.at))
}

fn format_count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Share of each state, wrapped into lines.
fn render_gpu_time(overview: &Overview) -> Vec<String> {
    let gpus = overview.gpu_count();
    if gpus == 0 {
        return vec!["GPU TIME  no GPUs known".to_owned()];
    }
    let shares =
        GpuState::ALL.iter().filter(|state| overview.gpus_in_state(**state) > 0).map(|state| {
            let share = 100.0 * f64::from(overview.gpus_in_state(*state)) / f64::from(gpus);
            format!("{} {share:.1} %", state.as_str())
        });
    wrap_pieces("GPU TIME  ", &shares.collect::<Vec<_>>(), "   ")
}

fn render_loss(lost: &LostGpuTime, gpus: u32) -> String {
    if gpus > 0 && lost.gpus <= 0.0 && lost.unknown_gpus == gpus {
        return "LOST      unknown".to_owned();
    }
    let share = if gpus > 0 {
        format!(" of {gpus} ({:.1} %)", 100.0 * lost.gpus / f64::from(gpus))
    } else {
        String::new()
    };
    let cost_text = lost.cost_per_hour.map(|cost| format!("   {cost:.2} {}/h", lost.currency));
    format!("LOST      {:.1} GPUs{share}{}", lost.gpus, cost_text.unwrap_or_default())
}

/// What the lost GPUs are attributed to; the parts add up. Nothing if nothing is lost and everything is known.
fn render_loss_causes(lost: &LostGpuTime) -> Option<String> {
    let mut parts = Vec::new();
    if lost.gpus > 0.0 {
        parts.push(format!("findings {:.1}", lost.findings_gpus));
        parts.push(format!("idle in jobs {:.1}", lost.idle_gpus));
        parts.push(format!("unexplained {:.1}", lost.unexplained_gpus));
    }
    if lost.unknown_gpus > 0 {
        parts.push(format!("unknown {}", format_count(lost.unknown_gpus, "GPU")));
    }
    (!parts.is_empty()).then(|| format!("          {}", parts.join("   ")))
}

fn render_findings(list: &FindingList, now: UnixMs) -> Vec<String> {
    let findings = &list.findings;
    let acknowledged = findings.iter().filter(|finding| finding.acknowledged.is_some()).count();
    let acknowledged =
        if acknowledged > 0 { format!(" · {acknowledged} acknowledged") } else { String::new() };
    let mut lines =
        vec![format!("FINDINGS  {} open{acknowledged}", list.total.max(findings.len() as u32))];
    let shown_lines = finding_group::collect_lines(findings, &list.groups);
    for line in shown_lines.iter().take(FINDINGS) {
        match line {
            FindingLine::Single(finding) => lines.extend(render_finding(finding, now)),
            FindingLine::Group(group) => lines.extend(render_group(group, findings, now)),
        }
    }
    let more: usize = shown_lines.iter().skip(FINDINGS).map(FindingLine::finding_count).sum();
    if more > 0 {
        lines.push(format!("          and {more} more"));
    }
    lines.push(String::new());
    lines
}

/// Renders a finding with its details.
fn render_finding(finding: &Finding, now: UnixMs) -> Vec<String> {
    let mut lines = vec![render_headline(
        (finding.severity, finding.kind),
        &truncate_text(&finding.entity.to_string(), ENTITY),
        now.duration_since(finding.since),
        (finding.lost_gpus, finding.confidence),
    )];
    lines.extend(wrap_pieces("          ", &split_words(&finding.summary), " "));
    for evidence in &finding.evidence {
        lines.push(format!("          · {}", render_evidence(evidence)));
    }
    if let Some(ack) = &finding.acknowledged {
        let note = if ack.note.is_empty() { String::new() } else { format!(": {}", ack.note) };
        lines.extend(wrap_pieces(
            "          ",
            &split_words(&format!("acknowledged by {}{note}", ack.by)),
            " ",
        ));
    }
    if let Some(undecided) = finding.undecided_text() {
        let undecided = format!("undecided: {undecided}");
        lines.extend(wrap_pieces("          ", &split_words(&undecided), " "));
    }
    if !finding.missing.is_empty() {
        let missing = format!("missing: {}", finding.missing.join("; "));
        lines.extend(wrap_pieces("          ", &split_words(&missing), " "));
    }
    if matches!(finding.life.state, LifeState::Flapping) {
        let times = finding.life.openings;
        lines.push(format!("          flapping: opened {times} times within the last minutes"));
    }
    if !finding.next.is_empty() {
        lines.extend(wrap_pieces("          next: ", &split_words(&finding.next), " "));
    }
    lines
}

/// Renders a group of findings with the worst of them as example.
fn render_group(group: &FindingGroup, findings: &[Finding], now: UnixMs) -> Vec<String> {
    let cost = group.lost_gpus;
    let gpus = (cost > 0.0).then(|| format!("{cost:.1}"));
    let gpus = gpus.as_deref().map(|gpus| gpus.strip_suffix(".0").unwrap_or(gpus));
    let mut lines = vec![render_headline(
        (group.severity, group.kind),
        &truncate_text(&format!("× {}", group.render_members(gpus)), ENTITY),
        now.duration_since(group.since),
        (cost, group.confidence),
    )];
    if group.acknowledged > 0 {
        let (acknowledged, total) = (group.acknowledged, group.members.len());
        lines.push(format!("          {acknowledged} of {total} acknowledged"));
    }
    let worst = group.members.first().and_then(|id| findings.iter().find(|f| f.id == *id));
    if let Some(worst) = worst {
        lines.extend(wrap_pieces("          e.g. ", &split_words(&worst.summary), " "));
        lines.extend(wrap_pieces("          next: ", &split_words(&worst.next), " "));
    }
    lines
}

/// Kind, entity, start, cost and confidence.
fn render_headline(
    (severity, kind): (Severity, FindingKind),
    entity: &str,
    age: Duration,
    (cost, confidence): (f64, f64),
) -> String {
    format!(
        "{:<9} {:<KIND$} {} {:>6} {:>7.1} GPUs lost  conf {:>3.0} %",
        severity.as_str(),
        kind.as_str(),
        pad_text(entity, ENTITY),
        format_duration(age),
        cost,
        confidence * 100.0,
    )
}

/// One number with its limit.
fn render_evidence(evidence: &EvidenceItem) -> String {
    let number = |number: f64| format_quantity(number, evidence.unit);
    let mut parts = vec![evidence.what.clone()];
    parts.extend(evidence.value.map(number));
    let limit = evidence.limit.map(|limit| evidence.side.render_limit(&number(limit)));
    parts.extend(limit.map(|limit| format!("(limit {limit})")));
    let note = evidence.describe();
    if !note.is_empty() {
        parts.push(format!("{UNKNOWN} {note}"));
    }
    parts.join(" ")
}

/// The finding of a node, with an arrow if it is about something else that the node waits for.
fn render_node_finding(line: &NodeLine, findings: &[Finding]) -> String {
    let Some(kind) = line.finding.map(FindingKind::as_str) else { return UNKNOWN.to_owned() };
    let is_elsewhere = finding_place::is_elsewhere(findings, kind, &line.node, None);
    if is_elsewhere { format!("← {kind}") } else { kind.to_owned() }
}

fn render_worst_nodes(nodes: &[NodeLine], findings: &[Finding]) -> Vec<String> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let width = nodes.iter().map(|line| line.node.width()).max().unwrap_or(0).clamp(4, 24);
    let mut lines = vec![format!(
        "{}  state  GPUs              lost   util     power  ports  {:<NODE_KIND$}  jobs",
        pad_text("NODE", width),
        "finding"
    )];
    for line in nodes.iter().take(NODES) {
        let optional = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        let jobs: Vec<_> = line.jobs.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "{}  {:<5}  {:<16} {:>5.1}  {:>5}  {:>8}  {:>5}  {:<NODE_KIND$}  {}",
            pad_text(&truncate_text(&line.node, width), width),
            line.state.as_str(),
            truncate_text(&line.gpu_states, 16),
            line.lost_gpus,
            optional(line.utilization_ratio.map(|ratio| format_quantity(ratio, Unit::Ratio))),
            optional(line.power_watts.map(|watts| format_quantity(watts, Unit::Watts))),
            optional((line.ports.1 > 0).then(|| format!("{}/{}", line.ports.0, line.ports.1))),
            render_node_finding(line, findings),
            jobs.join(", "),
        ));
    }
    let mut letters: Vec<char> =
        nodes.iter().take(NODES).flat_map(|n| n.gpu_states.chars()).collect();
    letters.sort_unstable();
    letters.dedup();
    let legend: Vec<_> = GpuState::ALL
        .iter()
        .filter(|state| letters.contains(&state.letter_code()))
        .map(|state| format!("{} {}", state.letter_code(), state.as_str()))
        .collect();
    if !legend.is_empty() {
        lines.extend(wrap_pieces("", &legend, "   "));
    }
    lines.push(String::new());
    lines
}

fn render_troubles(overview: &Overview) -> Vec<String> {
    let mut lines = Vec::new();
    for (title, texts) in [("PROBLEMS", &overview.trouble), ("SOURCES", &overview.source_notes)] {
        if !texts.is_empty() {
            lines.push(title.to_owned());
        }
        for text in texts {
            let words: Vec<_> = text.split(' ').map(str::to_owned).collect();
            lines.extend(wrap_pieces("  ", &words, " "));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
