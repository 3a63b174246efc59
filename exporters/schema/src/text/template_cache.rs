//! The layouts of all targets: equal ones are held once, and all of them together have a limit.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hashbrown::HashTable;

use super::{
    PageLimits, openmetrics,
    page_template::{self, PageTemplate, TemplateLabels, TemplateText, XidDevices},
    text_decode::{self, LearnedPage},
};
use crate::{CowList, Device, ScrapeFailure, ScrapedPage, dialect::DecodePlan};

/// What all layouts may hold together, in bytes, unless told otherwise: 12,500 nodes whose dcgm-exporters write a UUID
/// on each line need 40 MB, for the names are the same everywhere.
pub const LAYOUT_BYTES: usize = 256 << 20;

/// A target whose pages differ each time is looked at again after twice as many pages as the last time, up to this.
const LONGEST_WAIT: u32 = 64;

/// Parts that were added since nobody looked for parts that no target uses any more, before somebody looks again.
const SWEEP_AFTER: usize = 1_024;

/// Reads pages, and remembers what those of each target have in common.
#[derive(Debug)]
pub struct TemplateCache {
    capacity: usize,
    parts: Mutex<TemplateParts>,
    repeated: AtomicU64,
    strict: AtomicU64,
}

/// What is remembered of one target.
#[derive(Debug, Default)]
pub struct TemplateState {
    template: Option<PageTemplate>,
    xid_devices: XidDevices,
    /// Pages in a row that repeated no layout.
    misses: u32,
    /// Pages that are to come before a layout is learned again.
    wait: u32,
}

#[cfg(test)]
impl TemplateState {
    pub(super) fn is_waiting(&self) -> bool {
        self.wait > 0
    }
}

/// How pages were read, and what the layouts hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateCacheStats {
    /// Pages that repeated their target's layout.
    pub repeated: u64,
    /// Pages that were read strictly.
    pub strict: u64,
    /// Bytes of all layouts.
    pub bytes: u64,
}

impl Default for TemplateCache {
    fn default() -> Self {
        Self::new(LAYOUT_BYTES)
    }
}

impl TemplateCache {
    /// No layouts yet, and never more than `capacity` bytes of them.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            parts: Mutex::default(),
            repeated: AtomicU64::new(0),
            strict: AtomicU64::new(0),
        }
    }

    /// Reads a page of the target whose memory is given. It comes out as [`decode()`](super::decode_page()) would read it.
    pub fn decode_page(
        &self,
        memory: &mut TemplateState,
        body: &[u8],
        limits: &PageLimits,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        if body.len() > limits.body_bytes {
            return Err(ScrapeFailure::TooLarge(limits.body_bytes as u64));
        }
        if let Some(page) = match_template(memory, body) {
            memory.misses = 0;
            self.repeated.fetch_add(1, Relaxed);
            return Ok(page);
        }
        self.strict.fetch_add(1, Relaxed);
        if memory.wait > 0 {
            memory.wait -= 1;
            return text_decode::decode_page(body, limits);
        }
        (memory.template, memory.xid_devices) = (None, XidDevices::default());
        memory.wait = (1 << memory.misses.min(LONGEST_WAIT.ilog2())) - 1;
        memory.misses += 1;
        let LearnedPage { mut page, layout } = text_decode::learn_template(body, limits)?;
        let Some(layout) = layout else { return Ok(page) };
        memory.template = self
            .parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .intern_template(layout, self.capacity);
        // Whoever keeps the devices of the first page keeps those of the layout: the same list as for all like it.
        if let Some(layout) = memory.template.as_ref().filter(|l| l.devices == page.report.devices)
        {
            page.report.devices = layout.devices.clone();
        }
        Ok(page)
    }

    /// The same for a body of this media type: what says that it is OpenMetrics is read as its specification says, and
    /// has no layout, for what it may say hangs on its values.
    pub fn decode_as(
        &self,
        media_type: &str,
        memory: &mut TemplateState,
        body: &[u8],
        limits: &PageLimits,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        if !openmetrics::is_open_metrics(media_type) {
            return self.decode_page(memory, body, limits);
        }
        self.strict.fetch_add(1, Relaxed);
        openmetrics::decode_open_metrics(body, limits)
    }

    /// How pages were read so far.
    pub fn cache_stats(&self) -> TemplateCacheStats {
        let shelves = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        TemplateCacheStats {
            repeated: self.repeated.load(Relaxed),
            strict: self.strict.load(Relaxed),
            bytes: shelves.memory_bytes() as u64,
        }
    }
}

