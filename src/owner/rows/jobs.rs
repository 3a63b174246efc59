//! Jobs as rows, in the order of their names.

use gaunt_schema::{Class, GpuState, MetricId, Safe, catalogue::gpu};

use super::{Blame, Collected, kinds, numbers};
use crate::{
    answer::{
        Key, Own,
        filter::{Rows, Texts},
    },
    cluster::JobTold,
    owner::Owner,
};

/// Every job that holds a GPU.
pub(super) struct Jobs<'a> {
    owner: &'a Owner,
    jobs: Vec<(&'a Safe, &'a [u32])>,
}

impl<'a> Jobs<'a> {
    pub(super) fn new(owner: &'a Owner) -> Self {
        let jobs = owner.cluster.jobs().iter().map(|(job, gpus)| (job, gpus.as_slice()));
        Self { owner, jobs: jobs.collect() }
    }

    fn gpus(&self, row: u32) -> &'a [u32] {
        self.jobs[row as usize].1
    }

    fn told(&self, row: u32) -> Option<&'a JobTold> {
        self.owner.cluster.job_told(self.jobs[row as usize].0)
    }

    fn values(&self, row: u32, metric: MetricId) -> impl Iterator<Item = f64> {
        self.gpus(row).iter().filter_map(move |gpu| self.owner.sight().value(metric, *gpu))
    }

    /// The names of its nodes; GPUs of one node lie together.
    fn nodes(&self, row: u32) -> impl Iterator<Item = &'a Safe> {
        let cluster = &self.owner.cluster;
        let node = |gpu: &u32| Some(&cluster.node(cluster.device(Class::Gpu, *gpu)?.node)?.name);
        let mut last: Option<&Safe> = None;
        self.gpus(row).iter().filter_map(node).filter(move |name| last.replace(name) != Some(name))
    }

    fn states(&self, row: u32, wanted: fn(GpuState) -> bool) -> f64 {
        let gpus = self.gpus(row).iter();
        gpus.filter(|gpu| wanted(self.owner.state_of(**gpu))).count() as f64
    }

    fn number(&self, own: Own, row: u32) -> Option<f64> {
        match own {
            Own::Nodes => {
                let mut names: Vec<_> = self.nodes(row).collect();
                names.sort_unstable();
                names.dedup();
                Some(names.len() as f64)
            }
            Own::Gpus => Some(self.gpus(row).len() as f64),
            Own::Lost => Some(self.owner.lost_gpus(self.gpus(row))),
            Own::Useful => {
                let unknown = |state| matches!(state, GpuState::Stale | GpuState::Unknown);
                let known = self.gpus(row).len() as f64 - self.states(row, unknown);
                let lost = self.owner.lost_gpus(self.gpus(row));
                (known > 0.0).then(|| (known - lost) / known)
            }
            Own::GpuUtilization => {
                let of = self.values(row, gpu::UTILIZATION);
                let (sum, known) = of.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
                (known > 0.0).then(|| sum / known)
            }
            Own::GpuPower => self.values(row, gpu::POWER).reduce(|a, b| a + b),
            Own::Runtime => {
                let started = self.told(row)?.started?;
                Some(self.owner.sight().now().since(started).as_secs_f64())
            }
            _ => None,
        }
    }

    /// A label of the first GPU of the job that has it.
    fn label(&self, row: u32, label: &str) -> Option<&'a Safe> {
        let cluster = &self.owner.cluster;
        let of = |gpu: &u32| cluster.device(Class::Gpu, *gpu)?.info(gpu::JOB_INFO, label);
        self.gpus(row).iter().find_map(of)
    }
}

impl Rows for Jobs<'_> {
    fn len(&self) -> usize {
        self.jobs.len()
    }

    fn numbers(&self, key: Key, rows: &[u32]) -> Vec<f64> {
        let Key::Own(own) = key else { return vec![f64::NAN; rows.len()] };
        numbers(rows.iter().map(|row| self.number(own, *row)))
    }

    fn texts(&self, key: Key, rows: &[u32]) -> Texts {
        let Key::Own(own) = key else { return Texts::default() };
        let rows = rows.iter().copied();
        match own {
            Own::Job => Collected::of(rows.map(|row| Some(self.jobs[row as usize].0))),
            Own::JobName => Collected::of(rows.map(|row| self.told(row)?.name.as_ref())),
            Own::User => Collected::of(rows.map(|row| self.told(row)?.user.as_ref())),
            Own::Account => Collected::of(rows.map(|row| self.told(row)?.account.as_ref())),
            Own::Partition => Collected::of(rows.map(|row| self.told(row)?.partition.as_ref())),
            Own::Namespace => Collected::of(rows.map(|row| self.label(row, "namespace"))),
            Own::Node => Collected::of_many(rows.map(|row| self.nodes(row))),
            Own::Finding => {
                let blame = Blame::of(&self.owner.findings);
                let of = |row: u32| {
                    let own = blame.jobs.get(self.jobs[row as usize].0.as_str()).copied();
                    own.or_else(|| self.nodes(row).find_map(|node| blame.node(node)))
                };
                kinds(rows.map(of))
            }
            _ => Texts::default(),
        }
    }
}
