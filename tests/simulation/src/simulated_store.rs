//! A store in this process that answers as Prometheus does, with faults, and what must hold of what it has.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use gaunt_schema::{SanitizedText, UnixMs};
use gaunt_scrape::ServerAccess;
use gaunt_store::{
    PendingOutcome, ReceivedRequest, StoreClient, StoreError, StoreLevel, StoreOptions, StoreStep,
    StoreWriter, WriteOutcome, decompress_request,
};
use tokio::{
    task::JoinSet,
    time::{interval, sleep},
};

use crate::{
    deliberate_bug::DeliberateBug, seeded_random::SeededRandom, simulated_disk::SimulatedDisk,
};

/// Folder of the backlog.
pub(crate) const FOLDER: &str = "store";

/// The time between two steps.
const INTERVAL: Duration = Duration::from_secs(5);

/// The steps of a window that is not full, and one that waits for the thread.
const WINDOW_MS: i64 = 5 * INTERVAL.as_millis() as i64;

/// Series of each step.
const SERIES: u32 = 5;

/// The time after which a request without an answer has failed.
const DEADLINE: Duration = Duration::from_secs(30);

/// Time between two looks at a disk that hangs.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// Files of a backlog: requests of some minutes, and windows.
const MAX_FILES: usize = 64;

/// The store; clones are the same.
#[derive(Clone)]
pub(crate) struct SimulatedStore {
    state: Arc<Mutex<StoreState>>,
    bug: Option<DeliberateBug>,
}

struct StoreState {
    /// The newest instant of each series, and all of the first one.
    newest: BTreeMap<u32, i64>,
    instants: Vec<i64>,
    random: SeededRandom,
    has_faults: bool,
    faults: u64,
    broken: Vec<String>,
}

/// The writer of one process, whose task ends with it.
pub(crate) struct SimulatedStoreWriter {
    writer: StoreWriter,
    _task: JoinSet<()>,
}

/// The steps that the processes of a run handed over.
#[derive(Debug, Default)]
pub(crate) struct StoreModel {
    /// Instants that the store must have in the end, if the disk did not fail.
    expected: Vec<i64>,
    /// The newest instant of all processes: the store refuses older ones.
    newest: i64,
    /// The last step, which is lost if the process is killed now.
    last: Option<i64>,
    /// The instant of the last step of the running process.
    handed: Option<i64>,
}

/// The value of a series at an instant: no two are alike.
fn sample_value(series: u32, at: i64) -> f64 {
    f64::from(series) * 1e13 + at as f64
}

impl SimulatedStore {
    pub(crate) fn new(random: SeededRandom, bug: Option<DeliberateBug>) -> Self {
        let state = StoreState {
            newest: BTreeMap::new(),
            instants: Vec::new(),
            random,
            has_faults: true,
            faults: 0,
            broken: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), bug }
    }

    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all faults.
    pub(crate) fn repair(&self) {
        self.state().has_faults = false;
    }

    /// The number of faults so far.
    pub(crate) fn fault_count(&self) -> u64 {
        self.state().faults
    }

    /// What did not hold of requests since the last call.
    pub(crate) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.state().broken)
    }

    /// Answers a request, or fails, before or after it was taken.
    async fn handle_request(self, body: Vec<u8>) -> WriteOutcome {
        let fault = {
            let mut state = self.state();
            let is_faulty = state.has_faults && state.random.once_in(3);
            state.faults += u64::from(is_faulty);
            is_faulty.then(|| state.random.below(5))
        };
        match fault {
            Some(0) => WriteOutcome::Retry(None, "connection refused".to_owned()),
            Some(1) => {
                let pause = Duration::from_secs(self.state().random.below(20));
                WriteOutcome::Retry(Some(pause), "HTTP status 503".to_owned())
            }
            Some(2) => {
                sleep(DEADLINE).await;
                WriteOutcome::Retry(None, "no answer".to_owned())
            }
            Some(3) => {
                // It was taken, and the answer is lost.
                self.state().take_request(&body);
                sleep(DEADLINE).await;
                WriteOutcome::Retry(None, "no answer".to_owned())
            }
            Some(_) => {
                let wait = Duration::from_secs(self.state().random.below(25));
                sleep(wait).await;
                self.state().take_request(&body)
            }
            None => self.state().take_request(&body),
        }
    }
}

impl StoreState {
    /// Keeps the samples that are newer than those of their series, and refuses the others.
    fn take_request(&mut self, body: &[u8]) -> WriteOutcome {
        let Ok(request) = decompress_request(body) else { return self.refuse_unreadable() };
        let Ok(request) = ReceivedRequest::parse(&request) else { return self.refuse_unreadable() };
        let mut has_old = false;
        for series in &request.series {
            let number = series.labels().find(|(name, _)| *name == "number");
            let Some(number) = number.and_then(|(_, number)| number.parse().ok()) else {
                self.broken.push("a series of nobody is sent to the store".to_owned());
                continue;
            };
            for (at, value) in request.samples_of(series) {
                // Without a value it is a stale marker: no series is ever absent, and no end of a process ends one.
                if value.is_none_or(|it| it.to_bits() != sample_value(number, at.0).to_bits()) {
                    self.broken.push(format!("series {number} has {value:?} at {}", at.0));
                }
                let newest = self.newest.entry(number).or_insert(i64::MIN);
                if at.0 < *newest {
                    has_old = true;
                } else if at.0 > *newest {
                    *newest = at.0;
                    if number == 0 {
                        self.instants.push(at.0);
                    }
                }
            }
        }
        if has_old {
            return WriteOutcome::Refused(400, "out of order sample".to_owned());
        }
        WriteOutcome::Accepted
    }

