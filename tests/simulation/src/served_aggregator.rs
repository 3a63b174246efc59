//! An aggregator with its server, peers and alerting in simulated time, as `gaunt serve` runs them.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use gaunt::{
    alert::{AlertOptions, AlertingTasks, start_alerting},
    answer_source::AnswerSource,
    command::{
        peer_connection::PeerConnection,
        persist_task::{PersistTask, load_from_store},
    },
    peers::PeerOptions,
    serve::{AggregatorServer, RoleOptions, TokenOptions},
};
use gaunt_api::{AccessRole, Answer, FindingList, Question, peer_exchange::PeerAlertSet};
use gaunt_engine::{EngineHandle, EngineOptions, spawn_stepped, state_store::StateStore};
use gaunt_schema::{
    ClockFn, SanitizedText, Severity,
    disk::{Disk, DiskFile},
};
use gaunt_scrape::{
    HttpCredentials, Network, ScrapeManagerHandle, ServerAccess, spawn_manager_on_network,
    tls::TlsOptions,
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time::{Instant, interval},
};

use crate::{
    STATE,
    simulated_aggregator::{PERIOD, scrape_plan},
    simulated_disk::SimulatedDisk,
    simulated_link::{ServicePlace, SimulatedLink},
    simulated_network::SimulatedNetwork,
};

/// Time between two posts of an open alert, as in the shipped settings.
const REPEAT_INTERVAL: Duration = Duration::from_mins(1);

/// Ticks of an engine after its process was killed: what followed it ends by them.
const LAST_TICKS: u32 = 3;

/// What an aggregator of a pair runs on, and how it reaches the rest.
#[derive(Clone, Debug)]
pub(crate) struct ServedSurroundings {
    /// Its name in addresses and sockets.
    pub(crate) name: &'static str,
    /// The name of the other.
    pub(crate) peer: &'static str,
    pub(crate) disk: SimulatedDisk,
    pub(crate) network: SimulatedNetwork,
    pub(crate) place: ServicePlace,
    /// Folder of the sockets and of the token.
    pub(crate) folder: PathBuf,
}

/// A running aggregator. It is killed by dropping it.
pub(crate) struct ServedAggregator {
    engine: EngineHandle,
    /// What the peer posts, as alerting sees it.
    pub(crate) at_peers: watch::Receiver<PeerAlertSet>,
    _life: ProcessLife,
    persisting: PersistTask,
    _alerting: AlertingTasks,
    _manager: ScrapeManagerHandle,
    server: JoinSet<()>,
    _peers: JoinSet<()>,
    /// Its end asks the server to stop.
    asks_stop: oneshot::Sender<()>,
}

/// The file with the token of a pair.
pub(crate) fn token_file(folder: &Path) -> PathBuf {
    folder.join("token")
}

impl ServedAggregator {
    /// Starts with what is on the disk, and what the peer knows.
    pub(crate) async fn start(around: ServedSurroundings) -> Result<Self, String> {
        let (anchor, begun) = (around.network.now(), Instant::now());
        let clock: ClockFn = Arc::new(move || anchor + begun.elapsed());
        let life = ProcessLife(Arc::new(AtomicBool::new(true)));
        let disk = ProcessDisk { disk: around.disk.clone(), is_alive: life.0.clone() };
        let mut store = StateStore::open_on_disk(Arc::new(disk), Path::new(STATE))
            .map_err(|error| error.to_string())?;
        let state = load_from_store(&mut store, anchor).map_err(|error| error.to_string())?;
        let (peers, alerts) = (around.peer_options(), around.alert_options());
        let opened = PeerConnection::open(Some(&peers), anchor).await;
        let mut pair = opened.map_err(|error| error.to_string())?;
        let (alert_list, shown_alerts) = watch::channel(Arc::default());
        let options = EngineOptions {
            period: PERIOD,
            says_usual: true,
            alerts: Some(shown_alerts),
            peers: pair.watch_lines(),
            cluster: peers.cluster.clone(),
            ..EngineOptions::default()
        };
        let (store, engine) = pair.start_engine(Some((store, state)), options).await;
        let store = store.ok_or("no state store")?;
        let (engine, instants) = spawn_stepped(engine, clock());
        let (alive, now) = (life.0.clone(), clock.clone());
        tokio::spawn(async move {
            let (mut timer, mut left) = (interval(Duration::from_secs(1)), LAST_TICKS);
            timer.tick().await;
            while left > 0 && instants.send(now()).await.is_ok() {
                timer.tick().await;
                left -= u32::from(!alive.load(Ordering::Relaxed));
            }
        });
        let (persisting, engine) = PersistTask::start_persisting(store, &engine);
        let network: Arc<dyn Network> = Arc::new(around.network.clone());
        let manager = spawn_manager_on_network(
            scrape_plan(around.network.node_count()),
            engine.delivery_sender(),
            clock,
            Arc::new(|_| false),
            Some(network),
        );
        let server = AggregatorServer::on_simulated(around.place.start_program())
            .with_host_names(&[around.name.to_owned()])
            .with_roles(watch::channel(Arc::new(around.role_options())).1)
            .with_peers(engine.clone(), peers.cluster.clone(), pair.process);
        let (at_peers, peer_tasks) = (pair.watch_posted(), pair.start_passing(&engine));
        let source = AnswerSource::Engine(engine.clone());
        let alerting = start_alerting(alerts, source.clone(), alert_list, at_peers.clone()).await;
        let alerting = alerting.map_err(|error| error.to_string())?;
        let (asks_stop, stop) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(source, async { drop(stop.await) }));
        Ok(Self {
            engine,
            at_peers,
            _life: life,
            persisting,
            _alerting: alerting,
            _manager: manager,
            server: tasks,
            _peers: peer_tasks,
            asks_stop,
        })
    }

    /// Ends it once the open requests are answered.
    pub(crate) async fn stop(self) {
        let Self { asks_stop, mut server, persisting, .. } = self;
        drop(asks_stop);
        server.join_next().await;
        persisting.finish_persisting().await;
    }

    /// The problems that its screens show.
    #[cfg(test)]
    pub(crate) async fn shown_trouble(&self) -> Vec<SanitizedText> {
        match self.engine.ask_question(Question::Overview).await {
            Ok(Answer::Overview(overview)) => overview.trouble.clone(),
            _ => Vec::new(),
        }
    }

    /// The findings as last published.
    pub(crate) async fn findings(&self) -> Arc<FindingList> {
        match self.engine.ask_question(Question::Findings).await {
            Ok(Answer::Findings(list)) => list,
            _ => Arc::default(),
        }
    }
}

