//! Facts in, statuses out. Pure.

pub(crate) mod bucket;
pub(crate) mod certificates;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod join;
pub(crate) mod mirror;
pub(crate) mod node;
pub(crate) mod report;
