//! `polylet logs`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use polylet_cri::log::{LogOptions, LogReader, LogStream, LogWatcher, select_container};
use polylet_kit::Config;
use polylet_model::ids::PodUid;
use polylet_model::names;
use polylet_wire::known::Known;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::watch_pod_statuses_response::Change;
use polylet_wire::status::v1::{WatchPodStatusesRequest, WatchPodStatusesResponse};

use super::pods::{self, PodRow};
use crate::args::LogArgs;
use crate::client::{self, ClientError};

/// The annotation with the default container of `kubectl logs`.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Prints the log of a container. Its standard error is written to ours, unlike with kubectl, which gets
/// both streams as one text.
pub(crate) async fn show(config: &Config, args: LogArgs) -> Result<(), ClientError> {
    let pods = pods::named(config, &args.pod).await?;
    let (first, more) = match pods.as_slice() {
        [] => {
            let message = format!("pod {:?} not found", args.pod);
            return Err(ClientError::NotFound(message));
        }
        [first, more @ ..] => (first, more),
    };
    let pod = first;
    if let Some(other) = more
        .iter()
        .find(|other| other.namespace() != pod.namespace())
    {
        let (one, two) = (pod.namespace(), other.namespace());
        let message = format!(
            "pod name {:?} is ambiguous: it exists in namespaces {one} and {two}; use NAMESPACE/NAME",
            args.pod
        );
        return Err(ClientError::NotFound(message));
    }
    if !more.is_empty() {
        let uids: Vec<&str> = pods.iter().map(PodRow::uid).collect();
        let message = format!(
            "pod name {:?} is ambiguous: use one of the uids {}",
            args.pod,
            uids.join(", ")
        );
        return Err(ClientError::NotFound(message));
    }
    let container = select_container_name(pod, args.container.as_deref())?;
    let path = log_file(config, pod, &container, args.previous)?;
    let follow = args.follow && !args.previous && is_running(container_status(pod, &container));
    let since = args
        .since
        .and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    let options = LogOptions {
        tail: args.tail,
        since,
        timestamps: args.timestamps,
        limit_bytes: None,
        follow,
        streams: Default::default(),
    };
    let id = container_status(pod, &container).and_then(|status| status.container_id.clone());
    let ended = until_ended(config.clone(), pod.uid().to_owned(), container, id);
    let unreadable = |source: polylet_cri::log::LogReadError| ClientError::Read {
        what: format!("{}", path.display()),
        source: source.into(),
    };
    let mut reader =
        LogReader::open(&path, options, ended, &LogWatcher::default()).map_err(unreadable)?;
    while let Some(chunk) = reader.next().await {
        let chunk = chunk.map_err(unreadable)?;
        let written = match chunk.stream {
            LogStream::Stdout => std::io::stdout().write_all(&chunk.bytes),
            LogStream::Stderr => std::io::stderr().write_all(&chunk.bytes),
        };
        if written.and_then(|()| std::io::stdout().flush()).is_err() {
            // A closed pipe ends the output.
            return Ok(());
        }
    }
    Ok(())
}

/// The container to read: the one named, the default one of the pod, or the first.
fn select_container_name(pod: &PodRow, named: Option<&str>) -> Result<String, ClientError> {
    let spec = pod.pod.spec.as_ref();
    let main_containers = spec
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let init_containers = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    let names: Vec<&str> = main_containers
        .iter()
        .chain(init_containers)
        .map(|c| c.name.as_str())
        .collect();
    if let Some(named) = named {
        return if names.contains(&named) {
            Ok(named.to_owned())
        } else {
            let (pod, names) = (pod.name(), names.join(", "));
            Err(ClientError::NotFound(format!(
                "container {named:?} not found in pod {pod}; containers: {names}"
            )))
        };
    }
    let annotations = pod.pod.metadata.annotations.as_ref();
    let default = annotations
        .and_then(|all| all.get(DEFAULT_CONTAINER))
        .map(String::as_str);
    let chosen = default
        .filter(|name| names.contains(name))
        .or(names.first().copied());
    let Some(chosen) = chosen else {
        return Err(ClientError::NotFound(format!(
            "pod {} has no containers",
            pod.name()
        )));
    };
    if main_containers.len() > 1 && default.is_none() {
        eprintln!(
            "Defaulted container {chosen:?} out of: {}",
            names.join(", ")
        );
    }
    Ok(chosen.to_owned())
}

