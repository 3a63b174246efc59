//! GPUs as rows, node by node in name order.

use std::collections::HashMap;

use gaunt_schema::{Absent, Class, GpuState, MetricId, Safe, catalogue::gpu};

use super::{Blame, Collected, coded, kinds, numbers, reason, shown};
use crate::{
    answer::{
        Filter, Key, Own,
        filter::{Rows, Texts},
    },
    cluster::{Node, NodeId},
    owner::Owner,
};

/// Every GPU.
pub(in crate::owner) struct Gpus<'a> {
    owner: &'a Owner,
    /// The row of each in the cluster's columns, and its node.
    places: Vec<(u32, NodeId)>,
}

impl<'a> Gpus<'a> {
    /// Every GPU that can match the filter: of the nodes or the jobs that it names, or all.
    pub(in crate::owner) fn new(owner: &'a Owner, filter: &Filter) -> Self {
        let cluster = &owner.cluster;
        let mut nodes: Vec<(NodeId, &Node)> = Vec::new();
        if let Some(names) = filter.pinned(Key::Own(Own::Node)) {
            nodes.extend(names.iter().filter_map(|name| cluster.named(name)));
        } else if let Some(jobs) = filter.pinned(Key::Own(Own::Job)) {
            let gpus = jobs.iter().filter_map(|job| cluster.jobs().get(*job)).flatten();
            let mut ids: Vec<NodeId> =
                gpus.filter_map(|gpu| Some(cluster.device(Class::Gpu, *gpu)?.node)).collect();
            ids.sort_unstable();
            ids.dedup();
            nodes.extend(ids.into_iter().filter_map(|id| Some((id, cluster.node(id)?))));
        } else {
            nodes.extend(cluster.nodes());
        }
        nodes.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        nodes.dedup_by_key(|(id, _)| *id);
        let places = nodes
            .iter()
            .flat_map(|(id, node)| node.rows(Class::Gpu).iter().map(move |row| (*row, *id)));
        Self { owner, places: places.collect() }
    }

    /// The row in the cluster's columns.
    pub(in crate::owner) fn place(&self, row: u32) -> (u32, NodeId) {
        self.places[row as usize]
    }

    fn node(&self, row: u32) -> Option<&'a Node> {
        self.owner.cluster.node(self.place(row).1)
    }

    fn info(&self, row: u32, series: MetricId, label: &str) -> Option<&'a Safe> {
        self.owner.cluster.device(Class::Gpu, self.place(row).0)?.info(series, label)
    }

    fn index(&self, row: u32) -> Option<&'a Safe> {
        self.owner.cluster.device(Class::Gpu, self.place(row).0)?.device.key.first()
    }

    fn job(&self, row: u32) -> Option<&'a Safe> {
        self.owner.cluster.job(self.place(row).0)
    }

    /// What is known of the job of a GPU.
    fn told(&self, row: u32) -> Option<&'a crate::cluster::JobTold> {
        self.owner.cluster.job_told(self.job(row)?)
    }

    /// The leaves of the GPU's nearest ports, or else of all ports of its node.
    fn leaves(&self, row: u32) -> impl Iterator<Item = &'a Safe> {
        let (place, id) = self.place(row);
        let wiring = self.owner.cluster.wiring();
        let near = wiring.gpu(place).map_or(&[][..], |gpu| &gpu.ports);
        let own = if near.is_empty() {
            self.node(row).map_or(&[][..], |node| node.rows(Class::Port))
        } else {
            near
        };
        let whole = wiring.node(id).and_then(|node| Some(&node.leaf.as_ref()?.value));
        let leaf = |port: &u32| Some(&wiring.port(*port)?.leaf.as_ref()?.value);
        own.iter().filter_map(leaf).chain(whole)
    }

    /// The name of each GPU's node, which is looked at once for each node.
    fn nodes(&self, rows: &[u32]) -> Texts {
        let (mut texts, mut known) = (Texts::default(), HashMap::new());
        let mut last = None;
        for row in rows {
            let id = self.place(*row).1;
            let code = match last {
                Some((same, code)) if same == id => code,
                _ => *known.entry(id).or_insert_with(|| {
                    let name = self.owner.cluster.node(id).map(|node| node.name.clone());
                    texts.words.push(name.unwrap_or_default());
                    texts.words.len() as u32 - 1
                }),
            };
            last = Some((id, code));
            texts.codes.push(code);
        }
        texts
    }
}

