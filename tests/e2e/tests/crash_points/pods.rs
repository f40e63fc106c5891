//! A pod with an init container, volumes, probes and hooks starts, and is deleted.

use std::collections::BTreeMap;
use std::fs;

use polylet_harness::error::report;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView};
use serde_json::{Value, json};

use crate::orphans;
use crate::results::{Results, verify};
use crate::run::CrashRun;

pub(crate) async fn start_and_stop() {
    let mut run = CrashRun::start(NodeOptions::default()).await;
    // The second one finds what is made once per node.
    let mut recorded = (Vec::new(), Vec::new());
    for number in 0..2 {
        let pod = TestPod::new(&run.node, number);
        run.control.record();
        let uid = started(&run.node, &pod)
            .await
            .expect("a start without crash");
        recorded.0 = run.control.recorded(2);
        run.control.record();
        stopped(&run.node, &pod, &uid)
            .await
            .expect("a stop without crash");
        recorded.1 = run.control.recorded(2);
    }
    let (starts, stops) = recorded;
    let (mut start, mut stop) = (Results::new("start"), Results::new("stop"));
    for at in 0..starts.len().max(stops.len()) {
        run.settle().await.expect("a node in step");
        let mut pod = TestPod::new(&run.node, at + 2);
        if let Some(point) = starts.get(at) {
            pod.max_restarts = u64::from(point.interrupts_start());
            run.control.arm(point);
        }
        let mut uid = started(&run.node, &pod).await;
        if let Some(point) = starts.get(at) {
            let (has_crashed, well) = run.recovered(point).await;
            start.add(point, has_crashed, uid.clone().map(drop).and(well));
        }
        if let Some(point) = stops.get(at) {
            run.control.arm(point);
        }
        if uid.is_err() {
            uid = uid_of(&run.node, &pod).await;
        }
        let end = match uid {
            Ok(uid) => stopped(&run.node, &pod, &uid).await,
            Err(error) => {
                pod.take(&run.node);
                Err(error)
            }
        };
        if let Some(point) = stops.get(at) {
            let (has_crashed, well) = run.recovered(point).await;
            stop.add(point, has_crashed, end.and(well));
        } else if let (Err(error), Some(point)) = (end, starts.get(at)) {
            start.add(point, true, Err(format!("its stop: {error}")));
        }
    }
    let failures = [start.finish(), stop.finish()].concat();
    verify(&failures);
    run.node.remove().expect("nothing left of the node");
}

/// A pod whose containers and hooks write a line each into a file of the node.
pub(crate) struct TestPod {
    pub(crate) name: String,
    manifest: Value,
    /// How many of its containers may have failed to start once.
    max_restarts: u64,
}

impl TestPod {
    pub(crate) fn new(node: &Node, number: usize) -> Self {
        let name = format!("crash-{number}");
        let out = node.scratch().join("out").join(&name);
        fs::create_dir_all(&out).expect("a directory");
        let line = |word: &str| json!(["sh", "-c", format!("echo {word} >> /out/lines")]);
        let out_mount = json!({ "name": "out", "mountPath": "/out" });
        let main = "echo main >> /out/lines; trap 'echo term >> /out/lines; exit 0' TERM; \
            while :; do sleep 3600 & wait $!; done";
        let exists = json!({ "exec": { "command": ["test", "-s", "/out/lines"] },
            "periodSeconds": 1 });
        let manifest = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": {
                "terminationGracePeriodSeconds": 10,
                "initContainers": [{ "name": "init", "image": "polylet-test:1",
                    "command": line("init"), "volumeMounts": [out_mount] }],
                "containers": [{
                    "name": "main", "image": "polylet-test:1", "command": ["sh", "-c", main],
                    "resources": { "limits": { "memory": "64Mi", "cpu": "500m" } },
                    "lifecycle": { "postStart": { "exec": { "command": line("post-start") } },
                        "preStop": { "exec": { "command": line("pre-stop") } } },
                    "startupProbe": exists, "readinessProbe": exists,
                    "volumeMounts": [
                        out_mount,
                        { "name": "cache", "mountPath": "/cache" },
                        { "name": "cache", "mountPath": "/part", "subPath": "a/b" },
                        { "name": "memory", "mountPath": "/memory" },
                        { "name": "map", "mountPath": "/map" },
                        { "name": "secret", "mountPath": "/secret" },
                    ],
                }],
                "volumes": [
                    { "name": "out", "hostPath": { "path": out } },
                    { "name": "cache", "emptyDir": {} },
                    { "name": "memory", "emptyDir": { "medium": "Memory" } },
                    { "name": "map", "configMap": { "name": "web" } },
                    { "name": "secret", "secret": { "secretName": "web" } },
                ],
            },
        });
        Self {
            name,
            manifest,
            max_restarts: 0,
        }
    }

    /// The same for the API server.
    pub(crate) fn object(&self) -> Value {
        let mut pod = self.manifest.clone();
        pod["spec"]["nodeName"] = "node".into();
        pod["spec"]["automountServiceAccountToken"] = false.into();
        pod
    }

    fn file(&self) -> String {
        format!("{}.json", self.name)
    }

    fn take(&self, node: &Node) {
        // It may have been removed before.
        let _ = node.take(&self.file());
    }

    /// How often each line was written.
    fn lines(&self, node: &Node) -> BTreeMap<String, usize> {
        let path = node.scratch().join("out").join(&self.name).join("lines");
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Whether the containers were started as often as they should be.
    fn ran_once(&self, lines: &BTreeMap<String, usize>) -> bool {
        let count = |word: &str| lines.get(word).copied().unwrap_or_default();
        let more = usize::try_from(self.max_restarts).unwrap_or_default();
        (1..=1 + more).contains(&count("init"))
            && (1..=1 + more).contains(&count("main"))
            && count("init") + count("main") <= 2 + more
    }

    /// Each container has run once; the hook of the start at least once.
    pub(crate) fn verify_started(&self, node: &Node) -> Result<(), String> {
        let lines = self.lines(node);
        let ended = lines.contains_key("pre-stop") || lines.contains_key("term");
        if self.ran_once(&lines) && lines.contains_key("post-start") && !ended {
            return Ok(());
        }
        Err(format!("the containers wrote {lines:?}"))
    }

    /// The hook of the stop has run, and the container was asked to end.
    pub(crate) fn verify_stopped(&self, node: &Node) -> Result<(), String> {
        let lines = self.lines(node);
        let asked = lines.get("term") == Some(&1);
        if self.ran_once(&lines) && lines.contains_key("pre-stop") && asked {
            return Ok(());
        }
        Err(format!("the containers wrote {lines:?}"))
    }
}

