//! Decisions of image-gc: pure.

pub(crate) mod plan;
pub(crate) mod records;
#[cfg(test)]
mod tests;
