//! The last spans of a pod's start.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodStatus;
use polylet_kit::cause;
use polylet_model::Manifest;
use polylet_model::status::is_ready;
use polylet_wire::common::v1::Cause;
use tracing::{Span, info_span};

/// Whose start is still being traced, and what set off what comes next.
#[derive(Default)]
pub(crate) struct Traces {
    /// Changes not joined yet.
    causes: BTreeMap<String, Cause>,
    /// Pods that were Ready once: their start is over.
    started: BTreeSet<String>,
}

impl Traces {
    /// With the pods whose start was over in an earlier life of the process.
    pub(crate) fn new(started: BTreeSet<String>) -> Self {
        Self {
            causes: BTreeMap::new(),
            started,
        }
    }

    /// Pods whose start is over.
    pub(crate) fn started(&self) -> BTreeSet<String> {
        self.started.clone()
    }

    /// A fact about a pod changed. The newest is what the status waited for;
    /// those before it become links.
    pub(crate) fn heard(&mut self, uid: &str, cause: Option<&Cause>) {
        let Some(cause) = cause.filter(|cause| !cause.traceparent.is_empty()) else {
            return;
        };
        let mut newest = cause.clone();
        if let Some(earlier) = self.causes.get(uid) {
            cause::fold(&mut newest, earlier);
        }
        self.causes.insert(uid.to_owned(), newest);
    }

    /// What set off the join of a pod that is done now.
    pub(crate) fn take(&mut self, uid: &str) -> Cause {
        self.causes.remove(uid).unwrap_or_default()
    }

    /// The pod is gone.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.causes.remove(uid);
        self.started.remove(uid);
    }

    /// The span of a status that is about to be told: one for each step of a
    /// start that anybody can see, and none once the pod was Ready. Without a
    /// cause there is no trace that it could belong to.
    pub(crate) fn span(
        &mut self,
        manifest: &Manifest,
        status: &PodStatus,
        cause: &Cause,
    ) -> Option<Span> {
        let uid = manifest.uid().as_str();
        if self.started.contains(uid) {
            return None;
        }
        let (name, namespace) = (manifest.name(), manifest.namespace());
        let phase = status.phase.as_deref().unwrap_or_default();
        let ready = is_ready(status);
        if ready {
            self.started.insert(uid.to_owned());
        }
        if cause.traceparent.is_empty() {
            return None;
        }
        let span = if ready {
            info_span!(
                "status.ready",
                k8s.pod.uid = uid,
                k8s.pod.name = name,
                k8s.namespace.name = namespace,
                phase,
                result = "ready"
            )
        } else {
            info_span!(
                "status.join",
                k8s.pod.uid = uid,
                k8s.pod.name = name,
                k8s.namespace.name = namespace,
                phase,
                result = "told"
            )
        };
        cause::set_parent(&span, Some(cause));
        Some(span)
    }
}
