//! Spans of the status changes during a pod's start.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PodStatus;
use polylet_kit::cause;
use polylet_model::Manifest;
use polylet_model::status::is_ready;
use polylet_wire::common::v1::Cause;
use tracing::{Span, info_span};

/// Pods whose start is still traced, and the causes of their next status.
#[derive(Default)]
pub(crate) struct StartTraces {
    /// Causes of changes that are not reconciled yet.
    causes: BTreeMap<String, Cause>,
    /// Pods that were Ready once: their start is over.
    started: BTreeSet<String>,
    /// Those of the previous process instance were compared with the pods that exist.
    synced: bool,
}

impl StartTraces {
    /// `started`: pods whose start was over in the previous process instance.
    pub(crate) fn new(started: BTreeSet<String>) -> Self {
        Self {
            causes: BTreeMap::new(),
            started,
            synced: false,
        }
    }

    /// Forgets the pods of the previous process instance that no longer exist, once all that do are known.
    /// Whether there were any.
    pub(crate) fn mark_synced<V>(
        &mut self,
        existing: impl FnOnce() -> BTreeMap<String, V>,
    ) -> bool {
        if std::mem::replace(&mut self.synced, true) {
            return false;
        }
        let (existing, before) = (existing(), self.started.len());
        self.started.retain(|uid| existing.contains_key(uid));
        self.started.len() != before
    }

    /// Pods whose start is over.
    pub(crate) fn started(&self) -> BTreeSet<String> {
        self.started.clone()
    }

    /// Records the cause of a changed fact. The newest one is what the status waited for; earlier
    /// ones become links.
    pub(crate) fn record(&mut self, uid: &str, cause: Option<&Cause>) {
        let Some(cause) = cause.filter(|cause| !cause.traceparent.is_empty()) else {
            return;
        };
        let mut newest = cause.clone();
        if let Some(earlier) = self.causes.get(uid) {
            cause::fold(&mut newest, earlier);
        }
        self.causes.insert(uid.to_owned(), newest);
    }

    /// Takes the cause of the status that is computed now.
    pub(crate) fn drain(&mut self, uid: &str) -> Cause {
        self.causes.remove(uid).unwrap_or_default()
    }

    /// Forgets a removed pod.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.causes.remove(uid);
        self.started.remove(uid);
    }

    /// The span of a status that is about to be published: one for each change until the pod is
    /// Ready, none afterwards or without a cause, as there is no trace that it belongs to.
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
                "status.update",
                k8s.pod.uid = uid,
                k8s.pod.name = name,
                k8s.namespace.name = namespace,
                phase,
                result = "updated"
            )
        };
        cause::set_parent(&span, Some(cause));
        Some(span)
    }
}
