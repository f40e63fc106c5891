//! The node benchmark.
fn main() {}
