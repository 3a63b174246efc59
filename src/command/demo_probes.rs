//! Probes on the free nodes of the demo: they are paired by the engine as those of gaunt-probe are, and report what the
//! simulated network would carry.

use std::collections::BTreeMap;

use gaunt_schema::{
    SanitizedText,
    probe_pairing::{
        PairTool, PairingAssignment, PairingCandidate, PairingOutcome, PairingReply, PairingRequest,
    },
};
use gaunt_sim::SimFleet;

/// The most free nodes whose probes take part.
const MAX_PROBES: usize = 16;

/// The prefix of the RDMA device of a rail.
const DEVICE: &str = "mlx5_";

/// Lets the probe of each free node ask once, and measures the pairs of which both sides have been assigned. `send` gives
/// the engine's reply; none if there is no engine any more.
pub(super) fn measure_free_pairs(
    fleet: &SimFleet,
    mut send: impl FnMut(PairingRequest) -> Option<PairingReply>,
) {
    let mut sides: BTreeMap<u64, Vec<(usize, PairingAssignment)>> = BTreeMap::new();
    // The first of a pair is assigned when it asks again.
    for _ in 0..2 {
        for node in fleet.free_nodes().take(MAX_PROBES) {
            let name = SanitizedText::new(fleet.node_name(node));
            let candidate =
                PairingCandidate { node: name.clone(), host: name, tools: vec![PairTool::Nccl] };
            let Some(reply) = send(PairingRequest::Free(candidate)) else { return };
            if let PairingReply::Meet(assignment) = reply {
                let assigned = sides.entry(assignment.meeting).or_default();
                if assigned.iter().all(|(_, other)| other.rank != assignment.rank) {
                    assigned.push((node, assignment));
                }
            }
        }
    }
    for (meeting, sides) in sides {
        let [one, other] = sides.as_slice() else { continue };
        let port = |(node, assignment): &(usize, PairingAssignment)| {
            Some((*node, assignment.device.strip_prefix(DEVICE)?.parse().ok()?))
        };
        let ends = port(one).zip(port(other));
        let measured = ends.and_then(|(one, other)| fleet.pair_bandwidth([one, other]));
        let says = if measured.is_some() { "measured" } else { "no link between the ports" };
        let key = SanitizedText::new(fleet.node_name(one.0));
        let outcome = PairingOutcome { bytes_per_second: measured, says: says.into() };
        let ended = |rank: u8| PairingRequest::Ended { meeting, rank, outcome: outcome.clone() };
        let words = [
            PairingRequest::Ready { meeting, key },
            PairingRequest::Coming { meeting },
            ended(0),
            ended(1),
        ];
        for word in words {
            if send(word).is_none() {
                return;
            }
        }
    }
}
