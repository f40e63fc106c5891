//! The messages of OTLP in their JSON encoding, as far as they are read and written here: IDs are hexadecimal, integers
//! of 64 bits are strings, and fields that are not known are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::attributes::{self, OtlpAttributes};
use super::encoding::{cut_text, nanoseconds, optional_span_id, span_id, status_code, trace_id};
use crate::span::{SpanId, TraceId};

/// A line of a file: spans by the resource that recorded them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpLine {
    pub(super) resource_spans: Vec<OtlpResourceSpans>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpResourceSpans {
    #[serde(default)]
    pub(super) resource: OtlpResource,
    #[serde(default)]
    pub(super) scope_spans: Vec<OtlpScopeSpans>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct OtlpResource {
    #[serde(default, with = "attributes")]
    pub(super) attributes: OtlpAttributes,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OtlpScopeSpans {
    #[serde(default)]
    pub(super) spans: Vec<OtlpSpan>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpSpan {
    #[serde(with = "trace_id")]
    pub(super) trace_id: TraceId,
    #[serde(with = "span_id")]
    pub(super) span_id: SpanId,
    #[serde(
        default,
        with = "optional_span_id",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) parent_span_id: Option<SpanId>,
    #[serde(default, deserialize_with = "cut_text")]
    pub(super) name: String,
    #[serde(with = "nanoseconds")]
    pub(super) start_time_unix_nano: u64,
    #[serde(with = "nanoseconds")]
    pub(super) end_time_unix_nano: u64,
    #[serde(
        default,
        with = "attributes",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(super) attributes: OtlpAttributes,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) links: Vec<OtlpLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<OtlpStatus>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OtlpLink {
    #[serde(with = "trace_id")]
    pub(super) trace_id: TraceId,
    #[serde(with = "span_id")]
    pub(super) span_id: SpanId,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OtlpStatus {
    #[serde(default, deserialize_with = "status_code")]
    pub(super) code: u32,
    #[serde(default, deserialize_with = "cut_text")]
    pub(super) message: String,
}
