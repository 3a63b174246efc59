//! NVML FFI bindings: functions that the wrapper crate lacks, or whose calls it hides.

#![expect(unsafe_code, reason = "NVML is a C library that is loaded at run time")]

use std::{mem, ptr};

use nvml_wrapper::{
    Device, Nvml,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlGpmMetricsGet_t,
    nvmlGpmSample_t, nvmlGpmSupport_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t,
    nvmlMarginTemperature_v1_t,
};

/// The version of the structures of GPM.
const GPM_VERSION: u32 = 1;

/// The most metrics of one GPM query: the length of its C array.
pub(super) const MAX_GPM: usize = 210;

/// The return code for a structure version that the driver does not know.
const VERSION_MISMATCH: u32 = 25;

/// The state of a fabric registration that ended, with or without an error.
const FABRIC_COMPLETED: u8 = 3;

/// The state of one that ended with an error, as DCGM numbers it.
const FABRIC_FAILED: u32 = 4;

/// The event that an XID raises.
const XID_EVENT: u64 = 8;

/// The driver's handle of a GPU, valid while the driver is initialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NvmlDeviceHandle(nvmlDevice_t);

/// A buffer of GPM counters, to be freed by [`NvmlFunctions::free_sample`].
#[derive(Debug)]
pub(super) struct GpmSample(nvmlGpmSample_t);

/// A set of events to wait for.
#[derive(Debug)]
pub(super) struct NvmlEventSet(nvmlEventSet_t);

/// A query for one field of a GPU, and its result.
#[derive(Debug)]
pub(super) struct NvmlFieldQuery {
    /// The field's number.
    pub(super) id: u32,
    /// The scope: a link's number, or zero.
    pub(super) scope: u32,
    /// The value, if one was given.
    pub(super) value: Result<f64, NvmlError>,
}

/// The position of a GPU in the NVLink fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GpuFabricInfo {
    /// The NVLink domain.
    pub(super) cluster: [u8; 16],
    /// The clique in it: GPUs of one clique reach each other.
    pub(super) clique: u32,
    /// The progress of the fabric registration; [`FABRIC_FAILED`] if it ended with an error.
    pub(super) state: u32,
    /// The health of its links and routes as bit fields; none if the GPU supports none of them.
    pub(super) health_mask: Option<u32>,
    /// The summary of that health; none if the GPU or the driver does not support it.
    pub(super) health_summary: Option<u32>,
}

/// NVML's functions.
#[derive(Clone, Copy)]
pub(super) struct NvmlFunctions<'a> {
    nvml: &'a Nvml,
    lib: &'a NvmlLib,
}

/// Calls a function of the library if it exists.
macro_rules! call {
    ($door:expr, $function:ident($($argument:expr),*)) => {{
        let function = nvml_sym($door.lib.$function.as_ref())?;
        // SAFETY: the function has NVML's signature, and each pointer leads to memory that outlives the call and is as
        // large as the function expects: the arguments are made beside the call, as bindgen typed them.
        nvml_try(unsafe { function($($argument),*) })
    }};
}

impl<'a> NvmlFunctions<'a> {
    pub(super) fn new(nvml: &'a Nvml) -> Self {
        Self { nvml, lib: nvml.lib() }
    }

    /// The handle of a GPU.
    pub(super) fn device_handle(device: &Device<'_>) -> NvmlDeviceHandle {
        // SAFETY: the handle is only given back to the same library while it is initialised.
        NvmlDeviceHandle(unsafe { device.handle() })
    }

