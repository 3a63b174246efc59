//! Series: reads pages back from a Prometheus-compatible server that already scrapes the exporters, or receives them.
//!
//! Raw samples are queried or received with their own instants, grouped by target and instant into the pages that the exporters
//! served, and decoded by the dialects like scraped ones. Everything behind a batch stays as it is.

use std::time::Duration;

use gaunt_scrape::ServerAccess;

mod first_scrape;
mod known_series;
mod page_assembly;
mod query_answer;
mod query_client;
mod query_error;
mod read_names;
mod received_page;
mod remote_read;
mod selector;
mod series_clock;
mod series_feed;
mod series_pages;
mod series_reader;
mod series_targets;
mod span_slices;
mod stored_series;
#[cfg(test)]
mod tests;
mod write_receiver;
mod xor_chunk;

pub use first_scrape::wait_for_first_scrape;
pub use page_assembly::ReceivedSamples;
pub use query_client::check_server_url;
pub use query_error::{QueryError, QueryErrorSteps};
pub use selector::match_instances;
pub use series_clock::SeriesClock;
pub use series_feed::{REFRESH, SeriesReaderHandle, feed_lag, spawn_reading};
pub use series_reader::{SeriesReader, SeriesWindow, WindowLoad};
pub use span_slices::SpanSlices;
pub use stored_series::{StoredHistory, StoredSample, StoredSeries, StoredSteps};
pub use write_receiver::{RECEIVE_LAG, ReceiveRefusal, ReceiveStatus, WriteReceiver};

/// The deadline of one query, unless set otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer to one query in bytes, unless set otherwise: 100,000 series with three samples each. A query
/// with a larger answer is split.
pub const MAX_BODY: usize = 64 << 20;

/// The samples of one window at most, unless set otherwise: 10,000 GPUs with 100 fields each.
pub const MAX_SAMPLES: u64 = 2_000_000;

/// The header in which Mimir, Cortex and others expect the tenant.
pub const TENANT_HEADER: &str = "X-Scope-OrgID";

/// Which server is queried, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesOptions {
    /// The address of its API without `/api/v1`, such as `http://10.0.0.5:9090`.
    pub url: String,
    /// Matchers that all series must have, such as `cluster="hall-1"`; may be empty.
    pub selector: String,
    /// The header that names a tenant, for servers that have several, and its value.
    pub tenant: Option<(String, String)>,
    /// TLS and credentials.
    pub access: ServerAccess,
    /// The deadline of one query.
    pub timeout: Duration,
    /// The largest answer to one query, in bytes.
    pub max_body: usize,
    /// The most samples of one window: the load on the server is bounded by it.
    pub max_samples: u64,
    /// The next steps that errors name.
    pub next_steps: &'static QueryErrorSteps,
}

impl SeriesOptions {
    /// The default options for a server.
    pub fn with_url(url: String) -> Self {
        Self {
            url,
            selector: String::new(),
            tenant: None,
            access: ServerAccess::default(),
            timeout: TIMEOUT,
            max_body: MAX_BODY,
            max_samples: MAX_SAMPLES,
            next_steps: QueryErrorSteps::PROMETHEUS,
        }
    }
}
