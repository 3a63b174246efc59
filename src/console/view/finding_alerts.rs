//! Alertmanager status of a finding: notified receivers, silences, and servers that do not respond.

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::text::Line;

use super::render_paragraph;
use crate::{
    display_text,
    theme::{StyleRole, Theme},
};
use gaunt_api::{AlertLine, AlertList, AlertSilence, AlertState, Finding};

/// Returns the alert status of a finding in one word for its row; none if its receivers are notified, or the status is
/// unknown.
pub(crate) fn alert_label(list: &AlertList, finding: &Finding) -> Option<&'static str> {
    let alert = of(list, finding)?;
    match alert.state {
        AlertState::Suppressed if !alert.silences.is_empty() => Some("silenced"),
        AlertState::Suppressed => Some("inhibited"),
        AlertState::Active | AlertState::Unprocessed => None,
    }
}

/// Renders the alert status of a finding, in as many lines as needed; nothing without a configured Alertmanager.
///
/// ```text
///  ALERT     GauntPortDown is silenced by mira until 14:00Z: cable is on its way
/// ```
pub(crate) fn render_alert(
    list: &AlertList,
    finding: &Finding,
    at: UnixMs,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    if list.servers.is_empty() {
        return Vec::new();
    }
    let text = match of(list, finding) {
        Some(alert) => render_alert_state(alert, at),
        None if finding.acknowledged.is_some() => {
            "none: acknowledged findings send no alert".into()
        }
        None => "none at Alertmanager for this finding".into(),
    };
    let mut lines = render_paragraph("ALERT", &text, width, theme);
    lines.extend(render_failing_servers(list, width, theme));
    lines
}

/// Renders the failing servers in one line.
pub(crate) fn render_failing_servers(
    list: &AlertList,
    width: usize,
    theme: Theme,
) -> Option<Line<'static>> {
    let failing = || list.servers.iter().filter(|server| server.failure.is_some());
    let first = failing().next()?;
    let why = first.failure.as_ref().map_or("", SanitizedText::as_str);
    let text = match list.servers.len() {
        1 => format!("Alertmanager {}: {why}", first.address),
        all => {
            format!("{} of {all} Alertmanagers fail; {}: {why}", failing().count(), first.address)
        }
    };
    let text = display_text::truncate_text(&text, width.saturating_sub(4));
    Some(Line::styled(format!(" ▲ {text}"), theme.style_for(StyleRole::Waiting)))
}

/// Returns the alert of a finding: the most urgent one, which the list contains first.
fn of<'a>(list: &'a AlertList, finding: &Finding) -> Option<&'a AlertLine> {
    list.alerts.iter().find(|alert| *alert.finding == *finding.id)
}

fn render_alert_state(alert: &AlertLine, at: UnixMs) -> String {
    let how = match alert.state {
        AlertState::Unprocessed => "is unprocessed".to_owned(),
        AlertState::Active if alert.receivers.is_empty() => "is active, no receiver".into(),
        AlertState::Active => format!("is active → {}", join_names(&alert.receivers)),
        AlertState::Suppressed if !alert.silences.is_empty() => {
            let silences = alert.silences.iter().map(|silence| render_silence(silence, at));
            silences.collect::<Vec<_>>().join("; ")
        }
        AlertState::Suppressed => match alert.inhibited_by {
            0 | 1 => "is inhibited by another alert".to_owned(),
            others => format!("is inhibited by {others} other alerts"),
        },
    };
    format!("{} {how}", alert.name)
}

fn render_silence(silence: &AlertSilence, at: UnixMs) -> String {
    let by = if silence.by.is_empty() { &silence.id } else { &silence.by };
    let until = match &*render_until(&silence.until, at) {
        "" => String::new(),
        until => format!(" until {until}"),
    };
    let comment = match silence.comment.as_str() {
        "" => String::new(),
        comment => format!(": {comment}"),
    };
    format!("is silenced by {by}{until}{comment}")
}

/// Formats an Alertmanager time without seconds, and without the date if it is today.
fn render_until(text: &str, at: UnixMs) -> String {
    let Some((day, time)) = text.split_once('T') else { return text.to_owned() };
    let Some(minute) = time.get(..5).filter(|_| time.ends_with('Z')) else {
        return text.to_owned();
    };
    let today = at.to_rfc3339().starts_with(day);
    if today { format!("{minute}Z") } else { format!("{day} {minute}Z") }
}

fn join_names(names: &[SanitizedText]) -> String {
    names.iter().map(SanitizedText::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers::{self, AT};

    #[test]
    fn silence_end_has_its_minute_and_its_day_if_not_today() {
        assert_eq!(render_until("1970-01-01T14:00:59.123Z", AT), "14:00Z");
        assert_eq!(render_until("1970-01-02T14:00:59.123Z", AT), "1970-01-02 14:00Z");
        assert_eq!(render_until("1970-01-01T14:00:59+02:00", AT), "1970-01-01T14:00:59+02:00");
        assert_eq!(render_until("", AT), "");
    }

    #[test]
    fn alert_label_names_known_states_only() {
        let finding = sample_answers::port_down_finding();
        let mut list = sample_answers::alert_list();
        assert_eq!(alert_label(&list, &finding), Some("silenced"));
        assert_eq!(alert_label(&list, &sample_answers::starved_finding()), None);
        list.alerts[0].silences.clear();
        assert_eq!(alert_label(&list, &finding), Some("inhibited"));
        assert!(render_alert_state(&list.alerts[0], AT).ends_with("is inhibited by another alert"));
        list.alerts[0].state = AlertState::Unprocessed;
        assert_eq!(
            (alert_label(&list, &finding), render_alert_state(&list.alerts[0], AT).as_str()),
            (None, "GauntPortDown is unprocessed")
        );
        list.alerts.clear();
        assert_eq!(alert_label(&list, &finding), None);
    }
}
