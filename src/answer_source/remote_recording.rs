//! What an aggregator's targets say, as the bytes of a recording that goes on.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use tokio::time::timeout;

use super::{AggregatorClient, AggregatorError};

/// The longest silence: an aggregator whose targets answer has a block at least every second.
const SILENCE: Duration = Duration::from_secs(30);

/// A recording on its way.
#[derive(Debug)]
pub struct RemoteRecording {
    from: AggregatorClient,
    response: Response,
}

impl AggregatorClient {
    /// Asks for what its targets say from now on.
    pub async fn open_recording(&self) -> Result<RemoteRecording, AggregatorError> {
        let response = self.get(&["recording"], &[]).await?;
        match response.status() {
            StatusCode::OK => Ok(RemoteRecording { from: self.clone(), response }),
            status => Err(AggregatorError::Status {
                address: self.display_address().into(),
                status: status.as_u16(),
            }),
        }
    }
}

impl RemoteRecording {
    /// The next bytes; none when the aggregator ends it: it stops, or what it sends is taken too slowly.
    pub async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, AggregatorError> {
        let chunk = timeout(SILENCE, self.response.chunk()).await;
        let chunk = chunk.map_err(|_| self.from.timeout_error())?;
        chunk.map_err(|error| self.from.unreachable_error(&error))
    }
}
