//! Pods without a dump.

/// Why a pod has no dump.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// A value of another type, which a kubelet rejects.
    #[error("no value of the Go type {go_type}")]
    Value {
        /// Name of the Go type.
        go_type: String,
    },
    /// A point in time: its dump has the tables of the kubelet's time zone.
    #[error("a time is set")]
    Time,
    /// The layout lacks a type.
    #[error("the Go type {go_type} is not in the layout")]
    GoLayout {
        /// Name of the Go type.
        go_type: String,
    },
}
