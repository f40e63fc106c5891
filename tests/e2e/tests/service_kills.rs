//! Pods are not affected by the agent: each process is killed in turn, the whole node agent and the
//! runtime are restarted, and all of it at once while pods start and stop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use polylet_e2e::steps::Steps;
use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, example, node, ok, pod};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, PodView};
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn killed_services_do_not_disturb_pods() {
    let mut steps = Steps::new();
    let mut node = node().await;
    example(&node).await;
    ok(node.wait_in_step().await);
    let before = Snapshot::take(&node).await;
    let watch = Watch::start(&node);
    steps.run("wait for watch", wait_for_watch(&watch)).await;

    for service in SERVICES {
        let restarts = restarts(&node, service).await;
        ok(node.kill(service).await);
        wait_recovered(&node, service, restarts).await;
        ok(node.wait_in_step().await);
        before
            .verify(&node, &watch, &format!("{service} was killed"))
            .await;
    }

    ok(node.kill("supervisor").await);
    ok(node.up().await);
    ok(node.wait_in_step().await);
    before
        .verify(&node, &watch, "the supervisor was killed")
        .await;

    let status = node.down();
    assert!(
        status.is_some_and(|status| status.success()),
        "polylet run ended with {status:?}"
    );
    ok(node.up().await);
    ok(node.wait_in_step().await);
    before
        .verify(&node, &watch, "the stack was stopped and started")
        .await;

    ok(node.containerd.restart().await);
    steps.run("wait settled", wait_settled(&node)).await;
    before
        .verify(&node, &watch, "containerd was restarted")
        .await;
    drop(watch);
    steps.finish();
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn pods_start_and_stop_while_services_are_killed() {
    let mut steps = Steps::new();
    let mut node = node().await;
    example(&node).await;
    ok(node.wait_in_step().await);
    let before = Snapshot::take(&node).await;
    let watch = Watch::start(&node);
    steps.run("wait for watch", wait_for_watch(&watch)).await;

    let seconds = std::env::var("POLYLET_TEST_CHURN")
        .ok()
        .and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(45));
    let mut dice = Dice::new();
    println!("seed {}", dice.0);
    let mut desired: BTreeMap<String, bool> = BTreeMap::new();
    let mut runtime_restarted = false;
    let started = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    while started.elapsed() < length {
        pace.tick().await;
        let name = format!("churn-{}", dice.below(6));
        let is_there = desired.get(&name).copied().unwrap_or_default();
        if is_there {
            ok(node.take(&format!("{name}.json")));
        } else {
            ok(node.put(&format!("{name}.json"), &pod(&name, RUNS, &json!({}))));
        }
        desired.insert(name, !is_there);
        // A service that is restarting has no process to kill.
        let _ = node.kill(SERVICES[dice.below(SERVICES.len())]).await;
        if !runtime_restarted && started.elapsed() > length / 2 {
            ok(node.containerd.restart().await);
            runtime_restarted = true;
        }
    }

    ok(node.wait_in_step().await);
    for (name, is_there) in &desired {
        if *is_there {
            ok(node.wait_ready(name).await);
        } else {
            ok(node.wait_gone(name).await);
        }
    }
    steps
        .run("no container runs twice", no_container_runs_twice(&node))
        .await;
    for (name, _) in desired.iter().filter(|(_, is_there)| **is_there) {
        ok(node.take(&format!("{name}.json")));
    }
    for name in desired.keys() {
        ok(node.wait_gone(name).await);
    }
    steps.run("wait settled", wait_settled(&node)).await;
    before
        .verify(
            &node,
            &watch,
            "services were killed while pods were created and deleted",
        )
        .await;
    drop(watch);
    steps.finish();
    ok(node.remove());
}

/// State that must not change.
struct Snapshot {
    uid: String,
    containers: Vec<(String, String, u64)>,
    /// Id, state and creation time of all containers and sandboxes.
    runtime: Vec<(String, i32, i64)>,
    mounts: Vec<PathBuf>,
}

impl Snapshot {
    async fn take(node: &Node) -> Self {
        let pod = ok(node.wait_ready("web").await);
        let (runtime, mounts) = (runtime_state(node).await, node.mounts());
        Self {
            uid: pod.uid.clone(),
            containers: pod.identity(),
            runtime,
            mounts,
        }
    }

    async fn verify(&self, node: &Node, watch: &Watch, after: &str) {
        let pod = ok(node.wait_ready("web").await);
        assert_eq!(pod.uid, self.uid, "after {after}");
        assert_eq!(pod.identity(), self.containers, "after {after}");
        assert_eq!(runtime_state(node).await, self.runtime, "after {after}");
        assert_eq!(node.mounts(), self.mounts, "after {after}");
        let flips: Vec<String> = watch
            .take("web-node")
            .iter()
            .filter(|pod| !pod.is_ready() || pod.identity() != self.containers)
            .map(PodView::line)
            .collect();
        assert_eq!(flips, Vec::<String>::new(), "after {after}");
    }
}

async fn runtime_state(node: &Node) -> Vec<(String, i32, i64)> {
    let cri = node.containerd.cri();
    let sandboxes = ok(cri.sandboxes().await);
    let containers = ok(cri.containers().await);
    let mut all: Vec<_> = sandboxes
        .into_iter()
        .map(|sandbox| (sandbox.id, sandbox.state, sandbox.created_at))
        .chain(
            containers
                .into_iter()
                .map(|one| (one.id, one.state, one.created_at)),
        )
        .collect();
    all.sort();
    all
}

/// Checks that no container runs twice in a pod.
async fn no_container_runs_twice(node: &Node) {
    let containers = ok(node.containerd.cri().containers().await);
    let mut ids = BTreeMap::new();
    for container in containers.iter().filter(|container| container.state == 1) {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let key = (
            label("io.kubernetes.pod.uid"),
            label("io.kubernetes.container.name"),
        );
        if let Some(other) = ids.insert(key.clone(), container.id.clone()) {
            panic!("{key:?} runs twice: {other} and {}", container.id);
        }
    }
}

async fn restarts(node: &Node, service: &str) -> u32 {
    let services = ok(node.services().await);
    services
        .iter()
        .find(|found| found.name == service)
        .map_or(0, |found| found.restarts)
}

async fn wait_recovered(node: &Node, service: &str, before: u32) {
    let poll = || async {
        match node.services().await {
            Ok(services) => match services.into_iter().find(|found| found.name == service) {
                Some(found) if found.restarts > before && found.has_synced() => Poll::Ready(()),
                Some(found) => Poll::Pending(format!("{found:?}")),
                None => Poll::Pending("not listed".to_owned()),
            },
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    };
    ok(until(format!("{service} to be back"), poll).await);
}

/// Waits until the example's status has no stale facts.
async fn wait_settled(node: &Node) {
    let fresh = |pod: &PodView| pod.is_ready() && pod.stale.is_empty();
    ok(node
        .wait_pod("web", "to be Ready with nothing stale", fresh)
        .await);
}

async fn wait_for_watch(watch: &Watch) {
    let poll = || async {
        if watch.take("web-node").is_empty() {
            Poll::Pending("nothing".to_owned())
        } else {
            Poll::Ready(())
        }
    };
    ok(until("the first status on the stream", poll).await);
}

/// A random generator that can be repeated with POLYLET_TEST_SEED.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let given = std::env::var("POLYLET_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(given.unwrap_or(now.map_or(1, |since| since.as_nanos() as u64 | 1)))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }
}
