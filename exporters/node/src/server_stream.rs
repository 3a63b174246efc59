//! The stream of an accepted connection: plain, or TLS after its handshake, which has a deadline of its own.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig, server::TlsStream};
use tokio_util::either::Either;

use crate::connection_admission::ConnectionPermit;

/// The deadline of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// A connection that is not TCP, in a simulation.
pub trait NetworkStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> NetworkStream for T {}

/// An accepted connection.
pub type ConnectionStream = Either<TcpStream, Box<dyn NetworkStream>>;

/// The stream of a connection, without or with TLS.
pub type ServerStream = Either<ConnectionStream, Box<TlsStream<ConnectionStream>>>;

/// The name of HTTP/2 in ALPN (RFC 9113).
pub(crate) const HTTP2: &[u8] = b"h2";

/// Whether client and server agreed on HTTP/2.
pub(crate) fn is_http2(stream: &ServerStream) -> bool {
    matches!(stream, Either::Right(tls) if tls.get_ref().1.alpn_protocol() == Some(HTTP2))
}

/// Makes the handshake if TLS is enabled. None if it fails, times out, or the connection is evicted for another one.
pub async fn open_stream(
    stream: ConnectionStream,
    tls: Option<Arc<ServerConfig>>,
    permit: &ConnectionPermit,
) -> Option<ServerStream> {
    let Some(mut tls) = tls else { return Some(Either::Left(stream)) };
    if permit.is_reserve() {
        // A reserve connection ends after one response, and tells so as HTTP/1.1 does.
        Arc::make_mut(&mut tls).alpn_protocols.retain(|protocol| protocol != HTTP2);
    }
    let handshake = timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream));
    tokio::select! {
        () = permit.connection_status().wait_for_eviction() => None,
        opened = handshake => match opened {
            Ok(Ok(stream)) => Some(Either::Right(Box::new(stream))),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("TLS handshake timed out");
                None
            }
        },
    }
}
