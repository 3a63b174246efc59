//! Commands: each wires senders, owner, server and console together, and ends with an exit code.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use gaunt_schema::{Clock, Delivery};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    alert,
    gather::{self, Gatherer, Plan},
    owner::{self, Handle, Owner},
    record::{Follow, Recorder, tap},
    site,
    source::{Source, SourceError},
};

pub mod ack;
mod aggregator_address;
pub mod console;
pub mod demo;
pub mod explain;
pub mod judge;
mod keep;
mod local;
pub mod metrics;
mod preamble;
pub mod record;
pub mod replay;
pub mod report;
pub mod serve;
pub mod snapshot;

pub use aggregator_address::{AGGREGATOR_VARIABLE, AggregatorAddress, NamedBy};

/// The exit code for a wrong command line, an unreachable aggregator, partial data, or any other failure of gaunt
/// itself; 1 and 2 are the words of `snapshot --check`.
pub const FAILED: u8 = 3;

/// Where a console or a snapshot gets its answers from.
#[derive(Debug)]
pub enum View {
    /// An aggregator at this address, with its token if findings are to be acknowledged there.
    Aggregator(AggregatorAddress, Option<String>),
    /// These targets, scraped by this process.
    Targets(Box<Scraping>),
    /// This box, sampled by this process.
    ThisBox {
        /// What the owner is to know and judge by.
        options: Box<owner::Options>,
        /// How it is sampled.
        node: Box<gaunt_node::Options>,
        /// The aggregator on this machine with its token: if it answers, it is asked instead.
        aggregator: Option<(AggregatorAddress, Option<String>)>,
    },
}

/// What this process is to scrape.
#[derive(Debug)]
pub struct Scraping {
    /// What the owner is to know and judge by.
    pub owner: owner::Options,
    /// What is gathered, and how.
    pub plan: Plan,
    /// Files that say how the cluster is wired, and which jobs run.
    pub site: site::Options,
    /// Where everything is recorded, if it is.
    pub keep: Option<crate::record::Options>,
    /// Where findings are posted, if they are.
    pub alerting: Option<alert::Options>,
}

/// An open view: the source, and what feeds it as long as this lives.
pub(crate) struct Open {
    /// Who answers.
    pub(crate) source: Source,
    /// Whether this process itself has to watch for a while before an answer means something.
    pub(crate) young: bool,
    _feed: Feed,
}

/// What keeps an owner fed. Dropping it ends the feeding.
enum Feed {
    Nothing,
    Gatherer { _feeding: Feeding },
    ThisBox { _sampling: local::Sampling },
}

impl View {
    /// The view that is meant where nothing was named: the aggregator on this machine if it answers, else this box. Says
    /// which one it is, on the standard error unless the console is to cover it.
    pub(crate) async fn chosen(self, says: bool) -> Self {
        let Self::ThisBox { options, node, aggregator: Some((address, token)) } = self else {
            return self;
        };
        let say = |words: String| {
            // A closed standard error takes nothing from what is asked for.
            drop(says.then(|| writeln!(io::stderr(), "gaunt: {words}")));
        };
        let other =
            format!("--aggregator URL, {AGGREGATOR_VARIABLE} or --targets LIST names another");
        if address.answers().await {
            say(format!("nothing is named: the aggregator at {} is asked; {other}", address.url));
            return Self::Aggregator(address, token);
        }
        say(format!(
            "nothing is named, and no aggregator answers at {}: this box is read; {other}",
            address.url
        ));
        Self::ThisBox { options, node, aggregator: None }
    }

    /// The aggregator that is asked, if one is.
    pub(crate) fn aggregator(&self) -> Option<AggregatorAddress> {
        match self {
            Self::Aggregator(address, _) => Some(address.clone()),
            Self::Targets(_) | Self::ThisBox { .. } => None,
        }
    }

