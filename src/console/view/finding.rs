//! One finding: a sentence, what to look at next, and the numbers that prove it.

use gaunt_schema::Safe;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{LABEL, hints, put, put_page, titled};
use crate::{
    answer::{Evidence, Finding},
    console::{
        format,
        state::{Room, State},
        theme::{self, Meaning, Theme},
        widget::table::{self, number, text},
    },
};

/// Victims that are named; the others are counted.
const VICTIMS: usize = 64;

/// Draws the finding that was opened.
///
/// ```text
///  ✖ port_down  gpu003 · mlx5_1/1                                    critical
///
///    port mlx5_1/1 of gpu003 is down since 11:57:32; its seven siblings are up
///
///  SINCE     11:57:32Z (6m10)   costs 8 GPUs   97 % sure
///  NEXT      look at the cable and the switch port of gpu003 mlx5_1
///
///  EVIDENCE                           now       limit
///  ports up                             7           8  one of them went down
///
///  VICTIMS   8: gpu003 · GPU 0, gpu003 · GPU 1, …
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Room {
    let Some((finding, open)) = &state.data.finding else {
        put(buffer, area, &hints::waiting_for("the finding", state, area.width, theme));
        return Room::default();
    };
    let at = state.data.overview.as_deref().map_or(state.now, |overview| overview.at);
    let width = usize::from(area.width);
    let mut lines = vec![headline(finding, width, theme)];
    if !open {
        let text = " ● no longer open: this is how it was last seen";
        lines.push(Line::styled(text, theme.style(Meaning::Good)));
    }
    lines.push(Line::default());
    let summary = format::wrap(&Safe::new(&finding.summary), width.saturating_sub(4));
    lines.extend(summary.into_iter().map(|line| Line::raw(format!("   {line}"))));
    lines.push(Line::default());
    let facts = format!(
        "{} ({})   costs {} GPUs   {} % sure",
        format::clock(finding.since),
        format::span(at.since(finding.since)),
        format::gpus(finding.cost_gpu_hours_per_hour),
        format::whole_percent(Some(finding.confidence)),
    );
    lines.push(titled("SINCE", vec![Span::raw(facts)], theme));
    lines.extend(paragraph("NEXT", &Safe::new(&finding.next), width, theme));
    if let Some(taken) = &finding.acknowledged {
        let note = if taken.note.is_empty() { String::new() } else { format!(": {}", taken.note) };
        let text = format!("✔ {} at {}{note}", taken.by, format::clock(taken.at));
        lines.extend(paragraph("TAKEN BY", &text, width, theme));
    }
    if let Some(text) = life(finding) {
        lines.extend(paragraph("LIFE", &text, width, theme));
    }
    if !finding.evidence.is_empty() {
        lines.push(Line::default());
        lines.extend(evidence(&finding.evidence, width, theme));
    }
    if !finding.missing.is_empty() {
        lines.push(Line::default());
        let missing = Safe::new(&finding.missing.join(", "));
        lines.extend(paragraph("UNKNOWN", &missing, width, theme));
    }
    if !finding.victims.is_empty() {
        lines.push(Line::default());
        lines.extend(paragraph("VICTIMS", &victims(finding), width, theme));
    }
    if let Some(node) = &finding.entity.node {
        let text = format!(" Enter opens {node}, b its job");
        lines.extend([Line::default(), Line::styled(text, theme.style(Meaning::Dim))]);
    }
    put_page(buffer, area, &lines, state.scroll, theme)
}

/// What became of it so far: what changed, and when.
fn life(finding: &Finding) -> Option<String> {
    let changes = &finding.life.changes;
    let told = changes.iter().map(|change| {
        let to = if change.to.is_empty() { String::new() } else { format!(" {}", change.to) };
        format!("{} {}{to}", format::clock(change.at), change.what)
    });
    let told: Vec<String> = told.collect();
    let times = finding.life.openings;
    let often = if times > 1 { format!("; opened {times} times") } else { String::new() };
    (!told.is_empty()).then(|| format!("{}{often}: {}", finding.life.state, told.join(", ")))
}

fn headline(finding: &Finding, width: usize, theme: Theme) -> Line<'static> {
    let severity = theme.severity(finding.severity);
    let sign = theme::severity_sign(finding.severity);
    let name = format!(" {sign} {}  ", finding.kind);
    let word = format!("{} ", finding.severity);
    let room = width.saturating_sub(format::width(&name) + word.len());
    Line::from(vec![
        Span::styled(name, severity),
        Span::styled(format::left(&finding.entity.to_string(), room), theme.style(Meaning::Title)),
        Span::styled(word, severity),
    ])
}

/// A titled text in as many lines as it takes.
fn paragraph(title: &str, words: &str, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let wrapped = format::wrap(words, width.saturating_sub(LABEL + 2));
    let titles = std::iter::once(title).chain(std::iter::repeat(""));
    let lines = titles.zip(wrapped);
    lines.map(|(title, line)| titled(title, vec![Span::raw(line)], theme)).collect()
}

fn victims(finding: &Finding) -> String {
    let count = finding.victims.len();
    let named: Vec<String> =
        finding.victims.iter().take(VICTIMS).map(ToString::to_string).collect();
    let more = if count > VICTIMS { ", …" } else { "" };
    format!("{}: {}{more}", format::count(count as u64), named.join(", "))
}

fn evidence(evidence: &[Evidence], width: usize, theme: Theme) -> Vec<Line<'static>> {
    let what = evidence.iter().map(|e| format::width(&Safe::new(&e.what))).max().unwrap_or(0);
    let what = what.clamp(20, width.saturating_sub(50).max(20));
    let note = width.saturating_sub(what + 2 * 11 + 3 * 2 + 2);
    let columns = [text("EVIDENCE", what), number("now", 11), number("limit", 11), text("", note)];
    let mut lines = vec![table::heading(&columns, theme.style(Meaning::Title))];
    for proof in evidence {
        let number = |value: Option<f64>| {
            value.map_or_else(|| format::ABSENT.into(), |v| format::with_unit(v, proof.unit))
        };
        let limit = proof.limit.map_or_else(String::new, |v| format::with_unit(v, proof.unit));
        let cells = [
            (Safe::new(&proof.what).to_string(), Style::new()),
            (number(proof.value), theme.style(Meaning::Title)),
            (limit, Style::new()),
        ];
        let notes = format::wrap(&Safe::new(&proof.note), note);
        let rows = std::iter::once(cells).chain(std::iter::repeat_with(Default::default));
        lines.extend(rows.zip(notes).map(|(cells, note)| {
            let note = (note, theme.style(Meaning::Dim));
            table::row(&columns, cells.into_iter().chain([note]))
        }));
    }
    lines
}
