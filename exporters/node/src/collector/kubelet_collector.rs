//! Queries the kubelet periodically for the pods that hold GPUs. If it hangs, only this collector is affected: a query
//! stays open from tick to tick until its deadline, and pods are shown by UID.

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

use super::{CollectError, CollectOutcome, Collector};
use crate::{
    SamplerOptions,
    kubelet::{DeviceHolders, PodResourcesError, query_holders},
};

/// The time between two queries: as long as a new pod may be shown by its UID.
const EVERY: Duration = Duration::from_secs(5);

/// The deadline of a query. A kubelet with hundreds of pods on a busy node takes a second.
const DEADLINE: Duration = Duration::from_secs(3);

/// How long pods keep their names after the kubelet stops answering: it restarts in less.
const NAMES_HOLD: Duration = Duration::from_mins(1);

/// The message while pods have no names.
const WITHOUT: &str = "pods are shown by UID";

/// Queries the kubelet at its pod-resources socket, and passes the result on.
pub(super) struct KubeletCollector {
    socket: PathBuf,
    /// How long a run may wait for the answer.
    answer_wait: Duration,
    runtime: Option<Runtime>,
    pending_query: Option<JoinHandle<Result<DeviceHolders, KubeletQueryError>>>,
    next: Instant,
    status: KubeletStatus,
    /// The time of the last answer.
    answered_at: Option<Instant>,
    holders_sender: watch::Sender<Arc<DeviceHolders>>,
}

/// The status of the last query.
#[derive(Clone)]
enum KubeletStatus {
    /// Still open.
    NotYet,
    /// This many pods hold this many devices; with the time of the answer.
    Pods((usize, usize), UnixMs),
    /// There is no kubelet.
    NotFound,
    /// It failed; the text is the reason.
    Failed(String),
}

/// Why a query failed.
enum KubeletQueryError {
    Asking(PodResourcesError),
    /// No answer before the deadline.
    TimedOut,
}

impl KubeletCollector {
    pub(super) fn new(
        options: &SamplerOptions,
        holder_sender: watch::Sender<Arc<DeviceHolders>>,
    ) -> Self {
        Self {
            socket: options.kubelet.clone(),
            // Wait less than the round, so that the collector ends before it.
            answer_wait: options.round_deadline() * 3 / 5,
            runtime: None,
            pending_query: None,
            next: Instant::now(),
            status: KubeletStatus::NotYet,
            answered_at: None,
            holders_sender: holder_sender,
        }
    }

    /// Starts a query if one is due, and waits a short time for the answer.
    fn poll_kubelet(&mut self, now: UnixMs) -> io::Result<()> {
        let runtime = match &self.runtime {
            Some(runtime) => runtime,
            None => {
                self.runtime.insert(runtime::Builder::new_current_thread().enable_all().build()?)
            }
        };
        if self.pending_query.is_none() && Instant::now() >= self.next {
            self.next = Instant::now() + EVERY;
            let socket = self.socket.clone();
            self.pending_query = Some(runtime.spawn(async move {
                let answer = await_within(DEADLINE, query_holders(&socket))
                    .await
                    .ok_or(KubeletQueryError::TimedOut)?;
                answer.map_err(KubeletQueryError::Asking)
            }));
        }
        let Some(open) = &mut self.pending_query else { return Ok(()) };
        let timeout = self.answer_wait;
        let answer = runtime.block_on(await_within(timeout, open));
        let Some(answer) = answer else { return Ok(()) };
        self.pending_query = None;
        self.status = match answer {
            Ok(Ok(pods)) => {
                let status = KubeletStatus::Pods(pods.count_pods_and_devices(), now);
                self.answered_at = Some(Instant::now());
                self.holders_sender.send_replace(Arc::new(pods));
                status
            }
            Ok(Err(failed)) => self.status_of_error(&failed),
            Err(error) => {
                tracing::error!(%error, "the kubelet query ended unexpectedly");
                KubeletStatus::Failed(
                    "the kubelet query ended unexpectedly; see the log".to_owned(),
                )
            }
        };
        Ok(())
    }

    fn status_of_error(&self, failed: &KubeletQueryError) -> KubeletStatus {
        let socket = self.socket.display();
        let why = match failed {
            KubeletQueryError::TimedOut => {
                format!("no answer within {} s", DEADLINE.as_secs())
            }
            KubeletQueryError::Asking(PodResourcesError::Connect(error)) => match error.kind() {
                io::ErrorKind::NotFound => return KubeletStatus::NotFound,
                io::ErrorKind::PermissionDenied => {
                    return KubeletStatus::Failed(format!(
                        "cannot query the kubelet at {socket}: permission denied; {WITHOUT}; allow this user to read its \
                         folder, or pass --disable kubelet"
                    ));
                }
                _ => plain_error::io(error),
            },
            KubeletQueryError::Asking(error) => error.to_string(),
        };
        KubeletStatus::Failed(format!(
            "cannot query the kubelet at {socket}: {why}; {WITHOUT}; see its log"
        ))
    }

    /// Drops names that are too old.
    fn expire_holders(&mut self) {
        let retained = matches!(self.status, KubeletStatus::Pods(..))
            || (matches!(self.status, KubeletStatus::Failed(_))
                && self.answered_at.is_some_and(|answered_at| answered_at.elapsed() < NAMES_HOLD));
        if !retained {
            self.holders_sender.send_if_modified(|pods| {
                let has_holders = **pods != DeviceHolders::default();
                *pods = Arc::default();
                has_holders
            });
        }
    }
}

/// The output of a future, if it completes in time.
async fn await_within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    time::timeout(limit, pin!(future)).await.ok()
}

impl Collector for KubeletCollector {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        if let Err(error) = self.poll_kubelet(report.node_time.unwrap_or_default()) {
            self.status =
                KubeletStatus::Failed(format!("cannot start the runtime: {error}; {WITHOUT}"));
        }
        self.expire_holders();
        match &self.status {
            KubeletStatus::NotYet => {
                Ok(CollectOutcome::Pending("waiting for the kubelet's answer".to_owned()))
            }
            KubeletStatus::Pods((pods, devices), at) => {
                let message =
                    format!("pods with GPUs: {pods}; allocated GPUs and MIG instances: {devices}");
                Ok(CollectOutcome::FoundThat { message, at: Some(*at) })
            }
            KubeletStatus::NotFound => {
                let socket = self.socket.display();
                Ok(CollectOutcome::Nothing(format!("no kubelet: {socket} does not exist")))
            }
            KubeletStatus::Failed(message) => Err(CollectError::Driver(message.clone())),
        }
    }
}
