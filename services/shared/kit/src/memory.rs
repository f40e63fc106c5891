//! Keeps memory small: without trimming, eleven idle processes hold what only their busiest moment
//! needed.

use std::sync::Arc;
use std::time::Duration;

pub use polylet_watch::ByteBlocks;
use tokio::sync::Notify;

/// A burst of work is over after this long without work.
pub(crate) const FIRST_TRIM: Duration = Duration::from_secs(3);
/// Work that follows a burst unseen here (responses, writes, cache expiry) is over after this long.
pub(crate) const SECOND_TRIM: Duration = Duration::from_secs(20);

/// Allocations from this size on, in bytes, are mapped outside of the heap: inside it, a small
/// allocation behind a freed large one keeps its memory, which cost a node of large pods half as
/// much again.
const MMAP_THRESHOLD: i32 = 256 * 1024;

/// What the C library reads of `GLIBC_TUNABLES` when a process starts, and has no call for: no cache of freed
/// blocks for each thread. Each block in it keeps the rest of its page, a tenth of a heap after a burst.
pub const TUNABLES: &str = "glibc.malloc.tcache_count=0";

mod stack;

static QUIET: Notify = Notify::const_new();

/// Makes all threads share one heap: otherwise each has its own, and stays in memory after its
/// thread. Large allocations are returned to the system when they are freed. Call it before other
/// threads start.
pub fn single_arena() {
    #[cfg(target_env = "gnu")]
    {
        const M_ARENA_MAX: i32 = -8;
        // Unless it is set, the allocator raises it with each freed mapping, up to 32 MiB.
        const M_MMAP_THRESHOLD: i32 = -3;
        #[allow(unsafe_code, reason = "calls of the C library with two numbers")]
        // SAFETY: takes numbers, touches only the allocator's own state.
        unsafe {
            mallopt(M_ARENA_MAX, 1);
            mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        }
    }
}

/// Returns free memory inside the heap, and below the end of this thread's stack, to the system. Takes about a
/// millisecond: call it when idle, from the main thread.
pub fn trim() {
    trim_heap();
    stack::trim();
}

/// Returns the memory below the end of this thread's stack alone, which takes microseconds: for moments that no burst
/// precedes.
pub(crate) fn trim_stack() {
    stack::trim();
}

fn trim_heap() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(
            unsafe_code,
            reason = "a call of the C library without arguments that matter"
        )]
        // SAFETY: takes a number, touches only the allocator's own state, and may be called at any
        // time from any thread.
        unsafe {
            malloc_trim(0);
        }
    }
}

/// Waits until a burst of work is over, so that what only changes need can be dropped; it is trimmed
/// later. For the event loop alone: one caller at a time is woken.
pub async fn quiet() {
    QUIET.notified().await;
}

/// Trims after a burst of work, and tells the event loop.
pub(crate) fn end_burst() {
    QUIET.notify_one();
    trim();
}

/// Trims when the work that `work` reports has ceased, and once more later. Does not wake at rest.
/// Services are trimmed by their span exporter; this is for processes without spans.
pub async fn trim_after(work: Arc<Notify>) {
    loop {
        for quiet in [FIRST_TRIM, SECOND_TRIM] {
            while tokio::time::timeout(quiet, work.notified()).await.is_ok() {}
            trim();
        }
        work.notified().await;
    }
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "declared by the C library")]
unsafe extern "C" {
    fn malloc_trim(pad: usize) -> i32;
    fn mallopt(parameter: i32, value: i32) -> i32;
}
