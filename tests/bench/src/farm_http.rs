//! HTTP of the benches' targets: heads of requests, and answers with a page.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Maximum size of a request head.
const MAX_HEAD: usize = 8 << 10;

/// Reads the head of the next request into `head`; `None` when the client has left, or sends too long a one.
pub(crate) async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
    head: &mut Vec<u8>,
) -> Option<()> {
    let mut part = [0; 2048];
    head.clear();
    while !head.ends_with(b"\r\n\r\n") {
        let length = stream.read(&mut part).await.ok()?;
        if length == 0 || head.len() > MAX_HEAD {
            return None;
        }
        head.extend_from_slice(&part[..length]);
    }
    Some(())
}

/// Writes an answer with this body and these header lines; `None` when the client has left.
pub(crate) async fn write_page(
    stream: &mut (impl AsyncWrite + Unpin),
    body: &[u8],
    header: &str,
) -> Option<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n{header}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body).await.ok()
}
