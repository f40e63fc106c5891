//! Spans of the status changes during a pod's start.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodStatus;
use polylet_kit::cause::{self, outcome};
use polylet_model::status::{is_ready, is_terminal};
use polylet_model::{Manifest, PodUid};
use polylet_wire::common::v1::Cause;
use tracing::field::Empty;
use tracing::{Span, info_span};

/// Which node it is, and what it runs besides its agent, by which starts can be compared.
#[derive(Clone, Debug, Default)]
struct NodeFacts {
    name: String,
    /// Empty until the runtime is known.
    runtime_name: String,
    runtime_version: String,
    kernel_version: String,
}

/// A status of a pod's start.
pub(crate) struct StatusSpan {
    span: Span,
    outcome: Option<&'static str>,
}

/// A step of a pod's start that a request to the API server follows from.
#[derive(Clone)]
pub(crate) struct StatusStep {
    /// The span of the status.
    pub(crate) cause: Cause,
    /// How the start ends once the API server has the status, if it does.
    pub(crate) outcome: Option<&'static str>,
}

impl StatusStep {
    /// Whether the pod is gone once the API server has deleted it.
    pub(crate) fn is_removal(&self) -> bool {
        self.outcome == Some(outcome::REMOVED)
    }
}

impl StatusSpan {
    /// The step that the status is. Without an API server it is the last one of a start that has an outcome.
    pub(crate) fn step(self, has_api_server: bool) -> StatusStep {
        if let Some(outcome) = self.outcome.filter(|_| !has_api_server) {
            cause::record_outcome(&self.span, outcome);
        }
        StatusStep {
            cause: cause::from_span(&self.span),
            outcome: self.outcome,
        }
    }
}

/// Pods whose start is still traced, and the causes of their next status.
#[derive(Default)]
pub(crate) struct StartTraces {
    /// Causes of changes that are not reconciled yet.
    causes: BTreeMap<PodUid, Cause>,
    /// The latest cause of the changes of each pod that is not at rest.
    latest: BTreeMap<PodUid, Cause>,
    /// Pods that were Ready once, or have ended: their start is over.
    started: BTreeSet<PodUid>,
    /// Pods that the API server is told to forget, which ends their deletion.
    removed: BTreeSet<PodUid>,
    /// Those of the previous process instance were compared with the pods that exist.
    synced: bool,
    node: NodeFacts,
}

impl StartTraces {
    /// `started`: pods whose start was over in the previous process instance.
    pub(crate) fn new(
        started: BTreeSet<PodUid>,
        node_name: String,
        kernel_version: String,
    ) -> Self {
        Self {
            causes: BTreeMap::new(),
            latest: BTreeMap::new(),
            started,
            removed: BTreeSet::new(),
            synced: false,
            node: NodeFacts {
                name: node_name,
                kernel_version,
                ..NodeFacts::default()
            },
        }
    }

    /// Records which container runtime the node has.
    pub(crate) fn set_runtime(&mut self, name: String, version: String) {
        self.node.runtime_name = name;
        self.node.runtime_version = version;
    }

    /// Forgets the pods of the previous process instance that no longer exist, once all that do are known.
    /// Whether there were any.
    pub(crate) fn mark_synced<V>(
        &mut self,
        existing: impl FnOnce() -> BTreeMap<PodUid, V>,
    ) -> bool {
        if std::mem::replace(&mut self.synced, true) {
            return false;
        }
        let (existing, before) = (existing(), self.started.len());
        self.started.retain(|uid| existing.contains_key(uid));
        self.started.len() != before
    }

    /// Pods whose start is over.
    pub(crate) fn started(&self) -> BTreeSet<PodUid> {
        self.started.clone()
    }

    /// Records the cause of a changed fact. The newest one is what the status waited for; earlier
    /// ones become links.
    pub(crate) fn record(&mut self, uid: &PodUid, cause: Option<&Cause>) {
        let Some(cause) = cause.filter(|cause| !cause.traceparent.is_empty()) else {
            return;
        };
        let mut newest = cause.clone();
        if let Some(earlier) = self.causes.get(uid) {
            cause::fold(&mut newest, earlier);
        }
        self.latest.insert(uid.clone(), cause.clone());
        self.causes.insert(uid.clone(), newest);
    }

    /// Takes the cause of the status that is computed now.
    pub(crate) fn drain(&mut self, uid: &str) -> Cause {
        self.causes.remove(uid).unwrap_or_default()
    }

    /// Nothing has happened for a while: what happens next has a cause of its own.
    pub(crate) fn on_quiet(&mut self) {
        self.latest.clear();
    }

