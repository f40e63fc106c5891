//! Summaries of traces that have ended: many more than whole traces fit into memory.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::memory::ByteBlocks;
use polylet_trace::{StepName, TraceFilter, TraceId, TraceSummary};
use serde::{Deserialize, Deserializer, Serialize};

use crate::core::encoded_summary::EncodedSummary;
use crate::core::string_table::StringTable;

/// Summaries are moved together when one part of so many in their blocks is not used.
const WASTED_PARTS: usize = 5;

/// The newest summaries, bounded in number and bytes, in the order in which they came. Each has a number, one higher
/// than that before.
#[derive(Debug)]
pub struct SummaryBuffer {
    max_summaries: usize,
    max_bytes: usize,
    summaries: VecDeque<EncodedSummary>,
    strings: StringTable,
    blocks: ByteBlocks,
    /// Of the summaries, without the strings.
    bytes: usize,
    /// Of summaries that others have replaced, whose place in their blocks is not used.
    wasted: usize,
    /// The number of the first summary.
    first: u64,
}

/// A summary for another program.
#[derive(Serialize, Deserialize)]
struct SavedSummary {
    id: TraceId,
    root: String,
    uid: String,
    namespace: String,
    name: String,
    shape: String,
    outcome: String,
    start: Timestamp,
    duration: Duration,
    /// Services, operations and times.
    steps: Vec<(String, String, Duration)>,
    /// Services and their versions.
    versions: Vec<(String, String)>,
}

impl SummaryBuffer {
    /// An empty buffer.
    pub fn new(max_summaries: usize, max_bytes: usize) -> SummaryBuffer {
        SummaryBuffer {
            max_summaries,
            max_bytes,
            summaries: VecDeque::new(),
            strings: StringTable::default(),
            blocks: ByteBlocks::default(),
            bytes: 0,
            wasted: 0,
            first: 0,
        }
    }

    /// Adds a summary, and drops the oldest ones beyond the bounds.
    pub fn push(&mut self, summary: &TraceSummary) {
        let encoded = EncodedSummary::new(summary, &mut self.strings, &mut self.blocks);
        self.bytes += encoded.size();
        self.summaries.push_back(encoded);
        self.shrink();
    }

    /// Puts another summary of the same trace in the place of the one before; adds none.
    pub fn replace(&mut self, summary: &TraceSummary) {
        let mut known = self.summaries.iter_mut().rev();
        let Some(place) = known.find(|known| known.id() == Some(summary.id)) else {
            return;
        };
        let encoded = EncodedSummary::new(summary, &mut self.strings, &mut self.blocks);
        self.bytes += encoded.size();
        let before = std::mem::replace(place, encoded);
        self.bytes -= before.size();
        self.wasted += before.size();
        before.release(&mut self.strings);
        self.shrink();
        self.compact();
    }

    /// Moves all summaries to new blocks when a part of the old ones is not used.
    fn compact(&mut self) {
        if self.wasted * WASTED_PARTS < self.bytes {
            return;
        }
        self.wasted = 0;
        self.blocks.clear();
        for summary in &mut self.summaries {
            *summary = summary.moved_to(&mut self.blocks);
        }
    }

    /// Drops the oldest summaries beyond the bounds.
    fn shrink(&mut self) {
        while self.summaries.len() > self.max_summaries || self.bytes() > self.max_bytes {
            let Some(oldest) = self.summaries.pop_front() else {
                return;
            };
            self.bytes -= oldest.size();
            self.first += 1;
            oldest.release(&mut self.strings);
        }
    }

    /// Memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.strings.bytes()
    }

    /// The number of summaries.
    pub fn len(&self) -> usize {
        self.summaries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.summaries.is_empty()
    }

    /// The number of the next summary.
    pub fn next_number(&self) -> u64 {
        self.first + self.summaries.len() as u64
    }

    /// The first summaries from a number on that a filter selects, at most `limit`, and the number from which to go on.
    pub fn select(
        &self,
        from: u64,
        filter: &TraceFilter,
        limit: usize,
    ) -> (Vec<TraceSummary>, u64) {
        let skipped = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut next = from.max(self.first);
        let mut selected = Vec::new();
        for encoded in self.summaries.iter().skip(skipped) {
            if selected.len() >= limit {
                break;
            }
            next += 1;
            let summary = encoded.decode(&self.strings);
            selected.extend(summary.filter(|summary| filter.selects(summary)));
        }
        (selected, next)
    }

    /// The content, for another program. An encoded sequence is decoded by [`SummaryBuffer::restore`].
    pub fn content(&self) -> impl Serialize {
        let summaries = self.summaries.iter();
        let summaries = summaries.filter_map(|encoded| encoded.decode(&self.strings));
        summaries.map(SavedSummary::new).collect::<Vec<_>>()
    }

    /// Fills an empty buffer with decoded content of another program's.
    ///
    /// # Errors
    /// It is no such content; the buffer stays empty.
    pub fn restore<'de, D: Deserializer<'de>>(&mut self, content: D) -> Result<(), D::Error> {
        for saved in Vec::<SavedSummary>::deserialize(content)? {
            self.push(&saved.into_summary());
        }
        Ok(())
    }
}

impl SavedSummary {
    fn new(summary: TraceSummary) -> SavedSummary {
        let steps = summary.steps.into_iter();
        SavedSummary {
            id: summary.id,
            root: summary.root,
            uid: summary.uid,
            namespace: summary.namespace,
            name: summary.name,
            shape: summary.shape,
            outcome: summary.outcome,
            start: summary.start,
            duration: summary.duration,
            steps: steps
                .map(|(step, time)| (step.service, step.operation, time))
                .collect(),
            versions: summary.versions.into_iter().collect(),
        }
    }

    fn into_summary(self) -> TraceSummary {
        let step = |(service, operation, time)| (StepName { service, operation }, time);
        TraceSummary {
            id: self.id,
            root: self.root,
            uid: self.uid,
            namespace: self.namespace,
            name: self.name,
            shape: self.shape,
            outcome: self.outcome,
            start: self.start,
            duration: self.duration,
            steps: self.steps.into_iter().map(step).collect(),
            versions: self.versions.into_iter().collect(),
        }
    }
}

#[cfg(test)]
#[path = "summary_buffer_tests.rs"]
mod tests;
