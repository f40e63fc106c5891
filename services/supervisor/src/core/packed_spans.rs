//! The spans of traces that have ended, compressed: nobody reads most of them again. The steps of a pod repeat its
//! names, and the traces of several pods those of steps, so that they take a fraction of the memory.

use std::collections::BTreeMap;
use std::ops::Range;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use jiff::{SignedDuration, Timestamp};
use polylet_trace::{SpanId, TraceId};
use prost::Message;

use crate::core::encoded_span::EncodedSpan;

/// Room for compressed spans is made in steps of this many bytes.
const STEP: usize = 4 << 10;

/// Compressed spans.
#[derive(Debug)]
pub(super) struct PackedSpans {
    count: usize,
    /// Bytes of [`SpanColumns`].
    length: usize,
    deflated: Box<[u8]>,
}

impl PackedSpans {
    pub(super) fn new(spans: &[EncodedSpan]) -> PackedSpans {
        let columns = SpanColumns::of(spans).encode_to_vec();
        PackedSpans {
            count: spans.len(),
            length: columns.len(),
            deflated: deflate(&columns),
        }
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Memory used, in bytes.
    pub(super) fn size(&self) -> usize {
        size_of::<PackedSpans>() + self.deflated.len()
    }

    /// Those at some places, which are of one trace.
    pub(super) fn unpack(&self, trace: TraceId, places: Range<usize>) -> Vec<EncodedSpan> {
        let mut columns = Vec::with_capacity(self.length);
        let mut inflate = Decompress::new(false);
        let finish = FlushDecompress::Finish;
        // What was compressed here is complete, and no longer than its length.
        let _ = inflate.decompress_vec(&self.deflated, &mut columns, finish);
        let columns = SpanColumns::decode(&*columns).unwrap_or_default();
        let spans = columns.spans(trace);
        spans.skip(places.start).take(places.len()).collect()
    }
}

/// Spans without their traces, each kind of field by itself: IDs are random and cannot be compressed.
#[derive(Clone, PartialEq, Message)]
struct SpanColumns {
    #[prost(bytes = "vec", tag = "1")]
    ids: Vec<u8>,
    /// For each span one more than the place of its parent among first these spans, then `outside`; zero for none.
    #[prost(uint64, repeated, tag = "2")]
    parents: Vec<u64>,
    /// IDs of parents that are not among these spans.
    #[prost(bytes = "vec", tag = "3")]
    outside: Vec<u8>,
    /// For each span the seconds and nanoseconds from the start of the one before, and to its own end.
    #[prost(sint64, repeated, tag = "4")]
    times: Vec<i64>,
    #[prost(string, repeated, tag = "5")]
    texts: Vec<String>,
}

impl SpanColumns {
    fn of(spans: &[EncodedSpan]) -> SpanColumns {
        let mut columns = SpanColumns::default();
        let numbers = spans
            .iter()
            .zip(1..)
            .map(|(span, number)| (span.span, number));
        let mut numbers: BTreeMap<SpanId, u64> = numbers.collect();
        let mut before = Timestamp::UNIX_EPOCH;
        for span in spans {
            columns.ids.extend(span.span);
            let parent = span.parent.map(|parent| {
                let next = next_outside(spans.len(), &columns.outside);
                *numbers.entry(parent).or_insert_with(|| {
                    columns.outside.extend(parent);
                    next
                })
            });
            columns.parents.push(parent.unwrap_or_default());
            for time in [
                span.start.duration_since(before),
                span.end.duration_since(span.start),
            ] {
                let nanoseconds = time.subsec_nanos().into();
                columns.times.extend([time.as_secs(), nanoseconds]);
            }
            before = span.start;
            columns.texts.push(span.texts.to_string());
        }
        columns
    }