/// The newest log file of the container, or the previous one.
fn log_file(
    config: &Config,
    pod: &PodRow,
    container: &str,
    previous: bool,
) -> Result<PathBuf, ClientError> {
    let root = Path::new(&config.kubelet.pod_logs_dir);
    let uid = PodUid::from(pod.uid());
    let directory = names::pod_log_dir(root, pod.namespace(), pod.name(), &uid).join(container);
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut attempts: Vec<u32> = entries
        .filter_map(|entry| {
            // During a rotation only the rotated files may exist.
            let name = entry.file_name();
            let (attempt, rest) = name.to_str()?.split_once('.')?;
            let is_log = rest == "log" || rest.starts_with("log.");
            attempt.parse().ok().filter(|_| is_log)
        })
        .collect();
    attempts.sort_unstable_by(|a, b| b.cmp(a));
    attempts.dedup();
    match select_container(&attempts, previous) {
        Some(attempt) => Ok(directory.join(format!("{attempt}.log"))),
        None if previous => Err(ClientError::NotFound(format!(
            "container {container:?} has no previous log"
        ))),
        None => {
            let waiting = container_status(pod, container)
                .and_then(|status| status.state.as_ref()?.waiting.as_ref()?.reason.clone())
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            let message = format!("container {container:?} has no log yet{waiting}");
            Err(ClientError::NotFound(message))
        }
    }
}

fn container_status<'a>(pod: &'a PodRow, container: &str) -> Option<&'a ContainerStatus> {
    find(pod.pod.status.as_ref()?, container)
}

fn find<'a>(status: &'a PodStatus, container: &str) -> Option<&'a ContainerStatus> {
    let lists = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ];
    lists
        .into_iter()
        .flatten()
        .flatten()
        .find(|status| status.name == container)
}

fn is_running(status: Option<&ContainerStatus>) -> bool {
    status
        .and_then(|status| status.state.as_ref())
        .is_some_and(|state| state.running.is_some())
}

/// Resolves once this container no longer runs. Stays pending while status-reporter is unavailable: the
/// log may still grow.
async fn until_ended(config: Config, uid: String, container: String, id: Option<String>) {
    loop {
        if let Ok(channel) = client::connect_to_peer(&config, "status-reporter").await {
            let mut reporter = StatusServiceClient::new(channel)
                .max_decoding_message_size(polylet_kit::MAX_MESSAGE_SIZE);
            let request = WatchPodStatusesRequest {
                pod_uid: uid.clone(),
                ..WatchPodStatusesRequest::default()
            };
            let watch = reporter.watch_pod_statuses(request).await;
            if let Ok(watch) = watch {
                let mut watch = watch.into_inner();
                let mut seen = false;
                while let Ok(Some(message)) = watch.message().await {
                    // A pod that was removed while the stream was down is missing from the snapshot.
                    // So may be one of which a newer peer says something that this build does not know.
                    seen |= message.unknown().is_some();
                    let gone = !seen && matches!(&message.change, Some(Change::Synced(_)));
                    seen |= is_of(&message, &uid);
                    if gone || has_ended(&message, &uid, &container, id.as_deref()) {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

fn is_of(message: &WatchPodStatusesResponse, uid: &str) -> bool {
    match &message.change {
        Some(Change::Upsert(pod)) => pod.r#ref.as_ref().is_some_and(|pod| pod.uid == uid),
        _ => false,
    }
}

fn has_ended(
    message: &WatchPodStatusesResponse,
    uid: &str,
    container: &str,
    id: Option<&str>,
) -> bool {
    match &message.change {
        Some(Change::Remove(pod)) => pod.uid == uid,
        Some(Change::Upsert(pod)) if is_of(message, uid) => {
            let Ok(status) = serde_json::from_slice::<PodStatus>(&pod.status) else {
                return false;
            };
            let status = find(&status, container);
            !is_running(status) || status.and_then(|status| status.container_id.as_deref()) != id
        }
        _ => false,
    }
}
