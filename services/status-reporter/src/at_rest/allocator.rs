//! An allocator that counts, for each thread alone: tests run beside each other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Bytes that this thread has allocated and not freed.
pub(super) fn live_bytes() -> i64 {
    LIVE.with(Cell::get)
}

fn add(bytes: i64) {
    // A thread that ends has no counter any more.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
}

fn signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[allow(unsafe_code, reason = "allocators are unsafe by their trait")]
// SAFETY: each call is passed on to the system's allocator as it is, and its result returned.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(signed(layout.size()));
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        add(-signed(layout.size()));
        // SAFETY: the caller's.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(signed(size) - signed(layout.size()));
        // SAFETY: the caller's.
        unsafe { System.realloc(address, layout, size) }
    }
}
