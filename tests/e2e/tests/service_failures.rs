//! Failures of a service that do not end its process, or that someone else causes: it hangs while it runs
//! or while it starts, exceeds its memory, or loses its socket. Each is found and mended, and pods and
//! other services do not notice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, example, node, ok, pod, wait_for_log};
use polylet_harness::node::{SERVICES, default_bin_dir};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView, SupervisedService};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn removed_sockets_are_restored() {
    let mut node = node().await;
    let web = example(&node).await;
    ok(node.wait_in_step().await);
    let before = ok(node.services().await);
    let mut steps = Steps::new();
    for name in SERVICES.iter().chain(&["supervisor"]) {
        steps
            .run(&format!("the socket of {name} is removed"), async {
                let socket = node.socket(name);
                ok(fs::remove_file(&socket));
                ok(until(format!("the socket of {name}"), || async {
                    match tokio::net::UnixStream::connect(&socket).await {
                        Ok(_) => Poll::Ready(()),
                        Err(error) => Poll::Pending(error.to_string()),
                    }
                })
                .await);
            })
            .await;
    }
    steps
        .run("no process was replaced, and pods start", async {
            ok(node.wait_in_step().await);
            let pids = |services: &[SupervisedService]| -> Vec<u32> {
                services.iter().map(|one| one.pid).collect()
            };
            assert_eq!(pids(&ok(node.services().await)), pids(&before));
            ok(node.put("next.json", &pod("next", RUNS, &json!({}))));
            ok(node.wait_ready("next").await);
            verify_undisturbed(&node, &web).await;
        })
        .await;
    steps.finish();
    ok(node.remove());
}

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn a_service_beyond_its_memory_is_replaced_alone() {
    let mut node = node().await;
    let web = example(&node).await;
    ok(node.wait_in_step().await);
    let before = ok(node.services().await);
    let mut steps = Steps::new();
    for service in ["prober", "sync-coordinator"] {
        steps
            .run(&format!("{service} is killed by its cgroup"), async {
                let found = before.iter().find(|one| one.name == service);
                let pid = found.map(|one| one.pid).expect("a process");
                let cgroup = Limited::new(&node, service);
                cgroup.add(pid);
                // More than is left in what the process already has.
                let name = format!("beside-{service}");
                let mut large: Value = ok(serde_json::from_str(&pod(&name, RUNS, &json!({}))));
                large["metadata"]["annotations"] = json!({ "large": "x".repeat(200 << 10) });
                ok(node.put(&format!("{name}.json"), &large.to_string()));
                wait_replaced(&node, service, pid).await;
                ok(node.wait_ready(&name).await);
                ok(node.wait_in_step().await);
                let now = ok(node.services().await);
                for other in before.iter().filter(|one| one.name != service) {
                    let same = now.iter().any(|one| {
                        one.name == other.name && (one.pid == other.pid || one.name == "prober")
                    });
                    assert!(same, "{} was replaced", other.name);
                }
                verify_undisturbed(&node, &web).await;
            })
            .await;
    }
    steps.finish();
    ok(node.remove());
}

/// Half a minute for one that was ready, one and a half for one that was not.
#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn hung_services_are_replaced() {
    if !polylet_e2e::long() {
        return;
    }
    let programs = ok(tempfile::tempdir());
    for service in SERVICES {
        link(programs.path(), &format!("polylet-{service}"));
    }
    link(programs.path(), "polylet");
    // Stops itself when it is started for the first time.
    let stops = programs.path().join("polylet-eviction");
    let (marker, real) = (
        programs.path().join("stopped"),
        default_bin_dir().join("polylet-eviction"),
    );
    let script = format!(
        "#!/bin/bash\nif [ \"$1\" != --descriptor ] && [ ! -e {marker} ]; then touch {marker}; kill -STOP $$; fi\n\
         exec -a polylet-eviction {real} \"$@\"\n",
        marker = marker.display(),
        real = real.display()
    );
    ok(fs::remove_file(&stops));
    ok(fs::write(&stops, script));
    ok(fs::set_permissions(
        &stops,
        fs::Permissions::from_mode(0o755),
    ));
    let mut node = ok(Node::prepare(
        NodeOptions {
            bin_dir: Some(programs.path().to_owned()),
            ..NodeOptions::default()
        },
        &|line| eprintln!("{line}"),
    )
    .await);
    ok(node.spawn());
    // Everything that does not need it works.
    let web = example(&node).await;
    let mut steps = Steps::new();
    steps
        .run("a hung service is replaced", async {
            let services = ok(node.services().await);
            let prober = services.iter().find(|one| one.name == "prober");
            let pid = prober.map(|one| one.pid).expect("a process");
            stop(pid);
            wait_replaced(&node, "prober", pid).await;
            wait_for_log(&node, "watchdog").await;
        })
        .await;
    steps
        .run("one that hangs while it starts is replaced", async {
            let waited = tokio::time::timeout(Duration::from_secs(120), async {
                while node.wait_in_step().await.is_err() {}
            });
            waited.await.expect("all services to be in step");
        })
        .await;
    verify_undisturbed(&node, &web).await;
    steps.finish();
    ok(node.remove());
}

fn link(directory: &Path, name: &str) {
    ok(std::os::unix::fs::symlink(
        default_bin_dir().join(name),
        directory.join(name),
    ));
}

fn stop(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    ok(kill_process(pid.expect("a process id"), Signal::STOP));
}

async fn wait_replaced(node: &Node, service: &str, pid: u32) {
    ok(until(format!("another process of {service}"), || async {
        let services = match node.services().await {
            Ok(services) => services,
            Err(error) => return Poll::Pending(polylet_harness::error::report(&error)),
        };
        match services.iter().find(|one| one.name == service) {
            Some(found) if found.pid != 0 && found.pid != pid => Poll::Ready(()),
            found => Poll::Pending(format!("{found:?}")),
        }
    })
    .await);
}

async fn verify_undisturbed(node: &Node, pod: &PodView) {
    let now = ok(node.wait_ready("web").await);
    assert_eq!(now.identity(), pod.identity());
}

/// A cgroup with next to no memory.
struct Limited(std::path::PathBuf);

impl Limited {
    fn new(node: &Node, service: &str) -> Self {
        let name = format!("{}-{service}", node.cgroup().trim_matches('/'));
        let root = Path::new("/sys/fs/cgroup");
        let is_v2 = root.join("cgroup.controllers").exists();
        let hierarchy = if is_v2 { "" } else { "memory" };
        let directory = root.join(hierarchy).join(name);
        ok(fs::create_dir_all(&directory));
        let file = if is_v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        ok(fs::write(directory.join(file), "65536"));
        Self(directory)
    }

    fn add(&self, pid: u32) {
        ok(fs::write(self.0.join("cgroup.procs"), pid.to_string()));
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // The process is gone, or the test has failed.
        let _ = fs::remove_dir(&self.0);
    }
}
