//! Frames of SPDY/3.1, as far as a client of the runtime's streaming server needs them.
//!
//! Headers are compressed in SPDY. What is sent consists of blocks that deflate stores uncompressed, so
//! that no dictionary is needed; headers of the runtime are not read: its replies have none that matter.

/// Length of a frame's header, in bytes.
pub(crate) const HEADER_LENGTH: usize = 8;
/// Most bytes of a control frame that have a meaning here: those after its header.
pub(crate) const CONTROL_LENGTH: usize = 8;

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;

const FLAG_FIN: u8 = 1;

/// The largest payload of a data frame that is sent, far below the protocol's 16 MiB.
const MAX_DATA: usize = 32 << 10;

/// Beginning of a zlib stream.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
/// An empty stored block, after which a decompressor has all that was written before.
const SYNC_MARKER: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// What the header of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameHeader {
    /// Data of a stream.
    Data {
        stream: u32,
        /// Nothing follows on this stream.
        fin: bool,
        length: usize,
    },
    /// Another frame: [`control`] reads its beginning.
    Control { kind: u16, fin: bool, length: usize },
}

impl FrameHeader {
    /// Reads the header; `None` if it is not SPDY/3.
    pub(crate) fn parse(bytes: [u8; HEADER_LENGTH]) -> Option<Self> {
        let [a, b, c, d, flags, high, middle, low] = bytes;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let fin = flags & FLAG_FIN != 0;
        if a & 0x80 == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            return Some(Self::Data {
                stream,
                fin,
                length,
            });
        }
        let kind = u16::from_be_bytes([c, d]);
        (u16::from_be_bytes([a & 0x7f, b]) == VERSION).then_some(Self::Control {
            kind,
            fin,
            length,
        })
    }
}

/// A control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlFrame {
    /// The runtime has accepted a stream; with `fin`, it will send nothing on it.
    Accepted { stream: u32, fin: bool },
    /// A stream has ended in both directions.
    Reset { stream: u32 },
    /// The runtime expects this frame back.
    Ping([u8; 4]),
    /// The runtime accepts no more streams. Those that exist continue.
    GoAway,
    /// Without a meaning for the streams.
    Other,
}

/// Reads the beginning of a control frame: its first [`CONTROL_LENGTH`] bytes, or all of a shorter one.
pub(crate) fn control(kind: u16, fin: bool, payload: &[u8]) -> ControlFrame {
    let Some(word) = payload.first_chunk::<4>().copied() else {
        return ControlFrame::Other;
    };
    let stream = u32::from_be_bytes(word) & 0x7fff_ffff;
    match kind {
        SYN_REPLY => ControlFrame::Accepted { stream, fin },
        RST_STREAM => ControlFrame::Reset { stream },
        PING => ControlFrame::Ping(word),
        GOAWAY => ControlFrame::GoAway,
        _ => ControlFrame::Other,
    }
}

/// Frames that open streams, in one state of compression.
#[derive(Debug, Default)]
pub(crate) struct StreamOpener {
    has_begun: bool,
}

impl StreamOpener {
    /// The frame that opens a stream of the client: `stream` is odd, and greater than all before.
    pub(crate) fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        put_length(&mut block, headers.len());
        for (name, value) in headers {
            for text in [name, value] {
                put_length(&mut block, text.len());
                block.extend_from_slice(text.as_bytes());
            }
        }
        let mut payload = Vec::new();
        payload.extend_from_slice(&stream.to_be_bytes());
        // No associated stream, priority and slot.
        payload.extend_from_slice(&[0; 6]);
        if !std::mem::replace(&mut self.has_begun, true) {
            payload.extend_from_slice(&ZLIB_HEADER);
        }
        for part in block.chunks(usize::from(u16::MAX)) {
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            payload.push(0);
            payload.extend_from_slice(&length.to_le_bytes());
            payload.extend_from_slice(&(!length).to_le_bytes());
            payload.extend_from_slice(part);
        }
        payload.extend_from_slice(&SYNC_MARKER);
        control_frame(SYN_STREAM, &payload)
    }
}

/// The header of a data frame, without the data.
fn data_header(stream: u32, fin: bool, length: usize) -> [u8; HEADER_LENGTH] {
    let [a, b, c, d] = (stream & 0x7fff_ffff).to_be_bytes();
    let [high, middle, low] = length_bytes(length);
    [
        a,
        b,
        c,
        d,
        if fin { FLAG_FIN } else { 0 },
        high,
        middle,
        low,
    ]
}

