//! One trace of the buffer.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use polylet_kit::cause::{OUTCOME_ATTRIBUTE, root};

use crate::core::encoded_span::EncodedSpan;
use crate::core::packed_spans::PackedSpans;
use crate::core::trace_labels::TraceLabels;
use crate::core::trace_root::{duration, is_step};
use polylet_trace::{SpanRecord, TraceId};

/// Spans come in batches: how long after the last one a trace with an outcome is complete.
const SETTLED: Duration = Duration::from_secs(2);
/// The same while the container runtime sends spans: by default those of OpenTelemetry's SDKs come five seconds late.
const SETTLED_WITH_RUNTIME: Duration = Duration::from_secs(7);
/// How long after its last span the runtime is expected to send those of another trace.
const RUNTIME_EXPECTED: Duration = Duration::from_secs(10 * 60);
/// How long nothing is heard of a trace that has ended until it is compressed: its last spans come after the outcome.
const UNPACKED: Duration = Duration::from_secs(5);
/// How long nothing is heard of a trace without an outcome until it has ended.
const QUIET: Duration = Duration::from_secs(10);
/// The same for a deletion, in which a container may take its time to stop.
const QUIET_DELETION: Duration = Duration::from_secs(60);
/// The same for a start, in which an image may be pulled or a volume awaited.
const QUIET_START: Duration = Duration::from_secs(60 * 60);
/// Fewer traces of a kind have no slowest ones.
const MIN_TO_COMPARE: usize = 20;

/// The spans of a trace, and what is known of it without decoding them.
#[derive(Debug)]
pub(super) struct BufferedTrace {
    id: TraceId,
    /// Those that came before it was compressed.
    packed: Option<PackedPlace>,
    /// Those that have come since.
    spans: Vec<EncodedSpan>,
    bytes: usize,
    start: Timestamp,
    end: Timestamp,
    labels: TraceLabels,
    has_steps: bool,
    /// The end of the last span with an outcome.
    outcome_end: Option<Timestamp>,
    failed: bool,
    /// When the last span came.
    received: Instant,
    /// Its end was told.
    end_reported: bool,
    /// A span has come since then that is part of what was told.
    is_revised: bool,
}

/// The spans of a trace among those of others that were compressed together.
#[derive(Debug)]
pub(super) struct PackedPlace {
    /// Shared by these traces, as long as they are kept.
    pub(super) batch: Arc<PackedSpans>,
    pub(super) places: Range<usize>,
    /// The number of traces that were compressed together.
    pub(super) traces: usize,
}

impl PackedPlace {
    /// The trace's part of the memory, in bytes.
    fn bytes(&self) -> usize {
        self.batch.size() * self.places.len() / self.batch.len().max(1)
    }
}

impl BufferedTrace {
    /// The trace that begins with a span, which is still to be added.
    pub(super) fn new(record: &SpanRecord, now: Instant) -> BufferedTrace {
        BufferedTrace {
            id: record.trace,
            packed: None,
            spans: Vec::new(),
            bytes: 0,
            start: record.start,
            end: record.end,
            labels: TraceLabels::default(),
            has_steps: false,
            outcome_end: None,
            failed: false,
            received: now,
            end_reported: false,
            is_revised: false,
        }
    }

    pub(super) fn push(&mut self, record: &SpanRecord, encoded: EncodedSpan, now: Instant) {
        self.bytes += encoded.size();
        self.spans.push(encoded);
        self.start = self.start.min(record.start);
        self.end = self.end.max(record.end);
        self.received = now;
        self.has_steps |= is_step(record);
        if !record.attribute(OUTCOME_ATTRIBUTE).is_empty() {
            self.outcome_end = self.outcome_end.max(Some(record.end));
        }
        // What begins after the outcome is not part of the trace's time.
        let is_part = self.outcome_end.is_none_or(|end| record.start < end);
        self.is_revised |= self.end_reported && is_part;
        // Probes fail until their container listens.
        self.failed |= record.error.is_some() && !record.name.starts_with("probe.");
        self.labels.add(record);
    }

