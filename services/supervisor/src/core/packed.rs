//! A span as the ring keeps it. Thousands lie there that nobody will ever ask for: all texts of one
//! are one piece of memory, in a third of the room that they take apart.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::core::ring::{Record, SpanId, TraceId};

#[derive(Debug)]
pub(super) struct Packed {
    pub(super) trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    /// [`Texts`] as JSON.
    texts: Box<str>,
}

#[derive(Default, Deserialize)]
struct Texts(
    String,
    String,
    BTreeMap<String, String>,
    Option<String>,
    Vec<String>,
);

impl Packed {
    pub(super) fn new(record: &Record) -> Packed {
        let Record {
            trace,
            span,
            parent,
            service,
            name,
            start,
            end,
            attributes,
            error,
            links,
        } = record;
        // Texts, and maps of texts by texts, always have a JSON form.
        let texts = serde_json::to_string(&(service, name, attributes, error, links));
        Packed {
            trace: *trace,
            span: *span,
            parent: *parent,
            start: *start,
            end: *end,
            texts: texts.unwrap_or_default().into_boxed_str(),
        }
    }

    /// What it costs to keep, in bytes.
    pub(super) fn size(&self) -> usize {
        /// The allocator's own, for a piece of memory.
        const PIECE: usize = 16;
        size_of::<Packed>() + self.texts.len() + PIECE
    }

    /// Whether a text says this, which must need no escape in JSON: `false` costs next to nothing.
    pub(super) fn may_say(&self, word: &str) -> bool {
        self.texts.contains(word)
    }

    pub(super) fn unpack(&self) -> Record {
        let texts: Texts = serde_json::from_str(&self.texts).unwrap_or_default();
        let Texts(service, name, attributes, error, links) = texts;
        Record {
            trace: self.trace,
            span: self.span,
            parent: self.parent,
            service,
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
        fn nothing_is_lost(
            texts in prop::collection::vec("\\PC{0,20}|[\"\\\\\n]{0,3}", 3),
            attributes in prop::collection::btree_map("\\PC{0,9}", "\\PC{0,20}", 0..4),
            links in prop::collection::vec("[0-9a-f]{4}", 0..3),
            failed: bool,
        ) {
            let record = Record {
                trace: [1; 16],
                span: [2; 8],
                parent: failed.then_some([3; 8]),
                service: texts[0].clone(),
                name: texts[1].clone(),
                start: Timestamp::UNIX_EPOCH,
                end: Timestamp::MAX,
                attributes,
                error: failed.then(|| texts[2].clone()),
                links,
            };
            prop_assert_eq!(Packed::new(&record).unpack(), record);
        }
    }
}
