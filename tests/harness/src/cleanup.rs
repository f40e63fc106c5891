use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};

use crate::containerd;
use crate::cri::Cri;
use crate::scratch::{self, DEVICE_PLUGINS, ScratchInfo};
use crate::{cgroup, network, procs, wait};

/// Where a kubelet links to the logs of containers.
pub(crate) const STANDARD_LINKS: &str = "/var/log/containers";

/// Removes everything of the run in `dir`: in order while its containerd responds, then the rest by
/// force. Returns what could not be removed; empty on success.
///
/// Depends only on the directory, so that it works after a normal end, a panic or a signal, and for
/// the directory of a run that was killed earlier.
pub fn sweep(dir: &Path) -> Vec<String> {
    let facts = scratch::read_facts(dir);
    end_node(dir);
    remove_pods(dir, &facts);
    end_containerd(dir);
    procs::kill(&procs::list(dir));
    cgroup::remove(&facts.cgroup);
    unmount_below(dir);
    if !facts.bridge.is_empty() {
        network::remove(&facts.bridge);
    }
    remove_records(dir);
    let plugins_in_use = UnixStream::connect(scratch::PLUGIN_REGISTRATION).is_ok();
    for made in facts.made.iter().rev() {
        let is_of_plugins = made.starts_with(DEVICE_PLUGINS);
        if is_of_plugins && plugins_in_use {
            continue;
        }
        // A directory only if it is empty: another run may be using it.
        if fs::remove_dir(made).is_err() && is_of_plugins {
            let _ = fs::remove_file(made);
        }
    }
    if let Some(link) = own_link(dir, &facts) {
        // Reported below if it fails.
        let _ = fs::remove_file(link);
    }
    if mounts_below(dir).is_empty() {
        // Remaining files are reported below.
        let _ = fs::remove_dir_all(dir);
    }
    traces(dir, &facts)
}

/// The run's link outside the directory, if it is there and still points into it.
fn own_link<'a>(dir: &Path, facts: &'a ScratchInfo) -> Option<&'a Path> {
    let link = facts.link.as_deref()?;
    let target = fs::read_link(link).ok()?;
    target.starts_with(dir).then_some(link)
}

/// Existing resources of the run in `dir`.
pub fn traces(dir: &Path, facts: &ScratchInfo) -> Vec<String> {
    let mut left: Vec<String> = procs::list(dir)
        .iter()
        .map(|process| format!("process {} {}", process.pid, process.args.join(" ")))
        .collect();
    left.extend(
        mounts_below(dir)
            .iter()
            .map(|path| format!("mount {}", path.display())),
    );
    if !facts.cgroup.is_empty() {
        let cgroups = cgroup::existing(&facts.cgroup);
        left.extend(
            cgroups
                .iter()
                .map(|path| format!("cgroup {}", path.display())),
        );
    }
    if !facts.bridge.is_empty() && network::bridge_exists(&facts.bridge) {
        left.push(format!("bridge {}", facts.bridge));
    }
    left.extend(own_link(dir, facts).map(|link| format!("link {}", link.display())));
    if dir.exists() {
        left.push(format!("directory {}", dir.display()));
    }
    left
}

/// Stops the supervisor first, which stops the services in order, then the remaining processes. A
/// running kubelet would recreate what is removed.
fn end_node(dir: &Path) {
    let ours = |name: &str| -> Vec<procs::RunProcess> {
        let all = procs::list(dir).into_iter();
        all.filter(|process| process.name().starts_with(name))
            .collect()
    };
    let supervisors: Vec<_> = ours("polylet")
        .into_iter()
        .filter(|process| process.name() == "polylet")
        .collect();
    procs::end(&supervisors, Duration::from_secs(20));
    procs::end(&ours("polylet"), Duration::from_secs(5));
    procs::kill(&ours("kubelet"));
}

/// Pods are removed through the runtime, which knows their networks and snapshots. A killed
/// containerd is started once more for this.
fn remove_pods(dir: &Path, facts: &ScratchInfo) {
    let socket = containerd::socket(dir);
    let running = |name: &str| {
        procs::list(dir)
            .iter()
            .any(|process| process.name() == name)
    };
    if !running("containerd") {
        let Some(program) = facts
            .containerd
            .as_ref()
            .filter(|_| running("containerd-shim-runc-v2"))
        else {
            return;
        };
        let started = Command::new(program)
            .args([
                "--config",
                &containerd::config_file(dir).display().to_string(),
            ])
            .env("PATH", containerd::search_path(program))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if started.is_err() {
            return;
        }
    }
    // A separate thread, because the caller's runtime may be shutting down.
    let work = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .ok()?;
        runtime.block_on(async {
            let cri = Cri::new(&socket).ok()?;
            for _ in 0..50 {
                if cri.version().await.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            // Failures are followed by removal by force.
            let all = tokio::time::timeout(Duration::from_secs(60), cri.remove_all());
            all.await.ok()?.ok()
        })
    });
    let _ = work.join();
}

fn end_containerd(dir: &Path) {
    let all = procs::list(dir);
    let daemons: Vec<_> = all
        .into_iter()
        .filter(|process| process.name() == "containerd")
        .collect();
    procs::end(&daemons, Duration::from_secs(10));
}

/// Shim sockets, loopback network records and the kubelet's log links are outside the scratch
/// directory.
pub(crate) fn remove_records(dir: &Path) {
    for entry in fs::read_dir(STANDARD_LINKS).into_iter().flatten().flatten() {
        if fs::read_link(entry.path()).is_ok_and(|target| target.starts_with(dir)) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let tasks = dir.join("state/io.containerd.runtime.v2.task/k8s.io");
    for entry in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let id = entry.file_name().to_string_lossy().into_owned();
        let address = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        if let Some(socket) = address.trim().strip_prefix("unix://") {
            let _ = fs::remove_file(socket);
        }
        let _ = fs::remove_file(format!("/var/lib/cni/results/cni-loopback-{id}-lo"));
    }
}

/// Mount points below the directory, innermost first.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(unescape(point)))
        .filter(|point| point.starts_with(dir))
        .collect();
    points.reverse();
    points
}

fn unmount_below(dir: &Path) {
    wait::until_blocking(Duration::from_secs(5), || {
        let points = mounts_below(dir);
        for point in &points {
            // Lazy unmount: open files are released when their process ends.
            let _ = unmount(point, UnmountFlags::DETACH);
        }
        points.is_empty()
    });
}

/// The mount table escapes spaces and similar characters in octal.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            out.push(byte);
            at += 4;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn octal_in_the_mount_table() {
        assert_eq!(unescape("/a\\040b\\134"), "/a b\\");
        assert_eq!(unescape("/plain\\"), "/plain\\");
    }
}
