//! A snapshot in plain columns: state of the fleet, what it costs, who is to blame, on what evidence.

use gaunt_schema::{GpuState, LifeState, UnixMs, unit::Unit};
use unicode_width::UnicodeWidthStr as _;

use super::{
    Picture,
    columns::{WIDTH, age, cut, pad, quantity, time_of_day, wrap},
    node,
};
use crate::answer::{Evidence, Finding, Lost, NodeLine, Overview};

/// What stands where nothing is known.
const UNKNOWN: &str = "-";

/// The findings that are shown with their evidence; the others are counted.
const FINDINGS: usize = 20;

/// The nodes that are shown.
const NODES: usize = 10;

/// The whole page.
pub(super) fn page(picture: &Picture) -> String {
    let overview = &*picture.overview;
    let mut lines = vec![title(overview)];
    lines.extend(gpu_time(overview));
    lines.push(cost(&overview.lost, overview.gpus()));
    lines.extend(causes(&overview.lost));
    lines.push(String::new());
    lines.extend(findings(&picture.findings.findings, overview.at));
    lines.extend(worst(&overview.worst));
    if let [one] = picture.nodes.as_slice() {
        lines.extend(node::section(one));
    }
    lines.extend(troubles(overview));
    let mut page = String::new();
    for line in lines {
        page.push_str(cut(&line, WIDTH).trim_end());
        page.push('\n');
    }
    page
}

