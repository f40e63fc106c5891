//! Decisions of image-gc: pure.

pub mod plan;
pub mod records;
#[cfg(test)]
mod tests;
pub mod words;
