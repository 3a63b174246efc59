//! PCIe links of GPUs with less width or speed than they should have, or with replays. Where most GPUs of a node have such
//! links, the node is to blame.

use gaunt_schema::{
    DeviceClass, Entity, EvidenceItem, FindingKind, SanitizedText, catalogue::gpu_health as health,
};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::PendingFinding,
    rare_events::{LIMIT_NOTE, PeerEvents, costly_rate},
    sample_interval::SampleInterval,
    slow_node::add_gpus_or_node,
};
use gaunt_cluster::{Cluster, Node, NodeId};

/// Adds every GPU with a degraded PCIe link.
pub(super) fn detect_degraded_pcie(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let peers = PeerEvents::of(judge.gpus.iter().map(|gpu| gpu.averages.replay_events()));
    for (id, node) in cluster.sorted_nodes() {
        let rows = node.device_rows(DeviceClass::Gpu).iter();
        let found = rows.filter_map(|row| degraded_link(judge, cluster, (id, node), *row, peers));
        let kinds = &[FindingKind::PcieDegraded];
        add_gpus_or_node(judge, node, kinds, found.collect(), outcome);
    }
}

/// Returns the finding of a GPU whose link has less width or speed than it should have, or replays packets.
fn degraded_link(
    judge: &JudgeState,
    cluster: &Cluster,
    (id, node): (NodeId, &Node),
    row: u32,
    peers: PeerEvents,
) -> Option<PendingFinding> {
    let limits = &judge.limits;
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    let tracker = judge.gpus.get(row as usize)?;
    let value = |metric| cluster.current_value(metric, row).filter(|value| *value > 0.0);
    // An idle link lowers its speed to save power, but never its width. The average may still cover the work that has
    // just ended.
    let works = |share: f64| share >= limits.utilization_launch_ratio;
    let busy = tracker.averages.utilization_at(now, gap).is_some_and(works)
        && tracker.averages.utilization_now().is_some_and(works);
    let (width, lanes) = (value(health::PCIE_WIDTH), value(health::PCIE_WIDTH_MAX));
    let (generation, best) = (value(health::PCIE_GENERATION), value(health::PCIE_GENERATION_MAX));
    let narrow = width.zip(lanes).is_some_and(|(now, most)| now < most);
    let slow = busy && generation.zip(best).is_some_and(|(now, most)| now < most);
    let replays = cluster.current_rate(health::PCIE_REPLAYS, row);
    let is_frequent = |rate: &f64| *rate >= limits.errors_per_second;
    let events = tracker.averages.replay_events();
    let interval = SampleInterval::of_gpus(cluster, node);
    // Where samples are rare, one interval alone may show as many.
    let are_many = |rate: &f64| costly_rate(rate * interval.seconds(), limits).is_some();
    let frequent = events.costly_rate(limits).or(replays.filter(are_many));
    let resent = frequent.is_some() || events.is_unusual(peers);
    if !narrow && !slow && !resent {
        return None;
    }
    let costs = narrow || slow || frequent.is_some();
    let entry = cluster.device_at(DeviceClass::Gpu, row)?;
    let entity =
        Entity::new_gpu(&node.name, entry.device.key.first().unwrap_or(&SanitizedText::default()));
    let group = judge.job_groups.of(row).filter(|_| costs);
    let slowed = group.and_then(|group| group.confirmed_slowdown(limits.slowed_ratio));
    // A lower trained link is one kind of evidence; the job that it slows down is another.
    let kinds = [narrow || slow, resent, slowed.is_some()].into_iter().filter(|kind| *kind).count();
    let how = match (narrow, slow) {
        (true, _) => {
            format!("has width x{} of x{}", value_or_zero(width), value_or_zero(lanes))
        }
        (_, true) => {
            format!("has generation {} of {}", value_or_zero(generation), value_or_zero(best))
        }
        _ => format!("has {:.0} replays in recent minutes", events.recent()),
    };
    // Values that are reported now and then may be of two instants: only the link width is constant, and replays are
    // counted.
    let hold = match (narrow, resent) {
        (true, _) => limits.pcie_seconds,
        (_, true) => limits.pcie_replay_seconds.max(interval.two_sample_seconds(limits)),
        _ => limits.pcie_replay_seconds.max(interval.two_sample_seconds_of_all(limits)),
    };
    Some(
        PendingFinding::of(FindingKind::PcieDegraded, entity.clone(), kinds, true)
            .with_hold_seconds(hold)
            .with_interval(interval)
            .with_cost(
                group.map_or(0.0, JobGroup::lost_gpus),
                group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default(),
            )
            .with_summary(
                format!("The PCIe link of {entity} {how}."),
                "Drain the node and reset the GPU; reseat or replace it (RMA) if the link stays degraded."
                    .to_owned(),
            )
            .with_possible_evidence([EvidenceRow::PcieReplayCount
                .to_evidence(Some(events.recent()), events.unusual_from(peers))
.with_note(LIMIT_NOTE)])
            .with_possible_evidence(link_evidence(
                [width, lanes],
                ([generation, best], slow),
                (replays.filter(is_frequent).or(frequent).or(replays), frequent.is_some()),
                slowed,
                limits,
            )),
    )
}

fn link_evidence(
    [width, lanes]: [Option<f64>; 2],
    ([generation, best], slow): ([Option<f64>; 2], bool),
    (replays, are_frequent): (Option<f64>, bool),
    slowed: Option<f64>,
    limits: &super::Thresholds,
) -> [EvidenceItem; 4] {
    [
        EvidenceRow::PcieWidth.to_evidence(width, lanes).with_note("limit: expected width"),
        EvidenceRow::PcieGeneration
            .to_evidence(generation, best)
            .with_note("limit: expected under load")
            .context_if(!slow),
        EvidenceRow::PcieReplays
            .to_evidence(replays, Some(limits.errors_per_second))
            .context_if(!are_frequent),
        EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
    ]
}

/// Returns the value of a number that is known here.
fn value_or_zero(number: Option<f64>) -> f64 {
    number.unwrap_or_default()
}
