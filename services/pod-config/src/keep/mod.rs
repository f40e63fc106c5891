//! What outlives the process, on disk. A source's set is written as soon as it is accepted, and can
//! be waited for ([`AtOnce`]). What the API server said changes often and is written at a pace
//! ([`Paced`]).

mod at_once;
mod file;
mod paced;

pub use at_once::AtOnce;
pub(crate) use file::File;
pub(crate) use paced::Paced;
