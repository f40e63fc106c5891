//! Requests to the node API that end without a stream.

use polylet_e2e::ok;
use polylet_harness::{Cluster, Node, http};

const NO_STREAM: &str = "you must specify at least 1 of stdin, stdout, stderr";

/// Status codes and messages are upstream's.
pub(crate) async fn errors(cluster: &Cluster, node: &Node) {
    let binding = [
        "create",
        "clusterrolebinding",
        "caller",
        "--clusterrole=cluster-admin",
        "--serviceaccount=default:default",
    ];
    ok(cluster.kubectl(&binding).await);
    let token = ok(cluster.kubectl(&["create", "token", "default"]).await);
    let get = async |path: &str| {
        let tls = ok(node.pki().tls(true));
        ok(http::get_tls_as(tls, node.ports().0, path, token.trim()).await)
    };
    for (path, code, message) in [
        ("/exec/default/server/main?command=true", 400, NO_STREAM),
        ("/attach/default/server/main?tty=1&error=1", 400, NO_STREAM),
        (
            "/exec/default/none/main?output=1&command=true",
            404,
            "pod does not exist",
        ),
        (
            "/attach/default/none/main?output=1",
            404,
            "pod does not exist",
        ),
        ("/portForward/default/none", 404, "pod does not exist"),
        (
            "/exec/default/server/none?output=1&command=true",
            500,
            "container not found (\"none\")",
        ),
        (
            "/exec/default/server/any-uid/none?output=1&command=true",
            500,
            "container not found (\"none\")",
        ),
        (
            "/attach/default/server/none?output=1",
            500,
            "container none not found in pod server_default",
        ),
        (
            "/attach/default/server/another-uid/main?output=1",
            500,
            "pod server_default not found",
        ),
        (
            "/portForward/default/server/another-uid",
            404,
            "pod not found",
        ),
        (
            "/exec/default/server/main?output=1&command=true",
            500,
            "Upgrade request required\n",
        ),
        (
            "/attach/default/server/main?output=1",
            500,
            "Upgrade request required\n",
        ),
        (
            "/portForward/default/server",
            500,
            "Upgrade request required\n",
        ),
    ] {
        let response = get(path).await;
        let found = (response.code(), response.body.as_str());
        assert_eq!(found, (code, message), "{path}");
    }
    let run = get("/run/default/server/main").await;
    assert_eq!(run.code(), 405);
    let configuration = get("/configz").await;
    assert!(
        configuration
            .body
            .contains("\"kind\":\"KubeletConfiguration\""),
        "{configuration:?}"
    );
    let health = get("/healthz?verbose").await;
    assert!(health.body.contains("[+]syncloop ok\n"), "{health:?}");
}
