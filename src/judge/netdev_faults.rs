//! Network devices that stand for a port and have lost their carrier, lose it again and again, or count link errors.

use gaunt_cluster::{Cluster, DeviceEntry, Node, NodeId};
use gaunt_schema::{
    DeviceClass, Entity, Finding, FindingKind, SanitizedText, Severity, catalogue::host,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    link_averages::current_value,
    netdev_link::NetdevLink,
    pending_finding::{MAX_VICTIMS, PendingFinding, format_time_of_day},
    port_down::{TWICE_NOTE, describe_flapping, jobs_on_node},
    rare_events::{LIMIT_NOTE, PeerEvents},
};

/// Adds every network device that stands for a port and has a bad link.
pub(super) fn detect_faulty_netdevs(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let links = &judge.netdevs.links;
    let peers = PeerEvents::of(links.values().map(|link| link.error_events));
    for (row, link) in links {
        let Some(entry) = cluster.device_at(DeviceClass::Netdev, *row) else { continue };
        let (id, name) = (entry.node, entry.device.key.first());
        let Some((node, name)) = cluster.node_by_id(id).zip(name) else { continue };
        if !link.is_of(&node.name, name) {
            continue;
        }
        let netdev = FaultyNetdev { judge, cluster, id, node, entry, name, row: *row, link };
        match cluster.current_value(host::NETDEV_CARRIER, *row) {
            None => outcome.undecidable.push(netdev.finding_id(FindingKind::PortDown)),
            Some(carrier) if carrier > 0.0 => outcome.findings.extend(netdev.detect_flapping()),
            Some(_) => outcome.findings.extend(netdev.detect_lost_carrier()),
        }
        outcome.suspicions.extend(netdev.detect_errors(peers));
    }
}

/// One network device with its link.
struct FaultyNetdev<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    id: NodeId,
    node: &'a Node,
    entry: &'a DeviceEntry,
    name: &'a SanitizedText,
    row: u32,
    link: &'a NetdevLink,
}

impl FaultyNetdev<'_> {
    fn to_entity(&self) -> Entity {
        Entity::new_netdev(&self.node.name, self.name)
    }

    fn finding_id(&self, kind: FindingKind) -> String {
        Finding::build_id(kind, &self.to_entity())
    }

    /// Returns the job group on its node with the largest slowdown, and the slowdown.
    fn slowed_group(&self) -> Option<(&JobGroup, f64)> {
        let gpus = self.node.device_rows(DeviceClass::Gpu);
        self.judge.job_groups.most_slowed_on(gpus, self.judge.limits.slowed_ratio)
    }

    /// Creates a finding about its carrier, with the jobs on the node as victims.
    fn carrier_finding(&self) -> Finding {
        let slowed = self.slowed_group().map(|(group, _)| group);
        let jobs = jobs_on_node(self.cluster, self.node);
        Finding {
            id: self.finding_id(FindingKind::PortDown),
            confidence: self.judge.limits.sure_of_fact_ratio,
            victims: jobs.iter().take(MAX_VICTIMS).map(Entity::new_job).collect(),
            next: "Check the cable and the transceivers at both ends, and the switch port."
                .to_owned(),
            ..Finding::new(FindingKind::PortDown, Severity::Warning, self.to_entity())
        }
        .with_lost_gpus(slowed.map_or(0.0, JobGroup::lost_gpus))
    }

    /// Without an RDMA port all traffic of a job goes over network devices.
    fn carries_jobs(&self) -> bool {
        self.node.device_rows(DeviceClass::Port).is_empty()
            && !jobs_on_node(self.cluster, self.node).is_empty()
    }

    fn detect_lost_carrier(&self) -> Option<Finding> {
        let carrier = &self.link.carrier;
        if !carrier.was_active() || carrier.down_samples() < self.judge.limits.port_samples {
            return None;
        }
        let since = carrier.down_since(self.cluster.now());
        let value = |metric| self.cluster.current_value(metric, self.row);
        let changes = value(host::NETDEV_CARRIER_CHANGES);
        Some(Finding {
            since,
            severity: if self.carries_jobs() { Severity::Critical } else { Severity::Warning },
            summary: format!(
                "{} on {} has no carrier since {}; it carried traffic before.",
                self.entry.device,
                self.node.name,
                format_time_of_day(since),
            ),
            evidence: vec![
                EvidenceRow::Carrier
                    .to_evidence(value(host::NETDEV_CARRIER), Some(1.0))
                    .with_note("limit: carrier"),
                EvidenceRow::CarrierChanges.to_evidence(changes, None).context_if(true),
            ],
            ..self.carrier_finding()
        })
    }

    fn detect_flapping(&self) -> Option<Finding> {
        let (carrier, now) = (&self.link.carrier, self.cluster.now());
        let falls = carrier.recent_falls(now, self.judge.limits.flap_window_seconds)?;
        let changes = self.cluster.current_value(host::NETDEV_CARRIER_CHANGES, self.row);
        Some(Finding {
            since: falls[1],
            summary: describe_flapping(&self.entry.device, self.node, carrier.stop, falls),
            evidence: vec![
                EvidenceRow::CarrierChanges.to_evidence(changes, None).with_note(TWICE_NOTE),
            ],
            ..self.carrier_finding()
        })
    }

    fn detect_errors(&self, peers: PeerEvents) -> Option<PendingFinding> {
        let limits = &self.judge.limits;
        let events = self.link.error_events;
        let rate = current_value(self.link.errors, self.cluster)?;
        let rate = events.telling_rate(Some(rate), limits)?;
        let keeps_counting = rate >= limits.errors_per_second;
        if !keeps_counting && !events.is_unusual(peers) {
            return None;
        }
        let slowed = self.slowed_group().filter(|_| keeps_counting);
        let entity = self.to_entity();
        let summary = if keeps_counting {
            format!("{entity} has {rate:.1} link errors per second.")
        } else {
            format!("{entity} has {:.0} link errors in recent minutes.", events.recent())
        };
        let next =
            "Clean and reseat the cable and its transceivers; replace them if the errors continue.";
        let kinds = 1 + usize::from(slowed.is_some());
        Some(
            PendingFinding::of(FindingKind::LinkErrors, entity, kinds, true)
                .with_hold_seconds(limits.link_errors_seconds)
                .with_cost(
                    slowed.map_or(0.0, |(group, _)| group.lost_gpus()),
                    slowed
                        .map(|(group, _)| group.list_victims(self.cluster, Some(self.id)))
                        .unwrap_or_default(),
                )
                .with_summary(summary, next.to_owned())
                .with_possible_evidence([
                    EvidenceRow::LinkErrors.to_evidence(Some(rate), Some(limits.errors_per_second)),
                    EvidenceRow::LinkErrorCount
                        .to_evidence(Some(events.recent()), events.unusual_from(peers))
                        .with_note(LIMIT_NOTE),
                    EvidenceRow::JobSlowdown
                        .to_evidence(slowed.map(|(_, slowed)| slowed), Some(limits.slowed_ratio)),
                ]),
        )
    }
}
