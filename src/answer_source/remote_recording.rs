//! Remote recording: what an aggregator's targets report, as the bytes of an endless recording.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use tokio::time::timeout;

use super::{
    AggregatorClient,
    aggregator_connection::{AggregatorConnection, AggregatorError},
};

/// The longest silence: an aggregator whose targets answer has a block at least every second.
const SILENCE: Duration = Duration::from_secs(30);

/// A recording that is being received.
#[derive(Debug)]
pub struct RemoteRecording {
    connection: AggregatorConnection,
    response: Response,
}

impl AggregatorClient {
    /// Requests what its targets report from now on.
    pub async fn open_recording(&self) -> Result<RemoteRecording, AggregatorError> {
        let request = |connection: AggregatorConnection| async move {
            connection.get(&["recording"], &[]).await
        };
        let (connection, response) = self.open_connection(request).await?;
        match response.status() {
            StatusCode::OK => Ok(RemoteRecording { connection, response }),
            status => Err(AggregatorError::Status {
                address: self.display_address().into(),
                status: status.as_u16(),
            }),
        }
    }
}

impl RemoteRecording {
    /// The next bytes; none when the aggregator ends it: it stops, or the client reads too slowly.
    pub async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, AggregatorError> {
        let chunk = timeout(SILENCE, self.response.chunk()).await;
        let chunk = chunk.map_err(|_| self.connection.timeout_error())?;
        chunk.map_err(|error| self.connection.unreachable_error(&error))
    }
}
