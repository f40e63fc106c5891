//! When a volume is expanded on this node, by the status of its claim: upstream's rules.

use super::api_objects::{Capacity, ClaimResize};

/// The controller has expanded the volume; the node has not begun.
const PENDING: &str = "NodeResizePending";
/// The node has begun.
const IN_PROGRESS: &str = "NodeResizeInProgress";

/// The failed step of a volume that was mounted and cannot be expanded.
pub const MOUNT_STEP: &str = "MountVolume.Setup failed while expanding volume";
/// The same for a block device.
pub const MAP_STEP: &str = "MapVolume.MarkVolumeAsMounted failed while expanding volume";

/// Whether the failed step is the expansion that ends setting up.
pub fn is_expansion_step(step: &str) -> bool {
    [MOUNT_STEP, MAP_STEP].contains(&step)
}

/// What the node has to do to expand a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expansion {
    /// Nothing to do.
    #[default]
    None,
    /// Report that the node begins; the claim has to show it first.
    Announced,
    /// Expand the volume, and report the result for the claim.
    Requested,
    /// Expand a smaller volume; another node has reported the result.
    OnOtherNode,
    /// Emit an event: the pod has the volume read-only.
    ReadOnly,
}

impl Expansion {
    /// Whether the node expands the volume.
    pub fn is_requested(self) -> bool {
        matches!(self, Self::Requested | Self::OnOtherNode)
    }
}

/// The size of a volume once its expansion is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VolumeSize {
    /// The size in bytes.
    pub bytes: i64,
    /// The expansion that it takes.
    pub expansion: Expansion,
}

impl VolumeSize {
    /// Whether a mounted volume of this size has to be expanded to the desired one.
    pub fn needs_expansion(self, desired: VolumeSize) -> bool {
        desired.expansion.is_requested() && self.bytes < desired.bytes
    }
}

/// The size to expand to: the claim's `allocatedResources` if it has them, or else the volume's
/// capacity.
pub fn target_size<'a>(claim: &'a ClaimResize, volume: &'a Capacity) -> &'a Capacity {
    match &claim.allocated {
        Some(allocated) => allocated,
        None => volume,
    }
}

/// The size and expansion of the volume of a claim.
pub fn volume_size(claim: &ClaimResize, volume: &Capacity, read_only: bool) -> VolumeSize {
    let bytes = target_size(claim, volume).1;
    let expansion = match expansion(claim, bytes, volume.1) {
        _ if read_only && claim.capacity < volume.1 => Expansion::ReadOnly,
        _ if read_only => Expansion::None,
        expansion => expansion,
    };
    let bytes = if expansion.is_requested() {
        bytes
    } else {
        claim.capacity
    };
    VolumeSize { bytes, expansion }
}

fn expansion(claim: &ClaimResize, target: i64, volume: i64) -> Expansion {
    if claim.capacity >= target && claim.status.is_empty() {
        // Each of several nodes expands its own mount, unless the controller did it for all.
        return match claim.reported && (!claim.read_write_many || claim.node_expansion_not_required)
        {
            true => Expansion::None,
            false => Expansion::OnOtherNode,
        };
    }
    match claim.status.as_str() {
        _ if claim.capacity >= volume => Expansion::None,
        PENDING => Expansion::Announced,
        IN_PROGRESS => Expansion::Requested,
        // An older resize controller, which reports nothing in the claim.
        "" if !claim.reported => Expansion::Requested,
        _ => Expansion::None,
    }
}

/// gRPC codes of final failures, as upstream reads them.
const FINAL_CODES: [&str; 3] = ["InvalidArgument", "OutOfRange", "NotFound"];

/// Whether a failure is reported as infeasible: its code is final, or it failed before and the claim
/// requests another size by now, to which the controller can return only then.
pub fn is_infeasible(error: &str, attempts: u32, claim: &ClaimResize, target: i64) -> bool {
    let has_code = |code: &&str| error.contains(&format!("rpc error: code = {code} "));
    FINAL_CODES.iter().any(has_code) || (attempts > 1 && claim.requested != target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(capacity: i64, status: &str, granted: Option<i64>) -> ClaimResize {
        ClaimResize {
            requested: 20,
            capacity,
            status: status.into(),
            reported: granted.is_some() || !status.is_empty(),
            allocated: granted.map(|bytes| (bytes.to_string(), bytes)),
            ..ClaimResize::default()
        }
    }

    #[test]
    fn expansion_follows_the_claim_as_upstream() {
        let many_nodes = |claim: ClaimResize| ClaimResize {
            read_write_many: true,
            ..claim
        };
        let done_for_all = |claim: ClaimResize| ClaimResize {
            node_expansion_not_required: true,
            ..claim
        };
        let size = |expansion, bytes| VolumeSize { bytes, expansion };
        let volume = ("20".to_owned(), 20);
        for (claim, expected) in [
            (claim(10, "", None), size(Expansion::Requested, 20)),
            (claim(20, "", None), size(Expansion::OnOtherNode, 20)),
            // Used by one node only: the controller has done everything.
            (claim(20, "", Some(20)), size(Expansion::None, 20)),
            (
                many_nodes(claim(20, "", Some(20))),
                size(Expansion::OnOtherNode, 20),
            ),
            (
                done_for_all(many_nodes(claim(20, "", Some(20)))),
                size(Expansion::None, 20),
            ),
            (claim(10, "", Some(20)), size(Expansion::None, 10)),
            (claim(10, PENDING, Some(20)), size(Expansion::Announced, 10)),
            (
                claim(10, IN_PROGRESS, Some(20)),
                size(Expansion::Requested, 20),
            ),
            // The allocated size counts, not the capacity of the volume.
            (
                claim(10, IN_PROGRESS, Some(15)),
                size(Expansion::Requested, 15),
            ),
            // The volume has not been expanded yet.
            (claim(20, PENDING, Some(30)), size(Expansion::None, 20)),
            (
                claim(10, "ControllerResizeInProgress", Some(20)),
                size(Expansion::None, 10),
            ),
            (
                claim(10, "NodeResizeInfeasible", Some(20)),
                size(Expansion::None, 10),
            ),
        ] {
            assert_eq!(volume_size(&claim, &volume, false), expected, "{claim:?}");
        }
        let read_only = |claim| volume_size(&claim, &volume, true).expansion;
        assert_eq!(read_only(claim(10, PENDING, Some(20))), Expansion::ReadOnly);
        assert_eq!(read_only(claim(20, "", None)), Expansion::None);
    }

    #[test]
    fn infeasible_by_code_or_by_a_changed_request() {
        let claim = claim(10, IN_PROGRESS, Some(20));
        let is_final = "rpc error: code = OutOfRange desc = too large";
        assert!(is_infeasible(is_final, 1, &claim, 20));
        let busy = "rpc error: code = Internal desc = OutOfRange";
        assert!(!is_infeasible(busy, 9, &claim, 20));
        // The user requests less in the meantime.
        let less = ClaimResize {
            requested: 12,
            ..claim
        };
        assert!(!is_infeasible(busy, 1, &less, 20));
        assert!(is_infeasible(busy, 2, &less, 20));
    }
}
