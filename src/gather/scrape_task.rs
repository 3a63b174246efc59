//! The life of one target: wait for its slot, fetch, decode, send one batch, whatever happened.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{
    Batch, ClockFn, Delivery, SanitizedText, ScrapeFailure, ScrapedPage, TargetId, UnixMs, frame,
    text,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{mpsc, oneshot},
    task::block_in_place,
    time::{Instant, sleep},
};

use super::{
    backoff::ScrapeBackoff,
    content_negotiation::{FrameSupport, RequestedFormat},
    fetch::{FetchContext, TargetClient},
    machine_identity::MachineIdentity,
    quotas::TargetQuotaUsage,
    scrape_manager::NewTargetIdSender,
    scrape_slots::ScrapeSlots,
    timer_lateness::TimerLateness,
    widening::Widening,
};

/// A body from which decoding takes so long, in bytes, that the other targets of this thread are given to another one
/// meanwhile: some milliseconds.
const LONG_BODY: usize = 1 << 20;

/// One target on its way through the periods.
pub(super) struct ScrapeTask {
    pub(super) target: TargetId,
    pub(super) address: SanitizedText,
    pub(super) form: RequestedFormat,
    pub(super) client: TargetClient,
    pub(super) slots: ScrapeSlots,
    pub(super) period: Duration,
    pub(super) rules: Arc<FetchContext>,
    pub(super) lateness: Arc<TimerLateness>,
    pub(super) quota_usage: TargetQuotaUsage,
    pub(super) replaced: mpsc::Sender<MachineReplaced>,
    pub(super) inbox: mpsc::Sender<Delivery>,
    pub(super) clock: ClockFn,
}

/// Another machine answers where this target was; the number that it gets comes back.
#[derive(Debug)]
pub(super) struct MachineReplaced {
    pub(super) target: TargetId,
    pub(super) reply: NewTargetIdSender,
}

/// The inbox is closed: nobody wants to know any more.
struct ScrapeInboxClosed;

/// What is remembered from one attempt to the next.
#[derive(Default)]
struct ScrapeState {
    layout: text::TemplateState,
    frame: frame::FrameDecodeState,
    frame_support: FrameSupport,
    identity: Option<MachineIdentity>,
    backoff: ScrapeBackoff,
    widening: Widening,
    last: Option<ScrapeFailure>,
}

impl ScrapeTask {
    /// Sends a batch for every slot until the inbox is closed.
    pub(super) async fn run(mut self) {
        let mut memory = ScrapeState::default();
        let mut slot = self.slots.next((self.clock)());
        loop {
            sleep(slot.duration_since((self.clock)())).await;
            if self.scrape_slot(&mut memory, slot).await.is_err() {
                return;
            }
            match self.catch_up(slot).await {
                Ok(next) => slot = next,
                Err(ScrapeInboxClosed) => return,
            }
        }
    }

    /// The batch of one slot: an attempt, or the word that the target is spared in this period.
    async fn scrape_slot(
        &mut self,
        memory: &mut ScrapeState,
        slot: UnixMs,
    ) -> Result<(), ScrapeInboxClosed> {
        if memory.backoff.take_skipped_period()
            && let Some(last) = memory.last.clone()
        {
            return self
                .send_batch(Duration::ZERO, Err(ScrapeFailure::Resting(Box::new(last))))
                .await;
        }
        if memory.widening.leaves_out(self.target, slot, self.period) {
            return self.send_batch(Duration::ZERO, Err(ScrapeFailure::Skipped)).await;
        }
        let (started, late) = (Instant::now(), self.lateness.total_lateness());
        let outcome = self.try_scrape(started, memory).await;
        let outcome = outcome.map_err(|failure| self.attribute_failure(failure, late));
        memory.widening.note(matches!(outcome, Err(ScrapeFailure::OwnLateness(_))));
        match &outcome {
            Ok(page) => {
                memory.backoff.record_success();
                memory.last = None;
                self.check_identity(memory, page).await?;
            }
            // It says nothing of the target, which is asked again in the next period.
            Err(ScrapeFailure::OwnLateness(_)) => {}
            Err(failure) => {
                memory.backoff.record_failure(self.period, u64::from(self.target.0));
                memory.last = Some(failure.clone());
            }
        }
        self.send_batch(started.elapsed(), outcome).await
    }

    /// The failure of an attempt that began when the process had been late for so long. A deadline that ran out while it
    /// was late again is its own fault.
    fn attribute_failure(&self, failure: ScrapeFailure, late: Duration) -> ScrapeFailure {
        let own = matches!(failure, ScrapeFailure::Timeout(_));
        let late =
            own.then(|| self.lateness.excessive_lateness(late, self.rules.timeout)).flatten();
        late.map_or(failure, |late| ScrapeFailure::OwnLateness(late.as_millis() as u64))
    }