/// Creates the pod and waits until it is as it should be; its uid.
async fn started(node: &Node, pod: &TestPod) -> Result<String, String> {
    let manifest = pod.manifest.to_string();
    node.put(&pod.file(), &manifest).map_err(|e| report(&e))?;
    let fresh = |pod: &PodView| pod.is_ready() && pod.stale.is_empty();
    let what = "to be Ready with nothing stale";
    let ready = node.wait_pod(&pod.name, what, fresh).await;
    let ready = ready.map_err(|e| report(&e))?;
    wait_as_reported(node, &ready, pod.max_restarts).await?;
    pod.verify_started(node)?;
    Ok(ready.uid)
}

async fn uid_of(node: &Node, pod: &TestPod) -> Result<String, String> {
    let known = |pod: &PodView| !pod.uid.is_empty();
    let pod = node.wait_pod(&pod.name, "to have a status", known).await;
    pod.map(|pod| pod.uid).map_err(|e| report(&e))
}

/// The runtime has the containers of the status and no other; of those that failed to start it may still
/// have the last instance.
async fn wait_as_reported(node: &Node, pod: &PodView, max_restarts: u64) -> Result<(), String> {
    let restarts: u64 = pod.containers().iter().map(|one| one.restarts).sum();
    if restarts > max_restarts {
        return Err(format!("restarted: {}", pod.line()));
    }
    let present: Vec<String> = pod.containers().into_iter().map(|one| one.id).collect();
    let mut last = Vec::new();
    for list in ["initContainerStatuses", "containerStatuses"] {
        let all = pod.status[list].as_array().into_iter().flatten();
        let ids = all.filter_map(|one| one["lastState"]["terminated"]["containerID"].as_str());
        last.extend(ids.map(str::to_owned));
    }
    let poll = || async {
        let (containers, sandboxes) = match in_runtime(node, &pod.uid).await {
            Ok(found) => found,
            Err(error) => return Poll::Pending(error),
        };
        let all_present = present.iter().all(|id| containers.contains(id));
        let no_other = containers
            .iter()
            .all(|id| present.contains(id) || last.contains(id));
        if all_present && no_other && sandboxes.len() == 1 {
            Poll::Ready(())
        } else {
            Poll::Pending(format!(
                "sandboxes {sandboxes:?}, containers {containers:?}, reported {present:?}, {last:?}"
            ))
        }
    };
    let what = format!("one sandbox and the reported containers of {}", pod.name);
    until(what, poll).await.map_err(|e| report(&e))
}

/// The containers and sandboxes of a pod.
async fn in_runtime(node: &Node, uid: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let cri = node.containerd.cri();
    let containers = cri.containers().await.map_err(|e| report(&e))?;
    let sandboxes = cri.sandboxes().await.map_err(|e| report(&e))?;
    let label = "io.kubernetes.pod.uid";
    let containers: Vec<String> = containers
        .iter()
        .filter(|one| one.labels.get(label).is_some_and(|of| of == uid))
        .map(|one| format!("containerd://{}", one.id))
        .collect();
    let sandboxes = sandboxes
        .iter()
        .filter(|one| one.labels.get(label).is_some_and(|of| of == uid))
        .map(|one| one.id.clone())
        .collect();
    Ok((containers, sandboxes))
}

/// Deletes the pod and waits until nothing is left of it.
async fn stopped(node: &Node, pod: &TestPod, uid: &str) -> Result<(), String> {
    pod.take(node);
    node.wait_gone(&pod.name).await.map_err(|e| report(&e))?;
    orphans::wait_for_none(node, uid, &pod.name).await?;
    pod.verify_stopped(node)
}
