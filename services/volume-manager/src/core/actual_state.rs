//! The actual state of world: the volumes that are there, and the operations on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::PodUid;

use super::layout::{self, VolumeId, VolumeKey};
use super::mount_plan::MountPlan;
use super::operation::{Operation, OperationResult, OperationState, VolumeUpdate};
use super::pod::PodMetadata;

/// What is there of one pod.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActualPod {
    /// The volumes.
    pub volumes: BTreeMap<VolumeKey, ActualVolume>,
    /// The operation on the pod's directory.
    pub operation: OperationState,
}

/// What is there of one volume.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActualVolume {
    /// Whether it is mounted.
    pub mount: MountState,
    /// The operation on it.
    pub operation: OperationState,
    /// When its driver was last called to publish it.
    pub published_at: Option<Timestamp>,
    /// The name in the Node's `volumesInUse`, if it has been attached; until it is torn down.
    pub in_use: Option<String>,
    /// Why it is not expanded before it is set up again.
    pub expansion_blocked: Option<String>,
}

/// Whether a volume is mounted, and how.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum MountState {
    /// Not mounted, or not completely.
    #[default]
    NotMounted,
    /// Found on disk at the start of this process.
    Reconstructed {
        /// Completely set up.
        ready: bool,
    },
    /// Set up exactly by this plan.
    Mounted(Arc<MountPlan>),
}

impl MountState {
    /// Whether containers can use the volume.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Reconstructed { ready: true } | Self::Mounted(_))
    }
}

/// A pod found on disk at the start.
#[derive(Debug, Clone, Default)]
pub struct ReconstructedPod {
    /// The pod and its host paths, as far as they were stored.
    pub metadata: PodMetadata,
    /// The volumes on disk.
    pub volumes: BTreeMap<VolumeKey, ReconstructedVolume>,
}

/// A volume found on disk at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReconstructedVolume {
    /// Completely set up.
    pub ready: bool,
    /// The name in the Node's `volumesInUse`, if it was attached.
    pub in_use: Option<String>,
}

/// What the end of an operation means for the rest of the world.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// The volume or pod has changed.
    Changed,
    /// The volume is gone.
    VolumeRemoved(VolumeId),
    /// The pod's directory is gone.
    PodRemoved,
}

/// The volumes of all pods that are there.
#[derive(Debug, Default)]
pub(super) struct ActualStateOfWorld {
    pods: BTreeMap<PodUid, ActualPod>,
    metadata: BTreeMap<PodUid, PodMetadata>,
}

impl ActualStateOfWorld {
    /// The state as found on disk.
    pub(super) fn new(reconstructed: Vec<ReconstructedPod>) -> Self {
        let mut state = Self::default();
        for ReconstructedPod { metadata, volumes } in reconstructed {
            let uid = metadata.pod.uid.clone();
            let volume = |(key, found): (VolumeKey, ReconstructedVolume)| {
                let volume = ActualVolume {
                    mount: MountState::Reconstructed { ready: found.ready },
                    in_use: found.in_use,
                    ..ActualVolume::default()
                };
                (key, volume)
            };
            let pod = ActualPod {
                volumes: volumes.into_iter().map(volume).collect(),
                ..ActualPod::default()
            };
            state.pods.insert(uid.clone(), pod);
            state.metadata.insert(uid, metadata);
        }
        state
    }

