//! Calls NVML's functions as a C program does, with memory of exactly the size that they may write. Miri runs these tests:
//! `tests/fuzz/sanitize`.

#![expect(unsafe_code, reason = "C functions take pointers")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void},
    ptr,
};

use crate::driver_state::{
    INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, TIMEOUT, VERSION_MISMATCH,
};

type Device = *mut c_void;

// SAFETY: the functions are those of NVML's header; structures are words of the size that it declares.
unsafe extern "C" {
    safe fn nvmlInit_v2() -> c_uint;
    safe fn nvmlShutdown() -> c_uint;
    safe fn nvmlErrorString(code: c_uint) -> *const c_char;
    fn nvmlSystemGetDriverVersion(to: *mut c_char, length: c_uint) -> c_uint;
    fn nvmlDeviceGetCount_v2(to: *mut c_uint) -> c_uint;
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, to: *mut Device) -> c_uint;
    fn nvmlDeviceGetUUID(device: Device, to: *mut c_char, length: c_uint) -> c_uint;
    fn nvmlDeviceGetPciInfo_v3(device: Device, to: *mut [u32; 17]) -> c_uint;
    fn nvmlDeviceGetUtilizationRates(device: Device, to: *mut [u32; 2]) -> c_uint;
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, to: *mut MemoryInfo) -> c_uint;
    fn nvmlDeviceGetBAR1MemoryInfo(device: Device, to: *mut [u64; 3]) -> c_uint;
    fn nvmlDeviceGetPowerUsage(device: Device, to: *mut c_uint) -> c_uint;
    fn nvmlDeviceGetTotalEnergyConsumption(device: Device, to: *mut c_ulonglong) -> c_uint;
    fn nvmlDeviceGetClockInfo(device: Device, clock: c_uint, to: *mut c_uint) -> c_uint;
    fn nvmlDeviceGetEncoderUtilization(
        device: Device,
        to: *mut c_uint,
        window: *mut c_uint,
    ) -> c_uint;
    fn nvmlDeviceGetMarginTemperature(device: Device, to: *mut [u32; 2]) -> c_uint;
    fn nvmlDeviceGetGpuFabricInfoV(device: Device, to: *mut c_void) -> c_uint;
    fn nvmlDeviceGetFieldValues(device: Device, count: c_int, fields: *mut FieldValue) -> c_uint;
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: Device,
        count: *mut c_uint,
        to: *mut ProcessInfo,
    ) -> c_uint;
    fn nvmlDeviceGetProcessUtilization(
        device: Device,
        to: *mut ProcessSample,
        count: *mut c_uint,
        last_seen: c_ulonglong,
    ) -> c_uint;
    fn nvmlDeviceGetNvLinkState(device: Device, link: c_uint, to: *mut c_uint) -> c_uint;
    fn nvmlDeviceGetNvLinkErrorCounter(
        device: Device,
        link: c_uint,
        kind: c_uint,
        to: *mut c_ulonglong,
    ) -> c_uint;
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
        device: Device,
        link: c_uint,
        to: *mut [u32; 17],
    ) -> c_uint;
    fn nvmlDeviceGetMigMode(device: Device, now: *mut c_uint, pending: *mut c_uint) -> c_uint;
    fn nvmlDeviceGetMigDeviceHandleByIndex(
        device: Device,
        index: c_uint,
        to: *mut Device,
    ) -> c_uint;
    fn nvmlDeviceGetGpuInstanceId(device: Device, to: *mut c_uint) -> c_uint;
    fn nvmlGpmSampleAlloc(to: *mut *mut c_void) -> c_uint;
    fn nvmlGpmSampleGet(device: Device, to: *mut c_void) -> c_uint;
    fn nvmlGpmMigSampleGet(device: Device, instance: c_uint, to: *mut c_void) -> c_uint;
    fn nvmlGpmMetricsGet(query: *mut GpmQuery) -> c_uint;
    fn nvmlGpmSampleFree(sample: *mut c_void) -> c_uint;
    fn nvmlEventSetCreate(to: *mut *mut c_void) -> c_uint;
    fn nvmlDeviceRegisterEvents(device: Device, kinds: c_ulonglong, set: *mut c_void) -> c_uint;
    fn nvmlEventSetWait_v2(set: *mut c_void, to: *mut EventData, millis: c_uint) -> c_uint;
    fn nvmlEventSetFree(set: *mut c_void) -> c_uint;
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MemoryInfo {
    version: u32,
    bytes: [u64; 4],
}

