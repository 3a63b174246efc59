//! A query to the kubelet: gRPC over HTTP/2 over a unix socket.

use std::{io, path::Path};

use gaunt_schema::plain_error;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Request, Response,
    body::{Bytes, Incoming},
    client::conn::http2,
    header::{CONTENT_TYPE, HeaderValue, TE},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

use super::{DeviceHolders, pod_resources_messages::ListPodResourcesResponse};

/// The method as a gRPC path. A unix socket has no host; gRPC's own clients send this one.
const LIST: &str = "http://localhost/v1.PodResourcesLister/List";

/// The longest answer in bytes: what the kubelet's own clients allow.
const MAX_ANSWER: usize = 16 << 20;

/// The prefix of each gRPC message: whether it is compressed, and its length in four bytes.
const PREFIX: usize = 5;

/// The empty message, framed.
const NOTHING: &[u8] = &[0; PREFIX];

/// The longest kubelet error message that is passed on, in characters.
const MAX_MESSAGE: usize = 200;

/// Why the query failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodResourcesError {
    /// The socket cannot be opened.
    #[error("{0}")]
    Connect(io::Error),
    /// The server does not speak HTTP/2, or the connection broke.
    #[error("the connection broke: {}", plain_error::network(.0))]
    Broken(#[from] hyper::Error),
    /// The HTTP status is not that of gRPC.
    #[error("HTTP status {0}")]
    Status(u16),
    /// The kubelet returned a gRPC error.
    #[error("rejected: {message} (gRPC status {code})")]
    Refused {
        /// The gRPC status code.
        code: u32,
        /// The error message.
        message: String,
    },
    /// The answer exceeds the limit.
    #[error("the answer is longer than {MAX_ANSWER} bytes")]
    TooLong,
    /// The answer is not a valid list of pods.
    #[error("the answer is not a list of pods: {0}")]
    Malformed(String),
}

/// Queries which pod holds which devices.
pub(crate) async fn query_holders(socket: &Path) -> Result<DeviceHolders, PodResourcesError> {
    let stream = UnixStream::connect(socket).await.map_err(PodResourcesError::Connect)?;
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    // The task ends when the sender is dropped, and a broken connection breaks the answer too.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(list_request()).await;
    let pods = read_response(answer?).await;
    connection.abort();
    pods
}

fn list_request() -> Request<Full<Bytes>> {
    let mut question = Request::new(Full::new(Bytes::from_static(NOTHING)));
    *question.method_mut() = hyper::Method::POST;
    *question.uri_mut() = hyper::Uri::from_static(LIST);
    let headers = question.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    question
}

async fn read_response(response: Response<Incoming>) -> Result<DeviceHolders, PodResourcesError> {
    if response.status() != hyper::StatusCode::OK {
        return Err(PodResourcesError::Status(response.status().as_u16()));
    }
    // An immediate error is in the headers; after an answer it is in the trailers.
    let at_once = parse_refusal(response.headers());
    let body = Limited::new(response.into_body(), MAX_ANSWER + PREFIX).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return PodResourcesError::TooLong;
        }
        match error.downcast::<hyper::Error>() {
            Ok(error) => PodResourcesError::Broken(*error),
            Err(error) => PodResourcesError::Malformed(plain_error::network(error.as_ref())),
        }
    })?;
    let refusal = body.trailers().and_then(parse_refusal);
    if let Some(refused) = at_once.or(refusal) {
        return Err(refused);
    }
    let bytes = body.to_bytes();
    let message =
        unframe_message(&bytes).map_err(|why| PodResourcesError::Malformed(why.to_owned()))?;
    let answer = ListPodResourcesResponse::decode(message);
    Ok(DeviceHolders::of(answer.map_err(|error| {
        tracing::debug!(%error, "the kubelet's answer cannot be decoded");
        PodResourcesError::Malformed("it cannot be decoded".to_owned())
    })?))
}

/// The error in headers or trailers, if the status is not OK.
fn parse_refusal(headers: &HeaderMap) -> Option<PodResourcesError> {
    let code = headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok());
    if code == Some(0) {
        return None;
    }
    let message = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
    let message: String = decode_percent(message).chars().take(MAX_MESSAGE).collect();
    Some(PodResourcesError::Refused { code: code.unwrap_or(u32::MAX), message })
}

/// Decodes a percent-encoded gRPC message.
fn decode_percent(message: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message;
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(byte) = decoded.filter(|_| *first == b'%') {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The single message in an answer's body.
fn unframe_message(mut body: &[u8]) -> Result<&[u8], &'static str> {
    let Some((prefix, message)) = body.split_first_chunk::<PREFIX>() else {
        return Err("it is too short");
    };
    body = message;
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return Err("it is compressed, which was not requested");
    }
    if u32::from_be_bytes(length) as usize != body.len() {
        return Err("its length differs from the announced one");
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_frame_must_hold_announced_length() {
        assert_eq!(unframe_message(&[0, 0, 0, 0, 2, 7, 8]), Ok(&[7, 8][..]));
        assert_eq!(unframe_message(NOTHING), Ok(&[][..]));
        for body in
            [&[][..], &[0, 0, 0], &[1, 0, 0, 0, 0], &[0, 0, 0, 0, 9, 1], &[0, 0, 0, 0, 0, 1]]
        {
            assert!(unframe_message(body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn grpc_refusal_becomes_plain_message() {
        let mut headers = HeaderMap::new();
        assert!(parse_refusal(&headers).is_none(), "no status yet");
        headers.insert("grpc-status", HeaderValue::from_static("0"));
        assert!(parse_refusal(&headers).is_none());
        headers.insert("grpc-status", HeaderValue::from_static("12"));
        headers.insert("grpc-message", HeaderValue::from_static("unknown service%3A 100%, v1"));
        let message = parse_refusal(&headers).unwrap().to_string();
        assert_eq!(message, "rejected: unknown service: 100%, v1 (gRPC status 12)");
    }
}