    /// The GPU of a handle, with the wrapper's safe calls.
    pub(super) fn device_of_handle(&self, handle: NvmlDeviceHandle) -> Device<'a> {
        // SAFETY: handles come from `device_handle`, and so from this library, which stays initialised while it is
        // borrowed.
        unsafe { Device::new(handle.0, self.nvml) }
    }

    /// Queries many fields at once. The returned error is that of the call; each field has its own result.
    pub(super) fn query_fields(
        self,
        device: NvmlDeviceHandle,
        queries: &mut [NvmlFieldQuery],
    ) -> Result<(), NvmlError> {
        let mut values: Vec<nvmlFieldValue_t> = queries.iter().map(encode_query).collect();
        let count = values.len() as i32;
        call!(self, nvmlDeviceGetFieldValues(device.0, count, values.as_mut_ptr()))?;
        // By position: newer drivers renumbered some fields and answer with their own number.
        for (field, answer) in queries.iter_mut().zip(&values) {
            field.value = nvml_try(answer.nvmlReturn).and_then(|()| decode_field_value(answer));
        }
        Ok(())
    }

    /// Whether the GPU supports GPM.
    pub(super) fn query_gpm_support(self, device: NvmlDeviceHandle) -> Result<bool, NvmlError> {
        let mut support = nvmlGpmSupport_t { version: GPM_VERSION, isSupportedDevice: 0 };
        call!(self, nvmlGpmQueryDeviceSupport(device.0, &raw mut support))?;
        Ok(support.isSupportedDevice != 0)
    }

    pub(super) fn allocate_sample(self) -> Result<GpmSample, NvmlError> {
        let mut buffer = GpmSample(ptr::null_mut());
        call!(self, nvmlGpmSampleAlloc(&raw mut buffer.0))?;
        Ok(buffer)
    }

    #[expect(clippy::needless_pass_by_value, reason = "the handle is invalid after the call")]
    pub(super) fn free_sample(self, buffer: GpmSample) -> Result<(), NvmlError> {
        call!(self, nvmlGpmSampleFree(buffer.0))
    }

    /// Samples the counters of a GPU, or of one of its instances, into a buffer.
    pub(super) fn take_sample(
        self,
        device: NvmlDeviceHandle,
        instance: Option<u32>,
        sample: &mut GpmSample,
    ) -> Result<(), NvmlError> {
        match instance {
            None => call!(self, nvmlGpmSampleGet(device.0, sample.0)),
            Some(instance) => call!(self, nvmlGpmMigSampleGet(device.0, instance, sample.0)),
        }
    }

    /// The difference of two samples: a value for each metric number.
    pub(super) fn query_gpm_metrics(
        self,
        (from, to): (&GpmSample, &GpmSample),
        metrics: &[u32],
    ) -> Result<Vec<Result<f64, NvmlError>>, NvmlError> {
        // SAFETY: the structure is numbers and pointers, for all of which zero is a value.
        let mut query: Box<nvmlGpmMetricsGet_t> = Box::new(unsafe { mem::zeroed() });
        let metrics = &metrics[..metrics.len().min(MAX_GPM)];
        (query.version, query.numMetrics) = (GPM_VERSION, metrics.len() as u32);
        (query.sample1, query.sample2) = (from.0, to.0);
        for (slot, metric) in query.metrics.iter_mut().zip(metrics) {
            slot.metricId = *metric;
        }
        call!(self, nvmlGpmMetricsGet(&raw mut *query))?;
        let answers = query.metrics.iter().take(metrics.len());
        Ok(answers.map(|answer| nvml_try(answer.nvmlReturn).map(|()| answer.value)).collect())
    }

    pub(super) fn create_event_set(self) -> Result<NvmlEventSet, NvmlError> {
        let mut events = NvmlEventSet(ptr::null_mut());
        call!(self, nvmlEventSetCreate(&raw mut events.0))?;
        Ok(events)
    }

    /// Adds a GPU's XIDs to an event set.
    pub(super) fn register_events(
        self,
        device: NvmlDeviceHandle,
        events: &NvmlEventSet,
    ) -> Result<(), NvmlError> {
        call!(self, nvmlDeviceRegisterEvents(device.0, XID_EVENT, events.0))
    }

    /// Waits for an XID; returns its GPU and code. A timeout is an error like others.
    pub(super) fn wait_for_event(
        self,
        events: &NvmlEventSet,
        millis: u32,
    ) -> Result<(NvmlDeviceHandle, u32), NvmlError> {
        // SAFETY: the structure is numbers and a pointer, for all of which zero is a value.
        let mut event: nvmlEventData_t = unsafe { mem::zeroed() };
        call!(self, nvmlEventSetWait_v2(events.0, &raw mut event, millis))?;
        Ok((NvmlDeviceHandle(event.device), event.eventData as u32))
    }

    #[expect(clippy::needless_pass_by_value, reason = "the handle is invalid after the call")]
    pub(super) fn free_event_set(self, events: NvmlEventSet) -> Result<(), NvmlError> {
        call!(self, nvmlEventSetFree(events.0))
    }

    /// The position in the NVLink fabric. If the driver does not know the newest structure, the older one is used.
    pub(super) fn query_fabric(self, device: NvmlDeviceHandle) -> Result<GpuFabricInfo, NvmlError> {
        // SAFETY: the structure is numbers, for all of which zero is a value.
        let mut info: nvmlGpuFabricInfo_v3_t = unsafe { mem::zeroed() };
        info.version = struct_version(size_of::<nvmlGpuFabricInfo_v3_t>(), 3);
        let result = call!(self, nvmlDeviceGetGpuFabricInfoV(device.0, &raw mut info));
        let is_older = matches!(result, Err(NvmlError::UnexpectedVariant(VERSION_MISMATCH)));
        if is_older {
            // The older structure is a prefix of the newer one.
            info.version = struct_version(size_of::<nvmlGpuFabricInfo_v2_t>(), 2);
            call!(self, nvmlDeviceGetGpuFabricInfoV(device.0, &raw mut info))?;
        } else {
            result?;
        }
        // The error of the registration is valid only once that has ended.
        let has_failed = info.state == FABRIC_COMPLETED && info.status != 0;
        Ok(GpuFabricInfo {
            cluster: info.clusterUuid,
            clique: info.cliqueId,
            state: if has_failed { FABRIC_FAILED } else { info.state.into() },
            health_mask: Some(info.healthMask).filter(|mask| *mask != 0),
            health_summary: Some(info.healthSummary.into())
                .filter(|summary| *summary != 0 && !is_older),
        })
    }

    /// Per cent of the driver's window in which the JPEG engine was busy.
    pub(super) fn query_jpeg_utilization(self, device: NvmlDeviceHandle) -> Result<u32, NvmlError> {
        let (mut percent, mut window) = (0, 0);
        call!(self, nvmlDeviceGetJpgUtilization(device.0, &raw mut percent, &raw mut window))?;
        Ok(percent)
    }

    /// Per cent of the driver's window in which the optical-flow engine was busy.
    pub(super) fn query_ofa_utilization(self, device: NvmlDeviceHandle) -> Result<u32, NvmlError> {
        let (mut percent, mut window) = (0, 0);
        call!(self, nvmlDeviceGetOfaUtilization(device.0, &raw mut percent, &raw mut window))?;
        Ok(percent)
    }

    /// The temperature margin in degrees before the clocks are slowed.
    pub(super) fn query_temperature_margin(
        self,
        device: NvmlDeviceHandle,
    ) -> Result<i32, NvmlError> {
        let size = size_of::<nvmlMarginTemperature_v1_t>();
        let mut margin =
            nvmlMarginTemperature_v1_t { version: struct_version(size, 1), marginTemperature: 0 };
        call!(self, nvmlDeviceGetMarginTemperature(device.0, &raw mut margin))?;
        Ok(margin.marginTemperature)
    }

    /// The GPU instance that a MIG device is.
    pub(super) fn query_gpu_instance(self, device: NvmlDeviceHandle) -> Result<u32, NvmlError> {
        let mut id = 0;
        call!(self, nvmlDeviceGetGpuInstanceId(device.0, &raw mut id))?;
        Ok(id)
    }

    /// The compute instance that a MIG device is.
    pub(super) fn query_compute_instance(self, device: NvmlDeviceHandle) -> Result<u32, NvmlError> {
        let mut id = 0;
        call!(self, nvmlDeviceGetComputeInstanceId(device.0, &raw mut id))?;
        Ok(id)
    }
}

