//! `polylet pods`, and the lookup of pods.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use polylet_kit::Config;
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{ListManifestErrorsRequest, ManifestError};
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::{ListPodStatusesRequest, PodStatus};
use serde_json::{Value, json};

use crate::args::OutputFormat;
use crate::client::{self, ClientError};
use crate::core::pods::{self, seconds_since};
use crate::core::text;

/// A pod object with its status, and facts about the status.
pub(crate) struct PodRow {
    pub(crate) pod: Pod,
    waiting_for: Vec<String>,
    stale: Vec<String>,
}

impl PodRow {
    pub(crate) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    fn ip(&self) -> &str {
        self.pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.as_deref())
            .unwrap_or_default()
    }

    fn since(&self) -> Option<Timestamp> {
        let started = || self.pod.status.as_ref()?.start_time.as_ref();
        self.pod
            .metadata
            .creation_timestamp
            .as_ref()
            .or_else(started)
            .map(|time| time.0)
    }
}

/// All pods of the node, by namespace and name.
pub(crate) async fn all(config: &Config) -> Result<Vec<PodRow>, ClientError> {
    list(config, ListPodStatusesRequest::default()).await
}

/// The pods that a query names: by `namespace/name`, name or uid.
pub(crate) async fn named(config: &Config, query: &str) -> Result<Vec<PodRow>, ClientError> {
    let mut request = ListPodStatusesRequest::default();
    match query.split_once('/') {
        Some((namespace, name)) => {
            request.namespace = namespace.to_owned();
            request.name = name.to_owned();
        }
        None => request.name = query.to_owned(),
    }
    let by_uid = ListPodStatusesRequest {
        pod_uid: query.to_owned(),
        ..ListPodStatusesRequest::default()
    };
    let found = list(config, request).await?;
    if found.is_empty() && !query.contains('/') {
        return list(config, by_uid).await;
    }
    Ok(found)
}

async fn list(
    config: &Config,
    request: ListPodStatusesRequest,
) -> Result<Vec<PodRow>, ClientError> {
    let channel = client::connect_to_peer(config, "status-reporter").await?;
    let mut reporter =
        StatusServiceClient::new(channel).max_decoding_message_size(polylet_kit::MAX_MESSAGE_SIZE);
    let pods = reporter.list_pod_statuses(request);
    let found = match client::list("status-reporter", pods).await {
        Ok(found) => found.pods,
        Err(error) => return Err(client::explain(config, error).await),
    };
    let mut pods = found
        .into_iter()
        .map(pod_row)
        .collect::<Result<Vec<_>, _>>()?;
    pods.sort_by(|a, b| {
        (a.namespace(), a.name(), a.uid()).cmp(&(b.namespace(), b.name(), b.uid()))
    });
    Ok(pods)
}

fn pod_row(found: PodStatus) -> Result<PodRow, ClientError> {
    let reference = found.r#ref.unwrap_or_default();
    let unreadable = |source: serde_json::Error| ClientError::Read {
        what: format!("the status of {}/{}", reference.namespace, reference.name),
        source: source.into(),
    };
    // A pod may be known by its containers only, without a manifest.
    let mut pod: Pod = if found.manifest.is_empty() {
        Pod::default()
    } else {
        serde_json::from_slice(&found.manifest).map_err(unreadable)?
    };
    if !found.status.is_empty() {
        pod.status = Some(serde_json::from_slice(&found.status).map_err(unreadable)?);
    }
    pod.metadata.uid = Some(reference.uid.clone());
    pod.metadata.namespace = Some(reference.namespace.clone());
    pod.metadata.name = Some(reference.name.clone());
    Ok(PodRow {
        pod,
        waiting_for: found.waiting_for,
        stale: found.stale,
    })
}

/// Manifests that were rejected; none if pod-config is unavailable, or too old, which is printed.
pub(crate) async fn manifest_errors(config: &Config) -> Vec<ManifestError> {
    let channel = match client::connect_to_peer(config, "pod-config").await {
        Ok(channel) => channel,
        Err(error @ ClientError::Refused(_)) => {
            eprintln!("polylet: {}", polylet_kit::report(&error));
            return Vec::new();
        }
        Err(_) => return Vec::new(),
    };
    let mut pod_config = PodConfigServiceClient::new(channel)
        .max_decoding_message_size(polylet_kit::MAX_MESSAGE_SIZE);
    let list = pod_config.list_manifest_errors(ListManifestErrorsRequest {});
    client::call("pod-config", list)
        .await
        .map(|response| response.errors)
        .unwrap_or_default()
}

/// Prints the pods and the rejected manifests.
pub(crate) async fn show(config: &Config, output: OutputFormat) -> Result<(), ClientError> {
    let pods = all(config).await?;
    let errors = manifest_errors(config).await;
    let now = Timestamp::now();
    if output == OutputFormat::Json {
        let pods: Vec<Value> = pods.iter().map(|pod| pod_json(pod, now)).collect();
        let errors: Vec<Value> = errors.iter().map(error_json).collect();
        super::json(&json!({"pods": pods, "manifestErrors": errors}));
        return Ok(());
    }
    if pods.is_empty() {
        super::print("No pods found.\n");
    } else {
        let titles = [
            "NAMESPACE",
            "NAME",
            "READY",
            "STATUS",
            "RESTARTS",
            "AGE",
            "IP",
            "WAITING FOR",
        ];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        rows.extend(pods.iter().map(|pod| row(pod, now)));
        super::print(&text::table(&rows));
    }
    if !errors.is_empty() {
        super::print("\nRejected manifests:\n");
    }
    for error in &errors {
        let field = if error.field.is_empty() { "" } else { ": " };
        let (origin, message) = (&error.origin, &error.message);
        super::print(&format!("  {origin}{field}{}: {message}\n", error.field));
    }
    Ok(())
}

fn row(pod: &PodRow, now: Timestamp) -> Vec<String> {
    let summary = pods::summarize(&pod.pod);
    let age = pod.since().map(|at| text::age(seconds_since(at, now)));
    let mut waiting = pod.waiting_for.join("; ");
    if !pod.stale.is_empty() {
        let stale = format!("(stale: {} unavailable)", pod.stale.join(", "));
        waiting = format!("{waiting} {stale}").trim_start().to_owned();
    }
    let or_dash = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text.to_owned()
        }
    };
    [
        pod.namespace().to_owned(),
        pod.name().to_owned(),
        format!("{}/{}", summary.ready, summary.total),
        summary.status.clone(),
        summary.restarts(now),
        or_dash(&age.unwrap_or_default()),
        or_dash(pod.ip()),
        waiting,
    ]
    .into()
}

fn pod_json(pod: &PodRow, now: Timestamp) -> Value {
    let summary = pods::summarize(&pod.pod);
    json!({
        "namespace": pod.namespace(),
        "name": pod.name(),
        "uid": pod.uid(),
        "ready": summary.ready,
        "containers": summary.total,
        "status": summary.status,
        "phase": pod.pod.status.as_ref().and_then(|status| status.phase.as_deref()),
        "restarts": summary.restarts,
        "ageSeconds": pod.since().map(|at| seconds_since(at, now)),
        "ip": pod.ip(),
        "waitingFor": pod.waiting_for,
        "stale": pod.stale,
        "pod": pod.pod,
    })
}

fn error_json(error: &ManifestError) -> Value {
    json!({
        "origin": error.origin,
        "field": error.field,
        "message": error.message,
        "since": client::time(error.since.as_ref()),
    })
}
