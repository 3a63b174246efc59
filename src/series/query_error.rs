//! Query errors: why a server's answer cannot be used, with the next step.

use std::time::Duration;

/// The next steps that errors name: they depend on which settings and flags choose the server.
#[derive(Debug, PartialEq, Eq)]
pub struct QueryErrorSteps {
    /// After no answer within the deadline.
    pub(crate) timeout: &'static str,
    /// After a demand for credentials.
    pub(crate) access: &'static str,
    /// After a query that is too large.
    pub(crate) size: &'static str,
    /// After a query that is refused.
    pub(crate) refusal: &'static str,
    /// After more samples than the budget.
    pub(crate) budget: &'static str,
}

impl QueryErrorSteps {
    /// For a server that `--prometheus` or `[prometheus]` names.
    pub const PROMETHEUS: &'static Self = &Self {
        timeout: "narrow the query with --match, or raise prometheus.timeout",
        access: "set bearer_file, basic or tenant in [prometheus]",
        size: "narrow it with --match, or raise the limits of the server",
        refusal: "check --match",
        budget: "narrow the query with --match, ask less often with --period, or raise prometheus.max_samples",
    };

    /// For the store that `[store]` names.
    pub const STORE: &'static Self = &Self {
        timeout: "check the load of the store, and store.query_url",
        access: "set bearer_file, basic or tenant in [store]; they are used for writing and reading",
        size: "raise the limits of the store",
        refusal: "check that store.query_url is the query API of the store that store.url writes to",
        budget: "shorten the span that is asked for",
    };
}

/// Why the pages of a time could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The address is invalid.
    #[error(
        "{0:?} is not the address of a Prometheus; write http://HOST:9090, http://HOST:8428 for VictoriaMetrics, or \
         http://HOST/prometheus for Mimir, without user and password"
    )]
    Address(String),
    /// The matchers are invalid.
    #[error(
        "{selector:?} is not a list of matchers: {why}; write cluster=\"hall-1\",job=~\"dcgm.*\""
    )]
    Selector {
        /// The matchers.
        selector: String,
        /// What is wrong with them.
        why: &'static str,
    },
    /// The tenant cannot be sent.
    #[error("{0} is not an HTTP header; correct the tenant")]
    Tenant(String),
    /// The credentials cannot be sent.
    #[error("{0}")]
    Credentials(String),
    /// No connection, or it broke.
    #[error("{url}: {why}; check the address and that the server is running")]
    Unreachable {
        /// The address.
        url: String,
        /// The fault.
        why: String,
    },
    /// No answer within the deadline.
    #[error("{url}: no answer within {deadline:?}; {next}")]
    Timeout {
        /// The address.
        url: String,
        /// The next step.
        next: &'static str,
        /// The deadline.
        deadline: Duration,
    },
    /// Something else answers there.
    #[error(
        "{url}: not a Prometheus API: {what}; the address must be the one below which /api/v1/query is, such as \
         http://HOST:9090 or http://HOST/prometheus"
    )]
    NotPrometheus {
        /// The address.
        url: String,
        /// What came instead.
        what: String,
    },
    /// The server demands credentials, or refuses them.
    #[error("{url}: HTTP status {status}{why}; {next}")]
    Unauthorized {
        /// The next step.
        next: &'static str,
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it says.
        why: String,
    },
    /// The query exceeds a limit of the server, or its answer exceeds ours: a smaller one may not.
    #[error("{url}: one query is too large{why}; {next}")]
    TooLarge {
        /// The next step.
        next: &'static str,
        /// The address.
        url: String,
        /// What it says.
        why: String,
    },
    /// The server has no capacity at present.
    #[error("{url}: HTTP status {status}{why}; gaunt asks again later")]
    Overloaded {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it says.
        why: String,
    },
    /// The server refuses the query.
    #[error("{url}: HTTP status {status}{why}; {next}")]
    Refused {
        /// The next step.
        next: &'static str,
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What it says.
        why: String,
    },
    /// A part of the server's storage did not answer.
    #[error(
        "{url}: the answer is partial{why}; none of it is used, because missing series would look like lost GPUs; check \
         the server's storage"
    )]
    Partial {
        /// The address.
        url: String,
        /// What it says.
        why: String,
    },
    /// The answer is not as documented: cut off, or of another form.
    #[error("{url}: the answer cannot be read: {why}; check the server, and proxies before it")]
    Malformed {
        /// The address.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// No series of a known name.
    #[error(
        "{url} has no series that gaunt reads{selector}: none of {names} names such as DCGM_FI_DEV_GPU_UTIL, \
         node_uname_info and gaunt_gpu_info; `gaunt metrics --dialects` lists them. After a start of the server, wait for \
         its first scrape; else check --match, the tenant and the time"
    )]
    NoSeries {
        /// The address.
        url: String,
        /// The matchers, as the end of a sentence.
        selector: String,
        /// How many names were looked for.
        names: usize,
    },
    /// No scrape in this time.
    #[error(
        "{url} has no sample of up{selector} in this time; every scrape by Prometheus or vmagent writes one. After a \
         start of the server, wait for its first scrape; else check the time and --match, and that no relabelling drops up"
    )]
    NoScrapes {
        /// The address.
        url: String,
        /// The matchers, as the end of a sentence.
        selector: String,
    },
    /// The targets were scraped before, and are not any more.
    #[error(
        "{url} has no sample of up since {since}: check that it still scrapes, and that its storage takes what it scrapes"
    )]
    NoNewScrapes {
        /// The address.
        url: String,
        /// The instant of the last scrape.
        since: String,
    },
    /// The window has more samples than the budget.
    #[error("{url}: more than {budget} samples in one refresh; {next}")]
    OverBudget {
        /// The next step.
        next: &'static str,
        /// The address.
        url: String,
        /// The budget.
        budget: u64,
    },
}

impl QueryError {
    /// Whether a query for less may succeed.
    pub(crate) const fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge { .. })
    }

    /// Whether the same query may succeed later, without a change by anybody.
    pub const fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Timeout { .. }
                | Self::Overloaded { .. }
                | Self::Partial { .. }
                | Self::Malformed { .. }
        )
    }

    /// Whether a server that was just started answers so: it has scraped nothing yet.
    pub(crate) const fn may_follow_start(&self) -> bool {
        matches!(self, Self::NoSeries { .. } | Self::NoScrapes { .. })
    }

    /// Whether the same query may succeed right away: another instance behind a proxy answers it.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Partial { .. })
            || matches!(self, Self::Overloaded { status, .. } if *status != 429)
    }
}
