//! Device plugins: how they register, and calls to them.

pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod directory;
pub(crate) mod input;
pub(crate) mod registration;
