//! Ports that are down, although they were active before or their siblings on the node are active.

use std::{cell::OnceCell, collections::BTreeSet, fmt::Write};

use gaunt_schema::{
    Device, DeviceClass, Entity, EvidenceItem, Finding, FindingKind, GpuState, SanitizedText,
    Severity, UnixMs,
    catalogue::{host, port},
};

use super::{
    EvidenceRow, JudgeState,
    compact_value::NodeTag,
    finding_lifecycle::DetectorOutcome,
    leaf_down::add_ports_or_leaves,
    leaf_link_errors::told_of_leaf,
    link_averages::LinkAverages,
    node_ports_down::FoundDown,
    pending_finding::{MAX_VICTIMS, format_count, format_time_of_day},
    port_link::{ACTIVE, LINK_UP, is_port_active},
    port_trackers::{LinkStop, PortTracker},
};
use gaunt_cluster::{Cluster, DeviceEntry, Node, PortTopology};

mod expected_ports;

use expected_ports::{PortSlotCounts, PortSurroundings, SiblingCounts, is_ethernet};

/// The logical states of a port, from 0 on, as InfiniBand names them.
const LOGICAL_STATES: [&str; 6] = ["", "down", "initialising", "armed", "active", "deferred"];

/// The physical states of a port, from 0 on, as InfiniBand names them.
const PHYSICAL_STATES: [&str; 8] =
    ["", "sleep", "polling", "disabled", "training", "link up", "error recovery", "test"];

/// The physical state of a port that was disabled; on Ethernet also that of one without a carrier.
const DISABLED: f64 = 3.0;

/// Adds the ports that are down.
pub(super) fn detect_down_ports(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    // A job whose waiting is explained already is not charged a second time.
    let mut charged_jobs: BTreeSet<SanitizedText> = outcome
        .findings
        .iter()
        .flat_map(|finding| &finding.victims)
        .filter_map(|victim| victim.job.clone())
        .collect();
    let slots = PortSlotCounts::count_slots(judge, cluster);
    let mut down = Vec::new();
    for (id, node) in cluster.sorted_nodes() {
        let siblings = OnceCell::new();
        let tag = NodeTag::of(&node.name);
        for row in node.device_rows(DeviceClass::Port) {
            let Some(entry) = cluster.device_at(DeviceClass::Port, *row) else { continue };
            let port = judge.ports.of(*row);
            let Some(port) = port.filter(|port| port.node == tag) else { continue };
            match is_port_active(cluster, *row) {
                None => outcome.undecidable.push(port_finding_id(node, entry)),
                Some(true) => {
                    let falls = port.recent_falls(cluster.now(), judge.limits.flap_window_seconds);
                    // What a link recovers from is told of all links of its leaf.
                    let recovers = falls.is_some() && port.stop == LinkStop::Recovery;
                    let told = recovers.then(|| told_of_leaf(judge, cluster, id, *row)).flatten();
                    if let Some(told) = told {
                        let own = port_finding_id(node, entry);
                        outcome.supersede_open(
                            &judge.tracker,
                            &own,
                            &format!("explained by {told}"),
                        );
                    } else if let Some(falls) = falls {
                        outcome.findings.push(flapping_finding(
                            judge,
                            cluster,
                            node,
                            (*row, entry),
                            (port, falls),
                        ));
                    }
                }
                Some(false) => {
                    let siblings = siblings.get_or_init(|| SiblingCounts::of(cluster, node));
                    let around = PortSurroundings::of(cluster, siblings, *row, entry, &slots);
                    let down_port =
                        DownPort { judge, cluster, node, row: *row, entry, port, around };
                    if down_port.is_fault() {
                        let (finding, jobs) = down_port.to_finding(&mut charged_jobs);
                        down.push(FoundDown { node: id, row: *row, finding, jobs });
                    }
                }
            }
        }
    }
    add_ports_or_leaves(judge, cluster, down, outcome);
}

/// Returns the finding of a port that is active whenever it is sampled, while its counter shows that it was not.
fn flapping_finding(
    judge: &JudgeState,
    cluster: &Cluster,
    node: &Node,
    (row, entry): (u32, &DeviceEntry),
    (port, [last, earlier]): (&PortTracker, [UnixMs; 2]),
) -> Finding {
    let empty = SanitizedText::default();
    let key = |at: usize| entry.device.key.get(at).unwrap_or(&empty);
    let entity = Entity::new_port(&node.name, key(0), key(1));
    let value = |metric| cluster.current_value(metric, row);
    let (counter, count) = match port.stop {
        LinkStop::Down => (EvidenceRow::LinkDowned, value(port::LINK_DOWNED)),
        LinkStop::Recovery => (EvidenceRow::LinkRecoveries, value(port::LINK_ERROR_RECOVERY)),
        LinkStop::Carrier => (
            EvidenceRow::CarrierChanges,
            judge
                .links
                .of(row)
                .and_then(LinkAverages::netdev_row)
                .and_then(|netdev| cluster.current_value(host::NETDEV_CARRIER_CHANGES, netdev)),
        ),
    };
    Finding {
        id: port_finding_id(node, entry),
        since: earlier,
        confidence: judge.limits.sure_of_fact_ratio,
        summary: describe_flapping(&entry.device, node, port.stop, [last, earlier]),
        next: cable_advice(cluster, row, entry),
        evidence: vec![counter.to_evidence(count, None).with_note(TWICE_NOTE)],
        ..Finding::new(FindingKind::PortDown, Severity::Warning, entity)
    }
}

