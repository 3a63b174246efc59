//! Chunked response body: the next chunk is requested when the last one was consumed.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame};

/// Produces the next chunk.
pub(super) trait ChunkSource: Sized + Send + 'static {
    /// The next chunk, once there is one, and the source of the one after it; none at the end.
    fn next(self) -> impl Future<Output = NextChunk<Self>> + Send;
}

/// A chunk, and the source of the one after it.
pub(super) type NextChunk<P> = Option<(Bytes, P)>;

/// All chunks as a response body.
pub(super) fn of(chunks: impl ChunkSource) -> Body {
    Body::new(ChunkedBody(Box::pin(chunks.next())))
}

struct ChunkedBody<P>(Pin<Box<dyn Future<Output = NextChunk<P>> + Send>>);

impl<P: ChunkSource> HttpBody for ChunkedBody<P> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll(context).map(|next| {
            let (chunk, source) = next?;
            self.0 = Box::pin(source.next());
            Some(Ok(Frame::data(chunk)))
        })
    }
}
