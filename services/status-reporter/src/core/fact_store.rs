//! All facts about pods, which streams have synced, and which pods have changed since.

use std::collections::{BTreeMap, BTreeSet};

use polylet_model::probe::ProbeKind;
use polylet_model::status::{ContainerProbeResult, DeviceStatus};
use polylet_model::{ContainerId, Manifest, PodUid};

use super::facts::{DesiredManifest, FactStream, ManifestSource, RuntimePodState, SyncProgress};

/// Facts by pod uid.
#[derive(Default)]
pub(crate) struct FactStore {
    desired: BTreeMap<ManifestSource, BTreeMap<PodUid, DesiredManifest>>,
    /// Boxed, as a map has room for twice as many values.
    progress: BTreeMap<PodUid, Box<SyncProgress>>,
    runtime_states: BTreeMap<PodUid, RuntimePodState>,
    /// One map: each of its own for a pod has room for eleven.
    probes: BTreeMap<(PodUid, ContainerId, ProbeKind), ContainerProbeResult>,
    devices: BTreeMap<PodUid, Vec<DeviceStatus>>,
    runtime_name: String,
    recursive_read_only: BTreeSet<String>,
    host_ips: Vec<String>,
    pod_level_resources: bool,
    device_health: bool,
    synced: BTreeSet<FactStream>,
    stale: BTreeSet<FactStream>,
    dirty: BTreeSet<PodUid>,
    /// Something changed that all statuses depend on.
    all_dirty: bool,
}

impl FactStore {
    pub(crate) fn new() -> Self {
        Self {
            runtime_name: "containerd".to_owned(),
            pod_level_resources: true,
            device_health: true,
            ..Self::default()
        }
    }

    pub(crate) fn set_desired(
        &mut self,
        source: ManifestSource,
        uid: PodUid,
        desired: Option<DesiredManifest>,
    ) {
        set(self.desired.entry(source).or_default(), &uid, desired);
        self.dirty.insert(uid);
    }

    /// Whether a source has this very manifest of a pod.
    pub(crate) fn has_desired(
        &self,
        source: ManifestSource,
        uid: &str,
        manifest: &[u8],
        stale: bool,
    ) -> bool {
        let known = self.desired.get(&source).and_then(|pods| pods.get(uid));
        known.is_some_and(|known| known.stale == stale && known.manifest.raw() == manifest)
    }

    /// Drops what is parsed of a pod's manifests. Returns the one of its source, if it has one.
    pub(super) fn drop_parsed(&mut self, uid: &str) -> Option<Manifest> {
        if let Some(progress) = self.progress.get_mut(uid) {
            let last = progress.last_manifest.as_mut();
            last.into_iter().for_each(|last| *last = last.unparsed());
        }
        let desired = self.desired.values_mut();
        for desired in desired.filter_map(|pods| pods.get_mut(uid)) {
            desired.manifest = desired.manifest.unparsed();
        }
        let (_, desired) = self.desired(uid)?;
        Some(desired.manifest.clone())
    }

    pub(crate) fn set_progress(&mut self, uid: PodUid, progress: Option<SyncProgress>) {
        set(&mut self.progress, &uid, progress.map(Box::new));
        self.dirty.insert(uid);
    }

    pub(crate) fn set_runtime_state(&mut self, uid: PodUid, state: Option<RuntimePodState>) {
        set(&mut self.runtime_states, &uid, state);
        self.dirty.insert(uid);
    }

    pub(crate) fn set_probe(
        &mut self,
        uid: PodUid,
        container_id: ContainerId,
        kind: ProbeKind,
        result: Option<ContainerProbeResult>,
    ) {
        let key = (uid.clone(), container_id, kind);
        match result {
            Some(result) => self.probes.insert(key, result),
            None => self.probes.remove(&key),
        };
        self.dirty.insert(uid);
    }

    pub(crate) fn set_devices(&mut self, uid: PodUid, devices: Option<Vec<DeviceStatus>>) {
        set(&mut self.devices, &uid, devices);
        self.dirty.insert(uid);
    }

    /// The runtime's name, which prefixes container ids, and its handlers with recursive read-only
    /// mounts.
    pub(crate) fn set_runtime(&mut self, name: &str, recursive_read_only: BTreeSet<String>) {
        if name.is_empty()
            || (name == self.runtime_name && recursive_read_only == self.recursive_read_only)
        {
            return;
        }
        name.clone_into(&mut self.runtime_name);
        self.recursive_read_only = recursive_read_only;
        self.all_dirty = true;
    }

    pub(crate) fn set_host_ips(&mut self, ips: Vec<String>) {
        if ips != self.host_ips {
            self.host_ips = ips;
            self.all_dirty = true;
        }
    }

    /// Whether statuses have the resources of pods as a whole.
    pub(crate) fn set_pod_level_resources(&mut self, reported: bool) {
        self.pod_level_resources = reported;
    }

