//! Waits for XIDs: driver events report an error immediately.

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

/// The outcome of a wait.
pub(in crate::nvml) enum XidWaitOutcome {
    /// The position of a GPU, and its XID.
    Xid(u32, u32),
    /// A timeout, or an unknown event.
    Nothing,
    /// Waiting failed.
    Broken,
}

impl XidWait {
    /// Begins to wait, if the driver supports events.
    pub(super) fn begin_wait(
        current_call: &CurrentCall,
        functions: NvmlFunctions<'_>,
        handles: Vec<Option<NvmlDeviceHandle>>,
    ) -> Option<Self> {
        let events =
            current_call.run_call(Call::EventSet, None, || functions.create_event_set()).ok()?;
        let mut registered = false;
        for (index, handle) in handles.iter().enumerate() {
            let Some(handle) = handle else { continue };
            let register = || functions.register_events(*handle, &events);
            registered |=
                current_call.run_call(Call::EventRegister, Some(index as u32), register).is_ok();
        }
        let waiting = Self { events, handles };
        if registered {
            return Some(waiting);
        }
        waiting.end_wait(current_call, functions);
        None
    }

    /// Waits for at most this long.
    pub(super) fn wait_for_xid(
        &self,
        current_call: &CurrentCall,
        functions: NvmlFunctions<'_>,
        time: Duration,
    ) -> XidWaitOutcome {
        // Rounded up: a timeout of zero milliseconds would poll continuously.
        let millis = time.as_micros().div_ceil(1_000).min(u128::from(u32::MAX)) as u32;
        let wait = || functions.wait_for_event(&self.events, millis);
        match current_call.run_call(Call::EventWait, None, wait) {
            Ok((handle, code)) => {
                let position = self.handles.iter().position(|other| *other == Some(handle));
                position.map_or(XidWaitOutcome::Nothing, |position| {
                    XidWaitOutcome::Xid(position as u32, code)
                })
            }
            Err(NvmlError::Timeout) => XidWaitOutcome::Nothing,
            Err(_) => XidWaitOutcome::Broken,
        }
    }

    /// Ends the wait.
    pub(super) fn end_wait(self, current_call: &CurrentCall, functions: NvmlFunctions<'_>) {
        // An event set that the driver does not free is already lost to it.
        _ = current_call.run_call(Call::EventFree, None, || functions.free_event_set(self.events));
    }
}
