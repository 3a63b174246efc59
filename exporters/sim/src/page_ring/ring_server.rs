//! HTTP server of page rings: one thread, one listener, keep-alive connections.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, RawFd},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{
    UnixMs,
    frame::{CONTENT_TYPE, ClientState, HOLDS, MEDIA},
};
use rustix::{
    event::epoll,
    net::{RecvFlags, SendFlags, recv, send, sockopt},
};

use super::{PageRings, framed_node::FrameScratch};
use crate::node_address;

/// Maximum number of events per `epoll_wait` call.
const EVENTS: usize = 512;

/// A request head is a few hundred bytes; a client that sends more without an end is not a scraper.
const HEAD_BYTES: usize = 4 * 1024;

/// Send buffer of a socket: a whole response fits, so that none waits in the server.
const SEND_BYTES: usize = 512 * 1024;

/// Limit on the total size of responses that do not fit into their sockets.
const WAITING_BYTES: usize = 256 * 1024 * 1024;

/// Pause after accept fails for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

const NOT_FOUND: &[u8] =
    b"HTTP/1.1 404 Not Found\r\ncontent-length: 21\r\n\r\nno page; see /metrics";

/// The head of a frame response, around its type and with space for its length.
const FRAME_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: ";
const FRAME_LENGTH: &[u8] = b"\r\ncontent-length: 00000000\r\n\r\n";
const LENGTH_DIGITS: usize = 8;
const LENGTH_END: &[u8] = b"\r\n\r\n";

/// One connection.
struct RingConnection {
    stream: TcpStream,
    node: usize,
    /// Bytes of a request head that is not complete yet.
    head: Vec<u8>,
    /// The unsent part of a response, and whether the connection closes after it.
    unsent: Vec<u8>,
    closes_after: bool,
}

/// What happens next to a connection.
#[derive(PartialEq, Eq)]
enum ConnectionNext {
    Close,
    Keep,
}

/// The server.
struct RingServer<'a> {
    rings: &'a PageRings,
    started: Instant,
    /// Start time by the wall clock.
    start_time: UnixMs,
    epoll: rustix::fd::OwnedFd,
    connections: HashMap<RawFd, RingConnection>,
    max_connections: usize,
    /// The response being built.
    response: Vec<u8>,
    /// Buffers for building frames.
    scratch: FrameScratch,
    unsent_bytes: usize,
}

/// Serves until `is_over` returns true, which is checked at least ten times a second.
pub(crate) fn run(
    listener: &TcpListener,
    rings: &PageRings,
    max_connections: usize,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let listener_fd = listener.as_raw_fd();
    epoll::add(
        &epoll,
        listener,
        epoll::EventData::new_u64(epoll_key(listener_fd)),
        epoll::EventFlags::IN,
    )?;
    let (peers, response) = (HashMap::new(), Vec::new());
    let started = Instant::now();
    let (started_at, scratch) = (wall_time(), FrameScratch::default());
    let mut server = RingServer {
        rings,
        started,
        start_time: started_at,
        epoll,
        connections: peers,
        max_connections,
        response,
        scratch,
        unsent_bytes: 0,
    };
    let mut events = Vec::with_capacity(EVENTS);
    let tenth = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !is_over() {
        events.clear();
        match epoll::wait(&server.epoll, rustix::buffer::spare_capacity(&mut events), Some(&tenth))
        {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let fd = event.data.u64() as RawFd;
            if fd == listener_fd {
                server.accept_connections(listener)?;
            } else {
                server.handle_ready(fd);
            }
        }
    }
    Ok(())
}

/// Current wall-clock time.
fn wall_time() -> UnixMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since_epoch.as_millis() as i64)
}

/// The value of a header; its name is case-insensitive.
fn header_value<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let head = std::str::from_utf8(head).ok()?;
    head.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The epoll key of a descriptor.
fn epoll_key(fd: RawFd) -> u64 {
    u64::from(fd.unsigned_abs())
}

