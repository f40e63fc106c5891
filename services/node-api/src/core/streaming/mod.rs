//! Streams of containers: which are requested, and the protocols in which they are carried.

pub(crate) mod remote_command;
pub(crate) mod remote_status;
pub(crate) mod request;
pub(crate) mod spdy;
pub(crate) mod upgrade;
