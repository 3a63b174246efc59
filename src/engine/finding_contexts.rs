//! Contexts of findings: the jobs that each affects with their owners, its cost, and what changed near its start.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use gaunt_schema::{DeviceClass, Entity, SanitizedText};

use super::{Engine, change_log::ChangeLog};
use gaunt_api::{CONTEXT_ITEMS, Finding, FindingContext, VictimJob};
use gaunt_cluster::{Cluster, NodeId};

/// Maximum number of open findings that have a context in the list: the worst ones.
const MAX_CONTEXTS: usize = 128;

/// Maximum number of victims of one finding that are looked up.
const MAX_VICTIMS: usize = 256;

/// A change this long before a finding is near it.
const BEFORE: Duration = Duration::from_mins(10);

/// A change this long after the start of a finding is near it: a job that ends or a node that reboots.
const AFTER: Duration = Duration::from_mins(2);

/// The jobs and nodes that a finding names.
#[derive(Default)]
struct AffectedParts<'a> {
    /// Number of affected GPUs of each job.
    jobs: BTreeMap<&'a SanitizedText, u32>,
    nodes: HashSet<NodeId>,
}

impl Engine {
    /// The contexts of the worst findings, in their order.
    pub(super) fn finding_contexts(&self, findings: &[Finding]) -> Vec<FindingContext> {
        let worst = findings.iter().take(MAX_CONTEXTS);
        worst.map(|finding| self.finding_context(finding)).collect()
    }

    /// The context of one finding.
    pub(super) fn finding_context(&self, finding: &Finding) -> FindingContext {
        let parts = AffectedParts::of(&self.cluster, finding);
        let mut jobs: Vec<_> = parts.jobs.iter().map(|(job, gpus)| (*job, *gpus)).collect();
        jobs.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        FindingContext {
            id: finding.id.clone(),
            job_count: jobs.len() as u32,
            changes: near_changes(&self.change_log, finding, &parts),
            jobs: jobs
                .into_iter()
                .take(CONTEXT_ITEMS)
                .map(|(job, gpus)| victim_job(&self.cluster, job, gpus))
                .collect(),
            cost_per_hour: self
                .options
                .price_per_gpu_hour
                .map(|price| price * finding.lost_gpus)
                .filter(|cost| cost.is_finite()),
            currency: self.options.currency.clone(),
        }
    }
}

/// The contexts of these findings, in their order; findings without one have none.
pub(super) fn contexts_of(known: &[FindingContext], findings: &[Finding]) -> Vec<FindingContext> {
    let wanted: HashSet<&str> = findings.iter().map(|finding| finding.id.as_str()).collect();
    known.iter().filter(|context| wanted.contains(context.id.as_str())).cloned().collect()
}

fn near_changes(
    log: &ChangeLog,
    finding: &Finding,
    parts: &AffectedParts<'_>,
) -> Vec<gaunt_api::FleetChange> {
    let concerns = |job: Option<&SanitizedText>, nodes: &[NodeId]| {
        job.is_some_and(|job| {
            parts.jobs.contains_key(job) || finding.entity.job.as_ref() == Some(job)
        }) || nodes.iter().any(|node| parts.nodes.contains(node))
    };
    let span = (finding.since - BEFORE, finding.since + AFTER);
    log.changes_near(finding.since, span, concerns, CONTEXT_ITEMS)
}

fn victim_job(cluster: &Cluster, job: &SanitizedText, gpus: u32) -> VictimJob {
    let attributes = cluster.job_attributes(job);
    VictimJob {
        job: job.clone(),
        name: attributes.and_then(|attributes| attributes.name.clone()),
        user: attributes.and_then(|attributes| attributes.user.clone()),
        account: attributes.and_then(|attributes| attributes.account.clone()),
        gpus,
    }
}

impl<'a> AffectedParts<'a> {
    /// Collects the jobs, GPUs and nodes of the blamed entity and of its victims.
    fn of(cluster: &'a Cluster, finding: &Finding) -> Self {
        let (mut parts, mut gpus) = (Self::default(), HashSet::new());
        for entity in std::iter::once(&finding.entity).chain(&finding.victims).take(MAX_VICTIMS) {
            parts.add_entity(cluster, entity, &mut gpus);
        }
        let mut counted: BTreeMap<&SanitizedText, u32> = BTreeMap::new();
        for job in gpus.iter().filter_map(|row| cluster.job_of_gpu(*row)) {
            *counted.entry(job).or_default() += 1;
        }
        for (job, gpus) in counted {
            let known = parts.jobs.entry(job).or_default();
            *known = (*known).max(gpus);
        }
        parts
    }

    fn add_entity(&mut self, cluster: &'a Cluster, entity: &Entity, gpus: &mut HashSet<u32>) {
        let node = entity.node.as_ref().and_then(|name| cluster.node_by_name(name));
        if let Some((id, node)) = node {
            self.nodes.insert(id);
            let rows = node.device_rows(DeviceClass::Gpu).iter().copied();
            match &entity.gpu {
                None => gpus.extend(rows),
                Some(gpu) => gpus.extend(rows.filter(|row| {
                    let entry = cluster.device_at(DeviceClass::Gpu, *row);
                    entry.is_some_and(|entry| entry.device.key.first() == Some(gpu))
                })),
            }
        } else if let Some(job) = &entity.job
            && let Some((job, all)) = cluster.gpus_by_job().get_key_value(job)
        {
            self.jobs.insert(job, all.len() as u32);
        }
    }
}
