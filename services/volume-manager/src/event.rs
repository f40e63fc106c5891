//! Events about volumes, for pods and other objects.

use std::rc::Rc;

use polylet_wire::notice::v1::ObjectRef;

use crate::core::pod::PodName;

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq)]
pub enum EventSubject {
    /// A pod.
    Pod(PodName),
    /// Another object of the API server.
    Object(ObjectRef),
}

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The object.
    pub subject: EventSubject,
    /// A warning event.
    pub warning: bool,
    /// The reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// Emits events.
pub type EventSender = Rc<dyn Fn(Event)>;
