//! The address of the client of a request.

use std::net::{IpAddr, SocketAddr};

/// Peer address of the connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) SocketAddr);

impl PeerAddress {
    /// The address without its port.
    pub(super) fn address(self) -> IpAddr {
        self.0.ip()
    }
}
