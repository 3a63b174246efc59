//! NCCL's RAS service: the status of the jobs on this node, queried without use of a GPU or its links.

use std::{
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{
    SanitizedText,
    ras_connection::{COLLECT_SECONDS, RasConnection, RasError},
    ras_status::{RasComparison, RasStatus},
};

/// The timeout of a connection, and of a line that needs no collecting.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout of a status: twice what NCCL may collect for, which also bounds a server that sends slowly.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2 * COLLECT_SECONDS + 2);

/// The time between two states that are compared: one query gathers from the whole job.
pub const COMPARED_AFTER: Duration = Duration::from_secs(10);

/// The status of all jobs that the service knows, line by line.
pub fn query_status(address: SocketAddr) -> Result<Vec<SanitizedText>, RasError> {
    let status = connect_to(address)?.read_text_status(deadline_check())?;
    let lines = status.split(|byte| *byte == b'\n');
    let mut lines: Vec<SanitizedText> =
        lines.map(|line| SanitizedText::new(String::from_utf8_lossy(line).trim_end())).collect();
    // What follows the last line break is no line.
    if lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    Ok(lines)
}

/// Compares two states of the job, with `pause` between them.
pub fn compare_ranks(address: SocketAddr, pause: Duration) -> Result<RasComparison, RasError> {
    let before = query_json(address)?;
    thread::sleep(pause);
    Ok(RasComparison::of(&before, &query_json(address)?))
}

fn query_json(address: SocketAddr) -> Result<RasStatus, RasError> {
    connect_to(address)?.read_json_status(deadline_check())
}

fn connect_to(address: SocketAddr) -> Result<RasConnection<TcpStream>, RasError> {
    let no_answer = |why| RasError::Silent { address, why };
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(no_answer)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(no_answer)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(no_answer)?;
    RasConnection::open(address, stream)
}

/// Checks whether the time of a status that is requested now is over.
fn deadline_check() -> impl Fn() -> bool {
    let end = Instant::now() + STATUS_TIMEOUT;
    move || Instant::now() >= end
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        sync::mpsc::{Receiver, channel},
    };

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

    /// A service that answers each connection with the next state, and notes what it is asked.
    fn fake_service(states: &[&str], knows_json: bool) -> (SocketAddr, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let states: Vec<String> = states.iter().map(|state| (*state).to_owned()).collect();
        let (send, asked) = channel();
        thread::spawn(move || {
            for state in states {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    let answer = match line.as_str() {
                        "VERBOSE STATUS" => state.as_str(),
                        line if line.starts_with("CLIENT PROTOCOL ") => "SERVER PROTOCOL 2\n",
                        line if line.starts_with("TIMEOUT ") => "OK\n",
                        "SET FORMAT json" if knows_json => "OK\n",
                        _ => "ERROR: Unknown command\n",
                    };
                    let is_status = line == "VERBOSE STATUS";
                    send.send(line).unwrap();
                    stream.write_all(answer.as_bytes()).unwrap();
                    if is_status {
                        break;
                    }
                }
            }
        });
        (address, asked)
    }

    /// A state in which the second of two ranks launched so many operations; it is as many lines as NCCL writes.
    fn json_state(counts: [u64; 2]) -> String {
        let rank = |(rank, count): (usize, u64)| {
            serde_json::json!({
                "rank": rank, "host": "172.16.64.245", "pid": 1_524_344 + rank, "cuda_dev": rank, "nvml_dev": rank,
                "status": {"init_state": 0, "async_error": 0}, "collective_counts": {"AllReduce": count},
            })
        };
        let ranks: Vec<_> = counts.into_iter().enumerate().map(rank).collect();
        let communicator = serde_json::json!({
            "hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7:0xb8", "size": 2, "ranks": ranks, "missing_ranks": [],
        });
        let state = serde_json::json!({
            "nccl_version": "2.29.1", "communicators_count": 1, "communicators": [communicator],
            "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
        });
        serde_json::to_string_pretty(&state).unwrap() + "\n"
    }

    #[test]
    fn ras_comparison_names_the_rank_and_sends_no_command_that_changes_the_job() {
        let state = json_state([42, 41]);
        let (address, asked) = fake_service(&[&state, &state], true);
        let comparison = compare_ranks(address, Duration::ZERO).unwrap();
        let [rank] = comparison.lagging.as_slice() else { panic!("{comparison:?}") };
        assert_eq!((rank.process.nvml_dev, rank.rank, rank.waiting_ranks), (1, 1, 1));
        let asked: Vec<String> = asked.iter().collect();
        let query = ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"];
        assert_eq!(asked, [query, query].concat());
    }

    #[test]
    fn ras_service_without_json_or_with_broken_json_is_an_error() {
        let (address, _asked) = fake_service(&[""], false);
        let error = compare_ranks(address, Duration::ZERO).unwrap_err().to_string();
        assert!(
            error.contains("has no JSON: ERROR: Unknown command; it needs NCCL 2.28.7"),
            "{error}"
        );
        let (address, _asked) = fake_service(&["{\n \"nccl_version\": "], true);
        let error = compare_ranks(address, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("cannot be read: ") && error.contains("gaunt-probe ras"), "{error}");
    }
}
