//! A body that is being read: decoded as it comes, into a buffer of a pool, never beyond what it may hold.

use std::sync::{Arc, Mutex, PoisonError};

use gaunt_schema::{Budget, Excess, Failure};
use tokio::sync::OwnedSemaphorePermit;

use super::{SMALL_BODY, coding::Coding};

/// Buffers that are kept for the next body: as many as are read at once in a fleet of 12,500 at 1 s, with some to spare.
const KEPT: usize = 64;

/// A body that is no larger than this may have any ratio to its compressed size: it can do no harm.
const HARMLESS: usize = 1 << 20;

/// Buffers between two bodies: 64 of half a MiB at the very most.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Vec<u8>>>);

impl Pool {
    fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, buffer: Vec<u8>) {
        if buffer.len() > SMALL_BODY {
            return; // One large page does not keep its buffer for ever.
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(buffer);
        }
    }
}

/// A body, whole after [`Body::finish`]. Its buffer goes back to the pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Body {
    pool: Arc<Pool>,
    /// Written once when it grows, and then only over what is not needed any more.
    buffer: Vec<u8>,
    /// Bytes of the buffer that are the body.
    filled: usize,
    /// Bytes of the buffer that may be used now.
    room: usize,
    /// Bytes that came over the wire.
    taken: u64,
    coding: Coding,
    claims: Vec<OwnedSemaphorePermit>,
    media: String,
}

impl Body {
    pub(super) fn new(pool: Arc<Pool>, coding: Coding, media: String) -> Self {
        let buffer = pool.take();
        Self { pool, buffer, filled: 0, room: 0, taken: 0, coding, claims: Vec::new(), media }
    }

    /// The bytes, decoded.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// What the server calls them, in lower case.
    pub(crate) fn media(&self) -> &str {
        &self.media
    }

    /// Bytes that may be used now.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Whether no byte more can be taken before the room is widened.
    pub(super) fn is_full(&self) -> bool {
        self.filled == self.room
    }

    /// Whether there may be something to take: input, or output that found no room.
    pub(super) fn wants(&self, input: &[u8]) -> bool {
        !input.is_empty() || self.is_full() && self.coding.holds_back()
    }

    /// Gives room for so many bytes more.
    pub(super) fn widen(&mut self, bytes: usize, claim: Option<OwnedSemaphorePermit>) {
        self.room += bytes;
        self.claims.extend(claim);
        if self.buffer.len() < self.room {
            self.buffer.resize(self.room, 0);
        }
    }

    /// Takes from the input what finds room.
    pub(super) fn take(
        &mut self,
        input: &mut &[u8],
        limit: usize,
        ratio: u64,
    ) -> Result<(), Failure> {
        // One byte more than the limit, so that what is over it is seen.
        let end = self.room.min(limit.saturating_add(1));
        let (read, written) = self.coding.step(input, &mut self.buffer[self.filled..end])?;
        *input = &input[read..];
        self.taken += read as u64;
        self.filled += written;
        if self.filled > limit {
            return Err(Failure::TooLarge(limit as u64));
        }
        let found = self.filled as u64 / self.taken.max(1);
        if self.filled > HARMLESS && found > ratio {
            return Err(Failure::OverBudget(Excess { budget: Budget::Ratio, found, limit: ratio }));
        }
        Ok(())
    }

    /// Nothing more comes: whether that was all.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        if self.coding.is_done() {
            return Ok(());
        }
        Err(Failure::Broken("the compressed page ends in its middle".into()))
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.buffer));
    }
}
