//! `gaunt serve`: runs the aggregator until it is stopped.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
};

use super::{
    EngineFeed, ScrapingSetup, TargetFeed,
    own_certificates::OwnCertificates,
    peer_connection::PeerConnection,
    persist_task::{self, PersistTask},
    stored_history,
};
use crate::{
    alert::{self, AlertError, AlertingTasks},
    answer_source::{AnswerSource, PastSources},
    peers::{self, PeerOptions},
    serve::{self, AggregatorServer, RoleOptions},
};
use gaunt_api::{AlertList, StoreLine, peer_exchange::PeerAlertSet};
use gaunt_engine::system_disk::system_disk;
use gaunt_node::ready_notice::notify_ready;
use gaunt_node::web_access::{WebAccess, describe_open_address};
use gaunt_signals::ServiceSignals;
use gaunt_store::{StoreOptions, StoreStatus, StoreWriter};

/// Listen address, access and persistence of the aggregator.
#[derive(Debug)]
pub struct ServeOptions {
    /// Listen address.
    pub listen: SocketAddr,
    /// Host names that are accepted in requests, in addition to its addresses.
    pub names: Vec<String>,
    /// Directory of the state that outlives a restart (findings, acknowledgements, counters), if set.
    pub state_folder: Option<PathBuf>,
    /// Who may do what.
    pub roles: RoleOptions,
    /// Web configuration with TLS and users, if set.
    pub web_config: Option<PathBuf>,
    /// Files of the client certificates that the aggregator presents.
    pub client_certificates: Vec<PathBuf>,
    /// File to which actions are logged as JSON, if set.
    pub audit_file: Option<PathBuf>,
    /// The store that verdicts are written to, if any.
    pub store: Option<StoreOptions>,
    /// The other aggregators of the cluster, if there are any.
    pub peers: Option<PeerOptions>,
}

/// The time between two scrapes of a sender of remote write, unless set otherwise: the most common one.
pub const RECEIVED_PERIOD: Duration = Duration::from_secs(15);

/// Reloads the settings: what to scrape, and who may do what, from now on.
pub type ReloadSettingsFn =
    Arc<dyn Fn() -> anyhow::Result<(ScrapingSetup, RoleOptions)> + Send + Sync>;

/// Scrapes, judges and answers until SIGTERM or SIGINT. SIGHUP reloads targets and settings.
pub async fn run(
    mut scraping: ScrapingSetup,
    serve_options: ServeOptions,
    reload: ReloadSettingsFn,
    signals: ServiceSignals,
) -> anyhow::Result<ExitCode> {
    check_feed(&scraping)?;
    super::catch_file_size_signal()?;
    // Bind the port first: a server that cannot bind must not disturb the targets.
    let server = AggregatorServer::bind_address(serve_options.listen).await?;
    let roles = watch::Sender::new(Arc::new(serve_options.roles.clone()));
    let (server, own_certificates) = secure_server(server, &serve_options, &roles)?;
    serve_options.store.as_ref().map(StoreWriter::check_address).transpose()?;
    serve_options.peers.as_ref().map(|peers| peers::check_peers(&peers.urls)).transpose()?;
    let loaded = serve_options.state_folder.as_deref().map(persist_task::load_state).transpose()?;
    scraping.plan.check_lists()?;
    let (sources, period) = (scraping.plan.source_count(), scraping.plan.options.period);
    let alerting = scraping.alerting.take();
    alerting.as_ref().map(|options| alert::check_servers(&options.servers)).transpose()?;
    let (alerts_sender, alerts) = watch::channel(Arc::default());
    scraping.engine.alerts = Some(alerts);
    scraping.engine.says_usual = true;
    let mut own_tasks = JoinSet::new();
    scraping.engine.certificates = Some(own_certificates.start_watching(&mut own_tasks));
    let (store_lines, store_line) = watch::channel(None);
    scraping.engine.store = serve_options.store.is_some().then_some(store_line);
    let mut pair =
        PeerConnection::open(serve_options.peers.as_ref(), persist_task::wall_clock_now()).await?;
    scraping.engine.peers = pair.watch_lines();
    let cluster = scraping.engine.cluster.clone();
    // A Prometheus that is read instead of targets has the past itself.
    let may_restore = scraping.series.is_none().then(|| scraping.engine.clone());
    let (store, engine) = pair.start_engine(loaded, scraping.engine.clone()).await;
    let past = past_sources(&scraping, serve_options.store.as_ref());
    let (mut engine, feed) = Box::pin(scraping.feed_engine(engine)).await?;
    // From now on the end saves the state.
    let (mut end, mut hang_up) = signals.take_over();
    let mut persisting = None;
    if let Some(store) = store {
        let (started, persisted) = PersistTask::start_persisting(store, &engine);
        (persisting, engine) = (Some(started), persisted);
    }
    let server = open_receiver(server, &feed).with_peers(engine.clone(), cluster, pair.process);
    let may_restore = may_restore.filter(|_| !pair.has_history);
    if let (Some(options), Some(store)) = (may_restore, &serve_options.store) {
        stored_history::start_restoring(store, options, &engine, &mut own_tasks);
    }
    let at_peers = pair.watch_posted();
    let peer_tasks = pair.start_passing(&engine);
    let source = AnswerSource::of_engine(engine, past);
    let mut alerting_control =
        AlertingControl { source: source.clone(), alerts_sender, at_peers, running_alerting: None };
    alerting_control.apply_options(alerting).await?;
    let (follow, now) = (feed.follow.clone(), feed.clock.clone());
    let server = server.with_recording(Arc::new(move || follow.start_following(now())));
    let (server, store_tasks) = start_store(serve_options.store, server, &source, store_lines)?;
    tracing::info!(address = %server.local_address()?, sources, ?period, "serving");
    notify_ready(std::env::var_os("NOTIFY_SOCKET"));
    let stop = async {
        let reload = async {
            loop {
                hang_up.wait().await;
                reload_settings(&feed, &mut alerting_control, &roles, &reload).await;
            }
        };
        // A signal to end is heard while settings are read, however long that takes.
        tokio::select! {
            () = end.wait() => {}
            () = reload => {}
        }
        tracing::info!("stopping");
    };
    server.run(source, stop).await;
    if let Some(persisting) = persisting {
        persisting.finish_persisting().await;
    }
    drop((alerting_control, peer_tasks, store_tasks, own_tasks, feed));
    Ok(ExitCode::SUCCESS)
}

