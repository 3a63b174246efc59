//! One machine of a served pair, and the life of its process.

use std::sync::Arc;

use gaunt_api::FindingList;
use tokio::task::JoinHandle;

use crate::served_aggregator::{ServedAggregator, ServedSurroundings};

/// One machine of the pair.
pub(crate) struct ServedHost {
    pub(crate) around: ServedSurroundings,
    pub(crate) process: ServedProcess,
}

/// The process of a machine.
pub(crate) enum ServedProcess {
    /// Killed until this second.
    Down(u64),
    Starting(JoinHandle<Result<ServedAggregator, String>>),
    Running(Box<ServedAggregator>),
    /// Asked to stop: open requests are answered.
    Stopping(JoinHandle<()>),
}

impl ServedHost {
    /// The findings of its process; none while it is down or starts.
    pub(crate) async fn findings(&self) -> Option<Arc<FindingList>> {
        match &self.process {
            ServedProcess::Running(process) => Some(process.findings().await),
            _ => None,
        }
    }

    /// Asks the process to stop, as a service manager does; false if it does not run.
    pub(crate) fn stop(&mut self) -> bool {
        let process = std::mem::replace(&mut self.process, ServedProcess::Down(0));
        let ServedProcess::Running(process) = process else {
            self.process = process;
            return false;
        };
        self.around.place.end_program(false);
        self.process = ServedProcess::Stopping(tokio::spawn((*process).stop()));
        true
    }

    /// Checks that what is known of the peer's alerts is of the past, by the clock of the engine.
    pub(crate) fn check_peer_alerts(&self) -> Option<String> {
        let ServedProcess::Running(process) = &self.process else { return None };
        let (asked_at, now) = (process.at_peers.borrow().asked_at, self.around.network.now());
        (asked_at > now).then(|| format!("the peer was asked at {asked_at:?}, it is {now:?}"))
    }

    /// Starts the process if it is time; returns what does not hold.
    pub(crate) async fn start_if_due(&mut self, second: u64) -> Option<String> {
        match &mut self.process {
            ServedProcess::Down(until) if second >= *until => {
                let started = tokio::spawn(ServedAggregator::start(self.around.clone()));
                self.process = ServedProcess::Starting(started);
                None
            }
            ServedProcess::Starting(starting) if starting.is_finished() => {
                match starting.await.map_err(|error| error.to_string()).flatten() {
                    Ok(process) => {
                        self.process = ServedProcess::Running(Box::new(process));
                        None
                    }
                    Err(why) => {
                        self.process = ServedProcess::Down(second + 1);
                        Some(format!("cannot start: {why}"))
                    }
                }
            }
            ServedProcess::Stopping(stopping) if stopping.is_finished() => {
                self.process = ServedProcess::Down(second + 1);
                None
            }
            _ => None,
        }
    }
}
