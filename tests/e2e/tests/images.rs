//! Images from real registries with and without authentication: pull policies, references,
//! credentials from every source, back-off, and shared pulls.

#[path = "images/credential_plugin.rs"]
mod credential_plugin;
#[path = "images/presence.rs"]
mod presence;

use std::fs;

use credential_plugin::{plugin_calls, plugin_settings};
use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::registry::{PASSWORD, USER};
use polylet_harness::{Flavour, Node, NodeOptions, PodView, Registry};
use presence::{policies, removed_image_is_pulled_again};
use serde_json::{Value, json};

/// The base64 encoding of user and password.
const AUTH: &str = "cHVsbGVyOmxldC1tZS1wdWxs";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn pull_policies_and_registry_credentials() {
    let mut steps = Steps::new();
    let plugin = tempfile::tempdir().unwrap();
    let options = NodeOptions {
        polylet: plugin_settings(plugin.path()),
        ..NodeOptions::default()
    };
    let mut node = node_with(options).await;
    let open = ok(Registry::start(&node.containerd, "open.test", false).await);
    let locked = ok(Registry::start(&node.containerd, "locked.test", true).await);
    for name in ["plugin.test", "node.test"] {
        ok(locked.known_as(&node.containerd, name));
    }
    let digest = push(&node, &open, "team/app:1", "open");
    push(&node, &open, "team/app:latest", "latest");
    for path in [
        "team/json:1",
        "team/cfg:1",
        "team/turn:1",
        "team/none:1",
        "p/a:1",
        "p/b:1",
        "n/a:1",
    ] {
        push(&node, &locked, path, path);
    }
    secrets(&node);
    node_config(&node);

    let good = good_pods(&digest);
    for (name, image, more) in &good {
        put(&node, name, image, more);
    }
    steps
        .run("pull errors are reported", pull_errors_are_reported(&node))
        .await;
    for (name, ..) in &good {
        ok(node.wait_ready(name).await);
    }
    // Another image of the same registry, with the cached response.
    put(&node, "plugin-b", "plugin.test/p/b:1", &json!({}));
    ok(node.wait_ready("plugin-b").await);
    assert_eq!(plugin_calls(plugin.path()), 1);
    steps
        .run(
            "images of other credentials are denied",
            images_of_other_credentials_are_denied(&mut node, &locked),
        )
        .await;
    steps.run("policies", policies(&node, &open)).await;
    steps
        .run(
            "removed image is pulled again",
            removed_image_is_pulled_again(&node, &open),
        )
        .await;
    steps.run("volumes", volumes(&node, &open)).await;
    steps
        .run(
            "password is not disclosed",
            password_is_not_disclosed(&node),
        )
        .await;
    drop((open, locked));
    steps.finish();
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn concurrent_pulls_are_shared_and_cancelled() {
    let node = node_with(NodeOptions::default()).await;
    let open = ok(Registry::start(&node.containerd, "open.test", false).await);
    push(&node, &open, "team/many:1", "many");
    push(&node, &open, "team/late:1", "late");
    let names = ["many-a", "many-b", "many-c", "many-d"];
    let always = json!({ "imagePullPolicy": "Always" });

    open.pause();
    for name in names {
        put(
            &node,
            name,
            "open.test/team/many:1",
            &json!({ "container": always }),
        );
    }
    for name in names {
        pulls(&node, name).await;
    }
    open.go_on();
    for name in names {
        ok(node.wait_ready(name).await);
    }
    assert_eq!(open.pulls("team/many"), 1);

    // The registry never responds: removing a pod does not wait for it.
    open.pause();
    put(
        &node,
        "late",
        "open.test/team/late:1",
        &json!({ "container": always }),
    );
    pulls(&node, "late").await;
    ok(node.take("late.json"));
    ok(node.wait_gone("late").await);
    open.go_on();
    let sees_late = |image: &polylet_wire::runtime::v1::Image| {
        image.repo_tags.iter().any(|tag| tag.contains("team/late"))
    };
    assert!(
        !ok(node.containerd.cri().images().await)
            .iter()
            .any(sees_late)
    );
    drop(open);
    ok(node.remove());
}

fn push(node: &Node, registry: &Registry, path: &str, mark: &str) -> String {
    let config = json!({ "Env": ["PATH=/bin"], "Labels": { "mark": mark } });
    ok(registry.push(&node.containerd, path, &config))
}

fn put(node: &Node, name: &str, image: &str, more: &Value) {
    let mut more = more.clone();
    more["container"]["image"] = json!(image);
    ok(node.put(&format!("{name}.json"), &pod(name, RUNS, &more)));
}

/// Secrets of both types, one with a wrong password.
fn secrets(node: &Node) {
    let entry = |auth: &str| json!({ "locked.test": { "auth": auth } });
    let login = json!({ "https://locked.test/v1/": { "username": USER, "password": PASSWORD } });
    let all = [
        (
            "pull-json",
            "dockerconfigjson",
            ".dockerconfigjson",
            json!({ "auths": entry(AUTH) }),
        ),
        (
            "pull-wrong",
            "dockerconfigjson",
            ".dockerconfigjson",
            json!({ "auths": entry("cHVsbGVyOng=") }),
        ),
        ("pull-cfg", "dockercfg", ".dockercfg", login),
    ];
    for (name, kind, key, content) in all {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "type": format!("kubernetes.io/{kind}"), "stringData": { key: content.to_string() },
        });
        ok(node.put(&format!("{name}.json"), &secret.to_string()));
    }
}

