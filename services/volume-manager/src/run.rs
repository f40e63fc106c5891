//! The event loop: applies inputs to the state of world, starts operations, publishes what has
//! changed.

mod operation_events;
mod operations;

use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::Timestamp;
use polylet_kit::{CancellationToken, HealthConditions, cause, clock};
use polylet_model::PodUid;
use polylet_watch::Store;
use polylet_wire::common::v1::Cause;
use polylet_wire::volume::v1::PodVolumes;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::Instrument;

use crate::background::Spawn;
use crate::convert;
use crate::core::attach_limits::AllocatableUpdate;
use crate::core::certificates::CertificateKey;
use crate::core::desired_state::DesiredVolumes;
use crate::core::layout::VolumeId;
use crate::core::operation::Operation;
use crate::core::reference_key::ReferenceKey;
use crate::core::state_of_world::StateOfWorld;
use crate::core::status_messages::event_reason;
use crate::core::sub_path::ContainerSubPaths;
use crate::core::tokens::PodTokenKey;
use crate::core::volume_counts::VolumeCounts;
use crate::core::warnings::WarningSchedule;
use crate::driver_state::{DriverState, replace};
use crate::event::{Event, EventSender, EventSubject};
use crate::executor::OperationExecutor;
use crate::input::{Input, Reply, SubPathRequest};
use crate::metrics;
use crate::subscriptions::Subscriptions;

/// The event loop.
pub struct EventLoop {
    state: StateOfWorld,
    /// The published statuses.
    store: Store<PodUid, PodVolumes>,
    executor: OperationExecutor,
    spawn: Spawn,
    objects: Subscriptions<ReferenceKey>,
    tokens: Subscriptions<PodTokenKey>,
    certificates: Subscriptions<CertificateKey>,
    /// The published state of drivers.
    drivers: DriverState,
    allocatable_updates: watch::Sender<BTreeMap<String, AllocatableUpdate>>,
    events: EventSender,
    conditions: HealthConditions,
    /// Where operations send their results.
    inputs: mpsc::Sender<Input>,
    /// The span that last caused a change of each pod.
    causes: BTreeMap<PodUid, Cause>,
    warnings: WarningSchedule,
    counts: VolumeCounts,
    /// Cancels the operations that set volumes up.
    setting_up: BTreeMap<VolumeId, CancellationToken>,
}

/// Replies that wait until the status of their pod has been published.
type PendingReplies = Vec<(PodUid, Reply)>;

impl EventLoop {
    /// An event loop without certificates, events and published drivers.
    pub fn new(
        state: StateOfWorld,
        store: Store<PodUid, PodVolumes>,
        executor: OperationExecutor,
        spawn: Spawn,
        objects: Subscriptions<ReferenceKey>,
        tokens: Subscriptions<PodTokenKey>,
        inputs: mpsc::Sender<Input>,
    ) -> Self {
        Self {
            state,
            store,
            executor,
            spawn,
            objects,
            tokens,
            certificates: Subscriptions::new(Rc::new(|_, _| {})),
            drivers: DriverState::default(),
            allocatable_updates: watch::Sender::default(),
            events: Rc::new(|_| {}),
            conditions: HealthConditions::default(),
            inputs,
            causes: BTreeMap::new(),
            warnings: WarningSchedule::default(),
            counts: VolumeCounts::default(),
            setting_up: BTreeMap::new(),
        }
    }

    /// Emits events.
    pub fn with_events(self, events: EventSender) -> Self {
        Self { events, ..self }
    }

    /// Names volumes that do not answer among these conditions.
    pub fn with_conditions(self, conditions: HealthConditions) -> Self {
        Self { conditions, ..self }
    }

    /// Subscribes to pod certificates.
    pub fn with_certificates(self, certificates: Subscriptions<CertificateKey>) -> Self {
        Self {
            certificates,
            ..self
        }
    }

    /// Publishes the state of drivers.
    pub fn with_driver_state(self, drivers: DriverState) -> Self {
        Self { drivers, ..self }
    }

    /// Has the limits of drivers refreshed.
    pub fn with_allocatable_updates(
        self,
        allocatable_updates: watch::Sender<BTreeMap<String, AllocatableUpdate>>,
    ) -> Self {
        Self {
            allocatable_updates,
            ..self
        }
    }

    /// Runs until draining starts.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>, drain: CancellationToken) {
        self.publish(Timestamp::now());
        self.store.mark_synced();
        loop {
            let mut next = tokio::select! {
                () = drain.cancelled() => break,
                input = inputs.recv() => input,
                () = clock::sleep_until_opt(self.next_due()) => None,
            };
            let mut replies = PendingReplies::new();
            while let Some(input) = next {
                self.handle_input(input, &mut replies);
                // All inputs that are there are handled at once: one plan, one message to watchers.
                next = inputs.try_recv().ok();
            }
            self.sync(replies);
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        let due = [self.state.next_retry(), self.warnings.next_due()];
        due.into_iter().flatten().min()
    }

