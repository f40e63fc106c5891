//! `polylet takeover` with a stand-in for systemctl, which records its calls and has the state of units in
//! files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const POLYLET: &str = env!("CARGO_BIN_EXE_polylet");

/// Units have a file each, `<unit>`, with the properties that `show` prints.
const SYSTEMCTL: &str = r#"#!/bin/sh
dir=$(dirname "$0")
while [ "${1#--}" != "$1" ]; do shift; done
verb=$1; shift
while [ "${1#--}" != "$1" ]; do shift; done
if [ "$verb" = show ]; then
    cat "$dir/$1" 2>/dev/null || printf 'LoadState=not-found\nActiveState=inactive\n'
    exit 0
fi
echo "$verb $*" >> "$dir/calls"
if [ -e "$dir/fail-$verb" ]; then
    echo "Job for $1 failed." >&2
    exit 1
fi
"#;

/// A node with a kubelet's process, and Polylet's units.
struct Node {
    dir: tempfile::TempDir,
    kubelet: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.kubelet.kill();
        let _ = self.kubelet.wait();
    }
}

impl Node {
    fn new() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let systemctl = dir.path().join("systemctl");
        fs::write(&systemctl, SYSTEMCTL).unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(
            dir.path().join("kubelet.yaml"),
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 42\n",
        )
        .unwrap();
        // A shell that waits, with the arguments of a kubelet.
        let kubelet = Command::new("sh")
            .args(["-c", "read line", "/usr/bin/kubelet"])
            .arg(format!(
                "--config={}",
                dir.path().join("kubelet.yaml").display()
            ))
            .args(["--kubeconfig", "/etc/kubernetes/kubelet.conf"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let node = Node { dir, kubelet };
        let pid = node.kubelet.id();
        node.unit("kubelet.service", "active", "enabled", pid);
        node.unit("polylet.target", "inactive", "disabled", 0);
        node.unit("polylet.service", "inactive", "disabled", 0);
        node
    }

    fn unit(&self, name: &str, active: &str, enabled: &str, pid: u32) {
        let text = format!(
            "LoadState=loaded\nActiveState={active}\nUnitFileState={enabled}\nMainPID={pid}\n"
        );
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("config.yaml")
    }

    fn run(&self, args: &[&str]) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new(POLYLET)
            .arg("takeover")
            .args(args)
            .arg("--config")
            .arg(self.config())
            .env("PATH", format!("{}:{path}", self.dir.path().display()))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr];
    streams.map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn takeover_says_first_what_it_does_and_takes_over_the_configuration() {
    let node = Node::new();
    let dry = node.run(&["--dry-run"]);
    assert!(dry.status.success(), "{}", text(&dry));
    for line in [
        "configuration of the running kubelet",
        "stop kubelet.service",
        "start polylet.target",
    ] {
        assert!(text(&dry).contains(line), "{}", text(&dry));
    }
    assert_eq!(node.calls(), [""; 0]);
    assert!(!node.config().exists());

    let unconfirmed = node.run(&[]);
    assert_eq!(
        unconfirmed.status.code(),
        Some(64),
        "{}",
        text(&unconfirmed)
    );
    assert_eq!(node.calls(), [""; 0]);

    let done = node.run(&["--yes"]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(
        node.calls(),
        [
            "stop kubelet.service",
            "disable kubelet.service",
            "enable polylet.target",
            "start polylet.target"
        ]
    );
    let config = fs::read_to_string(node.config()).unwrap();
    assert!(config.contains("maxPods: 42"), "{config}");
    assert!(
        config.contains("kubeconfig: /etc/kubernetes/kubelet.conf"),
        "{config}"
    );
    let mode = fs::metadata(node.config()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn configuration_of_an_operator_stays() {
    let node = Node::new();
    let own = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n";
    fs::write(node.config(), own).unwrap();
    let done = node.run(&["--yes", "--single"]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(fs::read_to_string(node.config()).unwrap(), own);
    assert_eq!(
        node.calls().last().map(String::as_str),
        Some("start polylet.service")
    );
}

#[test]
fn invalid_configuration_leaves_the_kubelet_alone() {
    let node = Node::new();
    fs::write(node.config(), "kind: KubeletConfiguration\nmaxPods: many\n").unwrap();
    let refused = node.run(&["--yes"]);
    assert_eq!(refused.status.code(), Some(78), "{}", text(&refused));
    assert_eq!(node.calls(), [""; 0]);
}

#[test]
fn back_starts_the_kubelet_again() {
    let node = Node::new();
    node.unit("kubelet.service", "inactive", "disabled", 0);
    node.unit("polylet.target", "active", "enabled", 0);
    let done = node.run(&["--back", "--yes"]);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(
        node.calls(),
        [
            "stop polylet.target",
            "disable polylet.target",
            "enable kubelet.service",
            "start kubelet.service"
        ]
    );
    node.unit("kubelet.service", "active", "enabled", 1);
    node.unit("polylet.target", "inactive", "disabled", 0);
    let again = node.run(&["--back", "--yes"]);
    assert!(
        text(&again).starts_with("Nothing to do"),
        "{}",
        text(&again)
    );
    assert_eq!(node.calls().len(), 4);
}

#[test]
fn a_failed_step_says_what_was_done_and_how_to_undo_it() {
    let node = Node::new();
    fs::write(node.dir.path().join("fail-start"), "").unwrap();
    let failed = node.run(&["--yes"]);
    assert_eq!(failed.status.code(), Some(70));
    let text = text(&failed);
    assert!(text.contains("Job for polylet.target failed."), "{text}");
    assert!(
        text.contains("done so far: ") && text.contains("polylet takeover --back"),
        "{text}"
    );
}

#[test]
fn a_kubelet_that_is_not_installed_is_named() {
    let node = Node::new();
    fs::remove_file(node.dir.path().join("kubelet.service")).unwrap();
    let refused = node.run(&["--back", "--yes"]);
    assert!(
        text(&refused).contains("kubelet.service is not installed"),
        "{}",
        text(&refused)
    );
    assert_eq!(node.calls(), [""; 0]);
}
