//! How OTLP's JSON encodes values that JSON has no form for.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};

use crate::span::{hex, parse_span_id, parse_trace_id};

/// Longer texts are cut off, in bytes. What the services record is shorter.
pub(super) const MAX_TEXT: usize = 16 << 10;

/// The number of a failed span's status.
pub(super) const STATUS_ERROR: u32 = 2;

/// A text of JSON, borrowed where it has no escapes.
#[derive(Debug, Deserialize)]
pub(super) struct JsonText<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The text, cut off at the limit.
pub(super) fn cut(text: &str) -> String {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

/// A visitor of texts and numbers that says what it expects.
struct Scalar<T, F> {
    expected: &'static str,
    parse: F,
    of: std::marker::PhantomData<T>,
}

impl<T, F: Fn(&str) -> Option<T>> Visitor<'_> for Scalar<T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| {
            // What is quoted in an error is short.
            let shown: String = text.chars().take(40).collect();
            E::invalid_value(Unexpected::Str(&shown), &self)
        })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        (self.parse)(&number.to_string())
            .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

fn scalar<'de, D: Deserializer<'de>, T>(
    from: D,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, D::Error> {
    let of = std::marker::PhantomData;
    from.deserialize_any(Scalar {
        expected,
        parse,
        of,
    })
}

/// A text that is cut off at [`MAX_TEXT`].
pub(super) fn cut_text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(cut(&JsonText::deserialize(from)?.0))
}

/// The number of a status, or its name.
pub(super) fn status_code<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let expected = "a status code: 0, 1 or 2";
    scalar(from, expected, |text| match text {
        "STATUS_CODE_UNSET" => Some(0),
        "STATUS_CODE_OK" => Some(1),
        "STATUS_CODE_ERROR" => Some(STATUS_ERROR),
        number => number.parse().ok(),
    })
}

/// Trace IDs: 32 hexadecimal digits, not all zero.
pub(super) mod trace_id {
    use super::*;
    use crate::span::TraceId;

    pub(in super::super) fn serialize<S: serde::Serializer>(
        id: &TraceId,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex(id))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<TraceId, D::Error> {
        let is_valid = |id: &TraceId| *id != [0; 16];
        let expected = "a trace ID of 32 hexadecimal digits, not all zero";
        scalar(from, expected, |text| parse_trace_id(text).filter(is_valid))
    }
}

/// Span IDs: 16 hexadecimal digits.
pub(super) mod span_id {
    use super::*;
    use crate::span::SpanId;

    pub(in super::super) fn serialize<S: serde::Serializer>(
        id: &SpanId,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex(id))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<SpanId, D::Error> {
        scalar(from, "a span ID of 16 hexadecimal digits", parse_span_id)
    }
}

/// The parent of a span: roots have none, or an empty one.
pub(super) mod optional_span_id {
    use super::*;
    use crate::span::SpanId;

    pub(in super::super) fn serialize<S: serde::Serializer>(
        id: &Option<SpanId>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&id.map(|id| hex(&id)).unwrap_or_default())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SpanId>, D::Error> {
        let expected = "a span ID of 16 hexadecimal digits, or an empty string";
        scalar(from, expected, |text| match text {
            "" => Some(None),
            text => parse_span_id(text).map(Some),
        })
    }
}

/// Nanoseconds since 1970, as a string; numbers are read, too.
pub(super) mod nanoseconds {
    use super::*;

    pub(in super::super) fn serialize<S: serde::Serializer>(
        time: &u64,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_str(time)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<u64, D::Error> {
        let expected = "nanoseconds since 1970, as a string";
        scalar(from, expected, |text| text.parse().ok())
    }
}
