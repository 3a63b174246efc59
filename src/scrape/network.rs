//! The network as an argument: a simulation connects to targets in its own process.

use std::{fmt, future::Future, io, net::SocketAddr, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

/// A connection.
pub trait NetworkStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> NetworkStream for T {}

/// The result of connecting, once it is known.
pub type ConnectionResult =
    Pin<Box<dyn Future<Output = io::Result<Box<dyn NetworkStream>>> + Send>>;

/// A network that replaces TCP.
pub trait Network: fmt::Debug + Send + Sync {
    /// Connects to an address.
    fn connect(&self, address: SocketAddr) -> ConnectionResult;
}
