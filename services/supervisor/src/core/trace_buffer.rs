//! A bounded buffer of recent traces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polylet_trace::{SpanRecord, Trace, TraceId, parse_trace_id};
use serde::{Deserialize, Deserializer, Serialize};

use crate::core::buffered_trace::{BufferedTrace, PackedPlace, TraceDurations};
use crate::core::encoded_span::EncodedSpan;
use crate::core::packed_spans::PackedSpans;
use crate::core::trace_root::root_of;

/// Most spans of one trace; further ones are dropped.
const MAX_SPANS_OF_TRACE: usize = 2_000;

/// Most traces that are compressed together: to read one, all of them are decompressed.
const MAX_PACKED_TOGETHER: usize = 8;
/// The part of the bounds that is made free at a time: to find what is dropped costs as much for one trace as for many.
const FREED_AT_ONCE: usize = 16;
/// How long a trace that is to be compressed waits for others.
const PACKED_TOGETHER: Duration = Duration::from_secs(5);

/// The newest traces, bounded in spans and bytes. Whole traces are dropped: the oldest first, failed ones and the
/// slowest of their kind after all others. What is dropped is counted in spans.
#[derive(Debug)]
pub struct TraceBuffer {
    max_spans: usize,
    max_bytes: usize,
    traces: BTreeMap<TraceId, BufferedTrace>,
    /// The traces whose end is to be told, or that are to be compressed: few of many.
    unsettled: BTreeSet<TraceId>,
    spans: usize,
    bytes: usize,
    dropped: u64,
    /// When the last span of the container runtime came.
    from_runtime: Option<Instant>,
}

/// A trace of which nothing more is expected.
#[derive(Debug, PartialEq)]
pub struct EndedTrace {
    /// With its root.
    pub trace: Trace,
    /// The root, if it was derived from the steps.
    pub derived_root: Option<SpanRecord>,
    /// A step failed, or the pod did.
    pub failed: bool,
    /// It was reported before, without spans that came late.
    pub is_revision: bool,
}

/// The content of a buffer.
#[derive(Serialize, Deserialize)]
struct SavedTraces<T> {
    dropped: u64,
    records: T,
    /// Traces whose end was told.
    #[serde(default)]
    ended: Vec<TraceId>,
}

impl TraceBuffer {
    /// An empty buffer.
    pub fn new(max_spans: usize, max_bytes: usize) -> TraceBuffer {
        TraceBuffer {
            max_spans,
            max_bytes,
            traces: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            spans: 0,
            bytes: 0,
            dropped: 0,
            from_runtime: None,
        }
    }

    /// Adds a span, and drops traces beyond the bounds.
    pub fn push(&mut self, record: &SpanRecord, now: Instant) {
        self.insert(record, EncodedSpan::new(record), now);
        if self.is_over() {
            self.shrink(Some(record.trace));
        }
    }

    /// The container runtime sends spans, which come late: traces are waited for longer.
    pub fn expect_from_runtime(&mut self, now: Instant) {
        self.from_runtime = Some(now);
    }

    fn insert(&mut self, record: &SpanRecord, encoded: EncodedSpan, now: Instant) {
        let trace = self.traces.entry(record.trace);
        let trace = trace.or_insert_with(|| BufferedTrace::new(record, now));
        let bytes = encoded.size();
        if trace.len() >= MAX_SPANS_OF_TRACE || bytes > self.max_bytes || self.max_spans == 0 {
            self.dropped += 1;
            if trace.len() == 0 {
                self.traces.remove(&record.trace);
            }
            return;
        }
        trace.push(record, encoded, now);
        self.unsettled.insert(record.trace);
        self.spans += 1;
        self.bytes += bytes;
    }

    fn is_over(&self) -> bool {
        self.spans > self.max_spans || self.bytes > self.max_bytes
    }

