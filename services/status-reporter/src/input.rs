//! Everything that the event loop reacts to.

use polylet_model::PodUid;
use polylet_watch::{ProbeItemKey, Update, Value};
use polylet_wire::device::v1::PodDevices;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{MirrorPod, Pod, PodSource, WatchNodeResponse};
use polylet_wire::prober::v1::ProbeStatus;
use polylet_wire::sync::v1::PodSync;

/// An update of one of the streams that statuses are computed from.
pub enum Input {
    /// Pods of one source.
    Pod(PodSource, Update<PodUid, Pod>),
    /// Sync progress of pods.
    Sync(Box<Update<PodUid, PodSync>>),
    /// Sandboxes and containers in the runtime.
    RuntimeState(Update<PodUid, PodState>),
    /// Results of probes.
    Probe(Update<ProbeItemKey, ProbeStatus>),
    /// Devices of pods.
    PodDevices(Update<PodUid, PodDevices>),
    /// Name and handlers of the runtime.
    Runtime(Value<WatchRuntimeResponse>),
    /// Mirror pods at the API server.
    Mirror(Update<PodUid, MirrorPod>),
    /// This node's object at the API server.
    Node(Value<WatchNodeResponse>),
}
