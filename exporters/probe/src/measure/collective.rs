//! A collective on the GPUs: all of it queued behind a gate, so that what is timed is wires and not the host.

use gaunt_schema::Safe;

use super::{
    Bench,
    lane::{self, Lane},
};
use crate::{
    collective::Collective,
    cuda::{
        CudaError,
        door::{Argument, Handle},
    },
    ending::{Ending, Kind},
    idle::Look,
    nccl::Nccl,
    order::{Limits, Measured, Tool, Way, group, spread},
    plan::{MAX_RANKS, Move, Plan, Side},
};

mod beside;

/// How long a gate holds at most: queueing 2,000 moves takes 20 ms, and nothing may wait for a host that died.
const GATE_NANOS: u64 = 200_000_000;

/// Bytes of a gate: whether it is open, and whether it gave up.
const GATE: usize = 8;

/// A collective with all that it needs.
struct Ring {
    plan: Plan,
    lanes: Vec<Lane>,
    /// For each move, the event that says that it is done.
    done: Vec<Handle>,
    /// For each GPU, the stream that waits at the gate, and the event behind it.
    gates: Vec<(Handle, Handle)>,
    gate: u64,
    /// For each pair of ranks, whether the first one's kernels reach the second one's memory.
    reach: Vec<Vec<bool>>,
    share: u32,
}

/// Whose collective is done.
enum By<'a> {
    /// Our kernels.
    Ours,
    /// NCCL.
    Nccl(&'a Nccl, Collective),
}

/// What all runs together brought.
#[derive(Default)]
struct Tally {
    seconds: Vec<f64>,
    wrong: u64,
    wrong_at: Option<String>,
    late: usize,
}

