//! NVLinks in the API of GPUs before Hopper: one call for each value of each link.

#![expect(unsafe_code, reason = "the names must not be mangled")]

use std::ffi::{c_uint, c_ulonglong};

use super::{NvmlPciInfo, RawNvmlDevice, begin_device_call, error_code, pci_info, write_value};
use crate::{
    driver_scenario::{LINK_VALUES, NvlinkScenario},
    driver_state::{FakeDriver, INVALID_ARGUMENT, NOT_SUPPORTED},
};

/// Applies the call's faults and returns the link.
fn begin_link_call(
    call: &str,
    handle: RawNvmlDevice,
    link: c_uint,
) -> Result<(&'static FakeDriver, &'static NvlinkScenario), u32> {
    let (driver, gpu) = begin_device_call(call, handle)?;
    Ok((driver, gpu.links.get(link as usize).ok_or(INVALID_ARGUMENT)?))
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(
    handle: RawNvmlDevice,
    number: c_uint,
    to: *mut c_uint,
) -> c_uint {
    let found = begin_link_call("nvmlDeviceGetNvLinkState", handle, number);
    error_code(found.and_then(|(driver, link)| {
        let state = driver.value_now(link.values.get(LINK_VALUES[0]))?;
        write_value(to, state as c_uint)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkErrorCounter(
    handle: RawNvmlDevice,
    number: c_uint,
    kind: c_uint,
    to: *mut c_ulonglong,
) -> c_uint {
    let found = begin_link_call("nvmlDeviceGetNvLinkErrorCounter", handle, number);
    error_code(found.and_then(|(driver, link)| {
        let key = LINK_VALUES.get(kind as usize + 1).ok_or(INVALID_ARGUMENT)?;
        write_value(to, driver.value_now(link.values.get(*key))?)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    handle: RawNvmlDevice,
    number: c_uint,
    to: *mut NvmlPciInfo,
) -> c_uint {
    let found = begin_link_call("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, number);
    error_code(found.and_then(|(_, link)| {
        write_value(to, pci_info(link.peer.as_deref().ok_or(NOT_SUPPORTED)?)?)
    }))
}
