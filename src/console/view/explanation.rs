//! A finding explained: its rule and limits, its signals beside what is usual and what its peers do, what was ruled out.

use gaunt_schema::Safe;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{finding, hints, put, put_page};
use crate::{
    answer::{Alternative, Chain, Explanation, Limit, Ruling, Signal},
    console::{
        format,
        state::{Room, State},
        theme::{Meaning, Theme},
        widget::table::{self, number, text},
    },
};

/// Below this width the quartiles of the peers are left out.
const NARROW: usize = 100;
/// Columns of a number.
const NUMBER: usize = 10;

/// Draws everything that is known of the finding.
///
/// ```text
///  ✖ throttled  gpu-0417 · GPU 5                                     critical
///  RULE      Hardware or heat holds the clock of a GPU that works …
///
///  SIGNALS at 12:03:41Z, beside 7 other GPUs of job 8812
///  power over its limit        41 %      71 %      70 %  68 % to 72 %
///
///  RULED OUT
///  data_starved   io pressure is 1 %, the limit 8 %
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Room {
    let Some(told) = state.data.explained.as_deref() else {
        let lines = if state.then.is_some() {
            let text =
                " what was known around a finding of the past is not kept; . goes back to now";
            vec![Line::default(), Line::styled(text, theme.style(Meaning::Dim))]
        } else {
            hints::waiting_for("the explanation", state, area.width, theme)
        };
        put(buffer, area, &lines);
        return Room::default();
    };
    let width = usize::from(area.width);
    let finding = &told.finding;
    let mut lines = vec![finding::headline(finding, width, theme)];
    lines.extend(finding::paragraph("WHAT", &Safe::new(&finding.summary), width, theme));
    lines.extend(finding::paragraph("RULE", &Safe::new(&told.rule), width, theme));
    lines.extend(finding::paragraph("NEXT", &Safe::new(&finding.next), width, theme));
    lines.extend(chained(told, width, theme));
    lines.extend(limits(&told.limits, width, theme));
    if !finding.missing.is_empty() {
        lines.push(Line::default());
        lines.push(Line::styled(" UNKNOWN", theme.style(Meaning::Title)));
        lines.extend(finding.missing.iter().flat_map(|what| indented(what, width)));
    }
    put_page(buffer, area, &lines, state.scroll, theme)
}

/// What was looked at around the thing that is blamed.
fn chained(told: &Explanation, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let Some(chain) = &told.chain else {
        let text = " what was known beside the evidence was not kept with this finding";
        return vec![Line::default(), Line::styled(text, theme.style(Meaning::Dim))];
    };
    let mut lines = signals(chain, width, theme);
    for (title, ruling) in [
        ("RULED OUT", Ruling::RuledOut),
        ("ALSO THERE", Ruling::AlsoThere),
        ("NOT KNOWN", Ruling::Unknown),
    ] {
        let others = chain.alternatives.iter().filter(|other| other.ruling == ruling);
        let others: Vec<&Alternative> = others.collect();
        if !others.is_empty() {
            lines.push(Line::default());
            lines.push(Line::styled(format!(" {title}"), theme.style(Meaning::Title)));
            lines.extend(others.iter().flat_map(|other| alternative(other, width, theme)));
        }
    }
    lines
}

fn signals(chain: &Chain, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let beside = match &*Safe::new(&chain.peers) {
        "" => String::new(),
        peers => format!(", beside {peers}"),
    };
    let title = format!(" SIGNALS at {}{beside}", format::clock(chain.at));
    let mut lines = vec![Line::default(), Line::styled(title, theme.style(Meaning::Title))];
    if chain.signals.is_empty() {
        lines.push(Line::styled("   none is known", theme.style(Meaning::Dim)));
        return lines;
    }
    let quartiles = if width < NARROW { 0 } else { 23 };
    let what = chain.signals.iter().map(|signal| format::width(&Safe::new(&signal.what))).max();
    let what =
        what.unwrap_or(0).min(width.saturating_sub(3 * (NUMBER + 2) + quartiles + 4)).max(16);
    let columns = [
        text("", what),
        number("now", NUMBER),
        number("usual", NUMBER),
        number("peers", NUMBER),
        text("half of them are", quartiles),
    ];
    let columns = &columns[..if quartiles > 0 { 5 } else { 4 }];
    lines.push(table::heading(columns, theme.style(Meaning::Dim)));
    lines.extend(chain.signals.iter().map(|of| table::row(columns, signal(of, theme))));
    lines
}

fn signal(signal: &Signal, theme: Theme) -> [(String, Style); 5] {
    let of = |value: Option<f64>| {
        value.map_or_else(String::new, |value| format::with_unit(value, signal.unit))
    };
    let now = match (signal.value, signal.absent) {
        (None, reason) => super::node_tables::absence(reason).to_owned(),
        (value, _) => of(value),
    };
    let quartiles = signal
        .quartiles
        .map_or_else(String::new, |(low, high)| format!("{} – {}", of(Some(low)), of(Some(high))));
    let plain = Style::new();
    [
        (Safe::new(&signal.what).to_string(), plain),
        (now, theme.style(Meaning::Title)),
        (of(signal.usual), plain),
        (of(signal.peers), plain),
        (quartiles, theme.style(Meaning::Dim)),
    ]
}

fn alternative(other: &Alternative, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let proof = &other.number;
    let number = |value: Option<f64>| {
        value.map_or_else(|| format::ABSENT.into(), |value| format::with_unit(value, proof.unit))
    };
    let limit =
        proof.limit.map_or_else(String::new, |limit| format!(", limit {}", number(Some(limit))));
    let text = format!("{}: {}{limit}", Safe::new(&proof.what), number(proof.value));
    let name = format!("   {}", format::left(other.kind.as_str(), 20));
    let indent = " ".repeat(format::width(&name));
    let lines = format::wrap(&text, width.saturating_sub(indent.len() + 1));
    let heads = std::iter::once(name).chain(std::iter::repeat(indent));
    let lines = heads.zip(lines);
    lines
        .map(|(head, line)| {
            Line::from(vec![Span::styled(head, theme.style(Meaning::Dim)), Span::raw(line)])
        })
        .collect()
}

fn limits(limits: &[Limit], width: usize, theme: Theme) -> Vec<Line<'static>> {
    if limits.is_empty() {
        return Vec::new();
    }
    let title = " LIMITS, from [judge] in the settings";
    let mut lines = vec![Line::default(), Line::styled(title, theme.style(Meaning::Title))];
    for limit in limits {
        let head = format!("   {} = {}", Safe::new(&limit.key), limit.value);
        lines.push(Line::raw(head));
        let why = format::wrap(&Safe::new(&limit.why), width.saturating_sub(6));
        let dim = theme.style(Meaning::Dim);
        lines.extend(why.into_iter().map(|line| Line::styled(format!("     {line}"), dim)));
    }
    lines
}

fn indented(text: &str, width: usize) -> Vec<Line<'static>> {
    let lines = format::wrap(&Safe::new(text), width.saturating_sub(4));
    lines.into_iter().map(|line| Line::raw(format!("   {line}"))).collect()
}
