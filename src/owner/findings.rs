//! The judge's findings in the words of answers, and the explanation of one of them.

use std::sync::Arc;

use gaunt_schema::Safe;

use super::Owner;
use crate::{
    answer::{self, Change, Explanation, FindingList, Life, Refusal},
    judge::{self, Lived, Told},
};

/// A finding as an answer: a GPU whose time is lost costs one GPU-hour in an hour.
pub(super) fn answer(told: &Told) -> answer::Finding {
    let finding = &told.finding;
    answer::Finding {
        id: finding.id.clone(),
        kind: finding.kind,
        severity: finding.severity,
        entity: finding.entity.clone(),
        since: finding.since,
        confidence: finding.confidence,
        cost_gpu_hours_per_hour: finding.lost_gpus,
        victims: finding.victims.clone(),
        summary: finding.summary.clone(),
        next: finding.next.clone(),
        evidence: finding.evidence.iter().map(evidence).collect(),
        missing: Vec::new(),
        life: life(&told.life),
        acknowledged: None,
    }
}

fn evidence(number: &judge::Evidence) -> answer::Evidence {
    answer::Evidence {
        what: number.what.clone(),
        value: number.value,
        unit: number.unit,
        limit: number.limit,
        note: number.note.clone(),
        source: String::new(),
        threshold: String::new(),
    }
}

fn life(lived: &Lived) -> Life {
    let changes = lived.changes.iter().map(|turn| Change {
        at: turn.at,
        what: turn.what,
        from: turn.from.clone(),
        to: turn.to.clone(),
    });
    Life {
        state: lived.state,
        opened: lived.opened,
        seen: lived.seen,
        closed: lived.closed,
        openings: lived.openings.len() as u32,
        changes: changes.collect(),
    }
}

impl Owner {
    /// Takes what the judge says now; closed findings only if they are others than before.
    pub(super) fn take_findings(
        &mut self,
        mut open: Vec<answer::Finding>,
        closed: Option<Vec<answer::Finding>>,
    ) {
        let at = self.cluster.now();
        self.acknowledgements.apply(&mut open, at);
        let list = |findings: Vec<answer::Finding>| {
            let total = findings.len() as u32;
            Arc::new(FindingList { at, findings, total, matched: total })
        };
        if let Some(mut closed) = closed {
            self.acknowledgements.apply(&mut closed, at);
            let known = open.iter().chain(&closed).map(|finding| finding.id.as_str());
            self.acknowledgements.keep_only(&known.collect());
            self.closed = list(closed);
        } else {
            Arc::make_mut(&mut self.closed).at = at;
        }
        self.findings = list(open);
    }

    /// The finding of this id, open or closed.
    pub(super) fn finding(&self, id: &str) -> Option<&answer::Finding> {
        let of = |list: &FindingList| list.findings.iter().position(|finding| finding.id == id);
        let open = of(&self.findings).map(|at| &self.findings.findings[at]);
        open.or_else(|| of(&self.closed).map(|at| &self.closed.findings[at]))
    }

    /// Everything that is known of one finding.
    pub(super) fn explanation(&self, id: &str) -> Result<Arc<Explanation>, Refusal> {
        let unknown = || Refusal::UnknownFinding { finding: Safe::new(id) };
        let finding = self.finding(id).ok_or_else(unknown)?.clone();
        Ok(Arc::new(Explanation {
            at: self.cluster.now(),
            finding,
            rule: String::new(),
            limits: Vec::new(),
            chain: None,
        }))
    }
}
