use std::path::Path;

use polylet_vm::ok;

use crate::node::SystemdNode;

/// The node agent's units that are active or enabled.
const AGENTS: &str = "systemctl is-active kubelet.service polylet.target || true; \
                      systemctl is-enabled kubelet.service polylet.target || true";

/// Says what it would do, and does nothing; without a terminal it does not begin.
pub(crate) async fn says_first(node: &SystemdNode) {
    let before = node.sh(AGENTS).await;
    let said = node.sh("polylet takeover --dry-run").await;
    for step in [
        "write the configuration of the running kubelet",
        "stop kubelet.service; its containers keep running",
        "disable kubelet.service",
        "enable polylet.target",
        "start polylet.target",
    ] {
        assert!(said.contains(step), "{step}: {said}");
    }
    let asked = ok(node.guest().output("polylet takeover < /dev/null").await);
    assert_eq!(asked.code, Some(64), "{asked:?}");
    assert!(asked.stderr.contains("not confirmed"), "{asked:?}");
    assert_eq!(node.sh(AGENTS).await, before, "nothing is changed");
}

/// Polylet runs instead of the kubelet, with its configuration.
pub(crate) async fn forward(node: &SystemdNode) {
    let said = node.sh("polylet takeover --yes").await;
    assert!(said.contains("Done: polylet.target is running"), "{said}");
    let state = "inactive\nactive\ndisabled\nenabled\n";
    // A kubelet that is stopped soon after its start says that it has failed.
    let agents = node.sh(AGENTS).await.replace("failed\n", "inactive\n");
    assert_eq!(agents, state);
    let config = node.sh("cat /etc/polylet/config.yaml").await;
    for line in [
        "swapBehavior: LimitedSwap",
        "kubeconfig: /etc/kubernetes/kubelet.conf",
        "nodeName: vm",
    ] {
        assert!(config.contains(line), "{line}: {config}");
    }
    node.sh("polylet check-config /etc/polylet/config.yaml")
        .await;
}

/// The reverse.
pub(crate) async fn back(node: &SystemdNode) {
    let said = node.sh("polylet takeover --back --yes").await;
    assert!(said.contains("Done: kubelet.service is running"), "{said}");
    let state = "active\ninactive\nenabled\ndisabled\n";
    assert_eq!(node.sh(AGENTS).await, state);
    let left = node
        .sh("pgrep --list-full polylet- | grep -v vm-agent || true")
        .await;
    assert_eq!(left, "", "processes");
}

/// The node API serves logs and statistics under its unit: it reads files of root, and asks the API server
/// whether the caller may.
pub(crate) async fn node_api_serves(node: &SystemdNode) {
    let (certificate, key) = ok(node
        .cluster
        .identity("caller", "caller", &["system:masters"]));
    let server = format!("--server=https://127.0.0.1:{}", node.node_api);
    let (certificate, key) = (
        format!("--client-certificate={}", certificate.display()),
        format!("--client-key={}", key.display()),
    );
    let get = async |path: &str| {
        let words = [
            "get",
            "--raw",
            path,
            &server,
            "--insecure-skip-tls-verify",
            &certificate,
            &key,
        ];
        ok(node
            .cluster
            .kubectl_as(Path::new("/dev/null"), &words)
            .await)
    };
    let log = get("/containerLogs/default/guaranteed/main").await;
    assert_eq!(log, "started\n");
    let summary = get("/stats/summary").await;
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap_or_default();
    let pods = summary["pods"].as_array().map_or(0, Vec::len);
    assert!(pods >= 3, "{summary}");
    assert!(
        summary["node"]["memory"]["usageBytes"].is_u64(),
        "{summary}"
    );
}
