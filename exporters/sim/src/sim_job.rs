//! Simulated job: id, name, user and size as the users and the batch system see them.

use crate::{job_workload::JobWorkload, sim_machine::NodeRole};

/// The job that a node is allocated to.
#[derive(Debug)]
pub(crate) struct SimJob {
    pub(crate) id: String,
    pub(crate) name: &'static str,
    pub(crate) user: &'static str,
    /// The rank of the node's first GPU.
    pub(crate) rank: usize,
    /// Memory that its processes use on each GPU.
    pub(crate) memory_bytes: f64,
    pub(crate) work: JobWorkload,
}

/// The job id of a job group.
pub(crate) fn job_id(job_index: usize) -> String {
    (48_211 + 7 * job_index).to_string()
}

impl SimJob {
    /// The job of a node in this role; `work` is the workload of its job group.
    pub(crate) fn of(role: NodeRole, node: usize, gpus: usize, work: JobWorkload) -> Option<Self> {
        const NAMES: [(&str, &str); 5] = [
            ("pretrain-70b", "mira"),
            ("moe-8x22b", "jonas"),
            ("vision-sft", "aiko"),
            ("ablation-13", "tomas"),
            ("speech-base", "lena"),
        ];
        const GIB: f64 = 1_073_741_824.0;
        match role {
            NodeRole::Free => None,
            NodeRole::Held => Some(Self {
                id: (48_900 + node).to_string(),
                name: "notebook",
                user: "sam",
                rank: 0,
                memory_bytes: 11.3 * GIB,
                work: JobWorkload::Train,
            }),
            NodeRole::JobMember { job_index, member } => {
                let serving_job = ("chat-serving", "platform");
                let trains = work == JobWorkload::Train;
                let (name, user) =
                    if trains { NAMES[job_index % NAMES.len()] } else { serving_job };
                Some(Self {
                    id: job_id(job_index),
                    name,
                    user,
                    rank: member * gpus,
                    memory_bytes: 68.5 * GIB,
                    work,
                })
            }
        }
    }
}
