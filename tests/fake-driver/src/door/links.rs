//! NVLinks as boards before Hopper tell of them: a call for each value of each link.

#![expect(unsafe_code, reason = "the names must stand unmangled")]

use std::ffi::{c_uint, c_ulonglong};

use super::{Device, PciInfo, code, device, pci_info, put};
use crate::{
    driver::{Driver, INVALID_ARGUMENT, NOT_SUPPORTED},
    scenario::{LINK_VALUES, Link},
};

/// Goes through the call's faults and finds the link.
fn link(call: &str, handle: Device, link: c_uint) -> Result<(&'static Driver, &'static Link), u32> {
    let (driver, gpu) = device(call, handle)?;
    Ok((driver, gpu.links.get(link as usize).ok_or(INVALID_ARGUMENT)?))
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(handle: Device, number: c_uint, to: *mut c_uint) -> c_uint {
    let found = link("nvmlDeviceGetNvLinkState", handle, number);
    code(found.and_then(|(driver, link)| {
        let state = driver.now(link.values.get(LINK_VALUES[0]))?;
        put(to, state as c_uint)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkErrorCounter(
    handle: Device,
    number: c_uint,
    kind: c_uint,
    to: *mut c_ulonglong,
) -> c_uint {
    let found = link("nvmlDeviceGetNvLinkErrorCounter", handle, number);
    code(found.and_then(|(driver, link)| {
        let key = LINK_VALUES.get(kind as usize + 1).ok_or(INVALID_ARGUMENT)?;
        put(to, driver.now(link.values.get(*key))?)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    handle: Device,
    number: c_uint,
    to: *mut PciInfo,
) -> c_uint {
    let found = link("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, number);
    code(found.and_then(|(_, link)| put(to, pci_info(link.peer.as_deref().ok_or(NOT_SUPPORTED)?)?)))
}
