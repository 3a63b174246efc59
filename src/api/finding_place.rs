//! Finding place: whether what a row lost is due to a finding about the row itself, or about something else.

use gaunt_schema::Finding;

/// Returns whether the open findings of this kind are all about something else than this node or this GPU of it: another
/// node, a leaf switch or a rail. A kind that is not listed, or a finding about a job or the storage, is not elsewhere.
pub fn is_elsewhere(findings: &[Finding], kind: &str, node: &str, gpu: Option<&str>) -> bool {
    let mut of_kind = findings.iter().filter(|finding| finding.kind.as_str() == kind).peekable();
    of_kind.peek().is_some()
        && of_kind.all(|Finding { entity, .. }| match (&entity.node, gpu) {
            (Some(place), None) => **place != *node,
            (Some(place), Some(gpu)) => {
                let is_other = entity.gpu.as_deref().is_some_and(|other| other != gpu);
                **place != *node || is_other || entity.device.is_some()
            }
            (None, _) => entity.leaf.is_some() || entity.rail.is_some(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gaunt_schema::{Entity, EntityKind, FindingKind, Severity};

    fn finding(kind: FindingKind, entity: Entity) -> Finding {
        Finding::new(kind, Severity::Critical, entity)
    }

    #[test]
    fn finding_is_elsewhere_only_if_nothing_of_its_kind_is_here() {
        let node = || "gpu003".into();
        let findings = [
            finding(FindingKind::DataStarved, Entity::new_node(&node())),
            finding(FindingKind::GpuFailed, Entity::new_gpu(&node(), &"5".into())),
            finding(FindingKind::PortDown, Entity::new_port(&node(), &"a".into(), &"1".into())),
            finding(
                FindingKind::LeafCongested,
                Entity { leaf: Some("leaf-1".into()), ..Entity::new(EntityKind::Leaf) },
            ),
            finding(
                FindingKind::CollectiveHang,
                Entity { job: Some("7".into()), ..Entity::new(EntityKind::Job) },
            ),
        ];
        for (kind, node, gpu, elsewhere) in [
            ("data_starved", "gpu003", None, false),
            ("data_starved", "gpu003", Some("1"), false),
            ("data_starved", "gpu004", None, true),
            ("gpu_failed", "gpu003", None, false),
            ("gpu_failed", "gpu003", Some("5"), false),
            ("gpu_failed", "gpu003", Some("6"), true),
            ("port_down", "gpu003", None, false),
            ("port_down", "gpu003", Some("5"), true),
            ("leaf_congested", "gpu003", None, true),
            ("collective_hang", "gpu003", None, false),
            ("throttled", "gpu003", None, false),
        ] {
            let at = is_elsewhere(&findings, kind, node, gpu);
            assert_eq!(at, elsewhere, "{kind} {node} {gpu:?}");
        }
    }
}
