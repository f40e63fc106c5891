//! Queries about claims: their volumes in use, and their resizes.

use std::collections::{BTreeMap, BTreeSet};

use super::StateOfWorld;
use crate::core::actual_state::{ActualVolume, MountState};
use crate::core::api_objects::{ClaimResize, PersistentVolume};
use crate::core::claims;
use crate::core::csi;
use crate::core::layout::VolumeId;
use crate::core::operation::OperationState;
use crate::core::reference_key::ReferenceKey;
use crate::core::resize::{self, Expansion};
use crate::core::spec::{ClaimSpec, PodVolumeSpec};

/// The progress of a resize on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeState {
    /// About to begin.
    InProgress,
    /// The volume has the new size.
    Finished,
    /// Failed, and retried.
    Failed(String),
    /// Failed for good.
    Infeasible(String),
}

/// A claim whose volume is expanded on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizingClaim {
    /// The uid of the claim.
    pub uid: String,
    /// The new size, as the API writes it.
    pub size: String,
    /// The progress.
    pub state: ResizeState,
}

/// A claim of a pod, with its persistent volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundClaim {
    /// The claim.
    pub claim: ReferenceKey,
    /// The uid of the claim.
    pub uid: String,
    /// Name and uid of the persistent volume.
    pub volume: (String, String),
}

/// The attachable volumes that pods use or are about to use, by their names in the Node's
/// `volumesInUse`; each until it is torn down, also of pods that have not been declared yet.
pub(super) fn volumes_in_use(world: &StateOfWorld) -> BTreeSet<String> {
    let lookup = world.lookup();
    let desired = claims(world).filter_map(|(_, spec)| claims::attachable(spec, &lookup));
    let specs = world.applied_pods().map(|(_, spec)| spec);
    let migrated = specs
        .flat_map(PodVolumeSpec::migrated)
        .filter_map(|volume| csi::attachable(&volume.source, &lookup));
    let mut all = world.actual.in_use();
    all.extend(desired);
    all.extend(migrated);
    all
}

/// The claims of pods whose volumes are desired, with the uids of the pods.
fn claims(world: &StateOfWorld) -> impl Iterator<Item = (&str, &ClaimSpec)> {
    world
        .applied_pods()
        .flat_map(|(uid, spec)| spec.claims().map(move |claim| (uid, claim)))
}

/// The claims whose volumes are expanded on this node, by namespace and name.
pub(super) fn resizing(world: &StateOfWorld) -> BTreeMap<(String, String), ResizingClaim> {
    let mut all = BTreeMap::new();
    for (uid, spec) in claims(world) {
        let Some((claim, persistent)) = claims::bound_volume(spec, &world.lookup()) else {
            continue;
        };
        let Some(state) = resize_state(world, uid, spec, &claim.resize, &persistent) else {
            continue;
        };
        let target = resize::target_size(&claim.resize, &persistent.capacity);
        let resizing = ResizingClaim {
            size: target.0.clone(),
            uid: claim.uid,
            state,
        };
        let key = (spec.key.namespace.clone(), spec.key.name.clone());
        // The volume may have been expanded for another pod of this node already.
        let entry = all.entry(key).or_insert_with(|| resizing.clone());
        if resizing.state == ResizeState::Finished {
            *entry = resizing;
        }
    }
    all
}

/// The progress of a resize for one pod; `None` if there is nothing to report.
fn resize_state(
    world: &StateOfWorld,
    uid: &str,
    spec: &ClaimSpec,
    claim: &ClaimResize,
    persistent: &PersistentVolume,
) -> Option<ResizeState> {
    let lookup = world.lookup();
    let size = resize::volume_size(claim, &persistent.capacity, spec.read_only);
    match size.expansion {
        Expansion::Announced => {
            // Whatever else the volume waits for comes first.
            let desired = claims::resolve(&persistent.name, spec, &lookup).1.ok()?;
            let announced = desired.expansion() == Expansion::Announced;
            announced.then_some(ResizeState::InProgress)
        }
        Expansion::Requested => {
            let (key, _) = claims::resolve(&persistent.name, spec, &lookup);
            let volume = world.actual.volume(&VolumeId::new(uid, &key.0, &key.1))?;
            expansion_result(volume, claim, size.bytes)
        }
        Expansion::None | Expansion::OnOtherNode | Expansion::ReadOnly => None,
    }
}

/// The result of an expansion that this node is to do.
fn expansion_result(volume: &ActualVolume, claim: &ClaimResize, bytes: i64) -> Option<ResizeState> {
    let size = match &volume.mount {
        MountState::Mounted(plan) => plan.size(),
        _ => None,
    };
    let (error, attempts) = match (&volume.expansion_blocked, &volume.operation) {
        (Some(error), _) => (error.clone(), 1),
        (None, OperationState::Failed(failure)) if failure.is_expansion(size.is_some()) => {
            (failure.error.message.clone(), failure.attempts)
        }
        _ => return (size?.bytes >= bytes).then_some(ResizeState::Finished),
    };
    // An older resize controller, which reports nothing in the claim, gets no failures either.
    claim.reported.then(
        || match resize::is_infeasible(&error, attempts, claim, bytes) {
            true => ResizeState::Infeasible(error),
            false => ResizeState::Failed(error),
        },
    )
}

/// The claim by which a pod has a volume, and the persistent volume.
pub(super) fn bound_claim(world: &StateOfWorld, id: &VolumeId) -> Option<BoundClaim> {
    let mut claims = claims(world).filter(|(uid, _)| *uid == id.uid);
    claims.find_map(|(_, spec)| {
        let (claim, volume) = claims::bound_volume(spec, &world.lookup())?;
        (volume.name == id.name).then(|| BoundClaim {
            claim: spec.key.clone(),
            uid: claim.uid,
            volume: (volume.name.clone(), volume.uid.clone()),
        })
    })
}
