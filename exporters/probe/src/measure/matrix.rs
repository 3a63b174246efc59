//! The matrix: every pair of GPUs in both directions, every GPU with itself and with the host's pinned memory.

use gaunt_schema::Safe;

use super::{
    Bench, POISON,
    lane::{self, Found, Lane},
};
use crate::{
    cuda::{CudaError, kernel::Element},
    ending::{Ending, Kind},
    idle::Look,
    order::{Limits, Measured, Tool, Way, spread},
    pattern,
    plan::Claim,
};

/// One way that bytes take.
#[derive(Clone, Copy, Debug)]
struct Route {
    what: What,
    /// The GPU that has the bytes, and the one that gets them, by position.
    from: usize,
    to: usize,
}

/// Who moves the bytes of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A kernel of the GPU that gets them.
    Read,
    /// A kernel of the GPU that has them.
    Write,
    /// The driver, through the host.
    Staged,
    /// A kernel within one GPU.
    Copy,
    /// The driver within one GPU: what the kernel's copy is compared with.
    DriverCopy,
    /// The driver, from pinned memory.
    ToGpu,
    /// The driver, into pinned memory.
    FromGpu,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read | Self::Staged => "read",
            Self::Write => "write",
            Self::Copy | Self::DriverCopy => "copy",
            Self::ToGpu => "to_gpu",
            Self::FromGpu => "from_gpu",
        }
    }

    fn tool(self) -> Tool {
        match self {
            Self::Read | Self::Write | Self::Copy => Tool::Gaunt,
            _ => Tool::Driver,
        }
    }

    fn way(self) -> Way {
        match self {
            Self::Read | Self::Write => Way::Peer,
            Self::Staged => Way::Staged,
            Self::Copy | Self::DriverCopy => Way::Local,
            Self::ToGpu | Self::FromGpu => Way::Host,
        }
    }
}

/// What the matrix works with.
struct Table {
    lanes: Vec<Lane>,
    /// Pinned memory of the message's size.
    host: u64,
    elements: usize,
    bytes: usize,
}

