//! volume-manager: the real state of world over the simulated disk.

use std::sync::Arc;

use polylet_model::PodUid;
use polylet_sync_coordinator::core::step::StepFailure;
use polylet_sync_coordinator::runtime::StepContext;
use polylet_volume_manager::convert;
use polylet_volume_manager::core::actual_state::{ReconstructedPod, ReconstructedVolume};
use polylet_volume_manager::core::desired_state::DeclareError;
use polylet_volume_manager::core::layout::{self, Layout};
use polylet_volume_manager::core::manifest;
use polylet_volume_manager::core::operation::{Operation, OperationResult};
use polylet_volume_manager::core::pod::{PodMetadata, PodName};
use polylet_volume_manager::core::spec::Allocatable;
use polylet_volume_manager::core::state_of_world::StateOfWorld;
use polylet_watch::Store;
use polylet_wire::volume::v1::PodVolumes;

use crate::calls::{Work, step_failure};
use crate::invariants;
use crate::world::{ServiceId, World};

/// A process instance of volume-manager.
pub struct Volumes {
    /// The number of the instance.
    pub incarnation: u32,
    state: StateOfWorld,
    store: Store<PodUid, PodVolumes>,
}

impl Volumes {
    /// The next due time.
    pub fn due(&self) -> Option<jiff::Timestamp> {
        self.state.next_retry()
    }
}

/// Starts an instance that reconstructs its state from the disk.
pub fn start(world: &mut World, incarnation: u32) {
    let found = world.disk.pods.iter().map(|(uid, dir)| {
        let (name, host_paths) = dir.metadata.clone().unwrap_or_default();
        let namespace = if name.is_empty() { "" } else { "default" };
        let pod = PodName {
            uid: uid.as_str().into(),
            namespace: namespace.to_owned(),
            name,
        };
        let volumes = dir.volumes.iter().map(|(slot, ready)| {
            let found = ReconstructedVolume {
                ready: *ready,
                in_use: None,
            };
            (slot.clone(), found)
        });
        ReconstructedPod {
            metadata: PodMetadata { pod, host_paths },
            volumes: volumes.collect(),
        }
    });
    let state = StateOfWorld::new(Layout::new("/root"), found.collect());
    let store = Store::new(&format!("volumes-{incarnation}"));
    world.stores.volumes = Some((incarnation, store.clone()));
    world.volumes = Some(Volumes {
        incarnation,
        state,
        store,
    });
    publish(world);
    if let Some(volumes) = &world.volumes {
        volumes.store.mark_synced();
    }
}

fn publish(world: &mut World) {
    let now = world.now;
    let Some(volumes) = &mut world.volumes else {
        return;
    };
    for (uid, view) in volumes.state.take_changes(now) {
        match view {
            Some(view) => drop(
                volumes
                    .store
                    .upsert(uid.clone(), convert::pod_volumes(&view, None)),
            ),
            None => drop(volumes.store.remove(&uid)),
        }
        // Written at once: delays are tested elsewhere.
        if let Some(metadata) = volumes.state.metadata_to_store(&uid) {
            let dir = world.disk.pods.entry(uid.into()).or_default();
            dir.metadata = Some((metadata.pod.name, metadata.host_paths));
        }
    }
}

/// Starts operations and publishes changes.
pub fn act(world: &mut World) {
    let now = world.now;
    let Some(volumes) = &mut world.volumes else {
        return;
    };
    let incarnation = volumes.incarnation;
    for step in volumes.state.start_operations(now) {
        world.call(
            ServiceId::Volumes,
            incarnation,
            Work::Volume {
                step,
                started: false,
            },
        );
    }
    publish(world);
}

fn declare_error(error: DeclareError) -> StepFailure {
    StepFailure {
        superseded: matches!(error, DeclareError::Superseded(_)),
        ..step_failure("VolumeError", &error.to_string())
    }
}

