//! The engine's part in the pairing of probes: it supplies a node's ports and the time.

use gaunt_schema::{
    DeviceClass, Entity, EntityKind, SanitizedText, UnixMs,
    probe_pairing::{PairingReply, PairingRequest},
};

use super::{Engine, view::View};
use crate::pairing_scheduler::{PairingPort, PairingScheduler, PairingSuspect, SuspectPart};
use gaunt_api::ProbeMatrix;
use gaunt_judge::CrossNodeBandwidth;

/// Milliseconds between checks whether a measurement is too old.
const CHECK_EVERY_MS: i64 = 60_000;

impl Engine {
    /// Handles a pairing request and returns the reply.
    pub fn handle_pairing_request(&mut self, request: PairingRequest) -> PairingReply {
        let mut scheduler = std::mem::take(&mut self.pairing_scheduler);
        let reply =
            scheduler.handle_request(self.cluster.now(), request, |node| self.ports_of(node));
        self.pairing_scheduler = scheduler;
        reply
    }

    /// The measurements; none in the past, of which they are not kept.
    pub(super) fn probe_matrix(&self, view: &View<'_>) -> ProbeMatrix {
        let none = PairingScheduler::default();
        let scheduler = if view.past.is_some() { &none } else { &self.pairing_scheduler };
        scheduler.build_matrix(self.cluster.now())
    }

    /// Submits cross-node measurements to the judge when they changed or one became too old.
    pub(super) fn submit_measurements(&mut self) {
        let now = self.cluster.now();
        let revision = (self.pairing_scheduler.ended_count(), now.0.div_euclid(CHECK_EVERY_MS));
        let Some(judge) =
            self.judge.as_mut().filter(|_| self.submitted_measurements != Some(revision))
        else {
            return;
        };
        self.submitted_measurements = Some(revision);
        let valid = (self.options.thresholds.probe_valid_seconds * 1e3) as i64;
        let suspects = self.pairing_scheduler.suspects_since(UnixMs(now.0.saturating_sub(valid)));
        judge.set_probe_results(suspects.into_iter().map(convert_suspect).collect());
    }

    /// The RDMA ports of a node that can be measured.
    fn ports_of(&self, node: &SanitizedText) -> Vec<PairingPort> {
        let Some((_, node)) = self.cluster.node_by_name(node) else { return Vec::new() };
        let topology = self.cluster.topology();
        let nearest_gpu = |port: u32| {
            let gpus = node.device_rows(DeviceClass::Gpu).iter();
            let mut nearest_gpu = gpus.filter(|gpu| {
                topology.gpu_topology(**gpu).is_some_and(|topology| topology.ports.contains(&port))
            });
            let entry = self.cluster.device_at(DeviceClass::Gpu, *nearest_gpu.next()?)?;
            entry.device.key.first()?.parse().ok()
        };
        let port = |row: u32| {
            let entry = self.cluster.device_at(DeviceClass::Port, row)?;
            let port_topology = topology.port_topology(row);
            Some(PairingPort {
                device: entry.device.key.first()?.clone(),
                port: entry.device.key.get(1)?.clone(),
                rail: port_topology
                    .and_then(|port_topology| Some(port_topology.rail.as_ref()?.value.clone())),
                leaf: port_topology
                    .and_then(|port_topology| Some(port_topology.leaf.as_ref()?.value.clone())),
                gpu: nearest_gpu(row),
            })
        };
        node.device_rows(DeviceClass::Port).iter().filter_map(|row| port(*row)).collect()
    }
}

fn convert_suspect(suspect: PairingSuspect) -> CrossNodeBandwidth {
    let PairingSuspect { part: what, ratio, pairs } = suspect;
    let across = matches!(what, SuspectPart::Uplink(_));
    let entity = match what {
        SuspectPart::Port(end) => Entity::new_port(&end.node, &end.device, &end.port),
        SuspectPart::Leaf(leaf) | SuspectPart::Uplink(leaf) => {
            Entity { leaf: Some(leaf), ..Entity::new(EntityKind::Leaf) }
        }
    };
    CrossNodeBandwidth { entity, across, ratio, pairs }
}
