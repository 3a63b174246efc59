//! HTTP server of the aggregator: answers questions through an answer source like every other client.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use gaunt_node::{
    connection_admission::{ConnectionAdmission, ConnectionLimits, ConnectionPermit},
    host_check::HostNames,
    server_connection::serve_connection,
    server_stream::{ConnectionStream, NetworkStream, ServerStream, open_stream},
    web_access::WebAccess,
};
use gaunt_schema::SanitizedText;
use hyper::{
    Request,
    body::Incoming,
    service::{Service as _, service_fn},
};
use hyper_util::service::TowerToHyperService;
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::answer_source::AnswerSource;
use gaunt_api::peer_exchange::AggregatorProcess;
use gaunt_engine::EngineHandle;
use gaunt_series::WriteReceiver;
use gaunt_store::{StoreStatus, StoreWriter};

mod access_roles;
mod acknowledge;
mod answer_streams;
mod api_responses;
mod api_state;
mod audit_log;
mod chunked_body;
mod exposition;
mod health_endpoints;
mod json_api;
mod negotiated_page;
mod pairing_endpoint;
mod peer_address;
mod peer_endpoints;
mod peer_service;
mod receive_endpoint;
mod receive_service;
mod recording_endpoint;
mod request_guard;
mod service_discovery;

use access_roles::AccessRoles;
pub use access_roles::{RoleOptions, TokenFileError, TokenOptions, TrustedProxy, check_token_file};
use answer_streams::StreamHub;
pub use api_state::RecordingFollowFn;
use api_state::{ApiState, OverviewCache};
use audit_log::AuditLog;
pub use audit_log::AuditLogError;
use peer_address::PeerAddress;
use peer_service::PeerService;
use receive_service::{RECEIVE_PATH, ReceiveService};
use request_guard::{RequestGuard, ReserveConnection, guard_request};

/// For the consoles, scrapers and dashboards of a whole site, half of them behind one address. A stream has no end, so
/// that it may last as long as its client reads: a slow client gets fewer changes, one that reads nothing at all is
/// disconnected.
const LIMITS: ConnectionLimits = ConnectionLimits {
    seats: 512,
    seats_per_peer: 256,
    // Health checks and scrapes, while all regular connections are taken by streams or questions.
    reserve: 32,
    head: Duration::from_secs(5),
    idle: Duration::from_secs(40),
    write: Duration::from_secs(10),
    answer: None,
};

/// Time for open requests to finish after a stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Pause after a failed accept, so that a lack of file descriptors does not cause a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the aggregator cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {why}; pass --listen ADDRESS:PORT or set serve.listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error in plain words.
        why: String,
    },
}

/// Source of connections.
enum ConnectionListener {
    /// A bound address.
    Tcp(TcpListener),
    /// A simulation.
    Simulated(ConnectionReceiver),
}

/// Connections of a simulation with the addresses of their clients.
pub type ConnectionReceiver = mpsc::Receiver<(Box<dyn NetworkStream>, SocketAddr)>;

impl ConnectionListener {
    /// The next connection; pending for ever once a simulation has no more.
    async fn accept(&mut self) -> io::Result<(ConnectionStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((ConnectionStream::Left(stream), peer))
            }
            Self::Simulated(connections) => match connections.recv().await {
                Some((stream, peer)) => Ok((ConnectionStream::Right(stream), peer)),
                None => std::future::pending().await,
            },
        }
    }
}

/// A server that is bound and does not answer yet.
pub struct AggregatorServer {
    listener: ConnectionListener,
    names: HostNames,
    roles: AccessRoles,
    access: Option<Arc<WebAccess>>,
    audit: AuditLog,
    recording: Option<RecordingFollowFn>,
    store: Option<watch::Receiver<StoreStatus>>,
    peers: Option<PeerService>,
    receive: Option<ReceiveService>,
    limits: ConnectionLimits,
}

