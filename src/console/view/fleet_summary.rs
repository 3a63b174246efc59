//! Summary at the top of the overview: GPU time by state, and losses.

use std::collections::BTreeSet;

use gaunt_schema::{GpuState, SanitizedText};
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
use gaunt_api::{NodeLine, Overview};

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
///    33 GPUs lost, most of them data_starved, and no finding explains it yet; 8 are held idle
///    most on gpu001, gpu002 of job 48211, gpu009 of job 48218 · next: 3 lists the jobs by GPUs lost, 5 the nodes
/// ```
pub(crate) fn render_unexplained(
    overview: &Overview,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    if overview.findings_open > 0 || overview.lost.gpus < LOST_MIN {
        return Vec::new();
    }
    let losing: Vec<_> = overview.worst.iter().filter(|node| node.lost_gpus > 0.0).collect();
    let mut place = name_places(&losing);
    place.push_str("next: 3 lists the jobs by GPUs lost, 5 the nodes");
    let style = theme.style_for(StyleRole::Dim);
    let lines = [name_losses(overview, &losing), place].into_iter().flat_map(|text| {
        display_text::wrap_text(&text, width.saturating_sub(4))
            .into_iter()
            .map(|line| Line::styled(format!("   {line}"), style))
            .collect::<Vec<_>>()
    });
    lines.collect()
}

/// The GPUs whose loss no finding explains, and those that jobs hold idle.
fn name_losses(overview: &Overview, losing: &[&NodeLine]) -> String {
    let number = display_text::format_gpu_count;
    let (idle, unexplained) = (overview.lost.idle_gpus, overview.lost.unexplained_gpus);
    let held = |gpus: f64| {
        let verb = if number(gpus) == "1" { "is" } else { "are" };
        format!("{verb} held idle")
    };
    if unexplained < LOST_MIN {
        let jobs: BTreeSet<&SanitizedText> = losing.iter().flat_map(|node| &node.jobs).collect();
        let by = match (jobs.first(), jobs.len()) {
            (None, _) => String::new(),
            (Some(job), 1) => format!(" by job {job}"),
            _ => " by several jobs".to_owned(),
        };
        let noun = if number(idle) == "1" { "GPU" } else { "GPUs" };
        return format!("{} {noun} {}{by}", number(idle), held(idle));
    }
    let count = |state: GpuState| {
        let codes = losing.iter().flat_map(|node| node.gpu_states.chars());
        codes.filter(|code| GpuState::from_letter_code(*code) == Some(state)).count()
    };
    let states = GpuState::ALL.iter().filter(|state| **state != GpuState::IdleAllocated);
    let most = states.map(|state| (count(*state), *state)).max_by_key(|(count, _)| *count);
    let most = most.filter(|(count, _)| *count > 0);
    let most = most.map_or_else(String::new, |(_, state)| format!(", most of them {state}"));
    let noun = if number(unexplained) == "1" { "GPU" } else { "GPUs" };
    let mut what =
        format!("{} {noun} lost{most}, and no finding explains it yet", number(unexplained));
    if idle >= LOST_MIN {
        what.extend(["; ", &number(idle), " ", &held(idle)]);
    }
    what
}

/// The nodes that lose most, each with its own jobs.
fn name_places(losing: &[&NodeLine]) -> String {
    let shown = &losing[..losing.len().min(NAMED_NODES)];
    let places: Vec<String> = shown
        .chunk_by(|one, other| one.jobs == other.jobs)
        .map(|nodes| {
            let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
            let jobs: Vec<&str> = nodes[0].jobs.iter().map(SanitizedText::as_str).collect();
            let of = match jobs.len() {
                0 => String::new(),
                1 => format!(" of job {}", jobs[0]),
                _ => format!(" of jobs {}", jobs.join(", ")),
            };
            format!("{}{of}", names.join(", "))
        })
        .collect();
    if places.is_empty() { String::new() } else { format!("most on {} · ", places.join(", ")) }
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
/// known, or none is.
fn render_loss_causes(
    overview: &Overview,
    width: usize,
    theme: Theme,
) -> Option<Vec<Span<'static>>> {
    let lost = &overview.lost;
    if lost.gpus <= 0.0 && [0, overview.gpu_count()].contains(&lost.unknown_gpus) {
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
        let noun = if lost.unknown_gpus == 1 { "GPU" } else { "GPUs" };
        let text = format!("unknown {unknown} {noun}");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample_answers::{fleet_overview, node_line},
        theme::{ColourDepth, GlyphSet},
    };

    /// Two nodes of other jobs, whose GPUs are in this state.
    fn lines_of(state: GpuState, idle: f64, unexplained: f64, jobs: [&str; 2]) -> String {
        let mut overview = fleet_overview(2, 8, |_, _| state);
        overview.findings_open = 0;
        overview.lost.gpus = idle + unexplained;
        (overview.lost.idle_gpus, overview.lost.unexplained_gpus) = (idle, unexplained);
        let states = state.letter_code().to_string().repeat(8);
        let node = |(name, job): (&str, &str)| NodeLine {
            jobs: vec![job.into()],
            ..node_line(name, &states, 8.0, None, (8, 8))
        };
        overview.worst = ["gpu001", "gpu002"].into_iter().zip(jobs).map(node).collect();
        let theme = Theme::new(ColourDepth::None, GlyphSet::Ascii, |_| None);
        let lines = render_unexplained(&overview, 200, theme);
        let texts: Vec<String> =
            lines.iter().map(|line| line.to_string().trim().to_owned()).collect();
        texts.join("\n") + "\n"
    }

    #[test]
    fn idle_gpus_are_told_as_held_and_each_node_with_its_own_job() {
        let idle = lines_of(GpuState::IdleAllocated, 16.0, 0.0, ["48906", "48907"]);
        assert!(idle.starts_with("16 GPUs are held idle by several jobs\n"), "{idle}");
        assert!(idle.contains("most on gpu001 of job 48906, gpu002 of job 48907 · next"), "{idle}");
        let one = lines_of(GpuState::IdleAllocated, 16.0, 0.0, ["7", "7"]);
        assert!(one.starts_with("16 GPUs are held idle by job 7\n"), "{one}");
        assert!(one.contains("most on gpu001, gpu002 of job 7 · next"), "{one}");
    }

    #[test]
    fn one_unknown_gpu_is_not_called_gpus() {
        let mut overview = fleet_overview(2, 8, |_, _| GpuState::Waiting);
        let theme = Theme::new(ColourDepth::None, GlyphSet::Ascii, |_| None);
        for (unknown, expected) in [(1, "unknown 1 GPU"), (2, "unknown 2 GPUs")] {
            overview.lost.unknown_gpus = unknown;
            let spans = render_loss_causes(&overview, 200, theme).unwrap();
            let text: String = spans.iter().map(|span| span.content.as_ref()).collect();
            assert!(text.ends_with(expected), "{text}");
        }
    }

    #[test]
    fn loss_without_a_cause_does_not_count_idle_gpus() {
        let text = lines_of(GpuState::Waiting, 1.0, 15.0, ["7", "7"]);
        let expected = "15 GPUs lost, most of them waiting, and no finding explains it yet; \
                        1 is held idle\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
