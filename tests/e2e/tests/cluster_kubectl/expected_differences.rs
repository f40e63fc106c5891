//! Lines that differ from those with a kubelet, with the reasons.

use crate::transcript::ExpectedLine;

/// All expected differences.
pub(crate) fn all() -> Vec<ExpectedLine> {
    vec![]
}
