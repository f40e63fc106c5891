//! The spans of a trace that has ended, compressed: nobody reads most of them again, and the steps of a pod repeat
//! its names, so that they take a fraction of the memory.

use std::io::Write;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::core::encoded_span::EncodedSpan;

/// Spans as compressed JSON.
#[derive(Debug)]
pub(super) struct PackedSpans {
    count: usize,
    deflated: Box<[u8]>,
}

impl PackedSpans {
    pub(super) fn new(spans: &[EncodedSpan]) -> PackedSpans {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        // Neither spans without a JSON form exist, nor does memory refuse to be written to.
        let _ = serde_json::to_writer(&mut encoder, spans);
        let _ = encoder.flush();
        PackedSpans {
            count: spans.len(),
            deflated: encoder.finish().unwrap_or_default().into(),
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
        // At once, as the parser would read byte by byte.
        let text = std::io::read_to_string(DeflateDecoder::new(&*self.deflated));
        serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default()
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
}
