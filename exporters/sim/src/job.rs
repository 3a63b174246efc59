//! Jobs as their users and their batch system know them.

use crate::{machine::Role, work::Work};

/// The job that holds a node.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) name: &'static str,
    pub(crate) user: &'static str,
    /// The rank of the node's first GPU.
    pub(crate) rank: usize,
    /// Memory that its processes take on each GPU.
    pub(crate) memory_bytes: f64,
    pub(crate) work: Work,
}

/// The number of the job that a gang is, as a word.
pub(crate) fn id(gang: usize) -> String {
    (48_211 + 7 * gang).to_string()
}

impl Job {
    /// The job of a node in this role; `work` is that of its gang.
    pub(crate) fn of(role: Role, node: usize, gpus: usize, work: Work) -> Option<Self> {
        const NAMES: [(&str, &str); 5] = [
            ("pretrain-70b", "mira"),
            ("moe-8x22b", "jonas"),
            ("vision-sft", "aiko"),
            ("ablation-13", "tomas"),
            ("speech-base", "lena"),
        ];
        const GIB: f64 = 1_073_741_824.0;
        match role {
            Role::Free => None,
            Role::Held => Some(Self {
                id: (48_900 + node).to_string(),
                name: "notebook",
                user: "sam",
                rank: 0,
                memory_bytes: 11.3 * GIB,
                work: Work::Train,
            }),
            Role::Member { gang, member } => {
                let serving = ("chat-serving", "platform");
                let trains = work == Work::Train;
                let (name, user) = if trains { NAMES[gang % NAMES.len()] } else { serving };
                Some(Self {
                    id: id(gang),
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
