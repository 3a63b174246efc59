//! Jobs as rows, in name order.

use gaunt_schema::{DeviceClass, GpuState, MetricId, SanitizedText, catalogue::gpu, natural_order};

use super::{BlameIndex, FieldColumn, SubjectRows};
use crate::view::View;
use gaunt_api::JobField;
use gaunt_cluster::JobAttributes;

/// Every job that holds a GPU.
pub(super) struct JobRows<'a> {
    view: View<'a>,
    jobs: Vec<(&'a SanitizedText, &'a [u32])>,
}

impl<'a> JobRows<'a> {
    pub(super) fn new(view: View<'a>) -> Self {
        let jobs = view.cluster.gpus_by_job().iter().map(|(job, gpus)| (job, gpus.as_slice()));
        let mut jobs: Vec<_> = jobs.collect();
        jobs.sort_by(|(one, _), (other, _)| natural_order(one, other));
        Self { view, jobs }
    }

    fn gpu_rows(&self, row: u32) -> &'a [u32] {
        self.jobs[row as usize].1
    }

    fn job_details(&self, row: u32) -> Option<&'a JobAttributes> {
        self.view.cluster.job_attributes(self.jobs[row as usize].0)
    }

    fn gpu_values(&self, row: u32, metric: MetricId) -> impl Iterator<Item = f64> {
        self.gpu_rows(row).iter().filter_map(move |gpu| self.view.metric_value(metric, *gpu))
    }

    /// The names of its nodes; GPUs of one node are adjacent.
    fn node_names(&self, row: u32) -> impl Iterator<Item = &'a SanitizedText> {
        let cluster = self.view.cluster;
        let node = |gpu: &u32| {
            Some(&cluster.node_by_id(cluster.device_at(DeviceClass::Gpu, *gpu)?.node)?.name)
        };
        let mut last: Option<&SanitizedText> = None;
        self.gpu_rows(row)
            .iter()
            .filter_map(node)
            .filter(move |name| last.replace(name) != Some(name))
    }

    fn count_in_state(&self, row: u32, wanted: fn(GpuState) -> bool) -> f64 {
        let gpus = self.gpu_rows(row).iter();
        gpus.filter(|gpu| wanted(self.view.gpu_state(**gpu))).count() as f64
    }

    /// Share of its GPUs whose time is not lost, of those whose state is known.
    fn useful_ratio(&self, row: u32) -> Option<f64> {
        let unknown = |state| matches!(state, GpuState::Stale | GpuState::Unknown);
        let known = self.gpu_rows(row).len() as f64 - self.count_in_state(row, unknown);
        let lost = self.view.lost_gpus(self.gpu_rows(row));
        (known > 0.0).then(|| (known - lost) / known)
    }

    fn mean_utilization(&self, row: u32) -> Option<f64> {
        let of = self.gpu_values(row, gpu::UTILIZATION);
        let (sum, known) = of.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
        (known > 0.0).then(|| sum / known)
    }

    fn count_nodes(&self, row: u32) -> usize {
        let mut names: Vec<_> = self.node_names(row).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }
}

impl<'a> SubjectRows<'a> for JobRows<'a> {
    type Field = JobField;

    fn row_count(&self) -> usize {
        self.jobs.len()
    }

    fn builtin_column(&self, field: JobField, rows: &[u32]) -> FieldColumn {
        let attribute = |of: fn(&JobAttributes) -> Option<&SanitizedText>| {
            FieldColumn::texts(rows, |row| of(self.job_details(row)?))
        };
        match field {
            JobField::Job => FieldColumn::texts(rows, |row| Some(self.jobs[row as usize].0)),
            JobField::JobName => attribute(|job| job.name.as_ref()),
            JobField::User => attribute(|job| job.user.as_ref()),
            JobField::Account => attribute(|job| job.account.as_ref()),
            JobField::Partition => attribute(|job| job.partition.as_ref()),
            JobField::Node => FieldColumn::many_texts(rows, |row| self.node_names(row)),
            JobField::Finding => {
                let blame = BlameIndex::of(self.view.findings);
                FieldColumn::kinds(rows, |row| {
                    let own = blame.jobs.get(self.jobs[row as usize].0.as_str()).copied();
                    let on_nodes =
                        || self.node_names(row).find_map(|node| blame.worst_of_node(node));
                    own.or_else(on_nodes).or_else(|| self.view.loss_finding_of(self.gpu_rows(row)))
                })
            }
            JobField::Nodes => FieldColumn::numbers(rows, |row| Some(self.count_nodes(row) as f64)),
            JobField::Runtime => FieldColumn::numbers(rows, |row| {
                let started = self.job_details(row)?.started?;
                Some(self.view.at.duration_since(started).as_secs_f64())
            }),
            JobField::Gpus => {
                FieldColumn::numbers(rows, |row| Some(self.gpu_rows(row).len() as f64))
            }
            JobField::Lost => {
                FieldColumn::numbers(rows, |row| Some(self.view.lost_gpus(self.gpu_rows(row))))
            }
            JobField::Useful => FieldColumn::numbers(rows, |row| self.useful_ratio(row)),
            JobField::GpuUtilization => {
                FieldColumn::numbers(rows, |row| self.mean_utilization(row))
            }
            JobField::RecentPower => {
                FieldColumn::made_texts(rows, |row| self.view.power_history(self.gpu_rows(row)))
            }
            JobField::GpuPower => FieldColumn::numbers(rows, |row| {
                self.gpu_values(row, gpu::POWER).reduce(|a, b| a + b)
            }),
        }
    }
}
