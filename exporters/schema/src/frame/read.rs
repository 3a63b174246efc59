//! Frames become reports: checked first, then read into what is remembered of their target.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    Fault, Hash, Holds,
    bytes::Bytes,
    columns,
    head::{self, Head},
    identity::Identity,
    layout::{Layout, UNKNOWN},
};
use crate::{Dialect, Failure, Page, Rejected, Report, Safe, Sample, text::Limits};

/// What all layouts may hold together, in bytes, unless told otherwise: 12,500 nodes of which none is like another
/// need 250 MB.
pub const LAYOUT_BYTES: usize = 256 << 20;

/// Layouts that were added since nobody looked for those that no target uses any more, before somebody looks again.
const SWEEP_AFTER: usize = 1_024;

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::NotAPage(Safe::new(&format!("frame: {fault}")))
    }
}

/// Reads frames, and holds the layouts of all targets, equal ones once.
#[derive(Debug)]
pub struct Frames {
    capacity: usize,
    shelf: Mutex<Shelf>,
    whole: AtomicU64,
    differences: AtomicU64,
    faults: AtomicU64,
}

/// What is remembered of one target.
#[derive(Debug, Default)]
pub struct Memory {
    held: Option<Held>,
    /// A layout that the target was told is held here, though it never sent it.
    offered: Option<Arc<Layout>>,
}

/// The readings of a target's last frame.
#[derive(Debug)]
struct Held {
    layout: Arc<Layout>,
    identity: Identity,
    tick: u64,
    bits: Box<[u64]>,
}

/// How frames were read, and what their layouts hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidings {
    /// Frames that were whole.
    pub whole: u64,
    /// Frames that were differences.
    pub differences: u64,
    /// Frames that were not taken.
    pub faults: u64,
    /// Layouts that are held.
    pub layouts: u64,
    /// Bytes of all layouts.
    pub bytes: u64,
}

impl Default for Frames {
    fn default() -> Self {
        Self::new(LAYOUT_BYTES)
    }
}

impl Frames {
    /// No layouts yet, and never more than `capacity` bytes of them.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            shelf: Mutex::default(),
            whole: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }
    }

    /// What the target whose memory is given is to be told that is held here. A target that is asked for the first time
    /// is told of the layout that came last: mostly it has the same.
    pub fn holds(&self, memory: &mut Memory) -> Holds {
        if let Some(held) = &memory.held {
            return Holds { layout: Some(held.layout.hash()), tick: Some(held.tick) };
        }
        memory.offered.clone_from(&self.shelf().last);
        Holds { layout: memory.offered.as_ref().map(|layout| layout.hash()), tick: None }
    }

    /// Reads a frame of the target whose memory is given. A frame that is not taken leaves nothing of it behind: the next
    /// one has to be whole.
    pub fn decode(
        &self,
        memory: &mut Memory,
        body: &[u8],
        limits: &Limits,
    ) -> Result<Page, Failure> {
        let known = std::mem::take(memory);
        match self.read(known, body, limits) {
            Ok((held, report)) => {
                memory.held = Some(held);
                let (bytes, rejected) = (body.len() as u64, Rejected::default());
                Ok(Page { report, dialect: Dialect::Gaunt, bytes, rejected })
            }
            Err(failure) => {
                self.faults.fetch_add(1, Relaxed);
                Err(failure)
            }
        }
    }

    fn read(
        &self,
        memory: Memory,
        body: &[u8],
        limits: &Limits,
    ) -> Result<(Held, Report), Failure> {
        if body.len() > limits.body_bytes {
            return Err(Failure::TooLarge(limits.body_bytes as u64));
        }
        let head = Head::read(body)?;
        let mut bytes = Bytes::new("frame", &body[head::LENGTH..]);
        let layout = if head.has_layout {
            let told = bytes.part("layout")?;
            self.shelve(head.layout, told.rest(), limits.samples)?
        } else {
            memory.layout(head.layout).ok_or(Fault::UnknownLayout)?
        };
        let identity = if head.has_identity {
            Some(Identity::read(bytes.part("identity")?, &layout)?)
        } else {
            None
        };
        let mut now = memory.next(&head, layout, identity)?;
        let samples = now.fill(&mut bytes, head.base.is_some())?;
        bytes.end()?;
        let kind = if head.base.is_some() { &self.differences } else { &self.whole };
        kind.fetch_add(1, Relaxed);
        let report = Report {
            node_time: head.time,
            node: now.identity.node.clone(),
            devices: now.layout.devices.clone(),
            infos: now.identity.infos.clone(),
            samples,
            extra: Vec::new(),
        };
        Ok((now, report))
    }

    /// The layout that these bytes are, held once whoever sends it.
    fn shelve(&self, name: Hash, told: &[u8], most: usize) -> Result<Arc<Layout>, Failure> {
        if Hash::of(told) != name {
            return Err(Fault::WrongLayout.into());
        }
        if let Some(known) = self.shelf().layouts.get(&name) {
            return Ok(known.clone());
        }
        let layout = Arc::new(Layout::read(told, most).map_err(|wrong| wrong.failure(most))?);
        self.shelf().put(layout, self.capacity).map_err(Failure::from)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How frames were read so far.
    pub fn tidings(&self) -> Tidings {
        let held = self.shelf();
        Tidings {
            whole: self.whole.load(Relaxed),
            differences: self.differences.load(Relaxed),
            faults: self.faults.load(Relaxed),
            layouts: held.layouts.len() as u64,
            bytes: held.bytes as u64,
        }
    }
}