/// `nvmlGpuFabricInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FabricInfo {
    version: u32,
    cluster: [u8; 16],
    numbers: [u32; 2],
    state: u8,
    health: u32,
}

/// `nvmlGpuFabricInfo_v3_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct NewerFabricInfo {
    older: FabricInfo,
    summary: u8,
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: u32,
    memory: u64,
    instances: [u32; 2],
}

/// `nvmlProcessUtilizationSample_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessSample {
    pid: u32,
    time: u64,
    percent: [u32; 4],
}

/// `nvmlFieldValue_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FieldValue {
    id: u32,
    scope: u32,
    times: [i64; 2],
    kind: u32,
    answer: u32,
    value: u64,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct GpmMetric {
    id: u32,
    answer: u32,
    value: f64,
    names: [*mut c_char; 3],
}

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
struct GpmQuery {
    version: u32,
    count: u32,
    samples: [*mut c_void; 2],
    metrics: [GpmMetric; 210],
}

/// `nvmlEventData_t`.
#[repr(C)]
struct EventData {
    device: Device,
    numbers: [u64; 2],
    instances: [u32; 2],
}

/// The version word of a structure.
fn struct_version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// The first GPU of the driver, which this starts.
fn start_driver() -> Device {
    crate::driver_state::use_called_scenario();
    let mut device = ptr::null_mut();
    assert_eq!(nvmlInit_v2(), 0);
    // SAFETY: the pointer is valid for a handle.
    assert_eq!(unsafe { nvmlDeviceGetHandleByIndex_v2(0, &raw mut device) }, 0);
    device
}

/// What a call writes to a value that it gets a pointer to.
fn ask<T>(mut value: T, call: impl FnOnce(*mut T) -> c_uint) -> Result<T, u32> {
    match call(&raw mut value) {
        0 => Ok(value),
        code => Err(code),
    }
}

/// The text that a call writes to a buffer of so many bytes.
fn ask_text(
    length: usize,
    call: impl FnOnce(*mut c_char, c_uint) -> c_uint,
) -> Result<String, u32> {
    let mut text = vec![0x7f_u8; length];
    match call(text.as_mut_ptr().cast(), length as c_uint) {
        0 => Ok(CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()),
        code => Err(code),
    }
}

