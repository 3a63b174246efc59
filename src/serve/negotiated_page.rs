//! Content negotiation of exposition pages: text or OpenMetrics, compressed or not.

use std::io::{self, Write as _};

use axum::{
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_TYPE, VARY},
    },
    response::{IntoResponse as _, Response},
};
use flate2::{Compression, write::GzEncoder};
use gaunt_node::negotiation;
use gaunt_schema::text::ExpositionFormat;
use hyper::body::Bytes;
use tokio::task::spawn_blocking;

/// A page repeats its labels on every line, so that the fastest level already shrinks it to a quarter.
const LEVEL: Compression = Compression::fast();

/// Renders the page of `write` as these headers request. A page of 100,000 GPUs takes a tenth of a second, which must
/// not delay other responses.
pub(super) async fn respond_page(
    headers: &HeaderMap,
    write: impl FnOnce(ExpositionFormat) -> String + Send + 'static,
) -> Response {
    let (format, gzip) =
        (negotiation::negotiate_format(headers), negotiation::accepts_gzip(headers));
    let rendered = spawn_blocking(move || {
        let page = write(format).into_bytes();
        if gzip { compress_gzip(&page) } else { Ok(page) }
    });
    let bytes = match rendered.await {
        Ok(Ok(page)) => Bytes::from(page),
        Ok(Err(error)) => return failure_response(&error),
        Err(error) => return failure_response(&error),
    };
    let content = HeaderValue::from_static(format.content_type());
    let vary = HeaderValue::from_static("accept, accept-encoding");
    let mut response = ([(CONTENT_TYPE, content), (VARY, vary)], bytes).into_response();
    if gzip {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn compress_gzip(page: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(page.len() / 4), LEVEL);
    encoder.write_all(page)?;
    encoder.finish()
}

fn failure_response(error: &dyn std::error::Error) -> Response {
    tracing::error!(%error, "cannot write the page");
    let why = "cannot write the page; retry without Accept-Encoding\n";
    (StatusCode::INTERNAL_SERVER_ERROR, why).into_response()
}
