//! Explanation screen of a finding: rule and limits, signals with baselines and peers, ruled-out causes.

use gaunt_schema::{SanitizedText, UnixMs, sanitized_text::sanitize_in_place};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::finding_screen;
use crate::{
    console_state::{ConsoleState, ScreenLayout},
    display_text,
    key_binding::{ACKNOWLEDGE, BACK, JOB, KeyBinding},
    screen::ExplanationScreen,
    screen_view::ScreenView,
    theme::{StyleRole, Theme},
    view::{draw_page, finding_details, node_tables, render_paragraph},
    widget::text_table::{self, number_column, text_column},
};
use gaunt_api::{
    AlternativeDetail, AlternativeOutcome, EvidenceContext, Explanation, LimitDetail, Question,
    SignalDetail,
};

/// Below this width the quartiles of the peers are left out.
const NARROW: usize = 100;
/// Columns of a number.
const NUMBER: usize = 10;

impl ScreenView for ExplanationScreen {
    fn header_title(&self) -> String {
        "explain".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[BACK, ACKNOWLEDGE, JOB]]
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        finding_screen::finding_questions(&self.0, self.evidence_finding(state), state)
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        finding_screen::finding_at(&self.0, state)
    }

    fn finding_id(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    fn item_job(&self, state: &ConsoleState) -> Option<SanitizedText> {
        finding_screen::finding_job(state)
    }

    fn item_text(&self, state: &ConsoleState) -> Option<String> {
        finding_screen::finding_text(state)
    }

    /// Draws the explanation of the finding.
    ///
    /// ```text
    ///  ✖ throttled  gpu-0417 · GPU 5                                     critical
    ///  NEXT      Check cooling, power supply and power limit of gpu-0417 …
    ///
    ///  SIGNALS at 12:03:41Z, peers: 7 other GPUs of job 8812
    ///  power over its limit        41 %      71 %      70 %  68 % – 72 %
    ///
    ///  RULED OUT
    ///  data_starved   io pressure is 1 %, the limit 8 %
    ///
    ///  RULE      Thermal or HW slowdown lowers the clock of a busy GPU …
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(explanation) = state.data.explained.as_deref() else {
            return self.draw_waiting(buffer, area, "the explanation", state, theme);
        };
        let width = usize::from(area.width);
        let finding = &explanation.finding;
        let mut lines = vec![finding_details::render_headline(finding, width, theme)];
        lines.extend(render_paragraph("WHAT", &full_text(&finding.summary), width, theme));
        if let Some(repeats) = explanation.describe_repeats() {
            lines.extend(render_paragraph("REPEATED", &SanitizedText::new(&repeats), width, theme));
        }
        lines.extend(render_paragraph("NEXT", &full_text(&finding.next), width, theme));
        let shown = state.data.overview.as_deref().map_or(state.now, |overview| overview.at);
        let is_now = explanation.chain.as_ref().is_none_or(|chain| {
            chain.at.duration_since(shown).max(shown.duration_since(chain.at))
                < state.late_threshold()
        });
        lines.extend(render_chain(explanation, is_now, width, theme));
        if !explanation.rule.is_empty() {
            lines.push(Line::default());
            lines.extend(render_paragraph("RULE", &full_text(&explanation.rule), width, theme));
        }
        lines.extend(render_limits(&explanation.limits, width, theme));
        if let Some(undecided) = finding.undecided_text() {
            lines.push(Line::default());
            lines.push(Line::styled(" UNDECIDED", theme.style_for(StyleRole::Title)));
            lines.extend(render_indented(&undecided, width));
        }
        if !finding.missing.is_empty() {
            lines.push(Line::default());
            lines.push(Line::styled(" MISSING", theme.style_for(StyleRole::Title)));
            lines.extend(finding.missing.iter().flat_map(|what| render_indented(what, width)));
        }
        draw_page(buffer, area, &lines, state.scroll, theme)
    }
}

/// Returns a text of several sentences, safe for a terminal and not shortened to the length of a label.
fn full_text(text: &str) -> String {
    let mut text = text.to_owned();
    sanitize_in_place(&mut text);
    text
}

/// Renders the context of the finding: signals, ruled-out causes and missing telemetry.
fn render_chain(
    explanation: &Explanation,
    is_now: bool,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let Some(chain) = &explanation.chain else {
        let text = " no context was stored with this finding";
        return vec![Line::default(), Line::styled(text, theme.style_for(StyleRole::Dim))];
    };
    let mut lines = render_signals(chain, is_now, width, theme);
    for (title, ruling) in [
        ("RULED OUT", AlternativeOutcome::RuledOut),
        ("ALSO PRESENT", AlternativeOutcome::AlsoThere),
        ("UNDETERMINED", AlternativeOutcome::Unknown),
    ] {
        let others = chain.alternatives.iter().filter(|other| other.ruling == ruling);
        let others: Vec<&AlternativeDetail> = others.collect();
        if !others.is_empty() {
            lines.push(Line::default());
            lines.push(Line::styled(format!(" {title}"), theme.style_for(StyleRole::Title)));
            lines.extend(others.iter().flat_map(|other| render_alternative(other, width, theme)));
        }
    }
    lines
}