impl Memory {
    /// The layout of this name, if it is held for the target.
    fn layout(&self, name: Hash) -> Option<Arc<Layout>> {
        let held = self.held.iter().map(|held| &held.layout);
        held.chain(&self.offered).find(|layout| layout.hash() == name).cloned()
    }

    /// What is held once a frame of this head is read.
    fn next(
        self,
        head: &Head,
        layout: Arc<Layout>,
        identity: Option<Identity>,
    ) -> Result<Held, Fault> {
        let known = self.held.filter(|held| held.layout.hash() == head.layout);
        if head.base.is_some() && known.as_ref().map(|held| held.tick) != head.base {
            return Err(Fault::UnknownTick);
        }
        if head.base.is_none() && identity.is_none() {
            return Err(Fault::NoIdentity);
        }
        let Some(mut known) = known else {
            let (identity, bits) = (identity.unwrap_or_default(), vec![0; layout.readings()]);
            return Ok(Held { layout, identity, tick: head.tick, bits: bits.into() });
        };
        known.tick = head.tick;
        // Who is told the same stays the same list in memory, which others need not look through again.
        if let Some(identity) = identity.filter(|identity| *identity != known.identity) {
            known.identity = identity;
        }
        Ok(known)
    }
}

impl Held {
    /// Reads all columns, and makes samples of what is known here.
    fn fill(&mut self, bytes: &mut Bytes<'_>, difference: bool) -> Result<Vec<Sample>, Fault> {
        let Self { layout, bits, .. } = self;
        let mut samples = Vec::with_capacity(layout.known);
        let mut from = 0;
        for column in &layout.columns {
            let to = from + column.length as usize;
            let now = &mut bits[from..to];
            columns::read(bytes, now, difference)?;
            if let Some(metric) = column.metric {
                let told = now.iter().zip(&layout.readings[from..to]);
                let told = told.filter(|(_, device)| **device != UNKNOWN);
                samples.extend(told.map(|(bits, device)| Sample {
                    metric,
                    device: *device,
                    reading: columns::reading(*bits),
                }));
            }
            from = to;
        }
        Ok(samples)
    }
}

/// Layouts by name.
#[derive(Debug, Default)]
struct Shelf {
    layouts: HashMap<Hash, Arc<Layout>>,
    /// The one that came last.
    last: Option<Arc<Layout>>,
    bytes: usize,
    added: usize,
}

impl Shelf {
    fn put(&mut self, layout: Arc<Layout>, capacity: usize) -> Result<Arc<Layout>, Fault> {
        self.added += 1;
        let size = layout.size();
        let over = self.bytes + size > capacity;
        if self.added > SWEEP_AFTER || over && self.added > SWEEP_AFTER.min(self.layouts.len() / 4)
        {
            self.sweep();
        }
        if self.bytes + size > capacity {
            return Err(Fault::NoRoom(self.bytes));
        }
        let known = self.layouts.entry(layout.hash()).or_insert_with(|| {
            self.bytes += size;
            layout
        });
        self.last = Some(known.clone());
        Ok(known.clone())
    }

    /// Lets go what nobody uses.
    fn sweep(&mut self) {
        self.added = 0;
        self.last = None;
        let bytes = &mut self.bytes;
        self.layouts.retain(|_, layout| {
            let used = Arc::strong_count(layout) > 1;
            if !used {
                *bytes -= layout.size();
            }
            used
        });
    }
}
