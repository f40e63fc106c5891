//! When a volume is made larger on this node, by what its claim says: upstream's rules.

use super::facts::ClaimGrowth;

/// The cluster has done its part, and the node has not begun.
const PENDING: &str = "NodeResizePending";
/// The claim says that the node has begun.
const IN_PROGRESS: &str = "NodeResizeInProgress";

/// What people are told of a volume that was mounted and cannot be made larger then.
pub const MOUNTING: &str = "MountVolume.Setup failed while expanding volume";
/// The same of a device.
pub const MAPPING: &str = "MapVolume.MarkVolumeAsMounted failed while expanding volume";

/// Whether what failed was the last step of setting a volume up: making it larger.
pub fn is_last(doing: &str) -> bool {
    [MOUNTING, MAPPING].contains(&doing)
}

/// What the node has to do for a volume's growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Growth {
    /// Nothing.
    #[default]
    None,
    /// The claim has to say first that the node begins.
    Announced,
    /// It is to be made larger, and the claim to be told.
    Asked,
    /// The claim has been told by another node: who holds a smaller one makes it larger.
    Elsewhere,
    /// There is something to do, and the pod has it read-only: people are told.
    Forbidden,
}

impl Growth {
    /// Whether the volume may be made larger.
    pub fn is_asked(self) -> bool {
        matches!(self, Self::Asked | Self::Elsewhere)
    }
}

/// How large a volume is, or will be when all is done that is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// In bytes.
    pub bytes: i64,
    /// What that takes.
    pub growth: Growth,
}

impl Size {
    /// Whether a volume of this size, which is held, has to be made larger to be as the wanted one.
    pub fn grows_to(self, wanted: Size) -> bool {
        wanted.growth.is_asked() && self.bytes < wanted.bytes
    }
}

/// A size as the API writes it, and in bytes.
pub type Amount = (String, i64);

/// The size that a volume has to come to: what the cluster has granted, where it says that in the
/// claim, and otherwise the volume's own.
pub fn aim<'a>(claim: &'a ClaimGrowth, volume: &'a Amount) -> &'a Amount {
    match &claim.granted {
        Some(granted) => granted,
        None => volume,
    }
}

/// What has to be done for a volume of this size.
pub fn growth(claim: &ClaimGrowth, volume: &Amount, read_only: bool) -> Size {
    let bytes = aim(claim, volume).1;
    let growth = match wanted(claim, bytes, volume.1) {
        _ if read_only && claim.capacity < volume.1 => Growth::Forbidden,
        _ if read_only => Growth::None,
        wanted => wanted,
    };
    let bytes = if growth.is_asked() {
        bytes
    } else {
        claim.capacity
    };
    Size { bytes, growth }
}

fn wanted(claim: &ClaimGrowth, aim: i64, volume: i64) -> Growth {
    if claim.capacity >= aim && claim.status.is_empty() {
        // Each node of several has its own part to do, unless the cluster did it for all.
        return match claim.told && (!claim.of_many || claim.not_on_nodes) {
            true => Growth::None,
            false => Growth::Elsewhere,
        };
    }
    match claim.status.as_str() {
        _ if claim.capacity >= volume => Growth::None,
        PENDING => Growth::Announced,
        IN_PROGRESS => Growth::Asked,
        // Who grows volumes here is older, and tells nothing in the claim.
        "" if !claim.told => Growth::Asked,
        _ => Growth::None,
    }
}

/// CSI's codes for what will never be done, as upstream reads them.
const NEVER: [&str; 3] = ["InvalidArgument", "OutOfRange", "NotFound"];

/// Whether a failure is told as one that will not end by itself: the driver says so, or it failed
/// before and the claim asks for another size meanwhile, which the cluster can only go back to then.
pub fn is_infeasible(why: &str, attempts: u32, claim: &ClaimGrowth, aim: i64) -> bool {
    let says = |code: &&str| why.contains(&format!("rpc error: code = {code} "));
    NEVER.iter().any(says) || (attempts > 1 && claim.requested != aim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(capacity: i64, status: &str, granted: Option<i64>) -> ClaimGrowth {
        ClaimGrowth {
            requested: 20,
            capacity,
            status: status.into(),
            told: granted.is_some() || !status.is_empty(),
            granted: granted.map(|bytes| (bytes.to_string(), bytes)),
            ..ClaimGrowth::default()
        }
    }

    #[test]
    fn upstreams_cases() {
        let many = |of: ClaimGrowth| ClaimGrowth {
            of_many: true,
            ..of
        };
        let done = |of: ClaimGrowth| ClaimGrowth {
            not_on_nodes: true,
            ..of
        };
        let size = |growth, bytes| Size { bytes, growth };
        let volume = ("20".to_owned(), 20);
        for (is, wanted) in [
            (claim(10, "", None), size(Growth::Asked, 20)),
            (claim(20, "", None), size(Growth::Elsewhere, 20)),
            // One node alone has it: the cluster has done all.
            (claim(20, "", Some(20)), size(Growth::None, 20)),
            (many(claim(20, "", Some(20))), size(Growth::Elsewhere, 20)),
            (done(many(claim(20, "", Some(20)))), size(Growth::None, 20)),
            (claim(10, "", Some(20)), size(Growth::None, 10)),
            (claim(10, PENDING, Some(20)), size(Growth::Announced, 10)),
            (claim(10, IN_PROGRESS, Some(20)), size(Growth::Asked, 20)),
            // What was granted counts, and not what the volume has of it.
            (claim(10, IN_PROGRESS, Some(15)), size(Growth::Asked, 15)),
            // The volume is not larger yet.
            (claim(20, PENDING, Some(30)), size(Growth::None, 20)),
            (
                claim(10, "ControllerResizeInProgress", Some(20)),
                size(Growth::None, 10),
            ),
            (
                claim(10, "NodeResizeInfeasible", Some(20)),
                size(Growth::None, 10),
            ),
        ] {
            assert_eq!(growth(&is, &volume, false), wanted, "{is:?}");
        }
        let read_only = |is| growth(&is, &volume, true).growth;
        assert_eq!(read_only(claim(10, PENDING, Some(20))), Growth::Forbidden);
        assert_eq!(read_only(claim(20, "", None)), Growth::None);
    }

    #[test]
    fn what_will_never_be() {
        let claim = claim(10, IN_PROGRESS, Some(20));
        let never = "rpc error: code = OutOfRange desc = too large";
        assert!(is_infeasible(never, 1, &claim, 20));
        let busy = "rpc error: code = Internal desc = OutOfRange";
        assert!(!is_infeasible(busy, 9, &claim, 20));
        // The user asks for less meanwhile.
        let less = ClaimGrowth {
            requested: 12,
            ..claim
        };
        assert!(!is_infeasible(busy, 1, &less, 20));
        assert!(is_infeasible(busy, 2, &less, 20));
    }
}
