//! Clients that mean the node API harm: paths that lead elsewhere, headers without an end, requests that never
//! come, responses that nobody reads, streams that are half closed, many followers, a storm of commands. Its
//! memory stays bounded, a neighbour is answered as before, and no service ends.

use polylet_e2e::steps::Steps;
use polylet_e2e::{example, node, ok, pod};
use polylet_harness::Node;
use polylet_harness::wait::{Poll, until};
use serde_json::json;

mod attacks;
mod measure;
mod requests;
mod storms;

use measure::Neighbour;

/// Has printed many lines, and prints another one now and then.
const STORY: &str = "seq 1 100000 | sed 's/.*/line & of a long story that nobody reads to its end/'; i=0; \
    while :; do i=$((i+1)); echo \"later $i\"; sleep 0.2; done";

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn hostile_clients_harm_only_themselves() {
    let node = node().await;
    let _ = example(&node).await;
    ok(node.put("story.json", &pod("story", STORY, &json!({}))));
    ok(node.wait_ready("story").await);
    ok(until("the whole story", || async {
        let last = requests::get(&node, "/containerLogs/default/story-node/main?tailLines=1");
        let last = last.await;
        if last.contains("later") {
            Poll::Ready(())
        } else {
            Poll::Pending(last)
        }
    })
    .await);
    let before = services(&node).await;
    let neighbour = Neighbour::new(&node, &before).await;

    let mut steps = Steps::new();
    steps
        .run("paths that lead elsewhere", attacks::paths(&node))
        .await;
    steps
        .run(
            "long headers",
            neighbour.during("long headers", attacks::long_headers(&node)),
        )
        .await;
    steps
        .run(
            "slow writers",
            neighbour.during("slow writers", attacks::slow_writers(&node)),
        )
        .await;
    steps
        .run(
            "slow readers",
            neighbour.during("slow readers", attacks::slow_readers(&node)),
        )
        .await;
    steps
        .run(
            "half-closed streams",
            neighbour.during("half-closed streams", attacks::half_closed(&node)),
        )
        .await;
    steps
        .run(
            "many followers",
            neighbour.during("many followers", storms::followers(&node)),
        )
        .await;
    steps
        .run(
            "a storm of commands",
            neighbour.during("a storm of commands", storms::commands(&node)),
        )
        .await;
    steps
        .run("the memory is given back", neighbour.settles())
        .await;
    steps
        .run("no service has ended", async {
            assert_eq!(services(&node).await, before);
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// The services with their processes.
async fn services(node: &Node) -> Vec<(String, u32)> {
    let services = ok(node.services().await);
    let mut services: Vec<_> = services
        .into_iter()
        .map(|service| (service.name, service.pid))
        .collect();
    services.sort();
    services
}