/// The node's Docker configuration.
fn node_config(node: &Node) {
    let config = json!({ "auths": { "node.test/n": { "auth": AUTH } } });
    fs::write(node.dirs().root.join("config.json"), config.to_string()).unwrap();
}

/// Name, image, and further fields of the pod.
fn good_pods(digest: &str) -> Vec<(&'static str, String, Value)> {
    let with = |secrets: &[&str]| {
        let all: Vec<Value> = secrets.iter().map(|name| json!({ "name": name })).collect();
        json!({ "imagePullSecrets": all })
    };
    let image = |name: &str| name.to_owned();
    vec![
        ("tag", image("open.test/team/app:1"), json!({})),
        ("default-tag", image("open.test/team/app"), json!({})),
        ("digest", format!("open.test/team/app@{digest}"), json!({})),
        (
            "both",
            format!("open.test/team/app:1@{digest}"),
            with(&["missing"]),
        ),
        (
            "json",
            image("locked.test/team/json:1"),
            with(&["pull-json"]),
        ),
        (
            "cfg",
            image("locked.test/team/cfg:1"),
            with(&["missing", "pull-cfg"]),
        ),
        (
            "turn",
            image("locked.test/team/turn:1"),
            with(&["pull-wrong", "pull-json"]),
        ),
        ("plugin-a", image("plugin.test/p/a:1"), json!({})),
        ("node-config", image("node.test/n/a:1"), json!({})),
        (
            "never",
            image("polylet-test:1"),
            json!({ "container": { "imagePullPolicy": "Never" } }),
        ),
    ]
}

async fn pull_errors_are_reported(node: &Node) {
    let never = json!({ "container": { "imagePullPolicy": "Never" } });
    let cases: [(&str, &str, Value, &str, &str); 5] = [
        (
            "locked",
            "locked.test/team/none:1",
            json!({}),
            "ImagePullBackOff",
            "Back-off pulling image \"locked.test/team/none:1\": ErrImagePull: ",
        ),
        (
            "wrong",
            "locked.test/team/none:1",
            json!({ "imagePullSecrets": [{ "name": "pull-wrong" }] }),
            "ImagePullBackOff",
            "Back-off pulling image \"locked.test/team/none:1\": ErrImagePull: ",
        ),
        (
            "nothing",
            "open.test/no/such:1",
            json!({}),
            "ImagePullBackOff",
            "ErrImagePull: rpc error: code = NotFound desc = ",
        ),
        (
            "absent",
            "open.test/team/absent:1",
            never,
            "ErrImageNeverPull",
            "Container image \"open.test/team/absent:1\" is not present with pull policy of Never",
        ),
        (
            "badname",
            "Not An Image",
            json!({}),
            "InvalidImageName",
            "Failed to apply default image tag \"Not An Image\": couldn't parse image name \"Not An Image\": \
             invalid reference format: repository name (library/Not An Image) must be lowercase",
        ),
    ];
    for (name, image, more, ..) in &cases {
        put(node, name, image, more);
    }
    for (name, _, _, reason, message) in &cases {
        let reported = |pod: &PodView| {
            let main = pod.container("main");
            main.is_some_and(|c| c.reason == *reason && c.message.contains(message))
        };
        let what = format!("to report {reason}: {message}");
        ok(node.wait_pod(name, &what, reported).await);
    }
    for (name, ..) in &cases {
        ok(node.take(&format!("{name}.json")));
    }
}