    pub(super) fn len(&self) -> usize {
        let packed = self.packed.as_ref().map_or(0, |packed| packed.places.len());
        packed + self.spans.len()
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn start(&self) -> Timestamp {
        self.start
    }

    pub(super) fn end(&self) -> Timestamp {
        self.end
    }

    pub(super) fn received(&self) -> Instant {
        self.received
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(super) fn is_end_reported(&self) -> bool {
        self.end_reported
    }

    /// Remembers that the end was told.
    pub(super) fn mark_end_reported(&mut self) {
        self.end_reported = true;
        self.is_revised = false;
    }

    /// When the spans are to be compressed, as few come and few are read from then on; `None` if there is nothing to
    /// compress, or its end is to be told before.
    pub(super) fn packing_due(&self) -> Option<Instant> {
        let is_due = self.end_reported && !self.is_revised && !self.spans.is_empty();
        is_due.then_some(self.received + UNPACKED)
    }

    /// Replaces all spans by their compressed form.
    pub(super) fn set_packed(&mut self, packed: PackedPlace) {
        self.bytes = packed.bytes();
        self.packed = Some(packed);
        self.spans = Vec::new();
    }

    /// Whether most of the traces with which it was compressed are gone, whose memory it keeps.
    pub(super) fn is_left_over(&self) -> bool {
        let packed = self.packed.as_ref();
        packed.is_some_and(|packed| Arc::strong_count(&packed.batch) * 2 < packed.traces)
    }

    #[cfg(test)]
    pub(super) fn batch(&self) -> Option<&Arc<PackedSpans>> {
        self.packed.as_ref().map(|packed| &packed.batch)
    }

    /// When the trace has ended, if nothing more is heard of it; `None` once that was told and nothing has come since, or
    /// if it has no root that is to be derived. `from_runtime`: when the last span of the runtime came.
    pub(super) fn expected_end(&self, from_runtime: Option<Instant>) -> Option<Instant> {
        if !self.has_steps || (self.end_reported && !self.is_revised) {
            return None;
        }
        let settled = match from_runtime.map(|at| self.received.saturating_duration_since(at)) {
            Some(age) if age < RUNTIME_EXPECTED && !self.end_reported => SETTLED_WITH_RUNTIME,
            _ => SETTLED,
        };
        let quiet = match self.labels.root() {
            _ if self.outcome_end.is_some() => settled,
            root::POD_START => QUIET_START,
            root::POD_DELETE | root::POD_EVICT => QUIET_DELETION,
            _ => QUIET,
        };
        Some(self.received + quiet)
    }

    /// The uid of the trace's pod with this uid, name or `namespace/name`.
    pub(super) fn pod(&self, query: &str) -> Option<&str> {
        self.labels.pod(query)
    }

    /// All spans, in the order in which they came.
    pub(super) fn spans(&self) -> Vec<EncodedSpan> {
        let packed = self.packed.as_ref();
        let packed = packed.map(|packed| packed.batch.unpack(self.id, packed.places.clone()));
        let mut spans = packed.unwrap_or_default();
        spans.extend_from_slice(&self.spans);
        spans
    }

    pub(super) fn decode(&self) -> Vec<SpanRecord> {
        self.spans().iter().map(EncodedSpan::decode).collect()
    }
}

/// How long traces last, by the names of their roots.
pub(super) struct TraceDurations {
    /// The 95th percentile of each.
    slow: BTreeMap<Box<str>, Duration>,
}

impl TraceDurations {
    pub(super) fn of<'a>(traces: impl Iterator<Item = &'a BufferedTrace>) -> TraceDurations {
        let mut durations: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        for trace in traces {
            let of_root = durations.entry(trace.labels.root()).or_default();
            of_root.push(duration(trace.start, trace.end));
        }
        durations.retain(|_, durations| durations.len() >= MIN_TO_COMPARE);
        let slow = durations.into_iter().filter_map(|(root, mut durations)| {
            durations.sort_unstable();
            let at = durations.len() * 95 / 100;
            Some((root.into(), *durations.get(at)?))
        });
        TraceDurations {
            slow: slow.collect(),
        }
    }

    /// Whether a trace is slower than 95 % of its kind.
    pub(super) fn is_slow(&self, trace: &BufferedTrace) -> bool {
        let slow = self.slow.get(trace.labels.root());
        slow.is_some_and(|slow| duration(trace.start, trace.end) > *slow)
    }
}
