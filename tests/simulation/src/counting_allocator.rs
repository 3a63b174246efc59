//! The system's allocator, which counts what each thread allocates: the measure of work and memory, the same on a busy machine.
#![expect(unsafe_code, reason = "the trait of an allocator is unsafe")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static ALLOCATED: Cell<AllocatedWork> = const { Cell::new(AllocatedWork { count: 0, bytes: 0 }) };
    static FREED: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// What a thread has allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocatedWork {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

struct CountingAllocator;

// SAFETY: every call is passed on to the system's allocator with what the caller guarantees; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note_allocation(layout.size());
        // SAFETY: the caller's guarantees for `layout` are those that the system's allocator needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note_free(layout.size());
        // SAFETY: `block` came from the system's allocator with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_free(layout.size());
        note_allocation(size);
        // SAFETY: `block` came from the system's allocator with this layout, and the caller guarantees `size`.
        unsafe { System.realloc(block, layout, size) }
    }
}

fn note_allocation(bytes: usize) {
    // A thread that ends counts no more.
    _ = ALLOCATED.try_with(|allocated| {
        let before = allocated.get();
        let bytes = before.bytes + bytes as u64;
        allocated.set(AllocatedWork { count: before.count + 1, bytes });
    });
}

fn note_free(bytes: usize) {
    _ = FREED.try_with(|freed| freed.set(freed.get() + bytes as u64));
}

/// The bytes that this thread has allocated less those that it has freed: their difference between two moments is what is in
/// use of what was made in between, if no other thread frees it.
pub fn bytes_in_use() -> u64 {
    ALLOCATED.get().bytes.wrapping_sub(FREED.get())
}

/// What this thread allocates for some work.
#[cfg(test)]
pub(crate) fn measure_work(work: impl FnOnce()) -> AllocatedWork {
    let before = ALLOCATED.get();
    work();
    let after = ALLOCATED.get();
    AllocatedWork { count: after.count - before.count, bytes: after.bytes - before.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_use_are_those_that_were_not_freed() {
        let before = bytes_in_use();
        let kept = vec![0_u8; 1_000];
        drop(vec![0_u64; 5_000]);
        let mut grown = Vec::with_capacity(10);
        grown.extend([0_u8; 500]);
        assert_eq!(bytes_in_use() - before, 1_000 + grown.capacity() as u64);
        drop((kept, grown));
        assert_eq!(bytes_in_use(), before);
    }
}
