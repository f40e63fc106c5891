//! The supervisor is upgraded and rolled back while a pod runs: its services keep their processes, and no call
//! to them or to it is refused. One that does not work, or is killed meanwhile, does not disturb the pod.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use polylet_e2e::programs::{build, cli, history, installed, shown, text};
use polylet_e2e::steps::Steps;
use polylet_e2e::{example, node_with, ok};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView, http};
use serde_json::Value;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn the_supervisor_is_upgraded_under_running_services() {
    let bin = installed();
    let new = ok(tempfile::tempdir());
    build("polylet", new.path());
    let options = NodeOptions {
        bin_dir: Some(bin.path().to_owned()),
        ..NodeOptions::default()
    };
    let mut node = node_with(options).await;
    let pod = example(&node).await;
    ok(node.wait_in_step().await);
    let mut steps = Steps::new();
    let to = shown(&new.path().join("polylet"));
    let before = processes(&node).await;
    steps
        .run("it is upgraded and rolled back while clients call", async {
            let stop = AtomicBool::new(false);
            let upgrades = async {
                for _ in 0..3 {
                    let args = ["upgrade", "supervisor", "--to", &to];
                    let upgraded = cli(&node, &args).await;
                    assert!(upgraded.status.success(), "{}", text(&upgraded));
                    let back = cli(&node, &["rollback", "supervisor"]).await;
                    assert!(back.status.success(), "{}", text(&back));
                }
                stop.store(true, Ordering::Relaxed);
            };
            let (status, api) = (AtomicU32::new(0), AtomicU32::new(0));
            let statuses = async {
                while !stop.load(Ordering::Relaxed) {
                    let output = cli(&node, &["status"]).await;
                    assert!(output.status.success(), "{}", text(&output));
                    status.fetch_add(1, Ordering::Relaxed);
                }
            };
            let requests = async {
                while !stop.load(Ordering::Relaxed) {
                    let tls = ok(node.pki().tls(false));
                    let answer = ok(http::get_tls(tls, node.ports().0, "/pods").await);
                    assert_eq!(answer.code(), 200, "{answer:?}");
                    api.fetch_add(1, Ordering::Relaxed);
                }
            };
            futures::join!(upgrades, statuses, requests);
            println!(
                "none of {} calls of polylet status and {} of the node API was refused",
                status.into_inner(),
                api.into_inner()
            );
            assert_eq!(processes(&node).await, before);
            assert_undisturbed(&node, &pod).await;
        })
        .await;
    steps
        .run("one that ends at once is not started again", async {
            let ends = script(bin.path(), new.path(), "exit 3");
            let args = ["upgrade", "supervisor", "--to", &ends];
            let upgrade = cli(&node, &args);
            let ended = until("the end of the supervisor", || async {
                match node.supervisor_pid().is_some_and(is_alive) {
                    true => Poll::Pending("it runs".to_owned()),
                    false => Poll::Ready(()),
                }
            });
            // Nobody starts it again, so the command waits for nothing: only its beginning is of interest.
            let upgrade = tokio::time::timeout(std::time::Duration::from_secs(60), upgrade);
            tokio::select! {
                output = upgrade => panic!("{output:?}"),
                ended = ended => ok(ended),
            }
        })
        .await;
    node.down();
    ok(node.up().await);
    steps
        .run("it was rolled back", async {
            let last = last(&node).await;
            assert_eq!(last["step"], "rolled back", "{last}");
            assert_undisturbed(&node, &pod).await;
        })
        .await;
    for step in ["installed", "restarted"] {
        let title = format!("it is killed when it is {step}");
        steps
            .run(&title, async {
                let runs = history(&node).await.len();
                // Another program each time.
                let other = new.path().join(step);
                ok(fs::create_dir(&other));
                build("polylet", &other);
                let mut file = ok(fs::File::options().append(true).open(other.join("polylet")));
                ok(file.write_all(step.as_bytes()));
                // One that is open for writing cannot be executed.
                drop(file);
                let other = shown(&other.join("polylet"));
                let args = ["upgrade", "supervisor", "--to", &other];
                let upgrade = cli(&node, &args);
                let killed = until(step, || async {
                    let upgrades = history(&node).await;
                    let last = upgrades.last().cloned().unwrap_or_default();
                    match upgrades.len() > runs && last["step"] == step {
                        true => Poll::Ready(()),
                        false => Poll::Pending(last.to_string()),
                    }
                });
                tokio::select! {
                    // The step may be shorter than the interval between two looks at it.
                    output = upgrade => {
                        assert!(output.status.success(), "{}", text(&output));
                        println!("it ended before it was seen as {step}");
                    }
                    killed = killed => ok(killed),
                }
            })
            .await;
        ok(node.kill("supervisor").await);
        ok(node.up().await);
        steps
            .run("the upgrade ends after the restart", async {
                ok(until("the end of the upgrade", || async {
                    let last = last(&node).await;
                    match last["finishedAt"] == "" {
                        true => Poll::Pending(last.to_string()),
                        false => Poll::Ready(()),
                    }
                })
                .await);
                assert_undisturbed(&node, &pod).await;
            })
            .await;
    }
    steps.finish();
    ok(node.remove());
}

/// A supervisor with the descriptor and the checks of the present one, which otherwise runs a script.
fn script(bin: &Path, directory: &Path, script: &str) -> String {
    let path = directory.join("script");
    let real = directory.join("real/polylet");
    ok(fs::create_dir_all(directory.join("real")));
    ok(fs::copy(bin.join("polylet"), &real));
    let real = shown(&real);
    let text = format!(
        "#!/bin/sh\ncase $1 in --descriptor|--handover-check) exec {real} \"$@\";; esac\n{script}\n"
    );
    ok(fs::write(&path, text));
    let executable = fs::Permissions::from_mode(0o755);
    ok(fs::set_permissions(&path, executable));
    shown(&path)
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// Process and restarts of each service, and of the supervisor.
async fn processes(node: &Node) -> Vec<(String, u32, u32)> {
    let services = ok(node.services().await).into_iter();
    services
        .map(|service| (service.name, service.pid, service.restarts))
        .collect()
}

async fn last(node: &Node) -> Value {
    history(node).await.pop().unwrap_or_default()
}

/// The pod is Ready, in the same containers as before.
async fn assert_undisturbed(node: &Node, pod: &PodView) {
    let now = ok(node.wait_ready("web").await);
    assert_eq!(now.identity(), pod.identity());
}
