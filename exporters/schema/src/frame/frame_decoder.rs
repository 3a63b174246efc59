//! Decodes frames to reports: it verifies each frame, then applies it to the stored state of its target.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    ClientState, FrameError, LayoutHash,
    bytes::ByteDecoder,
    column_encoding,
    frame_header::{self, FrameHeader},
    frame_identity::NodeIdentity,
    frame_layout::{FrameLayout, UNKNOWN},
};
use crate::{
    Dialect, MetricSample, RejectionCounts, Report, SanitizedText, ScrapeFailure, ScrapedPage,
    sanitized_text::SharedTexts, text::PageLimits,
};

/// The default limit of all layouts together, in bytes: 12,500 nodes that all differ need 250 MB.
pub const LAYOUT_BYTES: usize = 256 << 20;

/// After this many new layouts the decoder evicts those that no target uses any more.
const SWEEP_AFTER: usize = 1_024;

impl From<FrameError> for ScrapeFailure {
    fn from(fault: FrameError) -> Self {
        Self::NotAPage(SanitizedText::new(&format!("frame: {fault}")))
    }
}

/// Decodes frames, and stores the layouts of all targets, equal ones once.
#[derive(Debug)]
pub struct FrameDecoder {
    capacity: usize,
    cache: Mutex<LayoutCache>,
    texts: SharedTexts,
    whole: AtomicU64,
    differences: AtomicU64,
    faults: AtomicU64,
}

/// The decode state of one target.
#[derive(Debug, Default)]
pub struct FrameDecodeState {
    last: Option<LastFrame>,
    /// A layout that the request offered to the target, though the target never sent it.
    offered: Option<Arc<FrameLayout>>,
}

/// The readings of a target's last frame.
#[derive(Debug)]
struct LastFrame {
    layout: Arc<FrameLayout>,
    identity: NodeIdentity,
    tick: u64,
    bits: Box<[u64]>,
}

/// Frame counts and the size of the layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameDecoderStats {
    /// Whole frames.
    pub whole: u64,
    /// Frames that were differences.
    pub differences: u64,
    /// Frames that were rejected.
    pub faults: u64,
    /// Stored layouts.
    pub layouts: u64,
    /// Bytes of all layouts.
    pub bytes: u64,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::new(LAYOUT_BYTES)
    }
}

impl FrameDecoder {
    /// A decoder without layouts, limited to `capacity` bytes of them.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            cache: Mutex::default(),
            texts: SharedTexts::default(),
            whole: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }
    }

    /// The client state to send to the target with this decode state. The first request to a target offers the most
    /// recent layout, because most targets share it.
    pub fn client_state(&self, state: &mut FrameDecodeState) -> ClientState {
        if let Some(last) = &state.last {
            return ClientState { layout: Some(last.layout.content_hash()), tick: Some(last.tick) };
        }
        state.offered.clone_from(&self.lock_cache().last);
        ClientState {
            layout: state.offered.as_ref().map(|layout| layout.content_hash()),
            tick: None,
        }
    }

    /// Decodes a frame of the target with this decode state. A rejected frame clears the state: the next frame has to
    /// be whole.
    pub fn decode_frame(
        &self,
        state: &mut FrameDecodeState,
        body: &[u8],
        limits: &PageLimits,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        let previous = std::mem::take(state);
        match self.decode_report(previous, body, limits) {
            Ok((last, report)) => {
                state.last = Some(last);
                let (bytes, rejected) = (body.len() as u64, RejectionCounts::default());
                Ok(ScrapedPage { report, dialect: Dialect::Gaunt, bytes, rejected })
            }
            Err(failure) => {
                self.faults.fetch_add(1, Relaxed);
                Err(failure)
            }
        }
    }

    fn decode_report(
        &self,
        state: FrameDecodeState,
        body: &[u8],
        limits: &PageLimits,
    ) -> Result<(LastFrame, Report), ScrapeFailure> {
        if body.len() > limits.body_bytes {
            return Err(ScrapeFailure::TooLarge(limits.body_bytes as u64));
        }
        let head = FrameHeader::decode_header(body)?;
        let mut bytes = ByteDecoder::new("frame", &body[frame_header::LENGTH..]);
        let layout = if head.has_layout {
            let encoded = bytes.decode_part("layout")?;
            self.intern_layout(head.layout, encoded.remaining_bytes(), limits.samples)?
        } else {
            state.find_layout(head.layout).ok_or(FrameError::UnknownLayout)?
        };
        let identity = if head.has_identity {
            let encoded = bytes.decode_part("identity")?;
            Some(NodeIdentity::decode_identity(encoded, &layout, &self.texts)?)
        } else {
            None
        };
        let mut now = state.next(&head, layout, identity)?;
        let samples = now.decode_columns(&mut bytes, head.base_tick.is_some())?;
        bytes.expect_end()?;
        let kind = if head.base_tick.is_some() { &self.differences } else { &self.whole };
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

    /// The layout with these bytes, stored once for all targets.
    fn intern_layout(
        &self,
        name: LayoutHash,
        encoded: &[u8],
        max_readings: usize,
    ) -> Result<Arc<FrameLayout>, ScrapeFailure> {
        if LayoutHash::of(encoded) != name {
            return Err(FrameError::WrongLayout.into());
        }
        if let Some(layout) = self.lock_cache().layouts.get(&name) {
            return Ok(layout.clone());
        }
        let layout = Arc::new(
            FrameLayout::decode_layout(encoded, max_readings)
                .map_err(|error| error.into_failure(max_readings))?,
        );
        self.lock_cache().insert_layout(layout, self.capacity).map_err(ScrapeFailure::from)
    }

    fn lock_cache(&self) -> MutexGuard<'_, LayoutCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts so far.
    pub fn decoder_stats(&self) -> FrameDecoderStats {
        let cache = self.lock_cache();
        FrameDecoderStats {
            whole: self.whole.load(Relaxed),
            differences: self.differences.load(Relaxed),
            faults: self.faults.load(Relaxed),
            layouts: cache.layouts.len() as u64,
            bytes: cache.bytes as u64,
        }
    }
}

