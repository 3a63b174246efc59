//! Events: the XIDs of the scenario, each at its second, for every waiting event set.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must not be mangled")]

use std::{
    ffi::{c_uint, c_ulonglong, c_void},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use super::{RawNvmlDevice, begin_call, begin_device_call, error_code, write_value};
use crate::driver_state::{INVALID_ARGUMENT, NOT_SUPPORTED, TIMEOUT};

/// `nvmlEventTypeXidCriticalError`.
const XID: c_ulonglong = 8;

/// The GPUs of the set, each with the number of its errors that were returned.
#[derive(Default)]
pub(crate) struct FakeEventSet {
    gpus: Mutex<Vec<(u32, usize)>>,
}

#[repr(C)]
struct NvmlEventData {
    device: *mut c_void,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetCreate(to: *mut *mut FakeEventSet) -> c_uint {
    error_code(
        begin_call("nvmlEventSetCreate")
            .and_then(|_| write_value(to, Box::into_raw(Box::default()))),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(set: *mut FakeEventSet) -> c_uint {
    error_code(begin_call("nvmlEventSetFree").and_then(|_| {
        if set.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: a set that is freed came from the call above and is freed once.
        drop(unsafe { Box::from_raw(set) });
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(
    handle: RawNvmlDevice,
    kinds: c_ulonglong,
    set: *const FakeEventSet,
) -> c_uint {
    error_code(begin_device_call("nvmlDeviceRegisterEvents", handle).and_then(|_| {
        if kinds != XID {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: a set that is not null came from the calls above and was not freed.
        let set = unsafe { set.as_ref() }.ok_or(INVALID_ARGUMENT)?;
        let mut gpus = set.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        gpus.push(((handle as usize - 1) as u32, 0));
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetWait_v2(
    set: *const FakeEventSet,
    to: *mut NvmlEventData,
    millis: c_uint,
) -> c_uint {
    error_code(begin_call("nvmlEventSetWait_v2").and_then(|driver| {
        // SAFETY: a set that is not null came from the calls above and was not freed.
        let set = unsafe { set.as_ref() }.ok_or(INVALID_ARGUMENT)?;
        let mut gpus = set.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        let until = driver.elapsed_seconds() + f64::from(millis) / 1e3;
        let next = gpus.iter_mut().filter_map(|(gpu, returned)| {
            let (second, code) = *driver.gpu_at(*gpu).ok()?.xids.get(*returned)?;
            (second <= until).then_some((second, code, *gpu, returned))
        });
        let Some((second, data, gpu, returned)) = next.min_by(|one, two| one.0.total_cmp(&two.0))
        else {
            thread::sleep(Duration::from_millis(millis.into()));
            return Err(TIMEOUT);
        };
        let wait = (second - driver.elapsed_seconds()).max(0.0);
        thread::sleep(Duration::from_secs_f64(wait));
        *returned += 1;
        let device = (gpu as usize + 1) as RawNvmlDevice;
        write_value(
            to,
            NvmlEventData { device, kind: XID, data, gpu_instance: 0, compute_instance: 0 },
        )
    }))
}
