//! Pairing scheduler: pairs the probes of two free nodes, rail by rail and pair by pair, one pair at each leaf.
//!
//! Within a leaf every port is measured with the next one, which finds slow ports; across leaves one pair of ports
//! represents its two leaves, a different one each time, which finds slow uplinks. The next pair is the possible one
//! that was measured longest ago. Pure: requests carry the time and what is known of ports.

use std::collections::BTreeMap;

use gaunt_schema::{
    SanitizedText, UnixMs,
    probe_pairing::{
        PairTool, PairingAssignment, PairingCandidate, PairingOutcome, PairingReply, PairingRequest,
    },
};

use gaunt_api::{PairEnd, ProbeMatrix, ProbePair};

mod slow_suspects;
#[cfg(test)]
mod tests;

/// A node without a request for this long is removed.
const GONE: i64 = 90_000;

/// Time limit of a pairing: CUDA contexts on a node of eight GPUs take up to a minute, and the runs less than a second.
const LIFE: i64 = 150_000;

/// How long rank 1 waits before it polls again.
const SOON: u64 = 250;

/// How long a free node waits before it polls again, and how much longer for each other one, up to half a minute.
const WAIT: u64 = 1_000;
const WAIT_EACH: u64 = 10;
const LONGEST_WAIT: u64 = 30_000;

/// Minimum time before the same pair is measured again.
const REST: i64 = 600_000;

/// The most free nodes.
const MAX_FREE_NODES: usize = 16_384;

/// The most pairs that are retained: those of 1,000 nodes with 8 ports in a leaf and across leaves. The oldest is
/// removed.
const MAX_PAIRS: usize = 16_384;

/// A port that can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingPort {
    /// The RDMA device.
    pub device: SanitizedText,
    /// Its port.
    pub port: SanitizedText,
    /// Its rail; without one, ports of devices with the same name are compared.
    pub rail: Option<SanitizedText>,
    /// Its leaf switch.
    pub leaf: Option<SanitizedText>,
    /// The GPU nearest to it.
    pub gpu: Option<u32>,
}

/// A suspect: slower than the others of its rail.
#[derive(Clone, Debug, PartialEq)]
pub struct PairingSuspect {
    /// A leaf, or one of the ports.
    pub part: SuspectPart,
    /// Median share of the baseline that its pairs reach.
    pub ratio: f64,
    /// Number of pairs behind it.
    pub pairs: u32,
}

/// What may be slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuspectPart {
    /// A port.
    Port(PairEnd),
    /// A leaf whose ports are slow with each other.
    Leaf(SanitizedText),
    /// A leaf whose ports are slow with those below other leaves.
    Uplink(SanitizedText),
}

/// Free nodes, open pairings, and results.
#[derive(Debug, Default)]
pub struct PairingScheduler {
    free_nodes: BTreeMap<SanitizedText, FreeNode>,
    open_pairings: BTreeMap<u64, OpenPairing>,
    pairs: BTreeMap<PairKey, ProbePair>,
    /// When the path between two leaves of a rail was last measured.
    leaf_paths: BTreeMap<LeafPathKey, i64>,
    last_number: u64,
    ended: [u64; 2],
}

/// A rail and two ends.
type PairKey = (SanitizedText, PairEnd, PairEnd);

/// A rail and two leaves, in order.
type LeafPathKey = (SanitizedText, SanitizedText, SanitizedText);

/// A free node.
#[derive(Debug)]
struct FreeNode {
    candidate: PairingCandidate,
    ports: Vec<PairingPort>,
    seen: i64,
    /// Its pairing, if any.
    pairing: Option<u64>,
}

/// An open pairing.
#[derive(Debug)]
struct OpenPairing {
    rail: SanitizedText,
    sides: [PairingSide; 2],
    tool: PairTool,
    began: i64,
    key: Option<SanitizedText>,
}

/// One side of a pairing.
#[derive(Debug)]
struct PairingSide {
    node: SanitizedText,
    port: PairingPort,
    /// Whether it reported more than that it is free.
    started: bool,
    outcome: Option<PairingOutcome>,
}

impl PairingSide {
    fn new(node: &SanitizedText, port: &PairingPort) -> Self {
        Self { node: node.clone(), port: port.clone(), started: false, outcome: None }
    }

