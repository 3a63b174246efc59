//! `gaunt demo`: a simulated fleet on the real wire, live in the console, or ahead of time in one snapshot.

use std::{
    process::ExitCode,
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use gaunt_schema::{
    Batch, Clock, Delivery, Dialect, Failure, Page, Safe, Target, TargetId, UnixMs, text,
};
use gaunt_sim::{Fleet, story::Timing, suite::Level};
use tokio::sync::mpsc;

use super::{console::has_terminal, snapshot};
use crate::{
    answer::Question,
    console,
    owner::{self, Owner},
    source::Source,
};

/// Real nodes are sampled once a second, and so are these.
const PERIOD: Duration = Duration::from_secs(1);

/// The console opens at most so long before something happens: who watches sees what is usual, and need not wait.
const LEAD: Duration = Duration::from_secs(15);

/// Which fleet is shown.
#[derive(Clone, Debug)]
pub struct Story {
    /// How many nodes, if the scenario leaves it open.
    pub nodes: Option<usize>,
    /// The scenario's name, or that of a case.
    pub scenario: String,
    /// The seed of everything that varies.
    pub seed: u64,
}

/// Shows the fleet in the console; without a terminal prints one snapshot of it, minutes ahead.
pub async fn run(
    story: Story,
    owner: owner::Options,
    console: console::Options,
) -> anyhow::Result<ExitCode> {
    let owner = owner::Options { cluster: Safe::new("demo"), period: PERIOD, ..owner };
    let (name, nodes, seed) = (story.scenario, story.nodes, story.seed);
    let story = gaunt_sim::Story { name, nodes, seed, level: Level::Hard, dialect: Dialect::Gaunt };
    let timing = story.timing()?;
    if !has_terminal() {
        return ahead(&story, timing, owner);
    }
    let clock = owner::clock();
    let handle = owner::start(owner, clock.clone());
    let fleet = story.fleet(clock() - timing.first.saturating_sub(LEAD))?;
    let (stop, stopped) = channel::<()>();
    let inbox = handle.inbox();
    let feeding = thread::Builder::new()
        .name("demo".to_owned())
        .spawn(move || feed(fleet, &inbox, &clock, |pause| stopped.recv_timeout(pause)))?;
    let shown = console::run(Source::Owner(handle), console).await;
    drop(stop);
    feeding.join().map_err(|_| anyhow::anyhow!("the simulated fleet ended with a panic"))?;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// Advances the fleet with the clock once a second and delivers its pages, until it is stopped or nobody listens.
fn feed(
    mut fleet: Fleet,
    inbox: &mpsc::Sender<Delivery>,
    clock: &Clock,
    wait: impl Fn(Duration) -> Result<(), RecvTimeoutError>,
) {
    let limits = text::Limits::default();
    if inbox.blocking_send(Delivery::Targets(targets(&fleet))).is_err() {
        return;
    }
    let mut next = clock();
    loop {
        fleet.advance(clock());
        for node in 0..fleet.nodes() {
            let batch = read(&fleet, node, clock(), &limits);
            if inbox.blocking_send(Delivery::Batch(batch)).is_err() {
                return;
            }
        }
        next = next + PERIOD;
        if wait(next.since(clock())) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Lives through the first minutes in virtual time and prints what is known then.
fn ahead(
    story: &gaunt_sim::Story,
    timing: Timing,
    options: owner::Options,
) -> anyhow::Result<ExitCode> {
    let limits = text::Limits::default();
    let seconds = timing.look.as_secs() as u32;
    let start = owner::clock()() - PERIOD * seconds;
    let mut fleet = story.fleet(start)?;
    let mut owner = Owner::new(options);
    owner.accept(Delivery::Targets(targets(&fleet)));
    for second in 1..=seconds {
        let now = start + PERIOD * second;
        fleet.advance(now);
        for node in 0..fleet.nodes() {
            owner.accept(Delivery::Batch(read(&fleet, node, now, &limits)));
        }
        owner.tick(now);
    }
    let picture = snapshot::Picture::gather([
        owner.answer(&Question::Overview),
        owner.answer(&Question::Findings),
        owner.answer(&Question::Targets),
    ]);
    snapshot::print(&picture.text())?;
    Ok(ExitCode::SUCCESS)
}

fn targets(fleet: &Fleet) -> Vec<Target> {
    let target = |node| Target {
        id: TargetId(node as u32),
        address: Safe::new(&format!("demo:{}", fleet.node_name(node))),
        node: None,
        origin: "the demo".into(),
    };
    (0..fleet.nodes()).map(target).collect()
}

/// One node's page, written and read as between programs; a node that does not answer has none.
fn read(fleet: &Fleet, node: usize, at: UnixMs, limits: &text::Limits) -> Batch {
    let outcome: Result<Page, _> = match fleet.pages(node).first() {
        Some((_, page)) => text::decode(page.as_bytes(), limits),
        None => Err(Failure::Connect("connection refused".into())),
    };
    Batch { target: TargetId(node as u32), at, duration_ms: 0.0, outcome }
}
