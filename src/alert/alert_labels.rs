//! Alert labels: a finding as an alert, with the labels of the shipped rules and its annotations.

use std::collections::BTreeMap;

use gaunt_schema::{FindingKind, SanitizedText, UnixMs};

use gaunt_api::Finding;

/// Runbook with a section for each alert.
const RUNBOOK: &str = "config/prometheus/runbooks.md";

/// One alert in Alertmanager's form.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FindingAlert {
    /// Labels: the identity of the alert.
    pub(super) labels: BTreeMap<&'static str, String>,
    /// Annotations.
    pub(super) annotations: BTreeMap<&'static str, String>,
    /// Start of its evidence.
    pub(super) since: UnixMs,
}

impl FindingAlert {
    /// The alert of a finding.
    pub(super) fn of(finding: &Finding, cluster: &SanitizedText) -> Self {
        let name = rule_alert_name(finding.kind);
        let entity = &finding.entity;
        let mut labels = BTreeMap::from([
            ("alertname", name.clone()),
            ("severity", finding.severity.to_string()),
            ("layer", "finding".to_owned()),
            ("kind", finding.kind.to_string()),
            ("id", finding.id.clone()),
            ("entity", entity.kind.to_string()),
        ]);
        for (label, part) in [
            ("cluster", Some(cluster)),
            ("node", entity.node.as_ref()),
            ("gpu", entity.gpu.as_ref()),
            ("device", entity.device.as_ref()),
            ("port", entity.port.as_ref()),
            ("cluster_job", entity.job.as_ref()),
            ("rail", entity.rail.as_ref()),
            ("leaf", entity.leaf.as_ref()),
            ("domain", entity.domain.as_ref()),
            ("rack", entity.rack.as_ref()),
            ("source", entity.source.as_ref()),
        ] {
            // Alertmanager treats an empty label as absent.
            labels.extend(part.filter(|part| !part.is_empty()).map(|p| (label, p.to_string())));
        }
        let annotations = BTreeMap::from([
            ("summary", finding.summary.clone()),
            ("description", finding.next.clone()),
            ("runbook", format!("{RUNBOOK}#{}", name.to_lowercase())),
        ]);
        Self { labels, annotations, since: finding.since }
    }

    /// The id of its finding.
    pub(super) fn finding_id(&self) -> &str {
        self.labels.get("id").map_or("", String::as_str)
    }

    /// Its severity label.
    pub(super) fn severity_label(&self) -> &str {
        self.labels.get("severity").map_or("", String::as_str)
    }
}

/// Alert name of a finding kind in the rules: `port_down` is `GauntPortDown`.
pub(crate) fn rule_alert_name(kind: FindingKind) -> String {
    let mut name = "Gaunt".to_owned();
    for word in kind.as_str().split('_') {
        let mut letters = word.chars();
        name.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_name_is_that_of_the_rules() {
        let rules = include_str!("../../config/prometheus/rules/gaunt/findings.yml");
        for kind in FindingKind::ALL {
            let rule = format!(
                "- alert: {}\n        expr: 'gaunt:finding{{kind=\"{kind}\"}}",
                rule_alert_name(*kind)
            );
            assert!(rules.contains(&rule), "{rule}");
        }
    }
}
