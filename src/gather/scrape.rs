//! The life of one target: wait for its slot, fetch, decode, send one batch, whatever happened.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{Batch, Clock, Delivery, Failure, Page, Safe, TargetId, UnixMs, frame, text};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{mpsc, oneshot},
    task::block_in_place,
    time::{Instant, sleep},
};

use super::{
    budget::Account,
    desk::Back,
    fetch::{Line, Rules},
    form::{Form, Trust},
    identity::Identity,
    lateness::Lateness,
    rest::Rest,
    schedule::Slots,
    widening::Widening,
};

/// A body from which decoding takes so long, in bytes, that the other targets of this thread are given to another one
/// meanwhile: some milliseconds.
const LONG_BODY: usize = 1 << 20;

/// One target on its way through the periods.
pub(super) struct Scrape {
    pub(super) target: TargetId,
    pub(super) address: Safe,
    pub(super) form: Form,
    pub(super) line: Line,
    pub(super) slots: Slots,
    pub(super) period: Duration,
    pub(super) rules: Arc<Rules>,
    pub(super) lateness: Arc<Lateness>,
    pub(super) account: Account,
    pub(super) replaced: mpsc::Sender<Replaced>,
    pub(super) inbox: mpsc::Sender<Delivery>,
    pub(super) clock: Clock,
}

/// Another machine answers where this target was; the number that it gets comes back.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) target: TargetId,
    pub(super) back: Back,
}

/// The inbox is closed: nobody wants to know any more.
struct Closed;

/// What is remembered from one attempt to the next.
#[derive(Default)]
struct Memory {
    layout: text::Memory,
    frame: frame::Memory,
    trust: Trust,
    identity: Option<Identity>,
    rest: Rest,
    widening: Widening,
    last: Option<Failure>,
}

impl Scrape {
    /// Sends a batch for every slot until the inbox is closed.
    pub(super) async fn run(mut self) {
        let mut memory = Memory::default();
        let mut slot = self.slots.next((self.clock)());
        loop {
            sleep(slot.since((self.clock)())).await;
            if self.once(&mut memory, slot).await.is_err() {
                return;
            }
            match self.catch_up(slot).await {
                Ok(next) => slot = next,
                Err(Closed) => return,
            }
        }
    }

    /// The batch of one slot: an attempt, or the word that the target is spared in this period.
    async fn once(&mut self, memory: &mut Memory, slot: UnixMs) -> Result<(), Closed> {
        if memory.rest.take()
            && let Some(last) = memory.last.clone()
        {
            return self.send(Duration::ZERO, Err(Failure::Resting(Box::new(last)))).await;
        }
        if memory.widening.leaves_out(self.target, slot, self.period) {
            return self.send(Duration::ZERO, Err(Failure::Skipped)).await;
        }
        let (started, late) = (Instant::now(), self.lateness.total());
        let outcome = self.attempt(started, memory).await;
        let outcome = outcome.map_err(|failure| self.judged(failure, late));
        memory.widening.note(matches!(outcome, Err(Failure::OwnLateness(_))));
        match &outcome {
            Ok(page) => {
                memory.rest.end();
                memory.last = None;
                self.recognise(memory, page).await?;
            }
            // It says nothing of the target, which is asked again in the next period.
            Err(Failure::OwnLateness(_)) => {}
            Err(failure) => {
                memory.rest.fail(self.period, u64::from(self.target.0));
                memory.last = Some(failure.clone());
            }
        }
        self.send(started.elapsed(), outcome).await
    }

    /// The failure of an attempt that began when the process had been late for so long. A deadline that ran out while it
    /// was late again is its own fault.
    fn judged(&self, failure: Failure, late: Duration) -> Failure {
        let own = matches!(failure, Failure::Timeout(_));
        let late = own.then(|| self.lateness.too_late(late, self.rules.timeout)).flatten();
        late.map_or(failure, |late| Failure::OwnLateness(late.as_millis() as u64))
    }

