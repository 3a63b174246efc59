//! GPM counters of a GPU: a sample is an instant, and the metrics of two samples are the mean between them.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must not be mangled")]

use std::ffi::{c_char, c_double, c_uint};

use super::{PARENT, RawNvmlDevice, begin_call, begin_device_call, error_code, write_value};
use crate::{
    driver_scenario::{GPM, GpuScenario, LINK_GPM, ScenarioValue},
    driver_state::{INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, shared_driver},
};

/// The sampled GPU or instance, and the time.
#[derive(Default)]
pub(crate) struct FakeGpmSample {
    gpu: u32,
    instance: Option<u32>,
    seconds: f64,
}

#[repr(C)]
struct NvmlGpmSupport {
    version: c_uint,
    supported: c_uint,
}

#[repr(C)]
struct NvmlGpmMetric {
    id: c_uint,
    answer: c_uint,
    value: c_double,
    names: [*mut c_char; 3],
}

#[repr(C)]
struct NvmlGpmQuery {
    version: c_uint,
    count: c_uint,
    from: *mut FakeGpmSample,
    to: *mut FakeGpmSample,
    metrics: [NvmlGpmMetric; 210],
}

// SAFETY of all names below: they are those of NVML's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmQueryDeviceSupport(handle: RawNvmlDevice, to: *mut NvmlGpmSupport) -> c_uint {
    error_code(begin_device_call("nvmlGpmQueryDeviceSupport", handle).and_then(|(_, gpu)| {
        let is_supported = GPM.iter().any(|(_, key)| gpu.value_of_key(key).is_some());
        write_value(to, NvmlGpmSupport { version: 1, supported: c_uint::from(is_supported) })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleAlloc(to: *mut *mut FakeGpmSample) -> c_uint {
    let call = begin_call("nvmlGpmSampleAlloc");
    error_code(call.and_then(|_| write_value(to, Box::into_raw(Box::default()))))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: *mut FakeGpmSample) -> c_uint {
    error_code(begin_call("nvmlGpmSampleFree").and_then(|_| {
        if sample.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: a sample that is freed came from the call above and is freed once.
        drop(unsafe { Box::from_raw(sample) });
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(handle: RawNvmlDevice, to: *mut FakeGpmSample) -> c_uint {
    take_sample("nvmlGpmSampleGet", handle, None, to)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMigSampleGet(
    handle: RawNvmlDevice,
    instance: c_uint,
    to: *mut FakeGpmSample,
) -> c_uint {
    take_sample("nvmlGpmMigSampleGet", handle, Some(instance), to)
}

fn take_sample(
    call: &str,
    handle: RawNvmlDevice,
    instance: Option<u32>,
    to: *mut FakeGpmSample,
) -> c_uint {
    error_code(begin_device_call(call, handle).and_then(|(driver, gpu)| {
        let exists = |id: u32| gpu.instances.iter().any(|other| other.gpu_instance == id);
        if !instance.is_none_or(exists) {
            return Err(NOT_FOUND);
        }
        let index = (handle as usize & PARENT) as u32 - 1;
        write_value(to, FakeGpmSample { gpu: index, instance, seconds: driver.elapsed_seconds() })
    }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmMetricsGet(query: *mut NvmlGpmQuery) -> c_uint {
    error_code(shared_driver().and_then(|driver| {
        // SAFETY: by NVML's contract a pointer that is not null points to a complete query.
        let query = unsafe { query.as_mut() }.ok_or(INVALID_ARGUMENT)?;
        // SAFETY: its samples came from the calls above and were not freed.
        let (from, to) = unsafe { (query.from.as_ref(), query.to.as_ref()) };
        let (from, to) = from.zip(to).ok_or(INVALID_ARGUMENT)?;
        driver.begin_call("nvmlGpmMetricsGet", Some(from.gpu))?;
        if (from.gpu, from.instance) != (to.gpu, to.instance) || to.seconds < from.seconds {
            return Err(INVALID_ARGUMENT);
        }
        let gpu = driver.gpu_at(from.gpu)?;
        for metric in query.metrics.iter_mut().take(query.count as usize) {
            let found = metric_value(gpu, from.instance, metric.id);
            let mean = found.and_then(|value| value.mean_between(from.seconds, to.seconds));
            metric.answer = error_code(mean.ok_or(NOT_SUPPORTED).map(|mean| metric.value = mean));
        }
        Ok(())
    }))
}

fn metric_value(
    gpu: &'static GpuScenario,
    instance: Option<u32>,
    id: u32,
) -> Option<&'static ScenarioValue> {
    let (first, keys) = LINK_GPM;
    if let (Some(number), None) = (id.checked_sub(first), instance) {
        let link = gpu.links.get(number as usize / keys.len())?;
        return link.values.get(keys[number as usize % keys.len()]);
    }
    let (_, key) = GPM.iter().find(|(known, _)| *known == id)?;
    let Some(instance) = instance else { return gpu.value_of_key(key) };
    let instance = gpu.instances.iter().find(|known| known.gpu_instance == instance)?;
    match *key {
        "sm_active_percent" => Some(&instance.sm_active_percent),
        "tensor_active_percent" => Some(&instance.tensor_active_percent),
        "dram_active_percent" => Some(&instance.dram_active_percent),
        _ => None,
    }
}