fn declared(
    world: &mut World,
    context: &StepContext,
    released: bool,
) -> Result<PodVolumes, StepFailure> {
    act(world);
    let Some(volumes) = &world.volumes else {
        return Err(step_failure("VolumeError", "unavailable"));
    };
    let uid = PodUid::from(context.pod.uid.as_str());
    let empty = || PodVolumes {
        r#ref: Some(convert::pod_ref(&volumes.state.pod(&uid))),
        ..PodVolumes::default()
    };
    let volumes_of_pod = volumes.store.get(&uid).unwrap_or_else(empty);
    world.record(|| {
        format!(
            "volumes: {} of {uid} accepted",
            if released { "release" } else { "declaration" }
        )
    });
    Ok(volumes_of_pod)
}

fn name(context: &StepContext) -> PodName {
    PodName {
        uid: context.pod.uid.as_str().into(),
        namespace: context.pod.namespace.clone(),
        name: context.pod.name.clone(),
    }
}

/// `ApplyPod`.
pub fn apply(
    world: &mut World,
    client_id: &str,
    context: &StepContext,
) -> Result<PodVolumes, StepFailure> {
    let Some(volumes) = &mut world.volumes else {
        return Err(step_failure("VolumeError", "unavailable"));
    };
    let raw = context
        .manifest
        .as_ref()
        .map(|m| m.raw().to_vec())
        .unwrap_or_default();
    let spec = manifest::parse(&raw, Allocatable::default());
    let spec = spec.map_err(|e| step_failure("VolumeError", &e.to_string()))?;
    let result = volumes
        .state
        .apply(client_id, context.sequence, name(context), Arc::new(spec));
    result.map_err(declare_error)?;
    declared(world, context, false)
}

/// `ReleasePod`.
pub fn release(
    world: &mut World,
    client_id: &str,
    context: &StepContext,
    sequence: u64,
) -> Result<PodVolumes, StepFailure> {
    let Some(volumes) = &mut world.volumes else {
        return Err(step_failure("VolumeError", "unavailable"));
    };
    let result = volumes.state.release(client_id, sequence, name(context));
    result.map_err(declare_error)?;
    declared(world, context, true)
}

/// `CompleteDesired`.
pub fn complete(world: &mut World, client_id: &str, pods: u32) -> Result<(), StepFailure> {
    let Some(volumes) = &mut world.volumes else {
        return Err(step_failure("VolumeError", "unavailable"));
    };
    let result = volumes
        .state
        .complete(client_id, pods)
        .map_err(declare_error);
    act(world);
    result
}

/// Executes an operation on the disk, completely or in part.
pub fn execute_operation(world: &mut World, step: &Operation, complete: bool) {
    match step {
        // Driver calls change nothing on the disk.
        Operation::Update(..) => {}
        Operation::SetUp(id, _) if id.plugin == layout::HOST_PATH => {}
        Operation::SetUp(id, _) => {
            let dir = world.disk.pods.entry(id.uid.to_string()).or_default();
            let slot = (id.plugin.clone(), id.name.clone());
            let ready = dir.volumes.entry(slot).or_insert(false);
            *ready |= complete;
        }
        Operation::TearDown(id) => {
            invariants::removal::check_unmount(world, &id.uid, &id.name);
            if let Some(dir) = world.disk.pods.get_mut(id.uid.as_str()) {
                let slot = (id.plugin.clone(), id.name.clone());
                match complete {
                    true => drop(dir.volumes.remove(&slot)),
                    false => drop(dir.volumes.get_mut(&slot).map(|ready| *ready = false)),
                }
            }
        }
        Operation::RemovePodDir(uid) => {
            invariants::removal::check_unmount(world, uid, "its directory");
            if complete {
                world.disk.pods.remove(uid.as_str());
            }
        }
    }
}

/// Completes an operation.
pub fn complete_operation(world: &mut World, step: Operation, result: Result<(), String>) {
    let now = world.now;
    if let Some(volumes) = &mut world.volumes {
        let result = result.map_err(Into::into);
        volumes.state.finish_operation(
            OperationResult {
                operation: step,
                result,
            },
            now,
        );
    }
    act(world);
}
