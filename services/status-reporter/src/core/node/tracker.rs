//! The state of the Node object, and the next request about it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use serde_json::Value;

use super::events::{self, NodeEvent};
use super::facts::{NodeFacts, NodeSettings};
use super::object::Registration;
use super::report_schedule::{ReportDecision, ReportInterval, ReportSchedule};
use super::{conditions, patch, status};

/// The object is created without the facts that are missing by then.
const SYNC_TIMEOUT: SignedDuration = SignedDuration::from_secs(2);
/// A change of others counts after this time: right after a write of ours the watch may still deliver
/// an older state.
const SETTLE_TIME: SignedDuration = SignedDuration::from_secs(1);

/// The Node object.
enum NodeObjectState {
    /// Not created or found yet in this process instance.
    Unregistered,
    /// Exists, as the last response to a request of ours had it.
    Registered(Box<Node>),
    /// Deleted by others. As upstream, it is created again when Polylet is restarted.
    Deleted,
}

/// The next step.
#[derive(Debug)]
pub(crate) enum NodeStep {
    /// Create this object, or correct the existing one.
    Register(Box<Node>),
    /// Patch the status.
    Write(StatusWrite),
    /// Nothing before this time, or before something changes.
    Wait(Option<Timestamp>),
}

/// A patch of the status.
#[derive(Debug)]
pub(crate) struct StatusWrite {
    pub(crate) patch: Value,
    pub(crate) before: Box<NodeStatus>,
    /// More than heartbeats changes.
    pub(crate) changed: bool,
}

/// A change of the object by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeObjectChange {
    Deleted,
    /// Created again after a deletion.
    Recreated,
}

/// Tracks facts and the object.
pub(crate) struct NodeTracker {
    pub(crate) facts: NodeFacts,
    settings: NodeSettings,
    registration: Registration,
    object: NodeObjectState,
    /// The object as the watch reports it, while it differs, and since when.
    observed: Option<(Box<Node>, Timestamp)>,
    /// The watch has reported the object in this process instance.
    seen: bool,
    unschedulable: bool,
    schedule: ReportSchedule,
    sync_deadline: Timestamp,
}

impl NodeTracker {
    pub(crate) fn new(
        settings: NodeSettings,
        registration: Registration,
        interval: ReportInterval,
        now: Timestamp,
    ) -> Self {
        Self {
            facts: NodeFacts::default(),
            settings,
            registration,
            object: NodeObjectState::Unregistered,
            observed: None,
            seen: false,
            unschedulable: false,
            schedule: ReportSchedule::new(interval),
            sync_deadline: add(now, SYNC_TIMEOUT),
        }
    }

    pub(crate) fn node_name(&self) -> &str {
        &self.settings.name
    }

    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    /// The registered object.
    pub(crate) fn node(&self) -> Option<&Node> {
        match &self.object {
            NodeObjectState::Registered(node) => Some(node),
            NodeObjectState::Unregistered | NodeObjectState::Deleted => None,
        }
    }

    /// Handles the object as the watch reports it.
    pub(crate) fn handle_watched(
        &mut self,
        node: Option<Box<Node>>,
        now: Timestamp,
    ) -> (Option<NodeObjectChange>, Option<NodeEvent>) {
        let Some(node) = node else {
            // Before the watch has seen the object, its absence may be older than the object.
            let deleted = std::mem::take(&mut self.seen) && self.node().is_some();
            if deleted {
                self.set_deleted();
            }
            return (deleted.then_some(NodeObjectChange::Deleted), None);
        };
        self.seen = true;
        let event = self.update_unschedulable(&node);
        match &self.object {
            NodeObjectState::Unregistered => {}
            NodeObjectState::Registered(current) => {
                let same_labels = current.metadata.labels == node.metadata.labels;
                let statuses = current.status.as_ref().zip(node.status.as_ref());
                let same = statuses
                    .is_some_and(|(current, new)| same_labels && !patch::differs(current, new));
                self.observed = (!same).then_some((node, now));
            }
            NodeObjectState::Deleted => {
                self.set_registered(node);
                self.schedule.force();
                return (Some(NodeObjectChange::Recreated), event);
            }
        }
        (None, event)
    }