    fn to_pair_end(&self) -> PairEnd {
        let PairingPort { device, port, leaf, .. } = self.port.clone();
        PairEnd { node: self.node.clone(), device, port, leaf }
    }
}

impl PairingScheduler {
    /// Handles a request, and returns the reply. `ports` returns what is known of a node's ports.
    pub fn handle_request(
        &mut self,
        now: UnixMs,
        request: PairingRequest,
        ports: impl Fn(&SanitizedText) -> Vec<PairingPort>,
    ) -> PairingReply {
        let now = now.0;
        self.expire_stale(now);
        match request {
            PairingRequest::Free(candidate) => self.handle_free_node(now, candidate, ports),
            PairingRequest::Ready { meeting, key } => self.update_pairing(meeting, |open| {
                open.sides[0].started = true;
                open.key = Some(key);
                PairingReply::Noted
            }),
            PairingRequest::Coming { meeting } => self.update_pairing(meeting, |open| {
                open.sides[1].started = true;
                let key = open.key.clone();
                key.map_or(PairingReply::Wait { millis: SOON }, |key| PairingReply::Key { key })
            }),
            PairingRequest::Ended { meeting, rank, outcome } => {
                self.record_outcome(now, meeting, rank, outcome)
            }
        }
    }

    /// The matrix of measurements so far.
    pub fn build_matrix(&self, now: UnixMs) -> ProbeMatrix {
        let free = self.free_nodes.values().filter(|present| now.0 < present.seen + GONE);
        ProbeMatrix {
            at: now,
            free: free.count() as u32,
            measuring: self.open_pairings.len() as u32,
            ended: self.ended,
            rails: slow_suspects::rail_matrices(&self.pairs),
        }
    }

    /// Suspects from measurements since this time. Failed measurements are not evidence of speed.
    pub fn suspects_since(&self, since: UnixMs) -> Vec<PairingSuspect> {
        let recent = self.pairs.iter().filter(|(_, pair)| pair.at >= since);
        slow_suspects::find_suspects(
            &recent.map(|(key, pair)| (key.clone(), pair.clone())).collect(),
        )
    }

    /// Number of ended pairings: suspects change only when it does.
    pub fn ended_count(&self) -> u64 {
        self.ended[0]
    }

    fn update_pairing(
        &mut self,
        meeting: u64,
        update: impl FnOnce(&mut OpenPairing) -> PairingReply,
    ) -> PairingReply {
        match self.open_pairings.get_mut(&meeting) {
            Some(open) => update(open),
            None => over_reply("this pairing has ended"),
        }
    }

