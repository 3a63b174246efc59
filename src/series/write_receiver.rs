//! Write receiver: a thread that reads remote write requests, one after the other, and delivers their pages.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{
    Delivery, SanitizedText, SourceLoad, TargetSource, UnixMs, time::format_time_of_day,
};
use gaunt_store::{ReceivedRequest, ReceivedRequestError, decompress_request};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    page_assembly::{PageAssembly, ReceivedSamples},
    received_page::PAGE_TIMEOUT,
    series_clock::SeriesClock,
};

/// How far the engine is behind the present: a page that is not whole has its time, and then some.
pub const RECEIVE_LAG: Duration = PAGE_TIMEOUT.saturating_add(Duration::from_secs(2));

/// Requests that wait for the thread; a sender is told to wait beyond them.
const WAITING: usize = 16;

/// The time between two searches for pages that have waited long enough.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// The longest time that a due page waits for its delivery.
const STEP: Duration = Duration::from_millis(100);

/// The time between two reports of the state.
const REPORT: Duration = Duration::from_secs(5);

/// The time without any sample after which that is a failure.
const SILENCE: Duration = Duration::from_mins(1);

/// The name of the source of targets.
const SOURCE: &str = "remote write";

/// State of the receiver; counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveStatus {
    /// Requests that were read.
    pub requests: u64,
    /// Requests that were refused because they were invalid.
    pub invalid_requests: u64,
    /// What became of their samples.
    pub samples: ReceivedSamples,
    /// Pages that are not whole or wait for their instants.
    pub waiting_pages: u64,
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveRefusal {
    /// Too many requests wait.
    #[error("gaunt is behind: {WAITING} requests wait; send this one again later")]
    Behind,
    /// It cannot be read.
    #[error(transparent)]
    Invalid(#[from] ReceivedRequestError),
    /// The receiver has ended.
    #[error("gaunt is stopping")]
    Ended,
}

type RequestBody = Box<dyn AsRef<[u8]> + Send>;

/// A request, and where its result goes.
struct WaitingRequest {
    body: RequestBody,
    reply: oneshot::Sender<Result<(), ReceivedRequestError>>,
}

/// Hands requests to the thread, which ends with the last copy.
#[derive(Clone, Debug)]
pub struct WriteReceiver {
    requests: SyncSender<WaitingRequest>,
    status: watch::Receiver<ReceiveStatus>,
}

impl WriteReceiver {
    /// Starts the thread, which delivers pages to `inbox` at their instants by this clock.
    pub fn start_thread(
        inbox: mpsc::Sender<Delivery>,
        clock: SeriesClock,
    ) -> std::io::Result<Self> {
        let (requests, waiting) = sync_channel(WAITING);
        let (status_sender, status) = watch::channel(ReceiveStatus::default());
        let thread = ReceiverThread {
            assembly: PageAssembly::new(SOURCE.into()),
            announced: 0,
            status: ReceiveStatus::default(),
            status_sender,
            reported: ReportedState { at: Instant::now(), status: ReceiveStatus::default() },
            last_request: Instant::now(),
            busy: Duration::ZERO,
            inbox,
            clock,
        };
        thread::Builder::new()
            .name("receive".to_owned())
            .spawn(move || drop(thread.run(&waiting)))?;
        Ok(Self { requests, status })
    }

    /// Hands a request over, and waits until it was read.
    pub async fn submit_request(
        &self,
        body: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<(), ReceiveRefusal> {
        let (reply, result) = oneshot::channel();
        self.requests.try_send(WaitingRequest { body: Box::new(body), reply }).map_err(
            |error| match error {
                TrySendError::Full(_) => ReceiveRefusal::Behind,
                TrySendError::Disconnected(_) => ReceiveRefusal::Ended,
            },
        )?;
        Ok(result.await.map_err(|_| ReceiveRefusal::Ended)??)
    }

    /// The state of the receiver.
    pub fn watch_status(&self) -> watch::Receiver<ReceiveStatus> {
        self.status.clone()
    }
}

/// What was reported last, and when.
struct ReportedState {
    at: Instant,
    status: ReceiveStatus,
}

/// The engine has ended.
struct EngineEnded;

/// The state of the thread.
struct ReceiverThread {
    assembly: PageAssembly,
    /// The revision of the targets that were announced.
    announced: u64,
    status: ReceiveStatus,
    status_sender: watch::Sender<ReceiveStatus>,
    reported: ReportedState,
    last_request: Instant,
    /// Time spent on requests since the last report.
    busy: Duration,
    inbox: mpsc::Sender<Delivery>,
    clock: SeriesClock,
}

impl ReceiverThread {
    fn run(mut self, requests: &Receiver<WaitingRequest>) -> Result<(), EngineEnded> {
        let mut cleaned = Instant::now();
        loop {
            match requests.recv_timeout(STEP) {
                Ok(request) => self.read_request(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if cleaned.elapsed() >= HOUSEKEEPING {
                cleaned = Instant::now();
                self.assembly.run_housekeeping(self.clock.present());
                self.status.waiting_pages = self.assembly.waiting_pages() as u64;
            }
            self.deliver_due()?;
            if self.reported.at.elapsed() >= REPORT {
                self.report_source()?;
            }
            self.status.samples = self.assembly.samples();
            let status = self.status;
            self.status_sender.send_if_modified(|last| std::mem::replace(last, status) != status);
        }
    }

    fn read_request(&mut self, request: WaitingRequest) {
        let began = Instant::now();
        let body: &[u8] = (*request.body).as_ref();
        let result = decompress_request(body).and_then(|decompressed| {
            let received = ReceivedRequest::parse(&decompressed)?;
            self.assembly.add_request(&received, self.clock.present());
            Ok(())
        });
        match &result {
            Ok(()) => {
                self.status.requests += 1;
                self.last_request = Instant::now();
            }
            Err(_) => self.status.invalid_requests += 1,
        }
        self.busy += began.elapsed();
        // The client may have gone.
        _ = request.reply.send(result);
    }

    /// Delivers pages whose instants have come.
    fn deliver_due(&mut self) -> Result<(), EngineEnded> {
        let due = self.assembly.take_due(self.clock.due_until());
        if due.is_empty() {
            return Ok(());
        }
        let revision = self.assembly.target_revision();
        if self.announced != revision {
            self.announced = revision;
            self.deliver(Delivery::Targets(self.assembly.announced_targets()))?;
        }
        for batch in due {
            self.clock.allow_until(batch.at);
            self.deliver(Delivery::Batch(batch))?;
        }
        Ok(())
    }

    /// Reports the state to the engine, which shows it.
    fn report_source(&mut self) -> Result<(), EngineEnded> {
        let (before, now) = (self.reported.status, self.status);
        let elapsed = self.reported.at.elapsed();
        let trouble = self.find_trouble(&before.samples);
        if let Some(trouble) = &trouble {
            tracing::debug!(%trouble, "remote write");
        }
        let used = now.samples.used - before.samples.used;
        let source = TargetSource {
            name: SOURCE.into(),
            targets: self.assembly.announced_targets().len() as u32,
            taken: (now.requests > 0).then(|| self.clock.now()),
            failed_since: trouble.as_ref().map(|_| self.clock.now()),
            trouble,
            load: (used > 0).then(|| SourceLoad {
                queries: now.requests - before.requests,
                samples: used,
                answer_ms: self.busy.as_secs_f64() * 1e3,
                refresh_ms: elapsed.as_millis() as u64,
                delay_ms: RECEIVE_LAG.as_millis() as u64,
                skew_ms: None,
                is_received: true,
            }),
        };
        self.reported = ReportedState { at: Instant::now(), status: now };
        self.busy = Duration::ZERO;
        self.deliver(Delivery::Sources(vec![source]))
    }

    /// What is wrong with what was received since the last report, with the next step.
    fn find_trouble(&self, before: &ReceivedSamples) -> Option<SanitizedText> {
        let (now, newest) = (self.assembly.samples(), self.assembly.newest());
        let text = if self.last_request.elapsed() > SILENCE {
            let last = match newest {
                UnixMs(0) => String::new(),
                newest => format!(" since {}", format_time_of_day(newest)),
            };
            format!("nothing was received{last}; check remote_write of the sender, and its log")
        } else if now.without_target > before.without_target && newest == UnixMs(0) {
            "no target has the series `up`, which names targets and their scrapes; keep `up` in \
             write_relabel_configs of the sender"
                .to_owned()
        } else if now.future > before.future {
            "samples are more than a minute ahead of the clock of this machine; check NTP on both"
                .to_owned()
        } else if now.over_limit > before.over_limit {
            "series beyond the limits were left out; send only what gaunt reads (write_relabel_configs)".to_owned()
        } else if now.old > before.old {
            "samples are more than 15 minutes old and are left out; the sender is behind, check its log".to_owned()
        } else {
            return None;
        };
        Some(SanitizedText::new(&text))
    }

    fn deliver(&self, delivery: Delivery) -> Result<(), EngineEnded> {
        self.inbox.blocking_send(delivery).map_err(|_| EngineEnded)
    }
}