    fn update_unschedulable(&mut self, node: &Node) -> Option<NodeEvent> {
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
        let unschedulable = unschedulable.unwrap_or_default();
        let before = std::mem::replace(&mut self.unschedulable, unschedulable);
        (before != unschedulable)
            .then(|| events::scheduling_changed(&self.settings.name, unschedulable))
    }

    /// Sets the object after a response of the API server.
    pub(crate) fn set_registered(&mut self, node: Box<Node>) {
        self.observed = None;
        self.object = NodeObjectState::Registered(node);
    }

    /// Marks the object as deleted.
    pub(crate) fn set_deleted(&mut self) {
        self.observed = None;
        self.object = NodeObjectState::Deleted;
    }

    /// The next step while no request is in flight.
    pub(crate) fn next_step(&mut self, now: Timestamp) -> NodeStep {
        let settled_at = self
            .observed
            .as_ref()
            .map(|(_, since)| add(*since, SETTLE_TIME));
        if settled_at.is_some_and(|at| at <= now)
            && let Some((node, _)) = self.observed.take()
        {
            self.set_registered(node);
        }
        let node = match &self.object {
            NodeObjectState::Deleted => return NodeStep::Wait(None),
            NodeObjectState::Unregistered
                if !self.facts.has_synced() && now < self.sync_deadline =>
            {
                return NodeStep::Wait(Some(self.sync_deadline));
            }
            NodeObjectState::Unregistered => {
                let status = self.initial_status(now);
                return NodeStep::Register(Box::new(self.registration.object(status)));
            }
            NodeObjectState::Registered(node) => node,
        };
        let current = node.status.clone().unwrap_or_default();
        let labels = self.registration.outdated_labels(node);
        let desired = status::status(&self.settings, &self.facts, &current, now);
        let has_more = !labels.is_empty() || conditions::message_changes(&self.facts, now);
        let decision = self.schedule.decide(&current, &desired, has_more, now);
        match decision {
            ReportDecision::Wait(at) => {
                let changes_at = conditions::next_change(&self.facts, now);
                let others = [settled_at, changes_at].into_iter().flatten();
                NodeStep::Wait(Some(others.fold(at, Timestamp::min)))
            }
            ReportDecision::Write => NodeStep::Write(StatusWrite {
                patch: patch::status(&current, &desired, &labels),
                changed: patch::differs(&current, &desired),
                before: Box::new(current),
            }),
        }
    }

    fn initial_status(&self, now: Timestamp) -> NodeStatus {
        status::status(&self.settings, &self.facts, &NodeStatus::default(), now)
    }

    /// Handles the response to a registration and returns its events. `started`: Polylet was started,
    /// not this service alone. `random` is between 0 and 1.
    pub(crate) fn on_registered(
        &mut self,
        node: Box<Node>,
        created: bool,
        started: bool,
        random: f64,
        now: Timestamp,
    ) -> Vec<NodeEvent> {
        let name = &self.settings.name;
        let events = if created {
            self.schedule.on_written(true, random, now);
            let status = node.status.clone().unwrap_or_default();
            events::status_changed(name, &NodeStatus::default(), &status)
        } else {
            self.facts.has_csi_node |= conditions::is_ready(node.status.as_ref());
            if started {
                events::started(name, &self.initial_status(now))
            } else {
                Vec::new()
            }
        };
        self.set_registered(node);
        events
    }

    /// Handles the response to a status patch and returns the events of the change.
    pub(crate) fn on_written(
        &mut self,
        before: &NodeStatus,
        changed: bool,
        node: Box<Node>,
        random: f64,
        now: Timestamp,
    ) -> Vec<NodeEvent> {
        let status = node.status.clone().unwrap_or_default();
        let events = events::status_changed(&self.settings.name, before, &status);
        self.schedule.on_written(changed, random, now);
        self.set_registered(node);
        events
    }
}

fn add(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
