//! Probes of every kind on one node: what restarts a container and what does not, what holds others
//! back, what readiness does to the status, and that the prober may die in the middle of it.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_e2e::servers::Servers;
use polylet_e2e::watch::Watch;
use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{Look, until};
use polylet_harness::{ContainerView, Node, PodView, machine};
use rustix::process::Signal;
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn probes_of_every_kind() {
    let mut node = node().await;
    let servers = Servers::start().await;
    let watch = Watch::start(&node);
    let pods = pods(&servers);
    for (name, text) in &pods {
        ok(node.put(&format!("{name}.json"), text));
    }

    startup_comes_first(&node).await;
    a_sidecar_restarts_alone(&node).await;
    liveness_restarts_with_its_own_grace(&node).await;
    commands_have_their_time(&node).await;
    redirects_lead_to_the_same_host(&node, &servers).await;
    health_is_asked_of_the_right_service(&node, &servers).await;
    the_prober_may_die(&mut node).await;
    a_pod_that_ends_is_unready_and_not_disturbed(&node, &watch).await;
    nothing_was_told_twice(&node, &watch, pods.keys()).await;

    let http = ok(node.wait_ready("http").await);
    in_pod(&node, &http, "main", "touch /tmp/leave");
    for name in pods.keys().filter(|name| **name != "leaving") {
        ok(node.take(&format!("{name}.json")));
    }
    for name in pods.keys() {
        ok(node.wait_gone(name).await);
    }
    drop(watch);
    ok(node.remove());
}

fn pods(servers: &Servers) -> BTreeMap<&'static str, String> {
    // Only a probe's own grace ends this one in time.
    let deaf = "trap '' TERM; touch /www/alive; httpd -p 8080 -h /www; \
                until test -e /tmp/leave; do sleep 1; done";
    let alive = json!({ "httpGet": { "path": "/alive", "port": "web" } });
    let mut alive = each_second(alive, 1);
    alive["terminationGracePeriodSeconds"] = json!(1);
    let http = json!({
        "terminationGracePeriodSeconds": 600,
        "container": {
            "ports": [{ "name": "web", "containerPort": 8080 }],
            "startupProbe": each_second(json!({ "tcpSocket": { "port": "web" } }), 30),
            "livenessProbe": alive,
            "readinessProbe": each_second(json!({ "tcpSocket": { "port": 8080 } }), 1),
        },
    });
    let starting = json!({ "container": {
        "startupProbe": each_second(exec("test -e /tmp/started"), 600),
        "livenessProbe": each_second(exec("false"), 1),
    }});
    let stillborn = json!({ "container": {
        "startupProbe": each_second(exec("false"), 1),
        "livenessProbe": each_second(exec("true"), 1),
    }});
    let gate = json!({ "initContainers": [{
        "name": "beside", "image": "polylet-test:1", "restartPolicy": "Always",
        "command": ["sh", "-c", RUNS],
        "startupProbe": each_second(exec("test -e /tmp/started"), 600),
        "livenessProbe": each_second(exec("test ! -e /tmp/sick"), 1),
    }]});
    let slow = json!({ "container": { "livenessProbe": each_second(exec("sleep 30"), 1) }});
    let never = json!({ "container": { "readinessProbe": each_second(exec("sleep 30"), 1) }});
    let ready = json!({ "container": {
        "readinessProbe": each_second(exec("test -e /tmp/ready"), 1),
        "livenessProbe": each_second(exec("test -e /tmp/ready"), 1),
    }});
    // Unready from the signal on, and not in a hurry.
    let leaving = "touch /tmp/ready; trap 'rm /tmp/ready; sleep 3; exit 0' TERM; \
                   while :; do sleep 1 & wait $!; done";
    let asks = |kind: &str, probe: Value| {
        let network = json!({ "hostNetwork": true });
        let probe = json!({ "container": { kind: each_second(probe, 1) } });
        let both = [network, probe];
        let fields = both
            .iter()
            .flat_map(|fields| fields.as_object().unwrap().clone());
        Value::Object(fields.collect())
    };
    let get = |port, scheme: &str, path: &str| {
        let get = json!({ "host": "127.0.0.1", "port": port, "scheme": scheme, "path": path });
        json!({ "httpGet": get })
    };
    let check = |service| json!({ "grpc": { "port": servers.grpc, "service": service } });
    let here = asks("livenessProbe", get(servers.http, "HTTP", "/to/bad"));
    let away = asks("livenessProbe", get(servers.http, "HTTP", "/away"));
    let https = asks("readinessProbe", get(servers.https, "HTTPS", "/well"));
    let well = asks("readinessProbe", check("up"));
    let wrong = asks("readinessProbe", check("nobody"));
    let dead = asks("livenessProbe", check("down"));
    let run = |name, more: &Value| (name, pod(name, RUNS, more));
    let mut leaving = pod("leaving", leaving, &ready);
    leaving = leaving.replace(
        "\"terminationGracePeriodSeconds\":2",
        "\"terminationGracePeriodSeconds\":60",
    );
    BTreeMap::from([
        ("http", pod("http", deaf, &http)),
        ("leaving", leaving),
        run("starting", &starting),
        run("stillborn", &stillborn),
        run("gate", &gate),
        run("slow", &slow),
        run("never", &never),
        run("here", &here),
        run("away", &away),
        run("https", &https),
        run("grpc-well", &well),
        run("grpc-wrong", &wrong),
        run("grpc-dead", &dead),
    ])
}

