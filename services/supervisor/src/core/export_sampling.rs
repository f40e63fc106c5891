//! Which spans are exported: at once those of sampled traces, and at the end of their trace those of traces that
//! turned out to be worth it. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use polylet_kit::config::TailSampling;
use polylet_kit::sampling::{JOINED, TraceSampler};
use polylet_trace::TraceId;

/// Most traces whose decision is remembered, for spans that come after it.
const MAX_DECIDED: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
/// Most kinds of traces whose durations are compared, and most durations of each.
const MAX_KINDS: usize = 16;
const MAX_DURATIONS: usize = 512;
/// Fewer traces of a kind have no slowest ones.
const MIN_TO_COMPARE: usize = 20;

/// What becomes of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanFate {
    /// It is exported now.
    Export,
    /// It waits for the end of its trace.
    Hold,
    /// It is not exported.
    Discard,
}

/// What is known of a trace before or after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Export,
    Discard,
    /// It is exported only for what it turns out to be, whatever its ID is.
    AtEnd,
}

impl Decision {
    fn fate(self) -> SpanFate {
        match self {
            Decision::Export => SpanFate::Export,
            Decision::Discard => SpanFate::Discard,
            Decision::AtEnd => SpanFate::Hold,
        }
    }
}

/// A trace that has ended.
#[derive(Debug, Clone, Copy)]
pub struct TraceEnd<'a> {
    /// Its ID.
    pub trace: TraceId,
    /// The name of its root.
    pub root: &'a str,
    /// How long it lasted.
    pub duration: Duration,
    /// A step of it failed.
    pub failed: bool,
}

/// Decides which spans are exported.
#[derive(Debug)]
pub struct ExportSampling {
    sampler: TraceSampler,
    tail: TailSampling,
    decided: LruCache<TraceId, Decision>,
    durations: BTreeMap<String, VecDeque<Duration>>,
}

impl ExportSampling {
    /// Without any trace so far.
    pub fn new(sampler: TraceSampler, tail: TailSampling) -> ExportSampling {
        ExportSampling {
            sampler,
            tail,
            decided: LruCache::new(MAX_DECIDED),
            durations: BTreeMap::new(),
        }
    }

    /// What becomes of a span with these flags.
    pub fn fate(&mut self, trace: TraceId, flags: u32) -> SpanFate {
        if let Some(decision) = self.decided.get(&trace) {
            return decision.fate();
        }
        let waits = self.tail.errors || self.tail.slowest > 0;
        let decision = match self.sampler.samples_span(trace, flags) {
            true => Decision::Export,
            false if waits => Decision::AtEnd,
            false => Decision::Discard,
        };
        if flags & u32::from(JOINED.to_u8()) != 0 {
            // The root of the trace, which is derived here, has no flags.
            self.decided.put(trace, decision);
        }
        decision.fate()
    }

    /// Whether a trace that has ended is exported: its root, and what was held of it.
    pub fn end(&mut self, end: TraceEnd<'_>) -> bool {
        let is_slow = self.is_slow(end);
        match self.decided.get(&end.trace) {
            Some(Decision::Export) => return true,
            Some(Decision::Discard) => return false,
            Some(Decision::AtEnd) => {}
            None if self.sampler.samples(end.trace) => return true,
            None => {}
        }
        let exported = (self.tail.errors && end.failed) || is_slow;
        let decision = if exported {
            Decision::Export
        } else {
            Decision::Discard
        };
        self.decided.put(end.trace, decision);
        exported
    }

    /// Whether the trace is among the slowest of its kind, of which it is one from now on.
    fn is_slow(&mut self, end: TraceEnd<'_>) -> bool {
        if self.tail.slowest == 0 {
            return false;
        }
        if self.durations.len() >= MAX_KINDS && !self.durations.contains_key(end.root) {
            return false;
        }
        let of_kind = self.durations.entry(end.root.to_owned()).or_default();
        let faster = of_kind.iter().filter(|other| **other < end.duration);
        let (faster, all) = (faster.count(), of_kind.len());
        if all >= MAX_DURATIONS {
            of_kind.pop_front();
        }
        of_kind.push_back(end.duration);
        let slowest = usize::from(self.tail.slowest.min(100));
        all >= MIN_TO_COMPARE && faster * 100 >= all * (100 - slowest)
    }
}

/// Encoded spans of traces that have not ended, bounded in bytes.
#[derive(Debug)]
pub struct HeldSpans {
    max_bytes: usize,
    bytes: usize,
    traces: BTreeMap<TraceId, HeldTrace>,
    /// Traces in the order of their first spans.
    order: VecDeque<TraceId>,
}

#[derive(Debug, Default)]
struct HeldTrace {
    encoded: Vec<u8>,
    spans: u64,
}

impl HeldSpans {
    /// Holds nothing.
    pub fn new(max_bytes: usize) -> HeldSpans {
        HeldSpans {
            max_bytes,
            bytes: 0,
            traces: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Holds spans of a trace, and returns how many others were dropped for them: the oldest traces as wholes.
    pub fn hold(&mut self, trace: TraceId, encoded: &[u8], spans: u64) -> u64 {
        if !self.traces.contains_key(&trace) {
            self.order.push_back(trace);
        }
        let held = self.traces.entry(trace).or_default();
        held.encoded.extend_from_slice(encoded);
        held.spans += spans;
        self.bytes += encoded.len();
        let mut dropped = 0;
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            dropped += self.remove(oldest).map_or(0, |held| held.spans);
        }
        dropped
    }

    /// What is held of a trace, which is then held no more.
    pub fn take(&mut self, trace: TraceId) -> Vec<u8> {
        let Some(held) = self.remove(trace) else {
            return Vec::new();
        };
        self.order.retain(|other| *other != trace);
        held.encoded
    }

    /// What is held, by trace.
    pub fn iter(&self) -> impl Iterator<Item = (TraceId, &[u8])> {
        self.traces
            .iter()
            .map(|(trace, held)| (*trace, held.encoded.as_slice()))
    }

    fn remove(&mut self, trace: TraceId) -> Option<HeldTrace> {
        let held = self.traces.remove(&trace)?;
        self.bytes -= held.encoded.len();
        Some(held)
    }
}

#[cfg(test)]
#[path = "export_sampling_tests.rs"]
mod tests;
