//! Store: verdicts are written to whatever receives Prometheus remote write 1.0, and requests of others are read.
//!
//! Samples come as steps on a grid of instants. A thread of its own joins four steps to requests, keeps them on disk
//! and posts them one after the other, oldest first: nothing that waits for samples, disk or store delays a judgement.

use std::{path::PathBuf, time::Duration};

use gaunt_schema::SanitizedText;
use gaunt_scrape::ServerAccess;

mod backlog;
mod backlog_file;
mod remote_write;
mod request_batch;
mod series_key;
mod series_window;
mod store_status;
mod store_step;
mod store_thread;
mod store_writer;
mod window_file;
mod write_request;
mod write_request_decoder;

pub use remote_write::{
    PendingOutcome, StoreClient, WriteOutcome, check_store_url, derive_query_url,
};
pub use store_status::StoreStatus;
pub use store_step::{StoreStep, StoreStepOutput};
pub use store_writer::StoreWriter;
pub use write_request::{StoreSample, compress_request, encode_labels, push_series};
pub use write_request_decoder::{
    MAX_REQUEST_BYTES, ReceivedRequest, ReceivedRequestError, ReceivedSeries, decompress_request,
};

/// The time between two steps, unless set otherwise.
pub const INTERVAL: Duration = Duration::from_secs(15);

/// Bytes that wait at most for a store that is away, unless set otherwise: some hours of 100,000 GPUs.
pub const BACKLOG_BYTES: u64 = 4 << 30;

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreLevel {
    /// States, findings and losses.
    #[default]
    Verdicts,
    /// Those, and once a minute every metric that has history: what screens look back at.
    Screens,
}

/// Where verdicts are written, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The address that receives remote write, such as `http://10.0.0.5:9090/api/v1/write`.
    pub url: String,
    /// The address below which its query API is; none if the store is not read.
    pub query_url: Option<String>,
    /// What is written.
    pub level: StoreLevel,
    /// The time between two samples of a series; instants are multiples of it.
    pub interval: Duration,
    /// Name of the label that tells the writers of a pair apart, if the store elects one of them.
    pub replica_label: Option<String>,
    /// Value of that label.
    pub replica: String,
    /// The cluster, a label of every series if set.
    pub cluster: SanitizedText,
    /// Folder of requests that wait; none keeps them in memory.
    pub backlog_folder: Option<PathBuf>,
    /// Bytes that wait at most; the oldest are given up.
    pub backlog_bytes: u64,
    /// Header that names the tenant of a store with several, and its value.
    pub tenant: Option<(String, String)>,
    /// TLS and credentials: files are read again when they change.
    pub access: ServerAccess,
}

/// Why verdicts cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is invalid.
    #[error(
        "{0:?} is not the address of a store; write http://HOST:9090/api/v1/write for Prometheus, \
         http://HOST:8428/api/v1/write for VictoriaMetrics or http://HOST/api/v1/push for Mimir, \
         without user and password"
    )]
    Address(String),
    /// The tenant cannot be sent.
    #[error(
        "{header}: {value:?} is not an HTTP header; correct store.tenant_header or store.tenant"
    )]
    Tenant {
        /// Name of the header.
        header: String,
        /// Its value.
        value: String,
    },
    /// The backlog cannot be read.
    #[error("cannot open {}: {why}; check serve.state_folder", path.display())]
    Backlog {
        /// Its folder.
        path: PathBuf,
        /// The system's error.
        why: std::io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread of the store: {0}; raise the limit of processes")]
    Thread(std::io::Error),
}
