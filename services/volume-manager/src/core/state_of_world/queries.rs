//! What is derived from the state of world: statuses, metadata, and answers to requests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::PodUid;

use super::StateOfWorld;
use super::claims::{self, BoundClaim, ResizingClaim};
use super::mounted::{self, MountedVolume};
use super::world_lookup::resolve;
use crate::core::attach_limits::{AllocatableUpdate, drivers_at_limit};
use crate::core::layout::{VolumeId, VolumeKey};
use crate::core::mount_plan::MountPlan;
use crate::core::pod::{PodMetadata, PodName};
use crate::core::spec::{PodVolumeSpec, VolumeSource};
use crate::core::status::{PodVolumeStatus, StatusInput, VolumePhase, VolumeStatus};
use crate::core::sub_path::{self, SubPath};
use crate::core::volume_counts::{PodPlugins, plugin_name};
use crate::core::{claims as claim_rules, compute_status, csi};

impl StateOfWorld {
    /// Whether containers can use the volume, so that no pod start waits for an operation on it.
    pub fn is_usable(&self, id: &VolumeId) -> bool {
        self.actual.is_usable(id)
    }

    /// The volumes' host paths for the subPaths of a container.
    ///
    /// # Errors
    /// The message of the container's status for the first subPath that is invalid, or whose volume
    /// is not mounted.
    pub fn sub_path_volumes(
        &self,
        uid: &str,
        container: &str,
        sub_paths: Vec<SubPath>,
    ) -> Result<Vec<(PathBuf, SubPath)>, String> {
        let volumes = self.published.volumes(uid);
        let with_volume = |sub_path: SubPath| {
            sub_path::check(container, &sub_path)?;
            let mut mounted = volumes
                .iter()
                .filter(|volume| volume.phase == VolumePhase::Mounted);
            let volume = mounted.find(|volume: &&VolumeStatus| volume.name == sub_path.volume);
            let volume =
                volume.ok_or_else(|| sub_path::volume_not_found(container, &sub_path.volume))?;
            Ok((PathBuf::from(&volume.host_path), sub_path))
        };
        sub_paths.into_iter().map(with_volume).collect()
    }

    /// A pod, as declared or stored.
    pub fn pod(&self, uid: &PodUid) -> PodName {
        let declared = self.desired.get(uid).map(|desired| &desired.pod);
        let stored = || self.actual.metadata(uid).map(|metadata| &metadata.pod);
        let unknown = || PodName {
            uid: uid.clone(),
            ..PodName::default()
        };
        declared.or_else(stored).cloned().unwrap_or_else(unknown)
    }

    /// Takes the statuses that have changed; `None` for pods of which nothing is left.
    pub fn take_changes(&mut self, now: Timestamp) -> Vec<(PodUid, Option<PodVolumeStatus>)> {
        let mut changes = Vec::new();
        for uid in self.published.take_changed() {
            let status = self.status(&uid, now);
            if let Some(status) = &status {
                let before = self.published.get(&uid);
                let was_rejected = before.is_some_and(PodVolumeStatus::is_rejected);
                if let Some(at) = status.reject_at.filter(|at| *at > now) {
                    self.pending.requeue_at(&uid, at);
                }
                if status.is_rejected() && !was_rejected {
                    self.count_rejection(&uid);
                }
            }
            if self.published.set(&uid, status.as_ref()) {
                changes.push((uid, status));
            }
        }
        changes
    }

    /// The current status of a pod.
    pub fn status(&self, uid: &PodUid, now: Timestamp) -> Option<PodVolumeStatus> {
        let desired_pod = self.desired.get(uid);
        let spec = desired_pod.and_then(|pod| pod.last_spec());
        let desired = self.desired_volumes(uid);
        let none = BTreeMap::new();
        let metadata = self.actual.metadata(uid);
        let input = StatusInput {
            pod: self.pod(uid),
            sequence: desired_pod.map_or(0, |pod| pod.sequence),
            spec: spec.map(Arc::as_ref),
            desired: &desired,
            actual: self.actual.pod(uid)?,
            keys: self.volume_keys(uid),
            host_paths: metadata.map_or(&none, |metadata| &metadata.host_paths),
        };
        let before = self.published.get(uid);
        let mut status = compute_status::compute(&input, &self.layout, before, now);
        for volume in &mut status.volumes {
            volume.group = spec.and_then(|spec| self.supplemental_group(spec, &volume.name));
        }
        Some(status)
    }

