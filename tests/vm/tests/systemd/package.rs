use std::path::{Path, PathBuf};

use polylet_harness::node::default_bin_dir;
use polylet_vm::ok;

use crate::node::SystemdNode;

/// The package's file, and its name on the disk of programs.
const PACKAGE: &str = "polylet.deb";

/// Builds the package from the programs under test.
pub(crate) fn build(directory: &Path) -> PathBuf {
    let package = directory.join(PACKAGE);
    let program = default_bin_dir().join("polylet-multicall");
    ok(polylet_packaging::deb::build(&program, &package, true));
    package
}

/// Beside a kubelet, the installation asks nothing, and starts, enables and stops nothing.
pub(crate) async fn installs_quietly(node: &SystemdNode) {
    let kubelet =
        "systemctl show --property=MainPID,NRestarts,ActiveState,UnitFileState kubelet.service";
    let before = node.sh(kubelet).await;
    assert!(before.contains("ActiveState=active"), "{before}");
    let said = node
        .sh(&format!(
            "dpkg --install /programs/{PACKAGE} < /dev/null 2>&1"
        ))
        .await;
    assert!(said.contains("nothing was started or enabled"), "{said}");
    assert_eq!(node.sh(kubelet).await, before, "the kubelet");
    let active = "systemctl list-units --all --no-legend --plain 'polylet*' | grep -v polylet-vm-agent || true";
    assert_eq!(node.sh(active).await, "", "units of Polylet");
    let enabled = "systemctl is-enabled polylet.target polylet.service || true";
    assert_eq!(node.sh(enabled).await, "disabled\ndisabled\n");
    // Documentation, of which images have none, and completions.
    let content = node.sh("dpkg --listfiles polylet").await;
    for file in [
        "/usr/bin/polylet",
        "/usr/share/man/man1/polylet-takeover.1.gz",
        "/usr/share/bash-completion/completions/polylet",
        "/etc/polylet/config.yaml",
    ] {
        assert!(
            content.lines().any(|line| line == file),
            "{file}: {content}"
        );
    }
}

/// Containers outlive the package, and it says so.
pub(crate) async fn removal_leaves_pods(node: &SystemdNode) {
    let tasks = "ctr --namespace k8s.io tasks list --quiet | sort";
    let before = node.sh(tasks).await;
    let said = node.sh("dpkg --remove polylet 2>&1").await;
    assert!(said.contains("Its pods keep running"), "{said}");
    assert!(said.contains("systemctl enable --now kubelet"), "{said}");
    assert_eq!(node.sh(tasks).await, before, "containers");
    let left = "ls -d /usr/lib/polylet /usr/bin/polylet 2>/dev/null || true; pgrep --list-full polylet- | grep -v vm-agent || true";
    assert_eq!(node.sh(left).await, "", "files and processes");
    // What the message says works.
    node.sh("systemctl enable --now kubelet").await;
}
