//! The layouts of all targets: equal ones are held once, and all of them together have a limit.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hashbrown::HashTable;

use super::{
    Limits,
    decode::{self, Read},
    layout::{self, Erring, Frame, Labels, Layout},
    open,
};
use crate::{Device, Failure, Page, Shared, dialect::Plan};

/// What all layouts may hold together, in bytes, unless told otherwise: 12,500 nodes whose dcgm-exporters write a UUID
/// on each line need 40 MB, for the names are the same everywhere.
pub const LAYOUT_BYTES: usize = 256 << 20;

/// A target whose pages differ each time is looked at again after twice as many pages as the last time, up to this.
const LONGEST_WAIT: u32 = 64;

/// Parts that were added since nobody looked for parts that no target uses any more, before somebody looks again.
const SWEEP_AFTER: usize = 1_024;

/// Reads pages, and remembers what those of each target have in common.
#[derive(Debug)]
pub struct Layouts {
    capacity: usize,
    shelves: Mutex<Shelves>,
    repeated: AtomicU64,
    strict: AtomicU64,
}

/// What is remembered of one target.
#[derive(Debug, Default)]
pub struct Memory {
    layout: Option<Layout>,
    erring: Erring,
    /// Pages in a row that repeated no layout.
    misses: u32,
    /// Pages that are to come before a layout is learned again.
    wait: u32,
}

#[cfg(test)]
impl Memory {
    pub(super) fn is_waiting(&self) -> bool {
        self.wait > 0
    }
}

/// How pages were read, and what the layouts hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidings {
    /// Pages that repeated their target's layout.
    pub repeated: u64,
    /// Pages that were read strictly.
    pub strict: u64,
    /// Bytes of all layouts.
    pub bytes: u64,
}

impl Default for Layouts {
    fn default() -> Self {
        Self::new(LAYOUT_BYTES)
    }
}

impl Layouts {
    /// No layouts yet, and never more than `capacity` bytes of them.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            shelves: Mutex::default(),
            repeated: AtomicU64::new(0),
            strict: AtomicU64::new(0),
        }
    }

    /// Reads a page of the target whose memory is given. It comes out as [`decode()`](super::decode()) would read it.
    pub fn decode(
        &self,
        memory: &mut Memory,
        body: &[u8],
        limits: &Limits,
    ) -> Result<Page, Failure> {
        if body.len() > limits.body_bytes {
            return Err(Failure::TooLarge(limits.body_bytes as u64));
        }
        if let Some(page) = repeated(memory, body) {
            memory.misses = 0;
            self.repeated.fetch_add(1, Relaxed);
            return Ok(page);
        }
        self.strict.fetch_add(1, Relaxed);
        if memory.wait > 0 {
            memory.wait -= 1;
            return decode::decode(body, limits);
        }
        (memory.layout, memory.erring) = (None, Erring::default());
        memory.wait = (1 << memory.misses.min(LONGEST_WAIT.ilog2())) - 1;
        memory.misses += 1;
        let Read { mut page, layout } = decode::learn(body, limits)?;
        let Some(layout) = layout else { return Ok(page) };
        memory.layout = self
            .shelves
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .intern(layout, self.capacity);
        // Whoever keeps the devices of the first page keeps those of the layout: the same list as for all like it.
        if let Some(layout) = memory.layout.as_ref().filter(|l| l.devices == page.report.devices) {
            page.report.devices = layout.devices.clone();
        }
        Ok(page)
    }

    /// The same for a body of this media type: what says that it is OpenMetrics is read as its specification says, and
    /// has no layout, for what it may say hangs on its values.
    pub fn decode_as(
        &self,
        media_type: &str,
        memory: &mut Memory,
        body: &[u8],
        limits: &Limits,
    ) -> Result<Page, Failure> {
        if !open::is_open_metrics(media_type) {
            return self.decode(memory, body, limits);
        }
        self.strict.fetch_add(1, Relaxed);
        open::decode_open_metrics(body, limits)
    }

    /// How pages were read so far.
    pub fn tidings(&self) -> Tidings {
        let shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        Tidings {
            repeated: self.repeated.load(Relaxed),
            strict: self.strict.load(Relaxed),
            bytes: shelves.bytes() as u64,
        }
    }
}

