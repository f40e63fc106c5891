use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use polylet_harness::cluster::{is_ready, pod_path};
use polylet_harness::wait::Poll;
use polylet_harness::{Cluster, machine};
use polylet_vm::guest::until;
use polylet_vm::node::{self, NODE};
use polylet_vm::{Guest, Hardware, KubeletNode, ProgramSet, VirtualMachine, VmError, ok};
use serde_json::{Value, json};

use crate::load;

/// Time for a healthy step on an emulated processor.
pub(crate) const STEP_LIMIT: Duration = Duration::from_secs(240);

/// In MiB: most of it is the runtime's process beside the pod.
const MEMORY_PER_POD: u32 = 24;

/// Directory of the pods of the test.
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Swap space, which only pods that may swap can use.
const SWAP: &str = "fallocate -l 256M /swapfile; chmod 600 /swapfile; mkswap --quiet /swapfile; swapon /swapfile; \
                    echo '/swapfile none swap sw 0 0' >> /etc/fstab";

/// A machine with systemd that is a node of a cluster on this one.
pub(crate) struct SystemdNode {
    pub(crate) cluster: Cluster,
    pub(crate) vm: VirtualMachine,
    /// Where the node API is reachable.
    pub(crate) node_api: u16,
}

impl SystemdNode {
    /// Starts a cluster and a machine whose node agent is the kubelet.
    pub(crate) async fn start(package: &Path) -> Self {
        let say = |line: &str| eprintln!("{line}");
        let cluster = ok(Cluster::start(&node::cluster_options(), &say).await);
        let mut programs = ProgramSet::new(Path::new(env!("CARGO_BIN_EXE_polylet-vm-agent")));
        let kubelet = ok(cluster.programs().path("kubelet")).to_owned();
        programs.others = vec![kubelet, package.to_owned()];
        let node_api = ok(machine::free_port());
        let mut hardware = Hardware {
            node_api: Some(node_api),
            ..Hardware::default()
        };
        hardware.memory += load::count() * MEMORY_PER_POD;
        let mut vm = ok(VirtualMachine::create(&programs, hardware, &say).await);
        ok(vm.boot().await);
        ok(ok(vm.guest()).sh(SWAP).await);
        let kubelet = json!({
            "featureGates": { "MemoryQoS": true },
            "memoryReservationPolicy": "TieredReservation",
            "failSwapOn": false,
            "memorySwap": { "swapBehavior": "LimitedSwap" },
        });
        ok(KubeletNode { kubelet }
            .install(ok(vm.guest()), &cluster)
            .await);
        Self {
            cluster,
            vm,
            node_api,
        }
    }

    pub(crate) fn guest(&self) -> &Guest {
        ok(self.vm.guest())
    }

    /// Runs a shell script in the machine.
    pub(crate) async fn sh(&self, script: &str) -> String {
        ok(self.guest().sh_within(script, STEP_LIMIT).await)
    }

    /// Waits until a script in the machine prints what is expected.
    pub(crate) async fn wait_for(
        &self,
        what: &str,
        script: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        ok(until(what, STEP_LIMIT, || async {
            let printed = self.guest().output(script).await?;
            Ok(match wanted(&printed.stdout) {
                true => Poll::Ready(printed.stdout),
                false => Poll::Pending(printed.text()),
            })
        })
        .await)
    }

    pub(crate) async fn create(&self, kind: &str, object: &Value) {
        let path = format!("/api/v1/namespaces/default/{kind}");
        ok(self.cluster.client().create(&path, object).await);
    }

    pub(crate) async fn pod(&self, name: &str) -> Value {
        ok(self.cluster.client().get(&pod_path(name)).await).unwrap_or_default()
    }

    /// Waits until a pod satisfies a condition.
    pub(crate) async fn wait_pod(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let found = until(format!("pod {name} {what}"), STEP_LIMIT, || async {
            let pod = self.cluster.client().get(&pod_path(name)).await?;
            let pod = pod.unwrap_or_default();
            Ok(match wanted(&pod) {
                true => Poll::Ready(pod),
                false => Poll::Pending(pod["status"].to_string()),
            })
        });
        match found.await {
            Ok(pod) => pod,
            Err(error) => self.fail(error).await,
        }
    }

    pub(crate) async fn ready(&self, name: &str) -> Value {
        self.wait_pod(name, "to be Ready", is_ready).await
    }

    pub(crate) async fn delete(&self, name: &str) {
        let path = pod_path(name);
        ok(self.cluster.client().delete(&path, &Value::Null).await);
        self.gone(name).await;
    }

    /// Waits until a pod is gone.
    pub(crate) async fn gone(&self, name: &str) {
        self.wait_pod(name, "to be gone", Value::is_null).await;
    }

    /// Waits until the node of this boot is Ready, by what has happened since `since`.
    pub(crate) async fn node_ready(&self) {
        let boot_id = self.guest().boot_id().unwrap_or_default();
        let path = format!("/api/v1/nodes/{NODE}");
        ok(until("the node to be Ready", STEP_LIMIT, || async {
            let node = self.cluster.client().get(&path).await?.unwrap_or_default();
            let is_this_boot = node["status"]["nodeInfo"]["bootID"] == boot_id.as_str();
            Ok(match is_this_boot && is_ready(&node) {
                true => Poll::Ready(()),
                false => Poll::Pending(format!("of this boot: {is_this_boot}")),
            })
        })
        .await);
    }

    /// Container ids and restart counts of all pods.
    pub(crate) async fn identities(&self) -> BTreeMap<String, String> {
        let list = ok(self.cluster.client().get(PODS).await).unwrap_or_default();
        let pods = list["items"].as_array().into_iter().flatten();
        pods.map(identity).collect()
    }

    /// Saves what the machine shows, and fails.
    pub(crate) async fn fail(&self, error: VmError) -> ! {
        self.vm.diagnose().await;
        panic!("{}", polylet_harness::error::report(&error))
    }
}

/// A pod's name, and its containers with their restart counts.
pub(crate) fn identity(pod: &Value) -> (String, String) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let statuses = pod["status"]["containerStatuses"].as_array();
    let containers = statuses.into_iter().flatten().map(|status| {
        let id = status["containerID"].as_str().unwrap_or("none");
        format!("{id} restarted {}", status["restartCount"])
    });
    (name.to_owned(), containers.collect::<Vec<_>>().join(", "))
}
