//! Recording endpoint: forwards what targets report as an endless recording, for `gaunt record` on another machine.

use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse as _, Response},
};
use hyper::body::Bytes;
use tokio::sync::{mpsc, watch};

use super::{
    api_responses::busy_response,
    api_state::ApiState,
    chunked_body::{self, ChunkSource, NextChunk},
};

pub(super) async fn handle_recording(State(state): State<ApiState>) -> Response {
    let Some(blocks) = state.recording.as_ref().and_then(|start| start()) else {
        return busy_response("too many recording followers; try again later");
    };
    let blocks = FollowerBlocks { blocks, stopped: state.stopped };
    ([(CONTENT_TYPE, "application/vnd.gaunt.recording")], chunked_body::of(blocks)).into_response()
}

/// The blocks of one follower.
struct FollowerBlocks {
    blocks: mpsc::Receiver<Bytes>,
    stopped: watch::Receiver<bool>,
}

impl ChunkSource for FollowerBlocks {
    // None if the follower was too slow, or at shutdown.
    async fn next(mut self) -> NextChunk<Self> {
        let block = tokio::select! {
            block = self.blocks.recv() => block?,
            _ = self.stopped.wait_for(|stopped| *stopped) => return None,
        };
        Some((block, self))
    }
}
