use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use super::{Audited, Cluster, audit};
use crate::error::{HarnessError, report};
use crate::wait::{self, Look, until};

impl Cluster {
    /// Runs kubectl as one who may do everything and gives its output.
    ///
    /// # Errors
    /// When it fails, with what it said, or takes longer than patience.
    pub async fn kubectl(&self, words: &[&str]) -> Result<String, HarnessError> {
        self.kubectl_as(&self.admin(), words).await
    }

    /// Runs kubectl with a kubeconfig.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub async fn kubectl_as(
        &self,
        kubeconfig: &Path,
        words: &[&str],
    ) -> Result<String, HarnessError> {
        let program = format!("kubectl {}", words.join(" "));
        let ran = Command::new(self.programs.path("kubectl")?)
            .args(words)
            .env("KUBECONFIG", kubeconfig)
            // What it caches of the API goes with the cluster.
            .env("KUBECACHEDIR", self.scratch().join("kubectl"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let Ok(ran) = tokio::time::timeout(wait::patience(), ran).await else {
            return Err(HarnessError::Patience {
                what: format!("the end of `{program}`"),
                seconds: wait::patience().as_secs(),
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

    /// Makes a namespace and waits until pods can be made in it.
    ///
    /// # Errors
    /// When it exists, or patience ends.
    pub async fn namespace(&self, name: &str) -> Result<(), HarnessError> {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        });
        self.client().create("/api/v1/namespaces", &object).await?;
        self.wait_namespace(name).await
    }

    /// Pods can be made in a namespace when its service account is there; they can start when the
    /// authority's certificate is.
    pub(super) async fn wait_namespace(&self, name: &str) -> Result<(), HarnessError> {
        for part in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/{name}/{part}");
            self.wait(&path, "to be there", |_| true).await?;
        }
        Ok(())
    }

    /// Waits until the object at a path is as wanted, and gives it.
    ///
    /// # Errors
    /// When patience ends, with what was seen last.
    pub async fn wait(
        &self,
        path: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, HarnessError> {
        until(format!("{path} {what}"), || async {
            match self.client().get(path).await {
                Ok(Some(object)) if wanted(&object) => Look::Done(object),
                Ok(Some(object)) => Look::NotYet(seen(&object)),
                Ok(None) => Look::NotYet("not there".to_owned()),
                Err(error) => Look::NotYet(report(&error)),
            }
        })
        .await
    }

    /// Waits until there is no object at a path.
    ///
    /// # Errors
    /// When patience ends, with what was seen last.
    pub async fn wait_absent(&self, path: &str) -> Result<(), HarnessError> {
        until(format!("{path} to be gone"), || async {
            match self.client().get(path).await {
                Ok(None) => Look::Done(()),
                Ok(Some(object)) => Look::NotYet(seen(&object)),
                Err(error) => Look::NotYet(report(&error)),
            }
        })
        .await
    }

    /// Waits until a pod of the namespace `default` is Ready.
    ///
    /// # Errors
    /// As [`Cluster::wait`].
    pub async fn wait_pod_ready(&self, name: &str) -> Result<Value, HarnessError> {
        self.wait(&pod_path(name), "to be Ready", is_ready).await
    }

    /// Waits until a node is Ready.
    ///
    /// # Errors
    /// As [`Cluster::wait`].
    pub async fn wait_node_ready(&self, name: &str) -> Result<Value, HarnessError> {
        let path = format!("/api/v1/nodes/{name}");
        self.wait(&path, "to be Ready", is_ready).await
    }

    /// What nodes asked the API server since a mark, and the mark of now; 0 is the beginning.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn requests(&self, since: u64) -> Result<(Vec<Audited>, u64), HarnessError> {
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

    /// The controllers then approve requests of this kind by themselves.
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

/// The path of a pod of the namespace `default`.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// Whether the condition `Ready` of a pod or a node holds.
pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready") == Some("True")
}

/// The status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let all = object["status"]["conditions"].as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind);
    found?["status"].as_str()
}

/// What an error tells of an object.
fn seen(object: &Value) -> String {
    let mut status = object["status"].clone();
    if let Some(fields) = status.as_object_mut() {
        // Long, and never what a test waits for.
        for long in ["images", "nodeInfo", "daemonEndpoints"] {
            fields.remove(long);
        }
    }
    let metadata = &object["metadata"];
    let ending = metadata["deletionTimestamp"].as_str();
    format!(
        "{status} {}",
        ending.map_or(String::new(), |at| format!("ending since {at}"))
    )
}
