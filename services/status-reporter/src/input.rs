//! Everything that the event loop reacts to.

use polylet_watch::{Update, Value};
use polylet_wire::device::v1::PodDevices;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{MirrorPod, Pod, PodSource, WatchNodeResponse};
use polylet_wire::prober::v1::ProbeStatus;
use polylet_wire::sync::v1::PodSync;

/// An update of one of the streams that statuses are computed from.
pub enum Input {
    /// Pods of one source.
    Pod(PodSource, Update<String, Pod>),
    /// Sync progress of pods.
    Sync(Box<Update<String, PodSync>>),
    /// Sandboxes and containers in the runtime.
    RuntimeState(Update<String, PodState>),
    /// Results of probes.
    Probe(Update<(String, String, i32), ProbeStatus>),
    /// Devices of pods.
    PodDevices(Update<String, PodDevices>),
    /// Name and handlers of the runtime.
    Runtime(Value<WatchRuntimeResponse>),
    /// Mirror pods at the API server.
    Mirror(Update<String, MirrorPod>),
    /// This node's object at the API server.
    Node(Value<WatchNodeResponse>),
}
