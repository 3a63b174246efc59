//! Receive service: checks requests of a Prometheus or vmagent that sends a copy of what it scrapes, and passes them on.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::{
        HeaderMap, Method, StatusCode, Uri,
        header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use gaunt_series::{ReceiveRefusal, ReceiveStatus, WriteReceiver};
use gaunt_store::{MAX_REQUEST_BYTES, ReceivedRequestError};
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

/// The path that senders expect.
pub(super) const RECEIVE_PATH: &str = "/api/v1/write";

/// Kibibytes of all bodies that are in memory: four of the largest requests. Usual ones have some tens.
const MAX_BODIES_KIB: usize = 4 * (MAX_REQUEST_BYTES >> 10);

/// Time for a body to arrive: what it occupies is then free for others. Less than the time for an answer, so that the answer
/// says what was slow.
const BODY_TIMEOUT: Duration = Duration::from_secs(8);

/// The pause that a sender is told, in seconds.
const PAUSE: &str = "5";

/// Passes requests on to the receiver; who may send is checked before.
#[derive(Clone)]
pub(super) struct ReceiveService {
    receiver: WriteReceiver,
    bodies: Arc<Semaphore>,
}

impl ReceiveService {
    pub(super) fn new(receiver: WriteReceiver) -> Self {
        Self { receiver, bodies: Arc::new(Semaphore::new(MAX_BODIES_KIB)) }
    }

    /// The state of the receiver.
    pub(super) fn watch_status(&self) -> watch::Receiver<ReceiveStatus> {
        self.receiver.watch_status()
    }

    /// Checks form and size of a request, and answers once it was read.
    pub(super) async fn receive_request(&self, headers: &HeaderMap, body: Body) -> Response {
        if let Some(why) = check_form(headers) {
            return (StatusCode::UNSUPPORTED_MEDIA_TYPE, why).into_response();
        }
        let Some(length) = read_length(headers) else {
            return (StatusCode::LENGTH_REQUIRED, "a write needs a Content-Length\n")
                .into_response();
        };
        if length > MAX_REQUEST_BYTES {
            return refuse(&ReceiveRefusal::Invalid(ReceivedRequestError::TooLarge(
                format!("{length} bytes"),
                format!("{MAX_REQUEST_BYTES} bytes"),
            )));
        }
        let kibibytes = (length >> 10) as u32 + 1;
        let Ok(_permit) = self.bodies.try_acquire_many(kibibytes) else {
            return refuse(&ReceiveRefusal::Behind);
        };
        let bytes = match timeout(BODY_TIMEOUT, to_bytes(body, length)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => {
                let why = "the body is not as long as its Content-Length\n";
                return (StatusCode::BAD_REQUEST, why).into_response();
            }
            Err(_) => {
                return refuse_for_now(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!(
                        "the body did not arrive within {BODY_TIMEOUT:?}; check the network, or \
                         send smaller requests (max_samples_per_send)\n"
                    ),
                );
            }
        };
        match self.receiver.submit_request(bytes).await {
            Ok(()) => StatusCode::NO_CONTENT.into_response(),
            Err(refusal) => refuse(&refusal),
        }
    }
}

/// Whether a request of this method to this path is one of a sender.
pub(super) fn is_receive_request(method: &Method, uri: &Uri) -> bool {
    method == Method::POST && uri.path() == RECEIVE_PATH
}

/// Why a body of this form cannot be read; senders try another form after status 415.
fn check_form(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(CONTENT_ENCODING).map_or(&b"identity"[..], |it| it.as_bytes());
    if encoding != b"snappy" {
        let encoding = String::from_utf8_lossy(encoding).into_owned();
        return Some(format!(
            "the body is encoded as {encoding:?}; send remote write 1.0, which is compressed with snappy\n"
        ));
    }
    let form = headers.get(CONTENT_TYPE).map_or(&[][..], |it| it.as_bytes());
    let form = String::from_utf8_lossy(form).to_ascii_lowercase();
    let is_second = form.contains("io.prometheus.write.v2");
    let is_protobuf = form.is_empty() || form.starts_with("application/x-protobuf");
    (is_second || !is_protobuf).then(|| {
        format!(
            "the body is {form:?}; send remote write 1.0, application/x-protobuf (in Prometheus \
             protobuf_message: prometheus.WriteRequest)\n"
        )
    })
}

fn read_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Response to a request that was not taken.
fn refuse(refusal: &ReceiveRefusal) -> Response {
    let text = format!("{refusal}\n");
    match refusal {
        ReceiveRefusal::Behind => refuse_for_now(StatusCode::TOO_MANY_REQUESTS, text),
        ReceiveRefusal::Invalid(ReceivedRequestError::TooLarge(..)) => {
            (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
        }
        ReceiveRefusal::Invalid(_) => (StatusCode::BAD_REQUEST, text).into_response(),
        ReceiveRefusal::Ended => refuse_for_now(StatusCode::SERVICE_UNAVAILABLE, text),
    }
}

/// Response to a request that is to be sent again.
fn refuse_for_now(status: StatusCode, why: String) -> Response {
    (status, [(RETRY_AFTER, PAUSE)], why).into_response()
}

#[cfg(test)]
mod tests;
