//! What explains lost time: the worst finding that blames a GPU, its node or its job, or that names them as victims.

use std::collections::HashMap;

use gaunt_schema::{Class, EntityKind, FindingKind, Safe};

use crate::{
    answer::{Finding, FindingList},
    cluster::Cluster,
};

/// The worst finding by whom it names.
pub(super) struct Causes<'a> {
    gpus: HashMap<(&'a str, &'a str), FindingKind>,
    nodes: HashMap<&'a str, FindingKind>,
    jobs: HashMap<&'a str, FindingKind>,
}

impl<'a> Causes<'a> {
    /// Those of a list, which begins with the worst.
    pub(super) fn of(list: &'a FindingList) -> Self {
        let mut causes = Self { gpus: HashMap::new(), nodes: HashMap::new(), jobs: HashMap::new() };
        // A target that is not read explains what is not known, and no time that is lost; what stands for other findings
        // explains nothing either.
        let explains = |finding: &&Finding| {
            !matches!(finding.kind, FindingKind::TargetDown | FindingKind::FindingsOverLimit)
        };
        for finding in list.findings.iter().filter(explains) {
            for entity in std::iter::once(&finding.entity).chain(&finding.victims) {
                let kind = finding.kind;
                match (entity.kind, &entity.node, &entity.gpu, &entity.job) {
                    (EntityKind::Gpu, Some(node), Some(gpu), _) => {
                        causes.gpus.entry((node, gpu)).or_insert(kind);
                    }
                    (EntityKind::Node, Some(node), ..) => {
                        causes.nodes.entry(node).or_insert(kind);
                    }
                    (_, _, _, Some(job)) => {
                        causes.jobs.entry(job).or_insert(kind);
                    }
                    _ => {}
                }
            }
        }
        causes
    }

    /// What explains the GPU at this row.
    pub(super) fn of_gpu(&self, cluster: &Cluster, row: u32) -> Option<FindingKind> {
        let entry = cluster.device(Class::Gpu, row)?;
        let node = cluster.node(entry.node)?.name.as_str();
        let gpu = entry.device.key.first().map_or("", Safe::as_str);
        let job = cluster.job(row).and_then(|job| self.jobs.get(job.as_str()));
        self.gpus.get(&(node, gpu)).or_else(|| self.nodes.get(node)).or(job).copied()
    }
}
