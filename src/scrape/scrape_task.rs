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
    RasRequestFn,
    backoff::ScrapeBackoff,
    content_negotiation::{FrameSupport, RequestedFormat},
    fetch::{FetchContext, TargetClient},
    log_thinning::LogThinning,
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
    pub(super) format: RequestedFormat,
    pub(super) client: TargetClient,
    pub(super) slots: ScrapeSlots,
    pub(super) period: Duration,
    pub(super) fetch_context: Arc<FetchContext>,
    pub(super) lateness: Arc<TimerLateness>,
    pub(super) quota_usage: TargetQuotaUsage,
    pub(super) replaced: mpsc::Sender<MachineReplaced>,
    pub(super) log_thinning: LogThinning,
    pub(super) inbox: mpsc::Sender<Delivery>,
    pub(super) clock: ClockFn,
    pub(super) wants_ras_status: RasRequestFn,
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
        let mut state = ScrapeState::default();
        let mut slot = self.slots.next((self.clock)());
        loop {
            sleep(slot.duration_since((self.clock)())).await;
            // Boxed: while the task waits for its slot, the state of an attempt takes no memory.
            if Box::pin(self.scrape_slot(&mut state, slot)).await.is_err() {
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
        state: &mut ScrapeState,
        slot: UnixMs,
    ) -> Result<(), ScrapeInboxClosed> {
        if state.backoff.take_skipped_period()
            && let Some(last) = state.last.clone()
        {
            return self
                .send_batch(Duration::ZERO, Err(ScrapeFailure::Resting(Box::new(last))))
                .await;
        }
        if state.widening.leaves_out(self.target, slot, self.period) {
            let permit = self.inbox.reserve().await.map_err(|_| ScrapeInboxClosed)?;
            permit.send(self.skipped_batch(slot));
            return Ok(());
        }
        let (started, lateness_before) = (Instant::now(), self.lateness.total_lateness());
        let outcome = self.try_scrape(started, state).await;
        let outcome = outcome.map_err(|failure| self.attribute_failure(failure, lateness_before));
        state.widening.note(matches!(outcome, Err(ScrapeFailure::OwnLateness(_))));
        match &outcome {
            Ok(page) => {
                state.backoff.record_success();
                state.last = None;
                self.check_identity(state, page).await?;
            }
            // No information about the target, which is scraped again in the next period.
            Err(ScrapeFailure::OwnLateness(_)) => {}
            Err(failure) => {
                state.backoff.record_failure(self.period, u64::from(self.target.0));
                state.last = Some(failure.clone());
            }
        }
        self.send_batch(started.elapsed(), outcome).await
    }

    /// Attributes a failure, given the lateness of the process when the attempt began. If the process was late again
    /// during the attempt, a timeout is its own fault.
    fn attribute_failure(&self, failure: ScrapeFailure, lateness: Duration) -> ScrapeFailure {
        let is_timeout = matches!(failure, ScrapeFailure::Timeout(_));
        let lateness = is_timeout
            .then(|| self.lateness.excessive_lateness(lateness, self.fetch_context.timeout))
            .flatten();
        lateness.map_or(failure, |lateness| ScrapeFailure::OwnLateness(lateness.as_millis() as u64))
    }

    async fn try_scrape(
        &mut self,
        started: Instant,
        state: &mut ScrapeState,
    ) -> Result<ScrapedPage, ScrapeFailure> {
        if self.format == RequestedFormat::FrameFirst {
            self.ask_for_frames(state);
        }
        self.client.set_ras_request((self.wants_ras_status)(self.target));
        let mut body = self.fetch_and_decode(state).await?;
        if let Err(failure @ ScrapeFailure::NotAPage(_)) = &body.page
            && body.format == BodyFormat::OpenMetrics
            && self.format != RequestedFormat::Text
        {
            if let Some(omitted) = self.log_thinning.admit_line((self.clock)()) {
                tracing::warn!(target = %self.address, %failure, omitted, "requesting text from now on");
            }
            self.format = RequestedFormat::Text;
            self.client.set_accept(self.format.accept_header());
            self.client.set_client_state(None);
            body = self.fetch_and_decode(state).await?;
        }
        if let Err(failure) = &body.page
            && body.format == BodyFormat::Frame
        {
            // This page is lost; the next ones are requested as text until frames are allowed again.
            let now = (self.clock)();
            let for_s = state.frame_support.record_fault(now).as_secs();
            if let Some(omitted) = self.log_thinning.admit_line(now) {
                tracing::warn!(target = %self.address, %failure, for_s, omitted, "requesting text for a while");
            }
        }
        let page = body.page?;
        // The page is discarded only once the next one is due: a busy machine is not the target's fault.
        if started.elapsed() > self.period.max(self.fetch_context.timeout) {
            let why = format!("decoding the page (limit {:?})", self.period);
            return Err(ScrapeFailure::Timeout(SanitizedText::new(&why)));
        }
        self.quota_usage.admit_page(&page, (self.clock)())?;
        Ok(page)
    }

    /// Requests a frame with the client state; text while frames of this target are not allowed.
    fn ask_for_frames(&mut self, state: &mut ScrapeState) {
        let frames_allowed = state.frame_support.is_frame_allowed((self.clock)());
        let format =
            if frames_allowed { RequestedFormat::FrameFirst } else { RequestedFormat::TextFirst };
        self.client.set_accept(format.accept_header());
        self.client.set_client_state(
            frames_allowed.then(|| self.fetch_context.frames.client_state(&mut state.frame)),
        );
    }

    /// Fetches and decodes a page, with the state of the target's earlier pages.
    async fn fetch_and_decode(
        &mut self,
        state: &mut ScrapeState,
    ) -> Result<DecodedBody, ScrapeFailure> {
        let body = self.client.fetch_body(&self.fetch_context).await?;
        let limits = text::PageLimits {
            body_bytes: self.fetch_context.max_body,
            samples: self.fetch_context.samples,
            ..text::PageLimits::default()
        };
        let is_long = body.decoded_bytes().len() > LONG_BODY
            && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        let format = BodyFormat::of(body.content_type());
        let mut decode = || match format {
            BodyFormat::Frame => self.fetch_context.frames.decode_frame(
                &mut state.frame,
                body.decoded_bytes(),
                &limits,
            ),
            BodyFormat::OpenMetrics | BodyFormat::Text => {
                state.frame = frame::FrameDecodeState::default();
                let layouts = &self.fetch_context.layouts;
                layouts.decode_as(
                    body.content_type(),
                    &mut state.layout,
                    body.decoded_bytes(),
                    &limits,
                )
            }
        };
        let page = if is_long { block_in_place(decode) } else { decode() };
        Ok(DecodedBody { page, format })
    }

    /// Gets a new target id if another machine answers than before.
    async fn check_identity(
        &mut self,
        state: &mut ScrapeState,
        page: &ScrapedPage,
    ) -> Result<(), ScrapeInboxClosed> {
        if state.identity.as_ref().is_some_and(|identity| identity.is_unchanged_in(page)) {
            return Ok(());
        }
        let current = MachineIdentity::of(page);
        let Some(identity) = &mut state.identity else {
            state.identity = Some(current);
            return Ok(());
        };
        if !identity.is_replaced_by(&current) {
            identity.update_from(current);
            return Ok(());
        }
        if let Some(omitted) = self.log_thinning.admit_line((self.clock)()) {
            tracing::warn!(
                target = %self.address,
                before = identity.describe_machine(),
                now = current.describe_machine(),
                omitted,
                "another machine answers at this address"
            );
        }
        *identity = current;
        let (reply, new_id) = oneshot::channel();
        let replaced = MachineReplaced { target: self.target, reply };
        self.replaced.send(replaced).await.map_err(|_| ScrapeInboxClosed)?;
        self.target = new_id.await.map_err(|_| ScrapeInboxClosed)?;
        Ok(())
    }

    /// The slot after `slot`, late by less than a period if necessary. Slots that passed entirely, because the inbox
    /// was full or the machine too busy, are reported as skipped: a target is scraped or flagged in every period. The
    /// report waits for the inbox, too, and speaks for the slots that pass meanwhile.
    async fn catch_up(&self, slot: UnixMs) -> Result<UnixMs, ScrapeInboxClosed> {
        let next = self.slots.next(slot);
        if self.slots.next(next) > (self.clock)() {
            return Ok(next);
        }
        let permit = self.inbox.reserve().await.map_err(|_| ScrapeInboxClosed)?;
        let next = self.slots.next((self.clock)());
        permit.send(self.skipped_batch(next - self.period));
        Ok(next)
    }

    /// The report that slots are left out, the last of them at this time.
    fn skipped_batch(&self, slot: UnixMs) -> Delivery {
        let outcome = Err(ScrapeFailure::Skipped);
        Delivery::Batch(Batch { target: self.target, at: slot, duration_ms: 0.0, outcome })
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
    format: BodyFormat,
}

/// The format of a body, from its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFormat {
    Frame,
    OpenMetrics,
    Text,
}

impl BodyFormat {
    fn of(media_type: &str) -> Self {
        match media_type {
            media_type if frame::is_frame(media_type) => Self::Frame,
            media_type if text::is_open_metrics(media_type) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }
}
