//! Meetings: brings the probes of two free nodes together, rail by rail and pair by pair, one pair at each leaf.
//!
//! Within a leaf every port is measured with the next one, which shows ports; across leaves one pair of ports stands for
//! its two leaves, another one each time, which shows uplinks. Of all that is possible the longest not measured is next.
//! Pure: words come with the time and with what is known of ports.

use std::collections::BTreeMap;

use gaunt_schema::{
    Safe, UnixMs,
    meeting::{Guest, Invitation, Outcome, PairTool, Reply, Word},
};

use crate::answer::{Pair, PairEnd, ProbeMatrix};

mod matrix;
#[cfg(test)]
mod tests;

/// A node that says nothing for so long is not there any more.
const GONE: i64 = 90_000;

/// How long a meeting may take: contexts on a node of eight GPUs take up to a minute, and the runs less than a second.
const LIFE: i64 = 150_000;

/// How long rank 1 waits before it asks again.
const SOON: u64 = 250;

/// How long a free node waits before it asks again, and how much longer for each other one, up to
/// half a minute.
const WAIT: u64 = 1_000;
const WAIT_EACH: u64 = 10;
const LONGEST_WAIT: u64 = 30_000;

/// The same is not measured again sooner.
const REST: i64 = 600_000;

/// The most nodes that may be free at once.
const MAX_GUESTS: usize = 16_384;

/// The most pairs that are remembered: those of 1,000 nodes with 8 ports in a leaf and across leaves. The oldest goes.
const MAX_PAIRS: usize = 16_384;

/// A port that could be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The RDMA device.
    pub device: Safe,
    /// Its port.
    pub port: Safe,
    /// Its rail; without one, ports of devices with the same name are compared.
    pub rail: Option<Safe>,
    /// Its leaf switch.
    pub leaf: Option<Safe>,
    /// The GPU nearest to it.
    pub gpu: Option<u32>,
}

/// Somebody who is slower than the others of its rail.
#[derive(Clone, Debug, PartialEq)]
pub struct Accused {
    /// A leaf, or one of the ports.
    pub what: What,
    /// The median share of what is usual that its pairs reach.
    pub ratio: f64,
    /// How many pairs say so.
    pub pairs: u32,
}

/// What may be slow by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A port.
    Port(PairEnd),
    /// A leaf, of which the ports are slow with each other.
    Leaf(Safe),
    /// A leaf, of which the ports are slow with those below others.
    Uplink(Safe),
}

/// Who is free, who meets, and what came of it.
#[derive(Debug, Default)]
pub struct Meetings {
    guests: BTreeMap<Safe, Present>,
    open: BTreeMap<u64, Open>,
    pairs: BTreeMap<Key, Pair>,
    /// When the way between two leaves of a rail was last measured.
    ways: BTreeMap<Way, i64>,
    number: u64,
    ended: [u64; 2],
}

/// A rail and two ends.
type Key = (Safe, PairEnd, PairEnd);

/// A rail and two leaves, in order.
type Way = (Safe, Safe, Safe);

/// A free node.
#[derive(Debug)]
struct Present {
    guest: Guest,
    ports: Vec<Port>,
    seen: i64,
    /// The meeting that it is in.
    meeting: Option<u64>,
}

/// A meeting that has not ended.
#[derive(Debug)]
struct Open {
    rail: Safe,
    sides: [Side; 2],
    tool: PairTool,
    began: i64,
    key: Option<Safe>,
}

/// One side of a meeting.
#[derive(Debug)]
struct Side {
    node: Safe,
    port: Port,
    /// Whether it said more than that it is free.
    moved: bool,
    outcome: Option<Outcome>,
}

impl Side {
    fn new(node: &Safe, port: &Port) -> Self {
        Self { node: node.clone(), port: port.clone(), moved: false, outcome: None }
    }

    fn end(&self) -> PairEnd {
        let Port { device, port, leaf, .. } = self.port.clone();
        PairEnd { node: self.node.clone(), device, port, leaf }
    }
}

impl Meetings {
    /// Hears a word, and answers it. `ports` says what is known of a node's ports.
    pub fn hear(&mut self, now: UnixMs, word: Word, ports: impl Fn(&Safe) -> Vec<Port>) -> Reply {
        let now = now.0;
        self.tidy(now);
        match word {
            Word::Free(guest) => self.free(now, guest, ports),
            Word::Ready { meeting, key } => self.at(meeting, |open| {
                open.sides[0].moved = true;
                open.key = Some(key);
                Reply::Noted
            }),
            Word::Coming { meeting } => self.at(meeting, |open| {
                open.sides[1].moved = true;
                let key = open.key.clone();
                key.map_or(Reply::Wait { millis: SOON }, |key| Reply::Key { key })
            }),
            Word::Ended { meeting, rank, outcome } => self.end(now, meeting, rank, outcome),
        }
    }

