//! Kinds of callers: with certificates, tokens, both and neither, and with different rights.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use polylet_e2e::ok;
use polylet_harness::{Cluster, Node, any_server};
use rustls::ClientConfig;
use serde_json::{Value, json};

/// A caller with its credentials.
pub(crate) struct NodeApiCaller {
    pub(crate) name: &'static str,
    pub(crate) tls: Arc<ClientConfig>,
    /// The `Authorization` header.
    pub(crate) authorization: Option<String>,
    /// The address that it calls from: limits are by address.
    pub(crate) address: Ipv4Addr,
}

/// Users with the verbs and subresources of `nodes` that a role grants them.
const ROLES: [(&str, &[(&str, &str)]); 9] = [
    ("metrics", &[("get", "metrics")]),
    ("stats", &[("get", "stats")]),
    ("log", &[("get", "log")]),
    (
        "parts",
        &[("get", "pods"), ("get", "healthz"), ("get", "configz")],
    ),
    ("status", &[("get", "statusz"), ("create", "checkpoint")]),
    ("proxy-get", &[("get", "proxy")]),
    ("proxy-create", &[("create", "proxy")]),
    ("everything", &[("*", "*")]),
    ("nobody", &[]),
];

/// A name, the paths of a certificate and its key, and an `Authorization` header.
type NamedCredentials = (&'static str, Option<(PathBuf, PathBuf)>, Option<String>);

/// Creates the roles and credentials.
pub(crate) async fn create(cluster: &Cluster, node: &Node) -> Vec<NodeApiCaller> {
    let mut callers: Vec<NamedCredentials> = Vec::new();
    for (user, grants) in ROLES {
        grant(
            cluster,
            user,
            grants,
            &json!({ "kind": "User", "name": user }),
        )
        .await;
        callers.push((user, Some(ok(cluster.identity(user, user, &[]))), None));
    }
    let masters = ok(cluster.identity("master", "master", &["system:masters"]));
    callers.push(("master", Some(masters), None));
    let own = ok(cluster.identity("own", "system:node:knode", &["system:nodes"]));
    callers.push(("a-node", Some(own), None));
    callers.push((
        "expired",
        Some(ok(cluster.ended_identity("gone", "everything", &[]))),
        None,
    ));
    // Signed by another authority, with the name of one that may do everything.
    callers.push(("foreign", Some(node.pki().client()), None));
    callers.push(("anonymous", None, None));
    let account = json!({ "kind": "ServiceAccount", "name": "default", "namespace": "default" });
    grant(
        cluster,
        "account",
        &[("get", "metrics"), ("get", "proxy")],
        &account,
    )
    .await;
    let token = ok(cluster.kubectl(&["create", "token", "default"]).await);
    let bearer = format!("Bearer {}", token.trim());
    let nobody = ok(cluster.identity("nobody-too", "nobody", &[]));
    for (name, certificate, header) in [
        ("token", None, bearer.clone()),
        (
            "token-lower-case",
            None,
            bearer.replacen("Bearer", "bearer", 1),
        ),
        ("token-and-certificate", Some(nobody), bearer.clone()),
        ("token-of-nobody", None, "Bearer nonsense".to_owned()),
        ("token-cut", None, bearer[..bearer.len() - 4].to_owned()),
        ("token-empty", None, "Bearer ".to_owned()),
        ("password", None, "Basic YWRtaW46YWRtaW4=".to_owned()),
        ("scheme-alone", None, "Bearer".to_owned()),
    ] {
        callers.push((name, certificate, Some(header)));
    }
    let numbered = (1_u8..).zip(callers);
    numbered
        .map(|(number, (name, files, authorization))| NodeApiCaller {
            name,
            tls: ok(any_server::tls(files.as_ref())),
            authorization,
            address: Ipv4Addr::new(127, 0, 7, number),
        })
        .collect()
}

async fn grant(cluster: &Cluster, name: &str, grants: &[(&str, &str)], subject: &Value) {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let rule = |(verb, subresource): &(&str, &str)| {
        json!({
            "apiGroups": [""], "verbs": [verb], "resources": [format!("nodes/{subresource}")],
        })
    };
    let metadata = json!({ "name": format!("caller-{name}") });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
        "rules": grants.iter().map(rule).collect::<Vec<_>>(),
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": metadata["name"],
        },
        "subjects": [subject],
    });
    for (kind, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        ok(cluster
            .client()
            .create(&format!("{RBAC}/{kind}"), &object)
            .await);
    }
}