    fn handle_input(&mut self, input: Input, replies: &mut PendingReplies) {
        match input {
            Input::Apply(caller, pod, spec, reply) => {
                let uid = pod.uid.clone();
                let applied = self
                    .state
                    .apply(&caller.client_id, caller.sequence, pod, spec);
                match applied {
                    Ok(changed) => {
                        let cause = caller.cause.filter(|_| changed);
                        self.accept_declaration(uid, cause, reply, replies);
                    }
                    Err(error) => respond(reply, Err(error)),
                }
            }
            Input::Release(caller, pod, reply) => {
                let uid = pod.uid.clone();
                let released = self.state.release(&caller.client_id, caller.sequence, pod);
                match released {
                    Ok(()) => self.accept_declaration(uid, caller.cause, reply, replies),
                    Err(error) => respond(reply, Err(error)),
                }
            }
            Input::Complete(client_id, pods, reply) => {
                respond(reply, self.state.complete(&client_id, pods));
            }
            Input::SubPaths(request, reply) => self.bind_sub_paths(request, reply),
            Input::Object(key, state) => self.state.update_object(&key, state),
            Input::Driver(socket, driver) => {
                self.state.set_driver(&socket, driver);
                self.executor.drivers().set(&self.state.drivers());
            }
            Input::NodeInfo(info) => self.state.set_node_info(info),
            Input::MountedVolumes(reply) => respond(reply, self.state.mounted_volumes()),
            Input::Token(key, result) => {
                self.state.update_token(&key, result, Timestamp::now());
            }
            Input::Certificate(key, report) => self.state.update_certificate(&key, report),
            Input::OperationFinished(result, cause) => {
                if let Some(cause) = cause {
                    let uid = result.operation.pod_uid().clone();
                    self.causes.insert(uid, cause);
                }
                self.record_health(&result);
                if let Operation::SetUp(id, _) = &result.operation {
                    self.setting_up.remove(id);
                }
                self.state.finish_operation(result, Timestamp::now());
            }
        }
    }

    /// Binds subPaths in the background: one that hangs delays its own container only.
    fn bind_sub_paths(
        &self,
        request: SubPathRequest,
        reply: oneshot::Sender<Result<Vec<String>, String>>,
    ) {
        let SubPathRequest {
            uid,
            container,
            sub_paths,
            cause,
        } = request;
        let sub_paths = match self.state.sub_path_volumes(&uid, &container, sub_paths) {
            Ok(sub_paths) => ContainerSubPaths {
                pod_dir: self.state.layout().pod(&uid),
                container,
                sub_paths,
            },
            Err(message) => return respond(reply, Err(message)),
        };
        let pod = self.state.pod(&uid);
        let span = tracing::info_span!(
            "volume.sub_paths",
            k8s.pod.uid = uid.as_str(),
            k8s.pod.name = pod.name,
            k8s.namespace.name = pod.namespace,
            k8s.container.name = sub_paths.container,
        );
        if let Some(cause) = cause {
            cause::set_caller(&span, &cause.traceparent);
        }
        let executor = self.executor.clone();
        let work = async move {
            let targets = sub_paths.targets();
            let bound = executor.bind_sub_paths(&uid, sub_paths).await;
            respond(reply, bound.map(|()| targets));
        };
        (self.spawn)(Box::pin(work.instrument(span)));
    }

    fn accept_declaration(
        &mut self,
        uid: PodUid,
        cause: Option<Cause>,
        reply: Reply,
        replies: &mut PendingReplies,
    ) {
        if let Some(cause) = cause {
            self.causes.insert(uid.clone(), cause);
        }
        replies.push((uid, reply));
    }

    fn sync(&mut self, replies: PendingReplies) {
        let now = Timestamp::now();
        for operation in self.state.start_operations(now) {
            self.start(operation);
        }
        // A pod that is torn down does not wait for a mount that hangs.
        for (id, cancel) in &self.setting_up {
            if matches!(self.state.desired_volumes(&id.uid), DesiredVolumes::Absent) {
                cancel.cancel();
            }
        }
        let subscriptions = self.state.take_subscription_changes();
        self.objects.apply(subscriptions.objects);
        self.tokens.apply(subscriptions.tokens);
        self.certificates.apply(subscriptions.certificates);
        self.publish(now);
        self.drivers.publish(&mut self.state);
        let updates = self.state.allocatable_updates();
        self.allocatable_updates
            .send_if_modified(|old| replace(old, updates));
        for (uid, message) in self.warnings.take_due(now) {
            self.emit_warning(&uid, message);
        }
        for (uid, reply) in replies {
            let removed = || PodVolumes {
                r#ref: Some(convert::pod_ref(&self.state.pod(&uid))),
                ..PodVolumes::default()
            };
            respond(reply, Ok(self.store.get(&uid).unwrap_or_else(removed)));
        }
    }

    fn publish(&mut self, now: Timestamp) {
        let mut counts_changed = false;
        for (uid, status) in self.state.take_changes(now) {
            counts_changed |= self.counts.set(&uid, self.state.plugins(&uid));
            match status {
                Some(status) => {
                    for message in self.warnings.update(&status, now) {
                        self.emit_warning(&uid, message);
                    }
                    let cause = self.causes.get(&uid).cloned();
                    let volumes = convert::pod_volumes(&status, cause);
                    self.store.upsert(uid.clone(), volumes);
                }
                None => {
                    self.store.remove(&uid);
                    self.causes.remove(&uid);
                    self.warnings.remove(&uid);
                }
            }
            if let Some(metadata) = self.state.metadata_to_store(&uid) {
                let executor = self.executor.clone();
                (self.spawn)(Box::pin(async move {
                    executor.store_metadata(metadata).await;
                }));
            }
        }
        if counts_changed {
            metrics::set_volumes(&self.counts);
        }
    }

    fn emit_warning(&self, uid: &PodUid, message: String) {
        let reason = event_reason(&message).unwrap_or("FailedMount");
        (self.events)(Event {
            subject: EventSubject::Pod(self.state.pod(uid)),
            warning: true,
            reason: reason.to_owned(),
            message,
        });
    }
}

fn respond<T>(reply: oneshot::Sender<T>, response: T) {
    // A caller that has gone needs no response.
    let _ = reply.send(response);
}
