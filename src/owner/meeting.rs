//! The owner's part in meetings of probes: what it knows of a node's ports, and the time.

use gaunt_schema::{
    Class, Entity, EntityKind, Safe, UnixMs,
    meeting::{Reply, Word},
};

use super::Owner;
use crate::{
    answer::ProbeMatrix,
    judge::Measured,
    meeting::{Accused, Port, What},
};

/// Milliseconds after which it is looked whether a measurement became too old.
const LOOK: i64 = 60_000;

impl Owner {
    /// Hears what a probe says, and answers it.
    pub fn hear(&mut self, word: Word) -> Reply {
        let mut meetings = std::mem::take(&mut self.meetings);
        let reply = meetings.hear(self.cluster.now(), word, |node| self.ports_of(node));
        self.meetings = meetings;
        reply
    }

    pub(super) fn probe_matrix(&self) -> ProbeMatrix {
        self.meetings.matrix(self.cluster.now())
    }

    /// Tells the judge what was measured between nodes: when that is something else, or too old.
    pub(super) fn tell_measured(&mut self) {
        let now = self.cluster.now();
        let news = (self.meetings.ended(), now.0.div_euclid(LOOK));
        let Some(judge) = self.judge.as_mut().filter(|_| self.told_measured != Some(news)) else {
            return;
        };
        self.told_measured = Some(news);
        let valid = (self.options.thresholds.probe_valid_seconds * 1e3) as i64;
        let accused = self.meetings.accused(UnixMs(now.0.saturating_sub(valid)));
        judge.hear(accused.into_iter().map(measured).collect());
    }

    /// A node's RDMA ports, as far as they can be measured.
    fn ports_of(&self, node: &Safe) -> Vec<Port> {
        let Some((_, node)) = self.cluster.named(node) else { return Vec::new() };
        let wiring = self.cluster.wiring();
        let near = |port: u32| {
            let gpus = node.rows(Class::Gpu).iter();
            let mut near = gpus
                .filter(|gpu| wiring.gpu(**gpu).is_some_and(|wiring| wiring.ports.contains(&port)));
            let entry = self.cluster.device(Class::Gpu, *near.next()?)?;
            entry.device.key.first()?.parse().ok()
        };
        let port = |row: u32| {
            let entry = self.cluster.device(Class::Port, row)?;
            let place = wiring.port(row);
            Some(Port {
                device: entry.device.key.first()?.clone(),
                port: entry.device.key.get(1)?.clone(),
                rail: place.and_then(|place| Some(place.rail.as_ref()?.value.clone())),
                leaf: place.and_then(|place| Some(place.leaf.as_ref()?.value.clone())),
                gpu: near(row),
            })
        };
        node.rows(Class::Port).iter().filter_map(|row| port(*row)).collect()
    }
}

fn measured(accused: Accused) -> Measured {
    let Accused { what, ratio, pairs } = accused;
    let across = matches!(what, What::Uplink(_));
    let entity = match what {
        What::Port(end) => Entity::port(&end.node, &end.device, &end.port),
        What::Leaf(leaf) | What::Uplink(leaf) => {
            Entity { leaf: Some(leaf), ..Entity::new(EntityKind::Leaf) }
        }
    };
    Measured { entity, across, ratio, pairs }
}
