//! What each thing that other services say means for the workers.

use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::Manifest;
use polylet_watch::{PressureKeyOwned, Update, Value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::pressure::Fact;
use polylet_wire::eviction::v1::{Pressure, Resource};
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{Pod, WatchNodeResponse};
use polylet_wire::prober::v1::{ProbeKind, Verdict};
use polylet_wire::volume::v1::PodVolumes;

use crate::convert;
use crate::coordinator::Coordinator;
use crate::core::learn;
use crate::core::observed::Observed;
use crate::core::wanted::Wanted;
use crate::heard::Stream;

impl Coordinator {
    /// A source says what should run.
    pub(crate) fn config(&mut self, source: i32, update: Update<String, Pod>, now: Timestamp) {
        match update {
            Update::Upsert(uid, pod) => {
                if pod.stale_since.is_some() {
                    self.remembered.insert(uid.clone());
                } else {
                    self.remembered.remove(&uid);
                }
                self.wanted(source, &uid, pod, now);
            }
            Update::Remove(uid) => {
                self.remembered.remove(&uid);
                let Some(worker) = self.workers.get_mut(&uid).filter(|w| w.source == source) else {
                    return;
                };
                worker.pod.listed = false;
                worker.pod.leaving = true;
                let span = tracing::info_span!(parent: None, "sync.removed", k8s.pod.uid = uid,
                    k8s.pod.name = worker.reference.name, k8s.namespace.name = worker.reference.namespace);
                polylet_kit::cause::new_trace(&span);
                worker.cause = Some(polylet_kit::cause::of_span(&span));
                self.dirty.insert(uid);
            }
            Update::Synced => {
                self.heard.synced(Stream::Source(source));
            }
            Update::Stale(why) => {
                tracing::debug!(source, why, "a source of pods is silent");
                self.heard.stale(Stream::Source(source));
            }
        }
    }

    fn wanted(&mut self, source: i32, uid: &str, pod: Pod, now: Timestamp) {
        let manifest = match Manifest::of_bytes(pod.manifest.clone()) {
            Ok(manifest) => manifest,
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::error!(
                    k8s.pod.uid = uid,
                    error,
                    "a manifest from pod-config cannot be read: the pod stays as it is"
                );
                let reference = pod.r#ref.unwrap_or_else(|| PodRef {
                    uid: uid.to_owned(),
                    ..PodRef::default()
                });
                // Served all the same, so no orphan.
                let worker = self.worker(&reference);
                worker.source = source;
                worker.pod.listed = true;
                return;
            }
        };
        if manifest.is_mirror() {
            return;
        }
        let ended = convert::ended(&pod, now);
        let reference = pod.r#ref.unwrap_or_default();
        let wanted = Wanted::of(&manifest, &self.settings.allowed_unsafe_sysctls);
        let seen_at = manifest.seen_at();
        let had = self.taken_over.remove(uid).map(|had| {
            let before = had.put_into(&manifest);
            let before = Wanted::of(&before, &self.settings.allowed_unsafe_sysctls);
            (had, before.demand)
        });
        let worker = self.worker(&reference);
        worker.want(source, manifest, wanted, pod.cause);
        if worker.pod.journal.acknowledged_at.is_none() {
            worker.pod.journal.acknowledged_at = Some(seen_at.unwrap_or(now));
            if let Some((had, demand)) = had {
                worker.pod.journal.allocated = Some(Arc::new(had));
                worker.pod.journal.demand = Some(demand);
            }
        }
        if worker.pod.journal.terminal.is_none()
            && let Some(ended) = ended
        {
            // As the cluster has it: it does not begin anew on a node that knows nothing of it.
            worker.pod.journal.terminal = Some(ended);
            worker.pod.journalled = false;
        }
    }

    /// The runtime's state of a pod.
    pub(crate) fn pods(&mut self, update: Update<String, PodState>) {
        match update {
            Update::Upsert(uid, state) => {
                let observed = convert::observed(&state);
                let reference = state.r#ref.unwrap_or_else(|| PodRef {
                    uid,
                    ..PodRef::default()
                });
                let worker = self.worker(&reference);
                if worker.settled
                    && worker.pod.flights.is_empty()
                    && state.cause.is_some()
                    && !worker.pod.leaving
                {
                    worker.cause = state.cause;
                }
                if learn::observed(&mut worker.pod, observed) {
                    self.refresh(&reference.uid);
                }
            }
            Update::Remove(uid) => {
                // A removal tells no time, and may be older than the answer to our own question.
                self.refresh(&uid);
            }
            Update::Synced => {
                if self.heard.synced(Stream::Pods) {
                    self.node.pleg_fresh = true;
                    for worker in self
                        .workers
                        .values_mut()
                        .filter(|w| w.pod.observed.is_none())
                    {
                        // Nothing can be older.
                        let _ = learn::observed(&mut worker.pod, Observed::default());
                    }
                    self.all_dirty();
                }
            }
            Update::Stale(why) => {
                tracing::warn!(
                    why,
                    "the runtime's states are not told: no new action until they are"
                );
                self.heard.stale(Stream::Pods);
                self.node.pleg_fresh = false;
                self.all_dirty();
            }
        }
    }

    /// The runtime itself.
    pub(crate) fn runtime(&mut self, value: Value<WatchRuntimeResponse>) {
        let (runtime, network) = match value {
            Value::Current(now) => {
                self.node.room.strict_groups = now.supplemental_groups_policy;
                let handlers = now.handlers.into_iter();
                self.handlers = Arc::new(handlers.map(|h| (h.name, h.user_namespaces)).collect());
                let word = |ready: bool, why: String| if ready { Ok(()) } else { Err(why) };
                (
                    word(now.ready, now.reason),
                    word(now.network_ready, now.network_reason),
                )
            }
            // What was true last holds: pleg's own staleness stops everything anyhow.
            Value::Stale(_) => return,
        };
        if (&self.node.runtime, &self.node.network) != (&runtime, &network) {
            self.node.runtime = runtime;
            self.node.network = network;
            self.all_dirty();
        }
    }

    /// Where a pod's volumes stand.
    pub(crate) fn volumes(&mut self, update: Update<String, PodVolumes>, now: Timestamp) {
        match update {
            Update::Upsert(uid, state) => {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    learn::volumes_heard(&mut worker.pod, state.sequence, convert::volumes(&state));
                    self.dirty.insert(uid.clone());
                }
                self.volumes.insert(uid, state);
            }
            Update::Remove(uid) => {
                self.volumes.remove(&uid);
                self.sweep.left(&uid, now);
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.pod.volumes.seen = None;
                    self.dirty.insert(uid);
                }
            }
            Update::Synced => {
                if self.heard.synced(Stream::Volumes) {
                    // It may be another life of volume-manager, which has heard nothing yet.
                    self.declare_anew();
                    self.node.volumes_fresh = true;
                }
            }
            Update::Stale(why) => {
                tracing::warn!(
                    why,
                    "states of volumes are not told: pods that need some wait"
                );
                self.heard.stale(Stream::Volumes);
                self.node.volumes_fresh = false;
            }
        }
    }

    /// Whether a container is well.
    pub(crate) fn verdict(&mut self, update: Update<(String, String, i32), Verdict>) {
        match update {
            Update::Upsert((uid, container, kind), verdict) => {
                if let Some(worker) = self.workers.get_mut(&uid)
                    && let Some(unwell) =
                        convert::verdict(&mut worker.pod, &container, kind, &verdict)
                {
                    if unwell && worker.settled && verdict.cause.is_some() {
                        worker.cause = verdict.cause.clone();
                    }
                    self.dirty.insert(uid.clone());
                }
                self.verdicts.insert((uid, container, kind), verdict);
            }
            Update::Remove(key) => {
                self.verdicts.remove(&key);
                let (uid, container, kind) = key;
                let Some(worker) = self.workers.get_mut(&uid) else {
                    return;
                };
                let startup = ProbeKind::try_from(kind) == Ok(ProbeKind::Startup);
                if startup {
                    worker.pod.startup_ok.remove(&container);
                }
                if worker
                    .pod
                    .unwell
                    .get(&container)
                    .is_some_and(|unwell| unwell.startup == startup)
                {
                    worker.pod.unwell.remove(&container);
                }
            }
            Update::Synced | Update::Stale(_) => {}
        }
    }

    /// Whether the node is well, and which pods must go.
    pub(crate) fn pressure(&mut self, update: Update<PressureKeyOwned, Pressure>, now: Timestamp) {
        match update {
            Update::Upsert(
                _,
                Pressure {
                    fact: Some(Fact::Condition(condition)),
                },
            ) => {
                let under = condition.under_pressure;
                self.dirty.extend(self.seekers.iter().cloned());
                match condition.resource() {
                    Resource::Memory => self.node.pressure.memory = under,
                    Resource::Disk => self.node.pressure.disk = under,
                    Resource::Pids => self.node.pressure.pids = under,
                    Resource::Unspecified => {}
                }
            }
            Update::Upsert(
                _,
                Pressure {
                    fact: Some(Fact::Order(order)),
                },
            ) => {
                let uid = order
                    .pod
                    .as_ref()
                    .map(|pod| pod.uid.clone())
                    .unwrap_or_default();
                let decision = convert::order(&order, now);
                self.orders.insert(uid.clone(), decision.clone());
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.pod.order = Some(decision);
                    worker.cause = order.cause.or(worker.cause.take());
                    self.dirty.insert(uid);
                }
            }
            Update::Remove(PressureKeyOwned::Pod(uid)) => {
                self.orders.remove(&uid);
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.pod.order = None;
                }
            }
            _ => {}
        }
    }

    /// This node's object in the cluster.
    pub(crate) fn node_said(&mut self, value: Value<WatchNodeResponse>) {
        // What was true last holds.
        let Value::Current(said) = value else { return };
        let known = match convert::node(&said) {
            Ok((known, host_ips)) => {
                self.host_ips = host_ips.into();
                known
            }
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::error!(
                    error,
                    "this node's object cannot be read: it stays as it was"
                );
                return;
            }
        };
        if self.node.room.node != known {
            self.node.room.node = known;
            self.all_dirty();
        }
    }
}