#[test]
fn numbers_and_texts_are_written_where_the_caller_wants_them() {
    let device = start_driver();
    // SAFETY: each pointer is valid for what its function writes.
    unsafe {
        assert_eq!(ask(0, |to| nvmlDeviceGetCount_v2(to)), Ok(2));
        assert_eq!(
            ask_text(16, |to, length| nvmlSystemGetDriverVersion(to, length)).as_deref(),
            Ok("570.124.06")
        );
        let uuid = |length| ask_text(length, |to, length| nvmlDeviceGetUUID(device, to, length));
        assert_eq!(uuid(6).as_deref(), Ok("GPU-0"));
        assert_eq!(uuid(5), Err(INSUFFICIENT_SIZE));
        assert_eq!(nvmlDeviceGetUUID(device, ptr::null_mut(), 96), INVALID_ARGUMENT);
        assert_eq!(nvmlDeviceGetUUID(ptr::null_mut(), ptr::null_mut(), 96), INVALID_ARGUMENT);
        let location = ask([u32::MAX; 17], |to| nvmlDeviceGetPciInfo_v3(device, to)).unwrap();
        assert_eq!(location[9].to_ne_bytes(), *b"0000");
        assert_eq!(ask([0; 2], |to| nvmlDeviceGetUtilizationRates(device, to)), Ok([90, 40]));
        let memory =
            ask(MemoryInfo::default(), |to| nvmlDeviceGetMemoryInfo_v2(device, to)).unwrap();
        assert_eq!((memory.bytes[0], memory.bytes[3]), (80 << 30, 60 << 30));
        let bar = ask([0; 3], |to| nvmlDeviceGetBAR1MemoryInfo(device, to)).unwrap();
        assert_eq!(bar, [128 << 30, (128 << 30) - 3_145_728, 3_145_728]);
        assert_eq!(ask(0, |to| nvmlDeviceGetPowerUsage(device, to)), Ok(612_301));
        assert_eq!(
            ask(0, |to| nvmlDeviceGetTotalEnergyConsumption(device, to)),
            Ok(9_876_543_210_000)
        );
        assert_eq!(ask(0, |to| nvmlDeviceGetClockInfo(device, 1, to)), Ok(1_980));
        assert_eq!(ask(0, |to| nvmlDeviceGetClockInfo(device, 2, to)), Err(NOT_SUPPORTED));
        let mut window = 0;
        let encoder = ask(0, |to| nvmlDeviceGetEncoderUtilization(device, to, &raw mut window));
        assert_eq!((encoder, window), (Ok(5), 1_000_000));
        assert!(!CStr::from_ptr(nvmlErrorString(9)).is_empty());
    }
    assert_eq!(nvmlShutdown(), 0);
}

#[test]
fn structures_of_each_version_are_filled_to_their_end() {
    let device = start_driver();
    // SAFETY: each pointer is valid for the structure of the version that is in its first word.
    unsafe {
        let margin = |version| ask([version, 0], |to| nvmlDeviceGetMarginTemperature(device, to));
        assert_eq!(margin(8 | 1 << 24), Ok([8 | 1 << 24, 20]));
        assert_eq!(margin(8 | 2 << 24), Err(VERSION_MISMATCH));
        // The older structure is shorter.
        let mut older =
            FabricInfo { version: struct_version::<FabricInfo>(2), ..FabricInfo::default() };
        assert_eq!(nvmlDeviceGetGpuFabricInfoV(device, (&raw mut older).cast()), 0);
        let FabricInfo { cluster, numbers, state, health, .. } = older;
        assert_eq!((cluster[1], numbers, state, health), (0x11, [0, 7], 3, 426));
        let older =
            FabricInfo { version: struct_version::<NewerFabricInfo>(3), ..FabricInfo::default() };
        let mut newer = NewerFabricInfo { older, summary: 0 };
        assert_eq!(nvmlDeviceGetGpuFabricInfoV(device, (&raw mut newer).cast()), 0);
        assert_eq!((newer.older.health, newer.summary), (426, 1));
        let mut fields = [3, 91, 5].map(|id| FieldValue { id, ..FieldValue::default() });
        assert_eq!(nvmlDeviceGetFieldValues(device, 3, fields.as_mut_ptr()), 0);
        let answers = fields.map(|field| (field.answer, field.value));
        assert_eq!(answers, [(0, 100), (0, 1), (NOT_SUPPORTED, 0)]);
        assert_eq!(nvmlDeviceGetFieldValues(device, 3, ptr::null_mut()), INVALID_ARGUMENT);
    }
}

