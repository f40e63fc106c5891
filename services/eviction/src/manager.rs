//! Decides which pods to evict, and publishes node conditions and evictions. The event loop and the
//! simulation pass in observations; files are behind [`EvictionStore`].
//!
//! [`EvictionStore`]: crate::EvictionStore

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::cause;
use polylet_model::PodUid;
use polylet_watch::{PressureItemKey, Store, Update};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::{self as wire, Pressure};
use polylet_wire::pleg::v1::PodState;
use polylet_wire::podconfig::v1::{Pod, TerminalPhase};
use polylet_wire::time;

use crate::convert;
use crate::core::limits::LocalStorageUsage;
use crate::core::pods::{NodePods, PodUsageSpec, RuntimePod};
use crate::core::pressure::{ConditionState, ContainerReclaim, NodeCondition};
use crate::core::rank::Candidate;
use crate::core::signal::{EvictionResource, Observations};
use crate::core::synchronize::{self, Action, EvictionConfig, PodEviction, State};
use crate::core::threshold::{self, Threshold};
use crate::evictions::Evictions;
use crate::manifest::PodUsageManifest;

/// How long to wait for an evicted pod to terminate before another one is evicted, as upstream.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(30);
/// The grace period of an eviction for local storage limits, as upstream.
const LOCAL_STORAGE_GRACE_SECONDS: u32 = 1;

/// The pods, the node conditions and the evictions.
pub struct EvictionManager {
    config: EvictionConfig,
    /// The thresholds of the configuration; those in effect depend on the file systems.
    configured: Vec<Threshold>,
    cgroup_root: String,
    evict_static_pods: bool,
    pods: NodePods,
    /// The state of every pod in the runtime is known.
    runtime_synced: bool,
    state: State,
    container_reclaim: Option<ContainerReclaim>,
    evictions: Evictions,
    store: Store<PressureItemKey, Pressure>,
}

/// A pod whose eviction has just begun, for its event.
#[derive(Clone, Debug)]
pub struct StartedEviction {
    pub(crate) pod: PodRef,
    pub(crate) message: String,
    pub(crate) event_annotations: BTreeMap<String, String>,
    /// Upstream's name of the signal or limit, by which evictions are counted.
    pub(crate) signal: &'static str,
}

impl EvictionManager {
    /// Publishes `evictions` with the first observations.
    pub fn new(
        config: EvictionConfig,
        evictions: Evictions,
        store: Store<PressureItemKey, Pressure>,
    ) -> Self {
        let mut manager = EvictionManager {
            configured: config.thresholds.clone(),
            config,
            cgroup_root: String::new(),
            evict_static_pods: false,
            pods: NodePods::default(),
            runtime_synced: false,
            state: State::default(),
            container_reclaim: None,
            evictions,
            store,
        };
        let (thresholds, ignored) = threshold::with_container_fs(&manager.configured, true);
        manager.config.thresholds = thresholds;
        if ignored {
            tracing::warn!(
                "thresholds of containerfs are ignored; those of nodefs or imagefs apply to it"
            );
        }
        manager
    }

    /// Sets what only the service configures.
    pub(crate) fn with_pod_settings(mut self, cgroup_root: &str, evict_static_pods: bool) -> Self {
        cgroup_root.clone_into(&mut self.cgroup_root);
        self.evict_static_pods = evict_static_pods;
        self
    }

    /// Sets the conditions of a previous process instance.
    pub(crate) fn with_conditions(
        mut self,
        conditions: BTreeMap<NodeCondition, ConditionState>,
    ) -> Self {
        self.state.conditions = conditions;
        self
    }

    /// Whether images and pods share a file system, which the runtime reports.
    pub(crate) fn set_one_filesystem(&mut self, one_filesystem: bool) {
        if self.config.one_filesystem != one_filesystem {
            self.config.one_filesystem = one_filesystem;
            let (thresholds, _) = threshold::with_container_fs(&self.configured, one_filesystem);
            self.config.thresholds = thresholds;
        }
    }

    /// Whether images and pods share a file system.
    pub(crate) fn one_filesystem(&self) -> bool {
        self.config.one_filesystem
    }

    pub(crate) fn conditions(&self) -> &BTreeMap<NodeCondition, ConditionState> {
        &self.state.conditions
    }

    pub(crate) fn pods(&self) -> &NodePods {
        &self.pods
    }

