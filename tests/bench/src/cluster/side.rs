use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polylet_harness::cluster::{Audited, Part, is_ready};
use polylet_harness::{Cluster, HarnessError, Node, machine, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::pods::pid_of;

/// Where pods are made.
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";

/// One of the two agents on a node of its own, seen as any client sees it: through the API server.
pub(super) struct Side<'a> {
    cluster: &'a Cluster,
    /// Before the node, which would be in its way.
    kubelet: Option<Part>,
    pub(super) node: Node,
    changes: mpsc::UnboundedReceiver<(Instant, String, Value)>,
    held: BTreeMap<String, Value>,
}

/// What an agent asked of the API server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) reads: usize,
    pub(super) writes: usize,
    pub(super) events: usize,
}

impl Asked {
    pub(super) fn all(self) -> usize {
        self.reads + self.writes + self.events
    }
}

impl<'a> Side<'a> {
    /// Starts the agent and waits until the cluster takes the node for Ready.
    pub(super) async fn start(
        cluster: &'a Cluster,
        mut node: Node,
        kubelet: bool,
    ) -> Result<Self, HarnessError> {
        let kubelet = if kubelet {
            let mut kubelet = cluster.kubelet(&node)?;
            kubelet.up()?;
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
            changes,
            held: BTreeMap::new(),
        })
    }

    /// What its program is called.
    pub(super) fn program(&self) -> &'static str {
        match self.kubelet {
            Some(_) => "kubelet",
            None => "polylet",
        }
    }

    /// Waits for a state of all its pods; says when the change came that made it so.
    async fn until(
        &mut self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> Result<Instant, HarnessError> {
        let deadline = tokio::time::Instant::now() + wait::patience() * 2;
        loop {
            let next = tokio::time::timeout_at(deadline, self.changes.recv()).await;
            let Ok(Some((at, kind, object))) = next else {
                let pods = self.held.iter();
                let last: Vec<String> = pods
                    .map(|(name, pod)| format!("{name}: {}", pod["status"]))
                    .collect();
                return Err(HarnessError::Patience {
                    what: format!("{}: {what}", self.program()),
                    seconds: wait::patience().as_secs() * 2,
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

    /// Bound from the first, so that no scheduler is in the way.
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

    /// From the request that makes a pod to a watcher that hears it is Ready.
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

    /// From the request that deletes a pod to a watcher that hears it is gone.
    pub(super) async fn down(&mut self, name: &str) -> Result<Duration, HarnessError> {
        let began = Instant::now();
        self.delete(name).await?;
        let gone = |held: &BTreeMap<String, Value>| !held.contains_key(name);
        let at = self.until(&format!("{name} to be gone"), gone).await?;
        Ok(at - began)
    }

    /// From the end of the main container's process to a watcher that hears of it.
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

    /// So many pods made one request after the other, and how long until all are Ready.
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

    /// All of them deleted, and how long until the last is gone.
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

    /// Ends the agent in order and starts it again.
    pub(super) async fn restart(&mut self) -> Result<(), HarnessError> {
        match &mut self.kubelet {
            Some(kubelet) => {
                kubelet.down(false);
                kubelet.up()
            }
            None => {
                self.node.down();
                self.node.up().await
            }
        }
    }

    /// A pod's identity, for paths.
    pub(super) fn uid(&self, name: &str) -> String {
        let uid = self.held.get(name).map(|pod| &pod["metadata"]["uid"]);
        uid.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// What it asked of the API server since a mark.
    pub(super) fn requests(&self, since: u64) -> Result<Vec<Audited>, HarnessError> {
        let (mut requests, _) = self.cluster.requests(since)?;
        let user = format!("system:node:{}", self.node.name());
        requests.retain(|request| request.user == user);
        Ok(requests)
    }

    /// The same without what it asks whether there are pods or not.
    pub(super) fn for_pods(&self, since: u64) -> Result<Asked, HarnessError> {
        let mut asked = Asked::default();
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

    /// Ends it and removes its node.
    pub(super) fn remove(self) -> Result<(), HarnessError> {
        drop(self.kubelet);
        self.node.remove()
    }
}
