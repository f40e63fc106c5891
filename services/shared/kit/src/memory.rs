//! Memory kept small: ten processes at rest would otherwise hold what only their busiest moment
//! needed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

/// Without work for so long, a burst of it is over.
pub(crate) const BURST_OVER: Duration = Duration::from_secs(3);
/// What a burst leads to comes after it, unseen here: answers, writes, what lay in caches.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(20);

/// What is so large, in bytes, stays out of the heap: there a small thing that was put behind it holds
/// its place when it has gone, and a node of large pods kept half as much again as it needed.
const LARGE: i32 = 256 * 1024;

/// Lets all threads share one heap. Each would have its own otherwise, and a file that was read once
/// by a thread that is long gone would keep one. What is large is given back as soon as it is free.
/// For the very start: threads that run have theirs.
pub fn one_heap() {
    #[cfg(target_env = "gnu")]
    {
        const M_ARENA_MAX: i32 = -8;
        // Otherwise the allocator takes for small what was freed once, up to 32 MiB.
        const M_MMAP_THRESHOLD: i32 = -3;
        #[allow(unsafe_code, reason = "calls of the C library with two numbers")]
        // SAFETY: takes numbers, touches only the allocator's own state.
        unsafe {
            mallopt(M_ARENA_MAX, 1);
            mallopt(M_MMAP_THRESHOLD, LARGE);
        }
    }
}

/// Returns to the system what a burst left free inside the heap: the allocator keeps it otherwise.
/// Costs about a millisecond; for moments when nothing else is to be done.
pub fn give_back() {
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

/// Gives back when work, of which `work` tells, has ceased, and once more after what it led to.
/// Sleeps at rest. Services have this from their spans; for processes that make none.
pub async fn give_back_after(work: Arc<Notify>) {
    loop {
        for quiet in [BURST_OVER, AFTERMATH] {
            while tokio::time::timeout(quiet, work.notified()).await.is_ok() {}
            give_back();
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