    /// Takes a change of the desired pods. True for a new pod, which can be evicted from now on.
    pub fn handle_pod(&mut self, update: Update<PodUid, Pod>) -> bool {
        match update {
            Update::Upsert(uid, pod) => match PodUsageManifest::from_json(&pod.manifest) {
                Ok(manifest) => {
                    let mut spec =
                        manifest.into_usage_spec(&self.cgroup_root, self.evict_static_pods);
                    spec.has_terminal_phase = pod.terminal_phase() != TerminalPhase::Unspecified;
                    self.pods.specs.insert(uid, Arc::new(spec)).is_none()
                }
                Err(error) => {
                    let error = polylet_kit::report(&error);
                    tracing::warn!(
                        pod_uid = uid.as_str(),
                        error,
                        "failed to parse pod manifest; keeping the previous spec"
                    );
                    false
                }
            },
            Update::Remove(uid) => {
                self.pods.specs.remove(&uid);
                false
            }
            Update::Synced | Update::Stale(_) => false,
        }
    }

    /// Takes a change of the pods in the runtime.
    pub fn handle_pod_state(&mut self, update: Update<PodUid, PodState>) {
        match update {
            Update::Upsert(uid, state) => {
                let pod = convert::runtime_pod(&state);
                self.pods.runtime.insert(uid.clone(), Arc::new(pod));
                self.withdraw_if_terminated(&uid);
            }
            Update::Remove(uid) => {
                self.pods.runtime.remove(&uid);
                self.withdraw_if_terminated(&uid);
            }
            Update::Synced => {
                self.runtime_synced = true;
                let evicted = self.evictions.iter().map(|(uid, _)| uid.as_str().into());
                let evicted: Vec<PodUid> = evicted.collect();
                for uid in evicted {
                    self.withdraw_if_terminated(&uid);
                }
            }
            Update::Stale(_) => self.runtime_synced = false,
        }
    }

    fn withdraw_if_terminated(&mut self, uid: &PodUid) {
        if self.runtime_synced && !self.pods.is_running(uid.as_str()) {
            self.evictions.withdraw(uid.as_str());
            self.store.remove(&PressureItemKey::Pod(uid.clone()));
        }
    }

    /// Takes observations and publishes the node conditions. While `reclaiming`, thresholds that this
    /// can help lead to no action.
    pub fn synchronize(
        &mut self,
        observations: &Observations,
        reclaiming: bool,
        now: Timestamp,
    ) -> Action {
        let (state, action) =
            synchronize::synchronize(&self.config, &self.state, observations, reclaiming, now);
        for (condition, state) in &state.conditions {
            let was_active = self.is_active(*condition);
            if state.active && !was_active {
                let reason = condition.reason(true);
                tracing::warn!(reason, "node is under pressure");
            }
        }
        self.state = state;
        self.publish_conditions();
        if !self.store.has_synced() {
            for (uid, eviction) in self.evictions.iter() {
                let key = PressureItemKey::Pod(uid.as_str().into());
                self.store.upsert(key, item(eviction));
            }
            self.store.mark_synced();
        }
        action
    }

    fn is_active(&self, condition: NodeCondition) -> bool {
        let state = self.state.conditions.get(&condition);
        state.is_some_and(|state| state.active)
    }

    fn publish_conditions(&self) {
        for (condition, state) in &self.state.conditions {
            let key = PressureItemKey::Resource(convert::resource(*condition).into());
            let item = convert::condition(*condition, *state, self.container_reclaim);
            self.store.upsert(key, item);
        }
    }

    /// Asks sync-coordinator to remove the dead containers of finished pods.
    pub fn request_container_reclaim(&mut self, now: Timestamp) {
        let reclaim = ContainerReclaim::next(self.container_reclaim, now);
        self.container_reclaim = Some(reclaim);
        self.publish_conditions();
    }

    /// Whether the last request has had its effect: no finished pod has a dead container of before.
    /// Always while the pods in the runtime are unknown.
    pub fn are_containers_reclaimed(&self) -> bool {
        let Some(reclaim) = self.container_reclaim.filter(|_| self.runtime_synced) else {
            return true;
        };
        let is_evicted = |uid: &PodUid| self.evictions.contains(uid.as_str());
        !self
            .pods
            .has_dead_containers(reclaim.requested_at, is_evicted)
    }

    /// The pods that will never run again: their images are not desired.
    pub(crate) fn finished_pods(&self) -> Vec<String> {
        let is_evicted = |uid: &PodUid| self.evictions.contains(uid.as_str());
        let is_finished = |uid: &&PodUid| self.pods.is_finished(uid.as_str(), is_evicted(uid));
        let uids = self.pods.specs.keys().filter(is_finished);
        uids.map(PodUid::to_string).collect()
    }

    /// Whether reclaiming was enough; `None` when that could not be observed.
    pub fn is_resolved(&self, threshold: &Threshold, observations: &Observations) -> Option<bool> {
        synchronize::is_resolved(&self.config, threshold, observations)
    }

