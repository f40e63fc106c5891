//! Owns what is known of the Node object.

use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::{LocalBoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use polylet_api::{Backoff, Connection, Refusal};
use polylet_kit::{CancellationToken, Ctx, Notices, report, started};
use polylet_machine::Machine;
use polylet_wire::notice::v1::Severity;
use tokio::sync::watch;

use super::calls::{self, CallError};
use super::sources::{self, Input};
use super::{Registered, settings};
use crate::core::node::events::{self, Event};
use crate::core::node::facts::{Facts, Settings};
use crate::core::node::object::Registration;
use crate::core::node::report::{Decision, Pace, Schedule};
use crate::core::node::{conditions, patch, status};

/// The object is made without what has not been heard by then.
const PATIENCE: SignedDuration = SignedDuration::from_secs(2);
/// What the watch tells of others' changes counts when it has stood for so long: right after a write
/// of ours it may still tell what was before.
const SETTLED: SignedDuration = SignedDuration::from_secs(1);

/// Where the object stands.
enum Stage {
    /// Not yet made or found in this life of the process.
    Unregistered,
    /// There, as our last request left it.
    Known(Box<Node>),
    /// Deleted by somebody. It is made again when Polylet is started again, as upstream does.
    Absent,
}

enum Outcome {
    Registered(Result<(Box<Node>, bool), CallError>),
    Written(Box<NodeStatus>, bool, Result<Box<Node>, CallError>),
}

pub(super) struct Task {
    connection: Connection,
    notices: Notices,
    inputs: SelectAll<LocalBoxStream<'static, Input>>,
    settings: Settings,
    registration: Registration,
    /// `registerNode`.
    makes: bool,
    /// Polylet was started, not this service alone, and its first pressures are not told yet.
    starts: bool,
    facts: Facts,
    stage: Stage,
    /// What the watch says, when that is something else, and since when.
    told: Option<(Box<Node>, Timestamp)>,
    /// The watch has told of the object in this life.
    seen: bool,
    unschedulable: bool,
    schedule: Schedule,
    backoff: Backoff,
    not_before: Option<Timestamp>,
    complaint: String,
    patient_until: Timestamp,
    call: Option<LocalBoxFuture<'static, Outcome>>,
    registered: watch::Sender<Option<Registered>>,
    drain: CancellationToken,
}

impl Task {
    pub(super) fn new(
        ctx: &Ctx,
        connection: Connection,
        registered: watch::Sender<Option<Registered>>,
        csi_node: watch::Receiver<bool>,
    ) -> Self {
        let kubelet = &ctx.config().kubelet;
        let signed = |duration: Duration| SignedDuration::try_from(duration).unwrap_or_default();
        let starts = started::for_the_first_time(ctx);
        if starts {
            let notices = ctx.notices();
            notices.of_node(Severity::Normal, "Starting", "Starting kubelet.");
            let old = !Machine::read().unified_cgroups;
            let swapped = polylet_machine::memory_may_reach_disk();
            let told = [
                old.then(events::of_old_cgroups),
                swapped.then(events::of_swapped_memory),
            ];
            for event in told.into_iter().flatten() {
                notices.of_node(Severity::Warning, event.reason, event.message);
            }
        }
        Self {
            connection,
            notices: ctx.notices().clone(),
            inputs: sources::all(ctx, csi_node),
            settings: settings::settings(ctx),
            registration: settings::registration(ctx),
            makes: kubelet.register_node,
            starts,
            facts: Facts::default(),
            stage: Stage::Unregistered,
            told: None,
            seen: false,
            unschedulable: false,
            schedule: Schedule::new(Pace {
                gather: signed(kubelet.node_status_update_frequency),
                report: signed(kubelet.node_status_report_frequency),
            }),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(7)),
            not_before: None,
            complaint: String::new(),
            patient_until: later(Timestamp::now(), PATIENCE),
            call: None,
            registered,
            drain: ctx.drain(),
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let due = self.act(Timestamp::now());
            let (calling, drain) = (self.call.is_some(), self.drain.clone());
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
                    self.ended(outcome, Timestamp::now());
                }
                Some(input) = self.inputs.next() => {
                    self.take(input);
                    while let Some(Some(input)) = self.inputs.next().now_or_never() {
                        self.take(input);
                    }
                }
                () = until(due), if !calling => {}
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Runtime(runtime) => {
                self.facts.runtime = Some(*runtime);
                self.facts.silent_since = None;
            }
            Input::RuntimeSilent => self.facts.silent_since = Some(Timestamp::now()),
            Input::Pressure(resource, pressure) => {
                self.facts.pressure.insert(resource, pressure);
            }
            Input::Image(id, Some(image)) => {
                self.facts.images.insert(id, image);
            }
            Input::Image(id, None) => {
                self.facts.images.remove(&id);
            }
            Input::Images => self.facts.images_heard = true,
            Input::VolumesInUse(names) => self.facts.volumes_in_use = Some(names),
            Input::Node(node) => self.told(node, Timestamp::now()),
            Input::Addresses(found) => self.facts.addresses = Some(found),
            Input::CsiNode => self.facts.csi_node = true,
            Input::Nothing => {}
        }
    }

    /// The watch says how the object is.
    fn told(&mut self, node: Option<Box<Node>>, now: Timestamp) {
        let Some(node) = node else {
            // Before it has told of the object, absence may be older than the object.
            if std::mem::take(&mut self.seen) && matches!(self.stage, Stage::Known(_)) {
                self.gone();
            }
            return;
        };
        self.seen = true;
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
        let unschedulable = unschedulable.unwrap_or_default();
        if unschedulable != self.unschedulable {
            self.unschedulable = unschedulable;
            self.tell(vec![events::of_scheduling(
                &self.settings.name,
                unschedulable,
            )]);
        }
        match &self.stage {
            Stage::Unregistered => {}
            Stage::Known(held) => {
                let labelled = held.metadata.labels == node.metadata.labels;
                let (held, news) = (held.status.as_ref(), node.status.as_ref());
                let same = held
                    .zip(news)
                    .is_some_and(|(held, news)| labelled && !patch::differs(held, news));
                self.told = (!same).then_some((node, now));
            }
            Stage::Absent => {
                tracing::info!("the Node is there again");
                self.known(node);
                self.schedule.forget();
            }
        }
    }

    fn known(&mut self, node: Box<Node>) {
        let registered = registered(&node);
        self.registered.send_if_modified(|known| {
            let changed = *known != registered;
            *known = registered;
            changed
        });
        self.told = None;
        self.stage = Stage::Known(node);
    }

    fn gone(&mut self) {
        tracing::warn!("the Node was deleted: it is made again when Polylet is started again");
        self.registered.send_replace(None);
        self.told = None;
        self.stage = Stage::Absent;
    }

    /// Starts what is to be done now, unless a request is under way; otherwise tells when to look
    /// again.
    fn act(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.call.is_some() {
            return None;
        }
        if let Some(at) = self.not_before.filter(|at| *at > now) {
            return Some(at);
        }
        let settled = self.told.as_ref().map(|(_, since)| later(*since, SETTLED));
        if settled.is_some_and(|at| at <= now)
            && let Some((node, _)) = self.told.take()
        {
            self.known(node);
        }
        let (held, labels) = match &self.stage {
            Stage::Absent => return None,
            Stage::Unregistered => {
                if !self.facts.complete() && now < self.patient_until {
                    return Some(self.patient_until);
                }
                self.register(now);
                return None;
            }
            Stage::Known(node) => (
                node.status.clone().unwrap_or_default(),
                self.registration.labels_to_keep(node),
            ),
        };
        let wanted = status::status(&self.settings, &self.facts, &held, now);
        let mislabelled = !labels.is_empty();
        match self.schedule.decide(&held, &wanted, mislabelled, now) {
            Decision::Wait(at) => Some(settled.map_or(at, |settled| at.min(settled))),
            Decision::Write => {
                let changed = patch::differs(&held, &wanted);
                let patch = patch::status(&held, &wanted, &labels);
                let name = self.settings.name.clone();
                let write = calls::write(self.connection.clone(), name, patch);
                let held = Box::new(held);
                let call = write.map(move |result| Outcome::Written(held, changed, result));
                self.call = Some(call.boxed_local());
                None
            }
        }
    }

    fn register(&mut self, now: Timestamp) {
        let none = NodeStatus::default();
        let status = status::status(&self.settings, &self.facts, &none, now);
        let object = Box::new(self.registration.object(status));
        let (connection, registration) = (self.connection.clone(), self.registration.clone());
        let register = calls::register(connection, registration, self.makes.then_some(object));
        self.call = Some(register.map(Outcome::Registered).boxed_local());
    }

    fn ended(&mut self, outcome: Outcome, now: Timestamp) {
        match outcome {
            Outcome::Registered(Ok((node, made))) => {
                self.succeeded();
                tracing::info!(node = self.settings.name, made, "registered");
                let (none, starts) = (NodeStatus::default(), std::mem::take(&mut self.starts));
                if made {
                    let status = node.status.clone().unwrap_or_default();
                    self.written(&none, &status, true, now);
                } else {
                    self.facts.csi_node |= conditions::is_ready(node.status.as_ref());
                }
                if !made && starts {
                    let status = status::status(&self.settings, &self.facts, &none, now);
                    self.tell(events::of_start(&self.settings.name, &status));
                }
                self.known(node);
            }
            // Nobody has made the Node that we are not to make.
            Outcome::Registered(Err(error))
                if !self.makes && error.refusal() == Refusal::NotFound =>
            {
                tracing::info!("there is no Node, and registerNode is false");
                self.stage = Stage::Absent;
            }
            Outcome::Registered(Err(error)) => self.failed(&error, now),
            Outcome::Written(held, changed, Ok(node)) => {
                self.succeeded();
                let status = node.status.clone().unwrap_or_default();
                self.written(&held, &status, changed, now);
                self.known(node);
            }
            Outcome::Written(_, _, Err(error)) if error.refusal() == Refusal::NotFound => {
                self.succeeded();
                self.gone();
            }
            Outcome::Written(_, _, Err(error)) => self.failed(&error, now),
        }
    }

    fn written(&mut self, held: &NodeStatus, status: &NodeStatus, changed: bool, now: Timestamp) {
        self.tell(events::of_change(&self.settings.name, held, status));
        self.schedule.written(changed, polylet_api::random(), now);
    }

    fn succeeded(&mut self) {
        self.backoff.succeeded();
        self.not_before = None;
        if !std::mem::take(&mut self.complaint).is_empty() {
            tracing::info!("the API server takes the Node again");
        }
    }

    fn failed(&mut self, error: &CallError, now: Timestamp) {
        let refusal = error.refusal();
        if refusal == Refusal::Unauthorized {
            self.connection.refused();
        }
        let asked = match refusal {
            Refusal::Busy(asked) => asked,
            _ => None,
        };
        let wait = SignedDuration::try_from(self.backoff.failed(asked)).unwrap_or_default();
        self.not_before = Some(later(now, wait));
        // Once for each reason, not for each attempt.
        let complaint = report(error);
        if complaint != self.complaint {
            tracing::warn!("{complaint}");
            self.complaint = complaint;
        }
    }

    fn tell(&self, events: Vec<Event>) {
        for Event {
            warning,
            reason,
            message,
        } in events
        {
            let severity = if warning {
                Severity::Warning
            } else {
                Severity::Normal
            };
            tracing::info!(reason, "{message}");
            self.notices.of_node(severity, reason, message);
        }
    }
}

fn registered(node: &Node) -> Option<Registered> {
    let addresses = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_ref());
    let addresses = addresses
        .into_iter()
        .flatten()
        .map(|address| address.address.clone());
    Some(Registered {
        uid: node.metadata.uid.clone()?,
        addresses: addresses.collect(),
    })
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

async fn until(due: Option<Timestamp>) {
    let Some(due) = due else {
        return std::future::pending().await;
    };
    let left = due.duration_since(Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
}
