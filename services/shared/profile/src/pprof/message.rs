//! The messages of pprof's `profile.proto`, which is a public format: its fields and their numbers. Texts
//! are positions in the table of strings, which begins with an empty one.

/// All of a profile.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ProfileMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueTypeMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<SampleMessage>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<MappingMessage>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<LocationMessage>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<FunctionMessage>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueTypeMessage>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(crate) comment: Vec<i64>,
}

/// What a value means.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ValueTypeMessage {
    #[prost(int64, tag = "1")]
    pub(crate) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
}

/// A stack, innermost location first, and its values.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SampleMessage {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
}

/// A program in memory.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MappingMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "5")]
    pub(crate) filename: i64,
    #[prost(bool, tag = "7")]
    pub(crate) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(crate) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(crate) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(crate) has_inline_frames: bool,
}

/// An address.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LocationMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<LineMessage>,
}

/// A function at an address.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LineMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) line: i64,
}

/// A function.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FunctionMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
    #[prost(int64, tag = "3")]
    pub(crate) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(crate) filename: i64,
}