/// The version word of a structure for the driver.
const fn struct_version(size: usize, number: u32) -> u32 {
    size as u32 | number << 24
}

fn encode_query(field: &NvmlFieldQuery) -> nvmlFieldValue_t {
    // SAFETY: the structure is numbers, for all of which zero is a value.
    let mut value: nvmlFieldValue_t = unsafe { mem::zeroed() };
    (value.fieldId, value.scopeId) = (field.id, field.scope);
    value
}

/// The number in a field's result, by the type in the result.
fn decode_field_value(answer: &nvmlFieldValue_t) -> Result<f64, NvmlError> {
    let value = &answer.value;
    // SAFETY: every member of the union is a number, for which all bits are values, and the driver zeroed or wrote it
    // whole; the type says which member it wrote.
    unsafe {
        Ok(match answer.valueType {
            0 => value.dVal,
            1 => f64::from(value.uiVal),
            2 | 3 => value.ullVal as f64,
            4 => value.sllVal as f64,
            5 => f64::from(value.siVal),
            6 => f64::from(value.usVal),
            _ => return Err(NvmlError::UnexpectedVariant(answer.valueType)),
        })
    }
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings::nvmlValue_t;

    use super::*;

    /// The driver may write one member of the union only; the rest is what the query had there.
    #[test]
    fn each_type_of_a_field_is_read_from_its_member() {
        let read = |kind, write: fn(&mut nvmlValue_t)| {
            let query = NvmlFieldQuery { id: 3, scope: 1, value: Ok(0.0) };
            let mut answer = nvmlFieldValue_t { valueType: kind, ..encode_query(&query) };
            assert_eq!((answer.fieldId, answer.scopeId), (3, 1));
            write(&mut answer.value);
            decode_field_value(&answer).ok()
        };
        assert_eq!(read(0, |value| value.dVal = -2.5), Some(-2.5));
        assert_eq!(read(1, |value| value.uiVal = u32::MAX), Some(f64::from(u32::MAX)));
        assert_eq!(read(2, |value| value.ulVal = 7), Some(7.0));
        assert_eq!(read(3, |value| value.ullVal = 1 << 40), Some((1_u64 << 40) as f64));
        assert_eq!(read(4, |value| value.sllVal = -9), Some(-9.0));
        assert_eq!(read(5, |value| value.siVal = -8), Some(-8.0));
        assert_eq!(read(6, |value| value.usVal = 65_535), Some(65_535.0));
        assert_eq!(read(7, |value| value.ullVal = 1), None);
    }
}