    fn spans(&self, trace: TraceId) -> impl Iterator<Item = EncodedSpan> {
        let all_ids = [self.ids.as_chunks().0, self.outside.as_chunks().0].concat();
        let mut before = Timestamp::UNIX_EPOCH;
        let places = 0..self.texts.len();
        // What was encoded here has all fields of each span.
        places.map_while(move |at| {
            let number = usize::try_from(*self.parents.get(at)?).ok()?;
            let parent = number.checked_sub(1).and_then(|at| all_ids.get(at));
            let times: &[[i64; 2]] = self.times.as_chunks().0;
            let to_start = duration(*times.get(2 * at)?)?;
            let to_end = duration(*times.get(2 * at + 1)?)?;
            let start = before.checked_add(to_start).ok()?;
            before = start;
            Some(EncodedSpan {
                trace,
                span: *all_ids.get(at)?,
                parent: parent.copied(),
                start,
                end: start.checked_add(to_end).ok()?,
                texts: self.texts.get(at)?.as_str().into(),
            })
        })
    }
}

/// The number of the next parent that is outside of the spans.
fn next_outside(spans: usize, outside: &[u8]) -> u64 {
    (spans + outside.len() / size_of::<SpanId>()) as u64 + 1
}

fn duration([seconds, nanoseconds]: [i64; 2]) -> Option<SignedDuration> {
    let nanoseconds = i32::try_from(nanoseconds).ok()?;
    // As parts of one duration they have the same sign.
    Some(SignedDuration::from_secs(seconds) + SignedDuration::from_nanos(nanoseconds.into()))
}

fn deflate(bytes: &[u8]) -> Box<[u8]> {
    let mut deflate = Compress::new(Compression::fast(), false);
    let mut deflated = Vec::new();
    loop {
        deflated.reserve(STEP);
        let taken = usize::try_from(deflate.total_in()).unwrap_or(bytes.len());
        let rest = bytes.get(taken..).unwrap_or_default();
        match deflate.compress_vec(rest, &mut deflated, FlushCompress::Finish) {
            Ok(Status::Ok | Status::BufError) => {}
            Ok(Status::StreamEnd) | Err(_) => return deflated.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use polylet_trace::{POD_NAME, POD_NAMESPACE, POD_UID, SpanRecord};
    use proptest::prelude::*;

    use super::*;

    /// A step of a pod's start.
    fn step(number: u8) -> SpanRecord {
        let start = 1_700_000_000_000_000 + i64::from(number) * 4_321_987;
        let attributes = [
            (POD_UID, "0b8ae2a0-1d3f-4c61-9a15-6c9f1e6f3a77"),
            (POD_NAMESPACE, "default"),
            (POD_NAME, "web-7d4b9c6f5-x2v8k"),
            ("rpc.system", "grpc"),
            ("rpc.service", "runtime.v1.RuntimeService"),
            ("container.name", "app"),
        ];
        let attributes = attributes.into_iter();
        SpanRecord {
            trace: [7; 16],
            span: [number.wrapping_mul(37); 8],
            parent: Some([number; 8]),
            service: "sync-coordinator".to_owned(),
            version: "0.1.0".to_owned(),
            name: format!("step {number}"),
            start: Timestamp::from_microsecond(start).unwrap(),
            end: Timestamp::from_microsecond(start + 15_432).unwrap(),
            attributes: attributes
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            error: (number == 3).then(|| "not found".to_owned()),
            links: Vec::new(),
        }
    }

    #[test]
    fn spans_of_a_start_come_back_from_a_fifth_of_their_memory() {
        let records: Vec<_> = (0..20).map(step).collect();
        let spans: Vec<_> = records.iter().map(EncodedSpan::new).collect();
        let packed = PackedSpans::new(&spans);
        assert_eq!(packed.len(), records.len());
        let unpacked = packed.unpack([7; 16], 0..usize::MAX);
        let decoded: Vec<_> = unpacked.iter().map(EncodedSpan::decode).collect();
        assert_eq!(decoded, records);
        let before: usize = spans.iter().map(EncodedSpan::size).sum();
        let after = packed.size();
        assert!(after * 5 < before, "{after} of {before} bytes");
    }

    proptest! {
        #[test]
        fn all_fields_come_back(
            spans in prop::collection::vec((0..6u8, prop::option::of(0..9u8), any::<i64>(), any::<u64>()), 0..12),
        ) {
            let encoded = spans.iter().map(|(id, parent, start, length)| {
                let start = Timestamp::from_nanosecond((*start).into()).unwrap();
                let length = SignedDuration::from_nanos((*length >> 1) as i64);
                EncodedSpan::new(&SpanRecord {
                    span: [*id; 8],
                    parent: parent.map(|parent| [parent; 8]),
                    start,
                    end: start.checked_add(length).unwrap_or(Timestamp::MAX),
                    ..step(*id)
                })
            });
            let encoded: Vec<_> = encoded.collect();
            let unpacked = PackedSpans::new(&encoded).unpack([7; 16], 0..usize::MAX);
            let decoded = |spans: &[EncodedSpan]| spans.iter().map(EncodedSpan::decode).collect::<Vec<_>>();
            prop_assert_eq!(decoded(&unpacked), decoded(&encoded));
        }
    }

    /// Of clocks that are wrong.
    #[test]
    fn the_first_and_the_last_time_come_back() {
        let span = |start, end| {
            EncodedSpan::new(&SpanRecord {
                start,
                end,
                ..step(1)
            })
        };
        let (least, most) = (Timestamp::MIN, Timestamp::MAX);
        let spans = [span(least, most), span(most, least), span(least, least)];
        let unpacked = PackedSpans::new(&spans).unpack([7; 16], 0..usize::MAX);
        let times: Vec<_> = unpacked
            .iter()
            .map(EncodedSpan::decode)
            .map(|span| (span.start, span.end))
            .collect();
        assert_eq!(times, [(least, most), (most, least), (least, least)]);
    }

    #[test]
    fn spans_of_one_trace_among_others_come_back() {
        let of = |trace| {
            (0..5).map(move |n| SpanRecord {
                trace: [trace; 16],
                ..step(trace * 10 + n)
            })
        };
        let records: Vec<_> = [1, 2, 3].into_iter().flat_map(of).collect();
        let spans: Vec<_> = records.iter().map(EncodedSpan::new).collect();
        let unpacked = PackedSpans::new(&spans).unpack([2; 16], 5..10);
        let decoded: Vec<_> = unpacked.iter().map(EncodedSpan::decode).collect();
        assert_eq!(decoded, records[5..10]);
    }

    #[test]
    fn none_and_very_many_spans_come_back() {
        for count in [0, 1, 5_000] {
            let spans: Vec<_> = (0..count)
                .map(|n: u32| EncodedSpan::new(&step(n.to_le_bytes()[0])))
                .collect();
            let packed = PackedSpans::new(&spans);
            assert_eq!(packed.unpack([7; 16], 0..usize::MAX).len(), spans.len());
        }
    }
}
