//! The judge's findings in the words of answers.

use crate::{answer, judge};

/// A finding as an answer: a GPU whose time is lost costs one GPU-hour in an hour.
pub(super) fn answer(finding: &judge::Finding) -> answer::Finding {
    let evidence = finding.evidence.iter().map(|number| answer::Evidence {
        what: number.what.clone(),
        value: number.value,
        unit: number.unit,
        limit: number.limit,
        note: number.note.clone(),
    });
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
        evidence: evidence.collect(),
    }
}