#[test]
fn lists_are_as_long_as_the_caller_says() {
    let device = start_driver();
    // SAFETY: each list has as many elements as its count says.
    unsafe {
        let mut processes = [ProcessInfo::default(); 2];
        let mut list = |mut count| {
            let to = processes.as_mut_ptr();
            nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, to)
        };
        assert_eq!(list(0), INSUFFICIENT_SIZE);
        // The second is this process, if another test has a context.
        assert_eq!(list(2), 0);
        assert_eq!((processes[0].pid, processes[0].memory), (4_242, 1 << 30));
        let mut link = [0; 17];
        assert_eq!(nvmlDeviceGetNvLinkRemotePciInfo_v2(device, 0, &raw mut link), 0);
        assert_eq!(ask(0, |to| nvmlDeviceGetNvLinkState(device, 0, to)), Ok(1));
        assert_eq!(ask(0, |to| nvmlDeviceGetNvLinkState(device, 1, to)), Err(INVALID_ARGUMENT));
        assert_eq!(ask(0, |to| nvmlDeviceGetNvLinkErrorCounter(device, 0, 0, to)), Ok(3));
        let mut pending = 0;
        let mode = ask(0, |to| nvmlDeviceGetMigMode(device, to, &raw mut pending));
        assert_eq!((mode, pending), (Ok(1), 1));
        let instance = |index| {
            ask(ptr::null_mut(), |to| nvmlDeviceGetMigDeviceHandleByIndex(device, index, to))
        };
        let mig = instance(0).unwrap();
        assert_eq!(instance(1), Err(NOT_FOUND));
        assert_eq!(ask(0, |to| nvmlDeviceGetGpuInstanceId(mig, to)), Ok(9));
        assert_eq!(ask(0, |to| nvmlDeviceGetGpuInstanceId(device, to)), Err(NOT_SUPPORTED));
    }
}

#[test]
fn samples_and_event_sets_are_freed_once() {
    let device = start_driver();
    // SAFETY: samples and the set come from their functions and are freed at the end.
    unsafe {
        let sample = || ask(ptr::null_mut(), |to| nvmlGpmSampleAlloc(to)).unwrap();
        let samples = [sample(), sample()];
        let names = [ptr::null_mut(); 3];
        let mut metrics = [GpmMetric { id: 2, answer: 0, value: 0.0, names }; 210];
        metrics[1].id = 9;
        let mut query = GpmQuery { version: 1, count: 2, samples, metrics };
        for (instance, expected) in [(None, 60.0), (Some(9), 30.0)] {
            for sample in samples {
                let code = match instance {
                    None => nvmlGpmSampleGet(device, sample),
                    Some(instance) => nvmlGpmMigSampleGet(device, instance, sample),
                };
                assert_eq!(code, 0);
            }
            assert_eq!(nvmlGpmMetricsGet(&raw mut query), 0);
            let answers =
                [0, 1].map(|slot| (query.metrics[slot].answer, query.metrics[slot].value));
            assert_eq!(answers, [(0, expected), (NOT_SUPPORTED, 0.0)]);
        }
        assert_eq!(samples.map(|sample| nvmlGpmSampleFree(sample)), [0, 0]);
        assert_eq!(nvmlGpmSampleFree(ptr::null_mut()), INVALID_ARGUMENT);

        let set = ask(ptr::null_mut(), |to| nvmlEventSetCreate(to)).unwrap();
        assert_eq!(nvmlDeviceRegisterEvents(device, 8, set), 0);
        let event = EventData { device: ptr::null_mut(), numbers: [0; 2], instances: [0; 2] };
        let event = ask(event, |to| nvmlEventSetWait_v2(set, to, 0)).unwrap();
        assert_eq!((event.device, event.numbers), (device, [8, 79]));
        assert_eq!(ask(event, |to| nvmlEventSetWait_v2(set, to, 1)).err(), Some(TIMEOUT));
        // The driver is a millisecond old, so that there is a sample since its start.
        let (mut sample, mut count) = (ProcessSample::default(), 1);
        let to = &raw mut sample;
        assert_eq!(nvmlDeviceGetProcessUtilization(device, to, &raw mut count, 0), 0);
        assert_eq!((count, sample.pid, sample.percent[0]), (1, 4_242, 80));
        assert_eq!(nvmlEventSetFree(set), 0);
    }
}
