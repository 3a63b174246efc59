//! The top of the overview: what all GPU time is spent on, and what is lost.

use std::time::Duration;

use gaunt_schema::GpuState;
use ratatui::text::{Line, Span};

use super::{INDENT, titled};
use crate::{
    answer::Overview,
    console::{
        format,
        theme::{self, Meaning, Theme},
        widget::{bar, spark},
    },
};

/// The widest picture of lost GPUs, in columns.
const PAST: usize = 40;

/// The bar, its legend and the line of losses, `width` columns wide.
///
/// ```text
///  GPU TIME  █████████████████████████████████████▒▒▒▒▒▒░░░░░░░░░░░░ddddiii········
///            █ computing 64.1  ▒ communicating 9.8  ░ waiting for peers 15.2  …  %
///  LOST      2,071 GPUs (20.7 %)   $4,142/h   ▁▁▁▁▂▂▃▅▇▇▇▇▇▇▇▇  last 15m
///            findings 1,982   idle 64   unexplained 25   not known 8 GPUs
/// ```
pub(super) fn lines(overview: &Overview, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let total = overview.gpus();
    if total == 0 {
        let nodes = overview.nodes;
        let why = match nodes.live + nodes.stale + nodes.down {
            0 => "no node has been read yet",
            1 => "there is no GPU on this node",
            _ => "there is no GPU on any of these nodes",
        };
        return vec![titled("GPU TIME", vec![Span::styled(why, theme.style(Meaning::Dim))], theme)];
    }
    let mut lines = vec![titled("GPU TIME", fleet_bar(overview, width, theme), theme)];
    lines.extend(legend(overview, total, width, theme));
    lines.push(lost(overview, total, width, theme));
    lines.extend(causes(overview, theme));
    lines
}

fn fleet_bar(overview: &Overview, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let amounts: Vec<u64> = overview.states.iter().map(|count| count.gpus.into()).collect();
    let columns = bar::columns(&amounts, width.saturating_sub(INDENT + 1));
    let parts = overview.states.iter().zip(columns);
    parts
        .map(|(count, columns)| {
            let sign = theme::state_sign(count.state).repeat(columns);
            Span::styled(sign, theme.state(count.state))
        })
        .collect()
}

/// Each state that occurs with its share, in as many lines as that takes.
fn legend(overview: &Overview, total: u32, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let mut lines: Vec<Vec<Span<'static>>> = vec![vec![Span::raw(" ".repeat(INDENT))]];
    let mut used = INDENT;
    for count in overview.states.iter().filter(|count| count.gpus > 0) {
        let (sign, words) = (theme::state_sign(count.state), theme::state_words(count.state));
        let share = format::percent(f64::from(count.gpus) / f64::from(total));
        let text = format!(" {words} {share} %");
        let columns = 1 + format::width(&text) + 2;
        if used + columns > width + 2 && used > INDENT {
            lines.push(vec![Span::raw(" ".repeat(INDENT))]);
            used = INDENT;
        }
        used += columns;
        if let Some(line) = lines.last_mut() {
            line.push(Span::styled(sign, theme.state(count.state)));
            line.push(Span::raw(format!("{text}  ")));
        }
    }
    lines.into_iter().map(Line::from).collect()
}

fn lost(overview: &Overview, total: u32, width: usize, theme: Theme) -> Line<'static> {
    let lost = &overview.lost;
    let some = lost.gpus > 0.0;
    let meaning = if some { Meaning::Bad } else { Meaning::Good };
    let share = format::percent(lost.gpus / f64::from(total));
    let amount = if some {
        format!("{} of {} GPUs ({share} %)", format::gpus(lost.gpus), format::count(total.into()))
    } else if overview.in_state(GpuState::Unknown) + overview.in_state(GpuState::Stale) == total {
        "not known".to_owned()
    } else {
        "nothing".to_owned()
    };
    let mut spans = vec![Span::styled(amount, theme.style(meaning))];
    if let Some(cost) = lost.cost_per_hour.filter(|cost| cost.is_finite()) {
        spans.push(Span::raw(format!("   {}", format::cost(cost, &lost.currency))));
    }
    let used: usize = spans.iter().map(Span::width).sum::<usize>() + INDENT;
    // Before the first point nobody looked: that is no past.
    let blank = lost.history.iter().take_while(|point| point.is_none()).count();
    let history = &lost.history[blank..];
    let room = spark::columns(history.len(), width.saturating_sub(used + 16).min(PAST));
    if room > 1 {
        let span = lost.history_step_ms.saturating_mul(history.len() as u64);
        let past = format::span(Duration::from_millis(span));
        let picture = spark::line(history, None, room);
        spans.push(Span::styled(format!("   {picture}"), theme.style(meaning)));
        spans.push(Span::styled(format!("  last {past}"), theme.style(Meaning::Dim)));
    }
    titled("LOST", spans, theme)
}

/// What the lost GPUs are attributed to, which adds up to them; nothing where nothing is lost and everything known.
fn causes(overview: &Overview, theme: Theme) -> Option<Line<'static>> {
    let lost = &overview.lost;
    if lost.gpus <= 0.0 && lost.unknown_gpus == 0 {
        return None;
    }
    let mut spans = vec![Span::raw(" ".repeat(INDENT))];
    if lost.gpus > 0.0 {
        let part = |word: &str, gpus: f64| format!("{word} {}   ", format::gpus(gpus));
        spans.push(Span::raw(part("findings", lost.findings_gpus)));
        spans.push(Span::raw(part("idle", lost.idle_gpus)));
        let some = lost.unexplained_gpus > 0.0;
        let meaning = if some { Meaning::Waiting } else { Meaning::Plain };
        let text = part("unexplained", lost.unexplained_gpus);
        spans.push(Span::styled(text, theme.style(meaning)));
    }
    if lost.unknown_gpus > 0 {
        let text = format!("not known {} GPUs", format::count(lost.unknown_gpus.into()));
        spans.push(Span::styled(text, theme.style(Meaning::Dim)));
    }
    Some(Line::from(spans))
}