/// Renders the signals; their values have the heading of the time at which they were read unless that is now.
fn render_signals(
    chain: &EvidenceContext,
    is_now: bool,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let beside = match &*SanitizedText::new(&chain.peers) {
        "" => String::new(),
        peers => format!(", peers: {peers}"),
    };
    let title = format!(" SIGNALS at {}{beside}", display_text::format_time_of_day(chain.at));
    let mut lines = vec![Line::default()];
    let title_lines = display_text::wrap_text(&title, width.saturating_sub(2)).into_iter();
    let style = theme.style_for(StyleRole::Title);
    lines.extend(title_lines.map(|line| Line::styled(format!(" {line}"), style)));
    if chain.signals.is_empty() {
        lines.push(Line::styled("   none reported", theme.style_for(StyleRole::Dim)));
        return lines;
    }
    let quartiles = if width < NARROW { 0 } else { 23 };
    let what = chain
        .signals
        .iter()
        .map(|signal| display_text::text_width(&SanitizedText::new(&signal.what)))
        .max();
    let what =
        what.unwrap_or(0).min(width.saturating_sub(3 * (NUMBER + 2) + quartiles + 4)).max(16);
    let columns = [
        text_column("", what),
        number_column("now", NUMBER),
        number_column("baseline", NUMBER),
        number_column("peers", NUMBER),
        text_column("peer quartiles", quartiles),
    ];
    let columns = &columns[..if quartiles > 0 { 5 } else { 4 }];
    let at = display_text::format_time_of_day(chain.at);
    let names = columns.iter().map(|column| match column.title {
        "now" if !is_now => at.clone(),
        title => title.to_owned(),
    });
    let dim = theme.style_for(StyleRole::Dim);
    lines.push(text_table::render_row(columns, names.map(|name| (name, dim))));
    lines.extend(
        chain.signals.iter().map(|of| text_table::render_row(columns, render_signal(of, theme))),
    );
    lines
}

fn render_signal(signal: &SignalDetail, theme: Theme) -> [(String, Style); 5] {
    let of = |value: Option<f64>| {
        value.map_or_else(String::new, |value| theme.units().format_value(value, signal.unit))
    };
    let now = match (signal.value, signal.absent) {
        (None, reason) => node_tables::absence_label(reason).to_owned(),
        (value, _) => of(value),
    };
    let quartiles = signal
        .quartiles
        .map_or_else(String::new, |(low, high)| format!("{} – {}", of(Some(low)), of(Some(high))));
    let plain = Style::new();
    [
        (SanitizedText::new(&signal.what).to_string(), plain),
        (now, theme.style_for(StyleRole::Title)),
        (of(signal.usual), plain),
        (of(signal.peers), plain),
        (quartiles, theme.style_for(StyleRole::Dim)),
    ]
}

fn render_alternative(other: &AlternativeDetail, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let evidence = &other.number;
    let number = |value: Option<f64>| {
        value.map_or_else(
            || display_text::ABSENT.into(),
            |value| theme.units().format_value(value, evidence.unit),
        )
    };
    let limit = evidence.limit.map_or_else(String::new, |limit| {
        format!(", limit {}", evidence.side.render_limit(&number(Some(limit))))
    });
    let text = format!("{}: {}{limit}", SanitizedText::new(&evidence.what), number(evidence.value));
    let name = format!("   {}", display_text::align_left(other.kind.as_str(), 20));
    let indent = " ".repeat(display_text::text_width(&name));
    let lines = display_text::wrap_text(&text, width.saturating_sub(indent.len() + 1));
    let heads = std::iter::once(name).chain(std::iter::repeat(indent));
    let lines = heads.zip(lines);
    lines
        .map(|(head, line)| {
            Line::from(vec![Span::styled(head, theme.style_for(StyleRole::Dim)), Span::raw(line)])
        })
        .collect()
}

fn render_limits(limits: &[LimitDetail], width: usize, theme: Theme) -> Vec<Line<'static>> {
    if limits.is_empty() {
        return Vec::new();
    }
    let title = " LIMITS, from [judge] in the settings";
    let mut lines = vec![Line::default(), Line::styled(title, theme.style_for(StyleRole::Title))];
    for limit in limits {
        let head = format!("   {} = {}", SanitizedText::new(&limit.key), limit.value);
        lines.push(Line::raw(head));
        let why = display_text::wrap_text(&SanitizedText::new(&limit.why), width.saturating_sub(6));
        let dim = theme.style_for(StyleRole::Dim);
        lines.extend(why.into_iter().map(|line| Line::styled(format!("     {line}"), dim)));
    }
    lines
}

fn render_indented(text: &str, width: usize) -> Vec<Line<'static>> {
    let lines = display_text::wrap_text(&SanitizedText::new(text), width.saturating_sub(4));
    lines.into_iter().map(|line| Line::raw(format!("   {line}"))).collect()
}
