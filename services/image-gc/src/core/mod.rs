//! Decisions of image-gc: which images to remove. Pure.

pub mod messages;
pub mod plan;
pub mod records;
#[cfg(test)]
mod tests;
