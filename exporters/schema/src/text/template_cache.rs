//! The cache of page templates of all targets: equal parts are stored once, with a limit for all together.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use hashbrown::HashTable;

use super::{
    PageLimits,
    busiest_cpu::{BusiestCpu, PageInSequence},
    openmetrics,
    page_template::{self, PageTemplate, TemplateLabels, TemplateText, XidDevices},
    text_decode::{self, LearnedPage},
};
use crate::{CowList, Device, ScrapeFailure, ScrapedPage, dialect::DecodePlan};

/// The default limit of all templates together, in bytes: 12,500 nodes whose dcgm-exporters write a UUID on each line
/// need 40 MB, because the names are the same everywhere.
pub const LAYOUT_BYTES: usize = 256 << 20;

/// For a target whose pages always differ, the wait before the next attempt to learn a template doubles up to this.
const LONGEST_WAIT: u32 = 64;

/// After this many new parts the cache evicts those that no target uses any more.
const SWEEP_AFTER: usize = 1_024;

/// Decodes pages, and caches the templates of all targets.
#[derive(Debug)]
pub struct TemplateCache {
    capacity: usize,
    parts: Mutex<TemplateParts>,
    repeated: AtomicU64,
    strict: AtomicU64,
}

/// The template state of one target.
#[derive(Debug, Default)]
pub struct TemplateState {
    template: Option<PageTemplate>,
    xid_devices: XidDevices,
    /// Consecutive pages that matched no template.
    misses: u32,
    /// Pages to wait before a template is learned again.
    wait: u32,
    busiest_cpu: BusiestCpu,
}

#[cfg(test)]
impl TemplateState {
    pub(super) fn is_waiting(&self) -> bool {
        self.wait > 0
    }
}

/// Counts of decoded pages, and the size of the templates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TemplateCacheStats {
    /// Pages that matched their target's template.
    pub repeated: u64,
    /// Pages that were parsed strictly.
    pub strict: u64,
    /// Bytes of all templates.
    pub bytes: u64,
}

impl Default for TemplateCache {
    fn default() -> Self {
        Self::new(LAYOUT_BYTES)
    }
}

impl TemplateCache {
    /// An empty cache with a limit of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            parts: Mutex::default(),
            repeated: AtomicU64::new(0),
            strict: AtomicU64::new(0),
        }
    }

    /// Decodes a page of the target with this state. The result equals that of [`decode()`](super::decode_page()), with
    /// what the page before it adds.
    pub fn decode_page(
        &self,
        state: &mut TemplateState,
        body: &[u8],
        limits: &PageLimits,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        if body.len() > limits.body_bytes {
            return Err(ScrapeFailure::TooLarge(limits.body_bytes as u64));
        }
        let page = self.decode_with_template(state, body, limits)?;
        Ok(page.compared_with_last(&mut state.busiest_cpu))
    }

    fn decode_with_template(
        &self,
        state: &mut TemplateState,
        body: &[u8],
        limits: &PageLimits,
    ) -> Result<PageInSequence, ScrapeFailure> {
        if let Some(page) = match_template(state, body) {
            state.misses = 0;
            self.repeated.fetch_add(1, Relaxed);
            return Ok(page);
        }
        self.strict.fetch_add(1, Relaxed);
        if state.wait > 0 {
            state.wait -= 1;
            return text_decode::decode_in_sequence(body, limits);
        }
        (state.template, state.xid_devices) = (None, XidDevices::default());
        state.wait = (1 << state.misses.min(LONGEST_WAIT.ilog2())) - 1;
        state.misses += 1;
        let LearnedPage { mut page, layout: template } = text_decode::learn_template(body, limits)?;
        let Some(template) = template else { return Ok(page) };
        state.template = self
            .parts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .intern_template(template, self.capacity);
        // Use the device list of the template for the first page too: equal pages share one list.
        if let Some(template) =
            state.template.as_ref().filter(|template| template.devices == page.page.report.devices)
        {
            page.page.report.devices = template.devices.clone();
        }
        Ok(page)
    }

    /// The same for a body of this media type: OpenMetrics is parsed by its specification and without a template,
    /// because its validity depends on its values.
    pub fn decode_as(
        &self,
        media_type: &str,
        state: &mut TemplateState,
        body: &[u8],
        limits: &PageLimits,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        if !openmetrics::is_open_metrics(media_type) {
            return self.decode_page(state, body, limits);
        }
        self.strict.fetch_add(1, Relaxed);
        let page = openmetrics::decode_in_sequence(body, limits)?;
        Ok(page.compared_with_last(&mut state.busiest_cpu))
    }

    /// The counts so far.
    pub fn cache_stats(&self) -> TemplateCacheStats {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        TemplateCacheStats {
            repeated: self.repeated.load(Relaxed),
            strict: self.strict.load(Relaxed),
            bytes: parts.memory_bytes() as u64,
        }
    }
}