    fn has_room(&self) -> bool {
        self.spans <= self.max_spans - self.max_spans / FREED_AT_ONCE
            && self.bytes <= self.max_bytes - self.max_bytes / FREED_AT_ONCE
    }

    /// Drops traces until there is room, the present one last.
    fn shrink(&mut self, present: Option<TraceId>) {
        let durations = TraceDurations::of(self.traces.values());
        let rank = |(id, trace): (&TraceId, &BufferedTrace)| {
            let is_notable = trace.has_failed() || durations.is_slow(trace);
            (Some(*id) == present, is_notable, trace.received(), *id)
        };
        let mut order: Vec<_> = self.traces.iter().map(rank).collect();
        order.sort_unstable();
        for (.., id) in order {
            if self.has_room() {
                break;
            }
            self.unsettled.remove(&id);
            if let Some(trace) = self.traces.remove(&id) {
                self.spans -= trace.len();
                self.bytes -= trace.bytes();
                self.dropped += trace.len() as u64;
            }
        }
        let left_over = self.traces.iter().filter(|(_, trace)| trace.is_left_over());
        let left_over: Vec<TraceId> = left_over.map(|(id, _)| *id).collect();
        self.pack_together(&left_over);
    }

    /// The content, for another program. An encoded sequence is decoded by [`TraceBuffer::restore`].
    pub fn content(&self) -> impl Serialize {
        let ended = self
            .traces
            .iter()
            .filter(|(_, trace)| trace.is_end_reported());
        SavedTraces {
            dropped: self.dropped,
            records: self
                .traces
                .values()
                .flat_map(BufferedTrace::spans)
                .collect::<Vec<_>>(),
            ended: ended.map(|(id, _)| *id).collect(),
        }
    }

