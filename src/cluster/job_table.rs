//! Jobs: the GPUs that each job holds, from the nodes' own pages first, and from schedulers where pages report none.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{
    DeviceClass, JobAllocation, JobList, SanitizedText, SchedulerJob, UnixMs, catalogue::gpu,
};

use super::device_inventory::DeviceInventory;

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
    of_gpu: Vec<Option<SanitizedText>>,
    /// GPUs of each job, by row.
    gpus: BTreeMap<SanitizedText, Vec<u32>>,
    /// Number of GPUs of the job of each GPU, by row; 0 without a job.
    sizes: Vec<u32>,
    attributes: HashMap<SanitizedText, JobAttributes>,
}

impl JobTable {
    /// Replaces the job list of a scheduler.
    pub(super) fn replace_list(&mut self, list: JobList) {
        self.schedulers.remove(&list.source);
        if !list.jobs.is_empty() && self.schedulers.len() < MAX_SCHEDULERS {
            self.schedulers.insert(list.source, list.jobs);
        }
    }

    /// The job of the GPU at this row.
    pub(super) fn of(&self, gpu: u32) -> Option<&SanitizedText> {
        self.of_gpu.get(gpu as usize)?.as_ref()
    }

    /// GPUs of each job, by row.
    pub(super) fn gpus_by_job(&self) -> &BTreeMap<SanitizedText, Vec<u32>> {
        &self.gpus
    }

    /// Number of GPUs of the job of the GPU at this row.
    pub(super) fn job_size(&self, gpu: u32) -> Option<u32> {
        self.sizes.get(gpu as usize).copied().filter(|size| *size > 0)
    }

    /// The attributes of a job.
    pub(super) fn job_attributes(&self, job: &str) -> Option<&JobAttributes> {
        self.attributes.get(job)
    }

    /// Recomputes the allocation of GPUs to jobs.
    pub(super) fn resolve_allocations(&mut self, inventory: &DeviceInventory) {
        self.of_gpu.clear();
        self.of_gpu.resize(inventory.row_count(DeviceClass::Gpu), None);
        self.gpus.clear();
        self.attributes.clear();
        for (row, entry) in inventory.entries_of_class(DeviceClass::Gpu) {
            let said = |label| entry.info_label(gpu::JOB_INFO, label);
            let Some(job) = said("job") else { continue };
            self.of_gpu[row as usize] = Some(job.clone());
            let told = self.attributes.entry(job.clone()).or_default();
            told.name = told.name.take().or_else(|| said("name").cloned());
            told.user = told.user.take().or_else(|| said("user").cloned());
        }
        for job in self.schedulers.values().flatten() {
            for holding in &job.holds {
                assign_gpus(&mut self.of_gpu, inventory, job, holding);
            }
        }
        for (row, job) in (0_u32..).zip(&self.of_gpu) {
            if let Some(job) = job {
                self.gpus.entry(job.clone()).or_default().push(row);
            }
        }
        self.sizes.clear();
        self.sizes.resize(self.of_gpu.len(), 0);
        for gpus in self.gpus.values() {
            for row in gpus {
                self.sizes[*row as usize] = gpus.len() as u32;
            }
        }
        self.merge_attributes();
    }

    /// Adds the attributes that schedulers report.
    fn merge_attributes(&mut self) {
        // A scheduler reports more about a job than a page; attributes of a job without GPUs are not needed.
        for job in self.schedulers.values().flatten() {
            if self.gpus.contains_key(&job.id) {
                let told = self.attributes.entry(job.id.clone()).or_default();
                let first = |one: &Option<SanitizedText>, other: Option<SanitizedText>| {
                    one.clone().or(other)
                };
                *told = JobAttributes {
                    name: first(&job.name, told.name.take()),
                    user: first(&job.user, told.user.take()),
                    account: first(&job.account, told.account.take()),
                    partition: first(&job.partition, told.partition.take()),
                    started: job.started.or(told.started),
                    ends: job.ends.or(told.ends),
                };
            }
        }
    }
}

/// Assigns the GPUs of a node to a job, except those whose own page names a job.
fn assign_gpus(
    of_gpu: &mut [Option<SanitizedText>],
    inventory: &DeviceInventory,
    job: &SchedulerJob,
    holding: &JobAllocation,
) {
    let node =
        inventory.id_by_name(&holding.node).or_else(|| inventory.id_by_short_name(&holding.node));
    let Some(node) = node.and_then(|id| inventory.node_by_id(id)) else { return };
    for row in node.device_rows(DeviceClass::Gpu) {
        let index = || {
            let entry = inventory.entry_at(DeviceClass::Gpu, *row)?;
            entry.device.key.first()?.parse::<u32>().ok()
        };
        let held = match &holding.gpus {
            Some(gpus) => index().is_some_and(|index| gpus.contains(&index)),
            None => holding.whole,
        };
        let place = &mut of_gpu[*row as usize];
        if held && place.is_none() {
            *place = Some(job.id.clone());
        }
    }
}