impl FrameDecodeState {
    /// The layout with this hash, if it is stored for the target.
    fn find_layout(&self, name: LayoutHash) -> Option<Arc<FrameLayout>> {
        let stored = self.last.iter().map(|stored| &stored.layout);
        stored.chain(&self.offered).find(|layout| layout.content_hash() == name).cloned()
    }

    /// The state after a frame with this header.
    fn next(
        self,
        head: &FrameHeader,
        layout: Arc<FrameLayout>,
        identity: Option<NodeIdentity>,
    ) -> Result<LastFrame, FrameError> {
        let last = self.last.filter(|last| last.layout.content_hash() == head.layout);
        if head.base_tick.is_some() && last.as_ref().map(|last| last.tick) != head.base_tick {
            return Err(FrameError::UnknownTick);
        }
        if head.base_tick.is_none() && identity.is_none() {
            return Err(FrameError::NoIdentity);
        }
        let Some(mut last) = last else {
            let (identity, bits) = (identity.unwrap_or_default(), vec![0; layout.reading_count()]);
            return Ok(LastFrame { layout, identity, tick: head.tick, bits: bits.into() });
        };
        last.tick = head.tick;
        // An unchanged identity keeps the same list in memory, so that readers need not compare it again.
        if let Some(identity) = identity.filter(|identity| *identity != last.identity) {
            last.identity = identity;
        }
        Ok(last)
    }
}

impl LastFrame {
    /// Decodes all columns, and makes samples of the known ones.
    fn decode_columns(
        &mut self,
        bytes: &mut ByteDecoder<'_>,
        difference: bool,
    ) -> Result<Vec<MetricSample>, FrameError> {
        let Self { layout, bits, .. } = self;
        let mut samples = Vec::with_capacity(layout.known_readings);
        let mut from = 0;
        for column in &layout.columns {
            let to = from + column.length as usize;
            let now = &mut bits[from..to];
            column_encoding::decode_column(bytes, now, difference)?;
            if let Some(metric) = column.metric {
                let readings = now.iter().zip(&layout.readings[from..to]);
                let readings = readings.filter(|(_, device)| **device != UNKNOWN);
                samples.extend(readings.map(|(bits, device)| MetricSample {
                    metric,
                    device: *device,
                    reading: column_encoding::decode_reading(*bits),
                }));
            }
            from = to;
        }
        Ok(samples)
    }
}

/// Layouts by hash.
#[derive(Debug, Default)]
struct LayoutCache {
    layouts: HashMap<LayoutHash, Arc<FrameLayout>>,
    /// The most recent layout.
    last: Option<Arc<FrameLayout>>,
    bytes: usize,
    added: usize,
}

impl LayoutCache {
    fn insert_layout(
        &mut self,
        layout: Arc<FrameLayout>,
        capacity: usize,
    ) -> Result<Arc<FrameLayout>, FrameError> {
        self.added += 1;
        let size = layout.memory_bytes();
        let is_full = self.bytes + size > capacity;
        if self.added > SWEEP_AFTER
            || is_full && self.added > SWEEP_AFTER.min(self.layouts.len() / 4)
        {
            self.evict_unused();
        }
        if self.bytes + size > capacity {
            return Err(FrameError::NoRoom(self.bytes));
        }
        let stored = self.layouts.entry(layout.content_hash()).or_insert_with(|| {
            self.bytes += size;
            layout
        });
        self.last = Some(stored.clone());
        Ok(stored.clone())
    }

    /// Removes the layouts that no target uses.
    fn evict_unused(&mut self) {
        self.added = 0;
        self.last = None;
        let bytes = &mut self.bytes;
        self.layouts.retain(|_, layout| {
            let used = Arc::strong_count(layout) > 1;
            if !used {
                *bytes -= layout.memory_bytes();
            }
            used
        });
    }
}