/// An image pulled with one pod's credentials is not available to other pods, also after a restart;
/// pods with the same credentials need no pull.
async fn images_of_other_credentials_are_denied(node: &mut Node, locked: &Registry) {
    ok(node.kill("sync-coordinator").await);
    ok(node.wait_in_step().await);
    let image = "locked.test/team/json:1";
    let before = locked.pulls("team/json");
    let with_secret = json!({ "imagePullSecrets": [{ "name": "pull-json" }] });
    put(node, "friend", image, &with_secret);
    put(node, "thief", image, &json!({}));
    let never = json!({ "container": { "imagePullPolicy": "Never" } });
    put(node, "lazy-thief", image, &never);
    ok(node.wait_ready("friend").await);
    for (name, reason) in [
        ("thief", "ImagePullBackOff"),
        ("lazy-thief", "ErrImageNeverPull"),
    ] {
        let reported = |pod: &PodView| pod.container("main").is_some_and(|c| c.reason == reason);
        ok(node.wait_pod(name, reason, reported).await);
        ok(node.take(&format!("{name}.json")));
    }
    assert_eq!(locked.pulls("team/json"), before);
}

/// Image volumes: pulled by their own policy and mounted where the runtime supports them; pull
/// errors are reported like those of the container's image.
async fn volumes(node: &Node, open: &Registry) {
    push(node, open, "team/data:1", "data");
    let with = |reference: &str| {
        let check = json!(["test", "-e", "/data/etc/passwd"]);
        json!({
            "volumes": [{ "name": "data", "image": { "reference": reference } }],
            "container": {
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                "readinessProbe": { "exec": { "command": check }, "periodSeconds": 1 },
            },
        })
    };
    put(
        node,
        "volume",
        "polylet-test:1",
        &with("open.test/team/data:1"),
    );
    put(
        node,
        "no-volume",
        "polylet-test:1",
        &with("open.test/no/data:1"),
    );
    let expected = "Back-off pulling image \"open.test/no/data:1\": ErrImagePull: ";
    let reported = |pod: &PodView| pod.line().contains(expected);
    ok(node.wait_pod("no-volume", expected, reported).await);
    let knows_how = Flavour::from_env() == Flavour::V2;
    let as_expected = |pod: &PodView| {
        // containerd 1.6 takes it for a mount without a source.
        let refused = pod.line().contains("CreateContainerError");
        if knows_how { pod.is_ready() } else { refused }
    };
    ok(node
        .wait_pod("volume", "to see its image", as_expected)
        .await);
    assert_eq!(open.pulls("team/data"), 1);
}

/// Waits until a pod's pull is in progress.
async fn pulls(node: &Node, name: &str) {
    let waits = |pod: &PodView| {
        pod.waiting_for
            .iter()
            .any(|what| what.contains("image of container main"))
            && pod.waiting_for.len() == 1
    };
    ok(node
        .wait_pod(name, "to wait for its image alone", waits)
        .await);
}

/// No log, status or trace contains the password in any encoding.
async fn password_is_not_disclosed(node: &Node) {
    let mut output_text = fs::read_to_string(node.log()).unwrap_or_default();
    for expected in [
        ["pods", "-o", "json"].as_slice(),
        &["trace", "json"],
        &["trace", "plugin-a"],
    ] {
        let output = ok(node.cli(expected).await);
        output_text.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    assert!(
        output_text.contains("locked.test/team/json:1"),
        "the output names the image"
    );
    for secret in [PASSWORD, AUTH] {
        assert!(!output_text.contains(secret), "{secret} is in the output");
    }
}