    async fn try_scrape(
        &mut self,
        started: Instant,
        memory: &mut ScrapeState,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        if self.form == RequestedFormat::FrameFirst {
            self.ask_for_frames(memory);
        }
        let mut read = self.fetch_and_decode(memory).await?;
        if let Err(failure @ ScrapeFailure::NotAPage(_)) = &read.page
            && read.language == BodyFormat::OpenMetrics
            && self.form != RequestedFormat::Text
        {
            tracing::warn!(target = %self.address, %failure, "asked for text from now on");
            self.form = RequestedFormat::Text;
            self.client.set_accept(self.form.accept_header());
            self.client.set_client_state(None);
            read = self.fetch_and_decode(memory).await?;
        }
        if let Err(failure) = &read.page
            && read.language == BodyFormat::Frame
        {
            // This page is lost; the next ones come as text, until there is hope again.
            let wary = memory.frame_support.record_fault((self.clock)());
            tracing::warn!(target = %self.address, %failure, for_s = wary.as_secs(), "asked for text");
        }
        let page = read.page?;
        // What was read is thrown away only once the next one is due: a busy machine is not the target's fault.
        if started.elapsed() > self.period.max(self.rules.timeout) {
            let why = format!("decoding the page (limit {:?})", self.period);
            return Err(ScrapeFailure::Timeout(SanitizedText::new(&why)));
        }
        self.quota_usage.admit_page(&page, (self.clock)())?;
        Ok(page)
    }

    /// Asks for a frame and says what is held already; for text while its frames are not believed.
    fn ask_for_frames(&mut self, memory: &mut ScrapeState) {
        let trusted = memory.frame_support.is_frame_allowed((self.clock)());
        let form = if trusted { RequestedFormat::FrameFirst } else { RequestedFormat::TextFirst };
        self.client.set_accept(form.accept_header());
        self.client
            .set_client_state(trusted.then(|| self.rules.frames.client_state(&mut memory.frame)));
    }

    /// Fetches a page and takes it apart, by what is remembered of the target's pages before.
    async fn fetch_and_decode(
        &mut self,
        memory: &mut ScrapeState,
    ) -> Result<DecodedBody, ScrapeFailure> {
        let body = self.client.fetch_body(&self.rules).await?;
        let limits = text::PageLimits {
            body_bytes: self.rules.max_body,
            samples: self.rules.samples,
            ..text::PageLimits::default()
        };
        let long = body.decoded_bytes().len() > LONG_BODY
            && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        let language = BodyFormat::of(body.content_type());
        let mut read = || match language {
            BodyFormat::Frame => {
                self.rules.frames.decode_frame(&mut memory.frame, body.decoded_bytes(), &limits)
            }
            BodyFormat::OpenMetrics | BodyFormat::Text => {
                memory.frame = frame::FrameDecodeState::default();
                let layouts = &self.rules.layouts;
                layouts.decode_as(
                    body.content_type(),
                    &mut memory.layout,
                    body.decoded_bytes(),
                    &limits,
                )
            }
        };
        let page = if long { block_in_place(read) } else { read() };
        Ok(DecodedBody { page, language })
    }

    /// Takes another number if another machine answers than before.
    async fn check_identity(
        &mut self,
        memory: &mut ScrapeState,
        page: &ScrapedPage,
    ) -> Result<(), ScrapeInboxClosed> {
        if memory.identity.as_ref().is_some_and(|known| known.is_unchanged_in(page)) {
            return Ok(());
        }
        let now = MachineIdentity::of(page);
        let Some(known) = &mut memory.identity else {
            memory.identity = Some(now);
            return Ok(());
        };
        if !known.is_replaced_by(&now) {
            known.update_from(now);
            return Ok(());
        }
        tracing::warn!(
            target = %self.address, before = known.describe_machine(), now = now.describe_machine(),
            "another machine answers at this address"
        );
        *known = now;
        let (back, number) = oneshot::channel();
        let replaced = MachineReplaced { target: self.target, reply: back };
        self.replaced.send(replaced).await.map_err(|_| ScrapeInboxClosed)?;
        self.target = number.await.map_err(|_| ScrapeInboxClosed)?;
        Ok(())
    }

    /// The slot after `slot`, late by less than a period if need be. One that went by whole, because the inbox was
    /// full or the machine too busy, is reported as skipped: a target is scraped or flagged in every period.
    async fn catch_up(&self, slot: UnixMs) -> Result<UnixMs, ScrapeInboxClosed> {
        let next = self.slots.next(slot);
        if self.slots.next(next) > (self.clock)() {
            return Ok(next);
        }
        self.send_batch(Duration::ZERO, Err(ScrapeFailure::Skipped)).await?;
        Ok(self.slots.next((self.clock)()))
    }

    async fn send_batch(
        &self,
        took: Duration,
        outcome: Result<ScrapedPage, ScrapeFailure>,
    ) -> Result<(), ScrapeInboxClosed> {
        let batch = Batch {
            target: self.target,
            at: (self.clock)(),
            duration_ms: took.as_secs_f64() * 1e3,
            outcome,
        };
        self.inbox.send(Delivery::Batch(batch)).await.map_err(|_| ScrapeInboxClosed)
    }
}

/// What became of a body, and what its sender called it.
struct DecodedBody {
    page: Result<ScrapedPage, ScrapeFailure>,
    language: BodyFormat,
}

/// What a body is, as its sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFormat {
    Frame,
    OpenMetrics,
    Text,
}

impl BodyFormat {
    fn of(media: &str) -> Self {
        match media {
            media if frame::is_frame(media) => Self::Frame,
            media if text::is_open_metrics(media) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }
}
