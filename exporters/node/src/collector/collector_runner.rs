//! Runs the collectors of a round, each on its own thread, so that one whose file blocks never stops the others.

use std::{
    path::PathBuf,
    sync::mpsc::{self, Receiver, Sender, SyncSender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gaunt_schema::{AbsenceReason, MetricSample, Report, UnixMs};

use super::{CollectError, CollectOutcome, Collector};
use crate::kernel_files::current_path::CurrentPath;

mod collector_history;

use collector_history::CollectorHistory;

/// The stack size of a collector thread: it parses small files. Only touched pages use memory.
const STACK: usize = 256 * 1024;

/// All collectors of a node.
pub(crate) struct CollectorRunner {
    pool: CollectorPool,
    histories: Vec<CollectorHistory>,
    deadline: Duration,
}

/// Collectors that run in parallel, each on its thread.
pub(crate) struct CollectorPool {
    threads: Vec<CollectorThread>,
    next: u64,
    /// Holds at most one result per thread, which gets no new round before the result is taken.
    result_sender: Sender<CollectorResult>,
    results: Receiver<CollectorResult>,
}

/// One collector: its thread, and its last results.
struct CollectorThread {
    /// Its number, never used twice.
    number: u64,
    name: String,
    max_age: Duration,
    /// Holds one round: a collector that is still running gets no other.
    start_sender: SyncSender<UnixMs>,
    thread: Option<JoinHandle<()>>,
    current_path: CurrentPath,
    /// Since when a run is in progress without a result.
    running_since: Option<UnixMs>,
    /// The file that it was reading when it was first late; empty from its next timely result on. The message must not
    /// follow a slow run from file to file.
    late_path: Option<PathBuf>,
    /// The readings of the last completed run, and when they were taken.
    last: Report,
    took: Duration,
}

/// The result of one run of one collector.
struct CollectorResult {
    thread: u64,
    report: Report,
    outcome: Result<CollectOutcome, CollectError>,
    took: Duration,
}

/// The outcome of one collector in a round.
pub(crate) struct CollectorRun<'a> {
    /// The collector's name.
    pub(crate) name: &'a str,
    /// The outcome.
    pub(crate) outcome: Result<CollectOutcome, CollectError>,
    /// The duration of its last run.
    pub(crate) took: Duration,
}

impl CollectorRunner {
    /// The collectors of a node, each on its thread and waiting for the first round.
    pub(crate) fn new(collectors: Vec<Box<dyn Collector>>, deadline: Duration) -> Self {
        let (mut pool, mut histories) = (CollectorPool::default(), Vec::new());
        for collector in collectors {
            pool.add_collector(collector);
            histories.push(CollectorHistory::default());
        }
        Self { pool, histories, deadline }
    }

    /// Runs every collector, and adds its readings and status to the report. Takes no longer than the deadline,
    /// whatever the collectors do.
    pub(crate) fn run(&mut self, now: UnixMs, report: &mut Report) {
        let runs = self.pool.run(now, self.deadline, report);
        for (run, history) in runs.into_iter().zip(&mut self.histories) {
            history.report_status(&run, now, report);
        }
    }
}

impl Default for CollectorPool {
    fn default() -> Self {
        let (result_sender, results) = mpsc::channel();
        Self { threads: Vec::new(), next: 0, result_sender, results }
    }
}

impl CollectorPool {
    /// Starts a thread for `collector`. It runs from the next round on.
    pub(crate) fn add_collector(&mut self, collector: Box<dyn Collector>) {
        self.threads.push(CollectorThread::spawn_collector(
            self.next,
            collector,
            &self.result_sender,
        ));
        self.next += 1;
    }

    /// Removes the collectors whose names are no longer wanted; a blocked thread ends when its call returns.
    pub(crate) fn retain_named(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.threads.retain(|thread| is_wanted(&thread.name));
    }

    /// Whether there is a collector of this name.
    pub(crate) fn has_collector(&self, name: &str) -> bool {
        self.threads.iter().any(|thread| thread.name == name)
    }

    /// Runs every collector that is not still running, and adds the readings to the report, in collector order.
    pub(crate) fn run(
        &mut self,
        now: UnixMs,
        deadline: Duration,
        report: &mut Report,
    ) -> Vec<CollectorRun<'_>> {
        // Late results: their readings are too old, but the collector is available again.
        while let Ok(result) = self.results.try_recv() {
            self.store_result(result);
        }
        let mut missing = 0;
        for thread in &mut self.threads {
            if thread.running_since.is_none() && thread.start_sender.try_send(now).is_ok() {
                thread.running_since = Some(now);
                missing += 1;
            }
        }
        let end = Instant::now() + deadline;
        let mut outcomes: Vec<_> = self.threads.iter().map(|_| None).collect();
        while missing > 0 {
            let timeout = end.saturating_duration_since(Instant::now());
            let Ok(result) = self.results.recv_timeout(timeout) else { break };
            let is_current = result.report.node_time == Some(now);
            if let Some((position, outcome)) = self.store_result(result)
                && is_current
            {
                outcomes[position] = Some(outcome);
                missing -= 1;
            }
        }
        let threads = self.threads.iter_mut().zip(outcomes);
        threads.map(|(thread, outcome)| thread.report_run(now, outcome, deadline, report)).collect()
    }

    /// Stores a result, and returns the position of its collector.
    fn store_result(
        &mut self,
        result: CollectorResult,
    ) -> Option<(usize, Result<CollectOutcome, CollectError>)> {
        let position = self.threads.iter().position(|thread| thread.number == result.thread)?;
        let thread = &mut self.threads[position];
        thread.running_since = None;
        thread.took = result.took;
        thread.last = result.report;
        Some((position, result.outcome))
    }
}

