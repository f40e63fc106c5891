//! Inputs of the event loop.

use jiff::SignedDuration;
use polylet_model::PodUid;
use polylet_watch::{PressureItemKey, ProbeItemKey, Update, Value};
use polylet_wire::common::v1::PodRef;
use polylet_wire::eviction::v1::Pressure;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use polylet_wire::podconfig::v1::{Pod, WatchNodeResponse};
use polylet_wire::prober::v1::ProbeStatus;
use polylet_wire::volume::v1::PodVolumes;

use crate::core::step::StepKey;
use crate::core::step::{StepFailure, StepOutcome};

/// Everything that can happen to this service.
pub enum Input {
    /// A desired pod, by its [source](polylet_wire::podconfig::v1::PodSource).
    PodConfig(i32, Update<PodUid, Pod>),
    /// The state of a pod in the runtime, from pleg.
    PodState(Update<PodUid, PodState>),
    /// Conditions and features of the runtime, from pleg.
    Runtime(Value<WatchRuntimeResponse>),
    /// The mount state of a pod's volumes, from volume-manager.
    Volumes(Update<PodUid, PodVolumes>),
    /// A probe's status by pod UID, container ID and probe kind, from prober.
    ProbeStatus(Update<ProbeItemKey, ProbeStatus>),
    /// Node pressure conditions and evictions, from eviction.
    Pressure(Update<PressureItemKey, Pressure>),
    /// This node's object in the cluster, from pod-config.
    NodeObject(Value<WatchNodeResponse>),
    /// A step of a pod has finished.
    StepFinished {
        /// The pod's UID.
        uid: PodUid,
        /// The key of the step.
        key: StepKey,
        /// The result of the step.
        outcome: Box<StepOutcome>,
        /// The pod's state after the step, where the step asked for it.
        state: Option<PodState>,
    },
    /// The response to a refresh of a pod's state.
    PodRefreshed {
        /// The pod's UID.
        uid: PodUid,
        /// The number of effects on the pod when the refresh was requested.
        effect_count: u64,
        /// The pod's state; `None` when pleg gave no answer before the drain.
        state: Option<PodState>,
    },
    /// The result of `CompleteDesired` under this client epoch.
    DesiredCompleted(u32, Result<(), StepFailure>),
    /// Pods with directories, logs or cgroups on the node.
    OrphansFound(Vec<PodRef>),
    /// An object whose absence failed a step now exists or has changed.
    ObjectAvailable {
        /// The pod's UID.
        uid: PodUid,
        /// The key of the step that failed.
        key: StepKey,
    },
    /// The wall clock was set by this much.
    ClockStepped(SignedDuration),
    /// A due time has come.
    Timer,
    /// The housekeeping period is over.
    Housekeeping,
}
