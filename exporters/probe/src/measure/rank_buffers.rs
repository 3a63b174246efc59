//! The buffers, streams and events with which one rank sends, receives and is verified.

use crate::{
    collective_plan::ExpectedSum,
    cuda::{
        CudaError,
        cuda_ffi::{CudaHandle, KernelArgument},
        gpu_context::ProbeGpu,
        kernel_set::{ElementType, MOVE},
    },
    measure::{GUARD, POISON},
};

/// Bytes of a check's report on the GPU: the number of wrong elements, and the complement of the first one's position.
const WRONG: usize = 16;

/// Bytes of a check's report in pinned memory: that of the GPU, and the guard after the buffer.
pub(super) const REPORT: usize = WRONG + GUARD;

/// One rank's buffers, streams and events on its GPU.
pub(super) struct RankBuffers {
    /// Its GPU, by position.
    pub(super) gpu: usize,
    pub(super) send: u64,
    pub(super) receive: u64,
    /// Bytes of the receive buffer, without the guard.
    receive_bytes: usize,
    /// The number of ranks that share the GPU, and its limit on blocks.
    block_divisor: u32,
    /// For each stream, the buffer of pieces that are copied through the host.
    pub(super) bounce: Vec<u64>,
    pub(super) streams: Vec<CudaHandle>,
    pub(super) ready: CudaHandle,
    pub(super) begin: CudaHandle,
    pub(super) end: CudaHandle,
    pub(super) checked: CudaHandle,
    device_report: u64,
    /// Pinned memory for the report.
    pinned_report: u64,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DataCheckResult {
    /// Wrong elements.
    pub(super) wrong: u64,
    /// The position of the first of them.
    pub(super) first: u64,
    /// Whether the guard after the buffer was written.
    pub(super) past_end: bool,
}

/// Bytes of a receive buffer with its guard.
pub(super) fn guarded_size(bytes: usize) -> usize {
    bytes.next_multiple_of(16) + GUARD
}

impl RankBuffers {
    /// Allocates for a rank that is one of `share` on its GPU: `send` and `receive` bytes, and `bounce` for each of
    /// its `channels`.
    pub(super) fn allocate_buffers(
        gpu: &mut ProbeGpu,
        position: usize,
        (send, receive, bounce): (usize, usize, usize),
        (channels, share): (usize, u32),
    ) -> Result<Self, CudaError> {
        let streams = (0..channels).map(|_| gpu.create_stream()).collect::<Result<_, _>>()?;
        let bounces = if bounce > 0 { channels } else { 0 };
        Ok(Self {
            gpu: position,
            send: gpu.allocate_device(send)?,
            receive: gpu.allocate_device(guarded_size(receive))?,
            receive_bytes: receive,
            block_divisor: share,
            bounce: (0..bounces).map(|_| gpu.allocate_device(bounce)).collect::<Result<_, _>>()?,
            streams,
            ready: gpu.create_event(false)?,
            begin: gpu.create_event(true)?,
            end: gpu.create_event(true)?,
            checked: gpu.create_event(false)?,
            device_report: gpu.allocate_device(WRONG)?,
            pinned_report: gpu.allocate_host(REPORT)?,
        })
    }

    /// Queues the fill of the send buffer and the poisoning of the receive buffer, and records `ready`.
    pub(super) fn queue_fill(
        &self,
        gpu: &ProbeGpu,
        element: ElementType,
        (rank, elements, base): (usize, usize, usize),
        round: u32,
    ) -> Result<(), CudaError> {
        let stream = self.streams[0];
        let arguments = [
            KernelArgument::Long(self.send),
            KernelArgument::Long(elements as u64),
            KernelArgument::Long(base as u64),
            KernelArgument::Word(rank as u32),
            KernelArgument::Word(round),
        ];
        gpu.launch_kernel(
            element.kernel_set().pattern,
            (elements, self.block_divisor),
            stream,
            &arguments,
        )?;
        gpu.fill_bytes(self.receive, POISON, guarded_size(self.receive_bytes), stream)?;
        gpu.fill_bytes(self.device_report, 0, WRONG, stream)?;
        gpu.record_event(self.ready, stream)
    }

    /// Queues the check of the received data, and the copy of its report to the host.
    pub(super) fn queue_check<'a>(
        &self,
        gpu: &ProbeGpu,
        element: ElementType,
        sums: impl Iterator<Item = &'a ExpectedSum>,
        round: u32,
    ) -> Result<(), CudaError> {
        let stream = self.streams[0];
        for sum in sums {
            let arguments = [
                KernelArgument::Long(self.receive + (sum.at * element.byte_size()) as u64),
                KernelArgument::Long(sum.elements as u64),
                KernelArgument::Long(sum.base as u64),
                KernelArgument::Long(sum.at as u64),
                KernelArgument::Word(sum.first as u32),
                KernelArgument::Word(sum.ranks as u32),
                KernelArgument::Word(round),
                KernelArgument::Long(self.device_report),
            ];
            gpu.launch_kernel(
                element.kernel_set().check,
                (sum.elements, self.block_divisor),
                stream,
                &arguments,
            )?;
        }
        gpu.copy_memory(self.pinned_report, self.device_report, WRONG, stream)?;
        let guard = self.receive + self.receive_bytes.next_multiple_of(16) as u64;
        gpu.copy_memory(self.pinned_report + WRONG as u64, guard, GUARD, stream)?;
        gpu.record_event(self.checked, stream)
    }

    /// The report, once `checked` is reached.
    pub(super) fn read_check(&self, gpu: &ProbeGpu) -> DataCheckResult {
        let word = |offset: usize| gpu.read_pinned(self.pinned_report, offset).unwrap_or_default();
        let long = |offset: usize| u64::from(word(offset)) | u64::from(word(offset + 4)) << 32;
        let wrong = long(0);
        let first = if wrong > 0 { !long(8) } else { 0 };
        let past_end = (WRONG..REPORT).step_by(4).any(|offset| word(offset) != POISON);
        DataCheckResult { wrong, first, past_end }
    }

    /// Queues a copy by a kernel of `gpu` that uses a share of its blocks.
    pub(super) fn queue_copy(
        gpu: &ProbeGpu,
        (to, from, bytes): (u64, u64, usize),
        share: u32,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        let arguments = [
            KernelArgument::Long(to),
            KernelArgument::Long(from),
            KernelArgument::Long(bytes as u64),
        ];
        gpu.launch_kernel(MOVE, (bytes.div_ceil(16), share), stream, &arguments)
    }
}