impl CollectorThread {
    fn spawn_collector(
        number: u64,
        mut collector: Box<dyn Collector>,
        result_sender: &Sender<CollectorResult>,
    ) -> Self {
        let (name, max_age) = (collector.name().to_owned(), collector.max_age());
        let current_path = CurrentPath::default();
        let (start_sender, starts) = mpsc::sync_channel(1);
        let (result_sender, thread_path) = (result_sender.clone(), current_path.clone());
        let work = move || {
            thread_path.track_this_thread();
            while let Ok(now) = starts.recv() {
                let mut report = Report { node_time: Some(now), ..Report::default() };
                let started = Instant::now();
                let outcome = collector.collect_readings(&mut report);
                let took = started.elapsed();
                if result_sender
                    .send(CollectorResult { thread: number, report, outcome, took })
                    .is_err()
                {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.clone()).stack_size(STACK).spawn(work);
        let thread = thread.inspect_err(|error| {
            tracing::error!(collector = name, %error, "cannot start a thread; raise the limit on threads");
        });
        Self {
            number,
            name,
            max_age,
            start_sender,
            thread: thread.ok(),
            current_path,
            running_since: None,
            late_path: None,
            last: Report::default(),
            took: Duration::ZERO,
        }
    }

    /// Adds the readings of this round to the report, or the reason why there are none.
    fn report_run(
        &mut self,
        now: UnixMs,
        outcome: Option<Result<CollectOutcome, CollectError>>,
        deadline: Duration,
        report: &mut Report,
    ) -> CollectorRun<'_> {
        let outcome = match outcome {
            Some(outcome) => {
                self.late_path = None;
                merge(&self.last, None, report);
                outcome.and_then(|outcome| check_readings(&self.last, outcome))
            }
            None => self.report_late_run(now, deadline, report),
        };
        CollectorRun { name: &self.name, outcome, took: self.took }
    }

    fn report_late_run(
        &mut self,
        now: UnixMs,
        deadline: Duration,
        report: &mut Report,
    ) -> Result<CollectOutcome, CollectError> {
        let fresh_since =
            self.last.node_time.filter(|taken_at| now.duration_since(*taken_at) <= self.max_age);
        merge(&self.last, fresh_since.is_none().then_some(AbsenceReason::Stale), report);
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Err(CollectError::Broken);
        }
        if let Some(taken_at) = fresh_since {
            let message =
                "the run takes longer than a tick; its values are those of the previous run"
                    .to_owned();
            return Ok(CollectOutcome::FoundThat { message, at: Some(taken_at) });
        }
        let late_path = self.late_path.get_or_insert_with(|| self.current_path.read_path());
        Err(CollectError::Late(deadline, late_path.clone()))
    }
}

/// A run whose readings are all absent, some because they cannot be parsed, has failed.
fn check_readings(
    collected: &Report,
    outcome: CollectOutcome,
) -> Result<CollectOutcome, CollectError> {
    let is_error = |sample: &MetricSample| sample.reading == AbsenceReason::Error.into();
    let is_value = |sample: &MetricSample| sample.reading.value().is_some();
    if collected.samples.iter().any(is_value) || !collected.samples.iter().any(is_error) {
        return Ok(outcome);
    }
    Err(CollectError::Unreadable(collected.samples.len()))
}

/// Merges a collector's report into that of the round; with a reason, its devices without their values.
fn merge(collected: &Report, absent: Option<AbsenceReason>, report: &mut Report) {
    let devices: Vec<u32> =
        collected.devices.iter().map(|device| report.ensure_device(device.clone())).collect();
    let map_device = |device: u32| devices.get(device as usize).copied();
    for info in &collected.infos {
        if let Some(device) = map_device(info.device) {
            let mut info = info.clone();
            info.device = device;
            report.infos.push(info);
        }
    }
    if absent.is_none() {
        report.extra.extend_from_slice(&collected.extra);
    }
    for sample in &collected.samples {
        if let Some(device) = map_device(sample.device) {
            report.push(device, sample.metric, absent.map_or(sample.reading, Into::into));
        }
    }
}

#[cfg(test)]
mod tests;
