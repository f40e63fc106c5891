//! The event loop that computes and publishes statuses.

use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::PodStatus;
use polylet_api::ClientConfig;
use polylet_kit::state_file::StateFileError;
use polylet_kit::{CancellationToken, Ctx, address, memory};
use polylet_model::PodUid;
use polylet_watch::{Update, Value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::PodSource;
use tokio::sync::{oneshot, watch};

use crate::api_writer::{ApiWriter, PodSignals};
use crate::core::host_ip_family;
use crate::core::published::{PublishedStatus, StatusChange};
use crate::core::report::desired::ApiStatus;
use crate::core::shared_status::SharedStatus;
use crate::input::Input;
use crate::lifecycle_counts::LifecycleCounts;
use crate::sources;
use crate::state::State;
use crate::state_file::{PersistedStatuses, StateWriter};
use crate::status_store::StatusStore;
use crate::trace::StartTraces;

/// Inputs that are handled before statuses are recomputed.
const MAX_BATCH: usize = 4096;

/// Owns all state of pods and everything that is written about them.
pub(crate) struct EventLoop {
    ctx: Ctx,
    inputs: SelectAll<LocalBoxStream<'static, Input>>,
    state: State,
    traces: StartTraces,
    counts: LifecycleCounts,
    unsynced: watch::Sender<Vec<String>>,
    writer: StateWriter<PersistedStatuses>,
    /// `None` on a standalone node.
    api_writer: Option<ApiWriter>,
    drain: CancellationToken,
}

impl EventLoop {
    /// `unsynced` receives the streams that have not synced.
    pub(crate) fn new(
        ctx: &Ctx,
        statuses: StatusStore,
        unsynced: watch::Sender<Vec<String>>,
        signals: PodSignals,
    ) -> Result<Self, StateFileError> {
        let path = ctx.run_dir().join("statuses.json");
        let (writer, restored) = StateWriter::<PersistedStatuses>::open(path)?;
        let access = ClientConfig::from_config(ctx.config(), crate::DESCRIPTOR.service);
        let gates = &ctx.config().kubelet.feature_gates;
        let is_on = |gate: &str| gates.get(gate) != Some(&false);
        let pod_level_resources = is_on("InPlacePodLevelResourcesVerticalScaling");
        let device_health = is_on("ResourceHealthStatus");
        Ok(Self {
            inputs: sources::all(ctx, access.is_some(), device_health),
            api_writer: access.map(|access| ApiWriter::new(ctx, access, signals)),
            state: State::new(restored.statuses, statuses)
                .with_pod_level_resources(pod_level_resources)
                .with_device_health(device_health),
            traces: StartTraces::new(
                restored.started,
                ctx.node_name().to_owned(),
                polylet_machine::kernel_version(),
            ),
            counts: LifecycleCounts::default(),
            unsynced,
            writer,
            drain: ctx.drain(),
            ctx: ctx.clone(),
        })
    }

    /// Runs until the drain; sends `finished` what could not be persisted.
    pub(crate) async fn run(mut self, finished: oneshot::Sender<Vec<String>>) {
        loop {
            tokio::select! {
                biased;
                () = self.drain.cancelled() => break,
                Some(input) = self.inputs.next() => {
                    self.handle_input(input);
                    self.handle_pending_inputs();
                    self.reconcile();
                }
                // Calls and other tasks first.
                () = tokio::task::yield_now(), if !self.state.is_reconciled() => self.reconcile(),
                () = self.writer.wait() => {}
                () = memory::quiet() => {
                    self.state.on_quiet();
                    self.traces.on_quiet();
                }
                patched = wait(&mut self.api_writer) => {
                    if let Some((uid, status)) = patched {
                        self.counts.on_patched(&uid, &status, &self.state);
                    }
                }
            }
            if let Some(api_writer) = &mut self.api_writer {
                api_writer.send_due();
            }
            for (uid, status) in self.state.take_dropped() {
                if let Some(api_writer) = &mut self.api_writer {
                    api_writer.drop_parsed(&uid, &status);
                }
            }
            self.writer
                .write_if_due(|| persisted(&self.state, &self.traces));
        }
        let last = persisted(&self.state, &self.traces);
        // The receiver is gone only when the process ends without a drain.
        let _ = finished.send(self.writer.finish(last).await);
    }

    /// Handles the inputs that are there already, without waiting.
    fn handle_pending_inputs(&mut self) {
        for _ in 0..MAX_BATCH {
            match self.inputs.next().now_or_never() {
                Some(Some(input)) => self.handle_input(input),
                _ => return,
            }
        }
    }

    fn handle_input(&mut self, input: Input) {
        self.record_cause(&input);
        self.count_pod(&input);
        let watched = match &input {
            Input::Pod(PodSource::Api, Update::Upsert(uid, _)) => Some(uid.clone()),
            _ => None,
        };
        // The API status is known to the state only after the input.
        let mut api_pod = None;
        if let Some(api_writer) = &mut self.api_writer {
            match &input {
                Input::Pod(PodSource::Api, Update::Upsert(uid, _) | Update::Remove(uid)) => {
                    api_pod = Some(uid.clone());
                }
                Input::Mirror(update) => api_writer.handle_mirror(update),
                Input::Node(node) => api_writer.handle_node(node),
                _ => {}
            }
        }
        self.state.handle_input(input);
        if let Some(uid) = watched {
            self.counts.on_watched(&uid, &self.state);
        }
        if let (Some(api_writer), Some(uid)) = (&mut self.api_writer, api_pod) {
            let status = self.state.api_status(&uid).cloned();
            let status = status.map(|status| ApiStatus {
                uid: uid.clone(),
                status,
            });
            api_writer.handle_api_status(&uid, status);
        }
    }

    fn count_pod(&mut self, input: &Input) {
        match input {
            Input::Pod(_, Update::Upsert(uid, pod)) => {
                self.counts.on_pod(uid, pod.cause.as_ref());
            }
            Input::Pod(_, Update::Remove(uid)) => self.counts.remove(uid),
            _ => {}
        }
    }

    fn record_cause(&mut self, input: &Input) {
        let traces = &mut self.traces;
        match input {
            Input::Pod(_, Update::Upsert(uid, pod)) => traces.record(uid, pod.cause.as_ref()),
            Input::Sync(update) => {
                if let Update::Upsert(uid, sync) = &**update {
                    traces.record(uid, sync.cause.as_ref());
                }
            }
            Input::RuntimeState(Update::Upsert(uid, state)) => {
                traces.record(uid, state.cause.as_ref());
            }
            Input::Probe(Update::Upsert((uid, ..), result)) => {
                traces.record(uid, result.cause.as_ref());
            }
            Input::Runtime(Value::Current(runtime)) => {
                let (name, version) = (&runtime.runtime_name, &runtime.runtime_version);
                traces.set_runtime(name.clone(), version.clone());
            }
            _ => {}
        }
    }

    /// Recomputes the statuses of some changed pods; publishes and reports what is new.
    fn reconcile(&mut self) {
        let (ctx, traces, api_writer) = (&self.ctx, &mut self.traces, &mut self.api_writer);
        let counts = &mut self.counts;
        let host_ips = || {
            let found = address::node_address(ctx.config());
            found.iter().map(ToString::to_string).collect()
        };
        let mut unsaved = self.state.reconcile_some(host_ips, |uid, change| {
            let cause = traces.drain(uid);
            match change {
                StatusChange::Updated {
                    published,
                    changed,
                    before,
                } => {
                    counts.on_published(uid, before.as_deref(), published);
                    if api_writer.is_some() {
                        report_host_ip_family(ctx, uid, before.as_deref(), published);
                    }
                    let span = if *changed || published.is_deletable() {
                        let (manifest, status) = (&published.manifest, &published.status);
                        traces.span(manifest, status, published.is_deletable(), &cause)
                    } else {
                        None
                    };
                    let step = span.map(|span| {
                        span.step(api_writer.is_some() && !published.manifest.is_static())
                    });
                    if let Some(api_writer) = api_writer {
                        api_writer.handle_published(uid, published, step.clone());
                    }
                    step.map_or(cause, |step| step.cause)
                }
                StatusChange::Removed { last } => {
                    if let Some(last) = last.as_deref() {
                        traces.record_removal(&last.manifest);
                    }
                    traces.remove(uid);
                    counts.remove(uid);
                    if let Some(api_writer) = api_writer {
                        api_writer.handle_removed(uid, last.as_deref());
                    }
                    cause
                }
                StatusChange::Unknown => {
                    traces.remove(uid);
                    cause
                }
                StatusChange::Unchanged => cause,
            }
        });
        if let Some(api_writer) = api_writer {
            api_writer.set_pods_synced(self.state.has_published());
        }
        if self.state.has_published() {
            unsaved |= traces.mark_synced(|| self.state.statuses());
        }
        if unsaved {
            self.writer.schedule();
        }
        let unsynced = self.state.unsynced();
        self.unsynced.send_if_modified(|known| {
            let changed = *known != unsynced;
            *known = unsynced;
            changed
        });
    }
}

fn report_host_ip_family(
    ctx: &Ctx,
    uid: &str,
    before: Option<&PodStatus>,
    published: &PublishedStatus,
) {
    let Some(message) = host_ip_family::mismatch(before, &published.status) else {
        return;
    };
    let pod = PodRef {
        uid: uid.to_string(),
        namespace: published.manifest.namespace().to_owned(),
        name: published.manifest.name().to_owned(),
    };
    ctx.notices()
        .warning(&pod, "", "HostIPsIPFamilyMismatch", message);
}

/// Waits for the API writer; a pod whose status it has patched, and the status.
async fn wait(api_writer: &mut Option<ApiWriter>) -> Option<(PodUid, SharedStatus)> {
    match api_writer {
        Some(api_writer) => api_writer.wait().await,
        None => std::future::pending().await,
    }
}

fn persisted(state: &State, traces: &StartTraces) -> PersistedStatuses {
    PersistedStatuses {
        statuses: state.statuses(),
        started: traces.started(),
    }
}
