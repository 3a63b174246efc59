//! Tells systemd that a service serves (`Type=notify`), so that what is started after it finds an open port, and no reload
//! comes before the service handles signals.

use std::{
    ffi::OsString,
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{ffi::OsStrExt as _, net::SocketAddr, net::UnixDatagram},
    },
};

/// Sends the message to the socket in `$NOTIFY_SOCKET`, a path or `@` and an abstract name; without one there is nobody to
/// tell. A failure is only logged: the service serves nevertheless.
pub fn notify_ready(socket: Option<OsString>) {
    let Some(path) = socket else { return };
    if let Err(error) = send_ready(&path) {
        tracing::warn!(?path, %error, "cannot tell systemd that the service is ready; check $NOTIFY_SOCKET, or use Type=simple");
    }
}

fn send_ready(path: &OsString) -> io::Result<()> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(b"READY=1", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_reaches_a_socket_and_a_missing_one_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        notify_ready(Some(path.clone().into()));
        let systemd = UnixDatagram::bind(&path).unwrap();
        systemd.set_nonblocking(true).unwrap();
        notify_ready(Some(path.into()));
        let mut message = [0; 16];
        let length = systemd.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1");
        notify_ready(None);
    }
}
