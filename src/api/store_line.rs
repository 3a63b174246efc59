//! Store line: the state of the store that verdicts are written to.

use gaunt_schema::{SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

/// What was written to the store and what waits; counts are since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoreLine {
    /// Its address, without parameters.
    pub address: SanitizedText,
    /// Series that are written now.
    pub series: u64,
    /// Samples that it accepted.
    pub sent_samples: u64,
    /// Samples that it refused; they are not sent again.
    pub refused_samples: u64,
    /// Samples that were given up: the backlog was full or damaged, or a limit was reached.
    pub dropped_samples: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Oldest instant that waits in a request.
    pub oldest: Option<UnixMs>,
    /// Error of the last attempt, with the next step; none if it succeeded.
    pub failure: Option<SanitizedText>,
}