/// What answers about a time that the engine does not keep.
fn past_sources(scraping: &ScrapingSetup, store: Option<&StoreOptions>) -> PastSources {
    PastSources {
        stored: store.and_then(stored_history::stored_past),
        series: scraping.past.clone(),
        engine: scraping.engine.clone(),
    }
}

/// Checks that there is one source of pages.
fn check_feed(scraping: &ScrapingSetup) -> anyhow::Result<()> {
    let has_targets = !scraping.plan.is_empty() || scraping.series.is_some();
    if !has_targets && !scraping.is_receiving {
        anyhow::bail!(
            "no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or gather.targets \
             in the settings, a Prometheus that scrapes them with --prometheus URL, or let one send what it \
             scrapes with --receive-token-file FILE"
        );
    }
    anyhow::ensure!(
        !has_targets || !scraping.is_receiving,
        "serve.receive_token_file and targets or a Prometheus; keep one: received pages and targets cannot be \
         joined, start a second `gaunt serve` for the other"
    );
    Ok(())
}

/// Sets host names, roles, TLS, users and the audit log, and warns if other machines can read without TLS or users.
fn secure_server(
    server: AggregatorServer,
    options: &ServeOptions,
    roles: &watch::Sender<Arc<RoleOptions>>,
) -> anyhow::Result<(AggregatorServer, OwnCertificates)> {
    options.roles.check_files()?;
    let server = server.with_host_names(&options.names).with_roles(roles.subscribe());
    let access = options.web_config.as_deref().map(WebAccess::from_file).transpose()?;
    let access = access.map(Arc::new);
    let clients = options.client_certificates.clone();
    let certificates = OwnCertificates { access: access.clone(), clients };
    if let Some(why) =
        describe_open_address(options.listen.ip(), access.as_deref(), options.roles.read_needs_role)
    {
        tracing::warn!(listen = %options.listen, "{why}; set serve.web_config");
    }
    let server = match access {
        Some(access) => server.with_web_access(access),
        None => server,
    };
    let server = match &options.audit_file {
        Some(path) => server.with_audit_file(path)?,
        None => server,
    };
    Ok((server, certificates))
}

/// Opens the way for senders of remote write, if their pages feed the engine.
fn open_receiver(server: AggregatorServer, feed: &EngineFeed) -> AggregatorServer {
    match &feed.targets {
        TargetFeed::Received(receiver) => server.with_receiver(receiver.clone()),
        _ => server,
    }
}

