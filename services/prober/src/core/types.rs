//! Domain types of the prober.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::ids::{ContainerId, PodUid};
use polylet_model::probe::ProbeKind;

/// One probe of one container. A restarted container has another id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId {
    pub pod: PodUid,
    pub container: ContainerId,
    pub kind: ProbeKind,
}

/// A probe's handler, with its port number and command line resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedHandler {
    Exec {
        command: Vec<String>,
    },
    Http(HttpGet),
    Tcp {
        /// `None` for the pod's address.
        host: Option<String>,
        port: u16,
    },
    Grpc {
        port: u16,
        service: String,
    },
    /// A handler that cannot be resolved, with the reason.
    Invalid(String),
}

impl ResolvedHandler {
    /// Whether an attempt connects to the pod's address.
    pub(crate) fn uses_pod_address(&self) -> bool {
        match self {
            ResolvedHandler::Http(get) => get.host.is_none(),
            ResolvedHandler::Tcp { host, .. } => host.is_none(),
            ResolvedHandler::Grpc { .. } => true,
            ResolvedHandler::Exec { .. } | ResolvedHandler::Invalid(_) => false,
        }
    }
}

/// An HTTP or HTTPS request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpGet {
    /// `None` for the pod's address.
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) https: bool,
    pub(crate) headers: Vec<(String, String)>,
}

/// A probe from the pod's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeConfig {
    /// The container as the involved object of events names it: `spec.containers{web}`.
    pub(crate) field_path: Arc<str>,
    pub(crate) kind: ProbeKind,
    pub(crate) handler: ResolvedHandler,
    pub(crate) timing: ProbeTiming,
    /// The time limit of one attempt.
    pub(crate) timeout: Duration,
}

/// When a probe is due, and how many equal results change its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeTiming {
    pub(crate) initial_delay: Duration,
    pub(crate) period: Duration,
    pub(crate) success_threshold: u32,
    pub(crate) failure_threshold: u32,
    /// The first delay between attempts of a readiness probe before its first success.
    pub(crate) first_retry: Duration,
}

/// The probes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodProbes {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Whether the pod has a deletion timestamp.
    pub(crate) deleting: bool,
    pub(crate) containers: Vec<ContainerProbes>,
}

/// The probes of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerProbes {
    pub(crate) name: Arc<str>,
    pub(crate) probes: Vec<Arc<ProbeConfig>>,
}

/// A source of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodSource {
    File,
    Http,
    Api,
}

/// A change of the desired pods.
#[derive(Clone, Debug)]
pub struct PodChange {
    pub source: PodSource,
    pub uid: PodUid,
    /// `None` for a pod that the source has removed.
    pub probes: Option<PodProbes>,
}

/// A change of the pods in the runtime.
#[derive(Clone, Debug)]
pub enum ObservedChange {
    /// The state of a pod.
    Upsert(PodUid, ObservedPod),
    /// Nothing of the pod is left in the runtime.
    Remove(PodUid),
    /// The state of every pod has been received.
    Synced,
}

/// A pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPod {
    /// The id of the newest sandbox.
    pub(crate) sandbox: Option<Box<str>>,
    /// The pod's address; the node's on the host's network. `None` while it is unknown.
    pub(crate) host: Option<Arc<str>>,
    /// Newest first within one name.
    pub(crate) containers: Vec<ObservedContainer>,
}

impl ObservedPod {
    /// With the earlier address of the same sandbox while its present one is unknown: a sandbox does not
    /// change its address, but the runtime may return no status of it. Another sandbox has another address.
    pub(crate) fn or_earlier_host(mut self, earlier: Option<&ObservedPod>) -> Self {
        let same_sandbox = earlier.filter(|earlier| earlier.sandbox == self.sandbox);
        self.host = self
            .host
            .or_else(|| same_sandbox.and_then(|earlier| earlier.host.clone()));
        self
    }
}

/// A container in the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedContainer {
    pub(crate) id: ContainerId,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) running: bool,
    /// On the prober's clock.
    pub(crate) started_at: Option<Timestamp>,
}

/// The outcome of a probe after its thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    Success,
    Failure,
}

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutput {
    Success,
    /// Counts as a success and is reported as an event.
    Warning(String),
    Failure(String),
    /// The probe itself failed, which does not count and is in no metric.
    Unknown(String),
}

impl ProbeOutput {
    /// The reason and message of upstream's event for this result.
    pub(crate) fn event(&self, kind: ProbeKind) -> Option<(&'static str, String)> {
        let kind = kind.as_str();
        match self {
            ProbeOutput::Success => None,
            ProbeOutput::Warning(message) => {
                Some(("ProbeWarning", format!("{kind} probe warning: {message}")))
            }
            ProbeOutput::Failure(message) => {
                Some(("Unhealthy", format!("{kind} probe failed: {message}")))
            }
            ProbeOutput::Unknown(message) => {
                let state = "probe errored and resulted in unknown state";
                Some(("Unhealthy", format!("{kind} {state}: {message}")))
            }
        }
    }

