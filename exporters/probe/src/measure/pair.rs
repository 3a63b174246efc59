//! One GPU with one of another node, by NCCL: both sides do the same runs, and each checks what it received.

use gaunt_schema::Safe;

use super::{
    Bench,
    lane::{self, Lane},
};
use crate::{
    collective::Collective,
    ending::{Ending, Kind},
    idle::Look,
    nccl::{Key, Nccl, NcclError, Part},
    order::{Limits, Measured, Tool, Way, group, spread},
    plan::Claim,
};

/// How many ranks a pair has.
const RANKS: usize = 2;

/// The fewest elements that both sides sum before a run, so that neither is timed while it waits for the other.
const MEET: usize = 8;

impl Bench<'_> {
    /// Measures this side's part of a sum of two.
    pub(super) fn pair(&mut self, rank: usize, look: Option<Look>) -> Result<(), Ending> {
        let (element, size) = (self.order.element, self.order.element.bytes());
        let elements = self.order.bytes / size;
        let all = self.order.warm_up + self.order.runs;
        self.allow(elements, all as u64)?;
        let lane = Lane::take(&mut self.gpus[0], 0, (elements * size, elements * size, 0), (1, 1));
        let lane = self.on(0, lane)?;
        let nccl = self.meet(rank)?;
        self.begin(look)?;
        let claim = Claim { rank, at: 0, elements, base: 0, first: 0, ranks: RANKS };
        let part = Part { send: lane.send, receive: lane.receive, stream: lane.streams[0] };
        let mut seconds = Vec::new();
        // Both sides must make the same runs: what bounds them was checked before the first.
        for round in 0..all {
            self.hear.at(&format!("run {} of {all} with the other node", round + 1));
            let gpu = &self.gpus[0];
            let prepared = lane.prepare(gpu, element, (rank, elements, 0), round as u32);
            self.on(0, prepared)?;
            said(nccl.all_reduce(0, part, MEET, element))?;
            self.on(0, gpu.record(lane.begin, part.stream))?;
            said(nccl.all_reduce(0, part, elements, element))?;
            self.on(0, gpu.record(lane.end, part.stream))?;
            self.on(0, lane.check(gpu, element, [&claim].into_iter(), round as u32))?;
            self.finish(&[(0, lane.over)])?;
            self.outcome.cost.traffic_bytes += self.order.bytes as u64;
            let gpu = &self.gpus[0];
            let found = lane.found(gpu);
            if found.wrong > 0 || found.beyond {
                let why = format!(
                    "{} elements of the sum are wrong, the first is {}",
                    found.wrong, found.first
                );
                return Err(Ending::new(Kind::WrongData, why));
            }
            if round >= self.order.warm_up {
                seconds.push(self.on(0, gpu.seconds(lane.begin, lane.end))?);
            }
        }
        self.tell(seconds, (elements * size) as u64)
    }

    /// Whether the runs stay within the limits, all of them: no side may stop before the other.
    fn allow(&mut self, elements: usize, runs: u64) -> Result<(), Ending> {
        if elements < MEET || runs == 0 {
            let why =
                format!("a pair needs at least {MEET} elements and one run: use more --bytes");
            return Err(Ending::new(Kind::OverLimit, why));
        }
        let (bytes, limits) = (self.order.bytes as u64, &self.order.limits);
        if bytes.saturating_mul(runs) > limits.traffic_bytes {
            let why = format!(
                "{runs} runs move {} bytes and the limit is {}: use less --bytes, or raise --traffic",
                bytes.saturating_mul(runs),
                limits.traffic_bytes
            );
            return Err(Ending::new(Kind::OverLimit, why));
        }
        let memory = self.order.bytes + lane::guarded(self.order.bytes);
        limits.allow_memory(&[memory])?;
        self.outcome.cost.memory_bytes = memory as u64;
        Limits::fits(&self.gpus[0], memory)
    }

    /// Comes together with the other side. It waits for it: the parent's deadline bounds that.
    fn meet(&mut self, rank: usize) -> Result<Nccl, Ending> {
        let mut nccl = said(Nccl::open(self.order.libraries.nccl.as_deref()))?;
        let given = self.order.meeting.as_ref().and_then(|meeting| meeting.key.as_deref());
        let key = match given {
            None => {
                let key = said(nccl.invite())?;
                self.hear.key(&key.text());
                key
            }
            Some(text) => Key::of(text).ok_or_else(|| {
                Ending::new(Kind::Failed, "the key of the meeting is no unique id of NCCL")
            })?,
        };
        self.hear.at("the other node, which has to come");
        self.on(0, self.gpus[0].enter())?;
        said(nccl.meet(key, rank, RANKS))?;
        if let Ok(version) = nccl.version() {
            self.note(format!(
                "NCCL {version} took memory of its own, which the limit does not bound"
            ));
        }
        Ok(nccl)
    }

    fn tell(&mut self, seconds: Vec<f64>, bytes: u64) -> Result<(), Ending> {
        let runs = seconds.len();
        let seconds = spread(seconds)
            .ok_or_else(|| Ending::new(Kind::OverLimit, "no run counts: raise --runs"))?;
        let algbw = bytes as f64 / seconds[1];
        self.outcome.measured.push(Measured {
            collective: Collective::AllReduce.as_str().into(),
            between: Safe::new(&format!("{}>peer", group(&self.indices()))),
            tool: Tool::Nccl,
            way: Way::Chosen,
            ranks: RANKS,
            virtual_ranks: false,
            bytes,
            element: self.order.element,
            seconds,
            runs,
            algbw,
            busbw: Collective::AllReduce.factor(RANKS).map(|factor| algbw * factor),
            reference: None,
            wrong: 0,
            wrong_at: None,
        });
        Ok(())
    }
}

fn said<T>(answer: Result<T, NcclError>) -> Result<T, Ending> {
    answer.map_err(|error| Ending::new(Kind::Failed, error.to_string()))
}
