//! The exporter as a service: sampler, pages and server, kept together until a signal ends it or brings new settings.

use std::{fmt, future::pending, io, net::SocketAddr, sync::Arc, time::Instant};

use gaunt_schema::{Device, Report, UnixMs, catalogue::exporter, text::Compat};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval},
};

use crate::{
    Options, Page, Sampler, clock,
    host_check::HostNames,
    server::{self, ServeError},
    watchdog::Watchdog,
};

/// What is to be served, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Names under which it may be asked, beside its addresses and those of this machine.
    pub names: Vec<String>,
    /// In whose words the page speaks beside our own.
    pub compat: Compat,
    /// What is sampled.
    pub sampler: Options,
}

/// Why the service cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The page cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}; raise the limit on open files")]
    Signals(#[from] io::Error),
}

/// Serves `plan` until SIGTERM or SIGINT. On SIGHUP `again` reads the settings anew; a plan that cannot be had or
/// cannot be served is refused with a line in the log, and the service goes on as before. `watchdog` is fed as long as a
/// restart would not help.
pub async fn run<E: fmt::Display>(
    plan: Plan,
    mut again: impl FnMut() -> Result<Plan, E>,
    watchdog: Option<Watchdog>,
) -> Result<(), ServiceError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut reload = signal(SignalKind::hangup())?;
    let mut service = Service::start(plan, watchdog).await?;
    let mut beats = service.watchdog.as_ref().map(|watchdog| {
        let mut beats = interval(watchdog.every());
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beats
    });
    loop {
        tokio::select! {
            () = tick(&mut beats) => service.feed(),
            alive = service.reports.changed(), if service.samples => service.publish(alive.is_ok()),
            _ = reload.recv() => service.reload(again()).await,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    tracing::info!("asked to stop");
    Ok(())
}

/// The next beat; never, without a timer.
async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => pending().await,
    }
}

/// What is said of the settings, beside what the collectors say of themselves.
const SETTINGS: &str = "settings";

/// How the settings were last read.
struct Read {
    /// When they were last taken.
    taken: UnixMs,
    /// Why they were refused since.
    refused: Option<String>,
}

impl Read {
    fn now() -> Self {
        Self { taken: clock::now(), refused: None }
    }

    /// Adds it to the report.
    fn write(&self, report: &mut Report) {
        let device = report.device(Device::collector(SETTINGS));
        if let Some(why) = &self.refused {
            let message = format!("not reloaded, the old ones stand: {why}");
            report.info(device, exporter::COLLECTOR_INFO, &[("message", &message)]);
        }
        let success = f64::from(u8::from(self.refused.is_none()));
        report.push(device, exporter::COLLECTOR_SUCCESS, success);
        report.push(device, exporter::COLLECTOR_LAST_SUCCESS, self.taken.seconds());
    }
}

/// A service that runs.
struct Service {
    plan: Plan,
    settings: Read,
    sampler: Sampler,
    reports: watch::Receiver<Arc<Report>>,
    /// Whether the sampler lives.
    samples: bool,
    pages: watch::Sender<Arc<Page>>,
    names: watch::Sender<HostNames>,
    server: JoinHandle<()>,
    watchdog: Option<Watchdog>,
}

impl Service {
    async fn start(plan: Plan, watchdog: Option<Watchdog>) -> Result<Self, ServeError> {
        // The address first: a second exporter must not bother the driver before it notices the first.
        let listener = server::listen(plan.listen).await?;
        let sampler = Sampler::start(plan.sampler.clone());
        let page = Page::new(Arc::default(), plan.compat);
        let pages = watch::Sender::new(Arc::new(page));
        let names = watch::Sender::new(server::host_names(&plan.names));
        let server = serve(listener, &pages, &names);
        let (settings, reports) = (Read::now(), sampler.watch());
        let mut service = Self {
            plan,
            settings,
            sampler,
            reports,
            samples: true,
            pages,
            names,
            server,
            watchdog,
        };
        service.expect_reports();
        Ok(service)
    }

    /// Tells the watchdog which sampler reports from now on.
    fn expect_reports(&mut self) {
        let options = &self.plan.sampler;
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.expect(options.max_hung_workers, options.period, Instant::now());
        }
    }

    /// Feeds the watchdog, unless a restart is what helps.
    fn feed(&mut self) {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.feed(Instant::now());
        }
    }

    /// Publishes the newest report, unless the sampler has just begun.
    fn publish(&mut self, alive: bool) {
        if !alive {
            tracing::error!("the sampler ended; the page will not change any more");
            self.samples = false;
        }
        let mut report = Report::clone(&self.reports.borrow_and_update());
        if report.node_time.is_some() {
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.note(&report, Instant::now());
            }
            self.settings.write(&mut report);
            let page = Page::after(&self.pages.borrow(), Arc::new(report), self.plan.compat);
            self.pages.send_replace(Arc::new(page));
        }
    }

    async fn reload<E: fmt::Display>(&mut self, plan: Result<Plan, E>) {
        let changed = match plan {
            Ok(plan) => self.change(plan).await.map_err(|error| error.to_string()),
            Err(error) => Err(format!("{error:#}")),
        };
        match changed {
            Ok(()) => {
                tracing::info!("settings reloaded");
                self.settings = Read::now();
            }
            Err(error) => {
                tracing::error!("settings not reloaded, the old ones stand: {error}");
                self.settings.refused = Some(error);
            }
        }
        self.publish(true);
    }

    /// Takes another plan, or leaves everything as it is. What did not change goes on undisturbed.
    async fn change(&mut self, plan: Plan) -> Result<(), ServeError> {
        if plan.listen != self.plan.listen {
            let listener = server::listen(plan.listen).await?;
            // Connections have tasks of their own, and end with the answer that is under way.
            self.server.abort();
            self.server = serve(listener, &self.pages, &self.names);
        }
        self.names.send_replace(server::host_names(&plan.names));
        let anew = plan.sampler != self.plan.sampler;
        self.plan = plan;
        if anew {
            tracing::info!("sampling starts anew; integrals begin at zero");
            self.sampler = Sampler::start(self.plan.sampler.clone());
            self.reports = self.sampler.watch();
            self.samples = true;
            self.expect_reports();
        }
        Ok(())
    }
}

fn serve(
    listener: TcpListener,
    pages: &watch::Sender<Arc<Page>>,
    names: &watch::Sender<HostNames>,
) -> JoinHandle<()> {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving /metrics");
    }
    let serving = server::Serving { pages: pages.subscribe(), names: names.subscribe() };
    tokio::spawn(server::serve(listener, serving))
}