/// The page, if it repeats what is remembered.
fn match_template(memory: &mut TemplateState, body: &[u8]) -> Option<ScrapedPage> {
    memory.template.as_ref()?.match_page(body, &mut memory.xid_devices)
}

/// The parts of layouts, each content once.
#[derive(Debug, Default)]
struct TemplateParts {
    frames: PartInterner<Arc<TemplateText>>,
    labels: PartInterner<Arc<TemplateLabels>>,
    plans: PartInterner<Arc<DecodePlan>>,
    devices: PartInterner<CowList<Device>>,
    added: usize,
}

impl TemplateParts {
    fn memory_bytes(&self) -> usize {
        self.frames.bytes + self.labels.bytes + self.plans.bytes + self.devices.bytes
    }

    /// The layout with parts that others have as well, if there is room for it.
    fn intern_template(&mut self, layout: PageTemplate, capacity: usize) -> Option<PageTemplate> {
        let PageTemplate { frame, labels, own, plan, devices, .. } = &layout;
        let size = frame.memory_bytes()
            + labels.memory_bytes()
            + own.memory_bytes()
            + plan.memory_bytes()
            + device_bytes(devices);
        self.added += 1;
        let parts = self.frames.len() + self.labels.len() + self.plans.len() + self.devices.len();
        if self.added > SWEEP_AFTER.max(parts / 4) || self.memory_bytes() + size > capacity {
            // Looking is not free: who finds no room must not make others look each time.
            if self.added > SWEEP_AFTER.min(parts / 4) {
                self.evict_unused();
            }
            if self.memory_bytes() + size > capacity {
                return None;
            }
        }
        let hash = page_template::content_hash(&*layout.frame);
        let frame = self.frames.intern_part(layout.frame, hash, |frame| frame.memory_bytes());
        let [labels, own] = [layout.labels, layout.own].map(|labels| {
            let hash = page_template::content_hash(&*labels);
            self.labels.intern_part(labels, hash, |labels| labels.memory_bytes())
        });
        let hash = page_template::content_hash(&layout.plan.ops);
        let plan = self.plans.intern_part(layout.plan, hash, |plan| plan.memory_bytes());
        let hash = page_template::content_hash(&*layout.devices);
        let devices = self.devices.intern_part(layout.devices, hash, device_bytes);
        Some(PageTemplate { frame, labels, own, plan, devices, ..layout })
    }

    fn evict_unused(&mut self) {
        self.added = 0;
        self.frames.evict_unused(|frame| Arc::strong_count(frame) > 1);
        self.labels.evict_unused(|labels| Arc::strong_count(labels) > 1);
        self.plans.evict_unused(|plan| Arc::strong_count(plan) > 1);
        self.devices.evict_unused(CowList::is_shared);
    }
}

/// The bytes that a list of devices holds, about.
fn device_bytes(devices: &CowList<Device>) -> usize {
    let keys = devices.iter().flat_map(|device| device.key.iter());
    devices.len() * size_of::<Device>() + keys.map(|key| key.as_str().len() + 32).sum::<usize>()
}

/// Things of one kind, each content once. Who is found by its hash is compared.
#[derive(Debug)]
struct PartInterner<T> {
    parts: HashTable<(u64, usize, T)>,
    bytes: usize,
}

impl<T> Default for PartInterner<T> {
    fn default() -> Self {
        Self { parts: HashTable::new(), bytes: 0 }
    }
}

impl<T: Clone + PartialEq> PartInterner<T> {
    fn len(&self) -> usize {
        self.parts.len()
    }

    fn intern_part(&mut self, thing: T, hash: u64, size: impl Fn(&T) -> usize) -> T {
        if let Some((_, _, known)) = self.parts.find(hash, |(_, _, known)| *known == thing) {
            return known.clone();
        }
        let size = size(&thing);
        self.bytes += size;
        self.parts.insert_unique(hash, (hash, size, thing.clone()), |(hash, _, _)| *hash);
        thing
    }

    fn evict_unused(&mut self, is_used: impl Fn(&T) -> bool) {
        let bytes = &mut self.bytes;
        self.parts.retain(|(_, size, thing)| {
            let used = is_used(thing);
            if !used {
                *bytes -= *size;
            }
            used
        });
    }
}
