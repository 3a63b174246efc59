//! Which job holds a GPU by its labels: with the names of its scheduler, and as late as the exporter learns of it.

use crate::{
    draw::names::{job_number, job_pod},
    exporter_plan::JobLabels,
    world::World,
};

/// The labels of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobLabelValues {
    /// `hpc_job`, `job_id`.
    pub(super) job: String,
    /// `pod`, `namespace` and `container`.
    pub(super) pod: Option<[String; 3]>,
    /// The workload that owns the pod.
    pub(super) owner: String,
}

/// The jobs of one node: each with the node's position in its list.
#[derive(Clone, Debug)]
pub(super) struct NodeJobs(Vec<(usize, usize)>);

impl NodeJobs {
    pub(super) fn of_node(world: &World, node: usize) -> Self {
        let jobs = world.cluster.jobs.iter().enumerate();
        let positions = jobs.filter_map(|(index, job)| {
            Some((index, job.nodes.iter().position(|other| *other == node)?))
        });
        Self(positions.collect())
    }

    /// For each GPU by its position in the plan, the job that held it at an instant, as a position in this list.
    pub(super) fn holders_at(&self, world: &World, gpus: usize, t_s: f64) -> Vec<Option<usize>> {
        let mut holders = vec![None; gpus];
        for (index, (job, _)) in self.0.iter().enumerate() {
            let job = &world.cluster.jobs[*job];
            if !job.runs_s.contains(&t_s) {
                continue;
            }
            for gpu in job.gpus.clone() {
                if let Some(holder) = holders.get_mut(gpu) {
                    holder.get_or_insert(index);
                }
            }
        }
        holders
    }

    /// The labels of GPUs with these holders.
    pub(super) fn label_values(
        &self,
        world: &World,
        holders: &[Option<usize>],
    ) -> Vec<JobLabelValues> {
        let values = |holder: &Option<usize>| {
            let (job, position) = self.0.get((*holder)?)?;
            Some(values_of_job(world, *job, *position))
        };
        holders.iter().map(|holder| values(holder).unwrap_or_default()).collect()
    }
}

fn values_of_job(world: &World, job: usize, position: usize) -> JobLabelValues {
    match world.exporters.labels {
        JobLabels::None => JobLabelValues::default(),
        JobLabels::HpcJob => {
            let job = job_number(&world.cluster, world.seed, job);
            JobLabelValues { job, ..JobLabelValues::default() }
        }
        JobLabels::Pods => {
            let pod = job_pod(&world.cluster, world.seed, job, position);
            let labels = [pod.pod, pod.namespace, pod.container];
            JobLabelValues { job: String::new(), pod: Some(labels), owner: pod.owner }
        }
    }
}