impl Rows for Gpus<'_> {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn numbers(&self, key: Key, rows: &[u32]) -> Vec<f64> {
        let cluster = self.owner.sight();
        match key {
            Key::Metric(metric) if metric.row().class == Class::Gpu => {
                numbers(rows.iter().map(|row| shown(cluster, metric, self.place(*row).0)))
            }
            Key::Metric(metric) => {
                let own = |row: &u32| shown(cluster, metric, self.node(*row)?.own_row()?);
                numbers(rows.iter().map(own))
            }
            Key::Own(Own::Lost) => {
                numbers(rows.iter().map(|row| Some(self.owner.lost_gpus([&self.place(*row).0]))))
            }
            Key::Own(_) => {
                let age = |row: &u32| cluster.age(self.node(*row)?.sampled?);
                numbers(rows.iter().map(|row| Some(age(row)?.as_secs_f64())))
            }
        }
    }

    fn texts(&self, key: Key, rows: &[u32]) -> Texts {
        let Key::Own(own) = key else { return Texts::default() };
        let rows = rows.iter().copied();
        let info = |label| Collected::of(rows.clone().map(|row| self.info(row, gpu::INFO, label)));
        let job =
            |label| Collected::of(rows.clone().map(|row| self.info(row, gpu::JOB_INFO, label)));
        let wiring = self.owner.cluster.wiring();
        match own {
            Own::Node => self.nodes(&rows.collect::<Vec<_>>()),
            Own::Gpu => Collected::of(rows.map(|row| self.index(row))),
            Own::State => {
                let words: Vec<&str> = GpuState::ALL.iter().map(|state| state.as_str()).collect();
                let state = |row| Some(self.owner.state_of(self.place(row).0) as usize);
                coded(&words, rows.map(state))
            }
            Own::Finding => {
                let blame = Blame::of(&self.owner.findings);
                let blamed = |row| blame.gpu(&self.node(row)?.name, self.index(row)?);
                let cause = |row| self.owner.loss_finding(self.place(row).0);
                kinds(rows.map(|row| blamed(row).or_else(|| cause(row))))
            }
            Own::Job => Collected::of(rows.map(|row| self.job(row))),
            Own::JobName => Collected::of(rows.map(|row| self.told(row)?.name.as_ref())),
            Own::User => Collected::of(rows.map(|row| self.told(row)?.user.as_ref())),
            Own::Rank => job("rank"),
            Own::Namespace => job("namespace"),
            Own::Pod => job("pod"),
            Own::Uuid => info("uuid"),
            Own::Model => {
                Collected::of(rows.map(|row| self.owner.cluster.model(self.place(row).0)))
            }
            Own::Serial => info("serial"),
            Own::PciBusId => info("pci_bus_id"),
            Own::Leaf => Collected::of_many(rows.map(|row| self.leaves(row))),
            Own::Rail => Collected::of(rows.map(|row| wiring.rail_of_gpu(self.place(row).0))),
            Own::Rack => {
                let rack = |row| Some(&wiring.node(self.place(row).1)?.rack.as_ref()?.value);
                Collected::of(rows.map(rack))
            }
            Own::Domain => {
                let domain = |row| Some(&wiring.gpu(self.place(row).0)?.domain.as_ref()?.value);
                Collected::of(rows.map(domain))
            }
            _ => Texts::default(),
        }
    }

    fn reason(&self, key: Key, row: u32) -> Option<Absent> {
        let Key::Metric(metric) = key else { return None };
        let place = match metric.row().class {
            Class::Gpu => self.place(row).0,
            _ => self.node(row)?.own_row()?,
        };
        reason(self.owner.sight(), metric, place)
    }
}
