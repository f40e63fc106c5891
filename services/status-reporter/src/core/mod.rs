//! Facts in, statuses out. Pure.

pub(crate) mod facts;
pub(crate) mod join;
pub(crate) mod node;