    /// Connects, or starts what feeds an owner of this process.
    pub(crate) async fn open(self) -> anyhow::Result<Open> {
        Ok(match self {
            Self::Aggregator(address, token) => {
                let source = Source::Aggregator(address.client()?.with_token(token));
                Open { source, young: false, _feed: Feed::Nothing }
            }
            Self::Targets(scraping) => {
                let (owner, feeding) = scraping.start().await?;
                let feed = Feed::Gatherer { _feeding: feeding };
                Open { source: Source::Owner(owner), young: true, _feed: feed }
            }
            Self::ThisBox { options, node, .. } => {
                let clock = owner::clock();
                let owner = owner::start(*options, clock.clone());
                let sampling = local::start(*node, owner.inbox(), clock).await?;
                let feed = Feed::ThisBox { _sampling: sampling };
                Open { source: Source::Owner(owner), young: true, _feed: feed }
            }
        })
    }
}

/// An error on the way to an answer; one of the aggregator with who named that.
fn explained(aggregator: Option<&AggregatorAddress>, error: anyhow::Error) -> anyhow::Error {
    match (aggregator, error.downcast::<SourceError>()) {
        (Some(address), Ok(SourceError::Aggregator(error))) => address.explain(error),
        (_, Ok(error)) => error.into(),
        (_, Err(error)) => error,
    }
}

/// What feeds an owner. Dropping it ends the feeding.
pub(crate) struct Feeding {
    /// Who reads the targets.
    pub(crate) gatherer: Gatherer,
    /// Who reads the files of the site.
    pub(crate) watch: site::Watch,
    /// A way to follow what is delivered.
    pub(crate) follow: Follow,
    /// The owner's clock.
    pub(crate) clock: Clock,
    /// What gives the recording what is known.
    _preambles: JoinSet<()>,
}

impl Scraping {
    /// Starts an owner and what feeds it, past a recorder if there is one.
    pub(crate) async fn start(self) -> anyhow::Result<(Handle, Feeding)> {
        let owner = Owner::new(self.owner.clone());
        self.start_with(owner).await
    }

    /// Starts this owner and what feeds it.
    pub(crate) async fn start_with(self, mut owner: Owner) -> anyhow::Result<(Handle, Feeding)> {
        let recorder = match self.keep.clone() {
            Some(keep) => Recorder::start(keep)?,
            None => Recorder::passing_on(self.plan.options.period)?,
        };
        let follow = recorder.follow();
        let clock: Clock = owner::clock();
        owner.tick(clock());
        let since = owner.is_new().then(|| clock());
        let owner = owner::resume(owner, clock.clone());
        let preambles =
            preamble::start(owner.clone(), follow.clone(), clock.clone(), since, preamble::WAIT);
        let inbox = tap(recorder, owner.inbox(), clock.clone());
        let watch = site::start(self.site.clone(), inbox.clone()).await?;
        Ok((
            owner,
            Feeding {
                gatherer: self.gather_into(inbox, clock.clone()),
                watch,
                follow,
                clock,
                _preambles: preambles,
            },
        ))
    }

    /// Starts the gatherer alone.
    pub(crate) fn gather_into(self, inbox: mpsc::Sender<Delivery>, clock: Clock) -> Gatherer {
        // Sources name their targets later; what is not used costs nothing.
        allow_connections(gather::MAX_TARGETS);
        gather::start(self.plan, inbox, clock)
    }
}

/// Lets a write that makes a file larger than this process may have fail, instead of ending the process.
fn outlive_file_limits() -> std::io::Result<()> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // Whoever was once registered for a signal is not ended by it any more; nobody has to listen.
    signal(kind).map(drop)
}

/// Raises this process's limit of open files as far as the system lets it: each target keeps a connection.
fn allow_connections(targets: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// Files beside the targets' connections: clients, the terminal, libraries.
    const OTHERS: u64 = 1024;

    let limit = getrlimit(Resource::Nofile);
    let wanted = targets as u64 + OTHERS;
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let current = limit.maximum.map_or(wanted, |most| most.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit });
    if raised.is_err() || current < wanted {
        tracing::info!(
            allowed = current,
            "open files are limited, and with them the targets that can be read; `ulimit -n {wanted}`, or \
             LimitNOFILE={wanted} in gaunt's unit, is enough for every fleet"
        );
    }
}

/// Waits for `span`, in tokio's time.
async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}
