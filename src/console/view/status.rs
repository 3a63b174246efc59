//! The status line: what was done last, what is wrong between this screen and its source, which instant of the past is
//! shown. It is always there, mostly empty.

use gaunt_schema::Safe;
use ratatui::text::{Line, Span};

use crate::console::{
    format,
    state::{Confirm, Link, State},
    theme::{Meaning, Theme},
};

/// What is to be said now, the most important of it; none if there is nothing.
pub(super) fn line(state: &State, width: usize, theme: Theme) -> Option<Line<'static>> {
    let (text, meaning) = message(state)
        .or_else(|| lost(state))
        .or_else(|| failed(state))
        .or_else(|| slow(state))
        .or_else(|| Some((format!(" ▲ {}", state.missing_rows()?), Meaning::Waiting)))
        .or_else(|| past(state))?;
    let text = format::cut(&Safe::new(&text), width);
    Some(Line::styled(text, theme.style(meaning)))
}

/// The question that waits for a yes, and the keys that answer it.
///
/// ```text
///  ? withdraw mira's acknowledgement of 2m ago: cable is on its way (port_down/gpu003/mlx5_1/1)?
///    y withdraws   any other key does not
/// ```
pub(super) fn confirm(confirm: &Confirm, width: usize, theme: Theme) -> [Line<'static>; 2] {
    let question = format::cut(&format!(" ? {}", confirm.question), width);
    let keys = vec![
        Span::styled("   y", theme.style(Meaning::Title)),
        Span::styled(
            format!(" {}   any other key does not", confirm.yes),
            theme.style(Meaning::Dim),
        ),
    ];
    [Line::styled(question, theme.style(Meaning::Waiting)), Line::from(keys)]
}

/// Who does not answer, and for how long; none while the source answers.
pub(super) fn lost_source(state: &State) -> Option<String> {
    let Link::Lost { since, .. } = &state.link else { return None };
    let who = state.source.as_deref().map_or_else(
        || "the sampler in this process".to_owned(),
        |address| format!("aggregator {address}"),
    );
    let lasted = format::span(state.now.since(*since));
    Some(format!(" ✖ {who}: no answer for {lasted}"))
}

/// What was done last, or why it was not.
fn message(state: &State) -> Option<(String, Meaning)> {
    let message = state.message.as_ref()?;
    let (sign, meaning) =
        if message.good { ("✔", Meaning::Good) } else { ("▲", Meaning::Waiting) };
    Some((format!(" {sign} {}", message.text), meaning))
}

/// Why nothing is answered; who does not answer stands in the header.
fn lost(state: &State) -> Option<(String, Meaning)> {
    let Link::Lost { since, why, .. } = &state.link else { return None };
    // The address is in the header.
    let why = match (why.split_once(" unreachable: "), &state.source) {
        (Some((who, why)), Some(address)) if who.ends_with(address.as_str()) => why,
        _ => why,
    };
    Some((format!(" ✖ since {}: {why}", format::clock(*since)), Meaning::Bad))
}

/// Why the question of this screen alone has no answer.
fn failed(state: &State) -> Option<(String, Meaning)> {
    let failed = state.failed_question()?;
    let lasted = format::span(state.now.since(failed.since));
    let (title, since) = (state.place.title(), format::clock(failed.since));
    Some((format!(" ✖ {title}: no answer since {since} ({lasted}): {}", failed.why), Meaning::Bad))
}

/// An answer that does not come, and one that came before and does not change.
fn slow(state: &State) -> Option<(String, Meaning)> {
    let waits = |since| format::span(state.now.since(since));
    let late = |since| state.now.since(since) >= state.late();
    let title = state.place.title();
    let text = match (&state.link, state.shown_at()) {
        (Link::Fresh(at), _) if late(*at) => {
            format!(" ▲ waiting {} for an answer to everything", waits(*at))
        }
        (Link::Fresh(_), None) if late(state.entered) && state.data.refused.is_none() => {
            format!(" ▲ {title}: waiting {} for an answer", waits(state.entered))
        }
        _ => {
            state.shown_at()?;
            let age = format::span(state.stale_age()?);
            format!(" ▲ {title}: these rows are {age} old and no newer ones come")
        }
    };
    Some((text, Meaning::Waiting))
}

/// Which instant of the past is shown.
fn past(state: &State) -> Option<(String, Meaning)> {
    let then = state.then?;
    let ago = state
        .newest_now()
        .map_or_else(String::new, |now| format!(", {} ago", format::span(now.since(then))));
    let text = format!(
        " ◀ the past: {}{ago}   [ ] 10 s back and forth, {{ }} a minute, . now",
        format::clock(then)
    );
    Some((text, Meaning::Starved))
}
