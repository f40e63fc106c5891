//! Effects: everything that the coordinator does to the node and to other services goes through
//! [`Effects`], and every result comes back as an [`Input`].

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use polylet_kit::CancellationToken;
use polylet_kit::state_file::StateFileError;
use polylet_model::PodUid;
use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::RuntimeChange;
use polylet_wire::volume::v1::CompleteDesiredRequest;
use tokio::sync::mpsc::UnboundedSender;
use tracing::{Instrument, Span};

use crate::checkpoint::lifecycle_store::LifecycleStore;
use crate::convert;
use crate::core::events::PodEvent;
use crate::core::step::{MissingObject, StepOutcome};
use crate::core::step::{Step, StepKey};
use crate::core::view::PodLifecycle;
use crate::input::Input;
use crate::runtime::logs::RunningContainers;
use crate::runtime::{
    self, RuntimeManager, StepContext, delay, objects, orphans, pod_refresh, trace,
};

/// The effects of the coordinator. None of them blocks; the default implementations do nothing.
pub trait Effects {
    /// Executes a step within a span; [`Input::StepFinished`] follows. The token, if there is one,
    /// cancels the step.
    fn execute(&self, context: StepContext, span: Span) -> Option<CancellationToken>;
    /// Requests the runtime's state of a pod after this number of effects on it; only these changes are
    /// inspected, everything without any. [`Input::PodRefreshed`] follows.
    fn refresh_pod(&self, pod: &PodRef, effect_count: u64, changes: Vec<RuntimeChange>, span: Span);
    /// Completes the volume declarations of a client epoch with the number of declared pods;
    /// [`Input::DesiredCompleted`] follows.
    fn complete_desired(&self, client_epoch: u32, pod_count: u32);
    /// Saves a pod's stops and hooks in progress, before the steps that depend on them.
    ///
    /// # Errors
    /// They cannot be written: a later process instance would not know of them.
    fn save_lifecycle(&self, uid: &str, lifecycle: &PodLifecycle) -> Result<(), StateFileError>;
    /// Removes everything that is stored about a pod.
    fn forget_pod(&self, uid: &str);
    /// Starts a search for pods with data on the node; [`Input::OrphansFound`] follows.
    fn find_orphans(&self);
    /// How long images of a pod were being pulled.
    fn image_pull_time(&self, _uid: &str) -> Duration {
        Duration::ZERO
    }
    /// Sets the running containers of a pod, whose logs are rotated.
    fn set_running_containers(&self, _running: RunningContainers) {}
    /// Records an event of a pod.
    fn record_event(&self, _pod: &PodRef, _event: PodEvent) {}
    /// Watches for an object whose absence failed a step; [`Input::ObjectAvailable`] follows. The
    /// token ends the watch.
    fn watch_object(
        &self,
        _uid: &str,
        _key: &StepKey,
        _missing: MissingObject,
    ) -> CancellationToken {
        CancellationToken::new()
    }
    /// Releases what is stored for pods other than the known ones, after the initial sync.
    fn retain_pods(&self, _is_known: &dyn Fn(&str) -> bool) {}
    /// Removes links to logs that do not exist, except those in use.
    fn remove_dead_log_links(&self, _in_use: BTreeSet<String>) {}
}

/// Executes effects in background tasks of the process.
pub(crate) struct Executor {
    manager: Rc<RuntimeManager>,
    lifecycles: LifecycleStore,
    inputs: UnboundedSender<Input>,
    running: UnboundedSender<RunningContainers>,
}

impl Executor {
    /// Sends results to `inputs`, and running containers to the log rotator.
    pub(crate) fn new(
        manager: Rc<RuntimeManager>,
        lifecycles: LifecycleStore,
        inputs: UnboundedSender<Input>,
        running: UnboundedSender<RunningContainers>,
    ) -> Self {
        Executor {
            manager,
            lifecycles,
            inputs,
            running,
        }
    }
}

