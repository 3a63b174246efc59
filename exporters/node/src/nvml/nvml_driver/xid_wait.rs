//! Waiting for XIDs: the driver tells of an error the moment it happens.

use std::time::Duration;

use nvml_wrapper::error::NvmlError;

use super::{NvmlDeviceHandle, NvmlFunctions};
use crate::nvml::{
    driver_call::{Call, CurrentCall},
    nvml_ffi::NvmlEventSet,
};

/// A wait that was begun for all GPUs.
pub(in crate::nvml) struct XidWait {
    events: NvmlEventSet,
    /// The GPUs by position in the inventory.
    handles: Vec<Option<NvmlDeviceHandle>>,
}

/// What a wait brought.
pub(in crate::nvml) enum XidWaitOutcome {
    /// An error of the GPU at this position, with this number.
    Xid(u32, u32),
    /// Nothing in the time, or nothing that we know.
    Nothing,
    /// The driver cannot be waited for.
    Broken,
}

impl XidWait {
    /// Begins to wait, if the driver has events.
    pub(super) fn begin_wait(
        note: &CurrentCall,
        door: NvmlFunctions<'_>,
        handles: Vec<Option<NvmlDeviceHandle>>,
    ) -> Option<Self> {
        let events = note.run_call(Call::EventSet, None, || door.create_event_set()).ok()?;
        let mut any = false;
        for (index, handle) in handles.iter().enumerate() {
            let Some(handle) = handle else { continue };
            let register = || door.register_events(*handle, &events);
            any |= note.run_call(Call::EventRegister, Some(index as u32), register).is_ok();
        }
        let waiting = Self { events, handles };
        if any {
            return Some(waiting);
        }
        waiting.end_wait(note, door);
        None
    }

    /// Waits for at most this long.
    pub(super) fn wait_for_xid(
        &self,
        note: &CurrentCall,
        door: NvmlFunctions<'_>,
        time: Duration,
    ) -> XidWaitOutcome {
        // Upward: a rest of less than a millisecond would be waited for by asking all the time.
        let millis = time.as_micros().div_ceil(1_000).min(u128::from(u32::MAX)) as u32;
        let came = || door.wait_for_event(&self.events, millis);
        match note.run_call(Call::EventWait, None, came) {
            Ok((handle, code)) => {
                let position = self.handles.iter().position(|known| *known == Some(handle));
                position.map_or(XidWaitOutcome::Nothing, |position| {
                    XidWaitOutcome::Xid(position as u32, code)
                })
            }
            Err(NvmlError::Timeout) => XidWaitOutcome::Nothing,
            Err(_) => XidWaitOutcome::Broken,
        }
    }

    /// Ends the wait.
    pub(super) fn end_wait(self, note: &CurrentCall, door: NvmlFunctions<'_>) {
        // What the driver does not take back it has already lost.
        _ = note.run_call(Call::EventFree, None, || door.free_event_set(self.events));
    }
}
