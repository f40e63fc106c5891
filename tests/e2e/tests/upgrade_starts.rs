//! Starts of pods after an upgrade are compared with those before it, and an upgrade that makes them slower is rolled
//! back.

use std::collections::BTreeSet;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylet_e2e::programs::{another_build, cli, history, installed, shown, text};
use polylet_e2e::runtime_proxy::{CallDelay, ProxiedNode};
use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions};
use serde_json::{Value, json};

/// As few starts as a comparison needs, and some more.
const STARTS: usize = 12;
/// What the runtime takes longer for each container: far more than starts vary by.
const DELAY: Duration = Duration::from_millis(700);

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn an_upgrade_with_slower_starts_is_rolled_back() {
    let is_delayed = Arc::new(AtomicBool::new(false));
    let delay: CallDelay = {
        let is_delayed = Arc::clone(&is_delayed);
        Arc::new(move |path, _| {
            match path.ends_with("/CreateContainer") && is_delayed.load(Ordering::Relaxed) {
                true => DELAY,
                false => Duration::ZERO,
            }
        })
    };
    let (bin, new) = (installed(), another_build());
    let options = NodeOptions {
        bin_dir: Some(bin.path().to_owned()),
        ..NodeOptions::default()
    };
    let ProxiedNode { node, .. } = &ProxiedNode::start(options, &delay).await;
    let program = |service: &str| shown(&new.path().join(format!("polylet-{service}")));
    let mut steps = Steps::new();
    steps
        .require("starts before the upgrade", async {
            for n in 0..STARTS {
                start_and_remove(node, n).await;
            }
            until_recorded(node, STARTS).await;
        })
        .await;
    steps
        .run("with too few starts the new version remains", async {
            let to = program("pleg");
            let watch = ["--watch-starts", "10", "--watch-for", "1s"];
            let args = ["upgrade", "pleg", "--fail-on", "slower", "--to", &to];
            let upgraded = cli(node, &[&args[..], &watch].concat()).await;
            assert!(upgraded.status.success(), "{}", text(&upgraded));
            let shown = text(&upgraded);
            assert!(
                shown.contains("starts: too few (0 after, 10 before)"),
                "{shown}"
            );
            let last = history(node).await.pop().unwrap_or_default();
            assert_eq!(last["service"], "pleg");
            assert_eq!(
                (&last["step"], &last["starts"]["verdict"]),
                (&json!("done"), &json!("too few"))
            );
        })
        .await;
    steps
        .run(
            "with slower starts the version before is brought back",
            async {
                let to = program("sync-coordinator");
                let count = STARTS.to_string();
                let watch = ["--watch-starts", &count, "--fail-on", "slower", "--to", &to];
                let args = [&["upgrade", "sync-coordinator"][..], &watch].concat();
                let upgraded = upgrade_and_start(node, &args, &is_delayed).await;
                is_delayed.store(false, Ordering::Relaxed);
                let shown = text(&upgraded);
                println!("{shown}");
                assert_eq!(upgraded.status.code(), Some(2), "{shown}");
                assert!(
                    shown.contains("sync-coordinator: rolled back")
                        || shown.contains("sync-coordinator: done"),
                    "{shown}"
                );
                assert!(
                    shown.contains("polylet: rolled back, as starts of pods are slower"),
                    "{shown}"
                );
                assert_history(&history(node).await);
                let table = text(&cli(node, &["history"]).await);
                assert!(
                    table.contains("slower (12 after, 12 before): total +"),
                    "{table}"
                );
            },
        )
        .await;
    steps
        .run("pods start as before", async {
            start_and_remove(node, 2 * STARTS).await;
        })
        .await;
    steps.finish();
}

/// Runs the upgrade, and starts pods from its end until the command's.
async fn upgrade_and_start(node: &Node, args: &[&str], is_delayed: &AtomicBool) -> Output {
    let command = cli(node, args);
    let starts = async {
        ok(until("the end of the upgrade", || async {
            let last = history(node).await.pop().unwrap_or_default();
            match last["service"] == "sync-coordinator" && last["step"] == "done" {
                true => Poll::Ready(()),
                false => Poll::Pending(last.to_string()),
            }
        })
        .await);
        is_delayed.store(true, Ordering::Relaxed);
        for n in STARTS.. {
            start_and_remove(node, n).await;
        }
    };
    tokio::select! {
        output = command => output,
        () = starts => unreachable!("pods are started until the command ends"),
    }
}

/// The last two entries are the upgrade, with what has been found, and its rollback.
fn assert_history(history: &[Value]) {
    let [.., upgrade, rollback] = history else {
        panic!("{history:?}");
    };
    let kinds = [&upgrade["kind"], &rollback["kind"]];
    assert_eq!(kinds, [&json!("upgrade"), &json!("rollback")]);
    for entry in [upgrade, rollback] {
        assert_eq!(
            (&entry["service"], &entry["step"]),
            (&json!("sync-coordinator"), &json!("done"))
        );
    }
    assert_eq!(upgrade["fromVersion"], rollback["toVersion"]);
    let starts = &upgrade["starts"];
    assert_eq!(starts["verdict"], "slower", "{starts}");
    let slower = starts["slower"].as_array().into_iter().flatten();
    let slower: BTreeSet<&str> = slower
        .filter_map(|step| step.as_str()?.split(' ').next())
        .collect();
    let expected = ["sync-coordinator/cri.CreateContainer", "total"];
    assert!(
        expected.iter().all(|step| slower.contains(step)),
        "{starts}"
    );
}

/// Waits until so many starts have ended.
async fn until_recorded(node: &Node, count: usize) {
    ok(until(format!("{count} traces"), || async {
        let output = cli(node, &["trace", "list", "-o", "json"]).await;
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        match listed["traces"].as_array().map_or(0, Vec::len) {
            found if found >= count => Poll::Ready(()),
            found => Poll::Pending(format!("{found} traces")),
        }
    })
    .await);
}

async fn start_and_remove(node: &Node, n: usize) {
    let name = format!("start-{n}");
    let file = format!("{name}.json");
    let manifest = pod(&name, RUNS, &json!({ "hostNetwork": true }));
    ok(node.put(&file, &manifest));
    ok(node.wait_ready(&name).await);
    ok(node.take(&file));
    ok(node.wait_gone(&name).await);
}
