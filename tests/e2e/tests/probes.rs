//! Probes of every kind on one node: restarts, start order, readiness, and kills of the prober in
//! between.

#[path = "probes/probed_pods.rs"]
mod probed_pods;

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_e2e::servers::Servers;
use polylet_e2e::steps::Steps;
use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, exec as run_in, node, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{ContainerView, Node, PodView, machine};
use probed_pods::pods;
use rustix::process::Signal;
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn probes_drive_readiness_and_restarts() {
    let mut steps = Steps::new();
    let mut node = node().await;
    let servers = Servers::start().await;
    let watch = Watch::start(&node);
    let pods = pods(&servers);
    for (name, text) in &pods {
        ok(node.put(&format!("{name}.json"), text));
    }

    steps
        .run("startup probe runs first", startup_probe_runs_first(&node))
        .await;
    steps
        .run("sidecar restarts alone", sidecar_restarts_alone(&node))
        .await;
    steps
        .run(
            "liveness restart uses probe grace period",
            liveness_restart_uses_probe_grace_period(&node),
        )
        .await;
    steps
        .run("exec probes time out", exec_probes_time_out(&node))
        .await;
    steps
        .run(
            "redirects to other hosts succeed",
            redirects_to_other_hosts_succeed(&node, &servers),
        )
        .await;
    steps
        .run(
            "grpc probe names the service",
            grpc_probe_names_the_service(&node, &servers),
        )
        .await;
    steps
        .run(
            "prober kills change no result",
            prober_kills_change_no_result(&mut node),
        )
        .await;
    steps
        .run(
            "terminating pod is unready and not killed",
            terminating_pod_is_unready_and_not_killed(&node, &watch),
        )
        .await;
    steps
        .run(
            "restart counts never decrease",
            restart_counts_never_decrease(&node, &watch, pods.keys()),
        )
        .await;

    let http = ok(node.wait_ready("http").await);
    run_in(&node, &http, "main", "touch /tmp/leave").await;
    for name in pods.keys().filter(|name| **name != "leaving") {
        ok(node.take(&format!("{name}.json")));
    }
    for name in pods.keys() {
        ok(node.wait_gone(name).await);
    }
    drop(watch);
    steps.finish();
    ok(node.remove());
}

/// Only the startup probe runs until it succeeds. A sidecar's startup probe delays later containers.
async fn startup_probe_runs_first(node: &Node) {
    let runs = |pod: &PodView| main(pod).is_some_and(|main| main.state == "running");
    let starting = ok(node.wait_pod("starting", "to run", runs).await);
    let blocked = |pod: &PodView| {
        let beside = pod
            .container("beside")
            .is_some_and(|one| one.state == "running");
        beside && main(pod).is_some_and(|main| main.reason == "PodInitializing")
    };
    let gate = ok(node
        .wait_pod("gate", "to wait for its sidecar", blocked)
        .await);

    let restarted = |pod: &PodView| restarts(pod) >= 1;
    // The liveness probe would have failed three times by now.
    ok(node
        .wait_pod(
            "stillborn",
            "to be restarted by its startup probe",
            restarted,
        )
        .await);
    let same = ok(node.wait_pod("starting", "to run", runs).await);
    assert_eq!(same.identity(), starting.identity());
    assert!(
        !same.is_ready() && started(&same, "main") == Some(false),
        "{}",
        same.line()
    );
    run_in(node, &same, "main", "touch /tmp/started").await;
    ok(node
        .wait_pod(
            "starting",
            "to be restarted by its liveness probe",
            restarted,
        )
        .await);

    let unchanged = ok(node
        .wait_pod("gate", "to wait for its sidecar", blocked)
        .await);
    assert_eq!(unchanged.identity(), gate.identity());
    run_in(node, &unchanged, "beside", "touch /tmp/started").await;
    let open = ok(node.wait_ready("gate").await);
    assert_eq!(started(&open, "beside"), Some(true));
}

async fn sidecar_restarts_alone(node: &Node) {
    let before = ok(node.wait_ready("gate").await);
    run_in(node, &before, "beside", "touch /tmp/sick").await;
    let sidecar_restarted = |pod: &PodView| {
        let beside = pod.container("beside");
        let runs = beside.is_some_and(|one| one.state == "running" && one.restarts == 1);
        runs && !pod.is_ready() && started(pod, "beside") == Some(false)
    };
    let what = "to have its sidecar restarted and wait for it";
    let waits = ok(node.wait_pod("gate", what, sidecar_restarted).await);
    assert_eq!(main(&waits), main(&before));
    run_in(node, &waits, "beside", "touch /tmp/started").await;
    let after = ok(node.wait_ready("gate").await);
    assert_eq!(main(&after), main(&before));
}

/// The pod's own grace period would be ten minutes.
async fn liveness_restart_uses_probe_grace_period(node: &Node) {
    let before = ok(node.wait_ready("http").await);
    run_in(node, &before, "main", "rm /www/alive").await;
    let killed = |pod: &PodView| restarts(pod) == 1 && pod.is_ready();
    let after = ok(node
        .wait_pod("http", "to be restarted by its liveness probe", killed)
        .await);
    let last = &after.status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 137, "{last}");
}

async fn exec_probes_time_out(node: &Node) {
    let restarted = |pod: &PodView| restarts(pod) >= 1;
    ok(node
        .wait_pod(
            "slow",
            "to be restarted after its command timed out",
            restarted,
        )
        .await);
    let never = ok(node
        .wait_pod("never", "to run", |pod| pod.phase() == "Running")
        .await);
    assert!(
        !never.is_ready() && restarts(&never) == 0,
        "{}",
        never.line()
    );
}