    fn refuse_unreadable(&mut self) -> WriteOutcome {
        self.broken.push("a request to the store cannot be read".to_owned());
        WriteOutcome::Refused(400, "not a request".to_owned())
    }
}

impl StoreClient for SimulatedStore {
    fn shown_address(&self) -> String {
        "http://store/api/v1/write".to_owned()
    }

    fn post_request(&mut self, body: Vec<u8>) -> Result<PendingOutcome, String> {
        if self.bug == Some(DeliberateBug::SkipsStoreRequests) && body.len().is_multiple_of(10) {
            return Ok(Box::pin(std::future::ready(WriteOutcome::Accepted)));
        }
        Ok(Box::pin(self.clone().handle_request(body)))
    }
}

impl SimulatedStoreWriter {
    /// Opens the backlog, and starts to post.
    pub(crate) fn start(disk: &SimulatedDisk, store: &SimulatedStore) -> Result<Self, StoreError> {
        let options = StoreOptions {
            query_url: None,
            url: store.shown_address(),
            level: StoreLevel::Verdicts,
            interval: INTERVAL,
            replica_label: None,
            replica: String::new(),
            cluster: SanitizedText::new("simulation"),
            backlog_folder: Some(FOLDER.into()),
            backlog_bytes: 1 << 20,
            tenant: None,
            access: ServerAccess::default(),
        };
        let (writer, work) = StoreWriter::open_with_client(
            &options,
            Arc::new(disk.clone()),
            Box::new(store.clone()),
        )?;
        let mut task = JoinSet::new();
        task.spawn(run_beside_hangs(work, disk.clone()));
        Ok(Self { writer, _task: task })
    }

    /// Why the store does not have all samples; empty if it has.
    pub(crate) fn shown_failure(&self) -> String {
        let failure = self.writer.watch_status().borrow().failure.clone();
        failure.map_or_else(String::new, |why| why.to_string())
    }

    /// Hands over a step if one is due at `now`; returns what does not hold.
    pub(crate) fn write_step(&mut self, now: UnixMs, model: &mut StoreModel) -> Option<String> {
        let mut step = self.writer.begin_step(now, now)?;
        fill_step(&mut step);
        let broken = model.note_step(step.instant().0);
        self.writer.send_step(step.encode());
        broken
    }
}

/// Runs what calls a disk, except while an operation of the disk has not returned.
async fn run_beside_hangs(work: impl Future<Output = ()>, disk: SimulatedDisk) {
    let (mut work, mut looks) = (pin!(work), interval(LOOKS_EVERY));
    poll_fn(|context| {
        while looks.poll_tick(context).is_ready() {}
        if disk.hung_for().is_some() { Poll::Pending } else { work.as_mut().poll(context) }
    })
    .await;
}

fn fill_step(step: &mut StoreStep) {
    let at = step.instant().0;
    for number in 0..SERIES {
        step.push_sample("sample", &[("number", &number.to_string())], sample_value(number, at));
    }
}

impl StoreModel {
    /// A process hands over a step. While it runs it omits none: the other one of a pair has no gap when one is killed.
    fn note_step(&mut self, at: i64) -> Option<String> {
        let interval = INTERVAL.as_millis() as i64;
        let before = self.handed.replace(at);
        let is_next = before.is_none_or(|before| at - before == interval);
        self.expected.extend(self.last.take());
        if at > self.newest {
            (self.newest, self.last) = (at, Some(at));
        }
        (!is_next).then(|| format!("a step at {at} follows the one at {before:?}"))
    }

    /// The process was killed: the step that it was writing may be lost.
    pub(crate) fn note_kill(&mut self) {
        (self.last, self.handed) = (None, None);
    }

    /// The power is lost: the requests of all windows but the last were synchronised.
    pub(crate) fn note_power_cut(&mut self) {
        let Some(handed) = self.handed else { return };
        self.expected.retain(|at| *at < handed - WINDOW_MS || *at > handed);
    }

    /// What must hold of the backlog's files at any time.
    pub(crate) fn check_files(disk: &SimulatedDisk) -> Vec<String> {
        let (files, _) = disk.files_of(FOLDER);
        let is_many = files.len() > MAX_FILES;
        is_many.then(|| format!("{} files in the backlog", files.len())).into_iter().collect()
    }

    /// What must hold once the store answers for a while, if the disk did not fail: it has every step, but those of the
    /// window that is not full.
    pub(crate) fn check_stored(&self, store: &SimulatedStore) -> Vec<String> {
        let state = store.state();
        let missing = self.expected.iter().filter(|at| **at < self.newest - WINDOW_MS);
        let missing = missing.filter(|at| !state.instants.contains(at)).count();
        let what = format!("{missing} steps of {} are not in the store", self.expected.len());
        (missing > 0).then_some(what).into_iter().collect()
    }
}
