//! What services count, and metrics in the text formats of Prometheus and OpenMetrics.
//!
//! - [`Metric`]: a family of series that a service counts. Families are statics, as those of upstream, and
//!   [`register`]ed when the service is built; [`gather`] reads all of them.
//! - [`Exposition`]: the text.
//!
//! Not a published crate: `prometheus-client` writes neither time stamps nor the older text format that
//! the kubelet serves, and cannot be read back for another process to serve; `prometheus` refuses names
//! and labels only when it runs.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod exposition_format;
mod registry;
mod text;

pub use exposition_format::ExpositionFormat;
pub use registry::{DEFAULT_BUCKETS, Metric, Series, SeriesValue, gather, register};
pub use text::{Exemplar, Exposition, Family, FamilyKind, HistogramValue, Labels};
