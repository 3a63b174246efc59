//! One finding: a sentence, what to look at next, and the numbers that prove it.

use std::time::Duration;

use gaunt_schema::Safe;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{LABEL, alerts, hints, put, put_page, titled};
use crate::{
    answer::{Behind, Evidence, Finding, History},
    console::{
        format,
        proof::{self, Past},
        state::{Room, State},
        theme::{self, Meaning, Theme},
        widget::{
            spark,
            table::{self, number, text},
        },
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
///  EVIDENCE                           now       limit  last 15m
///  tasks waiting for input           34 %        10 %  ▁▁▁▁▁▁▁▁▅▆▇▇▇▇▇  its own usual is 2 %
///
///  VICTIMS   8: gpu003 · GPU 0, gpu003 · GPU 1, …
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Room {
    let Some((finding, open)) = &state.data.finding else {
        put(buffer, area, &hints::waiting_for("the finding", state, area.width, theme));
        return Room::default();
    };
    let width = usize::from(area.width);
    let mut lines = vec![headline(finding, width, theme)];
    if !open {
        let text = match (state.then, &state.data.refused) {
            (Some(_), _) => " ● not open at this instant: this is how it was seen at another one",
            (None, Some(_)) => " ● over and forgotten by now: this is how it was last seen",
            (None, None) => " ● no longer open: this is how it was last seen",
        };
        lines.push(Line::styled(text, theme.style(Meaning::Good)));
    }
    lines.push(Line::default());
    lines.extend(told(finding, *open, state, width, theme));
    if let Some(node) = &finding.entity.node {
        let text = format!(" Enter opens {node}, b its job, e explains all of it");
        lines.extend([Line::default(), Line::styled(text, theme.style(Meaning::Dim))]);
    }
    put_page(buffer, area, &lines, state.scroll, theme)
}

/// Draws the finding under the cursor below the list of all, as far as there is room.
pub(super) fn below(
    buffer: &mut Buffer,
    area: Rect,
    finding: &Finding,
    state: &State,
    theme: Theme,
) {
    let width = usize::from(area.width);
    let mut lines = vec![headline(finding, width, theme)];
    lines.extend(told(finding, finding.life.closed.is_none(), state, width, theme));
    let room = usize::from(area.height);
    if lines.len() > room {
        lines.truncate(room.saturating_sub(1));
        lines.push(Line::styled(" … Enter shows all of it", theme.style(Meaning::Dim)));
    }
    put(buffer, area, &lines);
}

/// What is known of a finding, below its headline.
fn told(
    finding: &Finding,
    open: bool,
    state: &State,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let at = state.data.overview.as_deref().map_or(state.now, |overview| overview.at);
    let mut lines = Vec::new();
    let summary = format::wrap(&Safe::new(&finding.summary), width.saturating_sub(4));
    lines.extend(summary.into_iter().map(|line| Line::raw(format!("   {line}"))));
    lines.push(Line::default());
    let facts = format!(
        "{} ({})   {} lost GPUs   {} % sure",
        format::clock(finding.since),
        format::span(at.since(finding.since)),
        format::gpus(finding.lost_gpus),
        format::whole_percent(Some(finding.confidence)),
    );
    lines.push(titled("SINCE", vec![Span::raw(facts)], theme));
    lines.extend(paragraph("NEXT", &Safe::new(&finding.next), width, theme));
    if let Some(taken) = &finding.acknowledged {
        let note = if taken.note.is_empty() { String::new() } else { format!(": {}", taken.note) };
        let text = format!("✔ {} at {}{note}", taken.by, format::clock(taken.at));
        lines.extend(paragraph("TAKEN BY", &text, width, theme));
    }
    if let Some(list) = state.alerts().filter(|_| open) {
        lines.extend(alerts::lines(list, finding, at, width, theme));
    }
    if let Some(text) = life(finding) {
        lines.extend(paragraph("LIFE", &text, width, theme));
    }
    if !finding.evidence.is_empty() {
        lines.push(Line::default());
        lines.extend(evidence(finding, &state.data.pasts, width, theme));
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
    lines
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

pub(super) fn headline(finding: &Finding, width: usize, theme: Theme) -> Line<'static> {
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
pub(super) fn paragraph(
    title: &str,
    words: &str,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
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

/// Columns of a number.
const NUMBER: usize = 10;
/// From this width on the note of a number stands beside it, else below it.
const NOTED: usize = 120;

/// The numbers, each beside its limit and its past.
fn evidence(finding: &Finding, pasts: &[Past], width: usize, theme: Theme) -> Vec<Line<'static>> {
    let asks = proof::asks(finding);
    let has_past = asks.iter().any(Option::is_some);
    let past = match (has_past, width) {
        (false, _) => 0,
        (true, 0..NOTED) => 15,
        (true, _) => 30,
    };
    let longest = finding.evidence.iter().map(|e| format::width(&Safe::new(&e.what))).max();
    let fixed = 2 * (NUMBER + 2) + past + 2 + 2;
    let beside = if width >= NOTED { 36 } else { 0 };
    let what = longest.unwrap_or(0).clamp(20, width.saturating_sub(fixed + beside).max(20));
    let note = width.saturating_sub(what + fixed + 2);
    let columns = [text("EVIDENCE", what), number("now", NUMBER), number("limit", NUMBER)];
    let known = pasts.iter().filter_map(|past| past.history.as_deref()).map(Past::span_ms).max();
    let mut heading = table::heading(&columns, theme.style(Meaning::Title));
    if let Some(span) = known.filter(|span| has_past && *span > 0) {
        let text = format!("  last {}", format::span(Duration::from_millis(span)));
        heading.push_span(Span::styled(text, theme.style(Meaning::Title)));
    }
    let mut lines = vec![heading];
    let mut drawn = false;
    for (proof, ask) in finding.evidence.iter().zip(asks) {
        let past_of = ask.and_then(|ask| pasts.iter().find(|past| past.ask == ask));
        let history = past_of.and_then(|past| past.history.as_deref());
        let number = |value: Option<f64>| {
            value.map_or_else(|| format::ABSENT.into(), |v| format::with_unit(v, proof.unit))
        };
        let limit = proof.limit.map_or_else(String::new, |v| format::with_unit(v, proof.unit));
        let cells = [
            (Safe::new(&proof.what).to_string(), Style::new()),
            (number(proof.value), theme.style(Meaning::Title)),
            (limit, Style::new()),
        ];
        let mut line = table::row(&columns, cells);
        if has_past {
            line.push_span(Span::raw("  "));
            drawn |= history.is_some_and(|history| Past::limit(history, proof).is_some());
            line.spans.extend(history.map_or_else(
                || vec![Span::raw(" ".repeat(past))],
                |history| picture(history, known.unwrap_or(0), proof, past, theme),
            ));
        }
        let dim = theme.style(Meaning::Dim);
        let room = if beside > 0 { note } else { width.saturating_sub(6) };
        let notes = format::wrap(&Safe::new(&said_of(proof, past_of)), room);
        let (first, rest) = if beside > 0 { notes.split_at(1) } else { (&[][..], &notes[..]) };
        line.spans.extend(first.iter().map(|note| Span::styled(format!("  {note}"), dim)));
        lines.push(line);
        let indent = if beside > 0 { width.saturating_sub(note) } else { 4 };
        let rest = rest.iter().filter(|note| !note.is_empty());
        lines.extend(rest.map(|note| Line::styled(format!("{}{note}", " ".repeat(indent)), dim)));
    }
    if drawn {
        let text = " half of the height is the limit";
        lines.push(Line::styled(text, theme.style(Meaning::Dim)));
    }
    lines
}

/// What is said of a number: its note, and which series its past is of. What was reckoned from others has the past of one
/// of them, which may well fall while the number rises.
fn said_of(proof: &Evidence, past: Option<&Past>) -> String {
    let other = past.filter(|past| proof.past == Behind::Part && past.history.is_some());
    match other {
        None => proof.note.clone(),
        Some(past) if proof.note.is_empty() => format!("past: {}", past.ask.metric),
        Some(past) => format!("{}; past: {}", proof.note, past.ask.metric),
    }
}

/// The last minutes of a number, the wrong side of its limit in another colour.
fn picture(
    history: &History,
    span_ms: u64,
    proof: &Evidence,
    columns: usize,
    theme: Theme,
) -> Vec<Span<'static>> {
    let points = Past::newest(history, span_ms);
    let Some(limit) = Past::limit(history, proof) else {
        let line = spark::line(points, None, columns);
        return vec![Span::styled(line, theme.style(Meaning::Neutral))];
    };
    // The number passed its limit: the side on which it is now is the wrong one.
    let wrong = proof.value.is_none_or(|value| value >= f64::from(limit));
    let signs = spark::against(points, limit, columns);
    let meaning = |sign| match spark::reaches(sign) {
        Some(reached) if reached == wrong => Meaning::Bad,
        _ => Meaning::Neutral,
    };
    let signs = signs.chars();
    signs.map(|sign| Span::styled(sign.to_string(), theme.style(meaning(sign)))).collect()
}
