use std::path::Path;

use serde_json::json;

use super::authority::KeyPairFiles;

/// The service CIDR; not routed, because no kube-proxy runs.
const SERVICES: &str = "10.96.0.0/16";

/// The API server's advertise address. It must not be a loopback address; this one is reserved for
/// documentation and unused.
const ADVERTISED: &str = "192.0.2.1";

/// The first address of [`SERVICES`]: the API server's cluster IP.
pub(super) const FIRST_SERVICE: [u8; 4] = [10, 96, 0, 1];

/// The customary cluster IP of the DNS service.
pub(super) const DNS: [u8; 4] = [10, 96, 0, 10];

/// The service account token issuer.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The user of requests that the API server passes on to other API servers.
pub(super) const FRONT_PROXY: &str = "front-proxy-client";

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn path(name: &str, value: &Path) -> String {
    flag(name, value.display())
}

/// A single member on the loopback address, with TLS because other users may be logged in to this
/// machine.
pub(super) fn etcd(
    dir: &Path,
    ports: (u16, u16),
    own: &KeyPairFiles,
    authority: &Path,
) -> Vec<String> {
    let client = format!("https://127.0.0.1:{}", ports.0);
    let peer = format!("https://127.0.0.1:{}", ports.1);
    vec![
        path("data-dir", &dir.join("etcd")),
        flag("listen-client-urls", &client),
        flag("advertise-client-urls", &client),
        path("cert-file", &own.certificate),
        path("key-file", &own.key),
        path("trusted-ca-file", authority),
        flag("client-cert-auth", true),
        flag("listen-peer-urls", &peer),
        flag("initial-advertise-peer-urls", &peer),
        flag("initial-cluster", format!("default={peer}")),
        path("peer-cert-file", &own.certificate),
        path("peer-key-file", &own.key),
        path("peer-trusted-ca-file", authority),
        flag("peer-client-cert-auth", true),
        flag("logger", "zap"),
        flag("log-level", "warn"),
    ]
}

/// Settings of the API server's command line.
pub(super) struct ApiServerArgs<'a> {
    pub(super) dir: &'a Path,
    pub(super) port: u16,
    pub(super) etcd_port: u16,
    /// The CA certificate.
    pub(super) authority: &'a Path,
    pub(super) serving: &'a KeyPairFiles,
    /// Client certificate for etcd.
    pub(super) etcd_client: &'a KeyPairFiles,
    /// Client certificate for nodes.
    pub(super) node_client: &'a KeyPairFiles,
    /// Client certificate for other API servers that requests are passed on to.
    pub(super) proxy_client: &'a KeyPairFiles,
    pub(super) tokens: &'a KeyPairFiles,
    pub(super) audit_policy: &'a Path,
    pub(super) audit_log: &'a Path,
}

pub(super) fn api_server(server: &ApiServerArgs<'_>) -> Vec<String> {
    vec![
        flag(
            "etcd-servers",
            format!("https://127.0.0.1:{}", server.etcd_port),
        ),
        path("etcd-cafile", server.authority),
        path("etcd-certfile", &server.etcd_client.certificate),
        path("etcd-keyfile", &server.etcd_client.key),
        flag("bind-address", "127.0.0.1"),
        flag("secure-port", server.port),
        flag("advertise-address", ADVERTISED),
        path("cert-dir", server.dir),
        path("tls-cert-file", &server.serving.certificate),
        path("tls-private-key-file", &server.serving.key),
        path("client-ca-file", server.authority),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("enable-bootstrap-token-auth", true),
        flag("allow-privileged", true),
        flag("service-cluster-ip-range", SERVICES),
        flag("service-account-issuer", ISSUER),
        path("service-account-key-file", &server.tokens.certificate),
        path("service-account-signing-key-file", &server.tokens.key),
        path(
            "kubelet-client-certificate",
            &server.node_client.certificate,
        ),
        path("kubelet-client-key", &server.node_client.key),
        path("proxy-client-cert-file", &server.proxy_client.certificate),
        path("proxy-client-key-file", &server.proxy_client.key),
        flag("kubelet-preferred-address-types", "InternalIP,Hostname"),
        path("audit-policy-file", server.audit_policy),
        path("audit-log-path", server.audit_log),
    ]
}

pub(super) fn controller_manager(
    dir: &Path,
    kubeconfig: &Path,
    authority: &KeyPairFiles,
    tokens: &KeyPairFiles,
) -> Vec<String> {
    vec![
        path("kubeconfig", kubeconfig),
        path("cert-dir", dir),
        // Its own port is unused; its effects are visible in the API.
        flag("secure-port", 0),
        flag("leader-elect", false),
        // The default rate limits are for a shared server and would slow its start down by seconds.
        flag("kube-api-qps", 500),
        flag("kube-api-burst", 500),
        flag("use-service-account-credentials", true),
        path("root-ca-file", &authority.certificate),
        path("cluster-signing-cert-file", &authority.certificate),
        path("cluster-signing-key-file", &authority.key),
        path("service-account-private-key-file", &tokens.key),
    ]
}

pub(super) fn scheduler(dir: &Path, kubeconfig: &Path) -> Vec<String> {
    vec![
        path("kubeconfig", kubeconfig),
        path("cert-dir", dir),
        flag("secure-port", 0),
        flag("leader-elect", false),
        flag("kube-api-qps", 500),
        flag("kube-api-burst", 500),
    ]
}

/// An audit policy that logs the metadata of nodes' requests only, for counting them.
pub(super) fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "Metadata", "userGroups": ["system:nodes", "system:bootstrappers"] },
            { "level": "None" },
        ],
    })
    .to_string()
}