    /// Fills an empty buffer with decoded content of another program's.
    ///
    /// # Errors
    /// It is no such content; the buffer stays empty.
    pub fn restore<'de, D: Deserializer<'de>>(
        &mut self,
        content: D,
        now: Instant,
    ) -> Result<(), D::Error> {
        let saved = SavedTraces::<Vec<EncodedSpan>>::deserialize(content)?;
        self.dropped = saved.dropped;
        // They fit into the bounds only when they are compressed as they were.
        for encoded in saved.records {
            self.insert(&encoded.decode(), encoded, now);
        }
        for id in &saved.ended {
            if let Some(trace) = self.traces.get_mut(id) {
                trace.mark_end_reported();
            }
        }
        self.pack_together(&saved.ended);
        if self.is_over() {
            self.shrink(None);
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

    /// Whether spans of a trace are kept.
    pub fn contains(&self, id: TraceId) -> bool {
        self.traces.contains_key(&id)
    }

    /// The number of spans.
    pub fn len(&self) -> usize {
        self.spans
    }

    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.spans == 0
    }

    /// A trace that has ended, the one that ended first of them. Each once, and again when spans came late.
    pub fn take_ended(&mut self, now: Instant) -> Option<EndedTrace> {
        let from_runtime = self.from_runtime;
        let ended = self.unsettled().filter_map(|(id, trace)| {
            let end = trace.expected_end(from_runtime)?;
            (end <= now).then_some((end, id))
        });
        let (_, id) = ended.min()?;
        let trace = self.traces.get_mut(&id)?;
        let is_revision = trace.is_end_reported();
        let spans = trace.decode();
        trace.mark_end_reported();
        let derived_root = root_of(id, &spans);
        let of_pod = derived_root
            .as_ref()
            .is_some_and(|root| root.error.is_some());
        let failed = trace.has_failed() || of_pod;
        Some(EndedTrace {
            trace: Trace {
                id,
                spans: with_root(spans, derived_root.clone()),
            },
            derived_root,
            failed,
            is_revision,
        })
    }

    /// When the next trace will have ended, if nothing more is heard of it.
    pub fn next_end(&self) -> Option<Instant> {
        self.unsettled()
            .filter_map(|(_, trace)| trace.expected_end(self.from_runtime))
            .min()
    }

    fn unsettled(&self) -> impl Iterator<Item = (TraceId, &BufferedTrace)> {
        let ids = self.unsettled.iter();
        ids.filter_map(|id| Some((*id, self.traces.get(id)?)))
    }

    /// Compresses the traces that have ended and of which nothing was heard for a while. Returns when others are to be
    /// compressed.
    pub fn pack(&mut self, now: Instant) -> Option<Instant> {
        let due = self.unsettled();
        let due = due.filter_map(|(id, trace)| Some((trace.packing_due()?, id)));
        let mut due: Vec<(Instant, TraceId)> = due.collect();
        due.sort_unstable();
        let (first, _) = due.first()?;
        if *first + PACKED_TOGETHER > now {
            return Some(*first + PACKED_TOGETHER);
        }
        let later = due.split_off(due.partition_point(|(due, _)| *due <= now));
        let due: Vec<TraceId> = due.into_iter().map(|(_, id)| id).collect();
        self.pack_together(&due);
        let traces = &self.traces;
        self.unsettled.retain(|id| {
            let trace = traces.get(id);
            trace.is_some_and(|trace| {
                trace.packing_due().is_some() || trace.expected_end(self.from_runtime).is_some()
            })
        });
        later.first().map(|(first, _)| *first + PACKED_TOGETHER)
    }

    /// Compresses traces, neighbours together.
    fn pack_together(&mut self, ids: &[TraceId]) {
        for ids in ids.chunks(MAX_PACKED_TOGETHER) {
            let (mut spans, mut places) = (Vec::new(), Vec::new());
            for id in ids {
                if let Some(trace) = self.traces.get(id) {
                    let first = spans.len();
                    spans.extend(trace.spans());
                    places.push((id, first..spans.len()));
                }
            }
            let (batch, traces) = (Arc::new(PackedSpans::new(&spans)), places.len());
            for (id, places) in places {
                if let Some(trace) = self.traces.get_mut(id) {
                    self.bytes -= trace.bytes();
                    let batch = batch.clone();
                    trace.set_packed(PackedPlace {
                        batch,
                        places,
                        traces,
                    });
                    self.bytes += trace.bytes();
                }
            }
        }
    }

    /// Finds a trace by its ID in hexadecimal, or by a pod's uid, name, or `namespace/name`: the first
    /// trace, which is its start, of the latest pod of that name.
    pub fn find(&self, query: &str) -> Option<TraceId> {
        if let Some(id) = parse_trace_id(query).filter(|id| self.traces.contains_key(id)) {
            return Some(id);
        }
        let matching = self.traces.values().filter_map(|trace| {
            let uid = trace.pod(query)?;
            Some((trace.end(), uid))
        });
        let (_, latest) = matching.max()?;
        let of_pod = self.traces.iter();
        let of_pod = of_pod.filter(|(_, trace)| trace.pod(latest).is_some());
        let first = of_pod.min_by_key(|(_, trace)| trace.start());
        first.map(|(id, _)| *id)
    }

    /// The spans of a trace, by start time, with its root.
    pub fn trace(&self, id: TraceId) -> Vec<SpanRecord> {
        let trace = self.traces.get(&id);
        let spans = trace.map_or_else(Vec::new, BufferedTrace::decode);
        let root = root_of(id, &spans);
        with_root(spans, root)
    }
}

/// The spans of a trace by start time, with its root if it was derived.
fn with_root(mut spans: Vec<SpanRecord>, root: Option<SpanRecord>) -> Vec<SpanRecord> {
    spans.extend(root);
    spans.sort_by_key(|record| {
        (
            record.start,
            record.parent.is_some(),
            record.end,
            record.span,
        )
    });
    spans
}

#[cfg(test)]
#[path = "trace_buffer_tests.rs"]
mod tests;
