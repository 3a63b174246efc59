//! Two machines: ranks of two processes that connect over a socket, by a key that one of them creates.

use std::{
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    process,
    sync::{Mutex, PoisonError},
    thread,
};

use super::emulated_kernels;

/// Handles of communicators with another process begin here; those within one are small.
const FIRST: usize = 1 << 20;

/// NCCL's unique id: the name of a socket, and zeros.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FakeNcclUniqueId([u8; 128]);

/// The listening socket, and the connected peers.
static LISTENER: Mutex<Option<UnixListener>> = Mutex::new(None);
static PEERS: Mutex<Vec<UnixStream>> = Mutex::new(Vec::new());

/// The index of a communicator among those with other processes.
pub(super) fn peer_number(communicator: usize) -> Option<usize> {
    communicator.checked_sub(FIRST)
}

/// Creates a key, and listens for the peer that has it.
pub(super) fn create_unique_id() -> io::Result<FakeNcclUniqueId> {
    let name = format!("gaunt-fake-nccl-{}", process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    *LISTENER.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    let mut key = [0; 128];
    key[..name.len()].copy_from_slice(name.as_bytes());
    Ok(FakeNcclUniqueId(key))
}

/// Waits for the other rank, or connects to it.
pub(super) fn join_peer(key: &FakeNcclUniqueId, first: bool) -> io::Result<usize> {
    let peer = if first {
        let listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner).take();
        listener.ok_or_else(|| io::Error::other("no unique id was created"))?.accept()?.0
    } else {
        let name = key.0.split(|byte| *byte == 0).next().unwrap_or_default();
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?
    };
    let mut peers = PEERS.lock().unwrap_or_else(PoisonError::into_inner);
    peers.push(peer);
    Ok(FIRST + peers.len() - 1)
}

/// The sum of both ranks' data. Blocks until the other rank sends its data.
pub(super) fn sum_with_peer(number: usize, data: &[u8], element: &str) -> io::Result<Vec<u8>> {
    let peers = PEERS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut peer = peers.get(number).ok_or(io::ErrorKind::NotFound)?.try_clone()?;
    drop(peers);
    let mut peer_data = vec![0; data.len()];
    thread::scope(|scope| {
        let mut out = peer.try_clone()?;
        let sent = scope.spawn(move || out.write_all(data));
        peer.read_exact(&mut peer_data)?;
        sent.join().map_err(|_| io::Error::other("the sender failed"))?
    })?;
    Ok(emulated_kernels::sum_elements(data, &peer_data, element))
}
