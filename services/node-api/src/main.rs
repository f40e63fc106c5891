//! The process; everything is in the library.
fn main() {}
