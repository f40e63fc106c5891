//! Devices of a real plugin: allocated to containers that request them, kept over restarts, and
//! refused when there are too few.

use std::os::unix::fs::MetadataExt;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, exec, node, ok, pod};
use polylet_harness::device_plugin::TestDevicePlugin;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, PodView};
use polylet_wire::device::v1::WatchResourcesRequest;
use polylet_wire::device::v1::device_service_client::DeviceServiceClient;
use polylet_wire::device::v1::watch_resources_response::Change;
use serde_json::{Value, json};

const RESOURCE: &str = "test.example/device";

/// A pod whose container requests devices; `more` are further fields of its spec.
fn device_pod(name: &str, count: u32, script: &str, more: &Value) -> String {
    let mut more = more.clone();
    more["container"]["resources"] = json!({ "limits": { RESOURCE: count.to_string() } });
    pod(name, script, &more)
}

/// What the node says of the resource: capacity and allocatable.
async fn counts(node: &Node) -> Option<(u64, u64)> {
    let mut client = DeviceServiceClient::new(ok(node.channel("device-manager")));
    let stream = client
        .watch_resources(WatchResourcesRequest::default())
        .await;
    let mut stream = ok(stream).into_inner();
    let mut counts = None;
    while let Some(response) = ok(stream.message().await) {
        match response.change {
            Some(Change::Upsert(resource)) if resource.name == RESOURCE => {
                counts = Some((resource.capacity, resource.allocatable));
            }
            Some(Change::Synced(_)) => break,
            _ => {}
        }
    }
    counts
}

async fn wait_counts(node: &Node, expected: (u64, u64)) {
    ok(
        until(format!("capacity and allocatable {expected:?}"), || async {
            match counts(node).await {
                Some(now) if now == expected => Poll::Ready(()),
                now => Poll::Pending(format!("{now:?}")),
            }
        })
        .await,
    );
}

/// Registers once the node listens.
async fn register(plugin: &TestDevicePlugin) {
    ok(until("the plugin to register", || async {
        match plugin.register().await {
            Ok(()) => Poll::Ready(()),
            Err(error) => Poll::Pending(polylet_harness::error::report(&error)),
        }
    })
    .await);
}

/// The devices that a container says it has.
async fn devices_of(node: &Node, pod: &PodView) -> String {
    exec(node, pod, "main", "echo $TEST_DEVICES").await
}

