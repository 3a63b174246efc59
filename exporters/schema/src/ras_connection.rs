//! The line protocol of NCCL's RAS service over any stream: one query, or one stream of events. It sends nothing that
//! changes the job.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::SocketAddr,
};

use crate::{SanitizedText, plain_error, ras_status::RasStatus};

/// The address at which a job's NCCL listens, on each of its nodes.
pub const ADDRESS: &str = "127.0.0.1:28028";

/// The header of a scrape of gaunt-node that also requests the status of the job.
pub const REQUEST_HEADER: &str = "x-gaunt-ras";

/// How long NCCL may collect from the job's other nodes, in whole seconds.
pub const COLLECT_SECONDS: u64 = 5;

/// How many timeouts of the stream a command may take that is answered at once otherwise: while a process of the job does
/// not respond, NCCL's thread is busy for seconds at a time with reaching it again.
const ANSWER_TIMEOUTS: u32 = 5;

/// The maximum that is read of a status: as text of thousands of ranks, and as JSON of as many in 20 communicators each.
const MAX_TEXT_BYTES: usize = 4 << 20;
const MAX_JSON_BYTES: usize = 64 << 20;

/// The longest line that is kept of an answer or an event; NCCL's have at most 2 KiB.
const MAX_LINE_BYTES: usize = 4 << 10;

/// The version of the protocol.
const PROTOCOL: u32 = 2;

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum RasError {
    /// No service listens.
    #[error(
        "no NCCL RAS service at {address}: {why}; it needs a job with NCCL 2.24 or newer, and not NCCL_RAS_ENABLE=0"
    )]
    Silent {
        /// The service's address.
        address: SocketAddr,
        /// The kernel's error.
        why: io::Error,
    },
    /// It listens, and does not answer in time.
    #[error(
        "the NCCL RAS service at {address} does not answer: processes of the job may be stopped or out of reach; look for them, and try again"
    )]
    Unanswered {
        /// The service's address.
        address: SocketAddr,
    },
    /// The service is not NCCL's, or its response is incomplete.
    #[error("{address} is not an NCCL RAS service: {said}")]
    Strange {
        /// The service's address.
        address: SocketAddr,
        /// Its response.
        said: SanitizedText,
    },
    /// The service is older than its JSON.
    #[error(
        "the NCCL RAS service at {address} has no JSON: {said}; it needs NCCL 2.28.7 or newer, older ones have the text of `gaunt-probe ras`"
    )]
    NoJson {
        /// The service's address.
        address: SocketAddr,
        /// Its response.
        said: SanitizedText,
    },
    /// The service is older than its events.
    #[error("the NCCL RAS service at {address} has no events: {said}; it needs NCCL 2.29 or newer")]
    NoEvents {
        /// The service's address.
        address: SocketAddr,
        /// Its response.
        said: SanitizedText,
    },
    /// The JSON cannot be read.
    #[error(
        "the status of the NCCL RAS service at {address} cannot be read: {fault}; read its text with `gaunt-probe ras`"
    )]
    Unreadable {
        /// The service's address.
        address: SocketAddr,
        /// What is wrong.
        fault: String,
    },
}

/// What happened to a process of the job, as far as it concerns its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RasEventKind {
    /// It joined the job.
    Joined,
    /// RAS does not reach it.
    Unresponsive,
    /// RAS reaches it again.
    Recovered,
    /// RAS considers it dead.
    Dead,
}

/// An event, as RAS states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RasEvent {
    /// What happened.
    pub kind: RasEventKind,
    /// To which process: its number, node and GPUs.
    pub process: SanitizedText,
}

/// The result of waiting for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RasEventOutcome {
    /// An event.
    Event(RasEvent),
    /// Nothing that concerns health within the stream's timeout.
    Nothing,
    /// The service closed the connection: its process ended.
    Closed,
}

/// A connection of one query, or of one stream of events.
#[derive(Debug)]
pub struct RasConnection<S> {
    address: SocketAddr,
    stream: BufReader<S>,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
}

/// What was read of a line.
enum ReadLine {
    Complete(Vec<u8>),
    Pending,
    Closed,
}

impl<S: Read + Write> RasConnection<S> {
    /// Starts the protocol on a stream to this address. Its reads must have a timeout.
    pub fn open(address: SocketAddr, stream: S) -> Result<Self, RasError> {
        let mut connection = Self { address, stream: BufReader::new(stream), line: Vec::new() };
        for (line, expected) in [
            (format!("CLIENT PROTOCOL {PROTOCOL}"), "SERVER PROTOCOL "),
            (format!("TIMEOUT {COLLECT_SECONDS}"), "OK"),
        ] {
            let said = connection.send_command(&line)?;
            if !said.to_ascii_uppercase().starts_with(expected) {
                return Err(RasError::Strange { address, said });
            }
        }
        Ok(connection)
    }

