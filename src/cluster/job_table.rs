//! Jobs: the GPUs that each job holds, from the nodes' own pages first, and from schedulers where pages report none.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{
    DeviceClass, JobAllocation, JobList, SanitizedText, SchedulerJob, UnixMs, catalogue::gpu,
};

use super::{Cluster, device_inventory::DeviceInventory};

/// Maximum number of schedulers.
const MAX_SCHEDULERS: usize = 16;

/// Attributes of a job beside its GPUs; unknown ones are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobAttributes {
    /// The job name that the user chose.
    pub name: Option<SanitizedText>,
    /// The user that submitted it.
    pub user: Option<SanitizedText>,
    /// The account that is charged.
    pub account: Option<SanitizedText>,
    /// The queue that it runs in.
    pub partition: Option<SanitizedText>,
    /// When it started.
    pub started: Option<UnixMs>,
    /// Its time limit: when it is stopped at the latest.
    pub ends: Option<UnixMs>,
}

/// Every job.
#[derive(Debug, Default)]
pub(super) struct JobTable {
    schedulers: BTreeMap<SanitizedText, Vec<SchedulerJob>>,
    /// The job of each GPU, by row.
    job_by_gpu: Vec<Option<SanitizedText>>,
    /// GPUs of each job, by row.
    gpus: BTreeMap<SanitizedText, Vec<u32>>,
    /// Number of GPUs of the job of each GPU, by row; 0 without a job.
    sizes: Vec<u32>,
    attributes: HashMap<SanitizedText, JobAttributes>,
    /// When the job of each GPU started, by row.
    starts: Vec<Option<UnixMs>>,
}

impl JobTable {
    /// Replaces the job list of a scheduler.
    pub(super) fn replace_list(&mut self, list: JobList) {
        self.schedulers.remove(&list.source);
        if !list.jobs.is_empty() && self.schedulers.len() < MAX_SCHEDULERS {
            self.schedulers.insert(list.source, list.jobs);
        }
    }

    /// Recomputes the allocation of GPUs to jobs.
    pub(super) fn resolve_allocations(&mut self, inventory: &DeviceInventory) {
        self.job_by_gpu.clear();
        self.job_by_gpu.resize(inventory.row_count(DeviceClass::Gpu), None);
        self.gpus.clear();
        self.attributes.clear();
        for (row, entry) in inventory.entries_of_class(DeviceClass::Gpu) {
            let job_label = |label| entry.info_label(gpu::JOB_INFO, label);
            let Some(job) = job_label("job") else { continue };
            self.job_by_gpu[row as usize] = Some(job.clone());
            let attributes = self.attributes.entry(job.clone()).or_default();
            attributes.name = attributes.name.take().or_else(|| job_label("name").cloned());
            attributes.user = attributes.user.take().or_else(|| job_label("user").cloned());
        }
        for job in self.schedulers.values().flatten() {
            for allocation in &job.holds {
                assign_gpus(&mut self.job_by_gpu, inventory, job, allocation);
            }
        }
        for (row, job) in (0_u32..).zip(&self.job_by_gpu) {
            if let Some(job) = job {
                self.gpus.entry(job.clone()).or_default().push(row);
            }
        }
        self.sizes.clear();
        self.sizes.resize(self.job_by_gpu.len(), 0);
        for gpus in self.gpus.values() {
            for row in gpus {
                self.sizes[*row as usize] = gpus.len() as u32;
            }
        }
        self.merge_attributes();
        self.starts.clear();
        self.starts.resize(self.job_by_gpu.len(), None);
        for (job, gpus) in &self.gpus {
            let started = self.attributes.get(job).and_then(|attributes| attributes.started);
            for row in gpus {
                self.starts[*row as usize] = started;
            }
        }
    }

    /// Adds the attributes that schedulers report.
    fn merge_attributes(&mut self) {
        // A scheduler reports more about a job than a page; attributes of a job without GPUs are not needed.
        for job in self.schedulers.values().flatten() {
            if self.gpus.contains_key(&job.id) {
                let attributes = self.attributes.entry(job.id.clone()).or_default();
                let first = |one: &Option<SanitizedText>, other: Option<SanitizedText>| {
                    one.clone().or(other)
                };
                *attributes = JobAttributes {
                    name: first(&job.name, attributes.name.take()),
                    user: first(&job.user, attributes.user.take()),
                    account: first(&job.account, attributes.account.take()),
                    partition: first(&job.partition, attributes.partition.take()),
                    started: job.started.or(attributes.started),
                    ends: job.ends.or(attributes.ends),
                };
            }
        }
    }
}

impl Cluster {
    /// GPUs of each job, by row.
    pub fn gpus_by_job(&self) -> &BTreeMap<SanitizedText, Vec<u32>> {
        &self.jobs.gpus
    }

    /// The job that holds a GPU, as of the last [`Self::advance_to`]: from its page, else from a scheduler.
    #[inline]
    pub fn job_of_gpu(&self, gpu: u32) -> Option<&SanitizedText> {
        self.jobs.job_by_gpu.get(gpu as usize)?.as_ref()
    }

    /// Number of GPUs of the job that holds this one; none without a job.
    pub fn job_size(&self, gpu: u32) -> Option<u32> {
        self.jobs.sizes.get(gpu as usize).copied().filter(|size| *size > 0)
    }

    /// When the job of the GPU at this row started.
    pub fn job_start_of_gpu(&self, gpu: u32) -> Option<UnixMs> {
        *self.jobs.starts.get(gpu as usize)?
    }

    /// Attributes of a job, as far as pages and schedulers report them.
    pub fn job_attributes(&self, job: &str) -> Option<&JobAttributes> {
        self.jobs.attributes.get(job)
    }
}

/// Assigns the GPUs of a node to a job, except those whose own page names a job.
fn assign_gpus(
    job_by_gpu: &mut [Option<SanitizedText>],
    inventory: &DeviceInventory,
    job: &SchedulerJob,
    allocation: &JobAllocation,
) {
    let node = inventory
        .id_by_name(&allocation.node)
        .or_else(|| inventory.id_by_short_name(&allocation.node));
    let Some(node) = node.and_then(|id| inventory.node_by_id(id)) else { return };
    for row in node.device_rows(DeviceClass::Gpu) {
        let index = || {
            let entry = inventory.entry_at(DeviceClass::Gpu, *row)?;
            entry.device.key.first()?.parse::<u32>().ok()
        };
        let is_allocated = match &allocation.gpus {
            Some(gpus) => index().is_some_and(|index| gpus.contains(&index)),
            None => allocation.whole,
        };
        let gpu_job = &mut job_by_gpu[*row as usize];
        if is_allocated && gpu_job.is_none() {
            *gpu_job = Some(job.id.clone());
        }
    }
}
