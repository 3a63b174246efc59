//! Processes on GPUs as rows, node by node in name order.

use gaunt_schema::{Absent, Class, Safe, catalogue::gpu_parts};

use super::{Collected, numbers, reason, shown};
use crate::{
    answer::{
        Key, Own,
        filter::{Rows, Texts},
    },
    cluster::{Node, NodeId},
    owner::Owner,
};

/// Every process that a page names.
pub(super) struct Processes<'a> {
    owner: &'a Owner,
    places: Vec<(u32, NodeId)>,
}

impl<'a> Processes<'a> {
    /// Those of now: which processes there were is not kept, so that of the past there are none.
    pub(super) fn new(owner: &'a Owner) -> Self {
        let mut places = Vec::new();
        if owner.then.is_none() {
            for (id, node) in owner.cluster.nodes() {
                places.extend(node.rows(Class::Process).iter().map(|row| (*row, id)));
            }
        }
        Self { owner, places }
    }

    fn place(&self, row: u32) -> (u32, NodeId) {
        self.places[row as usize]
    }

    fn node(&self, row: u32) -> Option<&'a Node> {
        self.owner.cluster.node(self.place(row).1)
    }

    /// The parts of its name: the GPU, and the number of the process.
    fn name(&self, row: u32, part: usize) -> Option<&'a Safe> {
        self.owner.cluster.device(Class::Process, self.place(row).0)?.device.key.get(part)
    }

    /// What a page says of it.
    fn told(&self, row: u32, label: &str) -> Option<&'a Safe> {
        let device = self.owner.cluster.device(Class::Process, self.place(row).0)?;
        device.info(gpu_parts::PROCESS_INFO, label)
    }
}

impl Rows for Processes<'_> {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn numbers(&self, key: Key, rows: &[u32]) -> Vec<f64> {
        let cluster = self.owner.sight();
        let number = |row: &u32| match key {
            Key::Metric(metric) => shown(cluster, metric, self.place(*row).0),
            Key::Own(_) => Some(cluster.age(self.node(*row)?.sampled?)?.as_secs_f64()),
        };
        numbers(rows.iter().map(number))
    }

    fn texts(&self, key: Key, rows: &[u32]) -> Texts {
        let Key::Own(own) = key else { return Texts::default() };
        let rows = rows.iter().copied();
        let label = match own {
            Own::Node => return Collected::of(rows.map(|row| Some(&self.node(row)?.name))),
            Own::Gpu => return Collected::of(rows.map(|row| self.name(row, 0))),
            Own::Pid => return Collected::of(rows.map(|row| self.name(row, 1))),
            Own::Program => "name",
            Own::User => "user",
            Own::Job => "job",
            Own::Namespace => "namespace",
            Own::Pod => "pod",
            Own::Container => "container",
            _ => return Texts::default(),
        };
        Collected::of(rows.map(|row| self.told(row, label)))
    }

    fn reason(&self, key: Key, row: u32) -> Option<Absent> {
        let Key::Metric(metric) = key else { return None };
        reason(self.owner.sight(), metric, self.place(row).0)
    }
}
