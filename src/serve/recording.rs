//! What targets say, passed on as a recording that has no end: for `gaunt record` somewhere else.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse as _, Response},
};
use hyper::body::{Body as HttpBody, Bytes, Frame};
use tokio::sync::{mpsc, watch};

use super::api::{Serving, busy};

/// Somebody who gives the bytes of a segment from now on; nothing if too many have them already.
pub type Recording = Arc<dyn Fn() -> Option<mpsc::Receiver<Bytes>> + Send + Sync>;

pub(super) async fn recording(State(serving): State<Serving>) -> Response {
    let Some(blocks) = serving.recording.as_ref().and_then(|start| start()) else {
        return busy("as many follow already as are served; ask later");
    };
    let blocks = Blocks { blocks, stopped: serving.stopped };
    (
        [(CONTENT_TYPE, "application/vnd.gaunt.recording")],
        Body::new(Segment(Box::pin(blocks.step()))),
    )
        .into_response()
}

/// The blocks of one follower.
struct Blocks {
    blocks: mpsc::Receiver<Bytes>,
    stopped: watch::Receiver<bool>,
}

impl Blocks {
    /// The next block, once there is one; none when the follower was too slow, or when all ends.
    async fn step(mut self) -> Option<(Bytes, Self)> {
        let block = tokio::select! {
            block = self.blocks.recv() => block?,
            _ = self.stopped.wait_for(|stopped| *stopped) => return None,
        };
        Some((block, self))
    }
}

/// All of them as the body of an answer.
struct Segment(Pin<Box<dyn Future<Output = Next> + Send>>);

/// The next block, and who is to be asked for the one after it.
type Next = Option<(Bytes, Blocks)>;

impl HttpBody for Segment {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll(context).map(|next| {
            let (block, blocks) = next?;
            self.0 = Box::pin(blocks.step());
            Some(Ok(Frame::data(block)))
        })
    }
}
