use std::fs;

use serde_json::{Value, json};

use super::{Cluster, Component};
use crate::Node;
use crate::error::{HarnessError, file};

impl Cluster {
    /// The real kubelet for a node that is prepared or stopped, with the same directories,
    /// configuration and certificate. Not started yet; drop it before the node.
    ///
    /// # Errors
    /// Fails if its configuration cannot be written.
    pub fn kubelet(&self, node: &Node) -> Result<Component, HarnessError> {
        self.kubelet_by(node, &self.server())
    }

    /// Like [`Cluster::kubelet`], with another URL for the API server, such as that of a TCP proxy.
    ///
    /// # Errors
    /// See [`Cluster::kubelet`].
    pub fn kubelet_by(&self, node: &Node, server: &str) -> Result<Component, HarnessError> {
        let dir = node.scratch();
        let config = dir.join("kubelet.yaml");
        let mut fields = node.kubelet_configuration();
        // This machine may not permit a lower OOM score or a high limit of open files.
        // The default plugin directory is outside the scratch directory.
        let more = json!({
            "oomScoreAdj": 0,
            "maxOpenFiles": 20000,
            "volumePluginDir": dir.join("volume-plugins"),
        });
        if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
            fields.extend(more);
        }
        file("write", &config, fs::write(&config, fields.to_string()))?;
        let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
        let kubeconfig = self.node_kubeconfig_by(node.name(), server)?;
        let args = vec![
            flag("config", &config.display()),
            flag("kubeconfig", &kubeconfig.display()),
            flag("hostname-override", &node.name()),
            flag("root-dir", &node.dirs().root.display()),
            // For its cAdvisor, which does not know the configuration.
            flag(
                "containerd",
                &node.containerd.endpoint().trim_start_matches("unix://"),
            ),
            flag("cert-dir", &dir.join("kubelet-pki").display()),
        ];
        let program = self.programs.path("kubelet")?;
        Ok(Component::new("kubelet", program, args, dir))
    }
}
