//! Waiting for XIDs: the driver tells of an error the moment it happens.

use std::time::Duration;

use nvml_wrapper::error::NvmlError;

use super::{Door, Handle};
use crate::nvml::{
    call::{Call, Note},
    door::Events,
};

/// A wait that was begun for all GPUs.
pub(in crate::nvml) struct Waiting {
    events: Events,
    /// The GPUs by position in the inventory.
    handles: Vec<Option<Handle>>,
}

/// What a wait brought.
pub(in crate::nvml) enum Came {
    /// An error of the GPU at this position, with this number.
    Xid(u32, u32),
    /// Nothing in the time, or nothing that we know.
    Nothing,
    /// The driver cannot be waited for.
    Broken,
}

impl Waiting {
    /// Begins to wait, if the driver has events.
    pub(super) fn begin(note: &Note, door: Door<'_>, handles: Vec<Option<Handle>>) -> Option<Self> {
        let events = note.during(Call::EventSet, None, || door.events()).ok()?;
        let mut any = false;
        for (index, handle) in handles.iter().enumerate() {
            let Some(handle) = handle else { continue };
            let register = || door.register(*handle, &events);
            any |= note.during(Call::EventRegister, Some(index as u32), register).is_ok();
        }
        let waiting = Self { events, handles };
        if any {
            return Some(waiting);
        }
        waiting.end(note, door);
        None
    }

    /// Waits for at most this long.
    pub(super) fn wait(&self, note: &Note, door: Door<'_>, time: Duration) -> Came {
        // Upward: a rest of less than a millisecond would be waited for by asking all the time.
        let millis = time.as_micros().div_ceil(1_000).min(u128::from(u32::MAX)) as u32;
        let came = || door.wait(&self.events, millis);
        match note.during(Call::EventWait, None, came) {
            Ok((handle, code)) => {
                let position = self.handles.iter().position(|known| *known == Some(handle));
                position.map_or(Came::Nothing, |position| Came::Xid(position as u32, code))
            }
            Err(NvmlError::Timeout) => Came::Nothing,
            Err(_) => Came::Broken,
        }
    }

    /// Ends the wait.
    pub(super) fn end(self, note: &Note, door: Door<'_>) {
        // What the driver does not take back it has already lost.
        _ = note.during(Call::EventFree, None, || door.close(self.events));
    }
}
