//! When the driver of a volume is asked on this node to make it larger, by what its claim says:
//! upstream's rules.

use super::facts::ClaimGrowth;

/// The cluster has done its part, and the node has not begun.
const PENDING: &str = "NodeResizePending";
/// The claim says that the node has begun.
const IN_PROGRESS: &str = "NodeResizeInProgress";

/// What the node has to do for a volume's growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Growth {
    /// Nothing.
    #[default]
    None,
    /// The claim has to say first that the node begins.
    Announced,
    /// The driver is to be asked, and the claim to be told.
    Asked,
    /// The claim has been told by another node: who holds a smaller one asks the driver.
    Elsewhere,
}

impl Growth {
    /// Whether the driver may be asked.
    pub fn is_asked(self) -> bool {
        matches!(self, Self::Asked | Self::Elsewhere)
    }
}

/// What has to be done for a volume of this size, in bytes.
pub fn growth(claim: &ClaimGrowth, size: i64) -> Growth {
    if claim.capacity >= size && claim.status.is_empty() {
        return Growth::Elsewhere;
    }
    match claim.status.as_str() {
        PENDING => Growth::Announced,
        IN_PROGRESS => Growth::Asked,
        // Who grows volumes here is older, and tells nothing in the claim.
        "" if !claim.told => Growth::Asked,
        _ => Growth::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_cases() {
        let claim = |capacity, status: &str, told| ClaimGrowth {
            requested: 20,
            capacity,
            status: status.into(),
            told,
        };
        for (is, wanted) in [
            (claim(10, "", false), Growth::Asked),
            (claim(20, "", false), Growth::Elsewhere),
            (claim(20, "", true), Growth::Elsewhere),
            (claim(10, "", true), Growth::None),
            (claim(10, PENDING, true), Growth::Announced),
            (claim(10, IN_PROGRESS, true), Growth::Asked),
            (claim(10, "ControllerResizeInProgress", true), Growth::None),
            (claim(10, "NodeResizeInfeasible", true), Growth::None),
        ] {
            assert_eq!(growth(&is, 20), wanted, "{is:?}");
        }
    }
}
