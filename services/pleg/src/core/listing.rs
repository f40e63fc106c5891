use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::status::ContainerPhase;

use polylet_model::PodUid;

use super::status::{PodIdentity, PodStatus};

/// All pods of one full list of the runtime, by uid.
pub type PodListing = BTreeMap<PodUid, ListedPod>;

/// A pod as the runtime's lists show it: cheap to get, and enough to detect a change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListedPod {
    pub pod: PodIdentity,
    pub sandboxes: BTreeMap<String, ListedSandbox>,
    pub containers: BTreeMap<String, ListedContainer>,
}

/// A sandbox in the runtime's list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedSandbox {
    pub ready: bool,
    pub attempt: u32,
    pub created_at: Option<Timestamp>,
}

/// A container in the runtime's list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedContainer {
    pub phase: ContainerPhase,
    pub sandbox_id: String,
    pub name: String,
    pub attempt: u32,
    pub created_at: Option<Timestamp>,
}

impl From<&PodStatus> for ListedPod {
    /// The lists that would show this status.
    fn from(status: &PodStatus) -> Self {
        let sandboxes = status.sandboxes.iter().map(|sandbox| {
            let listed = ListedSandbox {
                ready: sandbox.ready,
                attempt: sandbox.attempt,
                created_at: sandbox.created_at,
            };
            (sandbox.id.clone(), listed)
        });
        let containers = status.containers.iter().map(|container| {
            let listed = ListedContainer {
                phase: container.phase,
                sandbox_id: container.sandbox_id.clone(),
                name: container.name.clone(),
                attempt: container.attempt,
                created_at: container.created_at,
            };
            (container.id.clone(), listed)
        });
        ListedPod {
            pod: status.pod.clone(),
            sandboxes: sandboxes.collect(),
            containers: containers.collect(),
        }
    }
}

impl ListedPod {
    /// Whether the runtime lists nothing of the pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Whether the lists show the sandboxes and containers of `status`, each in the same state.
    pub fn matches(&self, status: &PodStatus) -> bool {
        self.sandboxes.len() == status.sandboxes.len()
            && self.containers.len() == status.containers.len()
            && status.sandboxes.iter().all(|cached| {
                self.sandboxes
                    .get(&cached.id)
                    .is_some_and(|listed| listed.ready == cached.ready)
            })
            && status.containers.iter().all(|cached| {
                self.containers
                    .get(&cached.id)
                    .is_some_and(|listed| listed.phase == cached.phase)
            })
    }
}
