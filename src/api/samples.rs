//! Sample answers for tests, of this crate and of others (feature `samples`).

use gaunt_schema::{Entity, EntityKind, FindingKind, SanitizedText, Severity, UnixMs};

use crate::{Finding, FindingLifecycle};

/// A job that holds eight idle GPUs.
pub fn idle_finding(number: usize) -> Finding {
    let job = SanitizedText::new(&number.to_string());
    Finding {
        id: format!("idle_allocated/{job}"),
        kind: FindingKind::IdleAllocated,
        severity: Severity::Info,
        entity: Entity { job: Some(job), ..Entity::new(EntityKind::Job) },
        since: UnixMs(1_000 * number as i64),
        confidence: 0.6,
        lost_gpus: 8.0,
        cost_gpu_hours_per_hour: 8.0,
        victims: Vec::new(),
        summary: format!("job {number} holds 8 GPUs and does nothing with them"),
        next: "ask its user".into(),
        evidence: Vec::new(),
        missing: Vec::new(),
        life: FindingLifecycle::default(),
        acknowledged: None,
    }
}
