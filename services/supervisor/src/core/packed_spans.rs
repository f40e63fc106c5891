//! The spans of a trace that has ended, compressed: nobody reads most of them again, and the steps of a pod repeat
//! its names, so that they take a fraction of the memory.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::core::encoded_span::EncodedSpan;

/// Room for compressed spans is made in steps of this many bytes.
const STEP: usize = 4 << 10;

/// Spans as compressed JSON.
#[derive(Debug)]
pub(super) struct PackedSpans {
    count: usize,
    /// Bytes of JSON.
    length: usize,
    deflated: Box<[u8]>,
}

impl PackedSpans {
    pub(super) fn new(spans: &[EncodedSpan]) -> PackedSpans {
        // Numbers and strings always have a JSON form.
        let json = serde_json::to_vec(spans).unwrap_or_default();
        PackedSpans {
            count: spans.len(),
            length: json.len(),
            deflated: deflate(&json),
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

    pub(super) fn unpack(&self) -> Vec<EncodedSpan> {
        let mut json = Vec::with_capacity(self.length);
        let mut inflate = Decompress::new(false);
        let finish = FlushDecompress::Finish;
        // What was compressed here is complete, and no longer than its length.
        let _ = inflate.decompress_vec(&self.deflated, &mut json, finish);
        serde_json::from_slice(&json).unwrap_or_default()
    }
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
    use jiff::Timestamp;
    use polylet_trace::{POD_NAME, POD_NAMESPACE, POD_UID, SpanRecord};

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
    fn spans_of_a_start_come_back_from_a_third_of_their_memory() {
        let records: Vec<_> = (0..20).map(step).collect();
        let spans: Vec<_> = records.iter().map(EncodedSpan::new).collect();
        let packed = PackedSpans::new(&spans);
        assert_eq!(packed.len(), records.len());
        let unpacked = packed.unpack();
        let decoded: Vec<_> = unpacked.iter().map(EncodedSpan::decode).collect();
        assert_eq!(decoded, records);
        let before: usize = spans.iter().map(EncodedSpan::size).sum();
        let after = packed.size();
        assert!(after * 3 < before, "{after} of {before} bytes");
    }

    #[test]
    fn none_and_very_many_spans_come_back() {
        for count in [0, 1, 5_000] {
            let spans: Vec<_> = (0..count)
                .map(|n: u32| EncodedSpan::new(&step(n.to_le_bytes()[0])))
                .collect();
            let packed = PackedSpans::new(&spans);
            assert_eq!(packed.unpack().len(), spans.len());
        }
    }
}
