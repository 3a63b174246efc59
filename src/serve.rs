//! Serving: the aggregator's HTTP side, which asks its questions through a source like everybody else.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::{Router, middleware::from_fn_with_state, routing::get};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncReadExt as _, copy, sink},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::source::Source;

mod act;
mod api;
mod body;
mod exposition;
mod guard;
mod health;
mod inventory;
mod meeting;
mod patience;
mod recording;
mod stream;

pub use act::TokenError;
use act::{Peer, Token};
use api::Serving;
use guard::{Names, guard};
use patience::Patient;
pub use recording::Recording;
use stream::Hub;

/// Connections that may be open at once: consoles, scrapers and dashboards of a whole site. More wait in the
/// kernel's queue until one is free.
const CONNECTIONS: usize = 512;

/// The time for a client to send its request head, and to send the next one on a kept connection. A slow or silent
/// client loses its connection, not our place for another; consoles and scrapers ask again well within it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The buffer of one connection, in bytes, which also bounds a request's head.
const BUFFER: usize = 16 << 10;

/// The time in which a client must take something of what it asked for. One that is slow gets fewer changes of a
/// stream; one that takes nothing at all loses its connection.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long, and how much, is read on after the last answer of a connection. A client that is done closes it at once.
const LINGER: Duration = Duration::from_secs(1);
const MAX_UNREAD: u64 = 1 << 20;

/// The time that open requests get to end once we are to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// The pause after a failed accept, so that a lack of descriptors does not make us spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the aggregator cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {why}; pass --listen ADDRESS:PORT or set serve.listen")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// What the system said, in words that a person uses.
        why: String,
    },
}

/// A server that has its port and answers nobody yet.
pub struct Server {
    listener: TcpListener,
    names: Names,
    token: Token,
    recording: Option<Recording>,
}

impl Server {
    /// Takes the port.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address).await.map_err(|error| ServeError::Listen {
            address,
            why: match error.kind() {
                io::ErrorKind::AddrInUse => "the address is in use".to_owned(),
                io::ErrorKind::PermissionDenied => "no permission for this port".to_owned(),
                io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
                _ => error.to_string(),
            },
        })?;
        let (names, token) = (Names::new(&[]), Token::default());
        Ok(Self { listener, names, token, recording: None })
    }

    /// The same, where who has the token in this file may acknowledge findings.
    pub fn opened_by(self, token_file: &Path) -> Result<Self, TokenError> {
        Ok(Self { token: Token::in_file(token_file)?, ..self })
    }

    /// The same, known under these names too: a request must name the host that it is for.
    #[must_use]
    pub fn known_as(self, names: &[String]) -> Self {
        Self { names: Names::new(names), ..self }
    }

    /// The same, passing on what targets say to those who record it.
    #[must_use]
    pub fn passing_on(self, recording: Recording) -> Self {
        Self { recording: Some(recording), ..self }
    }

    /// The address that it has, with the port that the system chose if it was left to it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` ends, then lets open requests finish.
    pub async fn run(self, source: Source, stop: impl Future<Output = ()>) {
        let seats = Arc::new(Semaphore::new(CONNECTIONS));
        let (stopping, stopped) = watch::channel(false);
        let hub = Hub::new(source.clone(), stopped.clone());
        let (token, recording) = (self.token, self.recording);
        let (stopped_too, written) = (stopped.clone(), api::Written::default());
        let serving = Serving { source, hub, token, recording, stopped: stopped_too, written };
        let routes = routes(serving, self.names);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = async {
                let seat = seats.clone().acquire_owned().await;
                (seat, self.listener.accept().await)
            };
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                (seat, stream) = accepted => match stream {
                    Ok((stream, peer)) => {
                        let (routes, stopped) = (routes.clone(), stopped.clone());
                        connections.spawn(async move {
                            connection(stream, Peer(peer), routes, stopped).await;
                            drop(seat);
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
            tracing::warn!("ended with requests still open after {DRAIN:?}");
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    routes: Router,
    mut stopped: watch::Receiver<bool>,
) {
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        routes.call(request)
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Patient::new(stream, WRITE_TIMEOUT)), service);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = async { drop(stopped.wait_for(|stopping| *stopping).await) } => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
    linger(connection.into_parts().io.into_inner()).await;
}

/// Reads on for a moment after the last answer. Closed with bytes unread, such as those of a head that is too long, the
/// kernel resets the connection, and the client loses the answer that says why.
async fn linger(stream: Patient) {
    let mut rest = stream.take(MAX_UNREAD);
    // However this ends, the connection is closed next.
    let _ended = timeout(LINGER, copy(&mut rest, &mut sink())).await;
}

fn routes(serving: Serving, names: Names) -> Router {
    Router::new()
        .route("/", get(health::index))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(exposition::metrics))
        .route("/node/{node}/metrics", get(inventory::page))
        .route("/sd/http", get(inventory::targets))
        .nest(crate::answer::API, api::routes())
        .with_state(serving)
        .fallback(health::nothing_here)
        .layer(from_fn_with_state(names, guard))
}
