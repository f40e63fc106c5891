use std::collections::BTreeMap;

use polylet_wire::common::v1::PodRef;
use polylet_wire::pleg::v1::{ContainerPhase, PodState};

/// All pods of one list of the runtime, by uid.
pub type Listing = BTreeMap<String, PodView>;

/// What the runtime's lists say of one pod: cheap to get, and enough to see that it changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodView {
    pub pod: PodRef,
    pub sandboxes: BTreeMap<String, SandboxView>,
    pub containers: BTreeMap<String, ContainerView>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SandboxView {
    pub ready: bool,
    pub attempt: u32,
    /// Nanoseconds since 1970.
    pub created_at: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerView {
    pub phase: ContainerPhase,
    pub sandbox_id: String,
    pub name: String,
    pub attempt: u32,
    /// Nanoseconds since 1970.
    pub created_at: i64,
}

impl PodView {
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Whether a state says no more and no less than this view.
    pub fn agrees_with(&self, state: &PodState) -> bool {
        self.sandboxes.len() == state.sandboxes.len()
            && self.containers.len() == state.containers.len()
            && state.sandboxes.iter().all(|known| {
                self.sandboxes
                    .get(&known.id)
                    .is_some_and(|listed| listed.ready == known.ready)
            })
            && state.containers.iter().all(|known| {
                self.containers
                    .get(&known.id)
                    .is_some_and(|listed| listed.phase == known.phase())
            })
    }
}
