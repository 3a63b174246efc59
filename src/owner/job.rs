//! One job in full: what is known of it, its GPUs, what blames it.

use gaunt_schema::{Class, GpuState, Safe};

use super::Owner;
use crate::answer::{
    Filter, Finding, JobDetail, NodeList, Refusal, StateCount, Subject,
    filter::{MAX_ROWS, quoted},
};

/// What is shown of each GPU of a job.
const GPU_COLUMNS: &str = "rank, node, gpu, state, utilization, sm_active, tensor_active, power, sm_clock, \
                           temperature, memory_used, finding";

impl Owner {
    /// One job with all its GPUs.
    pub(super) fn job_detail(&self, job: &Safe) -> Result<JobDetail, Refusal> {
        let unknown = || Refusal::UnknownJob { job: job.clone() };
        let gpus = self.cluster.jobs().get(job).ok_or_else(unknown)?;
        let name = quoted(job);
        let all: Vec<&str> = Subject::Jobs.fields().iter().map(|f| f.name.as_str()).collect();
        let line = format!("job={name} columns {}", all.join(","));
        let ranks =
            format!("job={name} sort rank, node, gpu limit {MAX_ROWS} columns {GPU_COLUMNS}");
        let nodes = NodeList::default();
        let states = GpuState::ALL.iter().map(|state| {
            let of = gpus.iter().filter(|gpu| self.state_of(**gpu) == *state);
            StateCount { state: *state, gpus: of.count() as u32 }
        });
        let on = |name: &Safe| {
            self.cluster.named(name).is_some_and(|(id, _)| {
                let node = |gpu: &u32| self.cluster.device(Class::Gpu, *gpu).map(|e| e.node);
                gpus.iter().any(|gpu| node(gpu) == Some(id))
            })
        };
        let about = |finding: &&Finding| {
            let entity = &finding.entity;
            entity.job.as_ref() == Some(job) || entity.node.as_ref().is_some_and(on)
        };
        Ok(JobDetail {
            at: self.sight().now(),
            job: job.clone(),
            line: self.table(&Filter::parse(Subject::Jobs, &line)?, &nodes),
            states: states.filter(|count| count.gpus > 0).collect(),
            lost_gpus: self.lost_gpus(gpus),
            gpus: self.table(&Filter::parse(Subject::Gpus, &ranks)?, &nodes),
            findings: self.findings.findings.iter().filter(about).cloned().collect(),
            past: self.job_past(gpus),
        })
    }
}
