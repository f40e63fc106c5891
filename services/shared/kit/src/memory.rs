//! Memory given back after a burst of work.

/// Returns to the system what a burst left free inside the heap: the allocator keeps it otherwise,
/// and ten processes at rest would hold what only their busiest moment needed. Costs about a
/// millisecond; for moments when nothing else is to be done.
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

#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "declared by the C library")]
unsafe extern "C" {
    fn malloc_trim(pad: usize) -> i32;
}
