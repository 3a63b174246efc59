//! NCCL's RAS service: the status of the jobs on this node, queried without use of a GPU or its links.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use gaunt_schema::SanitizedText;

/// The address at which a job's NCCL listens, on each of its nodes.
pub const ADDRESS: &str = "127.0.0.1:28028";

/// How long NCCL may collect from the job's other nodes, in whole seconds.
const COLLECT_SECONDS: u64 = 5;

/// The timeout of a connection, and of a line that needs no collecting.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum that is read: a verbose status of thousands of ranks.
const MAX_BYTES: u64 = 4 << 20;

/// The version of the protocol.
const PROTOCOL: u32 = 2;

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum RasError {
    /// No service listens.
    #[error(
        "no NCCL RAS service at {address}: {source}; it needs a job with NCCL 2.24 or newer, and not NCCL_RAS_ENABLE=0"
    )]
    Silent {
        /// The service's address.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The service is not NCCL's, or its response is incomplete.
    #[error("{address} is not an NCCL RAS service: {said}")]
    Strange {
        /// The service's address.
        address: SocketAddr,
        /// Its response.
        said: SanitizedText,
    },
}

/// The status of all jobs that the service knows, line by line.
pub fn query_status(address: SocketAddr) -> Result<Vec<SanitizedText>, RasError> {
    let no_answer = |source| RasError::Silent { address, source };
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(no_answer)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(no_answer)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(no_answer)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(no_answer)?.take(MAX_BYTES));
    let mut send_command = |line: &str, expected: &str| {
        let mut answer = Vec::new();
        let written = (&stream).write_all(line.as_bytes());
        written.and_then(|()| lines.read_until(b'\n', &mut answer)).map_err(no_answer)?;
        let reply = SanitizedText::new(String::from_utf8_lossy(&answer).trim_end());
        if reply.to_ascii_uppercase().starts_with(expected) {
            return Ok(());
        }
        Err(RasError::Strange { address, said: reply })
    };
    send_command(&format!("CLIENT PROTOCOL {PROTOCOL}\n"), "SERVER PROTOCOL ")?;
    send_command(&format!("TIMEOUT {COLLECT_SECONDS}\n"), "OK")?;
    (&stream).write_all(b"VERBOSE STATUS\n").map_err(no_answer)?;
    let timeout = Duration::from_secs(COLLECT_SECONDS) + TIMEOUT;
    stream.set_read_timeout(Some(timeout)).map_err(no_answer)?;
    // This also bounds a server that sends slowly.
    let end = Instant::now() + 2 * timeout;
    let (mut status, mut line) = (Vec::new(), Vec::new());
    while Instant::now() < end && lines.read_until(b'\n', &mut line).map_err(no_answer)? > 0 {
        status.push(SanitizedText::new(String::from_utf8_lossy(&line).trim_end()));
        line.clear();
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;

    /// A server that answers each line with the next reply, and then closes.
    fn scripted_server(replies: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for reply in replies {
                lines.next();
                (&stream).write_all(reply.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn ras_status_is_read_completely_and_sanitized() {
        let replies =
            &["SERVER PROTOCOL 2\n", "OK\n", "NCCL version 2.27\nJob summary\n\u{1b}[2Jrank 3\n"];
        let lines = query_status(scripted_server(replies)).unwrap();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2].as_str(), "\u{fffd}[2Jrank 3");
    }

    #[test]
    fn ras_reports_non_nccl_answer() {
        let error =
            query_status(scripted_server(&["HTTP/1.1 400 Bad Request\n"])).unwrap_err().to_string();
        assert!(error.ends_with("is not an NCCL RAS service: HTTP/1.1 400 Bad Request"), "{error}");
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(
            query_status(closed)
                .unwrap_err()
                .to_string()
                .starts_with("no NCCL RAS service at 127.0.0.1:")
        );
    }
}
