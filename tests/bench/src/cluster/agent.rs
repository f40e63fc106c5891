use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polylet_harness::cluster::{AuditEvent, Component, TcpProxy, is_ready};
use polylet_harness::{Cluster, HarnessError, Node, machine, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::pods::pid_of;

/// API path of the pods.
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";

/// One of the two agents on its own node, observed through the API server.
pub(super) struct Agent<'a> {
    cluster: &'a Cluster,
    /// Declared before the node, so that it is dropped first.
    kubelet: Option<Component>,
    pub(super) node: Node,
    /// The connections to the API server, if their bytes are counted.
    connection: Option<TcpProxy>,
    changes: mpsc::UnboundedReceiver<(Instant, String, Value)>,
    held: BTreeMap<String, Value>,
}

/// Counts of an agent's requests to the API server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ApiRequestCounts {
    pub(super) reads: usize,
    pub(super) writes: usize,
    pub(super) events: usize,
}

impl ApiRequestCounts {
    pub(super) fn all(self) -> usize {
        self.reads + self.writes + self.events
    }
}

impl<'a> Agent<'a> {
    /// Starts the agent and waits until its node is Ready.
    pub(super) async fn start(
        cluster: &'a Cluster,
        mut node: Node,
        kubelet: bool,
        connection: Option<TcpProxy>,
    ) -> Result<Self, HarnessError> {
        let kubelet = if kubelet {
            let mut kubelet = match &connection {
                Some(connection) => cluster.kubelet_by(&node, &connection.server())?,
                None => cluster.kubelet(&node)?,
            };
            kubelet.start()?;
            Some(kubelet)
        } else {
            node.up().await?;
            None
        };
        cluster.wait_node_ready(node.name()).await?;
        let path = format!("{PODS}?fieldSelector=spec.nodeName%3D{}", node.name());
        let mut watch = cluster.client().watch(&path).await?;
        let (sender, changes) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            while let Ok(Some((kind, object))) = watch.next().await {
                if sender.send((Instant::now(), kind, object)).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            cluster,
            kubelet,
            node,
            connection,
            changes,
            held: BTreeMap::new(),
        })
    }

    /// Name of the agent's program.
    pub(super) fn program(&self) -> &'static str {
        match self.kubelet {
            Some(_) => "kubelet",
            None => "polylet",
        }
    }

    /// Waits until its pods meet a condition; returns the arrival time of the deciding change.
    async fn until(
        &mut self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> Result<Instant, HarnessError> {
        // As long as something happens, within reason: 500 pods take longer than one.
        let limit = tokio::time::Instant::now() + wait::timeout() * 10;
        loop {
            let deadline = limit.min(tokio::time::Instant::now() + wait::timeout() * 2);
            let next = tokio::time::timeout_at(deadline, self.changes.recv()).await;
            let Ok(Some((at, kind, object))) = next else {
                let pods = self.held.iter();
                let last: Vec<String> = pods
                    .map(|(name, pod)| format!("{name}: {}", pod["status"]))
                    .collect();
                return Err(HarnessError::Timeout {
                    what: format!("{}: {what}", self.program()),
                    seconds: wait::timeout().as_secs() * 2,
                    last: last.join("; "),
                });
            };
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if kind == "DELETED" {
                self.held.remove(name);
            } else {
                self.held.insert(name.to_owned(), object);
            }
            if wanted(&self.held) {
                return Ok(at);
            }
        }
    }

    /// Creates a pod that is already bound, so that no scheduler is involved.
    async fn create(&self, name: &str, manifest: &Value) -> Result<(), HarnessError> {
        let mut pod = manifest.clone();
        pod["metadata"] = json!({ "name": name });
        pod["spec"]["nodeName"] = json!(self.node.name());
        self.cluster.client().create(PODS, &pod).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), HarnessError> {
        let path = format!("{PODS}/{name}");
        self.cluster.client().delete(&path, &Value::Null).await?;
        Ok(())
    }

    /// Time from the create request to the watch event with Ready.
    pub(super) async fn up(
        &mut self,
        name: &str,
        manifest: &Value,
    ) -> Result<Duration, HarnessError> {
        let began = Instant::now();
        self.create(name, manifest).await?;
        let ready = |held: &BTreeMap<String, Value>| held.get(name).is_some_and(is_ready);
        let at = self.until(&format!("{name} to be Ready"), ready).await?;
        Ok(at - began)
    }

    /// Time from the delete request to the watch event of the deletion.
    pub(super) async fn down(&mut self, name: &str) -> Result<Duration, HarnessError> {
        let began = Instant::now();
        self.delete(name).await?;
        let gone = |held: &BTreeMap<String, Value>| !held.contains_key(name);
        let at = self.until(&format!("{name} to be gone"), gone).await?;
        Ok(at - began)
    }

    /// Waits until the agent has removed the containers and the files of its deleted pods, so that this work
    /// is not counted to the pod that is measured next. Both agents do it after the API server has forgotten
    /// the pod. The kubelet leaves the sandbox to a garbage collection each minute.
    pub(super) async fn settle(&self) -> Result<(), HarnessError> {
        let pods = self.node.dirs().root.join("pods");
        let what = format!("{}: containers and files to be removed", self.program());
        wait::until(what, async || {
            let containers = match self.node.containerd.cri().containers().await {
                Ok(containers) => containers.len(),
                Err(error) => return wait::Poll::Pending(error.to_string()),
            };
            let files = std::fs::read_dir(&pods)
                .map(Iterator::count)
                .unwrap_or_default();
            match containers + files {
                0 => wait::Poll::Ready(()),
                _ => wait::Poll::Pending(format!("{containers} containers, {files} directories")),
            }
        })
        .await
    }

    /// Time from the exit of the main container's process to the watch event.
    pub(super) async fn exit(&mut self, name: &str) -> Result<Duration, HarnessError> {
        let main = |held: &BTreeMap<String, Value>| {
            held.get(name)
                .map(|pod| pod["status"]["containerStatuses"][0].clone())
                .unwrap_or_default()
        };
        let id = main(&self.held)["containerID"].as_str().map(str::to_owned);
        let id = id.unwrap_or_default();
        let pid = pid_of(&self.node, id.rsplit('/').next().unwrap_or_default()).await?;
        let began = Instant::now();
        machine::signal(pid, Signal::KILL);
        let ended = |held: &BTreeMap<String, Value>| main(held)["state"]["terminated"].is_object();
        let at = self.until(&format!("{name} to have ended"), ended).await?;
        Ok(at - began)
    }

    /// Creates `count` pods, one request after the other; returns the time until all are Ready.
    pub(super) async fn many_up(
        &mut self,
        count: usize,
        manifest: &Value,
    ) -> Result<Duration, HarnessError> {
        let began = Instant::now();
        for n in 0..count {
            self.create(&self.many_name(n), manifest).await?;
        }
        let names: Vec<String> = (0..count).map(|n| self.many_name(n)).collect();
        let ready = |held: &BTreeMap<String, Value>| {
            let mut names = names.iter();
            names.all(|name| held.get(name).is_some_and(is_ready))
        };
        Ok(self.until("all pods to be Ready", ready).await? - began)
    }

    /// Deletes all of them; returns the time until the last is gone.
    pub(super) async fn many_down(&mut self, count: usize) -> Result<Duration, HarnessError> {
        let began = Instant::now();
        for n in 0..count {
            self.delete(&self.many_name(n)).await?;
        }
        let at = self
            .until("all pods to be gone", BTreeMap::is_empty)
            .await?;
        Ok(at - began)
    }

    fn many_name(&self, n: usize) -> String {
        format!("many-{}-{n}", self.program())
    }

    /// Stops the agent gracefully and starts it again.
    pub(super) async fn restart(&mut self) -> Result<(), HarnessError> {
        self.stop();
        self.start_again().await
    }

    /// Stops the agent gracefully.
    pub(super) fn stop(&mut self) {
        match &mut self.kubelet {
            Some(kubelet) => kubelet.stop(false),
            None => {
                self.node.down();
            }
        }
    }

    /// Starts it after [`Self::stop`].
    pub(super) async fn start_again(&mut self) -> Result<(), HarnessError> {
        match &mut self.kubelet {
            Some(kubelet) => kubelet.start(),
            None => self.node.up().await,
        }
    }

    /// A pod's uid, for paths.
    pub(super) fn uid(&self, name: &str) -> String {
        let uid = self.held.get(name).map(|pod| &pod["metadata"]["uid"]);
        uid.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Bytes to and from the API server so far.
    pub(super) fn api_bytes(&self) -> u64 {
        let connection = self.connection.as_ref();
        connection.map(TcpProxy::passed_bytes).unwrap_or_default()
    }

    /// The agent's requests to the API server since a position in the audit log.
    pub(super) fn requests(&self, since: u64) -> Result<Vec<AuditEvent>, HarnessError> {
        let (mut requests, _) = self.cluster.requests(since)?;
        let user = format!("system:node:{}", self.node.name());
        requests.retain(|request| request.user == user);
        Ok(requests)
    }

    /// The same without the requests that do not depend on pods.
    pub(super) fn for_pods(&self, since: u64) -> Result<ApiRequestCounts, HarnessError> {
        let mut asked = ApiRequestCounts::default();
        for request in self.requests(since)? {
            match (request.resource.as_str(), request.verb.as_str()) {
                ("leases" | "nodes" | "nodes/status" | "csinodes", _) => {}
                ("events", _) => asked.events += 1,
                (_, "get" | "list" | "watch") => asked.reads += 1,
                _ => asked.writes += 1,
            }
        }
        Ok(asked)
    }

    /// Stops the agent and removes its node.
    pub(super) fn remove(self) -> Result<(), HarnessError> {
        drop(self.kubelet);
        self.node.remove()
    }
}
