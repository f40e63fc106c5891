//! Events of operations.

use std::convert::Infallible;

use polylet_wire::notice::v1::ObjectRef;

use crate::core::events::{self, EventTarget, VolumeEvent};
use crate::core::layout::Layout;
use crate::core::operation::Operation;
use crate::core::pod::PodName;
use crate::core::state_of_world::BoundClaim;
use crate::event::{Event, EventSender, EventSubject};
use crate::volume::progress::OwnershipProgress;
use crate::volume::{VolumeError, Warning};

/// Emits the events of one operation, by the state when it started.
pub(super) struct OperationEvents {
    pub(super) events: EventSender,
    pub(super) pod: PodName,
    /// The claim and the persistent volume, of a volume by claim.
    pub(super) bound: Option<BoundClaim>,
    /// Containers could use the volume before.
    pub(super) was_usable: bool,
    /// The name of this node.
    pub(super) node: String,
    pub(super) layout: Layout,
}

impl OperationEvents {
    /// Reports a change of ownership that takes long, as long as it takes.
    pub(super) async fn emit_progress(
        &self,
        operation: &Operation,
        progress: &OwnershipProgress,
    ) -> Infallible {
        for nth in 0.. {
            progress.due(nth).await;
            if let Operation::SetUp(id, _) = operation {
                let files = (nth > 0).then(|| progress.files());
                self.emit(&events::ownership_in_progress(id, &self.layout, files));
            }
        }
        std::future::pending().await
    }

    /// Reports the end of the operation.
    pub(super) fn emit_result(
        &self,
        operation: &Operation,
        result: &Result<Option<Warning>, VolumeError>,
    ) {
        match result {
            Ok(warning) => {
                if let Some(warning) = warning {
                    let pod = EventSubject::Pod(self.pod.clone());
                    self.send(pod, true, warning.reason, &warning.message);
                }
                let events =
                    events::succeeded(operation, self.was_usable, &self.node, &self.layout);
                events.iter().for_each(|event| self.emit(event));
            }
            Err(error) => {
                if let (Operation::SetUp(id, _), Some(message)) =
                    (operation, error.filesystem_mismatch())
                {
                    self.emit(&events::filesystem_mismatch(id, message));
                }
            }
        }
    }

    fn emit(&self, event: &VolumeEvent) {
        let object = |kind: &str, namespace: &str, name: &str, uid: &str| {
            EventSubject::Object(ObjectRef {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
            })
        };
        let subject = match (event.target, &self.bound) {
            (EventTarget::Pod, _) => EventSubject::Pod(self.pod.clone()),
            (EventTarget::Claim, Some(BoundClaim { claim, uid, .. })) => {
                object("PersistentVolumeClaim", &claim.namespace, &claim.name, uid)
            }
            (EventTarget::PersistentVolume, Some(BoundClaim { volume, .. })) => {
                object("PersistentVolume", "", &volume.0, &volume.1)
            }
            _ => return,
        };
        self.send(subject, event.warning, event.reason, &event.message);
    }

    fn send(&self, subject: EventSubject, warning: bool, reason: &str, message: &str) {
        (self.events)(Event {
            subject,
            warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }
}