    /// Reads the status as text. `is_late` ends a service that sends slowly or not at all.
    pub fn read_text_status(mut self, is_late: impl Fn() -> bool) -> Result<Vec<u8>, RasError> {
        self.read_status(MAX_TEXT_BYTES, is_late)
    }

    /// Reads the status as JSON. `is_late` ends a service that sends slowly or not at all.
    pub fn read_json_status(mut self, is_late: impl Fn() -> bool) -> Result<RasStatus, RasError> {
        let address = self.address;
        let said = self.send_command("SET FORMAT json")?;
        if !said.eq_ignore_ascii_case("OK") {
            return Err(RasError::NoJson { address, said });
        }
        let status = self.read_status(MAX_JSON_BYTES, is_late)?;
        serde_json::from_slice(&status)
            .map_err(|error| RasError::Unreadable { address, fault: plain_error::json(&error) })
    }

    /// Requests all events, which [`Self::next_event`] then reads.
    pub fn start_events(&mut self) -> Result<(), RasError> {
        let said = self.send_command("MONITOR all")?;
        if said.eq_ignore_ascii_case("OK") {
            return Ok(());
        }
        Err(RasError::NoEvents { address: self.address, said })
    }

    /// Waits for the next event, no longer than the stream's timeout.
    pub fn next_event(&mut self) -> io::Result<RasEventOutcome> {
        Ok(match self.read_line()? {
            ReadLine::Complete(line) => {
                parse_event(&line).map_or(RasEventOutcome::Nothing, RasEventOutcome::Event)
            }
            ReadLine::Pending => RasEventOutcome::Nothing,
            ReadLine::Closed => RasEventOutcome::Closed,
        })
    }

    fn silence(&self, why: io::Error) -> RasError {
        RasError::Silent { address: self.address, why }
    }

