//! Virtual receiver of bench `past`: remote write is received in virtual time, directly or as a real program forwards it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use gaunt_schema::{ClockFn, Delivery, UnixMs};
use gaunt_series::{RECEIVE_LAG, SeriesClock, WriteReceiver};
use gaunt_store::{ReceivedRequest, decompress_request};
use tokio::{runtime::Runtime, sync::mpsc};

use super::{
    PERIOD,
    judged_run::{JudgedRun, ToldFindings},
    metrics_server::MetricsServer,
    past_fleet::PastFleet,
};
use crate::write_sink::start_sink;

/// How long a scrape may be on its way.
const FORWARDED_WITHIN: Duration = Duration::from_mins(2);

/// A receiver whose time is virtual.
pub(crate) struct VirtualReceiver {
    present: Arc<AtomicI64>,
    receiver: WriteReceiver,
    deliveries: mpsc::Receiver<Delivery>,
}

/// Samples of real programs, on their way to a receiver.
struct ForwardedWrites {
    /// The address that is written to.
    url: String,
    /// Samples that arrived.
    samples: Arc<AtomicU64>,
}

impl VirtualReceiver {
    pub(crate) fn start(at: UnixMs) -> anyhow::Result<Self> {
        let present = Arc::new(AtomicI64::new(at.0));
        let clock: ClockFn = {
            let present = present.clone();
            Arc::new(move || UnixMs(present.load(Relaxed)))
        };
        let (inbox, deliveries) = mpsc::channel(4_096);
        let clock = SeriesClock::new(clock, RECEIVE_LAG, at - RECEIVE_LAG);
        Ok(Self { present, receiver: WriteReceiver::start_thread(inbox, clock)?, deliveries })
    }

    /// Opens a server whose requests the receiver gets.
    fn open_sink(&self, runtime: &Runtime) -> anyhow::Result<ForwardedWrites> {
        let (receiver, handle) = (self.receiver.clone(), runtime.handle().clone());
        let samples = Arc::new(AtomicU64::new(0));
        let arrived = samples.clone();
        let url = start_sink(move |body| {
            let plain = decompress_request(&body).ok()?;
            let request = ReceivedRequest::parse(&plain).ok()?;
            let count = request.series.iter().map(|series| request.samples_of(series).len() as u64);
            let count: u64 = count.sum();
            // While the queue is full the sender sends again.
            if handle.block_on(receiver.submit_request(body)).is_err() {
                return Some("429 Too Many Requests");
            }
            arrived.fetch_add(count, Relaxed);
            Some("204 No Content")
        })?;
        Ok(ForwardedWrites { url, samples })
    }

    /// Receives a scrape of these nodes directly, and passes on what is delivered until each node has its page.
    pub(crate) fn receive(
        &mut self,
        runtime: &Runtime,
        fleet: &PastFleet,
        nodes: usize,
        at: UnixMs,
        consume: impl FnMut(Delivery),
    ) -> anyhow::Result<u64> {
        self.present.store(at.0 + 500, Relaxed);
        let receiver = self.receiver.clone();
        let samples = fleet.encode_scrape(0..nodes, at, |body| {
            runtime.block_on(receiver.submit_request(body))?;
            Ok(())
        })?;
        self.take_pages(nodes, at, consume)?;
        Ok(samples)
    }

    /// Passes on what is delivered until each node has its page of this instant.
    fn take_pages(
        &mut self,
        nodes: usize,
        at: UnixMs,
        mut consume: impl FnMut(Delivery),
    ) -> anyhow::Result<()> {
        self.present.store((at + RECEIVE_LAG).0 + 1_000, Relaxed);
        let (began, mut pages) = (Instant::now(), 0);
        while pages < nodes {
            ensure!(began.elapsed() < FORWARDED_WITHIN, "{pages} of {nodes} pages came");
            match self.deliveries.try_recv() {
                Ok(delivery) => {
                    pages += usize::from(matches!(delivery, Delivery::Batch(_)));
                    consume(delivery);
                }
                Err(mpsc::error::TryRecvError::Empty) => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The findings of the first nodes as a program forwards their scrapes: `start` starts it with the address to write to.
pub(crate) fn judge_forwarded(
    runtime: &Runtime,
    fleet: &PastFleet,
    nodes: usize,
    scrapes: i64,
    now: UnixMs,
    start: impl FnOnce(&str) -> anyhow::Result<MetricsServer>,
) -> anyhow::Result<ToldFindings> {
    let mut run = JudgedRun::new();
    let mut receiver = VirtualReceiver::start(now - PERIOD * scrapes as u32)?;
    let forwarded = receiver.open_sink(runtime)?;
    let (mut server, mut sent) = (start(&forwarded.url)?, 0);
    for scrape in (0..scrapes).rev() {
        let at = now - PERIOD * scrape as u32;
        receiver.present.store(at.0 + 500, Relaxed);
        sent += fleet.encode_scrape(0..nodes, at, |body| server.send(&body))?;
        let padding = server.push_out(at)?;
        sent += padding;
        let began = Instant::now();
        // Samples are forwarded in order: what stays behind is padding.
        while forwarded.samples.load(Relaxed) + padding < sent {
            let arrived = forwarded.samples.load(Relaxed);
            ensure!(began.elapsed() < FORWARDED_WITHIN, "{arrived} of {sent} samples came");
            thread::sleep(Duration::from_millis(1));
        }
        receiver.take_pages(nodes, at, |delivery| run.deliver(delivery))?;
    }
    run.run_until(now + Duration::from_secs(1));
    Ok(run.told)
}