    /// Removes nodes without requests, and ends pairings that exceed their time.
    fn expire_stale(&mut self, now: i64) {
        let late: Vec<u64> = self
            .open_pairings
            .iter()
            .filter(|(_, open)| now >= open.began + LIFE)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.close_pairing(now, number, "timed out");
        }
        self.free_nodes.retain(|_, one| one.pairing.is_some() || now < one.seen + GONE);
    }

    fn handle_free_node(
        &mut self,
        now: i64,
        candidate: PairingCandidate,
        ports: impl Fn(&SanitizedText) -> Vec<PairingPort>,
    ) -> PairingReply {
        let node = candidate.node.clone();
        if let Some(number) = self.free_nodes.get(&node).and_then(|present| present.pairing) {
            if let Some(again) = self.pending_assignment(number, &node) {
                return PairingReply::Meet(again);
            }
            // It was measuring and has no state of that: it was restarted.
            self.close_pairing(now, number, "one side restarted");
        }
        if self.free_nodes.len() >= MAX_FREE_NODES && !self.free_nodes.contains_key(&node) {
            return PairingReply::Wait { millis: LONGEST_WAIT };
        }
        let ports = ports(&node);
        if ports.is_empty() {
            self.free_nodes.remove(&node);
            return over_reply(&format!(
                "no RDMA port of {node} is known; set --node to its name in `gaunt snapshot --ask \
                 nodes`"
            ));
        }
        self.free_nodes
            .insert(node.clone(), FreeNode { candidate, ports, seen: now, pairing: None });
        let assignment =
            self.choose_partner(now, &node).and_then(|(own_port, other, peer_port, tool)| {
                self.begin_pairing(now, [(&node, own_port), (&other, peer_port)], tool)
            });
        let wait = (WAIT + WAIT_EACH * self.free_nodes.len() as u64).min(LONGEST_WAIT);
        assignment.map_or(PairingReply::Wait { millis: wait }, PairingReply::Meet)
    }

    /// The best partner of a waiting node: the pair that was measured longest ago.
    fn choose_partner(
        &self,
        now: i64,
        node: &SanitizedText,
    ) -> Option<(PairingPort, SanitizedText, PairingPort, PairTool)> {
        let me = self.free_nodes.get(node)?;
        let mut best: Option<(i64, PairingPort, &SanitizedText, PairingPort, PairTool)> = None;
        for own_port in &me.ports {
            // The next one by name, cyclically: the ring of a leaf.
            let (before, after): (Vec<_>, Vec<_>) =
                self.free_nodes.iter().partition(|(name, _)| *name < node);
            let mut leaf_done = false;
            for (name, other) in after.into_iter().chain(before) {
                let tool =
                    me.candidate.tools.iter().find(|tool| other.candidate.tools.contains(tool));
                let is_waiting = other.pairing.is_none() && name != node && now < other.seen + GONE;
                let (Some(tool), true) = (tool, is_waiting) else { continue };
                let Some(peer_port) = other.ports.iter().find(|port| is_same_rail(own_port, port))
                else {
                    continue;
                };
                let within = own_port.leaf == peer_port.leaf;
                if (within && leaf_done)
                    || self.is_leaf_busy(own_port)
                    || self.is_leaf_busy(peer_port)
                {
                    continue;
                }
                leaf_done |= within;
                let last = self.last_measured([(node, own_port), (name, peer_port)]);
                let rested = last.is_none_or(|last| now >= last + REST);
                let last = last.unwrap_or(0);
                if rested && best.as_ref().is_none_or(|(known, ..)| last < *known) {
                    best = Some((last, own_port.clone(), name, peer_port.clone(), *tool));
                }
            }
        }
        best.map(|(_, own_port, name, peer_port, tool)| (own_port, name.clone(), peer_port, tool))
    }

    /// When this pair, or another one of the same path, was last measured.
    fn last_measured(&self, sides: [(&SanitizedText, &PairingPort); 2]) -> Option<i64> {
        let rail = rail_of_port(sides[0].1);
        if let Some(path) = leaf_path(&rail, sides[0].1, sides[1].1) {
            return self.leaf_paths.get(&path).copied();
        }
        let [one, other] = sides.map(|(node, port)| PairingSide::new(node, port).to_pair_end());
        let forth = self.pairs.get(&(rail.clone(), one.clone(), other.clone()));
        let back = self.pairs.get(&(rail, other, one));
        forth.into_iter().chain(back).map(|pair| pair.at.0).max()
    }

    /// Whether a measurement runs at the port's leaf: there is one token for each, and one for all unknown leaves.
    fn is_leaf_busy(&self, port: &PairingPort) -> bool {
        let mut sides = self.open_pairings.values().filter(|open| open.rail == rail_of_port(port));
        sides.any(|open| open.sides.iter().any(|side| side.port.leaf == port.leaf))
    }

    fn begin_pairing(
        &mut self,
        now: i64,
        sides: [(&SanitizedText, PairingPort); 2],
        tool: PairTool,
    ) -> Option<PairingAssignment> {
        self.last_number += 1;
        let number = self.last_number;
        let rail = rail_of_port(&sides[0].1);
        if let Some(path) = leaf_path(&rail, &sides[0].1, &sides[1].1) {
            self.leaf_paths.insert(path, now);
        }
        for (node, _) in &sides {
            self.free_nodes.get_mut(*node)?.pairing = Some(number);
        }
        let me = sides[0].0.clone();
        let sides = sides.map(|(node, port)| PairingSide::new(node, &port));
        self.open_pairings.insert(number, OpenPairing { rail, sides, tool, began: now, key: None });
        self.pending_assignment(number, &me)
    }

    /// The assignment of a side that has not begun.
    fn pending_assignment(&self, meeting: u64, node: &SanitizedText) -> Option<PairingAssignment> {
        let open = self.open_pairings.get(&meeting)?;
        let rank = open.sides.iter().position(|side| side.node == *node && !side.started)?;
        let (side, peer) = (&open.sides[rank], &open.sides[1 - rank]);
        Some(PairingAssignment {
            meeting,
            rank: rank as u8,
            tool: open.tool,
            device: side.port.device.clone(),
            port: side.port.port.clone(),
            gpu: side.port.gpu,
            peer: peer.node.clone(),
        })
    }

    fn record_outcome(
        &mut self,
        now: i64,
        meeting: u64,
        rank: u8,
        outcome: PairingOutcome,
    ) -> PairingReply {
        let Some(open) = self.open_pairings.get_mut(&meeting) else {
            return over_reply("this pairing has ended");
        };
        let Some(side) = open.sides.get_mut(usize::from(rank)) else {
            return over_reply("a pairing has the ranks 0 and 1");
        };
        let failed = outcome.bytes_per_second.is_none();
        side.outcome = Some(outcome);
        // It is free again once it reports that.
        self.free_nodes.remove(&side.node);
        // After a failure the other side may wait in vain until its deadline; its result is not awaited.
        if failed || open.sides.iter().all(|side| side.outcome.is_some()) {
            self.close_pairing(now, meeting, "the other side failed");
        }
        PairingReply::Noted
    }

    /// Closes a pairing and stores its result; `why` is the failure if no side reports one.
    fn close_pairing(&mut self, now: i64, meeting: u64, why: &str) {
        let Some(open) = self.open_pairings.remove(&meeting) else { return };
        for side in &open.sides {
            if self.free_nodes.get(&side.node).is_some_and(|one| one.pairing == Some(meeting)) {
                self.free_nodes.remove(&side.node);
            }
        }
        let reported: Vec<_> =
            open.sides.iter().filter_map(|side| Some((side, side.outcome.as_ref()?))).collect();
        let failed = reported.iter().find(|(_, outcome)| outcome.bytes_per_second.is_none());
        let failure = match failed {
            Some((side, outcome)) => {
                Some(SanitizedText::new(&format!("{}: {}", side.node, outcome.says)))
            }
            None => (reported.len() < open.sides.len()).then(|| SanitizedText::new(why)),
        };
        let measured = reported.iter().filter_map(|(_, outcome)| outcome.bytes_per_second);
        let carried = measured.fold(f64::INFINITY, f64::min);
        self.ended[0] += 1;
        self.ended[1] += u64::from(failure.is_some());
        let [from, to] = [open.sides[0].to_pair_end(), open.sides[1].to_pair_end()];
        let pair = ProbePair {
            from: from.clone(),
            to: to.clone(),
            at: UnixMs(now),
            tool: open.tool,
            bytes_per_second: (failure.is_none() && carried.is_finite()).then_some(carried),
            ratio: None,
            failure,
        };
        // The reverse direction uses the same cables.
        self.pairs.remove(&(open.rail.clone(), to.clone(), from.clone()));
        self.pairs.insert((open.rail, from, to), pair);
        if self.pairs.len() > MAX_PAIRS
            && let Some(oldest) =
                self.pairs.iter().min_by_key(|(_, pair)| pair.at).map(|(key, _)| key.clone())
        {
            self.pairs.remove(&oldest);
        }
    }
}

/// Whether two ports of different nodes are of one rail.
fn is_same_rail(one: &PairingPort, other: &PairingPort) -> bool {
    match (&one.rail, &other.rail) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.device == other.device && one.port == other.port,
        _ => false,
    }
}

/// The rail of a port: an empty name where unknown.
fn rail_of_port(port: &PairingPort) -> SanitizedText {
    port.rail.clone().unwrap_or_default()
}

/// The path between two leaves that a pair of ports represents, if it crosses leaves.
fn leaf_path(rail: &SanitizedText, one: &PairingPort, other: &PairingPort) -> Option<LeafPathKey> {
    let (one, other) = (one.leaf.clone()?, other.leaf.clone()?);
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    (low != high).then(|| (rail.clone(), low, high))
}

fn over_reply(why: &str) -> PairingReply {
    PairingReply::Over { why: SanitizedText::new(why) }
}