    /// The `result` field of spans and logs.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            ProbeOutput::Success => "success",
            ProbeOutput::Warning(_) => "warning",
            ProbeOutput::Failure(_) => "failure",
            ProbeOutput::Unknown(_) => "unknown",
        }
    }

    /// The details, unless the attempt simply succeeded.
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            ProbeOutput::Success => None,
            ProbeOutput::Warning(message)
            | ProbeOutput::Failure(message)
            | ProbeOutput::Unknown(message) => Some(message),
        }
    }
}

/// An attempt to make now.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeAttempt {
    pub(crate) id: ProbeId,
    /// Distinguishes a worker from an earlier one of the same id.
    pub(crate) serial: u64,
    pub(crate) probe: Arc<ProbeConfig>,
    /// The pod's address; may be empty where the handler does not use it.
    pub(crate) host: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) pod: Arc<str>,
    pub(crate) container: Arc<str>,
    /// The container's restart count.
    pub(crate) attempt: u32,
    /// The pod's start waits for this attempt.
    pub(crate) awaited: bool,
    /// The attempt counts, whatever its result.
    pub(crate) counts: bool,
}

impl ProbeAttempt {
    /// The id of the probed container.
    pub fn container_id(&self) -> &str {
        self.id.container.as_str()
    }

    /// Whether the attempt ended because nothing answered in time.
    pub(crate) fn is_unanswered(&self, output: &ProbeOutput, duration: Duration) -> bool {
        let failed = matches!(output, ProbeOutput::Failure(_) | ProbeOutput::Unknown(_));
        failed && duration >= self.probe.timeout
    }

    /// Whether a result is an event and in the metrics: not a failure between the ticks, which
    /// upstream would not have seen.
    pub(crate) fn is_reported(&self, output: &ProbeOutput) -> bool {
        self.counts || matches!(output, ProbeOutput::Success | ProbeOutput::Warning(_))
    }
}

/// A change of a probe's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutcomeChange {
    pub(crate) outcome: ProbeOutcome,
    /// Equal results in a row.
    pub(crate) run_length: u32,
    pub(crate) message: String,
}

/// The current result of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeResult {
    pub outcome: ProbeOutcome,
    /// Equal results in a row when the outcome changed.
    pub run_length: u32,
    pub message: String,
    /// When the outcome changed.
    pub since: Option<Timestamp>,
    /// The trace of the attempt that changed the outcome.
    pub traceparent: String,
}

/// The current results of all probes that have one.
pub type Results = BTreeMap<ProbeId, ProbeResult>;

/// The latest change of each changed result: to be saved, and published after that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultChanges(BTreeMap<ProbeId, Option<ProbeResult>>);

impl ResultChanges {
    /// Adds a change: the new result of a probe, or `None` once its container is gone.
    pub(crate) fn add(&mut self, id: ProbeId, result: Option<ProbeResult>) {
        self.0.insert(id, result);
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The changed probes with their new results; `None` for those that have none any more.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ProbeId, Option<&ProbeResult>)> {
        self.0.iter().map(|(id, result)| (id, result.as_ref()))
    }

    /// Makes the changes in `results`.
    pub fn apply_to(&self, results: &mut Results) {
        for (id, result) in &self.0 {
            match result {
                Some(result) => results.insert(id.clone(), result.clone()),
                None => results.remove(id),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_nothing_answers_takes_its_whole_time() {
        let attempt = crate::core::test_support::attempt("c", ProbeKind::Readiness);
        let timeout = attempt.probe.timeout;
        let early = timeout - Duration::from_millis(1);
        let failure = || ProbeOutput::Failure("why".to_owned());
        for (output, duration, expected) in [
            (failure(), timeout, true),
            (failure(), early, false),
            (ProbeOutput::Unknown("why".to_owned()), timeout, true),
            (ProbeOutput::Success, timeout, false),
        ] {
            assert_eq!(attempt.is_unanswered(&output, duration), expected);
        }
    }

    #[test]
    fn events_are_worded_as_upstream() {
        let event = |output: ProbeOutput| output.event(ProbeKind::Readiness);
        let why = || "why".to_owned();
        assert_eq!(event(ProbeOutput::Success), None);
        for (output, reason, message) in [
            (
                ProbeOutput::Failure(why()),
                "Unhealthy",
                "Readiness probe failed: why",
            ),
            (
                ProbeOutput::Unknown(why()),
                "Unhealthy",
                "Readiness probe errored and resulted in unknown state: why",
            ),
            (
                ProbeOutput::Warning(why()),
                "ProbeWarning",
                "Readiness probe warning: why",
            ),
        ] {
            assert_eq!(event(output), Some((reason, message.to_owned())));
        }
    }
}