impl ServedSurroundings {
    fn access(&self, to: &str) -> ServerAccess {
        ServerAccess {
            credentials: Some(HttpCredentials::Bearer(token_file(&self.folder))),
            socket: Some(SimulatedLink::socket(&self.folder, self.name, to)),
            // Nothing is encrypted: the certificates of the system need not be read at each start.
            tls: TlsOptions { insecure: true, ..TlsOptions::default() },
        }
    }

    fn peer_options(&self) -> PeerOptions {
        PeerOptions {
            urls: vec![format!("http://{}:9771", self.peer)],
            access: self.access(self.peer),
            cluster: SanitizedText::new("hall"),
        }
    }

    fn alert_options(&self) -> AlertOptions {
        AlertOptions {
            servers: vec!["http://alerts:9093".to_owned()],
            repeat_interval: REPEAT_INTERVAL,
            min_severity: Severity::Info,
            cluster: SanitizedText::new("hall"),
            access: ServerAccess { credentials: None, ..self.access("alerts") },
        }
    }

    fn role_options(&self) -> RoleOptions {
        let token = TokenOptions {
            name: "pair".to_owned(),
            role: AccessRole::Admin,
            file: token_file(&self.folder),
        };
        RoleOptions { tokens: vec![token], ..RoleOptions::default() }
    }
}

/// The life of a process. What still runs on a thread at its end does not reach the disk any more.
#[derive(Debug)]
struct ProcessLife(Arc<AtomicBool>);

impl Drop for ProcessLife {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The disk as a process sees it: after its end, every operation fails, and one that hangs blocks its thread.
#[derive(Clone, Debug)]
struct ProcessDisk {
    disk: SimulatedDisk,
    is_alive: Arc<AtomicBool>,
}

impl ProcessDisk {
    fn alive(&self) -> io::Result<&SimulatedDisk> {
        let is_alive = self.is_alive.load(Ordering::Relaxed);
        is_alive.then_some(&self.disk).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Changes the disk, and returns once the operation does not hang any more.
    fn change(&self, operation: impl FnOnce(&SimulatedDisk) -> io::Result<()>) -> io::Result<()> {
        let done = operation(self.alive()?);
        while self.disk.hung_for().is_some() {
            self.alive()?;
            thread::sleep(Duration::from_millis(1));
        }
        done
    }
}

impl Disk for ProcessDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.alive()?.create_folder(folder)
    }

    fn lock_folder(
        &self,
        _lock: &Path,
    ) -> io::Result<Option<Box<dyn std::fmt::Debug + Send + Sync>>> {
        // The lock of a killed process is gone with it, whatever still runs of it here.
        Ok(Some(Box::new(())))
    }

    fn list_files(&self, folder: &Path) -> io::Result<Vec<DiskFile>> {
        self.alive()?.list_files(folder)
    }

    fn read_file(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.alive()?.read_file(path, limit)
    }

    fn has_file(&self, path: &Path) -> bool {
        self.disk.has_file(path)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(|disk| disk.write_file(path, bytes))
    }

    fn create_file(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.create_file(path))
    }

    fn append_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(|disk| disk.append_file(path, bytes))
    }

    fn truncate_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.change(|disk| disk.truncate_file(path, bytes))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.sync_file(path))
    }

    fn rename_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|disk| disk.rename_file(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(|disk| disk.remove_file(path))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.change(|disk| disk.sync_folder(folder))
    }
}