    /// Whether statuses have the devices of containers.
    pub(crate) fn set_device_health(&mut self, reported: bool) {
        self.device_health = reported;
    }

    pub(crate) fn mark_dirty(&mut self, uid: &PodUid) {
        self.dirty.insert(uid.clone());
    }

    pub(crate) fn mark_synced(&mut self, stream: FactStream) {
        let first = self.synced.insert(stream);
        if self.stale.remove(&stream) || first {
            self.all_dirty = true;
        }
    }

    pub(crate) fn mark_stale(&mut self, stream: FactStream) {
        if self.stale.insert(stream) {
            self.all_dirty = true;
        }
    }

    /// Whether every stream with facts about pods of one source has synced.
    pub(crate) fn has_synced_source(&self, source: ManifestSource) -> bool {
        let shared = [
            FactStream::Sync,
            FactStream::RuntimeStates,
            FactStream::Probes,
            FactStream::Runtime,
        ];
        self.synced.contains(&FactStream::Pods(source))
            && shared.iter().all(|stream| self.synced.contains(stream))
    }

    /// Whether all streams have synced in this process instance, so that absence means removal.
    pub(crate) fn has_synced(&self) -> bool {
        ManifestSource::ALL
            .into_iter()
            .all(|source| self.has_synced_source(source))
    }

    pub(crate) fn unsynced(&self) -> impl Iterator<Item = FactStream> {
        FactStream::REQUIRED
            .into_iter()
            .filter(|stream| !self.synced.contains(stream))
    }

    pub(crate) fn stale(&self) -> &BTreeSet<FactStream> {
        &self.stale
    }

    /// Pods whose facts have changed since the last call; `published` are further pods to
    /// reconcile when all are. Empty before the first source has synced.
    pub(crate) fn take_dirty<'a>(
        &mut self,
        published: impl Iterator<Item = &'a PodUid>,
    ) -> BTreeSet<PodUid> {
        let sources = ManifestSource::ALL.into_iter();
        if !sources.into_iter().any(|s| self.has_synced_source(s)) {
            return BTreeSet::new();
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        if std::mem::take(&mut self.all_dirty) {
            let desired = self.desired.values().flat_map(BTreeMap::keys);
            let known = desired
                .chain(self.progress.keys())
                .chain(self.runtime_states.keys());
            dirty.extend(known.cloned());
            dirty.extend(published.cloned());
        }
        dirty
    }

    pub(crate) fn desired(&self, uid: &str) -> Option<(ManifestSource, &DesiredManifest)> {
        ManifestSource::ALL
            .into_iter()
            .find_map(|source| Some((source, self.desired.get(&source)?.get(uid)?)))
    }

    pub(crate) fn progress(&self, uid: &str) -> Option<&SyncProgress> {
        self.progress.get(uid).map(Box::as_ref)
    }

    pub(crate) fn runtime_state(&self, uid: &str) -> Option<&RuntimePodState> {
        self.runtime_states.get(uid)
    }

    pub(crate) fn probes(&self, uid: &PodUid) -> Vec<ContainerProbeResult> {
        let from = (uid.clone(), ContainerId::default(), ProbeKind::Startup);
        let of_pod = self.probes.range(from..);
        let of_pod = of_pod.take_while(|((of, ..), _)| of == uid);
        of_pod.map(|(_, result)| result.clone()).collect()
    }

    /// The devices of a pod's containers; `None` while they are unknown.
    pub(crate) fn devices(&self, uid: &str) -> Option<&[DeviceStatus]> {
        let known = !self.device_health || self.synced.contains(&FactStream::PodDevices);
        known.then(|| self.devices.get(uid).map_or(&[][..], Vec::as_slice))
    }

    pub(crate) fn runtime_name(&self) -> &str {
        &self.runtime_name
    }

    /// Whether a runtime handler mounts recursively read-only.
    pub(crate) fn has_recursive_read_only(&self, handler: &str) -> bool {
        self.recursive_read_only.contains(handler)
    }

    pub(crate) fn pod_level_resources(&self) -> bool {
        self.pod_level_resources
    }

    pub(crate) fn host_ips(&self) -> &[String] {
        &self.host_ips
    }

    /// Whether the pod is in no source and cleaned up, and all streams that say so have synced.
    pub(crate) fn is_gone(&self, uid: &str) -> bool {
        let progress = self.progress.get(uid);
        let state = self.runtime_states.get(uid);
        self.has_synced()
            && self.desired(uid).is_none()
            && progress.is_none_or(|progress| progress.cleaned_up)
            && state.is_none_or(RuntimePodState::is_empty)
    }
}

fn set<V>(map: &mut BTreeMap<PodUid, V>, uid: &PodUid, value: Option<V>) {
    match value {
        Some(value) => map.insert(uid.clone(), value),
        None => map.remove(uid),
    };
}
