//! GPUs with inactive NVLinks, or whose NVLinks have errors or retransmit packets.

use gaunt_cluster::{Cluster, Node, NodeId};
use gaunt_schema::{DeviceClass, Entity, Finding, FindingKind, SanitizedText};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_count},
    rare_events::{LIMIT_NOTE, PeerEvents, RareEvents, costly_rate, sum_events},
};

/// From so many GPUs of one node on, link errors share what joins them: its NVSwitches, or the link between two GPUs.
const SHARING_GPUS: usize = 2;

/// Recent errors from which a GPU has any.
const ANY_ERRORS: f64 = 0.5;

/// A GPU with degraded NVLinks.
struct DegradedLinks {
    row: u32,
    /// Errors per second and in recent minutes, and how many of these are unusual.
    errors: Option<f64>,
    recent: f64,
    unusual_from: Option<f64>,
    has_errors: bool,
    /// Whether they cost something.
    are_frequent: bool,
    /// Active links, the most of any GPU of the node, and whether some are missing.
    up: Option<u16>,
    most: u16,
    lost: bool,
}

/// Adds every GPU with degraded NVLinks, and every node whose NVSwitches are.
pub(super) fn detect_degraded_nvlinks(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let peers = judge.nvlinks.peer_errors();
    for (id, node) in cluster.sorted_nodes() {
        let degraded: Vec<DegradedLinks> = node
            .device_rows(DeviceClass::Gpu)
            .iter()
            .filter_map(|row| DegradedLinks::of(judge, cluster, node, *row, peers))
            .collect();
        let shared = nvlinks_of(judge, node, peers);
        let is_shared = shared.are_shared();
        if is_shared {
            outcome.suspicions.push(shared.to_finding(judge, cluster, (id, node)));
        }
        for links in degraded.iter().filter(|links| is_shared && !links.lost) {
            let Some(entity) = links.entity(cluster, node) else { continue };
            let id = Finding::build_id(FindingKind::NvlinkDegraded, &entity);
            let reason = "explained by errors on several GPUs of the node";
            outcome.supersede_open(&judge.tracker, &id, reason);
        }
        let alone = degraded.iter().filter(|links| !is_shared || links.lost);
        outcome
            .suspicions
            .extend(alone.filter_map(|links| links.to_finding(judge, cluster, (id, node))));
    }
}

/// The GPUs of a node whose NVLinks have errors, and whose driver says so.
pub(super) struct ErringNvlinks {
    /// Those that count errors.
    counting: Vec<u32>,
    /// Their errors in recent minutes, and how many of these are unusual, if they are.
    unusual: Option<(f64, f64)>,
    /// Those with an XID of an NVLink error and nothing else.
    reported: Vec<u32>,
}

/// Returns the GPUs of a node whose NVLinks have errors.
pub(super) fn nvlinks_of(judge: &JudgeState, node: &Node, peers: PeerEvents) -> ErringNvlinks {
    let rows = node.device_rows(DeviceClass::Gpu);
    let events = rows.iter().filter_map(|row| Some((*row, judge.nvlinks.of(*row)?.error_events)));
    let erring: Vec<(u32, RareEvents)> =
        events.filter(|(_, events)| events.recent() >= ANY_ERRORS).collect();
    let sum = (erring.len() >= SHARING_GPUS)
        .then(|| sum_events(erring.iter().map(|(_, events)| *events), peers));
    ErringNvlinks {
        unusual: sum.flatten().filter(|(recent, least)| recent >= least),
        counting: erring.into_iter().map(|(row, _)| row).collect(),
        reported: rows
            .iter()
            .filter(|row| judge.health.of(**row).is_only_nvlink())
            .copied()
            .collect(),
    }
}

impl ErringNvlinks {
    /// Whether what joins several GPUs is to blame: the NVLink between them, or their NVSwitches.
    pub(super) fn are_shared(&self) -> bool {
        self.unusual.is_some() || self.reported.len() >= SHARING_GPUS
    }