/// The note of a counter that shows a flapping link.
pub(super) const TWICE_NOTE: &str = "rose twice between samples that show the link up";

/// Says when the link of a device stopped, and how.
pub(super) fn describe_flapping(
    device: &Device,
    node: &Node,
    stop: LinkStop,
    [last, earlier]: [UnixMs; 2],
) -> String {
    let (stopped, how) = match stop {
        LinkStop::Down | LinkStop::Carrier => ("went down", "and came up again"),
        LinkStop::Recovery => ("stopped", "to recover from errors"),
    };
    format!(
        "{device} on {} is flapping: its link {stopped} at {} and {}, {how}.",
        node.name,
        format_time_of_day(earlier),
        format_time_of_day(last),
    )
}

/// The next step for a cable, with both of its ends.
fn cable_advice(cluster: &Cluster, row: u32, entry: &DeviceEntry) -> String {
    let topology = cluster.topology().port_topology(row);
    let far = topology.map_or_else(|| "the switch port".to_owned(), PortTopology::describe_far_end);
    format!("Check the cable and transceiver of {} and {far}.", entry.device)
}

fn port_finding_id(node: &Node, entry: &DeviceEntry) -> String {
    format!("{}/{}/{}", FindingKind::PortDown, node.name, entry.device)
}

/// One port that is down, with the context of its finding.
struct DownPort<'a> {
    judge: &'a JudgeState,
    cluster: &'a Cluster,
    node: &'a Node,
    row: u32,
    entry: &'a DeviceEntry,
    port: &'a PortTracker,
    around: PortSurroundings,
}

