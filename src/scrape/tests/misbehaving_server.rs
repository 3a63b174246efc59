//! Test servers: each treats every connection in one way, most of them badly.

use std::{io::Write as _, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::sleep,
};

/// What a server does with a connection on which a request arrived.
#[derive(Clone, Debug)]
pub(super) enum ServerBehaviour {
    /// Sends this response, and keeps the connection.
    Answers(String),
    /// The same in bytes.
    AnswersBytes(Vec<u8>),
    /// Sends this response, and closes.
    AnswersAndCloses(Vec<u8>),
    /// Sends this response, and resets the connection.
    AnswersAndResets(Vec<u8>),
    /// Sends this response, and holds the connection without another byte.
    Holds(&'static str),
    /// Sends this response very slowly, a byte at a time.
    Drips(String),
    /// Sends the second part repeatedly after the first.
    Repeats(&'static str, Vec<u8>),
    /// Closes each connection before reading from it.
    Slams,
    /// Responds with a page that is generated from the number of the request.
    Makes(fn(u64) -> String),
    /// Sends a response that is generated from the head of the request, in lower case.
    Hears(fn(&str) -> String),
    /// The same in bytes, generated from the number of the request as well.
    HearsBytes(fn(&str, u64) -> Vec<u8>),
}

pub(super) fn ok_response(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// A response with a content type.
pub(super) fn typed_response(media: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A response in bytes with a content type.
pub(super) fn typed_bytes_response(media: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A response with an encoded body.
pub(super) fn encoded_response(coding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(super) fn gzip_bytes(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zstd_bytes(plain: &[u8]) -> Vec<u8> {
    zstd::encode_all(plain, 9).unwrap()
}

/// Starts a server and returns its address.
pub(super) async fn start_server(behaviour: ServerBehaviour) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((stream, _)) = listener.accept().await {
            connections += 1;
            tokio::spawn(serve_connection(stream, behaviour.clone(), connections << 32));
        }
    });
    address
}

/// Reads a request and returns its head in lower case.
pub(super) async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap().to_lowercase())
}

async fn serve_connection(
    mut stream: TcpStream,
    behaviour: ServerBehaviour,
    mut number: u64,
) -> Option<()> {
    /// The time between two bytes of a slow response.
    const DRIP: Duration = Duration::from_millis(200);

    loop {
        if matches!(behaviour, ServerBehaviour::Slams) {
            return None;
        }
        let head = read_request(&mut stream).await?;
        assert!(head.starts_with("get /metrics http/1.1\r\n"), "{head}");
        assert!(head.contains("\r\naccept: "), "{head}");
        number += 1;
        match &behaviour {
            ServerBehaviour::Answers(text) => stream.write_all(text.as_bytes()).await.ok()?,
            ServerBehaviour::AnswersBytes(bytes) => stream.write_all(bytes).await.ok()?,
            ServerBehaviour::Hears(answer) => {
                stream.write_all(answer(&head).as_bytes()).await.ok()?;
            }
            ServerBehaviour::HearsBytes(answer) => {
                stream.write_all(&answer(&head, number)).await.ok()?;
            }
            ServerBehaviour::Makes(page) => {
                stream.write_all(ok_response(&page(number)).as_bytes()).await.ok()?;
            }
            ServerBehaviour::AnswersAndCloses(bytes) => {
                stream.write_all(bytes).await.ok()?;
                return None;
            }
            ServerBehaviour::AnswersAndResets(bytes) => {
                stream.write_all(bytes).await.ok()?;
                stream.set_zero_linger().ok()?;
                return None;
            }
            ServerBehaviour::Holds(text) => {
                stream.write_all(text.as_bytes()).await.ok()?;
                std::future::pending::<()>().await;
            }
            ServerBehaviour::Drips(text) => {
                for byte in text.bytes() {
                    stream.write_all(&[byte]).await.ok()?;
                    sleep(DRIP).await;
                }
            }
            ServerBehaviour::Repeats(first, again) => {
                stream.write_all(first.as_bytes()).await.ok()?;
                loop {
                    stream.write_all(again).await.ok()?;
                }
            }
            ServerBehaviour::Slams => return None,
        }
    }
}
