use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_harness::wait::Poll;
use polylet_vm::guest::until;
use polylet_vm::{Guest, HOST, Hardware, ProgramSet, VirtualMachine, VmError, node, ok};

use crate::images::{ARCHIVE, PACKAGE};

/// Time for a step on an emulated processor; `kubeadm init` waits for a whole control plane.
const STEP_LIMIT: Duration = Duration::from_secs(600);

/// As in the package of the kubelet.
const KUBELET_UNIT: &str = "[Unit]
Description=kubelet: The Kubernetes Node Agent
RequiresMountsFor=/programs
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
";

/// As in the package of kubeadm.
const KUBEADM_DROP_IN: &str = r#"[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

/// A virtual machine with the packages of kubeadm, kubelet and Polylet installed.
pub(crate) struct Machine {
    pub(crate) vm: VirtualMachine,
}

impl Machine {
    /// Boots one. `api_server` is the port of this machine's loopback address that leads to its API server.
    pub(crate) async fn boot(files: &[PathBuf], api_server: Option<u16>) -> Self {
        let say = |line: &str| eprintln!("{line}");
        let mut programs = ProgramSet::new(Path::new(env!("CARGO_BIN_EXE_polylet-vm-agent")));
        programs.others = files.to_vec();
        let hardware = Hardware {
            memory: 3072,
            api_server,
            ..Hardware::default()
        };
        let mut vm = ok(VirtualMachine::create(&programs, hardware, &say).await);
        ok(vm.boot().await);
        let machine = Self { vm };
        let guest = machine.guest();
        ok(node::containerd_ready(guest).await);
        for (path, content) in [
            ("/etc/systemd/system/kubelet.service", KUBELET_UNIT),
            (
                "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
                KUBEADM_DROP_IN,
            ),
        ] {
            ok(guest.write(path, content).await);
        }
        machine
            .sh(&format!(
                "ln -s /programs/kubelet /programs/kubectl /programs/kubeadm /usr/bin/; \
                 for archive in /programs/images/*.tar /programs/{ARCHIVE}; do ctr -n k8s.io images import $archive; done; \
                 systemctl daemon-reload; systemctl enable --quiet kubelet; \
                 dpkg --install /programs/{PACKAGE} < /dev/null 2>&1"
            ))
            .await;
        machine
    }

    pub(crate) fn guest(&self) -> &Guest {
        ok(self.vm.guest())
    }

    /// Runs a shell script in the machine.
    pub(crate) async fn sh(&self, script: &str) -> String {
        match self.guest().sh_within(script, STEP_LIMIT).await {
            Ok(output) => output,
            Err(error) => self.fail(error).await,
        }
    }

    /// Runs kubectl as administrator.
    pub(crate) async fn kubectl(&self, args: &str) -> String {
        self.sh(&format!(
            "kubectl --kubeconfig=/etc/kubernetes/admin.conf {args}"
        ))
        .await
    }

    /// Waits until kubectl prints what is expected; its errors are not the end, as a control plane starts.
    pub(crate) async fn wait_for(&self, what: &str, args: &str, wanted: impl Fn(&str) -> bool) {
        let script = format!("kubectl --kubeconfig=/etc/kubernetes/admin.conf {args}");
        let waited = until(what, STEP_LIMIT, || async {
            let printed = self.guest().output(&script).await?;
            Ok(match printed.succeeded() && wanted(&printed.stdout) {
                true => Poll::Ready(()),
                false => Poll::Pending(printed.text()),
            })
        });
        if let Err(error) = waited.await {
            self.fail(error).await;
        }
    }

    pub(crate) async fn node_ready(&self, name: &str) {
        let condition = r#"{.status.conditions[?(@.type=="Ready")].status}"#;
        let args = format!("get node {name} --output='jsonpath={condition}'");
        let what = format!("node {name} to be Ready");
        self.wait_for(&what, &args, |status| status == "True").await;
    }

    /// The name of the program that `kubelet.service` runs.
    pub(crate) async fn agent(&self) -> String {
        let program = "tr '\\0' ' ' < /proc/$(systemctl show --value --property=MainPID kubelet.service)/cmdline";
        let line = self.sh(program).await;
        let path = line.split_whitespace().next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default().to_owned()
    }

    /// Ids, processes and states of all containers.
    pub(crate) async fn containers(&self) -> String {
        self.sh("ctr --namespace k8s.io tasks list | sort").await
    }

    /// Makes this machine the control plane.
    pub(crate) async fn init(&self, name: &str, port: u16) {
        let config = format!(
            "apiVersion: kubeadm.k8s.io/v1beta4\n\
             kind: InitConfiguration\n\
             nodeRegistration:\n  name: {name}\n  criSocket: unix:///run/containerd/containerd.sock\n  \
             imagePullPolicy: IfNotPresent\n  imagePullSerial: false\n\
             timeouts:\n  controlPlaneComponentHealthCheck: 10m0s\n  kubeletHealthCheck: 5m0s\n  \
             kubernetesAPICall: 5m0s\n  tlsBootstrap: 5m0s\n\
             ---\n\
             apiVersion: kubeadm.k8s.io/v1beta4\n\
             kind: ClusterConfiguration\n\
             kubernetesVersion: v1.36.3\n\
             controlPlaneEndpoint: {HOST}:{port}\n\
             networking:\n  serviceSubnet: 10.96.0.0/12\n\
             ---\n\
             apiVersion: kubelet.config.k8s.io/v1beta1\n\
             kind: KubeletConfiguration\n\
             cgroupDriver: systemd\n\
             serverTLSBootstrap: true\n"
        );
        ok(self.guest().write("/root/kubeadm.yaml", &config).await);
        self.sh("kubeadm init --config /root/kubeadm.yaml --skip-phases=preflight,addon 2>&1")
            .await;
    }

    async fn fail(&self, error: VmError) -> ! {
        self.vm.diagnose().await;
        panic!("{}", polylet_harness::error::report(&error))
    }
}
