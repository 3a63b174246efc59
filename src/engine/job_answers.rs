//! Answers about one job in full: its attributes, its GPUs, and the findings that blame or slow it.

use gaunt_schema::{DeviceClass, GpuState, SanitizedText};

use super::view::View;
use gaunt_api::{
    Filter, Finding, JobDetail, Refusal, StateCount, Subject,
    filter::{MAX_ROWS, quote_text},
};

/// The columns of a job's GPUs.
const GPU_COLUMNS: &str = "rank, node, gpu, state, utilization, sm_active, tensor_active, power, sm_clock, \
                           temperature, memory_used, finding";

impl View<'_> {
    /// One job with all its GPUs.
    pub(super) fn job_detail(&self, job: &SanitizedText) -> Result<JobDetail, Refusal> {
        let unknown = || Refusal::UnknownJob { job: job.clone() };
        let gpus = self.cluster.gpus_by_job().get(job).ok_or_else(unknown)?;
        let name = quote_text(job);
        let all: Vec<&str> = Subject::Jobs.all_fields().iter().map(|f| f.name.as_str()).collect();
        let line = format!("job={name} columns {}", all.join(","));
        let ranks =
            format!("job={name} sort rank, node, gpu limit {MAX_ROWS} columns {GPU_COLUMNS}");
        let states = GpuState::ALL.iter().map(|state| {
            let of = gpus.iter().filter(|gpu| self.gpu_state(**gpu) == *state);
            StateCount { state: *state, gpus: of.count() as u32 }
        });
        let on = |name: &SanitizedText| {
            self.cluster.node_by_name(name).is_some_and(|(id, _)| {
                let node =
                    |gpu: &u32| self.cluster.device_at(DeviceClass::Gpu, *gpu).map(|e| e.node);
                gpus.iter().any(|gpu| node(gpu) == Some(id))
            })
        };
        let about = |finding: &&Finding| {
            let entity = &finding.entity;
            let is_victim =
                || finding.victims.iter().any(|victim| victim.job.as_ref() == Some(job));
            entity.job.as_ref() == Some(job) || entity.node.as_ref().is_some_and(on) || is_victim()
        };
        Ok(JobDetail {
            at: self.at,
            job: job.clone(),
            line: self.build_table(&Filter::parse(Subject::Jobs, &line)?),
            states: states.filter(|count| count.gpus > 0).collect(),
            lost_gpus: self.lost_gpus(gpus),
            gpus: self.build_table(&Filter::parse(Subject::Gpus, &ranks)?),
            findings: self.findings.findings.iter().filter(about).cloned().collect(),
            past: self.job_timeline(gpus),
        })
    }
}
