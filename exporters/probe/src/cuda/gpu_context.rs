//! One GPU and the resources allocated on it: what is not freed individually is freed at the end.

use std::{ffi::CStr, rc::Rc};

use super::{
    CudaError,
    cuda_ffi::{CudaDriver, CudaHandle, KernelArgument},
    kernel_set::{self, ElementType, THREADS},
};

/// CUDA's numbers for attributes of a GPU.
const MULTIPROCESSORS: i32 = 16;
const CAPABILITY_MAJOR: i32 = 75;
const CAPABILITY_MINOR: i32 = 76;

/// A GPU that the driver lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedGpu {
    /// CUDA's handle.
    pub(crate) device: i32,
    /// Its name.
    pub(crate) model: String,
    /// Its PCI address, in lower case and with the short domain.
    pub(crate) bus_id: String,
    /// Its compute capability, major and minor in one number: 90 is sm_90.
    pub(crate) capability: i32,
    /// Its multiprocessors.
    pub(crate) multiprocessors: u32,
}

/// The GPUs that this process may use.
pub(crate) fn list_gpus(cuda: &CudaDriver) -> Result<Vec<ListedGpu>, CudaError> {
    let describe = |ordinal| {
        let device = cuda.device_at(ordinal)?;
        let major = cuda.device_attribute(device, CAPABILITY_MAJOR)?;
        Ok(ListedGpu {
            device,
            model: cuda.device_name(device)?,
            bus_id: short_bus_id(&cuda.device_bus_id(device)?),
            capability: major * 10 + cuda.device_attribute(device, CAPABILITY_MINOR)?,
            multiprocessors: cuda.device_attribute(device, MULTIPROCESSORS)? as u32,
        })
    };
    (0..cuda.device_count()?).map(describe).collect()
}

/// Normalises PCI addresses: the domain has eight digits in NVML and four in CUDA.
pub(crate) fn short_bus_id(bus_id: &str) -> String {
    let (domain, rest) = bus_id.split_once(':').unwrap_or(("0", bus_id));
    format!("{:0>4}:{rest}", domain.trim_start_matches('0')).to_lowercase()
}

/// A GPU with a context, its kernels, and its allocations.
pub(crate) struct ProbeGpu {
    cuda: Rc<CudaDriver>,
    /// The driver's description.
    pub(crate) listed: ListedGpu,
    /// Its NVML index, for display.
    pub(crate) index: u32,
    context: CudaHandle,
    /// The maximum blocks, hence SMs, of one of our kernels.
    blocks: u32,
    modules: Vec<CudaHandle>,
    streams: Vec<CudaHandle>,
    events: Vec<CudaHandle>,
    memory: Vec<u64>,
    pinned: Vec<(u64, usize)>,
    kernels: Vec<(&'static CStr, CudaHandle)>,
}

impl ProbeGpu {
    /// Retains a context, and loads the kernels.
    pub(crate) fn open_context(
        cuda: &Rc<CudaDriver>,
        listed: ListedGpu,
        index: u32,
        element: ElementType,
        most_sms: u32,
    ) -> Result<Self, CudaError> {
        let context = cuda.retain_context(listed.device)?;
        let mut gpu = Self {
            cuda: Rc::clone(cuda),
            blocks: most_sms.min(listed.multiprocessors).max(1),
            listed,
            index,
            context,
            modules: Vec::new(),
            streams: Vec::new(),
            events: Vec::new(),
            memory: Vec::new(),
            pinned: Vec::new(),
            kernels: Vec::new(),
        };
        let arithmetic = element.kernel_set();
        gpu.load_kernels(kernel_set::COPY, &[kernel_set::MOVE, kernel_set::GATE])?;
        gpu.load_kernels(arithmetic.ptx, &[arithmetic.add, arithmetic.pattern, arithmetic.check])?;
        Ok(gpu)
    }

