//! A round of the collectors: each on a thread of its own, so that one whose file blocks never stops the others.

use std::{
    path::PathBuf,
    sync::mpsc::{self, Receiver, Sender, SyncSender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gaunt_schema::{Absent, Report, UnixMs};

use super::{CollectError, Collector, Outcome};
use crate::files::note::Note;

mod past;

use past::Past;

/// Room for a collector's stack: it parses small files. Only touched pages count.
const STACK: usize = 256 * 1024;

/// All collectors of a node.
pub(crate) struct Collectors {
    crew: Crew,
    pasts: Vec<Past>,
    deadline: Duration,
}

/// Collectors that work side by side, each on its thread.
pub(crate) struct Crew {
    stations: Vec<Station>,
    next: u64,
    /// Holds one answer of each station at most, which is sent no round before it is taken.
    tell: Sender<Answer>,
    answers: Receiver<Answer>,
}

/// One collector's place: its thread, and what it last brought.
struct Station {
    /// Its number, never used twice.
    number: u64,
    name: String,
    patience: Duration,
    /// Holds one round: a collector that is still at it is not sent another.
    go: SyncSender<UnixMs>,
    thread: Option<JoinHandle<()>>,
    note: Note,
    /// Since when a run has been under way whose answer is not there yet.
    out: Option<UnixMs>,
    /// Where it was when it was first late; empty from its next timely answer on. The message must not follow a slow
    /// run from file to file.
    stuck: Option<PathBuf>,
    /// The readings of the last run that ended, and when they were taken.
    last: Report,
    took: Duration,
}

/// What one run of one collector brought.
struct Answer {
    station: u64,
    report: Report,
    outcome: Result<Outcome, CollectError>,
    took: Duration,
}

/// How one collector's round went.
pub(crate) struct Ran<'a> {
    /// Whose.
    pub(crate) name: &'a str,
    /// How it ended.
    pub(crate) outcome: Result<Outcome, CollectError>,
    /// How long its last run took.
    pub(crate) took: Duration,
}

impl Collectors {
    /// The collectors of a node, each on its thread and waiting for the first round.
    pub(crate) fn new(all: Vec<Box<dyn Collector>>, deadline: Duration) -> Self {
        let (mut crew, mut pasts) = (Crew::default(), Vec::new());
        for collector in all {
            crew.add(collector);
            pasts.push(Past::default());
        }
        Self { crew, pasts, deadline }
    }

    /// Runs every collector, and adds to the report what each brought and how it went. Takes no longer than the
    /// deadline, whatever the collectors do.
    pub(crate) fn run(&mut self, now: UnixMs, report: &mut Report) {
        let ran = self.crew.run(now, self.deadline, report);
        for (ran, past) in ran.into_iter().zip(&mut self.pasts) {
            past.say(&ran, now, report);
        }
    }
}

impl Default for Crew {
    fn default() -> Self {
        let (tell, answers) = mpsc::channel();
        Self { stations: Vec::new(), next: 0, tell, answers }
    }
}

impl Crew {
    /// Gives `collector` a thread. It runs from the next round on.
    pub(crate) fn add(&mut self, collector: Box<dyn Collector>) {
        self.stations.push(Station::start(self.next, collector, &self.tell));
        self.next += 1;
    }

    /// Lets go of the collectors whose names are not wanted any more; a thread that hangs ends when it can.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.stations.retain(|station| wanted(&station.name));
    }

    /// Whether there is a collector of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.stations.iter().any(|station| station.name == name)
    }

    /// Runs every collector that is not still at it, and adds to the report what each brought, in their order.
    pub(crate) fn run(
        &mut self,
        now: UnixMs,
        deadline: Duration,
        report: &mut Report,
    ) -> Vec<Ran<'_>> {
        // What came after its round: its readings are too old, but the collector is back.
        while let Ok(answer) = self.answers.try_recv() {
            self.take(answer);
        }
        let mut missing = 0;
        for station in &mut self.stations {
            if station.out.is_none() && station.go.try_send(now).is_ok() {
                station.out = Some(now);
                missing += 1;
            }
        }
        let end = Instant::now() + deadline;
        let mut outcomes: Vec<_> = self.stations.iter().map(|_| None).collect();
        while missing > 0 {
            let wait = end.saturating_duration_since(Instant::now());
            let Ok(answer) = self.answers.recv_timeout(wait) else { break };
            let fresh = answer.report.node_time == Some(now);
            if let Some((at, outcome)) = self.take(answer)
                && fresh
            {
                outcomes[at] = Some(outcome);
                missing -= 1;
            }
        }
        let stations = self.stations.iter_mut().zip(outcomes);
        stations.map(|(station, outcome)| station.add(now, outcome, deadline, report)).collect()
    }

    /// Takes an answer, and says whose it was.
    fn take(&mut self, answer: Answer) -> Option<(usize, Result<Outcome, CollectError>)> {
        let at = self.stations.iter().position(|station| station.number == answer.station)?;
        let station = &mut self.stations[at];
        station.out = None;
        station.took = answer.took;
        station.last = answer.report;
        Some((at, answer.outcome))
    }
}

