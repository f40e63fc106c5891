//! A compact form of a span for the ring: all of its strings in one allocation, which takes a third of the
//! memory.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use polylet_trace::{SpanId, SpanRecord, TraceId};

/// Where the version of the service is among the attributes of the compact form: programs before read it as one.
const VERSION: &str = "service.version";

/// A span in compact form.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EncodedSpan {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    /// [`Texts`] as JSON.
    pub(super) texts: Box<str>,
}

/// Service, name, attributes, error and links.
#[derive(Default, Deserialize)]
struct Texts(
    String,
    String,
    BTreeMap<String, String>,
    Option<String>,
    Vec<String>,
);

impl EncodedSpan {
    pub(super) fn new(record: &SpanRecord) -> EncodedSpan {
        let SpanRecord {
            trace,
            span,
            parent,
            service,
            version,
            name,
            start,
            end,
            attributes,
            error,
            links,
        } = record;
        let version = (!version.is_empty()).then_some((VERSION, version.as_str()));
        let texts = attributes.iter();
        let texts = texts.map(|(key, value)| (key.as_str(), value.as_str()));
        let attributes: BTreeMap<&str, &str> = texts.chain(version).collect();
        // Strings and maps of strings always have a JSON form.
        let texts = serde_json::to_string(&(service, name, attributes, error, links));
        EncodedSpan {
            trace: *trace,
            span: *span,
            parent: *parent,
            start: *start,
            end: *end,
            texts: texts.unwrap_or_default().into_boxed_str(),
        }
    }

    /// Memory used, in bytes.
    pub(super) fn size(&self) -> usize {
        /// Overhead of the allocator.
        const ALLOCATION: usize = 16;
        size_of::<EncodedSpan>() + self.texts.len() + ALLOCATION
    }

    pub(super) fn decode(&self) -> SpanRecord {
        let texts: Texts = serde_json::from_str(&self.texts).unwrap_or_default();
        let Texts(service, name, mut attributes, error, links) = texts;
        let version = attributes.remove(VERSION).unwrap_or_default();
        SpanRecord {
            trace: self.trace,
            span: self.span,
            parent: self.parent,
            service,
            version,
            name,
            start: self.start,
            end: self.end,
            attributes,
            error,
            links,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoding_is_lossless(
            texts in prop::collection::vec("\\PC{0,20}|[\"\\\\\n]{0,3}", 4),
            attributes in prop::collection::btree_map("\\PC{0,9}", "\\PC{0,20}", 0..4),
            links in prop::collection::vec("[0-9a-f]{4}", 0..3),
            failed: bool,
        ) {
            let record = SpanRecord {
                trace: [1; 16],
                span: [2; 8],
                parent: failed.then_some([3; 8]),
                service: texts[0].clone(),
                version: texts[3].clone(),
                name: texts[1].clone(),
                start: Timestamp::UNIX_EPOCH,
                end: Timestamp::MAX,
                attributes,
                error: failed.then(|| texts[2].clone()),
                links,
            };
            prop_assert_eq!(EncodedSpan::new(&record).decode(), record);
        }
    }
}
