//! The controller of the Node object.

use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use polylet_api::{ApiConnection, ApiErrorKind, Retry};
use polylet_kit::{CancellationToken, Ctx, Notices, boot_marker, clock};
use polylet_machine::Machine;
use polylet_wire::notice::v1::Severity;
use tokio::sync::watch;

use super::calls::{self, CallError};
use super::input::NodeInput;
use super::{RegisteredNode, settings, sources};
use crate::core::node::events::{self, NodeEvent};
use crate::core::node::report_schedule::ReportInterval;
use crate::core::node::tracker::{NodeObjectChange, NodeStep, NodeTracker, StatusWrite};

/// The response to a request.
enum CallOutcome {
    Registered(Result<(Box<Node>, bool), CallError>),
    Written {
        before: Box<NodeStatus>,
        changed: bool,
        result: Result<Box<Node>, CallError>,
    },
}

/// Registers the node and writes its status, one request at a time.
pub(super) struct NodeController {
    notices: Notices,
    inputs: SelectAll<LocalBoxStream<'static, NodeInput>>,
    tracker: NodeTracker,
    /// `registerNode`: the Node is created if it does not exist.
    creates: bool,
    /// Polylet was started, not this service alone, and the node is not registered yet.
    started: bool,
    retry: Retry,
    /// The last request failed, and the next one waits for the back-off.
    backing_off: bool,
    call: Option<LocalBoxFuture<'static, CallOutcome>>,
    registered: watch::Sender<Option<RegisteredNode>>,
    drain: CancellationToken,
}

