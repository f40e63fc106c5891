use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use polylet_harness::error::file;
use polylet_harness::{Cluster, HarnessError, Node};
use serde_json::{Value, json};

use crate::suite::SuitePrograms;
use crate::unit::UnitServer;

/// The suite reads and writes the agent's configuration in a file of this name in its working directory.
const CONFIGURATION: &str = "kubelet-config";

/// The suite first validates the machine, whose kernel is not what is tested here.
const MACHINE: &str = r#"{ "os": "Linux", "kernelSpec": { "versions": [".*"] } }"#;

/// Name of the ServiceAccount that the suite acts as.
const ACCOUNT: &str = "conformance";

/// What the suite of a node needs beside the node: it neither starts an agent nor a control plane here,
/// but reconfigures and restarts the agent.
#[derive(Debug)]
pub(crate) struct NodeSuite {
    /// The suite's working directory.
    pub(crate) dir: PathBuf,
    /// A token with all rights, for the API server and the node.
    pub(crate) token: String,
    pub(crate) units: UnitServer,
}

impl NodeSuite {
    /// Prepares a working directory below the node's own one, and a token.
    ///
    /// # Errors
    /// Fails if a file cannot be written or the API server rejects a request.
    pub(crate) async fn prepare(cluster: &Cluster, node: &Node) -> Result<Self, HarnessError> {
        let dir = node.scratch().join("suite");
        file("make", &dir, fs::create_dir_all(&dir))?;
        let this = Self {
            units: UnitServer::listen(&dir)?,
            token: token(cluster).await?,
            dir,
        };
        let machine = this.machine();
        file("write", &machine, fs::write(&machine, MACHINE))?;
        let path = this.dir.join(CONFIGURATION);
        let text = node.kubelet_configuration().to_string();
        file("write", &path, fs::write(&path, text))?;
        Ok(this)
    }

    /// The suite's tests in its working directory, where the runner starts them.
    ///
    /// # Errors
    /// Fails if they cannot be linked.
    pub(crate) fn tests(&self, suite: &SuitePrograms) -> Result<PathBuf, HarnessError> {
        let link = self.dir.join(suite.tests.file_name().unwrap_or_default());
        if !link.exists() {
            file("link", &link, symlink(&suite.tests, &link))?;
        }
        Ok(link)
    }

    /// The file with the requirements of the machine.
    pub(crate) fn machine(&self) -> PathBuf {
        self.dir.join("machine.json")
    }

    /// The agent's configuration, as the suite last wrote it.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub(crate) fn configuration(&self) -> Result<Value, HarnessError> {
        read_configuration(&self.dir.join(CONFIGURATION))
    }
}

fn read_configuration(path: &Path) -> Result<Value, HarnessError> {
    let text = file("read", path, fs::read_to_string(path))?;
    serde_yaml_ng::from_str(&text).map_err(|source| HarnessError::Yaml {
        what: "the configuration that the suite wrote",
        source,
    })
}

/// A token of a ServiceAccount with all rights, valid for a day.
async fn token(cluster: &Cluster) -> Result<String, HarnessError> {
    let client = cluster.client();
    let accounts = "/api/v1/namespaces/kube-system/serviceaccounts";
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT },
    });
    client.create(accounts, &account).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": ACCOUNT },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [
            { "kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system" },
        ],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    client.create(bindings, &binding).await?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "expirationSeconds": 86_400 },
    });
    let path = format!("{accounts}/{ACCOUNT}/token");
    let answer = client.create(&path, &request).await?;
    let token = answer["status"]["token"].as_str();
    token.map(str::to_owned).ok_or_else(|| HarnessError::Api {
        request: path,
        code: 201,
        message: "no token in the answer".to_owned(),
    })
}
