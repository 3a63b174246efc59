//! One judgement: its input, its execution on any thread, and its result.

use super::{Finding, finding_answers};
use gaunt_cluster::Cluster;
use gaunt_judge::{BaselineSnapshot, FleetLoss, Judge};
use gaunt_schema::{Dialect, TargetId};

/// A judgement to be run, on any thread.
pub(super) struct JudgementTask {
    pub(super) judge: Judge,
    /// The losses before those that are published, whose memory is reused.
    pub(super) spare_loss: FleetLoss,
    /// The revision of the closed findings that are known already.
    pub(super) closed_revision: u64,
    /// Whether to export baselines.
    pub(super) wants_baselines: bool,
}

/// The result of a judgement.
pub(super) struct JudgementResult {
    pub(super) judge: Judge,
    pub(super) loss: FleetLoss,
    pub(super) findings: Vec<Finding>,
    /// Closed findings, if they changed.
    pub(super) closed: Option<Vec<Finding>>,
    pub(super) explanations: finding_answers::ExplanationsById,
    pub(super) baselines: Option<BaselineSnapshot>,
    /// The targets that are to read the status of NCCL's RAS, sorted.
    pub(super) ras_targets: Vec<TargetId>,
}

impl JudgementTask {
    /// Judges the cluster and returns the judge with the result.
    pub(super) fn run(self, cluster: &Cluster) -> JudgementResult {
        let Self { mut judge, spare_loss: earlier, closed_revision, wants_baselines: usual } = self;
        judge.evaluate_cluster(cluster);
        let loss = judge.swap_loss(earlier);
        let findings = finding_answers::collect_findings(judge.open_records());
        let closed = (judge.closed_revision() != closed_revision)
            .then(|| finding_answers::collect_findings(judge.closed_records()));
        let chains = finding_answers::collect_explanations(&judge);
        let usual = usual.then(|| judge.snapshot_baselines(cluster));
        let ras_targets = find_ras_targets(&judge, cluster);
        JudgementResult {
            judge,
            loss,
            findings,
            closed,
            explanations: chains,
            baselines: usual,
            ras_targets,
        }
    }
}

/// The gaunt-node of each node that is to be asked, sorted.
fn find_ras_targets(judge: &Judge, cluster: &Cluster) -> Vec<TargetId> {
    let nodes = judge.nodes_to_ask().iter().filter_map(|id| cluster.node_by_id(*id));
    let sources = nodes.flat_map(|node| &node.sources);
    let own = sources.filter(|source| source.dialect == Dialect::Gaunt);
    let mut targets: Vec<TargetId> = own.map(|source| source.target).collect();
    targets.sort_unstable();
    targets
}