// Results are sent with `let _`: the receiver is gone only when the process exits.
impl Effects for Executor {
    fn execute(&self, context: StepContext, span: Span) -> Option<CancellationToken> {
        let key = context.step.key();
        // A long call must not delay the drain; what was requested continues in the runtime.
        let is_long = matches!(
            key,
            StepKey::PullImage(_)
                | StepKey::AllocateDevices
                | StepKey::PrepareDevices(_)
                | StepKey::PostStart(_)
                | StepKey::PreStop(_)
                | StepKey::StopContainer(_)
        );
        let token = is_long.then(|| self.manager.ctx.drain().child_token());
        let cancel = token.clone().unwrap_or_default();
        let (manager, inputs) = (Rc::clone(&self.manager), self.inputs.clone());
        let work = async move {
            // By reference: each function that takes it by value has room for it twice.
            let execution = pin!(runtime::execute(&manager, &context));
            let outcome = tokio::select! {
                outcome = delay::with_report(&manager, &context, execution) => outcome,
                () = cancel.cancelled() => StepOutcome::Cancelled,
            };
            trace::record_outcome(&Span::current(), &outcome);
            let uid = &context.pod.uid;
            let state = match &context.step {
                // The next step depends on how the container has exited.
                Step::StopContainer { id, .. } => {
                    let changes = convert::stopped_container(&context.observed, id);
                    pod_refresh::refresh(&manager, &context.pod, changes).await
                }
                // The published status shows the new resources only after a forced refresh.
                Step::Resize { .. } => pod_refresh::force(&manager, uid).await,
                _ => Ok(None),
            };
            let _ = inputs.send(Input::StepFinished {
                uid: uid.as_str().into(),
                key,
                outcome: Box::new(outcome),
                state: state.ok().flatten(),
            });
        };
        self.manager.ctx.background("step", work.instrument(span));
        token
    }

    fn refresh_pod(
        &self,
        pod: &PodRef,
        effect_count: u64,
        changes: Vec<RuntimeChange>,
        span: Span,
    ) {
        let (manager, inputs) = (Rc::clone(&self.manager), self.inputs.clone());
        let pod = pod.clone();
        let work = async move {
            let state = pod_refresh::refresh_with_retry(&manager, &pod, &changes).await;
            let _ = inputs.send(Input::PodRefreshed {
                uid: pod.uid.into(),
                effect_count,
                state,
            });
        };
        self.manager
            .ctx
            .background("refresh", work.instrument(span));
    }

    fn complete_desired(&self, client_epoch: u32, pod_count: u32) {
        let request = CompleteDesiredRequest {
            client_id: runtime::volumes::client_id(&self.manager.ctx, client_epoch),
            pod_count,
        };
        let (mut volumes, inputs) = (self.manager.volumes.clone(), self.inputs.clone());
        self.manager.ctx.background("complete", async move {
            let response = volumes.complete_desired(request).await;
            let result = response
                .map(drop)
                .map_err(|status| runtime::volumes::volume_failure(&status));
            let _ = inputs.send(Input::DesiredCompleted(client_epoch, result));
        });
    }

    fn save_lifecycle(&self, uid: &str, lifecycle: &PodLifecycle) -> Result<(), StateFileError> {
        self.lifecycles.save(uid, lifecycle)
    }

    fn forget_pod(&self, uid: &str) {
        self.manager.checkpoints.remove(uid);
        self.lifecycles.remove(uid);
        self.manager.images.pull_times().forget(uid);
    }

    fn image_pull_time(&self, uid: &str) -> Duration {
        self.manager.images.pull_times().of(uid)
    }

    fn find_orphans(&self) {
        let (manager, inputs) = (Rc::clone(&self.manager), self.inputs.clone());
        self.manager.ctx.background("orphans", async move {
            let _ = inputs.send(Input::OrphansFound(orphans::find(&manager).await));
        });
    }

    fn set_running_containers(&self, running: RunningContainers) {
        let _ = self.running.send(running);
    }

    fn record_event(&self, pod: &PodRef, event: PodEvent) {
        runtime::events::record(&self.manager, pod, event);
    }

    fn watch_object(&self, uid: &str, key: &StepKey, missing: MissingObject) -> CancellationToken {
        let cancel = self.manager.ctx.drain().child_token();
        let (token, uid, key) = (cancel.clone(), PodUid::from(uid), key.clone());
        let (manager, inputs) = (Rc::clone(&self.manager), self.inputs.clone());
        self.manager.ctx.background("object watch", async move {
            tokio::select! {
                () = objects::wait_available(&manager, &missing) => {
                    let _ = inputs.send(Input::ObjectAvailable { uid, key });
                }
                () = cancel.cancelled() => {}
            }
        });
        token
    }

    fn retain_pods(&self, is_known: &dyn Fn(&str) -> bool) {
        self.manager.userns.retain(is_known);
    }

    fn remove_dead_log_links(&self, in_use: BTreeSet<String>) {
        let manager = Rc::clone(&self.manager);
        self.manager.ctx.background("log links", async move {
            orphans::remove_dead_log_links(&manager, in_use).await;
        });
    }
}
