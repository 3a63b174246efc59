//! The exporter as a service: runs sampler, pages and server until a signal ends it or reloads the settings.

use std::{
    env, fmt,
    future::pending,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use gaunt_schema::{
    Device, Report, UnixMs,
    catalogue::{exporter, host},
    text::CompatOptions,
};
use gaunt_signals::ServiceSignals;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval},
};

use crate::{
    MetricsPage, NodeSampler, SamplerOptions,
    host_check::HostNames,
    metrics_server::{self, MetricsServeError},
    ready_notice::notify_ready,
    wall_clock,
    watchdog::Watchdog,
    web_access::{WebAccess, WebConfigError, describe_open_address},
};

/// What to serve, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExporterPlan {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Host names that requests may use, in addition to its addresses and this machine's names.
    pub names: Vec<String>,
    /// The web configuration: TLS and users. Without it everybody may read, in plaintext.
    pub web_config: Option<PathBuf>,
    /// The compatible formats that the page has in addition to our own.
    pub compat: CompatOptions,
    /// The options of the sampler.
    pub sampler: SamplerOptions,
}

/// Serves `plan` until SIGTERM or SIGINT. On SIGHUP `reload_plan` reloads the settings; a plan that cannot be loaded or
/// served is rejected with a log line, and the service continues unchanged. `watchdog` is fed as long as a restart
/// would not help.
pub async fn run<E: fmt::Display>(
    plan: ExporterPlan,
    mut reload_plan: impl FnMut() -> Result<ExporterPlan, E>,
    watchdog: Option<Watchdog>,
    signals: ServiceSignals,
) -> Result<(), MetricsServeError> {
    let mut service = ExporterService::start_service(plan, watchdog).await?;
    let (mut end, mut reload) = signals.take_over();
    notify_ready(env::var_os("NOTIFY_SOCKET"));
    let mut feed_timer = service.watchdog.as_ref().map(|watchdog| {
        let mut timer = interval(watchdog.every());
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        timer
    });
    loop {
        tokio::select! {
            () = tick(&mut feed_timer) => service.feed(),
            alive = service.reports.changed(), if service.samples => service.publish_report(alive.is_ok()),
            () = reload.wait() => service.reload_settings(reload_plan()).await,
            () = end.wait() => break,
        }
    }
    tracing::info!("stopping on a signal");
    Ok(())
}

/// The next tick of the timer; never, without a timer.
async fn tick(timer: &mut Option<Interval>) {
    match timer {
        Some(timer) => drop(timer.tick().await),
        None => pending().await,
    }
}

/// The name of the settings' status series, beside those of the collectors.
const SETTINGS: &str = "settings";

/// The result of the last reload.
struct SettingsStatus {
    /// When settings were last applied.
    taken: UnixMs,
    /// Why later settings were rejected.
    refused: Option<String>,
}

impl SettingsStatus {
    fn loaded_now() -> Self {
        Self { taken: wall_clock::now(), refused: None }
    }

    /// Adds the status to the report.
    fn report_status(&self, report: &mut Report) {
        let device = report.ensure_device(Device::new_collector(SETTINGS));
        if let Some(why) = &self.refused {
            let message = format!("not reloaded, the previous settings stay in effect: {why}");
            report.add_info(device, exporter::COLLECTOR_INFO, &[("message", &message)]);
        }
        let success = f64::from(u8::from(self.refused.is_none()));
        report.push(device, exporter::COLLECTOR_SUCCESS, success);
        report.push(device, exporter::COLLECTOR_LAST_SUCCESS, self.taken.to_seconds());
    }
}

/// A running service.
struct ExporterService {
    plan: ExporterPlan,
    settings: SettingsStatus,
    sampler: NodeSampler,
    reports: watch::Receiver<Arc<Report>>,
    /// Whether the sampler runs.
    samples: bool,
    pages: watch::Sender<Arc<MetricsPage>>,
    names: watch::Sender<HostNames>,
    /// Changes with each request for the status of NCCL's RAS.
    ras_requests: watch::Sender<u64>,
    access: watch::Sender<Option<Arc<WebAccess>>>,
    server: JoinHandle<()>,
    watchdog: Option<Watchdog>,
}

