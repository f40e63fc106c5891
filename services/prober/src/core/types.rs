//! Words of the prober.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::ids::{ContainerId, PodUid};
use polylet_model::probe::ProbeKind;

/// One probe of one container. A restarted container is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ProbeId {
    pub(crate) pod: PodUid,
    pub(crate) container: ContainerId,
    pub(crate) kind: ProbeKind,
}

/// How a container is asked; everything that the manifest can tell is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Exec {
        command: Vec<String>,
    },
    Http(HttpAsk),
    Tcp {
        host: Option<String>,
        port: u16,
    },
    Grpc {
        port: u16,
        service: String,
    },
    /// The manifest asks for something impossible.
    Impossible(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpAsk {
    /// Absent: the pod's address.
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) https: bool,
    pub(crate) headers: Vec<(String, String)>,
}

/// A probe as its manifest has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Its container's place in the manifest, as events name it: `spec.containers{web}`.
    pub(crate) part: Arc<str>,
    pub(crate) kind: ProbeKind,
    pub(crate) ask: Ask,
    pub(crate) timing: Timing,
    /// For one attempt.
    pub(crate) timeout: Duration,
}

/// When a probe is due and what makes a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) initial_delay: Duration,
    pub(crate) period: Duration,
    pub(crate) success_threshold: u32,
    pub(crate) failure_threshold: u32,
    /// The first pause of a readiness probe that fails before its first success.
    pub(crate) first_retry: Duration,
}

/// What the prober needs of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodProbes {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The API server was asked to delete it.
    pub(crate) deleting: bool,
    pub(crate) containers: Vec<ContainerProbes>,
}

/// The probes of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerProbes {
    pub(crate) name: Arc<str>,
    pub(crate) probes: Vec<Arc<Probe>>,
}

/// What the runtime holds of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// The pod's address, or the node's on the host's network.
    pub(crate) host: Arc<str>,
    /// Newest first within one name.
    pub(crate) containers: Vec<ObservedContainer>,
}

/// One container that the runtime lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedContainer {
    pub(crate) id: ContainerId,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) running: bool,
    pub(crate) started_at: Option<Timestamp>,
}

/// A verdict's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure,
}

/// What one attempt said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    Success,
    /// A success that somebody should look at.
    Warning(String),
    Failure(String),
    /// The probe itself went wrong: says nothing about the container.
    Unknown(String),
}

impl Observation {
    /// What people are told of it, as upstream words it: the event's reason and message.
    pub(crate) fn notice(&self, kind: ProbeKind) -> Option<(&'static str, String)> {
        let kind = kind.as_str();
        match self {
            Observation::Success => None,
            Observation::Warning(said) => {
                Some(("ProbeWarning", format!("{kind} probe warning: {said}")))
            }
            Observation::Failure(said) => {
                Some(("Unhealthy", format!("{kind} probe failed: {said}")))
            }
            Observation::Unknown(why) => {
                let state = "probe errored and resulted in unknown state";
                Some(("Unhealthy", format!("{kind} {state}: {why}")))
            }
        }
    }

    /// For spans.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Observation::Success => "success",
            Observation::Warning(_) => "warning",
            Observation::Failure(_) => "failure",
            Observation::Unknown(_) => "unknown",
        }
    }
}

/// An attempt to make now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) id: ProbeId,
    /// Tells attempts of a worker from those of an earlier one of the same id.
    pub(crate) serial: u64,
    pub(crate) probe: Arc<Probe>,
    pub(crate) host: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) pod: Arc<str>,
    pub(crate) container: Arc<str>,
    /// The container's restart count.
    pub(crate) attempt: u32,
    /// The pod's start waits for it.
    pub(crate) awaited: bool,
}

/// A verdict that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    pub(crate) run_length: u32,
    pub(crate) message: String,
}