/// The page, if it matches the template.
fn match_template(state: &mut TemplateState, body: &[u8]) -> Option<PageInSequence> {
    state.template.as_ref()?.match_page(body, &mut state.xid_devices)
}

/// The parts of templates, each content once.
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

    /// The template with shared parts, if the capacity allows it.
    fn intern_template(&mut self, template: PageTemplate, capacity: usize) -> Option<PageTemplate> {
        let PageTemplate { frame, labels, node_labels, plan, devices, .. } = &template;
        let size = frame.memory_bytes()
            + labels.memory_bytes()
            + node_labels.memory_bytes()
            + plan.memory_bytes()
            + device_bytes(devices);
        self.added += 1;
        let parts = self.frames.len() + self.labels.len() + self.plans.len() + self.devices.len();
        if self.added > SWEEP_AFTER.max(parts / 4) || self.memory_bytes() + size > capacity {
            // A sweep is costly: targets over the limit must not cause one each time.
            if self.added > SWEEP_AFTER.min(parts / 4) {
                self.evict_unused();
            }
            if self.memory_bytes() + size > capacity {
                return None;
            }
        }
        let hash = page_template::content_hash(&*template.frame);
        let frame = self.frames.intern_part(template.frame, hash, |frame| frame.memory_bytes());
        let [labels, node_labels] = [template.labels, template.node_labels].map(|labels| {
            let hash = page_template::content_hash(&*labels);
            self.labels.intern_part(labels, hash, |labels| labels.memory_bytes())
        });
        let hash = page_template::content_hash(&template.plan.ops);
        let plan = self.plans.intern_part(template.plan, hash, |plan| plan.memory_bytes());
        let hash = page_template::content_hash(&*template.devices);
        let devices = self.devices.intern_part(template.devices, hash, device_bytes);
        Some(PageTemplate { frame, labels, node_labels, plan, devices, ..template })
    }

    fn evict_unused(&mut self) {
        self.added = 0;
        self.frames.evict_unused(|frame| Arc::strong_count(frame) > 1);
        self.labels.evict_unused(|labels| Arc::strong_count(labels) > 1);
        self.plans.evict_unused(|plan| Arc::strong_count(plan) > 1);
        self.devices.evict_unused(CowList::is_shared);
    }
}

/// The memory that a list of devices uses, in bytes, approximately.
fn device_bytes(devices: &CowList<Device>) -> usize {
    let keys = devices.iter().flat_map(|device| device.key.iter());
    devices.len() * size_of::<Device>() + keys.map(|key| key.as_str().len() + 32).sum::<usize>()
}

/// Parts of one kind, each content once. Candidates with an equal hash are compared.
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

    fn intern_part(&mut self, part: T, hash: u64, size: impl Fn(&T) -> usize) -> T {
        if let Some((_, _, other)) = self.parts.find(hash, |(_, _, other)| *other == part) {
            return other.clone();
        }
        let size = size(&part);
        self.bytes += size;
        self.parts.insert_unique(hash, (hash, size, part.clone()), |(hash, _, _)| *hash);
        part
    }

    fn evict_unused(&mut self, is_used: impl Fn(&T) -> bool) {
        let bytes = &mut self.bytes;
        self.parts.retain(|(_, size, part)| {
            let used = is_used(part);
            if !used {
                *bytes -= *size;
            }
            used
        });
    }
}
