use std::path::Path;

use crate::cgroup::TestCgroupDriver;
use crate::image;
use crate::machine;

/// Kubernetes' own specs about runtime classes expect a handler of this name.
const UPSTREAM_HANDLER: &str = "test-handler";

/// The configuration of a private containerd in `dir`. `restrict_oom_score_adj` is for machines
/// that do not permit lower OOM scores. Unprivileged ports and pings keep the machine's settings,
/// because a sandbox on the host network must not change them.
pub(crate) fn text(dir: &Path, major: u32, plugins: &Path) -> String {
    let root = dir.join("root");
    let place = if root.exists() { &root } else { dir };
    let overlay = machine::can_overlay(place);
    let dir = dir.display();
    let plugins = plugins.display();
    let pause = image::PAUSE;
    let systemd = TestCgroupDriver::from_env() == TestCgroupDriver::Systemd;
    // overlayfs cannot be stacked on overlayfs, the usual root of a container.
    let snapshotter = if overlay { "overlayfs" } else { "native" };
    let head = format!(
        r#"root = "{dir}/root"
state = "{dir}/state"
oom_score = 0
[grpc]
address = "{dir}/containerd.sock"
[ttrpc]
address = "{dir}/containerd.sock.ttrpc"
"#
    );
    let common = r"restrict_oom_score_adj = true
enable_unprivileged_ports = false
enable_unprivileged_icmp = false
netns_mounts_under_state_dir = true
";
    if major >= 2 {
        let cri = r#"plugins."io.containerd.cri.v1.runtime""#;
        let images = r#"plugins."io.containerd.cri.v1.images""#;
        format!(
            r#"version = 3
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
{head}
[{images}]
snapshotter = "{snapshotter}"
[{images}.registry]
config_path = "{dir}/certs.d"
[{images}.pinned_images]
sandbox = "{pause}"
[{cri}]
{common}
[{cri}.cni]
bin_dirs = ["{plugins}", "{dir}/cni-bin"]
conf_dir = "{dir}/cni"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
Root = "{dir}/runc"
SystemdCgroup = {systemd}
[{cri}.containerd.runtimes.{UPSTREAM_HANDLER}]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.{UPSTREAM_HANDLER}.options]
Root = "{dir}/runc"
SystemdCgroup = {systemd}
"#
        )
    } else {
        let cri = r#"plugins."io.containerd.grpc.v1.cri""#;
        format!(
            r#"version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
{head}
[{cri}]
sandbox_image = "{pause}"
{common}
[{cri}.registry]
config_path = "{dir}/certs.d"
[{cri}.cni]
bin_dir = "{plugins}"
conf_dir = "{dir}/cni"
[{cri}.containerd]
snapshotter = "{snapshotter}"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
Root = "{dir}/runc"
SystemdCgroup = {systemd}
[{cri}.containerd.runtimes.{UPSTREAM_HANDLER}]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.{UPSTREAM_HANDLER}.options]
Root = "{dir}/runc"
SystemdCgroup = {systemd}
"#
        )
    }
}
