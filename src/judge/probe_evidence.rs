//! Probe evidence: bandwidths that probes measured on idle links support other findings, or warn on their own.

use gaunt_schema::{
    DeviceClass, Entity, EntityKind, EvidenceItem, Finding, FindingKind, SanitizedText,
    catalogue::probe_results,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{PendingFinding, format_count, format_percent},
};
use gaunt_cluster::{Cluster, Node};

/// The combined result of many nodes' probes about a port or a leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossNodeBandwidth {
    /// The port, or the leaf.
    pub entity: Entity,
    /// Whether only traffic to other leaves is slow.
    pub across: bool,
    /// The median bandwidth / baseline of its pairs.
    pub ratio: f64,
    /// The number of pairs.
    pub pairs: u32,
}

/// Adds probe evidence. It comes last: a probe may be an hour old, and must not hide present evidence.
pub(super) fn add_probe_evidence(
    judge: &JudgeState,
    cross_node: &[CrossNodeBandwidth],
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for (_, node) in
        cluster.sorted_nodes().filter(|(_, node)| !node.device_rows(DeviceClass::Probe).is_empty())
    {
        if let Some(probe) = NodeProbe::of(judge, cluster, node) {
            probe.report_findings(node, outcome);
        }
    }
    for measured in cross_node {
        add_cross_node(judge, measured, outcome);
    }
}

/// The last probe of one node, where it found something.
#[derive(Default)]
struct NodeProbe {
    /// The series that is furthest below its limit.
    slow: Option<SlowProbeSeries>,
    /// The largest number of wrong elements, and the operation that produced them.
    wrong: Option<(String, f64)>,
}

/// A series below its limit.
struct SlowProbeSeries {
    /// What was measured.
    what: String,
    ratio: f64,
    limit: f64,
    /// Whether it is compared with other GPUs of its model, not with its own past.
    elsewhere: bool,
    /// Whether it went through the host.
    through_host: bool,
}

impl SlowProbeSeries {
    /// Returns the worst result of one series. A measurement within one GPU is no evidence about a link.
    fn of(judge: &JudgeState, cluster: &Cluster, row: u32, what: &str) -> Option<Self> {
        let entry = cluster.device_at(DeviceClass::Probe, row)?;
        let path = entry.info_label(probe_results::INFO, "path").map(SanitizedText::as_str);
        let series = [
            (probe_results::BASELINE_RATIO, judge.limits.probe_baseline_ratio, false),
            (probe_results::REFERENCE_RATIO, 1.0, true),
        ];
        let series = series.into_iter().filter_map(|(metric, limit, elsewhere)| {
            let ratio = cluster.current_value(metric, row).filter(|ratio| *ratio < limit)?;
            let through_host = matches!(path, Some("host" | "staged"));
            Some(Self { what: what.to_owned(), ratio, limit, elsewhere, through_host })
        });
        series
            .filter(|_| path != Some("local"))
            .min_by(|a, b| a.share_of_limit().total_cmp(&b.share_of_limit()))
    }

    /// Returns the result / limit.
    fn share_of_limit(&self) -> f64 {
        self.ratio / self.limit
    }

    fn to_evidence(&self) -> EvidenceItem {
        let row =
            if self.elsewhere { EvidenceRow::ProbeReference } else { EvidenceRow::ProbeBandwidth };
        row.to_evidence(Some(self.ratio), Some(self.limit)).with_note(&self.what)
    }
}

impl NodeProbe {
    fn of(judge: &JudgeState, cluster: &Cluster, node: &Node) -> Option<Self> {
        let own = *node.device_rows(DeviceClass::Node).first()?;
        let ended = cluster.current_value(probe_results::LAST_RUN, own)?;
        let age = cluster.now().0 as f64 / 1e3 - ended;
        if age > judge.limits.probe_valid_seconds {
            return None;
        }
        let mut found = Self::default();
        for row in node.device_rows(DeviceClass::Probe) {
            let Some(entry) = cluster.device_at(DeviceClass::Probe, *row) else { continue };
            let name = entry.device.key.first().map_or("", SanitizedText::as_str).replace('_', "-");
            if let Some(slow) = SlowProbeSeries::of(judge, cluster, *row, &name)
                && found
                    .slow
                    .as_ref()
                    .is_none_or(|worst| slow.share_of_limit() < worst.share_of_limit())
            {
                found.slow = Some(slow);
            }
            let wrong =
                cluster.current_value(probe_results::WRONG, *row).filter(|wrong| *wrong > 0.0);
            if let Some(wrong) = wrong
                && found.wrong.as_ref().is_none_or(|(_, most)| wrong > *most)
            {
                found.wrong = Some((name, wrong));
            }
        }
        (found.slow.is_some() || found.wrong.is_some()).then_some(found)
    }

