//! The scrape task of one target: waits for its slot, fetches, decodes, and sends one batch, whatever the outcome.

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
    scrape_slots::ScrapeSlots,
    timer_lateness::TimerLateness,
    widening::Widening,
};

/// Body size in bytes above which decoding takes some milliseconds, so that the other tasks of this thread move to
/// another thread meanwhile.
const LONG_BODY: usize = 1 << 20;

/// The scrape task of one target.
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

/// Reports that another machine answers at a target's address; the reply is its new id.
#[derive(Debug)]
pub(super) struct MachineReplaced {
    pub(super) target: TargetId,
    pub(super) reply: oneshot::Sender<TargetId>,
}

/// The inbox is closed: receiver dropped.
struct ScrapeInboxClosed;

/// State that is kept between attempts.
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

    /// The batch of one slot: an attempt, or a report that the target is skipped in this period.
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
            // No information about the target, which is scraped again in the next period.
            Err(ScrapeFailure::OwnLateness(_)) => {}
            Err(failure) => {
                memory.backoff.record_failure(self.period, u64::from(self.target.0));
                memory.last = Some(failure.clone());
            }
        }
        self.send_batch(started.elapsed(), outcome).await
    }

    /// Attributes a failure, given the lateness of the process when the attempt began. If the process was late again
    /// during the attempt, a timeout is its own fault.
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
            tracing::warn!(target = %self.address, %failure, "requesting text from now on");
            self.form = RequestedFormat::Text;
            self.client.set_accept(self.form.accept_header());
            self.client.set_client_state(None);
            read = self.fetch_and_decode(memory).await?;
        }
        if let Err(failure) = &read.page
            && read.language == BodyFormat::Frame
        {
            // This page is lost; the next ones are requested as text until frames are allowed again.
            let wary = memory.frame_support.record_fault((self.clock)());
            tracing::warn!(target = %self.address, %failure, for_s = wary.as_secs(), "requesting text for a while");
        }
        let page = read.page?;
        // The page is discarded only once the next one is due: a busy machine is not the target's fault.
        if started.elapsed() > self.period.max(self.rules.timeout) {
            let why = format!("decoding the page (limit {:?})", self.period);
            return Err(ScrapeFailure::Timeout(SanitizedText::new(&why)));
        }
        self.quota_usage.admit_page(&page, (self.clock)())?;
        Ok(page)
    }

    /// Requests a frame with the client state; text while frames of this target are not allowed.
    fn ask_for_frames(&mut self, memory: &mut ScrapeState) {
        let trusted = memory.frame_support.is_frame_allowed((self.clock)());
        let form = if trusted { RequestedFormat::FrameFirst } else { RequestedFormat::TextFirst };
        self.client.set_accept(form.accept_header());
        self.client
            .set_client_state(trusted.then(|| self.rules.frames.client_state(&mut memory.frame)));
    }

    /// Fetches and decodes a page, with the state of the target's earlier pages.
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

    /// Gets a new target id if another machine answers than before.
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

    /// The slot after `slot`, late by less than a period if necessary. Slots that passed entirely, because the inbox
    /// was full or the machine too busy, are reported as skipped: a target is scraped or flagged in every period.
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

/// The decoded body and its content type.
struct DecodedBody {
    page: Result<ScrapedPage, ScrapeFailure>,
    language: BodyFormat,
}

/// The format of a body, from its content type.
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
