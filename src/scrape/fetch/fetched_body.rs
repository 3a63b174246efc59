//! A body that is being read: decoded as it arrives, into a pooled buffer, within a size limit.

use std::sync::{Arc, Mutex, PoisonError};

use gaunt_schema::{LimitExceeded, Quota, ScrapeFailure};
use tokio::sync::OwnedSemaphorePermit;

use super::{SMALL_BODY, content_decoder::ContentDecoder};

/// Maximum number of pooled buffers: more than are in use at once in a fleet of 12,500 at 1 s.
const KEPT: usize = 64;

/// A body up to this size may have any compression ratio: it can do no harm.
const HARMLESS: usize = 1 << 20;

/// Pooled buffers: 64 of half a MiB at the very most.
#[derive(Debug, Default)]
pub(super) struct BodyBufferPool(Mutex<Vec<Vec<u8>>>);

impl BodyBufferPool {
    fn take_buffer(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn return_buffer(&self, buffer: Vec<u8>) {
        if buffer.len() > SMALL_BODY {
            return; // One large page does not keep its buffer for ever.
        }
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < KEPT {
            buffers.push(buffer);
        }
    }
}

/// A body, complete after [`FetchedBody::check_complete`]. Its buffer returns to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct FetchedBody {
    pool: Arc<BodyBufferPool>,
    /// Initialised once when it grows; later bodies overwrite it.
    buffer: Vec<u8>,
    /// Bytes of the buffer that are the body.
    filled: usize,
    /// Bytes of the buffer that may be used now.
    usable: usize,
    /// Bytes received.
    wire_bytes: u64,
    decoder: ContentDecoder,
    memory_permits: Vec<OwnedSemaphorePermit>,
    media_type: String,
}

impl FetchedBody {
    pub(super) fn new(
        pool: Arc<BodyBufferPool>,
        decoder: ContentDecoder,
        media_type: String,
    ) -> Self {
        let buffer = pool.take_buffer();
        Self {
            pool,
            buffer,
            filled: 0,
            usable: 0,
            wire_bytes: 0,
            decoder,
            memory_permits: Vec::new(),
            media_type,
        }
    }

    /// The decoded bytes.
    pub(crate) fn decoded_bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// The content type, in lower case.
    pub(crate) fn content_type(&self) -> &str {
        &self.media_type
    }

    /// Bytes that may be used now.
    pub(super) fn usable_bytes(&self) -> usize {
        self.usable
    }

    /// Whether the buffer must grow before another byte fits.
    pub(super) fn is_full(&self) -> bool {
        self.filled == self.usable
    }

    /// Whether there may be something to decode: input, or output that did not fit.
    pub(super) fn has_pending(&self, input: &[u8]) -> bool {
        !input.is_empty() || self.is_full() && self.decoder.has_pending_output()
    }

    /// Grows the buffer by so many bytes.
    pub(super) fn grow_buffer(&mut self, bytes: usize, permit: Option<OwnedSemaphorePermit>) {
        self.usable += bytes;
        self.memory_permits.extend(permit);
        if self.buffer.len() < self.usable {
            self.buffer.resize(self.usable, 0);
        }
    }

    /// Decodes as much of the input as fits.
    pub(super) fn decode_chunk(
        &mut self,
        input: &mut &[u8],
        limit: usize,
        ratio: u64,
    ) -> Result<(), ScrapeFailure> {
        // One byte more than the limit, so that a larger body is detected.
        let end = self.usable.min(limit.saturating_add(1));
        let (read, written) =
            self.decoder.decode_step(input, &mut self.buffer[self.filled..end])?;
        *input = &input[read..];
        self.wire_bytes += read as u64;
        self.filled += written;
        if self.filled > limit {
            return Err(ScrapeFailure::TooLarge(limit as u64));
        }
        let found = self.filled as u64 / self.wire_bytes.max(1);
        if self.filled > HARMLESS && found > ratio {
            return Err(ScrapeFailure::OverBudget(LimitExceeded {
                budget: Quota::Ratio,
                found,
                limit: ratio,
            }));
        }
        Ok(())
    }

    /// Checks at the end of input that the body is complete. Where the response has no length, the end of the connection
    /// is that of the body: a page of text that ends within a line may then be cut off within a number.
    pub(super) fn check_complete(&self, has_length: bool) -> Result<(), ScrapeFailure> {
        if !self.decoder.is_done() {
            return Err(ScrapeFailure::Broken("the compressed page is truncated".into()));
        }
        let is_text = self.media_type.is_empty() || self.media_type.starts_with("text/");
        let is_open = is_text
            && !has_length
            && matches!(self.decoder, ContentDecoder::Identity)
            && self.decoded_bytes().last().is_some_and(|last| *last != b'\n');
        if is_open {
            let why =
                "the page ends within a line, and its response has no length: it may be cut off";
            return Err(ScrapeFailure::Broken(why.into()));
        }
        Ok(())
    }
}

impl Drop for FetchedBody {
    fn drop(&mut self) {
        self.pool.return_buffer(std::mem::take(&mut self.buffer));
    }
}
