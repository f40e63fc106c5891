use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use polylet_cri::log::{Options, Reader, Stream, choose};
use polylet_kit::Config;
use polylet_model::ids::PodUid;
use polylet_model::names;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::watch_pod_statuses_response::Change;
use polylet_wire::status::v1::{WatchPodStatusesRequest, WatchPodStatusesResponse};

use super::pods::{self, Shown};
use crate::cli::LogArgs;
use crate::client::{self, AskError};
use crate::core::pods::is_named;

/// kubectl's choice where a pod has several containers.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Prints a container's log: what it wrote to its standard error goes to ours, unlike with kubectl,
/// which is given both as one text.
pub(crate) async fn show(config: &Config, args: LogArgs) -> Result<(), AskError> {
    let pods = pods::all(config).await?;
    let named = |pod: &&Shown| is_named(&args.pod, pod.uid(), pod.namespace(), pod.name());
    let mut found = pods.iter().filter(named);
    let Some(pod) = found.next() else {
        return Err(AskError::NotFound(format!(
            "no pod {:?} on this node",
            args.pod
        )));
    };
    if let Some(other) = found.next() {
        let (one, two) = (pod.namespace(), other.namespace());
        let message = format!("{:?} is in {one} and in {two}: name one of them", args.pod);
        return Err(AskError::NotFound(message));
    }
    let container = container_of(pod, args.container.as_deref())?;
    let path = file_of(config, pod, &container, args.previous)?;
    let follow = args.follow && !args.previous && is_running(status_of(pod, &container));
    let since = args
        .since
        .and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    let options = Options {
        tail: args.tail,
        since,
        timestamps: args.timestamps,
        limit_bytes: None,
        follow,
        streams: Default::default(),
    };
    let id = status_of(pod, &container).and_then(|status| status.container_id.clone());
    let ended = ended(config.clone(), pod.uid().to_owned(), container, id);
    let wrong = |source: polylet_cri::log::LogError| AskError::Unreadable {
        what: format!("{}", path.display()),
        source: source.into(),
    };
    let mut reader = Reader::open(&path, options, ended).map_err(wrong)?;
    while let Some(chunk) = reader.next().await {
        let chunk = chunk.map_err(wrong)?;
        let written = match chunk.stream {
            Stream::Stdout => std::io::stdout().write_all(&chunk.bytes),
            Stream::Stderr => std::io::stderr().write_all(&chunk.bytes),
        };
        if written.and_then(|()| std::io::stdout().flush()).is_err() {
            // The reader of the output has gone.
            return Ok(());
        }
    }
    Ok(())
}

/// The container meant: the one named, the only one, the one that the pod says, or the first.
fn container_of(pod: &Shown, named: Option<&str>) -> Result<String, AskError> {
    let spec = pod.pod.spec.as_ref();
    let mains = spec
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let inits = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    let names: Vec<&str> = mains.iter().chain(inits).map(|c| c.name.as_str()).collect();
    if let Some(named) = named {
        return if names.contains(&named) {
            Ok(named.to_owned())
        } else {
            let (pod, names) = (pod.name(), names.join(", "));
            Err(AskError::NotFound(format!(
                "{pod} has no container {named:?}, only {names}"
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
        return Err(AskError::NotFound(format!(
            "{} has no containers",
            pod.name()
        )));
    };
    if mains.len() > 1 && default.is_none() {
        eprintln!(
            "polylet: container {chosen} of {}; -c names another",
            names.join(", ")
        );
    }
    Ok(chosen.to_owned())
}

/// The newest of the container's log files, or the one before it.
fn file_of(
    config: &Config,
    pod: &Shown,
    container: &str,
    previous: bool,
) -> Result<PathBuf, AskError> {
    let root = Path::new(&config.kubelet.pod_logs_dir);
    let uid = PodUid::from(pod.uid());
    let directory = names::pod_log_dir(root, pod.namespace(), pod.name(), &uid).join(container);
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut attempts: Vec<u32> = entries
        .filter_map(|entry| {
            // Of one that is being rotated only the rotated files may be there.
            let name = entry.file_name();
            let (attempt, rest) = name.to_str()?.split_once('.')?;
            let is_log = rest == "log" || rest.starts_with("log.");
            attempt.parse().ok().filter(|_| is_log)
        })
        .collect();
    attempts.sort_unstable_by(|a, b| b.cmp(a));
    attempts.dedup();
    match choose(&attempts, previous) {
        Some(attempt) => Ok(directory.join(format!("{attempt}.log"))),
        None if previous => Err(AskError::NotFound(format!(
            "{container} has no previous log"
        ))),
        None => {
            let waiting = status_of(pod, container)
                .and_then(|status| status.state.as_ref()?.waiting.as_ref()?.reason.clone())
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            let message = format!("{container} has not written a log yet{waiting}");
            Err(AskError::NotFound(message))
        }
    }
}

fn status_of<'a>(pod: &'a Shown, container: &str) -> Option<&'a ContainerStatus> {
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

/// Resolves when the container, as it was, no longer runs. Says nothing while status-reporter is
/// away: the log may still grow.
async fn ended(config: Config, uid: String, container: String, id: Option<String>) {
    loop {
        if let Ok(channel) = client::connect(&config, "status-reporter") {
            let mut reporter = StatusServiceClient::new(channel)
                .max_decoding_message_size(polylet_kit::LARGEST_MESSAGE);
            let watch = reporter
                .watch_pod_statuses(WatchPodStatusesRequest::default())
                .await;
            if let Ok(watch) = watch {
                let mut watch = watch.into_inner();
                while let Ok(Some(message)) = watch.message().await {
                    if is_end(&message, &uid, &container, id.as_deref()) {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
}

fn is_end(
    message: &WatchPodStatusesResponse,
    uid: &str,
    container: &str,
    id: Option<&str>,
) -> bool {
    match &message.change {
        Some(Change::Remove(pod)) => pod.uid == uid,
        Some(Change::Upsert(pod)) if pod.r#ref.as_ref().is_some_and(|pod| pod.uid == uid) => {
            let Ok(status) = serde_json::from_slice::<PodStatus>(&pod.status) else {
                return false;
            };
            let status = find(&status, container);
            !is_running(status) || status.and_then(|status| status.container_id.as_deref()) != id
        }
        _ => false,
    }
}
