//! A compact form of a trace's summary: numbers of variable length, and shared strings by their indices.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use polylet_kit::memory::ByteBlocks;
use polylet_trace::{StepName, TraceId, TraceSummary};

use crate::core::string_table::StringTable;

/// Longer strings are cut off.
const MAX_TEXT: usize = 256;
/// Most steps; the shortest of more than these count as unattributed.
const MAX_STEPS: usize = 256;
/// Most services with a version.
const MAX_VERSIONS: usize = 64;
/// Shared strings besides those of steps: root, namespace, shape, outcome, and all versions.
const SHARED: usize = 5;
/// Between the parts of a shared string that has several.
const SEPARATOR: &str = "\0";

/// A summary in compact form: ID, start, duration, uid, name, the indices of shared strings, times of steps.
#[derive(Debug)]
pub(super) struct EncodedSummary(Bytes);

impl EncodedSummary {
    /// Encodes a summary, and uses strings of the table until it is released.
    pub(super) fn new(
        summary: &TraceSummary,
        strings: &mut StringTable,
        blocks: &mut ByteBlocks,
    ) -> EncodedSummary {
        let steps = bounded_steps(summary);
        let versions: Vec<_> = summary.versions.iter().take(MAX_VERSIONS).collect();
        let mut bytes = summary.id.to_vec();
        let start = summary.start.as_nanosecond();
        put(&mut bytes, u64::try_from(start).unwrap_or_default());
        put(&mut bytes, nanos(summary.duration));
        put_text(&mut bytes, &summary.uid);
        put_text(&mut bytes, &summary.name);
        put(&mut bytes, as_number(steps.len()));
        let shared = [
            &summary.root,
            &summary.namespace,
            &summary.shape,
            &summary.outcome,
        ];
        for text in shared {
            put(&mut bytes, strings.acquire(cut(text)).into());
        }
        let versions = versions
            .iter()
            .flat_map(|(service, version)| [service.as_str(), version.as_str()]);
        put(&mut bytes, strings.acquire(&joined(versions)).into());
        for (step, _) in &steps {
            let step = joined([step.service.as_str(), step.operation.as_str()]);
            put(&mut bytes, strings.acquire(&step).into());
        }
        for (_, time) in &steps {
            put(&mut bytes, nanos(*time));
        }
        EncodedSummary(blocks.copy(&bytes))
    }

    /// The same in a block of its present neighbours.
    pub(super) fn moved_to(&self, blocks: &mut ByteBlocks) -> EncodedSummary {
        EncodedSummary(blocks.copy(&self.0))
    }

    /// Memory used, in bytes, without shared strings.
    pub(super) fn size(&self) -> usize {
        size_of::<EncodedSummary>() + self.0.len()
    }

    /// The ID of the trace.
    pub(super) fn id(&self) -> Option<TraceId> {
        self.0.first_chunk().copied()
    }

    /// The summary; `None` only if it was not encoded with this table.
    pub(super) fn decode(&self, strings: &StringTable) -> Option<TraceSummary> {
        let mut reader = Reader(&self.0);
        let head = reader.head()?;
        let mut indices = Vec::new();
        for _ in 0..head.shared() {
            indices.push(reader.index()?);
        }
        let mut texts = indices.into_iter().map(|index| strings.get(index));
        let mut text = || texts.next();
        let (root, namespace, shape, outcome) = (text()?, text()?, text()?, text()?);
        let mut versions = text()?.split(SEPARATOR);
        let mut known = Vec::new();
        while let (Some(service), Some(version)) = (versions.next(), versions.next()) {
            known.push((service.to_owned(), version.to_owned()));
        }
        let mut steps = Vec::new();
        for _ in 0..head.steps {
            let (service, operation) = text()?.split_once(SEPARATOR)?;
            let step = StepName {
                service: service.to_owned(),
                operation: operation.to_owned(),
            };
            steps.push((step, Duration::from_nanos(reader.number()?)));
        }
        Some(TraceSummary {
            id: head.id,
            root: root.to_owned(),
            uid: head.uid,
            namespace: namespace.to_owned(),
            name: head.name,
            shape: shape.to_owned(),
            outcome: outcome.to_owned(),
            start: head.start,
            duration: head.duration,
            steps: steps.into_iter().collect(),
            versions: known.into_iter().collect(),
        })
    }

    /// Ends the uses of shared strings.
    pub(super) fn release(self, strings: &mut StringTable) {
        let mut reader = Reader(&self.0);
        let Some(head) = reader.head() else { return };
        for _ in 0..head.shared() {
            if let Some(index) = reader.index() {
                strings.release(index);
            }
        }
    }
}

/// The steps, the longest ones if there are too many, of which the sum remains the same.
fn bounded_steps(summary: &TraceSummary) -> Vec<(StepName, Duration)> {
    let steps = summary.steps.iter();
    let mut steps: Vec<_> = steps.map(|(step, time)| (step.clone(), *time)).collect();
    if steps.len() <= MAX_STEPS {
        return steps;
    }
    steps.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let mut rest: Duration = steps.drain(MAX_STEPS - 1..).map(|(_, time)| time).sum();
    let unattributed = StepName::unattributed();
    if let Some(at) = steps.iter().position(|(step, _)| *step == unattributed) {
        rest += steps.swap_remove(at).1;
    }
    steps.push((unattributed, rest));
    steps
}

/// What comes before the indices of shared strings.
struct Head {
    id: TraceId,
    start: Timestamp,
    duration: Duration,
    uid: String,
    name: String,
    steps: usize,
}

impl Head {
    /// The number of indices.
    fn shared(&self) -> usize {
        SHARED + self.steps
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn head(&mut self) -> Option<Head> {
        let (id, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(Head {
            id: *id,
            start: Timestamp::from_nanosecond(self.number()?.into()).ok()?,
            duration: Duration::from_nanos(self.number()?),
            uid: self.text()?,
            name: self.text()?,
            steps: usize::try_from(self.number()?).ok()?,
        })
    }

    /// A number in groups of seven bits, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn index(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let text = cut(text);
    put(bytes, as_number(text.len()));
    bytes.extend_from_slice(text.as_bytes());
}

/// The parts as one string.
fn joined<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let parts = parts.into_iter();
    let parts: Vec<String> = parts
        .map(|part| cut(part).replace(SEPARATOR, "\u{fffd}"))
        .collect();
    parts.join(SEPARATOR)
}

fn as_number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
#[path = "encoded_summary_tests.rs"]
mod tests;
