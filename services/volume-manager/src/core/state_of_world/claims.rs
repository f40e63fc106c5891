//! Queries about claims: their volumes in use, and their resizes.

use std::collections::{BTreeMap, BTreeSet};

use polylet_model::PodUid;

use super::StateOfWorld;
use crate::core::actual_state::{ActualVolume, MountState};
use crate::core::api_objects::{ClaimResize, PersistentVolume};
use crate::core::claims;
use crate::core::csi;
use crate::core::layout::VolumeId;
use crate::core::operation::OperationState;
use crate::core::reference_key::ReferenceKey;
use crate::core::resize::{self, Expansion};
use crate::core::spec::ClaimSpec;

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

/// What is published of the claims and attachable volumes of pods.
#[derive(Debug, Default)]
pub(super) struct ClaimStates {
    /// Of the pods that have any.
    pods: BTreeMap<PodUid, PodClaimState>,
    changed: BTreeSet<PodUid>,
}

/// What is published of the claims and attachable volumes of one pod.
#[derive(Debug, Default, PartialEq)]
struct PodClaimState {
    /// The attachable volumes that the pod uses or is about to use, by their names in the Node's `volumesInUse`;
    /// each until it is torn down, also if the pod has not been declared yet.
    in_use: BTreeSet<String>,
    /// The claims whose volumes are expanded on this node, by namespace and name.
    resizing: BTreeMap<(String, String), ResizingClaim>,
}

impl ClaimStates {
    /// The state of a pod is to be computed again.
    pub(super) fn mark_changed(&mut self, uid: &PodUid) {
        self.changed.insert(uid.clone());
    }

    /// The attachable volumes of all pods.
    pub(super) fn in_use(&self) -> BTreeSet<String> {
        let names = self.pods.values().flat_map(|pod| &pod.in_use);
        names.cloned().collect()
    }

    /// The claims of all pods whose volumes are expanded on this node, by namespace and name.
    pub(super) fn resizing(&self) -> BTreeMap<(String, String), ResizingClaim> {
        let mut all = BTreeMap::new();
        for (key, resizing) in self.pods.values().flat_map(|pod| &pod.resizing) {
            // The volume may have been expanded for another pod of this node already.
            let entry = all.entry(key.clone()).or_insert_with(|| resizing.clone());
            if resizing.state == ResizeState::Finished {
                entry.clone_from(resizing);
            }
        }
        all
    }

    fn set(&mut self, uid: PodUid, state: PodClaimState) -> bool {
        if self.pods.get(&uid) == Some(&state) {
            return false;
        }
        match state == PodClaimState::default() {
            true => self.pods.remove(&uid).is_some(),
            false => {
                self.pods.insert(uid, state);
                true
            }
        }
    }
}

/// Computes the states of the pods that have changed; returns whether any is another one now.
pub(super) fn refresh(world: &mut StateOfWorld) -> bool {
    let mut changed = false;
    for uid in std::mem::take(&mut world.claims.changed) {
        let state = pod_state(world, &uid);
        changed |= world.claims.set(uid, state);
    }
    changed
}

fn pod_state(world: &StateOfWorld, uid: &PodUid) -> PodClaimState {
    let mut state = PodClaimState {
        in_use: world.actual.in_use(uid).cloned().collect(),
        ..PodClaimState::default()
    };
    let Some(spec) = world.applied(uid) else {
        return state;
    };
    let lookup = world.lookup();
    let attachable = spec
        .claims()
        .filter_map(|claim| claims::attachable(claim, &lookup));
    state.in_use.extend(attachable);
    let migrated = spec
        .migrated()
        .filter_map(|volume| csi::attachable(&volume.source, &lookup));
    state.in_use.extend(migrated);
    for claim in spec.claims() {
        let key = || (claim.key.namespace.clone(), claim.key.name.clone());
        if let Some(resizing) = resizing_claim(world, uid, claim) {
            state.resizing.insert(key(), resizing);
        }
    }
    state
}

fn resizing_claim(world: &StateOfWorld, uid: &PodUid, spec: &ClaimSpec) -> Option<ResizingClaim> {
    let (claim, persistent) = claims::bound_volume(spec, &world.lookup())?;
    let state = resize_state(world, uid, spec, &claim.resize, &persistent)?;
    let target = resize::target_size(&claim.resize, &persistent.capacity);
    Some(ResizingClaim {
        size: target.0.clone(),
        uid: claim.uid,
        state,
    })
}

/// The progress of a resize for one pod; `None` if there is nothing to report.
fn resize_state(
    world: &StateOfWorld,
    uid: &PodUid,
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
            let volume = world
                .actual
                .volume(&VolumeId::new(uid.clone(), &key.0, &key.1))?;
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
    let mut claims = world.applied(&id.uid)?.claims();
    claims.find_map(|spec| {
        let (claim, volume) = claims::bound_volume(spec, &world.lookup())?;
        (volume.name == id.name).then(|| BoundClaim {
            claim: spec.key.clone(),
            uid: claim.uid,
            volume: (volume.name.clone(), volume.uid.clone()),
        })
    })
}
