//! Summary at the top of the overview: GPU time by state, and losses.

use gaunt_schema::GpuState;
use ratatui::text::{Line, Span};

use super::{
    INDENT, render_titled_line,
    time_bar::{self, BarRange},
};
use crate::{
    display_text,
    theme::{self, StyleRole, Theme},
    widget::bar,
};
use gaunt_api::Overview;

/// Renders the losses with their causes; without a GPU the reason why there is none.
///
/// ```text
///  LOST      2,071 of 10,000 GPUs (20.7 %)   $4,142/h   by findings 1,982, idle in jobs 64, unexplained 25 GPUs   unknown 8 GPUs
/// ```
pub(crate) fn render_losses(overview: &Overview, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let total = overview.gpu_count();
    if total == 0 {
        let nodes = overview.nodes;
        let why = match nodes.live + nodes.stale + nodes.down {
            0 => "no node scraped yet",
            1 => "no GPU on this node",
            _ => "no GPU on any of these nodes",
        };
        let why = vec![Span::styled(why, theme.style_for(StyleRole::Dim))];
        return vec![render_titled_line("GPU TIME", why, theme)];
    }
    let mut losses = render_lost_gpus(overview, total, theme);
    let Some(causes) = render_loss_causes(overview, width, theme) else { return vec![losses] };
    // On a wide screen the causes are beside the loss.
    let gap = 3;
    if losses.width() + gap + causes.iter().map(Span::width).sum::<usize>() <= width {
        losses.push_span(Span::raw(" ".repeat(gap)));
        losses.extend(causes);
        return vec![losses];
    }
    vec![losses, render_titled_line("", causes, theme)]
}

/// Below this width the causes of the lost GPUs are said in fewer words.
const NARROW: usize = 76;

/// Minimum number of lost GPUs that are worth a line while no finding is open.
const LOST_MIN: f64 = 0.5;

/// Most nodes that this line names.
const NAMED_NODES: usize = 3;

/// Renders who loses GPUs and where to look, while no finding explains it: most faults need some samples.
///
/// ```text
///    33 GPUs are lost, most of them data_starved, and no finding explains it yet
///    most on gpu001, gpu002, gpu003 of job 48211 · next: 3 lists the jobs by GPUs lost, 5 the nodes
/// ```
pub(crate) fn render_unexplained(
    overview: &Overview,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let lost = overview.lost.gpus;
    if overview.findings_open > 0 || lost < LOST_MIN {
        return Vec::new();
    }
    let losing: Vec<_> = overview.worst.iter().filter(|node| node.lost_gpus > 0.0).collect();
    let mut states: Vec<(usize, GpuState)> = GpuState::ALL
        .iter()
        .map(|state| {
            let codes = losing.iter().flat_map(|node| node.gpu_states.chars());
            let same = codes.filter(|code| GpuState::from_letter_code(*code) == Some(*state));
            (same.count(), *state)
        })
        .collect();
    states.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let most = states.first().filter(|(count, _)| *count > 0);
    let most = most.map_or_else(String::new, |(_, state)| format!(", most of them {state}"));
    let amount = display_text::format_gpu_count(lost);
    let what = format!("{amount} GPUs lost{most}, and no finding explains it yet");
    let names: Vec<&str> = losing.iter().take(NAMED_NODES).map(|node| node.node.as_str()).collect();
    let mut jobs: Vec<&str> = losing
        .iter()
        .flat_map(|node| &node.jobs)
        .map(gaunt_schema::SanitizedText::as_str)
        .collect();
    jobs.dedup();
    let mut place = String::new();
    if !names.is_empty() {
        place = format!("most on {}", names.join(", "));
        if let Some(job) = jobs.first() {
            place.extend([" of job ", job]);
        }
        place.push_str(" · ");
    }
    place.push_str("next: 3 lists the jobs by GPUs lost, 5 the nodes");
    let style = theme.style_for(StyleRole::Dim);
    let lines = [what, place].into_iter().flat_map(|text| {
        display_text::wrap_text(&text, width.saturating_sub(4))
            .into_iter()
            .map(|line| Line::styled(format!("   {line}"), style))
            .collect::<Vec<_>>()
    });
    lines.collect()
}

/// Renders the time bar, and the GPUs by state with the legend of the heat map below it; nothing without a GPU.
///
/// ```text
///  TIME      ▁▁▁▁▂▂▶▁▁▁▁▁▁▁▁▁▁▃▅✖▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇  last 15m
///  GPU TIME  █████████████████████████████████████▒▒▒▒▒▒░░░░░░░░░░░░ddddiii········
///            █ computing 64.1 %  ▒ communicating 9.8 %  ░ waiting 15.2 %  …
/// ```
pub(crate) fn render_gpu_time(
    overview: &Overview,
    range: BarRange<'_>,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let total = overview.gpu_count();
    let mut lines = Vec::new();
    if total > 0 {
        lines.extend(time_bar::render_time_bar(overview, range, width, theme));
        let bar = render_fleet_bar(overview, width, theme);
        lines.push(render_titled_line("GPU TIME", bar, theme));
        lines.extend(render_legend(overview, total, width, theme));
    }
    lines
}

