//! Store status: what was written, what was not and why, and what waits.

use std::collections::BTreeMap;

use gaunt_schema::{SanitizedText, UnixMs};

/// State of the writer; counts are since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreStatus {
    /// Address of the store, without its parameters.
    pub address: SanitizedText,
    /// Series that are written now.
    pub series: u64,
    /// Samples that the store accepted.
    pub sent_samples: u64,
    /// Bytes of accepted requests.
    pub sent_bytes: u64,
    /// Samples that the store did not keep because it takes those of another replica.
    pub other_replica_samples: u64,
    /// Samples that the store refused, by HTTP status; they are not sent again.
    pub refused_samples: BTreeMap<u16, u64>,
    /// Samples given up by gaunt, by reason.
    pub dropped_samples: BTreeMap<&'static str, u64>,
    /// Attempts that are repeated.
    pub failed_attempts: u64,
    /// Bytes that wait.
    pub waiting_bytes: u64,
    /// Oldest instant that waits in a request.
    pub oldest: Option<UnixMs>,
    /// Error of the last attempt, with the next step; none if it succeeded.
    pub failure: Option<SanitizedText>,
}