    /// Returns the finding about what joins the GPUs of a node.
    fn to_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        (id, node): (NodeId, &Node),
    ) -> PendingFinding {
        let limits = &judge.limits;
        let recent = self.unusual.map(|(recent, _)| recent);
        let frequent = recent.and_then(|recent| costly_rate(recent, limits));
        let groups =
            self.rows().iter().chain(&self.reported).filter_map(|row| judge.job_groups.of(*row));
        let group = groups.max_by(|a, b| a.lost_gpus().total_cmp(&b.lost_gpus()));
        let group = group.filter(|_| frequent.is_some() || !self.reported.is_empty());
        let slowed = group.and_then(|group| group.confirmed_slowdown(limits.slowed_ratio));
        let kinds = [recent.is_some(), !self.reported.is_empty(), slowed.is_some()];
        let kinds = kinds.into_iter().filter(|kind| *kind).count();
        let hold = if self.reported.is_empty() { limits.nvlink_seconds } else { 0.0 };
        let evidence = EvidenceRow::NvlinkErrorCount;
        let evidence = evidence.to_evidence(recent, self.unusual.map(|(_, least)| least));
        PendingFinding::of(FindingKind::NvlinkDegraded, Entity::new_node(&node.name), kinds, true)
            .with_hold_seconds(hold)
            .with_cost(
                group.map_or(0.0, JobGroup::lost_gpus),
                group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default(),
            )
            .with_summary(
                self.render_summary(judge, node),
                format!("Drain {} and reset its GPUs and NVSwitches together; if the errors persist (nvidia-smi nvlink -e, fabric manager log), have the NVSwitch inspected.", node.name),
            )
            .with_possible_evidence([
                evidence.with_note(LIMIT_NOTE),
                EvidenceRow::NvlinkErrors.to_evidence(frequent, Some(limits.errors_per_second)),
                EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
            ])
            .with_evidence((!self.reported.is_empty()).then(|| {
                let code = self.reported.first().and_then(|row| judge.health.of(*row).xid);
                let count = format_count(self.reported.len(), "GPU");
                EvidenceRow::Xid
                    .to_evidence(code.map(|(code, _)| f64::from(code)), None)
                    .with_note(format!("NVIDIA driver error code, on {count}"))
            }))
    }

    /// The GPUs that show it: those that count errors, or where none does, those with an XID.
    fn rows(&self) -> &[u32] {
        if self.unusual.is_some() { &self.counting } else { &self.reported }
    }

    fn render_summary(&self, judge: &JudgeState, node: &Node) -> String {
        let counted = self.unusual.map(|(recent, _)| format!("{recent:.0} in recent minutes"));
        let xid =
            self.reported.first().and_then(|row| judge.health.of(*row).xid).map(|(code, _)| {
                format!("XID {code} on {}", format_count(self.reported.len(), "GPU"))
            });
        let between =
            if self.rows().len() == SHARING_GPUS { "the NVLink between them, or " } else { "" };
        format!(
            "{} of {} have NVLink errors ({}): {between}the NVSwitches that they share.",
            format_count(self.rows().len(), "GPU"),
            node.name,
            counted.into_iter().chain(xid).collect::<Vec<_>>().join(", "),
        )
    }
}

impl DegradedLinks {
    /// Returns the links of a GPU if some are missing or have errors.
    fn of(
        judge: &JudgeState,
        cluster: &Cluster,
        node: &Node,
        row: u32,
        peers: PeerEvents,
    ) -> Option<Self> {
        let links = judge.nvlinks.of(row)?;
        let errors = links.errors.value_at(cluster.now(), cluster.freshness_window());
        let errors = links.error_events.telling_rate(errors, &judge.limits);
        let are_frequent = errors.is_some_and(|rate| rate >= judge.limits.errors_per_second);
        let has_errors = links.error_events.is_unusual(peers) || are_frequent;
        // GPUs of one machine have equally many; one that never had them all lacks some as well.
        let others =
            node.device_rows(DeviceClass::Gpu).iter().filter_map(|other| judge.nvlinks.of(*other));
        let most = others.map(|links| links.most).max().unwrap_or_default();
        let lost = links.up.is_some_and(|up| up < most && judge.health.of(row).gone.is_none());
        (has_errors || lost).then(|| Self {
            row,
            errors,
            recent: links.error_events.recent(),
            unusual_from: links.error_events.unusual_from(peers),
            has_errors,
            are_frequent,
            up: links.up,
            most,
            lost,
        })
    }

    fn entity(&self, cluster: &Cluster, node: &Node) -> Option<Entity> {
        let entry = cluster.device_at(DeviceClass::Gpu, self.row)?;
        let name = SanitizedText::default();
        Some(Entity::new_gpu(&node.name, entry.device.key.first().unwrap_or(&name)))
    }

    fn to_finding(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        (id, node): (NodeId, &Node),
    ) -> Option<PendingFinding> {
        let limits = &judge.limits;
        let entity = self.entity(cluster, node)?;
        let costs = self.lost || self.are_frequent;
        let group = judge.job_groups.of(self.row).filter(|_| costs);
        let slowed = group.and_then(|group| group.confirmed_slowdown(limits.slowed_ratio));
        let kinds = [self.has_errors, self.lost, slowed.is_some()];
        let how = match self.up.filter(|_| self.lost) {
            Some(up) => format!("has {up} of {} active NVLinks", self.most),
            None => format!("has {:.0} NVLink errors in recent minutes", self.recent),
        };
        let finding = PendingFinding::of(
            FindingKind::NvlinkDegraded,
            entity.clone(),
            kinds.into_iter().filter(|kind| *kind).count(),
            true,
        );
        Some(finding
            .with_hold_seconds(limits.nvlink_seconds)
            .with_cost(
                group.map_or(0.0, JobGroup::lost_gpus),
                group.map(|group| group.list_victims(cluster, Some(id))).unwrap_or_default(),
            )
            .with_summary(
                format!("{entity} {how}."),
                "Drain the node and reset its GPUs; if the errors persist (nvidia-smi nvlink -e), have the GPU and the NVSwitch inspected.".to_owned(),
            )
            .with_possible_evidence([
                EvidenceRow::ActiveNvlinks.to_evidence(self.up.map(f64::from), Some(f64::from(self.most))).with_note("limit: most on the other GPUs of the node"),
                EvidenceRow::NvlinkErrors.to_evidence(self.errors, Some(limits.errors_per_second)),
                EvidenceRow::NvlinkErrorCount.to_evidence(Some(self.recent), self.unusual_from).with_note(LIMIT_NOTE),
                EvidenceRow::JobSlowdown.to_evidence(slowed, Some(limits.slowed_ratio)),
            ]))
    }
}
