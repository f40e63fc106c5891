//! What outlives the process, on disk. A source's set is written as soon as it is accepted, and can
//! be waited for ([`AtOnce`]). What the API server said changes often and is written at a [`Pace`]:
//! little of it whole ([`Paced`]), of what may be a hundred megabytes each change alone ([`Entries`]).

mod at_once;
mod entries;
mod file;
mod pace;
mod paced;

pub use at_once::AtOnce;
#[cfg(test)]
pub(crate) use entries::EntryFile;
pub(crate) use entries::{Entries, Form, Source};
pub(crate) use file::File;
pub(crate) use pace::Pace;
pub(crate) use paced::Paced;
