//! RDMA ports as rows, node by node in name order.

use gaunt_schema::{Absent, Class, Safe, catalogue::port};

use super::{Blame, Collected, coded, kinds, numbers, reason, shown};
use crate::{
    answer::{
        Key, Own,
        filter::{Rows, Texts},
    },
    cluster::{Node, NodeId},
    owner::{Owner, sight::Sight},
};

/// Every port.
pub(in crate::owner) struct Ports<'a> {
    owner: &'a Owner,
    places: Vec<(u32, NodeId)>,
}

impl<'a> Ports<'a> {
    pub(in crate::owner) fn new(owner: &'a Owner) -> Self {
        let mut places = Vec::with_capacity(owner.cluster.rows(Class::Port));
        for (id, node) in owner.cluster.nodes() {
            places.extend(node.rows(Class::Port).iter().map(|row| (*row, id)));
        }
        Self { owner, places }
    }

    /// The row in the cluster's columns, and the node.
    pub(in crate::owner) fn place(&self, row: u32) -> (u32, NodeId) {
        self.places[row as usize]
    }

    fn node(&self, row: u32) -> Option<&'a Node> {
        self.owner.cluster.node(self.place(row).1)
    }

    /// The parts of its name: the device, and the port on it.
    fn name(&self, row: u32, part: usize) -> Option<&'a Safe> {
        self.owner.cluster.device(Class::Port, self.place(row).0)?.device.key.get(part)
    }

    /// The worst finding that blames each of these ports.
    pub(in crate::owner) fn blamed(&self, rows: &[u32]) -> Vec<Option<gaunt_schema::FindingKind>> {
        let blame = Blame::of(&self.owner.findings);
        let of = |row: &u32| {
            blame.port(&self.node(*row)?.name, self.name(*row, 0)?, self.name(*row, 1)?)
        };
        rows.iter().map(of).collect()
    }
}

/// Received and sent data of a port as shares of its rate.
pub(in crate::owner) fn load(cluster: Sight<'_>, row: u32) -> Option<(f64, f64)> {
    let rate = cluster.value(port::RATE, row).filter(|rate| *rate > 0.0)?;
    let received = cluster.rate(port::RECEIVE_BYTES, row)?;
    Some((received / rate, cluster.rate(port::TRANSMIT_BYTES, row)? / rate))
}

impl Rows for Ports<'_> {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn numbers(&self, key: Key, rows: &[u32]) -> Vec<f64> {
        let cluster = self.owner.sight();
        let number = |row: &u32| match key {
            Key::Metric(metric) => shown(cluster, metric, self.place(*row).0),
            Key::Own(Own::Load) => load(cluster, self.place(*row).0).map(|(r, t)| r.max(t)),
            Key::Own(_) => Some(cluster.age(self.node(*row)?.sampled?)?.as_secs_f64()),
        };
        numbers(rows.iter().map(number))
    }

    fn texts(&self, key: Key, rows: &[u32]) -> Texts {
        let Key::Own(own) = key else { return Texts::default() };
        let cluster = &self.owner.cluster;
        let wiring = cluster.wiring();
        let all = rows;
        let rows = rows.iter().copied();
        match own {
            Own::Node => Collected::of(rows.map(|row| Some(&self.node(row)?.name))),
            Own::Device => Collected::of(rows.map(|row| self.name(row, 0))),
            Own::Port => Collected::of(rows.map(|row| self.name(row, 1))),
            Own::State => {
                let words = ["down", "initializing", "armed", "active"];
                let state =
                    |row: u32| match self.owner.sight().value(port::STATE, self.place(row).0)? {
                        known if (1.0..=4.0).contains(&known) => Some(known as usize - 1),
                        _ => None,
                    };
                coded(&words, rows.map(state))
            }
            Own::Leaf => {
                let leaf = |row| Some(&wiring.port(self.place(row).0)?.leaf.as_ref()?.value);
                Collected::of(rows.map(leaf))
            }
            Own::Rail => {
                let rail = |row| Some(&wiring.port(self.place(row).0)?.rail.as_ref()?.value);
                Collected::of(rows.map(rail))
            }
            Own::Rack => {
                let rack = |row| Some(&wiring.node(self.place(row).1)?.rack.as_ref()?.value);
                Collected::of(rows.map(rack))
            }
            Own::Netdev => {
                let device = |row| cluster.device(Class::Port, self.place(row).0);
                Collected::of(rows.map(|row| device(row)?.info(port::INFO, "netdev")))
            }
            Own::Finding => kinds(self.blamed(all).into_iter()),
            _ => Texts::default(),
        }
    }

    fn reason(&self, key: Key, row: u32) -> Option<Absent> {
        let Key::Metric(metric) = key else { return None };
        reason(self.owner.sight(), metric, self.place(row).0)
    }
}
