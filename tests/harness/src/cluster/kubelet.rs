use std::fs;

use serde_json::{Value, json};

use super::{Cluster, Part};
use crate::Node;
use crate::error::{HarnessError, file};

impl Cluster {
    /// The real kubelet for a node that was prepared or is down: on the same directories, with the
    /// same configuration and certificate. Not started yet; drop it before the node.
    ///
    /// # Errors
    /// When its configuration cannot be written.
    pub fn kubelet(&self, node: &Node) -> Result<Part, HarnessError> {
        let dir = node.scratch();
        let config = dir.join("kubelet.yaml");
        let mut fields = node.kubelet_configuration();
        // What this machine may not have: the right to lower its own score, and many open files.
        // The plugins' directory is elsewhere by default, outside all directories of ours.
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
        let args = vec![
            flag("config", &config.display()),
            flag("kubeconfig", &self.node_kubeconfig(node.name())?.display()),
            flag("hostname-override", &node.name()),
            flag("root-dir", &node.dirs().root.display()),
            flag("cert-dir", &dir.join("kubelet-pki").display()),
        ];
        let program = self.programs.path("kubelet")?;
        Ok(Part::new("kubelet", program, args, dir))
    }
}
