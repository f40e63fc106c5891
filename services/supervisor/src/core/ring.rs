//! A bounded ring of recent spans.

use std::collections::VecDeque;

use serde::{Deserialize, Deserializer, Serialize};

use crate::core::encoded_span::EncodedSpan;
use crate::core::span::{POD_UID, SpanRecord, TraceId};

/// The newest spans, bounded in number and bytes; dropped ones are counted.
///
/// A query scans the whole ring, which takes milliseconds and is rare, while an index would cost
/// something for every span.
#[derive(Debug)]
pub struct SpanRing {
    max_spans: usize,
    max_bytes: usize,
    records: VecDeque<EncodedSpan>,
    bytes: usize,
    dropped: u64,
}

/// The content of a ring.
#[derive(Serialize, Deserialize)]
struct SavedRing<T> {
    dropped: u64,
    records: T,
}

impl SpanRing {
    /// An empty ring.
    pub fn new(max_spans: usize, max_bytes: usize) -> SpanRing {
        SpanRing {
            max_spans,
            max_bytes,
            records: VecDeque::new(),
            bytes: 0,
            dropped: 0,
        }
    }

    /// Adds a span, and drops the oldest ones beyond the bounds.
    pub fn push(&mut self, record: &SpanRecord) {
        self.push_encoded(EncodedSpan::new(record));
    }

    fn push_encoded(&mut self, record: EncodedSpan) {
        self.bytes += record.size();
        self.records.push_back(record);
        while self.records.len() > self.max_spans || self.bytes > self.max_bytes {
            let Some(oldest) = self.records.pop_front() else {
                break;
            };
            self.bytes -= oldest.size();
            self.dropped += 1;
        }
    }

    /// The content, for another program. An encoded sequence is decoded by [`SpanRing::restore`].
    pub fn content(&self) -> impl Serialize {
        SavedRing {
            dropped: self.dropped,
            records: &self.records,
        }
    }

    /// Fills an empty ring with decoded content of another program's.
    ///
    /// # Errors
    /// It is no such content; the ring stays empty.
    pub fn restore<'de, D: Deserializer<'de>>(&mut self, content: D) -> Result<(), D::Error> {
        let saved = SavedRing::<VecDeque<EncodedSpan>>::deserialize(content)?;
        self.dropped = saved.dropped;
        for record in saved.records {
            self.push_encoded(record);
        }
        Ok(())
    }

    /// Counts spans that were dropped before.
    pub fn add_dropped(&mut self, spans: u64) {
        self.dropped += spans;
    }

    /// Spans dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The number of spans.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Finds a trace by its ID in hexadecimal, or by a pod's uid, name, or `namespace/name`: the first
    /// trace, which is its start, of the latest pod of that name.
    pub fn find(&self, query: &str) -> Option<TraceId> {
        let by_id = parse_trace_id(query)
            .and_then(|id| self.records.iter().find(|record| record.trace == id));
        if let Some(record) = by_id {
            return Some(record.trace);
        }
        // Names of pods need no escaping; a query that does matches none.
        let name = query.rsplit('/').next().unwrap_or(query);
        let candidates = self
            .records
            .iter()
            .filter(|record| record.may_contain(name));
        let of_pod: Vec<SpanRecord> = candidates
            .map(EncodedSpan::decode)
            .filter(|record| record.is_of_pod(query))
            .collect();
        let latest = of_pod
            .iter()
            .max_by_key(|record| record.end)?
            .attribute(POD_UID);
        of_pod
            .iter()
            .filter(|record| record.attribute(POD_UID) == latest)
            .min_by_key(|record| record.start)
            .map(|record| record.trace)
    }

    /// The spans of a trace, by start time.
    pub fn trace(&self, id: TraceId) -> Vec<SpanRecord> {
        let of_trace = self.records.iter().filter(|record| record.trace == id);
        let mut spans: Vec<SpanRecord> = of_trace.map(EncodedSpan::decode).collect();
        spans.sort_by_key(|record| (record.start, record.end, record.span));
        spans
    }
}

fn parse_trace_id(text: &str) -> Option<TraceId> {
    let valid = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = valid
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()?;
    Some(id.to_be_bytes())
}

/// An ID in hexadecimal.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
