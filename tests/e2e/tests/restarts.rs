//! Container restarts on a real runtime: back-off, deadlines, termination messages, lost sandboxes,
//! lost records, RestartAllContainers, and changed manifests.

use std::fs;
use std::path::PathBuf;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, PodView, image};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn container_restarts_and_back_off() {
    let mut steps = Steps::new();
    let mut node = node().await;
    let out = node.scratch().join("out");
    fs::create_dir_all(&out).unwrap();
    let pods = pods(&json!({ "path": out }));
    for (name, text) in &pods {
        ok(node.put(&format!("{name}.json"), text));
    }
    steps
        .run("termination messages", termination_messages(&node))
        .await;
    steps
        .run(
            "all containers restart together",
            all_containers_restart_together(&node, &out),
        )
        .await;
    steps
        .run(
            "lost sandbox is recreated",
            lost_sandbox_is_recreated(&node),
        )
        .await;
    steps
        .run(
            "changed pod waits for the old one",
            changed_pod_waits_for_the_old_one(&node, &out),
        )
        .await;
    let besides = |pod: &PodView| pod.is_ready() && restart_count(pod, "beside") == 1;
    ok(node
        .wait_pod("sidecar", "its sidecar to be back", besides)
        .await);
    steps.run("active deadline", active_deadline(&node)).await;
    steps
        .run("back off is not reset", back_off_is_not_reset(&mut node))
        .await;
    steps
        .run(
            "missing network is waited for",
            missing_network_is_waited_for(&node),
        )
        .await;
    steps
        .run(
            "missing sandbox image is waited for",
            missing_sandbox_image_is_waited_for(&node),
        )
        .await;

    // The runtime's records are deleted; the logs remain.
    node.down();
    ok(node.containerd.cri().remove_all().await);
    ok(node.up().await);
    let back = |pod: &PodView| pod.is_ready() && restart_count(pod, "a") == 2;
    ok(node
        .wait_pod("all", "to continue the restart count from its logs", back)
        .await);
    for (name, _) in &pods {
        ok(node.take(&format!("{name}.json")));
    }
    for (name, _) in &pods {
        ok(node.wait_gone(name).await);
    }
    steps.finish();
    ok(node.remove());
}

fn restart_count(pod: &PodView, container: &str) -> u64 {
    pod.container(container).map_or(0, |c| c.restarts)
}

fn pods(out: &Value) -> Vec<(&'static str, String)> {
    let container = |name: &str, script: &str| {
        json!({
            "name": name, "image": "polylet-test:1", "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "out", "mountPath": "/out" }],
        })
    };
    let volumes = json!([{ "name": "out", "hostPath": out }]);
    let mut exits_42 = container(
        "a",
        &format!("test -e /out/asked || {{ touch /out/asked; exit 42; }}; {RUNS}"),
    );
    exits_42["restartPolicy"] = json!("Never");
    exits_42["restartPolicyRules"] = json!([{
        "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] },
    }]);
    let all = json!({
        "restartPolicy": "Never", "volumes": volumes,
        "initContainers": [container("init", "echo init >> /out/inits")],
        "containers": [exits_42, container("b", "trap '' TERM; while :; do sleep 0.2; done")],
    });
    let mut beside = container(
        "beside",
        &format!("test -e /out/beside || {{ touch /out/beside; exit 0; }}; {RUNS}"),
    );
    beside["restartPolicy"] = json!("Always");
    let sidecar = json!({
        "restartPolicy": "Never", "volumes": volumes, "initContainers": [beside],
        "containers": [container("main", RUNS)],
    });
    let message_policy = |policy: &str| json!({ "restartPolicy": "Never", "container": { "terminationMessagePolicy": policy } });
    let never = json!({ "restartPolicy": "Never", "activeDeadlineSeconds": 2 });
    vec![
        ("all", pod("all", "", &all)),
        ("sidecar", pod("sidecar", "", &sidecar)),
        (
            "file",
            pod(
                "file",
                "echo log; printf 'last words' > /dev/termination-log; exit 3",
                &message_policy("File"),
            ),
        ),
        (
            "logs",
            pod(
                "logs",
                "echo one; echo two >&2; exit 3",
                &message_policy("FallbackToLogsOnError"),
            ),
        ),
        ("deadline", pod("deadline", RUNS, &never)),
        ("crash", pod("crash", "exit 1", &json!({}))),
        ("box", pod("box", RUNS, &json!({}))),
        ("changed", changed(out, "one")),
    ]
}

fn changed(out: &Value, label: &str) -> String {
    let script = format!(
        "echo {label} begins >> /out/changed; trap 'sleep 0.5; echo {label} ends >> /out/changed; exit 0' TERM; \
         while :; do sleep 3600 & wait $!; done"
    );
    let more = json!({
        "volumes": [{ "name": "out", "hostPath": out }], "terminationGracePeriodSeconds": 20,
        "container": { "volumeMounts": [{ "name": "out", "mountPath": "/out" }] },
    });
    pod("changed", &script, &more)
}

async fn termination_messages(node: &Node) {
    for (name, message_policy) in [("file", "last words"), ("logs", "one two")] {
        let ended = |pod: &PodView| pod.phase() == "Failed";
        let pod = ok(node.wait_pod(name, "to fail", ended).await);
        let main = pod.container("main").unwrap();
        assert_eq!((main.exit_code, main.reason.as_str()), (Some(3), "Error"));
        // The order between stdout and stderr is not defined.
        let mut lines: Vec<&str> = main.message.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.join(" "), message_policy, "{name}");
    }
}

