//! Formats of traces for other tools, and for people.

pub mod chrome;
pub mod folded;
pub mod html;
mod lanes;
pub mod otlp_json;
pub mod perfetto;
pub mod svg;
mod timeline;

#[cfg(test)]
mod foreign_readers;
#[cfg(test)]
mod tests;