fn exec(line: &str) -> Value {
    json!({ "exec": { "command": ["sh", "-c", line] } })
}

fn each_second(mut probe: Value, failures: u32) -> Value {
    probe["periodSeconds"] = json!(1);
    probe["failureThreshold"] = json!(failures);
    probe
}

/// Nothing but the startup probe until it succeeds; and then the rest. Of a sidecar it holds back
/// the containers after it.
async fn startup_comes_first(node: &Node) {
    let runs = |pod: &PodView| main(pod).is_some_and(|main| main.state == "running");
    let starting = ok(node.wait_pod("starting", "to run", runs).await);
    let held = |pod: &PodView| {
        let beside = pod
            .container("beside")
            .is_some_and(|it| it.state == "running");
        beside && main(pod).is_some_and(|main| main.reason == "PodInitializing")
    };
    let gate = ok(node.wait_pod("gate", "to wait for its sidecar", held).await);

    let again = |pod: &PodView| restarts(pod) >= 1;
    // By now liveness would have failed three times over.
    ok(node
        .wait_pod("stillborn", "to be restarted by its startup probe", again)
        .await);
    let same = ok(node.wait_pod("starting", "to run", runs).await);
    assert_eq!(same.identity(), starting.identity());
    assert!(
        !same.is_ready() && started(&same, "main") == Some(false),
        "{}",
        same.line()
    );
    in_pod(node, &same, "main", "touch /tmp/started");
    ok(node
        .wait_pod("starting", "to be restarted by its liveness probe", again)
        .await);

    let still = ok(node.wait_pod("gate", "to wait for its sidecar", held).await);
    assert_eq!(still.identity(), gate.identity());
    in_pod(node, &still, "beside", "touch /tmp/started");
    let open = ok(node.wait_ready("gate").await);
    assert_eq!(started(&open, "beside"), Some(true));
}

async fn a_sidecar_restarts_alone(node: &Node) {
    let before = ok(node.wait_ready("gate").await);
    in_pod(node, &before, "beside", "touch /tmp/sick");
    let anew = |pod: &PodView| {
        let beside = pod.container("beside");
        let runs = beside.is_some_and(|it| it.state == "running" && it.restarts == 1);
        runs && !pod.is_ready() && started(pod, "beside") == Some(false)
    };
    let what = "to have its sidecar restarted, and wait for it";
    let waits = ok(node.wait_pod("gate", what, anew).await);
    assert_eq!(main(&waits), main(&before));
    in_pod(node, &waits, "beside", "touch /tmp/started");
    let after = ok(node.wait_ready("gate").await);
    assert_eq!(main(&after), main(&before));
}

