//! Profiles of this process on demand: where it spends processor time, and where it allocates memory. They
//! are gzip'd messages of the format of pprof, which `go tool pprof` and others read.
//!
//! - [`CpuSampling`]: while it exists, a timer of consumed processor time interrupts the process a hundred
//!   times per second of it, and the stack that was interrupted is recorded.
//! - [`HeapSampling`]: while it exists, the [`SampledAllocator`] records the stacks of some allocations,
//!   and whether they are freed meanwhile.
//!
//! Nothing is sampled at rest: no timer runs, the signal's handler is not installed before the first
//! profile, and an allocation costs one load of a number that does not change. Samples are recorded in a
//! buffer of a fixed size, without locks and without allocations, and get their names afterwards
//! ([`ProfileSamples::encode`]), which is slow.
//!
//! Existing crates were no fit: they keep their buffers after the first profile, and write temporary
//! files; others have to replace the allocator.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod buffer;
mod cpu;
mod heap;
mod live;
mod periods;
mod pprof;
mod recorder;
mod samples;
mod stack;
mod symbols;

pub use cpu::{CpuSampling, stop_timer};
pub use heap::{HeapSampling, SampledAllocator};
pub use samples::ProfileSamples;
pub use symbols::function_names;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// One profile of a kind is taken at a time.
    #[error("a profile of this kind is in progress")]
    Busy,
    /// The kernel refuses the timer or the signal's handler.
    #[error("starting the timer of processor time")]
    Timer(#[source] std::io::Error),
    /// The program has another allocator.
    #[error("the allocator of this program does not record samples")]
    NotSampled,
}
