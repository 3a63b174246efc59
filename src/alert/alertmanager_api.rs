//! Alertmanager API v2 as JSON: posted alerts, and the state that is read back.

use std::collections::BTreeMap;

use gaunt_schema::{SanitizedText, Severity, UnixMs};
use serde::{Deserialize, Serialize};

use super::{AlertSnapshot, alert_labels::FindingAlert};
use gaunt_api::{AlertLine, AlertSilence, AlertState};

/// One alert as posted to Alertmanager.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AlertPost<'a> {
    labels: &'a BTreeMap<&'static str, String>,
    annotations: &'a BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
}

impl<'a> AlertPost<'a> {
    /// The alerts to post at `now`. An open alert ends at `until` unless it is posted again.
    pub(super) fn from_snapshot(snapshot: &'a AlertSnapshot, until: UnixMs) -> Vec<Self> {
        let open = snapshot.open.values().map(|alert| Self::of(alert, until));
        let ended = snapshot.resolved_alerts().map(|(alert, ended)| Self::of(alert, ended));
        open.chain(ended).collect()
    }

    fn of(alert: &'a FindingAlert, ends: UnixMs) -> Self {
        // Alertmanager rejects an alert that ends before it begins.
        let starts = alert.since.min(ends);
        Self {
            labels: &alert.labels,
            annotations: &alert.annotations,
            starts_at: starts.to_rfc3339(),
            ends_at: ends.to_rfc3339(),
        }
    }
}

/// An alert as Alertmanager returns it; unused fields are left out.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownAlert {
    labels: BTreeMap<String, String>,
    status: ShownAlertStatus,
    #[serde(default)]
    starts_at: String,
    #[serde(default)]
    receivers: Vec<AlertReceiver>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShownAlertStatus {
    state: AlertState,
    #[serde(default)]
    silenced_by: Vec<String>,
    #[serde(default)]
    inhibited_by: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct AlertReceiver {
    name: String,
}

/// A silence as Alertmanager returns it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownSilence {
    id: String,
    #[serde(default)]
    created_by: String,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    ends_at: String,
}

/// The most silences of one alert that are listed: more are one person's mistake.
const MAX_SILENCES: usize = 8;

/// The alerts of findings, with the silences that match them.
pub(super) fn alert_lines(
    shown: Vec<ShownAlert>,
    known_silences: &[ShownSilence],
) -> Vec<AlertLine> {
    let line = |alert: ShownAlert| {
        let label = |name: &str| alert.labels.get(name).map(|value| SanitizedText::new(value));
        let silences = alert.status.silenced_by.iter().take(MAX_SILENCES);
        let silences = silences.map(|id| {
            let silence = known_silences.iter().find(|silence| silence.id == *id);
            let text = |part: fn(&ShownSilence) -> &String| {
                silence.map_or_else(SanitizedText::default, |k| SanitizedText::new(part(k)))
            };
            AlertSilence {
                id: SanitizedText::new(id),
                by: text(|silence| &silence.created_by),
                comment: text(|silence| &silence.comment),
                until: text(|silence| &silence.ends_at),
            }
        });
        Some(AlertLine {
            finding: label("id")?,
            name: label("alertname")?,
            severity: label("severity").and_then(|word| Severity::parse(&word)),
            state: alert.status.state,
            since: SanitizedText::new(&alert.starts_at),
            receivers: alert
                .receivers
                .iter()
                .map(|receiver| SanitizedText::new(&receiver.name))
                .collect(),
            silences: silences.collect(),
            inhibited_by: alert.status.inhibited_by.len() as u32,
        })
    };
    shown.into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response of Alertmanager 0.25.
    const SHOWN: &str = r#"[{"annotations":{"summary":"x"},"endsAt":"2026-11-21T08:05:00.000Z",
        "fingerprint":"a1","receivers":[{"name":"pager"}],"startsAt":"2026-11-21T08:00:00.000Z",
        "status":{"inhibitedBy":[],"silencedBy":["s-1","s-2"],"state":"suppressed"},
        "updatedAt":"2026-11-21T08:01:00.000Z",
        "labels":{"alertname":"GauntPortDown","id":"port_down/gpu003/mlx5_1/1","severity":"critical"}},
        {"labels":{"alertname":"SomethingElse"},"status":{"state":"active"}}]"#;

    #[test]
    fn shown_alert_becomes_a_line_with_its_silences() {
        let shown: Vec<ShownAlert> = serde_json::from_str(SHOWN).unwrap();
        let silences: Vec<ShownSilence> = serde_json::from_str(
            r#"[{"id":"s-1","createdBy":"mira\u001b[2J","comment":"cable ordered","endsAt":"2026-11-22T00:00:00Z"}]"#,
        )
        .unwrap();
        let lines = alert_lines(shown, &silences);
        assert_eq!(lines.len(), 1, "what is about no finding of ours is left out");
        let line = &lines[0];
        assert_eq!((line.state, line.severity), (AlertState::Suppressed, Some(Severity::Critical)));
        assert_eq!(line.finding, "port_down/gpu003/mlx5_1/1");
        assert!(!line.silences[0].by.contains('\u{1b}'), "it may reach a terminal");
        assert_eq!(line.silences[0].comment, "cable ordered");
        assert_eq!((line.silences.len(), line.silences[1].comment.as_str()), (2, ""));
    }

    #[test]
    fn posted_alert_never_ends_before_it_begins() {
        let at_peers = gaunt_api::peer_exchange::PeerAlertSet::without_peers();
        let mut snapshot = AlertSnapshot { at_peers, ..AlertSnapshot::default() };
        let alert = FindingAlert { since: UnixMs(10_000), ..FindingAlert::default() };
        snapshot.open.insert("a".to_owned(), alert.clone());
        snapshot.ended.insert("b".to_owned(), (alert, UnixMs(9_000)));
        let posts = AlertPost::from_snapshot(&snapshot, UnixMs(250_000));
        let times = posts.iter().map(|post| (post.starts_at.as_str(), post.ends_at.as_str()));
        assert_eq!(
            times.collect::<Vec<_>>(),
            [
                ("1970-01-01T00:00:10.000Z", "1970-01-01T00:04:10.000Z"),
                ("1970-01-01T00:00:09.000Z", "1970-01-01T00:00:09.000Z")
            ]
        );
    }
}