impl Station {
    fn start(number: u64, mut collector: Box<dyn Collector>, tell: &Sender<Answer>) -> Self {
        let (name, patience) = (collector.name().to_owned(), collector.patience());
        let note = Note::default();
        let (go, gone) = mpsc::sync_channel(1);
        let (tell, own) = (tell.clone(), note.clone());
        let work = move || {
            own.take_notes_here();
            while let Ok(now) = gone.recv() {
                let mut report = Report { node_time: Some(now), ..Report::default() };
                let started = Instant::now();
                let outcome = collector.collect(&mut report);
                let took = started.elapsed();
                if tell.send(Answer { station: number, report, outcome, took }).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.clone()).stack_size(STACK).spawn(work);
        let thread = thread.inspect_err(|error| {
            tracing::error!(collector = name, %error, "cannot start; raise the limit on threads");
        });
        Self {
            number,
            name,
            patience,
            go,
            thread: thread.ok(),
            note,
            out: None,
            stuck: None,
            last: Report::default(),
            took: Duration::ZERO,
        }
    }

    /// Adds the readings of this round to the report, or why there are none.
    fn add(
        &mut self,
        now: UnixMs,
        outcome: Option<Result<Outcome, CollectError>>,
        deadline: Duration,
        report: &mut Report,
    ) -> Ran<'_> {
        let outcome = match outcome {
            Some(outcome) => {
                self.stuck = None;
                merge(&self.last, None, report);
                outcome
            }
            None => self.late(now, deadline, report),
        };
        Ran { name: &self.name, outcome, took: self.took }
    }

    fn late(
        &mut self,
        now: UnixMs,
        deadline: Duration,
        report: &mut Report,
    ) -> Result<Outcome, CollectError> {
        let fresh = self.last.node_time.filter(|at| now.since(*at) <= self.patience);
        merge(&self.last, fresh.is_none().then_some(Absent::Stale), report);
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(CollectError::Broken);
        }
        if let Some(at) = fresh {
            let message = "it takes longer than a tick; its values are the last ones".to_owned();
            return Ok(Outcome::FoundThat { message, at: Some(at) });
        }
        let stuck = self.stuck.get_or_insert_with(|| self.note.read());
        Err(CollectError::Late(deadline, stuck.clone()))
    }
}

/// Adds a collector's own report to that of the round; with a reason, its devices without their values.
fn merge(own: &Report, absent: Option<Absent>, report: &mut Report) {
    let places: Vec<u32> = own.devices.iter().map(|it| report.device(it.clone())).collect();
    let place = |device: u32| places.get(device as usize).copied();
    for info in &own.infos {
        if let Some(device) = place(info.device) {
            let mut info = info.clone();
            info.device = device;
            report.infos.push(info);
        }
    }
    if absent.is_none() {
        report.extra.extend_from_slice(&own.extra);
    }
    for sample in &own.samples {
        if let Some(device) = place(sample.device) {
            report.push(device, sample.metric, absent.map_or(sample.reading, Into::into));
        }
    }
}

#[cfg(test)]
mod tests;
