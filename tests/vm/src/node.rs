use std::time::Duration;

use polylet_harness::wait::Poll;
use polylet_harness::{Cluster, ClusterOptions};
use serde_json::{Value, json};

use crate::HOST;
use crate::agent::{RuntimeObservation, StateInspection};
use crate::credentials::{NodeCredentials, yaml};
use crate::error::VmError;
use crate::guest::{Guest, until};
use crate::programs::PROGRAMS;

/// The node's name in the cluster.
pub const NODE: &str = "vm";

/// Directory of static pod manifests in the machine.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// The services' configuration in the machine.
const CONFIG: &str = "/etc/polylet/config.yaml";

/// The node's credentials in the machine.
const CREDENTIALS: NodeCredentials = NodeCredentials {
    authority: "/etc/polylet/ca.crt",
    certificate: "/etc/polylet/node.crt",
    key: "/etc/polylet/node.key",
    kubeconfig: "/etc/polylet/kubeconfig",
};

/// Result of the inspection of state files before each start of the services.
const INSPECTION: &str = "/run/polylet-inspection.json";

/// Time until containerd responds, and for the services' start.
const START_LIMIT: Duration = Duration::from_secs(180);

/// Options of a cluster that has nodes in virtual machines.
pub fn cluster_options() -> ClusterOptions {
    ClusterOptions {
        addresses: vec![HOST.into()],
        ..ClusterOptions::default()
    }
}

/// The node in a virtual machine: containerd and Polylet as units of its systemd, joined to a cluster
/// on this machine.
#[derive(Debug, Clone)]
pub struct GuestNode {
    /// Fields merged into `KubeletConfiguration`.
    pub kubelet: Value,
}

impl Default for GuestNode {
    fn default() -> Self {
        Self { kubelet: json!({}) }
    }
}

impl GuestNode {
    /// Imports the images, writes configuration, credentials and unit, and starts the services, now
    /// and at every boot. Everything is on disk when this returns.
    ///
    /// # Errors
    /// Fails if the machine does not respond or a step fails in it.
    pub async fn install(&self, guest: &Guest, cluster: &Cluster) -> Result<(), VmError> {
        containerd_ready(guest).await?;
        import_images(guest).await?;
        CREDENTIALS.write(guest, cluster).await?;
        let documents = [
            yaml(&kubelet_configuration(CREDENTIALS.authority, &self.kubelet))?,
            yaml(&polylet_configuration())?,
        ];
        guest.write(CONFIG, &documents.join("---\n")).await?;
        guest
            .write("/etc/systemd/system/polylet.service", &unit())
            .await?;
        // What is tested is the services' files, not whether the test's own were synced.
        guest
            .sh(&format!(
                "mkdir -p {MANIFESTS}; systemctl enable --quiet --now polylet.service; sync"
            ))
            .await?;
        Ok(())
    }
}

/// The kubelet's configuration of a node in a cluster, with these fields merged into it.
pub(crate) fn kubelet_configuration(authority: &str, more: &Value) -> Value {
    let mut base = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": MANIFESTS,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "systemd",
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": authority },
        },
        "authorization": { "mode": "Webhook" },
    });
    if let (Some(fields), Some(more)) = (base.as_object_mut(), more.as_object()) {
        fields.extend(more.clone());
    }
    base
}

/// Imports the images of the disk of programs.
pub(crate) async fn import_images(guest: &Guest) -> Result<(), VmError> {
    let import = "ctr -n k8s.io images import $archive";
    let script = format!("for archive in {PROGRAMS}/images/*.tar; do {import}; done");
    guest.sh(&script).await.map(drop)
}

/// Waits until containerd responds.
///
/// # Errors
/// Fails after some minutes.
pub async fn containerd_ready(guest: &Guest) -> Result<(), VmError> {
    until("containerd to respond", START_LIMIT, || async {
        let output = guest
            .run(&["ctr", "version"], "", crate::guest::LIMIT)
            .await?;
        Ok(match output.succeeded() {
            true => Poll::Ready(()),
            false => Poll::Pending(output.text()),
        })
    })
    .await
}

/// Waits until every service is serving, and returns the inspection of the state files that was done
/// before their start.
///
/// # Errors
/// Fails after some minutes, with the services' status.
pub async fn services_ready(guest: &Guest) -> Result<StateInspection, VmError> {
    let polylet = format!("{PROGRAMS}/node/polylet");
    let args = [
        polylet.as_str(),
        "--config",
        CONFIG,
        "--output=json",
        "status",
    ];
    until("the services to be serving", START_LIMIT, || async {
        let output = guest.run(&args, "", crate::guest::LIMIT).await?;
        Ok(match serde_json::from_str::<Value>(&output.stdout) {
            Ok(status) if output.succeeded() && all_serving(&status) => Poll::Ready(()),
            _ => Poll::Pending(output.text()),
        })
    })
    .await?;
    guest.json(&["cat", INSPECTION]).await
}

fn all_serving(status: &Value) -> bool {
    let services = status["services"].as_array();
    services.is_some_and(|services| services.iter().all(|one| one["health"] == "SERVING"))
}

/// Inspects the state files of the running services.
///
/// # Errors
/// Fails if the machine does not respond.
pub async fn inspect(guest: &Guest) -> Result<StateInspection, VmError> {
    let script = format!("{PROGRAMS}/polylet-vm-agent inspect {STATE_DIRECTORIES}");
    guest.json(&["sh", "-c", &script]).await
}

/// Observes the node's pods without asking the services.
///
/// # Errors
/// Fails if the machine does not respond.
pub async fn observe(guest: &Guest) -> Result<RuntimeObservation, VmError> {
    let agent = format!("{PROGRAMS}/polylet-vm-agent");
    guest.json(&[agent.as_str(), "observe"]).await
}

/// Directories of the services' state, as words of a shell.
const STATE_DIRECTORIES: &str = "/var/lib/polylet /run/polylet /var/lib/kubelet/pods/*/plugins";

fn polylet_configuration() -> Value {
    json!({
        "apiVersion": "polylet.dev/v1alpha1",
        "kind": "PolyletConfiguration",
        "nodeName": NODE,
        "binDirectory": format!("{PROGRAMS}/node"),
        "kubeconfig": CREDENTIALS.kubeconfig,
    })
}

/// The state files are inspected before the services can repair or replace them.
fn unit() -> String {
    format!(
        "[Unit]\n\
         Description=Polylet\n\
         RequiresMountsFor={PROGRAMS}\n\
         Wants=containerd.service\n\
         After=containerd.service network.target\n\
         \n\
         [Service]\n\
         ExecStartPre=/bin/sh -c '{PROGRAMS}/polylet-vm-agent inspect {STATE_DIRECTORIES} > {INSPECTION}'\n\
         ExecStart={PROGRAMS}/node/polylet --config {CONFIG} run\n\
         Restart=always\n\
         RestartSec=1\n\
         OOMScoreAdjust=-999\n\
         LimitNOFILE=1048576\n\
         TasksMax=infinity\n\
         Delegate=yes\n\
         StandardOutput=file:/dev/virtio-ports/polylet.log\n\
         StandardError=inherit\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}
