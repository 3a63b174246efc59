//! An answer that comes piece by piece: whoever has the next one is asked for it when the last was taken.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame};

/// Somebody who has the next piece.
pub(super) trait ChunkSource: Sized + Send + 'static {
    /// The next piece, once there is one, and who has the one after it; none when the answer ends.
    fn next(self) -> impl Future<Output = NextChunk<Self>> + Send;
}

/// A piece, and who has the one after it.
pub(super) type NextChunk<P> = Option<(Bytes, P)>;

/// All pieces as the body of an answer.
pub(super) fn of(pieces: impl ChunkSource) -> Body {
    Body::new(ChunkedBody(Box::pin(pieces.next())))
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
            let (piece, rest) = next?;
            self.0 = Box::pin(rest.next());
            Some(Ok(Frame::data(piece)))
        })
    }
}
