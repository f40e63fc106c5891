//! The state of the event loop: converts inputs to facts, and statuses to what is served.

use std::collections::{BTreeMap, VecDeque};

use polylet_model::{ContainerId, Manifest, PodUid};
use polylet_watch::{ProbeItemKey, Update, Value};
use polylet_wire::common::v1::Cause;
use polylet_wire::device::v1::PodDevices;
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::prober::v1::ProbeStatus;
use polylet_wire::sync::v1::PodSync;

use crate::convert;
use crate::core::facts::{
    DesiredManifest, FactStream, ManifestSource, RuntimePodState, SyncProgress,
};
use crate::core::published::StatusChange;
use crate::core::shared_status::SharedStatus;
use crate::core::status_manager::StatusManager;
use crate::input::Input;
use crate::status_store::StatusStore;

/// Statuses that are computed before the calls of others have their turn: after a start, all pods are due.
const MAX_RECONCILED: usize = 8;

/// Owns the status manager and the store that its statuses are served from.
pub struct State {
    manager: StatusManager,
    store: StatusStore,
    /// Pods to reconcile. More are added when it is empty, so that none waits for others that change all
    /// the time.
    due: VecDeque<PodUid>,
}

impl State {
    /// Starts from the statuses of the previous process instance.
    pub fn new(restored: BTreeMap<PodUid, SharedStatus>, store: StatusStore) -> Self {
        State {
            manager: StatusManager::new(restored),
            store,
            due: VecDeque::new(),
        }
    }

    /// Whether statuses have the resources of pods as a whole; by default they do.
    pub(crate) fn with_pod_level_resources(mut self, reported: bool) -> Self {
        self.manager.facts.set_pod_level_resources(reported);
        self
    }

    /// Whether statuses have the devices of containers; by default they do.
    pub(crate) fn with_device_health(mut self, reported: bool) -> Self {
        self.manager.facts.set_device_health(reported);
        self
    }

    /// Records the facts of one input.
    pub fn handle_input(&mut self, input: Input) {
        let facts = &mut self.manager.facts;
        match input {
            Input::Pod(source, update) => self.handle_pod(source, update),
            Input::Sync(update) => self.handle_sync(*update),
            Input::RuntimeState(update) => self.handle_runtime_state(update),
            Input::Probe(update) => self.handle_probe(update),
            Input::PodDevices(update) => self.handle_devices(update),
            Input::Runtime(Value::Current(runtime)) => {
                let handlers = runtime.handlers.into_iter();
                let recursive = handlers.filter(|h| h.recursive_read_only_mounts);
                let recursive = recursive.map(|h| h.name).collect();
                facts.set_runtime(&runtime.runtime_name, recursive);
                facts.mark_synced(FactStream::Runtime);
            }
            Input::Runtime(Value::Stale(_)) => facts.mark_stale(FactStream::Runtime),
            Input::Node(Value::Current(node)) => {
                let ips = convert::host_ips(&node);
                if !ips.is_empty() {
                    facts.set_host_ips(ips);
                }
            }
            // No status depends on them.
            Input::Mirror(_) | Input::Node(Value::Stale(_)) => {}
        }
    }

    fn handle_pod(&mut self, source: PodSource, update: Update<PodUid, Pod>) {
        let source = match source {
            PodSource::File => ManifestSource::File,
            PodSource::Http => ManifestSource::Http,
            PodSource::Api | PodSource::Unspecified => ManifestSource::Api,
        };
        let facts = &mut self.manager.facts;
        match update {
            Update::Upsert(uid, pod) => {
                let stale = pod.stale_since.is_some();
                // A status of ours that comes back has the same manifest: it is not parsed again.
                if !facts.has_desired(source, &uid, &pod.manifest, stale) {
                    let manifest = match Manifest::from_bytes(pod.manifest.clone()) {
                        Ok(manifest) => Some(manifest),
                        Err(error) => {
                            let error = polylet_kit::report(&error);
                            tracing::error!(
                                pod_uid = uid.as_str(),
                                error,
                                "invalid pod manifest; ignored"
                            );
                            None
                        }
                    };
                    let desired = manifest.map(|manifest| DesiredManifest { manifest, stale });
                    self.manager.set_desired(source, uid.clone(), desired);
                }
                let status = convert::api_status(&pod.reported_status, &uid);
                self.manager.set_api_status(&uid, status);
            }
            Update::Remove(uid) => {
                self.manager.set_desired(source, uid.clone(), None);
                self.manager.set_api_status(&uid, None);
            }
            Update::Synced => facts.mark_synced(FactStream::Pods(source)),
            Update::Stale(_) => facts.mark_stale(FactStream::Pods(source)),
        }
    }

