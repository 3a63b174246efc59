//! One judgement: what it is given, what it does on whatever thread, and what comes of it.

use std::sync::Arc;

use super::{Finding, finding_answers};
use crate::{
    cluster::Cluster,
    judge::{BaselineSnapshot, FleetLoss, Judge},
};

/// A judgement that is to be made, on whatever thread.
pub(super) struct JudgementTask {
    pub(super) cluster: Arc<Cluster>,
    pub(super) judge: Judge,
    /// The losses before those that are published: their place is used again.
    pub(super) spare_loss: FleetLoss,
    /// The closed findings that are known already.
    pub(super) closed_revision: u64,
    /// Whether to say what is usual.
    pub(super) wants_baselines: bool,
}

/// A judgement that was made.
pub(super) struct JudgementResult {
    pub(super) judge: Judge,
    pub(super) loss: FleetLoss,
    pub(super) findings: Vec<Finding>,
    /// Findings that closed, if they are others than before.
    pub(super) closed: Option<Vec<Finding>>,
    pub(super) explanations: finding_answers::ExplanationsById,
    pub(super) baselines: Option<BaselineSnapshot>,
}

impl JudgementTask {
    /// Makes it, and gives the cluster back.
    pub(super) fn run(self) -> JudgementResult {
        let Self {
            cluster,
            mut judge,
            spare_loss: earlier,
            closed_revision,
            wants_baselines: usual,
        } = self;
        judge.evaluate_cluster(&cluster);
        let loss = judge.swap_loss(earlier);
        let findings =
            judge.open_records().into_iter().map(finding_answers::convert_finding).collect();
        let closed = (judge.closed_revision() != closed_revision).then(|| {
            judge.closed_records().into_iter().map(finding_answers::convert_finding).collect()
        });
        let chains = finding_answers::collect_explanations(&judge);
        let usual = usual.then(|| judge.snapshot_baselines(&cluster));
        JudgementResult { judge, loss, findings, closed, explanations: chains, baselines: usual }
    }
}