async fn all_containers_restart_together(node: &Node, out: &std::path::Path) {
    let back = |pod: &PodView| {
        pod.is_ready()
            && ["init", "a", "b"]
                .iter()
                .all(|name| restart_count(pod, name) == 1)
    };
    let what = "to restart all containers";
    let pod = ok(node.wait_pod("all", what, back).await);
    let inits = ok(fs::read_to_string(out.join("inits")));
    assert_eq!(inits.lines().count(), 2);
    let condition = pod.condition("AllContainersRestarting").unwrap();
    assert_eq!(condition["status"], "False");
    let cri = node.containerd.cri();
    let sandboxes = ok(cri.sandboxes().await);
    let pod_sandboxes = sandboxes
        .iter()
        .filter(|s| s.metadata.as_ref().is_some_and(|m| m.uid == pod.uid));
    assert_eq!(pod_sandboxes.count(), 1, "in the same sandbox");
    let logs = node
        .dirs()
        .logs
        .join(format!("default_{}_{}", pod.name, pod.uid));
    for (container, attempt) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        assert!(logs.join(container).join(format!("{attempt}.log")).exists());
    }
}

/// A killed sandbox is recreated with its containers.
async fn lost_sandbox_is_recreated(node: &Node) {
    let before = ok(node.wait_ready("box").await);
    let sandboxes = ok(node.containerd.cri().sandboxes().await);
    let uid = |s: &&polylet_wire::runtime::v1::PodSandbox| {
        s.metadata.as_ref().is_some_and(|m| m.uid == before.uid)
    };
    ok(node
        .containerd
        .kill(&sandboxes.iter().find(uid).unwrap().id));
    let back = |pod: &PodView| pod.is_ready() && restart_count(pod, "main") == 1;
    let after = ok(node
        .wait_pod("box", "to be back in a new sandbox", back)
        .await);
    assert_eq!(after.uid, before.uid);
    let sandboxes = ok(node.containerd.cri().sandboxes().await);
    let attempts: Vec<u32> = sandboxes
        .iter()
        .filter(uid)
        .filter_map(|s| s.metadata.as_ref())
        .map(|m| m.attempt)
        .collect();
    assert!(attempts.contains(&1), "{attempts:?}");
}

/// A changed static pod is stopped before the new one of the same name starts.
async fn changed_pod_waits_for_the_old_one(node: &Node, out: &std::path::Path) {
    ok(node.wait_ready("changed").await);
    ok(node.put("changed.json", &changed(&json!({ "path": out }), "two")));
    let file: PathBuf = out.join("changed");
    let poll = || async {
        match fs::read_to_string(&file).unwrap_or_default() {
            text if text.lines().count() >= 3 => Poll::Ready(text),
            text => Poll::Pending(text),
        }
    };
    let text = ok(until("the changed pod to start", poll).await);
    assert_eq!(text, "one begins\none ends\ntwo begins\n");
    ok(node.wait_ready("changed").await);
}

async fn active_deadline(node: &Node) {
    let ended = |pod: &PodView| pod.phase() == "Failed";
    let pod = ok(node
        .wait_pod("deadline", "to exceed its deadline", ended)
        .await);
    assert_eq!(pod.reason(), "DeadlineExceeded");
    let expected = "Pod was active on the node longer than the specified deadline";
    assert_eq!(pod.message(), expected);
}

/// CrashLoopBackOff is not affected by other pods.
async fn back_off_is_not_reset(node: &mut Node) {
    let waits = |pod: &PodView| {
        let main = pod.container("main");
        main.is_some_and(|c| c.reason == "CrashLoopBackOff" && c.message.starts_with("back-off "))
    };
    let before = ok(node.wait_pod("crash", "to back off", waits).await);
    for service in ["sync-coordinator", "status-reporter", "pleg"] {
        ok(node.kill(service).await);
    }
    ok(node.wait_in_step().await);
    let after = ok(node.wait_pod("crash", "to back off as before", waits).await);
    let (before, after) = (
        before.container("main").unwrap(),
        after.container("main").unwrap(),
    );
    assert!(after.restarts <= before.restarts + 1);
    if after.restarts == before.restarts {
        assert_eq!((after.message, after.id), (before.message, before.id));
    }
}

/// A pod waits for a missing CNI configuration and starts once it is back.
async fn missing_network_is_waited_for(node: &Node) {
    let conf = node.scratch().join("cni/10-polylet.conflist");
    let aside = conf.with_extension("aside");
    ok(fs::rename(&conf, &aside));
    ok(node.put("late.json", &pod("late", RUNS, &json!({}))));
    let waits = |pod: &PodView| !pod.waiting_for.is_empty() && !pod.is_ready();
    ok(node
        .wait_pod("late", "to wait for its network", waits)
        .await);
    ok(fs::rename(&aside, &conf));
    ok(node.wait_ready("late").await);
    ok(node.take("late.json"));
    ok(node.wait_gone("late").await);
}

/// A pod reports a missing sandbox image and starts once it is back.
async fn missing_sandbox_image_is_waited_for(node: &Node) {
    let archives = ok(image::write_all(&node.scratch().join("out")));
    ok(node.containerd.remove_image(image::PAUSE));
    ok(node.put("empty.json", &pod("empty", RUNS, &json!({}))));
    let waits = |pod: &PodView| {
        pod.waiting_for
            .iter()
            .any(|what| what.starts_with("sandbox 0") && what.contains("polylet-pause"))
    };
    ok(node
        .wait_pod("empty", "to wait for its sandbox", waits)
        .await);
    for archive in archives {
        ok(node.containerd.import(&archive));
    }
    ok(node.wait_ready("empty").await);
    ok(node.take("empty.json"));
    ok(node.wait_gone("empty").await);
}