    /// The plugins of a pod's volumes.
    pub fn plugins(&self, uid: &str) -> PodPlugins {
        let mut plugins = PodPlugins::default();
        let Some(spec) = self.desired.applied(uid) else {
            return plugins;
        };
        let lookup = self.lookup();
        let mounted = self.published.volumes(uid).iter();
        let mounted = mounted.filter(|volume| volume.phase == VolumePhase::Mounted);
        let mounted: BTreeSet<&str> = mounted.map(|volume| volume.name.as_str()).collect();
        for volume in &spec.volumes {
            let Some(((directory, _), plan)) = resolve(volume, &lookup) else {
                continue;
            };
            let driver = match plan.as_deref() {
                Ok(MountPlan::Csi(csi)) => Some(csi.driver.as_str()),
                _ => None,
            };
            let name = plugin_name(&directory, driver);
            if mounted.contains(volume.name.as_str()) {
                plugins.actual.push(name.clone());
            }
            plugins.desired.push(name);
        }
        plugins
    }

    /// What to store beside the volumes of a pod, once all are mounted.
    pub fn metadata_to_store(&self, uid: &PodUid) -> Option<PodMetadata> {
        let spec = self.desired.applied(uid)?;
        let status = self.published.get(uid)?;
        let is_mounted = |volume: &VolumeStatus| volume.phase == VolumePhase::Mounted;
        if !status.volumes.iter().all(is_mounted) {
            return None;
        }
        let host_path = |volume: &VolumeStatus| {
            let path = match &spec.volume(&volume.name)?.source {
                VolumeSource::Builtin(MountPlan::HostPath { path, .. }) => path,
                // The directories do not tell which volume of the pod led to them, nor whether the
                // volume of a CSI driver was completed after it was mounted.
                VolumeSource::Claim(_) | VolumeSource::Migrated(_) | VolumeSource::Inline(_) => {
                    &volume.host_path
                }
                _ => return None,
            };
            Some((volume.name.clone(), path.clone()))
        };
        Some(PodMetadata {
            pod: self.pod(uid),
            host_paths: status.volumes.iter().filter_map(host_path).collect(),
        })
    }

    /// Computes [`volumes_in_use`](Self::volumes_in_use) and [`resizing_claims`](Self::resizing_claims) again
    /// for the pods that have changed; returns whether there is a difference.
    pub fn refresh_claims(&mut self) -> bool {
        claims::refresh(self)
    }

    /// The attachable volumes that pods use or are about to use, for the Node's `volumesInUse`.
    pub fn volumes_in_use(&self) -> BTreeSet<String> {
        self.claims.in_use()
    }

    /// The claims whose volumes are expanded on this node, by namespace and name.
    pub fn resizing_claims(&self) -> BTreeMap<(String, String), ResizingClaim> {
        self.claims.resizing()
    }

    /// The claim by which a pod has a volume.
    pub fn bound_claim(&self, id: &VolumeId) -> Option<BoundClaim> {
        claims::bound_claim(self, id)
    }

    /// All volumes that containers can use now.
    pub fn mounted_volumes(&self) -> Vec<MountedVolume> {
        mounted::mounted(self)
    }

    /// The drivers whose limit is to be refreshed, by name.
    pub fn allocatable_updates(&self) -> BTreeMap<String, AllocatableUpdate> {
        let update = |name: &str| {
            let driver = csi::driver(name, &self.lookup()).ok()??;
            let update = AllocatableUpdate {
                period_seconds: driver.allocatable_update_period?,
                generation: self.rejections.get(name).copied().unwrap_or_default(),
            };
            Some((name.to_owned(), update))
        };
        self.dependencies
            .driver_names()
            .filter_map(update)
            .collect()
    }

    fn volume_keys(&self, uid: &str) -> BTreeMap<String, VolumeKey> {
        let lookup = self.lookup();
        let volumes = self.desired.applied(uid).into_iter();
        volumes
            .flat_map(|spec| &spec.volumes)
            .filter_map(|volume| Some((volume.name.clone(), resolve(volume, &lookup)?.0)))
            .collect()
    }

    fn supplemental_group(&self, spec: &PodVolumeSpec, volume: &str) -> Option<i64> {
        match &spec.volume(volume)?.source {
            VolumeSource::Claim(claim) => claim_rules::bound_volume(claim, &self.lookup())?.1.gid,
            _ => None,
        }
    }

    fn count_rejection(&mut self, uid: &str) {
        let desired = self.desired_volumes(uid);
        for driver in drivers_at_limit(&desired) {
            *self.rejections.entry(driver.to_owned()).or_default() += 1;
        }
    }
}
