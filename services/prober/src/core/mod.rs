//! Decisions of the prober: which probes must run, when each is due, and what its results mean.
//! Pure: the present moment comes in, plans come out.

pub(crate) mod engine;
pub(crate) mod plan;
pub(crate) mod tally;
pub(crate) mod types;
pub(crate) mod wheel;
pub(crate) mod worker;

#[cfg(test)]
mod tests;