fn render_fleet_bar(overview: &Overview, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let amounts: Vec<u64> = overview.states.iter().map(|count| count.gpus.into()).collect();
    let columns = bar::share_columns(&amounts, width.saturating_sub(INDENT + 1));
    let parts = overview.states.iter().zip(columns);
    parts
        .map(|(count, columns)| {
            let sign = theme::state_sign(count.state).repeat(columns);
            Span::styled(sign, theme.state_style(count.state))
        })
        .collect()
}

/// Renders each state that occurs with its share, in as many lines as needed.
fn render_legend(
    overview: &Overview,
    total: u32,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut lines: Vec<Vec<Span<'static>>> = vec![vec![Span::raw(" ".repeat(INDENT))]];
    let mut used = INDENT;
    for count in overview.states.iter().filter(|count| count.gpus > 0) {
        let (sign, words) = (theme::state_sign(count.state), count.state.as_str());
        let share = display_text::format_percent(f64::from(count.gpus) / f64::from(total));
        let text = format!(" {words} {share} %");
        let columns = 1 + display_text::text_width(&text) + 2;
        if used + columns > width + 2 && used > INDENT {
            lines.push(vec![Span::raw(" ".repeat(INDENT))]);
            used = INDENT;
        }
        used += columns;
        if let Some(line) = lines.last_mut() {
            line.push(Span::styled(sign, theme.state_style(count.state)));
            line.push(Span::raw(format!("{text}  ")));
        }
    }
    lines.into_iter().map(Line::from).collect()
}

fn render_lost_gpus(overview: &Overview, total: u32, theme: Theme) -> Line<'static> {
    let lost = &overview.lost;
    let some = lost.gpus > 0.0;
    let unknown = overview.gpus_in_state(GpuState::Unknown)
        + overview.gpus_in_state(GpuState::Stale)
        == total;
    // An unknown state is not good.
    let meaning = match (some, unknown) {
        (true, _) => StyleRole::Bad,
        (false, true) => StyleRole::Dim,
        (false, false) => StyleRole::Good,
    };
    let share = display_text::format_percent(lost.gpus / f64::from(total));
    let amount = if some {
        format!(
            "{} of {} GPUs ({share} %)",
            display_text::format_gpu_count(lost.gpus),
            display_text::format_count(total.into())
        )
    } else if unknown {
        "unknown".to_owned()
    } else {
        "none".to_owned()
    };
    let mut spans = vec![Span::styled(amount, theme.style_for(meaning))];
    if let Some(cost) = lost.cost_per_hour.filter(|cost| some && cost.is_finite()) {
        spans.push(Span::raw(format!("   {}", display_text::format_cost(cost, &lost.currency))));
    }
    render_titled_line("LOST", spans, theme)
}

/// Renders the causes of the lost GPUs, which add up to their number; nothing if no GPU is lost and all states are
/// known.
fn render_loss_causes(
    overview: &Overview,
    width: usize,
    theme: Theme,
) -> Option<Vec<Span<'static>>> {
    let lost = &overview.lost;
    if lost.gpus <= 0.0 && lost.unknown_gpus == 0 {
        return None;
    }
    let mut spans = Vec::new();
    if lost.gpus > 0.0 {
        let number = display_text::format_gpu_count;
        let (findings, idle) = (number(lost.findings_gpus), number(lost.idle_gpus));
        let by = if width < NARROW { "" } else { "by " };
        spans.push(Span::raw(format!("{by}findings {findings}, idle in jobs {idle}, ")));
        let some = lost.unexplained_gpus > 0.0;
        let meaning = if some { StyleRole::Waiting } else { StyleRole::Plain };
        let text = format!("unexplained {}", number(lost.unexplained_gpus));
        spans.push(Span::styled(text, theme.style_for(meaning)));
        spans.push(Span::raw(if width < NARROW { "  " } else { " GPUs   " }));
    }
    if lost.unknown_gpus > 0 {
        let unknown = display_text::format_count(lost.unknown_gpus.into());
        let text = format!("unknown {unknown} GPUs");
        let used: usize = spans.iter().map(Span::width).sum();
        if INDENT + used + text.len() > width
            && let Some(unit) = spans.last_mut()
        {
            // The unit is said once, at the end.
            *unit = Span::raw(", ");
        }
        spans.push(Span::styled(text, theme.style_for(StyleRole::Dim)));
    }
    Some(spans)
}