    fn handle_sync(&mut self, update: Update<PodUid, PodSync>) {
        let facts = &mut self.manager.facts;
        match update {
            Update::Upsert(uid, sync) => {
                facts.set_progress(uid, Some(convert::sync_progress(&sync)));
            }
            Update::Remove(uid) => facts.set_progress(uid, None),
            Update::Synced => facts.mark_synced(FactStream::Sync),
            Update::Stale(_) => facts.mark_stale(FactStream::Sync),
        }
    }

    fn handle_runtime_state(&mut self, update: Update<PodUid, PodState>) {
        let facts = &mut self.manager.facts;
        match update {
            Update::Upsert(uid, state) => {
                facts.set_runtime_state(uid, Some(convert::runtime_state(&state)));
            }
            Update::Remove(uid) => facts.set_runtime_state(uid, None),
            Update::Synced => facts.mark_synced(FactStream::RuntimeStates),
            Update::Stale(_) => facts.mark_stale(FactStream::RuntimeStates),
        }
    }

    fn handle_probe(&mut self, update: Update<ProbeItemKey, ProbeStatus>) {
        let facts = &mut self.manager.facts;
        match update {
            Update::Upsert((uid, container_id, kind), result) => {
                let container_id = ContainerId::from(container_id);
                // An outcome that is not known leaves the last one as it is.
                if let Some(kind) = convert::probe_kind(kind)
                    && let Some(result) = convert::probe_result(&container_id, kind, &result)
                {
                    facts.set_probe(uid, container_id, kind, Some(result));
                }
            }
            Update::Remove((uid, container_id, kind)) => {
                if let Some(kind) = convert::probe_kind(kind) {
                    facts.set_probe(uid, container_id.into(), kind, None);
                }
            }
            Update::Synced => facts.mark_synced(FactStream::Probes),
            Update::Stale(_) => facts.mark_stale(FactStream::Probes),
        }
    }

    fn handle_devices(&mut self, update: Update<PodUid, PodDevices>) {
        let facts = &mut self.manager.facts;
        match update {
            Update::Upsert(uid, devices) => {
                facts.set_devices(uid, Some(convert::devices(devices)));
            }
            Update::Remove(uid) => facts.set_devices(uid, None),
            Update::Synced => facts.mark_synced(FactStream::PodDevices),
            Update::Stale(_) => facts.mark_stale(FactStream::PodDevices),
        }
    }

    /// Nothing has happened for a while.
    pub(crate) fn on_quiet(&mut self) {
        self.manager.drop_all_parsed();
    }

    /// Pods whose statuses are kept as JSON alone since the last call, and these statuses.
    pub(crate) fn take_dropped(&mut self) -> impl Iterator<Item = (PodUid, SharedStatus)> {
        self.manager.take_dropped()
    }

    /// The status of a pod at the API server.
    pub(crate) fn api_status(&self, uid: &str) -> Option<&SharedStatus> {
        self.manager.api_status(uid)
    }

    /// The manifest of a pod that a source has.
    pub(crate) fn desired_manifest(&self, uid: &str) -> Option<&Manifest> {
        let (_, desired) = self.manager.facts.desired(uid)?;
        Some(&desired.manifest)
    }

    /// How far the sync of a pod has come.
    pub(crate) fn progress(&self, uid: &str) -> Option<&SyncProgress> {
        self.manager.facts.progress(uid)
    }

    /// Sandboxes and containers of a pod in the runtime.
    pub(crate) fn runtime_state(&self, uid: &str) -> Option<&RuntimePodState> {
        self.manager.facts.runtime_state(uid)
    }

    /// Recomputes the statuses of changed pods and publishes them. Whether the statuses to be
    /// persisted have changed. `host_ips` is called while the Node has not named its addresses.
    pub fn reconcile(&mut self, host_ips: impl Fn() -> Vec<String>) -> bool {
        let mut unsaved = false;
        loop {
            unsaved |= self.reconcile_some(&host_ips, |_, _| Cause::default());
            if self.is_reconciled() {
                return unsaved;
            }
        }
    }

