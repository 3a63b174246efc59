//! The life of one target: wait for its slot, fetch, send one batch, whatever happened.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{Batch, Clock, Delivery, Failure, Page, TargetId, UnixMs};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::{
    fetch::{Line, Rules},
    schedule::Slots,
};

/// One target on its way through the periods.
pub(super) struct Scrape {
    pub(super) target: TargetId,
    pub(super) line: Line,
    pub(super) slots: Slots,
    pub(super) rules: Arc<Rules>,
    pub(super) inbox: mpsc::Sender<Delivery>,
    pub(super) clock: Clock,
}

/// The inbox is closed: nobody wants to know any more.
struct Closed;

impl Scrape {
    /// Sends a batch for every slot until the inbox is closed.
    pub(super) async fn run(mut self) {
        let mut slot = self.slots.next((self.clock)());
        loop {
            sleep(slot.since((self.clock)())).await;
            if self.once().await.is_err() {
                return;
            }
            match self.catch_up(slot).await {
                Ok(next) => slot = next,
                Err(Closed) => return,
            }
        }
    }

    async fn once(&mut self) -> Result<(), Closed> {
        let started = Instant::now();
        let outcome = self.line.fetch(&self.rules).await;
        self.send(started.elapsed(), outcome).await
    }

    /// The slot after `slot`, late by less than a period if need be. One that went by whole, because the inbox was
    /// full or the machine too busy, is reported as skipped: a target is scraped or flagged in every period.
    async fn catch_up(&self, slot: UnixMs) -> Result<UnixMs, Closed> {
        let next = self.slots.next(slot);
        if self.slots.next(next) > (self.clock)() {
            return Ok(next);
        }
        self.send(Duration::ZERO, Err(Failure::Skipped)).await?;
        Ok(self.slots.next((self.clock)()))
    }

    async fn send(&self, took: Duration, outcome: Result<Page, Failure>) -> Result<(), Closed> {
        let batch = Batch {
            target: self.target,
            at: (self.clock)(),
            duration_ms: took.as_secs_f64() * 1e3,
            outcome,
        };
        self.inbox.send(Delivery::Batch(batch)).await.map_err(|_| Closed)
    }
}
