//! Spans of late, as many as fit.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use crate::core::packed::Packed;

/// A trace's id.
pub type TraceId = [u8; 16];
/// A span's id.
pub type SpanId = [u8; 8];

/// Attributes that name the pod.
const POD_UID: &str = "k8s.pod.uid";
const POD_NAME: &str = "k8s.pod.name";
const POD_NAMESPACE: &str = "k8s.namespace.name";

/// One span.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The trace it belongs to.
    pub trace: TraceId,
    /// Its id.
    pub span: SpanId,
    /// The span that caused it.
    pub parent: Option<SpanId>,
    /// The service that recorded it, without the prefix `polylet-`.
    pub service: String,
    /// What was done.
    pub name: String,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Everything else that was said.
    pub attributes: BTreeMap<String, String>,
    /// The error it ended in.
    pub error: Option<String>,
    /// Other spans folded into it: `traceid-spanid`.
    pub links: Vec<String>,
}

impl Record {
    fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// Whether `query` is the pod's uid, name, or namespace and name.
    fn is_of_pod(&self, query: &str) -> bool {
        let (uid, name) = (self.attribute(POD_UID), self.attribute(POD_NAME));
        if query == uid || query == name {
            return true;
        }
        query.split_once('/') == Some((self.attribute(POD_NAMESPACE), name))
    }
}

/// The newest spans, bounded in number and bytes; what had to go is counted.
///
/// Looked through from end to end when somebody asks: that takes milliseconds and happens by
/// hand, while an index would cost each span that comes in.
#[derive(Debug)]
pub struct Ring {
    max_spans: usize,
    max_bytes: usize,
    records: VecDeque<Packed>,
    bytes: usize,
    dropped: u64,
}

impl Ring {
    /// An empty ring.
    pub fn new(max_spans: usize, max_bytes: usize) -> Ring {
        Ring {
            max_spans,
            max_bytes,
            records: VecDeque::new(),
            bytes: 0,
            dropped: 0,
        }
    }

    /// Takes a span in, and the oldest ones out when there is no room.
    pub fn push(&mut self, record: &Record) {
        let record = Packed::new(record);
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

    /// Counts spans that never got here.
    pub fn lost(&mut self, spans: u64) {
        self.dropped += spans;
    }

    /// Spans that had to go since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Spans held.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The trace that `query` means: a trace id in hexadecimal, or a pod's uid, name, or
    /// namespace/name. Of several pods with one name the latest is meant, and of its traces the
    /// first, which is its start.
    pub fn find(&self, query: &str) -> Option<TraceId> {
        let by_id = parse_trace_id(query)
            .and_then(|id| self.records.iter().find(|record| record.trace == id));
        if let Some(record) = by_id {
            return Some(record.trace);
        }
        // Names of pods need no escape. What does is no pod's name, and is not found.
        let word = query.rsplit('/').next().unwrap_or(query);
        let maybe = self.records.iter().filter(|record| record.may_say(word));
        let of_pod: Vec<Record> = maybe
            .map(Packed::unpack)
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

    /// The spans of a trace, by start.
    pub fn trace(&self, id: TraceId) -> Vec<Record> {
        let of_trace = self.records.iter().filter(|record| record.trace == id);
        let mut spans: Vec<Record> = of_trace.map(Packed::unpack).collect();
        spans.sort_by_key(|record| (record.start, record.end, record.span));
        spans
    }
}

fn parse_trace_id(text: &str) -> Option<TraceId> {
    let whole = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = whole
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()?;
    Some(id.to_be_bytes())
}

/// An id in hexadecimal.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