impl Bench<'_> {
    /// Measures all routes.
    pub(super) fn matrix(&mut self, look: Option<Look>) -> Result<(), Ending> {
        let size = self.order.element.bytes();
        // Pinned memory is written in words.
        let elements = self.order.bytes / 4 * 4 / size;
        if elements == 0 {
            return Err(Ending::new(
                Kind::OverLimit,
                "the message holds no word: use more --bytes",
            ));
        }
        let bytes = elements * size;
        let needed = bytes + lane::guarded(bytes);
        self.order.limits.allow_memory(&[needed])?;
        self.outcome.cost.memory_bytes = needed as u64;
        let routes = self.routes()?;
        let mut lanes = Vec::new();
        for place in 0..self.gpus.len() {
            Limits::fits(&self.gpus[place], needed)?;
            let lane = Lane::take(&mut self.gpus[place], place, (bytes, bytes, 0), (1, 1));
            lanes.push(self.on(place, lane)?);
        }
        let host = self.gpus[0].allocate_host(bytes);
        let host = self.on(0, host)?;
        self.begin(look)?;
        let table = Table { lanes, host, elements, bytes };
        let mut wrong = None;
        for (number, route) in routes.iter().enumerate() {
            if let Some(at) = self.route(&table, *route, (number, routes.len()))? {
                wrong.get_or_insert(at);
            }
        }
        let left = routes.len() - self.outcome.measured.len();
        if left > 0 {
            self.note(format!("{left} of {} ways were not measured: the limit of busy time or traffic was reached", routes.len()));
        }
        match wrong {
            Some(at) => Err(Ending::new(Kind::WrongData, format!("wrong data: {at}"))),
            None if self.outcome.measured.is_empty() => Err(Ending::new(
                Kind::OverLimit,
                "nothing was measured within the limits: raise --traffic or use less --bytes",
            )),
            None => Ok(()),
        }
    }

    /// Everything that is measured, pairs first.
    fn routes(&self) -> Result<Vec<Route>, Ending> {
        let count = self.gpus.len();
        let mut routes = Vec::new();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let mut add = |what| routes.push(Route { what, from, to });
                let reads = self.on(to, self.gpus[to].reach(&self.gpus[from]))?;
                let writes = self.on(from, self.gpus[from].reach(&self.gpus[to]))?;
                if !(reads && writes) && self.order.require_peer {
                    let (one, other) = (self.gpus[to].index, self.gpus[from].index);
                    let why = format!(
                        "GPU {one} cannot access the memory of GPU {other}: see `nvidia-smi topo -p2p r`"
                    );
                    return Err(Ending::new(Kind::NoPeerAccess, why));
                }
                add(if reads { What::Read } else { What::Staged });
                if writes {
                    add(What::Write);
                }
            }
        }
        let alone = [What::Copy, What::DriverCopy, What::ToGpu, What::FromGpu];
        for gpu in 0..count {
            routes.extend(alone.map(|what| Route { what, from: gpu, to: gpu }));
        }
        Ok(routes)
    }

    /// Measures one route; where it went wrong, if it did.
    fn route(
        &mut self,
        table: &Table,
        route: Route,
        (number, of): (usize, usize),
    ) -> Result<Option<Safe>, Ending> {
        let between = self.between(route);
        self.hear.at(&format!("{} {between}, way {} of {of}", route.what.as_str(), number + 1));
        let (mut seconds, mut all) = (Vec::new(), Found::default());
        // Bytes within a GPU cross no wire.
        let crossing = if route.what.way() == Way::Local { 0 } else { table.bytes as u64 };
        for run in 0..self.order.warm_up + self.order.runs {
            if !self.may_go_on(crossing)? {
                break;
            }
            let round = (number * 64 + run) as u32;
            let (took, found) = self.run(table, route, round)?;
            self.outcome.cost.traffic_bytes += crossing;
            if all.wrong == 0 {
                all.first = found.first;
            }
            all.wrong += found.wrong + u64::from(found.beyond);
            if run >= self.order.warm_up {
                seconds.push(took);
            }
        }
        let runs = seconds.len();
        let Some(seconds) = spread(seconds) else { return Ok(None) };
        let algbw = table.bytes as f64 / seconds[1];
        let at = format!(
            "{} {between}, {} elements, the first at {}",
            route.what.as_str(),
            all.wrong,
            all.first
        );
        let wrong_at = (all.wrong > 0).then(|| Safe::new(&at));
        let local = route.what.way() == Way::Local;
        self.outcome.measured.push(Measured {
            collective: route.what.as_str().into(),
            between: between.as_str().into(),
            tool: route.what.tool(),
            way: route.what.way(),
            ranks: if route.from == route.to { 1 } else { 2 },
            virtual_ranks: false,
            bytes: table.bytes as u64,
            element: self.order.element,
            seconds,
            runs,
            algbw,
            busbw: (!local).then_some(algbw),
            reference: None,
            wrong: all.wrong,
            wrong_at: wrong_at.clone(),
        });
        Ok(wrong_at)
    }

    /// Between whom, as data flows.
    fn between(&self, route: Route) -> String {
        let (from, to) = (self.gpus[route.from].index, self.gpus[route.to].index);
        match route.what {
            What::Copy | What::DriverCopy => format!("gpu{from}"),
            What::ToGpu => format!("host>gpu{to}"),
            What::FromGpu => format!("gpu{from}>host"),
            _ => format!("gpu{from}>gpu{to}"),
        }
    }

    /// One run: buffers filled and poisoned, the bytes moved, what arrived checked.
    fn run(&mut self, table: &Table, route: Route, round: u32) -> Result<(f64, Found), Ending> {
        let (from, to) = (&table.lanes[route.from], &table.lanes[route.to]);
        let element = self.order.element;
        for lane in [from, to].into_iter().take(if route.from == route.to { 1 } else { 2 }) {
            let what = (lane.gpu, table.elements, 0);
            self.on(lane.gpu, lane.prepare(&self.gpus[lane.gpu], element, what, round))?;
        }
        match route.what {
            What::ToGpu => {
                self.fill_host(table, |at| pattern::word(element, at, route.from as u32, round));
            }
            What::FromGpu => self.fill_host(table, |_| POISON),
            _ => {}
        }
        let by = if route.what == What::Write { from } else { to };
        self.on(by.gpu, self.go(table, route, by))?;
        let claim = Claim {
            rank: route.to,
            at: 0,
            elements: table.elements,
            base: 0,
            first: route.from,
            ranks: 1,
        };
        let claims = (route.what != What::FromGpu).then_some(&claim).into_iter();
        let gpu = &self.gpus[to.gpu];
        let checked =
            gpu.wait(to.streams[0], by.over).and_then(|()| to.check(gpu, element, claims, round));
        self.on(to.gpu, checked)?;
        self.finish(&[(to.gpu, to.over)])?;
        let seconds = self.on(by.gpu, self.gpus[by.gpu].seconds(by.begin, by.end))?;
        let found = match route.what {
            What::FromGpu => self.check_host(table, element, (route.from as u32, round)),
            _ => to.found(&self.gpus[to.gpu]),
        };
        Ok((seconds, found))
    }

    /// Moves the bytes, between two events of the GPU that does it.
    fn go(&self, table: &Table, route: Route, by: &Lane) -> Result<(), CudaError> {
        let (from, to) = (&table.lanes[route.from], &table.lanes[route.to]);
        let (gpu, stream, bytes) = (&self.gpus[by.gpu], by.streams[0], table.bytes);
        gpu.wait(stream, from.ready)?;
        gpu.wait(stream, to.ready)?;
        gpu.record(by.begin, stream)?;
        match route.what {
            What::Read | What::Write | What::Copy => {
                Lane::go(gpu, (to.receive, from.send, bytes), 1, stream)?;
            }
            What::Staged => {
                gpu.copy_from(to.receive, (&self.gpus[from.gpu], from.send), bytes, stream)?;
            }
            What::DriverCopy => gpu.copy(to.receive, from.send, bytes, stream)?,
            What::ToGpu => gpu.copy(to.receive, table.host, bytes, stream)?,
            What::FromGpu => gpu.copy(table.host, from.send, bytes, stream)?,
        }
        gpu.record(by.end, stream)?;
        // The check of the other GPU waits for this one.
        gpu.record(by.over, stream)
    }

    fn fill_host(&self, table: &Table, word: impl Fn(u64) -> u32) {
        for at in 0..table.bytes / 4 {
            self.gpus[0].poke(table.host, at * 4, word(at as u64));
        }
    }

    /// Checks what came to the host.
    fn check_host(&self, table: &Table, element: Element, (rank, round): (u32, u32)) -> Found {
        let right = |at: u64| pattern::word(element, at, rank, round);
        let is = |at: usize| self.gpus[0].peek(table.host, at * 4);
        let mut bad = (0..table.bytes / 4).filter(|at| is(*at) != Some(right(*at as u64)));
        let first = bad.next();
        let wrong = first.map_or(0, |_| 1 + bad.count() as u64);
        let per_word = (4 / element.bytes()) as u64;
        Found { wrong, first: first.unwrap_or(0) as u64 * per_word, beyond: false }
    }
}