/// Starts to write to the store, if there is one; the server shows its state.
fn start_store(
    options: Option<StoreOptions>,
    server: AggregatorServer,
    source: &AnswerSource,
    lines: watch::Sender<Option<StoreLine>>,
) -> anyhow::Result<(AggregatorServer, JoinSet<()>)> {
    let mut tasks = JoinSet::new();
    let Some(options) = options else { return Ok((server, tasks)) };
    let writer = StoreWriter::start_thread(options, system_disk())?;
    let server = server.with_store(writer.watch_status());
    tasks.spawn(forward_status(writer.watch_status(), lines));
    tasks.spawn(serve::write_to_store(source.clone(), writer));
    Ok((server, tasks))
}

/// Forwards the state of the store to the engine, which shows it.
async fn forward_status(
    mut status: watch::Receiver<StoreStatus>,
    lines: watch::Sender<Option<StoreLine>>,
) {
    loop {
        let shown = status.borrow_and_update().clone();
        lines.send_replace(Some(StoreLine {
            address: shown.address,
            series: shown.series,
            sent_samples: shown.sent_samples,
            refused_samples: shown.refused_samples.values().sum(),
            dropped_samples: shown.dropped_samples.values().sum(),
            waiting_bytes: shown.waiting_bytes,
            oldest: shown.oldest,
            failure: shown.failure,
        }));
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// Applies reloaded settings; a settings file with errors changes nothing.
async fn reload_settings(
    feed: &EngineFeed,
    alerting_control: &mut AlertingControl,
    roles: &watch::Sender<Arc<RoleOptions>>,
    reload: &ReloadSettingsFn,
) {
    let is_scraping = matches!(feed.targets, TargetFeed::Scraped(_));
    let reload = reload.clone();
    let read = move || {
        let (scraping, roles) = reload()?;
        roles.check_files()?;
        anyhow::Ok((scraping, roles))
    };
    // Each file that it reads has a deadline of its own, whose error names it.
    let reloaded = spawn_blocking(read).await.map_err(anyhow::Error::from).flatten();
    let reloaded = reloaded.and_then(|(scraping, roles)| {
        scraping.plan.check_lists()?;
        anyhow::ensure!(!is_scraping || !scraping.plan.is_empty(), "no targets");
        scraping
            .alerting
            .as_ref()
            .map(|options| alert::check_servers(&options.servers))
            .transpose()?;
        Ok((scraping, roles))
    });
    match reloaded {
        Ok((scraping, options)) => {
            roles.send_replace(Arc::new(options));
            match &feed.targets {
                TargetFeed::Scraped(manager) => manager.reload_plan(scraping.plan).await,
                TargetFeed::Series { .. } | TargetFeed::Received(_) => {
                    tracing::info!("another source of pages needs a restart");
                }
            }
            feed.watch.reload_options(scraping.site).await;
            if let Err(error) = alerting_control.apply_options(scraping.alerting).await {
                tracing::error!("alerting is disabled: {error}");
            }
            tracing::info!(
                "reloaded targets, credentials, roles, site files and alerting; other settings need a restart"
            );
        }
        Err(error) => {
            tracing::error!("cannot apply the settings, keeping the previous ones: {error:#}");
        }
    }
}

/// The alerting tasks, as configured.
struct AlertingControl {
    source: AnswerSource,
    alerts_sender: watch::Sender<Arc<AlertList>>,
    at_peers: watch::Receiver<PeerAlertSet>,
    running_alerting: Option<(alert::AlertOptions, AlertingTasks)>,
}

impl AlertingControl {
    /// Starts alerting to the servers configured now. A server that was removed resolves its alerts after a while.
    async fn apply_options(
        &mut self,
        options: Option<alert::AlertOptions>,
    ) -> Result<(), AlertError> {
        if self.running_alerting.as_ref().map(|(options, _)| options) == options.as_ref() {
            return Ok(());
        }
        self.running_alerting = None;
        self.alerts_sender.send_replace(Arc::default());
        if let Some(options) = options {
            let (source, sender) = (self.source.clone(), self.alerts_sender.clone());
            let at_peers = self.at_peers.clone();
            let alerting = alert::start_alerting(options.clone(), source, sender, at_peers).await?;
            self.running_alerting = Some((options, alerting));
        }
        Ok(())
    }
}