    /// The same for a few pods; `on_change` gives the cause that a change is published with.
    pub(crate) fn reconcile_some(
        &mut self,
        host_ips: impl FnOnce() -> Vec<String>,
        mut on_change: impl FnMut(&PodUid, &StatusChange) -> Cause,
    ) -> bool {
        let mut unsaved = false;
        self.add_due();
        if !self.due.is_empty() && self.manager.facts.host_ips().is_empty() {
            self.manager.facts.set_host_ips(host_ips());
        }
        for _ in 0..MAX_RECONCILED {
            self.add_due();
            let Some(uid) = self.due.pop_front() else {
                break;
            };
            let change = self.manager.reconcile(&uid);
            let cause = on_change(&uid, &change);
            match change {
                StatusChange::Unchanged | StatusChange::Unknown => {}
                StatusChange::Updated {
                    published, changed, ..
                } => {
                    unsaved |= changed;
                    let status = convert::pod_status(&published, cause);
                    self.store.upsert(uid, status, published.precedence());
                }
                StatusChange::Removed { .. } => {
                    unsaved = true;
                    self.store.remove(&uid);
                }
            }
        }
        self.add_due();
        if self.is_reconciled() && self.has_synced() && !self.has_published() {
            self.store.mark_synced();
            unsaved |= self.manager.drop_restored();
        }
        unsaved
    }

    fn add_due(&mut self) {
        if self.due.is_empty() {
            self.due.extend(self.manager.take_dirty());
        }
    }

    /// Whether the statuses are those of all facts so far.
    pub(crate) fn is_reconciled(&self) -> bool {
        self.due.is_empty()
    }

    /// Whether all streams have synced in this process instance.
    pub(crate) fn has_synced(&self) -> bool {
        self.manager.facts.has_synced()
    }

    /// Whether every pod's status was published once all streams had synced.
    pub(crate) fn has_published(&self) -> bool {
        self.store.has_synced()
    }

    /// Streams that have not synced yet, for error messages.
    pub fn unsynced(&self) -> Vec<String> {
        let streams = self.manager.facts.unsynced();
        streams
            .map(|stream| stream.description().to_owned())
            .collect()
    }

    /// The last status of every pod, to be persisted.
    pub fn statuses(&self) -> BTreeMap<PodUid, SharedStatus> {
        self.manager.statuses()
    }
}

#[cfg(test)]
mod tests {
    use polylet_watch::Store;

    use super::*;

    const PODS: usize = 3 * MAX_RECONCILED;

    fn uid(number: usize) -> String {
        format!("u{number:02}")
    }

    fn pod(number: usize) -> Input {
        let manifest = format!(
            r#"{{"metadata":{{"name":"p{number}","namespace":"n","uid":"{}"}},"spec":{{"containers":[{{"name":"a"}}]}}}}"#,
            uid(number)
        );
        let pod = Pod {
            manifest: manifest.into_bytes().into(),
            ..Pod::default()
        };
        Input::Pod(PodSource::File, Update::Upsert(uid(number).into(), pod))
    }

    fn progress(number: usize) -> Input {
        let sync = PodSync::default();
        Input::Sync(Box::new(Update::Upsert(uid(number).into(), sync)))
    }

    fn synced() -> [Input; 7] {
        [
            Input::Pod(PodSource::File, Update::Synced),
            Input::Pod(PodSource::Http, Update::Synced),
            Input::Pod(PodSource::Api, Update::Synced),
            Input::Sync(Box::new(Update::Synced)),
            Input::RuntimeState(Update::Synced),
            Input::Probe(Update::Synced),
            Input::Runtime(Value::Current(Default::default())),
        ]
    }

    fn reconcile_some(state: &mut State) -> Vec<PodUid> {
        let mut published = Vec::new();
        state.reconcile_some(Vec::new, |uid, _| {
            published.push(uid.clone());
            Cause::default()
        });
        published
    }

    #[test]
    fn pods_are_reconciled_a_few_at_a_time_and_each_in_its_turn() {
        let store = StatusStore::new(Store::new("i"));
        let mut state = State::new(BTreeMap::new(), store.clone());
        (0..PODS).for_each(|number| state.handle_input(pod(number)));
        (0..PODS).for_each(|number| state.handle_input(progress(number)));
        synced()
            .into_iter()
            .for_each(|input| state.handle_input(input));
        let mut reconciled = Vec::new();
        while reconciled.len() < PODS {
            assert!(!store.has_synced(), "after {} pods", reconciled.len());
            // The first pods change all the time.
            (0..MAX_RECONCILED).for_each(|number| state.handle_input(progress(number)));
            let some = reconcile_some(&mut state);
            assert_eq!(some.len(), MAX_RECONCILED);
            reconciled.extend(some);
        }
        assert_eq!(
            reconciled,
            (0..PODS).map(uid).map(PodUid::from).collect::<Vec<_>>()
        );
        assert!(!state.is_reconciled() && !store.has_synced());
        state.reconcile(Vec::new);
        assert!(state.is_reconciled() && state.has_published());
        assert_eq!(store.watched().snapshot().len(), PODS);
    }
}
