//! One judgement: its input, its execution on any thread, and its result.

use super::{Finding, finding_answers};
use gaunt_cluster::Cluster;
use gaunt_judge::{BaselineSnapshot, FleetLoss, Judge};

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
        JudgementResult { judge, loss, findings, closed, explanations: chains, baselines: usual }
    }
}
