//! State files. The state of a static source is written as soon as it changes and can be waited for
//! ([`ImmediateWriter`]). The API server's objects change often and are written by a [`Debouncer`]:
//! small files as a whole ([`DebouncedFile`]), those of up to a hundred megabytes record by record
//! ([`KeyedLog`]).

mod debounced_file;
mod debouncer;
mod immediate_writer;
mod keyed_log;

pub(crate) use debounced_file::DebouncedFile;
pub(crate) use debouncer::Debouncer;
pub use immediate_writer::ImmediateWriter;
#[cfg(test)]
pub(crate) use keyed_log::LogFile;
pub(crate) use keyed_log::{KeyedLog, RecordSource, VERSION as KEYED_LOG_VERSION};
