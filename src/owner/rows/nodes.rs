//! Nodes as rows, worst first.

use gaunt_schema::{Absent, Class, MetricId, Safe};

use super::{Collected, coded, kinds, numbers, reason, shown};
use crate::{
    answer::{
        Key, NodeLine, NodeList, NodeState, Own,
        filter::{Rows, Texts},
    },
    cluster::{Node, NodeId},
    owner::Owner,
};

/// Every node.
pub(super) struct Nodes<'a> {
    owner: &'a Owner,
    lines: &'a [NodeLine],
}

impl<'a> Nodes<'a> {
    pub(super) fn new(owner: &'a Owner, list: &'a NodeList) -> Self {
        Self { owner, lines: &list.nodes }
    }

    fn line(&self, row: u32) -> &'a NodeLine {
        &self.lines[row as usize]
    }

    fn node(&self, row: u32) -> Option<(NodeId, &'a Node)> {
        self.owner.cluster.named(&self.line(row).node)
    }

    /// What the ports of a node say, each once.
    fn ports(
        &self,
        row: u32,
        of: impl Fn(u32) -> Option<&'a Safe>,
    ) -> impl Iterator<Item = &'a Safe> {
        let ports = self.node(row).map_or(&[][..], |(_, node)| node.rows(Class::Port));
        ports.iter().filter_map(move |port| of(*port))
    }

    fn metric(&self, metric: MetricId, row: u32) -> Option<u32> {
        (metric.row().class == Class::Node).then(|| self.node(row)?.1.own_row())?
    }
}

/// A text, or none if it is empty.
fn some(text: Safe) -> Option<Safe> {
    (!text.is_empty()).then_some(text)
}

impl Rows for Nodes<'_> {
    fn len(&self) -> usize {
        self.lines.len()
    }

    fn numbers(&self, key: Key, rows: &[u32]) -> Vec<f64> {
        let number = |row: &u32| {
            let line = self.line(*row);
            match key {
                Key::Metric(metric) => {
                    shown(self.owner.sight(), metric, self.metric(metric, *row)?)
                }
                Key::Own(Own::Gpus) => Some(line.gpu_states.len() as f64),
                Key::Own(Own::Lost) => Some(line.lost_gpus),
                Key::Own(Own::GpuUtilization) => line.utilization_ratio,
                Key::Own(Own::GpuPower) => line.power_watts,
                Key::Own(Own::Ports) => Some(f64::from(line.ports.1)),
                Key::Own(Own::PortsActive) => Some(f64::from(line.ports.0)),
                Key::Own(Own::Age) => Some(line.age_ms? as f64 / 1e3),
                Key::Own(_) => None,
            }
        };
        numbers(rows.iter().map(number))
    }

    fn texts(&self, key: Key, rows: &[u32]) -> Texts {
        let Key::Own(own) = key else { return Texts::default() };
        let cluster = &self.owner.cluster;
        let wiring = cluster.wiring();
        let rows = rows.iter().copied();
        match own {
            Own::Node => Collected::of(rows.map(|row| Some(&self.line(row).node))),
            Own::State => {
                let states = [NodeState::Live, NodeState::Stale, NodeState::Down];
                let words = states.map(NodeState::as_str);
                coded(&words, rows.map(|row| Some(self.line(row).state as usize)))
            }
            Own::GpuStates => {
                let states: Vec<Option<Safe>> =
                    rows.map(|row| self.line(row).gpu_states.as_str().into()).map(some).collect();
                Collected::of(states.iter().map(Option::as_ref))
            }
            Own::Finding => kinds(rows.map(|row| self.line(row).finding)),
            Own::Job => Collected::of_many(rows.map(|row| self.line(row).jobs.iter())),
            Own::User => {
                let user = |job: &Safe| cluster.job_told(job)?.user.as_ref();
                Collected::of_many(rows.map(|row| self.line(row).jobs.iter().filter_map(user)))
            }
            Own::Model => {
                let model = |gpu: &u32| cluster.model(*gpu);
                let gpus = |row| self.node(row).map_or(&[][..], |(_, node)| node.rows(Class::Gpu));
                Collected::of_many(rows.map(|row| gpus(row).iter().filter_map(model)))
            }
            Own::Leaf => {
                let leaf = |port| Some(&wiring.port(port)?.leaf.as_ref()?.value);
                let whole = |row| Some(&wiring.node(self.node(row)?.0)?.leaf.as_ref()?.value);
                Collected::of_many(rows.map(|row| self.ports(row, leaf).chain(whole(row))))
            }
            Own::Rail => {
                let rail = |port| Some(&wiring.port(port)?.rail.as_ref()?.value);
                Collected::of_many(rows.map(|row| self.ports(row, rail)))
            }
            Own::Rack => {
                let rack = |row| Some(&wiring.node(self.node(row)?.0)?.rack.as_ref()?.value);
                Collected::of(rows.map(rack))
            }
            _ => Texts::default(),
        }
    }

    fn reason(&self, key: Key, row: u32) -> Option<Absent> {
        let Key::Metric(metric) = key else { return None };
        reason(self.owner.sight(), metric, self.metric(metric, row)?)
    }
}
