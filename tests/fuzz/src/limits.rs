//! The limits of one input: memory, and processor time.

use std::alloc::System;
use std::time::Duration;

use cap::Cap;
use rustix::time::{ClockId, clock_gettime};

/// Memory that one input may take beyond what is allocated before it.
const MAX_BYTES: usize = 256 << 20;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Runs one input. An allocation beyond the limit ends the process, as it would end a service.
///
/// # Panics
/// If the input takes more processor time than `limit`.
pub fn with_limits(limit: Duration, run: impl FnOnce()) {
    let allocated = ALLOCATOR.allocated();
    // Fails only if more is allocated already.
    let _ = ALLOCATOR.set_limit(allocated.saturating_add(MAX_BYTES));
    let started = processor_time();
    run();
    let took = processor_time().saturating_sub(started);
    let _ = ALLOCATOR.set_limit(usize::MAX);
    assert!(
        took <= limit,
        "the input took {} ms of processor time",
        took.as_millis()
    );
}

/// The processor time of this thread: other work on the machine does not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or_default(),
        time.tv_nsec.try_into().unwrap_or_default(),
    )
}