    fn report_findings(self, node: &Node, outcome: &mut DetectorOutcome) {
        let entity = Entity::new_node(&node.name);
        if let Some((what, wrong)) = self.wrong {
            let evidence =
                EvidenceRow::WrongElements.to_evidence(Some(wrong), None).with_note(&what);
            outcome.suspicions.push(
                PendingFinding::of(FindingKind::GpuFailed, entity.clone(), 1, true)
                    .with_summary(
                        format!("{entity} returns wrong data in {what} of its probe."),
                        "Drain the node: transfers between its GPUs corrupt data. Run `gaunt-probe matrix` to find the pair.".to_owned(),
                    )
                    .with_evidence([evidence]),
            );
        }
        let Some(slow) = self.slow else { return };
        let evidence = slow.to_evidence();
        let kind =
            if slow.through_host { FindingKind::PcieDegraded } else { FindingKind::NvlinkDegraded };
        let same = |finding: &Finding| {
            finding.kind == kind && finding.entity.node.as_ref() == Some(&node.name)
        };
        if support_findings(outcome, same, &evidence) {
            return;
        }
        let baseline =
            if slow.elsewhere { "the reference of its GPU model" } else { "its baseline" };
        outcome.suspicions.push(
            PendingFinding::of(kind, entity.clone(), 1, true)
                .with_summary(
                    format!(
                        "{} on {entity} reaches {} of {baseline}, measured on idle GPUs.",
                        slow.what,
                        format_percent(slow.ratio)
                    ),
                    "Run `gaunt-probe matrix` on the node to find the slow pair of GPUs."
                        .to_owned(),
                )
                .with_evidence([evidence]),
        );
    }
}

/// Adds the result of probes between nodes about one port or leaf.
fn add_cross_node(
    judge: &JudgeState,
    measured: &CrossNodeBandwidth,
    outcome: &mut DetectorOutcome,
) {
    let CrossNodeBandwidth { entity, across, ratio, pairs } = measured;
    if *ratio >= judge.limits.probe_baseline_ratio {
        return;
    }
    let limit = Some(judge.limits.probe_baseline_ratio);
    let note = format!("median of {}", format_count(*pairs as usize, "pair"));
    let evidence = EvidenceRow::CrossNodeProbe.to_evidence(Some(*ratio), limit).with_note(note);
    let port = entity.kind == EntityKind::Port;
    let same = |finding: &Finding| match finding.kind {
        FindingKind::PortRateLow | FindingKind::LinkErrors => port && finding.entity == *entity,
        FindingKind::LeafCongested => !port && finding.entity.leaf == entity.leaf,
        _ => false,
    };
    if support_findings(outcome, same, &evidence) {
        return;
    }
    let (kind, whom, next) = match (port, across) {
        (true, _) => (
            FindingKind::PortRateLow,
            "with every other port of its rail",
            "Check the cable and the transceivers at both ends, and the PCIe slot of the HCA.",
        ),
        (false, false) => (
            FindingKind::LeafCongested,
            "between ports below it",
            "Check the switch itself: its ports are slow with each other on an idle fabric.",
        ),
        (false, true) => (
            FindingKind::LeafCongested,
            "with ports below other leaves",
            "Check the uplinks of this switch: traffic below it reaches its baseline.",
        ),
    };
    outcome.suspicions.push(
        PendingFinding::of(kind, entity.clone(), 1, true)
            .with_summary(
                format!(
                    "{entity} reaches {} of its baseline bandwidth {whom}, measured between idle nodes.",
                    format_percent(*ratio)
                ),
                next.to_owned(),
            )
            .with_evidence([evidence]),
    );
}

/// Adds the evidence to every finding that it supports; returns whether there is one. As another kind of evidence it
/// can make a finding critical.
fn support_findings(
    outcome: &mut DetectorOutcome,
    same: impl Fn(&Finding) -> bool,
    evidence: &EvidenceItem,
) -> bool {
    let mut any = false;
    for held in outcome.suspicions.iter_mut().filter(|held| same(&held.finding)) {
        held.add_confirmation(evidence.clone());
        any = true;
    }
    any
}
