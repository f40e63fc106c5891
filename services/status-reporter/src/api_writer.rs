//! Everything that is written about pods at the API server: statuses, removals and mirror pods. It
//! exists only on a node of a cluster.

use std::time::Duration;

use polylet_api::{ApiConnection, ClientConfig};
use polylet_kit::Ctx;
use polylet_model::{Manifest, PodUid};
use polylet_schedule::TokenBucket;
use polylet_watch::{Update, Value};
use polylet_wire::podconfig::v1 as podconfig;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::convert;
use crate::core::published::PublishedStatus;
use crate::core::report::desired::{ApiStatus, DesiredStatus};
use crate::core::report::merge::PhaseRules;
use crate::core::shared_status::SharedStatus;
use crate::metrics;
use crate::mirror::MirrorPodClient;
use crate::report::StatusPatcher;
use crate::trace::StatusStep;

/// What the writer of events learns about pods.
pub(crate) struct PodSignals {
    /// Set while status patches are in flight or pending, other than repeats.
    pub(crate) busy: watch::Sender<bool>,
    /// Receives the uids of pods that are gone and do not come again, as a static pod may with its uid.
    pub(crate) removals: mpsc::UnboundedSender<PodUid>,
}

/// Patches statuses and manages mirror pods, under one rate limit (`kubeAPIQPS`).
pub(crate) struct ApiWriter {
    started: Instant,
    rate_limit: TokenBucket<Duration>,
    patcher: StatusPatcher,
    mirrors: MirrorPodClient,
    signals: PodSignals,
}

impl ApiWriter {
    pub(crate) fn new(ctx: &Ctx, access: ClientConfig, signals: PodSignals) -> Self {
        let config = &ctx.config().kubelet;
        let (rate, burst) = (config.kube_api_qps, config.kube_api_burst);
        let connection = ApiConnection::new(access);
        Self {
            started: Instant::now(),
            rate_limit: TokenBucket::new(f64::from(rate), f64::from(burst), Duration::ZERO),
            patcher: StatusPatcher::new(connection.clone()),
            mirrors: MirrorPodClient::new(connection),
            signals,
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Handles a published status. With a cause, its patch is a step in the trace of the pod's start.
    pub(crate) fn handle_published(
        &mut self,
        uid: &PodUid,
        published: &PublishedStatus,
        step: Option<StatusStep>,
    ) {
        if published.unadmitted {
            return;
        }
        let (manifest, teardown) = (&published.manifest, published.teardown);
        let is_static = manifest.is_static();
        let desired = DesiredStatus {
            namespace: manifest.namespace().to_owned(),
            name: manifest.name().to_owned(),
            status: published.status.clone(),
            phase: PhaseRules {
                may_run: !teardown.stopped,
                is_static,
            },
            deleting: !is_static && manifest.deletion_timestamp().is_some(),
            deletable: published.is_deletable(),
        };
        let now = self.now();
        self.patcher.set_desired(uid, desired, step, now);
        if is_static {
            self.set_static_pod(uid, Some((manifest.clone(), !teardown.undesired)));
        }
    }

    /// Keeps a pod's statuses as JSON alone, until they are read again.
    pub(crate) fn drop_parsed(&mut self, uid: &str, own: &SharedStatus) {
        self.patcher.drop_parsed(uid, own);
        self.mirrors.manager.drop_parsed(uid, own);
    }

    /// Handles the removal of a pod from this node; `last` is what was published about it.
    pub(crate) fn handle_removed(&mut self, uid: &PodUid, last: Option<&PublishedStatus>) {
        let now = self.now();
        self.patcher.remove_desired(uid, now);
        self.set_static_pod(uid, None);
        if last.is_some_and(|last| !last.manifest.is_static()) {
            // The receiver is gone only when the process ends.
            let _ = self.signals.removals.send(uid.clone());
        }
    }

    fn set_static_pod(&mut self, uid: &PodUid, pod: Option<(Manifest, bool)>) {
        let removed = pod.is_none();
        self.mirrors.manager.set_static_pod(uid, pod);
        if removed {
            let now = self.now();
            self.patcher.set_api_status(uid, None, now);
        }
        self.update_mirror_statuses();
    }

    /// Handles the status of an API pod at the API server; `None` once the pod is removed there.
    pub(crate) fn handle_api_status(&mut self, uid: &PodUid, status: Option<ApiStatus>) {
        let now = self.now();
        self.patcher.set_api_status(uid, status, now);
    }

    pub(crate) fn handle_mirror(&mut self, update: &Update<PodUid, podconfig::MirrorPod>) {
        let manager = &mut self.mirrors.manager;
        match update {
            Update::Upsert(uid, mirror) => {
                manager.set_mirror(uid, Some(convert::mirror_pod(uid, mirror)));
            }
            Update::Remove(uid) => manager.set_mirror(uid, None),
            Update::Synced => manager.mark_mirrors_synced(),
            // The last known state stays.
            Update::Stale(_) => {}
        }
        metrics::set_mirror_pods(manager.mirror_count());
        self.update_mirror_statuses();
    }

    /// Passes changed statuses of mirror pods on, each as that of its static pod.
    fn update_mirror_statuses(&mut self) {
        let now = self.now();
        let own = |uid: &PodUid| self.patcher.desired_status(uid);
        for (uid, status) in self.mirrors.manager.take_api_statuses(own) {
            self.patcher.set_api_status(&uid, status, now);
        }
    }

    pub(crate) fn handle_node(&mut self, value: &Value<podconfig::WatchNodeResponse>) {
        // A state that is not known is not the absence of the Node.
        if let Value::Current(response) = value
            && response.state.is_some()
        {
            self.mirrors.manager.set_node(convert::node_ref(response));
        }
    }

    /// Whether all pods of this node are known, so that other mirror pods are orphans.
    pub(crate) fn set_pods_synced(&mut self, synced: bool) {
        self.mirrors.manager.set_pods_synced(synced);
    }

    /// Waits for the end of a request, or until one is due. A pod whose status was patched, and the
    /// status as the API server has it.
    pub(crate) async fn wait(&mut self) -> Option<(PodUid, SharedStatus)> {
        let due = [self.patcher.next_due(), self.mirrors.manager.next_due()];
        let due = due.into_iter().flatten().min();
        let started = self.started;
        let timer = async move {
            match due {
                Some(due) => sleep_until(started + due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            completed = self.patcher.next() => {
                self.patcher.handle_completed(completed, started.elapsed())
            }
            completed = self.mirrors.next() => {
                self.mirrors.handle_completed(completed, started.elapsed());
                None
            }
            () = timer => None,
        }
    }

    /// Sends the requests that are due.
    pub(crate) fn send_due(&mut self) {
        let now = self.now();
        self.patcher.send_due(&mut self.rate_limit, now);
        self.mirrors.send_due(&mut self.rate_limit, now);
        let busy = self.patcher.is_busy();
        self.signals
            .busy
            .send_if_modified(|known| std::mem::replace(known, busy) != busy);
    }
}
