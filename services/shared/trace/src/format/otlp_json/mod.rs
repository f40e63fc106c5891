//! Traces in OTLP's JSON, one object a line, as OpenTelemetry's specification of its file exporter has it: what a
//! collector's file exporter writes is read, and what is written here a collector reads.

mod attributes;
mod encoding;
mod message;
mod read;
mod write;

pub use read::{MAX_LINE, MAX_SPANS_OF_TRACE, OtlpJsonError, OtlpJsonReader, read};
pub use write::write;

/// Names of the node agent's services have it in `service.name` and not in [`SpanRecord`](crate::SpanRecord)s.
const SERVICE_PREFIX: &str = "polylet-";

#[cfg(test)]
mod tests;