impl DownPort<'_> {
    fn since(&self) -> UnixMs {
        self.port.down_since(self.cluster.now())
    }

    fn is_fault(&self) -> bool {
        let limits = &self.judge.limits;
        if self.port.down_samples() < limits.port_samples {
            return false;
        }
        if self.port.was_active() {
            return true;
        }
        let down_for = self.cluster.now().duration_since(self.since()).as_secs_f64();
        down_for >= limits.port_never_active_seconds
            && self.around.expects_active(limits.sharing_members)
    }

    /// Returns the finding and the jobs on the node.
    fn to_finding(
        &self,
        charged_jobs: &mut BTreeSet<SanitizedText>,
    ) -> (Finding, Vec<SanitizedText>) {
        let limits = &self.judge.limits;
        let jobs = jobs_on_node(self.cluster, self.node);
        let mut lost = 0;
        for job in jobs.iter().filter(|_| self.port.was_used()) {
            if charged_jobs.insert(job.clone()) {
                lost += count_waiting_gpus(self.judge, self.cluster, job);
            }
        }
        let empty = SanitizedText::default();
        let key = |at: usize| self.entry.device.key.get(at).unwrap_or(&empty);
        let entity = Entity::new_port(&self.node.name, key(0), key(1));
        let finding = Finding {
            id: port_finding_id(self.node, self.entry),
            since: self.since(),
            confidence: match (self.port.was_active(), self.around.siblings.0) {
                (true, 1..) => limits.sure_of_fact_ratio,
                _ => limits.sure_of_alike_ratio,
            },
            victims: jobs.iter().take(MAX_VICTIMS).map(Entity::new_job).collect(),
            summary: self.render_summary(),
            next: self.next(),
            evidence: self.collect_evidence(),
            ..Finding::new(FindingKind::PortDown, self.decide_severity(&jobs), entity)
        };
        (finding.with_lost_gpus(lost as f64), jobs)
    }

    /// Returns the severity: critical if a job runs on the node. One that was never seen active may not be used, even if it
    /// went down at some time since the host booted; nor is one that carried nothing while it was.
    fn decide_severity(&self, jobs: &[SanitizedText]) -> Severity {
        let is_used = self.port.was_used() && !jobs.is_empty();
        if is_used { Severity::Critical } else { Severity::Warning }
    }

    fn render_summary(&self) -> String {
        let (port, node, since) = (&self.entry.device, &self.node.name, self.since());
        let state = match (self.around.initialising, self.around.disabled) {
            (true, _) => "initialising",
            (false, true) if !self.port.was_active() => "disabled",
            (false, _) => "down",
        };
        let mut text = format!("{port} on {node} is {state} since {}", format_time_of_day(since));
        let (active, siblings) = self.around.siblings;
        let mut colon = ": ";
        if !self.port.was_active() {
            text = format!("{port} on {node} is {state} since before the first sample");
        }
        if siblings > 0 {
            let _ = match (active, siblings) {
                (1, 1) => write!(text, "{colon}its only sibling port is active"),
                (_, 1) => write!(text, "{colon}its only sibling port is not active"),
                _ => write!(text, "{colon}{active} of its {siblings} sibling ports are active"),
            };
            colon = ", ";
        }
        let (active, others) = self.around.others;
        if !self.port.was_active() && others > 0 {
            let others = format_count(others, "other node");
            let _ = write!(text, "{colon}and the same port on {active} of {others}");
        }
        text.push('.');
        text
    }

    fn next(&self) -> String {
        if self.around.initialising {
            return "The link is up, and the subnet manager has not made the port active: check that \
                    a subnet manager runs (sminfo), and its log."
                .to_owned();
        }
        let advice = cable_advice(self.cluster, self.row, self.entry);
        if !is_ethernet(self.entry)
            && self.cluster.current_value(port::PHYSICAL_STATE, self.row) == Some(DISABLED)
        {
            let advice = advice.replacen("Check", "check", 1);
            return format!("The link is disabled: enable it; if nobody disabled it, {advice}");
        }
        advice
    }

    fn collect_evidence(&self) -> Vec<EvidenceItem> {
        let value = |metric| self.cluster.current_value(metric, self.row);
        let of = |row: EvidenceRow, metric, limit| row.to_evidence(value(metric), limit);
        let state = of(EvidenceRow::LogicalState, port::STATE, Some(ACTIVE)).with_note(note_state(
            &LOGICAL_STATES,
            value(port::STATE),
            "active",
        ));
        let physical = of(EvidenceRow::PhysicalState, port::PHYSICAL_STATE, Some(LINK_UP))
            .with_note(match value(port::PHYSICAL_STATE) {
                Some(DISABLED) if is_ethernet(self.entry) => {
                    "no carrier; limit: link up".to_owned()
                }
                state => note_state(&PHYSICAL_STATES, state, "link up"),
            });
        // Others show that it should be active only where it never was.
        let of_all = |row: EvidenceRow, (active, all): (usize, usize)| {
            row.to_evidence(Some(active as f64), Some(all as f64))
                .context_if(all == 0 || self.port.was_active())
                .with_note("limit: all of them")
        };
        let siblings = of_all(EvidenceRow::ActiveSiblingPorts, self.around.siblings);
        let others = (!self.port.was_active())
            .then(|| of_all(EvidenceRow::ActivePeerPorts, self.around.others));
        let before = self.port.downed_before();
        let risen = before.map(|count| count + 1.0);
        let downed = of(EvidenceRow::LinkDowned, port::LINK_DOWNED, risen).with_note(
            match (before, self.around.fell) {
                (Some(_), _) => "limit: one more than before",
                (None, true) => "the link was up before",
                (None, false) => "",
            },
        );
        let downed = downed.context_if(before.is_none() && !self.around.fell);
        let rate = EvidenceRow::FormerLineRate.to_evidence(self.port.rate_before(), None);
        let known = |evidence: &EvidenceItem| evidence.value.is_some();
        let all = [Some(state), Some(physical), Some(siblings), others, Some(downed), Some(rate)];
        let all = all.into_iter().flatten().filter(known);
        // One of them is enough: the physical link may be up, and a sibling down.
        all.map(EvidenceItem::or_context).collect()
    }
}

/// Returns the jobs on a node.
pub(super) fn jobs_on_node(cluster: &Cluster, node: &Node) -> Vec<SanitizedText> {
    let gpus = node.device_rows(DeviceClass::Gpu).iter();
    let mut jobs: Vec<_> = gpus.filter_map(|gpu| cluster.job_of_gpu(*gpu).cloned()).collect();
    jobs.sort();
    jobs.dedup();
    jobs
}

/// Returns the number of GPUs of a job that wait.
fn count_waiting_gpus(judge: &JudgeState, cluster: &Cluster, job: &SanitizedText) -> usize {
    let gpus = cluster.gpus_by_job().get(job).into_iter().flatten();
    gpus.filter(|gpu| judge.gpu_state(**gpu) == GpuState::Waiting).count()
}

/// Says in words what the number of a state and its limit mean.
fn note_state(names: &[&str], state: Option<f64>, limit: &str) -> String {
    let name = state.and_then(|state| names.get(state as usize)).filter(|name| !name.is_empty());
    name.map_or_else(|| format!("limit: {limit}"), |name| format!("{name}; limit: {limit}"))
}
