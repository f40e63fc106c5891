//! Pods whose manifests describe more than a node has: their neighbours and the services do not notice.

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{ContainerView, Node, PodView};
use polylet_wire::prober::v1::WatchProbeStatusesRequest;
use polylet_wire::prober::v1::prober_service_client::ProberServiceClient;
use polylet_wire::prober::v1::watch_probe_statuses_response::Change;
use serde_json::{Value, json};

/// The registry does not exist. The pattern of the pull secret matches it in no way, of which there
/// are more than 10^11.
const IMAGE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab.test/app:1";
const PATTERN: &str = "*a*a*a*a*a*a*a*a*a*a*a*a.test";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn hostile_pods_harm_only_themselves() {
    let mut steps = Steps::new();
    let node = node().await;
    let probed = json!({ "container": { "readinessProbe": {
        "exec": { "command": ["true"] }, "periodSeconds": 1, "failureThreshold": 1,
    }}});
    ok(node.put("neighbour.json", &pod("neighbour", RUNS, &probed)));
    let neighbour = ok(node.wait_ready("neighbour").await);

    objects(&node);
    let hostile = hostile_pods();
    for (name, fields) in &hostile {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    for name in ["doubling", "linear"] {
        let step = format!("{name} variables are refused");
        steps.run(&step, variables_are_refused(&node, name)).await;
    }
    steps
        .run(
            "image with hostile secret is not pulled",
            image_is_not_pulled(&node),
        )
        .await;
    steps
        .run("probe with many headers fails", probe_fails(&node))
        .await;
    steps
        .run("hook with many headers fails", hook_fails(&node))
        .await;
    steps
        .run("a later pod becomes ready", async {
            ok(node.put("later.json", &pod("later", RUNS, &probed)));
            ok(node.wait_ready("later").await);
        })
        .await;
    steps
        .run("neighbour is unchanged", async {
            let now = ok(node.wait_ready("neighbour").await);
            assert_eq!(now.identity(), neighbour.identity());
        })
        .await;
    steps
        .run("no service has restarted", no_service_has_restarted(&node))
        .await;

    let names = hostile.iter().map(|(name, _)| *name);
    for name in names.clone().chain(["neighbour", "later"]) {
        ok(node.take(&format!("{name}.json")));
    }
    for name in names.chain(["neighbour", "later"]) {
        ok(node.wait_gone(name).await);
    }
    steps.finish();
    ok(node.remove());
}

fn objects(node: &Node) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "large" },
        "data": { "key": "x".repeat(1 << 20) },
    });
    ok(node.put("large.json", &map.to_string()));
    let config = json!({ "auths": { PATTERN: { "username": "u", "password": "p" } } });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "stars" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": config.to_string() },
    });
    ok(node.put("stars.json", &secret.to_string()));
}

/// Names, and fields of the pods.
fn hostile_pods() -> Vec<(&'static str, Value)> {
    let mut doubling = vec![json!({ "name": "V0", "value": "x".repeat(1024) })];
    for n in 1..=30 {
        let value = format!("$(V{0})$(V{0})", n - 1);
        doubling.push(json!({ "name": format!("V{n}"), "value": value }));
    }
    let large = json!({ "configMapKeyRef": { "name": "large", "key": "key" } });
    let linear: Vec<Value> = (0..10_000)
        .map(|n| json!({ "name": format!("L{n}"), "valueFrom": large }))
        .collect();
    let headers: Vec<Value> = (0..30_000)
        .map(|n| json!({ "name": format!("X-{n}"), "value": "x" }))
        .collect();
    let get = json!({ "httpGet": {
        "host": "127.0.0.1", "port": 1, "httpHeaders": headers,
    }});
    let mut probe = get.clone();
    probe["periodSeconds"] = json!(1);
    probe["failureThreshold"] = json!(1);
    vec![
        ("doubling", json!({ "container": { "env": doubling } })),
        ("linear", json!({ "container": { "env": linear } })),
        (
            "stars",
            json!({
                "imagePullSecrets": [{ "name": "stars" }],
                "container": { "image": IMAGE },
            }),
        ),
        ("probe", json!({ "container": { "readinessProbe": probe } })),
        (
            "hook",
            json!({ "container": { "lifecycle": { "postStart": get } } }),
        ),
    ]
}

fn main_container(pod: &PodView) -> Option<ContainerView> {
    pod.container("main")
}

async fn variables_are_refused(node: &Node, name: &str) {
    let refused = |pod: &PodView| {
        main_container(pod).is_some_and(|main| {
            main.reason == "CreateContainerConfigError"
                && main.message.starts_with("container \"main\": variable ")
                && main.message.contains("exceeds the limit of 8388608 bytes")
        })
    };
    ok(node
        .wait_pod(name, "to be refused for its variables", refused)
        .await);
}

async fn image_is_not_pulled(node: &Node) {
    let reported = |pod: &PodView| {
        main_container(pod)
            .is_some_and(|main| ["ErrImagePull", "ImagePullBackOff"].contains(&&*main.reason))
    };
    ok(node
        .wait_pod("stars", "to report that its image is not pulled", reported)
        .await);
}

/// The result of the probe says why.
async fn probe_fails(node: &Node) {
    let unready = |pod: &PodView| {
        main_container(pod).is_some_and(|main| main.state == "running" && !main.ready)
    };
    ok(node
        .wait_pod("probe", "to run and be unready", unready)
        .await);
    let channel = ok(node.channel("prober"));
    ok(until("the result of the probe", || async {
        let mut client = ProberServiceClient::new(channel.clone());
        let request = WatchProbeStatusesRequest::default();
        let Ok(response) = client.watch_probe_statuses(request).await else {
            return Poll::Pending("no stream".to_owned());
        };
        let mut stream = response.into_inner();
        let mut messages = Vec::new();
        while let Ok(Some(response)) = stream.message().await {
            match response.change {
                Some(Change::Upsert(status)) => messages.push(status.message),
                Some(Change::Synced(_)) | None => break,
                Some(_) => {}
            }
        }
        let reason = "request has more than 10000 headers";
        if messages.iter().any(|message| message.contains(reason)) {
            Poll::Ready(())
        } else {
            Poll::Pending(format!("{messages:?}"))
        }
    })
    .await);
}

async fn hook_fails(node: &Node) {
    let failed = |pod: &PodView| {
        main_container(pod).is_some_and(|main| {
            main.reason == "PostStartHookError"
                && main.message.contains("request has more than 10000 headers")
        })
    };
    ok(node
        .wait_pod("hook", "to report that its hook failed", failed)
        .await);
}

async fn no_service_has_restarted(node: &Node) {
    for service in ok(node.services().await) {
        assert_eq!(service.restarts, 0, "{}", service.name);
        assert_eq!(service.health, "SERVING", "{}", service.name);
    }
    let status = ok(node.cli(&["status"]).await);
    assert!(status.status.success(), "{status:?}");
}
