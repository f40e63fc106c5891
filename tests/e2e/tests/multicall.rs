//! The multicall binary: one file under eleven names, of which one is upgraded without affecting the
//! other services or a pod.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use polylet_e2e::steps::Steps;
use polylet_e2e::{example, node_with, ok};
use polylet_harness::build::MULTICALL;
use polylet_harness::node::{SERVICES, default_bin_dir};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions};

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn upgrading_one_name_restarts_that_service_only() {
    let dir = ok(tempfile::tempdir());
    let shipped = default_bin_dir().join(MULTICALL);
    install(&shipped, dir.path());
    let names = SERVICES.map(|service| format!("polylet-{service}"));
    let file = inode(&dir.path().join("polylet"));
    for name in &names {
        assert_eq!(inode(&dir.path().join(name)), file, "{name}");
    }

    let options = NodeOptions {
        bin_dir: Some(dir.path().to_owned()),
        ..NodeOptions::default()
    };
    let mut node = node_with(options).await;
    let pod = example(&node).await;
    ok(node.wait_in_step().await);
    let before = running(&node).await;
    assert_eq!(before.len(), SERVICES.len() + 1, "{before:?}");
    assert!(before.iter().all(|run| run.file == file), "{before:?}");

    let mut steps = Steps::new();
    let upgraded = "polylet-sync-coordinator";
    steps
        .run("the upgraded file runs", async {
            let beside = ok(tempfile::tempdir_in(dir.path()));
            install(&shipped, beside.path());
            let newer = inode(&beside.path().join(upgraded));
            ok(fs::rename(
                beside.path().join(upgraded),
                dir.path().join(upgraded),
            ));
            ok(node.kill("sync-coordinator").await);
            ok(until("the upgraded service to run", || async {
                let runs = running(&node).await;
                let is_new = |run: &Running| run.name == upgraded && run.file == newer;
                match runs.iter().any(is_new) {
                    true => Poll::Ready(()),
                    false => Poll::Pending(format!("{runs:?}")),
                }
            })
            .await);
            ok(node.wait_in_step().await);
            for run in running(&node).await {
                if run.name == upgraded {
                    assert_eq!(run.file, newer, "{run:?}");
                } else {
                    assert!(before.contains(&run), "{run:?} was not there before");
                }
            }
        })
        .await;
    steps
        .run("the pod is not affected", async {
            let after = ok(node.wait_ready("web").await);
            let ids = |pod: &polylet_harness::PodView| {
                let server = pod.container("server");
                server.map(|server| (server.id.clone(), server.restarts))
            };
            assert_eq!(ids(&after), ids(&pod));
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// A service's process, or the supervisor's.
#[derive(Debug, PartialEq)]
struct Running {
    name: String,
    pid: u32,
    file: u64,
}

/// The processes as the supervisor tells them. A listing of all processes would also show children that
/// have not replaced their parent's command line yet.
async fn running(node: &Node) -> Vec<Running> {
    let services = ok(node.services().await).into_iter();
    services
        .filter_map(|service| {
            // One that ended a moment ago has no file.
            let file = fs::metadata(format!("/proc/{}/exe", service.pid)).ok()?;
            Some(Running {
                name: format!("polylet-{}", service.name),
                pid: service.pid,
                file: file.ino(),
            })
        })
        .collect()
}

fn inode(path: &Path) -> u64 {
    ok(fs::metadata(path)).ino()
}

fn install(file: &Path, directory: &Path) {
    let mut command = Command::new(file);
    let status = ok(command.arg("--install").arg(directory).status());
    assert!(status.success(), "{} --install: {status}", file.display());
}
