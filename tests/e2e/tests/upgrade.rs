//! Upgrades of each service in turn while a pod runs: no container is restarted, a program that does not
//! work is rolled back, one that does not fit is refused, and a killed supervisor continues.

use polylet_e2e::programs::{another_build, cli, history, installed, script, shown, text};
use polylet_e2e::steps::Steps;
use polylet_e2e::{example, node_with, ok};
use polylet_harness::node::SERVICES;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, PodView};
use serde_json::json;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn services_are_upgraded_under_running_pods() {
    let bin = installed();
    let new = another_build();
    let options = NodeOptions {
        bin_dir: Some(bin.path().to_owned()),
        ..NodeOptions::default()
    };
    let mut node = node_with(options).await;
    let pod = example(&node).await;
    ok(node.wait_in_step().await);
    let mut steps = Steps::new();
    for service in SERVICES {
        let title = format!("{service} is upgraded and rolled back");
        let to = new.path().join(format!("polylet-{service}"));
        steps
            .run(&title, async {
                let upgraded = cli(&node, &["upgrade", service, "--to", &shown(&to)]).await;
                assert!(upgraded.status.success(), "{}", text(&upgraded));
                assert_undisturbed(&node, &pod).await;
                let back = cli(&node, &["rollback", service]).await;
                assert!(back.status.success(), "{}", text(&back));
                assert_undisturbed(&node, &pod).await;
            })
            .await;
    }
    steps
        .run(
            "all are upgraded, and a killed supervisor continues",
            async {
                let to = shown(new.path());
                let upgrade = ["upgrade", "--all", "--to", &to];
                let command = cli(&node, &upgrade);
                let killed = async {
                    ok(until("the third service", || async {
                        let upgrades = history(&node).await;
                        let last = upgrades.last().cloned().unwrap_or_default();
                        match (last["service"] == "prober", last["finishedAt"] == "") {
                            (true, true) if last["kind"] == "upgrade" => Poll::Ready(()),
                            _ => Poll::Pending(last.to_string()),
                        }
                    })
                    .await);
                    let supervisor = node.supervisor_pid().expect("a supervisor");
                    let pid = i32::try_from(supervisor).ok();
                    let pid = pid.and_then(rustix::process::Pid::from_raw);
                    let pid = pid.expect("a process id");
                    ok(rustix::process::kill_process(
                        pid,
                        rustix::process::Signal::KILL,
                    ));
                };
                let (output, ()) = futures::join!(command, killed);
                assert!(!output.status.success(), "{}", text(&output));
            },
        )
        .await;
    node.down();
    ok(node.up().await);
    steps
        .run("the upgrade ends after the restart", async {
            ok(until("the end of the upgrade", || async {
                let upgrades = history(&node).await;
                let last = upgrades.last().cloned().unwrap_or_default();
                match last["service"] == "supervisor" && last["step"] == "done" {
                    true => Poll::Ready(()),
                    false => Poll::Pending(last.to_string()),
                }
            })
            .await);
            assert_undisturbed(&node, &pod).await;
            let back = cli(&node, &["rollback", "--all"]).await;
            assert!(back.status.success(), "{}", text(&back));
            assert_undisturbed(&node, &pod).await;
        })
        .await;
    steps
        .run("a program that never becomes ready is rolled back", async {
            let hangs = script(&bin.path().join("polylet-prober"), new.path(), |_| {});
            let to = shown(&hangs);
            let args = ["upgrade", "prober", "--timeout", "5s", "--to", &to];
            let failed = cli(&node, &args).await;
            assert!(!failed.status.success());
            assert!(
                text(&failed).contains("prober was rolled back"),
                "{}",
                text(&failed)
            );
            assert_undisturbed(&node, &pod).await;
        })
        .await;
    steps
        .run("a program that serves too low a level is refused", async {
            let old = script(&bin.path().join("polylet-pleg"), new.path(), |descriptor| {
                descriptor["serves"][0]["level"] = json!(0);
            });
            let refused = cli(&node, &["upgrade", "pleg", "--to", &shown(&old)]).await;
            assert!(!refused.status.success());
            let expected = "but pleg would serve level 0";
            assert!(text(&refused).contains(expected), "{}", text(&refused));
            assert!(
                text(&refused).contains("sync-coordinator needs polylet.pleg.v1 of pleg"),
                "{}",
                text(&refused)
            );
            assert_undisturbed(&node, &pod).await;
        })
        .await;
    steps.finish();
    ok(node.remove());
}

/// The pod is Ready, in the same containers as before.
async fn assert_undisturbed(node: &Node, pod: &PodView) {
    let now = ok(node.wait_ready("web").await);
    assert_eq!(now.identity(), pod.identity());
}
