//! The end of the engine and its reason.

use gaunt_judge::panic_message;
use tokio::task::JoinError;

/// Why the engine ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EngineEnd {
    /// Nobody can reach it any more.
    #[error("all handles are dropped")]
    HandlesDropped,
    /// The runtime stopped one of its tasks.
    #[error("the runtime is shutting down")]
    ShutDown,
    /// One of its tasks panicked.
    #[error("{task} panicked: {message}")]
    Panicked {
        /// What the task did.
        task: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// A finished reader kept its handle, so that the state can no longer be changed.
    #[error("the state is still shared after all its readers ended")]
    StillShared,
}

impl EngineEnd {
    /// The end of a task that returned nothing.
    pub(super) fn of_task(task: &'static str, error: JoinError) -> Self {
        let Ok(panic) = error.try_into_panic() else { return Self::ShutDown };
        Self::Panicked { task, message: panic_message(&*panic) }
    }

    /// Logs it.
    pub(super) fn log(&self) {
        match self {
            Self::HandlesDropped | Self::ShutDown => {
                tracing::debug!(reason = %self, "engine has ended");
            }
            Self::Panicked { .. } | Self::StillShared => {
                tracing::error!(reason = %self, "engine has ended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Seek as _},
        sync::Arc,
        time::{Duration, Instant},
    };

    use crate::{Engine, EngineOptions, EngineStopped, monotonic_clock, spawn_existing};
    use gaunt_api::Question;
    use gaunt_schema::UnixMs;

    #[tokio::test]
    async fn panic_of_the_judgement_thread_ends_the_engine_with_its_reason() {
        let log = Arc::new(tempfile::tempfile().unwrap());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone());
        let _logged = tracing::subscriber::set_default(subscriber.finish());
        let mut options = EngineOptions::default();
        // Settings refuse it: it is no duration.
        options.thresholds.flap_close_seconds = -1.0;
        let handle = spawn_existing(Engine::new(options), monotonic_clock());
        assert_eq!(handle.wait_for_tick(UnixMs(0)).await, Err(EngineStopped));
        assert_eq!(handle.ask_question(Question::Overview).await.unwrap_err(), EngineStopped);
        assert_eq!(handle.ask_question(Question::Nodes).await.unwrap_err(), EngineStopped);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut text = String::new();
        while !text.contains("engine has ended") {
            assert!(Instant::now() < deadline, "{text}");
            tokio::task::yield_now().await;
            (&*log).rewind().unwrap();
            text.clear();
            (&*log).read_to_string(&mut text).unwrap();
        }
        assert!(text.contains("ERROR"), "{text}");
        assert!(text.contains("reason=the judgement panicked: "), "{text}");
        assert!(text.contains("value is negative"), "{text}");
    }
}