/// The pod's own grace would be ten minutes.
async fn liveness_restarts_with_its_own_grace(node: &Node) {
    let before = ok(node.wait_ready("http").await);
    in_pod(node, &before, "main", "rm /www/alive");
    let killed = |pod: &PodView| restarts(pod) == 1 && pod.is_ready();
    let after = ok(node
        .wait_pod("http", "to be restarted by its liveness probe", killed)
        .await);
    let last = &after.status["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 137, "{last}");
}

async fn commands_have_their_time(node: &Node) {
    let again = |pod: &PodView| restarts(pod) >= 1;
    ok(node
        .wait_pod("slow", "to be restarted for its slow command", again)
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

async fn redirects_lead_to_the_same_host(node: &Node, servers: &Servers) {
    let again = |pod: &PodView| restarts(pod) >= 1;
    ok(node
        .wait_pod("here", "to be restarted for where it redirects to", again)
        .await);
    assert!(servers.asked("/bad") > 0);
    asked(servers, "/away", 3).await;
    let away = ok(node.wait_ready("away").await);
    assert_eq!(restarts(&away), 0, "{}", away.line());
    ok(node.wait_ready("https").await);
}

async fn health_is_asked_of_the_right_service(node: &Node, servers: &Servers) {
    ok(node.wait_ready("grpc-well").await);
    let again = |pod: &PodView| restarts(pod) >= 1;
    ok(node
        .wait_pod("grpc-dead", "to be restarted for its answer", again)
        .await);
    let unready = |pod: &PodView| pod.phase() == "Running" && !pod.is_ready();
    ok(node
        .wait_pod("grpc-wrong", "to run and be unready", unready)
        .await);
    let well = tonic_health::ServingStatus::Serving;
    servers.health.set_service_status("nobody", well).await;
    ok(node.wait_ready("grpc-wrong").await);
}

/// No verdict changes while it is held up or away, and it goes on with the same containers.
async fn the_prober_may_die(node: &mut Node) {
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
    let begun = |name: &str| !watch.take(&format!("{name}-{}", node.name())).is_empty();
    for name in ready {
        until(format!("{name} to be watched"), || async {
            if begun(name) {
                Look::Done(())
            } else {
                Look::NotYet("nothing".to_owned())
            }
        })
        .await
        .unwrap();
    }
    held_up(node).await;
    ok(node.kill("prober").await);
    ok(node.wait_in_step().await);
    let unready = ok(node
        .wait_pod("never", "to run", |pod| pod.phase() == "Running")
        .await);
    assert!(!unready.is_ready(), "{}", unready.line());
    // It probes again: a change is seen.
    let before = ok(node.wait_ready("gate").await);
    let http = ok(node.wait_ready("http").await);
    in_pod(node, &http, "main", "rm /www/alive");
    let again = |pod: &PodView| restarts(pod) == 2;
    ok(node
        .wait_pod("http", "to be restarted once more", again)
        .await);
    let after = ok(node.wait_ready("gate").await);
    assert_eq!(after.identity(), before.identity());
    for name in ready.iter().filter(|name| **name != "http") {
        for seen in watch.take(&format!("{name}-{}", node.name())) {
            assert!(seen.is_ready(), "flipped: {}", seen.line());
        }
    }
}

/// Longer than any of the probes may take: answers have come, and it sees all of them late.
async fn held_up(node: &Node) {
    let services = ok(node.services().await);
    let prober = services.iter().find(|service| service.name == "prober");
    let pid = prober.unwrap().pid;
    machine::signal(pid, Signal::STOP);
    tokio::time::sleep(Duration::from_secs(2)).await;
    machine::signal(pid, Signal::CONT);
    ok(node.wait_ready("leaving").await);
}

/// Readiness is still asked for while it ends; liveness is not, and kills nothing.
async fn a_pod_that_ends_is_unready_and_not_disturbed(node: &Node, watch: &Watch) {
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
    assert_eq!(ended, Some(0), "it was left to end by itself");
}

/// Restart counts only grow.
async fn nothing_was_told_twice<'a>(
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

async fn asked(servers: &Servers, path: &str, times: u32) {
    until(format!("{path} to be asked for {times} times"), || async {
        match servers.asked(path) {
            asked if asked >= times => Look::Done(()),
            asked => Look::NotYet(format!("{asked} times")),
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

/// Runs a shell line in one of the pod's containers.
fn in_pod(node: &Node, pod: &PodView, container: &str, line: &str) {
    let id = pod.container(container).unwrap().id;
    let id = id.trim_start_matches("containerd://");
    ok(node.containerd.exec(id, &["sh", "-c", line]));
}
