use std::path::Path;

use polylet_harness::Cluster;
use serde_json::{Value, json};

use crate::HOST;
use crate::error::VmError;
use crate::guest::Guest;
use crate::node::NODE;

/// Where a node's credentials are in the machine.
#[derive(Debug, Clone, Copy)]
pub struct NodeCredentials {
    /// The certificate of the cluster's authority.
    pub authority: &'static str,
    /// The node's certificate.
    pub certificate: &'static str,
    /// Its key.
    pub key: &'static str,
    /// The kubeconfig, which names the others.
    pub kubeconfig: &'static str,
}

impl NodeCredentials {
    /// Writes the credentials of the node; its key and kubeconfig are root's alone.
    ///
    /// # Errors
    /// Fails if the machine does not respond.
    pub async fn write(&self, guest: &Guest, cluster: &Cluster) -> Result<(), VmError> {
        let user = format!("system:node:{NODE}");
        let (certificate, key) = cluster.identity("vm-node", &user, &["system:nodes"])?;
        for (from, to) in [
            (cluster.authority().as_path(), self.authority),
            (&certificate, self.certificate),
            (&key, self.key),
        ] {
            guest.copy(from, to).await?;
        }
        let server = cluster.server().replace("127.0.0.1", &HOST.to_string());
        let text = yaml(&self.content(&server))?;
        guest.write(self.kubeconfig, &text).await?;
        let Self {
            key, kubeconfig, ..
        } = self;
        guest.sh(&format!("chmod 600 {key} {kubeconfig}")).await?;
        Ok(())
    }

    fn content(&self, server: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "test",
                "cluster": { "server": server, "certificate-authority": Path::new(self.authority) },
            }],
            "users": [{
                "name": "node",
                "user": { "client-certificate": self.certificate, "client-key": self.key },
            }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "node" } }],
            "current-context": "test",
        })
    }
}

pub(crate) fn yaml(value: &Value) -> Result<String, VmError> {
    let text = serde_yaml_ng::to_string(value);
    let text = text.map_err(|source| polylet_harness::HarnessError::Yaml {
        what: "configuration",
        source,
    });
    Ok(text?)
}