impl AggregatorServer {
    /// Binds the address.
    pub async fn bind_address(address: SocketAddr) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address).await.map_err(|error| ServeError::Listen {
            address,
            why: match error.kind() {
                io::ErrorKind::AddrInUse => "the address is in use".to_owned(),
                io::ErrorKind::PermissionDenied => "no permission for this port".to_owned(),
                io::ErrorKind::AddrNotAvailable => "this host has no such address".to_owned(),
                _ => error.to_string(),
            },
        })?;
        Ok(Self::with_listener(ConnectionListener::Tcp(listener)))
    }

    /// A server for the connections of a simulation.
    pub fn on_simulated(connections: ConnectionReceiver) -> Self {
        Self::with_listener(ConnectionListener::Simulated(connections))
    }

    fn with_listener(listener: ConnectionListener) -> Self {
        Self {
            listener,
            names: host_names(&[]),
            roles: AccessRoles::new(watch::channel(Arc::default()).1),
            access: None,
            audit: AuditLog::default(),
            recording: None,
            store: None,
            peers: None,
            receive: None,
            limits: LIMITS,
        }
    }

    /// Sets who may do what: always the newest of these options.
    #[must_use]
    pub fn with_roles(self, options: watch::Receiver<Arc<RoleOptions>>) -> Self {
        Self { roles: AccessRoles::new(options), ..self }
    }

    /// Sets TLS and who may read.
    #[must_use]
    pub fn with_web_access(self, access: Arc<WebAccess>) -> Self {
        Self { access: Some(access), ..self }
    }

    /// Logs actions to this file, one line of JSON each.
    pub fn with_audit_file(self, path: &Path) -> Result<Self, AuditLogError> {
        Ok(Self { audit: AuditLog::to_file(path)?, ..self })
    }

    /// Adds accepted host names: a request must name the host that it is for.
    #[must_use]
    pub fn with_host_names(self, names: &[String]) -> Self {
        Self { names: host_names(names), ..self }
    }

    /// Enables forwarding of what targets report to recorders.
    #[must_use]
    pub fn with_recording(self, recording: RecordingFollowFn) -> Self {
        Self { recording: Some(recording), ..self }
    }

    /// Shows the state of the store in the metrics.
    #[must_use]
    pub fn with_store(self, store: watch::Receiver<StoreStatus>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Answers the other aggregators of this cluster from this engine, in this process.
    #[must_use]
    pub fn with_peers(
        self,
        engine: EngineHandle,
        cluster: SanitizedText,
        process: AggregatorProcess,
    ) -> Self {
        Self { peers: Some(PeerService::new(engine, cluster, process)), ..self }
    }

    /// Passes on what senders with the role `write` send.
    #[must_use]
    pub fn with_receiver(self, receiver: WriteReceiver) -> Self {
        Self { receive: Some(ReceiveService::new(receiver)), ..self }
    }

    /// Sets other connection limits.
    #[must_use]
    pub fn with_limits(self, limits: ConnectionLimits) -> Self {
        Self { limits, ..self }
    }

    /// The bound address, with the port that the system chose if none was given.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        match &self.listener {
            ConnectionListener::Tcp(listener) => listener.local_addr(),
            ConnectionListener::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Answers until `stop` ends, then lets open requests finish.
    pub async fn run(mut self, source: AnswerSource, stop: impl Future<Output = ()>) {
        let mut admission = ConnectionAdmission::new(self.limits);
        let (stopping, stopped) = watch::channel(false);
        let hub = StreamHub::new(source.clone(), stopped.clone());
        let (roles, audit, recording, store) = (self.roles, self.audit, self.recording, self.store);
        let (peers, receive) = (self.peers, self.receive);
        let (api_stopped, overview_cache) = (stopped.clone(), OverviewCache::default());
        let state = ApiState {
            source,
            hub,
            roles,
            audit,
            recording,
            store,
            peers,
            receive,
            stopped: api_stopped,
            overview_cache,
        };
        let guard = RequestGuard::new(self.names, self.access.clone(), state.roles.clone())
            .with_receiving(state.receive.is_some());
        let (routes, access) = (build_router(state, guard), self.access);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let Some(permit) = admission.admit_connection(peer.ip(), Instant::now()) else {
                            tracing::debug!(%peer, "too many connections; closing one");
                            continue;
                        };
                        let tls = access.as_ref().and_then(|access| access.server_tls());
                        let (routes, stopped) = (routes.clone(), stopped.clone());
                        connections.spawn(async move {
                            if let Some(stream) = open_stream(stream, tls, &permit).await {
                                handle_connection(stream, permit, PeerAddress(peer), routes, stopped).await;
                            }
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        stopping.send_replace(true);
        let drained = timeout(DRAIN, async { while connections.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!("stopped with requests still open after {DRAIN:?}");
        }
    }
}

async fn handle_connection(
    stream: ServerStream,
    permit: ConnectionPermit,
    peer: PeerAddress,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let (routes, reserve) = (TowerToHyperService::new(routes), permit.is_reserve());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        if reserve {
            request.extensions_mut().insert(ReserveConnection);
        }
        routes.call(request)
    });
    let stop = async move { drop(stopped.wait_for(|stopping| *stopping).await) };
    serve_connection(stream, permit, service, stop).await;
}

/// Writes the verdicts of `source` to the store until the source ends.
pub async fn write_to_store(source: AnswerSource, writer: StoreWriter) {
    exposition::write_to_store(source, writer).await;
}

/// The accepted host names: those of this machine's aggregator, and the given ones.
fn host_names(given: &[String]) -> HostNames {
    HostNames::new(given, "this aggregator", "--name or serve.names in its settings")
}

fn build_router(state: ApiState, guard: RequestGuard) -> Router {
    Router::new()
        .route("/", get(health_endpoints::handle_index))
        .route("/healthz", get(health_endpoints::handle_healthz))
        .route("/readyz", get(health_endpoints::handle_readyz))
        .route("/metrics", get(exposition::handle_metrics))
        .route("/node/{node}/metrics", get(service_discovery::handle_node_page))
        .route(RECEIVE_PATH, post(receive_endpoint::handle_write))
        .route("/sd/http", get(service_discovery::handle_targets))
        .nest(gaunt_api::API, json_api::api_routes())
        .with_state(state)
        .fallback(health_endpoints::handle_not_found)
        .layer(from_fn_with_state(guard, guard_request))
}
