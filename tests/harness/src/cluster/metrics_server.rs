use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::{Cluster, Component, args};
use crate::error::{HarnessError, file};
use crate::go_module::{GoBuild, GoModule, GoProgram};
use crate::machine;

const ANNOUNCEMENT: &str = "building metrics-server with Go, once (about 4 minutes)";

const PROGRAM: GoProgram = GoProgram {
    name: "metrics-server",
    package: "sigs.k8s.io/metrics-server/cmd/metrics-server",
    build: GoBuild::Native,
};

const USER: &str = "metrics-server";
const GROUP: &str = "metrics.k8s.io";

/// The program, from the Go module `tests/metrics-server`: minutes the first time, nothing afterwards.
///
/// # Errors
/// Fails if Go is missing or too old, or it cannot be built.
async fn program(say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
    let source = machine::workspace().join("tests/metrics-server");
    let mut module = GoModule::open("metrics-server", &source, &[], ANNOUNCEMENT)?;
    module.program(&PROGRAM, say).await
}

impl Cluster {
    /// metrics-server, which the API server passes requests for `metrics.k8s.io` on to. It has the
    /// rights of upstream's manifest, and no more. Started.
    ///
    /// # Errors
    /// Fails if the program cannot be built or run, or the API server rejects an object.
    pub async fn metrics_server(&self, say: &dyn Fn(&str)) -> Result<Component, HarnessError> {
        let program = program(say).await?;
        let dir = self.scratch();
        let (certificate, key) = self.identity(USER, USER, &[])?;
        let kubeconfig = dir.join("metrics-server.kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "k", "cluster": {
                "server": self.server(), "certificate-authority": self.authority(),
            } }],
            "users": [{ "name": "u", "user": {
                "client-certificate": certificate, "client-key": key,
            } }],
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        });
        file(
            "write",
            &kubeconfig,
            fs::write(&kubeconfig, text.to_string()),
        )?;
        let port = machine::free_port()?;
        self.apply_metrics_server(port).await?;
        let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
        let flags = vec![
            flag("kubeconfig", &kubeconfig.display()),
            flag("authentication-kubeconfig", &kubeconfig.display()),
            flag("authorization-kubeconfig", &kubeconfig.display()),
            flag("bind-address", &"127.0.0.1"),
            flag("secure-port", &port),
            flag("cert-dir", &dir.join("metrics-server").display()),
            flag("kubelet-preferred-address-types", &"InternalIP"),
            flag("kubelet-use-node-status-port", &true),
            // The node signs its certificate itself.
            flag("kubelet-insecure-tls", &true),
            flag("metric-resolution", &"10s"),
            flag("kubelet-request-timeout", &"9s"),
            // Users are who the API server says they are.
            flag("authentication-skip-lookup", &true),
            flag("requestheader-client-ca-file", &self.authority().display()),
            flag("requestheader-allowed-names", &args::FRONT_PROXY),
        ];
        let mut component = Component::new("metrics-server", &program, flags, dir);
        component.start()?;
        Ok(component)
    }

    async fn apply_metrics_server(&self, port: u16) -> Result<(), HarnessError> {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let metadata = json!({ "name": USER });
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
            "rules": [
                { "apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"] },
                { "apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"] },
            ],
        });
        let binding = |role: &str| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": { "name": format!("{USER}-{}", role.replace(':', "-")) },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
                "subjects": [{ "kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io" }],
            })
        };
        // No proxy serves cluster addresses on this host: a name is reached without one.
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": { "type": "ExternalName", "externalName": "localhost" },
        });
        let api_service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": format!("v1beta1.{GROUP}") },
            "spec": {
                "group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": { "name": USER, "namespace": "kube-system", "port": port },
            },
        });
        for (path, object) in [
            (format!("{RBAC}/clusterroles"), role),
            (format!("{RBAC}/clusterrolebindings"), binding(USER)),
            (
                format!("{RBAC}/clusterrolebindings"),
                binding("system:auth-delegator"),
            ),
            (
                "/api/v1/namespaces/kube-system/services".to_owned(),
                service,
            ),
            (
                "/apis/apiregistration.k8s.io/v1/apiservices".to_owned(),
                api_service,
            ),
        ] {
            self.client().create(&path, &object).await?;
        }
        Ok(())
    }
}
