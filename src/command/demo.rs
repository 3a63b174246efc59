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
use gaunt_sim::{Fleet, Truth, suite::Level};
use tokio::sync::mpsc;

use super::{
    console::has_terminal,
    judge::{Chronicle, Witness},
    snapshot,
};
use crate::{answer::Question, console, owner, source::Source};

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
    /// How strong a case is.
    pub level: Level,
    /// Print a snapshot of it after so long in virtual time, instead of showing it.
    pub snapshot_after: Option<Duration>,
}

impl Story {
    fn told(&self) -> gaunt_sim::Story {
        let (name, nodes, seed, level) = (self.scenario.clone(), self.nodes, self.seed, self.level);
        gaunt_sim::Story { name, nodes, seed, level, dialect: Dialect::Gaunt }
    }
}

/// Shows the fleet in the console; without a terminal prints one snapshot of it, minutes ahead.
pub async fn run(
    story: Story,
    owner: owner::Options,
    console: console::Options,
) -> anyhow::Result<ExitCode> {
    let owner = owner::Options { cluster: Safe::new("demo"), period: PERIOD, ..owner };
    let (after, story) = (story.snapshot_after, story.told());
    let timing = story.timing()?;
    if after.is_some() || !has_terminal() {
        let start = owner::clock()() - after.unwrap_or(timing.look);
        let mut seen = ahead(&story, start, after.unwrap_or(timing.look), owner)?;
        snapshot::print(&picture(&mut seen).text())?;
        return Ok(ExitCode::SUCCESS);
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

/// What a story looks like when there is most to see, and what is really wrong in it.
#[derive(Debug)]
pub struct Capture {
    /// The snapshot of that instant.
    pub page: String,
    /// What was said from the beginning on.
    pub chronicle: Chronicle,
    /// What is wrong by then.
    pub truths: Vec<Truth>,
    /// How long it was told.
    pub after: Duration,
    /// How many nodes it has.
    pub nodes: usize,
}

/// Lives through a story that begins at `start`, in virtual time.
pub fn capture(story: &Story, start: UnixMs, options: owner::Options) -> anyhow::Result<Capture> {
    let told = story.told();
    let after = story.snapshot_after.map_or_else(|| Ok(told.timing()?.look), anyhow::Ok)?;
    let options = owner::Options { cluster: Safe::new("demo"), period: PERIOD, ..options };
    let mut seen = ahead(&told, start, after, options)?;
    let page = picture(&mut seen).text();
    let (fleet, end) = (told.fleet(start)?, start + after);
    let truths = fleet.truths().iter().filter(|truth| truth.onset < end).cloned().collect();
    Ok(Capture { page, chronicle: seen.into_chronicle(), truths, after, nodes: fleet.nodes() })
}

/// Lives through the first minutes in virtual time; says who saw it.
fn ahead(
    story: &gaunt_sim::Story,
    start: UnixMs,
    after: Duration,
    options: owner::Options,
) -> anyhow::Result<Witness> {
    watched(story, start, after, options, |_, _| {})
}

/// The same, looked at after each second.
fn watched(
    story: &gaunt_sim::Story,
    start: UnixMs,
    after: Duration,
    options: owner::Options,
    mut look: impl FnMut(u32, &mut Witness),
) -> anyhow::Result<Witness> {
    let limits = text::Limits::default();
    let mut fleet = story.fleet(start)?;
    let mut witness = Witness::new(options);
    witness.accept(Delivery::Targets(targets(&fleet)));
    for second in 1..=after.as_secs() as u32 {
        let now = start + PERIOD * second;
        fleet.advance(now);
        for node in 0..fleet.nodes() {
            witness.accept(Delivery::Batch(read(&fleet, node, now, &limits)));
        }
        witness.tick(now);
        look(second, &mut witness);
    }
    Ok(witness)
}

fn picture(seen: &mut Witness) -> snapshot::Picture {
    let questions = [Question::Overview, Question::Findings, Question::Targets];
    snapshot::Picture::gather(questions.map(|question| seen.ask(&question)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;

    #[test]
    fn demo_says_the_same_after_28_and_33_minutes() {
        let story = Story {
            nodes: Some(5),
            scenario: "demo".to_owned(),
            seed: 1,
            level: Level::Hard,
            snapshot_after: None,
        };
        let (start, after) = (UnixMs(1_760_017_311_000), Duration::from_mins(33));
        let mut told = Vec::new();
        let look = |second: u32, seen: &mut Witness| {
            if let (true, Answer::Findings(list)) =
                (second == 28 * 60 || second == 33 * 60, seen.ask(&Question::Findings))
            {
                let one = |finding: &crate::answer::Finding| {
                    (finding.id.clone(), finding.severity, finding.cost_gpu_hours_per_hour)
                };
                told.push(list.findings.iter().map(one).collect::<Vec<_>>());
            }
        };
        let seen = watched(&story.told(), start, after, owner::Options::default(), look);
        assert!(seen.is_ok(), "{seen:?}");
        let [early, late] = told.as_slice() else { panic!("{told:?}") };
        assert!(!early.is_empty() && early.len() == late.len(), "{told:?}");
        for ((id, severity, cost), (later, same, costs)) in early.iter().zip(late) {
            assert_eq!((id, severity), (later, same), "{told:?}");
            assert!((cost - costs).abs() <= (cost * 0.1).max(0.5), "{told:?}");
        }
    }
}
