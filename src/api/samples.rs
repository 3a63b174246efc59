//! Sample answers for tests, of this crate and of others (feature `samples`).

use gaunt_schema::{Entity, EntityKind, FindingKind, SanitizedText, Severity, UnixMs};

use crate::Finding;

/// A job that holds eight idle GPUs.
pub fn idle_finding(number: usize) -> Finding {
    let job = SanitizedText::new(&number.to_string());
    let entity = Entity { job: Some(job), ..Entity::new(EntityKind::Job) };
    let finding = Finding {
        since: UnixMs(1_000 * number as i64),
        confidence: 0.6,
        summary: format!("job {number} holds 8 GPUs and does nothing with them"),
        next: "ask its user".into(),
        ..Finding::new(FindingKind::IdleAllocated, Severity::Info, entity)
    };
    finding.with_lost_gpus(8.0)
}
