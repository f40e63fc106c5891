//! Formats of traces for other tools, and for people.

pub mod otlp_json;