async fn wait_message(node: &Node, name: &str, message: &str) {
    let has = |pod: &PodView| {
        pod.reason() == "UnexpectedAdmissionError" && pod.message().contains(message)
    };
    ok(node.wait_pod(name, message, has).await);
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn devices_are_allocated_and_survive_restarts() {
    let mut steps = Steps::new();
    let mut node = node().await;
    let directory = node.dirs().device_plugins.clone();
    let plugin = TestDevicePlugin::new(&directory, RESOURCE, &["a", "b", "c"]);
    let running = ok(plugin.start());
    register(&plugin).await;
    wait_counts(&node, (3, 3)).await;
    plugin.calls();

    ok(node.put("first.json", &device_pod("first", 2, RUNS, &json!({}))));
    let first = ok(node.wait_ready("first").await);
    steps
        .run("a container has what its plugin says", async {
            // The plugin prefers the last ones.
            assert_eq!(devices_of(&node, &first).await, "b,c");
            let script = "ls -d /dev/test-* /plugin/kubelet.sock; echo > /dev/test-b";
            let paths = exec(&node, &first, "main", script).await;
            assert_eq!(paths, "/dev/test-b\n/dev/test-c\n/plugin/kubelet.sock");
            let calls = plugin.calls();
            let expected = [
                "GetPreferredAllocation a,b,c",
                "Allocate b,c",
                "PreStartContainer b,c",
            ];
            assert_eq!(calls, expected);
            let status = &first.status["containerStatuses"][0]["allocatedResourcesStatus"];
            let healthy = |id: &str| json!({ "resourceID": id, "health": "Healthy" });
            let expected = json!([{ "name": RESOURCE, "resources": [healthy("b"), healthy("c")] }]);
            assert_eq!(*status, expected);
        })
        .await;
    steps
        .run("a pod that asks for more is rejected", async {
            ok(node.put("more.json", &device_pod("more", 2, RUNS, &json!({}))));
            let message = "Allocate failed due to requested number of devices unavailable for \
                 test.example/device. Requested: 2, Available: 1, which is unexpected";
            wait_message(&node, "more", message).await;
            ok(node.take("more.json"));
            ok(node.wait_gone("more").await);
        })
        .await;
    steps
        .run("the health of a device is told", async {
            plugin.set_health("b", false);
            wait_counts(&node, (3, 2)).await;
            let unhealthy = |pod: &PodView| {
                let status = &pod.status["containerStatuses"][0]["allocatedResourcesStatus"];
                status[0]["resources"][0]["health"] == "Unhealthy"
            };
            let now = ok(node
                .wait_pod("first", "to have an unhealthy device", unhealthy)
                .await);
            assert_eq!(now.identity(), first.identity(), "it runs on");
            plugin.set_health("b", true);
            wait_counts(&node, (3, 3)).await;
        })
        .await;
    steps
        .run("a restart of the service disturbs no plugin", async {
            plugin.calls();
            let socket = |name: &str| directory.join(name).metadata().map(|file| file.ino()).ok();
            let before = (socket("kubelet.sock"), socket("test.sock"));
            ok(node.kill("device-manager").await);
            ok(node.wait_in_step().await);
            wait_counts(&node, (3, 3)).await;
            assert_eq!((socket("kubelet.sock"), socket("test.sock")), before);
            assert_eq!(plugin.calls(), ["GetDevicePluginOptions", "ListAndWatch"]);
            let now = ok(node.wait_ready("first").await);
            assert_eq!(now.identity(), first.identity());
        })
        .await;
    steps
        .run("a container keeps its devices when it restarts", async {
            // Its main process is a shell, which ends at SIGTERM.
            let _ = polylet_e2e::try_exec(&node, &first, "main", "kill 1").await;
            let restarted = |pod: &PodView| {
                let main = pod.container("main");
                pod.is_ready() && main.is_some_and(|main| main.restarts == 1)
            };
            let now = ok(node.wait_pod("first", "to have restarted", restarted).await);
            assert_eq!(devices_of(&node, &now).await, "b,c");
            assert_eq!(plugin.calls(), ["PreStartContainer b,c"]);
        })
        .await;
    steps
        .run("the checkpoint outlives the node agent", async {
            node.down();
            drop(running);
            ok(node.up().await);
            ok(node.wait_in_step().await);
            // Nothing is offered before the plugin registers again; the pod goes on.
            wait_counts(&node, (0, 0)).await;
            let running = ok(plugin.start());
            register(&plugin).await;
            wait_counts(&node, (3, 3)).await;
            let now = ok(node.wait_ready("first").await);
            assert_eq!(devices_of(&node, &now).await, "b,c");
            ok(node.put("second.json", &device_pod("second", 1, RUNS, &json!({}))));
            let second = ok(node.wait_ready("second").await);
            assert_eq!(devices_of(&node, &second).await, "a");
            drop(running);
        })
        .await;
    steps
        .run("a plugin that stops offers nothing", async {
            wait_counts(&node, (3, 0)).await;
            ok(node.put("late.json", &device_pod("late", 1, RUNS, &json!({}))));
            let message =
                "no healthy devices present; cannot allocate unhealthy devices test.example/device";
            wait_message(&node, "late", message).await;
        })
        .await;
    steps
        .run("a socket is that of one resource", async {
            // It listens at the socket that the former resource had.
            let other = TestDevicePlugin::new(&directory, "test.example/other", &["a"]);
            let running = ok(other.start());
            register(&other).await;
            ok(until("the plugin to list its devices", || async {
                let calls = other.calls();
                match calls.iter().any(|call| call == "ListAndWatch") {
                    true => Poll::Ready(()),
                    false => Poll::Pending(format!("{calls:?}")),
                }
            })
            .await);
            ok(node.kill("device-manager").await);
            ok(node.wait_in_step().await);
            wait_counts(&node, (0, 0)).await;
            assert_eq!(other.calls(), ["GetDevicePluginOptions", "ListAndWatch"]);
            drop(running);
        })
        .await;
    steps.finish();
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn failures_of_a_plugin_stay_with_the_pod() {
    let mut steps = Steps::new();
    let node = node().await;
    let directory = node.dirs().device_plugins.clone();
    let plugin = TestDevicePlugin::new(&directory, RESOURCE, &["a"]);
    let running = ok(plugin.start());
    steps
        .run("a plugin without options is not used", async {
            plugin.fail("GetDevicePluginOptions");
            ok(until("the refusal", || async {
                let error = plugin.register().await.unwrap_err();
                let error = polylet_harness::error::report(&error);
                let expected = "failed to get device plugin options: rpc error: code = Unknown desc = GetDevicePluginOptions failed";
                match error.contains(expected) {
                    true => Poll::Ready(()),
                    false => Poll::Pending(error),
                }
            })
            .await);
            assert_eq!(counts(&node).await, None);
        })
        .await;
    steps
        .run("an allocation that fails rejects the pod", async {
            plugin.fail("Allocate");
            register(&plugin).await;
            wait_counts(&node, (1, 1)).await;
            ok(node.put("refused.json", &device_pod("refused", 1, RUNS, &json!({}))));
            let message = "Allocate failed due to rpc error: code = Unknown desc = Allocate failed, which is unexpected";
            wait_message(&node, "refused", message).await;
        })
        .await;
    steps
        .run("a start that fails is repeated", async {
            plugin.fail("PreStartContainer");
            ok(node.put("late.json", &device_pod("late", 1, RUNS, &json!({}))));
            let waits = |pod: &PodView| {
                let main = pod.container("main");
                main.is_some_and(|main| {
                    main.reason == "CreateContainerConfigError"
                        && main.message.contains("device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = PreStartContainer failed")
                })
            };
            ok(node.wait_pod("late", "to wait for its device", waits).await);
            plugin.fail("");
            let late = ok(node.wait_ready("late").await);
            assert_eq!(devices_of(&node, &late).await, "a");
        })
        .await;
    steps.finish();
    drop(running);
    ok(node.remove());
}
