//! Pulls with a token of the pod's service account, by a credential provider plugin.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use polylet_e2e::{RUNS, ok, pod};
use polylet_harness::cluster::pod_path;
use polylet_harness::registry::{PASSWORD, USER};
use polylet_harness::{Cluster, Node, Registry};
use serde_json::{Value, json};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const IMAGE: &str = "plugin.test/p/a:1";

/// A plugin that returns credentials to service accounts with a role, and records its requests.
pub(super) fn settings(dir: &Path) -> Value {
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Image", "cacheDuration": "1h",
        "auth": { "plugin.test/p": { "username": USER, "password": PASSWORD } },
    });
    let script = format!(
        "#!/bin/sh\nread question\necho \"$question\" >> {}\n\
         case \"$question\" in *'\"example.com/role\":\"reader\"'*) ;; *) exit 3;; esac\n\
         cat <<'END'\n{answer}\nEND\n",
        dir.join("asked").display()
    );
    let program = dir.join("keys");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "keys", "matchImages": ["plugin.test/p"], "defaultCacheDuration": "10m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "tokenAttributes": {
                "serviceAccountTokenAudience": "registry", "cacheType": "ServiceAccount",
                "requireServiceAccount": true,
                "requiredServiceAccountAnnotationKeys": ["example.com/role"],
            },
        }],
    });
    let file = dir.join("config.yaml");
    fs::write(&file, config.to_string()).unwrap();
    json!({ "imageCredentialProviderConfigFile": file, "imageCredentialProviderBinDir": dir })
}

/// Only pods of an account known to the plugin may use the image, even when it is present.
pub(super) async fn by_account(cluster: &Cluster, node: &Node, dir: &Path) {
    let registry = ok(Registry::start(&node.containerd, "plugin.test", true).await);
    let config = json!({ "Env": ["PATH=/bin"] });
    ok(registry.push(&node.containerd, "p/a:1", &config));
    let client = cluster.client();
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole",
        "metadata": { "name": "registry-tokens" }, "rules": [{ "apiGroups": [""],
            "verbs": ["request-serviceaccounts-token-audience"], "resources": ["registry"] }] });
    ok(client.create(ROLES, &role).await);
    let binding = json!({ "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
        "metadata": { "name": "registry-tokens" },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "registry-tokens" },
        "subjects": [{ "apiGroup": rbac, "kind": "Group", "name": "system:nodes" }] });
    ok(client.create(BINDINGS, &binding).await);
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "reader", "annotations": { "example.com/role": "reader" } } });
    ok(client.create(ACCOUNTS, &account).await);

    put(cluster, "first", Some("reader")).await;
    ok(cluster.wait_pod_ready("first").await);
    let request = ok(fs::read_to_string(dir.join("asked")));
    let question: Value = serde_json::from_str(request.trim()).expect("one question");
    let token = question["serviceAccountToken"].as_str().unwrap_or_default();
    assert!(token.starts_with("ey"), "a token is in the question");
    // Another pod of the account: the pull record admits it; the plugin's response is still cached.
    put(cluster, "second", Some("reader")).await;
    ok(cluster.wait_pod_ready("second").await);
    assert_eq!(registry.pulls("p/a"), 1);
    put(cluster, "stranger", None).await;
    let waits = "/status/containerStatuses/0/state/waiting/reason";
    let refused = |pod: Option<&Value>| {
        let reason = pod.and_then(|pod| pod.pointer(waits)?.as_str());
        matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"))
    };
    let path = pod_path("stranger");
    let seen = async {
        while !refused(ok(client.get(&path).await).as_ref()) {
            tokio::time::sleep(super::POLL_INTERVAL).await;
        }
    };
    let seen = tokio::time::timeout(super::TIMEOUT, seen).await;
    assert!(seen.is_ok(), "a stranger gets the image");
    assert_eq!(ok(fs::read_to_string(dir.join("asked"))), request);
    let mut records = ok(fs::read_dir(node.dirs().root.join("image_manager/pulled")));
    let noted = records.any(|record| {
        let text = record.and_then(|record| fs::read_to_string(record.path()));
        text.is_ok_and(|text| text.contains("kubernetesServiceAccounts") && text.contains("reader"))
    });
    assert!(noted, "the account is in the record of the pull");
    let log = ok(fs::read_to_string(node.log()));
    assert!(!log.contains(token), "the token is in the log");
}

async fn put(cluster: &Cluster, name: &str, account: Option<&str>) {
    let mut made: Value = serde_json::from_str(&pod(name, RUNS, &json!({}))).unwrap();
    made["spec"]["nodeName"] = "node".into();
    made["spec"]["containers"][0]["image"] = IMAGE.into();
    if let Some(account) = account {
        made["spec"]["serviceAccountName"] = account.into();
    }
    ok(cluster.client().create(super::PODS, &made).await);
}
