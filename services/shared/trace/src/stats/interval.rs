//! An estimate with its interval.

use serde::Serialize;

/// An estimate, and the interval that contains the true value with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}