fn title(overview: &Overview) -> String {
    let nodes = &overview.nodes;
    let mut parts = Vec::new();
    if !overview.cluster.is_empty() {
        parts.push(overview.cluster.to_string());
    }
    parts.push(count(nodes.live + nodes.stale + nodes.down, "node"));
    parts.push(count(overview.gpus(), "GPU"));
    parts.push(format!("{} live", nodes.live));
    for (number, word) in
        [(nodes.stale, "stale"), (nodes.down, "down"), (nodes.pending, "not known yet")]
    {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    format!("gaunt  {}  at {}", parts.join(" · "), time_of_day(overview.at))
}

fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The share of each state, as many as fit on each line.
fn gpu_time(overview: &Overview) -> Vec<String> {
    let gpus = overview.gpus();
    if gpus == 0 {
        return vec!["GPU TIME  no GPU is known".to_owned()];
    }
    let shares = GpuState::ALL.iter().filter(|state| overview.in_state(**state) > 0).map(|state| {
        let share = 100.0 * f64::from(overview.in_state(*state)) / f64::from(gpus);
        format!("{} {share:.1} %", state.as_str())
    });
    wrap("GPU TIME  ", &shares.collect::<Vec<_>>(), "   ")
}

fn cost(lost: &Lost, gpus: u32) -> String {
    let share = if gpus > 0 {
        format!(" of {gpus} ({:.1} %)", 100.0 * lost.gpus / f64::from(gpus))
    } else {
        String::new()
    };
    let money = lost.cost_per_hour.map(|cost| format!("   {cost:.2} {}/h", lost.currency));
    format!("LOST      {:.1} GPUs{share}{}", lost.gpus, money.unwrap_or_default())
}

/// What the lost GPUs are attributed to, which adds up to them; nothing where nothing is lost and everything known.
fn causes(lost: &Lost) -> Option<String> {
    let mut parts = Vec::new();
    if lost.gpus > 0.0 {
        parts.push(format!("findings {:.1}", lost.findings_gpus));
        parts.push(format!("idle {:.1}", lost.idle_gpus));
        parts.push(format!("unexplained {:.1}", lost.unexplained_gpus));
    }
    if lost.unknown_gpus > 0 {
        parts.push(format!("not known {}", count(lost.unknown_gpus, "GPU")));
    }
    (!parts.is_empty()).then(|| format!("          {}", parts.join("   ")))
}

fn findings(findings: &[Finding], now: UnixMs) -> Vec<String> {
    let taken = findings.iter().filter(|finding| finding.acknowledged.is_some()).count();
    let taken = if taken > 0 { format!(" · {taken} acknowledged") } else { String::new() };
    let mut lines = vec![format!("FINDINGS  {} open{taken}", findings.len())];
    for finding in findings.iter().take(FINDINGS) {
        let place = cut(&finding.entity.to_string(), 32);
        lines.push(format!(
            "{:<9} {:<16} {} {:>8} {:>7.1} lost GPUs  sure {:.2}",
            finding.severity.as_str(),
            finding.kind.as_str(),
            pad(&place, 32),
            age(now.since(finding.since)),
            finding.lost_gpus,
            finding.confidence,
        ));
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        lines.extend(wrap("          ", &words(&finding.summary), " "));
        for evidence in &finding.evidence {
            lines.push(format!("          · {}", proof(evidence)));
        }
        if let Some(ack) = &finding.acknowledged {
            let note = if ack.note.is_empty() { String::new() } else { format!(": {}", ack.note) };
            lines.extend(wrap("          ", &words(&format!("taken on by {}{note}", ack.by)), " "));
        }
        if !finding.missing.is_empty() {
            let missing = format!("missing: {}", finding.missing.join("; "));
            lines.extend(wrap("          ", &words(&missing), " "));
        }
        if matches!(finding.life.state, LifeState::Flapping) {
            let times = finding.life.openings;
            lines.push(format!(
                "          it comes and goes: {times} times within the last minutes"
            ));
        }
        if !finding.next.is_empty() {
            lines.extend(wrap("          next: ", &words(&finding.next), " "));
        }
    }
    if findings.len() > FINDINGS {
        lines.push(format!("          and {} more", findings.len() - FINDINGS));
    }
    lines.push(String::new());
    lines
}

/// One number beside its limit.
fn proof(evidence: &Evidence) -> String {
    let number = |number: f64| quantity(number, evidence.unit);
    let mut parts = vec![evidence.what.clone()];
    parts.extend(evidence.value.map(number));
    parts.extend(evidence.limit.map(|limit| format!("(limit {})", number(limit))));
    if !evidence.note.is_empty() {
        parts.push(format!("{UNKNOWN} {}", evidence.note));
    }
    parts.join(" ")
}

fn worst(nodes: &[NodeLine]) -> Vec<String> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let width = nodes.iter().map(|line| line.node.width()).max().unwrap_or(0).clamp(4, 24);
    let mut lines = vec![format!(
        "{}  state  GPUs              lost   util     power  ports  finding           jobs",
        pad("NODE", width)
    )];
    for line in nodes.iter().take(NODES) {
        let optional = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        let jobs: Vec<_> = line.jobs.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "{}  {:<5}  {:<16} {:>5.1}  {:>5}  {:>8}  {:>5}  {:<16}  {}",
            pad(&cut(&line.node, width), width),
            line.state.as_str(),
            cut(&line.gpu_states, 16),
            line.lost_gpus,
            optional(line.utilization_ratio.map(|ratio| quantity(ratio, Unit::Ratio))),
            optional(line.power_watts.map(|watts| quantity(watts, Unit::Watts))),
            format!("{}/{}", line.ports.0, line.ports.1),
            line.finding.map_or(UNKNOWN, gaunt_schema::FindingKind::as_str),
            jobs.join(", "),
        ));
    }
    let mut seen: Vec<char> = nodes.iter().take(NODES).flat_map(|n| n.gpu_states.chars()).collect();
    seen.sort_unstable();
    seen.dedup();
    let legend: Vec<_> = GpuState::ALL
        .iter()
        .filter(|state| seen.contains(&state.code()))
        .map(|state| format!("{} {}", state.code(), state.as_str()))
        .collect();
    if !legend.is_empty() {
        lines.extend(wrap("", &legend, "   "));
    }
    lines.push(String::new());
    lines
}

fn troubles(overview: &Overview) -> Vec<String> {
    if overview.trouble.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["TROUBLE".to_owned()];
    for trouble in &overview.trouble {
        let words: Vec<_> = trouble.split(' ').map(str::to_owned).collect();
        lines.extend(wrap("  ", &words, " "));
    }
    lines
}

#[cfg(test)]
mod tests;
