use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use polylet_harness::{HarnessError, Node, PodView, cri, wait};
use polylet_wire::runtime::v1::runtime_service_client::RuntimeServiceClient;
use polylet_wire::runtime::v1::{ContainerStatusRequest, ContainerStatusResponse};
use polylet_wire::status::v1::WatchPodStatusesRequest;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::watch_pod_statuses_response::Change;
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::manifests;
use crate::server::Server;

/// Pods of the node, driven by manifests and observed through the status stream.
pub(crate) struct PodDriver<'a> {
    node: &'a Node,
    changes: mpsc::UnboundedReceiver<(Instant, ObservedPodChange)>,
    held: BTreeMap<String, PodView>,
    names: BTreeMap<String, String>,
}

enum ObservedPodChange {
    Upsert(Box<PodView>),
    Remove(String),
}

impl<'a> PodDriver<'a> {
    /// Watches the status stream. Each change is timestamped on arrival.
    pub(crate) fn follow(node: &'a Node) -> Result<Self, HarnessError> {
        let channel = node.channel("status-reporter")?;
        let (sender, changes) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            let mut client = StatusServiceClient::new(channel);
            let Ok(answer) = client
                .watch_pod_statuses(WatchPodStatusesRequest::default())
                .await
            else {
                return;
            };
            let mut stream = answer.into_inner();
            while let Ok(Some(message)) = stream.message().await {
                let at = Instant::now();
                let seen = match message.change {
                    Some(Change::Upsert(pod)) => match PodView::from_wire(&pod) {
                        Ok(pod) => ObservedPodChange::Upsert(Box::new(pod)),
                        Err(_) => continue,
                    },
                    Some(Change::Remove(pod)) => ObservedPodChange::Remove(pod.uid),
                    _ => continue,
                };
                if sender.send((at, seen)).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            node,
            changes,
            held: BTreeMap::new(),
            names: BTreeMap::new(),
        })
    }

    /// Waits until the pods meet a condition; returns the arrival time of the deciding change.
    async fn until(
        &mut self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, PodView>) -> bool,
    ) -> Result<Instant, HarnessError> {
        let give_up = |held: &BTreeMap<String, PodView>| HarnessError::Timeout {
            what: what.to_owned(),
            seconds: wait::timeout().as_secs(),
            last: held
                .values()
                .map(PodView::line)
                .collect::<Vec<_>>()
                .join("; "),
        };
        // As long as something happens, within reason: 500 pods take longer than one.
        let limit = tokio::time::Instant::now() + wait::timeout() * 10;
        loop {
            let deadline = limit.min(tokio::time::Instant::now() + wait::timeout());
            let next = tokio::time::timeout_at(deadline, self.changes.recv()).await;
            let Ok(Some((at, seen))) = next else {
                return Err(give_up(&self.held));
            };
            match seen {
                ObservedPodChange::Upsert(pod) => {
                    self.names.insert(pod.uid.clone(), pod.name.clone());
                    self.held.insert(pod.name.clone(), *pod);
                }
                ObservedPodChange::Remove(uid) => {
                    if let Some(name) = self.names.remove(&uid) {
                        self.held.remove(&name);
                    }
                }
            }
            if wanted(&self.held) {
                return Ok(at);
            }
        }
    }

    fn full(&self, name: &str) -> String {
        format!("{name}-{}", self.node.name())
    }

    /// Time from writing the manifest to Ready.
    pub(crate) async fn start(
        &mut self,
        name: &str,
        manifest: &str,
    ) -> Result<Duration, HarnessError> {
        let (began, ready) = self.start_between(name, manifest).await?;
        Ok(ready - began)
    }

    /// When the manifest was written, and when Ready arrived.
    pub(crate) async fn start_between(
        &mut self,
        name: &str,
        manifest: &str,
    ) -> Result<(Instant, Instant), HarnessError> {
        let full = self.full(name);
        let began = Instant::now();
        self.node.put(&format!("{name}.json"), manifest)?;
        let at = self
            .until(&format!("{name} to be Ready"), |held| {
                held.get(&full).is_some_and(PodView::is_ready)
            })
            .await?;
        Ok((began, at))
    }

    /// Time from the start of the pod's main container, as the runtime has recorded it, to a moment.
    pub(crate) async fn since_container_start(
        &self,
        name: &str,
        until: Instant,
    ) -> Result<Duration, HarnessError> {
        let id = self.main_container(name);
        let answer = container_status(self.node, &id, false).await?;
        let started_at = answer.status.map_or(0, |status| status.started_at);
        let started_at = Duration::from_nanos(u64::try_from(started_at).unwrap_or(0));
        let until = SystemTime::now() - until.elapsed();
        let until = until
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Ok(until.saturating_sub(started_at))
    }

    /// The id of the main container, without the runtime's name.
    fn main_container(&self, name: &str) -> String {
        let pod = self.held.get(&self.full(name));
        let main = pod.and_then(|pod| pod.container("main"));
        let id = main.map(|main| main.id).unwrap_or_default();
        id.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Time from removing the manifest to the removal of the pod's status.
    pub(crate) async fn remove(&mut self, name: &str) -> Result<Duration, HarnessError> {
        let full = self.full(name);
        let began = Instant::now();
        self.node.take(&format!("{name}.json"))?;
        let at = self
            .until(&format!("{name} to be gone"), |held| {
                !held.contains_key(&full)
            })
            .await?;
        Ok(at - began)
    }

    /// Time from the server's first successful probe response to a status with Ready.
    pub(crate) async fn start_asked(
        &mut self,
        name: &str,
        server: &Server,
    ) -> Result<Duration, HarnessError> {
        let full = self.full(name);
        let manifest = manifests::asked(name, server.port());
        self.node.put(&format!("{name}.json"), &manifest)?;
        self.until(&format!("{name} to run"), |held| {
            let main = held.get(&full).and_then(|pod| pod.container("main"));
            main.is_some_and(|main| main.state == "running")
        })
        .await?;
        server.set_healthy(true);
        let at = self
            .until(&format!("{name} to be Ready"), |held| {
                held.get(&full).is_some_and(PodView::is_ready)
            })
            .await?;
        Ok(at.saturating_duration_since(server.healthy_since().unwrap_or(at)))
    }

    /// Time from the exit of the main container's process to a status with `terminated`.
    pub(crate) async fn kill_main(
        &mut self,
        node: &Node,
        name: &str,
    ) -> Result<Duration, HarnessError> {
        let full = self.full(name);
        let pid = pid_of(node, &self.main_container(name)).await?;
        let began = Instant::now();
        polylet_harness::machine::signal(pid, Signal::KILL);
        let at = self
            .until(&format!("{name} to have ended"), |held| {
                let main = held.get(&full).and_then(|pod| pod.container("main"));
                main.is_some_and(|main| main.state == "terminated")
            })
            .await?;
        Ok(at - began)
    }

    /// Writes `count` manifests at once, each generated from the pod's name.
    pub(crate) fn put_many(
        &self,
        count: usize,
        manifest: impl Fn(&str) -> String,
    ) -> Result<(Instant, BTreeSet<String>), HarnessError> {
        let began = Instant::now();
        let mut names = BTreeSet::new();
        for n in 0..count {
            let name = format!("burst-{n}");
            self.node.put(&format!("{name}.json"), &manifest(&name))?;
            names.insert(name);
        }
        Ok((began, names))
    }

    /// Time until all of them are Ready.
    pub(crate) async fn all_ready(
        &mut self,
        (began, names): &(Instant, BTreeSet<String>),
    ) -> Result<Duration, HarnessError> {
        let full: Vec<String> = names.iter().map(|name| self.full(name)).collect();
        let at = self
            .until("all pods to be Ready", |held| {
                full.iter()
                    .all(|name| held.get(name).is_some_and(PodView::is_ready))
            })
            .await?;
        Ok(at - *began)
    }

    /// Removes all of them and waits until their statuses are gone.
    pub(crate) async fn remove_many(
        &mut self,
        (_, names): &(Instant, BTreeSet<String>),
    ) -> Result<Duration, HarnessError> {
        let began = Instant::now();
        for name in names {
            self.node.take(&format!("{name}.json"))?;
        }
        let full: Vec<String> = names.iter().map(|name| self.full(name)).collect();
        let at = self
            .until("all pods to be gone", |held| {
                full.iter().all(|name| !held.contains_key(name))
            })
            .await?;
        Ok(at - began)
    }
}

/// The process of a container, from the runtime's verbose status.
pub(crate) async fn pid_of(node: &Node, container_id: &str) -> Result<u32, HarnessError> {
    let mut answer = container_status(node, container_id, true).await?;
    let info = answer.info.remove("info").unwrap_or_default();
    let info: Value = serde_json::from_str(&info).unwrap_or_default();
    let pid = info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    pid.ok_or_else(|| HarnessError::Timeout {
        what: format!("the process id of container {container_id}"),
        seconds: 0,
        last: "none in the runtime's status".to_owned(),
    })
}

async fn container_status(
    node: &Node,
    container_id: &str,
    verbose: bool,
) -> Result<ContainerStatusResponse, HarnessError> {
    let socket = polylet_harness::containerd::socket(node.scratch());
    let mut client = RuntimeServiceClient::new(cri::channel(&socket)?);
    let request = ContainerStatusRequest {
        container_id: container_id.to_owned(),
        verbose,
    };
    let answer = client.container_status(request).await;
    let answer = answer.map_err(|source| HarnessError::Call {
        call: "ContainerStatus",
        source: Box::new(source),
    })?;
    Ok(answer.into_inner())
}
