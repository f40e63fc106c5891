use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use super::{AuditEvent, Cluster, audit};
use crate::error::{HarnessError, report};
use crate::wait::{self, Poll, until};

impl Cluster {
    /// Runs kubectl as cluster admin and returns its output.
    ///
    /// # Errors
    /// Fails with kubectl's output, or on timeout.
    pub async fn kubectl(&self, words: &[&str]) -> Result<String, HarnessError> {
        self.kubectl_as(&self.admin(), words).await
    }

    /// Runs kubectl with a kubeconfig.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    pub async fn kubectl_as(
        &self,
        kubeconfig: &Path,
        words: &[&str],
    ) -> Result<String, HarnessError> {
        let program = format!("kubectl {}", words.join(" "));
        let ran = Command::new(self.programs.path("kubectl")?)
            .args(words)
            .env("KUBECONFIG", kubeconfig)
            // The discovery cache is removed with the cluster.
            .env("KUBECACHEDIR", self.scratch().join("kubectl"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let Ok(ran) = tokio::time::timeout(wait::timeout(), ran).await else {
            return Err(HarnessError::Timeout {
                what: format!("`{program}` to exit"),
                seconds: wait::timeout().as_secs(),
                last: "still running".to_owned(),
            });
        };
        let output = ran.map_err(|source| HarnessError::Run {
            program: program.clone(),
            source,
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(HarnessError::Failed {
            program,
            status: output.status.to_string(),
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// Creates a namespace and waits until it accepts pods.
    ///
    /// # Errors
    /// Fails if it exists, or on timeout.
    pub async fn namespace(&self, name: &str) -> Result<(), HarnessError> {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        });
        self.client().create("/api/v1/namespaces", &object).await?;
        self.wait_namespace(name).await
    }

    /// A namespace accepts pods when its service account exists; they can start when its CA
    /// certificate ConfigMap exists.
    pub(super) async fn wait_namespace(&self, name: &str) -> Result<(), HarnessError> {
        for part in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{name}/{part}");
            self.wait(&path, "to exist", |_| true).await?;
        }
        Ok(())
    }

    /// Waits until the object at a path satisfies a condition and returns it.
    ///
    /// # Errors
    /// Fails on timeout with the last observation.
    pub async fn wait(
        &self,
        path: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, HarnessError> {
        until(format!("{path} {what}"), || async {
            match self.client().get(path).await {
                Ok(Some(object)) if wanted(&object) => Poll::Ready(object),
                Ok(Some(object)) => Poll::Pending(seen(&object)),
                Ok(None) => Poll::Pending("not found".to_owned()),
                Err(error) => Poll::Pending(report(&error)),
            }
        })
        .await
    }

    /// Waits until no object exists at a path.
    ///
    /// # Errors
    /// Fails on timeout with the last observation.
    pub async fn wait_absent(&self, path: &str) -> Result<(), HarnessError> {
        until(format!("{path} to be deleted"), || async {
            match self.client().get(path).await {
                Ok(None) => Poll::Ready(()),
                Ok(Some(object)) => Poll::Pending(seen(&object)),
                Err(error) => Poll::Pending(report(&error)),
            }
        })
        .await
    }

    /// Waits until a pod of the namespace `default` is Ready.
    ///
    /// # Errors
    /// See [`Cluster::wait`].
    pub async fn wait_pod_ready(&self, name: &str) -> Result<Value, HarnessError> {
        self.wait(&pod_path(name), "to be Ready", is_ready).await
    }

    /// Waits until a node is Ready.
    ///
    /// # Errors
    /// See [`Cluster::wait`].
    pub async fn wait_node_ready(&self, name: &str) -> Result<Value, HarnessError> {
        let path = format!("/api/v1/nodes/{name}");
        self.wait(&path, "to be Ready", is_ready).await
    }

    /// Requests of nodes since a position in the audit log (0 is its beginning), and the current
    /// position.
    ///
    /// # Errors
    /// Fails if the audit log cannot be read.
    pub fn requests(&self, since: u64) -> Result<(Vec<AuditEvent>, u64), HarnessError> {
        audit::read(&self.audit_log(), since)
    }

    pub(super) async fn apply_bootstrap(
        &self,
        id: &str,
        secret: &str,
        approve: bool,
    ) -> Result<(), HarnessError> {
        let token = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
            "stringData": {
                "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
            },
        });
        let at = "/api/v1/namespaces/kube-system/secrets";
        self.client().create(at, &token).await?;
        let newcomers = "system:bootstrappers";
        self.bind("join", "system:node-bootstrapper", newcomers)
            .await?;
        if approve {
            self.apply_approval("approve-first", "nodeclient", newcomers)
                .await?;
            self.approve_renewals().await?;
        }
        Ok(())
    }

    /// Lets the controllers approve requests of this kind automatically.
    pub(super) async fn apply_approval(
        &self,
        name: &str,
        kind: &str,
        group: &str,
    ) -> Result<(), HarnessError> {
        let role = format!("system:certificates.k8s.io:certificatesigningrequests:{kind}");
        self.bind(name, &role, group).await
    }

    async fn bind(&self, name: &str, role: &str, group: &str) -> Result<(), HarnessError> {
        let group_api = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group_api}/v1"), "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("polylet-test:{name}") },
            "roleRef": { "apiGroup": group_api, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": group_api, "kind": "Group", "name": group }],
        });
        let at = format!("/apis/{group_api}/v1/clusterrolebindings");
        self.client().create(&at, &binding).await.map(drop)
    }
}

/// API path of a pod in the namespace `default`.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// Whether the condition `Ready` of a pod or node is `True`.
pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready") == Some("True")
}

/// Status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let all = object["status"]["conditions"].as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind);
    found?["status"].as_str()
}

/// Summary of an object for error texts.
fn seen(object: &Value) -> String {
    let mut status = object["status"].clone();
    if let Some(fields) = status.as_object_mut() {
        // Long and irrelevant to tests.
        for long in ["images", "nodeInfo", "daemonEndpoints"] {
            fields.remove(long);
        }
    }
    let metadata = &object["metadata"];
    let ending = metadata["deletionTimestamp"].as_str();
    format!(
        "{status} {}",
        ending.map_or(String::new(), |at| format!("terminating since {at}"))
    )
}
