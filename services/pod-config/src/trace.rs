//! The first spans of pod traces.

use polylet_kit::cause::{self, root};
use polylet_kit::trace_context::ANNOTATION;
use serde::Deserialize;
use tracing::Span;

use crate::core::cluster::pod::{self, ApiPod};

/// The first step of a pod's trace: from the first sight of a change until the pod is published.
pub(crate) fn new_pod_trace(origin: &str) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "podconfig.observe",
        polylet.pod.origin = origin,
        k8s.pod.uid = tracing::field::Empty,
        k8s.pod.name = tracing::field::Empty,
        k8s.namespace.name = tracing::field::Empty,
        polylet.result = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
        otel.status_description = tracing::field::Empty,
    );
    cause::start_trace(&span);
    span
}

/// The same of a pod of the API server.
pub(crate) fn new_api_pod_trace(pod: &ApiPod, is_known: bool) -> Span {
    let span = new_pod_trace("API server");
    span.record("k8s.pod.uid", pod.uid.as_str())
        .record("k8s.pod.name", pod.name.as_str())
        .record("k8s.namespace.name", pod.namespace.as_str())
        .record("polylet.result", "accepted");
    let root = match is_known {
        _ if pod::is_deleted(&pod.manifest) => root::POD_DELETE,
        true => root::POD_UPDATE,
        false => root::POD_START,
    };
    cause::name_root(&span, root);
    span
}

/// The traceparent of a pod's annotation. The rest of the manifest is not read.
pub(crate) fn annotation(manifest: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Annotated {
        #[serde(default)]
        metadata: AnnotatedMetadata,
    }
    #[derive(Default, Deserialize)]
    struct AnnotatedMetadata {
        #[serde(default)]
        annotations: Option<TraceAnnotations>,
    }
    #[derive(Deserialize)]
    struct TraceAnnotations {
        #[serde(rename = "tracing.k8s.io/traceparent")]
        traceparent: Option<String>,
    }
    // Most pods have none.
    let key = ANNOTATION.as_bytes();
    if !manifest.windows(key.len()).any(|window| window == key) {
        return None;
    }
    let annotated: Annotated = serde_json::from_slice(manifest).ok()?;
    annotated.metadata.annotations?.traceparent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pods_own_annotation_counts() {
        for (manifest, expected) in [
            (
                r#"{"metadata":{"annotations":{"a":"b","tracing.k8s.io/traceparent":"00-x"}},"spec":{}}"#,
                Some("00-x"),
            ),
            (
                r#"{"metadata":{"annotations":{"a":"tracing.k8s.io/traceparent"}}}"#,
                None,
            ),
            (
                r#"{"metadata":{"annotations":null},"spec":{"tracing.k8s.io/traceparent":"00-x"}}"#,
                None,
            ),
            (r#"{"metadata":{}}"#, None),
            ("tracing.k8s.io/traceparent", None),
        ] {
            assert_eq!(
                annotation(manifest.as_bytes()).as_deref(),
                expected,
                "{manifest}"
            );
        }
    }
}
