//! Serves rings: one thread, one listener, an answer for each request on connections that stay open.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, RawFd},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{
    UnixMs,
    frame::{CONTENT_TYPE, HOLDS, Holds, MEDIA},
};
use rustix::{
    event::epoll,
    net::{RecvFlags, SendFlags, recv, send, sockopt},
};

use super::{Rings, framed::Room};
use crate::address;

/// Events that are taken from the kernel at once.
const EVENTS: usize = 512;

/// A request head is a few hundred bytes; who sends more than this before its end is no scraper.
const HEAD_BYTES: usize = 4 * 1024;

/// What a socket may hold that its peer has not read yet: a whole answer, so that none waits here.
const SEND_BYTES: usize = 512 * 1024;

/// Answers that do not fit into their sockets wait here, all together at most so large.
const WAITING_BYTES: usize = 256 * 1024 * 1024;

/// Time to get over running out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

const NOT_FOUND: &[u8] =
    b"HTTP/1.1 404 Not Found\r\ncontent-length: 21\r\n\r\nnothing; see /metrics\n";

/// The head of an answer that is a frame, around its type and with room for its length.
const FRAME_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: ";
const FRAME_LENGTH: &[u8] = b"\r\ncontent-length: 00000000\r\n\r\n";
const LENGTH_DIGITS: usize = 8;
const LENGTH_END: &[u8] = b"\r\n\r\n";

/// One connection.
struct Peer {
    stream: TcpStream,
    node: usize,
    /// What came of a head that has no end yet.
    head: Vec<u8>,
    /// What is left of an answer, and whether the connection ends with it.
    left: Vec<u8>,
    last: bool,
}

/// What becomes of a connection.
#[derive(PartialEq, Eq)]
enum Then {
    Goes,
    Stays,
}

/// The server.
struct Serving<'a> {
    rings: &'a Rings,
    started: Instant,
    /// The same by the wall clock.
    began: UnixMs,
    epoll: rustix::fd::OwnedFd,
    peers: HashMap<RawFd, Peer>,
    most: usize,
    /// The answer that is being made.
    answer: Vec<u8>,
    /// Room to make frames in.
    room: Room,
    waiting: usize,
}

/// Serves until `is_over`, which is asked at least ten times a second.
pub(crate) fn run(
    listener: &TcpListener,
    rings: &Rings,
    most: usize,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let door = listener.as_raw_fd();
    epoll::add(&epoll, listener, epoll::EventData::new_u64(key(door)), epoll::EventFlags::IN)?;
    let (peers, answer) = (HashMap::new(), Vec::new());
    let started = Instant::now();
    let (began, room) = (wall(), Room::default());
    let mut serving =
        Serving { rings, started, began, epoll, peers, most, answer, room, waiting: 0 };
    let mut events = Vec::with_capacity(EVENTS);
    let tenth = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !is_over() {
        events.clear();
        match epoll::wait(&serving.epoll, rustix::buffer::spare_capacity(&mut events), Some(&tenth))
        {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let fd = event.data.u64() as RawFd;
            if fd == door {
                serving.accept(listener)?;
            } else {
                serving.turn(fd);
            }
        }
    }
    Ok(())
}

/// What the wall clock shows.
fn wall() -> UnixMs {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(wall.as_millis() as i64)
}

/// The value of a header, however its name is written.
fn value<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let head = std::str::from_utf8(head).ok()?;
    head.split("\r\n").find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A descriptor as the kernel keeps it for us.
fn key(fd: RawFd) -> u64 {
    u64::from(fd.unsigned_abs())
}