    /// What was measured so far.
    pub fn matrix(&self, now: UnixMs) -> ProbeMatrix {
        let free = self.guests.values().filter(|present| now.0 < present.seen + GONE);
        ProbeMatrix {
            at: now,
            free: free.count() as u32,
            measuring: self.open.len() as u32,
            ended: self.ended,
            rails: matrix::rails(&self.pairs),
        }
    }

    /// Who is slow by what was measured since an instant. What failed says nothing of how fast anything is.
    pub fn accused(&self, since: UnixMs) -> Vec<Accused> {
        let recent = self.pairs.iter().filter(|(_, pair)| pair.at >= since);
        matrix::accused(&recent.map(|(key, pair)| (key.clone(), pair.clone())).collect())
    }

    /// How many meetings ended: nobody else is accused until that changes.
    pub fn ended(&self) -> u64 {
        self.ended[0]
    }

    fn at(&mut self, meeting: u64, does: impl FnOnce(&mut Open) -> Reply) -> Reply {
        match self.open.get_mut(&meeting) {
            Some(open) => does(open),
            None => over("this meeting has ended"),
        }
    }

    /// Forgets who is gone, and ends what takes too long.
    fn tidy(&mut self, now: i64) {
        let late: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, open)| now >= open.began + LIFE)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.close(now, number, "not done in time");
        }
        self.guests.retain(|_, one| one.meeting.is_some() || now < one.seen + GONE);
    }

    fn free(&mut self, now: i64, guest: Guest, ports: impl Fn(&Safe) -> Vec<Port>) -> Reply {
        let node = guest.node.clone();
        if let Some(number) = self.guests.get(&node).and_then(|present| present.meeting) {
            if let Some(again) = self.invitation(number, &node) {
                return Reply::Meet(again);
            }
            // It was measuring and does not know of it any more: it was started again.
            self.close(now, number, "one side began anew");
        }
        if self.guests.len() >= MAX_GUESTS && !self.guests.contains_key(&node) {
            return Reply::Wait { millis: LONGEST_WAIT };
        }
        let ports = ports(&node);
        if ports.is_empty() {
            self.guests.remove(&node);
            return over(&format!(
                "no RDMA port of {node} is known here: name it with --node as `gaunt snapshot --ask nodes` does"
            ));
        }
        self.guests.insert(node.clone(), Present { guest, ports, seen: now, meeting: None });
        let met = self.choose(now, &node).and_then(|(mine, other, theirs, tool)| {
            self.begin(now, [(&node, mine), (&other, theirs)], tool)
        });
        let wait = (WAIT + WAIT_EACH * self.guests.len() as u64).min(LONGEST_WAIT);
        met.map_or(Reply::Wait { millis: wait }, Reply::Meet)
    }

    /// What a node that waits is best measured with: what was longest not measured.
    fn choose(&self, now: i64, node: &Safe) -> Option<(Port, Safe, Port, PairTool)> {
        let me = self.guests.get(node)?;
        let mut best: Option<(i64, Port, &Safe, Port, PairTool)> = None;
        for mine in &me.ports {
            // The next one in the order of names, round and round: the ring of a leaf.
            let (before, after): (Vec<_>, Vec<_>) =
                self.guests.iter().partition(|(name, _)| *name < node);
            let mut leaf_done = false;
            for (name, other) in after.into_iter().chain(before) {
                let tool = me.guest.tools.iter().find(|tool| other.guest.tools.contains(tool));
                let waits = other.meeting.is_none() && name != node && now < other.seen + GONE;
                let (Some(tool), true) = (tool, waits) else { continue };
                let Some(theirs) = other.ports.iter().find(|port| mates(mine, port)) else {
                    continue;
                };
                let within = mine.leaf == theirs.leaf;
                if (within && leaf_done) || self.is_taken(mine) || self.is_taken(theirs) {
                    continue;
                }
                leaf_done |= within;
                let last = self.last([(node, mine), (name, theirs)]);
                let rested = last.is_none_or(|last| now >= last + REST);
                let last = last.unwrap_or(0);
                if rested && best.as_ref().is_none_or(|(known, ..)| last < *known) {
                    best = Some((last, mine.clone(), name, theirs.clone(), *tool));
                }
            }
        }
        best.map(|(_, mine, name, theirs, tool)| (mine, name.clone(), theirs, tool))
    }

    /// When this pair, or another one that stands for the same way, was last measured.
    fn last(&self, sides: [(&Safe, &Port); 2]) -> Option<i64> {
        let rail = rail(sides[0].1);
        if let Some(way) = way(&rail, sides[0].1, sides[1].1) {
            return self.ways.get(&way).copied();
        }
        let [one, other] = sides.map(|(node, port)| Side::new(node, port).end());
        let forth = self.pairs.get(&(rail.clone(), one.clone(), other.clone()));
        let back = self.pairs.get(&(rail, other, one));
        forth.into_iter().chain(back).map(|pair| pair.at.0).max()
    }

    /// Whether somebody measures at the port's leaf: there is one token for each, and one for all of unknown leaf.
    fn is_taken(&self, port: &Port) -> bool {
        let mut sides = self.open.values().filter(|open| open.rail == rail(port));
        sides.any(|open| open.sides.iter().any(|side| side.port.leaf == port.leaf))
    }

    fn begin(&mut self, now: i64, sides: [(&Safe, Port); 2], tool: PairTool) -> Option<Invitation> {
        self.number += 1;
        let number = self.number;
        let rail = rail(&sides[0].1);
        if let Some(way) = way(&rail, &sides[0].1, &sides[1].1) {
            self.ways.insert(way, now);
        }
        for (node, _) in &sides {
            self.guests.get_mut(*node)?.meeting = Some(number);
        }
        let me = sides[0].0.clone();
        let sides = sides.map(|(node, port)| Side::new(node, &port));
        self.open.insert(number, Open { rail, sides, tool, began: now, key: None });
        self.invitation(number, &me)
    }

    /// What a side that has not begun is to do.
    fn invitation(&self, meeting: u64, node: &Safe) -> Option<Invitation> {
        let open = self.open.get(&meeting)?;
        let rank = open.sides.iter().position(|side| side.node == *node && !side.moved)?;
        let (side, peer) = (&open.sides[rank], &open.sides[1 - rank]);
        Some(Invitation {
            meeting,
            rank: rank as u8,
            tool: open.tool,
            device: side.port.device.clone(),
            port: side.port.port.clone(),
            gpu: side.port.gpu,
            peer: peer.node.clone(),
        })
    }

    fn end(&mut self, now: i64, meeting: u64, rank: u8, outcome: Outcome) -> Reply {
        let Some(open) = self.open.get_mut(&meeting) else {
            return over("this meeting has ended");
        };
        let Some(side) = open.sides.get_mut(usize::from(rank)) else {
            return over("a meeting has the ranks 0 and 1");
        };
        let failed = outcome.bytes_per_second.is_none();
        side.outcome = Some(outcome);
        // It is free again when it says so.
        self.guests.remove(&side.node);
        // The other side of a failure may wait in vain until its deadline; nobody need wait for what it says.
        if failed || open.sides.iter().all(|side| side.outcome.is_some()) {
            self.close(now, meeting, "the other side failed");
        }
        Reply::Noted
    }

    /// Ends a meeting and remembers what came of it; `why` it failed if no side says so.
    fn close(&mut self, now: i64, meeting: u64, why: &str) {
        let Some(open) = self.open.remove(&meeting) else { return };
        for side in &open.sides {
            if self.guests.get(&side.node).is_some_and(|one| one.meeting == Some(meeting)) {
                self.guests.remove(&side.node);
            }
        }
        let told: Vec<_> =
            open.sides.iter().filter_map(|side| Some((side, side.outcome.as_ref()?))).collect();
        let failed = told.iter().find(|(_, outcome)| outcome.bytes_per_second.is_none());
        let failure = match failed {
            Some((side, outcome)) => Some(Safe::new(&format!("{}: {}", side.node, outcome.says))),
            None => (told.len() < open.sides.len()).then(|| Safe::new(why)),
        };
        let measured = told.iter().filter_map(|(_, outcome)| outcome.bytes_per_second);
        let carried = measured.fold(f64::INFINITY, f64::min);
        self.ended[0] += 1;
        self.ended[1] += u64::from(failure.is_some());
        let [from, to] = [open.sides[0].end(), open.sides[1].end()];
        let pair = Pair {
            from: from.clone(),
            to: to.clone(),
            at: UnixMs(now),
            tool: open.tool,
            bytes_per_second: (failure.is_none() && carried.is_finite()).then_some(carried),
            ratio: None,
            failure,
        };
        // The way back is the same wires.
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
fn mates(one: &Port, other: &Port) -> bool {
    match (&one.rail, &other.rail) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.device == other.device && one.port == other.port,
        _ => false,
    }
}

/// The rail that a port is measured with: an empty name where it is not known.
fn rail(port: &Port) -> Safe {
    port.rail.clone().unwrap_or_default()
}

/// The way between two leaves that a pair of ports stands for, if it crosses one.
fn way(rail: &Safe, one: &Port, other: &Port) -> Option<Way> {
    let (one, other) = (one.leaf.clone()?, other.leaf.clone()?);
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    (low != high).then(|| (rail.clone(), low, high))
}

fn over(why: &str) -> Reply {
    Reply::Over { why: Safe::new(why) }
}
