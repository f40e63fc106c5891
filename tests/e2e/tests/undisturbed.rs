//! Nothing that happens to the agent happens to the pods: each process killed in turn, the whole
//! stack stopped and started, the runtime restarted, and all of it at once with pods coming and
//! going.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, example, node, ok, pod};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, PodView};
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn every_process_may_die() {
    let mut node = node().await;
    example(&node).await;
    ok(node.wait_in_step().await);
    let before = Snapshot::take(&node).await;
    let watch = Watch::start(&node);
    watch_has_begun(&watch).await;

    for service in SERVICES {
        let restarts = restarts(&node, service).await;
        ok(node.kill(service).await);
        back_again(&node, service, restarts).await;
        ok(node.wait_in_step().await);
        before
            .holds(&node, &watch, &format!("{service} was killed"))
            .await;
    }

    ok(node.kill("supervisor").await);
    ok(node.up().await);
    ok(node.wait_in_step().await);
    before
        .holds(&node, &watch, "the supervisor was killed")
        .await;

    let status = node.down();
    assert!(
        status.is_some_and(|status| status.success()),
        "polylet run ended with {status:?}"
    );
    ok(node.up().await);
    ok(node.wait_in_step().await);
    before
        .holds(&node, &watch, "the stack was stopped and started")
        .await;

    ok(node.containerd.restart().await);
    settled(&node).await;
    before
        .holds(&node, &watch, "containerd was restarted")
        .await;
    drop(watch);
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn pods_come_and_go_while_services_die() {
    let mut node = node().await;
    example(&node).await;
    ok(node.wait_in_step().await);
    let before = Snapshot::take(&node).await;
    let watch = Watch::start(&node);
    watch_has_begun(&watch).await;

    let seconds = std::env::var("POLYLET_TEST_CHURN")
        .ok()
        .and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(120));
    let mut dice = Dice::new();
    println!("seed {}", dice.0);
    let mut wanted: BTreeMap<String, bool> = BTreeMap::new();
    let mut runtime_restarted = false;
    let begun = Instant::now();
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    while begun.elapsed() < length {
        pace.tick().await;
        let name = format!("churn-{}", dice.below(6));
        let is_there = wanted.get(&name).copied().unwrap_or_default();
        if is_there {
            ok(node.take(&format!("{name}.json")));
        } else {
            ok(node.put(&format!("{name}.json"), &pod(&name, RUNS, &json!({}))));
        }
        wanted.insert(name, !is_there);
        // A service that is being restarted already has no process to kill.
        let _ = node.kill(SERVICES[dice.below(SERVICES.len())]).await;
        if !runtime_restarted && begun.elapsed() > length / 2 {
            ok(node.containerd.restart().await);
            runtime_restarted = true;
        }
    }

    ok(node.wait_in_step().await);
    for (name, is_there) in &wanted {
        if *is_there {
            ok(node.wait_ready(name).await);
        } else {
            ok(node.wait_gone(name).await);
        }
    }
    nothing_twice(&node).await;
    for (name, _) in wanted.iter().filter(|(_, is_there)| **is_there) {
        ok(node.take(&format!("{name}.json")));
    }
    for name in wanted.keys() {
        ok(node.wait_gone(name).await);
    }
    settled(&node).await;
    before
        .holds(&node, &watch, "services died among coming and going pods")
        .await;
    drop(watch);
    ok(node.remove());
}

/// What must be the same after a disturbance as before it.
struct Snapshot {
    uid: String,
    containers: Vec<(String, String, u64)>,
    /// Id, state and creation time of all that the runtime holds.
    runtime: Vec<(String, i32, i64)>,
    mounts: Vec<PathBuf>,
}

impl Snapshot {
    async fn take(node: &Node) -> Self {
        let pod = ok(node.wait_ready("web").await);
        let (runtime, mounts) = (held(node).await, node.mounts());
        Self {
            uid: pod.uid.clone(),
            containers: pod.identity(),
            runtime,
            mounts,
        }
    }

    async fn holds(&self, node: &Node, watch: &Watch, after: &str) {
        let pod = ok(node.wait_ready("web").await);
        assert_eq!(pod.uid, self.uid, "after {after}");
        assert_eq!(pod.identity(), self.containers, "after {after}");
        assert_eq!(held(node).await, self.runtime, "after {after}");
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

async fn held(node: &Node) -> Vec<(String, i32, i64)> {
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

/// No two running containers of one name in one pod.
async fn nothing_twice(node: &Node) {
    let containers = ok(node.containerd.cri().containers().await);
    let mut seen = BTreeMap::new();
    for container in containers.iter().filter(|container| container.state == 1) {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let key = (
            label("io.kubernetes.pod.uid"),
            label("io.kubernetes.container.name"),
        );
        if let Some(other) = seen.insert(key.clone(), container.id.clone()) {
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

async fn back_again(node: &Node, service: &str, before: u32) {
    let look = || async {
        match node.services().await {
            Ok(services) => match services.into_iter().find(|found| found.name == service) {
                Some(found) if found.restarts > before && found.in_step() => Look::Done(()),
                Some(found) => Look::NotYet(format!("{found:?}")),
                None => Look::NotYet("not listed".to_owned()),
            },
            Err(error) => Look::NotYet(polylet_harness::error::report(&error)),
        }
    };
    ok(until(format!("{service} to be back"), look).await);
}

/// The example is reported with nothing stale.
async fn settled(node: &Node) {
    let fresh = |pod: &PodView| pod.is_ready() && pod.stale.is_empty();
    ok(node
        .wait_pod("web", "to be Ready with nothing stale", fresh)
        .await);
}

async fn watch_has_begun(watch: &Watch) {
    let look = || async {
        if watch.take("web-node").is_empty() {
            Look::NotYet("nothing".to_owned())
        } else {
            Look::Done(())
        }
    };
    ok(until("the first status on the stream", look).await);
}

/// Chance that can be repeated: POLYLET_TEST_SEED.
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
