//! Keeping what outlives a restart: written every few seconds, at each act, and at the end.

use std::{path::Path, sync::Arc, time::Duration};

use gaunt_schema::Safe;
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    memory::{Found, Memory, MemoryError},
    owner::{Flush, Handle, Remembered},
};

/// The time between two writes. What is counted is told only once it was written, so that no counter falls when the
/// process is killed; it is late by this much.
const EVERY: Duration = Duration::from_secs(5);

/// The longest that the last write may take.
const LAST: Duration = Duration::from_secs(5);

/// Who keeps what an owner knows.
pub(super) struct Keeper {
    flush: mpsc::Sender<Flush>,
    writing: JoinHandle<()>,
}

/// Opens the folder and reads what was kept there. What cannot be read is said and set aside.
pub(super) fn open(folder: &Path) -> Result<(Memory, Remembered), MemoryError> {
    let memory = Memory::open(folder)?;
    let found = match memory.read()? {
        Found::Kept(bytes) => match serde_json::from_slice::<Remembered>(&bytes) {
            Ok(remembered) => {
                let (open, closed) = remembered.findings();
                tracing::info!(open, closed, folder = %folder.display(), "findings go on from before");
                return Ok((memory, remembered));
            }
            Err(error) => memory.set_aside(&error.to_string())?,
        },
        found => found,
    };
    if let Found::Damaged { why, aside } = found {
        let why = Safe::new(&why);
        tracing::error!(
            %why,
            aside = %aside.display(),
            "what was kept cannot be read and is set aside; findings begin anew"
        );
    }
    Ok((memory, Remembered::default()))
}

impl Keeper {
    /// Begins to keep what the owner knows; the handle is one whose acts are kept before they are answered.
    pub(super) fn start(memory: Memory, owner: &Handle) -> (Self, Handle) {
        let (flush, asked) = mpsc::channel(16);
        let kept = owner.kept_by(flush.clone());
        let writing = tokio::spawn(keep(memory, owner.clone(), asked));
        (Self { flush, writing }, kept)
    }

    /// Writes once more, and ends.
    pub(super) async fn finish(self) {
        let (back, done) = oneshot::channel();
        let written = async {
            let asked = self.flush.send(back).await;
            asked.is_ok() && done.await.is_ok()
        };
        if timeout(LAST, written).await != Ok(true) {
            tracing::warn!("the last seconds of findings and counters were not kept");
        }
        self.writing.abort();
    }
}

async fn keep(memory: Memory, owner: Handle, mut asked: mpsc::Receiver<Flush>) {
    let mut memory = Some(memory);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        let waiting = tokio::select! {
            flush = asked.recv() => match flush {
                Some(flush) => Some(flush),
                None => return,
            },
            _ = ticks.tick() => None,
        };
        let Ok(remembered) = owner.remember().await else { return };
        let remembered = Arc::new(remembered);
        let (written, same) = (memory.take(), remembered.clone());
        let wrote = spawn_blocking(move || write(written, &same)).await;
        let Ok((back, wrote)) = wrote else { return };
        memory = back;
        match wrote {
            Ok(()) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("findings and counters are kept again");
                }
                owner.kept(&remembered).await;
                if let Some(waiting) = waiting {
                    // Whoever waited may have given up.
                    let _gone = waiting.send(());
                }
            }
            Err(why) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!("findings and counters would not outlive a restart: {why}");
                }
            }
        }
    }
}

fn write(memory: Option<Memory>, what: &Remembered) -> (Option<Memory>, Result<(), String>) {
    let Some(mut memory) = memory else { return (None, Err("it is gone".to_owned())) };
    let bytes = serde_json::to_vec(what).map_err(|error| error.to_string());
    let wrote = bytes.and_then(|bytes| memory.write(&bytes).map_err(|error| error.to_string()));
    (Some(memory), wrote.map(drop))
}