    fn write_line(&mut self, line: &str) -> Result<(), RasError> {
        let written = self.stream.get_mut().write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| self.silence(error))
    }

    /// Sends a command that is answered by one line at once.
    fn send_command(&mut self, line: &str) -> Result<SanitizedText, RasError> {
        self.write_line(line)?;
        for _ in 0..ANSWER_TIMEOUTS {
            match self.read_line().map_err(|error| self.silence(error))? {
                ReadLine::Complete(line) => return Ok(clean_line(&line)),
                ReadLine::Pending => {}
                // What a server that is not NCCL's sent last.
                ReadLine::Closed => return Ok(clean_line(&std::mem::take(&mut self.line))),
            }
        }
        Err(RasError::Unanswered { address: self.address })
    }

    /// Reads the status, after which the service closes the connection.
    fn read_status(
        &mut self,
        max_bytes: usize,
        is_late: impl Fn() -> bool,
    ) -> Result<Vec<u8>, RasError> {
        self.write_line("VERBOSE STATUS")?;
        let mut status = Vec::new();
        while status.len() < max_bytes {
            let chunk = match self.stream.fill_buf() {
                Ok([]) => return Ok(status),
                Ok(chunk) => chunk,
                Err(error) if !is_timeout(&error) => return Err(self.silence(error)),
                Err(_) if !is_late() => continue,
                Err(_) if status.is_empty() => {
                    return Err(RasError::Unanswered { address: self.address });
                }
                Err(_) => return Ok(status),
            };
            let length = chunk.len().min(max_bytes - status.len());
            status.extend_from_slice(&chunk[..length]);
            self.stream.consume(length);
            if is_late() {
                break;
            }
        }
        Ok(status)
    }

    /// Reads to the end of the line, or until nothing more comes in time. The excess of a long line is dropped.
    fn read_line(&mut self) -> io::Result<ReadLine> {
        loop {
            let chunk = match self.stream.fill_buf() {
                Ok([]) => return Ok(ReadLine::Closed),
                Ok(chunk) => chunk,
                Err(error) if is_timeout(&error) => return Ok(ReadLine::Pending),
                Err(error) => return Err(error),
            };
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let length = end.unwrap_or(chunk.len());
            let space = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&chunk[..length.min(space)]);
            self.stream.consume(length + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(ReadLine::Complete(std::mem::take(&mut self.line)));
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

fn clean_line(line: &[u8]) -> SanitizedText {
    SanitizedText::new(String::from_utf8_lossy(line).trim_end())
}

/// Parses an event such as `[2025-12-19 13:07:07] PEER_DEAD: Process 7 on node n1 managing GPU 1`.
fn parse_event(line: &[u8]) -> Option<RasEvent> {
    let line = String::from_utf8_lossy(line);
    let (_, event) = line.split_once("] ")?;
    let (name, process) = event.split_once(':')?;
    let kind = match name {
        "PEER_NEW" => RasEventKind::Joined,
        "PEER_UNRESPONSIVE" => RasEventKind::Unresponsive,
        "PEER_RECOVERED" => RasEventKind::Recovered,
        "PEER_DEAD" => RasEventKind::Dead,
        _ => return None,
    };
    Some(RasEvent { kind, process: SanitizedText::new(process.trim()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 28_028);

    /// A stream that answers with what it holds, a piece at a time; an empty piece is a timeout. It keeps what is written.
    #[derive(Default)]
    struct ScriptedStream {
        pieces: Vec<&'static [u8]>,
        written: Vec<u8>,
    }

    impl Read for ScriptedStream {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.pieces.first().copied() {
                None => Ok(0),
                Some([]) => {
                    self.pieces.remove(0);
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Some(piece) => {
                    let length = piece.len().min(buffer.len());
                    buffer[..length].copy_from_slice(&piece[..length]);
                    self.pieces[0] = &piece[length..];
                    if length == piece.len() {
                        self.pieces.remove(0);
                    }
                    Ok(length)
                }
            }
        }
    }

    impl Write for ScriptedStream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn open_with(pieces: &[&'static [u8]]) -> RasConnection<ScriptedStream> {
        let mut all: Vec<&'static [u8]> = vec![b"SERVER PROTOCOL 2\n", b"OK\n"];
        all.extend(pieces);
        let stream = ScriptedStream { pieces: all, written: Vec::new() };
        RasConnection::open(SERVICE, stream).unwrap()
    }

    #[test]
    fn events_are_read_over_split_lines_and_timeouts() {
        let mut connection = open_with(&[
            b"OK\n",
            b"[2025-12-19 13:07:07] PEER_DE",
            b"",
            b"AD: Process 1524345 on node 172.16.64.245 managing GPU 1 \n",
            b"[2025-12-19 13:07:08] PEER_CONNECTING: Process 3 \nnoise\n",
            b"[2025-12-19 13:07:09] PEER_UNRESPONSIVE: \x1b[2J10.0.0.1<5> no message\n",
        ]);
        connection.start_events().unwrap();
        let events: Vec<RasEventOutcome> =
            std::iter::repeat_with(|| connection.next_event().unwrap())
                .take_while(|event| *event != RasEventOutcome::Closed)
                .filter(|event| *event != RasEventOutcome::Nothing)
                .collect();
        let event = |kind, process: &str| {
            RasEventOutcome::Event(RasEvent { kind, process: SanitizedText::new(process) })
        };
        let dead = "Process 1524345 on node 172.16.64.245 managing GPU 1";
        let unresponsive = "\u{fffd}[2J10.0.0.1<5> no message";
        assert_eq!(
            events,
            [event(RasEventKind::Dead, dead), event(RasEventKind::Unresponsive, unresponsive)]
        );
        let written = String::from_utf8(connection.stream.into_inner().written).unwrap();
        assert_eq!(written, "CLIENT PROTOCOL 2\nTIMEOUT 5\nMONITOR all\n");
    }

    #[test]
    fn service_without_events_is_named() {
        let error = open_with(&[b"ERROR: Unknown command MONITOR all\n"]).start_events();
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with("MONITOR all; it needs NCCL 2.29 or newer"), "{error}");
    }

    #[test]
    fn long_line_is_cut_and_the_next_one_is_read() {
        const LONG: &[u8] = &[b'x'; 3 * MAX_LINE_BYTES];
        let mut connection = open_with(&[LONG, LONG, b"\n[t] PEER_NEW: Process 1\n"]);
        assert_eq!(connection.next_event().unwrap(), RasEventOutcome::Nothing);
        let joined = connection.next_event().unwrap();
        assert!(
            matches!(joined, RasEventOutcome::Event(event) if event.kind == RasEventKind::Joined)
        );
    }

    #[test]
    fn slow_status_ends_at_its_deadline() {
        let status = open_with(&[b"rank 0\n", b"", b"rank 1\n", b"", b""]);
        let reads = std::cell::Cell::new(0);
        let is_late = || reads.replace(reads.get() + 1) >= 3;
        assert_eq!(status.read_text_status(is_late).unwrap(), b"rank 0\nrank 1\n");
        let error = open_with(&[b"", b""]).read_text_status(|| true).unwrap_err();
        assert!(matches!(error, RasError::Unanswered { .. }), "{error}");
    }

    #[test]
    fn service_that_is_busy_with_a_stopped_process_is_waited_for() {
        // As NCCL 2.30.7 answered while one of four processes was stopped: after three seconds.
        let pieces: Vec<&'static [u8]> =
            vec![b"", b"", b"", b"SERVER PROTOCOL 2\n", b"", b"OK\n", b"rank 0\n"];
        let stream = ScriptedStream { pieces, written: Vec::new() };
        let connection = RasConnection::open(SERVICE, stream).unwrap();
        assert_eq!(connection.read_text_status(|| true).unwrap(), b"rank 0\n");
    }
}
