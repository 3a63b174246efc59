//! Keeping what outlives a restart: written every few seconds, at each act, and at the end.

use std::{path::Path, sync::Arc, time::Duration};

use gaunt_schema::{Safe, plain_error};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    memory::{Found, Memory, MemoryError, Part},
    owner::{Flush, Handle, Recent, Remembered, Usual},
};

#[cfg(test)]
mod tests;

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
    let remembered: Remembered = part(&memory, Part::Findings)?;
    let (open, closed) = remembered.findings();
    tracing::info!(open, closed, folder = %folder.display(), "findings go on from before");
    let usual: Usual = part(&memory, Part::Usual)?;
    let recent: Recent = part(&memory, Part::Usage)?;
    Ok((memory, remembered.with_usual(usual).with_recent(recent)))
}

/// One part of what was kept, or nothing.
fn part<T: DeserializeOwned + Default>(memory: &Memory, part: Part) -> Result<T, MemoryError> {
    let found = match memory.read(part)? {
        Found::Kept(bytes) => match serde_json::from_slice(&bytes) {
            Ok(known) => return Ok(known),
            Err(error) => memory.set_aside(part, &plain_error::json(&error))?,
        },
        found => found,
    };
    if let Found::Damaged { why, aside } = found {
        let why = Safe::new(&why);
        tracing::error!(
            %why,
            aside = %aside.display(),
            "what was kept cannot be read and is set aside; it begins anew"
        );
    }
    Ok(T::default())
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
    let mut book = Some(Book::new(memory));
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
        let (Some(mut written), same) = (book.take(), remembered.clone()) else { return };
        let all = waiting.is_some();
        let wrote = spawn_blocking(move || {
            let wrote = written.write(&same, all);
            (written, wrote)
        });
        let Ok((back, wrote)) = wrote.await else { return };
        book = Some(back);
        if wrote.findings.is_ok() {
            owner.kept(&remembered).await;
            if let Some(waiting) = waiting {
                // Whoever waited may have given up.
                let _gone = waiting.send(());
            }
        }
        let (what, why) = match (wrote.findings, wrote.beside) {
            (Err(why), _) => ("findings and counters", why),
            (_, Err(why)) => ("what is usual, or the usage of the last hour,", why),
            (Ok(()), Ok(())) => {
                if std::mem::take(&mut failing) {
                    tracing::info!("findings and counters are kept again");
                }
                continue;
            }
        };
        if !std::mem::replace(&mut failing, true) {
            tracing::error!("{what} would not outlive a restart: {why}");
        }
    }
}

/// The memory, and what of it was written last: what is much is put into JSON only when it is something else.
struct Book {
    memory: Memory,
    usual: Option<Arc<Usual>>,
    /// The newest minute of usage.
    minute: Option<i64>,
}

/// What became of a write: a part that cannot be written keeps none of the others from it.
struct Wrote {
    /// Of findings and counters.
    findings: Result<(), String>,
    /// Of what is kept beside them.
    beside: Result<(), String>,
}

impl Book {
    fn new(memory: Memory) -> Self {
        Self { memory, usual: None, minute: None }
    }

    /// Writes what changed; of usage only whole minutes, unless all is wanted.
    fn write(&mut self, what: &Remembered, all: bool) -> Wrote {
        let findings = self.one(Part::Findings, what);
        let other =
            |usual: &&Arc<Usual>| self.usual.as_ref().is_none_or(|last| !Arc::ptr_eq(last, usual));
        let usual = what.usual().filter(other).map_or(Ok(()), |usual| {
            self.one(Part::Usual, &**usual)?;
            self.usual = Some(usual.clone());
            Ok(())
        });
        let minute = what.recent().minute();
        let due = minute.is_some() && (all || minute != self.minute);
        let usage = if due { self.one(Part::Usage, what.recent()) } else { Ok(()) };
        if due && usage.is_ok() {
            self.minute = minute;
        }
        Wrote { findings, beside: usual.and(usage) }
    }

    fn one<T: Serialize>(&mut self, part: Part, what: &T) -> Result<(), String> {
        let bytes = serde_json::to_vec(what).map_err(|error| error.to_string())?;
        self.memory.write(part, &bytes).map(drop).map_err(|error| error.to_string())
    }
}
