//! Jobs as rows, in name order.

use gaunt_schema::{DeviceClass, GpuState, MetricId, SanitizedText, catalogue::gpu, natural_order};

use super::{BlameIndex, TextColumnBuilder, kind_texts, number_column};
use crate::view::View;
use gaunt_api::{
    BuiltinField, FieldKey,
    filter::{RowSource, TextColumn},
};
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

    fn builtin_number(&self, own: BuiltinField, row: u32) -> Option<f64> {
        match own {
            BuiltinField::Nodes => {
                let mut names: Vec<_> = self.node_names(row).collect();
                names.sort_unstable();
                names.dedup();
                Some(names.len() as f64)
            }
            BuiltinField::Gpus => Some(self.gpu_rows(row).len() as f64),
            BuiltinField::Lost => Some(self.view.lost_gpus(self.gpu_rows(row))),
            BuiltinField::Useful => {
                let unknown = |state| matches!(state, GpuState::Stale | GpuState::Unknown);
                let known = self.gpu_rows(row).len() as f64 - self.count_in_state(row, unknown);
                let lost = self.view.lost_gpus(self.gpu_rows(row));
                (known > 0.0).then(|| (known - lost) / known)
            }
            BuiltinField::GpuUtilization => {
                let of = self.gpu_values(row, gpu::UTILIZATION);
                let (sum, known) = of.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
                (known > 0.0).then(|| sum / known)
            }
            BuiltinField::GpuPower => self.gpu_values(row, gpu::POWER).reduce(|a, b| a + b),
            BuiltinField::Runtime => {
                let started = self.job_details(row)?.started?;
                Some(self.view.at.duration_since(started).as_secs_f64())
            }
            _ => None,
        }
    }

    /// A label of the first GPU of the job that has it.
    fn job_label(&self, row: u32, label: &str) -> Option<&'a SanitizedText> {
        let cluster = self.view.cluster;
        let of =
            |gpu: &u32| cluster.device_at(DeviceClass::Gpu, *gpu)?.info_label(gpu::JOB_INFO, label);
        self.gpu_rows(row).iter().find_map(of)
    }
}

impl RowSource for JobRows<'_> {
    fn len(&self) -> usize {
        self.jobs.len()
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let FieldKey::Builtin(own) = key else { return vec![f64::NAN; rows.len()] };
        number_column(rows.iter().map(|row| self.builtin_number(own, *row)))
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let FieldKey::Builtin(own) = key else { return TextColumn::default() };
        let rows = rows.iter().copied();
        match own {
            BuiltinField::Job => {
                TextColumnBuilder::of(rows.map(|row| Some(self.jobs[row as usize].0)))
            }
            BuiltinField::JobName => {
                TextColumnBuilder::of(rows.map(|row| self.job_details(row)?.name.as_ref()))
            }
            BuiltinField::User => {
                TextColumnBuilder::of(rows.map(|row| self.job_details(row)?.user.as_ref()))
            }
            BuiltinField::Account => {
                TextColumnBuilder::of(rows.map(|row| self.job_details(row)?.account.as_ref()))
            }
            BuiltinField::Partition => {
                TextColumnBuilder::of(rows.map(|row| self.job_details(row)?.partition.as_ref()))
            }
            BuiltinField::Namespace => {
                TextColumnBuilder::of(rows.map(|row| self.job_label(row, "namespace")))
            }
            BuiltinField::Node => TextColumnBuilder::of_many(rows.map(|row| self.node_names(row))),
            BuiltinField::Finding => {
                let blame = BlameIndex::of(self.view.findings);
                let of = |row: u32| {
                    let own = blame.jobs.get(self.jobs[row as usize].0.as_str()).copied();
                    own.or_else(|| self.node_names(row).find_map(|node| blame.worst_of_node(node)))
                };
                kind_texts(rows.map(of))
            }
            _ => TextColumn::default(),
        }
    }
}
