//! A recorded span.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// A trace ID.
pub type TraceId = [u8; 16];
/// A span ID.
pub type SpanId = [u8; 8];

/// Attributes that identify the pod.
pub(crate) const POD_UID: &str = "k8s.pod.uid";
pub(crate) const POD_NAME: &str = "k8s.pod.name";
pub(crate) const POD_NAMESPACE: &str = "k8s.namespace.name";

/// A recorded span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanRecord {
    /// The trace of the span.
    pub trace: TraceId,
    /// The ID of the span.
    pub span: SpanId,
    /// The parent span.
    pub parent: Option<SpanId>,
    /// The service that recorded it, without the prefix `polylet-`.
    pub service: String,
    /// The operation.
    pub name: String,
    /// Start time.
    pub start: Timestamp,
    /// End time.
    pub end: Timestamp,
    /// Further attributes.
    pub attributes: BTreeMap<String, String>,
    /// The error, if the operation failed.
    pub error: Option<String>,
    /// Linked spans: `traceid-spanid`.
    pub links: Vec<String>,
}

impl SpanRecord {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}
