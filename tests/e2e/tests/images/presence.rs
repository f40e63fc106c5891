//! When an image that is present is pulled again.

use polylet_e2e::{ok, try_exec};
use polylet_harness::{Node, PodView, Registry};
use serde_json::json;

use super::{push, put};

/// IfNotPresent does not contact the registry; Always does at each start.
pub(crate) async fn policies(node: &Node, open: &Registry) {
    let before = open.pulls("team/app");
    put(node, "again", "open.test/team/app:1", &json!({}));
    ok(node.wait_ready("again").await);
    assert_eq!(open.pulls("team/app"), before);
    let always = json!({ "container": { "imagePullPolicy": "Always" } });
    put(node, "always", "open.test/team/app:1", &always);
    let first = ok(node.wait_ready("always").await);
    assert_eq!(open.pulls("team/app"), before + 1);
    // The call may fail, since it ends its own container.
    let _ = try_exec(node, &first, "main", "kill 1").await;
    let restarted =
        |pod: &PodView| pod.is_ready() && pod.container("main").is_some_and(|c| c.restarts == 1);
    ok(node.wait_pod("always", "to run again", restarted).await);
    assert_eq!(open.pulls("team/app"), before + 2);
}

/// An image that was present a moment ago and was removed from the runtime is pulled again.
pub(crate) async fn removed_image_is_pulled_again(node: &Node, open: &Registry) {
    let image = "open.test/team/gone:1";
    push(node, open, "team/gone:1", "gone");
    put(node, "before", image, &json!({}));
    ok(node.wait_ready("before").await);
    let pulls = open.pulls("team/gone");
    put(node, "present", image, &json!({}));
    ok(node.wait_ready("present").await);
    assert_eq!(open.pulls("team/gone"), pulls);
    ok(node.containerd.cri().remove_image(image).await);
    put(node, "afterwards", image, &json!({}));
    ok(node.wait_ready("afterwards").await);
    assert_eq!(open.pulls("team/gone"), pulls + 1);
    for name in ["before", "present", "afterwards"] {
        ok(node.take(&format!("{name}.json")));
        ok(node.wait_gone(name).await);
    }
}
