//! The first command of the README.
fn main() {}