    /// The uids of all pods.
    pub(super) fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.pods.keys()
    }

    /// One pod.
    pub(super) fn pod(&self, uid: &str) -> Option<&ActualPod> {
        self.pods.get(uid)
    }

    /// Adds a pod without volumes, unless it is there.
    pub(super) fn add_pod(&mut self, uid: &PodUid) {
        self.pods.entry(uid.clone()).or_default();
    }

    /// What was stored of a pod when this process started, without host paths once its volumes are torn
    /// down.
    pub(super) fn metadata(&self, uid: &str) -> Option<&PodMetadata> {
        self.metadata.get(uid)
    }

    /// One volume.
    pub(super) fn volume(&self, id: &VolumeId) -> Option<&ActualVolume> {
        self.pods.get(&id.uid)?.volumes.get(&id.key())
    }

    /// Whether containers can use the volume, so that no pod start waits for an operation on it.
    pub(super) fn is_usable(&self, id: &VolumeId) -> bool {
        let metadata = self.metadata.get(&id.uid);
        let metadata = metadata.filter(|_| id.plugin == layout::HOST_PATH);
        self.volume(id)
            .is_some_and(|volume| volume.mount.is_usable())
            || metadata.is_some_and(|metadata| metadata.host_paths.contains_key(&id.name))
    }

    /// The attached volumes of a pod, by their names in the Node's `volumesInUse`.
    pub(super) fn in_use(&self, uid: &str) -> impl Iterator<Item = &String> {
        let volumes = self.pods.get(uid).into_iter();
        let volumes = volumes.flat_map(|pod| pod.volumes.values());
        volumes.filter_map(|volume| volume.in_use.as_ref())
    }

    /// Whether another pod has a persistent volume, or an operation on it is running.
    pub(super) fn is_used_by_other_pod(&self, uid: &str, persistent_volume: &str) -> bool {
        let others = self.pods.iter().filter(|(other, _)| **other != *uid);
        let mut volumes = others.flat_map(|(_, pod)| &pod.volumes);
        volumes.any(|(key, volume)| key.1 == persistent_volume && is_persistent(key, volume))
    }

    /// Notes that an operation has started.
    pub(super) fn start(&mut self, operation: &Operation) {
        match operation {
            Operation::SetUp(id, plan) | Operation::Update(id, plan, _) => {
                let pod = self.pods.entry(id.uid.clone()).or_default();
                let volume = pod.volumes.entry(id.key()).or_default();
                volume.operation.start(Some(plan));
                volume.in_use = plan.in_use().or(volume.in_use.take());
            }
            Operation::TearDown(id) => {
                self.remove_host_paths(&id.uid);
                if let Some(volume) = self.volume_mut(id) {
                    volume.operation.start(None);
                }
            }
            Operation::RemovePodDir(uid) => {
                self.remove_host_paths(uid);
                self.pods
                    .entry(uid.clone())
                    .or_default()
                    .operation
                    .start(None);
            }
        }
    }

    /// Applies the result of an operation.
    pub(super) fn finish(&mut self, finished: OperationResult, now: Timestamp) -> Finished {
        let OperationResult { operation, result } = finished;
        match (operation, result) {
            (Operation::SetUp(id, plan), result) => {
                let Some(volume) = self.volume_mut(&id) else {
                    return Finished::Changed;
                };
                volume.operation = match result {
                    Ok(()) => {
                        volume.mount = MountState::Mounted(plan);
                        volume.published_at = Some(now);
                        volume.expansion_blocked = None;
                        OperationState::Idle
                    }
                    Err(error) if error.in_use => {
                        volume.mount = MountState::Mounted(plan);
                        volume.expansion_blocked = Some(error.message);
                        OperationState::Idle
                    }
                    Err(error) => volume.operation.fail(error, Some(plan), now),
                };
            }
            (Operation::Update(id, plan, update), result) => {
                let Some(volume) = self.volume_mut(&id) else {
                    return Finished::Changed;
                };
                if update == VolumeUpdate::Republish {
                    volume.published_at = Some(now);
                }
                volume.operation = match result {
                    Ok(()) => {
                        volume.mount = MountState::Mounted(plan);
                        OperationState::Idle
                    }
                    Err(error) if error.in_use => {
                        volume.expansion_blocked = Some(error.message);
                        OperationState::Idle
                    }
                    Err(error) => volume.operation.fail(error, Some(plan), now),
                };
            }
            (Operation::TearDown(id), Ok(())) => {
                if let Some(pod) = self.pods.get_mut(&id.uid) {
                    pod.volumes.remove(&id.key());
                }
                return Finished::VolumeRemoved(id);
            }
            (Operation::TearDown(id), Err(error)) => {
                if let Some(volume) = self.volume_mut(&id) {
                    volume.mount = MountState::NotMounted;
                    volume.operation = volume.operation.fail(error, None, now);
                }
            }
            (Operation::RemovePodDir(uid), Ok(())) => {
                self.metadata.remove(&uid);
                self.pods.remove(&uid);
                return Finished::PodRemoved;
            }
            (Operation::RemovePodDir(uid), Err(error)) => {
                let pod = self.pods.entry(uid).or_default();
                pod.operation = pod.operation.fail(error, None, now);
            }
        }
        Finished::Changed
    }

    /// The volumes of the pod as they were stored are torn down: its next ones are others.
    fn remove_host_paths(&mut self, uid: &str) {
        if let Some(metadata) = self.metadata.get_mut(uid) {
            metadata.host_paths.clear();
        }
    }

    fn volume_mut(&mut self, id: &VolumeId) -> Option<&mut ActualVolume> {
        self.pods.get_mut(&id.uid)?.volumes.get_mut(&id.key())
    }
}

/// Whether a volume has the name of a persistent volume.
fn is_persistent((plugin, _): &VolumeKey, volume: &ActualVolume) -> bool {
    let is_inline = match &volume.mount {
        MountState::Mounted(plan) => {
            matches!(&**plan, MountPlan::Csi(csi) if csi.ephemeral)
        }
        _ => false,
    };
    has_persistent_volumes(plugin) && !is_inline
}

/// Whether the volumes of a plugin have names of persistent volumes.
pub(super) fn has_persistent_volumes(plugin: &str) -> bool {
    let plugins = [
        layout::CSI,
        layout::CSI_DEVICE,
        layout::LOCAL,
        layout::LOCAL_DEVICE,
    ];
    plugins.contains(&plugin)
}
