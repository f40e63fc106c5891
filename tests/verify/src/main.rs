//! The second command of the README.
fn main() {}
