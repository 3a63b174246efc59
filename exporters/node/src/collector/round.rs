//! A round of the collectors: each on a thread of its own, so that one whose file blocks never stops the others.

use std::{
    path::PathBuf,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gaunt_schema::{Absent, Report, UnixMs};

use super::{CollectError, Collector, Outcome};
use crate::{Options, files::note::Note};

mod past;

use past::Past;

/// Room for a collector's stack: it parses small files. Only touched pages count.
const STACK: usize = 256 * 1024;

/// All collectors of a node.
pub(crate) struct Collectors {
    stations: Vec<Station>,
    answers: Receiver<Answer>,
    deadline: Duration,
}

/// One collector's place: its thread, and what it last brought.
struct Station {
    name: &'static str,
    patience: Duration,
    go: Sender<UnixMs>,
    thread: Option<JoinHandle<()>>,
    note: Note,
    /// Since when a run has been under way whose answer is not there yet.
    out: Option<UnixMs>,
    /// Where it was when it was first late; empty from its next timely answer on. The message must not follow a slow
    /// run from file to file.
    stuck: Option<PathBuf>,
    /// The readings of the last run that ended, and when they were taken.
    last: Report,
    past: Past,
}

/// What one run of one collector brought.
struct Answer {
    station: usize,
    report: Report,
    outcome: Result<Outcome, CollectError>,
    took: Duration,
}

impl Collectors {
    /// The collectors of a node, each on its thread and waiting for the first round.
    pub(crate) fn new(options: &Options) -> Self {
        // Beyond a period the next tick is due.
        Self::of(super::all(options), options.collector_deadline.min(options.period))
    }

    fn of(all: Vec<Box<dyn Collector>>, deadline: Duration) -> Self {
        let (tell, answers) = mpsc::channel();
        let stations = all.into_iter().enumerate();
        let stations = stations.map(|(at, collector)| Station::start(at, collector, &tell));
        Self { stations: stations.collect(), answers, deadline }
    }

    /// Runs every collector that is not still at it, and adds to the report what each brought and how it went. Takes no
    /// longer than the deadline, whatever the collectors do.
    pub(crate) fn run(&mut self, now: UnixMs, report: &mut Report) {
        // What came after its round: its readings are too old, but the collector is back.
        while let Ok(answer) = self.answers.try_recv() {
            _ = self.stations[answer.station].back(answer);
        }
        let mut missing = 0;
        for station in &mut self.stations {
            if station.out.is_none() && station.go.send(now).is_ok() {
                station.out = Some(now);
                missing += 1;
            }
        }
        let deadline = Instant::now() + self.deadline;
        let mut outcomes: Vec<_> = self.stations.iter().map(|_| None).collect();
        while missing > 0 {
            let wait = deadline.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(wait) {
                Ok(answer) => {
                    let (at, fresh) = (answer.station, answer.report.node_time == Some(now));
                    let outcome = self.stations[at].back(answer);
                    if fresh {
                        outcomes[at] = Some(outcome);
                        missing -= 1;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        for (station, outcome) in self.stations.iter_mut().zip(outcomes) {
            station.add(now, outcome, self.deadline, report);
        }
    }
}

impl Station {
    fn start(at: usize, mut collector: Box<dyn Collector>, tell: &Sender<Answer>) -> Self {
        let (name, patience, note) = (collector.name(), collector.patience(), Note::default());
        let (go, gone) = mpsc::channel();
        let (tell, own) = (tell.clone(), note.clone());
        let work = move || {
            own.take_notes_here();
            while let Ok(now) = gone.recv() {
                let mut report = Report { node_time: Some(now), ..Report::default() };
                let started = Instant::now();
                let outcome = collector.collect(&mut report);
                let took = started.elapsed();
                if tell.send(Answer { station: at, report, outcome, took }).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK).spawn(work);
        let thread = thread.inspect_err(|error| {
            tracing::error!(collector = name, %error, "cannot start; raise the limit on threads");
        });
        let (last, past) = (Report::default(), Past::default());
        Self { name, patience, go, thread: thread.ok(), note, out: None, stuck: None, last, past }
    }

    /// Takes an answer.
    fn back(&mut self, answer: Answer) -> Result<Outcome, CollectError> {
        self.out = None;
        self.past.took = answer.took;
        self.last = answer.report;
        answer.outcome
    }

    /// Adds the readings of this round to the report, or why there are none.
    fn add(
        &mut self,
        now: UnixMs,
        outcome: Option<Result<Outcome, CollectError>>,
        deadline: Duration,
        report: &mut Report,
    ) {
        let outcome = match outcome {
            Some(outcome) => {
                self.stuck = None;
                merge(&self.last, None, report);
                outcome
            }
            None => self.late(now, deadline, report),
        };
        self.past.say(self.name, now, &outcome, report);
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
        match fresh {
            Some(at) => {
                let message = "it takes longer than a tick; its values are the last ones";
                Ok(Outcome::FoundThat { message: message.to_owned(), at: Some(at) })
            }
            None => {
                let stuck = self.stuck.get_or_insert_with(|| self.note.read());
                Err(CollectError::Late(deadline, stuck.clone()))
            }
        }
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
    for sample in &own.samples {
        if let Some(device) = place(sample.device) {
            report.push(device, sample.metric, absent.map_or(sample.reading, Into::into));
        }
    }
}

#[cfg(test)]
mod tests;