impl RingServer<'_> {
    fn accept_connections(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.add_connection(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.raw_os_error().is_some() => {
                    // Out of descriptors, or the client has already disconnected.
                    std::thread::sleep(ACCEPT_PAUSE);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn add_connection(&mut self, stream: TcpStream) -> io::Result<()> {
        let node = match stream.local_addr() {
            Ok(SocketAddr::V4(local)) => node_address::node_at(*local.ip()),
            _ => None,
        };
        // Only this machine can reach an address of 127.0.0.0/8.
        let Some(node) = node.filter(|node| *node < self.rings.node_count()) else { return Ok(()) };
        if self.connections.len() >= self.max_connections {
            return Ok(());
        }
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES)?;
        let fd = stream.as_raw_fd();
        let data = epoll::EventData::new_u64(epoll_key(fd));
        epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
        let peer = RingConnection {
            stream,
            node,
            head: Vec::new(),
            unsent: Vec::new(),
            closes_after: false,
        };
        self.connections.insert(fd, peer);
        Ok(())
    }

    /// Continues a connection that can be read or written.
    fn handle_ready(&mut self, fd: RawFd) {
        let Some(mut peer) = self.connections.remove(&fd) else { return };
        let before = peer.unsent.len();
        let next = if peer.unsent.is_empty() {
            self.read_requests(&mut peer)
        } else {
            send_unsent(&mut peer)
        };
        self.unsent_bytes = self.unsent_bytes + peer.unsent.len() - before;
        let is_over = self.unsent_bytes > WAITING_BYTES || next == ConnectionNext::Close;
        if is_over {
            self.unsent_bytes -= peer.unsent.len();
            return; // The stream is closed, which removes it from epoll.
        }
        if (before == 0) != peer.unsent.is_empty() {
            let flags =
                if peer.unsent.is_empty() { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
            let data = epoll::EventData::new_u64(epoll_key(fd));
            if epoll::modify(&self.epoll, &peer.stream, data, flags).is_err() {
                self.unsent_bytes -= peer.unsent.len();
                return;
            }
        }
        self.connections.insert(fd, peer);
    }

    /// Reads what arrived and answers every complete request.
    fn read_requests(&mut self, peer: &mut RingConnection) -> ConnectionNext {
        let mut bytes = [0; HEAD_BYTES];
        let read = match recv(&peer.stream, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => return ConnectionNext::Close,
            Ok((read, _)) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return ConnectionNext::Keep,
            Err(_) => return ConnectionNext::Close,
        };
        peer.head.extend_from_slice(&bytes[..read]);
        while let Some(end) = peer.head.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = peer.head.split_off(end + 4);
            let head = std::mem::replace(&mut peer.head, rest);
            if self.answer_request(peer, &head) == ConnectionNext::Close {
                return ConnectionNext::Close;
            }
        }
        if peer.head.len() > HEAD_BYTES { ConnectionNext::Close } else { ConnectionNext::Keep }
    }

    /// Builds the response for a client that reads frames and has this state.
    fn build_frame_answer(&mut self, node: usize, client: ClientState) {
        self.response.clear();
        self.response.extend_from_slice(FRAME_HEAD);
        self.response.extend_from_slice(CONTENT_TYPE.as_bytes());
        self.response.extend_from_slice(FRAME_LENGTH);
        let body_start = self.response.len();
        self.rings.write_frame(
            node,
            self.start_time,
            wall_time(),
            client,
            &mut self.scratch,
            &mut self.response,
        );
        // The length has a fixed width, so that nothing moves when it is known.
        let mut length = self.response.len() - body_start;
        for digit in self.response[body_start - LENGTH_END.len() - LENGTH_DIGITS..]
            .iter_mut()
            .take(LENGTH_DIGITS)
            .rev()
        {
            *digit = b'0' + (length % 10) as u8;
            length /= 10;
        }
    }

    /// Answers one request.
    fn answer_request(&mut self, peer: &mut RingConnection, head: &[u8]) -> ConnectionNext {
        let is_scrape = head.starts_with(b"GET /metrics ") || head.starts_with(b"GET /metrics?");
        let contains =
            |text: &[u8]| head.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text));
        peer.closes_after |= contains(b"connection: close");
        if is_scrape && header_value(head, "accept").is_some_and(|accept| accept.starts_with(MEDIA))
        {
            let client = header_value(head, HOLDS).map(ClientState::parse).unwrap_or_default();
            self.build_frame_answer(peer.node, client);
        } else if is_scrape {
            self.rings.write_answer(
                peer.node,
                self.started.elapsed(),
                wall_time(),
                &mut self.response,
            );
        } else {
            self.response.clear();
            self.response.extend_from_slice(NOT_FOUND);
        }
        if !peer.unsent.is_empty() {
            peer.unsent.extend_from_slice(&self.response);
            return ConnectionNext::Keep;
        }
        match send(&peer.stream, &self.response, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == self.response.len() && peer.closes_after => ConnectionNext::Close,
            Ok(sent) => {
                peer.unsent.extend_from_slice(&self.response[sent..]);
                ConnectionNext::Keep
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                peer.unsent.extend_from_slice(&self.response);
                ConnectionNext::Keep
            }
            Err(_) => ConnectionNext::Close,
        }
    }
}

/// Sends the unsent part of a response.
fn send_unsent(peer: &mut RingConnection) -> ConnectionNext {
    match send(&peer.stream, &peer.unsent, SendFlags::NOSIGNAL) {
        Ok(sent) => {
            peer.unsent.drain(..sent);
            // An empty vector keeps its capacity, which would add up over all nodes.
            if peer.unsent.is_empty() {
                peer.unsent = Vec::new();
            }
            if peer.unsent.is_empty() && peer.closes_after {
                ConnectionNext::Close
            } else {
                ConnectionNext::Keep
            }
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => ConnectionNext::Keep,
        Err(_) => ConnectionNext::Close,
    }
}

/// A listener on this port for every address of this machine.
pub(crate) fn bind_listener(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
}
