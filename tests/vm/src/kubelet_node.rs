use polylet_harness::Cluster;
use serde_json::{Value, json};

use crate::credentials::{NodeCredentials, yaml};
use crate::error::VmError;
use crate::guest::Guest;
use crate::node::{self, MANIFESTS, NODE};
use crate::programs::PROGRAMS;

/// Where kubeadm and the kubelet keep a node's credentials.
const CREDENTIALS: NodeCredentials = NodeCredentials {
    authority: "/etc/kubernetes/pki/ca.crt",
    certificate: "/var/lib/kubelet/pki/kubelet-client.crt",
    key: "/var/lib/kubelet/pki/kubelet-client.key",
    kubeconfig: "/etc/kubernetes/kubelet.conf",
};

const CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// A node with the real kubelet as a unit, laid out as kubeadm does it: what Polylet takes over. Its
/// program is `kubelet` on the disk of programs.
#[derive(Debug, Clone)]
pub struct KubeletNode {
    /// Fields merged into `KubeletConfiguration`.
    pub kubelet: Value,
}

impl KubeletNode {
    /// Imports the images, writes configuration, credentials and unit, and starts the kubelet, now and at
    /// every boot.
    ///
    /// # Errors
    /// Fails if the machine does not respond or a step fails in it.
    pub async fn install(&self, guest: &Guest, cluster: &Cluster) -> Result<(), VmError> {
        node::containerd_ready(guest).await?;
        node::import_images(guest).await?;
        CREDENTIALS.write(guest, cluster).await?;
        let fields = node::kubelet_configuration(CREDENTIALS.authority, &self.kubelet);
        guest.write(CONFIG, &yaml(&fields)?).await?;
        guest
            .write("/etc/systemd/system/kubelet.service", &unit())
            .await?;
        guest
            .sh(&format!(
                "mkdir -p {MANIFESTS}; systemctl enable --quiet --now kubelet.service; sync"
            ))
            .await?;
        Ok(())
    }
}

/// A minimum for `KubeletNode`, with the fields of a node that joins a cluster.
impl Default for KubeletNode {
    fn default() -> Self {
        Self { kubelet: json!({}) }
    }
}

/// As in the package of the kubelet.
fn unit() -> String {
    let kubeconfig = CREDENTIALS.kubeconfig;
    format!(
        "[Unit]\n\
         Description=kubelet: The Kubernetes Node Agent\n\
         RequiresMountsFor={PROGRAMS}\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         ExecStart={PROGRAMS}/kubelet --config={CONFIG} --kubeconfig={kubeconfig} --hostname-override={NODE}\n\
         Restart=always\n\
         StartLimitInterval=0\n\
         RestartSec=10\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}
