//! Due times, back-off and rate limits as plain data: no clock, no I/O, no async, no randomness.
//! The caller passes `now` (and, for jitter, a random number), so that decisions stay pure and a
//! simulation can replay them.
//!
//! - [`DueQueue`]: one due time per key, ordered.
//! - [`Backoff`] and [`BackoffPolicy`]: exponential delays between attempts.
//! - [`FairQueue`]: items of many owners that wait for few places.
//! - [`TokenBucket`]: a rate with a burst.
//! - [`go_duration`]: durations as text, as Go reads and prints them.
//!
//! To wait for a due time, use `polylet_kit::clock`.
//!
//! # Why not a published crate
//!
//! `tokio_util::time::DelayQueue` and `tokio::time::interval` read tokio's monotonic clock and need
//! its runtime. Due times here are mostly wall-clock times out of statuses and files, which must
//! survive a restart of the process and follow a step of the clock. `governor` and
//! `leaky-bucket` own a clock or a timer; `backon` and `backoff` wrap a future and draw jitter
//! themselves. Each would bring a clock or a source of randomness into `core/`.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod backoff;
mod due_queue;
mod fair_queue;
pub mod go_duration;
mod time;
mod token_bucket;

pub use backoff::{Backoff, BackoffPolicy};
pub use due_queue::DueQueue;
pub use fair_queue::{FairLimits, FairPlace, FairQueue, FairStart};
pub use time::TimePoint;
pub use token_bucket::TokenBucket;