    /// Whether a pod may be evicted now: the previous one has terminated, and the pods in the runtime
    /// are known.
    pub fn may_evict(&self, now: Timestamp) -> bool {
        let terminating = |(_, eviction): (&String, &wire::Eviction)| {
            let decided = time::from_wire_opt(eviction.decided_at.as_ref()).unwrap_or(now);
            let grace = Duration::from_secs(eviction.grace_seconds.into());
            let waited = Duration::try_from(now.duration_since(decided)).unwrap_or(Duration::ZERO);
            waited < TERMINATION_TIMEOUT.max(grace)
        };
        self.runtime_synced && !self.evictions.iter().any(terminating)
    }

    /// The running pods without their usage. For the simulation.
    pub fn candidates_without_usage(&self) -> Vec<Candidate> {
        let running = self.pods.running_with_spec();
        let candidate = |(uid, spec, _): (&PodUid, &PodUsageSpec, &RuntimePod)| Candidate {
            uid: uid.to_string(),
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            priority: spec.priority,
            critical: spec.critical,
            termination_grace_seconds: spec.termination_grace_seconds,
            ..Candidate::default()
        };
        running.map(candidate).collect()
    }

    /// Evicts the first candidate by rank that still runs, if there is one.
    pub fn evict(
        &mut self,
        threshold: &Threshold,
        observations: &Observations,
        candidates: Vec<Candidate>,
        now: Timestamp,
    ) -> Option<StartedEviction> {
        let candidates: Vec<_> = candidates
            .into_iter()
            // One that ended while it was measured has no usage, and would be the first.
            .filter(|pod| !self.evictions.contains(&pod.uid) && self.pods.is_running(&pod.uid))
            .collect();
        let eviction = synchronize::evict(&self.config, threshold, observations, &candidates);
        let Some(eviction) = eviction else {
            tracing::warn!(signal = ?threshold.signal, "threshold is met, but no pod can be evicted");
            return None;
        };
        self.start_eviction(eviction, threshold.signal.name(), now)
    }

    /// The running pods with local storage limits that may be evicted for them.
    pub(crate) fn pods_with_storage_limits(
        &self,
    ) -> impl Iterator<Item = (&PodUid, &PodUsageSpec, &RuntimePod)> {
        let pods = self.pods.running_with_spec();
        pods.filter(|(uid, spec, _)| {
            // As upstream, critical pods are not evicted for their limits.
            self.runtime_synced
                && !spec.storage_limits.is_empty()
                && !spec.critical
                && !self.evictions.contains(uid.as_str())
        })
    }

    /// Evicts the pod if its usage is above one of its local storage limits.
    pub(crate) fn enforce_storage_limits(
        &mut self,
        uid: String,
        usage: &LocalStorageUsage,
        now: Timestamp,
    ) -> Option<StartedEviction> {
        let spec = self.pods.specs.get(uid.as_str())?;
        if spec.critical || self.evictions.contains(&uid) || !self.pods.is_running(&uid) {
            return None;
        }
        let limits = &spec.storage_limits;
        let exceeded = limits.exceeded(usage, self.config.one_filesystem)?;
        let eviction = PodEviction {
            namespace: spec.namespace.clone(),
            name: spec.name.clone(),
            uid,
            resource: EvictionResource::Disk,
            grace_seconds: LOCAL_STORAGE_GRACE_SECONDS,
            message: exceeded.message,
            event_annotations: BTreeMap::new(),
            disruption_target: false,
        };
        self.start_eviction(eviction, exceeded.signal, now)
    }

    /// Saves and publishes an eviction; `None` when it cannot be saved.
    fn start_eviction(
        &mut self,
        eviction: PodEviction,
        signal: &'static str,
        now: Timestamp,
    ) -> Option<StartedEviction> {
        let span = tracing::info_span!(
            "eviction.evict",
            k8s.pod.uid = eviction.uid,
            k8s.pod.name = eviction.name,
            k8s.namespace.name = eviction.namespace,
        );
        cause::start_trace(&span);
        cause::name_root(&span, cause::root::POD_EVICT);
        let wire = convert::eviction(&eviction, now, Some(cause::from_span(&span)));
        let pod = format!("{}/{}", eviction.namespace, eviction.name);
        if let Err(error) = self.evictions.add(&eviction.uid, wire.clone()) {
            tracing::error!(
                pod,
                error = polylet_kit::report(&error),
                "failed to save eviction; not evicting the pod"
            );
            return None;
        }
        tracing::warn!(pod, reason = eviction.message, "evicting pod");
        self.store
            .upsert(PressureItemKey::Pod(eviction.uid.into()), item(&wire));
        Some(StartedEviction {
            pod: wire.pod.unwrap_or_default(),
            message: eviction.message,
            event_annotations: eviction.event_annotations,
            signal,
        })
    }
}

fn item(eviction: &wire::Eviction) -> Pressure {
    Pressure {
        fact: Some(wire::pressure::Fact::Eviction(eviction.clone())),
    }
}

#[cfg(test)]
mod tests;