/// The data frames of a stream: their headers, each with its data.
pub(crate) fn data(
    stream: u32,
    bytes: &[u8],
) -> impl Iterator<Item = ([u8; HEADER_LENGTH], &[u8])> {
    let parts = bytes.chunks(MAX_DATA);
    parts.map(move |part| (data_header(stream, false, part.len()), part))
}

/// The frame that ends a stream of the client.
pub(crate) fn end(stream: u32) -> [u8; HEADER_LENGTH] {
    data_header(stream, true, 0)
}

/// The response to a ping.
pub(crate) fn ping(id: [u8; 4]) -> Vec<u8> {
    control_frame(PING, &id)
}

fn control_frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let [version_high, version_low] = VERSION.to_be_bytes();
    let [kind_high, kind_low] = kind.to_be_bytes();
    let [high, middle, low] = length_bytes(payload.len());
    let header = [
        version_high | 0x80,
        version_low,
        kind_high,
        kind_low,
        0,
        high,
        middle,
        low,
    ];
    [&header, payload].concat()
}

fn length_bytes(length: usize) -> [u8; 3] {
    let [.., high, middle, low] = length.to_be_bytes();
    [high, middle, low]
}

fn put_length(block: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    block.extend_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn streams_are_opened_with_stored_headers() {
        let mut opener = StreamOpener::default();
        let first = opener.open(1, &[("streamtype", "error")]);
        let block = b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05error";
        let mut expected = vec![0x80, 3, 0, 1, 0, 0, 0, 49, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        expected.extend([0x78, 0x01, 0, 27, 0, !27, 0xff]);
        expected.extend(block);
        expected.extend([0, 0, 0, 0xff, 0xff]);
        assert_eq!(first, expected);
        let second = opener.open(3, &[("streamtype", "error")]);
        assert_eq!(second.len(), first.len() - ZLIB_HEADER.len());
    }

    #[test]
    fn frames_of_the_runtime() {
        let parsed = |bytes| FrameHeader::parse(bytes);
        assert_eq!(
            parsed([0, 0, 0, 5, 1, 0, 1, 2]),
            Some(FrameHeader::Data {
                stream: 5,
                fin: true,
                length: 258
            })
        );
        assert_eq!(
            parsed([0x80, 3, 0, 2, 0, 1, 0, 0]),
            Some(FrameHeader::Control {
                kind: SYN_REPLY,
                fin: false,
                length: 65536
            })
        );
        assert_eq!(
            parsed(*b"HTTP/1.1"),
            Some(FrameHeader::Data {
                stream: 0x4854_5450,
                fin: true,
                length: 0x31_2e31
            })
        );
        assert_eq!(parsed([0x80, 2, 0, 2, 0, 0, 0, 0]), None);
        let stream = [0, 0, 0, 7, 0, 0, 0, 1];
        for (kind, expected) in [
            (
                SYN_REPLY,
                ControlFrame::Accepted {
                    stream: 7,
                    fin: false,
                },
            ),
            (RST_STREAM, ControlFrame::Reset { stream: 7 }),
            (PING, ControlFrame::Ping([0, 0, 0, 7])),
            (GOAWAY, ControlFrame::GoAway),
            (SYN_STREAM, ControlFrame::Other),
            (4, ControlFrame::Other),
        ] {
            assert_eq!(control(kind, false, &stream), expected);
            assert_eq!(control(kind, false, &[0, 0]), ControlFrame::Other);
        }
        assert_eq!(ping([1, 2, 3, 4]), [0x80, 3, 0, 6, 0, 0, 0, 4, 1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn data_is_divided_into_frames(bytes in proptest::collection::vec(any::<u8>(), 0..100_000)) {
            let mut read = Vec::new();
            for (header, part) in data(3, &bytes) {
                let parsed = FrameHeader::parse(header);
                let expected = FrameHeader::Data { stream: 3, fin: false, length: part.len() };
                prop_assert_eq!(parsed, Some(expected));
                read.extend_from_slice(part);
            }
            prop_assert_eq!(read, bytes);
            let ended = FrameHeader::parse(end(3));
            prop_assert_eq!(ended, Some(FrameHeader::Data { stream: 3, fin: true, length: 0 }));
        }
    }
}
