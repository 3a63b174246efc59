//! A node none of whose ports is active: one finding instead of one for each port.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_cluster::{Cluster, NodeId};
use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, EvidenceRole, Finding, FindingKind, SanitizedText, Severity,
};

use super::{
    JudgeState, finding_lifecycle::DetectorOutcome, pending_finding::format_time_of_day,
    port_link::is_port_active,
};

/// The fewest ports that are reported as their node.
const LEAST_PORTS: usize = 2;

/// The most ports that the evidence of a node or a switch names.
const MAX_EVIDENCE: usize = 8;

/// The most jobs, and the most nodes, below a switch that are its victims: twice as many as the largest switches have ports.
pub(super) const MOST_BELOW_SWITCH: usize = 256;

/// A port that is down, with its finding and the jobs on its node.
pub(super) struct FoundDown {
    pub(super) node: NodeId,
    pub(super) row: u32,
    pub(super) finding: Finding,
    pub(super) jobs: Vec<SanitizedText>,
}

impl DetectorOutcome {
    /// Adds the findings of ports as they are.
    fn add_ports(&mut self, ports: impl Iterator<Item = FoundDown>) {
        for port in ports {
            self.jobs.insert(port.finding.id.clone(), port.jobs);
            self.findings.push(port.finding);
        }
    }

    /// Adds one finding that stands for those of these ports, which may be open.
    pub(super) fn add_instead_of(
        &mut self,
        judge: &JudgeState,
        ports: Vec<FoundDown>,
        finding: Finding,
    ) {
        for port in &ports {
            let reason = format!("explained by {}", finding.id);
            self.supersede_open(&judge.tracker, &port.finding.id, &reason);
        }
        let jobs: BTreeSet<SanitizedText> = ports.into_iter().flat_map(|port| port.jobs).collect();
        self.jobs.insert(finding.id.clone(), jobs.into_iter().collect());
        self.findings.push(finding);
    }
}

/// Adds the findings of ports that share no switch; those of a node none of whose ports is active are one. It stays one until
/// half of its ports are active again.
pub(super) fn add_ports_or_nodes(
    judge: &JudgeState,
    cluster: &Cluster,
    down: Vec<FoundDown>,
    outcome: &mut DetectorOutcome,
) {
    let mut of_node: BTreeMap<NodeId, Vec<FoundDown>> = BTreeMap::new();
    for port in down {
        of_node.entry(port.node).or_default().push(port);
    }
    for (id, ports) in of_node {
        let node = cluster.node_by_id(id).filter(|_| ports.len() >= LEAST_PORTS);
        let Some(node) = node else {
            outcome.add_ports(ports.into_iter());
            continue;
        };
        let rows = node.device_rows(DeviceClass::Port).iter();
        let active = rows.filter(|row| is_port_active(cluster, **row) == Some(true)).count();
        let finding = node_finding(&Entity::new_node(&node.name), &ports);
        let is_open = judge.tracker.open_one(&finding.id).is_some();
        match (is_open, active) {
            (false, 1..) => outcome.add_ports(ports.into_iter()),
            // Those that come back last are no faults of their own: they wait until the finding has closed.
            (true, active) if active >= ports.len() => {}
            _ => outcome.add_instead_of(judge, ports, finding),
        }
    }
}

fn node_finding(entity: &Entity, ports: &[FoundDown]) -> Finding {
    let summed = sum_findings(entity.clone(), ports);
    let all = match ports.len() {
        2 => "Both".to_owned(),
        all => format!("All {all}"),
    };
    Finding {
        summary: format!(
            "{all} ports of {entity} are down since {}.",
            format_time_of_day(summed.since)
        ),
        next: "Check whether the node restarts; if not, its kernel log (dmesg) for the RDMA driver, its cables and its switch."
            .to_owned(),
        ..summed
    }
}

/// Returns a finding about what these ports share: since the first, with the evidence, the jobs and the cost of all of them.
pub(super) fn sum_findings(entity: Entity, ports: &[FoundDown]) -> Finding {
    let of = || ports.iter().map(|port| &port.finding);
    let jobs: BTreeSet<Entity> = of().flat_map(|port| port.victims.iter().cloned()).collect();
    let severity = of().map(|port| port.severity).max().unwrap_or(Severity::Warning);
    Finding {
        since: of().map(|port| port.since).min().unwrap_or_default(),
        confidence: of().map(|port| port.confidence).fold(0.0, f64::max),
        victims: jobs.into_iter().take(MOST_BELOW_SWITCH).collect(),
        evidence: of().filter_map(evidence_of_port).take(MAX_EVIDENCE).collect(),
        ..Finding::new(FindingKind::PortDown, severity, entity)
    }
    .with_lost_gpus(of().map(|port| port.lost_gpus).sum())
}

/// Returns the first value that shows a port down, with the name of the port.
fn evidence_of_port(port: &Finding) -> Option<EvidenceItem> {
    let shown = port.evidence.iter().find(|value| value.role == EvidenceRole::Proof)?;
    Some(shown.clone().with_note(format!("{}; {}", port.entity, shown.note)))
}