    fn load_kernels(&mut self, ptx: &str, names: &[&'static CStr]) -> Result<(), CudaError> {
        self.set_current()?;
        let module = self.cuda.load_module(ptx)?;
        self.modules.push(module);
        for name in names {
            self.kernels.push((name, self.cuda.find_kernel(module, name)?));
        }
        Ok(())
    }

    /// Makes this GPU's context current for this thread.
    pub(crate) fn set_current(&self) -> Result<(), CudaError> {
        self.cuda.set_current_context(self.context)
    }

    /// Whether kernels here can access `peer`'s memory; enables it if possible.
    pub(crate) fn enable_peer_access(&self, peer: &Self) -> Result<bool, CudaError> {
        if self.listed.device == peer.listed.device {
            return Ok(true);
        }
        if !self.cuda.can_access(self.listed.device, peer.listed.device)? {
            return Ok(false);
        }
        self.set_current()?;
        self.cuda.enable_peer(peer.context)?;
        Ok(true)
    }

    /// Free bytes.
    pub(crate) fn free_bytes(&self) -> Result<usize, CudaError> {
        self.set_current()?;
        self.cuda.free_bytes()
    }

    /// Allocates GPU memory, freed on drop.
    pub(crate) fn allocate_device(&mut self, bytes: usize) -> Result<u64, CudaError> {
        self.set_current()?;
        let address = self.cuda.allocate_device(bytes.max(1))?;
        self.memory.push(address);
        Ok(address)
    }

    /// Allocates pinned host memory, freed on drop.
    pub(crate) fn allocate_host(&mut self, bytes: usize) -> Result<u64, CudaError> {
        self.set_current()?;
        let address = self.cuda.allocate_host(bytes)?;
        self.pinned.push((address, bytes));
        Ok(address)
    }

    /// Creates a stream, destroyed on drop.
    pub(crate) fn create_stream(&mut self) -> Result<CudaHandle, CudaError> {
        self.set_current()?;
        let stream = self.cuda.create_stream()?;
        self.streams.push(stream);
        Ok(stream)
    }

    /// Creates an event, destroyed on drop.
    pub(crate) fn create_event(&mut self, timed: bool) -> Result<CudaHandle, CudaError> {
        self.set_current()?;
        let event = self.cuda.create_event(timed)?;
        self.events.push(event);
        Ok(event)
    }

    /// Records an event on a stream of this GPU.
    pub(crate) fn record_event(
        &self,
        event: CudaHandle,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        self.set_current()?;
        self.cuda.record_event(event, stream)
    }

    /// Makes a stream of this GPU wait for an event of any GPU.
    pub(crate) fn wait_event(
        &self,
        stream: CudaHandle,
        event: CudaHandle,
    ) -> Result<(), CudaError> {
        self.set_current()?;
        self.cuda.wait_event(stream, event)
    }

    /// Whether an event of this GPU was reached.
    pub(crate) fn is_event_done(&self, event: CudaHandle) -> Result<bool, CudaError> {
        self.set_current()?;
        self.cuda.is_event_done(event)
    }

    /// Seconds between two events of this GPU.
    pub(crate) fn seconds_between(
        &self,
        from: CudaHandle,
        to: CudaHandle,
    ) -> Result<f64, CudaError> {
        self.set_current()?;
        self.cuda.seconds_between(from, to)
    }

    /// Fills memory with a word.
    pub(crate) fn fill_bytes(
        &self,
        to: u64,
        word: u32,
        bytes: usize,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        self.set_current()?;
        self.cuda.fill_words(to, word, bytes / 4, stream)
    }

    /// Copies with the driver, between the GPU and pinned memory or within one of them.
    pub(crate) fn copy_memory(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        self.set_current()?;
        self.cuda.copy_memory(to, from, bytes, stream)
    }

    /// Copies from another GPU to this one with the driver, which may go through the host.
    pub(crate) fn copy_from_peer(
        &self,
        to: u64,
        (peer, from): (&Self, u64),
        bytes: usize,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        self.set_current()?;
        self.cuda.copy_peer((to, self.context), (from, peer.context), bytes, stream)
    }

    /// Starts a kernel with as many blocks as the limit allows and the `items` need, and at most `share` of the limit.
    pub(crate) fn launch_kernel(
        &self,
        name: &'static CStr,
        (items, share): (usize, u32),
        stream: CudaHandle,
        arguments: &[KernelArgument],
    ) -> Result<(), CudaError> {
        let found = self.kernels.iter().find(|(loaded, _)| *loaded == name);
        let (_, kernel) = found.ok_or(CudaError::Symbol("kernel of this element"))?;
        self.set_current()?;
        let max_blocks = (self.blocks / share.max(1)).max(1);
        let needed = items.div_ceil(THREADS as usize).clamp(1, max_blocks as usize) as u32;
        self.cuda.launch_kernel(*kernel, (needed, THREADS), stream, arguments)
    }

    /// Starts the kernel that blocks a stream until the host opens the gate.
    pub(crate) fn launch_gate(
        &self,
        gate: u64,
        nanos: u64,
        stream: CudaHandle,
    ) -> Result<(), CudaError> {
        let found = self.kernels.iter().find(|(loaded, _)| *loaded == kernel_set::GATE);
        let (_, kernel) = found.ok_or(CudaError::Symbol("gate"))?;
        self.set_current()?;
        self.cuda.launch_kernel(
            *kernel,
            (1, 1),
            stream,
            &[KernelArgument::Long(gate), KernelArgument::Long(nanos)],
        )
    }

    /// The word at `offset`, a multiple of 4, of the pinned memory that begins at `pinned`.
    pub(crate) fn read_pinned(&self, pinned: u64, offset: usize) -> Option<u32> {
        self.pinned_address(pinned, offset).map(CudaDriver::read_pinned)
    }

    /// Writes the word at `offset`.
    pub(crate) fn write_pinned(&self, pinned: u64, offset: usize, word: u32) {
        if let Some(address) = self.pinned_address(pinned, offset) {
            CudaDriver::write_pinned(address, word);
        }
    }

    /// The address of a word, if it is in our pinned memory.
    fn pinned_address(&self, pinned: u64, offset: usize) -> Option<u64> {
        let (address, bytes) = self.pinned.iter().find(|(address, _)| *address == pinned)?;
        (offset.is_multiple_of(4) && offset + 4 <= *bytes).then_some(address + offset as u64)
    }
}

impl Drop for ProbeGpu {
    fn drop(&mut self) {
        // On a dead context each of these fails, and the end of the process frees everything.
        _ = self.set_current();
        for stream in self.streams.drain(..) {
            _ = self.cuda.destroy_stream(stream);
        }
        for event in self.events.drain(..) {
            _ = self.cuda.destroy_event(event);
        }
        for address in self.memory.drain(..) {
            _ = self.cuda.free_device(address);
        }
        for (address, _) in self.pinned.drain(..) {
            _ = self.cuda.free_host(address);
        }
        for module in self.modules.drain(..) {
            _ = self.cuda.unload_module(module);
        }
        _ = self.cuda.release_context(self.listed.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_id_forms_are_normalised() {
        assert_eq!(short_bus_id("00000000:4C:00.0"), "0000:4c:00.0");
        assert_eq!(short_bus_id("0000:4C:00.0"), "0000:4c:00.0");
        assert_eq!(short_bus_id("00010000:00:1F.0"), "10000:00:1f.0");
    }
}
