//! Comparison of two samples without assumptions on their distributions. Samples are integers of any unit, such as
//! microseconds; what is derived of them is in the same unit.

mod bootstrap;
mod exact_distribution;
mod holm;
mod interval;
mod quantile;
mod rank_test;
mod shift;

pub use bootstrap::{MIN_BOOTSTRAP, bootstrap_shift};
pub use holm::holm;
pub use interval::Interval;
pub use quantile::{median, quantile};
pub use rank_test::{RankTest, mann_whitney};
pub use shift::hodges_lehmann;

#[cfg(test)]
mod tests;
