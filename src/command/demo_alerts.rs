//! The Alertmanager of the demo: what one with a receiver for the people on call and one silence would answer.

use std::time::Duration;

use gaunt_api::{AlertLine, AlertList, AlertServer, AlertSilence, AlertState, Finding};
use gaunt_schema::{FindingKind, Severity};

use crate::alert::rule_alert_name;

/// The name in place of an address.
const SERVER: &str = "demo";

/// Whom it notifies.
const RECEIVER: &str = "oncall-gpu";

/// The kind of finding that is silenced, by whom, and why.
const SILENCED: (FindingKind, &str, &str) = (FindingKind::PortDown, "mira", "new cable is ordered");

/// How long after the start of such a finding its silence ends.
const SILENCE: Duration = Duration::from_hours(4);

/// Returns the state of these findings' alerts: warnings and worse that nobody has acknowledged have one.
pub(super) fn simulate_alerts(findings: &[Finding]) -> AlertList {
    let posted = findings
        .iter()
        .filter(|finding| finding.severity >= Severity::Warning && finding.acknowledged.is_none());
    let mut alerts: Vec<AlertLine> = posted.map(simulate_alert).collect();
    alerts.sort_by(|one, other| {
        other.severity.cmp(&one.severity).then_with(|| one.finding.cmp(&other.finding))
    });
    let posted = alerts.len() as u64;
    let server = AlertServer { address: SERVER.into(), posted, ..AlertServer::default() };
    AlertList { servers: vec![server], alerts }
}

fn simulate_alert(finding: &Finding) -> AlertLine {
    let (kind, by, comment) = SILENCED;
    let silence = AlertSilence {
        id: "demo".into(),
        by: by.into(),
        comment: comment.into(),
        until: (finding.since + SILENCE).to_rfc3339().into(),
    };
    let silences = if finding.kind == kind { vec![silence] } else { Vec::new() };
    AlertLine {
        finding: finding.id.as_str().into(),
        name: rule_alert_name(finding.kind).into(),
        severity: Some(finding.severity),
        state: if silences.is_empty() { AlertState::Active } else { AlertState::Suppressed },
        since: finding.since.to_rfc3339().into(),
        receivers: vec![RECEIVER.into()],
        silences,
        inhibited_by: 0,
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Acknowledgement, Entity, UnixMs};

    use super::*;

    #[test]
    fn finding_has_an_alert_unless_acknowledged_and_one_kind_is_silenced() {
        let finding = |kind, severity, node: &str| {
            Finding::new(kind, severity, Entity::new_node(&node.into()))
        };
        let acknowledged = Finding {
            acknowledged: Some(Acknowledgement {
                by: "ana".into(),
                at: UnixMs(0),
                note: "".into(),
                severity: Severity::Critical,
            }),
            ..finding(FindingKind::GpuFailed, Severity::Critical, "gpu003")
        };
        let list = simulate_alerts(&[
            finding(FindingKind::PortDown, Severity::Critical, "gpu001"),
            finding(FindingKind::DataStarved, Severity::Warning, "gpu002"),
            finding(FindingKind::IdleAllocated, Severity::Info, "gpu004"),
            acknowledged,
        ]);
        let states: Vec<_> = list.alerts.iter().map(|it| (it.name.as_str(), it.state)).collect();
        let expected =
            [("GauntPortDown", AlertState::Suppressed), ("GauntDataStarved", AlertState::Active)];
        assert_eq!(states, expected);
        assert_eq!(list.alerts[0].silences[0].until.as_str(), "1970-01-01T04:00:00.000Z");
    }
}