impl Bench<'_> {
    /// Measures a collective.
    pub(super) fn collective(
        &mut self,
        collective: Collective,
        ranks: Option<usize>,
        look: Option<Look>,
    ) -> Result<(), Ending> {
        let ranks = ranks.unwrap_or(self.gpus.len());
        if !(1..=MAX_RANKS).contains(&ranks) {
            let why =
                format!("{ranks} ranks are not between 1 and {MAX_RANKS}: see --ranks and --gpus");
            return Err(Ending::new(Kind::OverLimit, why));
        }
        let element = self.order.element;
        let elements = self.order.bytes / element.bytes();
        if elements == 0 {
            return Err(Ending::new(
                Kind::OverLimit,
                "the message holds no element: use more --bytes",
            ));
        }
        let plan = Plan::new(collective, ranks, elements, self.order.channels);
        let reach = self.reach(ranks)?;
        let ring = self.set_up(plan, reach)?;
        let nccl = self.nccl(collective, &ring)?;
        self.begin(look)?;
        let tally = self.runs(collective, &ring, &By::Ours)?;
        self.conclude(collective, &ring, &By::Ours, tally)?;
        if let Some(nccl) = &nccl {
            let by = By::Nccl(nccl, collective);
            let tally = self.runs(collective, &ring, &by)?;
            self.conclude(collective, &ring, &by, tally)?;
        }
        Ok(())
    }

    /// Finds who reaches whom. GPUs beyond the number of ranks are not touched.
    fn reach(&mut self, ranks: usize) -> Result<Vec<Vec<bool>>, Ending> {
        self.gpus.truncate(ranks);
        let count = self.gpus.len();
        let mut reach = vec![vec![true; count]; count];
        for (one, row) in reach.iter_mut().enumerate() {
            for (other, reaches) in row.iter_mut().enumerate() {
                *reaches = self.on(one, self.gpus[one].reach(&self.gpus[other]))?;
                if !*reaches && self.order.require_peer {
                    let (one, other) = (self.gpus[one].index, self.gpus[other].index);
                    let why = format!(
                        "GPU {one} cannot access the memory of GPU {other}: see `nvidia-smi topo -p2p r`"
                    );
                    return Err(Ending::new(Kind::NoPeerAccess, why));
                }
            }
        }
        Ok(reach)
    }

    /// Takes memory, streams and events, after a look whether they may be had.
    fn set_up(&mut self, plan: Plan, reach: Vec<Vec<bool>>) -> Result<Ring, Ending> {
        let (count, size) = (self.gpus.len(), self.order.element.bytes());
        let staged = reach.iter().flatten().any(|reaches| !reaches);
        let bounce = if staged { plan.largest_move() * size } else { 0 };
        let mut memory = vec![0; count];
        for (rank, filling) in plan.fillings.iter().enumerate() {
            let buffers = filling.elements * size + lane::guarded(plan.room * size);
            memory[rank % count] += buffers + bounce * plan.channels;
        }
        self.order.limits.allow(&plan, &memory, self.order.element)?;
        self.outcome.cost.memory_bytes = memory.iter().copied().max().unwrap_or(0) as u64;
        for (gpu, needed) in self.gpus.iter().zip(&memory) {
            Limits::fits(gpu, *needed)?;
        }
        let sharing = plan.ranks.div_ceil(count) as u32;
        let mut lanes = Vec::new();
        for (rank, filling) in plan.fillings.iter().enumerate() {
            let place = rank % count;
            let sizes = (filling.elements * size, plan.room * size, bounce);
            let lane = Lane::take(&mut self.gpus[place], place, sizes, (plan.channels, sharing));
            lanes.push(self.on(place, lane)?);
        }
        let mut done = Vec::new();
        for one in &plan.moves {
            let place = one.to.rank % count;
            let event = self.gpus[place].event(false);
            done.push(self.on(place, event)?);
        }
        let mut gates = Vec::new();
        for place in 0..count {
            let gpu = &mut self.gpus[place];
            let pair = gpu.stream().and_then(|stream| Ok((stream, gpu.event(false)?)));
            gates.push(self.on(place, pair)?);
        }
        let gate = self.gpus[0].allocate_host(GATE);
        let gate = self.on(0, gate)?;
        // All streams of all ranks on a GPU may run at once, and together keep to the limit.
        let share = plan.channels as u32 * sharing;
        Ok(Ring { plan, lanes, done, gates, gate, reach, share })
    }

    fn runs(&mut self, collective: Collective, ring: &Ring, by: &By<'_>) -> Result<Tally, Ending> {
        let mut tally = Tally::default();
        let crossing = (ring.plan.crossing(self.gpus.len()) * self.order.element.bytes()) as u64;
        let all = self.order.warm_up + self.order.runs;
        for round in 0..all {
            if !self.may_go_on(crossing)? {
                let made = tally.seconds.len();
                let why = format!(
                    "{made} of {} runs: the limit of busy time or traffic was reached",
                    self.order.runs
                );
                self.note(why);
                break;
            }
            // What one of them left must not do for the other.
            let (whose, first) = if by.way().is_some() { ("NCCL's ", all) } else { ("", 0) };
            self.hear.at(&format!("{whose}{}, run {} of {all}", collective.as_str(), round + 1));
            let queued = self.queue(ring, by, (first + round) as u32, true);
            // Whatever happened, nothing may be left waiting.
            self.gpus[0].poke(ring.gate, 0, 1);
            queued?;
            let over: Vec<_> = ring.lanes.iter().map(|lane| (lane.gpu, lane.over)).collect();
            self.finish(&over)?;
            self.outcome.cost.traffic_bytes += crossing;
            self.take(ring, round, &mut tally)?;
        }
        Ok(tally)
    }

    /// Queues one run behind a gate, which is closed if it is to `hold`.
    fn queue(&self, ring: &Ring, by: &By<'_>, round: u32, hold: bool) -> Result<(), Ending> {
        self.gpus[0].poke(ring.gate, 0, u32::from(!hold));
        self.gpus[0].poke(ring.gate, 4, 0);
        let element = self.order.element;
        for (rank, lane) in ring.lanes.iter().enumerate() {
            let filling = ring.plan.fillings[rank];
            let what = (rank, filling.elements, filling.base);
            self.on(lane.gpu, lane.prepare(&self.gpus[lane.gpu], element, what, round))?;
        }
        for (place, (stream, opened)) in ring.gates.iter().enumerate() {
            let gpu = &self.gpus[place];
            let wait = |lane: &Lane| gpu.wait(*stream, lane.ready);
            let waited = ring.lanes.iter().try_for_each(wait);
            let closed = waited.and_then(|()| gpu.hold(ring.gate, GATE_NANOS, *stream));
            self.on(place, closed.and_then(|()| gpu.record(*opened, *stream)))?;
        }
        for lane in &ring.lanes {
            let (gpu, (_, opened)) = (&self.gpus[lane.gpu], ring.gates[lane.gpu]);
            let mut streams = lane.streams.iter();
            let waited = streams.try_for_each(|stream| gpu.wait(*stream, opened));
            self.on(lane.gpu, waited.and_then(|()| gpu.record(lane.begin, lane.streams[0])))?;
        }
        match by {
            By::Nccl(nccl, collective) => self.start_nccl(nccl, *collective, ring)?,
            By::Ours => {
                for (number, one) in ring.plan.moves.iter().enumerate() {
                    self.on(ring.lanes[one.to.rank].gpu, self.start(ring, number, one))?;
                }
            }
        }
        for (rank, lane) in ring.lanes.iter().enumerate() {
            self.on(lane.gpu, self.close(ring, rank, lane, round))?;
        }
        Ok(())
    }

    /// Starts one move, when those are done that it must wait for.
    fn start(&self, ring: &Ring, number: usize, one: &Move) -> Result<(), CudaError> {
        let (mine, theirs) = (&ring.lanes[one.to.rank], &ring.lanes[one.from.rank]);
        let (gpu, size) = (&self.gpus[mine.gpu], self.order.element.bytes());
        let stream = mine.streams[one.channel];
        for earlier in &ring.plan.waits[number] {
            gpu.wait(stream, ring.done[*earlier])?;
        }
        let bytes = one.elements * size;
        let buffer = match one.from.side {
            Side::Send => theirs.send,
            Side::Receive => theirs.receive,
        };
        let mut from = buffer + (one.from.at * size) as u64;
        let to = mine.receive + (one.to.at * size) as u64;
        if !ring.reach[mine.gpu][theirs.gpu] {
            // The driver goes through the host; a sum needs it near first.
            let near = if one.plus.is_some() { mine.bounce[one.channel] } else { to };
            gpu.copy_from(near, (&self.gpus[theirs.gpu], from), bytes, stream)?;
            from = near;
        }
        if let Some(plus) = one.plus {
            let arguments = [
                Argument::Long(to),
                Argument::Long(mine.send + (plus * size) as u64),
                Argument::Long(from),
                Argument::Long(one.elements as u64),
            ];
            let work = (bytes.div_ceil(16), ring.share);
            gpu.launch(self.order.element.arithmetic().add, work, stream, &arguments)?;
        } else if from != to {
            Lane::go(gpu, (to, from, bytes), ring.share, stream)?;
        }
        gpu.record(ring.done[number], stream)
    }

    /// Ends a rank's part: its streams come together, the time is taken, the data checked.
    fn close(&self, ring: &Ring, rank: usize, lane: &Lane, round: u32) -> Result<(), CudaError> {
        let gpu = &self.gpus[lane.gpu];
        for channel in 1..lane.streams.len() {
            let own = |one: &Move| one.to.rank == rank && one.channel == channel;
            if let Some(last) = ring.plan.moves.iter().rposition(own) {
                gpu.wait(lane.streams[0], ring.done[last])?;
            }
        }
        gpu.record(lane.end, lane.streams[0])?;
        let claims = ring.plan.claims.iter().filter(|claim| claim.rank == rank);
        lane.check(gpu, self.order.element, claims, round)
    }

    /// Takes what one run brought.
    fn take(&self, ring: &Ring, round: usize, tally: &mut Tally) -> Result<(), Ending> {
        let mut slowest: f64 = 0.0;
        for (rank, lane) in ring.lanes.iter().enumerate() {
            let gpu = &self.gpus[lane.gpu];
            let seconds = self.on(lane.gpu, gpu.seconds(lane.begin, lane.end))?;
            slowest = slowest.max(seconds);
            let found = lane.found(gpu);
            if (found.wrong > 0 || found.beyond) && tally.wrong_at.is_none() {
                let what = if found.wrong > 0 {
                    format!("element {}", found.first)
                } else {
                    "behind the end of the buffer".to_owned()
                };
                tally.wrong_at = Some(format!("rank {rank} on GPU {}, {what}", gpu.index));
            }
            tally.wrong += found.wrong + u64::from(found.beyond);
        }
        if self.gpus[0].peek(ring.gate, 4) != Some(0) {
            // The host was so late that the gate gave up: the data counts, the time does not.
            tally.late += 1;
        } else if round >= self.order.warm_up {
            tally.seconds.push(slowest);
        }
        Ok(())
    }

    fn conclude(
        &mut self,
        collective: Collective,
        ring: &Ring,
        by: &By<'_>,
        tally: Tally,
    ) -> Result<(), Ending> {
        if tally.late > 0 {
            let late = tally.late;
            self.note(format!(
                "{late} runs were not timed: this host was too busy to queue them in 200 ms"
            ));
        }
        let runs = tally.seconds.len();
        let seconds = spread(tally.seconds).ok_or_else(|| {
            Ending::new(
                Kind::OverLimit,
                "no run was made within the limits: raise --busy or --traffic, or use less --bytes",
            )
        })?;
        let size = self.order.element.bytes();
        let (ranks, bytes) = (ring.plan.ranks, (self.order.bytes / size * size) as u64);
        let algbw = bytes as f64 / seconds[1];
        let virtual_ranks = ranks > self.gpus.len();
        if virtual_ranks {
            self.note(
                "several ranks share a GPU: this proves the algorithm and says nothing of links",
            );
        }
        let way = by.way().unwrap_or_else(|| self.way(ring));
        if way == Way::Staged || way == Way::Mixed {
            self.note("GPUs that cannot reach each other's memory sent it through the host's");
        }
        let wrong = tally.wrong;
        let wrong_at = tally.wrong_at;
        self.outcome.measured.push(Measured {
            collective: collective.as_str().into(),
            between: group(&self.indices()).as_str().into(),
            tool: if way == Way::Chosen { Tool::Nccl } else { Tool::Gaunt },
            way,
            ranks,
            virtual_ranks,
            bytes,
            element: self.order.element,
            seconds,
            runs,
            algbw,
            busbw: collective.factor(ranks).map(|factor| algbw * factor),
            reference: None,
            wrong,
            wrong_at: wrong_at.as_deref().map(Safe::new),
        });
        match wrong_at {
            None => Ok(()),
            Some(at) => {
                let why = format!(
                    "{wrong} elements of {} are wrong, the first at {at}",
                    collective.as_str()
                );
                Err(Ending::new(Kind::WrongData, why))
            }
        }
    }

    /// The way that the data took.
    fn way(&self, ring: &Ring) -> Way {
        let count = self.gpus.len();
        let pairs = ring.plan.moves.iter().map(|one| (one.to.rank % count, one.from.rank % count));
        let far: Vec<bool> =
            pairs.filter(|(to, from)| to != from).map(|(to, from)| ring.reach[to][from]).collect();
        match (far.iter().any(|reaches| *reaches), far.iter().any(|reaches| !reaches)) {
            (false, false) => Way::Local,
            (true, false) => Way::Peer,
            (false, true) => Way::Staged,
            (true, true) => Way::Mixed,
        }
    }
}
