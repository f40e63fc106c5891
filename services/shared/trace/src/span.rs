//! A recorded span.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// A trace ID.
pub type TraceId = [u8; 16];
/// A span ID.
pub type SpanId = [u8; 8];

/// The attribute with the pod's uid.
pub const POD_UID: &str = "k8s.pod.uid";
/// The attribute with the pod's name.
pub const POD_NAME: &str = "k8s.pod.name";
/// The attribute with the pod's namespace.
pub const POD_NAMESPACE: &str = "k8s.namespace.name";

/// The attribute with the name of the container runtime.
pub const RUNTIME_NAME: &str = "container.runtime.name";
/// The attribute with the version of the container runtime.
pub const RUNTIME_VERSION: &str = "container.runtime.version";
/// The attribute with the version of the kernel.
pub const KERNEL_VERSION: &str = "polylet.kernel.version";
/// The attribute with the name of the node.
pub const NODE_NAME: &str = "k8s.node.name";
/// Attributes of a step that are those of its trace's root: which node it is and what it runs, and what the pod asks for.
pub const ROOT_FACTS: [&str; 7] = [
    NODE_NAME,
    RUNTIME_NAME,
    RUNTIME_VERSION,
    KERNEL_VERSION,
    "polylet.pod.containers",
    "polylet.pod.init_containers",
    "polylet.pod.volumes",
];

/// A recorded span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanRecord {
    /// The trace of the span.
    pub trace: TraceId,
    /// The ID of the span.
    pub span: SpanId,
    /// The parent span.
    pub parent: Option<SpanId>,
    /// The service that recorded it; those of the node agent without the prefix `polylet-`.
    pub service: String,
    /// The version of that service's program; empty if it is not known.
    pub version: String,
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
    /// The value of an attribute; empty if there is none.
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// Whether it is the root that was derived from the steps of the trace, which does no work of its own: its ID is
    /// the second half of the trace's.
    pub fn is_derived_root(&self) -> bool {
        self.parent.is_none() && self.trace.ends_with(&self.span)
    }
}

/// The services of the node agent.
const OWN_SERVICES: [&str; 11] = [
    "pod-config",
    "device-manager",
    "pleg",
    "prober",
    "volume-manager",
    "image-gc",
    "eviction",
    "sync-coordinator",
    "status-reporter",
    "node-api",
    "supervisor",
];

/// Whether a service is one of the node agent's; others are programs such as the container runtime.
pub fn is_own_service(service: &str) -> bool {
    OWN_SERVICES.contains(&service)
}

/// An ID in hexadecimal.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A trace ID of 32 hexadecimal digits.
pub fn parse_trace_id(text: &str) -> Option<TraceId> {
    let id = is_hex(text, 32).then(|| u128::from_str_radix(text, 16).ok());
    id.flatten().map(u128::to_be_bytes)
}

/// A span ID of 16 hexadecimal digits.
pub fn parse_span_id(text: &str) -> Option<SpanId> {
    let id = is_hex(text, 16).then(|| u64::from_str_radix(text, 16).ok());
    id.flatten().map(u64::to_be_bytes)
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hexadecimal() {
        let id = parse_trace_id("0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            id.map(|id| hex(&id)).as_deref(),
            Some("0af7651916cd43dd8448eb211c80319c")
        );
        assert_eq!(
            parse_span_id("00f067aa0ba902b7"),
            Some([0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 2, 0xb7])
        );
        for text in [
            "",
            "+0f067aa0ba902b7",
            "00f067aa0ba902b",
            "00f067aa0ba902bg",
        ] {
            assert_eq!(parse_span_id(text), None, "{text}");
        }
    }
}