/// The page, if it repeats what is remembered.
fn repeated(memory: &mut Memory, body: &[u8]) -> Option<Page> {
    memory.layout.as_ref()?.read(body, &mut memory.erring)
}

/// The parts of layouts, each content once.
#[derive(Debug, Default)]
struct Shelves {
    frames: Shelf<Arc<Frame>>,
    labels: Shelf<Arc<Labels>>,
    plans: Shelf<Arc<Plan>>,
    devices: Shelf<Shared<Device>>,
    added: usize,
}

impl Shelves {
    fn bytes(&self) -> usize {
        self.frames.bytes + self.labels.bytes + self.plans.bytes + self.devices.bytes
    }

    /// The layout with parts that others have as well, if there is room for it.
    fn intern(&mut self, layout: Layout, capacity: usize) -> Option<Layout> {
        let Layout { frame, labels, own, plan, devices, .. } = &layout;
        let size =
            frame.bytes() + labels.bytes() + own.bytes() + plan.bytes() + device_bytes(devices);
        self.added += 1;
        let parts = self.frames.len() + self.labels.len() + self.plans.len() + self.devices.len();
        if self.added > SWEEP_AFTER.max(parts / 4) || self.bytes() + size > capacity {
            // Looking is not free: who finds no room must not make others look each time.
            if self.added > SWEEP_AFTER.min(parts / 4) {
                self.sweep();
            }
            if self.bytes() + size > capacity {
                return None;
            }
        }
        let hash = layout::hash(&*layout.frame);
        let frame = self.frames.intern(layout.frame, hash, |frame| frame.bytes());
        let [labels, own] = [layout.labels, layout.own].map(|labels| {
            let hash = layout::hash(&*labels);
            self.labels.intern(labels, hash, |labels| labels.bytes())
        });
        let hash = layout::hash(&layout.plan.ops);
        let plan = self.plans.intern(layout.plan, hash, |plan| plan.bytes());
        let hash = layout::hash(&*layout.devices);
        let devices = self.devices.intern(layout.devices, hash, device_bytes);
        Some(Layout { frame, labels, own, plan, devices, ..layout })
    }

    fn sweep(&mut self) {
        self.added = 0;
        self.frames.sweep(|frame| Arc::strong_count(frame) > 1);
        self.labels.sweep(|labels| Arc::strong_count(labels) > 1);
        self.plans.sweep(|plan| Arc::strong_count(plan) > 1);
        self.devices.sweep(Shared::is_held_elsewhere);
    }
}

/// The bytes that a list of devices holds, about.
fn device_bytes(devices: &Shared<Device>) -> usize {
    let keys = devices.iter().flat_map(|device| device.key.iter());
    devices.len() * size_of::<Device>() + keys.map(|key| key.as_str().len() + 32).sum::<usize>()
}

/// Things of one kind, each content once. Who is found by its hash is compared.
#[derive(Debug)]
struct Shelf<T> {
    things: HashTable<(u64, usize, T)>,
    bytes: usize,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { things: HashTable::new(), bytes: 0 }
    }
}

impl<T: Clone + PartialEq> Shelf<T> {
    fn len(&self) -> usize {
        self.things.len()
    }

    fn intern(&mut self, thing: T, hash: u64, size: impl Fn(&T) -> usize) -> T {
        if let Some((_, _, known)) = self.things.find(hash, |(_, _, known)| *known == thing) {
            return known.clone();
        }
        let size = size(&thing);
        self.bytes += size;
        self.things.insert_unique(hash, (hash, size, thing.clone()), |(hash, _, _)| *hash);
        thing
    }

    fn sweep(&mut self, is_used: impl Fn(&T) -> bool) {
        let bytes = &mut self.bytes;
        self.things.retain(|(_, size, thing)| {
            let used = is_used(thing);
            if !used {
                *bytes -= *size;
            }
            used
        });
    }
}