impl ExporterService {
    async fn start_service(
        plan: ExporterPlan,
        watchdog: Option<Watchdog>,
    ) -> Result<Self, MetricsServeError> {
        let access = watch::Sender::new(load_access(plan.web_config.as_deref())?);
        warn_of_open_address(plan.listen, access.borrow().as_deref());
        // Bind the address first: a second exporter must not call the driver before it fails on the address.
        let listener = metrics_server::bind_listener(plan.listen).await?;
        let ras_requests = watch::Sender::new(0);
        let sampler =
            NodeSampler::start_with_requests(plan.sampler.clone(), ras_requests.subscribe());
        let page = MetricsPage::new(Arc::default(), plan.compat);
        let pages = watch::Sender::new(Arc::new(page));
        let names = watch::Sender::new(metrics_server::host_names(&plan.names));
        let server = spawn_server(listener, &pages, &names, (&ras_requests, &access));
        let (settings, reports) = (SettingsStatus::loaded_now(), sampler.watch_reports());
        let mut service = Self {
            plan,
            settings,
            sampler,
            reports,
            samples: true,
            pages,
            names,
            ras_requests,
            access,
            server,
            watchdog,
        };
        service.expect_reports();
        Ok(service)
    }

    /// Informs the watchdog of the current sampler.
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

    /// Publishes the newest report, unless the sampler has just started.
    fn publish_report(&mut self, alive: bool) {
        if !alive {
            tracing::error!("the sampler ended; the page no longer changes; restart gaunt-node");
            self.samples = false;
        }
        let mut report = Report::clone(&self.reports.borrow_and_update());
        if report.node_time.is_some() {
            if let Some(watchdog) = &mut self.watchdog {
                watchdog.note(&report, Instant::now());
            }
            self.settings.report_status(&mut report);
            let access = self.access.borrow().clone();
            if let Some(expiry) = access.and_then(|access| access.certificate_expiry()) {
                let node = report.ensure_device(Device::new_node());
                report.push(node, host::CERTIFICATE_EXPIRY, expiry.to_seconds());
            }
            let page = MetricsPage::from_previous(
                &self.pages.borrow(),
                Arc::new(report),
                self.plan.compat,
            );
            self.pages.send_replace(Arc::new(page));
        }
    }

    async fn reload_settings<E: fmt::Display>(&mut self, plan: Result<ExporterPlan, E>) {
        let changed = match plan {
            Ok(plan) => self.apply_plan(plan).await.map_err(|error| error.to_string()),
            Err(error) => Err(format!("{error:#}")),
        };
        match changed {
            Ok(()) => {
                tracing::info!("settings reloaded");
                self.settings = SettingsStatus::loaded_now();
            }
            Err(error) => {
                tracing::error!(
                    "settings not reloaded, the previous settings stay in effect: {error}"
                );
                self.settings.refused = Some(error);
            }
        }
        self.publish_report(true);
    }

    /// Applies another plan, or leaves everything unchanged. Unchanged parts are not restarted.
    async fn apply_plan(&mut self, plan: ExporterPlan) -> Result<(), MetricsServeError> {
        // Loaded first: with errors nothing changes.
        let access = if plan.web_config == self.plan.web_config {
            self.access.borrow().clone()
        } else {
            load_access(plan.web_config.as_deref())?
        };
        warn_of_open_address(plan.listen, access.as_deref());
        if plan.listen != self.plan.listen {
            let listener = metrics_server::bind_listener(plan.listen).await?;
            // Connections have their own tasks, and end with the current response.
            self.server.abort();
            self.server = spawn_server(
                listener,
                &self.pages,
                &self.names,
                (&self.ras_requests, &self.access),
            );
        }
        self.names.send_replace(metrics_server::host_names(&plan.names));
        self.access.send_replace(access);
        let sampler_changed = plan.sampler != self.plan.sampler;
        self.plan = plan;
        if sampler_changed {
            tracing::info!("sampling restarted; integrals start at zero");
            let requests = self.ras_requests.subscribe();
            self.sampler = NodeSampler::start_with_requests(self.plan.sampler.clone(), requests);
            self.reports = self.sampler.watch_reports();
            self.samples = true;
            self.expect_reports();
        }
        Ok(())
    }
}

fn spawn_server(
    listener: TcpListener,
    pages: &watch::Sender<Arc<MetricsPage>>,
    names: &watch::Sender<HostNames>,
    (ras_requests, access): (&watch::Sender<u64>, &watch::Sender<Option<Arc<WebAccess>>>),
) -> JoinHandle<()> {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving /metrics");
    }
    let served = metrics_server::ServedPages {
        pages: pages.subscribe(),
        names: names.subscribe(),
        ras_requests: ras_requests.clone(),
        access: access.subscribe(),
    };
    tokio::spawn(metrics_server::serve_pages(listener, served))
}

fn load_access(path: Option<&Path>) -> Result<Option<Arc<WebAccess>>, WebConfigError> {
    path.map(|path| WebAccess::from_file(path).map(Arc::new)).transpose()
}

/// Warns if other machines can read the page without TLS or without a password or certificate.
fn warn_of_open_address(listen: SocketAddr, access: Option<&WebAccess>) {
    if let Some(why) = describe_open_address(listen.ip(), access, false) {
        tracing::warn!(%listen, "{why}; set web_config");
    }
}