    async fn attempt(&mut self, started: Instant, memory: &mut Memory) -> Result<Page, Failure> {
        if self.form == Form::FrameFirst {
            self.ask_for_frames(memory);
        }
        let mut read = self.read(memory).await?;
        if let Err(failure @ Failure::NotAPage(_)) = &read.page
            && read.language == Language::OpenMetrics
            && self.form != Form::Text
        {
            tracing::warn!(target = %self.address, %failure, "asked for text from now on");
            self.form = Form::Text;
            self.line.ask_for(self.form.accept());
            self.line.hold(None);
            read = self.read(memory).await?;
        }
        if let Err(failure) = &read.page
            && read.language == Language::Frame
        {
            // This page is lost; the next ones come as text, until there is hope again.
            let wary = memory.trust.fail((self.clock)());
            tracing::warn!(target = %self.address, %failure, for_s = wary.as_secs(), "asked for text");
        }
        let page = read.page?;
        // What was read is thrown away only once the next one is due: a busy machine is not the target's fault.
        if started.elapsed() > self.period.max(self.rules.timeout) {
            let why = format!("decoding the page (limit {:?})", self.period);
            return Err(Failure::Timeout(Safe::new(&why)));
        }
        self.account.admit(&page, (self.clock)())?;
        Ok(page)
    }

    /// Asks for a frame and says what is held already; for text while its frames are not believed.
    fn ask_for_frames(&mut self, memory: &mut Memory) {
        let trusted = memory.trust.is_back((self.clock)());
        let form = if trusted { Form::FrameFirst } else { Form::TextFirst };
        self.line.ask_for(form.accept());
        self.line.hold(trusted.then(|| self.rules.frames.holds(&mut memory.frame)));
    }

    /// Fetches a page and takes it apart, by what is remembered of the target's pages before.
    async fn read(&mut self, memory: &mut Memory) -> Result<Read, Failure> {
        let body = self.line.fetch(&self.rules).await?;
        let limits = text::Limits {
            body_bytes: self.rules.max_body,
            samples: self.rules.samples,
            ..text::Limits::default()
        };
        let long = body.bytes().len() > LONG_BODY
            && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        let language = Language::of(body.media());
        let mut read = || match language {
            Language::Frame => self.rules.frames.decode(&mut memory.frame, body.bytes(), &limits),
            Language::OpenMetrics | Language::Text => {
                memory.frame = frame::Memory::default();
                let layouts = &self.rules.layouts;
                layouts.decode_as(body.media(), &mut memory.layout, body.bytes(), &limits)
            }
        };
        let page = if long { block_in_place(read) } else { read() };
        Ok(Read { page, language })
    }

    /// Takes another number if another machine answers than before.
    async fn recognise(&mut self, memory: &mut Memory, page: &Page) -> Result<(), Closed> {
        if memory.identity.as_ref().is_some_and(|known| known.is_of(page)) {
            return Ok(());
        }
        let now = Identity::of(page);
        let Some(known) = &mut memory.identity else {
            memory.identity = Some(now);
            return Ok(());
        };
        if !known.is_replaced_by(&now) {
            known.learn(now);
            return Ok(());
        }
        tracing::warn!(
            target = %self.address, before = known.told(), now = now.told(),
            "another machine answers at this address"
        );
        *known = now;
        let (back, number) = oneshot::channel();
        let replaced = Replaced { target: self.target, back };
        self.replaced.send(replaced).await.map_err(|_| Closed)?;
        self.target = number.await.map_err(|_| Closed)?;
        Ok(())
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

/// What became of a body, and what its sender called it.
struct Read {
    page: Result<Page, Failure>,
    language: Language,
}

/// What a body is, as its sender says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Frame,
    OpenMetrics,
    Text,
}

impl Language {
    fn of(media: &str) -> Self {
        match media {
            media if frame::is_frame(media) => Self::Frame,
            media if text::is_open_metrics(media) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }
}