impl Serving<'_> {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.welcome(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.raw_os_error().is_some() => {
                    // Out of descriptors, or a peer that is gone already.
                    std::thread::sleep(ACCEPT_PAUSE);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream) -> io::Result<()> {
        let node = match stream.local_addr() {
            Ok(SocketAddr::V4(local)) => address::node(*local.ip()),
            _ => None,
        };
        // Nobody but this machine reaches an address of 127.0.0.0/8.
        let Some(node) = node.filter(|node| *node < self.rings.nodes()) else { return Ok(()) };
        if self.peers.len() >= self.most {
            return Ok(());
        }
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES)?;
        let fd = stream.as_raw_fd();
        let data = epoll::EventData::new_u64(key(fd));
        epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
        let peer = Peer { stream, node, head: Vec::new(), left: Vec::new(), last: false };
        self.peers.insert(fd, peer);
        Ok(())
    }

    /// Goes on with a connection that can be read or written.
    fn turn(&mut self, fd: RawFd) {
        let Some(mut peer) = self.peers.remove(&fd) else { return };
        let before = peer.left.len();
        let then = if peer.left.is_empty() { self.hear(&mut peer) } else { drain(&mut peer) };
        self.waiting = self.waiting + peer.left.len() - before;
        let over = self.waiting > WAITING_BYTES || then == Then::Goes;
        if over {
            self.waiting -= peer.left.len();
            return; // The stream is closed, and with that leaves the kernel's list.
        }
        if (before == 0) != peer.left.is_empty() {
            let flags =
                if peer.left.is_empty() { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
            let data = epoll::EventData::new_u64(key(fd));
            if epoll::modify(&self.epoll, &peer.stream, data, flags).is_err() {
                self.waiting -= peer.left.len();
                return;
            }
        }
        self.peers.insert(fd, peer);
    }

    /// Reads what came and answers every request that is whole.
    fn hear(&mut self, peer: &mut Peer) -> Then {
        let mut bytes = [0; HEAD_BYTES];
        let read = match recv(&peer.stream, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => return Then::Goes,
            Ok((read, _)) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Then::Stays,
            Err(_) => return Then::Goes,
        };
        peer.head.extend_from_slice(&bytes[..read]);
        while let Some(end) = peer.head.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = peer.head.split_off(end + 4);
            let head = std::mem::replace(&mut peer.head, rest);
            if self.tell(peer, &head) == Then::Goes {
                return Then::Goes;
            }
        }
        if peer.head.len() > HEAD_BYTES { Then::Goes } else { Then::Stays }
    }

    /// Makes the answer for who reads frames and holds this.
    fn frame(&mut self, node: usize, holds: Holds) {
        self.answer.clear();
        self.answer.extend_from_slice(FRAME_HEAD);
        self.answer.extend_from_slice(CONTENT_TYPE.as_bytes());
        self.answer.extend_from_slice(FRAME_LENGTH);
        let begin = self.answer.len();
        self.rings.frame(node, self.began, wall(), holds, &mut self.room, &mut self.answer);
        // The length has a fixed width, so that nothing moves when it is known.
        let mut length = self.answer.len() - begin;
        for digit in self.answer[begin - LENGTH_END.len() - LENGTH_DIGITS..]
            .iter_mut()
            .take(LENGTH_DIGITS)
            .rev()
        {
            *digit = b'0' + (length % 10) as u8;
            length /= 10;
        }
    }

    /// Answers one request.
    fn tell(&mut self, peer: &mut Peer, head: &[u8]) -> Then {
        let is_scrape = head.starts_with(b"GET /metrics ") || head.starts_with(b"GET /metrics?");
        let wants = |words: &[u8]| head.windows(words.len()).any(|w| w.eq_ignore_ascii_case(words));
        peer.last |= wants(b"connection: close");
        if is_scrape && value(head, "accept").is_some_and(|accept| accept.starts_with(MEDIA)) {
            let holds = value(head, HOLDS).map(Holds::parse).unwrap_or_default();
            self.frame(peer.node, holds);
        } else if is_scrape {
            self.rings.answer(peer.node, self.started.elapsed(), wall(), &mut self.answer);
        } else {
            self.answer.clear();
            self.answer.extend_from_slice(NOT_FOUND);
        }
        if !peer.left.is_empty() {
            peer.left.extend_from_slice(&self.answer);
            return Then::Stays;
        }
        match send(&peer.stream, &self.answer, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == self.answer.len() && peer.last => Then::Goes,
            Ok(sent) => {
                peer.left.extend_from_slice(&self.answer[sent..]);
                Then::Stays
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                peer.left.extend_from_slice(&self.answer);
                Then::Stays
            }
            Err(_) => Then::Goes,
        }
    }
}

/// Sends on what is left of an answer.
fn drain(peer: &mut Peer) -> Then {
    match send(&peer.stream, &peer.left, SendFlags::NOSIGNAL) {
        Ok(sent) => {
            peer.left.drain(..sent);
            // An empty vector that was full once would be kept for every node.
            if peer.left.is_empty() {
                peer.left = Vec::new();
            }
            if peer.left.is_empty() && peer.last { Then::Goes } else { Then::Stays }
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Then::Stays,
        Err(_) => Then::Goes,
    }
}

/// A listener on this port for every address of this machine.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
}
