//! The memory of GPUs and of the host: the address of each block, with bounds checks.

#![expect(unsafe_code, reason = "addresses are handed out to C and come back as numbers")]

use std::{collections::BTreeMap, ptr};

/// The location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemoryLocation {
    Gpu(u32),
    Host,
}

/// All blocks by their address.
#[derive(Default)]
pub(super) struct FakeCudaMemory {
    blocks: BTreeMap<u64, FakeMemoryBlock>,
}

struct FakeMemoryBlock {
    location: MemoryLocation,
    bytes: usize,
    /// Accessed through its address only; in units of 16 bytes, because GPU addresses are aligned at least to that.
    store: *mut [u128],
}

// SAFETY: the store belongs to its block alone, and all access goes through the one machine and its lock.
unsafe impl Send for FakeMemoryBlock {}

/// A range within one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct FakeMemoryRange {
    pub(super) location: MemoryLocation,
    address: u64,
    bytes: usize,
}

impl FakeCudaMemory {
    pub(super) fn allocate_block(&mut self, location: MemoryLocation, bytes: usize) -> u64 {
        let store = vec![0xA5A5_A5A5_A5A5_A5A5_A5A5_A5A5_A5A5_A5A5_u128; bytes.div_ceil(16).max(1)];
        let store = Box::into_raw(store.into_boxed_slice());
        let address = store.cast::<u8>().expose_provenance() as u64;
        self.blocks.insert(address, FakeMemoryBlock { location, bytes, store });
        address
    }

    /// Frees a block; returns whether there was one.
    pub(super) fn free_block(&mut self, address: u64) -> bool {
        let Some(block) = self.blocks.remove(&address) else { return false };
        // SAFETY: the pointer came from `Box::into_raw` and its block, just removed, was its only owner.
        drop(unsafe { Box::from_raw(block.store) });
        true
    }

    /// Allocated bytes at a location.
    pub(super) fn used_bytes(&self, location: MemoryLocation) -> usize {
        self.blocks
            .values()
            .filter(|block| block.location == location)
            .map(|block| block.bytes)
            .sum()
    }

    /// A range of memory, if it is within one block.
    pub(super) fn find_range(&self, address: u64, bytes: usize) -> Option<FakeMemoryRange> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        let inside = address.checked_add(bytes as u64)? <= start + block.bytes as u64;
        inside.then_some(FakeMemoryRange { location: block.location, address, bytes })
    }

    /// The content of a range.
    pub(super) fn read_range(&self, from: FakeMemoryRange) -> Vec<u8> {
        debug_assert!(
            self.find_range(from.address, from.bytes).is_some(),
            "ranges do not outlive calls"
        );
        let source: *const u8 = ptr::with_exposed_provenance(from.address as usize);
        let mut bytes = vec![0; from.bytes];
        // SAFETY: a range is within one live block: ranges are created and used under one lock.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(source, from.bytes) };
        bytes
    }

    /// Writes bytes to a range, at most its length.
    pub(super) fn write_range(&self, to: FakeMemoryRange, bytes: &[u8]) {
        debug_assert!(
            self.find_range(to.address, to.bytes).is_some(),
            "ranges do not outlive calls"
        );
        let target: *mut u8 = ptr::with_exposed_provenance_mut(to.address as usize);
        // SAFETY: as for `read_range`; the length is bounded by the range's.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len().min(to.bytes)) };
    }
}
