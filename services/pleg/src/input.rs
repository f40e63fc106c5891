use polylet_model::PodUid;

use crate::core::{HealthCheck, PodListing, RuntimeEvent};
use crate::manager::RefreshRequest;
use crate::runtime::InspectResult;

/// Everything that can happen to this service.
pub(crate) enum Input {
    /// A call of `RefreshPod`.
    Refresh(RefreshRequest),
    /// An event of the runtime.
    RuntimeEvent(RuntimeEvent),
    /// The event stream has started or ended.
    EventStream { active: bool },
    /// A full list has ended.
    Relisted {
        sequence: u64,
        result: Result<PodListing, String>,
    },
    /// The inspection of a pod has ended.
    Inspected {
        uid: PodUid,
        result: Result<InspectResult, String>,
    },
    /// The first process of a container has exited.
    ProcessExited { container_id: String },
    /// A health check has ended.
    HealthChecked(Result<HealthCheck, String>),
    /// The due time of the manager has come, or the wall clock was set.
    Timer,
}