    /// Forgets a removed pod.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.causes.remove(uid);
        self.latest.remove(uid);
        self.started.remove(uid);
        self.removed.remove(uid);
    }

    /// Records the end of a pod that only this node knew: the last step of its deletion.
    pub(crate) fn record_removal(&self, manifest: &Manifest) {
        if self.removed.contains(manifest.uid().as_str()) {
            return;
        }
        // What happened last was cleaned up, and that was often reconciled before the runtime's state was gone.
        let Some(cause) = self.latest.get(manifest.uid().as_str()) else {
            return;
        };
        let span = info_span!(
            "status.removed",
            k8s.pod.uid = manifest.uid().as_str(),
            k8s.pod.name = manifest.name(),
            k8s.namespace.name = manifest.namespace(),
            polylet.result = "removed"
        );
        cause::follow(&span, Some(cause));
        cause::record_outcome(&span, outcome::REMOVED);
    }

    /// The span of a status that is about to be published: one for each change until the pod is
    /// Ready, the last one of a pod that is deleted, and that of one that the API server may forget; none for others or
    /// without a cause, as there is no trace that it belongs to.
    pub(crate) fn span(
        &mut self,
        manifest: &Manifest,
        status: &PodStatus,
        is_removed: bool,
        cause: &Cause,
    ) -> Option<StatusSpan> {
        let uid = manifest.uid();
        let phase = status.phase.as_deref().unwrap_or_default();
        let is_last = manifest.deletion_timestamp().is_some() && is_terminal(phase);
        let is_started = self.started.contains(uid);
        let is_ending = is_last && !self.removed.contains(uid);
        if is_started && !is_removed && !is_ending {
            return None;
        }
        if is_removed {
            self.removed.insert(uid.clone());
        }
        let (name, namespace) = (manifest.name(), manifest.namespace());
        let ready = is_ready(status);
        let outcome = match phase {
            _ if is_removed => Some(outcome::REMOVED),
            // A step of its deletion, which goes on.
            _ if is_started => None,
            _ if ready => Some(outcome::READY),
            "Failed" => Some(outcome::FAILED),
            "Succeeded" => Some(outcome::SUCCEEDED),
            _ => None,
        };
        if outcome.is_some() {
            self.started.insert(uid.clone());
        }
        if cause.traceparent.is_empty() {
            return None;
        }
        macro_rules! span {
            ($name:literal, $result:literal) => {
                info_span!(
                    $name,
                    k8s.pod.uid = uid.as_str(),
                    k8s.pod.name = name,
                    k8s.namespace.name = namespace,
                    k8s.pod.status.phase = phase,
                    polylet.result = $result,
                    k8s.node.name = Empty,
                    container.runtime.name = Empty,
                    container.runtime.version = Empty,
                    polylet.kernel.version = Empty,
                    polylet.pod.containers = Empty,
                    polylet.pod.init_containers = Empty,
                    polylet.pod.volumes = Empty,
                )
            };
        }
        let span = match ready {
            true => span!("status.ready", "ready"),
            false => span!("status.update", "updated"),
        };
        if outcome.is_some() {
            self.node.record(&span);
            record_pod(&span, manifest);
        }
        cause::follow(&span, Some(cause));
        Some(StatusSpan { span, outcome })
    }
}

impl NodeFacts {
    fn record(&self, span: &Span) {
        span.record("k8s.node.name", self.name.as_str());
        if !self.runtime_name.is_empty() {
            span.record("container.runtime.name", self.runtime_name.as_str());
            span.record("container.runtime.version", self.runtime_version.as_str());
        }
        span.record("polylet.kernel.version", self.kernel_version.as_str());
    }
}

/// Records what a pod asks for, by which its start can be compared with those of others.
fn record_pod(span: &Span, manifest: &Manifest) {
    let spec = manifest.spec();
    let count = |of: Option<usize>| of.unwrap_or_default() as u64;
    let init_containers = count(spec.init_containers.as_ref().map(Vec::len));
    span.record("polylet.pod.containers", count(Some(spec.containers.len())));
    span.record("polylet.pod.init_containers", init_containers);
    span.record(
        "polylet.pod.volumes",
        count(spec.volumes.as_ref().map(Vec::len)),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_follows_the_removal_at_the_api_server() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u",
            "deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"containers": []}});
        let manifest = Manifest::from_json(pod.to_string().as_bytes()).unwrap();
        let cause = Cause {
            traceparent: "00-11111111111111111111111111111111-2222222222222222-01".to_owned(),
            ..Cause::default()
        };
        let ended = PodStatus {
            phase: Some("Succeeded".to_owned()),
            ..PodStatus::default()
        };
        let started = BTreeSet::from(["u".into()]);
        let mut traces = StartTraces::new(started, String::new(), String::new());
        let mut outcome = |is_removed| {
            let span = traces.span(&manifest, &ended, is_removed, &cause);
            span.map(|span| span.outcome)
        };
        assert_eq!(outcome(false), Some(None), "the last status");
        assert_eq!(outcome(true), Some(Some(outcome::REMOVED)));
        assert_eq!(outcome(false), None, "of records that are removed later");
        traces.remove("u");
        let later = traces.span(&manifest, &ended, false, &cause);
        assert_eq!(later.unwrap().outcome, Some(outcome::SUCCEEDED));
    }
}