impl NodeController {
    pub(super) fn new(
        ctx: &Ctx,
        connection: ApiConnection,
        registered: watch::Sender<Option<RegisteredNode>>,
        has_csi_node: watch::Receiver<bool>,
    ) -> Self {
        let kubelet = &ctx.config().kubelet;
        let signed = |duration: Duration| SignedDuration::try_from(duration).unwrap_or_default();
        let interval = ReportInterval {
            batch: signed(kubelet.node_status_update_frequency),
            report: signed(kubelet.node_status_report_frequency),
        };
        let started = boot_marker::is_first_start(ctx);
        if started {
            publish_start_events(ctx.notices());
        }
        let (initial, max) = (Duration::from_millis(100), Duration::from_secs(7));
        Self {
            notices: ctx.notices().clone(),
            inputs: sources::all(ctx, has_csi_node),
            tracker: NodeTracker::new(
                settings::settings(ctx),
                settings::registration(ctx),
                interval,
                Timestamp::now(),
            ),
            creates: kubelet.register_node,
            started,
            retry: Retry::new("update Node", connection, initial, max),
            backing_off: false,
            call: None,
            registered,
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let due = self.start_next_call(Timestamp::now());
            let (idle, drain) = (self.call.is_none(), self.drain.clone());
            let call = async {
                match &mut self.call {
                    Some(call) => call.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = drain.cancelled() => return,
                outcome = call => {
                    self.call = None;
                    self.handle_outcome(outcome, Timestamp::now());
                }
                Some(input) = self.inputs.next() => {
                    self.handle_input(input);
                    while let Some(Some(input)) = self.inputs.next().now_or_never() {
                        self.handle_input(input);
                    }
                }
                () = self.retry.wait(), if self.backing_off => self.backing_off = false,
                () = clock::sleep_until_opt(due), if idle => {}
            }
        }
    }

    fn handle_input(&mut self, input: NodeInput) {
        let facts = &mut self.tracker.facts;
        match input {
            NodeInput::Runtime(runtime) => {
                facts.runtime = Some(*runtime);
                facts.pleg_stale_since = None;
            }
            NodeInput::RuntimeStale => facts.pleg_stale_since = Some(Timestamp::now()),
            NodeInput::Pressure(resource, pressure) => {
                facts.pressure.insert(resource, pressure);
            }
            NodeInput::Image(id, Some(image)) => {
                facts.images.insert(id, image);
            }
            NodeInput::Image(id, None) => {
                facts.images.remove(&id);
            }
            NodeInput::ImagesSynced => facts.images_synced = true,
            NodeInput::VolumesInUse(names) => facts.volumes_in_use = Some(names),
            NodeInput::Devices(resource, devices) => {
                facts.devices.insert(resource, devices);
            }
            NodeInput::DevicesSynced => facts.devices_synced = true,
            NodeInput::Node(node) => self.handle_watched(node),
            NodeInput::Addresses(addresses) => facts.addresses = Some(addresses),
            NodeInput::CsiNodeCreated => facts.has_csi_node = true,
        }
    }

    fn handle_watched(&mut self, node: Option<Box<Node>>) {
        let (change, event) = self.tracker.handle_watched(node, Timestamp::now());
        match change {
            Some(NodeObjectChange::Deleted) => log_deleted(),
            Some(NodeObjectChange::Recreated) => {
                tracing::info!("Node exists again; resuming status updates");
            }
            None => {}
        }
        self.publish_registered();
        self.publish_events(event);
    }

    /// Publishes the registered object to the other controllers.
    fn publish_registered(&self) {
        let registered = self.tracker.node().and_then(registered_node);
        self.registered.send_if_modified(|known| {
            let changed = *known != registered;
            *known = registered;
            changed
        });
    }

    /// Starts the next request, or returns when to check again. Nothing happens while a request is in
    /// flight or backing off.
    fn start_next_call(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.call.is_some() || self.backing_off {
            return None;
        }
        let step = self.tracker.next_step(now);
        // A change of others may have settled.
        self.publish_registered();
        let connection = self.retry.connection().clone();
        self.call = match step {
            NodeStep::Wait(until) => return until,
            NodeStep::Register(object) => {
                let registration = self.tracker.registration().clone();
                let object = self.creates.then_some(object);
                let call = async move {
                    let client = connection.ready().await;
                    CallOutcome::Registered(calls::register(client, &registration, object).await)
                };
                Some(call.boxed_local())
            }
            NodeStep::Write(StatusWrite {
                patch,
                before,
                changed,
            }) => {
                let name = self.tracker.node_name().to_owned();
                let call = async move {
                    let client = connection.ready().await;
                    CallOutcome::Written {
                        before,
                        changed,
                        result: calls::patch_status(client, &name, patch).await,
                    }
                };
                Some(call.boxed_local())
            }
        };
        None
    }

    fn handle_outcome(&mut self, outcome: CallOutcome, now: Timestamp) {
        let random = polylet_api::random();
        match outcome {
            CallOutcome::Registered(Ok((node, created))) => {
                self.retry.succeeded();
                tracing::info!(node = self.tracker.node_name(), created, "node registered");
                let started = std::mem::take(&mut self.started);
                let events = self
                    .tracker
                    .on_registered(node, created, started, random, now);
                self.publish_events(events);
            }
            CallOutcome::Registered(Err(error))
                if !self.creates && error.kind() == ApiErrorKind::NotFound =>
            {
                tracing::info!("Node does not exist, and registerNode is false; waiting for it");
                self.tracker.set_deleted();
            }
            CallOutcome::Written {
                before,
                changed,
                result: Ok(node),
            } => {
                self.retry.succeeded();
                let events = self.tracker.on_written(&before, changed, node, random, now);
                self.publish_events(events);
            }
            CallOutcome::Written {
                result: Err(error), ..
            } if error.kind() == ApiErrorKind::NotFound => {
                self.retry.succeeded();
                log_deleted();
                self.tracker.set_deleted();
            }
            CallOutcome::Registered(Err(error))
            | CallOutcome::Written {
                result: Err(error), ..
            } => {
                self.retry.failed(&error);
                self.backing_off = true;
            }
        }
        self.publish_registered();
    }

    fn publish_events(&self, events: impl IntoIterator<Item = NodeEvent>) {
        for event in events {
            publish_event(&self.notices, event);
        }
    }
}

/// The events of a start of the node agent, as upstream records them.
fn publish_start_events(notices: &Notices) {
    notices.node(Severity::Normal, "Starting", "Starting kubelet.");
    let cgroup_v1 = !Machine::read().unified_cgroups;
    let swapped = polylet_machine::tmpfs_may_swap();
    let warnings = [
        cgroup_v1.then(events::cgroup_v1),
        swapped.then(events::memory_backed_volumes_on_disk),
    ];
    for event in warnings.into_iter().flatten() {
        publish_event(notices, event);
    }
}

fn publish_event(notices: &Notices, event: NodeEvent) {
    let NodeEvent {
        warning,
        reason,
        message,
    } = event;
    let severity = if warning {
        Severity::Warning
    } else {
        Severity::Normal
    };
    tracing::info!(reason, detail = message, "node event");
    notices.node(severity, reason, message);
}

fn log_deleted() {
    tracing::warn!("Node was deleted; it is created again when Polylet is restarted");
}

fn registered_node(node: &Node) -> Option<RegisteredNode> {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let addresses = addresses
        .into_iter()
        .flatten()
        .map(|address| address.address.clone());
    Some(RegisteredNode {
        uid: node.metadata.uid.clone()?,
        addresses: addresses.collect(),
    })
}