async fn redirects_to_other_hosts_succeed(node: &Node, servers: &Servers) {
    let restarted = |pod: &PodView| restarts(pod) >= 1;
    ok(node
        .wait_pod(
            "here",
            "to be restarted after the redirect failed",
            restarted,
        )
        .await);
    assert!(servers.request_count("/bad") > 0);
    wait_for_requests(servers, "/away", 3).await;
    let redirected = ok(node.wait_ready("away").await);
    assert_eq!(restarts(&redirected), 0, "{}", redirected.line());
    ok(node.wait_ready("https").await);
}

async fn grpc_probe_names_the_service(node: &Node, servers: &Servers) {
    ok(node.wait_ready("grpc-well").await);
    let restarted = |pod: &PodView| restarts(pod) >= 1;
    ok(node
        .wait_pod("grpc-dead", "to be restarted by its gRPC probe", restarted)
        .await);
    let unready = |pod: &PodView| pod.phase() == "Running" && !pod.is_ready();
    ok(node
        .wait_pod("grpc-wrong", "to run and be unready", unready)
        .await);
    let well = tonic_health::ServingStatus::Serving;
    servers.health.set_service_status("nobody", well).await;
    ok(node.wait_ready("grpc-wrong").await);
}

/// No result changes while the prober is stopped or restarting, and containers are not affected.
async fn prober_kills_change_no_result(node: &mut Node) {
    let ready = [
        "http",
        "gate",
        "https",
        "grpc-well",
        "grpc-wrong",
        "leaving",
    ];
    for name in ready {
        ok(node.wait_ready(name).await);
    }
    let watch = Watch::start(node);
    let is_watched = |name: &str| !watch.take(&format!("{name}-{}", node.name())).is_empty();
    for name in ready {
        until(format!("{name} to be watched"), || async {
            if is_watched(name) {
                Poll::Ready(())
            } else {
                Poll::Pending("nothing".to_owned())
            }
        })
        .await
        .unwrap();
    }
    prober_is_stopped(node).await;
    ok(node.kill("prober").await);
    ok(node.wait_in_step().await);
    let unready = ok(node
        .wait_pod("never", "to run", |pod| pod.phase() == "Running")
        .await);
    assert!(!unready.is_ready(), "{}", unready.line());
    // It probes again: a change is detected.
    let before = ok(node.wait_ready("gate").await);
    let http = ok(node.wait_ready("http").await);
    run_in(node, &http, "main", "rm /www/alive").await;
    let restarted = |pod: &PodView| restarts(pod) == 2;
    ok(node
        .wait_pod("http", "to be restarted once more", restarted)
        .await);
    let after = ok(node.wait_ready("gate").await);
    assert_eq!(after.identity(), before.identity());
    for name in ready.iter().filter(|name| **name != "http") {
        for seen in watch.take(&format!("{name}-{}", node.name())) {
            assert!(seen.is_ready(), "flipped: {}", seen.line());
        }
    }
}

/// Stopped for longer than any probe timeout: responses are read late.
async fn prober_is_stopped(node: &Node) {
    let services = ok(node.services().await);
    let prober = services.iter().find(|service| service.name == "prober");
    let pid = prober.unwrap().pid;
    machine::signal(pid, Signal::STOP);
    tokio::time::sleep(Duration::from_secs(2)).await;
    machine::signal(pid, Signal::CONT);
    ok(node.wait_ready("leaving").await);
}

/// During termination readiness probes continue and liveness probes do not.
async fn terminating_pod_is_unready_and_not_killed(node: &Node, watch: &Watch) {
    let full = format!("leaving-{}", node.name());
    let before = ok(node.wait_ready("leaving").await);
    watch.take(&full);
    ok(node.take("leaving.json"));
    let unready = |pod: &PodView| {
        main(pod).is_some_and(|main| main.state == "running" && !main.ready) && !pod.is_ready()
    };
    ok(node
        .wait_pod("leaving", "to be unready while it still runs", unready)
        .await);
    ok(node.wait_gone("leaving").await);
    let seen = watch.take(&full);
    assert!(seen.iter().all(|pod| pod.identity() == before.identity()));
    let ended = seen.iter().rev().find_map(|pod| main(pod)?.exit_code);
    assert_eq!(ended, Some(0), "it must exit by itself");
}

/// Checks that restart counts never decrease.
async fn restart_counts_never_decrease<'a>(
    node: &Node,
    watch: &Watch,
    names: impl Iterator<Item = &'a &'a str>,
) {
    for name in names {
        let mut last = 0;
        for pod in watch.take(&format!("{name}-{}", node.name())) {
            assert!(restarts(&pod) >= last, "{}", pod.line());
            last = restarts(&pod);
        }
    }
}

async fn wait_for_requests(servers: &Servers, path: &str, times: u32) {
    until(format!("{times} requests for {path}"), || async {
        match servers.request_count(path) {
            request_count if request_count >= times => Poll::Ready(()),
            request_count => Poll::Pending(format!("{request_count} requests")),
        }
    })
    .await
    .unwrap();
}

fn main(pod: &PodView) -> Option<ContainerView> {
    pod.container("main")
}

fn restarts(pod: &PodView) -> u64 {
    main(pod).map_or(0, |main| main.restarts)
}

fn started(pod: &PodView, container: &str) -> Option<bool> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut all = lists
        .iter()
        .filter_map(|list| pod.status[list].as_array())
        .flatten();
    all.find(|status| status["name"] == container)?["started"].as_bool()
}
