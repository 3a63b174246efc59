//! NCCL's functions for the simulated machine: a group becomes copies and sums that wait for all of its ranks.

#![expect(unsafe_code, reason = "C functions take pointers, and their names must not be mangled")]

use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
    sync::{Mutex, PoisonError},
};

use super::{
    cuda_machine::{FakeCudaMachine, StreamWork},
    remote_rank,
};

type RawNcclHandle = *mut c_void;

/// NCCL's codes.
const SYSTEM_ERROR: c_int = 2;
const INVALID_ARGUMENT: c_int = 4;

/// One call within a group.
#[derive(Clone, Copy)]
struct NcclCall {
    rank: usize,
    stream: u64,
    send: u64,
    receive: u64,
    count: usize,
    /// `f32` or `bf16`, and its size.
    element: (&'static str, usize),
    operation: NcclOperation,
}

#[derive(Clone, Copy, PartialEq)]
enum NcclOperation {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Send(usize),
    Receive(usize),
}

/// The calls of the group that is open.
static GROUP: Mutex<Vec<NcclCall>> = Mutex::new(Vec::new());

fn add_call(
    (send, receive, count): (u64, u64, usize),
    kind: c_int,
    operation: NcclOperation,
    (communicator, stream): (RawNcclHandle, RawNcclHandle),
) -> c_int {
    let element = match kind {
        7 => ("f32", 4),
        9 => ("bf16", 2),
        _ => return INVALID_ARGUMENT,
    };
    let stream = stream.addr() as u64;
    if let Some(number) = remote_rank::peer_number(communicator.addr()) {
        if operation != NcclOperation::AllReduce {
            return INVALID_ARGUMENT;
        }
        let bytes = count * element.1;
        let work = StreamWork::SumWithPeer { number, send, receive, bytes, element: element.0 };
        let queued = super::lock_machine().and_then(|mut machine| machine.push(stream, work));
        return if queued.is_ok() { 0 } else { INVALID_ARGUMENT };
    }
    let Some(rank) = communicator.addr().checked_sub(1) else { return INVALID_ARGUMENT };
    let call = NcclCall { rank, stream, send, receive, count, element, operation };
    GROUP.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    0
}

/// Queues the work of one call of a group, given all calls.
fn queue_call(
    machine: &mut FakeCudaMachine,
    call: &NcclCall,
    calls: &[NcclCall],
) -> Result<(), u32> {
    let bytes = call.count * call.element.1;
    let same_operation = || calls.iter().filter(|other| other.operation == call.operation);
    let mut copy = |to, from| machine.push(call.stream, StreamWork::Copy { to, from, bytes });
    match call.operation {
        NcclOperation::Send(_) => Ok(()),
        NcclOperation::Broadcast => {
            let root = same_operation().find(|other| other.rank == 0).ok_or(1_u32)?;
            copy(call.receive, root.send)
        }
        NcclOperation::AllGather => same_operation()
            .try_for_each(|other| copy(call.receive + (other.rank * bytes) as u64, other.send)),
        NcclOperation::Receive(peer) => {
            let is_matching_send = |other: &&NcclCall| {
                other.rank == peer && other.operation == NcclOperation::Send(call.rank)
            };
            let sender = calls.iter().find(is_matching_send).ok_or(1_u32)?;
            copy(call.receive, sender.send)
        }
        NcclOperation::AllReduce | NcclOperation::ReduceScatter => {
            let part = if call.operation == NcclOperation::AllReduce {
                0
            } else {
                (call.rank * bytes) as u64
            };
            let mut sources = same_operation().map(|other| other.send + part);
            copy(call.receive, sources.next().ok_or(1_u32)?)?;
            for source in sources {
                let name = format!("gaunt_add_{}", call.element.0);
                let arguments = vec![call.receive, call.receive, source, call.count as u64];
                machine.push(call.stream, StreamWork::Kernel { name, arguments })?;
            }
            Ok(())
        }
    }
}

// SAFETY of all names below: they are those of NCCL's header, which no other library of this process defines.

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(to: *mut c_int) -> c_int {
    // SAFETY: by NCCL's contract the pointer is valid for a number.
    unsafe { to.write(22_703) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    match code {
        SYSTEM_ERROR => c"unhandled system error".as_ptr(),
        _ => c"invalid argument".as_ptr(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitAll(
    to: *mut RawNcclHandle,
    count: c_int,
    _devices: *const c_int,
) -> c_int {
    for rank in 0..count as usize {
        // SAFETY: by NCCL's contract the list has `count` elements.
        unsafe { to.add(rank).write(ptr::without_provenance_mut(rank + 1)) };
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetUniqueId(to: *mut remote_rank::FakeNcclUniqueId) -> c_int {
    let Ok(key) = remote_rank::create_unique_id() else { return SYSTEM_ERROR };
    // SAFETY: by NCCL's contract the pointer is valid for a key.
    unsafe { to.write(key) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitRank(
    to: *mut RawNcclHandle,
    ranks: c_int,
    key: remote_rank::FakeNcclUniqueId,
    rank: c_int,
) -> c_int {
    if ranks != 2 || !(0..2).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let Ok(communicator) = remote_rank::join_peer(&key, rank == 0) else { return SYSTEM_ERROR };
    // SAFETY: by NCCL's contract the pointer is valid for a communicator.
    unsafe { to.write(ptr::without_provenance_mut(communicator)) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(_communicator: RawNcclHandle) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> c_int {
    GROUP.lock().unwrap_or_else(PoisonError::into_inner).clear();
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    let group = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(mut machine) = super::lock_machine() else { return SYSTEM_ERROR };
    let mut queue_group = || {
        let mut events = Vec::new();
        for call in &*group {
            events.push(machine.record_mark(call.stream)?);
        }
        for call in &*group {
            for event in &events {
                machine.wait_event(call.stream, *event)?;
            }
            queue_call(&mut machine, call, &group)?;
        }
        Ok::<_, u32>(())
    };
    if queue_group().is_ok() { 0 } else { INVALID_ARGUMENT }
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    send: u64,
    receive: u64,
    count: usize,
    kind: c_int,
    _sum: c_int,
    communicator: RawNcclHandle,
    stream: RawNcclHandle,
) -> c_int {
    add_call((send, receive, count), kind, NcclOperation::AllReduce, (communicator, stream))
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    send: u64,
    receive: u64,
    count: usize,
    kind: c_int,
    _sum: c_int,
    communicator: RawNcclHandle,
    stream: RawNcclHandle,
) -> c_int {
    add_call((send, receive, count), kind, NcclOperation::ReduceScatter, (communicator, stream))
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(
    send: u64,
    receive: u64,
    count: usize,
    kind: c_int,
    communicator: RawNcclHandle,
    stream: RawNcclHandle,
) -> c_int {
    add_call((send, receive, count), kind, NcclOperation::AllGather, (communicator, stream))
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    send: u64,
    receive: u64,
    count: usize,
    kind: c_int,
    _root: c_int,
    communicator: RawNcclHandle,
    stream: RawNcclHandle,
) -> c_int {
    add_call((send, receive, count), kind, NcclOperation::Broadcast, (communicator, stream))
}

#[unsafe(no_mangle)]
extern "C" fn ncclSend(
    send: u64,
    count: usize,
    kind: c_int,
    peer: c_int,
    communicator: RawNcclHandle,
    stream: RawNcclHandle,
) -> c_int {
    add_call((send, 0, count), kind, NcclOperation::Send(peer as usize), (communicator, stream))
}

#[unsafe(no_mangle)]
extern "C" fn ncclRecv(
    receive: u64,
    count: usize,
    kind: c_int,
    peer: c_int,
    communicator: RawNcclHandle,
    stream: RawNcclHandle,
) -> c_int {
    add_call(
        (0, receive, count),
        kind,
        NcclOperation::Receive(peer as usize),
        (communicator, stream),
    )
}
