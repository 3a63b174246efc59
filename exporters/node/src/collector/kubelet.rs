//! The kubelet, asked now and then which pod holds which GPU. One that hangs costs only itself: a question stays open
//! from tick to tick until its deadline, and the pods keep their UIDs.

use std::{
    future::Future,
    io,
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use gaunt_schema::{Report, UnixMs, plain_error};
use tokio::{
    runtime::{self, Runtime},
    sync::watch,
    task::JoinHandle,
    time,
};

use super::{CollectError, Collector, Outcome};
use crate::{
    Options,
    kubelet::{AskError, Pods, list},
};

/// The time between two questions: as long as a new pod may go by its UID.
const EVERY: Duration = Duration::from_secs(5);

/// How long a question may stay open. A kubelet with hundreds of pods on a busy node takes a second.
const DEADLINE: Duration = Duration::from_secs(3);

/// For how long pods keep their names when the kubelet stops to answer: it restarts in less.
const NAMES_HOLD: Duration = Duration::from_mins(1);

/// What is said while pods have no names.
const WITHOUT: &str = "pods stay by their UIDs";

/// Asks the kubelet at its pod-resources socket, and passes on what it says.
pub(super) struct Kubelet {
    socket: PathBuf,
    /// How long a run may wait for the answer.
    patience: Duration,
    runtime: Option<Runtime>,
    open: Option<JoinHandle<Result<Pods, Failed>>>,
    next: Instant,
    said: Said,
    /// When there was last an answer.
    answered: Option<Instant>,
    tell: watch::Sender<Arc<Pods>>,
}

/// What the last question brought.
#[derive(Clone)]
enum Said {
    /// It is still open.
    NotYet,
    /// This many pods hold this many devices; it was said then.
    Pods((usize, usize), UnixMs),
    /// There is no kubelet.
    Nobody,
    /// It went wrong, and this is how.
    Wrong(String),
}

/// Why a question brought no answer.
enum Failed {
    Asking(AskError),
    /// The answer did not come in time.
    Late,
}

impl Kubelet {
    pub(super) fn new(options: &Options, tell: watch::Sender<Arc<Pods>>) -> Self {
        Self {
            socket: options.kubelet.clone(),
            // The round ends before its own round does.
            patience: options.round_deadline() * 3 / 5,
            runtime: None,
            open: None,
            next: Instant::now(),
            said: Said::NotYet,
            answered: None,
            tell,
        }
    }

    /// Asks if it is time to, and waits a little for the answer.
    fn step(&mut self, now: UnixMs) -> io::Result<()> {
        let runtime = match &self.runtime {
            Some(runtime) => runtime,
            None => {
                self.runtime.insert(runtime::Builder::new_current_thread().enable_all().build()?)
            }
        };
        if self.open.is_none() && Instant::now() >= self.next {
            self.next = Instant::now() + EVERY;
            let socket = self.socket.clone();
            self.open = Some(runtime.spawn(async move {
                let answer = within(DEADLINE, list(&socket)).await.ok_or(Failed::Late)?;
                answer.map_err(Failed::Asking)
            }));
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let patience = self.patience;
        let answer = runtime.block_on(within(patience, open));
        let Some(answer) = answer else { return Ok(()) };
        self.open = None;
        self.said = match answer {
            Ok(Ok(pods)) => {
                let said = Said::Pods(pods.count(), now);
                self.answered = Some(Instant::now());
                self.tell.send_replace(Arc::new(pods));
                said
            }
            Ok(Err(failed)) => self.failed(&failed),
            Err(error) => {
                tracing::error!(%error, "asking the kubelet ended unexpectedly");
                Said::Wrong("asking it ended unexpectedly; see the log".to_owned())
            }
        };
        Ok(())
    }

    fn failed(&self, failed: &Failed) -> Said {
        let socket = self.socket.display();
        let why = match failed {
            Failed::Late => format!("it does not answer within {} s", DEADLINE.as_secs()),
            Failed::Asking(AskError::Connect(error)) => match error.kind() {
                io::ErrorKind::NotFound => return Said::Nobody,
                io::ErrorKind::PermissionDenied => {
                    return Said::Wrong(format!(
                        "may not ask the kubelet at {socket}: permission denied; {WITHOUT}; let this user read its \
                         folder, or switch this off with --without kubelet"
                    ));
                }
                _ => plain_error::io(error),
            },
            Failed::Asking(error) => error.to_string(),
        };
        Said::Wrong(format!("cannot ask the kubelet at {socket}: {why}; {WITHOUT}; see its log"))
    }

    /// Forgets names that nobody stands for any more.
    fn forget(&mut self) {
        let held = matches!(self.said, Said::Pods(..))
            || (matches!(self.said, Said::Wrong(_))
                && self.answered.is_some_and(|then| then.elapsed() < NAMES_HOLD));
        if !held {
            self.tell.send_if_modified(|pods| {
                let any = **pods != Pods::default();
                *pods = Arc::default();
                any
            });
        }
    }
}

/// What a future brings, if it does so in time.
async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    time::timeout(limit, pin!(future)).await.ok()
}

impl Collector for Kubelet {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        if let Err(error) = self.step(report.node_time.unwrap_or_default()) {
            self.said = Said::Wrong(format!("cannot start its runtime: {error}; {WITHOUT}"));
        }
        self.forget();
        match &self.said {
            Said::NotYet => Ok(Outcome::Pending("waiting for the kubelet to answer".to_owned())),
            Said::Pods((pods, devices), at) => {
                let message = format!(
                    "pods that hold GPUs: {pods}; GPUs and instances that are held: {devices}"
                );
                Ok(Outcome::FoundThat { message, at: Some(*at) })
            }
            Said::Nobody => {
                let socket = self.socket.display();
                Ok(Outcome::Nothing(format!("no kubelet: {socket} is not there")))
            }
            Said::Wrong(message) => Err(CollectError::Driver(message.clone())),
        }
    }
}
