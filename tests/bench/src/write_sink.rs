//! Write sink: a server of remote write in this process, which a benchmark answers for.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use anyhow::Context as _;

/// Answers a body with a status line, or ends the connection.
type AnswerFn = dyn Fn(Vec<u8>) -> Option<&'static str> + Send + Sync;

/// Starts to listen and returns the address of the sink; it ends with the process.
pub(crate) fn start_sink(
    answer: impl Fn(Vec<u8>) -> Option<&'static str> + Send + Sync + 'static,
) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    let url = format!("http://{}/api/v1/write", listener.local_addr()?);
    let answer: Arc<AnswerFn> = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve_connection(stream, &*answer));
        }
    });
    Ok(url)
}

/// Answers requests until the connection ends.
fn serve_connection(mut stream: TcpStream, answer: &AnswerFn) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let status = answer(body)?;
        write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}
