use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use polylet_kit::Config;
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{ListProblemsRequest, Problem};
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::{ListPodStatusesRequest, PodStatus};
use serde_json::{Value, json};

use crate::cli::Output;
use crate::client::{self, AskError};
use crate::core::pods::{self, seconds_since};
use crate::core::text;

/// A pod with its status in it, and what came along.
pub(crate) struct Shown {
    pub(crate) pod: Pod,
    waiting_for: Vec<String>,
    stale: Vec<String>,
}

impl Shown {
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

/// Every pod of the node, by namespace and name.
pub(crate) async fn all(config: &Config) -> Result<Vec<Shown>, AskError> {
    let mut reporter = StatusServiceClient::new(client::connect(config, "status-reporter")?)
        .max_decoding_message_size(polylet_kit::LARGEST_MESSAGE);
    let list = reporter.list_pod_statuses(ListPodStatusesRequest::default());
    let found = match client::listed("status-reporter", list).await {
        Ok(found) => found.pods,
        Err(error) => return Err(client::explained(config, error).await),
    };
    let mut pods = found
        .into_iter()
        .map(shown)
        .collect::<Result<Vec<_>, _>>()?;
    pods.sort_by(|a, b| {
        (a.namespace(), a.name(), a.uid()).cmp(&(b.namespace(), b.name(), b.uid()))
    });
    Ok(pods)
}

fn shown(found: PodStatus) -> Result<Shown, AskError> {
    let reference = found.r#ref.unwrap_or_default();
    let wrong = |source: serde_json::Error| AskError::Unreadable {
        what: format!("the status of {}/{}", reference.namespace, reference.name),
        source: source.into(),
    };
    // A pod may be known by its containers alone, without a manifest.
    let mut pod: Pod = if found.manifest.is_empty() {
        Pod::default()
    } else {
        serde_json::from_slice(&found.manifest).map_err(wrong)?
    };
    if !found.status.is_empty() {
        pod.status = Some(serde_json::from_slice(&found.status).map_err(wrong)?);
    }
    pod.metadata.uid = Some(reference.uid.clone());
    pod.metadata.namespace = Some(reference.namespace.clone());
    pod.metadata.name = Some(reference.name.clone());
    Ok(Shown {
        pod,
        waiting_for: found.waiting_for,
        stale: found.stale,
    })
}

/// What the sources hold that could not be accepted; nothing when pod-config is away.
pub(crate) async fn problems(config: &Config) -> Vec<Problem> {
    let Ok(channel) = client::connect(config, "pod-config") else {
        return Vec::new();
    };
    let mut pod_config = PodConfigServiceClient::new(channel)
        .max_decoding_message_size(polylet_kit::LARGEST_MESSAGE);
    let list = pod_config.list_problems(ListProblemsRequest {});
    client::within("pod-config", list)
        .await
        .map(|answer| answer.problems)
        .unwrap_or_default()
}

/// Shows the pods, and what could not become one.
pub(crate) async fn show(config: &Config, output: Output) -> Result<(), AskError> {
    let pods = all(config).await?;
    let problems = problems(config).await;
    let now = Timestamp::now();
    if output == Output::Json {
        let pods: Vec<Value> = pods.iter().map(|pod| pod_json(pod, now)).collect();
        let problems: Vec<Value> = problems.iter().map(problem_json).collect();
        super::json(&json!({"pods": pods, "problems": problems}));
        return Ok(());
    }
    if pods.is_empty() {
        super::print("no pods\n");
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
    if !problems.is_empty() {
        super::print("\nnot accepted:\n");
    }
    for problem in &problems {
        let field = if problem.field.is_empty() { "" } else { ": " };
        let (origin, message) = (&problem.origin, &problem.message);
        super::print(&format!("  {origin}{field}{}: {message}\n", problem.field));
    }
    Ok(())
}

fn row(shown: &Shown, now: Timestamp) -> Vec<String> {
    let line = pods::line(&shown.pod);
    let age = shown.since().map(|at| text::age(seconds_since(at, now)));
    let mut waiting = shown.waiting_for.join("; ");
    if !shown.stale.is_empty() {
        let stale = format!("(as last heard: {} is away)", shown.stale.join(", "));
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
        shown.namespace().to_owned(),
        shown.name().to_owned(),
        format!("{}/{}", line.ready, line.total),
        line.status.clone(),
        line.restarts(now),
        or_dash(&age.unwrap_or_default()),
        or_dash(shown.ip()),
        waiting,
    ]
    .into()
}

fn pod_json(shown: &Shown, now: Timestamp) -> Value {
    let line = pods::line(&shown.pod);
    json!({
        "namespace": shown.namespace(),
        "name": shown.name(),
        "uid": shown.uid(),
        "ready": line.ready,
        "containers": line.total,
        "status": line.status,
        "phase": shown.pod.status.as_ref().and_then(|status| status.phase.as_deref()),
        "restarts": line.restarts,
        "ageSeconds": shown.since().map(|at| seconds_since(at, now)),
        "ip": shown.ip(),
        "waitingFor": shown.waiting_for,
        "stale": shown.stale,
        "pod": shown.pod,
    })
}

fn problem_json(problem: &Problem) -> Value {
    json!({
        "origin": problem.origin,
        "field": problem.field,
        "message": problem.message,
        "since": client::time(problem.since.as_ref()),
    })
}
